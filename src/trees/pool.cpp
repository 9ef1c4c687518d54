// Pool and Index: the public face over the rooms below.
#include <algorithm>
#include <iterator>
#include <string>

#include <everleaf/index.hpp>

#include "base/last_words.hpp"
#include "base/limits.hpp"
#include "base/spec.hpp"
#include "trees/pool_state.hpp"

namespace everleaf {
namespace detail {
namespace {

std::string uuid_text(const std::array<std::byte, 16>& uuid) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (std::size_t i = 0; i < uuid.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += kDigits[std::to_integer<unsigned>(uuid[i] >> 4)];
    text += kDigits[std::to_integer<unsigned>(uuid[i] & std::byte{15})];
  }
  return text;
}

// As the user knows it.
std::string named(std::string_view name, bool table) {
  return std::string(table ? "table '" : "index '") + std::string(name) + "'";
}
std::string named(const IndexInfo& info) {
  return named(info.name, info.table);
}

// An existing index against what the caller asked for.
Result<void> match(const IndexInfo& info, std::string_view spec_text, KeyType key_type,
                   PoolState::Kind kind) {
  if (info.table != (kind == PoolState::Kind::table)) {
    return std::unexpected(
        Error{Code::wrong_tree,
              named(info) + (info.table ? " is opened by a Store, in the shell by `everleaf store`"
                                        : " is not a table of a Store")});
  }
  if (info.key_type != key_type) {
    return std::unexpected(
        Error{Code::wrong_key_type, named(info) + " has " + std::string(to_string(info.key_type)) +
                                        " keys, not " + std::string(to_string(key_type))});
  }
  if (spec_text.empty()) return {};
  auto asked = base::parse_spec(spec_text);
  if (!asked) return std::unexpected(asked.error());
  auto row = tree::find_tree(asked->tree);
  if (!row) return std::unexpected(row.error());
  if (auto known = base::canonical_spec(*asked, (*row)->info); !known) {
    return std::unexpected(known.error());
  }
  auto stored = base::parse_spec(info.spec);
  if (!stored) return std::unexpected(stored.error());
  bool same = asked->tree == stored->tree;
  // Options that its release did not know have their defaults.
  if (auto full = base::canonical_spec(*stored, (*row)->info); same && full) stored = *full;
  for (const auto& [name, value] : asked->options) {
    same = same && base::option_of(*stored, name) == value;
  }
  if (same) return {};
  return std::unexpected(Error{
      Code::wrong_tree, named(info) + " is a " + info.spec + ", not a " + std::string(spec_text)});
}

}  // namespace

struct PoolState::Resolved {
  const tree::Registration* row;
  base::Spec canonical;
};

Result<PoolState::Resolved> PoolState::resolve(std::string_view spec_text) {
  auto spec = base::parse_spec(spec_text);
  if (!spec) return std::unexpected(spec.error());
  auto row = tree::find_tree(spec->tree);
  if (!row) return std::unexpected(row.error());
  auto canonical = base::canonical_spec(std::move(*spec), (*row)->info);
  if (!canonical) return std::unexpected(canonical.error());
  if (auto valid = (*row)->factory.validate(*canonical); !valid) {
    return std::unexpected(valid.error());
  }
  return Resolved{*row, std::move(*canonical)};
}

PoolState::PoolState(std::unique_ptr<pmem::PoolFile> file, std::chrono::nanoseconds epoch_length)
    : file_(std::move(file)),
      ground_(*file_),
      directory_(file_->medium()),
      epoch_length_(epoch_length) {}

Result<std::shared_ptr<PoolState>> PoolState::start(std::unique_ptr<pmem::PoolFile> file,
                                                    const PoolOptions& options,
                                                    std::uint64_t started_ns) {
  using std::chrono_literals::operator""us;
  using std::chrono_literals::operator""s;
  const auto length = options.epoch_length;
  if (length.count() != 0 && (length < 1us || length > 10s)) {
    return std::unexpected(
        Error{Code::bad_argument, "an epoch lasts from 1 us to 10 s, or 0: stepped by hand"});
  }
  auto state = base::shared_here(std::make_unique<PoolState>(std::move(file), length));
  auto replayed = state->ground_.redo.recover();
  if (!replayed) {
    state->finished_ = true;  // leave the evidence as it is
    return std::unexpected(replayed.error());
  }
  state->replayed_ = *replayed;
  if (auto rolled = state->roll_back(); !rolled) {
    state->finished_ = true;
    return std::unexpected(rolled.error());
  }
  if (auto marked = state->file_->mark_open(); !marked) {
    state->finished_ = true;
    return std::unexpected(marked.error());
  }
  if (!state->file_->read_only()) state->open_what_ages();
  {
    // Not before: the clock stands still while trees are rolled back to the epoch that it names.
    const base::MutexGuard guard(state->mutex_);
    state->serving_ = true;
    if (state->epochs_) {
      if (auto started = state->start_clock(); !started) return std::unexpected(started.error());
    }
  }
  state->open_ns_ = base::now_ns() - started_ns;
  return state;
}

PoolState::~PoolState() {
  if (!finished_) base::LastWords::say([this] { return finish(); });
}

// All buffered indexes now: epochs that one of them still holds must not be taken for durable once
// the clock has moved on. And those whose recovery decides which blocks are in use, before anybody
// allocates one.
Result<void> PoolState::roll_back() {
  if (file_->was_clean()) return {};
  const base::MutexGuard guard(mutex_);
  for (const auto& found : directory_.list(nullptr)) {
    const auto row = tree::find_tree(base::tree_of(found.info.spec));
    if (row && (*row)->info.durability != Durability::buffered && !(*row)->recovers_blocks) {
      continue;
    }
    const auto resolved = resolve(found.info.spec);
    if (!resolved && !file_->read_only() && pmem::load(&file_->state().clock) != 0) {
      return std::unexpected(
          Error{Code::newer_version, named(found.info) + " is a " + found.info.spec +
                                         ", which this release cannot recover: open it read-only"});
    }
    if (!resolved) continue;
    auto open = load(found, *resolved);
    // A read-only pool has no clock that moves: the others can be read, this one says what it has.
    if (!open && !file_->read_only()) {
      return std::unexpected(
          Error{open.error().code, named(found.info) + ": " + open.error().message});
    }
  }
  return {};
}

// The clock runs from the first buffered tree on, but not while trees are rolled back.
Result<void> PoolState::need_epochs(const tree::Registration& row) {
  if (row.info.durability != Durability::buffered) return {};
  if (!epochs_) {
    // No clock gets so far; it would wrap, and what waits for an epoch to be durable would not end.
    if (pmem::load(&file_->state().clock) >> 62 != 0) {
      return std::unexpected(Error{Code::corrupt, "the clock of epochs is damaged"});
    }
    epochs_ = std::make_unique<epoch::Epochs>(file_->medium(), &file_->state().clock);
    if (!file_->read_only()) aging_ = epochs_->listen([this] { open_what_ages(); });
  }
  if (serving_) return start_clock();
  return {};
}

Result<void> PoolState::start_clock() {
  if (file_->read_only() || epochs_->start(epoch_length_)) return {};
  return std::unexpected(Error{Code::io, "the system gives no thread for the clock of epochs"});
}

// Leaves age while the clock runs, and only a tree that is open makes them young again (D10 of
// trees/bdtree). When the pool opens and after steps of the clock; no clock that is younger than
// this has met old leaves.
void PoolState::open_what_ages() {
  if (all_opened_ || pmem::load(&file_->state().clock) < base::kOldTag) return;
  try {
    const base::MutexGuard guard(mutex_);
    for (const auto& found : directory_.list(nullptr)) {
      const auto row = tree::find_tree(base::tree_of(found.info.spec));
      if (!row || (*row)->info.durability != Durability::buffered) continue;
      // What is damaged or of a later release says so to whoever asks for it.
      if (!open_.contains(found.info.name)) (void)load(found);
    }
    all_opened_ = true;
  } catch (const std::bad_alloc&) {
    // With the next step.
  }
}

EpochInfo PoolState::epoch_info() const {
  EpochInfo info;
  const base::MutexGuard guard(mutex_);
  if (!epochs_) return info;
  const auto figures = epochs_->figures();
  info.now = epochs_->now();
  info.durable = epochs_->durable();
  info.asked_ns = static_cast<std::uint64_t>(epoch_length_.count());
  info.mean_ns = figures.mean_ns;
  info.worst_ns = figures.worst_ns;
  info.lines = figures.lines;
  return info;
}

void PoolState::abandon() {
  finished_ = true;
  if (epochs_) epochs_->stop();
  file_->stop_ahead();
}

std::unique_ptr<pmem::PoolFile> PoolState::release() {
  abandon();
  open_.clear();
  epochs_.reset();
  return std::move(file_);
}

// A few rounds: a retired leaf is unlinked after one sync(), and free after another. A tree that is
// not done by then is rebuilt when it is opened; so it is if a sync() fails.
void PoolState::close_trees() {
  constexpr int kRounds = 4;
  bool done = false;
  for (int i = 0; i < kRounds && !done && epochs_->sync() == Outcome::done; ++i) {
    done = true;
    for (auto& [name, open] : open_) {
      const bool this_one = open.u64 ? open.u64->closing() : open.bytes->closing();
      done = done && this_one;
    }
  }
}

// A pool that is closed properly has no epoch that is not durable.
Result<void> PoolState::finish() {
  finished_ = true;
  bool durable = true;
  if (!epochs_ && !file_->read_only()) {
    for (auto& [name, open] : open_) (void)(open.u64 ? open.u64->closing() : open.bytes->closing());
  }
  if (epochs_ && !file_->read_only()) {
    epochs_->stop();
    epochs_->forget(aging_);
    close_trees();
    // Trees and their reclaimers go first: what those store after a step would be of an epoch that
    // nobody ends.
    open_.clear();
    durable = epochs_->sync() == Outcome::done;
  }
  if (!durable || !ground_.redo.settle_all()) {
    return std::unexpected(
        Error{Code::io, "a write-back failed; the pool will be recovered when it is opened"});
  }
  return file_->mark_clean();
}

Result<tree::Directory::Found> PoolState::create_index(std::string_view name, std::string_view spec,
                                                       KeyType key_type, Kind kind) {
  if (file_->read_only()) {
    return std::unexpected(
        Error{Code::not_found,
              "there is no " + named(name, kind == Kind::table) + " in this read-only pool"});
  }
  if (spec.empty()) {
    return std::unexpected(Error{
        Code::not_found, "there is no " + named(name, kind == Kind::table) + " in this pool"});
  }
  if (name.empty() || name.size() > kMaxNameBytes || name.find('\0') != std::string_view::npos) {
    return std::unexpected(Error{Code::bad_argument,
                                 std::string("the name of ") +
                                     (kind == Kind::table ? "a table" : "an index") + " has 1 to " +
                                     std::to_string(kMaxNameBytes) + " bytes, none of them zero"});
  }
  auto resolved = resolve(spec);
  if (!resolved) return std::unexpected(resolved.error());
  const std::string text = base::to_string(resolved->canonical);
  if (text.size() >= pmem::kSpecBytes) {
    return std::unexpected(Error{Code::bad_option, "the tree's options are too long to store"});
  }
  alloc::Redo record;
  std::vector<tree::Reserved> blocks;
  tree::Directory::Found found{{std::string(name), text, key_type, kind == Kind::table}, 0};
  auto root_word = directory_.prepare(found.info, record);
  if (!root_word) return std::unexpected(root_word.error());
  found.root_word = *root_word;
  if (auto running = need_epochs(*resolved->row); !running) {
    return std::unexpected(running.error());
  }
  const Outcome prepared = context(*root_word).with_space([&] {
    return resolved->row->factory.create(context(*root_word), resolved->canonical, key_type, record,
                                         blocks);
  });
  const Outcome outcome = prepared == Outcome::done ? ground_.redo.commit(record) : prepared;
  for (tree::Reserved& block : blocks) block.settle(outcome);
  if (outcome == Outcome::done) return found;
  if (outcome == Outcome::io_error || medium().failed()) {
    return std::unexpected(Error{Code::io, "a write-back failed; the pool takes no more writes"});
  }
  if (outcome == Outcome::corrupt) {
    return std::unexpected(
        Error{Code::corrupt, "the heap is damaged: restore the pool from a copy"});
  }
  return std::unexpected(Error{Code::out_of_space, std::string("no space for a new ") +
                                                       (kind == Kind::table ? "table" : "index")});
}

Result<PoolState::Open*> PoolState::load(const tree::Directory::Found& found) {
  auto resolved = resolve(found.info.spec);
  if (!resolved) {
    return std::unexpected(
        Error{Code::newer_version,
              named(found.info) + " is a " + found.info.spec +
                  ", which this release does not know: " + resolved.error().message});
  }
  return load(found, *resolved);
}

Result<PoolState::Open*> PoolState::load(const tree::Directory::Found& found,
                                         const Resolved& resolved) {
  if (auto running = need_epochs(*resolved.row); !running) {
    return std::unexpected(running.error());
  }
  // Its memory comes first: a tree that listens to the clock must not be closed in a step of it.
  decltype(open_) one;
  Open& open = one.emplace(found.info.name, Open{found.info, nullptr, nullptr}).first->second;
  const tree::Factory& factory = resolved.row->factory;
  if (found.info.key_type == KeyType::u64) {
    auto tree = factory.open_u64(context(found.root_word), resolved.canonical);
    if (!tree) return std::unexpected(tree.error());
    open.u64 = std::move(*tree);
  } else {
    auto tree = factory.open_bytes(context(found.root_word), resolved.canonical);
    if (!tree) return std::unexpected(tree.error());
    open.bytes = std::move(*tree);
  }
  return &open_.insert(one.extract(one.begin())).position->second;
}

Result<PoolState::Open*> PoolState::open_index(std::string_view name, std::string_view spec,
                                               KeyType key_type, Kind kind) {
  const base::MutexGuard guard(mutex_);
  const auto known = open_.find(name);
  if (known != open_.end()) {
    if (auto ok = match(known->second.info, spec, key_type, kind); !ok) {
      return std::unexpected(ok.error());
    }
    return &known->second;
  }
  auto stored = directory_.find(name);
  if (!stored) return std::unexpected(stored.error());
  if (*stored) {
    if (auto ok = match((*stored)->info, spec, key_type, kind); !ok) {
      return std::unexpected(ok.error());
    }
    return load(**stored);
  }
  auto created = create_index(name, spec, key_type, kind);
  if (!created) return std::unexpected(created.error());
  return load(*created);
}

Result<PoolState::Open*> PoolState::open_found(const tree::Directory::Found& found) {
  const base::MutexGuard guard(mutex_);
  const auto known = open_.find(found.info.name);
  return known == open_.end() ? load(found) : &known->second;
}

template <>
Result<Tree<std::uint64_t>*> PoolState::index(std::string_view name, std::string_view spec,
                                              Kind kind) {
  auto open = open_index(name, spec, KeyType::u64, kind);
  if (!open) return std::unexpected(open.error());
  return (*open)->u64.get();
}

template <>
Result<Tree<Bytes>*> PoolState::index(std::string_view name, std::string_view spec, Kind kind) {
  auto open = open_index(name, spec, KeyType::bytes, kind);
  if (!open) return std::unexpected(open.error());
  return (*open)->bytes.get();
}

Result<std::vector<pmem::Offset>> PoolState::blocks_of(std::string_view name) {
  const base::MutexGuard guard(mutex_);
  const auto known = open_.find(name);
  if (known == open_.end()) {
    return std::unexpected(Error{Code::not_found, "no table '" + std::string(name) + "' is open"});
  }
  const CheckReport report =
      known->second.u64 ? known->second.u64->check() : known->second.bytes->check();
  std::vector<pmem::Offset> blocks;
  const auto visit = [&blocks](pmem::Offset block, std::size_t) { blocks.push_back(block); };
  known->second.u64 ? known->second.u64->for_each_block(visit)
                    : known->second.bytes->for_each_block(visit);
  std::ranges::sort(blocks);
  const bool twice = std::ranges::adjacent_find(blocks) != blocks.end();
  const bool all_taken = std::ranges::all_of(
      blocks, [this](pmem::Offset block) { return ground_.heap.allocated_bytes(block) != 0; });
  if (!report.problems.empty() || twice || !all_taken) {
    std::string what("the table is damaged: ");
    what += report.problems.empty() ? "a block is named twice, or free" : report.problems.front();
    what += "; its blocks may be others', so it is not dropped: `repair` copies the rest";
    return std::unexpected(Error{Code::corrupt, std::move(what)});
  }
  return blocks;
}

Outcome PoolState::drop(std::string_view name, alloc::Redo& record, Dropped& dropped) {
  const base::MutexGuard guard(mutex_);
  const auto known = open_.find(name);
  const auto stored = directory_.find(name);
  if (known == open_.end() || !stored || !*stored) return Outcome::corrupt;
  // L2: its nodes go
  if (!ground_.redo.settle_all()) return Outcome::io_error;
  auto place = directory_.hold(**stored);
  tree::Directory::remove(**stored, record);
  const Outcome outcome = ground_.redo.commit(record);
  if (outcome != Outcome::done) return outcome;
  dropped = {std::move(known->second.u64), std::move(known->second.bytes), std::move(place)};
  open_.erase(known);
  return Outcome::done;
}

Result<std::vector<IndexInfo>> PoolState::indexes(std::vector<std::string>* problems) const {
  const base::MutexGuard guard(mutex_);
  std::vector<IndexInfo> all;
  std::vector<std::string> damaged;
  for (auto& found : directory_.list(&damaged)) all.push_back(std::move(found.info));
  if (problems == nullptr && !damaged.empty()) {
    return std::unexpected(Error{Code::corrupt, damaged.front()});
  }
  if (problems != nullptr) std::ranges::move(damaged, std::back_inserter(*problems));
  return all;
}

IndexInfo PoolState::info_of(const void* tree) const {
  const base::MutexGuard guard(mutex_);
  for (const auto& [name, open] : open_) {
    if (open.u64.get() == tree || open.bytes.get() == tree) return open.info;
  }
  return {};
}

PoolInfo PoolState::info() const {
  PoolInfo info;
  info.path = file_->path().string();
  info.uuid = uuid_text(file_->header().uuid);
  info.version = file_->header().version;
  info.domain = file_->domain();
  info.read_only = file_->read_only();
  info.clean = file_->was_clean();
  info.replayed = replayed_;
  info.file_bytes = file_->file_bytes();
  info.heap_bytes = pmem::load(&file_->state().frontier) - pmem::kHeapAt;
  info.open_ns = open_ns_;
  info.header_copy_damaged = file_->header_copy_damaged();
  info.lost_blocks = ground_.heap.lost() + ground_.grace.lost();
  ground_.heap.for_each_allocated(
      [&info](pmem::Offset, std::size_t bytes) { info.block_bytes += bytes; }, nullptr);
  return info;
}

// The blocks of the Store's root, which lists memory for records (pmem/format.hpp).
void PoolState::reach_store(std::vector<pmem::Offset>& reachable,
                            std::vector<std::string>& problems) {
  const pmem::Offset at = pmem::load(medium().at<pmem::Word>(pmem::kStoreAt));
  if (at == 0) return;
  if (at % pmem::kLine != 0 || ground_.heap.allocated_bytes(at) < sizeof(pmem::StoreRoot)) {
    problems.push_back("the Store's root block at offset " + std::to_string(at) +
                       " is no allocated block");
    return;
  }
  reachable.push_back(at);
  const auto& root = *medium().at<pmem::StoreRoot>(at);
  for (const auto& extent : root.extents) {
    const pmem::Offset block = pmem::load(&extent[0]);
    if (block == 0) break;
    reachable.push_back(block);
  }
  // Of a dropped table: freed when the Store is opened.
  const pmem::Offset list = pmem::load(&root.dropping);
  if (list < pmem::kHeapAt || list % 16 != 0 || !medium().contains(list, sizeof(pmem::StoreList))) {
    return;
  }
  const std::uint64_t count = medium().at<pmem::StoreList>(list)->count;
  if (count > medium().size() / sizeof(pmem::Word) ||
      !medium().contains(list, sizeof(pmem::StoreList) + count * sizeof(pmem::Word))) {
    return;
  }
  const auto* const words = medium().at<pmem::Word>(list + sizeof(pmem::StoreList));
  for (std::uint64_t i = pmem::load(&root.dropped); i < count; ++i) reachable.push_back(words[i]);
}

Outcome PoolState::make_room(std::uint64_t bytes) {
  if (file_->read_only()) return Outcome::read_only;
  if (medium().failed()) return Outcome::io_error;
  const std::uint64_t frontier = pmem::load(&file_->state().frontier);
  if (bytes <= pmem::kMaxPoolBytes && frontier <= pmem::kMaxPoolBytes) {
    constexpr std::uint64_t kSlab = pmem::kSlabBytes;  // the heap's unit
    if (file_->make_room((frontier + bytes + kSlab - 1) / kSlab * kSlab)) return Outcome::done;
  }
  return medium().failed() ? Outcome::io_error : Outcome::out_of_space;
}

Result<CheckReport> PoolState::check() {
  CheckReport report;
  if (file_->header_copy_damaged()) {
    const pmem::Offset at = file_->damaged_header();
    report.problems.push_back(std::string("header copy ") + (at == pmem::kHeaderA ? "A" : "B") +
                              " at offset " + std::to_string(at) + " was damaged");
  }
  std::vector<pmem::Offset> reachable;
  std::vector<tree::Directory::Found> all;
  {
    const base::MutexGuard guard(mutex_);
    all = directory_.list(&report.problems);
  }
  for (const auto& found : all) {
    auto open = open_found(found);
    if (!open) {
      report.problems.push_back(named(found.info) + ": " + open.error().message);
      continue;
    }
    const auto visit = [&reachable](pmem::Offset block, std::size_t) {
      reachable.push_back(block);
    };
    CheckReport one = (*open)->u64 ? (*open)->u64->check() : (*open)->bytes->check();
    for (std::string& problem : one.problems) {
      report.problems.push_back(named(found.info) + ": " + problem);
    }
    report.keys += one.keys;
    // A damaged tree is not walked again: what it reaches means nothing.
    if (!one.problems.empty()) continue;
    (*open)->u64 ? (*open)->u64->for_each_block(visit) : (*open)->bytes->for_each_block(visit);
  }
  reach_store(reachable, report.problems);
  std::ranges::sort(reachable);
  std::vector<pmem::Offset> allocated;
  ground_.heap.for_each_allocated(
      [&allocated](pmem::Offset block, std::size_t) { allocated.push_back(block); },
      &report.problems);
  report.blocks_allocated = allocated.size();
  report.blocks_reachable = reachable.size();
  if (!report.problems.empty()) return report;
  const auto twice = std::ranges::adjacent_find(reachable);
  if (twice != reachable.end()) {
    report.problems.push_back("the block at offset " + std::to_string(*twice) + " is owned twice");
  }
  std::vector<pmem::Offset> leaked;
  std::ranges::set_difference(allocated, reachable, std::back_inserter(leaked));
  std::vector<pmem::Offset> dangling;
  std::ranges::set_difference(reachable, allocated, std::back_inserter(dangling));
  if (!leaked.empty()) {
    report.problems.push_back(std::to_string(leaked.size()) +
                              " blocks are allocated but not reachable, the first at offset " +
                              std::to_string(leaked.front()));
  }
  if (!dangling.empty()) {
    report.problems.push_back(std::to_string(dangling.size()) +
                              " blocks are reachable but not allocated, the first at offset " +
                              std::to_string(dangling.front()));
  }
  return report;
}

}  // namespace detail

