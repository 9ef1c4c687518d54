// Tables: opened, created (by the pool), dropped. Steps S7 of README.md.
#include <algorithm>
#include <new>
#include <string>

#include "base/spec.hpp"
#include "store/latches.hpp"
#include "store/state.hpp"

namespace everleaf::store {
namespace {

// Of a redo record, beside the entries that count them.
constexpr std::size_t kBlocksPerRecord = 96;
static_assert(kBlocksPerRecord + 2 <= alloc::Redo::kMax);

std::unexpected<Error> failed(Outcome outcome) {
  return std::unexpected(Error{code_of(outcome), std::string(describe(outcome))});
}

}  // namespace

Code code_of(Outcome outcome) {
  switch (outcome) {
    case Outcome::out_of_space:
      return Code::out_of_space;
    case Outcome::read_only:
      return Code::read_only;
    case Outcome::too_many_threads:
      return Code::bad_argument;
    case Outcome::io_error:
      return Code::io;
    default:
      return Code::corrupt;
  }
}

// tables_mutex_ is held, or the store is being opened.
template <class K>
Result<std::shared_ptr<TableOf<K>>> State::load(const std::string& name, std::string_view spec) {
  auto tree = base_.index<K>(name, spec, detail::PoolState::Kind::table);
  if (!tree) return std::unexpected(tree.error());
  IndexInfo info = base_.info_of(*tree);
  const auto row = tree::find_tree(base::tree_of(info.spec));
  // table() makes none of these, and writing to one would need a clock that is not there.
  if (!read_only() && row && (*row)->info.durability != durability_) {
    return std::unexpected(
        Error{Code::corrupt, "the store's root block says " + std::string(to_string(durability_)) +
                                 ", which a " + info.spec + " is not: open the store read-only"});
  }
  start_reclaiming();
  auto table = std::make_shared<TableOf<K>>(*this, std::move(info), *tree);
  tables_.emplace(name, table);
  return table;
}

template <class K>
Result<std::shared_ptr<TableOf<K>>> State::table(std::string_view name, std::string_view spec) {
  try {
    const base::MutexGuard guard(tables_mutex_);
    const auto known = tables_.find(name);
    const std::string asked(!spec.empty() ? spec : buffered() ? "bdtree" : "wbtree");
    // What is there needs no spec, and what is asked for must fit it.
    auto there = base_.index<K>(name, {}, detail::PoolState::Kind::table);
    if (!there && (there.error().code != Code::not_found || read_only())) {
      return std::unexpected(there.error());
    }
    const std::string tree = asked.substr(0, asked.find(':'));
    for (const TreeInfo& one : trees()) {
      if (one.name != tree || one.durability == durability_ || (there && spec.empty())) continue;
      return std::unexpected(Error{
          Code::wrong_tree,
          "the store is " + std::string(to_string(durability_)) + ", and a " + tree + " is not"});
    }
    // The store's words would be payloads, and a repair would not find them in leaves.
    if (const auto parsed = base::parse_spec(asked);
        parsed && base::option_of(*parsed, "values") == "bytes") {
      return std::unexpected(Error{Code::bad_option,
                                   "a table keeps its values in records of the store, not in "
                                   "the tree: leave out values=bytes"});
    }
    if (there && !spec.empty()) {
      there = base_.index<K>(name, spec, detail::PoolState::Kind::table);
      if (!there) return std::unexpected(there.error());
    }
    if (known != tables_.end()) return std::static_pointer_cast<TableOf<K>>(known->second);
    bury(false);
    return load<K>(std::string(name), there ? std::string() : asked);
  } catch (const std::bad_alloc&) {
    return std::unexpected(Error{Code::out_of_space, "no memory to open the table"});
  }
}

template Result<std::shared_ptr<TableOf<Bytes>>> State::table(std::string_view, std::string_view);
template Result<std::shared_ptr<TableOf<std::uint64_t>>> State::table(std::string_view,
                                                                      std::string_view);
template Result<std::shared_ptr<TableOf<Bytes>>> State::load(const std::string&, std::string_view);
template Result<std::shared_ptr<TableOf<std::uint64_t>>> State::load(const std::string&,
                                                                     std::string_view);

Result<std::vector<IndexInfo>> State::tables() const {
  auto all = base_.indexes();
  if (all) std::erase_if(*all, [](const IndexInfo& info) { return !info.table; });
  return all;
}

// S7. The redo record that frees the directory's entry names the list of the table's blocks; from
// then on the table is gone, and the blocks are freed some at a time, with a count of those that
// are.
Result<void> State::drop_table(std::string_view name) {
  if (const Outcome admitted = admit(); admitted != Outcome::done) return failed(admitted);
  try {
    const base::MutexGuard guard(tables_mutex_);
    bury(false);
    const auto known = tables_.find(name);
    if (known == tables_.end()) {
      return std::unexpected(
          Error{Code::not_found, "there is no table '" + std::string(name) + "'"});
    }
    // Blocks of another table, for whose end memory was out.
    if (auto finished = finish_drop(false); !finished) return finished;
    // Memory that is needed later, before anything happens.
    graves_.reserve(graves_.size() + 1);
    std::vector<Word> words;
    const std::shared_ptr<TableBase> table = known->second;
    {
      const AllLatches latches(*this);
      // The drop is durable at once, so what was done before it is, too: a crash must not take back
      // that the entries were copied elsewhere. No hold keeps the clock: batches have latches
      // first.
      if (const Outcome synced = sync(); synced != Outcome::done) return failed(synced);
      Grave grave{next_grave_++, {}, {}};
      auto blocks = base_.blocks_of(name);
      if (!blocks) return std::unexpected(blocks.error());
      const Outcome walked = table->for_each_word([&words](Word word) {
        words.push_back(word);
        return true;
      });
      if (walked != Outcome::done) return failed(walked);
      const Offset list = write_list(*blocks);
      if (list == 0) return failed(medium().failed() ? Outcome::io_error : Outcome::out_of_space);
      Fresh listed(*this);
      listed.adopt(list);
      alloc::Redo record;
      record.store(medium().offset_of(&root().dropping), list);
      record.store(medium().offset_of(&root().dropped), 0);
      const Outcome outcome = base_.drop(name, record, grave.trees);
      if (outcome == Outcome::done || outcome == Outcome::io_error) listed.keep();
      if (outcome != Outcome::done) return failed(outcome);
      table->dropped.store(true, std::memory_order_seq_cst);
      graves_.push_back(std::move(grave));
      if (free_some(*blocks)) {
        space_->free(list);
        graves_.back().blocks = std::move(*blocks);
      } else {
        // The next drop or the next open goes on; until then the list's memory is nobody's.
        pending_.fetch_add(1, std::memory_order_relaxed);
      }
    }
    tables_.erase(known);
    // Nobody finds the table any more. Its drop is durable: no state that is restored names its
    // records, and readers alone keep them.
    {
      const alloc::Grace::Pin pin(grace_);
      for (const Word word : words) {
        if (!damaged_.empty() && damaged_.contains(word)) continue;
        pending_.fetch_add(1, std::memory_order_relaxed);
        grace_.retire(Record::of(word).at);
      }
      grace_.retire(graves_.back().number * 2 + 1);
    }
    grace_.collect_all();
    bury(false);
  } catch (const std::bad_alloc&) {
    return failed(Outcome::out_of_space);
  }
  return medium().failed() ? Result<void>(failed(Outcome::io_error)) : Result<void>();
}

// False: not all of them.
bool State::free_some(std::span<const Word> blocks) {
  try {
    return free_blocks(blocks) == Outcome::done;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

// From the `dropped`-th on. Durably; the heap hands them out after recycle().
Outcome State::free_blocks(std::span<const Word> blocks) {
  for (std::size_t done = pmem::load(&root().dropped); done < blocks.size();) {
    const auto some = blocks.subspan(done, std::min(kBlocksPerRecord, blocks.size() - done));
    alloc::Redo record;
    for (const Offset block : some) {
      if (!base_.heap().release(record, block)) return Outcome::corrupt;
    }
    done += some.size();
    record.store(medium().offset_of(&root().dropped), done);
    if (done == blocks.size()) record.store(medium().offset_of(&root().dropping), 0);
    if (const Outcome outcome = base_.redo().commit(record); outcome != Outcome::done) {
      return outcome;
    }
  }
  return Outcome::done;
}

// Of a table whose drop was not ended, those that are free already among them; all of it is looked
// at before anything is written.
Result<std::vector<Word>> State::blocks_to_free() const {
  std::vector<Word> blocks;
  const Offset list = pmem::load(&root().dropping);
  if (list == 0 || read_only()) return blocks;
  const std::size_t done = pmem::load(&root().dropped);
  const auto is_taken = [this](Word block) { return base_.heap().allocated_bytes(block) != 0; };
  if (read_list(list, blocks) && done <= blocks.size() &&
      std::ranges::all_of(std::span(blocks).subspan(done), is_taken)) {
    // One that is named twice would be given away twice.
    std::vector<Word> sorted = blocks;
    std::ranges::sort(sorted);
    if (std::ranges::adjacent_find(sorted) == sorted.end()) return blocks;
  }
  return std::unexpected(Error{Code::corrupt, "the list of a dropped table at offset " +
                                                  std::to_string(list) +
                                                  " is damaged: open the store read-only"});
}

// A9: a crash came before all blocks were free. `recycle`: nobody reads them any more.
Result<void> State::finish_drop(bool recycle) {
  const auto blocks = blocks_to_free();
  if (!blocks) return std::unexpected(blocks.error());
  if (blocks->empty()) return {};
  const std::size_t done = pmem::load(&root().dropped);
  if (const Outcome outcome = free_blocks(*blocks); outcome != Outcome::done) {
    return failed(outcome);
  }
  for (std::size_t i = done; recycle && i < blocks->size(); ++i) {
    base_.heap().recycle((*blocks)[i]);
  }
  return {};
}

// Trees that nobody reads any more, not within a step of the clock; `all`: nobody reads any.
void State::bury(bool all) {
  std::vector<std::uint64_t> ready;
  {
    const base::MutexGuard guard(burying_);
    ready.swap(buried_);
  }
  std::erase_if(graves_, [&](Grave& grave) {
    if (!all && std::ranges::find(ready, grave.number) == ready.end()) return false;
    grave.trees = {};
    for (const Offset block : grave.blocks) base_.heap().recycle(block);
    return true;
  });
}

}  // namespace everleaf::store
