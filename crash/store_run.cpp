#include "store_run.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

#include "last_words.hpp"
#include "pmem/format.hpp"
#include "store/state.hpp"

namespace everleaf::crash {
namespace {

constexpr std::size_t kCapacity = std::size_t{4} << 20;
constexpr std::uint64_t kMostOfRecovery = 50'000'000;  // events
constexpr std::uint64_t kCrashOnEvery = 8;             // of the recoveries of recoveries
constexpr std::size_t kSeveralChunks = 18'000;         // bytes of a value

using Kind = StoreStep::Kind;
using Content = std::map<std::string, std::string>;
using Tables = std::map<std::string, Content>;

// --- Keys as text ---
std::uint64_t number_of(std::string_view key) {
  std::uint64_t number = 0;
  for (std::size_t i = 0; i < 8; ++i) {
    number = number << 8 | (i < key.size() ? static_cast<unsigned char>(key[i]) : 0U);
  }
  return number;
}
std::string text_of(std::uint64_t number) {
  std::string text;
  for (; number != 0; number <<= 8) text += static_cast<char>(number >> 56);
  return text;
}
std::string text_of(Bytes key) {
  return std::string(key);
}

// As it can be printed.
std::string printable(std::string_view key) {
  std::string text;
  for (const char c : key.substr(0, 24)) {
    text += c > ' ' && c <= '~' ? std::string(1, c)
                                : fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  }
  return text + (key.size() > 24 ? fmt::format("... of {}", key.size()) : "");
}

template <class K>
K key_of(const std::string& text) {
  if constexpr (std::same_as<K, Bytes>) {
    return text;
  } else {
    return number_of(text);
  }
}

// Works on one store at level 0 of the arena, and recovers it on the levels above.
class StoreRun final : Crasher {
 public:
  explicit StoreRun(const StoreConfig& config)
      : config_(config.run),
        steps_(config.steps),
        arena_(kCapacity, config_.record_only ? 2 : 1 + config_.nested, model_of(config_)),
        recorder_(arena_) {
    options_.domain = config_.domain;
    options_.emulate = true;
    options_.epoch_length = {};
    if (!config_.replay.empty()) arena_.paths_are_given();
    recorder_.crasher = this;
    recorder_.collect_sites = config_.collect_sites;
    recorder_.permute(config_.permuted);
    recorder_.dropped = config_.dropped;
    Recorder::watch(&recorder_);
  }
  StoreRun(const StoreRun&) = delete;
  StoreRun& operator=(const StoreRun&) = delete;
  ~StoreRun() override { Recorder::watch(nullptr); }

  StoreReport go() {
    create();
    for (step_ = 0; step_ < steps_.size() && !stopped_; ++step_) run(steps_[step_]);
    quiet_ = true;
    pool_.reset();
    store_.reset();
    report_.seconds = processor_seconds() - started_;
    report_.pool_bytes = bytes_[0];
    report_.merged = arena_.merged();
    report_.stores = arena_.stores();
    report_.flushes = recorder_.flushes;
    report_.fences = recorder_.fences;
    report_.sites = recorder_.sites;
    for (const auto& [path, times] : recorder_.reached) report_.reached[path] += times;
    return std::move(report_);
  }

 private:
  // --- The workload ---
  void create() {
    step_ = steps_.size();
    operation_ = "create pool";
    creating_ = true;
    quiet_ = true;  // run.cpp looks at pools and indexes
    auto pool = PoolAccess::format(arena_.base(0), bytes_[0], kCapacity, options_, &recorder_);
    if (!pool) return fail("format: " + pool.error().message);
    quiet_ = false;
    operation_ = "create store";
    auto store = StoreAccess::over(std::move(*pool), durability());
    if (!store) return fail("store: " + store.error().message);
    store_.emplace(std::move(*store));
    creating_ = false;
    for (const char* const name : {"a", "b"}) run({Kind::create, {}, name});
    began_ = epoch();
    for (std::uint64_t e = 0; e <= epoch(); ++e) ends_[e] = now_;
  }