Result<Pool> PoolAccess::open(const std::filesystem::path& path, const PoolOptions& options,
                              pmem::Observer* observer) {
  const std::uint64_t started_ns = base::now_ns();
  auto file = pmem::PoolFile::open(path, options, observer);
  if (!file) return std::unexpected(file.error());
  auto state = detail::PoolState::start(std::move(*file), options, started_ns);
  if (!state) {
    return std::unexpected(Error{state.error().code, path.string() + ": " + state.error().message});
  }
  return Pool(std::move(*state));
}

Result<Pool> PoolAccess::recover_in_memory(Pool pool,
                                           const std::function<Result<void>(Pool&)>& recover) {
  const std::uint64_t started_ns = base::now_ns();
  if (!pool.state_->read_only() || pool.state_.use_count() != 1) {
    return std::unexpected(Error{Code::bad_argument, "the pool is in use"});
  }
  PoolOptions options;
  options.epoch_length = pool.state_->epoch_length();
  auto file = pool.state_->release();
  pool.state_.reset();
  if (auto begun = file->begin_recovery(); !begun) return std::unexpected(begun.error());
  auto state = detail::PoolState::start(std::move(file), options, started_ns);
  if (!state) return std::unexpected(state.error());
  const std::uint32_t replayed = (*state)->replayed();
  {
    Pool writable(std::move(*state));
    const auto recovered = recover(writable);
    file = writable.state_->release();
    writable.state_.reset();
    if (!recovered) return std::unexpected(recovered.error());
  }
  file->end_recovery();
  // Trees are opened once more, as those of a process that died here.
  state = detail::PoolState::start(std::move(file), options, started_ns);
  if (!state) return std::unexpected(state.error());
  (*state)->add_replayed(replayed);
  return Pool(std::move(*state));
}

