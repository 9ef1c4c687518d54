// Batches: S8 and S9 of README.md.
//
// A batch first makes its records, then takes the latches of all its keys, and then writes: keys
// that are new, keys that get another value, keys that go. All but the last can be refused for lack
// of space, and all of them can be taken back without any; removals need none.
#include <algorithm>
#include <new>
#include <string>
#include <tuple>

#include "store/state.hpp"

namespace everleaf::store {
namespace {

using detail::Write;

// In the root's word, beside the list's offset.
constexpr Word kUndo = 1;  // take back what was inserted and updated
constexpr Word kRedo = 2;  // go on with the removals
constexpr Word kStateBits = 15;
// Of a list: names of tables, three words of an operation and its key.
constexpr std::size_t kMostWords =
    kMaxIndexes * (2 + kMaxNameBytes) + kMaxBatchOperations * 5 + kMaxBatchBytes / sizeof(Word);

// Of an item in the list: its table's number there, its kind, old word, then the key.
enum class Kind : Word { insert, update, remove };

struct Step {
  TableBase* table;
  const OwnedAny* key;
  Kind kind;
  Word old;
  Word fresh;
};

void append(std::vector<Word>& words, Bytes bytes) {
  words.push_back(bytes.size());
  const std::size_t at = words.size();
  words.resize(at + (bytes.size() + sizeof(Word) - 1) / sizeof(Word));
  if (!bytes.empty()) std::memcpy(words.data() + at, bytes.data(), bytes.size());
}

// Takes words off the front; false: there are not enough.
bool take(std::span<const Word>& words, Word& word) {
  if (words.empty()) return false;
  word = words.front();
  words = words.subspan(1);
  return true;
}
bool take(std::span<const Word>& words, std::string& bytes) {
  Word size = 0;
  if (!take(words, size) || size > words.size_bytes()) return false;
  bytes.assign(reinterpret_cast<const char*>(words.data()), size);
  words = words.subspan((size + sizeof(Word) - 1) / sizeof(Word));
  return true;
}

// The state before the step, again. Done already: the same.
Outcome undo(const Step& step) {
  const Outcome outcome = step.kind == Kind::insert ? step.table->write(*step.key, 0, Write::remove)
                          : step.kind == Kind::update
                              ? step.table->write(*step.key, step.old, Write::update)
                              : step.table->write(*step.key, step.old, Write::upsert);
  return step.kind == Kind::insert && outcome == Outcome::absent ? Outcome::done : outcome;
}

Outcome apply(const Step& step) {
  switch (step.kind) {
    case Kind::insert:
      return step.table->write(*step.key, step.fresh, Write::insert);
    case Kind::update:
      return step.table->write(*step.key, step.fresh, Write::update);
    default:
      return step.table->write(*step.key, 0, Write::remove);
  }
}

// Of the tables in a batch: by what their names hash to, so that the same batch makes the same
// stores wherever the tables lie in memory.
std::pair<std::uint64_t, const TableBase*> order_of(const TableBase* table) {
  return {table->seed, table};
}

// Tables by name, then the steps.
std::vector<Word> list_of(std::span<const Step> steps) {
  std::vector<TableBase*> tables;
  for (const Step& step : steps) tables.push_back(step.table);
  std::ranges::sort(tables, {}, order_of);
  tables.erase(std::ranges::unique(tables).begin(), tables.end());
  std::vector<Word> words{tables.size()};
  for (const TableBase* table : tables) append(words, table->info.name);
  for (const Step& step : steps) {
    const auto at = std::ranges::lower_bound(tables, order_of(step.table), {}, order_of);
    words.push_back(static_cast<Word>(at - tables.begin()) << 2 | static_cast<Word>(step.kind));
    words.push_back(step.old);
    if (const auto* const number = std::get_if<std::uint64_t>(step.key)) {
      words.push_back(*number);
    } else {
      append(words, std::get<std::string>(*step.key));
    }
  }
  return words;
}

}  // namespace

// One batch on its way: what it holds, in the order in which it is taken.
class State::Applying {
 public:
  Applying(State& state, std::span<const BatchItem* const> items) : state_(state), items_(items) {}
  Applying(const Applying&) = delete;
  Applying& operator=(const Applying&) = delete;
  ~Applying() {
    for (std::size_t i = locked_.size(); i-- > 0;) locked_[i]->unlock();
  }