  [[nodiscard]] Durability durability() const {
    return buffered_ ? Durability::buffered : Durability::strict;
  }
  [[nodiscard]] bool has_numbers(std::string_view table) const {
    return table == "a" && config_.keys == KeyType::u64;
  }
  // f(table, a key of its type as text): with the table's handle.
  template <class F>
  Outcome with_table(Store& store, const std::string& name, F&& f) {
    if (has_numbers(name)) {
      auto table = store.table<std::uint64_t>(name, config_.spec);
      return table ? f(*table, [](const std::string& text) { return key_of<std::uint64_t>(text); })
                   : refusal(table.error());
    }
    auto table = store.table<Bytes>(name, config_.spec);
    return table ? f(*table, [](const std::string& text) { return key_of<Bytes>(text); })
                 : refusal(table.error());
  }
  static Outcome refusal(const Error& error) {
    return error.code == Code::out_of_space ? Outcome::out_of_space : Outcome::corrupt;
  }

  static void change(Tables& tables, const std::vector<Put>& puts) {
    for (const Put& one : puts) {
      if (!tables.contains(one.table)) continue;
      if (one.value) {
        tables[one.table][one.key] = *one.value;
      } else {
        tables[one.table].erase(one.key);
      }
    }
  }

  Outcome apply(Store& store, const std::vector<Put>& puts) {
    Batch batch;
    for (const Put& one : puts) {
      const Outcome outcome = with_table(store, one.table, [&](auto& table, auto key) {
        one.value ? batch.put(table, key(one.key), *one.value) : batch.erase(table, key(one.key));
        return Outcome::done;
      });
      if (outcome != Outcome::done) return outcome;
    }
    return store.apply(batch);
  }
  // `old`: what the key has, for an exchange.
  Outcome apply(Store& store, const Put& one, Kind kind, std::optional<Bytes> old) {
    return with_table(store, one.table, [&](auto& table, auto key) {
      const std::optional<Bytes> value =
          one.value ? std::optional<Bytes>(*one.value) : std::nullopt;
      if (kind == Kind::exchange) return table.compare_and_set(key(one.key), old, value);
      if (!value) return table.erase(key(one.key));
      if (kind == Kind::insert) return table.insert(key(one.key), *value);
      if (kind == Kind::update) return table.update(key(one.key), *value);
      return table.put(key(one.key), *value);
    });
  }

  void run(const StoreStep& step) {
    operation_ = fmt::format("operation {}: {}", step_, to_string(step));
    began_ = epoch();
    kind_ = step.kind;
    used_ = StoreAccess::state(*store_).space().in_use().blocks;
    after_ = now_;
    switch (step.kind) {
      case Kind::batch:
      case Kind::full:
        write_batch(step);
        break;
      case Kind::create:
        (*after_)[step.table];
        table_ = step.table;
        answered(with_table(*store_, step.table, [](auto&, auto) { return Outcome::done; }));
        break;
      case Kind::drop:
        drop(step.table);
        break;
      case Kind::backup:
        backup();
        break;
      case Kind::tick:
        stepping_ = true;
        if (pool().advance_epoch() != Outcome::done) fail("the clock does not step");
        break;
      case Kind::sync:
        stepping_ = true;
        if (store_->sync() != Outcome::done) fail("sync fails");
        break;
      case Kind::reopen:
        stepping_ = true;
        reopen();
        break;
      default:
        write(step);
    }
    ++report_.operations;
    if (!stopped_) returned();
  }

  void write(const StoreStep& step) {
    const Put& put = step.puts.front();
    const auto table = now_.find(put.table);
    if (table == now_.end()) return;
    const auto at = table->second.find(put.key);
    const bool there = at != table->second.end();
    Outcome should = Outcome::done;
    if (step.kind == Kind::insert && there) should = Outcome::exists;
    const bool needs_one = step.kind == Kind::update || (step.kind == Kind::write && !put.value);
    if (needs_one && !there) should = Outcome::absent;
    if (should == Outcome::done) change(*after_, {put});
    stepping_ = is_full();
    std::string kept;  // the work after a crash has the maps for itself
    if (there) kept = at->second;
    answered(apply(*store_, put, step.kind, there ? std::optional<Bytes>(kept) : std::nullopt),
             should);
  }