Result<Pool> PoolAccess::create_unnamed(pmem::Unborn& unborn, const PoolOptions& options) {
  const std::uint64_t started_ns = base::now_ns();
  auto file = pmem::PoolFile::create_unnamed(unborn, options, nullptr);
  if (!file) return std::unexpected(file.error());
  auto state = detail::PoolState::start(std::move(*file), options, started_ns);
  if (!state) return std::unexpected(state.error());
  return Pool(std::move(*state));
}

Result<Pool> PoolAccess::anonymous(const PoolOptions& options, pmem::Observer* observer) {
  const std::uint64_t started_ns = base::now_ns();
  auto file = pmem::PoolFile::anonymous(options, observer);
  if (!file) return std::unexpected(file.error());
  auto state = detail::PoolState::start(std::move(*file), options, started_ns);
  if (!state) return std::unexpected(state.error());
  return Pool(std::move(*state));
}

Result<Pool> PoolAccess::attach(std::byte* memory, std::uint64_t bytes, std::uint64_t capacity,
                                const PoolOptions& options, pmem::Observer* observer) {
  const std::uint64_t started_ns = base::now_ns();
  auto file = pmem::PoolFile::attach(memory, bytes, capacity, options, observer);
  if (!file) return std::unexpected(file.error());
  auto state = detail::PoolState::start(std::move(*file), options, started_ns);
  if (!state) return std::unexpected(state.error());
  return Pool(std::move(*state));
}

