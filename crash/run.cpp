#include "run.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <ranges>
#include <set>
#include <tuple>
#include <unordered_set>
#include <utility>

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include "last_words.hpp"
#include "pmem/format.hpp"
#include "store_run.hpp"
#include "trees/pool_state.hpp"
#include "values.hpp"

namespace everleaf::crash {
namespace {

constexpr std::size_t kRoom = std::size_t{3} << 20;  // that a pool may grow by
constexpr std::uint64_t kMostEvents1 = 50'000'000;   // of one recovery
constexpr unsigned kRandomRecoveries = 4;            // of each crash point at depth 3
constexpr std::uint64_t kMostStepping = 8;  // executions while the clock steps after recovery
constexpr const char* kName = "index";
constexpr std::uint64_t kScatter = 1103;  // a prime: keys in an order that fills all nodes
constexpr std::size_t kSome = 150;        // entries of an index of some nodes
constexpr std::uint64_t kRefused = 400;   // insertions, and the pool is full,
constexpr std::uint64_t kMoreRoom = 4 * pmem::kSlabBytes;
constexpr std::uint64_t kCrowded = 20;  // and so is one node

// addr2line, when a failure is printed; the address says enough if it is not there.
std::string symbol(const void* pc) {
  Dl_info info{};
  if (pc == nullptr || ::dladdr(pc, &info) == 0) return "?";
  const auto offset = static_cast<const char*>(pc) - static_cast<const char*>(info.dli_fbase) - 1;
  const std::string command =
      fmt::format("addr2line -e /proc/{}/exe {:#x} 2>/dev/null", ::getpid(), offset);
  std::string line;
  if (std::FILE* const pipe = ::popen(command.c_str(), "r")) {
    std::array<char, 512> buffer{};
    if (std::fgets(buffer.data(), buffer.size(), pipe) != nullptr) line = buffer.data();
    ::pclose(pipe);
  }
  while (!line.empty() && line.back() == '\n') line.pop_back();
  return line.empty() || line.starts_with("??") ? fmt::format("{:#x}", offset) : line;
}

std::string show(std::uint64_t key) {
  return fmt::format("{}", key);
}
std::string show(std::string_view key) {
  std::string text = "'";
  for (const char c : key.substr(0, 24)) {
    text += c >= ' ' && c <= '~' ? std::string(1, c)
                                 : fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  }
  return text + (key.size() > 24 ? fmt::format("'... of {}", key.size()) : "'");
}

template <class K>
class Run final : Crasher {
 public:
  explicit Run(const Config& config)
      : config_(config),
        arena_(config.pool_bytes + kRoom, config.record_only ? 2 : 1 + config.nested,
               model_of(config)),
        recorder_(arena_) {
    options_.domain = config.domain;  // the library has paths of its own for each
    options_.emulate = true;
    options_.epoch_length = {};  // the workload steps the clock
    if (!config.replay.empty()) arena_.paths_are_given();
    recorder_.crasher = this;
    recorder_.collect_sites = config.collect_sites;
    recorder_.permute(config.permuted);
    recorder_.dropped = config.dropped;
    Recorder::watch(&recorder_);
  }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;
  ~Run() { Recorder::watch(nullptr); }

  Report go() {
    create();
    for (op_ = 0; op_ < config_.ops.size() && !stopped_; ++op_) step(config_.ops[op_]);
    quiet_ = true;
    index_.reset();
    pool_.reset();
    report_.seconds = processor_seconds() - started_;
    report_.pool_bytes = bytes_[0];
    report_.merged = arena_.merged();
    report_.stores = arena_.stores();
    report_.flushes = recorder_.flushes;
    report_.fences = recorder_.fences;
    report_.sites = recorder_.sites;
    report_.reached = recorder_.reached;
    return std::move(report_);
  }

 private:
  using Owned = typename OwnedKey<K>::type;
  using Entries = std::vector<Entry<K>>;
  using Content = std::pair<Entries, std::vector<Entries>>;  // of the index, of those beside it
  struct Forget {
    const pmem::Medium*& medium;
    ~Forget() { medium = nullptr; }
  };

  // --- The workload ---
  void create() {
    op_ = config_.ops.size();
    creating_pool_ = creating_index_ = headers_ = true;
    operation_ = "create pool";
    auto pool = PoolAccess::format(arena_.base(0), bytes_[0], capacity_, options_, &recorder_);
    if (!pool) return fail("format: " + pool.error().message);
    creating_pool_ = false;
    headers_ = false;
    pool_.emplace(std::move(*pool));
    operation_ = "create index";
    auto index = values_in<K>(*pool_, kName, config_.spec);
    if (!index) return fail("index: " + index.error().message);
    index_.emplace(std::move(*index));
    epochs_ = PoolAccess::state(*pool_).epochs();
    creating_index_ = false;
    returned();
  }

  void step(const Op& op) {
    operation_ = fmt::format("operation {}: {}", op_, to_string(op));
    pending_ = op;
    after_ = before_;
    const std::size_t changes = prefixes_.changes();
    switch (op.what) {
      case Do::bulk_load:
        bulk_load(op);
        break;
      case Do::reopen:
        reopen();
        break;
      case Do::limit:
        capacity_ = std::min(arena_.capacity(), bytes_[0] + op.key * pmem::kSlabBytes);
        reopen();
        break;
      case Do::other_index:
        other_index(op);
        break;
      case Do::other_write:
        other_write(op);
        break;
      case Do::sync:
        sync();
        break;
      case Do::tick:
        if (pool_->advance_epoch() != Outcome::done) fail("the clock does not step");
        prefixes_.ticked();
        break;
      case Do::churn:
        churn(op);
        break;
      case Do::fill:
        fill(op);
        break;
      default:
        write(op);
        break;
    }
    // An operation that runs out of space waits for epochs, and then makes its change.
    const bool asked =
        syncing() || op.what == Do::tick || op.what == Do::churn || op.what == Do::fill;
    if (buffered_ && !asked && !stopped_ && epoch() != began_) waited(op, changes);
    ++report_.operations;
    before_ = after_;
    others_before_ = others_after_;
    returned();
  }