  // S1 for all.
  Outcome make_records() {
    fresh_.reserve(items_.size());
    for (const BatchItem* const item : items_) {
      Fresh& fresh = fresh_.emplace_back(state_);
      if (!item->value) continue;
      const Outcome made = fresh.make(item->table->hash(item->key), *item->value, false);
      if (made != Outcome::done) return made;
    }
    return Outcome::done;  // S9: the list's fence is theirs, too
  }

  // In the order of their addresses (T1).
  void lock() {
    std::vector<Latch*> latches;
    latches.reserve(items_.size());
    for (const BatchItem* const item : items_) {
      latches.push_back(&state_.latch(item->table->hash(item->key)));
    }
    std::ranges::sort(latches);
    latches.erase(std::ranges::unique(latches).begin(), latches.end());
    locked_.reserve(latches.size());
    for (Latch* const latch : latches) {
      latch->lock();
      locked_.push_back(latch);
    }
  }

  Outcome plan() {
    steps_.reserve(items_.size());
    std::vector<Lookup> olds(items_.size());
    if (const Outcome found = find_all(olds); found != Outcome::done) return found;
    for (std::size_t i = 0; i < items_.size(); ++i) {
      const BatchItem& item = *items_[i];
      const Lookup& old = olds[i];
      if (!old && old.outcome != Outcome::absent) return old.outcome;
      if (!old && !item.value) continue;
      const Kind kind = !item.value ? Kind::remove : old ? Kind::update : Kind::insert;
      steps_.push_back({item.table.get(), &item.key, kind, *old, fresh_[i].word()});
    }
    std::ranges::stable_sort(steps_, {}, &Step::kind);
    return Outcome::done;
  }

  Outcome write() { return state_.buffered() ? write_in_one_epoch() : write_with_list(); }

  // After write() answered done: nothing of it goes any more.
  void keep() {
    for (Fresh& fresh : fresh_) fresh.keep();
    for (const Step& step : steps_) {
      if (step.kind != Kind::insert) state_.retire(step.old);
      std::visit([&](const auto& key) { note_written(*step.table, key); }, *step.key);
    }
  }
  // After any other answer.
  void give_up(Outcome outcome) {
    // A reader may have seen them, a backup, too.
    for (const Step& step : steps_) {
      if (shown_) std::visit([&](const auto& key) { note_written(*step.table, key); }, *step.key);
    }
    for (Fresh& fresh : fresh_) {
      if (outcome != Outcome::io_error && shown_ && fresh.word() != 0) state_.retire(fresh.word());
      if (outcome == Outcome::io_error || shown_) fresh.keep();
    }
  }

 private:
  // What the items' keys have: those of a table are neighbours.
  Outcome find_all(std::span<Lookup> olds) const {
    for (std::size_t begin = 0; begin < items_.size();) {
      const TableBase& table = *items_[begin]->table;
      std::size_t end = begin;
      while (end < items_.size() && items_[end]->table.get() == &table) ++end;
      if (table.dropped.load(std::memory_order_relaxed)) return Outcome::dropped;
      table.find_many(items_.subspan(begin, end - begin), olds.subspan(begin, end - begin));
      begin = end;
    }
    return Outcome::done;
  }

  void note_written(TableBase& table, std::uint64_t key) { state_.wrote(table, key); }
  void note_written(TableBase& table, const std::string& key) { state_.wrote(table, Bytes(key)); }

  [[nodiscard]] std::size_t first_removal() const {
    const auto at = std::ranges::find(steps_, Kind::remove, &Step::kind);
    return static_cast<std::size_t>(at - steps_.begin());
  }

  // Steps [from, to); what was done is taken back where one is refused. io_error: that is left to
  // recovery.
  Outcome steps(std::size_t from, std::size_t to) {
    for (std::size_t i = from; i < to; ++i) {
      shown_ = true;
      const Outcome outcome = store::apply(steps_[i]);
      if (outcome == Outcome::done) continue;
      if (outcome != Outcome::io_error && take_back(i)) return outcome;
      // Half of it is there and cannot go: nothing more may become durable.
      state_.medium().fail();
      return Outcome::io_error;
    }
    return Outcome::done;
  }

  bool take_back(std::size_t count) {
    if (count != 0) base::reached("store: a batch is taken back");
    while (count-- > 0) {
      if (undo(steps_[count]) != Outcome::done) return false;
    }
    return true;
  }

  // S8: all sections are of one epoch.
  Outcome write_in_one_epoch() {
    const epoch::Epochs::Hold hold(*state_.epochs());
    return steps(0, steps_.size());
  }

