// The concurrent half of the checker: orders of calls, schedules, programs.
#include <algorithm>
#include <random>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "run.hpp"
#include "threads/concurrent.hpp"
#include "threads/traces.hpp"

namespace everleaf::crash {
namespace {

using Kind = Call::Kind;

Call call(Kind kind, std::uint64_t value, std::uint64_t invoked, std::uint64_t returned,
          Outcome outcome = Outcome::done) {
  return {kind, 1, value, invoked, returned, outcome};
}

TEST(History, OrdersThatExist) {
  const std::vector<Call> overlapping{call(Kind::insert, 7, 1, 4),
                                      call(Kind::find, 0, 2, 3, Outcome::absent)};
  EXPECT_TRUE(has_order(overlapping, {}, 7));
  // Found before it was there for others: the insertion comes first, in any case.
  const std::vector<Call> seen{call(Kind::insert, 7, 1, 6), call(Kind::find, 7, 2, 3)};
  EXPECT_TRUE(has_order(seen, {}, 7));
  const std::vector<Call> pending{call(Kind::remove, 0, 1, Call::kPending)};
  EXPECT_TRUE(has_order(pending, 5, {}));
  EXPECT_TRUE(has_order(pending, 5, 5));
}

TEST(History, OrdersThatDoNot) {
  const std::vector<Call> stale{call(Kind::insert, 7, 1, 2),
                                call(Kind::find, 0, 3, 4, Outcome::absent)};
  EXPECT_FALSE(has_order(stale, {}, 7));
  const std::vector<Call> lost{call(Kind::insert, 7, 1, 2)};
  EXPECT_FALSE(has_order(lost, {}, {}));
  // A reader saw what the crash then took away.
  const std::vector<Call> undone{call(Kind::insert, 7, 1, Call::kPending),
                                 call(Kind::find, 7, 2, 3)};
  EXPECT_FALSE(has_order(undone, {}, {}));
  const std::vector<Call> twice{call(Kind::insert, 7, 1, 4), call(Kind::insert, 8, 2, 3)};
  EXPECT_FALSE(has_order(twice, {}, 7));
}

// More than fit into a word.
TEST(History, OrdersManyCalls) {
  std::vector<Call> calls;
  for (std::uint64_t i = 1; i <= 100; ++i) calls.push_back(call(Kind::update, i, 2 * i, 2 * i + 1));
  EXPECT_TRUE(has_order(calls, 0, 100));
  EXPECT_FALSE(has_order(calls, 0, 99));
  const std::vector<Recovered> last{{1, 0, 100}};
  const std::vector<Recovered> lost{{1, 0, 99}};
  EXPECT_TRUE(has_cut(calls, last, 5));
  EXPECT_FALSE(has_cut(calls, lost, 5));
}

// What nobody would run or judge.
TEST(Program, RefusesWhatIsTooMuch) {
  const auto many = [](const char* what, std::size_t n) {
    std::string text = "2,4";
    for (std::size_t i = 0; i < n; ++i) text += what;
    return text;
  };
  EXPECT_TRUE(parse_program(many("/f2", 8)));
  EXPECT_FALSE(parse_program(many("/f2", 9)));
  EXPECT_TRUE(parse_program("2/f511"));
  EXPECT_FALSE(parse_program("2/f512"));
  EXPECT_FALSE(parse_program("2,512/f2"));
  EXPECT_TRUE(parse_program("2/f2" + many(",f2", 254).substr(3)));
  EXPECT_FALSE(parse_program("2/f2" + many(",f2", 256).substr(3)));
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    EXPECT_LE(make_program(seed, 8, true).threads.size(), 8U);
  }
}

Call in_epochs(Kind kind, std::uint32_t key, std::uint64_t value, std::uint64_t invoked,
               std::uint64_t first, std::uint64_t last, Outcome outcome = Outcome::done) {
  return {kind, key, value, invoked, invoked + 1, outcome, first, last};
}

// Recovered to the end of epoch 5.
TEST(Cut, IsOfAllKeysTogether) {
  const std::vector<Call> apart{in_epochs(Kind::insert, 1, 7, 1, 5, 5),
                                in_epochs(Kind::insert, 2, 8, 3, 6, 6)};
  const auto left = [](Held first, Held second) {
    return std::vector<Recovered>{{1, {}, first}, {2, {}, second}};
  };
  EXPECT_TRUE(has_cut(apart, left(7, {}), 5));
  EXPECT_FALSE(has_cut(apart, left({}, {}), 5));  // of a durable epoch
  EXPECT_FALSE(has_cut(apart, left(7, 8), 5));    // of an epoch that is not
  // The second was there before the first, as a reader tells; each of them alone may be lost.
  std::vector<Call> seen{{Kind::insert, 1, 7, 1, 8, Outcome::done, 5, 6},
                         in_epochs(Kind::insert, 2, 8, 2, 6, 6)};
  EXPECT_TRUE(has_cut(seen, left(7, {}), 5));
  seen.push_back(in_epochs(Kind::find, 1, 0, 4, 6, 6, Outcome::absent));
  EXPECT_FALSE(has_cut(seen, left(7, {}), 5));
  EXPECT_TRUE(has_cut(seen, left({}, {}), 5));
  seen[0].returned = Call::kPending;
  EXPECT_FALSE(has_cut(seen, left(7, {}), 5));
  // What was read is lost with what wrote it.
  const std::vector<Call> read{in_epochs(Kind::insert, 1, 7, 1, 6, 6),
                               in_epochs(Kind::find, 1, 7, 3, 6, 6)};
  EXPECT_TRUE(has_cut(read, std::vector<Recovered>{{1, {}, {}}}, 5));
}

TEST(Scheduler, FindsTheLostUpdateAndReplaysIt) {
  Scheduler scheduler;
  std::vector<Switch> losing;
  unsigned schedules = 0;
  std::vector<std::vector<Switch>> open{{}};
  for (std::size_t next = 0; next < open.size() && losing.empty(); ++next) {
    int shared = 0;
    const Scheduler::Body add = [&] {
      const int seen = shared;
      Scheduler::active()->point();
      shared = seen + 1;
    };
    const std::vector<Scheduler::Body> bodies{add, add};
    const std::vector<Switch> switches = open[next];
    Replay policy(switches);
    const Trace trace = scheduler.run(bodies, policy, 100);
    ++schedules;
    EXPECT_EQ(trace.stuck, "");
    if (shared != 2) losing = switches;
    if (!switches.empty()) continue;
    for (std::uint64_t point = 0; point < trace.points; ++point) {
      for (unsigned thread = 0; thread < 2; ++thread) open.push_back({{point, thread}});
    }
  }
  EXPECT_EQ(losing.size(), 1U);
  EXPECT_GT(schedules, 1U);
}

TEST(Scheduler, SaysThatThreadsAreStuck) {
  Scheduler scheduler;
  const std::vector<Scheduler::Body> bodies{[] { Scheduler::active()->block_on(&kMostFibers); },
                                            [] {
                                              for (int i = 0; i < 3; ++i)
                                                Scheduler::active()->point();
                                            }};
  Replay policy({});
  EXPECT_NE(scheduler.run(bodies, policy, 100).stuck, "");
  const std::vector<Scheduler::Body> endless{[] {
    while (true) Scheduler::active()->point();
  }};
  EXPECT_NE(scheduler.run(endless, policy, 100).stuck, "");
  // A parked thread does not hold up the others.
  bool done = false;
  const std::vector<Scheduler::Body> parked{[] { Scheduler::active()->park(); },
                                            [&done] { done = true; }};
  EXPECT_EQ(scheduler.run(parked, policy, 100).stuck, "");
  EXPECT_TRUE(done);
}

// Three points each. A thread that only reads is stopped at each of its points before any other is.
TEST(Explorer, StopsTheSleeperFirst) {
  Scheduler scheduler;
  const Scheduler::Body walk = [] {
    for (int i = 0; i < 3; ++i) Scheduler::active()->point();
  };
  const std::vector<Scheduler::Body> bodies{walk, walk};
  Schedules what;
  what.preemptions = 1;
  what.random_runs = 0;
  what.sleeper = 1;
  std::vector<unsigned> stopped;
  Explorer(what).all([&](Policy& policy, Trace& trace) {
    trace = scheduler.run(bodies, policy, 100);
    const auto switches = switches_of(trace);
    if (switches.size() == 3) stopped.push_back(switches.front().to);  // one, the other, and back
    return true;
  });
  EXPECT_EQ(stopped, (std::vector<unsigned>{1, 1, 1, 0, 0, 0}));
}

TEST(Programs, FillAndEmptyLeavesBesideAReader) {
  for (const std::uint64_t seed : {1, 9, 17}) {
    for (const bool ticks : {false, true}) {
      const Program program = make_program(seed, 2, ticks);
      std::vector<std::size_t> changes;
      for (const auto& calls : program.threads) {
        if (calls.front().kind == Kind::tick) continue;
        changes.push_back(
            static_cast<std::size_t>(std::ranges::count_if(calls, [](const Call& one) {
              return one.kind == Kind::insert || one.kind == Kind::remove;
            })));
      }
      ASSERT_EQ(changes.size(), 2U);
      EXPECT_EQ(changes[0], 0U);
      EXPECT_GE(changes[1], 9U);
    }
  }
}

TEST(Programs, AreTheirText) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const std::string text = to_string(make_program(seed, 3, seed % 2 == 0));
    const auto program = parse_program(text);
    ASSERT_TRUE(program) << text;
    EXPECT_EQ(to_string(*program), text);
  }
  const auto program = parse_program("1,2,!1/f1");
  ASSERT_TRUE(program);
  EXPECT_FALSE(program->begins_with(1));
  EXPECT_TRUE(program->begins_with(2));
  EXPECT_FALSE(parse_program("1,2/x4"));
  EXPECT_FALSE(parse_program("1,2/i"));
  EXPECT_FALSE(parse_program("one/i1=2"));
}