  void waited(const Op& op, std::size_t changes) {
    ++report_.waits;
    if (op.what != Do::bulk_load) return prefixes_.waited(changes);
    sync();  // it waited somewhere in the middle
  }

  void sync() {
    if (index_->sync() != Outcome::done) fail("sync fails");
    prefixes_.synced();
  }

  void write(const Op& op) {
    const Owned key = make_key<K>(op.key);
    const auto at = std::ranges::lower_bound(after_, key, {}, &Entry<K>::key);
    const bool there = at != after_.end() && at->key == key;
    Outcome should = Outcome::done;
    if (op.what == Do::insert && there) should = Outcome::exists;
    if ((op.what == Do::update || op.what == Do::remove) && !there) should = Outcome::absent;
    if (should == Outcome::done) {
      if (op.what == Do::remove) {
        after_.erase(at);
      } else if (there) {
        at->value = op.value;
      } else {
        after_.insert(at, {key, op.value});
      }
    }
    const bool changes = should == Outcome::done;
    const auto kept = buffered_ && changes ? std::optional(prefixes_) : std::nullopt;
    if (kept) prefixes_.push(key, op.what == Do::remove ? std::nullopt : std::optional(op.value));
    auto& heap = PoolAccess::state(*pool_).heap();
    if (op.what == Do::no_space) heap.fail_after(0);
    const Outcome is = apply(*index_, op.what, key, op.value);
    if (op.what == Do::no_space && !full_) heap.fail_after(~std::uint64_t{0});
    if (is == Outcome::out_of_space) {
      report_.out_of_space += op.what == Do::no_space ? 0 : 1;
      after_ = before_;  // C3: nothing changed
      if (kept) prefixes_ = *kept;
      should = is;
    }
    if (is != should) {
      fail(fmt::format("it answers '{}', not '{}'", everleaf::to_string(is),
                       everleaf::to_string(should)));
    }
  }

  void other_index(const Op& op) {
    if (others_after_.size() == 8) return;
    std::string spec = config_.spec;
    if (op.value != 0) {
      const std::string tree = spec.substr(0, spec.find(':'));
      const std::string_view size = size_option(tree);
      if (!size.empty()) spec = fmt::format("{}:{}={}", tree, size, 128 + op.value % 15 * 64);
    }
    const std::string name = other_name(others_after_.size());
    auto other = values_in<K>(*pool_, name, spec);
    // Not a size of this tree.
    if (!other && other.error().code == Code::bad_option)
      other = values_in<K>(*pool_, name, config_.spec);
    if (!other && other.error().code != Code::out_of_space)
      return fail("create: " + other.error().message);
    report_.out_of_space += other ? 0 : 1;
    if (other) others_after_.emplace_back();
  }

  // The option that gives nodes their size; empty: there is none.
  static std::string_view size_option(std::string_view tree) {
    constexpr std::array<std::string_view, 2> kNames{"node", "page"};
    const auto row = std::ranges::find(trees(), tree, &TreeInfo::name);
    if (row == trees().end()) return {};
    const auto found = std::ranges::find_first_of(row->options, kNames, {}, &OptionInfo::name);
    return found == row->options.end() ? std::string_view{} : found->name;
  }

  static std::string other_name(std::size_t number) { return fmt::format("other {}", number); }

  void other_write(const Op& op) {
    if (others_after_.empty()) return;
    const std::size_t number = others_after_.size() - 1;
    auto other = values_in<K>(*pool_, other_name(number), {});
    if (!other) return fail("index: " + other.error().message);
    const Owned key = make_key<K>(op.key);
    Entries& entries = others_after_.back();
    const auto at = std::ranges::lower_bound(entries, key, {}, &Entry<K>::key);
    if (at != entries.end() && at->key == key) {
      at->value = op.value;
    } else {
      entries.insert(at, {key, op.value});
    }
    const auto kept = buffered_ ? std::optional(prefixes_) : std::nullopt;
    if (kept) prefixes_.push(key, op.value, number + 1);
    const Outcome is = other->upsert(key, op.value);
    if (is == Outcome::done) return;
    if (is != Outcome::out_of_space)
      return fail(fmt::format("it answers '{}'", everleaf::to_string(is)));
    ++report_.out_of_space;
    others_after_ = others_before_;
    if (kept) prefixes_ = *kept;
  }

  // The states in between are not kept.
  template <class F>
  void unseen(F&& f) {
    unseen_ = true;
    recorder_.collect_sites = false;
    f();
    if (!stopped_) sync();
    unseen_ = false;
    recorder_.collect_sites = config_.collect_sites;
  }

  void churn(const Op& op) {
    if (!before_.empty()) return;
    unseen([&] {
      std::uint64_t there = 0;
      while (there < op.key && index_->insert(make_key<K>(there), there) == Outcome::done) ++there;
      for (std::uint64_t n = 0; n < there; ++n) {
        if (index_->remove(make_key<K>(n)) != Outcome::done) fail("it removes nothing");
      }
    });
  }

  void fill(const Op& op) {
    unseen([&] {
      filled_ = true;
      capacity_ = bytes_[0];
      reopen();
      if (!stopped_) take_slabs();
      for (std::uint64_t i = 0, refused = 0; i < op.key && refused < kRefused && !stopped_; ++i) {
        // What is left are blocks in slabs: recovery finds them, the workload does not.
        if (!full_ && after_.size() >= kSome) PoolAccess::state(*pool_).heap().fail_after(0);
        full_ = full_ || after_.size() >= kSome;
        if (!fill_one(i * kScatter % op.key)) ++refused;
      }
      if (op.value != 0 && !stopped_) crowd(op.key);
    });
  }

  // False: there is no space for it.
  bool fill_one(std::uint64_t number) {
    const Owned key = make_key<K>(number);
    const auto at = std::ranges::lower_bound(after_, key, {}, &Entry<K>::key);
    if (at != after_.end() && at->key == key) return true;
    const Outcome is = index_->insert(key, number);
    if (is == Outcome::out_of_space) return false;
    if (is != Outcome::done) fail(fmt::format("it answers '{}'", everleaf::to_string(is)));
    after_.insert(at, {key, number});
    if (buffered_) prefixes_.push(key, number);
    return true;
  }

