// The crash cases of src/trees/lodgetree/README.md: workloads that surely meet them, and every
// crash in them. Parts of the tree that can be tested alone.
#include <algorithm>
#include <map>

#include <gtest/gtest.h>

#include "arena.hpp"
#include "cases.hpp"
#include "recorder.hpp"
#include "threads/concurrent.hpp"
#include "threads/explore.hpp"
#include "threads/scheduler.hpp"
#include "trees/lodgetree/log.hpp"
#include "trees/lodgetree/plan.hpp"
#include "trees/lodgetree/split.hpp"
#include "trees/pool_state.hpp"

namespace everleaf::crash {
namespace {

// Leaves of up to 11 pairs, buffers of up to 6, logs of 8 records a chunk.
constexpr const char* kSpec = "lodgetree:node=256:slots=8:t_node=2:log=256:chunks=5:partitions=2";
constexpr std::uint64_t kFilled = 1000;  // keys that a full pool was offered

std::map<std::string, std::uint64_t> figures(const Ops& ops) {
  return figures_of<std::uint64_t>(kSpec, ops);
}

void explore(const Ops& ops, unsigned nested = 1, std::uint64_t most = 40,
             std::initializer_list<Domain> domains = {Domain::memory, Domain::disk,
                                                      Domain::cache}) {
  explore_all(kSpec, ops, nested, most, domains);
}

// P1, A1; P12, A13: with nothing, and with a pair in a buffer.
TEST(Lodgetree, CreationAndClose) {
  Ops ops;
  ops.push_back({Do::reopen, 0, 0});
  each(ops, Do::insert, 0, 2);
  ops.push_back({Do::reopen, 0, 0});
  each(ops, Do::insert, 2, 3);
  explore(ops, 2);
}

// P2, A2: no buffer is full yet.
TEST(Lodgetree, Buffered) {
  Ops ops;
  each(ops, Do::insert, 0, 4);
  each(ops, Do::update, 1, 3);
  each(ops, Do::remove, 2, 4);
  ops.push_back({Do::insert, 3, 9});
  EXPECT_EQ(figures(ops).at("flushes"), 0U);
  explore(ops, 2);
}

// P3, A3, A4, A5: new pairs and new values.
TEST(Lodgetree, Flush) {
  Ops ops;
  each(ops, Do::insert, 0, 10);
  each(ops, Do::update, 0, 9);
  const auto all = figures(ops);
  EXPECT_GE(all.at("flushes"), 2U);
  EXPECT_EQ(all.at("leaf_splits"), 0U);
  explore(ops);
}

// B4: pairs of which nobody knows whether they are new keys go to leaves that have them and to
// others, and are removed before that.
TEST(Lodgetree, Upserts) {
  Ops ops;
  each(ops, Do::insert, 0, 10);
  each(ops, Do::upsert, 0, 10);
  each(ops, Do::upsert, 3, 9);
  EXPECT_EQ(figures(ops).at("leaf_splits"), 0U);
  for (const std::uint64_t key : {3, 20}) {
    ops.push_back({Do::upsert, key, 7});
    ops.push_back({Do::remove, key, 0});
  }
  each(ops, Do::upsert, 20, 30);
  const auto all = figures(ops);
  EXPECT_GE(all.at("flushes"), 3U);
  EXPECT_GE(all.at("leaf_splits"), 1U);
  explore(ops);
}

// P4, A6: removals, whose slots and key records are used again.
TEST(Lodgetree, FlushOfRemovals) {
  Ops ops;
  each(ops, Do::insert, 0, 9);
  each(ops, Do::remove, 0, 6);
  each(ops, Do::insert, 2, 6);
  each(ops, Do::insert, 20, 26);
  EXPECT_GE(figures(ops).at("flushes"), 3U);
  explore(ops);
}

// P5, A6: leaves split, then their nodes.
TEST(Lodgetree, Splits) {
  Ops ops;
  each(ops, Do::insert, 0, 90, 3);
  each(ops, Do::insert, 1, 90, 3);
  const auto all = figures(ops);
  EXPECT_GE(all.at("leaf_splits"), 4U);
  EXPECT_GE(all.at("normal_splits"), 1U);
  EXPECT_GE(all.at("last_level_nodes"), 2U);
  explore(ops);
}

// P5: many leaf splits of one node after a calm time make it split into more nodes than the time
// before, and after another one into fewer (paper, III-C).
TEST(Lodgetree, SplitsByHeat) {
  constexpr const char* kHot = "lodgetree:node=256:slots=8:t_node=2:t=1:split=4";
  Ops ops;
  each(ops, Do::insert, 0, 400, 4);
  for (const std::uint64_t from : {0U, 80U, 160U}) {
    for (std::uint64_t n = 1; n < 4; ++n) each(ops, Do::insert, from + n, from + 60, 4);
  }
  each(ops, Do::insert, 401, 600, 1);
  const auto all = figures_of<std::uint64_t>(kHot, ops);
  EXPECT_GE(all.at("adding_splits"), 1U);
  EXPECT_GE(all.at("reducing_splits"), 1U);
  explore_all(kHot, ops, 1, 6, {Domain::memory, Domain::disk});
}

// P6, A7 and P7, A8: space ends, and grows.
TEST(Lodgetree, WithoutSpace) {
  Ops ops;
  each(ops, Do::insert, 0, 24);
  for (std::uint64_t i = 30; i < 40; ++i) ops.push_back({Do::no_space, i, i});
  ops.push_back({Do::limit, 1, 0});
  for (std::uint64_t i = 0; i < 6; ++i) ops.push_back({Do::insert, kSizedKeys + i, i});
  each(ops, Do::update, 0, 5);
  explore(ops);
}

// P8, P9, A9, A10: chunks are added and written again, while an old pair waits in a cold buffer;
// the records of one key are in many of them.
TEST(Lodgetree, Recycling) {
  constexpr const char* kSmall =
      "lodgetree:node=256:slots=8:t_node=2:log=256:chunks=3:partitions=1";
  Ops ops;
  each(ops, Do::insert, 0, 200, 2);
  for (std::uint64_t round = 0; round < 9; ++round) {
    ops.push_back({round % 2 == 0 ? Do::insert : Do::remove, 1 + round / 2 * 40, round});
    for (std::uint64_t i = 0; i < 9; ++i) ops.push_back({Do::update, 100, round * 10 + i});
  }
  EXPECT_GE(figures_of<std::uint64_t>(kSmall, ops).at("forced_flushes"), 1U);
  Config config;
  config.spec = kSmall;
  config.ops = ops;
  config.most = 12;
  for (const KeyType keys : {KeyType::u64, KeyType::bytes}) {
    config.keys = keys;
    explore_in({Domain::memory, Domain::disk, Domain::cache}, config);
  }
}

// P6, A17: neither the log nor a leaf gets more space. Records of pairs that stay in buffers are
// written over dead ones, and no update or removal is refused.
TEST(Lodgetree, HolesOfAFullLog) {
  Config config;
  config.spec = "lodgetree:node=256:slots=8:t_node=2:log=256:chunks=3:partitions=1";
  config.skip_creation = true;
  config.most = 4;
  config.ops = {{Do::fill, kFilled, 0}};
  for (std::uint64_t n = 0; n < 30; ++n) {
    config.ops.push_back({Do::update, n * 397 % kFilled, n});
    config.ops.push_back({Do::update, n * 397 % kFilled, n + 1});
    if (n % 3 == 0) config.ops.push_back({Do::remove, n * 397 % kFilled, 0});
  }
  for (const KeyType keys : {KeyType::u64, KeyType::bytes}) {
    for (const Domain domain : {Domain::memory, Domain::disk}) {
      config.keys = keys;
      config.domain = domain;
      const Report report = run(config);
      ASSERT_FALSE(report.failure) << report.failure->operation << ": " << report.failure->what;
      EXPECT_EQ(report.out_of_space, 0U);
      EXPECT_EQ(report.refused_opens, 0U);
    }
  }
}

// A16: pairs went to a leaf, its word and its stamp did not, two more are in the buffer, and there
// is no space to split the leaf: to replay them all fills it to its last slot.
TEST(Lodgetree, RecoveryOfAFullPool) {
  Config config;
  config.spec = "lodgetree:node=256:slots=6:t_split=5:log=4096:chunks=3:partitions=1";
  config.ops = refilled_leaves();
  config.skip_creation = true;
  config.most = 16;
  config.nested = 2;
  config.most_nested = 4;
  config.collect_sites = true;
  const Report report = run(config);
  ASSERT_FALSE(report.failure) << report.failure->operation << ": " << report.failure->what;
  EXPECT_EQ(report.refused_opens, 0U);
  // Where keys were mended, with space, with none, of what stays in the log, and of the new
  // session.
  EXPECT_EQ(std::ranges::count_if(report.sites,
                                  [](const auto& site) {
                                    return site.first.act == Act::fence &&
                                           site.first.file.ends_with("lodgetree/recover.cpp");
                                  }),
            5);
}

// P11, A11, A12: crashes in recovery, in what follows, and in the recovery from that.
TEST(Lodgetree, Recovery) {
  Ops ops;
  each(ops, Do::insert, 0, 24, 2);
  each(ops, Do::remove, 2, 8, 2);
  each(ops, Do::insert, 1, 12, 2);
  explore(ops, 2, 8, {Domain::memory, Domain::disk});
}

// A13: sessions that end properly, each with more in the log than the next one.
TEST(Lodgetree, Sessions) {
  Ops ops;
  for (std::uint64_t session = 0; session < 4; ++session) {
    for (std::uint64_t key = 0; key + session < 6; ++key) {
      ops.push_back({Do::insert, key, session});
      ops.push_back({Do::remove, key, 0});
    }
    ops.push_back({Do::reopen, 0, 0});
    ops.push_back({Do::insert, 0, session + 50});
    ops.push_back({Do::reopen, 0, 0});
    ops.push_back({Do::remove, 0, 0});
  }
  explore(ops, 1, 20);
}

// P10, A14: inside a node, between nodes, in both directions.
TEST(Lodgetree, EmptyLeaves) {
  Ops up;
  each(up, Do::insert, 0, 80);
  Ops down = up;
  each(up, Do::remove, 0, 78);
  EXPECT_GE(figures(up).at("unlinked_leaves"), 5U);
  EXPECT_EQ(figures(up).at("height"), 1U);
  for (std::uint64_t key = 80; key-- > 1;) {
    if (key != 40) down.push_back({Do::remove, key, 0});
  }
  EXPECT_GE(figures(down).at("unlinked_leaves"), 5U);
  explore(up, 1, 12);
  explore(down, 1, 12);
}

// A14, F8: a key comes and goes in a leaf that is absorbed later. The chunk with its removal was
// written again by then, that with its insertion, which an old pair holds, was not.
TEST(Lodgetree, AbsorbedRange) {
  for (const std::uint64_t key : {107U, 113U}) {
    Ops ops;
    each(ops, Do::insert, 0, 200, 2);
    ops.push_back({Do::update, 2, 1});
    ops.push_back({Do::insert, key, 2});
    const auto updates = [&](std::uint64_t n) {
      for (std::uint64_t i = 0; i < n; ++i) ops.push_back({Do::update, key + 1 + i % 3 * 2, i});
    };
    updates(12);
    ops.push_back({Do::remove, key, 0});
    updates(48);
    each(ops, Do::remove, key + 1, key + 15, 2);
    each(ops, Do::remove, 80, key, 2);
    EXPECT_GE(figures(ops).at("unlinked_leaves"), 1U);
    EXPECT_EQ(figures(ops).at("forced_flushes"), 0U);
    explore(ops, 1, 8, {Domain::memory});
  }
}

// P13, A15.
TEST(Lodgetree, BulkLoad) {
  Ops ops;
  ops.push_back({Do::bulk_load, 90, 1});
  each(ops, Do::insert, 100, 102);
  each(ops, Do::remove, 3, 6);
  explore(ops);
}

// --- Parts ---------------------------------------------------------------------------------------

tree::lodgetree::Plan plan(const std::vector<unsigned>& targets, unsigned t_node, unsigned t_split,
                           const std::vector<unsigned>& counts) {
  return tree::lodgetree::plan_flush(
      static_cast<unsigned>(targets.size()), t_node, t_split,
      [&](unsigned pair) { return targets[targets.size() - 1 - pair]; },
      [&](unsigned leaf) { return static_cast<unsigned>(std::ranges::count(targets, leaf)); },
      [&](unsigned leaf) { return counts[leaf]; });
}

// Figure 6 (1): the third leaf is one too many. `targets` from the oldest pair on.
TEST(LodgetreePlan, StopsAtTheNumberOfLeaves) {
  const auto all = plan({1, 2, 1, 3, 2}, 2, 26, {0, 5, 5, 5});
  EXPECT_EQ(all.leaves, 0b0110U);
  EXPECT_FALSE(all.splits);
  EXPECT_EQ(plan({1, 2, 1, 3, 2}, 64, 26, {0, 5, 5, 5}).leaves, 0b1110U);
}

// Figure 6 (2): the first pair's leaf is about to split, and is alone; another one stops the plan.
TEST(LodgetreePlan, StopsAtASplit) {
  const auto first = plan({2, 1, 2}, 2, 26, {0, 5, 25});
  EXPECT_EQ(first.leaves, 0b0100U);
  EXPECT_TRUE(first.splits);
  const auto second = plan({1, 2, 2}, 2, 26, {0, 5, 25});
  EXPECT_EQ(second.leaves, 0b0010U);
  EXPECT_FALSE(second.splits);
}

TEST(LodgetreeSplit, Hotness) {
  using tree::lodgetree::Heat;
  using tree::lodgetree::kind_of;
  using tree::lodgetree::SplitKind;
  using tree::lodgetree::ways_of;
  EXPECT_EQ(kind_of(Heat{}, 100, 2), SplitKind::normal);
  EXPECT_EQ(kind_of(Heat{10, 50, 2}, 60, 2), SplitKind::adding);
  EXPECT_EQ(kind_of(Heat{10, 50, 2}, 80, 2), SplitKind::normal);
  EXPECT_EQ(kind_of(Heat{10, 50, 2}, 180, 2), SplitKind::reducing);
  EXPECT_EQ(ways_of(Heat{10, 50, 2}, SplitKind::reducing, 4), 2U);
  EXPECT_EQ(ways_of(Heat{10, 50, 4}, SplitKind::adding, 4), 4U);
  EXPECT_EQ(ways_of(Heat{10, 50, 3}, SplitKind::adding, 4), 4U);
  // The age of the tree at a node's first split is no interval: the second one is not a burst.
  const Heat once = Heat{}.after_split(100'000, 2);
  EXPECT_EQ(kind_of(once, 140'000, 2), SplitKind::normal);
  const Heat twice = once.after_split(140'000, 2);
  EXPECT_EQ(kind_of(twice, 150'000, 2), SplitKind::adding);
  EXPECT_EQ(kind_of(twice, 230'000, 2), SplitKind::reducing);
}

// The first thread for so many of its steps, then the second to its end.
class StopsFirst final : public Policy {
 public:
  explicit StopsFirst(unsigned steps) : left_(steps) {}
  unsigned choose(std::uint64_t, unsigned, unsigned able) override {
    const bool first = left_ != 0 || (able & 2U) == 0;
    left_ -= left_ != 0 ? 1U : 0U;
    return first && (able & 1U) != 0 ? 0U : 1U;
  }

 private:
  unsigned left_;
};

// 0: there is no room.
tree::lodgetree::Ref append_to(tree::lodgetree::Log& log, const tree::lodgetree::Record& record,
                               std::uint64_t key_hash) {
  tree::lodgetree::Log::Begun begun(log, 0);
  return begun.ok() ? begun.write(record, key_hash) : 0;
}

// L1, L3: the last record of a full chunk dies. Before its thread frees the chunk, another one
// closes it, takes it, fills it and closes it again: it is not free then.
TEST(Lodgetree, TheLastRecordDiesWhileItsChunkIsTakenAgain) {
  constexpr std::size_t kBytes = 256;
  constexpr std::size_t kRecords = kBytes / sizeof(tree::lodgetree::Record) - 1;  // L5
  constexpr std::size_t kCapacity = std::size_t{2} << 20;
  take_slots(2);
  for (unsigned steps = 0; steps < 12; ++steps) {
    Arena arena(kCapacity, 2, {64, true});
    Recorder recorder(arena);
    Recorder::watch(&recorder);
    {
      PoolOptions options;
      options.domain = Domain::memory;
      options.emulate = true;
      Pool pool =
          PoolAccess::format(arena.base(0), pmem::kMinPoolBytes, kCapacity, options, &recorder)
              .value();
      tree::lodgetree::Log log(PoolAccess::state(pool).medium(), kBytes, 3, 1);
      log.open({});
      for (int i = 0; i < 3; ++i) {
        log.prepare(PoolAccess::state(pool).heap().reserve(kBytes));
        log.add();
      }
      std::uint64_t order = 0;
      const auto append = [&] {
        ++order;
        return append_to(log, {order, order, order << 1, 0}, order);
      };
      EXPECT_TRUE(log.room(0));
      std::vector<tree::lodgetree::Ref> old;
      for (std::size_t i = 0; i < kRecords; ++i) old.push_back(append());
      for (std::size_t i = 0; i + 1 < kRecords; ++i) log.die(old[i]);
      std::map<tree::lodgetree::Ref, bool> living;
      const std::vector<Scheduler::Body> bodies{[&] { log.die(old.back()); },
                                                [&] {
                                                  EXPECT_TRUE(log.room(0));
                                                  for (std::size_t i = 0; i < kRecords; ++i)
                                                    living[append()] = true;
                                                  EXPECT_TRUE(log.room(0));
                                                }};
      Scheduler scheduler;
      StopsFirst policy(steps);
      EXPECT_EQ(scheduler.run(bodies, policy, 1'000'000).stuck, "");
      // All the room that there is: nothing that lives is written over.
      while (log.room(0)) {
        const auto ref = append();
        EXPECT_TRUE(living.emplace(ref, true).second) << "a living record, after " << steps;
        if (::testing::Test::HasFailure()) break;
      }
      PoolAccess::state(pool).abandon();
    }
    Recorder::watch(nullptr);
  }
}

// A2, L3: a place that is taken and not written is no record. The last one is taken again, another
// one dies; and what lives in a chunk that is in use again is not what was to be emptied.
TEST(Lodgetree, APlaceThatIsNotWritten) {
  constexpr std::size_t kBytes = 256;
  constexpr std::size_t kRecords = kBytes / sizeof(tree::lodgetree::Record);
  Pool pool = Pool::anonymous().value();
  tree::lodgetree::Log log(PoolAccess::state(pool).medium(), kBytes, 1, 1);
  log.open({});
  log.prepare(PoolAccess::state(pool).heap().reserve(kBytes));
  log.add();
  ASSERT_TRUE(log.room(0));
  std::uint64_t order = 0;
  const auto append = [&] {
    ++order;
    return append_to(log, {order, 0, order << 1, 0}, 0);
  };
  std::vector<tree::lodgetree::Ref> living{append()};
  ASSERT_NE(living[0], 0U);
  { const tree::lodgetree::Log::Begun last(log, 0); }
  living.push_back(append());
  EXPECT_EQ(living[1], living[0] + 1);
  const tree::lodgetree::Ref between = living[1] + 1;
  {
    const tree::lodgetree::Log::Begun begun(log, 0);
    living.push_back(append());
    EXPECT_EQ(living[2], between + 1);
    EXPECT_TRUE(log.is_live(between));
    EXPECT_EQ(pmem::load(&log.record(between)->order), 0U);
  }
  EXPECT_FALSE(log.is_live(between));
  while (living.size() + 2 < kRecords) living.push_back(append());  // L5: all but the last
  EXPECT_FALSE(log.room(0));
  tree::lodgetree::Log::Closed closed{};
  ASSERT_TRUE(log.oldest(closed));
  EXPECT_FALSE(log.is_empty(closed));
  for (const tree::lodgetree::Ref ref : living) log.die(ref);
  EXPECT_TRUE(log.is_empty(closed));
  ASSERT_TRUE(log.room(0));
  EXPECT_TRUE(log.is_live(living[0]));  // not taken yet; nobody may read it
  EXPECT_TRUE(log.is_empty(closed));
}

// L5: without room only holes are left, and the last one is for records that replace others.
TEST(Lodgetree, TheLastHoleIsForThoseThatReplace) {
  constexpr std::size_t kBytes = 256;
  constexpr std::size_t kRecords = kBytes / sizeof(tree::lodgetree::Record);
  Pool pool = Pool::anonymous().value();
  tree::lodgetree::Log log(PoolAccess::state(pool).medium(), kBytes, 2, 1);
  log.open({});
  for (int i = 0; i < 2; ++i) {
    log.prepare(PoolAccess::state(pool).heap().reserve(kBytes));
    log.add();
  }
  std::vector<tree::lodgetree::Ref> living;
  while (log.room(0)) {
    living.push_back(append_to(log, {living.size(), 0, living.size() << 1, 0}, 0));
    ASSERT_NE(living.back(), 0U);
  }
  ASSERT_EQ(living.size(), 2 * (kRecords - 1));
  const auto hole = [&](bool replaces) {
    const auto ref = log.append_to_hole({99, 0, 99 << 1, 0}, 0, replaces);
    if (ref == 0) return ref;
    EXPECT_EQ(std::ranges::count(living, ref), 0);
    living.push_back(ref);
    return ref;
  };
  EXPECT_NE(hole(false), 0U);
  EXPECT_EQ(hole(false), 0U);
  for (int round = 0; round < 20; ++round) {
    const auto old = living.front();
    EXPECT_NE(hole(true), 0U);
    EXPECT_EQ(hole(true), 0U) << "there was one only";
    log.die(old);
    living.erase(living.begin());
    EXPECT_EQ(hole(false), 0U);
  }
  tree::lodgetree::Log::Closed closed{};
  EXPECT_TRUE(log.oldest(closed));
  for (const auto ref : living) log.die(ref);
  EXPECT_TRUE(log.is_empty(closed));
  EXPECT_TRUE(log.room(0)) << "a chunk without living records is free";
}

// A10, F6: records of the same keys in the chunks of two threads, which are full and written again
// by turns, whichever was first. Crashes in the middle of schedules.
TEST(Lodgetree, RecordsOfOneKeyInTwoPartitions) {
  for (const KeyType keys : {KeyType::u64, KeyType::bytes}) {
    ConcurrentConfig config;
    config.spec = "lodgetree:node=256:slots=8:t_node=2:log=256:chunks=5:partitions=2";
    config.keys = keys;
    config.program = *parse_program(
        "2,4,6,8/u2=1,u2=2,u4=3,u2=4,u2=5,u4=6,u2=7,u4=8,u2=9,u4=10,u2=11,u2=12,u4=13,"
        "u2=14,u4=15,u2=16,u2=17,u4=18,u2=19,u2=20,u4=21"
        "/u2=31,u2=32,u4=33,u2=34,u2=35,u4=36,u2=37,u4=38,u2=39,u4=40,u2=41,u2=42,"
        "u4=43,u2=44,u4=45,u2=46,u2=47,u4=48,u2=49,u2=50,u4=51");
    config.preemptions = 0;
    config.random_runs = 100;
    config.most = 40;
    const ConcurrentReport report = run_concurrent(config);
    EXPECT_EQ(report.failure, "") << "switches " << to_string(report.switches);
    EXPECT_GT(report.executions, 500U);
  }
}

// P4, A18: one thread clears slots, and before that is durable another one uses them: for other
// keys, for keys that were in other ones of them, and for keys that are removed and come back. With
// leaves whose first slots lie in the word's line, and with others.
TEST(Lodgetree, SlotsThatWereClearedAreUsedAgain) {
  for (const char* const program :
       {"buffer=2 4,6,8,10/r6,r4,i5=1/i4=2,i7=3",
        "buffer=3 4,6,8,10,12,14/r4,u8=1,u6=1,i9=1/i4=2,i5=2,i7=3",
        "buffer=3 4,6,8,10,12,14/r4,r6,r8,i9=1,r12/i4=2,r4,i8=2,i6=3,u10=1"}) {
    const std::string text(program);
    const std::size_t space = text.find(' ');
    for (const char* const leaf : {"node=256:log=256", "node=512:log=512"}) {
      for (const Domain domain : {Domain::memory, Domain::disk}) {
        for (const KeyType keys : {KeyType::u64, KeyType::bytes}) {
          ConcurrentConfig config;
          config.spec = std::string("lodgetree:slots=8:t_node=2:chunks=5:partitions=2:") + leaf +
                        ":" + text.substr(0, space);
          config.keys = keys;
          config.domain = domain;
          config.program = *parse_program(text.substr(space + 1));
          config.preemptions = 0;
          config.random_runs = 40;
          config.most = 100;
          const ConcurrentReport report = run_concurrent(config);
          EXPECT_EQ(report.failure, "")
              << config.spec << " switches " << to_string(report.switches);
          EXPECT_GT(report.executions, 500U);
        }
      }
    }
  }
}

// A10, F7: keys that one thread inserts and updates, another one removes, whose records are in the
// other partition; either partition's chunks are full and written again first.
TEST(Lodgetree, RemovalsInAnotherPartition) {
  for (const char* const program :
       {"2,4,6,8/i5=1,u5=2,u5=3,u2=4,u2=5,u2=6,u2=7,u2=8,u2=9,u2=10,u2=11,u2=12,u2=13,u2=14,u2=15,"
        "u2=16,u2=17,u2=18,u2=19/r5,i7=1,r7,u4=3",
        "2,4,6,8/i5=1,i7=2,u2=3/r5,u4=1,u4=2,r7,u4=3,u4=4,u4=5,u4=6,u4=7,u4=8,u4=9,u4=10,u4=11,"
        "u4=12,u4=13,u4=14,u4=15,u4=16,u4=17,u4=18,u4=19"}) {
    for (const Domain domain : {Domain::memory, Domain::disk}) {
      for (const KeyType keys : {KeyType::u64, KeyType::bytes}) {
        ConcurrentConfig config;
        config.spec = "lodgetree:node=256:slots=8:t_node=2:log=256:chunks=5:partitions=2";
        config.keys = keys;
        config.domain = domain;
        config.program = *parse_program(program);
        config.preemptions = 0;
        config.random_runs = 60;
        config.most = 20;
        const ConcurrentReport report = run_concurrent(config);
        EXPECT_EQ(report.failure, "") << "switches " << to_string(report.switches);
        EXPECT_GT(report.executions, 500U);
      }
    }
  }
}

}  // namespace
}  // namespace everleaf::crash