// A leaf is unlinked while the leaf before it, under another parent, splits (128-byte nodes).
constexpr const char* kTwoParents =
    "2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,31,32,34,35,36,37,"
    "38,39,40,41,30/r34,r35,r36,r37,r38/i33=1";

// A thread that answers after it has read what the other one's crash can lose.
TEST(Concurrent, WhatIsNotDurableIsNotAnswered) {
  Config config;
  config.spec = "wbtree:structure=bitmap-leaf:node=128";
  config.ops = {{Do::insert, 5, 1}, {Do::update, 5, 3}};
  config.collect_sites = config.record_only = true;
  const Report sites = run(config);
  unsigned noticed = 0;
  for (const auto& [site, use] : sites.sites) {
    if (!site.file.ends_with("wbtree/write.cpp") || site.act != Act::fence) continue;
    ConcurrentConfig concurrent;
    concurrent.spec = config.spec;
    concurrent.program = *parse_program("2,4,6/i5=1/f5");
    concurrent.preemptions = 1;
    concurrent.dropped = site;
    const std::string failure = run_concurrent(concurrent).failure;
    noticed += failure.find("after reading") != std::string::npos ? 1 : 0;
    concurrent.dropped.reset();
    EXPECT_EQ(run_concurrent(concurrent).failure, "");
  }
  EXPECT_GE(noticed, 1U);
}

