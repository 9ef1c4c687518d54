// The crash cases of src/store/README.md: every crash in small workloads on a store over each tree,
// and in the recoveries from them. After each, both tables hold exactly what they may hold, every
// value fits its checksum, the heap's blocks are those that are reached, the memory for records has
// as many records as there are keys, and the store goes on working. Each test says which cases it
// is for, and that they were met.
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "shrink.hpp"
#include "store_run.hpp"
#include "threads/store_threads.hpp"

namespace everleaf::crash {
namespace {

using Kind = StoreStep::Kind;
using Steps = std::vector<StoreStep>;

StoreStep put(std::string table, std::string key, std::string value) {
  return {Kind::write, {{std::move(table), std::move(key), std::move(value)}}};
}
StoreStep erase(std::string table, std::string key) {
  return {Kind::write, {{std::move(table), std::move(key), std::nullopt}}};
}
StoreStep batch(std::vector<Put> puts) {
  return {Kind::batch, std::move(puts)};
}
StoreStep full(std::vector<Put> puts, std::uint64_t blocks) {
  return {Kind::full, std::move(puts), {}, blocks};
}
StoreStep create(std::string table) {
  return {Kind::create, {}, std::move(table)};
}
StoreStep drop(std::string table) {
  return {Kind::drop, {}, std::move(table)};
}
StoreStep tick() {
  return {Kind::tick};
}
StoreStep reopen() {
  return {Kind::reopen};
}

// Small nodes, so that a few keys split them.
constexpr std::string_view kStrict[] = {
    "wbtree:node=256", "pbtree:node=256", "bztree:page=256:free=96",
    "lodgetree:node=256:slots=8:t_node=2:log=256:chunks=5:partitions=2"};
constexpr std::string_view kBuffered = "bdtree:node=256";

Config on(std::string_view spec, unsigned nested = 1, KeyType keys = KeyType::bytes) {
  Config config;
  config.spec = spec;
  config.keys = keys;
  config.nested = nested;
  config.most = 16;
  config.most_nested = 4;
  return config;
}

using Cases = std::vector<std::string_view>;

// Every one of the cases is met, in one of the domains.
void explore(const Config& run, Steps steps, const Cases& cases,
             const std::vector<Domain>& domains = {Domain::memory, Domain::process}) {
  StoreConfig config{run, std::move(steps)};
  std::map<std::string, std::uint64_t, std::less<>> reached;
  for (const Domain domain : domains) {
    config.run.domain = domain;
    const StoreReport report = run_store(config);
    ASSERT_FALSE(report.failure) << run.spec << ' ' << to_string(run.keys) << ' '
                                 << to_string(domain) << '\n'
                                 << report.failure->operation << ": " << report.failure->what
                                 << '\n'
                                 << report.failure->where << '\n'
                                 << report.failure->lost;
    EXPECT_GT(report.executions, 2 * config.steps.size());
    for (const auto& [path, times] : report.reached) reached[path] += times;
  }
  for (const std::string_view one : cases) {
    EXPECT_NE(reached.find(one), reached.end()) << one << ": " << run.spec;
  }
}

Steps some(const std::string& table, int count) {
  Steps steps;
  for (int i = 0; i < count; ++i) {
    steps.push_back(
        put(table, fmt::format("k{}", i), std::string(static_cast<std::size_t>(i * 13), 'v')));
  }
  return steps;
}
Steps then(Steps steps, const Steps& more) {
  steps.insert(steps.end(), more.begin(), more.end());
  return steps;
}
Steps ticks(int count) {
  return Steps(static_cast<std::size_t>(count), tick());
}
// The same for a buffered store: all of it becomes durable.
Steps for_store(std::string_view spec, Steps steps) {
  return is_buffered(spec) ? then(std::move(steps), ticks(3)) : steps;
}

const Cases kWriteCases = {"A1: no word names the record", "A2: the write is there",
                           "A3: the old record is free"};

const Steps kWrites = {put("a", "x", std::string(150, '1')),
                       put("b", "x", std::string(40, '2')),
                       put("a", "x", std::string(150, '3')),
                       erase("b", "x"),
                       put("b", "y", ""),
                       put("a", "x", std::string(90, '4')),
                       put("a", "z", std::string(90, '5'))};

// One for each of Table's ways to write.
const Steps kAnswers = {{Kind::insert, {{"a", "x", std::string(50, '6')}}},    // exists
                        {Kind::update, {{"a", "x", std::string(50, '7')}}},    //
                        {Kind::update, {{"a", "w", std::string(50, '8')}}},    // absent
                        {Kind::exchange, {{"a", "x", std::string(70, '9')}}},  // of what it has
                        {Kind::exchange, {{"a", "x", std::nullopt}}},          //
                        {Kind::exchange, {{"a", "x", std::string(20, '0')}}},  // of nothing
                        erase("a", "w")};                                      // absent

class Strict : public testing::TestWithParam<std::string_view> {};
INSTANTIATE_TEST_SUITE_P(Store, Strict, testing::ValuesIn(kStrict), [](const auto& of) {
  return std::string(of.param.substr(0, of.param.find(':')));
});

// A1, A2, A3.
TEST_P(Strict, Writes) {
  explore(on(GetParam()), then(kWrites, kAnswers), kWriteCases, {Domain::memory, Domain::disk});
  explore(on(GetParam(), 1, KeyType::u64), then(kWrites, kAnswers), kWriteCases);
}

// Pieces of several chunks of 16,128 bytes, in their sizes; given up, and taken again.
Steps large() {
  const auto value = [](std::size_t bytes, char c) { return std::string(bytes, c); };
  return {put("a", "x", value(40'000, '1')),
          put("b", "x", value(8'200, '2')),
          put("a", "x", value(17'000, '3')),
          erase("b", "x"),
          put("b", "y", value(16'120, '4')),
          put("a", "x", value(8'184, '5')),
          batch({{"a", "x", std::nullopt},
                 {"a", "y", value(20'000, '6')},
                 {"b", "y", value(33'000, '7')}})};
}
TEST_P(Strict, ValuesOfSeveralChunks) {
  Config config = on(GetParam());
  config.most = 12;
  explore(config, large(), {kWriteCases[0], kWriteCases[1], kWriteCases[2], "A8: undo"},
          {Domain::memory});
}

TEST(Store, BufferedWrites) {
  Steps steps;
  const Steps all = then(kWrites, kAnswers);
  for (int round = 0; round < 2; ++round) {
    for (const StoreStep& step : all) {
      steps.push_back(step);
      if (steps.size() % 3 == 1) steps.push_back(tick());
    }
  }
  Cases cases = kWriteCases;
  cases.emplace_back("A3: the old record again");
  for (const KeyType keys : {KeyType::bytes, KeyType::u64}) {
    explore(on(kBuffered, 1, keys), then(steps, ticks(4)), cases);
  }
}

TEST(Store, BufferedValuesOfSeveralChunks) {
  Steps steps;
  for (const StoreStep& step : large()) steps.insert(steps.end(), {step, tick()});
  Config config = on(kBuffered);
  config.most = 12;
  explore(config, then(steps, ticks(3)),
          {"A3: the old record again", "A4: nothing of the batch", "A4: all of the batch"},
          {Domain::memory});
}

// Records whose memory is used again and again.
TEST(Store, BufferedOverwrites) {
  Steps steps;
  for (int i = 0; i < 24; ++i) {
    steps.push_back(put("a", "x", std::string(100, static_cast<char>('a' + i))));
    if (i % 3 == 0) steps.push_back(tick());
  }
  explore(on(kBuffered), steps, {"A3: the old record again"});
}

class Every : public testing::TestWithParam<std::string_view> {};
INSTANTIATE_TEST_SUITE_P(Store, Every,
                         testing::Values(kStrict[0], kStrict[1], kStrict[2], kStrict[3], kBuffered),
                         [](const auto& of) {
                           return std::string(of.param.substr(0, of.param.find(':')));
                         });

// A5, A6, A7.
TEST_P(Every, Reopening) {
  Steps steps = some("a", 4);
  steps.push_back(reopen());
  steps.push_back(put("a", "k2", "new"));
  steps.push_back(reopen());
  Config config = on(GetParam(), 2);
  config.most = 12;
  config.most_nested = 4;
  explore(config, steps,
          {"A5: while a store opens", "A6: an image", "A6: no image", "A7: no image any more"},
          {Domain::memory, Domain::disk});
}

const std::vector<Put> kBatch = {
    {"a", "k1", std::string(70, 'n')},    {"a", "k2", std::nullopt},
    {"b", "k1", std::string(30, 'n')},    {"a", "new", std::string(100, 'n')},
    {"b", "other", std::string(10, 'n')}, {"a", "k3", std::nullopt}};

// A4.
TEST(Store, BufferedBatches) {
  Steps steps = then(then(some("a", 5), some("b", 2)), ticks(3));
  steps.push_back(batch(kBatch));
  steps = then(steps, ticks(3));
  steps.push_back(batch({{"a", "new", std::nullopt}, {"b", "k0", "again"}}));
  steps.push_back(put("a", "later", "v"));
  for (const KeyType keys : {KeyType::bytes, KeyType::u64}) {
    explore(on(kBuffered, 1, keys), then(steps, ticks(3)),
            {"A4: nothing of the batch", "A4: all of the batch"});
  }
}

// A8.
TEST_P(Strict, Batches) {
  Steps steps = then(some("a", 5), some("b", 2));
  steps.push_back(batch(kBatch));
  steps.push_back(batch({{"a", "new", std::nullopt}, {"b", "k0", "again"}}));
  steps.push_back(put("a", "later", "v"));
  const Cases cases = {"A8: undo", "A8: redo"};
  explore(on(GetParam()), steps, cases, {Domain::memory, Domain::disk, Domain::process});
  explore(on(GetParam(), 1, KeyType::u64), steps, cases, {Domain::memory});
}

TEST_P(Strict, BatchesAndCrashesOfTheirRecovery) {
  Config config = on(GetParam(), 2);
  config.most = 6;
  config.most_nested = 4;
  Steps steps = then(some("a", 4), some("b", 2));
  steps.push_back(batch(kBatch));
  explore(config, steps, {"A5: while a store opens", "A8: undo", "A8: redo"}, {Domain::memory});
}

const Cases kDropCases = {"A9: the table is there", "A9: the table is gone", "A9: blocks are left"};

// A9. A list of more blocks than one redo record frees is in tests/store.
TEST_P(Every, DroppedTables) {
  for (const unsigned nested : {1U, 2U}) {
    Config config = on(GetParam(), nested);
    if (nested == 2) config.most = config.most_nested = 4;
    if (nested == 2) config.keys = KeyType::u64;
    const Steps steps = for_store(GetParam(), then(some("a", 20), some("b", 2)));
    explore(config,
            then(steps, for_store(GetParam(), {drop("a"), put("b", "k1", "new"), create("a"),
                                               put("a", "k1", "again")})),
            kDropCases, {Domain::memory});
  }
}

// A table whose entries were copied goes before the copy is durable by itself.
TEST(Store, ADropTakesNothingBackThatCameBefore) {
  Steps steps = then(some("a", 6), ticks(3));
  for (const StoreStep& one : some("b", 6)) steps.push_back(one);
  steps.push_back(drop("a"));
  steps.push_back(put("b", "k1", "new"));
  explore(on(kBuffered), then(steps, ticks(3)), kDropCases, {Domain::memory, Domain::process});
}

// L2 of the redo log: late records name the nodes of a table that goes; another table's split takes
// these nodes next.
TEST(Store, DroppedTableWithLateRecords) {
  for (const int keys : {12, 13, 14}) {
    Config config = on("pbtree:node=256");
    config.most = 12;
    Steps steps = then(some("b", keys), some("a", 3));
    steps.push_back(drop("a"));
    explore(config, then(steps, {put("b", "k00", "new"), put("b", "k01", "new")}), kDropCases,
            {Domain::memory, Domain::disk});
  }
}

// A10: batches that find no space for their records, or none in the middle.
struct Refused {
  int keys;
  std::uint64_t blocks;
  bool middle;
};
StoreReport refuse(std::string_view spec, const Refused& one) {
  std::vector<Put> puts;
  for (int i = 0; i < one.keys; ++i) {
    // Of a size of which there is memory, or of one of which there is none.
    puts.push_back({"a", fmt::format("m{}", i), std::string(one.middle ? 8 : 300, 'm')});
  }
  if (!one.middle) puts.push_back({"a", "k1", std::string(50, 'm')});
  puts.push_back({"a", "k2", std::nullopt});
  Config config = on(spec);
  config.most = 4;
  Steps steps = some("a", 4);
  steps.push_back(full(puts, one.blocks));
  steps.push_back(put("a", "after", "v"));
  StoreReport report = run_store({config, for_store(spec, steps)});
  EXPECT_FALSE(report.failure) << spec << ": " << report.failure->operation << ": "
                               << report.failure->what;
  return report;
}
constexpr std::string_view kTakenBack = "store: a batch is taken back";
TEST_P(Every, ABatchWithoutMemoryForItsRecords) {
  const StoreReport report = refuse(GetParam(), {40, 0, false});
  EXPECT_TRUE(report.reached.contains("A10: refused"));
  EXPECT_FALSE(report.reached.contains(kTakenBack));
}
// Records and list have memory, and nodes need more blocks than there are. Not a LodgeTree, whose
// nodes come from memory of its own: where that is out, so is that of the list.
TEST(Store, BatchesThatAreRefusedInTheMiddle) {
  for (const std::string_view spec : {kStrict[0], kStrict[1], kStrict[2], kBuffered}) {
    std::map<std::string, std::uint64_t, std::less<>> reached;
    const bool buffered = is_buffered(spec);
    for (const std::uint64_t blocks : buffered ? std::vector{0U} : std::vector{1U, 5U, 12U}) {
      const StoreReport report = refuse(spec, {buffered ? 900 : 60, blocks, true});
      for (const auto& [path, times] : report.reached) reached[path] += times;
    }
    EXPECT_TRUE(reached.contains(kTakenBack)) << spec;
    // Where taking it back needs memory, too, recovery does that.
    const bool needs_memory = spec.starts_with("bztree");
    EXPECT_TRUE(reached.contains(needs_memory ? "A10: not taken back" : "A10: refused")) << spec;
  }
}

// A crash of the source; the copy itself is in copies_test.cpp.
TEST_P(Strict, Backups) {
  Steps steps = then(some("a", 6), some("b", 2));
  steps.push_back({Kind::backup});
  steps.push_back(put("a", "k2", "new"));
  steps.push_back({Kind::backup});
  explore(on(GetParam()), steps, {}, {Domain::memory, Domain::process});
}

// Random workloads, as the program runs them.
TEST_P(Every, RandomWorkloads) {
  for (const KeyType keys : {KeyType::u64, KeyType::bytes}) {
    Config config = on(GetParam(), 1, keys);
    config.store = true;
    config.most = 6;
    config.ops = make_workload({60, 5, 0, std::nullopt, is_buffered(GetParam()), true});
    const Report report = run(config);
    ASSERT_FALSE(report.failure) << report.failure->operation << ": " << report.failure->what;
    EXPECT_GT(report.executions, 300U);
  }
}

// A store that is open read-only shows the same, a batch that a crash left ended in memory.
TEST_P(Every, Readers) {
  for (const Domain domain : {Domain::memory, Domain::disk, Domain::process}) {
    Config config = on(GetParam(), 2, KeyType::bytes);
    config.store = true;
    config.domain = domain;
    config.most = config.most_nested = 3;
    config.stride = 16;
    config.readers = 1;
    config.ops = make_workload({40, 5, 0, std::nullopt, is_buffered(GetParam()), true});
    const Report report = run(config);
    ASSERT_FALSE(report.failure) << report.failure->operation << ": " << report.failure->what;
    EXPECT_EQ(report.readers, report.executions);
  }
}

// A failure is played again from its line, alone: without a fence that a store needs.
TEST(Store, AReplayFindsTheSameCrash) {
  Config config = on("wbtree:node=256");
  config.store = true;
  const WorkloadOptions workload{60, 1, 0, std::nullopt, false, true};
  config.ops = make_workload(workload);
  config.collect_sites = config.record_only = true;
  std::optional<SiteId> fence;  // S1
  for (const auto& [site, use] : run(config).sites) {
    if (site.file == "src/store/write.cpp" && site.act == Act::fence) fence = site;
  }
  ASSERT_TRUE(fence);
  config.collect_sites = config.record_only = false;
  config.dropped = fence;
  const Report found = run(config);
  ASSERT_TRUE(found.failure);
  Origin origin{workload, {}};
  for (std::size_t i = 0; i < config.ops.size(); ++i) origin.kept.push_back(i);
  Config again;
  Origin of_line;
  ASSERT_TRUE(parse_replay(replay_line(config, origin, *found.failure), again, of_line));
  EXPECT_TRUE(again.store);
  const Report replayed = run(again);
  ASSERT_TRUE(replayed.failure);
  EXPECT_TRUE(replayed.replayed);
  EXPECT_EQ(replayed.failure->what, found.failure->what);
}

// Two threads, every schedule with one preemption, some at random, and crashes in all of them.
StoreProgram meeting(std::string_view spec, Steps first, Steps second) {
  StoreProgram program{std::string(spec), Domain::memory, {}, {}};
  program.before = {{"a", "k1", std::string(40, '1')},
                    {"a", "k2", std::string(40, '2')},
                    {"b", "k1", std::string(40, '3')}};
  if (is_buffered(spec)) first = then(std::move(first), ticks(2));
  program.threads = {std::move(first), std::move(second)};
  program.deadline = Deadline::within(1);
  return program;
}
void meet(const StoreProgram& program) {
  const StoreThreadsReport report = run_store_threads(program);
  EXPECT_EQ(report.failure, "") << program.spec << ": " << to_string(report.switches);
  EXPECT_GT(report.schedules, 20U) << program.spec;
  EXPECT_GT(report.executions, 100U) << program.spec;
}
constexpr std::string_view kMeeting[] = {kStrict[0], kStrict[1], kStrict[2], kStrict[3], kBuffered};

TEST(StoreThreads, PutsOfOneKey) {
  for (const std::string_view spec : kMeeting) {
    meet(meeting(spec, {put("a", "k1", std::string(60, 'x'))},
                 {put("a", "k1", std::string(60, 'y')), erase("a", "k1")}));
  }
}
TEST(StoreThreads, PutsOfNeighbours) {
  for (const std::string_view spec : kMeeting) {
    meet(meeting(spec, {put("a", "k3", std::string(60, 'x')), erase("a", "k2")},
                 {put("a", "k4", std::string(60, 'y'))}));
  }
}
TEST(StoreThreads, ABatchAgainstPuts) {
  for (const std::string_view spec : kMeeting) {
    meet(meeting(spec,
                 {batch({{"a", "k1", std::string(60, 'x')},
                         {"a", "k2", std::nullopt},
                         {"b", "k9", std::string(60, 'x')}})},
                 {put("a", "k1", std::string(60, 'y')), put("b", "k9", std::string(60, 'y'))}));
  }
}
TEST(StoreThreads, ADropAgainstPuts) {
  for (const std::string_view spec : kMeeting) {
    meet(meeting(spec, {drop("a")},
                 {put("a", "k1", std::string(60, 'y')), put("b", "k2", std::string(60, 'y'))}));
  }
}
TEST(StoreOrders, PassThroughTheEndOfAnEpoch) {
  const StoreStep first = put("a", "k", "1");
  const StoreStep second = put("a", "k", "2");
  const StoreStep beside = put("b", "k", "3");
  const StoreContent before{{"a", {}}, {"b", {}}};
  const StoreContent one{{"a", {{"k", "1"}}}, {"b", {}}};
  const StoreContent two{{"a", {{"k", "2"}}}, {"b", {}}};
  const StoreContent late{{"a", {{"k", "2"}}}, {"b", {{"k", "3"}}}};
  std::vector<StoreCall> calls{{&first, 1, 2, Outcome::done, 5, 5},
                               {&second, 3, 6, Outcome::done, 6, 7},
                               {&beside, 4, 5, Outcome::done, 7, 7}};
  // Nothing of the epoch has ended, or all of it.
  EXPECT_TRUE(passes_through(calls, before, before, 4));
  EXPECT_FALSE(passes_through(calls, before, one, 4));
  EXPECT_FALSE(passes_through(calls, before, before, 5));
  EXPECT_TRUE(passes_through(calls, before, one, 5));
  EXPECT_FALSE(passes_through(calls, before, two, 5));
  // It may be of the first of its two epochs.
  EXPECT_TRUE(passes_through(calls, before, one, 6));
  EXPECT_TRUE(passes_through(calls, before, two, 6));
  EXPECT_FALSE(passes_through(calls, before, late, 6));
  EXPECT_TRUE(passes_through(calls, before, late, 7));
  EXPECT_FALSE(passes_through(calls, before, two, 7));
  // A sync had covered it.
  calls[0].durable = true;
  EXPECT_FALSE(passes_through(calls, before, before, 4));
  // What comes behind the state has its answers, too.
  calls[2].outcome = Outcome::dropped;
  EXPECT_FALSE(passes_through(calls, before, one, 5));
}

// What a call that has returned left is there at the end of its epoch, and after a sync.
const StoreStep kSync{Kind::sync};
TEST(StoreThreads, EpochsAndSyncs) {
  meet(meeting(kBuffered, {put("a", "k1", std::string(60, 'x')), kSync, erase("a", "k2")},
               {put("b", "k1", std::string(60, 'y')), put("a", "k1", std::string(60, 'z'))}));
  meet(meeting(
      kBuffered,
      {put("a", "k3", std::string(60, 'x')), drop("b"), put("a", "k1", std::string(9, 'x'))},
      {put("b", "k1", std::string(60, 'y')), tick(), put("a", "k3", "")}));
}
// Each flush and fence of a step of the clock is missed.
TEST(StoreThreads, AClockThatIsNotDurableIsNoticed) {
  Config config = on(kBuffered);
  config.collect_sites = config.record_only = true;
  unsigned tried = 0;
  for (const auto& [site, use] : run_store({config, for_store(kBuffered, kWrites)}).sites) {
    if (!site.file.starts_with("src/epoch/")) continue;
    StoreProgram program =
        meeting(kBuffered, {put("a", "k1", std::string(60, 'x')), kSync},
                {put("b", "k1", std::string(60, 'y')), erase("a", "k2"), tick(), tick(), tick()});
    program.dropped = site;
    EXPECT_NE(run_store_threads(program).failure, "") << to_string(site);
    ++tried;
  }
  EXPECT_EQ(tried, 4U);
}
// The fence of S1 is missed by threads, too.
TEST(StoreThreads, ADroppedFenceIsNoticed) {
  StoreProgram program = meeting("wbtree:node=256", {put("a", "k1", std::string(60, 'x'))},
                                 {put("a", "k2", std::string(60, 'y'))});
  Config config = on("wbtree:node=256");
  config.collect_sites = config.record_only = true;
  for (const auto& [site, use] : run_store({config, kWrites}).sites) {
    if (site.file == "src/store/write.cpp" && site.act == Act::fence) program.dropped = site;
  }
  ASSERT_TRUE(program.dropped);
  EXPECT_NE(run_store_threads(program).failure.find("damage"), std::string::npos);
}

}  // namespace
}  // namespace everleaf::crash