  // Blocks of keys are free again, but not for nodes, and the last node needs one.
  void crowd(std::uint64_t keys) {
    for (std::uint64_t number = 0; number < keys && !stopped_; number += 4) {
      const Owned key = make_key<K>(number);
      const auto at = std::ranges::lower_bound(after_, key, {}, &Entry<K>::key);
      if (at == after_.end() || at->key != key) continue;
      const Outcome is = index_->remove(key);
      if (is == Outcome::out_of_space) continue;
      if (is != Outcome::done) fail(fmt::format("it answers '{}'", everleaf::to_string(is)));
      after_.erase(at);
      if (buffered_) prefixes_.push(key, std::nullopt);
    }
    for (std::uint64_t n = 0, refused = 0; n < keys && refused < kCrowded && !stopped_; ++n) {
      if (!fill_one(keys + n)) ++refused;
    }
  }

  // An index of few keys that are as long as slabs. Nobody looks at it but check().
  void take_slabs() {
    auto slabs = pool_->index<Bytes>("slabs", "wbtree");
    if (!slabs) return fail("index: " + slabs.error().message);
    for (const std::size_t bytes : {std::size_t{60000}, alloc::kLargestClassBytes / 2 + 1}) {
      Outcome outcome = Outcome::done;
      for (std::string key(bytes, 'k'); outcome == Outcome::done; ++key[0]) {
        outcome = slabs->insert(key, 0);
      }
    }
  }

  void bulk_load(const Op& op) {
    if (!before_.empty()) return;
    for (std::uint64_t n = 0; n < op.key; ++n) after_.push_back({make_key<K>(n), op.value + n});
    std::ranges::sort(after_, {}, &Entry<K>::key);
    if (buffered_) {
      for (const auto& entry : after_) prefixes_.push(Owned(entry.key), entry.value);
    }
    loading_ = true;
    const Entries entries = after_;  // the work after a crash meanwhile has after_ for itself
    const Outcome is = index_->bulk_load(entries, 0.7);
    loading_ = false;
    if (is != Outcome::done) fail(fmt::format("bulk_load answers '{}'", everleaf::to_string(is)));
  }

  void reopen() {
    headers_ = true;
    index_.reset();
    pool_.reset();
    epochs_ = nullptr;
    auto pool = attach(0);
    headers_ = false;
    if (!pool) return fail("open: " + pool.error().message);
    pool_.emplace(std::move(*pool));
    auto index = values_in<K>(*pool_, kName, config_.spec);
    if (!index) return fail("index: " + index.error().message);
    index_.emplace(std::move(*index));
    epochs_ = PoolAccess::state(*pool_).epochs();
    full_ = false;
    prefixes_.synced();
  }

  // A full pool may refuse to open (src/trees/lodgetree/README.md, Limits). Then it opens when
  // there is more room, and nothing is lost.
  Result<Pool> attach(std::size_t level) {
    const auto open = [&] {
      return PoolAccess::attach(arena_.base(level), bytes_[level], capacity_, options_, &recorder_);
    };
    auto pool = open();
    if (!filled_ || !lacks_space(pool)) return pool;
    if (pool) {
      PoolAccess::state(*pool).abandon();
      recorder_.settle();
    }
    ++report_.refused_opens;
    const std::uint64_t before =
        std::exchange(capacity_, std::min(arena_.capacity(), bytes_[level] + kMoreRoom));
    pool = open();
    if (level != 0) capacity_ = before;
    return pool;
  }

  static bool lacks_space(Result<Pool>& pool) {
    if (!pool) return pool.error().code == Code::out_of_space;
    const auto index = values_in<K>(*pool, kName, {});
    return !index && index.error().code == Code::out_of_space;
  }

  static Outcome apply(Values<K>& index, Do what, const Owned& key, std::uint64_t value) {
    switch (what) {
      case Do::insert:
        return index.insert(key, value);
      case Do::update:
        return index.update(key, value);
      case Do::remove:
        return index.remove(key);
      default:
        return index.upsert(key, value);
    }
  }

  // The operation has returned: what it acknowledged must survive.
  void returned() {
    if (stopped_) return;
    pending_.reset();
    began_ = epoch();
    recorder_.settle();
    if (pool_) bytes_[0] = PoolAccess::state(*pool_).medium().size();
    const bool everything = op_ % 16 == 0 || op_ + 1 >= config_.ops.size();
    if (const std::string wrong = arena_.audit(everything, bytes_[0]); !wrong.empty()) {
      return escaped(wrong);
    }
    crash_point();
  }

  // --- Crashes ---
  void escaped(const std::string& what) override { fail(what); }

  void dying(const char* what) noexcept override {
    say_last_words(what, operation_.c_str(), config_, arena_, recorder_, points_);
  }

  void crash_point() override {
    if (stopped_ || quiet_ || unseen_) return;
    const std::size_t level = arena_.level();
    ++points_[level];
    if (level == 0) {
      recorder_.point = ++report_.crash_points;
      if (config_.record_only || is_passed_over(config_, report_.crash_points)) return;
      if (config_.only_op && *config_.only_op != op_) return;
      if (config_.skip_creation && (creating_pool_ || creating_index_)) return;
      if (config_.after_drop && !recorder_.dropped_one) return;
      if (pool_) bytes_[0] = PoolAccess::state(*pool_).medium().size();
      epoch_at_crash_ = epoch();
      seen_.clear();
      rests_.clear();
    } else {
      ++report_.nested_points;
      if (going_on_ != nullptr) epoch_at_crash_ = going_on_->now();
    }
    // Growth is durable at once: recovery finds the file as long as it is now.
    bytes_[level + 1] = live_[level] != nullptr ? live_[level]->size() : bytes_[level];
    if (!config_.replay.empty()) {
      if (level >= config_.replay.size() || config_.replay[level].point != points_[level]) return;
      report_.replayed = report_.replayed || level + 1 == config_.replay.size();
      return explore(level);
    }
    if (level == 0 && is_late(config_.deadline)) {
      stopped_ = true;
      report_.complete = false;
      return;
    }
    // Another execution brought recovery to the same state.
    if (level != 0 && !seen_.insert(arena_.state_hash() + level).second) return;
    explore(level);
    if (level == 0 && config_.progress) config_.progress(report_.crash_points, report_.executions);
  }