  void write_batch(const StoreStep& step) {
    std::vector<Put> puts = step.puts;
    std::erase_if(puts, [this](const Put& one) { return !now_.contains(one.table); });
    change(*after_, puts);
    auto& heap = PoolAccess::state(pool()).heap();
    if (step.kind == Kind::full) heap.fail_after(step.blocks);
    stepping_ = step.kind == Kind::full || is_full();  // then the clock steps
    batch_ = {now_, *after_};
    answered(apply(*store_, puts));
    if (step.kind == Kind::full && store_) {
      PoolAccess::state(pool()).heap().fail_after(~std::uint64_t{0});
    }
  }

  // Then a write may wait for epochs.
  [[nodiscard]] bool is_full() {
    return PoolAccess::state(pool()).medium().size() + pmem::kSlabBytes > kCapacity;
  }

  // A refusal has changed nothing.
  void answered(Outcome is, Outcome should = Outcome::done) {
    if (is == Outcome::out_of_space) {
      ++report_.out_of_space;
      if (kind_ == Kind::full) ++report_.reached["A10: refused"];
      after_ = now_;
      return;
    }
    // What was done of it could not be taken back: no more is durable, and the next open does that.
    if (is == Outcome::io_error && kind_ == Kind::full) {
      reach("A10: not taken back");
      after_ = now_;
      return die();
    }
    if (is == should) return;
    fail(fmt::format("it answers '{}', not '{}'", everleaf::to_string(is),
                     everleaf::to_string(should)));
  }

  void drop(const std::string& name) {
    if (!now_.contains(name)) return;
    table_ = name;
    stepping_ = true;
    after_->erase(name);
    if (auto dropped = store_->drop_table(name); !dropped) return fail(dropped.error().message);
    // It is durable, and all that came before it.
    for (auto& [e, tables] : ends_) tables = *after_;
    batch_.reset();
  }

  // Its file is no memory of the arena: crashes meanwhile are the source's.
  void backup() {
    copy_ = std::filesystem::temp_directory_path() / fmt::format("everleaf-crash-{}", ::getpid());
    std::filesystem::remove(copy_);
    const auto copied = store_->backup(copy_);
    const std::filesystem::path path = std::exchange(copy_, {});
    if (!copied) return fail("backup: " + copied.error().message);
    StoreOptions options;
    options.pool.mode = Mode::read_only;
    auto store = Store::open(path, options);
    Tables is;
    if (!store) {
      fail("the copy: " + store.error().message);
    } else if (read(*store, is) && is != now_) {
      fail("the copy differs");
    }
    std::filesystem::remove(path);
  }

  // The process ends, and all its stores are there.
  void die() {
    crash_point();
    if (stopped_) return;
    StoreAccess::state(*store_).abandon();
    PoolAccess::state(pool()).abandon();
    pool_.reset();
    store_.reset();
    recorder_.settle();
    opening_ = true;
    attach();
  }

  void reopen() {
    pool_.reset();
    closing_ = true;
    store_.reset();
    closing_ = false;
    opening_ = true;
    attach();
    if (stopped_) return;
    if (!store_->info()->opened_from_image) fail("the image is not believed");
    reopened_ = true;
    batch_.reset();
  }

  void attach() {
    auto pool = PoolAccess::attach(arena_.base(0), bytes_[0], kCapacity, options_, &recorder_);
    if (!pool) return fail("open: " + pool.error().message);
    auto store = StoreAccess::over(std::move(*pool));
    opening_ = false;
    if (!store) return fail("open: " + store.error().message);
    store_.emplace(std::move(*store));
  }

