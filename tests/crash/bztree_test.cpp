// The crash cases and the gaps of src/trees/bztree/README.md: workloads that surely meet them,
// every crash in them, and threads that stop for ever.
#include <algorithm>
#include <map>

#include <gtest/gtest.h>

#include "cases.hpp"
#include "threads/scheduler.hpp"
#include "trees/pool_state.hpp"

namespace everleaf::crash {
namespace {

constexpr const char* kSpec = "bztree:page=256:free=96";  // up to 10 entries; 5 or 6 after a split
constexpr std::uint64_t kTop = std::uint64_t{1} << 63;

std::map<std::string, std::uint64_t> figures(const Ops& ops) {
  return figures_of<std::uint64_t>(kSpec, ops);
}

void explore(const Ops& ops, unsigned nested = 1, std::uint64_t most = 40,
             std::initializer_list<Domain> domains = {Domain::memory, Domain::disk,
                                                      Domain::cache}) {
  explore_all(kSpec, ops, nested, most, domains);
}

// P8, P9, A8.
TEST(Bztree, Creation) {
  Ops ops;
  each(ops, Do::insert, 0, 1);
  ops.push_back({Do::reopen, 0, 0});
  each(ops, Do::insert, 1, 2);
  explore(ops, 2);
}

// P1, P2, A1, A2, A3, A9.
TEST(Bztree, Insertions) {
  Ops ops;
  each(ops, Do::insert, 0, 2);
  ops.push_back({Do::insert, 4, kTop + 7});
  explore(ops, 2, 40, {Domain::memory});
  each(ops, Do::insert, 5, 7);
  explore(ops);
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

// Long keys have records of their own, and so have separators (G8).
TEST(Bztree, LongKeys) {
  Ops ops;
  for (std::uint64_t i = 0; i < 14; ++i) ops.push_back({Do::insert, kSizedKeys + i, i});
  for (std::uint64_t i = 3; i < 9; ++i) ops.push_back({Do::remove, kSizedKeys + i, 0});
  ops.push_back({Do::insert, kSizedKeys + 4, 9});
  Config config;
  config.spec = kSpec;
  config.keys = KeyType::bytes;
  config.ops = ops;
  config.most = 20;
  explore_in({Domain::memory, Domain::disk}, config);
}

// --- Latch-free: a thread that stops anywhere holds nobody up ------------------------------------

// The first thread stops at its n-th point after both are under way, and goes on when the second
// has ended.
class Parks final : public Policy {
 public:
  explicit Parks(std::uint64_t after) : left_(after) {}
  unsigned choose(std::uint64_t, unsigned, unsigned able) override {
    const auto run = [able](unsigned wanted) {
      return (able >> wanted & 1) != 0 ? wanted : 1 - wanted;
    };
    if (!first_ready) return run(0);
    if (!second_ready) return run(1);
    if (left_ != 0) {
      --left_;
      return run(0);
    }
    parked = parked || !first_done;
    waited = waited || ((able & 2) == 0 && !second_done);
    return run(1);
  }

  bool first_ready = false;
  bool second_ready = false;
  bool first_done = false;
  bool second_done = false;
  bool parked = false;  // in the middle of its operation
  bool waited = false;  // the other one could not go on

 private:
  std::uint64_t left_;
};

class Watch {
 public:
  explicit Watch(Recorder& recorder) { Recorder::watch(&recorder); }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;
  ~Watch() { Recorder::watch(nullptr); }
};

template <class K>
using Act = Outcome (*)(Index<K>& index);

template <class K>
Outcome upsert(Index<K>& index, std::uint64_t key, std::uint64_t value) {
  return index.upsert(make_key<K>(key), value);
}

// True: the first one was stopped in the middle; then there are more points.
template <class K>
bool stopped_at(std::uint64_t point, std::uint64_t keys, Act<K> first, Act<K> second) {
  constexpr std::size_t kCapacity = std::size_t{2} << 20;
  Arena arena(kCapacity, 2, {});
  Recorder recorder(arena);  // finds the scheduler its points
  const Watch watch(recorder);
  PoolOptions options;
  options.domain = Domain::memory;
  options.emulate = true;
  options.epoch_length = {};
  Pool pool =
      PoolAccess::format(arena.base(0), pmem::kMinPoolBytes, kCapacity, options, &recorder).value();
  auto index = pool.index<K>("index", kSpec).value();
  for (std::uint64_t key = 0; key < keys; ++key) (void)upsert<K>(index, 2 * key, key);
  // Lanes and magazines of each thread: what the heap's lock is taken for.
  const auto warm = [&index](std::uint64_t from) {
    for (std::uint64_t key = from; key < from + 40; ++key) (void)upsert<K>(index, key, 1);
    for (std::uint64_t key = from; key < from + 40; ++key) (void)index.remove(make_key<K>(key));
  };
  Parks policy(point);
  const std::vector<Scheduler::Body> bodies{[&] {
                                              warm(1000);
                                              policy.first_ready = true;
                                              EXPECT_EQ(first(index), Outcome::done);
                                              policy.first_done = true;
                                            },
                                            [&] {
                                              warm(2000);
                                              policy.second_ready = true;
                                              EXPECT_EQ(second(index), Outcome::done);
                                              policy.second_done = true;
                                            }};
  Scheduler scheduler;
  const Trace trace = scheduler.run(bodies, policy, 10'000'000);
  EXPECT_EQ(trace.stuck, "");
  EXPECT_FALSE(policy.waited) << "stopped at point " << point;
  EXPECT_TRUE(index.check().problems.empty());
  return policy.parked;
}

template <class K>
void stop_everywhere(std::uint64_t keys, Act<K> first, Act<K> second) {
  std::uint64_t point = 0;
  while (stopped_at<K>(point, keys, first, second)) {
    ++point;
    ASSERT_FALSE(testing::Test::HasFailure()) << "point " << point;
  }
  EXPECT_GT(point, 50U);
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
  stop_everywhere<K>(4, insert, others);
  stop_everywhere<K>(4, updates, others);
  stop_everywhere<K>(12, splits, others);
  stop_everywhere<K>(12, merges, others);
}

TEST(Bztree, AStoppedThreadHoldsNobodyUp) {
  stop_in_every_operation<std::uint64_t>();
  stop_in_every_operation<Bytes>();
}

}  // namespace
}  // namespace everleaf::crash