  // Depth-first over the choices; where there are too many of them, the rest is sampled.
  void explore(std::size_t level) {
    arena_.enter();
    recorder_.switch_level();
    const bool replaying = !config_.replay.empty();
    const std::uint64_t images = config_.eager && level == 0 ? images_of_crash() : 0;
    if (images > config_.most_images) {
      arena_.leave();
      recorder_.switch_level();
      return;
    }
    const std::uint64_t nested =
        stepping_ ? std::min(config_.most_nested, kMostStepping) : config_.most_nested;
    const std::uint64_t most = level == 0 ? config_.most : level == 1 ? nested : 0;
    std::vector<Choice> path;
    if (replaying) path = config_.replay[level].choices;
    for (std::uint64_t n = 0; !stopped_; ++n) {
      const bool sampling = images == 0 && !replaying && n >= most;
      if (sampling) path = sampled_path(n - most, random_);
      execute_from(level, path, images != 0 ? std::optional(n) : std::nullopt);
      if (replaying || out_of_time(n)) break;
      if (images != 0 ? n + 1 == images : sampling ? n >= 2 * most + kRandomRecoveries : false)
        break;
      if (images == 0 && !sampling) {
        if (!Arena::advance(path)) break;
        if (n + 1 == most) ++(level == 0 ? report_.sampled_points : report_.sampled_nested_points);
      }
    }
    arena_.leave();
    recorder_.switch_level();
    // An outer recovery goes on, and must end, too.
    recorder_.allow(level == 0 ? ~std::uint64_t{0} : kMostEvents1);
  }

  void execute_from(std::size_t level, std::vector<Choice>& path,
                    std::optional<std::uint64_t> image) {
    points_[level + 1] = 0;
    outcome_.reset();
    arena_.begin(path);
    if (image) arena_.choose_image(*image);
    execute(level + 1);
    if (outcome_) report_.outcomes[report_.crash_points][*outcome_] += arena_.stands_for();
    path = arena_.path();
    arena_.end();
    recorder_.switch_level();
    ++report_.executions;
  }

  bool out_of_time(std::uint64_t n) {
    if (n % 256 != 255 || !is_late(config_.deadline)) return false;
    report_.complete = false;
    quiet_ = true;
    return true;
  }

  std::uint64_t images_of_crash() {
    arena_.begin({});
    const std::uint64_t images = arena_.images();
    arena_.end();
    return images;
  }

  // --- One post-crash execution ---
  void execute(std::size_t level) {
    const bool reads = is_read_first(config_, points_, level);
    const auto seen = reads ? std::optional(read_first(level)) : std::nullopt;
    if (stopped_) return;
    recorder_.allow(kMostEvents1);
    arena_.watch_beyond(pmem::kStateAt);
    arena_.forget_writes();
    auto pool = attach(level);
    if (pool) live_[level] = &PoolAccess::state(*pool).medium();
    const Forget forget{live_[level]};
    if (stopped_) return;
    auto index = pool ? open_indexes(*pool) : std::nullopt;
    recorder_.settle();
    const bool crashing = arena_.recording() && report_.executions % config_.crash_on_every == 0;
    if (!crashing) arena_.record(false);
    if (!pool) {
      // A new pool has no name before it is whole (PoolFile::create).
      if (creating_pool_ && pool.error().code == Code::not_a_pool) return;
      return fail("open: " + pool.error().message);
    }
    if (!crashing && arena_.wrote_beyond(pmem::kStateAt)) {
      recover_again(*pool, level);
      if (stopped_) return;
    }
    judge(*pool, *index, level, crashing, seen);
    index.reset();
    // This execution is undone: closing the pool properly would be in vain.
    PoolAccess::state(*pool).abandon();
    recorder_.settle();
  }

  // What a process sees that opens the image read-only: it recovers in a private copy, satisfies
  // the same oracles, and leaves the image as it is.
  Content read_first(std::size_t level) {
    ++report_.readers;
    recorder_.allow(kMostEvents1);
    arena_.begin_reading();
    reading_ = true;
    scanned_.clear();
    others_scanned_.assign(others_before_.size(), {});
    read_image(level);
    recorder_.settle();
    if (!arena_.end_reading()) fail("it stores to the pool");
    reading_ = false;
    return {scanned_, others_scanned_};
  }

  void read_image(std::size_t level) {
    PoolOptions options = options_;
    options.mode = Mode::read_only;
    auto pool =
        PoolAccess::attach(arena_.readers_base(), bytes_[level], capacity_, options, &recorder_);
    if (!pool) {
      if (creating_pool_ && pool.error().code == Code::not_a_pool) return;
      return fail("open: " + pool.error().message);
    }
    const auto index = values_in<K>(*pool, kName, {});
    if (!index) {
      if (creating_index_ && index.error().code == Code::not_found) return;
      return fail("index: " + index.error().message);
    }
    if (const Outcome outcome = index->scan(K{}, ~std::size_t{0}, scanned_);
        outcome != Outcome::done) {
      return fail(fmt::format("scan: {}", everleaf::to_string(outcome)));
    }
    for (std::size_t i = 0; i < others_scanned_.size(); ++i) {
      if (others_before_[i].empty() && others_after_[i].empty()) continue;
      const auto other = values_in<K>(*pool, other_name(i), {});
      if (!other) return fail(other_name(i) + ": " + other.error().message);
      if (other->scan(K{}, ~std::size_t{0}, others_scanned_[i]) != Outcome::done)
        return fail(other_name(i) + " cannot be scanned");
    }
    if (const std::string wrong = unexpected(); !wrong.empty()) return fail(wrong);
    if (const std::string wrong = unsound(*pool, level); !wrong.empty()) return fail(wrong);
    if (const std::string wrong = find_around(*index, pivot()); !wrong.empty()) return fail(wrong);
    if (index->scan_back({}, ~std::size_t{0}, back_) != Outcome::done ||
        !std::ranges::equal(std::views::reverse(back_), scanned_))
      fail("scan_back does not see what scan sees");
  }