  void returned() {
    // A table is there whatever becomes of the epochs.
    if (kind_ == Kind::create && after_->contains(table_)) {
      for (auto& [e, tables] : ends_) tables[table_];
    }
    // Buffered: free when the epoch is durable, some steps of the clock later.
    overwrote_ = (buffered_ && overwrote_) || (kind_ <= Kind::batch && overwritten(now_, *after_));
    now_ = *after_;
    after_.reset();
    table_.clear();
    stepping_ = false;
    // What has happened is of this epoch, or of those that have passed since it began.
    for (std::uint64_t e = began_; e <= epoch(); ++e) ends_[e] = now_;
    began_ = epoch();
    recorder_.settle();
    bytes_[0] = PoolAccess::state(pool()).medium().size();
    const bool everything = step_ % 16 == 0 || step_ + 1 >= steps_.size();
    if (const std::string wrong = arena_.audit(everything, bytes_[0]); !wrong.empty()) {
      return escaped(wrong);
    }
    crash_point();
  }

  static bool overwritten(const Tables& before, const Tables& after) {
    for (const auto& [name, content] : before) {
      const auto table = after.find(name);
      for (const auto& [key, value] : content) {
        if (table == after.end()) return true;
        const auto at = table->second.find(key);
        if (at == table->second.end() || at->second != value) return true;
      }
    }
    return false;
  }

  [[nodiscard]] Pool& pool() {
    pool_.emplace(store_->pool());
    return *pool_;
  }
  [[nodiscard]] std::uint64_t epoch() {
    if (!buffered_ || !store_) return began_;
    epoch::Epochs* const epochs = StoreAccess::state(*store_).epochs();
    return epochs == nullptr ? 0 : epochs->now();
  }

  // --- Crashes ---
  void escaped(const std::string& what) override { fail(what); }
  void dying(const char* what) noexcept override {
    say_last_words(what, operation_.c_str(), config_, arena_, recorder_, points_);
  }

  void crash_point() override {
    if (stopped_ || quiet_) return;
    const std::size_t level = arena_.level();
    ++points_[level];
    if (level == 0) {
      recorder_.point = ++report_.crash_points;
      if (config_.record_only || is_passed_over(config_, report_.crash_points)) return;
      if (config_.only_op && *config_.only_op != step_) return;
      if (config_.skip_creation && step_ == steps_.size()) return;
      if (config_.after_drop && !recorder_.dropped_one) return;
      if (store_) {
        bytes_[0] = PoolAccess::state(pool()).medium().size();
        pool_.reset();
      }
      if (!copy_.empty() && std::filesystem::exists(copy_)) return fail("half a copy has a name");
      seen_.clear();
    } else {
      ++report_.nested_points;
    }
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
    if (level != 0 && !seen_.insert(arena_.state_hash() + level).second) return;
    explore(level);
    if (level == 0 && config_.progress) config_.progress(report_.crash_points, report_.executions);
  }

  // Depth-first over the choices; where there are too many of them, the rest is sampled.
  void explore(std::size_t level) {
    arena_.enter();
    recorder_.switch_level();
    const bool replaying = !config_.replay.empty();
    const std::uint64_t most = level == 0 ? config_.most : config_.most_nested;
    std::vector<Choice> path;
    if (replaying) path = config_.replay[level].choices;
    for (std::uint64_t n = 0; !stopped_ && n < 2 * most; ++n) {
      if (n >= most) path = sampled_path(n - most, random_);
      points_[level + 1] = 0;
      arena_.begin(path);
      execute(level + 1);
      path = arena_.path();
      arena_.end();
      recorder_.switch_level();
      ++report_.executions;
      if (replaying || (n < most && !Arena::advance(path))) break;
      if (n + 1 == most) ++(level == 0 ? report_.sampled_points : report_.sampled_nested_points);
      if (n % 64 == 63 && is_late(config_.deadline)) {
        report_.complete = false;
        quiet_ = true;
        break;
      }
    }
    arena_.leave();
    recorder_.switch_level();
    recorder_.allow(level == 0 ? ~std::uint64_t{0} : kMostOfRecovery);
  }

