// src/pmwcas without a tree: every crash of one thread, every schedule of a few, threads that stop
// for ever; and proof that the rare paths were taken.
#include "threads/words.hpp"

#include <cstdio>
#include <map>
#include <string>

#include <gtest/gtest.h>

#include "threads/new_words.hpp"

namespace everleaf::crash {
namespace {

using Reached = std::map<std::string, std::uint64_t, std::less<>>;

WordsConfig config_of(const char* program) {
  WordsConfig config;
  config.program = *parse_words(program);
  config.random_runs = 0;
  return config;
}

WordsReport explore(const WordsConfig& config) {
  WordsReport report = run_words(config);
  EXPECT_EQ(report.failure, "") << replay_line(config, report);
  EXPECT_TRUE(report.complete);
  EXPECT_EQ(report.sampled_points, 0U) << to_string(config.program);
  EXPECT_GT(report.executions, 0U);
  return report;
}

WordsCall call(std::vector<WordChange> changes, std::uint64_t invoked, std::uint64_t returned,
               bool succeeded, bool later = false) {
  WordsCall one;
  one.changes = std::move(changes);
  one.ready = true;
  one.invoked = invoked;
  one.returned = returned;
  one.succeeded = succeeded;
  one.later = later;
  return one;
}

WordChange change(std::size_t word, std::uint64_t expected, std::uint64_t desired) {
  return {WordChange::Kind::values, word, expected, desired};
}

WordsCall read(std::size_t word, std::uint64_t value, std::uint64_t invoked,
               std::uint64_t returned) {
  WordsCall one;
  one.reads = word;
  one.value = value;
  one.invoked = invoked;
  one.returned = returned;
  return one;
}

constexpr std::uint64_t kPending = WordsCall::kPending;

TEST(WordOrders, AllWordsOrNone) {
  const auto both = [](std::uint64_t returned) {
    return std::vector{call({change(0, 1, 2), change(1, 1, 3)}, 1, returned, true)};
  };
  EXPECT_TRUE(explained(both(2), {1, 1}, {2, 3}));
  EXPECT_FALSE(explained(both(2), {1, 1}, {1, 1}));
  EXPECT_FALSE(explained(both(2), {1, 1}, {2, 1}));
  EXPECT_TRUE(explained(both(kPending), {1, 1}, {1, 1}));
  EXPECT_TRUE(explained(both(kPending), {1, 1}, {2, 3}));
  EXPECT_FALSE(explained(both(kPending), {1, 1}, {1, 3}));
}

TEST(WordOrders, AnswersAndTime) {
  EXPECT_TRUE(explained({call({change(0, 5, 2)}, 1, 2, false)}, {1}, {1}));
  EXPECT_FALSE(explained({call({change(0, 1, 2)}, 1, 2, false)}, {1}, {1}));
  // A crash takes back what a reader saw.
  EXPECT_FALSE(
      explained({call({change(0, 1, 2)}, 1, kPending, false), read(0, 2, 2, 3)}, {1}, {1}));
  EXPECT_TRUE(explained({call({change(0, 1, 2)}, 1, kPending, false), read(0, 2, 2, 3)}, {1}, {2}));
  EXPECT_FALSE(explained({call({change(0, 1, 2)}, 1, 2, true), read(0, 1, 3, 4)}, {1}, {2}));
  // Two that both believe to have been first.
  EXPECT_FALSE(explained({call({change(0, 1, 2)}, 1, 4, true), call({change(0, 1, 3)}, 2, 3, true)},
                         {1}, {3}));
}

TEST(WordOrders, LaterGivesUpAtomicityAtACrash) {
  const std::vector loose{call({change(0, 1, 2), change(1, 1, 3)}, 1, 2, true, true)};
  for (const std::uint64_t first : {1, 2}) {
    for (const std::uint64_t second : {1, 3})
      EXPECT_TRUE(explained(loose, {1, 1}, {first, second}));
  }
  EXPECT_FALSE(explained(loose, {1, 1}, {4, 1}));
  // Not what was durable before it.
  const std::vector after{call({change(0, 1, 2)}, 1, 2, true),
                          call({change(0, 2, 3)}, 3, 4, true, true)};
  EXPECT_TRUE(explained(after, {1}, {2}));
  EXPECT_FALSE(explained(after, {1}, {1}));
}

TEST(WordPrograms, AreTheirText) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const std::string text = to_string(make_words(seed, 3));
    const auto program = parse_words(text);
    ASSERT_TRUE(program) << text;
    EXPECT_EQ(to_string(*program), text);
  }
  EXPECT_FALSE(parse_words("1,2/2:+1"));
  EXPECT_FALSE(parse_words("1,2/0:"));
  EXPECT_FALSE(parse_words("1,2/r2"));
  EXPECT_FALSE(parse_words("x/r0"));
}

