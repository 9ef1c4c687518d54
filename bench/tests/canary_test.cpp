// That the checks can fail: maps with one planted fault each, run as the program runs them.
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "compare/ordered_map.hpp"
#include "plan.hpp"
#include "workloads/audit.hpp"
#include "workloads/keys.hpp"
#include "workloads/named.hpp"
#include "workloads/sequence.hpp"
#include "workloads/space.hpp"
#include "workloads/timed.hpp"

namespace everleaf::bench {
namespace {

enum class Fault {
  none,
  loses_an_insert,
  wrong_value,
  finds_nothing,
  forgets_updates,
  forgets_a_remove,
  scans_short,
  scans_from_the_next,
  wrong_finds,
  loses_a_late_insert,
  runs_full,
};

template <class K>
class FaultyMap {
 public:
  explicit FaultyMap(Fault fault) : fault_(fault) {}

  Outcome insert(K key, std::uint64_t value) {
    const std::uint64_t turn = ++inserts_;
    if (fault_ == Fault::runs_full && turn > 300) return Outcome::out_of_space;
    if (fault_ == Fault::loses_an_insert && turn == 300) return Outcome::done;
    if (fault_ == Fault::loses_a_late_insert && turn == 1050) return Outcome::done;
    return map_.insert(key, fault_ == Fault::wrong_value && turn == 300 ? ~value : value);
  }
  Outcome update(K key, std::uint64_t value) {
    return fault_ == Fault::forgets_updates ? Outcome::done : map_.update(key, value);
  }
  Outcome upsert(K key, std::uint64_t value) {
    return fault_ == Fault::forgets_updates ? Outcome::done : map_.upsert(key, value);
  }
  Outcome remove(K key) {
    return fault_ == Fault::forgets_a_remove && ++removes_ == 7 ? Outcome::done : map_.remove(key);
  }
  Lookup find(K key) const {
    if (fault_ == Fault::finds_nothing) return {};
    return fault_ == Fault::wrong_finds && ++finds_ == 7 ? Lookup{Outcome::done, 7}
                                                         : map_.find(key);
  }
  void find_many(std::span<const K> keys, std::vector<Lookup>& answers) const {
    answers.clear();
    for (const K& key : keys) answers.push_back(find(key));
  }
  Outcome scan(K from, std::size_t limit, std::vector<Entry<K>>& out) const {
    if (fault_ == Fault::scans_short && limit < 100) return map_.scan(from, limit / 2, out);
    map_.scan(from, limit + 1, out);
    if (fault_ == Fault::scans_from_the_next && limit < 100) out.erase(out.begin());
    if (out.size() > limit) out.resize(limit);
    return Outcome::done;
  }