  // Whether leaves were not read: the index of a clean pool is opened later, and one with an image
  // of its inner nodes is not recovered. What there is to do is left to the next open.
  static bool left_unread(Pool& pool) {
    if (pool.info().clean) return true;
    for (const IndexInfo& one : pool.indexes().value_or(std::vector<IndexInfo>{})) {
      const auto index = values_in<K>(pool, one.name, {});
      if (!index) continue;
      for (const auto& [name, value] : index->stats().more) {
        if (name == "opened_from_image" && value != 0) return true;
      }
    }
    return false;
  }

  // Some trees recover when they are opened (LodgeTree); what is wrong with them, judge() says.
  // Buffered ones have been taken back by then, and scan_others() asks for them later.
  std::optional<Result<Values<K>>> open_indexes(Pool& pool) const {
    auto index = values_in<K>(pool, kName, {});
    for (std::size_t i = 0; i < others_before_.size() && !buffered_; ++i) {
      if (others_before_[i].empty() && others_after_[i].empty()) continue;
      (void)values_in<K>(pool, other_name(i), {});
    }
    return index;
  }

  // Most recoveries of a crash point lead to the same content, and what another one of it does
  // depends on nothing else, as long as it decides nothing: once it wrote nothing, it never will.
  void recover_again(Pool& pool, std::size_t level) {
    const auto content = arena_.content_hash();
    const auto key =
        content ? std::optional(std::tuple(*content, bytes_[level], opened())) : std::nullopt;
    if (key && rests_.contains(*key)) return;
    arena_.forget_writes();
    open_again(level);
    const bool rests = !arena_.wrote_beyond(pmem::kStateAt);
    if (!rests && left_unread(pool)) {
      arena_.forget_writes();
      open_again(level);
    }
    if (arena_.wrote_beyond(pmem::kStateAt)) fail("recovery of a recovered pool wrote to it");
    if (key && rests) rests_.insert(*key);
  }

  // Which indexes open_indexes() asks for.
  [[nodiscard]] std::uint64_t opened() const {
    std::uint64_t set = capacity_;
    for (std::size_t i = 0; i < others_before_.size(); ++i) {
      set = set * 2 + (others_before_[i].empty() && others_after_[i].empty() ? 0 : 1);
    }
    return set;
  }

  // Recovery of what recovery left.
  void open_again(std::size_t level) {
    auto again =
        PoolAccess::attach(arena_.base(level), bytes_[level], capacity_, options_, &recorder_);
    recorder_.settle();
    if (!again) return fail("second open: " + again.error().message);
    // Without space a tree may have to recover again, from the same log (LodgeTree).
    if (!filled_ && capacity_ == arena_.capacity()) (void)open_indexes(*again);
    recorder_.settle();
    // Closing it would write in what the first one has.
    PoolAccess::state(*again).abandon();
  }

  // `seen`: by a reader of the same image.
  void judge(Pool& pool, Result<Values<K>>& index, std::size_t level, bool crashing,
             const std::optional<Content>& seen) {
    if (!index && creating_index_ && index.error().code == Code::not_found) {
      index = values_in<K>(pool, kName, config_.spec);
    }
    if (!index) return fail("index: " + index.error().message);
    if (const Outcome outcome = index->scan(K{}, ~std::size_t{0}, scanned_);
        outcome != Outcome::done) {
      return fail(fmt::format("scan: {}", everleaf::to_string(outcome)));
    }
    if (config_.collect_outcomes) note_outcome();
    if (const std::string wrong = scan_others(pool, crashing); !wrong.empty()) return fail(wrong);
    if (const std::string wrong = unexpected(); !wrong.empty()) return fail(wrong);
    if (seen && *seen != Content{scanned_, others_scanned_}) {
      reading_ = true;
      return fail("it saw another content: " + difference(seen->first));
    }
    if (const std::string wrong = unsound(pool, level); !wrong.empty()) return fail(wrong);
    if (const std::string wrong = go_on(pool, *index, crashing); !wrong.empty())
      return fail("afterwards: " + wrong);
    arena_.record(false);
    if (report_.executions % 8 != 0 || stopped_) return;
    if (const std::string wrong = unsound(pool, level); !wrong.empty())
      return fail("afterwards: " + wrong);
  }

  // What other indexes hold: at once, and after steps of the clock, by which what recovery has not
  // taken back in them is taken for durable.
  std::string scan_others(Pool& pool, bool crashing) {
    others_scanned_.resize(others_before_.size());
    bool asked = !buffered_;
    for (std::size_t i = 0; i < others_scanned_.size(); ++i) {
      others_scanned_[i].clear();
      if (others_before_[i].empty() && others_after_[i].empty()) continue;
      // Asked in any case: the choices of an execution depend on nothing but those before.
      const unsigned steps = asked ? 0 : 3 * arena_.choose(2) * (crashing ? 0U : 1U);
      for (unsigned n = 0; n < steps; ++n) {
        if (pool.advance_epoch() != Outcome::done) return "the clock does not step";
      }
      asked = true;
      auto other = values_in<K>(pool, other_name(i), {});
      if (!other) return other_name(i) + ": " + other.error().message;
      if (other->scan(K{}, ~std::size_t{0}, others_scanned_[i]) != Outcome::done)
        return other_name(i) + " cannot be scanned";
    }
    return {};
  }

  void note_outcome() {
    std::uint64_t hash = 0;
    for (const auto& entry : scanned_) {
      hash = (hash ^ std::hash<Owned>{}(entry.key)) * 0x9E3779B97F4A7C15ULL + entry.value;
    }
    outcome_ = hash;
  }

  // strict: all acknowledged operations, the pending one wholly or not at all.
  std::string unexpected() const {
    if (creating_index_ && scanned_.empty()) return {};
    if (buffered_) {
      using Steps = typename Prefixes<K>::Clock;
      const bool stepping = pending_ && pending_->what == Do::tick;
      // An operation that runs out of space waits for epochs, too; its first step may not be over.
      const bool moved = epoch_at_crash_ != began_;
      const bool may_wait =
          pending_ && (pending_->what == Do::no_space || capacity_ < arena_.capacity());
      const auto clock = stepping             ? Steps::step
                         : moved && loading_  ? Steps::any
                         : moved || syncing() ? Steps::steps
                         : may_wait           ? Steps::step
                                              : Steps::still;
      return prefixes_.allows(scanned_, clock, others_scanned_)
                 ? ""
                 : "not the state at the end of the durable epoch; the newest: " +
                       difference(pending_ ? after_ : before_);
    }
    for (std::size_t i = 0; i < others_scanned_.size(); ++i) {
      if (others_scanned_[i] != others_before_[i] &&
          !(pending_ && others_scanned_[i] == others_after_[i]))
        return other_name(i) + " has lost something, or has more than it should";
    }
    if (scanned_ == before_ || (pending_ && scanned_ == after_)) return {};
    if (loading_ && scanned_.size() <= after_.size() &&
        std::equal(scanned_.begin(), scanned_.end(), after_.begin())) {
      return {};
    }
    std::string text = difference(before_);
    if (pending_ && before_ != after_) {
      text = "as before the operation: " + text + "; as after it: " + difference(after_);
    }
    return text;
  }

