// The crash cases of src/trees/bdtree/README.md, one by one: workloads that surely meet them, every
// crash in them, and proof from the tree's own counters that they were met.
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>

#include <gtest/gtest.h>

#include "cases.hpp"
#include "pmem/format.hpp"
#include "trees/pool_state.hpp"

namespace everleaf::crash {
namespace {

constexpr const char* kSpec = "bdtree:node=256";  // 12 slots in a leaf
constexpr std::uint64_t kSlots = 12;
constexpr const char* kTwoCells = "bdtree:node=1024";  // 28 slots in each

void tick(Ops& ops, int times) {
  for (int i = 0; i < times; ++i) ops.push_back({Do::tick, 0, 0});
}

// Everything up to here is durable, and of epochs long ago.
Ops after(Do what, std::uint64_t first, std::uint64_t last) {
  Ops ops;
  each(ops, what, first, last);
  tick(ops, 4);
  return ops;
}

template <class K>
std::map<std::string, std::uint64_t> figures(const Ops& ops, const char* spec = kSpec) {
  return figures_of<K>(spec, ops);
}

void explore(const Ops& ops, KeyType keys = KeyType::u64, unsigned nested = 1,
             const char* spec = kSpec) {
  Config config;
  config.spec = spec;
  config.keys = keys;
  config.ops = ops;
  config.nested = nested;
  config.most = nested > 1 ? 20 : 200;
  config.most_nested = 16;
  config.crash_on_every = nested > 1 ? 4 : 16;
  config.skip_creation = ops.size() > 1;  // it has a test of its own
  explore_in({Domain::memory, Domain::disk, Domain::process}, config);
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

// A2 to A5 where a leaf has two metadata lines: slots of one cell give way to slots of the other,
// an epoch writes one cell or both, and a leaf is retired, in the first cell, that the epoch had
// written in the second.
TEST(Bdtree, LeavesOfTwoCells) {
  Ops ops = after(Do::insert, 1, 41);
  each(ops, Do::update, 3, 6);
  tick(ops, 1);
  each(ops, Do::update, 3, 5);
  each(ops, Do::remove, 33, 36);
  EXPECT_GT(figures<std::uint64_t>(ops, kTwoCells)["key_instances"], 40U);
  tick(ops, 2);
  EXPECT_EQ(figures<std::uint64_t>(ops, kTwoCells)["splits"], 0U);
  explore(ops, KeyType::u64, 1, kTwoCells);
  Ops full = after(Do::insert, 1, 55);
  each(full, Do::insert, 60, 64);
  tick(full, 3);
  EXPECT_EQ(figures<std::uint64_t>(full, kTwoCells)["splits"], 1U);
  explore(full, KeyType::u64, 1, kTwoCells);
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
  const auto before = figures<std::uint64_t>(ops);
  EXPECT_GT(before.at("retired_leaves"), 0U);
  tick(ops, 6);
  const auto later = figures<std::uint64_t>(ops);
  EXPECT_EQ(later.at("retired_leaves"), 0U);
  EXPECT_LT(later.at("blocks_in_use"), before.at("blocks_in_use"));
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
  const auto before = figures<Bytes>(ops);
  each(ops, Do::remove, 2, 4);
  tick(ops, 4);
  EXPECT_EQ(figures<Bytes>(ops).at("blocks_in_use"), before.at("blocks_in_use") - 2);
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

// A pool in memory that is closed and opened again: what the tree counts then.
template <class K>
std::map<std::string, std::uint64_t> reopened(std::uint64_t keys) {
  constexpr std::size_t kBytes = std::size_t{4} << 20;
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  const std::unique_ptr<std::byte[], Free> memory(
      static_cast<std::byte*>(std::aligned_alloc(4096, kBytes)));
  std::memset(memory.get(), 0, kBytes);
  PoolOptions options;
  options.epoch_length = {};
  std::uint64_t bytes = pmem::kMinPoolBytes;
  {
    Pool pool = PoolAccess::format(memory.get(), bytes, kBytes, options, nullptr).value();
    auto index = pool.index<K>("index", kSpec).value();
    for (std::uint64_t key = 0; key < keys; ++key) {
      EXPECT_EQ(index.insert(make_key<K>(key), key), Outcome::done);
    }
    bytes = PoolAccess::state(pool).medium().size();
  }
  Pool pool = PoolAccess::attach(memory.get(), bytes, kBytes, options, nullptr).value();
  auto index = pool.index<K>("index").value();
  EXPECT_EQ(index.size(), keys);
  EXPECT_TRUE(pool.check().value().problems.empty());
  const Stats stats = index.stats();
  return {stats.more.begin(), stats.more.end()};
}

// A14: the second image lies where the first one was, which would be believed by itself: no round
// (D10) was due in between.
TEST(Bdtree, AnImageInThePlaceOfAnother) {
  Ops ops;
  each(ops, Do::insert, 2, 5);
  ops.push_back({Do::reopen, 0, 0});
  each(ops, Do::insert, 6, 7);
  ops.push_back({Do::reopen, 0, 0});
  explore(ops);
  explore(ops, KeyType::bytes);
}

// P6, P7, A14, A16.
TEST(Bdtree, Images) {
  Ops ops = after(Do::insert, 2, 2 + 2 * kSlots);
  ops.push_back({Do::reopen, 0, 0});
  each(ops, Do::insert, 40, 40 + kSlots);
  each(ops, Do::remove, 2, 5);
  tick(ops, 3);
  each(ops, Do::update, 6, 8);
  ops.push_back({Do::reopen, 0, 0});
  each(ops, Do::update, 9, 11);
  tick(ops, 3);
  explore(ops);
  explore(ops, KeyType::bytes);
  explore(ops, KeyType::u64, 2);
  EXPECT_EQ(reopened<std::uint64_t>(2 * kSlots).at("opened_from_image"), 1U);
  EXPECT_EQ(reopened<Bytes>(2 * kSlots).at("opened_from_image"), 1U);
}

// P6, A14: an emptied leaf and removed keys wait at the close, and the image needs an extent.
TEST(Bdtree, ImagesAfterRemovals) {
  Ops ops = after(Do::insert, 2, 2 + 3 * kSlots);
  each(ops, Do::remove, 2, 2 + kSlots);
  ops.push_back({Do::reopen, 0, 0});
  each(ops, Do::insert, 2, 5);
  tick(ops, 3);
  explore(ops);
  explore(ops, KeyType::bytes);
  EXPECT_EQ(reopened<std::uint64_t>(370).at("opened_from_image"), 1U);
}

// Whether the crashes of the last operation notice that a flush of that file is gone.
void expect_noticed(Config config, const char* file) {
  config.spec = kSpec;
  config.collect_sites = true;
  config.only_op = config.ops.size() - 1;
  const Report sites = run(config);
  ASSERT_FALSE(sites.failure) << sites.failure->operation << ": " << sites.failure->what;
  unsigned tried = 0;
  for (const auto& [site, use] : sites.sites) {
    if (!site.file.ends_with(file) || site.act != Act::flush) continue;
    ++tried;
    config.dropped = site;
    EXPECT_TRUE(run(config).failure) << to_string(site);
  }
  EXPECT_EQ(tried, 1U);
}

// A13: words that recovery erased, but not durably, are of epochs that are used again.
TEST(Bdtree, RollingBackIsDurable) {
  Config config;
  config.ops = after(Do::insert, 0, 3 * kSlots);
  each(config.ops, Do::update, 2, 3);
  each(config.ops, Do::update, 30, 31);
  config.nested = 2;
  config.crash_on_every = 2;
  expect_noticed(config, "bdtree/recover.cpp");
}

// D10: sessions so short that only opening looks at tags.
TEST(Bdtree, TagsThatOpeningMakesYoungAreDurable) {
  Config config;
  config.ops = after(Do::insert, 0, 3 * kSlots);
  for (unsigned session = 0; session < 16; ++session) {
    tick(config.ops, 5);  // closing makes four more
    config.ops.push_back({Do::reopen, 0, 0});
  }
  tick(config.ops, 1);
  expect_noticed(config, "bdtree/restamp.cpp");
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
