// Opening, closing, and memory for records. Persist steps S4 to S6 of README.md.
#include <algorithm>
#include <new>
#include <string>

#include "base/last_words.hpp"
#include "base/stopwatch.hpp"
#include "store/state.hpp"

namespace everleaf::store {
namespace {

constexpr Word kStrict = 1;
constexpr Word kBuffered = 2;

std::unexpected<Error> corrupt(const std::string& what) {
  return std::unexpected(Error{Code::corrupt, what});
}
std::unexpected<Error> write_back_failed() {
  return std::unexpected(Error{Code::io, "a write-back failed; the store takes no more writes"});
}
std::string walk_failed(const std::string& table, Outcome outcome) {
  std::string what = "table '" + table;
  what += "' cannot be walked (";
  what += to_string(outcome);
  return what + ")";
}
std::unexpected<Error> cannot_be_walked(const std::string& table, Outcome outcome) {
  return corrupt(walk_failed(table, outcome) + ": open the store read-only");
}

}  // namespace

State::State(Pool pool)
    : pool_(std::move(pool)),
      base_(PoolAccess::state(pool_)),
      grace_([this](std::uint64_t item) { recycle(item); }),
      latches_(std::make_unique<Latch[]>(std::size_t{1} << base::kKeyStripeBits)) {}

State::~State() {
  if (!finished_) base::LastWords::say([this] { return finish(); });
  stop_reclaiming();
  // A batch may have them still.
  for (const auto& [name, table] : tables_) table->dropped.store(true, std::memory_order_seq_cst);
  tables_.clear();
  graves_.clear();
}

// Records are aligned to 16; an odd item is a grave's.
void State::recycle(std::uint64_t item) {
  if ((item & 1) != 0) {
    const base::MutexGuard guard(burying_);
    buried_.push_back(item / 2);
    return;
  }
  space_->free(item);
  pending_.fetch_sub(1, std::memory_order_release);  // with add_unnamed()
}

Result<std::shared_ptr<State>> State::start(Pool pool, std::optional<Durability> durability) {
  const std::uint64_t started = base::now_ns();
  try {
    auto whole = without_batch(std::move(pool));
    if (!whole) return std::unexpected(whole.error());
    auto state = base::shared_here(std::make_unique<State>(std::move(*whole)));
    Result<void> opened;
    if (!state->has_root()) {
      opened = state->may_be_new();
      if (opened) opened = state->create(durability.value_or(Durability::buffered));
    }
    if (opened) opened = state->open(durability);
    if (!opened) return std::unexpected(opened.error());
    state->finished_ = false;
    state->open_ns_ = base::now_ns() - started;
    return state;
  } catch (const std::bad_alloc&) {
    return std::unexpected(Error{Code::out_of_space, "no memory to open the store"});
  }
}

// No crash leaves a table without a root block: the root comes first (S4), and stays. A new store
// would take the tables' records for free.
Result<void> State::may_be_new() const {
  std::vector<std::string> damaged;
  const auto all = base_.indexes(&damaged);
  if (!all) return std::unexpected(all.error());
  const auto table = std::ranges::find_if(*all, &IndexInfo::table);
  if (table != all->end()) {
    std::string what = "the word at offset " + std::to_string(pmem::kStoreAt);
    what += " names no root block of a store, and there is table '" + table->name;
    return corrupt(what + "': `repair` copies what can be read");
  }
  // It may be a table's.
  if (!damaged.empty() && (!read_only() || base_.file().is_store())) {
    return corrupt(damaged.front());
  }
  if (!read_only()) return {};
  return std::unexpected(Error{Code::not_found, "there is no store in this pool"});
}

// S4: root block and first extent are covered by the redo record that names them.
Result<void> State::create(Durability durability) {
  alloc::Heap& heap = base_.heap();
  tree::Reserved root_block(heap);
  tree::Reserved extent(heap);
  alloc::Redo record;
  if (!root_block.get(sizeof(pmem::StoreRoot)) || !extent.get(epoch::Space::kFirstExtentBytes)) {
    if (medium().failed()) return write_back_failed();
    return std::unexpected(Error{Code::out_of_space, "no space for a store"});
  }
  if (!heap.activate(record, root_block.block()) || !heap.activate(record, extent.block())) {
    return corrupt("the heap is damaged: restore the pool from a copy");
  }
  // Not before: nothing but an error of the device refuses the store from here on.
  if (auto marked = base_.file().mark_store(); !marked) return marked;
  auto* const words = medium().at<Word>(root_block.block());
  for (std::size_t i = 0; i < sizeof(pmem::StoreRoot) / sizeof(Word); ++i) {
    medium().store(words + i, 0, 0);
  }
  auto* const made = medium().at<pmem::StoreRoot>(root_block.block());
  medium().store(&made->kind, durability == Durability::strict ? kStrict : kBuffered);
  medium().store(made->extents[0].data(), extent.block());
  medium().store(made->extents[0].data() + 1, epoch::Space::kFirstExtentBytes);
  medium().flush(made, sizeof *made);  // S4: the commit's first fence covers it
  record.cover(root_block.block(), sizeof *made);
  record.store(pmem::kStoreAt, root_block.block());
  const Outcome outcome = base_.redo().commit(record);
  root_block.settle(outcome);
  extent.settle(outcome);
  if (outcome == Outcome::done) return {};
  if (outcome == Outcome::io_error) return write_back_failed();
  return corrupt("the heap is damaged: restore the pool from a copy");
}

std::unique_ptr<epoch::Space> State::new_space() const {
  return std::make_unique<epoch::Space>(medium(), base_.heap(), base_.redo(),
                                        medium().offset_of(root().extents.data()),
                                        root().extents.size());
}

Result<pmem::StoreRoot*> State::root_of(detail::PoolState& base) {
  const Offset at = pmem::load(base.medium().at<Word>(pmem::kStoreAt));
  if (at % pmem::kLine != 0 || base.heap().allocated_bytes(at) < sizeof(pmem::StoreRoot)) {
    return corrupt("there is no root block of a store at offset " + std::to_string(at));
  }
  return base.medium().at<pmem::StoreRoot>(at);
}

Result<void> State::open(std::optional<Durability> durability) {
  if (auto root = root_of(base_); !root) return std::unexpected(root.error());
  const Offset at = pmem::load(medium().at<Word>(pmem::kStoreAt));
  const Word kind = pmem::load(&root().kind);
  if (kind != kStrict && kind != kBuffered) {
    return corrupt("the store's root block at offset " + std::to_string(at) + " is damaged");
  }
  durability_ = kind == kStrict ? Durability::strict : Durability::buffered;
  if (durability && *durability != durability_) {
    return std::unexpected(
        Error{Code::wrong_tree, "the store is " + std::string(to_string(durability_)) + ", not " +
                                    std::string(to_string(*durability))});
  }
  space_ = new_space();
  if (space_->open() != Outcome::done) {
    return corrupt("impossible extents in the store's root block at offset " + std::to_string(at));
  }
  if (const auto listed = blocks_to_free(); !listed) return std::unexpected(listed.error());
  if (auto opened = open_tables(); !opened) return opened;
  if (read_only()) return {};
  if (auto recovered = recover(); !recovered) return recovered;
  from_image_ = load_image();
  if (!from_image_) {
    if (auto found = find_records(); !found) return found;
  }
  if (auto dropped = drop_image(); !dropped) return dropped;
  start_reclaiming();
  return {};
}

// What would refuse the store is looked for first: it is left as it is then.
Result<void> State::recover() {
  if (pmem::load(&root().batch) == 0 && pmem::load(&root().dropping) == 0) return {};
  for (const auto& [name, table] : tables_) {
    const Outcome outcome = table->for_each_word([](Word) { return true; });
    if (outcome != Outcome::done) return cannot_be_walked(name, outcome);
  }
  if (auto listed = check_batch(); !listed) return listed;
  if (auto finished = finish_drop(true); !finished) return finished;
  return recover_batch();
}

Result<void> State::open_tables() {
  // What a read-only store cannot read is no reason to keep the rest from its reader.
  std::vector<std::string> problems;  // info() looks again
  const auto all = base_.indexes(read_only() ? &problems : nullptr);
  if (!all) return std::unexpected(all.error());
  for (const IndexInfo& info : *all) {
    if (!info.table) continue;
    auto opened = open_table(info);
    if (opened) continue;
    std::string problem = "table '" + info.name + "': ";
    problem += opened.error().message;
    if (!read_only()) return std::unexpected(Error{opened.error().code, problem});
    unopened_.emplace(info.name, std::move(problem));
  }
  return {};
}

Result<void> State::open_table(const IndexInfo& info) {
  if (info.key_type == KeyType::u64) {
    if (auto table = load<std::uint64_t>(info.name, {}); !table) {
      return std::unexpected(table.error());
    }
  } else if (auto table = load<Bytes>(info.name, {}); !table) {
    return std::unexpected(table.error());
  }
  return {};
}

// The clock comes with the first buffered table.
void State::start_reclaiming() {
  if (!buffered() || read_only() || epochs() != nullptr) return;
  epoch::Epochs* const epochs = base_.epochs();
  if (epochs == nullptr) return;
  listener_ = epochs->listen([this] { reclaim(); });
  epochs_.store(epochs, std::memory_order_release);
}

void State::stop_reclaiming() {
  if (listener_ != 0) epochs()->forget(std::exchange(listener_, 0));
}

// After each step of the clock.
void State::reclaim() {
  {
    const alloc::Grace::Pin pin(grace_);
    if (pin.ok()) limbo_.release(base_.epochs()->durable(), grace_);
  }
  grace_.tidy();
}

// S6, A5: what no table names is free.
Result<void> State::find_records() {
  for (const auto& [name, table] : tables_) {
    const Outcome outcome = table->for_each_word([this](Word word) {
      const Record record = Record::of(word);
      if (!record.inside(medium()) || !space_->claim(record.at, record.bytes())) {
        damaged_.insert(word);
      }
      return true;
    });
    if (outcome != Outcome::done) return cannot_be_walked(name, outcome);
  }
  return {};
}

// --- Lists

Offset State::write_list(std::span<const Word> words) {
  const std::size_t bytes = sizeof(pmem::StoreList) + words.size_bytes();
  Offset at = 0;
  if (reserve(bytes, at) != Outcome::done) return 0;
  auto* const list = medium().at<Word>(at);
  for (std::size_t i = 0; i < words.size(); ++i) medium().store(list + 2 + i, words[i]);
  medium().store(list + 1, words.size());
  medium().store(list, XXH3_64bits(list + 1, bytes - sizeof(Word)));
  if (medium().persist(list, bytes)) return at;
  space_->free(at);
  return 0;
}

// A list is durable before a word names it, so a torn one is a damaged one.
bool State::read_list(Offset at, std::vector<Word>& words, std::size_t most) const {
  if (at < pmem::kHeapAt || at % 16 != 0 || !medium().contains(at, sizeof(pmem::StoreList))) {
    return false;
  }
  const auto* const list = medium().at<Word>(at);
  const Word count = pmem::load(list + 1);
  if (count > std::min(most, medium().size() / sizeof(Word)) ||
      !medium().contains(at, sizeof(pmem::StoreList) + count * sizeof(Word))) {
    return false;
  }
  words.assign(list + 2, list + 2 + count);
  Word checksum = 0;
  {
    std::vector<Word> all{count};
    all.insert(all.end(), words.begin(), words.end());
    checksum = XXH3_64bits(all.data(), all.size() * sizeof(Word));
  }
  return checksum == pmem::load(list);
}

bool State::set_root(Word& word, Word value) {
  medium().store(&word, value);
  return medium().persist(&word, sizeof word);
}

// --- The image of what is in use (S5)

// False: there is none, or it is damaged; everything is free.
bool State::load_image() {
  const Offset at = pmem::load(&root().image);
  std::vector<Word> words;
  if (at == 0 || !read_list(at, words)) return false;
  if (space_->load(words)) return true;
  (void)space_->open();  // it was done
  return false;
}

// Durable before a table changes, or a crash would bring the image back (A7).
Result<void> State::drop_image() {
  if (pmem::load(&root().image) == 0 || set_root(root().image, 0)) return {};
  return write_back_failed();
}

// All tables are durable, and nobody writes any more. Without space there is none.
void State::write_image() {
  const std::vector<Word> words = space_->save({});
  const Offset at = write_list(words);
  if (at != 0) (void)set_root(root().image, at);
}

Result<void> State::of_this_process() const {
  if (base_.process().is_this()) return {};
  return std::unexpected(
      Error{Code::bad_argument, "the store was opened by a process that forked this one"});
}

Result<void> State::finish() {
  finished_ = true;
  if (read_only()) return {};
  stop_reclaiming();
  const bool synced = epochs() == nullptr || epochs()->sync() == Outcome::done;
  if (synced && epochs() != nullptr) {
    const alloc::Grace::Pin pin(grace_);
    if (pin.ok()) limbo_.release(epochs()->durable(), grace_);
  }
  grace_.collect_all();
  bury(true);
  if (medium().failed() || !synced) return write_back_failed();
  try {
    if (pending_.load(std::memory_order_relaxed) == 0 && damaged_.empty()) write_image();
  } catch (const std::bad_alloc&) {
    // The next open walks the keys.
  }
  return {};
}

void State::abandon() {
  finished_ = true;
  stop_reclaiming();
}

// --- Memory

Outcome State::admit() const {
  if (read_only()) return Outcome::read_only;
  if (medium().failed()) return Outcome::io_error;
  return base::thread_slot() == base::kNoSlot ? Outcome::too_many_threads : Outcome::done;
}

Outcome State::reserve(std::size_t bytes, Offset& at, Offset* next) {
  bool tidied = false;
  bool waited = false;
  while ((at = space_->reserve(bytes, next)) == 0) {
    if (!tidied) {
      // What waits for nothing but somebody who looks: two grace periods.
      tidied = true;
      grace_.tidy();
      grace_.tidy();
      continue;
    }
    const Outcome grown = space_->grow(bytes);
    if (grown == Outcome::done) continue;
    if (grown != Outcome::out_of_space || waited) return grown;
    waited = true;
    wait_for_space();
  }
  return Outcome::done;
}

// For what was given up and is neither durable nor without readers yet.
void State::wait_for_space() {
  if (epochs() != nullptr && epochs()->sync() != Outcome::done) return;
  grace_.collect_all();
}

bool State::note(Offset at, std::size_t bytes) {
  epoch::Epochs::Section section(*epochs());
  const Offset first = at / pmem::kLine;
  const Offset last = (at + bytes - 1) / pmem::kLine;
  if (!section.make_room(last - first + 1)) return false;
  for (Offset line = first; line <= last; ++line) section.note(medium().at(line * pmem::kLine));
  return true;
}

void State::retire(Word word) noexcept {
  const Record record = Record::of(word);
  if (!damaged_.empty() && damaged_.contains(word)) return;
  pending_.fetch_add(1, std::memory_order_relaxed);
  try {
    if (buffered()) {
      // The tree's write was of this epoch or the one before.
      limbo_.add(record.at, epochs()->now());
      return;
    }
  } catch (const std::bad_alloc&) {
    return;  // lost until the keys are walked
  }
  const alloc::Grace::Pin pin(grace_);
  if (pin.ok()) grace_.retire(record.at);
}

// A read-only store does not find out at opening which memory is in use.
void State::count_named(StoreInfo& info) const {
  const auto named = new_space();
  if (named->open() != Outcome::done) return;  // it was done
  const base::MutexGuard guard(tables_mutex_);
  for (const auto& [name, table] : tables_) {
    std::uint64_t impossible = 0;
    const Outcome walked = table->for_each_word([&](Word word) {
      const Record record = Record::of(word);
      if (!named->claim(record.at, record.bytes())) ++impossible;
      return true;
    });
    if (walked != Outcome::done) info.problems.push_back(walk_failed(name, walked));
    if (impossible == 0) continue;
    std::string problem = "table '" + name;
    problem += "': values that cannot lie where their keys say: ";
    info.problems.push_back(problem + std::to_string(impossible));
  }
  const epoch::Space::Use use = named->in_use();
  info.records = use.blocks;
  info.record_bytes_used = use.bytes;
}

Result<StoreInfo> State::info() const {
  StoreInfo info;
  info.durability = durability_;
  info.pool = pool_.info();
  auto all = base_.indexes(&info.problems);
  if (!all) return std::unexpected(all.error());
  std::erase_if(
      *all, [this](const IndexInfo& one) { return !one.table || unopened_.contains(one.name); });
  info.tables = std::move(*all);
  for (const auto& [name, problem] : unopened_) info.problems.push_back(problem);
  info.record_bytes = space_->bytes_owned();
  if (read_only()) {
    count_named(info);
  } else {
    const epoch::Space::Use use = space_->in_use();
    info.records = use.blocks;
    info.record_bytes_used = use.bytes;
    info.records_waiting = pending_.load(std::memory_order_relaxed);
  }
  info.opened_from_image = from_image_;
  info.open_ns = open_ns_;
  return info;
}

}  // namespace everleaf::store
