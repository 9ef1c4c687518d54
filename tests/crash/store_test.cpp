// The crash cases of src/store/README.md: every crash in small workloads on a store, and in the
// recoveries from them. After each, both tables hold exactly what they may hold, every value fits
// its checksum, the heap's blocks are those that are reached, the memory for records has as many
// records as there are keys, and the store goes on working.
#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_set>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "pmem/format.hpp"
#include "recorder.hpp"
#include "run.hpp"
#include "store/state.hpp"

namespace everleaf::crash {
namespace {

constexpr std::size_t kCapacity = std::size_t{4} << 20;
constexpr std::uint64_t kMostOfRecovery = 50'000'000;  // events

using Content = std::map<std::string, std::string>;
using Tables = std::map<std::string, Content>;

struct Put {
  std::string table;
  std::string key;
  std::optional<std::string> value;  // none: erase
};
enum class Kind : std::uint8_t { write, batch, drop, tick, reopen, full };
struct Step {
  Kind kind;
  std::vector<Put> puts;
  std::string table;
  std::uint64_t blocks = 0;  // full: that the heap gives before
};

Step put(std::string table, std::string key, std::string value) {
  return {Kind::write, {{std::move(table), std::move(key), std::move(value)}}, {}};
}
Step erase(std::string table, std::string key) {
  return {Kind::write, {{std::move(table), std::move(key), std::nullopt}}, {}};
}
Step batch(std::vector<Put> puts) {
  return {Kind::batch, std::move(puts), {}};
}
// The same where the heap gives so many blocks and no more: it may be refused.
Step full(std::vector<Put> puts, std::uint64_t blocks) {
  return {Kind::full, std::move(puts), {}, blocks};
}
Step drop(std::string table) {
  return {Kind::drop, {}, std::move(table)};
}
Step tick() {
  return {Kind::tick, {}, {}};
}
Step reopen() {
  return {Kind::reopen, {}, {}};
}

struct Setting {
  Durability durability = Durability::strict;
  std::string spec;
  Domain domain = Domain::memory;
  std::vector<Step> steps;
  unsigned nested = 1;
  std::uint64_t most = 48;  // executions per crash point before the rest is sampled
  std::uint64_t most_nested = 6;
};

class StoreRun final : Crasher {
 public:
  explicit StoreRun(const Setting& setting)
      : setting_(setting),
        arena_(kCapacity, 1 + setting.nested,
               {setting.domain == Domain::disk ? std::size_t{8} : std::size_t{64},
                setting.domain == Domain::process}),
        recorder_(arena_) {
    options_.domain = setting.domain == Domain::disk ? Domain::disk : Domain::memory;
    options_.emulate = true;
    options_.epoch_length = {};
    recorder_.crasher = this;
    Recorder::watch(&recorder_);
  }
  StoreRun(const StoreRun&) = delete;
  StoreRun& operator=(const StoreRun&) = delete;
  ~StoreRun() override { Recorder::watch(nullptr); }

  // What is wrong; empty: nothing.
  std::string go() {
    create();
    for (step_ = 0; step_ < setting_.steps.size() && wrong_.empty(); ++step_) {
      run(setting_.steps[step_]);
      if (wrong_.empty()) returned();
    }
    quiet_ = true;
    store_.reset();
    return wrong_;
  }
  [[nodiscard]] std::uint64_t executions() const { return executions_; }
  [[nodiscard]] std::uint64_t refused() const { return refused_; }
  [[nodiscard]] std::uint64_t reached(const std::string& path) const {
    const auto at = recorder_.reached.find(path);
    return at == recorder_.reached.end() ? 0 : at->second;
  }