  // S9.
  Outcome write_with_list() {
    if (steps_.empty()) return Outcome::done;
    const std::vector<Word> words = list_of(steps_);
    const Offset list = state_.write_list(words);
    if (list == 0) return state_.medium().failed() ? Outcome::io_error : Outcome::out_of_space;
    const base::MutexGuard guard(state_.batches_);
    Word& word = state_.root().batch;
    if (!state_.set_root(word, list | kUndo)) return Outcome::io_error;
    const std::size_t removals = first_removal();
    Outcome outcome = steps(0, removals);
    // A removal is refused where nothing more is durable, or where DRAM is out.
    if (outcome == Outcome::done && removals != steps_.size()) {
      if (!state_.set_root(word, list | kRedo)) return Outcome::io_error;
      for (std::size_t i = removals; i < steps_.size(); ++i) {
        if (store::apply(steps_[i]) == Outcome::done) continue;
        state_.medium().fail();
        return Outcome::io_error;
      }
    }
    if (outcome == Outcome::io_error || !state_.set_root(word, 0)) return Outcome::io_error;
    state_.space().free(list);
    return outcome;
  }

  State& state_;
  std::span<const BatchItem* const> items_;
  std::vector<Fresh> fresh_;
  std::vector<Latch*> locked_;
  std::vector<Step> steps_;
  bool shown_ = false;
};

Outcome State::apply_once(const std::vector<const BatchItem*>& items) {
  Applying applying(*this, items);
  if (const Outcome made = applying.make_records(); made != Outcome::done) return made;
  applying.lock();
  Outcome outcome = applying.plan();
  if (outcome == Outcome::done) outcome = applying.write();
  if (outcome == Outcome::done) {
    applying.keep();
  } else {
    applying.give_up(outcome);
  }
  return outcome;
}

Outcome State::apply(const std::vector<BatchItem>& items) {
  if (const Outcome admitted = admit(); admitted != Outcome::done) return admitted;
  if (items.size() > kMaxBatchOperations) return Outcome::batch_too_large;
  std::size_t bytes = 0;
  for (const BatchItem& item : items) {
    // Where its store was, this one may be by now: the flag comes first.
    const bool dropped = item.table->dropped.load(std::memory_order_seq_cst);
    if (dropped || &item.table->state != this) return Outcome::dropped;
    if (item.value && item.table->too_long(item.key)) return Outcome::key_too_long;
    if (item.value && item.value->size() > kMaxValueBytes) return Outcome::value_too_long;
    bytes += (item.value ? item.value->size() : 0) +
             (item.key.index() == 0 ? sizeof(Word) : std::get<std::string>(item.key).size());
    if (bytes > kMaxBatchBytes) return Outcome::batch_too_large;
  }
  if (items.empty()) return Outcome::done;
  try {
    // The last write of each key.
    std::vector<const BatchItem*> last;
    last.reserve(items.size());
    for (const BatchItem& item : items) last.push_back(&item);
    const auto key_of = [](const BatchItem* item) {
      return std::tuple<decltype(order_of(nullptr)), const OwnedAny&>(order_of(item->table.get()),
                                                                      item->key);
    };
    std::ranges::stable_sort(last, {}, key_of);
    std::size_t kept = 0;
    for (std::size_t i = 0; i < last.size(); ++i) {
      const bool again = i + 1 < last.size() && key_of(last[i]) == key_of(last[i + 1]);
      if (!again) last[kept++] = last[i];
    }
    last.resize(kept);
    const Outcome outcome = apply_once(last);
    if (outcome != Outcome::out_of_space) return outcome;
    // What would wait for epochs could not, under the hold.
    wait_for_space();
    return apply_once(last);
  } catch (const std::bad_alloc&) {
    return Outcome::out_of_space;
  }
}

// What the list has; all of it is read before anything is written.
class State::Listed {
 public:
  explicit Listed(const State& state) : state_(state) {}

  // False: it is damaged; of a table that is not open `missing` has the name.
  bool read(std::span<const Word> words, std::string& missing) {
    Word count = 0;
    if (!take(words, count) || count > kMaxIndexes) return false;
    for (; count != 0; --count) {
      std::string name;
      if (!take(words, name)) return false;
      const auto known = state_.tables_.find(name);
      if (known == state_.tables_.end()) return missing = std::move(name), false;
      tables_.push_back(known->second.get());
    }
    while (!words.empty()) {
      if (steps_.size() == kMaxBatchOperations || !read_item(words)) return false;
    }
    for (std::size_t i = 0; i < steps_.size(); ++i) steps_[i].key = &keys_[i];
    return true;
  }
  [[nodiscard]] std::span<const Step> steps() const { return steps_; }
  [[nodiscard]] std::span<TableBase* const> tables() const { return tables_; }

