// The crash cases and the gaps of src/trees/bztree/README.md: workloads that surely meet them,
// every crash in them, and threads that stop for ever.
#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "cases.hpp"
#include "stops.hpp"
#include "threads/concurrent.hpp"
#include "threads/explore.hpp"

namespace everleaf::crash {
namespace {

constexpr const char* kSpec = "bztree:page=256:free=96";  // up to 9 entries; 4 or 5 after a split
constexpr std::uint64_t kTop = std::uint64_t{1} << 63;

std::map<std::string, std::uint64_t> figures(const Ops& ops) {
  return figures_of<std::uint64_t>(kSpec, ops);
}

void explore_with(const std::string& more, const Ops& ops, unsigned nested = 1,
                  std::uint64_t most = 40,
                  std::initializer_list<Domain> domains = {Domain::memory, Domain::disk,
                                                           Domain::cache}) {
  explore_all(kSpec + more, ops, nested, most, domains);
}

void explore(const Ops& ops, unsigned nested = 1, std::uint64_t most = 40,
             std::initializer_list<Domain> domains = {Domain::memory, Domain::disk,
                                                      Domain::cache}) {
  explore_with("", ops, nested, most, domains);
}

// P8, P9, A8.
TEST(Bztree, Creation) {
  Ops ops;
  each(ops, Do::insert, 0, 1);
  ops.push_back({Do::reopen, 0, 0});
  each(ops, Do::insert, 1, 2);
  explore(ops, 2);
  explore_with(":reserve=entry", ops, 2);
}

// P9: the root block, the table and the leaf hold what others left there; a crash must not bring it
// back.
TEST(Bztree, CreationWhereOthersWere) {
  Config config;
  config.spec = kSpec;  // its keys are long, and have records of the table's size
  config.keys = KeyType::bytes;
  config.ops = used_blocks();
  config.most = 40;
  explore_in({Domain::memory}, config);
}

// P8: who begins a session stops between the epoch and his first reservation; another one reserves
// in that epoch. A crash must not bring the epoch back alone.
TEST(Bztree, TwoThreadsBeginASession) {
  ConcurrentConfig config;
  config.spec = std::string(kSpec) + ":reserve=entry";
  config.program = *parse_program("2,4/i5=1/i6=2");
  config.preemptions = 1;
  config.random_runs = 0;
  config.most = 200;
  const ConcurrentReport report = run_concurrent(config);
  EXPECT_EQ(report.failure, "") << replay_line(config, report.switches);
  EXPECT_TRUE(report.complete);
  EXPECT_GT(report.crash_points, 1000U);
}

// P1, P2, A1, A2, A3, A9.
TEST(Bztree, Insertions) {
  Ops ops;
  each(ops, Do::insert, 0, 2);
  ops.push_back({Do::insert, 4, kTop + 7});
  explore(ops, 2, 40, {Domain::memory});
  explore_with(":reserve=entry", ops, 2, 40, {Domain::memory});
  each(ops, Do::insert, 5, 7);
  explore(ops);
  explore_with(":reserve=entry", ops);
}

// P3, P4, A4, G3, G4: in place, by new records where bit 63 changes, deleted and inserted again.
TEST(Bztree, UpdatesAndDeletions) {
  Ops ops;
  each(ops, Do::insert, 0, 4);
  each(ops, Do::update, 1, 3);
  ops.push_back({Do::update, 1, kTop + 1});
  ops.push_back({Do::update, 1, 5});
  ops.push_back({Do::remove, 1, 0});
  ops.push_back({Do::insert, 1, kTop});
  explore(ops, 2, 40, {Domain::memory});
  each(ops, Do::remove, 0, 3);
  explore(ops);
}

// The same by new records only, until the leaf has no room for them.
TEST(Bztree, InlineUpdates) {
  Ops ops;
  each(ops, Do::insert, 0, 3);
  for (std::uint64_t value = 0; value < 12; ++value) ops.push_back({Do::update, 1, value});
  ops.push_back({Do::remove, 1, 0});  // G3: no older record is there again
  ops.push_back({Do::insert, 1, 5});
  const char* const spec = "bztree:page=256:free=96:update=inline";
  EXPECT_GE(figures_of<std::uint64_t>(spec, ops).at("consolidations"), 1U);
  Config config;
  config.spec = spec;
  config.ops = ops;
  config.most = 40;
  for (const KeyType keys : {KeyType::u64, KeyType::bytes}) {
    config.keys = keys;
    explore_in({Domain::memory, Domain::disk, Domain::cache}, config);
  }
}

// P3, P4, G4: of entries that a split has copied, which are searched by what their place says (I6).
TEST(Bztree, DeletionsOfSortedEntries) {
  Ops ops;
  for (std::uint64_t key = 10; key-- > 0;) ops.push_back({Do::insert, key, key + 1});
  EXPECT_EQ(figures(ops).at("splits"), 1U);  // the right leaf has nothing but copies
  for (const std::uint64_t key : {6, 8}) {
    ops.push_back({Do::remove, key, 0});
    ops.push_back({Do::update, key + 1, kTop + key});
    ops.push_back({Do::insert, key, key + 100});
  }
  EXPECT_EQ(figures(ops).at("splits"), 1U);
  EXPECT_EQ(figures(ops).at("consolidations"), 0U);
  explore(ops, 2, 40, {Domain::memory});
  explore(ops);
}

// P5, A5, A6, A7: and the root's leaf, whose parent is the root block.
TEST(Bztree, Consolidation) {
  Ops ops;
  each(ops, Do::insert, 0, 5);
  each(ops, Do::remove, 0, 4);
  each(ops, Do::insert, 5, 16);
  const auto all = figures(ops);
  EXPECT_GE(all.at("consolidations"), 1U);
  explore(ops);
}

// P6, A5, A6, A7: a leaf that is the root, leaves under a root, an inner root.
TEST(Bztree, Splits) {
  Ops ops;
  each(ops, Do::insert, 0, 24, 2);
  each(ops, Do::insert, 1, 24, 2);
  EXPECT_GE(figures(ops).at("splits"), 2U);
  explore(ops);
}

TEST(Bztree, InnerSplits) {
  Ops ops;
  each(ops, Do::insert, 0, 150);
  const auto all = figures(ops);
  EXPECT_GE(all.at("inner_splits"), 1U);
  EXPECT_GE(all.at("height"), 2U);
  Config config;
  config.spec = kSpec;
  config.ops = ops;
  config.most = 12;
  explore_in({Domain::memory, Domain::cache}, config);
}

// Fingerprints of a large page lie in more lines than the status'.
TEST(Bztree, LargePages) {
  Ops ops;
  each(ops, Do::insert, 0, 52);
  Config config;
  config.spec = "bztree:page=4096";
  config.ops = ops;
  config.most = 12;
  explore_in({Domain::memory, Domain::disk}, config);
}

// P7: leaves, inner nodes, and the root that gives way to its child.
TEST(Bztree, Merges) {
  Ops ops;
  each(ops, Do::insert, 0, 24);
  each(ops, Do::remove, 1, 23);
  const auto all = figures(ops);
  EXPECT_GE(all.at("merges"), 2U);
  EXPECT_EQ(all.at("height"), 0U);
  explore(ops);
}

// Nested crashes in structure changes: recovery finds its own decisions again (A9).
TEST(Bztree, StructureChangesTwice) {
  Ops ops;
  each(ops, Do::insert, 0, 12);
  each(ops, Do::remove, 2, 11);
  const auto all = figures(ops);
  EXPECT_EQ(all.at("splits"), 1U);
  EXPECT_EQ(all.at("merges"), 1U);
  explore(ops, 2, 4, {Domain::memory});
}

TEST(Bztree, BulkLoad) {
  Ops ops;
  ops.push_back({Do::bulk_load, 60, 1});
  each(ops, Do::insert, 60, 62);
  explore(ops);
}

// What was emptied without merges is one leaf again before it is loaded (P7, P6).
TEST(Bztree, BulkLoadOfAnEmptiedTree) {
  const char* const spec = "bztree:page=256:free=96:merge=0";
  for (const bool sized : {false, true}) {
    Ops ops;
    const std::uint64_t first = sized ? kSizedKeys : 0;
    each(ops, Do::insert, first, first + 24);
    each(ops, Do::remove, first, first + 24);
    const auto figures =
        sized ? figures_of<Bytes>(spec, ops) : figures_of<std::uint64_t>(spec, ops);
    EXPECT_GE(figures.at("leaves"), 2U);
    ops.push_back({Do::bulk_load, 20, 1});
    each(ops, Do::insert, 20, 22);
    Config config;
    config.spec = spec;
    config.keys = sized ? KeyType::bytes : KeyType::u64;
    config.ops = ops;
    config.most = 12;
    explore_in({Domain::memory, Domain::cache}, config);
  }
  // Three levels of inner nodes, and a root that stays until the last merge.
  Pool pool = Pool::anonymous().value();
  auto index = pool.index<std::uint64_t>("index", spec).value();
  for (std::uint64_t key = 0; key < 2000; ++key) ASSERT_EQ(index.insert(key, key), Outcome::done);
  for (std::uint64_t key = 0; key < 1999; ++key) ASSERT_EQ(index.remove(key), Outcome::done);
  EXPECT_GE(index.stats().height, 3U);
  const std::vector<Entry<std::uint64_t>> entries{{5, 6}, {7, 8}};
  EXPECT_EQ(index.bulk_load(entries), Outcome::not_empty);
  ASSERT_EQ(index.remove(1999), Outcome::done);
  EXPECT_EQ(index.bulk_load(entries), Outcome::done);
  EXPECT_EQ(index.stats().height, 0U);
  EXPECT_EQ(index.size(), 2U);
  EXPECT_TRUE(pool.check().value().problems.empty());
}

// Long keys have records of their own, and so have separators (G8).
TEST(Bztree, LongKeys) {
  Ops ops;
  for (std::uint64_t i = 0; i < 14; ++i) ops.push_back({Do::insert, kSizedKeys + i, i});
  for (std::uint64_t i = 1; i < 13; ++i) ops.push_back({Do::remove, kSizedKeys + i, 0});
  ops.push_back({Do::insert, kSizedKeys + 4, 9});
  const auto figures = figures_of<Bytes>(kSpec, ops);
  EXPECT_GE(figures.at("splits"), 1U);
  EXPECT_GE(figures.at("merges"), 1U);
  Config config;
  config.spec = kSpec;
  config.keys = KeyType::bytes;
  config.ops = ops;
  config.most = 20;
  explore_in({Domain::memory, Domain::disk}, config);
}

// Payloads behind the key, in blocks, and from one to the other (P2 to P4), with structure changes
// above them.
TEST(Bztree, Payloads) {
  // crash/values.hpp: multiples of three are short, others have some lines, 998 many.
  const auto story = [](std::uint64_t from, std::uint64_t longer) {
    Ops ops;
    for (std::uint64_t i = 0; i < 4; ++i) {
      ops.push_back({Do::insert, from + i, i % 2 == 0 ? 3 * i : 3 * i + 1});
    }
    ops.push_back({Do::update, from, 9});       // as long as it was
    ops.push_back({Do::update, from, 300});     // longer
    ops.push_back({Do::update, from + 1, 10});  // from block to block
    ops.push_back({Do::update, from + 1, longer});
    ops.push_back({Do::update, from + 2, 11});  // into a block
    ops.push_back({Do::update, from + 3, 12});  // out of one
    ops.push_back({Do::remove, from + 1, 0});
    ops.push_back({Do::insert, from + 1, 13});
    ops.push_back({Do::remove, from, 0});
    ops.push_back({Do::upsert, from, 70'000});
    ops.push_back({Do::update, from + 1, 3 * 300'000});  // a short one in a block
    return ops;
  };
  const std::string payloads = ":values=bytes:inline=2";
  const Ops one = story(2, 16);
  explore_with(payloads, one, 2, 40, {Domain::memory});
  explore_with(payloads + ":update=inline", one, 2, 40, {Domain::memory});
  Ops many = one;
  for (std::uint64_t from = 8; from < 24; from += 8) {
    const Ops more = story(from, from == 8 ? 998 : 16);
    many.insert(many.end(), more.begin(), more.end());
  }
  each(many, Do::remove, 8, 20);
  explore_with(payloads, many, 1, 20, {Domain::memory, Domain::disk});
  explore_with(":values=bytes:inline=0", many, 1, 20, {Domain::memory});
}

// The same beside keys in records of their own: up to two blocks of an operation.
TEST(Bztree, PayloadsOfLongKeys) {
  Ops ops;
  for (std::uint64_t i = 0; i < 14; ++i) ops.push_back({Do::insert, kSizedKeys + i, 70'000 + i});
  for (std::uint64_t i = 3; i < 9; ++i)
    ops.push_back({Do::update, kSizedKeys + i, 80'000 * (i % 2)});
  for (std::uint64_t i = 3; i < 9; ++i) ops.push_back({Do::remove, kSizedKeys + i, 0});
  ops.push_back({Do::insert, kSizedKeys + 4, 90'000});
  Config config;
  config.spec = std::string(kSpec) + ":values=bytes:inline=2";
  config.keys = KeyType::bytes;
  config.ops = ops;
  config.most = 20;
  explore_in({Domain::memory, Domain::disk}, config);
}

// --- Latch-free: a thread that stops anywhere holds nobody up ------------------------------------

template <class K>
using Act = std::function<Outcome(Index<K>& index)>;

template <class K>
Outcome upsert(Index<K>& index, std::uint64_t key, std::uint64_t value) {
  return index.upsert(make_key<K>(key), value);
}

template <class K>
std::uint64_t figure(const Index<K>& index, std::string_view name) {
  const Stats stats = index.stats();
  const auto found = std::ranges::find(stats.more, name, [](const auto& one) { return one.first; });
  return found == stats.more.end() ? 0 : found->second;
}

enum class Threads : std::uint8_t { fresh, warm, after_an_open };

std::vector<std::uint64_t> even(std::uint64_t n) {
  std::vector<std::uint64_t> keys;
  for (std::uint64_t i = 0; i < n; ++i) keys.push_back(2 * i);
  return keys;
}

// What others did for the stopped one, and operations that failed by him.
struct Rare {
  std::uint64_t helped = 0;
  std::uint64_t failed = 0;
};

template <class K>
void stop_in(const std::vector<std::uint64_t>& keys, Act<K> first, Act<K> second, Rare& rare,
             const std::string& spec = kSpec, bool writes = true, Domain domain = Domain::memory) {
  for (const Threads threads : {Threads::fresh, Threads::warm, Threads::after_an_open}) {
    bool without_lock = false;
    const auto once = [&](std::optional<std::uint64_t> at, Stops stops) {
      SharedIndex<K> stage(spec.c_str(), domain);
      Index<K>& index = stage.index();
      for (const std::uint64_t key : keys) (void)upsert<K>(index, key, key);
      if (threads == Threads::after_an_open) stage.open_again();
      // Descriptors and magazines: the heap is another thing to stop in.
      const auto warm_up = [&](std::uint64_t from) {
        if (threads != Threads::warm) return;
        for (std::uint64_t key = from; key < from + 40; ++key) (void)upsert<K>(index, key, 1);
        for (std::uint64_t key = from; key < from + 40; ++key) (void)index.remove(make_key<K>(key));
      };
      const auto acts = [&](Act<K> act) { EXPECT_EQ(act(index), Outcome::done); };
      const Stop stop = stop_first(at, stops, {[&] { warm_up(1000); }, [&, first] { acts(first); }},
                                   {[&] { warm_up(2000); }, [&, second] { acts(second); }});
      // What is allocated, too; but what is stopped for ever has blocks that nobody else knows of.
      const auto report = stop.ended ? stage.pool().check().value() : index.check();
      EXPECT_TRUE(report.problems.empty()) << report.problems.front();
      without_lock = without_lock || stage.has_reached("a lock is given up");
      rare.helped += figure(index, "pmwcas_helped");
      rare.failed += figure(index, "pmwcas_failed");
      EXPECT_EQ(figure(index, "pmwcas_failed_per_million") != 0,
                figure(index, "pmwcas_failed") != 0);
      return stop;
    };
    EXPECT_GT(stop_everywhere(once), writes ? 50U : 20U) << static_cast<int>(threads);
    EXPECT_TRUE(threads == Threads::warm || without_lock || !writes)
        << "the heap's lock was never in the way";
  }
}

// Keys, the last one of which splits its leaf and the inner node above it; none: there are none.
template <class K>
std::vector<std::uint64_t> that_split_two_levels() {
  for (std::uint64_t n = 20; n < 200; ++n) {
    Pool pool = Pool::anonymous().value();
    auto index = pool.index<K>("index", kSpec).value();
    std::vector<std::uint64_t> keys = even(n);
    for (const std::uint64_t key : keys) (void)upsert<K>(index, key, key);
    for (std::uint64_t key = 7; key < 40; key += 2) {
      const std::uint64_t before = figure(index, "inner_splits");
      keys.push_back(key);
      (void)upsert<K>(index, key, key);
      if (figure(index, "inner_splits") != before && index.stats().height > 1) return keys;
    }
  }
  return {};
}

template <class K>
void stop_in_every_operation() {
  // Same key, same leaf, structure changes above it, and readers.
  const Act<K> insert = [](Index<K>& index) { return upsert<K>(index, 5, 1); };
  const Act<K> others = [](Index<K>& index) {
    std::vector<Entry<K>> out;
    Outcome outcome = upsert<K>(index, 5, 2);
    if (outcome == Outcome::done) outcome = upsert<K>(index, 4, 2);
    if (outcome == Outcome::done) outcome = index.remove(make_key<K>(6));
    if (outcome == Outcome::done) outcome = index.scan(K{}, 100, out);
    if (outcome == Outcome::done) outcome = index.find(make_key<K>(4)).outcome;
    for (std::uint64_t key = 7; key < 40 && outcome == Outcome::done; key += 2) {
      outcome = upsert<K>(index, key, 3);
    }
    return outcome;
  };
  const Act<K> splits = [](Index<K>& index) {
    Outcome outcome = Outcome::done;
    for (std::uint64_t key = 1; key < 16 && outcome == Outcome::done; key += 2) {
      outcome = upsert<K>(index, key, 4);
    }
    return outcome;
  };
  const Act<K> merges = [](Index<K>& index) {
    for (std::uint64_t key = 0; key < 24; key += 2) {
      if (key != 4 && key != 6) (void)index.remove(make_key<K>(key));
    }
    return Outcome::done;
  };
  const Act<K> updates = [](Index<K>& index) {
    const Outcome outcome = upsert<K>(index, 4, kTop);
    return outcome == Outcome::done ? upsert<K>(index, 4, kTop + 1) : outcome;
  };
  const Act<K> reads = [](Index<K>& index) {
    std::vector<Entry<K>> out;
    const Outcome outcome = index.scan(K{}, 100, out);
    return outcome == Outcome::done ? index.find(make_key<K>(4)).outcome : outcome;
  };
  Rare rare;
  stop_in<K>(even(4), insert, others, rare);
  stop_in<K>(even(12), splits, others, rare);
  stop_in<K>(even(12), merges, others, rare);
  std::vector<std::uint64_t> keys = that_split_two_levels<K>();
  ASSERT_FALSE(keys.empty());
  const Act<K> splits_twice = [last = keys.back()](Index<K>& index) {
    return upsert<K>(index, last, 1);
  };
  keys.pop_back();
  stop_in<K>(keys, splits_twice, others, rare);
  const std::string payloads = std::string(kSpec) + ":values=bytes:inline=0";
  stop_in<K>(even(4), updates, others, rare, payloads);
  if constexpr (std::is_same_v<K, std::uint64_t>) {  // what the kind of the keys changes nothing of
    stop_in<K>(even(4), updates, others, rare);
    stop_in<K>(even(4), reads, others, rare, kSpec, false);
    stop_in<K>(even(4), insert, others, rare, std::string(kSpec) + ":reserve=entry");
    stop_in<K>(even(4), insert, others, rare, payloads);
    // Where fences do not wait references go at once (W6).
    stop_in<K>(even(4), insert, others, rare, kSpec, true, Domain::cache);
    stop_in<K>(even(12), splits, others, rare, kSpec, true, Domain::cache);
    // Where nothing orders the stores to a line (calls of the system: scenarios.growth, Fence.*).
    stop_in<K>(even(12), splits, others, rare, kSpec, true, Domain::disk);
  }
  EXPECT_GT(rare.helped, 0U);
  EXPECT_GT(rare.failed, 0U);
}

TEST(Bztree, AStoppedThreadHoldsNobodyUp) {
  stop_in_every_operation<std::uint64_t>();
}

TEST(Bztree, AStoppedThreadHoldsNobodyUpWithBytes) {
  stop_in_every_operation<Bytes>();
}

// --- Scans beside a writer -----------------------------------------------------------------------

// The reader runs so many points, then the writer until it says so, and again.
class Turns final : public Policy {
 public:
  explicit Turns(std::uint64_t points) : points_(points) {}
  unsigned choose(std::uint64_t, unsigned, unsigned able) override {
    if (able != 3) return (able & 1) != 0 ? 0 : 1;
    if (left_ == 0) return 1;
    --left_;
    return 0;
  }
  // By the writer.
  void turn() { left_ = points_; }

 private:
  const std::uint64_t points_;
  std::uint64_t left_ = 0;
};

template <class K>
struct Scanned {
  std::vector<Entry<K>> entries;
  bool writer_was_there = false;  // when the scan ended
  bool asked = false;             // writers to leave a leaf alone
};

// Even keys have the value 0, as many as `keys`. Each call of `write` is a turn of the writer's.
template <class K, class Write>
Scanned<K> scan_beside(std::uint64_t points, bool back, unsigned turns, Write write,
                       std::uint64_t keys = 4) {
  SharedIndex<K> stage("bztree");
  Index<K>& index = stage.index();
  for (std::uint64_t key = 0; key < 2 * keys; key += 2) (void)upsert<K>(index, key, 0);
  Turns policy(points);
  Scanned<K> is;
  bool written = false;
  const std::vector<Scheduler::Body> bodies{
      [&] {
        const Outcome outcome = back ? index.scan_back(std::nullopt, 100, is.entries)
                                     : index.scan(K{}, 100, is.entries);
        EXPECT_EQ(outcome, Outcome::done);
        is.writer_was_there = !written;
      },
      [&] {
        for (unsigned turn = 0; turn < turns; ++turn) {
          write(index, turn);
          policy.turn();
        }
        written = true;
      }};
  Scheduler scheduler;
  EXPECT_EQ(scheduler.run(bodies, policy, 10'000'000).stuck, "");
  is.asked = stage.has_reached("a scan asks writers to leave a leaf alone");
  if (back) std::ranges::reverse(is.entries);
  return is;
}

// Two values go up and down, the first one first and last: the second is never up alone. Who looks
// at each of them when both are up, or both down, and finds all as it was in a second look, has
// seen what never was.
template <class K>
void scan_in_one_moment(bool back) {
  const auto up_and_down = [](Index<K>& index, unsigned turn) {
    const std::uint64_t value = turn % 2 == 0 ? 1 : 0;
    EXPECT_EQ(index.update(make_key<K>(value == 1 ? 2 : 4), value), Outcome::done);
    EXPECT_EQ(index.update(make_key<K>(value == 1 ? 4 : 2), value), Outcome::done);
  };
  const auto see = [&](std::uint64_t points, unsigned turns, std::uint64_t keys = 4) {
    const auto is = scan_beside<K>(points, back, turns, up_and_down, keys);
    EXPECT_EQ(is.entries.size(), keys);
    const auto value_of = [&is](std::uint64_t key) {
      return std::ranges::find(is.entries, make_key<K>(key), &Entry<K>::key)->value;
    };
    EXPECT_LE(value_of(4), value_of(2)) << points << " points, " << turns << " turns";
    return is.asked;
  };
  for (std::uint64_t points = 1; points < 120; ++points) EXPECT_FALSE(see(points, 7));
  unsigned asked = 0;
  for (std::uint64_t points = 1; points < 60; ++points) asked += see(points, 60) ? 1 : 0;
  EXPECT_GT(asked, 5U);
  // Of entries that are sorted, in a leaf below others.
  asked = 0;
  for (std::uint64_t points = 5; points < 400; points += 7) asked += see(points, 60, 60) ? 1 : 0;
  EXPECT_GT(asked, 5U);
}

TEST(Bztree, ScannedLeavesAreOfOneMoment) {
  for (const bool back : {false, true}) {
    scan_in_one_moment<std::uint64_t>(back);
    scan_in_one_moment<Bytes>(back);
  }
}

// A writer who changes the leaf during each look, for ever, does not hold a scan up.
template <class K>
void scan_to_the_end(bool back) {
  const auto again = [](Index<K>& index, unsigned turn) {
    EXPECT_EQ(index.update(make_key<K>(2), turn), Outcome::done);
  };
  // Not below 3: a read of a word would meet another use of the descriptor each time.
  for (std::uint64_t points = 3; points < 20; ++points) {
    const auto is = scan_beside<K>(points, back, 1500, again);
    EXPECT_TRUE(is.writer_was_there) << points << " points";
    EXPECT_TRUE(is.asked);
    EXPECT_EQ(is.entries.size(), 4U);
  }
}

TEST(Bztree, ScansEndBesideWriters) {
  for (const bool back : {false, true}) {
    scan_to_the_end<std::uint64_t>(back);
    scan_to_the_end<Bytes>(back);
  }
}

// What stays is there once, and in order, while a key beside it goes and comes.
template <class K>
void scan_what_stays(bool back) {
  const auto out_and_in = [](Index<K>& index, unsigned turn) {
    const auto key = make_key<K>(2);
    EXPECT_EQ(turn % 2 == 0 ? index.remove(key) : index.insert(key, turn), Outcome::done);
  };
  unsigned asked = 0;
  for (std::uint64_t points = 5; points < 60; ++points) {
    const auto is = scan_beside<K>(points, back, 60, out_and_in);
    asked += is.asked ? 1 : 0;
    const auto not_below = [](const auto& a, const auto& b) { return !(a.key < b.key); };
    EXPECT_EQ(std::ranges::adjacent_find(is.entries, not_below), is.entries.end()) << points;
    for (const std::uint64_t key : {0U, 4U, 6U}) {
      EXPECT_EQ(std::ranges::count(is.entries, make_key<K>(key), &Entry<K>::key), 1) << points;
    }
  }
  EXPECT_GT(asked, 5U);
}

TEST(Bztree, ScansBesideWritersMissNothing) {
  for (const bool back : {false, true}) {
    scan_what_stays<std::uint64_t>(back);
    scan_what_stays<Bytes>(back);
  }
}

// --- A load after another thread's last operation ------------------------------------------------

// The first thread removes the only key, which is long: what frees its record is not durable but by
// the references in the leaf's words. The second one loads, and so frees the leaf and uses it
// again. Every crash in that.
class LoadAfterRemoval final : Crasher {
 public:
  LoadAfterRemoval() : arena_(kCapacity, 3, {}), recorder_(arena_) {
    recorder_.crasher = this;
    Recorder::watch(&recorder_);
  }
  LoadAfterRemoval(const LoadAfterRemoval&) = delete;
  LoadAfterRemoval& operator=(const LoadAfterRemoval&) = delete;
  ~LoadAfterRemoval() { Recorder::watch(nullptr); }

  std::uint64_t go() {
    take_slots(2);
    std::uint64_t bytes = 0;
    {
      auto pool = PoolAccess::format(arena_.base(0), pmem::kMinPoolBytes, kCapacity, emulated(),
                                     &recorder_);
      auto index = pool->index<Bytes>("index", kSpec).value();
      EXPECT_EQ(index.insert(kLong, 1), Outcome::done);
      bytes = PoolAccess::state(*pool).medium().size();
    }
    bytes_ = bytes;
    recorder_.settle();
    arena_.enter();
    recorder_.switch_level();
    arena_.begin({});
    {
      auto pool = PoolAccess::attach(arena_.base(1), bytes_, kCapacity, emulated(), &recorder_);
      auto index = pool->index<Bytes>("index", {}).value();
      std::vector<Entry<Bytes>> entries;
      for (char i = 'a'; i <= 'z'; ++i) {
        for (char j = 'a'; j <= 'c'; ++j) entries.push_back({std::string{i, j}, 1});
      }
      OneByOne turns;
      const std::vector<Scheduler::Body> bodies{
          [&] {
            EXPECT_EQ(index.remove(kLong), Outcome::done);
            turns.removed = true;
          },
          [&] {
            // A thread slot of its own: that of a thread that has ended would be the other's.
            EXPECT_EQ(index.find(kLong).outcome, Outcome::done);
            turns.ready = true;
            while (!turns.removed) Scheduler::active()->point();
            armed_ = true;
            EXPECT_EQ(index.bulk_load(entries), Outcome::done);
            armed_ = false;
          }};
      Scheduler scheduler;
      EXPECT_EQ(scheduler.run(bodies, turns, 10'000'000).stuck, "");
      PoolAccess::state(*pool).abandon();
    }
    recorder_.settle();
    arena_.end();
    recorder_.switch_level();
    arena_.leave();
    recorder_.switch_level();
    return crashes_;
  }

 private:
  static constexpr std::uint64_t kMost = 64;
  struct OneByOne final : Policy {
    unsigned choose(std::uint64_t, unsigned, unsigned able) override {
      return (able & 1) == 0 || (ready == removed && (able & 2) != 0) ? 1 : 0;
    }
    bool ready = false;
    bool removed = false;
  };
  inline static const std::string kLong = std::string(100, 'k');

  void escaped(const std::string& what) override { ADD_FAILURE() << what; }
  void crash_point() override {
    if (!armed_ || arena_.level() != 1 || testing::Test::HasFailure()) return;
    const Scheduler::Pause pause;
    arena_.enter();
    recorder_.switch_level();
    std::vector<Choice> path;
    std::uint64_t left = kMost;
    do {
      arena_.begin(path);
      recover();
      path = arena_.path();
      arena_.end();
      recorder_.switch_level();
      ++crashes_;
    } while (!testing::Test::HasFailure() && --left != 0 && Arena::advance(path));
    arena_.leave();
    recorder_.switch_level();
  }
  void recover() {
    auto pool = PoolAccess::attach(arena_.base(2), bytes_, kCapacity, emulated(), &recorder_);
    recorder_.settle();
    ASSERT_TRUE(pool) << pool.error().message;
    auto index = pool->index<Bytes>("index", {}).value();
    EXPECT_EQ(index.find(kLong).outcome, Outcome::absent);
    const auto report = pool->check();
    ASSERT_TRUE(report) << report.error().message;
    EXPECT_TRUE(report->problems.empty()) << report->problems.front();
    recorder_.settle();
    PoolAccess::state(*pool).abandon();
  }

  Arena arena_;
  Recorder recorder_;
  std::uint64_t bytes_ = 0;
  bool armed_ = false;
  std::uint64_t crashes_ = 0;
};

TEST(Bztree, BulkLoadAfterAnotherThreadsRemoval) {
  EXPECT_GT(LoadAfterRemoval().go(), 1000U);
}

// Schedules of small programs, without crashes: what goes wrong in them shows without.
using Reached = std::map<std::string, std::uint64_t, std::less<>>;
std::string found_in(const std::string& program, unsigned preemptions, const std::string& more = "",
                     Reached* reached = nullptr) {
  ConcurrentConfig config;
  config.spec = kSpec + more;
  config.program = *parse_program(program);
  config.preemptions = preemptions;
  config.random_runs = 0;
  config.crashes = false;
  const ConcurrentReport report = run_concurrent(config);
  EXPECT_TRUE(report.complete);
  EXPECT_GT(report.schedules, 100U);
  if (reached != nullptr) {
    for (const auto& [path, times] : report.reached) (*reached)[path] += times;
  }
  if (report.failure.empty()) return {};
  return report.failure + ", switches " + to_string(report.switches);
}

// G1: a split copies the parent while a consolidation beside it changes a child word in there.
TEST(Bztree, ASplitBesideAConsolidation) {
  // What the two insertions of the program do, in leaves of the same parent.
  Ops ops;
  each(ops, Do::insert, 2, 41, 2);
  ops.insert(ops.end(), {{Do::insert, 3, 0}, {Do::insert, 21, 0}});
  each(ops, Do::remove, 22, 29, 2);
  const auto before = figures(ops);
  ASSERT_EQ(before.at("height"), 1U);
  ops.push_back({Do::insert, 5, 1});
  const auto split = figures(ops);
  ASSERT_EQ(split.at("splits"), before.at("splits") + 1);
  ASSERT_EQ(split.at("consolidations"), before.at("consolidations"));
  ops.push_back({Do::insert, 23, 2});
  const auto both = figures(ops);
  ASSERT_EQ(both.at("splits"), split.at("splits"));
  ASSERT_EQ(both.at("consolidations"), split.at("consolidations") + 1);
  ASSERT_EQ(both.at("height"), 1U);
  EXPECT_EQ(found_in("2,4,6,8,10,12,14,16,18,20,22,24,26,28,30,32,34,36,38,40,3,21,!22,!24,!26,!28"
                     "/i5=1/i23=2",
                     1),
            "");
}

// G2: two insertions of one key, one of which is under way when the other one looks; keys that
// come, go and move on meanwhile.
TEST(Bztree, InsertionsOfOneKey) {
  for (const char* const reserve : {"", ":reserve=entry", ":update=inline"}) {
    for (const char* const program :
         {"2,4/i5=1/i5=2", "2,4/i5=1/i5=2,r5,i5=3", "2,4/u5=1/u5=2,u5=3,r5", "2,4,5/r5,i5=1/u5=2",
          "2,4,6,8,10,12,14/i5=1/i7=1,i5=2"}) {
      EXPECT_EQ(found_in(program, 1, reserve), "") << program << reserve;
    }
  }
}

// G3: an update by a new record while the key is deleted, or deleted and inserted again.
TEST(Bztree, InlineUpdatesBesideDeletions) {
  for (const char* const program : {"2,4/u4=1,u4=3/r4,i4=2", "2,4/u4=1,u2=1/r4,r2,i2=5"}) {
    EXPECT_EQ(found_in(program, 1, ":update=inline"), "") << program;
  }
}

// A reader has seen the status; then bit 63 of the value changes, which lies in the metadata, with
// a new record, or the entry goes (I6). An entry that is sorted, and one that is not.
TEST(Bztree, FindsBesideNewRecords) {
  for (const char* const program :
       {"2,4/u4=9223372036854775817/f4,f4", "2,4/u4=9223372036854775817,u4=3/f4",
        "1,2,3,4,5,6,7,8,9,10,11/u2=9223372036854775817/f2,f2",
        "1,2,3,4,5,6,7,8,9,10,11/r2,i2=9223372036854775817/f2,f2"}) {
    EXPECT_EQ(found_in(program, 2, ""), "") << program;
  }
}

// Payloads that move, in blocks and out of them, while others read, move or remove them: what is
// read is one that was written, and each block is freed once.
TEST(Bztree, PayloadsBesideThreads) {
  Reached reached;
  // crash/values.hpp: multiples of three are short, others long.
  for (const char* const program :
       {"2,4/u4=100/u4=101", "2,4/u4=100,u4=101/r4,i4=103", "2,4/u4=3,u4=100/u4=101,u4=6",
        "2,4/i5=100/i5=101,r5", "2,4/u4=100,u4=101/f4,f4", "2,4/u4=100,u4=3/s0",
        "2,4/u4=100,u4=101/f4,s0", "2,4/u4=100,u4=101/u2=103,r2", "2,4/r4/u4=100,u4=101",
        "2,4/u4=100,u4=3/u4=101", "2,4/u4=100,r4/u4=101", "2,4/u4=0/u4=100",
        "2,4,6,8,10,12,14/u4=100,u4=101/i7=103,i5=104"}) {
    for (const char* const more :
         {":inline=0", ":inline=1", ":inline=0:update=inline", ":inline=1:update=inline"}) {
      const std::string spec = std::string(":values=bytes") + more;
      EXPECT_EQ(found_in(program, 1, spec, &reached), "") << program << spec;
    }
  }
  for (const char* const path : {"P2: blocks are written again", "P4: a block is written again"}) {
    EXPECT_TRUE(reached.contains(path)) << path;
  }
}

// The same for scans, which look at all of a leaf without metadata, and at the ninth entry's
// fingerprint, where bits 63 lie beside it, of an insertion that is under way.
TEST(Bztree, ScansBesideNewRecords) {
  for (const char* const program :
       {"1,2,3,4,5,6,7,8,9,10,11/u2=9223372036854775817/s0",
        "1,2,3,4,5,6,7,8,9,10,11/r2,i2=9223372036854775817/s0",
        "1,2,3,4,5,6,7,8,9,10,11/u2=9,u3=9223372036854775817/s0", "2,4,6,8,10,12,14,16/i17=1/s0"}) {
    EXPECT_EQ(found_in(program, 2, ""), "") << program;
  }
}

// G7: a scan comes to a leaf that holds nothing, and goes on behind it, forwards and backwards.
TEST(Bztree, ScansOverAnEmptyLeaf) {
  Pool pool = Pool::anonymous().value();
  auto index = pool.index<std::uint64_t>("index", std::string(kSpec) + ":merge=0").value();
  for (std::uint64_t key = 1; key <= 40; ++key) ASSERT_EQ(index.insert(key, key), Outcome::done);
  const std::uint64_t leaves = index.stats().leaf_nodes;
  ASSERT_GT(leaves, 4U);
  for (std::uint64_t key = 11; key <= 30; ++key) ASSERT_EQ(index.remove(key), Outcome::done);
  // Nothing is merged, and a page of 256 bytes has no room for more than 10 entries of 24: of 20
  // keys in a row those of one leaf at least are gone.
  ASSERT_EQ(index.stats().leaf_nodes, leaves);
  std::vector<Entry<std::uint64_t>> found;
  ASSERT_EQ(index.scan(1, 100, found), Outcome::done);
  ASSERT_EQ(found.size(), 20U);
  EXPECT_EQ(found[9].key, 10U);
  EXPECT_EQ(found[10].key, 31U);
  ASSERT_EQ(index.scan_back(40, 100, found), Outcome::done);
  ASSERT_EQ(found.size(), 20U);
  EXPECT_EQ(found[9].key, 31U);
  EXPECT_EQ(found[10].key, 10U);
}

// G9: a crash leaves a leaf frozen and reachable; who comes next goes on where the other stopped.
TEST(Bztree, FrozenLeavesAfterACrash) {
  Ops ops;
  each(ops, Do::insert, 1, 10);
  const auto before = figures(ops).at("splits") + figures(ops).at("consolidations");
  each(ops, Do::insert, 10, 12);
  EXPECT_GT(figures(ops).at("splits") + figures(ops).at("consolidations"), before);
  explore(ops);
  Config config;
  config.spec = kSpec;
  config.ops = ops;
  config.most = 40;
  const Report report = run(config);
  ASSERT_FALSE(report.failure) << report.failure->what;
  // One thread: nobody but a crash can have left it.
  EXPECT_TRUE(report.reached.contains("A5: a node is frozen already"));
}

// W1, W4 to W6, P1 to P4: what one thread pays in persistent memory.
TEST(Bztree, FencesOfOperations) {
  PoolOptions options;
  options.domain = Domain::memory;
  options.emulate = true;
  Pool pool = Pool::anonymous(options).value();
  // Of 60 keys the fewest, and how many need no more: the others change the structure.
  using Fewest = std::pair<std::uint64_t, bool>;
  const auto fewest_of = [&](std::uint64_t from, const auto& operation) -> Fewest {
    std::map<std::uint64_t, unsigned> all;
    for (std::uint64_t i = from; i < from + 60; ++i)
      ++all[fences_of(pool, [&] { return operation(i); })];
    return {all.begin()->first, all.begin()->second > 50};
  };
  auto index = pool.index<std::uint64_t>("index", "bztree").value();
  for (std::uint64_t i = 1; i <= 2000; ++i) {
    ASSERT_EQ(index.insert(i * 7919 % 2003 * 1000, i), Outcome::done);
  }
  // Each in another leaf than the one before, which has room for it.
  const auto key = [](std::uint64_t i) { return i * 977 % 2003 * 1000 + 1; };
  for (std::uint64_t i = 0; i < 30; ++i) ASSERT_EQ(index.insert(key(i), i), Outcome::done);
  const Fewest two{2, true};
  EXPECT_EQ(fewest_of(30, [&](auto i) { return index.insert(key(i), i); }), two);
  EXPECT_EQ(fewest_of(0, [&](auto i) { return index.update(key(i), i); }), two);
  EXPECT_EQ(fewest_of(0, [&](auto i) { return index.remove(key(i)); }), two);
  // Payloads in the leaf cost no fence more; a block is one more, to free another none.
  auto stored =
      pool.index<std::uint64_t>("payloads", "bztree:values=bytes").value().payloads().value();
  const std::string text(100, 'x');
  const std::string block(1000, 'x');
  for (std::uint64_t i = 1; i <= 2000; ++i) {
    ASSERT_EQ(stored.insert(i * 7919 % 2003 * 1000, text), Outcome::done);
  }
  for (std::uint64_t i = 0; i < 30; ++i) ASSERT_EQ(stored.insert(key(i), text), Outcome::done);
  EXPECT_EQ(fewest_of(30, [&](auto i) { return stored.insert(key(i), text); }).first, 2U);
  EXPECT_EQ(fewest_of(100, [&](auto i) { return stored.insert(key(i), block); }).first, 3U);
  EXPECT_EQ(fewest_of(100, [&](auto i) { return stored.update(key(i), block); }).first, 3U);
  EXPECT_EQ(fewest_of(100, [&](auto i) { return stored.remove(key(i)); }).first, 2U);
  // In the leaf of the last one: the state of that is made durable first (W6).
  EXPECT_EQ(fences_of(pool, [&] { return index.insert(key(59), 1); }), 3U);
  EXPECT_EQ(fences_of(pool, [&] { return index.find(key(59)).outcome; }), 0U);
  std::vector<Entry<std::uint64_t>> found;
  EXPECT_EQ(fences_of(pool, [&] { return index.scan(0, 100, found); }), 0U);
}

}  // namespace
}  // namespace everleaf::crash