// Splits, unlinking and scans that meet: every schedule with one preemption, every crash in them.
// Programs have 8-byte and bytes keys by turns: both for each would take twice as long.
TEST(Concurrent, NothingIsFoundInASoundTree) {
  KeyType keys = KeyType::u64;
  for (const TreeInfo& tree : trees()) {
    for (const std::string_view spec : tree.test_specs) {
      for (const char* const text :
           {"2,4,6,8,10,12,14/r14/i5=1,f14", "2,4,6/s0/r4,i5=1", "2,4,6,8,10,12/i3=1/i5=2,u4=3",
            "/i1=1,r1/p1=2,f1", "2,4,6,8,10,12,14,16,18,20,22/i3=1,t0,r4/t0,u4=2", kTwoParents}) {
        ConcurrentConfig config;
        config.spec = spec;
        config.keys = keys;
        config.program = *parse_program(text);
        config.preemptions = 1;
        config.random_runs = 10;
        config.most = 6;  // without fences in between, stores make very many images
        const ConcurrentReport report = run_concurrent(config);
        EXPECT_EQ(report.failure, "") << spec << (keys == KeyType::u64 ? " u64 " : " bytes ")
                                      << text << " switches " << to_string(report.switches);
        EXPECT_TRUE(report.complete);
        EXPECT_GT(report.schedules, 20U);
        EXPECT_GT(report.executions, 0U);
        keys = keys == KeyType::u64 ? KeyType::bytes : KeyType::u64;
      }
      // An even number of programs: or each would always have the same kind.
      keys = keys == KeyType::u64 ? KeyType::bytes : KeyType::u64;
    }
  }
}

