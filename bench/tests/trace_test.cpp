// The reader of traces: operations, files that lack them, and what is malformed.
#include "workloads/trace.hpp"

#include <sstream>
#include <string>

#include <gtest/gtest.h>

#include "failure.hpp"
#include "workloads/sequence.hpp"

namespace everleaf::bench {
namespace {

using Kind = Phase::Kind;
constexpr std::uint64_t kAll = 1'000'000;

Trace trace_of(const std::string& text, std::uint64_t most = kAll) {
  std::istringstream in(text);
  return read_trace(in, "file", most);
}

std::string complaint(const std::string& text) {
  try {
    trace_of(text);
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.exit_code(), kExitUsage);
    return failure.what();
  }
  return "none";
}

TEST(Trace, OfTwitter) {
  const Trace trace = trace_of(
      "0,aaa,3,10,1,get,0\n"
      "0,bbb,3,10,1,set,60\n"
      "\n"
      "1,aaa,3,10,2,gets,0\r\n"
      "2,bbb,3,0,1,delete,0\n"
      "2,ccc,3,0,1,incr,0");
  EXPECT_EQ(trace.distinct, 3U);
  EXPECT_EQ(trace.keys, (std::vector<std::uint32_t>{0, 1, 0, 1, 2}));
  EXPECT_EQ(trace.kinds,
            (std::vector<Kind>{Kind::find, Kind::upsert, Kind::find, Kind::remove, Kind::upsert}));
}

// As libCacheSim writes them: the first request for a key writes it.
TEST(Trace, WithoutOperations) {
  const Trace trace = trace_of(
      "# time, object, size, next_access_vtime\n"
      "0, 13053225291711363978, 737, 13\n0, 6, 248, 7\n1, 13053225291711363978, 737, -1\n");
  EXPECT_EQ(trace.distinct, 2U);
  EXPECT_EQ(trace.keys, (std::vector<std::uint32_t>{0, 1, 0}));
  EXPECT_EQ(trace.kinds, (std::vector<Kind>{Kind::upsert, Kind::upsert, Kind::find}));
}

TEST(Trace, AHeaderNamesTheFields) {
  const Trace trace = trace_of("op,key\nGET,x\nSET,x\nget,y\n", 2);
  EXPECT_EQ(trace.keys, (std::vector<std::uint32_t>{0, 0}));  // --ops: the first two
  EXPECT_EQ(trace.kinds, (std::vector<Kind>{Kind::find, Kind::upsert}));
  EXPECT_EQ(trace.name, "file");
}

TEST(Trace, WhatIsMalformedIsToldByItsLine) {
  for (const auto& [text, words] :
       {std::pair{"", "holds no request"},
        {"# time, object\n", "holds no request"},
        {"0,a,3\n", "line 1: 3 fields where 7 are expected in a file without a header"},
        {"time,size\n", "line 1: the header names no key"},
        {"key,op\na,get\nb\n", "line 3: 1 fields where 2"},
        {"key,op\na,get\n ,get\n", "line 3: the key is empty"},
        {"key,op\na,fetch\n", "line 2: unknown operation 'fetch'"}}) {
    EXPECT_NE(complaint(text).find(words), std::string::npos) << text << ": " << complaint(text);
  }
  EXPECT_THROW(read_trace("/nonexistent/trace", kAll), Failure);
  EXPECT_THROW(read_trace("/", kAll), Failure);
}

// Requests for the same key stay requests for the same key, within the space.
TEST(Trace, BecomesASequence) {
  auto trace = std::make_shared<Trace>();
  trace->distinct = 5;
  trace->keys = {0, 1, 2, 3, 4, 0, 4};
  trace->kinds.assign(7, Kind::find);
  Phase phase(Kind::mix);
  phase.trace = trace;
  phase.whole_space = true;
  const KeySpace keys(KeyOrder::scattered, 3);
  const IdRange live{10, 13};
  const Sequence sequence = make_sequence(phase, Plan{}, keys, live, 9);
  ASSERT_EQ(sequence.keys.size(), 7U);
  EXPECT_EQ(sequence.keys[0], sequence.keys[5]);
  EXPECT_EQ(sequence.keys[4], sequence.keys[6]);
  std::vector<std::uint64_t> distinct(sequence.keys.begin(), sequence.keys.begin() + 5);
  std::ranges::sort(distinct);
  EXPECT_EQ(std::ranges::adjacent_find(distinct), distinct.end());
  for (const std::uint64_t key : distinct) {
    EXPECT_TRUE(space_of(live).contains(keys.id_of(key)));
  }
}

}  // namespace
}  // namespace everleaf::bench