 private:
  OrderedMap<K, StdMap<K>> map_;
  Fault fault_;
  std::uint64_t inserts_ = 0;
  std::uint64_t removes_ = 0;
  mutable std::uint64_t finds_ = 0;
};

const std::vector<Phase> kPlainPhases = {Phase::Kind::load,   Phase::Kind::find,
                                         Phase::Kind::update, Phase::Kind::insert,
                                         Phase::Kind::scan,   Phase::Kind::remove};

// The first phase at which something is noticed; empty: nothing is.
template <class K>
std::string noticed_at(Fault fault, const std::vector<Phase>& phases = kPlainPhases,
                       std::size_t look_ups = 1) {
  Plan plan;
  plan.records = 1000;
  plan.ops = 500;
  const KeySpace keys(KeyOrder::scattered, 1);
  FaultyMap<K> map(fault);
  const KeyCodec<K> codec;
  IdRange live;
  Live records;
  std::uint64_t last_key = 0;
  for (const Phase& phase : phases) {
    const Sequence sequence = make_sequence(phase, plan, keys, live, 1);
    if (phase.kind == Phase::Kind::mix) {
      last_key = largest_key(keys, live_throughout(phase, plan, live));
    }
    live = live_after(phase, plan, live);
    std::array<WorkerResult, 1> results;
    Job job{phase, sequence.keys, 1, 1, 20, 1, last_key, sequence.kinds};
    if (!phase.whole_space) job.look_ups = look_ups;
    run_threads<K>(map, codec, job, results);
    if (results[0].mistakes > 0) return phase.text + (results[0].refused ? " refused" : "");
    if (!phase.whole_space) {
      records = {live};
    } else if (!settle(records, keys, sequence.keys, sequence.kinds, 1, results[0].answers)
                    .empty()) {
      return phase.text + " settled";
    }
    const Audit audit = audit_contents<K>(map, codec, keys, records);
    if (!audit.problem.empty()) return phase.text + " audit";
    if (phase.overwrites() &&
        !audit_updates<K>(map, codec, sequence.keys, sequence.kinds).empty()) {
      return phase.text + " update audit";
    }
    last_key = audit.last_key;
  }
  return {};
}

template <class K>
class Canary : public testing::Test {};
using KeyTypes = testing::Types<std::uint64_t, Bytes>;
TYPED_TEST_SUITE(Canary, KeyTypes);

TYPED_TEST(Canary, EveryFaultIsNoticed) {
  EXPECT_EQ(noticed_at<TypeParam>(Fault::none), "");
  EXPECT_EQ(noticed_at<TypeParam>(Fault::loses_an_insert), "load audit");
  EXPECT_EQ(noticed_at<TypeParam>(Fault::wrong_value), "load audit");
  EXPECT_EQ(noticed_at<TypeParam>(Fault::finds_nothing), "find");
  EXPECT_EQ(noticed_at<TypeParam>(Fault::wrong_finds), "find");
  EXPECT_EQ(noticed_at<TypeParam>(Fault::forgets_updates), "update update audit");
  EXPECT_EQ(noticed_at<TypeParam>(Fault::forgets_a_remove), "remove audit");
  EXPECT_EQ(noticed_at<TypeParam>(Fault::scans_short), "scan");
  EXPECT_EQ(noticed_at<TypeParam>(Fault::scans_from_the_next), "scan");
  EXPECT_EQ(noticed_at<TypeParam>(Fault::loses_a_late_insert), "insert audit");
  EXPECT_EQ(noticed_at<TypeParam>(Fault::runs_full), "load refused");
}

// Each fault in a mix that has its operation, 500 operations on 1000 records.
TYPED_TEST(Canary, EveryFaultIsNoticedInAMix) {
  const auto noticed = [](Fault fault, const std::string& mix) {
    Arguments arguments;
    arguments.workload = "load," + mix;
    return noticed_at<TypeParam>(fault, make_plan(arguments).phases);
  };
  const std::string all = "mix:find=30:update=20:insert=20:remove=10:scan=20";
  EXPECT_EQ(noticed(Fault::none, all), "");
  EXPECT_EQ(noticed(Fault::finds_nothing, all), all);
  EXPECT_EQ(noticed(Fault::wrong_finds, all), all);
  EXPECT_EQ(noticed(Fault::forgets_updates, all), all + " update audit");
  EXPECT_EQ(noticed(Fault::forgets_a_remove, all), all + " audit");
  EXPECT_EQ(noticed(Fault::scans_short, all), all);
  EXPECT_EQ(noticed(Fault::scans_from_the_next, all), all);
  EXPECT_EQ(noticed(Fault::loses_a_late_insert, all), all + " audit");
  // Of 10 look-ups in 500 operations the last ones wait for the end.
  for (const std::size_t look_ups : {std::size_t{7}, std::size_t{1000}}) {
    Arguments arguments;
    arguments.workload = "load,mix:find=2:update=98";
    const std::vector<Phase> phases = make_plan(arguments).phases;
    EXPECT_EQ(noticed_at<TypeParam>(Fault::none, phases, look_ups), "");
    EXPECT_EQ(noticed_at<TypeParam>(Fault::wrong_finds, phases, look_ups), phases[1].text);
    EXPECT_EQ(noticed_at<TypeParam>(Fault::forgets_updates, phases, look_ups),
              phases[1].text + " update audit");
  }
}

// The operations that only named workloads have.
TYPED_TEST(Canary, EveryFaultIsNoticedInNamedWorkloads) {
  const auto noticed = [](Fault fault, const std::string& workload) {
    Arguments arguments;
    arguments.workload = "load," + workload;
    return noticed_at<TypeParam>(fault, make_plan(arguments).phases);
  };
  for (const NamedWorkload& workload : named_workloads()) {
    EXPECT_EQ(noticed(Fault::none, workload.phase.text), "");
  }
  EXPECT_EQ(noticed(Fault::wrong_finds, "ycsb-f"), "ycsb-f");
  EXPECT_EQ(noticed(Fault::forgets_updates, "ycsb-f"), "ycsb-f update audit");
  EXPECT_EQ(noticed(Fault::forgets_updates, "bz-balanced"), "bz-balanced update audit");
  EXPECT_EQ(noticed(Fault::finds_nothing, "ycsb-d"), "ycsb-d");
  EXPECT_EQ(noticed(Fault::scans_short, "ycsb-e"), "ycsb-e");
  EXPECT_EQ(noticed(Fault::scans_from_the_next, "ycsb-e"), "ycsb-e");
  EXPECT_EQ(noticed(Fault::finds_nothing, "u1-read-heavy"), "u1-read-heavy settled");
  EXPECT_EQ(noticed(Fault::wrong_finds, "u1-read-heavy"), "u1-read-heavy");
  EXPECT_EQ(noticed(Fault::forgets_updates, "lodge-skewed-insert"), "lodge-skewed-insert audit");
  EXPECT_EQ(noticed(Fault::loses_a_late_insert, "u2-write-only"), "u2-write-only settled");
  EXPECT_EQ(noticed(Fault::forgets_a_remove, "z2-write-only").substr(0, 13), "z2-write-only");
}

}  // namespace
}  // namespace everleaf::bench