// Creation in blocks that were used before, recovery crashed, and an operation after both.
TEST(NewWords, EveryCrash) {
  for (const Domain domain : {Domain::memory, Domain::disk, Domain::cache}) {
    for (const std::size_t count : {2, 12}) {
      const NewWordsReport report = run_new_words({.domain = domain, .count = count});
      EXPECT_EQ(report.failure, "") << to_string(domain) << ' ' << count << ' ' << report.where;
      EXPECT_EQ(report.sampled_points + report.sampled_nested_points, 0U);
      EXPECT_GT(report.crash_points, 3U);
      EXPECT_GT(report.nested_points, 10U);
    }
  }
}

TEST(NewWords, EveryDroppedFlushAndFenceIsNoticed) {
  const NewWordsReport all = run_new_words({.collect_sites = true});
  unsigned own = 0;
  for (const auto& [site, use] : all.sites) {
    if (!site.file.starts_with("src/words/")) continue;
    ++own;
    EXPECT_NE(run_new_words({.dropped = site}).failure, "") << to_string(site);
  }
  EXPECT_GE(own, 3U);
}

// W1 to W6, A1 to A8: every image of every crash, recovery crashed, and work after both.
TEST(Words, OneThreadEveryCrash) {
  for (const WordsProgram& program : lone_programs()) {
    for (const Domain domain : {Domain::memory, Domain::cache}) {
      EXPECT_GT(explore(all_crashes_of(program, domain)).nested_points, 0U);
    }
  }
}

// The lane of a thread that comes for the first time, in memory that was used before.
TEST(Words, ANewLane) {
  WordsConfig config = config_of("0,0/0:+1+1:+1,0:+1");
  config.preemptions = 0;
  config.new_lanes = true;
  const WordsReport report = run_words(config);
  EXPECT_EQ(report.failure, "") << replay_line(config, report);
  EXPECT_GT(report.executions, 0U);
}

// Where words of a line reach the medium in any order there are more images.
TEST(Words, OneThreadEveryCrashOnADisk) {
  for (const char* const text : {"7/0:+1", "0,0/0:+1+1:+1", "b/0:b"}) {
    WordsConfig config = config_of(text);
    config.preemptions = 0;
    config.nested = 2;
    config.domain = Domain::disk;
    config.then = {work_after(config.program).front()};
    const WordsReport report = run_words(config);
    EXPECT_EQ(report.failure, "") << replay_line(config, report);
    EXPECT_GT(report.nested_points, 0U);
  }
}