  void execute(std::size_t level) {
    const bool reads = is_read_first(config_, points_, level);
    const auto seen = reads ? std::optional(read_first(level)) : std::nullopt;
    if (stopped_) return;
    recorder_.allow(kMostOfRecovery);
    const bool replaying = !config_.replay.empty();
    const bool crashing =
        arena_.recording() && (level == 1 || replaying || report_.executions % kCrashOnEvery == 0);
    if (!crashing) arena_.record(false);
    auto pool =
        PoolAccess::attach(arena_.base(level), bytes_[level], kCapacity, options_, &recorder_);
    if (!pool) return fail("open: " + pool.error().message);
    live_[level] = &PoolAccess::state(*pool).medium();
    note_root(level);
    auto store = StoreAccess::over(*pool, creating_ ? std::optional(durability()) : std::nullopt);
    recorder_.settle();
    arena_.record(false);
    if (!store) {
      fail("store: " + store.error().message);
    } else {
      if (!stopped_) judge(*store, seen);
      StoreAccess::state(*store).abandon();
    }
    live_[level] = nullptr;
    PoolAccess::state(*pool).abandon();
    recorder_.settle();
  }

  // As in run.cpp: the tables as they are in a store that is open read-only.
  Tables read_first(std::size_t level) {
    ++report_.readers;
    recorder_.allow(kMostOfRecovery);
    arena_.begin_reading();
    reading_ = true;
    Tables is;
    read_image(level, is);
    recorder_.settle();
    if (!arena_.end_reading()) fail("it stores to the pool");
    reading_ = false;
    return is;
  }

  void read_image(std::size_t level, Tables& is) {
    PoolOptions options = options_;
    options.mode = Mode::read_only;
    auto pool =
        PoolAccess::attach(arena_.readers_base(), bytes_[level], kCapacity, options, &recorder_);
    if (!pool) return fail("open: " + pool.error().message);
    auto store = StoreAccess::over(std::move(*pool));  // its only handle: it may recover once more
    if (!store) {
      if (creating_ && store.error().code == Code::not_found) return;
      return fail("store: " + store.error().message);
    }
    if (!read(*store, is)) return;
    if (creating_ ? !is.empty() : !allowed(is))
      return fail("not what the tables may hold:" + show(is));
    sound(*store, is);
  }

  // --- Crash cases ---
  void reach(std::string_view name) { ++report_.reached[std::string(name)]; }

  // Which words recovery finds. It reads them, too, so what is chosen here is no choice more.
  void note_root(std::size_t level) {
    recorder_.settle();
    const auto word = [&](std::size_t at) {
      recorder_.read(at, sizeof(pmem::Word));
      return *reinterpret_cast<const pmem::Word*>(arena_.base(level) + at);
    };
    image_ = false;
    const std::size_t root = word(pmem::kStoreAt);
    if (root == 0) return;
    if (word(root + offsetof(pmem::StoreRoot, dropping)) != 0) reach("A9: blocks are left");
    const pmem::Word batch = word(root + offsetof(pmem::StoreRoot, batch));
    if (batch != 0) reach((batch & 1) != 0 ? "A8: undo" : "A8: redo");
    image_ = word(root + offsetof(pmem::StoreRoot, image)) != 0;
    if (closing_) reach(image_ ? "A6: an image" : "A6: no image");
    if (opening_ || level > 1) reach("A5: while a store opens");
    if (reopened_ && !closing_ && !opening_ && !image_) reach("A7: no image any more");
  }

  void note_case(const Tables& is) {
    const bool fresh =
        store_ && StoreAccess::state(*store_).space().in_use().blocks > used_ && after_;
    if (fresh && kind_ <= Kind::exchange && *after_ != now_) {
      reach(is == *after_ ? "A2: the write is there" : "A1: no word names the record");
    }
    if (!after_ && overwrote_ && is == now_) reach("A3: the old record is free");
    if (buffered_ && overwritten(is, after_ ? *after_ : now_)) reach("A3: the old record again");
    if (buffered_ && stepping_ && is == now_) reach("A2: the write is there");
    if (buffered_ && batch_ && batch_->first != batch_->second) {
      if (is == batch_->first) reach("A4: nothing of the batch");
      if (is == batch_->second) reach("A4: all of the batch");
    }
    if (kind_ == Kind::drop && after_) {
      reach(is.contains(table_) ? "A9: the table is there" : "A9: the table is gone");
    }
  }

