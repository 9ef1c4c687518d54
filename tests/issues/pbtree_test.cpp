// Stories of src/trees/pbtree.
#include <algorithm>
#include <cstring>
#include <new>
#include <string>

#include <gtest/gtest.h>

#include "hooks.hpp"
#include "pmem/format.hpp"
#include "support.hpp"
#include "trees/pbtree/layout.hpp"
#include "trees/pool_state.hpp"

namespace everleaf::test {
namespace {

// A6: two leaves were put before the first one, and the parent learned of the second one first (the
// first time, space was out). The leaf that had been the first one got two entries then, and a
// merge took one of them away: the smallest keys led to a node that was free.
TEST(Pbtree, ParentsLearnOfTheFirstLeafFirst) {
  Pool pool = Pool::anonymous().value();
  auto index = pool.index<std::uint64_t>("index", "pbtree:node=256").value();
  alloc::Heap& heap = PoolAccess::state(pool).heap();
  std::uint64_t key = 1'000'000;
  const auto leaves = [&] { return index.stats().leaf_nodes; };
  // The root is full: its next entry needs a node.
  while (leaves() < 14) ASSERT_EQ(index.insert(--key, 1), Outcome::done);
  while (leaves() < 15) {
    heap.fail_after(1);
    ASSERT_EQ(index.insert(--key, 1), Outcome::done);
    heap.fail_after(~std::uint64_t{0});
  }
  ASSERT_EQ(figure(index.stats(), "nodes_without_parent_entry"), 1U);
  const std::uint64_t in_the_old_one = key + 5;
  while (leaves() < 16) ASSERT_EQ(index.insert(--key, 1), Outcome::done);
  for (std::uint64_t i = 0; i < 20; ++i) {
    ASSERT_EQ(index.upsert(in_the_old_one + i, 1), Outcome::done);
  }
  EXPECT_EQ(figure(index.stats(), "nodes_without_parent_entry"), 0U);
  for (std::uint64_t i = 1; i < 40; ++i) {
    ASSERT_EQ(index.remove(key + i), Outcome::done);
    ASSERT_EQ(unsound(pool), "") << i;
    ASSERT_TRUE(index.find(key));
  }
}

// A node of a pool in memory, to be poked.
struct Poked {
  tree::pbtree::Header* header;
  tree::pbtree::Entry* entries;
};
Poked poked(Pool& pool, pmem::Offset node) {
  auto* const header = PoolAccess::state(pool).medium().at<tree::pbtree::Header>(node);
  return {header, reinterpret_cast<tree::pbtree::Entry*>(header + 1)};
}
// Of the first index of a pool.
pmem::Offset root_of(Pool& pool) {
  const pmem::Word word =
      PoolAccess::state(pool).medium().at<pmem::DirectoryEntry>(pmem::kDirectoryAt)->root;
  return word & ~pmem::Word{tree::pbtree::kNodeAlign - 1};
}
// The leaves, by their links.
std::vector<pmem::Offset> leaves_of(Pool& pool) {
  std::vector<pmem::Offset> leaves;
  pmem::Offset node = root_of(pool);
  while ((poked(pool, node).header->meta & tree::pbtree::kLevelMask) != 0) {
    node = poked(pool, node).header->leftmost;
  }
  for (; node != 0; node = poked(pool, node).header->right) leaves.push_back(node);
  return leaves;
}
constexpr unsigned kCapacity = tree::pbtree::capacity_of(256);

// A2: a crash in a shift of an inner node left a copy of an entry. The child was merged away, which
// changed the entry that counts alone, and the next shift carried the copy along: for some stores
// it stood where the other one had been, and a reader followed it to a node that was free.
TEST(Pbtree, CopiesInInnerNodesAreNotShifted) {
  Pool pool = Pool::anonymous().value();
  auto index = pool.index<std::uint64_t>("index", "pbtree:node=256").value();
  for (std::uint64_t key = 100; key <= 10'000; key += 100) {
    ASSERT_EQ(index.insert(key, 1), Outcome::done);
  }
  const Poked root = poked(pool, root_of(pool));
  unsigned end = 0;
  while (end < kCapacity && root.entries[end].key > root.header->pivot_key) ++end;
  ASSERT_EQ(end, 6U);
  // What a crash leaves of an insertion at or before entry 3.
  for (unsigned i = end; i > 3; --i) root.entries[i] = root.entries[i - 1];
  ASSERT_EQ(unsound(pool), "");
  // The child goes.
  const pmem::Word child = root.entries[4].value;
  const pmem::Word low = root.entries[4].key;
  const pmem::Word high = root.entries[6].key;
  for (std::uint64_t key = low; key < high; key += 100) {
    ASSERT_EQ(index.remove(key), Outcome::done);
  }
  ASSERT_NE(root.entries[4].value, child);
  // Splits before it shift the root's entries.
  const std::uint64_t before = figure(index.stats(), "splits");
  for (std::uint64_t key = 1501; figure(index.stats(), "splits") < before + 2; ++key) {
    ASSERT_EQ(index.insert(key, 1), Outcome::done);
  }
  for (unsigned i = 0; i < kCapacity && root.entries[i].key > root.header->pivot_key; ++i) {
    EXPECT_NE(root.entries[i].value, child);
  }
  EXPECT_EQ(unsound(pool), "");
}

// A2: crash after crash left so many copies that the leaf was full of them. It had too few keys to
// be split, and every insertion was told that the pool is damaged.
TEST(Pbtree, ALeafFullOfCopies) {
  Pool pool = Pool::anonymous().value();
  auto index = pool.index<std::uint64_t>("index", "pbtree:node=256").value();
  for (std::uint64_t key = 10; key <= 1000; key += 10) {
    ASSERT_EQ(index.insert(key, key), Outcome::done);
  }
  const Poked leaf = poked(pool, leaves_of(pool)[3]);
  ASSERT_GT(leaf.entries[kCapacity - 1].key, leaf.header->pivot_key);
  // The pivot, and the first and the last key of the right region.
  for (unsigned i = 1; i < kCapacity - 1; ++i) {
    ASSERT_EQ(index.remove(leaf.entries[1].key), Outcome::done);
  }
  const std::uint64_t key = leaf.entries[0].key + 1;
  // Each round is what a crash leaves of an insertion of the key after its first two stores.
  for (unsigned end = 2; end < kCapacity; ++end) leaf.entries[end] = leaf.entries[end - 1];
  ASSERT_EQ(unsound(pool), "");
  const std::uint64_t keys = index.size();
  EXPECT_EQ(index.insert(key, 7), Outcome::done);
  EXPECT_EQ(index.size(), keys + 1);
  EXPECT_EQ(*index.find(key), 7U);
  EXPECT_EQ(*index.find(leaf.entries[0].key), leaf.entries[0].value);
  EXPECT_EQ(unsound(pool), "");
}

// Nodes that overlap: what ends the split of one pair begins that of another one, and so on.
// Writers tried for ever.
TEST(Pbtree, NodesThatMakeEachOtherUnfinished) {
  using namespace tree::pbtree;
  Pool pool = Pool::anonymous().value();
  auto index = pool.index<std::uint64_t>("index", "pbtree:node=512").value();
  ASSERT_EQ(index.insert(1, 1), Outcome::done);
  pmem::Medium& medium = PoolAccess::state(pool).medium();
  const pmem::Offset d = root_of(pool) / pmem::kSlabBytes * pmem::kSlabBytes + pmem::kSlabBytes / 2;
  const pmem::Offset a = d + 64;
  const pmem::Offset b = d + 128;
  const pmem::Offset c = d + 512;
  std::memset(medium.at(d), 0, 1024);
  const auto forge = [&] {
    *medium.at<Header>(a) = {kCopy | kPivotLive, 1, 0, Word{1} << 60, 0, c, b, 0};
    *medium.at<Header>(b) = {kSplitting | kPivotLive, 2, 0, 0x200, 0, a, 0, 0};
    *medium.at<Header>(c) = {kSplitting, 0, 0, 0, 0, 0, d, 0};
    Header& last = *medium.at<Header>(d);
    last.split_key = Word{1} << 50;
    last.pivot_key = 0x700;
  };
  medium.at<pmem::DirectoryEntry>(pmem::kDirectoryAt)->root = a;
  forge();
  EXPECT_EQ(index.upsert(std::uint64_t{1} << 40, 1), Outcome::corrupt);
  forge();
  EXPECT_EQ(index.insert(std::uint64_t{1} << 40, 1), Outcome::corrupt);
}

// Entries between free ones: the end of a region was sought again after a copy had gone, and found
// behind the node.
TEST(Pbtree, GapsBetweenEntries) {
  Pool pool = Pool::anonymous().value();
  auto index = pool.index<std::uint64_t>("index", "pbtree:node=256").value();
  ASSERT_EQ(index.insert(100, 1), Outcome::done);
  const Poked leaf = poked(pool, root_of(pool));
  leaf.header->pivot_key = 100;
  for (unsigned i = 0; i < kCapacity; ++i) leaf.entries[i] = {i == 5 || i == 6 ? 5U : 100U, 1};
  const tree::pbtree::Entry behind = leaf.entries[kCapacity];
  EXPECT_EQ(index.remove(5), Outcome::corrupt);
  EXPECT_EQ(leaf.entries[kCapacity].key, behind.key);
}

// A leaf whose left sibling does not know it, and the root far from it: each look leads back by the
// same long way.
TEST(Pbtree, ALeftSiblingThatIsNone) {
  Pool pool = Pool::anonymous().value();
  auto index = pool.index<std::uint64_t>("index", "pbtree:node=256").value();
  for (std::uint64_t key = 0; key < 2000; ++key) ASSERT_EQ(index.insert(key, key), Outcome::done);
  const auto leaves = leaves_of(pool);
  ASSERT_GT(leaves.size(), 100U);
  PoolAccess::state(pool).medium().at<pmem::DirectoryEntry>(pmem::kDirectoryAt)->root = leaves[0];
  poked(pool, leaves.back()).header->left = leaves[0];
  std::vector<Entry<std::uint64_t>> out;
  const std::uint64_t before = figure(index.stats(), "wrong_child_visits");
  EXPECT_EQ(index.scan_back(2000, 1000, out), Outcome::corrupt);
  EXPECT_LT(figure(index.stats(), "wrong_child_visits") - before, leaves.size() * 100);
}

// Flags of unfinished splits on nodes that do not belong to each other: nothing that finishing a
// split clears. Writers tried for ever.
TEST(Pbtree, DamagedFlags) {
  using tree::pbtree::kCopy;
  using tree::pbtree::kSplitting;
  for (int damage = 0; damage < 3; ++damage) {
    Pool pool = Pool::anonymous().value();
    auto index = pool.index<std::uint64_t>("index", "pbtree:node=256").value();
    for (std::uint64_t key = 10; key <= 1000; key += 10) {
      ASSERT_EQ(index.insert(key, key), Outcome::done);
    }
    const auto leaves = leaves_of(pool);
    ASSERT_GT(leaves.size(), 7U);
    tree::pbtree::Header& leaf = *poked(pool, leaves[2]).header;
    leaf.meta |= kCopy;
    leaf.left = damage == 2 ? leaves[2] : leaves[5];
    if (damage == 0) poked(pool, leaves[5]).header->meta |= kCopy;
    if (damage == 1) poked(pool, leaves[6]).header->meta |= kSplitting;
    const std::uint64_t key = leaf.split_key + 1;
    EXPECT_EQ(index.insert(key, 1), Outcome::corrupt) << damage;
    EXPECT_EQ(index.upsert(key - 1, 1), Outcome::corrupt) << damage;
    EXPECT_EQ(index.remove(key - 1), Outcome::corrupt) << damage;
    EXPECT_NE(unsound(pool), "") << damage;
  }
}

// With common prefixes that long, a fresh leaf's redo record vouches for two of the longest keys.
TEST(Pbtree, LongestKeysWithTheSamePrefix) {
  for (const bool rising : {true, false}) {
    Pool pool = Pool::anonymous().value();
    auto index = pool.index<Bytes>("index", "pbtree:node=4096").value();
    std::string key(kMaxKeyBytes, 'k');
    for (int i = 0; i < 600; ++i) {
      const int n = rising ? i : 599 - i;
      key[kMaxKeyBytes - 2] = static_cast<char>(n / 100);
      key[kMaxKeyBytes - 1] = static_cast<char>(n % 100);
      ASSERT_EQ(index.insert(key, 1), Outcome::done) << n;
    }
    EXPECT_EQ(unsound(pool), "");
    EXPECT_EQ(index.size(), 600U);
  }
}

// A full pool: leaves that are emptied go without a fresh block, and what is left can be read.
TEST(Pbtree, EmptiedInAFullPool) {
  PoolOptions options;
  options.max_bytes = std::uint64_t{4} << 20;
  const Scratch scratch;
  Pool pool = Pool::open(scratch / "pool", options).value();
  auto index = pool.index<std::uint64_t>("index", "pbtree:node=256").value();
  std::uint64_t keys = 0;
  while (index.insert(keys, keys) == Outcome::done) ++keys;
  ASSERT_GT(keys, 100'000U);
  ASSERT_NE(keys % 7919, 0U);
  for (std::uint64_t key = 0; key < keys; ++key) {
    ASSERT_EQ(index.remove((key * 7919) % keys), Outcome::done);
  }
  std::vector<Entry<std::uint64_t>> seen;
  EXPECT_EQ(index.scan(0, 10, seen), Outcome::done);
  EXPECT_TRUE(seen.empty());
  EXPECT_EQ(index.scan_back(std::nullopt, 10, seen), Outcome::done);
  EXPECT_TRUE(seen.empty());
  EXPECT_EQ(unsound(pool), "");
  EXPECT_LT(index.stats().leaf_nodes, keys / 13 / 4) << "leaves stay";
  ASSERT_EQ(index.insert(5, 6), Outcome::done);
}

// Of the allocations of one operation, the one that fails; or that one and all behind it.
int g_failing = 0;
bool g_all_behind = false;
void maybe_fail() {
  if (g_failing > 1) {
    --g_failing;
    return;
  }
  if (g_failing == 0) return;
  if (!g_all_behind) g_failing = 0;
  throw std::bad_alloc();
}

// An operation that ran out of memory had happened all the same (it ended in a parent's entry or in
// a merge, which can wait), or the process ended: a block was given back by a destructor.
TEST(Pbtree, OutOfMemoryBeforeItHappensOrNotAtAll) {
  constexpr std::uint64_t kKeys = 1500;
  const auto key_of = [](std::uint64_t n) {
    return "a common prefix that is rather long " + Keys<Bytes>::nth(n * 7919 % kKeys);
  };
  for (const bool all_behind : {false, true}) {
    Pool pool = Pool::anonymous().value();
    auto index = pool.index<Bytes>("index", "pbtree:node=256").value();
    std::uint64_t thrown = 0;
    const auto change = [&](const std::string& key, bool insert) {
      for (int allocation = 1;; ++allocation) {
        bool threw = false;
        g_failing = allocation;
        g_all_behind = all_behind;
        before_allocation = maybe_fail;
        try {
          const Outcome outcome = insert ? index.insert(key, 1) : index.remove(key);
          before_allocation = nullptr;
          ASSERT_EQ(outcome, Outcome::done) << key;
        } catch (const std::bad_alloc&) {
          before_allocation = nullptr;
          threw = true;
        }
        ASSERT_EQ(index.find(key).outcome == Outcome::done, insert != threw) << key;
        if (!threw) return;
        ++thrown;
      }
    };
    for (std::uint64_t n = 0; n < kKeys; ++n) change(key_of(n), true);
    for (std::uint64_t n = 0; n < kKeys; ++n) change(key_of(n), false);
    EXPECT_GT(thrown, 0U);
    EXPECT_TRUE(index.check().problems.empty());
  }
}

// The largest nodes: too slow for all scenarios. On `disk`, long shifts take several redo records.
template <class K>
void any_operations(const PoolOptions& options) {
  const std::uint64_t seed = test::seed();
  Random random(seed);
  const Scratch scratch;
  Pool pool = Pool::open(scratch / "pool", options).value();
  auto index = pool.index<K>("index", "pbtree:node=4096").value();
  Map<K> map;
  for (int i = 0; i < 6000; ++i) {
    const Op<K> op = random_op<K>(random, Keys<K>::nth(random.below(i % 3000 < 2000 ? 3000 : 300)));
    ASSERT_EQ(apply<K>(index, op), apply<K>(map, op)) << show<K>(op) << ", seed " << seed;
  }
  EXPECT_EQ(difference<K>(index, map), "") << "seed " << seed;
  EXPECT_EQ(unsound(pool), "") << "seed " << seed;
}

TEST(Pbtree, LargestNodes) {
  any_operations<std::uint64_t>(small_pool());
  any_operations<Bytes>(small_pool());
  any_operations<std::uint64_t>(on_disk());
}

// The split key of a leaf and the pivot of its neighbour name one record: a merge gave it up twice,
// and it would have been handed out twice.
TEST(Pbtree, AMergeGivesUpNoRecordTwice) {
  unsigned cases = 0;
  for (std::size_t which = 1; which < 6; ++which) {
    Pool pool = Pool::anonymous().value();
    auto index = pool.index<Bytes>("index", "pbtree:node=256").value();
    Random random(which);
    Map<Bytes> map;
    while (map.size() < 60) {
      const std::string key = Keys<Bytes>::nth(random.below(1000));
      if (index.insert(key, 1) == Outcome::done) map.emplace(key, 1);
    }
    const auto key_of = [&](pmem::Word word) {
      const pmem::Offset at = word & ((pmem::Word{1} << 40) - 1);
      std::uint32_t length = 0;
      const char* const record = PoolAccess::state(pool).medium().at<char>(at);
      std::memcpy(&length, record, sizeof length);
      return std::string(record + sizeof length, length);
    };
    const auto leaves = leaves_of(pool);
    ASSERT_GT(leaves.size(), which + 1);
    tree::pbtree::Header& left = *poked(pool, leaves[which]).header;
    tree::pbtree::Header& right = *poked(pool, leaves[which + 1]).header;
    if (leaves[which + 1] == leaves.back() || left.pivot_key == left.split_key) continue;
    const std::string pivot = key_of(left.pivot_key);
    const std::string low = key_of(left.split_key);
    const std::string high = key_of(right.split_key);
    if (!map.contains(pivot)) continue;
    std::vector<std::string> below;
    for (auto at = map.lower_bound(low); at != map.end() && at->first < high; ++at) {
      if (at->first < pivot) below.push_back(at->first);
    }
    ASSERT_EQ(index.remove(pivot), Outcome::done);
    std::size_t in_leaf = below.size();
    for (auto at = map.upper_bound(pivot); at != map.end() && at->first < high; ++at) ++in_leaf;
    for (auto at = map.upper_bound(pivot); at != map.end() && at->first < high; ++at) {
      if (in_leaf-- <= 4) break;
      ASSERT_EQ(index.remove(at->first), Outcome::done);
    }
    if (leaves_of(pool) != leaves || (left.meta & tree::pbtree::kPivotLive) != 0) continue;
    right.split_key = left.pivot_key;
    for (const std::string& key : below) (void)index.remove(key);
    ++cases;
    EXPECT_EQ(leaves_of(pool), leaves) << which;
    EXPECT_NE(unsound(pool), "");
  }
  EXPECT_GT(cases, 0U);
}

// The parent's separator and the right leaf's split key name one record: it went with the parent's
// entry, in a redo record of its own, and a second time with the leaf.
TEST(Pbtree, AMergeGivesUpNoRecordThatItsParentGaveUp) {
  constexpr std::size_t kKeys = 100;
  unsigned cases = 0;
  for (std::size_t which = 1; which < 4; ++which) {
    Pool pool = Pool::anonymous().value();
    auto index = pool.index<Bytes>("index", "pbtree:node=256").value();
    for (std::size_t i = 0; i < kKeys; ++i) {
      ASSERT_EQ(index.insert(Keys<Bytes>::nth(i), 1), Outcome::done);
    }
    const auto leaves = leaves_of(pool);
    ASSERT_GT(leaves.size(), which + 1);
    const pmem::Word split_key = poked(pool, leaves[which + 1]).header->split_key;
    const Poked root = poked(pool, root_of(pool));
    ASSERT_EQ(root.header->meta & tree::pbtree::kLevelMask, 1U);
    const auto entry_of = [&] {
      return std::find_if(root.entries, root.entries + kCapacity,
                          [&](const auto& one) { return one.value == leaves[which + 1]; });
    };
    tree::pbtree::Entry* const entry = entry_of();
    if (entry == root.entries + kCapacity) continue;  // the pivot
    constexpr pmem::Word kRecord = (pmem::Word{1} << 40) - 1;
    ASSERT_NE(entry->key & kRecord, split_key & kRecord);
    entry->key = (entry->key & ~kRecord) | (split_key & kRecord);
    ++cases;
    for (std::size_t i = 0; i < kKeys; ++i) {
      const auto before = leaves_of(pool);
      (void)index.remove(Keys<Bytes>::nth(i));
      // Once its entry is gone nothing knows the right leaf but its left sibling; both stay.
      if (entry_of() == root.entries + kCapacity) {
        EXPECT_EQ(leaves_of(pool), before) << which;
        break;
      }
    }
    EXPECT_EQ(entry_of(), root.entries + kCapacity) << which;
  }
  EXPECT_GT(cases, 0U);
}

}  // namespace
}  // namespace everleaf::test