 private:
  bool read_item(std::span<const Word>& words) {
    Word head = 0;
    Step step{};
    OwnedAny key;
    if (!take(words, head) || head >> 2 >= tables_.size() || (head & 3) > 2) return false;
    step.table = tables_[head >> 2];
    step.kind = static_cast<Kind>(head & 3);
    if (!take(words, step.old)) return false;
    const bool number = step.table->info.key_type == KeyType::u64;
    if (number ? !take(words, key.emplace<std::uint64_t>())
               : !take(words, key.emplace<std::string>())) {
      return false;
    }
    steps_.push_back(step);
    keys_.push_back(std::move(key));
    return true;
  }

  const State& state_;
  std::vector<TableBase*> tables_;
  std::vector<Step> steps_;
  std::vector<OwnedAny> keys_;
};

Error State::damaged_batch(std::string_view how) const {
  const Word list = pmem::load(&root().batch) & ~kStateBits;
  return {Code::corrupt,
          "the list of a batch at offset " + std::to_string(list) + std::string(how)};
}

// Its words alone, which need no table.
Result<std::vector<Word>> State::batch_words() const {
  const Word word = pmem::load(&root().batch);
  std::vector<Word> words;
  const Word way = word & kStateBits;
  const bool known = way == kUndo || way == kRedo;
  if (word == 0 || (known && read_list(word & ~kStateBits, words, kMostWords))) return words;
  return std::unexpected(damaged_batch(" is damaged"));
}

Result<void> State::read_batch(Listed& listed) const {
  if (pmem::load(&root().batch) == 0) return {};
  const auto words = batch_words();
  if (!words) return std::unexpected(words.error());
  std::string missing;
  if (listed.read(*words, missing)) return {};
  if (missing.empty()) return std::unexpected(damaged_batch(" is damaged"));
  return std::unexpected(damaged_batch(" names table '" + missing + "', which cannot be opened"));
}

Result<void> State::check_batch() const {
  Listed listed(*this);
  return read_batch(listed);
}

// Nothing is written into a tree that cannot be walked.
Result<void> State::walk_listed() const {
  Listed listed(*this);
  if (auto read = read_batch(listed); !read) return read;
  for (const TableBase* const table : listed.tables()) {
    const Outcome outcome = table->for_each_word([](Word) { return true; });
    if (outcome == Outcome::done) continue;
    return std::unexpected(Error{
        Code::corrupt, "a batch was under way in table '" + table->info.name +
                           "', which cannot be walked (" + std::string(to_string(outcome)) + ")"});
  }
  return {};
}

// A8: before anybody reads. Idempotent.
Result<void> State::recover_batch() {
  const Word word = pmem::load(&root().batch);
  if (word == 0) return {};
  Listed listed(*this);
  if (auto read = read_batch(listed); !read) return read;
  for (const Step& step : listed.steps()) {
    const bool removal = step.kind == Kind::remove;
    if (removal != ((word & kStateBits) == kRedo)) continue;
    Outcome outcome = removal ? store::apply(step) : undo(step);
    if (removal && outcome == Outcome::absent) outcome = Outcome::done;
    if (outcome == Outcome::done) continue;
    return std::unexpected(Error{code_of(outcome), "a batch that a crash left cannot be ended: " +
                                                       std::string(describe(outcome))});
  }
  if (set_root(root().batch, 0)) return {};
  return std::unexpected(Error{Code::io, "a write-back failed when the store was opened"});
}

// A8 for readers: the batch is ended by the same steps, in the private mapping alone. Trees open
// for that as for writing, and once more afterwards.
Result<Pool> State::without_batch(Pool pool) {
  detail::PoolState& base = PoolAccess::state(pool);
  if (!base.read_only()) return pool;
  const auto root = root_of(base);
  if (!root || pmem::load(&(*root)->batch) == 0) return pool;
  return PoolAccess::recover_in_memory(std::move(pool), [](Pool& writable) -> Result<void> {
    const auto state = base::shared_here(std::make_unique<State>(writable));
    // First: a forged list is not worth opening all tables for.
    if (const auto words = state->batch_words(); !words) return std::unexpected(words.error());
    if (auto opened = state->open_tables(); !opened) return opened;
    if (auto sound = state->walk_listed(); !sound) return sound;
    return state->recover_batch();
  });
}

}  // namespace everleaf::store