  // --- Judgement ---
  template <class K>
  bool read(Store& store, const std::string& name, Content& content) {
    auto table = store.table<K>(name);
    if (!table) return fail(table.error().message), false;
    auto cursor = table->cursor();
    for (cursor.first(); cursor.valid(); cursor.next()) {
      content.emplace(text_of(cursor.key()), cursor.value());
    }
    if (cursor.outcome() == Outcome::done) return true;
    return fail(fmt::format("cursor: {}", everleaf::to_string(cursor.outcome()))), false;
  }

  // Content of the tables that are there.
  bool read(Store& store, Tables& tables) {
    const auto all = store.tables();
    if (!all) return fail(all.error().message), false;
    for (const IndexInfo& info : *all) {
      Content& content = tables[info.name];
      const bool whole = has_numbers(info.name) ? read<std::uint64_t>(store, info.name, content)
                                                : read<Bytes>(store, info.name, content);
      if (!whole) return false;
    }
    return true;
  }

  [[nodiscard]] bool allowed(Tables is) {
    const auto fits = [&is](const Tables& tables) { return is == tables; };
    if (!buffered_) return fits(now_) || (after_ && fits(*after_));
    // A table is there at once, whatever becomes of the epochs; empty.
    if (kind_ == Kind::create && after_ && !now_.contains(table_)) {
      const auto made = is.find(table_);
      if (made != is.end() && made->second.empty()) is.erase(made);
    }
    // A table is not gone before everything is durable that came before.
    if (kind_ == Kind::drop && after_ && !is.contains(table_)) return fits(*after_);
    if (ends_.empty()) return fits(now_);
    // The durable epoch, or the next one while the clock steps.
    const std::uint64_t last = epoch() - 2 + (stepping_ || epoch() != began_ ? 1 : 0);
    const std::uint64_t first = std::min(began_, epoch()) - 2;
    for (std::uint64_t e = first; e <= last; ++e) {
      const auto end = ends_.upper_bound(e);
      if (end != ends_.begin() && fits(std::prev(end)->second)) return true;
    }
    // A close makes everything durable.
    return stepping_ && !store_ && fits(now_);
  }

  // `seen`: by a reader of the same image.
  void judge(Store& store, const std::optional<Tables>& seen) {
    Tables is;
    if (!read(store, is)) return;
    if (creating_ ? !is.empty() : !allowed(is)) {
      return fail("not what the tables may hold:" + show(is));
    }
    if (seen && *seen != is) {
      reading_ = true;
      return fail("it saw something else:" + show(*seen));
    }
    note_case(is);
    // A number that a replay has, too.
    std::uint64_t variant = points_[arena_.level() - 1];
    for (const auto& [name, content] : is) variant += content.size();
    sound(store, is);
    go_on(store, is, variant);
    if (stopped_) return;
    Tables then;
    if (!read(store, then)) return;
    if (then != is) return fail("afterwards: the work after the crash has another effect");
    if (store.sync() != Outcome::done) return fail("sync fails");
    if (variant % 4 < 2) sound(store, {});
  }

  static std::string show(const Tables& is) {
    std::string text;
    for (const auto& [name, content] : is) {
      text += " " + name + "{";
      for (const auto& [key, value] : content) {
        text += printable(key) + "=" + value.substr(0, 8) + fmt::format("({}) ", value.size());
      }
      text += "}";
    }
    return text;
  }