  [[nodiscard]] bool syncing() const {
    return pending_ && (pending_->what == Do::sync || pending_->what == Do::reopen ||
                        pending_->what == Do::limit);
  }
  // Of the pool on level 0.
  [[nodiscard]] std::uint64_t epoch() const { return epochs_ == nullptr ? 0 : epochs_->now(); }

  std::string difference(const Entries& wanted) const {
    for (std::size_t i = 0; i < std::max(wanted.size(), scanned_.size()); ++i) {
      if (i == wanted.size()) return show(scanned_[i].key) + " should not be there";
      if (i == scanned_.size()) return show(wanted[i].key) + " is lost";
      const auto& is = scanned_[i];
      if (is == wanted[i]) continue;
      if (is.key == wanted[i].key) {
        return fmt::format("{} has value {}, not {}", show(is.key), is.value, wanted[i].value);
      }
      return is.key < wanted[i].key ? show(is.key) + " should not be there"
                                    : show(wanted[i].key) + " is lost";
    }
    return "nothing differs";
  }

  std::string unsound(Pool& pool, std::size_t level) const {
    const auto report = pool.check();
    if (!report) return "check: " + report.error().message;
    for (const std::string& problem : report->problems) {
      // A crash while a header copy is written: the other one counts, and is written next.
      const bool header = problem.find("header copy") != std::string::npos;
      if (!header || !(headers_ || level >= 2)) return "check: " + problem;
    }
    return {};
  }

  // A second workload around the place of the crash. `crashing`: its crashes are looked at, too.
  std::string go_on(Pool& pool, Values<K>& index, bool crashing) {
    const std::uint64_t number = pivot();
    std::array<std::uint64_t, 3> numbers{number, number + 1, number == 0 ? 2 : number - 1};
    // What the first of them mends, the others do not meet. A replay makes the same choices.
    std::ranges::rotate(numbers, numbers.begin() + arena_.picks() % 3);
    const auto kept = crashing
                          ? std::optional(std::tuple(before_, after_, others_before_, others_after_,
                                                     pending_, loading_, creating_index_))
                          : std::nullopt;
    if (crashing) {
      loading_ = creating_index_ = false;
      others_before_ = others_after_ = others_scanned_;
    }
    const auto prefixes = crashing && buffered_ ? std::optional(prefixes_) : std::nullopt;
    if (prefixes) prefixes_ = Prefixes<K>(scanned_, others_scanned_);
    const auto clock = std::tuple(going_on_, began_, epoch_at_crash_);
    if (crashing) going_on_ = PoolAccess::state(pool).epochs();
    Entries now = scanned_;
    std::string wrong = find_around(index, number);
    for (const std::uint64_t one : numbers) {
      if (crashing && going_on_ != nullptr) began_ = going_on_->now();
      if (wrong.empty() && !stopped_) wrong = one_more(index, one, now, crashing);
    }
    if (crashing && wrong.empty() && !stopped_) {
      before_ = after_ = now;
      pending_.reset();
      if (going_on_ != nullptr) began_ = going_on_->now();
      recorder_.settle();
      crash_point();  // what the last of them acknowledged must survive, too
    }
    const std::uint64_t nth = report_.executions / (crashing ? config_.crash_on_every : 1);
    const bool steps = buffered_ && (nth % 8 == 1 || !config_.replay.empty());
    if (steps && wrong.empty() && !stopped_) wrong = three_steps(pool, index, now, crashing);
    std::tie(going_on_, began_, epoch_at_crash_) = clock;
    if (prefixes) prefixes_ = *prefixes;
    if (kept)
      std::tie(before_, after_, others_before_, others_after_, pending_, loading_,
               creating_index_) = *kept;
    return wrong;
  }

  // The number of the key at the place of the crash.
  [[nodiscard]] std::uint64_t pivot() const { return pending_ ? pending_->key : op_; }

  // Keys near the place of the crash, before a writer mends what it left.
  std::string find_around(const Values<K>& index, std::uint64_t number) {
    const Owned key = make_key<K>(number);
    const auto at = std::ranges::lower_bound(scanned_, key, {}, &Entry<K>::key);
    const auto begin = at - std::min<std::ptrdiff_t>(3, at - scanned_.begin());
    const auto end = at + std::min<std::ptrdiff_t>(3, scanned_.end() - at);
    for (auto entry = begin; entry != end; ++entry) {
      const Lookup hit = index.find(entry->key);
      if (!hit || *hit != entry->value)
        return fmt::format("find({}) does not see what scan sees", show(Owned(entry->key)));
    }
    // Now and then; the same choices lead to the same reads.
    return arena_.picks() % 4 == 3 ? find_together(index, number) : "";
  }

  // Trees have another way down for many. Keys that are there, and others.
  std::string find_together(const Values<K>& index, std::uint64_t number) {
    std::array<Owned, 7> around;
    for (std::size_t i = 0; i < around.size(); ++i) {
      around[i] = make_key<K>(number - std::min<std::uint64_t>(number, 3) + i);
    }
    const std::vector<K> keys(around.begin(), around.end());
    index.find_many(keys, answers_);
    for (std::size_t i = 0; i < around.size(); ++i) {
      const auto at = std::ranges::lower_bound(scanned_, around[i], {}, &Entry<K>::key);
      const bool there = at != scanned_.end() && at->key == around[i];
      const bool same =
          there ? answers_[i] && *answers_[i] == at->value : answers_[i].outcome == Outcome::absent;
      if (!same) return fmt::format("find_many({}) does not see what scan sees", show(around[i]));
    }
    return {};
  }