Result<Pool> PoolAccess::format(std::byte* memory, std::uint64_t bytes, std::uint64_t capacity,
                                const PoolOptions& options, pmem::Observer* observer) {
  const std::uint64_t started_ns = base::now_ns();
  auto file = pmem::PoolFile::format(memory, bytes, capacity, options, observer);
  if (!file) return std::unexpected(file.error());
  auto state = detail::PoolState::start(std::move(*file), options, started_ns);
  if (!state) return std::unexpected(state.error());
  return Pool(std::move(*state));
}

Result<Pool> Pool::open(const std::filesystem::path& path, const PoolOptions& options) {
  return PoolAccess::open(path, options, nullptr);
}

Result<Pool> Pool::anonymous(const PoolOptions& options) {
  return PoolAccess::anonymous(options, nullptr);
}

template <class K>
Result<Index<K>> Pool::index(std::string_view name, std::string_view spec) {
  auto tree = state_->index<K>(name, spec);
  if (!tree) return std::unexpected(tree.error());
  return Index<K>(state_, *tree);
}

template <class K>
Result<Index<K>> Pool::index(std::string_view name) {
  auto existing = index<K>(name, {});
  if (existing || existing.error().code != Code::not_found || state_->read_only()) return existing;
  return index<K>(name, "wbtree");
}