  // Memory that is taken for free too early would be overwritten by it.
  void go_on(Store& store, Tables& is, std::uint64_t variant) {
    std::vector<Put> puts;
    for (const auto& [name, content] : is) {
      for (std::uint64_t n = 0; n < 3; ++n) {
        const bool large = n == 1 && variant % 8 == 3;
        puts.push_back({name, fmt::format("new{}", n),
                        std::string(large ? kSeveralChunks : 20 + n % 90, 'x')});
      }
      if (content.empty()) continue;
      puts.push_back({name, content.begin()->first, std::nullopt});
      puts.push_back({name, content.rbegin()->first, std::string(20 + variant % 90, 'x')});
    }
    if (puts.empty()) return;
    if (variant % 2 == 0) {
      // A table of one entry: it is erased, and put again.
      for (const Put& one : puts) {
        const Outcome outcome = apply(store, one, Kind::write, {});
        if (outcome == Outcome::out_of_space) return read_again(store, is);
        if (outcome != Outcome::done) {
          return fail(fmt::format("afterwards: it answers '{}'", everleaf::to_string(outcome)));
        }
      }
      change(is, puts);
      return;
    }
    // One for each table: tables of one batch are taken in the order of their addresses, which are
    // no function of the choices.
    while (!puts.empty()) {
      const auto rest = std::ranges::find_if(
          puts, [&](const Put& one) { return one.table != puts.front().table; });
      const std::vector<Put> some(puts.begin(), rest);
      puts.erase(puts.begin(), rest);
      const Outcome outcome = apply(store, some);
      if (outcome == Outcome::out_of_space) continue;  // it has no effect
      if (outcome != Outcome::done) {
        return fail(fmt::format("a batch afterwards answers '{}'", everleaf::to_string(outcome)));
      }
      change(is, some);
    }
  }
  // A pool that grew full meanwhile: nothing to compare with.
  void read_again(Store& store, Tables& is) {
    is.clear();
    (void)read(store, is);
  }

  void sound(Store& store, const Tables& is) {
    if (stopped_) return;
    const auto report = store.check();
    if (!report) return fail("check: " + report.error().message);
    for (const std::string& problem : report->problems) {
      // A crash while a header copy is written: the other one counts.
      if (problem.find("header copy") == std::string::npos) return fail("check: " + problem);
    }
    if (is.empty()) return;
    std::uint64_t keys = 0;
    for (const auto& [name, content] : is) keys += content.size();
    const std::uint64_t records = store.info()->records;
    if (records != keys) fail(fmt::format("{} records for {} keys", records, keys));
  }

  void fail(const std::string& what) {
    if (report_.failure) return;
    stopped_ = true;
    report_.failure = failure_of(reading_ ? "a reader: " + what : what, step_, operation_, arena_,
                                 recorder_, points_);
    report_.failure->of_reader = reading_;
  }

