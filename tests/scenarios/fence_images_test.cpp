// Crash images at the fences: each persist step and crash case of a tree's README is reached by one
// of these workloads, for every tree. Headers, redo records and the heap's words are crashed into
// on the way. Where the cases of wbtree are reached:
//
//   P1 P2 P3, A1 A2      PlainInsertsAndRemoves (A2: the images after P1, whose judge works on)
//   P4, A3               RepairOfACrashedNode
//   P5 P6                PlainInsertsAndRemoves and LargeKeys with bytes keys; UpdatesAndUpserts
//   P7, A4 A5 A7         InsertsSplitLeavesInnerNodesAndTheRoot
//   P8, A8               RemovesToEmptyUnlinkLeaves
//   P9, A9               BulkLoad
//   P10, A10             CreateIndexes, and the open of every other workload
//   A6                   Judge::judge_nested crashes into recovery in every workload
//   A11                  AnyOperations: blocks that were reserved are free in every image, as
//                        check() finds no leak
#include <numeric>

#include "crash_rig.hpp"

namespace everleaf::test {
namespace {

// Of strict trees: tests/crash judges the others.
class FenceImages : public EveryTree {};
class FenceImagesOfBytes : public EveryTree {};

template <class K>
std::vector<Op<K>> ops_of(Do what, const std::vector<std::uint64_t>& numbers) {
  std::vector<Op<K>> ops;
  for (const std::uint64_t n : numbers) ops.push_back({what, Keys<K>::nth(n), n % 5 == 0 ? 0 : ~n});
  return ops;
}

std::vector<std::uint64_t> numbers(std::uint64_t from, std::uint64_t to) {
  std::vector<std::uint64_t> all(to - from);
  std::iota(all.begin(), all.end(), from);
  return all;
}

std::vector<std::uint64_t> shuffled(std::vector<std::uint64_t> all, Random& random) {
  for (std::size_t i = all.size(); i > 1; --i) std::swap(all[i - 1], all[random.below(i)]);
  return all;
}

// Keys that make three levels or so: about the square of a leaf's entries.
template <class K>
std::uint64_t three_levels(const std::string& spec) {
  Pool pool = Pool::anonymous().value();
  auto index = pool.index<K>(kIndexName, spec).value();
  Random random(1);
  for (const std::uint64_t n : shuffled(numbers(0, 500), random)) {
    (void)index.insert(Keys<K>::nth(n), n);
  }
  const Stats stats = index.stats();
  const std::uint64_t per_leaf = stats.keys / std::max<std::uint64_t>(1, stats.leaf_nodes) + 1;
  return per_leaf * per_leaf;
}

RigOptions thinned(std::uint64_t keys) {
  return {.every = static_cast<std::size_t>(8 + keys / 5),
          .structure_every = static_cast<std::size_t>(1 + keys / 50),
          .random_images = scaled(3)};
}

template <class K>
void expect_sound(Rig<K>& rig, std::uint64_t seed) {
  rig.close();
  EXPECT_EQ(rig.problem, "") << "seed " << seed;
  EXPECT_GT(rig.images(), 0U);
}

TEST_P(FenceImages, InsertsSplitLeavesInnerNodesAndTheRoot) {
  with_keys([]<class K>(const std::string& spec) {
    const std::uint64_t seed = test::seed();
    Random random(seed);
    const std::uint64_t n = three_levels<K>(spec);
    std::uint64_t replays = 0;
    for (const int order : {0, 1, 2}) {
      Rig<K> rig(spec, seed, thinned(n));
      const std::uint64_t before = order == 2 ? n : n * 3 / 4;
      const std::uint64_t after = n + std::min<std::uint64_t>(60 + n / 2, 300);
      std::vector<std::uint64_t> first = numbers(0, before);
      std::vector<std::uint64_t> second = numbers(before, after);
      if (order == 1) {  // descending
        first = numbers(after - before, after);
        second = numbers(0, after - before);
        std::ranges::reverse(first);
        std::ranges::reverse(second);
      } else if (order == 2) {
        const auto all = shuffled(numbers(0, after), random);
        first.assign(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(before));
        second.assign(all.begin() + static_cast<std::ptrdiff_t>(before), all.end());
      }
      rig.preload(ops_of<K>(Do::insert, first));
      rig.open();
      rig.run(ops_of<K>(Do::insert, second));
      expect_sound(rig, seed);
      replays += rig.replays();
    }
    // One order alone may meet no such image: the images are drawn at random. Where no lock is, no
    // redo record is either, nor where a split is one word and a log of the tree's own.
    if (!is_latch_free(spec) && !has_own_log(spec)) {
      EXPECT_GT(replays, 0U) << "no image needed a redo record";
    }
  });
}

// Unlinking: leftmost child, rightmost child, inner nodes with one child, the root's collapse.
TEST_P(FenceImages, RemovesToEmptyUnlinkLeaves) {
  with_keys([]<class K>(const std::string& spec) {
    const std::uint64_t seed = test::seed();
    Random random(seed);
    const std::uint64_t n = three_levels<K>(spec) + 30;
    const auto all = numbers(0, n);
    for (const int order : {0, 1, 2}) {
      Rig<K> rig(spec, seed, thinned(n * 2));
      auto doomed = all;
      if (order == 1) std::ranges::reverse(doomed);
      if (order == 2) doomed = shuffled(doomed, random);
      rig.preload(ops_of<K>(Do::insert, order == 0 ? shuffled(all, random) : all));
      rig.open();
      rig.run(ops_of<K>(Do::remove, doomed));
      rig.run(ops_of<K>(Do::insert, {3, 1, 2}));
      expect_sound(rig, seed);
    }
  });
}

// Single operations without a structure change, in leaves of every filling: every fence of each.
TEST_P(FenceImages, PlainInsertsAndRemoves) {
  with_keys([]<class K>(const std::string& spec) {
    const std::uint64_t seed = test::seed();
    Random random(seed);
    Rig<K> rig(spec, seed, {.random_images = scaled(4)});
    rig.open();
    for (std::uint64_t i = 0; i < 60; ++i) {
      const std::uint64_t n = random.below(40);
      rig.run(Op<K>{i % 3 == 2 ? Do::remove : Do::insert, Keys<K>::nth(n), i});
    }
    expect_sound(rig, seed);
  });
}

// A crash leaves a node that recovery does not mend; operations on the image mend it, and crash.
TEST_P(FenceImages, RepairOfACrashedNode) {
  with_keys([]<class K>(const std::string& spec) {
    const std::uint64_t seed = test::seed();
    Random random(seed);
    Rig<K> rig(spec, seed, {.random_images = 1, .keep = scaled(6), .deep = false});
    rig.preload(ops_of<K>(Do::insert, shuffled(numbers(0, 24), random)));
    rig.open();
    rig.run(ops_of<K>(Do::remove, shuffled(numbers(0, 8), random)));
    rig.run(ops_of<K>(Do::insert, shuffled(numbers(24, 32), random)));
    expect_sound(rig, seed);
    for (std::size_t i = 0; i < rig.kept().size(); ++i) {
      const auto& [image, map] = rig.kept()[i];
      Rig<K> again(spec, seed + i, {.random_images = 2, .deep = false});
      again.adopt(image, map);
      again.open();
      for (int step = 0; step < 12; ++step) {
        again.run(random_op<K>(random, Keys<K>::nth(random.below(40))));
      }
      expect_sound(again, seed);
    }
  });
}

TEST_P(FenceImages, CreateIndexes) {
  with_keys([]<class K>(const std::string& spec) {
    const std::uint64_t seed = test::seed();
    Rig<K> rig(spec, seed, {.random_images = scaled(6)});
    rig.open();
    rig.run(ops_of<K>(Do::insert, {1, 2, 3}));
    rig.make_others(5);
    rig.run(ops_of<K>(Do::insert, {4, 5}));
    expect_sound(rig, seed);
  });
}

TEST_P(FenceImages, UpdatesAndUpserts) {
  with_keys([]<class K>(const std::string& spec) {
    const std::uint64_t seed = test::seed();
    Random random(seed);
    Rig<K> rig(spec, seed, {.every = 4, .random_images = scaled(3)});
    rig.preload(ops_of<K>(Do::insert, shuffled(numbers(0, 150), random)));
    rig.open();
    rig.run(ops_of<K>(Do::update, shuffled(numbers(0, 60), random)));
    rig.run(ops_of<K>(Do::upsert, shuffled(numbers(120, 180), random)));
    expect_sound(rig, seed);
  });
}

TEST_P(FenceImages, AnyOperations) {
  with_keys([]<class K>(const std::string& spec) {
    const std::uint64_t seed = test::seed();
    Random random(seed);
    Rig<K> rig(spec, seed, {.every = 10, .random_images = scaled(3)});
    rig.open();
    for (std::size_t i = 0; i < 400; ++i) {
      const std::uint64_t n = random.below(i < 250 ? 120 : 20);
      rig.run(random_op<K>(random, random.one_in(3) ? Keys<K>::odd(random) : Keys<K>::nth(n)));
    }
    expect_sound(rig, seed);
  });
}

TEST_P(FenceImages, BulkLoad) {
  with_keys([]<class K>(const std::string& spec) {
    const std::uint64_t seed = test::seed();
    const std::uint64_t n = std::min<std::uint64_t>(three_levels<K>(spec) * 2, 1200);
    std::vector<Entry<K>> entries;
    for (std::uint64_t i = 0; i < n; ++i) entries.push_back({Keys<K>::nth(i), i});
    for (const double fill : {0.5, 1.0}) {
      Rig<K> rig(spec, seed, {.every = 6, .random_images = scaled(2)});
      rig.open();
      rig.load(entries, fill);
      rig.run(ops_of<K>(Do::remove, numbers(0, 10)));
      expect_sound(rig, seed);
    }
  });
}

// A pool that is full but for a few bytes, then an index and keys that make it grow.
TEST_P(FenceImages, PoolGrowth) {
  with_keys([]<class K>(const std::string& spec) {
    const std::uint64_t seed = test::seed();
    Rig<K> rig(spec, seed, {.random_images = scaled(3), .around_growth = true});
    {
      Pool pool = Pool::open(rig.path(), small_pool()).value();
      // Whatever the spec is: a tree with extents of its own would take far more than it needs.
      auto filler = pool.index<Bytes>("filler", "wbtree").value();
      // Each key takes a slab; the slabs in use before leave room for these at most.
      while (pool.info().file_bytes - pool.info().heap_bytes - pmem::kHeapAt >= pmem::kSlabBytes) {
        ASSERT_EQ(filler.insert(std::string(20000, 'f') + std::to_string(filler.size()), 1),
                  Outcome::done);
      }
    }
    rig.open();
    std::uint64_t n = 0;
    for (; !rig.shadow().grew() && n < 20000; ++n) rig.run(Op<K>{Do::insert, Keys<K>::nth(n), n});
    for (const std::uint64_t end = n + 40; n < end; ++n) {
      rig.run(Op<K>{Do::insert, Keys<K>::nth(n), n});
    }
    EXPECT_TRUE(rig.shadow().grew());
    expect_sound(rig, seed);
  });
}

// Records up to the largest: large blocks are taken from and given back to runs of slabs.
TEST_P(FenceImagesOfBytes, LargeKeys) {
  const std::uint64_t seed = test::seed();
  Random random(seed);
  Rig<Bytes> rig(GetParam().spec, seed, {.every = 3, .random_images = scaled(2)});
  rig.preload(ops_of<Bytes>(Do::insert, numbers(0, 20)));
  rig.open();
  std::vector<std::string> keys;
  for (const std::size_t bytes : {16379, 16380, 16381, 17000, 40000, 65404, 65405, 65536}) {
    keys.push_back(std::string(bytes, 'L'));
  }
  keys.push_back("L" + std::string(30000, '\xFF'));
  for (const auto& key : keys) rig.run({Do::insert, key, key.size()});
  for (std::size_t i = 0; i < 24; ++i) {
    rig.run(random_op<Bytes>(random, keys[random.below(keys.size())]));
  }
  for (const auto& key : keys) rig.run({Do::remove, key, 0});
  expect_sound(rig, seed);
}

// --- Canaries: a lost flush or fence is found ----------------------------------------------------
// Sanitizers, which slow these down most, look for other things.
#if !defined(__SANITIZE_ADDRESS__)

template <class K>
std::string lose(const std::string& spec, std::uint64_t flush, std::uint64_t fence) {
  Rig<K> rig(
      spec, 7,
      {.random_images = 4, .thinner = 1, .deep = false, .lost_flush = flush, .lost_fence = fence});
  rig.preload(ops_of<K>(Do::insert, numbers(0, 30)));
  rig.open();
  rig.run(ops_of<K>(Do::insert, numbers(30, 42)));
  rig.run(ops_of<K>(Do::remove, numbers(0, 7)));
  rig.close();
  return rig.problem;
}

// Two are enough: many a line is flushed again soon, and few images are looked at.
TEST_P(FenceImages, CanaryFindsALostFlush) {
  with_keys([]<class K>(const std::string& spec) {
    EXPECT_EQ(lose<K>(spec, 0, 0), "");
    int found = 0;
    for (std::uint64_t n = 1; n <= 40 && found < 2; ++n) {
      found += static_cast<int>(!lose<K>(spec, n, 0).empty());
    }
    EXPECT_EQ(found, 2);
  });
}

TEST_P(FenceImages, CanaryFindsALostFence) {
  with_keys([]<class K>(const std::string& spec) {
    int found = 0;
    for (std::uint64_t n = 1; n <= 16 && found < 2; ++n) {
      found += static_cast<int>(!lose<K>(spec, 0, n).empty());
    }
    EXPECT_EQ(found, 2);
  });
}
#endif

EVERLEAF_EVERY_TREE_THAT(FenceImages, is_strict_case);
EVERLEAF_EVERY_TREE_THAT(FenceImagesOfBytes,
                         [](const Case& c) { return is_strict_case(c) && has_bytes_keys(c); });

}  // namespace
}  // namespace everleaf::test