 private:
  // --- The workload ---
  void create() {
    operation_ = "create pool";
    creating_ = true;
    quiet_ = true;  // run.cpp looks at pools and indexes
    auto pool = PoolAccess::format(arena_.base(0), bytes_[0], kCapacity, options_, &recorder_);
    if (!pool) return fail("format: " + pool.error().message);
    quiet_ = false;
    operation_ = "create store";
    auto store = StoreAccess::over(std::move(*pool), setting_.durability);
    if (!store) return fail("store: " + store.error().message);
    store_.emplace(std::move(*store));
    creating_ = false;
    operation_ = "create tables";
    quiet_ = true;
    for (const char* const name : {"a", "b"}) {
      if (auto table = store_->table(name, setting_.spec); !table) {
        return fail("table: " + table.error().message);
      }
      now_[name];
    }
    quiet_ = false;
    began_ = epoch();
    for (std::uint64_t e = 0; e <= epoch(); ++e) ends_[e] = now_;
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

  Outcome apply(Store& store, const std::vector<Put>& puts, bool as_batch) {
    Batch batch;
    for (const Put& one : puts) {
      auto table = store.table(one.table, setting_.spec);
      if (!table) return Outcome::corrupt;
      if (as_batch) {
        one.value ? batch.put<Bytes>(*table, one.key, *one.value)
                  : batch.erase<Bytes>(*table, one.key);
      } else {
        return one.value ? table->put(one.key, *one.value) : table->erase(one.key);
      }
    }
    return store.apply(batch);
  }

  void run(const Step& step) {
    operation_ = fmt::format("step {}", step_);
    began_ = epoch();
    after_ = now_;
    switch (step.kind) {
      case Kind::write:
      case Kind::batch: {
        change(*after_, step.puts);
        if (apply(*store_, step.puts, step.kind == Kind::batch) != Outcome::done) fail("refused");
        break;
      }
      case Kind::full: {
        change(*after_, step.puts);
        auto& heap = PoolAccess::state(pool()).heap();
        heap.fail_after(step.blocks);
        const Outcome outcome = apply(*store_, step.puts, true);
        heap.fail_after(~std::uint64_t{0});
        if (outcome == Outcome::out_of_space) {
          ++refused_;
          after_ = now_;
        } else if (outcome != Outcome::done) {
          fail(fmt::format("it answers '{}'", everleaf::to_string(outcome)));
        }
        break;
      }
      case Kind::drop:
        dropping_ = step.table;
        stepping_ = true;
        after_->erase(step.table);
        if (auto dropped = store_->drop_table(step.table); !dropped) fail(dropped.error().message);
        // It is durable, and all that came before it.
        for (auto& [e, tables] : ends_) tables = *after_;
        break;
      case Kind::tick:
        stepping_ = true;
        if (pool().advance_epoch() != Outcome::done) fail("the clock does not step");
        break;
      case Kind::reopen:
        stepping_ = true;
        reopen();
        break;
    }
  }

  void reopen() {
    store_.reset();
    auto pool = PoolAccess::attach(arena_.base(0), bytes_[0], kCapacity, options_, &recorder_);
    if (!pool) return fail("open: " + pool.error().message);
    auto store = StoreAccess::over(std::move(*pool));
    if (!store) return fail("open: " + store.error().message);
    if (!store->info()->opened_from_image) fail("the image is not believed");
    store_.emplace(std::move(*store));
  }

  void returned() {
    now_ = *after_;
    after_.reset();
    dropping_.clear();
    stepping_ = false;
    // What has happened is of this epoch, or of those that have passed since it began.
    for (std::uint64_t e = began_; e <= epoch(); ++e) ends_[e] = now_;
    began_ = epoch();
    recorder_.settle();
    bytes_[0] = PoolAccess::state(pool()).medium().size();
    crash_point();
  }

  [[nodiscard]] Pool& pool() {
    pool_.emplace(store_->pool());
    return *pool_;
  }
  [[nodiscard]] std::uint64_t epoch() {
    if (setting_.durability == Durability::strict || !store_) return began_;
    epoch::Epochs* const epochs = StoreAccess::state(*store_).epochs();
    const std::uint64_t now = epochs == nullptr ? 0 : epochs->now();
    return now;
  }

  // --- Crashes ---
  void escaped(const std::string& what) override { fail(what); }

  void crash_point() override {
    if (quiet_ || !wrong_.empty()) return;
    const std::size_t level = arena_.level();
    if (level == 0 && store_) {
      bytes_[0] = PoolAccess::state(pool()).medium().size();
      pool_.reset();
      seen_.clear();
    }
    bytes_[level + 1] = live_[level] != nullptr ? live_[level]->size() : bytes_[level];
    if (level != 0 && !seen_.insert(arena_.state_hash() + level).second) return;
    arena_.enter();
    recorder_.switch_level();
    const std::uint64_t most = level == 0 ? setting_.most : setting_.most_nested;
    std::vector<Choice> path;
    for (std::uint64_t n = 0; wrong_.empty() && n < 2 * most; ++n) {
      if (n >= most) path = sampled();
      arena_.begin(path);
      execute(level + 1);
      path = arena_.path();
      arena_.end();
      recorder_.switch_level();
      ++executions_;
      if (n < most && !Arena::advance(path)) break;
    }
    arena_.leave();
    recorder_.switch_level();
    recorder_.allow(~std::uint64_t{0});
  }

  std::vector<Choice> sampled() {
    std::vector<Choice> path(96);
    const bool last = random_.below(2) == 0;
    for (Choice& choice : path) {
      choice = {last ? kLast : static_cast<std::uint32_t>(random_.below(1 << 20)), 0};
    }
    path[random_.below(24)].pick = static_cast<std::uint32_t>(random_.below(64));
    return path;
  }

  void execute(std::size_t level) {
    recorder_.allow(kMostOfRecovery);
    const bool crashing = arena_.recording() && (level == 1 || executions_ % 8 == 0);
    if (!crashing) arena_.record(false);
    auto pool =
        PoolAccess::attach(arena_.base(level), bytes_[level], kCapacity, options_, &recorder_);
    if (!pool) return fail("open: " + pool.error().message);
    live_[level] = &PoolAccess::state(*pool).medium();
    auto store =
        StoreAccess::over(*pool, creating_ ? std::optional(setting_.durability) : std::nullopt);
    recorder_.settle();
    arena_.record(false);
    if (!store) {
      fail("store: " + store.error().message);
    } else {
      if (wrong_.empty()) judge(*store);
      StoreAccess::state(*store).abandon();
    }
    live_[level] = nullptr;
    PoolAccess::state(*pool).abandon();
    recorder_.settle();
  }

  // Content of the tables that are there.
  bool read(Store& store, Tables& tables) {
    const auto all = store.tables();
    if (!all) return fail(all.error().message), false;
    for (const IndexInfo& info : *all) {
      auto table = store.table(info.name);
      if (!table) return fail(table.error().message), false;
      Content& content = tables[info.name];
      auto cursor = table->cursor();
      for (cursor.first(); cursor.valid(); cursor.next()) {
        content.emplace(cursor.key(), cursor.value());
      }
      if (cursor.outcome() != Outcome::done) {
        return fail(fmt::format("cursor: {}", everleaf::to_string(cursor.outcome()))), false;
      }
    }
    return true;
  }

  [[nodiscard]] bool allowed(const Tables& is) {
    const auto fits = [&is](const Tables& tables) { return is == tables; };
    if (setting_.durability == Durability::strict) return fits(now_) || (after_ && fits(*after_));
    // A table is not gone before everything is durable that came before.
    if (!dropping_.empty() && !is.contains(dropping_)) return fits(*after_);
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

  void judge(Store& store) {
    Tables is;
    if (!read(store, is)) return;
    if (creating_ ? !is.empty() : !allowed(is)) {
      std::string text = "not what the tables may hold:";
      for (const auto& [name, content] : is) {
        text += " " + name + "{";
        for (const auto& [key, value] : content) {
          text += key + "=" + value.substr(0, 8) + fmt::format("({}) ", value.size());
        }
        text += "}";
      }
      return fail(text);
    }
    sound(store, is);
    // Memory that is taken for free too early would be overwritten by it.
    const auto more = [](std::uint64_t n) { return std::string(20 + n % 90, 'x'); };
    std::vector<Put> puts;
    for (const auto& [name, content] : is) {
      for (std::uint64_t n = 0; n < 3; ++n)
        puts.push_back({name, fmt::format("new{}", n), more(n)});
      if (!content.empty()) {
        puts.push_back({name, content.begin()->first, std::nullopt});
        puts.push_back({name, content.rbegin()->first, more(executions_)});
      }
    }
    if (executions_ % 2 == 0) {
      for (const Put& one : puts) {
        if (wrong_.empty() && apply(store, {one}, false) == Outcome::corrupt) fail("afterwards");
      }
      if (!puts.empty()) change(is, puts);
    } else {
      const Outcome outcome = apply(store, puts, true);
      if (outcome != Outcome::done) fail("a batch afterwards is refused");
      change(is, puts);
    }
    Tables then;
    if (!wrong_.empty() || !read(store, then)) return;
    if (then != is) return fail("afterwards: the work after the crash has another effect");
    if (store.sync() != Outcome::done) return fail("sync fails");
    if (executions_ % 4 < 2) sound(store, {});
  }

  void sound(Store& store, const Tables& is) {
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
    if (!wrong_.empty()) return;
    wrong_ = fmt::format("{}, crash at {}, level {}: {}", operation_, recorder_.last(),
                         arena_.level(), what);
    if (arena_.level() != 0) wrong_ += "\nlost: " + arena_.describe_lost();
  }

  const Setting& setting_;
  Arena arena_;
  Recorder recorder_;
  PoolOptions options_;
  std::optional<Store> store_;
  std::optional<Pool> pool_;
  std::array<std::uint64_t, kMostLevels + 1> bytes_{pmem::kMinPoolBytes};
  std::array<const pmem::Medium*, kMostLevels + 1> live_{};
  Tables now_;                            // strict: acknowledged
  std::optional<Tables> after_;           // and after the step that runs
  std::map<std::uint64_t, Tables> ends_;  // buffered: at the end of epochs so far
  std::uint64_t began_ = 0;
  std::string dropping_;
  bool stepping_ = false;
  bool creating_ = false;
  bool quiet_ = false;
  std::size_t step_ = 0;
  std::string operation_;
  std::string wrong_;
  std::uint64_t executions_ = 0;
  std::uint64_t refused_ = 0;
  std::unordered_set<std::uint64_t> seen_;
  Random random_{1};
};

void explore(Setting setting, std::vector<Step> steps,
             std::initializer_list<Domain> domains = {Domain::memory, Domain::process}) {
  setting.steps = std::move(steps);
  for (const Domain domain : domains) {
    setting.domain = domain;
    StoreRun run(setting);
    ASSERT_EQ(run.go(), "");
    EXPECT_GT(run.executions(), 2 * setting.steps.size());
  }
}

// Small nodes, so that a few keys split them.
Setting strict(unsigned nested = 1) {
  return {Durability::strict, "wbtree:node=256", Domain::memory, {}, nested};
}
Setting buffered(unsigned nested = 1) {
  return {Durability::buffered, "bdtree:node=256", Domain::memory, {}, nested};
}

std::vector<Step> some(const std::string& table, int count) {
  std::vector<Step> steps;
  for (int i = 0; i < count; ++i) {
    steps.push_back(
        put(table, fmt::format("k{}", i), std::string(static_cast<std::size_t>(i * 13), 'v')));
  }
  return steps;
}
std::vector<Step> then(std::vector<Step> steps, const std::vector<Step>& more) {
  steps.insert(steps.end(), more.begin(), more.end());
  return steps;
}
std::vector<Step> ticks(int count) {
  return std::vector<Step>(static_cast<std::size_t>(count), tick());
}

// A1, A2, A3.
const std::vector<Step> kWrites = {put("a", "x", std::string(150, '1')),
                                   put("b", "x", std::string(40, '2')),
                                   put("a", "x", std::string(150, '3')),
                                   erase("b", "x"),
                                   put("b", "y", ""),
                                   put("a", "x", std::string(90, '4')),
                                   put("a", "z", std::string(90, '5'))};
TEST(Store, StrictWrites) {
  explore(strict(), kWrites, {Domain::memory, Domain::disk});
}

TEST(Store, BufferedWrites) {
  std::vector<Step> steps;
  for (int round = 0; round < 2; ++round) {
    for (const Step& step : kWrites) {
      steps.push_back(step);
      if (steps.size() % 3 == 1) steps.push_back(tick());
    }
  }
  explore(buffered(), then(steps, ticks(4)));
}

// Records whose memory is used again and again.
TEST(Store, BufferedOverwrites) {
  std::vector<Step> steps;
  for (int i = 0; i < 24; ++i) {
    steps.push_back(put("a", "x", std::string(100, static_cast<char>('a' + i))));
    if (i % 3 == 0) steps.push_back(tick());
  }
  explore(buffered(), steps);
}

// A6, A7.
TEST(Store, Reopening) {
  for (const Setting& setting : {strict(), buffered()}) {
    std::vector<Step> steps = some("a", 4);
    steps.push_back(reopen());
    steps.push_back(put("a", "k2", "new"));
    steps.push_back(reopen());
    explore(setting, steps, {Domain::memory});
  }
}

const std::vector<Put> kBatch = {
    {"a", "k1", std::string(70, 'n')},    {"a", "k2", std::nullopt},
    {"b", "k1", std::string(30, 'n')},    {"a", "new", std::string(100, 'n')},
    {"b", "other", std::string(10, 'n')}, {"a", "k3", std::nullopt}};

// A4.
TEST(Store, BufferedBatches) {
  std::vector<Step> steps = then(then(some("a", 5), some("b", 2)), ticks(3));
  steps.push_back(batch(kBatch));
  steps = then(steps, ticks(3));
  steps.push_back(batch({{"a", "new", std::nullopt}, {"b", "k0", "again"}}));
  steps.push_back(put("a", "later", "v"));
  explore(buffered(), then(steps, ticks(3)));
}

// A8.
TEST(Store, StrictBatches) {
  std::vector<Step> steps = then(some("a", 5), some("b", 2));
  steps.push_back(batch(kBatch));
  steps.push_back(batch({{"a", "new", std::nullopt}, {"b", "k0", "again"}}));
  steps.push_back(put("a", "later", "v"));
  explore(strict(), steps, {Domain::memory, Domain::disk, Domain::process});
}

TEST(Store, StrictBatchesAndCrashesOfTheirRecovery) {
  Setting setting = strict(2);
  setting.most = 6;
  setting.most_nested = 4;
  std::vector<Step> steps = then(some("a", 4), some("b", 2));
  steps.push_back(batch(kBatch));
  explore(setting, steps, {Domain::memory});
}

// A9.
TEST(Store, DroppedTables) {
  for (const Setting& setting : {strict(), buffered(), strict(2)}) {
    Setting small = setting;
    if (setting.nested == 2) small.most = small.most_nested = 4;
    std::vector<Step> steps = then(some("a", 20), some("b", 2));
    if (setting.durability == Durability::buffered) steps = then(steps, ticks(3));
    // A list of more blocks than one redo record frees is in the next test.
    steps.push_back(drop("a"));
    steps.push_back(put("b", "k1", "new"));
    explore(
        small,
        then(steps, setting.durability == Durability::buffered ? ticks(3) : std::vector<Step>{}),
        {Domain::memory});
  }
}

// A table whose entries were copied goes before the copy is durable by itself.
TEST(Store, ADropTakesNothingBackThatCameBefore) {
  std::vector<Step> steps = then(some("a", 6), ticks(3));
  for (const Step& one : some("b", 6)) steps.push_back(one);
  steps.push_back(drop("a"));
  steps.push_back(put("b", "k1", "new"));
  explore(buffered(), then(steps, ticks(3)), {Domain::memory, Domain::process});
}

// L2 of the redo log: late records name the nodes of a table that goes; another table's split takes
// these nodes next.
TEST(Store, DroppedTableWithLateRecords) {
  for (const int keys : {12, 13, 14}) {
    Setting setting = strict();
    setting.spec = "pbtree:node=256";
    setting.most = 12;
    std::vector<Step> steps = then(some("b", keys), some("a", 3));
    steps.push_back(drop("a"));
    explore(setting, then(steps, {put("b", "k00", "new"), put("b", "k01", "new")}),
            {Domain::memory, Domain::disk});
  }
}

// A10: batches that find no space for their records, or in the middle.
TEST(Store, RefusedBatches) {
  for (const auto& [setting, keys, blocks] :
       {std::tuple(strict(), 40, 0U), std::tuple(buffered(), 40, 0U), std::tuple(strict(), 40, 12U),
        std::tuple(buffered(), 900, 0U)}) {
    const bool middle = keys == 900 || blocks != 0;
    std::vector<Put> puts;
    for (int i = 0; i < keys; ++i) {
      // Of a size of which there is memory, or of one of which there is none.
      puts.push_back({"a", fmt::format("m{}", i), std::string(middle ? 8 : 300, 'm')});
    }
    if (!middle) puts.push_back({"a", "k1", std::string(50, 'm')});
    puts.push_back({"a", "k2", std::nullopt});
    Setting small = setting;
    small.most = 8;
    small.steps = some("a", 4);
    small.steps.push_back(full(puts, blocks));
    small.steps.push_back(put("a", "after", "v"));
    if (setting.durability == Durability::buffered) small.steps = then(small.steps, ticks(3));
    StoreRun run(small);
    ASSERT_EQ(run.go(), "");
    EXPECT_EQ(run.refused(), 1U) << to_string(setting.durability) << ' ' << keys;
    EXPECT_EQ(run.reached("store: a batch is taken back") != 0, middle);
  }
}

}  // namespace
}  // namespace everleaf::crash
