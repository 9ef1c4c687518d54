#include "plan.hpp"

#include <array>
#include <chrono>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "failure.hpp"

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

Arguments with(std::string Arguments::*field, const std::string& text) {
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
  EXPECT_EQ(updates.percent, (std::array<unsigned, 6>{0, 80, 20, 0, 0, 0}));
  EXPECT_EQ(plan.phases[2].percent, (std::array<unsigned, 6>{0, 76, 0, 19, 0, 5}));
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
  arguments.records = 1000;
  arguments.ops = 2000;
  EXPECT_NE(refusal_of(arguments).find("all of the 1000 records"), std::string::npos);
  arguments.ops = 1998;
  EXPECT_EQ(make_plan(arguments).phases.size(), 3U);
  arguments.workload = "load,remove,mix:find=50:insert=50";
  EXPECT_NE(refusal_of(arguments).find("leaves nothing for mix:"), std::string::npos);
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
    EXPECT_EQ(make_plan(with(&Arguments::epoch, text)).epoch, nanoseconds(ns)) << text;
  }
  for (const char* text : {"5", "ms", "-5ms", "5 ms", "5m", "5msx", "1.5ms", "0us", "999ns", "11s",
                           "10000000001ns", "18446744073709551615s", "99999999999999999999s"}) {
    EXPECT_NE(refusal_of(with(&Arguments::epoch, text)).find(text), std::string::npos) << text;
  }
}

TEST(Plan, RefusesNumbersOutOfRange) {
  for (std::uint64_t Arguments::*field :
       {&Arguments::records, &Arguments::repeat, &Arguments::scan_length}) {
    for (const std::uint64_t value : {std::uint64_t{0}, ~std::uint64_t{0}}) {
      Arguments arguments;
      arguments.*field = value;
      EXPECT_FALSE(refusal_of(arguments).empty());
    }
  }
}

TEST(Plan, RefusesWhenNothingTakesPart) {
  EXPECT_NE(refusal_of(with(&Arguments::threads, "2,4")).find("not thread-safe"),
            std::string::npos);
  EXPECT_EQ(make_plan(with(&Arguments::threads, "2,1")).threads.size(), 2U);
}

TEST(Plan, RefusesPhasesThatWouldFindNothing) {
  Arguments arguments = with(&Arguments::workload, "load,remove,find");
  EXPECT_NE(refusal_of(arguments).find("leaves nothing for find"), std::string::npos);
  arguments.ops = arguments.records - 1;
  EXPECT_EQ(make_plan(arguments).phases.size(), 3U);
  arguments.ops = arguments.records;
  arguments.workload = "load,remove,insert,find";
  EXPECT_EQ(make_plan(arguments).phases.size(), 4U);
}

}  // namespace
}  // namespace everleaf::bench