Result<std::vector<IndexInfo>> Pool::indexes(std::vector<std::string>* problems) const {
  return state_->indexes(problems);
}
PoolInfo Pool::info() const {
  return state_->info();
}
Counters Pool::counters() const {
  return state_->counters();
}
Result<CheckReport> Pool::check() const {
  return state_->check();
}

Outcome Pool::make_room(std::uint64_t bytes) {
  return state_->make_room(bytes);
}
Outcome Pool::sync() {
  return state_->epochs() == nullptr ? Outcome::done : state_->epochs()->sync();
}
Outcome Pool::wait_durable(std::uint64_t epoch) {
  if (epoch == 0) return Outcome::done;  // before the first one, or of a pool without epochs
  return state_->epochs() == nullptr ? Outcome::absent : state_->epochs()->wait_durable(epoch);
}
EpochInfo Pool::epochs() const {
  return state_->epoch_info();
}
Outcome Pool::advance_epoch() {
  return state_->epochs() == nullptr ? Outcome::done : state_->epochs()->advance();
}

Result<void> Pool::close() {
  if (!state_) return {};
  if (!state_->process().is_this()) {
    return std::unexpected(
        Error{Code::bad_argument, "the pool was opened by a process that forked this one"});
  }
  return base::LastWords::of([this] { state_.reset(); });
}

