// The crash cases of src/trees/bdtree/README.md, one by one: workloads that surely meet them, every
// crash in them, and proof from the tree's own counters that they were met.
#include <map>

#include <gtest/gtest.h>

#include "run.hpp"

namespace everleaf::crash {
namespace {

constexpr const char* kSpec = "bdtree:node=256";  // 12 slots in a leaf
constexpr std::uint64_t kSlots = 12;

using Ops = std::vector<Op>;

void tick(Ops& ops, int times) {
  for (int i = 0; i < times; ++i) ops.push_back({Do::tick, 0, 0});
}

void each(Ops& ops, Do what, std::uint64_t first, std::uint64_t last) {
  for (std::uint64_t key = first; key < last; ++key) ops.push_back({what, key, key + 1});
}

// Everything up to here is durable, and of epochs long ago.
Ops after(Do what, std::uint64_t first, std::uint64_t last) {
  Ops ops;
  each(ops, what, first, last);
  tick(ops, 4);
  return ops;
}

// What the tree counts after the same operations.
template <class K>
std::map<std::string, std::uint64_t> figures(const Ops& ops) {
  PoolOptions options;
  options.epoch_length = {};
  Pool pool = Pool::anonymous(options).value();
  auto index = pool.index<K>("index", kSpec).value();
  for (const Op& op : ops) {
    const auto key = make_key<K>(op.key);
    Outcome outcome = Outcome::done;
    if (op.what == Do::tick) outcome = pool.advance_epoch();
    if (op.what == Do::insert) outcome = index.insert(key, op.value);
    if (op.what == Do::update) outcome = index.update(key, op.value);
    if (op.what == Do::remove) outcome = index.remove(key);
    EXPECT_EQ(outcome, Outcome::done) << to_string(op);
  }
  EXPECT_TRUE(index.check().problems.empty());
  const Stats stats = index.stats();
  std::map<std::string, std::uint64_t> all(stats.more.begin(), stats.more.end());
  all["leaves"] = stats.leaf_nodes;
  all["pool_bytes"] = stats.pool_bytes;
  all["fences"] = pool.counters().fences;
  return all;
}

void explore(const Ops& ops, KeyType keys = KeyType::u64, unsigned nested = 1) {
  for (const Domain domain : {Domain::memory, Domain::disk, Domain::process}) {
    Config config;
    config.spec = kSpec;
    config.keys = keys;
    config.domain = domain;
    config.ops = ops;
    config.nested = nested;
    config.most = nested > 1 ? 30 : 200;
    config.crash_on_every = nested > 1 ? 4 : 16;
    const Report report = run(config);
    ASSERT_FALSE(report.failure) << report.failure->operation << ": " << report.failure->what;
    EXPECT_GE(report.executions, report.crash_points);
  }
}

// P1, A1.
TEST(Bdtree, Creation) {
  Ops ops;
  each(ops, Do::insert, 1, 2);
  explore(ops, KeyType::u64, 2);
}

// P2, A2.
TEST(Bdtree, OperationsInOneLeaf) {
  Ops ops = after(Do::insert, 1, 6);
  each(ops, Do::insert, 6, 8);
  each(ops, Do::update, 2, 4);
  each(ops, Do::remove, 4, 5);
  const Ops calm = ops;
  tick(ops, 3);
  explore(ops);
  explore(ops, KeyType::bytes);
  Ops begin = after(Do::insert, 1, 6);
  EXPECT_EQ(figures<std::uint64_t>(calm)["fences"], figures<std::uint64_t>(begin)["fences"]);
}

// A3.
TEST(Bdtree, FirstWritesOfManyEpochs) {
  Ops ops = after(Do::insert, 1, 4);
  for (int i = 0; i < 5; ++i) {
    each(ops, Do::update, 1, 3);
    if (i == 2) tick(ops, 1);
    tick(ops, 1);
  }
  explore(ops);
  EXPECT_GT(figures<std::uint64_t>(ops)["key_instances"], 3U);
}

// A4, A5, P4.
TEST(Bdtree, Split) {
  Ops ops = after(Do::insert, 2, 2 + kSlots);
  each(ops, Do::insert, 0, 1);
  tick(ops, 4);
  const auto figure = figures<std::uint64_t>(ops);
  EXPECT_EQ(figure.at("splits"), 1U);
  EXPECT_EQ(figure.at("leaves"), 2U);
  explore(ops);
  explore(ops, KeyType::bytes);
}

// A4.
TEST(Bdtree, Compaction) {
  Ops ops = after(Do::insert, 1, 6);
  for (int i = 0; i < 3; ++i) {
    each(ops, Do::update, 1, 6);
    tick(ops, 1);
  }
  tick(ops, 3);
  EXPECT_GT(figures<std::uint64_t>(ops)["compactions"], 0U);
  explore(ops);
}

// A6.
TEST(Bdtree, SplitOfALeafOfThisEpoch) {
  Ops ops = after(Do::insert, 2, 2 + kSlots);
  each(ops, Do::insert, 20, 20 + kSlots + 4);
  tick(ops, 3);
  EXPECT_GT(figures<std::uint64_t>(ops)["splits_in_place"], 0U);
  explore(ops);
}

// A7.
TEST(Bdtree, EmptiedLeaves) {
  Ops ops = after(Do::insert, 2, 2 + 3 * kSlots);
  each(ops, Do::remove, 2, 2 + kSlots);
  tick(ops, 1);
  each(ops, Do::remove, 2 + 2 * kSlots, 2 + 3 * kSlots);
  tick(ops, 1);
  const auto now = figures<std::uint64_t>(ops);
  EXPECT_GT(now.at("retired_leaves"), 0U);
  each(ops, Do::insert, 2, 4);
  tick(ops, 3);
  explore(ops);
}

// A8, A9.
TEST(Bdtree, UnlinkedLeavesAreUsedAgain) {
  Ops ops = after(Do::insert, 2, 2 + 3 * kSlots);
  each(ops, Do::remove, 2, 2 + kSlots);
  tick(ops, 3);
  const auto before = figures<std::uint64_t>(ops);
  tick(ops, 3);
  const auto later = figures<std::uint64_t>(ops);
  EXPECT_EQ(later.at("retired_leaves"), 0U);
  each(ops, Do::insert, 100, 100 + 2 * kSlots);
  tick(ops, 3);
  explore(ops);
}

// A10.
TEST(Bdtree, KeyRecordsAreUsedAgain) {
  Ops ops = after(Do::insert, 2, 6);
  each(ops, Do::remove, 2, 4);
  tick(ops, 1);
  each(ops, Do::insert, 2, 4);
  tick(ops, 4);
  each(ops, Do::remove, 2, 4);
  tick(ops, 4);
  each(ops, Do::insert, 10, 14);
  tick(ops, 3);
  explore(ops, KeyType::bytes);
}

// P3, A11.
TEST(Bdtree, Growth) {
  Ops ops;
  ops.push_back({Do::bulk_load, 900, 1});
  tick(ops, 3);
  explore(ops);
  Ops plain;
  each(plain, Do::insert, 2, 902);
  EXPECT_GT(figures<std::uint64_t>(plain)["pool_bytes"], 20480U) << "one extent is enough";
}

// P5, A12, A13.
TEST(Bdtree, CrashesOfRecovery) {
  Ops ops = after(Do::insert, 2, 2 + kSlots);
  each(ops, Do::insert, 0, 1);
  tick(ops, 1);
  each(ops, Do::remove, 3, 5);
  each(ops, Do::update, 6, 7);
  explore(ops, KeyType::u64, 2);
  explore(ops, KeyType::bytes, 2);
}

// A15, and tags that come round: here they have 7 bits, and are old after 16 epochs.
TEST(Bdtree, OldTagsAreMadeYoung) {
  Ops ops = after(Do::insert, 2, 2 + kSlots + 4);  // leaves that stay as they are, but for
  each(ops, Do::update, 2, 4);
  tick(ops, 1);
  each(ops, Do::update, 2, 3);
  const auto young = figures<std::uint64_t>(ops);
  EXPECT_EQ(young.at("words_restamped"), 0U);
  for (int i = 0; i < 5; ++i) {
    tick(ops, 15);
    each(ops, Do::update, 2, 3);  // a word of each age beside the old ones
    tick(ops, 1);
    each(ops, Do::remove, 3, 4);
    each(ops, Do::insert, 3, 4);
  }
  EXPECT_GT(figures<std::uint64_t>(ops).at("words_restamped"), 6U);
  // Without it, a write to the leaf of 12 and above would wait for ever by now.
  each(ops, Do::update, 12, 14);
  explore(ops);
  explore(ops, KeyType::bytes);
}

}  // namespace
}  // namespace everleaf::crash