  const Config& config_;
  const std::vector<StoreStep>& steps_;
  const double started_ = processor_seconds();
  const bool buffered_ = is_buffered(config_.spec);
  Arena arena_;
  Recorder recorder_;
  Signals signals_{this};
  PoolOptions options_;
  std::optional<Store> store_;
  std::optional<Pool> pool_;
  std::array<std::uint64_t, kMostLevels + 1> bytes_{pmem::kMinPoolBytes};
  std::array<const pmem::Medium*, kMostLevels + 1> live_{};
  Tables now_;                                      // strict: acknowledged
  std::optional<Tables> after_;                     // and after the step that runs
  std::map<std::uint64_t, Tables> ends_;            // buffered: at the end of epochs so far
  std::optional<std::pair<Tables, Tables>> batch_;  // around the last one
  std::uint64_t began_ = 0;
  std::uint64_t used_ = 0;  // records at the beginning of the step
  Kind kind_ = Kind::write;
  std::string table_;           // that is created or dropped
  std::filesystem::path copy_;  // that a backup makes
  bool overwrote_ = false;
  bool stepping_ = false;
  bool creating_ = false;
  bool closing_ = false;
  bool opening_ = false;
  bool reopened_ = false;
  bool image_ = false;
  bool reading_ = false;  // the image is open read-only
  bool quiet_ = false;
  bool stopped_ = false;
  std::size_t step_ = 0;
  std::string operation_;
  Points points_{};
  std::unordered_set<std::uint64_t> seen_;
  Random random_{1};
  StoreReport report_;
};

// --- Operations as steps ---
constexpr std::array<std::size_t, 16> kLengths{0,  1,   8,   40,   90,   100,  150,  150,
                                               20, 300, 700, 1500, 5000, 8184, 8185, 20000};

std::string value_of(std::uint64_t number) {
  const std::size_t length = kLengths.at(number / 4 % kLengths.size());
  std::string value(length, static_cast<char>('a' + number % 26));
  const std::string text = fmt::format("{}", number);
  value.replace(0, std::min(length, text.size()), text.substr(0, length));
  return value;
}

Put put_of(const Op& op, KeyType keys) {
  const bool other = op.value % 4 == 0;
  std::string key;
  if (other || keys == KeyType::bytes) {
    key = make_key<Bytes>(op.key);
  } else {
    key = op.key == 1 ? std::string(8, '\xFF') : op.key == 0 ? "" : fmt::format("{}", op.key);
  }
  Put put{other ? "b" : "a", std::move(key), std::nullopt};
  if (op.what != Do::remove) put.value = value_of(op.value);
  return put;
}

// Of one number, so that it stays the same in a shortened workload.
std::vector<Put> batch_of(const Op& op, KeyType keys) {
  Random random(op.value);
  std::vector<Put> puts;
  for (std::uint64_t n = 1 + random.below(8); n != 0; --n) {
    const Do what = random.below(3) == 0 ? Do::remove : Do::upsert;
    puts.push_back(
        put_of({what, random.below(std::max<std::uint64_t>(op.key, 1)), random.word()}, keys));
  }
  return puts;
}

StoreStep step_of(const Op& op, KeyType keys) {
  const std::string table = op.value % 2 == 0 ? "a" : "b";
  switch (op.what) {
    case Do::insert:
      return {Kind::insert, {put_of(op, keys)}};
    case Do::update:
      return {Kind::update, {put_of(op, keys)}};
    case Do::exchange:
      return {Kind::exchange, {put_of(op, keys)}};
    case Do::batch:
      return {Kind::batch, batch_of(op, keys)};
    case Do::no_space:
      return {Kind::full, batch_of(op, keys), {}, op.value % 5};
    case Do::drop:
      return {Kind::drop, {}, table};
    case Do::other_index:
      return {Kind::create, {}, table};
    case Do::sync:
      return {Kind::sync};
    case Do::tick:
      return {Kind::tick};
    case Do::reopen:
      return {Kind::reopen};
    default:
      return {Kind::write, {put_of(op, keys)}};
  }
}

std::string to_string(const std::vector<Put>& puts) {
  std::string text;
  for (const Put& one : puts) {
    text += fmt::format("{}{}[{}]", text.empty() ? "" : ", ", one.table, printable(one.key));
    text += one.value ? fmt::format(" = {} bytes", one.value->size()) : " goes";
  }
  return text;
}

}  // namespace

std::string to_string(const StoreStep& step) {
  switch (step.kind) {
    case Kind::write:
      return "put " + to_string(step.puts);
    case Kind::insert:
      return "insert " + to_string(step.puts);
    case Kind::update:
      return "update " + to_string(step.puts);
    case Kind::exchange:
      return "compare and set " + to_string(step.puts);
    case Kind::batch:
      return "batch " + to_string(step.puts);
    case Kind::full:
      return fmt::format("batch with {} blocks left: ", step.blocks) + to_string(step.puts);
    case Kind::create:
      return "create table " + step.table;
    case Kind::drop:
      return "drop table " + step.table;
    case Kind::backup:
      return "backup";
    case Kind::tick:
      return "step of the clock";
    case Kind::sync:
      return "sync";
    case Kind::reopen:
      return "close and open";
  }
  return "?";
}

StoreReport run_store(const StoreConfig& config) {
  return StoreRun(config).go();
}

std::vector<StoreStep> store_steps(const std::vector<Op>& ops, KeyType keys) {
  std::vector<StoreStep> steps;
  steps.reserve(ops.size());
  for (const Op& op : ops) steps.push_back(step_of(op, keys));
  return steps;
}

}  // namespace everleaf::crash