template <class K>
Outcome Index<K>::insert(K key, std::uint64_t value) {
  return tree_->write(key, value, detail::Write::insert);
}
template <class K>
Outcome Index<K>::update(K key, std::uint64_t value) {
  return tree_->write(key, value, detail::Write::update);
}
template <class K>
Outcome Index<K>::upsert(K key, std::uint64_t value) {
  return tree_->write(key, value, detail::Write::upsert);
}
template <class K>
Outcome Index<K>::remove(K key) {
  return tree_->write(key, 0, detail::Write::remove);
}
template <class K>
Lookup Index<K>::find(K key) const {
  return tree_->find(key);
}
template <class K>
void Index<K>::find_many(std::span<const K> keys, std::vector<Lookup>& answers) const {
  answers.resize(keys.size());
  tree_->find_many(keys, answers);
}
template <class K>
Outcome Index<K>::scan(K from, std::size_t limit, std::vector<Entry<K>>& out) const {
  return tree_->scan(from, std::nullopt, limit, out);
}
template <class K>
Outcome Index<K>::scan(K from, K to, std::size_t limit, std::vector<Entry<K>>& out) const {
  return tree_->scan(from, to, limit, out);
}
template <class K>
Outcome Index<K>::scan_back(std::optional<K> from, std::size_t limit,
                            std::vector<Entry<K>>& out) const {
  return tree_->scan_back(from, limit, out);
}
template <class K>
Outcome Index<K>::insert_all(std::span<const Entry<K>> entries) {
  for (std::size_t i = 1; i < entries.size(); ++i) {
    if (!(entries[i - 1].key < entries[i].key)) return Outcome::not_ascending;
  }
  return tree_->insert_all(entries);
}
template <class K>
Outcome Index<K>::bulk_load(std::span<const Entry<K>> entries, double fill) {
  return tree_->bulk_load(entries, fill);
}
template <class K>
std::uint64_t Index<K>::size() const {
  return tree_->stats().keys;
}
template <class K>
Outcome Index<K>::sync() {
  return tree_->sync();
}
template <class K>
CheckReport Index<K>::check() const {
  return tree_->check();
}
template <class K>
Stats Index<K>::stats() const {
  return tree_->stats();
}
template <class K>
IndexInfo Index<K>::info() const {
  return state_->info_of(tree_);
}