// Two threads, two words each, no bound on preemptions: every schedule, but for the order of steps
// that do not depend on each other, and every crash before every fence and answer in them. Of two
// of them every crash of every recovery, too, and of the work after it. The other programs of this
// list take longer: `make crash`.
TEST(Words, AllSchedules) {
  const auto programs = pair_programs();
  for (std::size_t i = 0; i < 3; ++i) {
    const WordsConfig config = all_schedules_of(programs[i], i < 2 ? 2 : 1, Domain::memory);
    const WordsReport report = explore(config);
    std::printf("%s: %llu schedules, %llu redundant, %llu crash points, %llu executions\n",
                to_string(config.program).c_str(),
                static_cast<unsigned long long>(report.schedules),
                static_cast<unsigned long long>(report.redundant),
                static_cast<unsigned long long>(report.crash_points),
                static_cast<unsigned long long>(report.executions));
    EXPECT_GT(report.schedules, 10'000U);
    EXPECT_EQ(report.nested_points != 0, i < 2);
    for (const char* const path :
         {"W3: a helper's install", "W3: an install is taken away", "W3: a marker is taken away"}) {
      EXPECT_TRUE(report.reached.contains(path)) << path;
    }
    if (i != 1) {  // whose calls name the values and read none
      EXPECT_TRUE(report.reached.contains("R1: a reader flushes"));
    }
  }
}

// The same for one word that need not be durable, which is swapped without a descriptor.
TEST(Words, ASingleWordInAllSchedules) {
  for (const char* const text : {"0,0/0:+1+1:+1/0:+1~", "0,0/0:+1+1:+1/1:+1~"}) {
    const WordsConfig config = all_schedules_of(*parse_words(text), 2, Domain::memory);
    const WordsReport report = explore(config);
    EXPECT_GT(report.schedules, 50U) << text;
    EXPECT_GT(report.nested_points, 0U);
    for (const char* const path :
         {"W3: a single word is swapped", "W3: a single word has changed", "helping: decided"}) {
      EXPECT_TRUE(report.reached.contains(path)) << text << ": " << path;
    }
  }
}

// Words in the same and in opposite order, one that is shared, the same ones; one word and three;
// blocks; operations that are not durable at their return.
constexpr const char* kTwo[] = {
    "0/0:+1/0:+1",
    "0,0/0:+1+1:+1/0:+1+1:+1",
    "0,0/0:0>1+1:0>1/1:0>2+0:0>2",
    "0,0,0/0:+1+1:+1/1:+1+2:+1",
    "0,0,0/0:+1+1:+1/2:+1+1:+1,r0",
    "0,0/0:+1+1:+1/0:+1,r1",
    "0,0/0:+1+1:+1/1:=+0:=",
    "0,0,0/0:+1+1:+1+2:+1/2:+1+0:+1",
    "0,0/0:+1+1:+1~/0:+1+1:+1",
    "0,0/0:+1+1:+1,0:+1~/1:+1~,0:+1~",
    "0,0/0:+1+1:5>6/0:+1+1:+1",
    "b/0:b/0:b",
    "b,0/0:b+1:+1/0:-+1:+1",
};

TEST(Words, TwoThreads) {
  for (const char* const text : kTwo) {
    WordsConfig config = config_of(text);
    config.preemptions = 2;
    config.random_runs = 100;
    for (const Domain domain : {Domain::memory, Domain::disk, Domain::cache}) {
      config.domain = domain;
      EXPECT_GT(explore(config).schedules, 100U);
    }
  }
}

TEST(Words, TwoThreadsWithThreePreemptions) {
  for (const char* const text : {"0,0/0:+1+1:+1/0:+1+1:+1", "0,0/0:0>1+1:0>1/1:0>2+0:0>2"}) {
    WordsConfig config = config_of(text);
    config.preemptions = 3;
    EXPECT_GT(explore(config).schedules, 100U);
  }
}

TEST(Words, ThreeThreads) {
  for (const char* const text :
       {"0,0/0:+1+1:+1/0:+1+1:+1/0:+1,r1", "0,0,0/0:+1+1:+1/1:+1+2:+1/2:+1+0:+1",
        "0,0/0:=+1:=/0:+1+1:+1/1:+1~"}) {
    WordsConfig config = config_of(text);
    config.preemptions = 1;
    config.random_runs = 300;
    (void)explore(config);
  }
}

// ABA: values that come back while another operation on them is under way, each time by another
// operation of the same descriptors.
TEST(Words, ValuesThatComeBack) {
  for (const char* const text :
       {"0,0/0:0>1+1:0>1/0:0>2+1:0>2,0:2>0+1:2>0,0:0>2+1:0>2,0:2>0+1:2>0",
        "0,0/0:0>1+1:0>1,0:1>0+1:1>0/1:0>1+0:0>1,1:1>0+0:1>0", "0,0/0:0>1+1:0>1/0:0>2,0:2>0"}) {
    WordsConfig config = config_of(text);
    config.preemptions = 2;
    config.random_runs = 100;
    for (const Domain domain : {Domain::memory, Domain::cache}) {
      config.domain = domain;
      EXPECT_GT(explore(config).schedules, 100U);
    }
  }
}

// Who is stopped for ever, anywhere, holds up nobody.
TEST(Words, NobodyWaits) {
  bool without_lock = false;
  for (const char* const text :
       {"0,0/0:+1+1:+1!/0:+1+1:+1!", "0,0,0/0:+1+1:+1+2:+1!/2:+1+1:+1!,0:+1!",
        "0,0,0/0:+1+1:+1!/1:+1+2:+1!/2:+1+0:+1!", "0,0/0:+1+1:+1~!/1:+1+0:+1!",
        "b,0/0:b+1:+1!/0:b+1:+1!",
        "b,b/0:b!,1:b!,0:b!,1:b!,0:b!,0:-!/0:b!,1:b!,0:b!,1:b!,0:b!,0:-!"}) {
    // In `cache` references go at once (W6).
    for (const Domain domain : {Domain::memory, Domain::cache, Domain::disk}) {
      WordsConfig config = config_of(text);
      config.domain = domain;
      config.preemptions = 0;
      config.park = true;
      const WordsReport report = explore(config);
      EXPECT_GT(report.schedules, 50U);
      without_lock = without_lock || report.reached.contains("a lock is given up");
    }
  }
  EXPECT_TRUE(without_lock) << "the heap's lock was never in the way";
}

// --- The rare paths ------------------------------------------------------------------------------

void expect_reached(const WordsReport& report, std::string_view path) {
  const auto found = report.reached.find(path);
  EXPECT_TRUE(found != report.reached.end() && found->second != 0) << path;
}

TEST(WordPaths, Stories) {
  for (const WordsStory& story : word_stories()) {
    for (const Domain domain : {Domain::memory, Domain::disk, Domain::cache}) {
      const WordsReport report = explore(crash::config_of(story, domain));
      if (domain == Domain::memory && !story.path.empty()) expect_reached(report, story.path);
    }
  }
}

TEST(WordPaths, ALateMarkerIsTakenAway) {
  WordsConfig config = config_of("0,0/0:+1+1:+1/0:+1+1:+1/1:+1");
  config.preemptions = 2;
  config.deadline = Deadline::within(60);
  const WordsReport report = run_words(config);
  EXPECT_EQ(report.failure, "") << replay_line(config, report);
  expect_reached(report, "W3: a marker is taken away");
}

TEST(WordPaths, TheOthers) {
  Reached all;
  for (const char* const text :
       {"0/0:+1,0:+1/0:+1", "0,0/0:+1+1:+1/0:+1+1:+1", "b,0/0:b+1:+1/0:b+1:0>1", "b/0:-/0:b"}) {
    WordsConfig config = config_of(text);
    config.preemptions = 1;
    for (const auto& [path, times] : explore(config).reached) all[path] += times;
    config.nested = 2;
    config.preemptions = 0;
    for (const auto& [path, times] : explore(config).reached) all[path] += times;
  }
  for (const char* const path :
       {"helping: decided", "helping: decided, made durable by F1",
        "W1: a block that somebody else freed", "A1: blocks of a free descriptor",
        "A2: not all are", "A3: all words are installed", "A4: an allocated block",
        "A5: a freed block", "A6: an install"}) {
    EXPECT_GT(all[path], 0U) << path;
  }
}

}  // namespace
}  // namespace everleaf::crash