  // Until the second workload is durable. What recovery took back, but not durably, is of epochs
  // that the second workload has used again.
  std::string three_steps(Pool& pool, Values<K>& index, const Entries& now, bool crashing) {
    const bool outer = std::exchange(stepping_, true);
    for (unsigned n = 0; n < 3 && !stopped_; ++n) {
      if (crashing) {
        before_ = after_ = now;
        pending_ = Op{Do::tick};
      }
      if (pool.advance_epoch() != Outcome::done) return "the clock does not step";
      if (crashing) {
        prefixes_.ticked();
        pending_.reset();
      }
    }
    stepping_ = outer;
    if (stopped_) return {};
    if (index.scan(K{}, ~std::size_t{0}, back_) != Outcome::done) return "scan fails";
    return back_ == now ? "" : "steps of the clock change the content";
  }

  // A change of the second workload has returned. True: there was no space for it.
  bool refused(Outcome outcome, bool crashing, const std::optional<Prefixes<K>>& prefixes) {
    const bool full = outcome == Outcome::out_of_space;
    if (!crashing || !prefixes) return full;
    if (full) prefixes_ = *prefixes;
    if (going_on_->now() != began_) prefixes_.waited(prefixes->changes());
    return full;
  }

  // A tree may mend at an update what a crash left.
  std::string update_one(Values<K>& index, std::uint64_t number, Entries& now, bool crashing) {
    const Owned key = make_key<K>(number);
    const auto at = std::ranges::lower_bound(now, key, {}, &Entry<K>::key);
    at->value += 7;
    if (crashing) {
      after_ = now;
      pending_ = Op{Do::update, number, at->value};
    }
    const auto prefixes = crashing && buffered_ ? std::optional(prefixes_) : std::nullopt;
    if (prefixes) prefixes_.push(key, at->value);
    const Outcome outcome = index.update(key, at->value);
    if (refused(outcome, crashing, prefixes)) at->value -= 7;
    const Lookup hit = index.find(key);
    if (crashing) {
      pending_.reset();
      before_ = now;
    }
    const bool fits = outcome == Outcome::done || outcome == Outcome::out_of_space;
    if (fits && hit && *hit == at->value) return {};
    return fmt::format("update of {} answers '{}', or has no effect", show(key),
                       everleaf::to_string(outcome));
  }

  std::string one_more(Values<K>& index, std::uint64_t number, Entries& now, bool crashing) {
    const Owned key = make_key<K>(number);
    const auto at = std::ranges::lower_bound(now, key, {}, &Entry<K>::key);
    const bool there = at != now.end() && at->key == key;
    const Lookup before = index.find(key);
    if (static_cast<bool>(before) != there || (there && *before != at->value)) {
      return fmt::format("find({}) does not see what scan sees", show(key));
    }
    if (there && (index.scan_back(key, 1, back_) != Outcome::done || back_.size() != 1 ||
                  back_.front().key != key)) {
      return fmt::format("scan_back from {} does not begin with it", show(key));
    }
    if (crashing) before_ = now;
    if (there && number % 2 == 0) return update_one(index, number, now, crashing);
    if (there) {
      now.erase(at);
    } else {
      now.insert(at, {key, number});
    }
    if (crashing) {
      after_ = now;
      pending_ = Op{there ? Do::remove : Do::insert, number, number};
    }
    const auto prefixes = crashing && buffered_ ? std::optional(prefixes_) : std::nullopt;
    if (prefixes) prefixes_.push(key, there ? std::nullopt : std::optional(number));
    const Outcome outcome = there ? index.remove(key) : index.insert(key, number);
    if (refused(outcome, crashing, prefixes)) {
      const auto undo = std::ranges::lower_bound(now, key, {}, &Entry<K>::key);
      there ? (void)now.insert(undo, {key, *before}) : (void)now.erase(undo);
      return {};
    }
    if (outcome != Outcome::done) {
      return fmt::format("{} of {} answers '{}'", there ? "remove" : "insert", show(key),
                         everleaf::to_string(outcome));
    }
    if (static_cast<bool>(index.find(key)) == there) {
      return fmt::format("{} of {} has no effect", there ? "remove" : "insert", show(key));
    }
    return {};
  }

  void fail(const std::string& what) {
    if (stopped_) return;
    stopped_ = true;
    report_.failure = failure_of(reading_ ? "a reader: " + what : what, op_, operation_, arena_,
                                 recorder_, points_);
    report_.failure->of_reader = reading_;
  }