template <class K>
Result<Payloads<K>> Index<K>::payloads() const {
  if (auto* const tree = tree_->payloads()) return Payloads<K>(state_, tree);
  return std::unexpected(Error{Code::bad_argument, "index '" + info().name +
                                                       "' has numbers as values: payloads need an "
                                                       "index of bztree:values=bytes"});
}

template <class K>
Outcome Payloads<K>::insert(K key, Bytes payload) {
  return tree_->write_payload(key, payload, detail::Write::insert);
}
template <class K>
Outcome Payloads<K>::update(K key, Bytes payload) {
  return tree_->write_payload(key, payload, detail::Write::update);
}
template <class K>
Outcome Payloads<K>::upsert(K key, Bytes payload) {
  return tree_->write_payload(key, payload, detail::Write::upsert);
}
template <class K>
Outcome Payloads<K>::remove(K key) {
  return tree_->write_payload(key, {}, detail::Write::remove);
}
template <class K>
Outcome Payloads<K>::find(K key, std::string& payload) const {
  return tree_->find_payload(key, payload);
}
template <class K>
Outcome Payloads<K>::scan(K from, std::size_t limit, std::vector<PayloadEntry<K>>& out) const {
  return tree_->scan_payloads(from, std::nullopt, limit, out);
}
template <class K>
Outcome Payloads<K>::scan(K from, K to, std::size_t limit,
                          std::vector<PayloadEntry<K>>& out) const {
  return tree_->scan_payloads(from, to, limit, out);
}
template <class K>
Outcome Payloads<K>::scan_back(std::optional<K> from, std::size_t limit,
                               std::vector<PayloadEntry<K>>& out) const {
  return tree_->scan_payloads_back(from, limit, out);
}

template class Index<std::uint64_t>;
template class Index<Bytes>;
template class Payloads<std::uint64_t>;
template class Payloads<Bytes>;
template Result<Index<std::uint64_t>> Pool::index(std::string_view, std::string_view);
template Result<Index<Bytes>> Pool::index(std::string_view, std::string_view);
template Result<Index<std::uint64_t>> Pool::index(std::string_view);
template Result<Index<Bytes>> Pool::index(std::string_view);

}  // namespace everleaf
