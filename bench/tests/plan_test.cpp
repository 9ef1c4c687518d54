#include "plan.hpp"

#include <array>
#include <chrono>
#include <numeric>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "failure.hpp"
#include "workloads/named.hpp"

namespace everleaf::bench {
namespace {

// The message of the refusal, which must be one of usage.
std::string refusal_of(const Arguments& arguments) {
  try {
    make_plan(arguments);
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.exit_code(), kExitUsage);
    return failure.what();
  }
  ADD_FAILURE() << "the plan was accepted";
  return {};
}

template <class Text>
Arguments with(Text Arguments::*field, const std::string& text) {
  Arguments arguments;
  arguments.index = "absl-btree";
  arguments.*field = text;
  return arguments;
}

TEST(Plan, Defaults) {
  const Plan plan = make_plan({});
  EXPECT_EQ(plan.indexes.size(), trees().size() + 1);
  EXPECT_EQ(plan.phases.size(), 6U);
  EXPECT_EQ(plan.ops, plan.records);
  EXPECT_FALSE(plan.domain.has_value());
}

TEST(Plan, ListsAreSplitAtCommasOnly) {
  const Plan plan = make_plan(with(&Arguments::index, "wbtree:a=b:c=4,std-map,absl-btree"));
  ASSERT_EQ(plan.indexes.size(), 3U);
  EXPECT_EQ(plan.indexes[0].name, "wbtree:a=b:c=4");
  EXPECT_FALSE(plan.indexes[0].rival.has_value());
  EXPECT_EQ(plan.indexes[1].rival, Rival::std_map);
  EXPECT_EQ(plan.indexes[2].rival, Rival::absl_btree);
}

TEST(Plan, RefusesWhatItDoesNotKnowByName) {
  EXPECT_NE(refusal_of(with(&Arguments::index, "oak")).find("unknown index 'oak'"),
            std::string::npos);
  EXPECT_NE(refusal_of(with(&Arguments::workload, "load,fnd")).find("'fnd'"), std::string::npos);
  EXPECT_NE(refusal_of(with(&Arguments::distribution, "normal")).find("'normal'"),
            std::string::npos);
  EXPECT_NE(refusal_of(with(&Arguments::domain, "tape")).find("'tape'"), std::string::npos);
  EXPECT_NE(refusal_of(with(&Arguments::keys, "u32")).find("'u32'"), std::string::npos);
}

TEST(Plan, AMixIsAPhase) {
  const Plan plan = make_plan(
      with(&Arguments::workload, "load,mix:find=80:update=20,mix:find=76:insert=19:remove=5,find"));
  ASSERT_EQ(plan.phases.size(), 4U);
  EXPECT_EQ(plan.phases[0], Phase(Phase::Kind::load));
  EXPECT_EQ(plan.phases[3], Phase(Phase::Kind::find));
  const Phase& updates = plan.phases[1];
  EXPECT_EQ(updates.kind, Phase::Kind::mix);
  EXPECT_EQ(updates.text, "mix:find=80:update=20");
  EXPECT_TRUE(updates.has(Phase::Kind::find) && updates.has(Phase::Kind::update));
  EXPECT_FALSE(updates.has(Phase::Kind::insert) || updates.has(Phase::Kind::remove));
  EXPECT_EQ(updates.percent, (std::array<unsigned, 8>{0, 80, 20, 0, 0, 0, 0, 0}));
  EXPECT_EQ(plan.phases[2].percent, (std::array<unsigned, 8>{0, 76, 0, 19, 0, 5, 0, 0}));
  EXPECT_TRUE(updates.writes());
  EXPECT_FALSE(make_plan(with(&Arguments::workload, "mix:scan=5:find=95")).phases[0].writes());
}

TEST(Plan, RefusesMalformedMixes) {
  for (const auto& [mix, word] : {std::pair{"mix", "mix:find=80:update=20"},
                                  {"mix:", "''"},
                                  {"mix:find=80:update=19", "add up to 99"},
                                  {"mix:find=80:update=21", "add up to 101"},
                                  {"mix:find=100:", "''"},
                                  {"mix:fnd=100", "'fnd'"},
                                  {"mix:load=100", "'load'"},
                                  {"mix:mix=100", "'mix'"},
                                  {"mix:find", "'find'"},
                                  {"mix:find=", "'find='"},
                                  {"mix:find=0:scan=100", "'find=0'"},
                                  {"mix:find=101", "'find=101'"},
                                  {"mix:find=-1:scan=101", "'find=-1'"},
                                  {"mix:find=50.5:scan=49.5", "'find=50.5'"},
                                  {"mix:find=50:find=50", "find twice"},
                                  {"mixed:find=100", "'mixed:find=100'"}}) {
    const std::string refusal = refusal_of(with(&Arguments::workload, mix));
    EXPECT_NE(refusal.find(word), std::string::npos) << mix << ": " << refusal;
  }
}

TEST(Plan, AMixLeavesARecordToFind) {
  Arguments arguments = with(&Arguments::workload, "load,mix:find=50:remove=50,find");
  arguments.records = {1000};
  arguments.ops = 2000;
  EXPECT_NE(refusal_of(arguments).find("all of the 1000 records"), std::string::npos);
  arguments.ops = 1998;
  EXPECT_EQ(make_plan(arguments).phases.size(), 3U);
  arguments.workload = "load,remove,mix:find=50:insert=50";
  EXPECT_NE(refusal_of(arguments).find("leaves nothing for mix:"), std::string::npos);
}

const Phase& phase_of(const Plan& plan) {
  return plan.phases.at(0);
}
Plan plan_of(const std::string& workload) {
  return make_plan(with(&Arguments::workload, workload));
}

// The workloads as their papers state them; by kind: load, find, update, insert, scan, remove,
// upsert, modify.
TEST(Plan, NamedWorkloadsAreThoseOfThePapers) {
  using Percent = std::array<unsigned, Phase::kKinds>;
  struct Expected {
    const char* name;
    Percent percent;
    const char* distribution;  // null: --distribution
  };
  for (const auto& [name, percent, distribution] :
       {Expected{"ycsb-a", {0, 50, 50}, "zipf:0.99"},
        {"ycsb-b", {0, 95, 5}, "zipf:0.99"},
        {"ycsb-c", {0, 100}, "zipf:0.99"},
        {"ycsb-d", {0, 95, 0, 5}, "latest:0.99"},
        {"ycsb-e", {0, 0, 0, 5, 95}, "zipf:0.99"},
        {"ycsb-f", {0, 50, 0, 0, 0, 0, 0, 50}, "zipf:0.99"},
        {"bz-read-only", {0, 100}, nullptr},
        {"bz-read-mostly", {0, 90, 0, 0, 0, 0, 10}, nullptr},
        {"bz-read-heavy", {0, 75, 0, 0, 0, 0, 25}, nullptr},
        {"bz-balanced", {0, 50, 0, 0, 0, 0, 50}, nullptr},
        {"pb-mix", {0, 76, 0, 19, 0, 5}, nullptr},
        {"u1-read-heavy", {0, 80, 0, 10, 0, 10}, "uniform"},
        {"u2-write-heavy", {0, 20, 0, 40, 0, 40}, "uniform"},
        {"l1-write-only", {0, 0, 0, 50, 0, 50}, "latest:0.99"},
        {"z1-read-heavy", {0, 80, 0, 10, 0, 10}, "zipf:1.01"},
        {"z2-write-heavy", {0, 20, 0, 40, 0, 40}, "zipf:1.05"},
        {"lodge-insert", {0, 0, 0, 100}, "uniform"},
        {"lodge-search", {0, 100}, "uniform"},
        {"lodge-skewed-insert", {0, 0, 0, 0, 0, 0, 100}, "hotspot:20:80"},
        {"lodge-1-1", {0, 50, 0, 50}, "uniform"},
        {"lodge-1-2", {0, 66, 0, 34}, "uniform"},
        {"t1", {0, 85, 0, 0, 0, 0, 15}, "zipf:0.6372"},
        {"t2", {0, 50, 0, 0, 0, 0, 50}, "zipf:1.7366"},
        {"t3", {0, 50, 0, 0, 0, 0, 50}, "uniform"}}) {
    SCOPED_TRACE(name);
    const Plan plan = plan_of(name);
    const Phase& phase = phase_of(plan);
    EXPECT_EQ(phase.text, name);
    EXPECT_EQ(phase.kind, Phase::Kind::mix);
    EXPECT_EQ(phase.percent, percent);
    EXPECT_EQ(phase.distribution.has_value(), distribution != nullptr);
    EXPECT_EQ(distribution_of(plan, phase).text, distribution ? distribution : "uniform");
    EXPECT_EQ(phase.varied_scans, phase.text == "ycsb-e");
    const bool is_space =
        phase.text.size() == 2 || phase.text[2] == '-' || phase.text == "lodge-skewed-insert";
    EXPECT_EQ(phase.whole_space,
              is_space && !phase.text.starts_with("bz-") && !phase.text.starts_with("pb-"));
  }
}

TEST(Plan, EveryNamedWorkloadIsOneOfAHundredPercent) {
  EXPECT_EQ(named_workloads().size(), 34U);
  for (const NamedWorkload& workload : named_workloads()) {
    EXPECT_EQ(std::accumulate(workload.phase.percent.begin(), workload.phase.percent.end(), 0U),
              100U)
        << workload.phase.text;
    EXPECT_EQ(plan_of(workload.phase.text).phases.size(), 1U);
  }
}

TEST(Plan, SomeWorkloadsSayHowMuchIsLoaded) {
  EXPECT_EQ(plan_of("ycsb-a").records, 1'000'000U);
  EXPECT_EQ(plan_of("load,u1-read-heavy,u1-write-only").records, 500'000U);
  EXPECT_EQ(plan_of("ycsb-a,z2-write-heavy,l1-read-heavy").records, 5'000'000U);
  EXPECT_EQ(plan_of("z2-write-heavy").ops, 5'000'000U);
  Arguments arguments = with(&Arguments::workload, "u1-read-heavy,u2-read-heavy");
  EXPECT_NE(refusal_of(arguments).find("500000"), std::string::npos);
  arguments.records = {7};
  EXPECT_EQ(make_plan(arguments).records, 7U);
}

TEST(Plan, NothingElseFollowsAWorkloadOnTheWholeSpace) {
  EXPECT_EQ(plan_of("ycsb-a,u1-read-heavy,lodge-skewed-insert,u1-write-only").phases.size(), 4U);
  for (const char* text :
       {"u1-read-heavy,find", "lodge-skewed-insert,ycsb-a", "u1-read-heavy,u1-write-only,scan"}) {
    const std::string refusal = refusal_of(with(&Arguments::workload, text));
    EXPECT_NE(refusal.find("leaves open"), std::string::npos) << text << ": " << refusal;
  }
}

TEST(Plan, KeysHaveALength) {
  for (const auto& [text, bytes] : {std::pair{"u64", 8U},
                                    {"bytes", 20U},
                                    {"bytes:8", 8U},
                                    {"bytes:20", 20U},
                                    {"bytes:128", 128U}}) {
    const Plan plan = make_plan(with(&Arguments::keys, text));
    EXPECT_EQ(plan.key_bytes, bytes);
    EXPECT_EQ(plan.keys == KeyType::u64, text == std::string("u64"));
  }
  for (const char* text : {"bytes:", "bytes:7", "bytes:129", "bytes:x", "bytes:20x", "bytes:-8",
                           "u64:8", "", "byte", "bytes:8:8"}) {
    EXPECT_NE(refusal_of(with(&Arguments::keys, text)).find(text), std::string::npos) << text;
  }
}

TEST(Plan, RefusesMalformedLists) {
  for (const char* text : {"", "find,", ",find", "find,,scan", "find,find", "find,load"}) {
    EXPECT_FALSE(refusal_of(with(&Arguments::workload, text)).empty()) << text;
  }
  for (const char* text : {"0", "-1", "x", "1,", "2x", "1,1", "1024"}) {
    EXPECT_FALSE(refusal_of(with(&Arguments::threads, text)).empty()) << text;
  }
}

TEST(Plan, RefusesBadExponents) {
  for (const char* text : {"zipf", "zipf:", "zipf:0", "zipf:-1", "zipf:x", "zipf:1x", "latest:nan",
                           "latest:inf", "zipf:11", "uniform:1", "ascending:"}) {
    EXPECT_FALSE(refusal_of(with(&Arguments::distribution, text)).empty()) << text;
  }
  for (const char* text :
       {"hotspot", "hotspot:", "hotspot:20", "hotspot:20:", "hotspot::80", "hotspot:0:80",
        "hotspot:100:80", "hotspot:20:100", "hotspot:20:80:1", "hotspot:2x:80"}) {
    EXPECT_FALSE(refusal_of(with(&Arguments::distribution, text)).empty()) << text;
  }
  const Distribution hotspot = parse_distribution("hotspot:20:80");
  EXPECT_EQ(hotspot.hot_records, 20U);
  EXPECT_EQ(hotspot.hot_ops, 80U);
  EXPECT_DOUBLE_EQ(parse_distribution("zipf:0.99").exponent, 0.99);
  EXPECT_EQ(parse_distribution("latest:1").kind, Distribution::Kind::latest);
}

TEST(Plan, EpochsHaveAUnitAndALimit) {
  using std::chrono::nanoseconds;
  EXPECT_EQ(make_plan({}).epoch, PoolOptions{}.epoch_length);
  for (const auto& [text, ns] : {std::pair{"0", 0LL},
                                 {"1us", 1'000LL},
                                 {"1000ns", 1'000LL},
                                 {"50ms", 50'000'000LL},
                                 {"10s", 10'000'000'000LL}}) {
    Arguments arguments = with(&Arguments::epoch, text);
    arguments.index = "bdtree";
    EXPECT_EQ(make_plan(arguments).epoch, nanoseconds(ns)) << text;
  }
  for (const char* text : {"5", "ms", "-5ms", "5 ms", "5m", "5msx", "1.5ms", "0us", "999ns", "11s",
                           "10000000001ns", "18446744073709551615s", "99999999999999999999s"}) {
    EXPECT_NE(refusal_of(with(&Arguments::epoch, text)).find(text), std::string::npos) << text;
  }
}

TEST(Plan, RefusesNumbersOutOfRange) {
  for (const std::uint64_t value : {std::uint64_t{0}, ~std::uint64_t{0}}) {
    for (std::uint64_t Arguments::*field :
         {&Arguments::repeat, &Arguments::scan_length, &Arguments::latency_every}) {
      Arguments arguments;
      arguments.*field = value;
      EXPECT_FALSE(refusal_of(arguments).empty());
    }
    for (std::optional<std::uint64_t> Arguments::*field :
         {&Arguments::ops, &Arguments::batch, &Arguments::values}) {
      Arguments arguments;
      arguments.store = field == &Arguments::values;
      arguments.*field = value;
      EXPECT_FALSE(refusal_of(arguments).empty());
    }
    Arguments arguments;
    arguments.recovery = true;
    arguments.records = {1, value};
    EXPECT_FALSE(refusal_of(arguments).empty());
  }
}

TEST(Plan, ALoadMayBeOneCall) {
  Arguments arguments;
  arguments.records = {50};
  arguments.workload = "bulk-load:70,find";
  const Plan plan = make_plan(arguments);
  EXPECT_EQ(plan.phases[0].kind, Phase::Kind::load);
  EXPECT_EQ(plan.phases[0].fill, 70U);
  EXPECT_EQ(batch_of(plan, plan.phases[0]), 50U);
  EXPECT_EQ(batch_of(plan, plan.phases[1]), 1U);
  arguments.workload = "bulk-load";
  EXPECT_EQ(make_plan(arguments).phases[0].fill, 100U);
  for (const char* wrong : {"bulk-load:9", "bulk-load:101", "bulk-load:", "bulk-load:70x",
                            "bulk-load:070", "find,bulk-load", "load,bulk-load"}) {
    EXPECT_FALSE(refusal_of(with(&Arguments::workload, wrong)).empty()) << wrong;
  }
  arguments.store = true;
  EXPECT_NE(refusal_of(arguments).find("batch-load"), std::string::npos);
}

TEST(Plan, SeveralSizesAreForRecovery) {
  Arguments arguments;
  arguments.records = {5, 7};
  EXPECT_NE(refusal_of(arguments).find("--recovery"), std::string::npos);
  arguments.recovery = true;
  EXPECT_EQ(make_plan(arguments).sizes, (std::vector<std::uint64_t>{5, 7}));
  EXPECT_EQ(make_plan({}).sizes, (std::vector<std::uint64_t>{1'000'000}));
}

TEST(Plan, SizesAreWholeNumbers) {
  EXPECT_EQ(parse_sizes("5"), (std::vector<std::uint64_t>{5}));
  EXPECT_EQ(parse_sizes("5,7,18446744073709551615"),
            (std::vector<std::uint64_t>{5, 7, ~std::uint64_t{0}}));
  for (const char* wrong : {"", ",", "0", "5,", ",5", "5,,7", "5 7", "5x", "-5", "+5", "05", "1e6",
                            "0x10", "18446744073709551616"}) {
    try {
      parse_sizes(wrong);
      ADD_FAILURE() << wrong;
    } catch (const Failure& failure) {
      EXPECT_EQ(failure.exit_code(), kExitUsage);
      EXPECT_NE(std::string(failure.what()).find("--records: '"), std::string::npos);
    }
  }
}

TEST(Plan, RefusesOptionsWithoutEffect) {
  Arguments arguments;
  arguments.epoch = "5ms";
  arguments.index = "wbtree,absl-btree";
  EXPECT_NE(refusal_of(arguments).find("--epoch"), std::string::npos);
  arguments.index = "wbtree,bdtree:node=512";
  EXPECT_NO_THROW(make_plan(arguments));
  arguments = {};
  arguments.room = 1 << 20;
  arguments.index = "absl-btree,std-map";
  EXPECT_NE(refusal_of(arguments).find("--room"), std::string::npos);
}

TEST(Plan, StoresHaveDefaultsOfTheirOwn) {
  Arguments arguments;
  arguments.store = true;
  const Plan plan = make_plan(arguments);
  EXPECT_EQ(plan.indexes[0].name, "bdtree");
  EXPECT_EQ(plan.indexes[1].name, "wbtree");
  EXPECT_EQ(plan.records, 5'000'000U);
  EXPECT_EQ(plan.key_bytes, 16U);
  EXPECT_EQ(plan.value_bytes, 100U);
  for (const Phase& phase : plan.phases) {
    EXPECT_EQ(batch_of(plan, phase), phase.text.starts_with("batch-") ? kStoreBatch : 1U)
        << phase.text;
  }
  EXPECT_TRUE(plan.phases.back().writes());
  EXPECT_EQ(make_plan({}).value_bytes, sizeof(std::uint64_t));
}

// Of the phase find a call is a batch, in a mix look-ups wait for each other, where keys may be
// absent they do not.
TEST(Plan, LookUpsTogether) {
  Arguments arguments;
  arguments.workload = "load,find,mix:find=80:update=20,ycsb-d,u1-read-heavy";
  arguments.batch = 9;
  const Plan plan = make_plan(arguments);
  std::vector<std::pair<std::size_t, std::size_t>> counts;
  for (const Phase& phase : plan.phases) {
    counts.emplace_back(batch_of(plan, phase), look_ups_of(plan, phase));
  }
  EXPECT_EQ(counts, (std::vector<std::pair<std::size_t, std::size_t>>{
                        {1, 1}, {9, 1}, {1, 9}, {1, 9}, {1, 1}}));
  const auto batch_of_last = [&arguments](const char* workload) {
    arguments.workload = workload;
    const Plan one = make_plan(arguments);
    return std::pair(batch_of(one, one.phases[1]), batch_of(one, one.phases.back()));
  };
  EXPECT_EQ(batch_of_last("load,find,find-many"), (std::pair<std::size_t, std::size_t>(1, 9)));
  arguments.batch = 1;
  EXPECT_EQ(batch_of_last("load,find,find-many"), (std::pair<std::size_t, std::size_t>(1, 1)));
  arguments.batch.reset();
  EXPECT_EQ(batch_of_last("load,find,find-many"),
            (std::pair<std::size_t, std::size_t>(1, kManyLookUps)));
  arguments.store = true;
  EXPECT_NE(refusal_of(arguments).find("find-many is for indexes"), std::string::npos);
  arguments.workload = "load,mix:find=50:upsert=50";
  const Plan store = make_plan(arguments);
  EXPECT_EQ(look_ups_of(store, store.phases.back()), 1U);
}

TEST(Plan, RefusesWhenNothingTakesPart) {
  EXPECT_NE(refusal_of(with(&Arguments::threads, "2,4")).find("not thread-safe"),
            std::string::npos);
  EXPECT_EQ(make_plan(with(&Arguments::threads, "2,1")).threads.size(), 2U);
}

TEST(Plan, RefusesPhasesThatWouldFindNothing) {
  Arguments arguments = with(&Arguments::workload, "load,remove,find");
  EXPECT_NE(refusal_of(arguments).find("leaves nothing for find"), std::string::npos);
  arguments.records = {1000};
  arguments.ops = 999;
  EXPECT_EQ(make_plan(arguments).phases.size(), 3U);
  arguments.ops = 1000;
  arguments.workload = "load,remove,insert,find";
  EXPECT_EQ(make_plan(arguments).phases.size(), 4U);
}

}  // namespace
}  // namespace everleaf::bench