// A block may be the first of its slab: its allocation stores and fences before the nodes are
// locked, when what was read of them may not be durable yet.
void expect_sound(std::string_view spec, KeyType keys, const char* program) {
  ConcurrentConfig config;
  config.spec = spec;
  config.keys = keys;
  config.program = *parse_program(program);
  config.preemptions = 2;
  config.random_runs = 0;
  config.crashes = false;
  const ConcurrentReport report = run_concurrent(config);
  EXPECT_EQ(report.failure, "") << spec << " switches " << to_string(report.switches);
  EXPECT_TRUE(report.complete);
  EXPECT_GT(report.schedules, 20U);
}

TEST(Concurrent, NothingIsAllocatedAfterReadsThatMayBeLost) {
  for (const TreeInfo& tree : trees()) {
    if (tree.name == "bztree") continue;  // short keys lie in its leaves
    expect_sound(tree.test_specs.front(), KeyType::bytes, "2/r2,p2=3/i0=4");
  }
  expect_sound("wbtree:node=128", KeyType::u64, "2,4,6,8,10,12/r2,i1=9/i3=5");
}

// --- All schedules -------------------------------------------------------------------------------

using Code = std::vector<std::vector<Touch>>;  // of each thread, its steps

Code make_code(std::mt19937_64& random) {
  Code code(2 + random() % 2);
  const std::uint64_t units = 1 + random() % 3;
  for (auto& steps : code) {
    steps.resize(1 + random() % (code.size() == 2 ? 5 : 3));
    for (Touch& step : steps) step = {random() % units, random() % 3 != 0};
  }
  return code;
}

// In what order a schedule has the steps that depend on each other: its trace.
std::vector<unsigned> trace_of(const Code& code, const std::vector<unsigned>& schedule) {
  std::vector<std::size_t> done(code.size());
  std::vector<std::pair<unsigned, std::size_t>> steps;
  for (const unsigned thread : schedule) {
    if (done[thread] < code[thread].size()) steps.emplace_back(thread, done[thread]++);
  }
  std::vector<unsigned> order;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      const Touch& a = code[steps[j].first][steps[j].second];
      const Touch& b = code[steps[i].first][steps[i].second];
      if (steps[i].first == steps[j].first || a.unit != b.unit || !(a.stores || b.stores)) continue;
      order.push_back(static_cast<unsigned>(steps[j].first << 24 | steps[j].second << 16 |
                                            steps[i].first << 8 | steps[i].second));
    }
  }
  std::ranges::sort(order);
  return order;
}

void each_schedule(const Code& code, std::vector<std::size_t>& done, std::vector<unsigned>& so_far,
                   std::set<std::vector<unsigned>>& traces) {
  bool more = false;
  for (unsigned thread = 0; thread < code.size(); ++thread) {
    if (done[thread] == code[thread].size()) continue;
    more = true;
    ++done[thread];
    so_far.push_back(thread);
    each_schedule(code, done, so_far, traces);
    so_far.pop_back();
    --done[thread];
  }
  if (!more) traces.insert(trace_of(code, so_far));
}

// Against a list of all of them: no trace is missing, and none is met twice.
TEST(Traces, AreThoseOfAllSchedules) {
  std::mt19937_64 random(1);
  std::size_t most = 0;
  for (unsigned n = 0; n < 300; ++n) {
    const Code code = make_code(random);
    std::set<std::vector<unsigned>> wanted;
    std::vector<std::size_t> done(code.size());
    std::vector<unsigned> so_far;
    each_schedule(code, done, so_far, wanted);
    Scheduler scheduler;
    scheduler.wants_touches = true;
    std::vector<unsigned> ran;
    std::vector<Scheduler::Body> bodies;
    for (unsigned thread = 0; thread < code.size(); ++thread) {
      bodies.emplace_back([&, thread] {
        for (const Touch& step : code[thread]) {
          Scheduler::active()->point();
          Scheduler::active()->touch(step.unit, step.stores);
          ran.push_back(thread);
        }
      });
    }
    std::set<std::vector<unsigned>> met;
    Traces traces;
    EXPECT_TRUE(traces.all(
        [&](Policy& policy, Trace& trace) {
          ran.clear();
          trace = scheduler.run(bodies, policy, 1000);
          met.insert(trace_of(code, ran));
          return true;
        },
        {}));
    EXPECT_EQ(met, wanted) << "code " << n;
    EXPECT_EQ(traces.schedules() - traces.redundant(), wanted.size()) << "code " << n;
    most = std::max(most, wanted.size());
  }
  EXPECT_GT(most, 30U);
}

}  // namespace
}  // namespace everleaf::crash
