#include <algorithm>
#include <csignal>
#include <cstdio>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

#include "meter.hpp"
#include "mutate.hpp"
#include "processes.hpp"
#include "recorder.hpp"
#include "run.hpp"
#include "shrink.hpp"

namespace everleaf::crash {
namespace {

constexpr const char* kSlotOnly = "wbtree:structure=slot-only:node=128";
constexpr const char* kSlotBitmap = "wbtree:structure=slot-bitmap:node=128";
constexpr const char* kBitmapLeaf = "wbtree:structure=bitmap-leaf:node=128";

Config small(const char* spec, std::size_t ops, KeyType keys = KeyType::u64) {
  Config config;
  config.spec = spec;
  config.keys = keys;
  config.ops = make_workload({ops, 1, 0, std::nullopt, is_buffered(spec)});
  return config;
}

TEST(Deadlines, CountProcessorTime) {
  const double before = processor_seconds();
  const Deadline soon = Deadline::within(0.02);
  while (!is_late(soon)) {
  }
  EXPECT_GE(processor_seconds(), before + 0.02);
  EXPECT_FALSE(is_late(Deadline{}));
  const Deadline later = Deadline::within(1e6);
  EXPECT_FALSE(is_late(later));
  EXPECT_LT(later.part(0.5).processor_s, later.processor_s);
  EXPECT_EQ(Deadline::within(1e6, soon).processor_s, soon.processor_s);
  EXPECT_TRUE(is_late({.at = Deadline::Clock::now() - std::chrono::seconds(1)}));
}

// All trees of the registry, with both kinds of keys; crash points of creation have too many
// images. The images of some of the others are read first.
TEST(Lazy, EqualsEager) {
  constexpr std::uint64_t kMostImages = 1500;
  std::uint64_t images = 0;
  std::uint64_t executions = 0;
  for (const TreeInfo& tree : trees()) {
    for (const std::string_view spec : tree.test_specs) {
      for (const KeyType keys : {KeyType::u64, KeyType::bytes}) {
        for (const Domain domain : {Domain::memory, Domain::disk}) {
          Config config;
          config.spec = spec;
          config.keys = keys;
          config.domain = domain;
          config.ops = {
              {Do::insert, 5, 1}, {Do::insert, 3, 2}, {Do::update, 5, 3}, {Do::remove, 3, 0}};
          if (is_buffered(spec)) config.ops.insert(config.ops.end(), 3, {Do::tick, 0, 0});
          config.skip_creation = true;
          config.readers = 2;
          const Comparison is = compare_with_eager(config, kMostImages);
          EXPECT_EQ(is.wrong, "") << spec << ' ' << to_string(keys) << ' ' << to_string(domain);
          EXPECT_GE(is.points, 8U) << spec << ' ' << to_string(keys) << ' ' << to_string(domain);
          images += is.images;
          executions += is.executions;
        }
      }
    }
  }
  // Each execution may take a choice more than there are images (crash/README.md, Checksums).
  EXPECT_GT(2 * images, executions);
}

// Space ends in the workload, and for recoveries: what is changed in place, what is refused, what a
// removal gives back.
TEST(Checker, SurvivesCrashesOfAFullPool) {
  constexpr std::uint64_t kKeys = 2048;
  for (const TreeInfo& tree : trees()) {
    for (const std::string_view spec : tree.test_specs) {
      Config config;
      config.spec = spec;
      config.skip_creation = true;
      config.most = 3;
      config.ops = {{Do::bulk_load, 60, 1}};
      // 36 operations that may be refused.
      for (std::uint64_t crowded = 0; crowded < 2; ++crowded) {
        config.ops.push_back({Do::fill, kKeys, crowded});
        for (std::uint64_t n = 0; n < 6; ++n) {
          config.ops.push_back({Do::upsert, n * 397 % kKeys, n});
          config.ops.push_back({Do::remove, n * 397 % kKeys, 0});
          config.ops.push_back({Do::insert, n * 397 % kKeys + 1, n});
        }
      }
      for (const KeyType keys : {KeyType::u64, KeyType::bytes}) {
        config.keys = keys;
        const Report report = run(config);
        ASSERT_FALSE(report.failure) << spec << ' ' << to_string(keys) << ' '
                                     << report.failure->operation << ": " << report.failure->what;
        EXPECT_GT(report.executions, 50U) << spec << ' ' << to_string(keys);
        // Some of it is refused, and some is not.
        EXPECT_GT(report.out_of_space, 0U) << spec << ' ' << to_string(keys);
        EXPECT_LT(report.out_of_space, 36U) << spec << ' ' << to_string(keys);
      }
    }
  }
}

TEST(Checker, ReportsNothingOnASoundTree) {
  for (const Domain domain : {Domain::memory, Domain::disk, Domain::cache, Domain::process}) {
    for (const auto& [spec, keys] : {std::pair{kSlotBitmap, KeyType::u64},
                                     {kSlotBitmap, KeyType::bytes},
                                     {"bdtree:node=256", KeyType::u64},
                                     {"bdtree:node=256", KeyType::bytes},
                                     {"bdtree:node=1024", KeyType::u64}}) {
      Config config = small(spec, 60, keys);
      config.domain = domain;
      config.most = 100;
      const Report report = run(config);
      ASSERT_FALSE(report.failure) << report.failure->operation << ": " << report.failure->what;
      EXPECT_EQ(report.operations, 60U);
      EXPECT_GE(report.executions, report.crash_points);
    }
  }
}

TEST(Checker, ReadersSeeWhatWritersSee) {
  for (const TreeInfo& tree : trees()) {
    for (const std::string_view spec : tree.test_specs) {
      for (const Domain domain : {Domain::memory, Domain::disk, Domain::process}) {
        Config config;
        config.spec = spec;
        config.keys = KeyType::bytes;
        config.ops = make_workload({40, 3, 0, std::nullopt, is_buffered(spec)});
        config.domain = domain;
        config.most = config.most_nested = 4;
        config.nested = 2;
        config.stride = 16;
        config.readers = 1;
        const Report report = run(config);
        ASSERT_FALSE(report.failure) << spec << ' ' << to_string(domain) << ' '
                                     << report.failure->operation << ": " << report.failure->what;
        EXPECT_EQ(report.readers, report.executions);
      }
    }
  }
}

// The share is of crash points, and the same ones each time.
TEST(Checker, ReadsTheImagesOfSomeCrashPointsFirst) {
  Config config = small(kSlotBitmap, 60);
  const auto readers = [&](std::uint64_t share) {
    config.readers = share;
    config.most = 1;
    return run(config).readers;
  };
  const std::uint64_t all = readers(1);
  const std::uint64_t some = readers(8);
  EXPECT_EQ(readers(0), 0U);
  EXPECT_GT(some, all / 16);
  EXPECT_LT(some, all / 4);
  EXPECT_EQ(readers(8), some);
}

TEST(Checker, NoticesADroppedFenceAndReplaysIt) {
  Config config = small(kBitmapLeaf, 60);
  config.collect_sites = true;
  config.record_only = true;
  const Report sites = run(config);
  config.collect_sites = config.record_only = false;
  unsigned tried = 0;
  for (const auto& [site, count] : sites.sites) {
    if (!site.file.ends_with("wbtree/write.cpp") || site.act != Act::fence) continue;
    config.dropped = site;
    const Report report = run(config);
    if (!report.failure) continue;
    ++tried;
    Config shorter = config;
    Origin origin{{60, 1, 0}, {}};
    for (std::size_t i = 0; i < config.ops.size(); ++i) origin.kept.push_back(i);
    Failure failure = *report.failure;
    shrink(shorter, origin, failure, 5);
    EXPECT_LE(shorter.ops.size(), 12U) << to_string(site);
    Config replayed;
    Origin from_line;
    ASSERT_TRUE(parse_replay(replay_line(shorter, origin, failure), replayed, from_line));
    const Report again = run(replayed);
    ASSERT_TRUE(again.failure) << replay_line(shorter, origin, failure);
    EXPECT_EQ(again.failure->what, failure.what);
  }
  EXPECT_GE(tried, 2U);
}

// The last operations must not be left out because the first ones have many images.
TEST(Checker, GlancesAtTheWholeWorkloadFirst) {
  Config config = small(kSlotBitmap, 16);
  config.nested = 2;
  const Report alone = run(config);
  std::vector<std::pair<std::uint64_t, std::uint64_t>> seen;  // crash points, executions
  config.progress = [&seen](std::uint64_t points, std::uint64_t executions) {
    seen.emplace_back(points, executions);
  };
  const Report both = run_glancing_first(config);
  EXPECT_TRUE(both.complete);
  const auto last = std::ranges::adjacent_find(
      seen, [](const auto& one, const auto& next) { return next.first < one.first; });
  ASSERT_NE(last, seen.end());  // it began again
  EXPECT_EQ(last->first, alone.crash_points);
  EXPECT_LT(last->second, alone.executions / 2);
  EXPECT_EQ(both.crash_points, alone.crash_points);
  EXPECT_EQ(both.operations, alone.operations);
  EXPECT_GE(both.executions, alone.executions + last->second);
}

TEST(Workload, FillsAndGrowsThePool) {
  for (const KeyType keys : {KeyType::u64, KeyType::bytes}) {
    Config config;
    config.spec = kBitmapLeaf;
    config.keys = keys;
    config.ops = make_workload({200, 2, 0});
    config.record_only = true;
    const Report report = run(config);
    ASSERT_FALSE(report.failure) << report.failure->operation << ": " << report.failure->what;
    if (keys == KeyType::u64) continue;
    EXPECT_GT(report.out_of_space, 0U);
    EXPECT_GT(report.pool_bytes, std::uint64_t{1} << 20);
  }
}

// A full pool: a buffered tree waits until what it retired is free.
TEST(Workload, WaitsForEpochs) {
  Config config;
  config.spec = "bdtree:node=256";
  config.keys = KeyType::bytes;
  config.ops = {{Do::limit, 0, 0}};
  for (std::uint64_t n = 0; n < 30; ++n) {
    config.ops.push_back({Do::insert, kSizedKeys + 13 * n + 11, n});
  }
  config.ops.push_back({Do::remove, kSizedKeys + 11, 0});
  config.ops.push_back({Do::insert, kSizedKeys + 13 * 60 + 11, 7});  // after the wait
  config.ops.push_back({Do::insert, 1, 1});
  config.most = 8;
  config.skip_creation = true;
  const Report filled = run(config);
  ASSERT_FALSE(filled.failure) << filled.failure->operation << ": " << filled.failure->what;
  EXPECT_GT(filled.out_of_space, 0U);
  EXPECT_GT(filled.waits, 0U);
}

TEST(Prefixes, AllowsWhatABufferedTreeMayLose) {
  using Entries = std::vector<Entry<std::uint64_t>>;
  Prefixes<std::uint64_t> prefixes;
  using enum Prefixes<std::uint64_t>::Clock;
  prefixes.push(1, 10);
  EXPECT_TRUE(prefixes.allows({}, still));
  EXPECT_FALSE(prefixes.allows({{1, 10}}, still));  // its epoch is not durable
  prefixes.ticked();
  prefixes.push(2, 20);
  EXPECT_TRUE(prefixes.allows({}, still));
  EXPECT_FALSE(prefixes.allows({{1, 10}}, still));
  EXPECT_TRUE(prefixes.allows({{1, 10}}, step));
  EXPECT_FALSE(prefixes.allows({{1, 10}, {2, 20}}, step));
  prefixes.ticked();
  EXPECT_FALSE(prefixes.allows({}, step));
  EXPECT_TRUE(prefixes.allows({{1, 10}}, still));
  prefixes.synced();
  EXPECT_FALSE(prefixes.allows({}, any));
  EXPECT_FALSE(prefixes.allows({}, steps));
  prefixes.push(1, 11);
  prefixes.push(3, 30);
  prefixes.push(2, std::nullopt);
  EXPECT_TRUE(prefixes.allows({{1, 10}, {2, 20}}, any));
  EXPECT_TRUE(prefixes.allows({{1, 11}, {2, 20}}, any));
  EXPECT_TRUE(prefixes.allows({{1, 11}, {2, 20}, {3, 30}}, any));
  EXPECT_TRUE(prefixes.allows({{1, 10}, {2, 20}}, steps));
  EXPECT_FALSE(prefixes.allows({{1, 11}, {2, 20}}, steps));
  EXPECT_TRUE(prefixes.allows({{1, 11}, {2, 20}, {3, 30}}, steps));
  EXPECT_TRUE(prefixes.allows({{1, 11}, {3, 30}}, steps));
  EXPECT_TRUE(prefixes.allows({{1, 11}, {3, 30}}, any));
  EXPECT_FALSE(prefixes.allows({{1, 10}, {2, 20}, {3, 30}}, any));  // not a prefix
  EXPECT_FALSE(prefixes.allows({{1, 10}}, any));
  const Entries now{{5, 1}};
  EXPECT_TRUE(Prefixes<std::uint64_t>(now).allows(now, still));
}

TEST(Prefixes, AreOfAllIndexesTogether) {
  using Entries = std::vector<Entry<std::uint64_t>>;
  Prefixes<std::uint64_t> prefixes;
  using enum Prefixes<std::uint64_t>::Clock;
  prefixes.push(1, 10);
  prefixes.push(1, 20, 1);
  prefixes.ticked();
  const std::vector<Entries> none(1);
  const std::vector<Entries> one{{{1, 20}}};
  EXPECT_TRUE(prefixes.allows({}, step, none));
  EXPECT_TRUE(prefixes.allows({{1, 10}}, step, one));
  EXPECT_FALSE(prefixes.allows({{1, 10}}, step, none));
  EXPECT_FALSE(prefixes.allows({}, step, one));
  EXPECT_FALSE(prefixes.allows({{1, 20}}, step, std::vector<Entries>{{{1, 10}}}));
}

// With a second index, and so few images that crashes in recoveries come at other times.
TEST(Checker, MakesTheSameChoicesWhateverItDidBefore) {
  Config config;
  config.spec = "bdtree";
  config.domain = Domain::disk;
  config.ops = make_workload({60, 3, 0, std::nullopt, true});
  config.ops.resize(8);
  config.nested = 2;
  config.most = 4;
  const Report report = run(config);  // it ends itself where they differ
  EXPECT_FALSE(report.failure) << report.failure->operation << ": " << report.failure->what;
  EXPECT_GT(report.nested_points, 0U);
}

TEST(Replay, TellsASequence) {
  Config config;
  Origin origin{{3, 0, 0, 100}, {0, 2}};
  Config again;
  Origin parsed;
  ASSERT_TRUE(parse_replay(replay_line(config, origin, {}), again, parsed));
  std::vector<Op> ops;
  ASSERT_TRUE(nth_sequence(100, 3, false, ops));
  ASSERT_EQ(again.ops.size(), 2U);
  EXPECT_EQ(to_string(again.ops[1]), to_string(ops[2]));
}

// A line from before there were readers had none.
TEST(Replay, TellsWhichImagesAreReadFirst) {
  Config config;
  config.readers = 5;
  Config again;
  Origin parsed;
  ASSERT_TRUE(parse_replay(replay_line(config, {{3, 0, 0}, {0, 2}}, {}), again, parsed));
  EXPECT_EQ(again.readers, 5U);
  config.readers = 0;
  ASSERT_TRUE(parse_replay(replay_line(config, {{3, 0, 0}, {0, 2}}, {}), again, parsed));
  EXPECT_EQ(again.readers, 0U);
}

TEST(Replay, RefusesWhatIsNoLine) {
  const std::string good =
      "spec=wbtree keys=u64 domain=memory seed=1 ops=20 keep=0-19 crash=12/0of2";
  const auto parses = [](const std::string& line) {
    Config config;
    Origin origin;
    return parse_replay(line, config, origin);
  };
  EXPECT_TRUE(parses(good));
  for (const char* const more :
       {" keys=words", " domain=tape", " ops=99999999999", " drop=a.cpp:1:both", " crash=1/2of2",
        " crash=1/0of0", " pool=100", " crash=1/+1/+1/+1/", " keep=5-", " what=1", " word"}) {
    EXPECT_FALSE(parses(good + more)) << more;
  }
  EXPECT_FALSE(parses("keys=u64"));
}

// What an execution finds does not depend on how long the file is, as long as it need not grow.
TEST(Checker, LargePoolsAreExploredAlike) {
  Config config = small(kSlotBitmap, 20);
  config.most = 8;
  const Report one = run(config);
  config.pool_bytes = std::uint64_t{8} << 20;
  const Report large = run(config);
  ASSERT_FALSE(one.failure || large.failure);
  EXPECT_EQ(one.crash_points, large.crash_points);
  EXPECT_EQ(one.executions, large.executions);
  Config again;
  Origin parsed;
  ASSERT_TRUE(parse_replay(replay_line(config, {{3, 0, 0}, {0, 2}}, {}), again, parsed));
  EXPECT_EQ(again.pool_bytes, config.pool_bytes);
}

// No failure is one thing, a crash that is not there another.
TEST(Replay, KnowsWhetherItsCrashWasMet) {
  Config config = small(kBitmapLeaf, 5);
  config.replay = {{20, {}}};
  EXPECT_TRUE(run(config).replayed);
  config.replay = {{1'000'000, {}}};
  EXPECT_FALSE(run(config).replayed);
}

TEST(Audit, NoticesAStoreThatEscapedTheHooks) {
  Arena arena(1 << 20, 2, Model{});
  EXPECT_EQ(arena.audit(true, 1 << 20), "");
  *reinterpret_cast<volatile std::uint64_t*>(arena.base(0) + 4096) = 1;  // no hooks in this file
  EXPECT_NE(arena.audit(true, 1 << 20).find("escaped"), std::string::npos);
}

// An escaped store is not durable because the hooks see the next one to its line.
TEST(Audit, NoticesAnEscapedStoreBeforeAStoreToItsLine) {
  Arena arena(1 << 20, 2, Model{});
  auto* const word = reinterpret_cast<volatile std::uint64_t*>(arena.base(0) + 4096);
  word[0] = 1;
  arena.will_write(4104, 8);
  word[1] = 2;
  arena.wrote(4104, 8, nullptr, 0);
  EXPECT_NE(arena.audit(false, 0).find("escaped"), std::string::npos);
}

// In recovery and in schedules, too.
TEST(Audit, LooksAtEveryLevelThatCanCrash) {
  struct Told final : Crasher {
    void crash_point() override {}
    void escaped(const std::string& what) override { text = what; }
    std::string text;
  } told;
  Arena arena(1 << 20, 3, Model{});
  Recorder recorder(arena);
  recorder.crasher = &told;
  arena.enter();
  arena.begin({});
  auto* const word = reinterpret_cast<volatile std::uint64_t*>(arena.base(1) + 4096);
  recorder.before_store(4096, 8);
  word[0] = 1;
  recorder.after_store(4096, 8, nullptr);
  recorder.fencing(pmem::Site::current());
  EXPECT_EQ(told.text, "");
  word[1] = 2;
  recorder.fencing(pmem::Site::current());
  EXPECT_NE(told.text.find("escaped"), std::string::npos);
}

// Where fences do not wait, src/pmwcas takes another way: it flushes nothing.
TEST(Checker, RunsTheLibraryInTheDomainThatItChecks) {
  Config config = small("bztree", 60);
  config.record_only = true;
  const Report memory = run(config);
  config.domain = Domain::cache;
  const Report cache = run(config);
  ASSERT_FALSE(memory.failure || cache.failure);
  EXPECT_LT(cache.flushes, memory.flushes / 2);
}

// Table 3 of the wB+-Tree paper. Its formulas for slot+bitmap nodes are means over places in lines
// and words that ours does not quite have: slot arrays are stored by words.
TEST(Counts, AreThePapers) {
  const std::vector<Count> counts = count_table3();
  EXPECT_EQ(print_counts(counts), 0);
  unsigned compared = 0;
  for (const Count& count : counts) {
    if (!count.paper) continue;
    ++compared;
    const bool exact = std::string(count.nodes) != "slot+bitmap nodes";
    EXPECT_DOUBLE_EQ(count.measured.fences, count.paper->fences) << count.nodes << count.operation;
    EXPECT_NEAR(count.measured.words, count.paper->words, exact ? 1e-9 : 0.25)
        << count.nodes << ' ' << count.operation;
    EXPECT_NEAR(count.measured.flushes, count.paper->flushes, exact ? 1e-9 : 0.75)
        << count.nodes << ' ' << count.operation;
    EXPECT_GT(count.measured.bits_flipped, 0) << count.nodes << ' ' << count.operation;
    // 512 bits of each line at 2 pJ, and 16 pJ for each bit written.
    EXPECT_DOUBLE_EQ(count.measured.picojoules(),
                     count.measured.lines_read * 1024 + count.measured.bits_flipped * 16);
  }
  EXPECT_EQ(compared, 6U);
}

// What dies is one job; the others answer.
TEST(Processes, OneThatDiesIsTold) {
  std::map<std::size_t, Ended> all;
  const auto run = [](std::size_t job) {
    std::printf("job %zu", job);
    std::fflush(stdout);
    if (job == 1) ::_exit(9);
    if (job == 2) std::raise(SIGKILL);
    return "answer " + std::to_string(job);
  };
  in_processes({4, 2, 0, run, [&](std::size_t job, const Ended& ended) {
                  all[job] = ended;
                  return true;
                }});
  ASSERT_EQ(all.size(), 4U);
  for (const auto& [job, ended] : all) EXPECT_EQ(ended.printed, "job " + std::to_string(job));
  EXPECT_EQ(all[0].answer, "answer 0");
  EXPECT_EQ(all[3].answer, "answer 3");
  EXPECT_EQ(all[0].died + all[3].died + all[1].answer + all[2].answer, "");
  EXPECT_EQ(all[1].died, "the process ended with status 9");
  EXPECT_NE(all[2].died, "");
}

// Its time is no verdict on it.
TEST(Processes, OneThatTakesTooLongIsTold) {
  const auto run = [](std::size_t) {
    std::raise(SIGXCPU);  // as its limit does
    return std::string();
  };
  in_processes({1, 1, 0.01, run, [](std::size_t, const Ended& ended) {
                  EXPECT_TRUE(ended.out_of_time);
                  return true;
                }});
}

}  // namespace
}  // namespace everleaf::crash