  const Config& config_;
  const double started_ = processor_seconds();
  Arena arena_;
  Recorder recorder_;
  Signals signals_{this};
  PoolOptions options_;
  std::optional<Pool> pool_;
  std::optional<Values<K>> index_;
  // Of the file on each level: when it was opened, on level 0 now. And the pool that is open there.
  std::array<std::uint64_t, kMostLevels + 1> bytes_{config_.pool_bytes};
  std::array<const pmem::Medium*, kMostLevels + 1> live_{};
  std::uint64_t capacity_ = arena_.capacity();
  std::size_t op_ = 0;
  std::string operation_;
  std::optional<Op> pending_;
  const bool buffered_ = is_buffered(config_.spec);
  Prefixes<K> prefixes_;             // of a buffered tree
  epoch::Epochs* epochs_ = nullptr;  // of the pool on level 0
  const epoch::Epochs* going_on_ =
      nullptr;                        // of the pool that a second workload with crashes is on
  std::uint64_t began_ = 0;           // epoch at the beginning of the operation,
  std::uint64_t epoch_at_crash_ = 0;  // and at the crash
  Entries before_;
  Entries after_;
  Entries scanned_;
  std::vector<Entries> others_before_;  // the same of the indexes beside the first
  std::vector<Entries> others_after_;
  std::vector<Entries> others_scanned_;
  Entries back_;
  std::vector<Lookup> answers_;
  bool loading_ = false;
  bool creating_pool_ = false;
  bool creating_index_ = false;
  bool headers_ = false;  // a header copy is being written
  bool stopped_ = false;
  bool quiet_ = false;
  bool reading_ = false;   // the image is open read-only
  bool stepping_ = false;  // the clock, after a recovery
  bool unseen_ = false;    // crashes of this operation are not looked at
  bool filled_ = false;    // there was no room for a slab
  bool full_ = false;      // and the heap refuses
  Points points_{};
  std::unordered_set<std::uint64_t> seen_;
  // Of this crash point: contents that are left as they are, sizes of the file, opened().
  std::set<std::tuple<std::uint64_t, std::uint64_t, std::uint64_t>> rests_;
  Random random_{1};
  std::optional<std::uint64_t> outcome_;  // of this execution
  Report report_;
};

}  // namespace

Model model_of(const Config& config) {
  const bool survive = config.domain == Domain::cache || config.domain == Domain::process;
  const bool words = config.domain == Domain::disk || config.unordered;
  return {words ? std::size_t{8} : std::size_t{64}, survive};
}

bool is_read_first(const Config& config, const Points& points, std::size_t level) {
  if (config.readers == 0) return false;
  // Not each so many-th: operations have their fences in turn.
  std::uint64_t hash = 0;
  for (std::size_t i = 0; i < level; ++i) {
    hash = (hash + points[i] + 1) * 0x9E3779B97F4A7C15ULL;
    hash ^= hash >> 32;
  }
  return hash % config.readers == 0;
}

bool is_passed_over(const Config& config, std::uint64_t point) {
  return point % config.stride != 0 ||
         (!config.only_points.empty() && !std::ranges::binary_search(config.only_points, point));
}

std::vector<Choice> sampled_path(std::uint64_t n, Random& random) {
  std::vector<Choice> path(96);
  const std::uint64_t kind = n % 3;
  for (Choice& choice : path) {
    choice = {kind == 0   ? kLast
              : kind == 1 ? 0
                          : static_cast<std::uint32_t>(random.below(1 << 20)),
              0};
  }
  if (kind != 2 && n > 2)
    path[random.below(24)].pick = static_cast<std::uint32_t>(random.below(64));
  return path;
}

Failure failure_of(std::string what, std::size_t op, std::string operation, Arena& arena,
                   const Recorder& recorder, const Points& points) {
  Failure failure{std::move(what),
                  op,
                  std::move(operation),
                  recorder.last(),
                  symbol(arena.last_store()),
                  {},
                  {}};
  for (std::size_t level = 0; level < arena.level(); ++level) {
    Crash& crash = failure.crashes.emplace_back(points[level], arena.path_of(level + 1));
    // What was planned beyond the last choice that was met.
    std::erase_if(crash.choices, [](const Choice& choice) { return choice.count == 0; });
  }
  if (arena.level() != 0) failure.lost = arena.describe_lost();
  return failure;
}

void say_last_words(const char* what, const char* operation, const Config& config,
                    const Arena& arena, const Recorder& recorder, const Points& points) noexcept {
  LastWords words;
  const std::size_t levels = arena.level();
  words.add("FAILURE %s\ncrash in %s\n  last flush or fence at %s:%u\n", what, operation,
            source_name(recorder.last_site().file_name()), recorder.last_site().line());
  words.add("replay: everleaf crash --replay '%s", config.line.c_str());
  for (std::size_t level = 0; level < levels; ++level) {
    words.add("%s%llu/", level == 0 ? " crash=" : "+",
              static_cast<unsigned long long>(points[level]));
    const char* dot = "";
    for (const Choice& choice : arena.path_of(level + 1)) {
      if (choice.count == 0) break;  // not met
      words.add("%s%uof%u", dot, choice.pick, choice.count);
      dot = ".";
    }
  }
  words.add("'\n");
  words.write();
}

Report run(const Config& config) {
  if (config.store) return run_store({config, store_steps(config.ops, config.keys)});
  if (config.keys == KeyType::u64) return Run<std::uint64_t>(config).go();
  return Run<Bytes>(config).go();
}

namespace {

std::string show(const std::map<std::uint64_t, std::uint64_t>& outcomes) {
  std::string text;
  for (const auto& [hash, images] : outcomes) {
    text += fmt::format("{}{:x} of {} images", text.empty() ? "" : ", ", hash & 0xFFFF, images);
  }
  return text;
}

}  // namespace

Report run_glancing_first(const Config& config) {
  constexpr double kShare = 0.25;  // of the time
  if (config.nested == 1 && config.most <= kGlance) return run(config);
  Config glance = config;
  glance.nested = 1;
  glance.most = std::min(config.most, kGlance);
  glance.deadline = config.deadline.part(kShare);
  Report first = run(glance);
  const bool late = is_late(config.deadline);
  first.complete = first.complete && !late;
  if (first.failure || late) return first;
  Report whole = run(config);
  whole.operations = std::max(whole.operations, first.operations);
  whole.crash_points = std::max(whole.crash_points, first.crash_points);
  whole.executions += first.executions;
  whole.readers += first.readers;
  whole.seconds += first.seconds;
  return whole;
}

Comparison compare_with_eager(Config config, std::uint64_t most_images) {
  config.nested = 1;  // a crash of recovery has outcomes of its own
  config.collect_outcomes = true;
  config.most = ~std::uint64_t{0};
  config.most_images = most_images;
  config.eager = true;
  const Report eager = run(config);
  config.eager = false;
  for (const auto& [point, outcomes] : eager.outcomes) config.only_points.push_back(point);
  Comparison comparison;
  if (config.only_points.empty()) return comparison;
  const Report lazy = run(config);
  comparison.points = eager.outcomes.size();
  comparison.images = eager.executions;
  comparison.executions = lazy.executions;
  if (eager.failure) comparison.wrong = "enumerated: " + eager.failure->what;
  if (lazy.failure) comparison.wrong = lazy.failure->what;
  if (!comparison.wrong.empty() || !eager.complete || !lazy.complete) return comparison;
  for (const auto& [point, outcomes] : eager.outcomes) {
    const auto same = lazy.outcomes.find(point);
    if (same != lazy.outcomes.end() && outcomes == same->second) continue;
    comparison.wrong =
        fmt::format("crash point {}: by enumeration {}, by lazy choice {}", point, show(outcomes),
                    same == lazy.outcomes.end() ? "nothing" : show(same->second));
  }
  return comparison;
}

}  // namespace everleaf::crash
