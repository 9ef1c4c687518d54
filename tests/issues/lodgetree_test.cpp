// Stories of src/trees/lodgetree.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <new>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "fails_at.hpp"
#include "hooks.hpp"
#include "pmem/format.hpp"
#include "shadow.hpp"
#include "support.hpp"
#include "trees/fingerprint_keys.hpp"
#include "trees/lodgetree/layout.hpp"
#include "trees/lodgetree/log.hpp"
#include "trees/pool_state.hpp"

namespace everleaf::test {
namespace {

namespace lodge = tree::lodgetree;

// The pool's memory, to be poked; of the first index of a pool.
struct Poked {
  explicit Poked(Pool& pool) : medium(PoolAccess::state(pool).medium()) {}
  [[nodiscard]] pmem::Offset root() const {
    return medium.at<pmem::DirectoryEntry>(pmem::kDirectoryAt)->root;
  }
  [[nodiscard]] lodge::RootLine* line() const { return medium.at<lodge::RootLine>(root()); }
  [[nodiscard]] lodge::LeafLine* leaf(pmem::Offset at) const {
    return medium.at<lodge::LeafLine>(at);
  }
  [[nodiscard]] static pmem::Offset next(const lodge::LeafLine& leaf) {
    const pmem::Word number =
        (leaf.w & lodge::kUse) != 0 ? leaf.links >> 32 : leaf.links & 0xFFFFFFFF;
    return number * lodge::kLeafAlign;
  }
  [[nodiscard]] lodge::Record* records() const {
    return medium.at<lodge::Record>(*medium.at<pmem::Word>(root() + lodge::kDirectoryAt));
  }
  pmem::Medium& medium;
};

PoolOptions tight() {
  PoolOptions options = small_pool();
  options.max_bytes = std::uint64_t{1} << 20;
  return options;
}

// Until no key finds space, wherever it belongs.
template <class K>
void fill(Index<K>& index, Map<K>& map) {
  std::uint64_t refused = 0;
  for (std::uint64_t n = 0; refused < 200; ++n) {
    ASSERT_LT(n, 1'000'000U);
    const Owned<K> key = Keys<K>::nth(n * 7919 % 1'000'003);
    const Outcome outcome = index.insert(key, n);
    if (outcome == Outcome::exists) continue;
    if (outcome == Outcome::done) {
      map.emplace(key, n);
    } else {
      ASSERT_EQ(outcome, Outcome::out_of_space);
      ++refused;
    }
  }
}

// Structural damage is named with its offset.
TEST(Lodgetree, CheckNamesWhatIsBehindTheLastLeaf) {
  Pool pool = Pool::anonymous().value();
  auto index = pool.index<std::uint64_t>("i", "lodgetree").value();
  for (std::uint64_t n = 0; n < 2000; ++n) ASSERT_EQ(index.insert(n, n), Outcome::done);
  const Poked poked(pool);
  const pmem::Offset first = poked.line()->head;
  pmem::Offset last = first;
  while (Poked::next(*poked.leaf(last)) != 0) last = Poked::next(*poked.leaf(last));
  ASSERT_NE(first, last);
  lodge::LeafLine& end = *poked.leaf(last);
  const pmem::Word links = end.links;
  end.links = first / lodge::kLeafAlign << 32 | first / lodge::kLeafAlign;
  const auto problems = index.check().problems;
  end.links = links;
  EXPECT_EQ(problems, std::vector<std::string>{"node at offset " + std::to_string(first) +
                                               ": in the list behind the last leaf"});
}

// Upserts of keys that leaves have do not count as more keys: full leaves would split for nothing,
// and sizes be wrong while the pairs wait in buffers.
TEST(Lodgetree, UpsertsOfKeysThatAreThere) {
  const auto run = []<class K>() {
    Pool pool = Pool::anonymous().value();
    auto index = pool.index<K>("i", "lodgetree").value();
    Map<K> map;
    for (std::uint64_t n = 0; n < 5000; ++n) map.emplace(Keys<K>::nth(n), n);
    std::vector<Entry<K>> entries;
    for (const auto& [key, value] : map) entries.push_back({key, value});
    ASSERT_EQ(index.bulk_load(entries), Outcome::done);
    const std::uint64_t leaves = index.stats().leaf_nodes;
    for (std::uint64_t n = 0; n < 20'000; ++n) {
      const Owned<K> key = Keys<K>::nth(n * 7919 % 5000);
      ASSERT_EQ(index.upsert(key, n), Outcome::done);
      map[key] = n;
      if (n % 1000 == 0) {
        ASSERT_EQ(index.size(), map.size());
      }
    }
    EXPECT_EQ(index.stats().leaf_nodes, leaves);
    EXPECT_EQ(difference<K>(index, map), "");
    EXPECT_EQ(unsound(pool), "");
  };
  run.operator()<std::uint64_t>();
  run.operator()<Bytes>();
}

// The log of a full pool could not be emptied once the first record of each chunk waited for a leaf
// that had to split: from then on all changes of keys in buffers were refused.
TEST(Lodgetree, AFullPoolTakesUpdatesAndRemovals) {
  const auto run = []<class K>(const std::string& spec) {
    const Scratch scratch;
    Map<K> map;
    {
      Pool pool = Pool::open(scratch / "pool", tight()).value();
      auto index = pool.index<K>("index", spec).value();
      ASSERT_NO_FATAL_FAILURE(fill<K>(index, map));
      for (std::uint64_t round = 1; round < 4; ++round) {
        for (auto& [key, value] : map) {
          value += round;
          ASSERT_EQ(index.update(key, value), Outcome::done) << spec << ' ' << show(key);
        }
      }
      EXPECT_EQ(unsound(pool), "");
      PoolAccess::state(pool).abandon();
    }
    Pool pool = Pool::open(scratch / "pool", tight()).value();
    auto index = pool.index<K>("index").value();
    EXPECT_EQ(difference<K>(index, map), "") << spec;
    ASSERT_NO_FATAL_FAILURE(fill<K>(index, map));
    while (!map.empty()) {
      ASSERT_EQ(index.remove(map.begin()->first), Outcome::done) << spec;
      map.erase(map.begin());
    }
    EXPECT_EQ(difference<K>(index, map), "") << spec;
    EXPECT_EQ(unsound(pool), "");
  };
  for (const std::string spec :
       {"lodgetree:node=256:slots=8:t_node=2:log=256:chunks=3:partitions=1",
        "lodgetree:node=256:slots=32:t_node=2:log=512:chunks=5:partitions=2"}) {
    run.operator()<std::uint64_t>(spec);
    run.operator()<Bytes>(spec);
  }
}

// The same with two partitions: the records that updates replaced were in the full chunk of a
// thread that had gone. Nobody closed it, so its dead records were no holes.
TEST(Lodgetree, AFullPoolTakesUpdatesOfWhatAnotherThreadWrote) {
  constexpr const char* kSpec = "lodgetree:node=256:slots=8:t_node=2:log=256:chunks=5:partitions=2";
  for (unsigned removals = 5; removals < 100; removals += 10) {
    const Scratch scratch;
    Map<std::uint64_t> map;
    Pool pool = Pool::open(scratch / "pool", tight()).value();
    auto index = pool.index<std::uint64_t>("index", kSpec).value();
    std::uint64_t n = 0;
    std::vector<std::uint64_t> keys;  // in the order of their insertions
    const auto insert_until_refused = [&](unsigned times) {
      while (times != 0) {
        const std::uint64_t key = n++ * 7919 % 1'000'003;
        const Outcome outcome = index.insert(key, n);
        if (outcome == Outcome::done) {
          keys.push_back(key);
          map.emplace(key, n);
        } else {
          ASSERT_EQ(outcome, Outcome::out_of_space);
          --times;
        }
      }
    };
    ASSERT_NO_FATAL_FAILURE(insert_until_refused(20));
    std::thread([&] {
      for (unsigned i = 0; i < removals; ++i) {
        EXPECT_EQ(index.remove(keys.back()), Outcome::done) << removals;
        map.erase(keys.back());
        keys.pop_back();
      }
    }).join();
    ASSERT_NO_FATAL_FAILURE(insert_until_refused(200));
    for (std::size_t i = keys.size() - std::min<std::size_t>(keys.size(), 200); i < keys.size();
         ++i) {
      ASSERT_EQ(index.update(keys[i], ++map[keys[i]]), Outcome::done) << removals << ' ' << i;
    }
    EXPECT_EQ(difference<std::uint64_t>(index, map), "") << removals;
    EXPECT_EQ(unsound(pool), "") << removals;
  }
}

// The pool is recovered under crashes: what each leaves opens, and has the same.
void crash_in_recovery(const Scratch& scratch, const Map<std::uint64_t>& map) {
  using Image = Shadow::Image;
  const auto path = scratch / "crashed";
  std::filesystem::copy_file(scratch / "pool", path);
  Random random(1);
  std::vector<std::byte> image;
  std::string wrong;
  std::size_t crashes = 0;
  Shadow* seen = nullptr;  // while the tree recovers, not the pool
  Shadow shadow(path, [&] {
    for (const auto kind :
         {Image::durable, Image::noted, Image::lines, Image::lines, Image::lines, Image::lines}) {
      if (seen == nullptr || !wrong.empty()) return;
      seen->make(kind, random, image);
      write_bytes(scratch / "image", image);
      ++crashes;
      auto pool = Pool::open(scratch / "image", tight());
      if (!pool) {
        wrong = pool.error().message;
        return;
      }
      const auto index = pool->index<std::uint64_t>("index");
      wrong = index ? difference<std::uint64_t>(*index, map) : index.error().message;
      if (wrong.empty()) wrong = unsound(*pool);
      PoolAccess::state(*pool).abandon();
    }
  });
  Pool pool = PoolAccess::open(path, tight(), &shadow).value();
  seen = &shadow;
  EXPECT_TRUE(pool.index<std::uint64_t>("index"));
  seen = nullptr;
  PoolAccess::state(pool).abandon();
  EXPECT_EQ(wrong, "");
  EXPECT_GT(crashes, 0U);
}

// A16: pairs went to a leaf, but not its word and stamp; more came, and then there was no space.
// Their records and the others did not fit into a buffer at once, and to flush them all was to
// split the leaf: the pool could not be opened for writing any more.
TEST(Lodgetree, AFullPoolOpensAfterACrash) {
  constexpr const char* kSpec =
      "lodgetree:node=256:slots=8:t_node=2:log=4096:chunks=5:partitions=1";
  unsigned cases = 0;
  for (unsigned which = 1; which < 8; ++which) {
    const Scratch scratch;
    Map<std::uint64_t> map;
    {
      Pool pool = Pool::open(scratch / "pool", tight()).value();
      auto index = pool.index<std::uint64_t>("index", kSpec).value();
      for (std::uint64_t key = 0;; key += 1000) {  // each leaf keeps the half of its keys
        const Outcome outcome = index.insert(key, key);
        if (outcome == Outcome::out_of_space) break;
        ASSERT_EQ(outcome, Outcome::done);
        map.emplace(key, key);
      }
      const Poked poked(pool);
      pmem::Offset at = poked.line()->head;
      for (unsigned i = 0; i < which; ++i) at = Poked::next(*poked.leaf(at));
      lodge::LeafLine* const leaf = poked.leaf(at);
      const lodge::LeafLine before = *leaf;
      unsigned flushed = 0;
      unsigned more = 0;  // than were flushed
      for (std::uint64_t key = leaf->low + 1;; ++key) {
        const pmem::Word stamp = leaf->stamp;
        const Outcome outcome = index.insert(key, 7);
        if (outcome == Outcome::out_of_space) break;
        ASSERT_EQ(outcome, Outcome::done);
        map.emplace(key, 7);
        ++more;
        if (leaf->stamp == stamp) continue;
        flushed += more - 1;
        more = 1;
      }
      ASSERT_EQ(leaf->links, before.links);
      // As if another thread had flushed them, and gone to sleep.
      leaf->w = before.w;
      leaf->stamp = before.stamp;
      cases += flushed != 0 && flushed + more > 6 ? 1 : 0;  // a buffer takes six
      PoolAccess::state(pool).abandon();
    }
    crash_in_recovery(scratch, map);
    Pool pool = Pool::open(scratch / "pool", tight()).value();
    auto index = pool.index<std::uint64_t>("index");
    ASSERT_TRUE(index) << which << ": " << index.error().message;
    EXPECT_EQ(difference<std::uint64_t>(*index, map), "") << which;
    EXPECT_EQ(unsound(pool), "") << which;
    for (auto& [key, value] : map) ASSERT_EQ(index->update(key, ++value), Outcome::done) << key;
    EXPECT_EQ(difference<std::uint64_t>(*index, map), "") << which;
  }
  EXPECT_GT(cases, 2U);
}

// Records of the log named keys that lay over each other: a damaged pool could make an open hash
// the same bytes as often as the log has records.
TEST(Lodgetree, RecordsOfALogNameNoMoreThanThePoolHas) {
  const Scratch scratch;
  constexpr std::uint32_t kLength = 60000;
  std::string key(kLength, '\0');  // of lengths
  for (std::size_t i = 0; i < key.size(); i += sizeof kLength) {
    std::memcpy(&key[i], &kLength, sizeof kLength);
  }
  const auto open = [&] { return Pool::open(scratch / "pool", small_pool()).value(); };
  {
    Pool pool = open();
    auto index = pool.index<Bytes>("index", "lodgetree").value();
    ASSERT_EQ(index.insert(key, 1), Outcome::done);
    // Names one key as often as it likes.
    for (std::uint64_t i = 0; i < 1900; ++i) ASSERT_EQ(index.update(key, i), Outcome::done);
    PoolAccess::state(pool).abandon();
  }
  {
    Pool pool = open();
    auto index = pool.index<Bytes>("index").value();
    EXPECT_EQ(index.find(key).value, 1899U);
    ASSERT_EQ(index.update(key, 7), Outcome::done);
    const Poked poked(pool);
    const pmem::Offset record = poked.records()[0].key & ((std::uint64_t{1} << 40) - 1);
    for (std::uint64_t i = 1; i < 1900; ++i) {
      lodge::Record& one = poked.records()[i];
      one.key = record + sizeof kLength * i;
      one.order = (lodge::first_order(poked.line()->session) + i) << 1;
      const Bytes named(poked.medium.at<char>(one.key) + sizeof kLength, kLength);
      one.sum =
          lodge::Log::sum_of(one, poked.medium.offset_of(&one), tree::BytesKeys::named_hash(named));
    }
    PoolAccess::state(pool).abandon();
  }
  Pool pool = open();
  const auto index = pool.index<Bytes>("index");
  ASSERT_FALSE(index);
  EXPECT_EQ(index.error().code, Code::corrupt) << index.error().message;
}

// The same limit counted what dead records named: other keys' bytes, with lengths as it came. So a
// pool that was closed properly could not be opened any more.
TEST(Lodgetree, DeadRecordsMayNameAnything) {
  const Scratch scratch;
  constexpr std::uint32_t kLength = 60000;
  PoolOptions options = small_pool();
  options.max_bytes = std::uint64_t{64} << 20;
  const auto short_key = [](std::uint32_t n) {
    std::string key(290, 'a');
    std::memcpy(key.data(), &n, sizeof n);
    return key;
  };
  const auto long_key = [&](std::uint32_t n) {
    std::string key(48000, '\0');  // of lengths
    for (std::size_t i = 0; i < key.size(); i += sizeof kLength) {
      std::memcpy(&key[i], &kLength, sizeof kLength);
    }
    std::memcpy(key.data(), &n, sizeof n);
    return key;
  };
  {
    Pool pool = Pool::open(scratch / "pool", options).value();
    auto index = pool.index<Bytes>("index", "lodgetree").value();
    for (std::uint32_t n = 0; n < 6000; ++n) {
      ASSERT_EQ(index.insert(short_key(n), n), Outcome::done);
    }
    for (std::uint32_t n = 0; n < 6000; ++n) {
      ASSERT_EQ(index.remove(short_key(n)), Outcome::done);
    }
    for (std::uint32_t n = 0; n < 150; ++n) {
      ASSERT_EQ(index.insert(long_key(n), n), Outcome::done);
    }
  }
  Pool pool = Pool::open(scratch / "pool", options).value();
  const auto index = pool.index<Bytes>("index");
  ASSERT_TRUE(index) << index.error().message;
  EXPECT_EQ(index->size(), 150U);
  for (std::uint32_t n = 0; n < 150; ++n) EXPECT_EQ(index->find(long_key(n)).value, n);
  EXPECT_EQ(unsound(pool), "");
}

// Without memory in the middle of an open, separators of the nodes that were there already leaked
// (LeakSanitizer sees it), and then the open is as if it had not been asked for.
TEST(Lodgetree, AnOpenWithoutMemoryLeavesNothing) {
  const Scratch scratch;
  const auto path = scratch / "pool";
  Map<Bytes> map;
  {
    Pool pool = Pool::open(path, small_pool()).value();
    auto index =
        pool.index<Bytes>("index",
                          "lodgetree:node=256:slots=8:t_node=2:log=256:chunks=5:partitions=2")
            .value();
    for (std::uint64_t n = 0; n < 3000; ++n) {
      const std::string key = "a key of more than fifteen bytes " + std::to_string(n);
      ASSERT_EQ(index.insert(key, n), Outcome::done);
      map.emplace(key, n);
    }
    PoolAccess::state(pool).abandon();
  }
  int refused = 0;
  for (int allocation = 1;; allocation += 1 + allocation / 64) {
    Pool pool = Pool::open(path, small_pool()).value();
    Result<Index<Bytes>> index = [&]() -> Result<Index<Bytes>> {
      const FailsAt fails(allocation);
      try {
        return pool.index<Bytes>("index");
      } catch (const std::bad_alloc&) {  // before the tree was there
        return std::unexpected(Error{Code::out_of_space, "no memory"});
      }
    }();
    if (index && !failed) break;
    if (!index) {
      ++refused;
      EXPECT_EQ(index.error().code, Code::out_of_space) << index.error().message;
      index = pool.index<Bytes>("index");
    }
    ASSERT_TRUE(index) << index.error().message;
    if (allocation % 5 == 0) {
      EXPECT_EQ(difference<Bytes>(*index, map, 50), "");
    }
    PoolAccess::state(pool).abandon();
  }
  EXPECT_GT(refused, 20);
}

// Another index's damage writes over leaves while the tree is open: what they say of their ranges
// led a close, and the removal of a node's last key, to the same place for ever.
TEST(Lodgetree, LeavesThatForgetTheirRange) {
  constexpr const char* kSpec = "lodgetree:node=256:slots=8:t_node=2:t_split=4";
  for (const std::uint64_t wrong : {std::uint64_t{0}, std::uint64_t{1} << 40, ~std::uint64_t{0}}) {
    const Scratch scratch;
    {
      Pool pool = Pool::open(scratch / "pool", small_pool()).value();
      auto index = pool.index<std::uint64_t>("index", kSpec).value();
      std::set<std::uint64_t> keys;
      Random random(1);
      while (keys.size() < 5000) {
        const std::uint64_t key = random.below(1U << 20);
        if (!keys.insert(key).second) continue;
        ASSERT_EQ(index.insert(key, 0), Outcome::done);
      }
      const Poked poked(pool);
      for (pmem::Offset at = poked.line()->head; at != 0; at = Poked::next(*poked.leaf(at))) {
        poked.leaf(at)->low = wrong;
      }
      // From the right: each node goes beside one that is as the insertions left it.
      while (keys.size() > 1000) {
        ASSERT_EQ(index.remove(*keys.rbegin()), Outcome::done);
        keys.erase(std::prev(keys.end()));
      }
    }
    Pool pool = Pool::open(scratch / "pool", small_pool()).value();
    const auto index = pool.index<std::uint64_t>("index");
    ASSERT_FALSE(index);
    EXPECT_EQ(index.error().code, Code::corrupt) << index.error().message;
  }
}

// The same with a chunk of the log: a record that no buffer was found to have was waited for.
TEST(Lodgetree, RecordsThatForgetTheirKeys) {
  for (const bool forgets_order : {false, true}) {
    Pool pool = Pool::anonymous().value();
    auto index = pool.index<std::uint64_t>(
                         "i", "lodgetree:node=256:slots=8:t_node=2:log=256:chunks=3:partitions=1")
                     .value();
    for (std::uint64_t n = 0; n < 2000; ++n) ASSERT_EQ(index.insert(n * 2, n), Outcome::done);
    constexpr std::uint64_t kCold = 1;  // nobody comes by its node again
    ASSERT_EQ(index.insert(kCold, 7), Outcome::done);
    const Poked poked(pool);
    const auto* const chunks = poked.medium.at<pmem::Word>(poked.root() + lodge::kDirectoryAt);
    std::size_t forged = 0;
    for (std::size_t i = 0; i < 3 && chunks[i] != 0; ++i) {
      for (auto& one :
           std::span(poked.medium.at<lodge::Record>(chunks[i]), 256 / sizeof(lodge::Record))) {
        if (one.key != kCold || one.order == 0) continue;
        ++forged;
        (forgets_order ? one.order : one.key) = forgets_order ? 0 : 2;
      }
    }
    ASSERT_EQ(forged, 1U);
    Outcome outcome = Outcome::done;
    std::uint64_t n = 1;  // each to another node: their records live, too
    for (; n < 1000 && outcome == Outcome::done; ++n) {
      outcome = index.insert(n * 797 % 2000 * 2 + 1, n);
    }
    EXPECT_EQ(outcome, Outcome::corrupt) << n;
    EXPECT_EQ(index.find(kCold).value, 7U);
  }
}

// The word of a range that another index wrote over: it was given back as a block's place, and its
// low bits made it the address of a node in memory.
TEST(Lodgetree, ARangeThatNamesNoBlock) {
  for (const pmem::Word bits : {1U, 2U, 3U, 8U}) {
    Pool pool = Pool::anonymous().value();
    auto index =
        pool.index<Bytes>("index", "lodgetree:node=256:slots=8:t_node=2:t_split=4").value();
    std::set<std::string> keys;
    for (std::uint64_t i = 0; i < 3000; ++i) {
      const std::string key = Keys<Bytes>::nth(i);
      ASSERT_EQ(index.insert(key, i), Outcome::done);
      keys.insert(key);
    }
    const Poked poked(pool);
    for (pmem::Offset at = poked.line()->head; at != 0; at = Poked::next(*poked.leaf(at))) {
      if (poked.leaf(at)->low != 0) poked.leaf(at)->low |= bits;
    }
    EXPECT_NE(unsound(pool), "");
    for (const std::string& key : keys) (void)index.remove(key);
    (void)index.sync();
    ASSERT_TRUE(pool.close());  // what waits for its grace period is given back
  }
}

// A leaf that its node knows as empty, and its neighbour: full, as another index left them. To
// absorb one there were not slots enough.
TEST(Lodgetree, AnEmptyLeafThatIsFull) {
  const Scratch scratch;
  constexpr lodge::Shape kShape = lodge::make_shape(256);
  const auto open = [&] { return Pool::open(scratch / "pool", small_pool()).value(); };
  const auto leaves_of = [](const Poked& poked) {
    std::vector<pmem::Offset> leaves;
    for (pmem::Offset at = poked.line()->head; at != 0; at = Poked::next(*poked.leaf(at))) {
      leaves.push_back(at);
    }
    return leaves;
  };
  std::uint64_t first = 0;  // key of the leaf that goes
  {
    Pool pool = open();
    auto index = pool.index<std::uint64_t>("index", "lodgetree:node=256").value();
    for (std::uint64_t n = 0; n < 90; ++n) ASSERT_EQ(index.insert(n, n), Outcome::done);
  }
  {
    Pool pool = open();
    auto index = pool.index<std::uint64_t>("index").value();
    const Poked poked(pool);
    const auto leaves = leaves_of(poked);
    ASSERT_GT(leaves.size(), 6U);
    first = poked.leaf(leaves[2])->low;
    const std::uint64_t behind = poked.leaf(leaves[3])->low;
    // They wait in the buffer; a close flushes them, and leaves the leaf.
    for (std::uint64_t key = first; key < behind; ++key) {
      ASSERT_EQ(index.remove(key), Outcome::done);
    }
  }
  Pool pool = open();
  auto index = pool.index<std::uint64_t>("index").value();
  const Poked poked(pool);
  const auto leaves = leaves_of(poked);
  lodge::LeafLine& left = *poked.leaf(leaves[1]);
  lodge::LeafLine& right = *poked.leaf(leaves[2]);
  ASSERT_EQ(right.low, first);
  ASSERT_EQ(right.w & kShape.bits(), 0U);
  left.w |= kShape.bits();
  right.w |= kShape.bits();
  const pmem::Word before = left.w;
  // Another leaf is emptied, and then each empty one is looked at.
  const std::uint64_t end = poked.leaf(leaves[5])->low;
  for (std::uint64_t key = poked.leaf(leaves[4])->low; key < end; ++key) {
    ASSERT_EQ(index.remove(key), Outcome::done);
  }
  for (std::uint64_t n = 0; leaves_of(poked).size() == leaves.size() && n < 100; ++n) {
    ASSERT_EQ(index.insert(1000 + n, n), Outcome::done);
  }
  EXPECT_EQ(leaves_of(poked).size(), leaves.size() - 1);  // the other one went
  EXPECT_EQ(left.w, before);
  EXPECT_NE(unsound(pool), "");
}

// A key that its leaf, the last one, cannot have: recovery could not flush what the log has for
// that leaf, and took it for flushed. With the session's records the next crash forgot it.
TEST(Lodgetree, ALastLeafThatCannotBeFlushed) {
  constexpr lodge::Shape kShape = lodge::make_shape(256);
  for (std::uint64_t n = 30; n < 60; ++n) {
    const Scratch scratch;
    std::uint64_t lost = 0;
    {
      Pool pool = Pool::open(scratch / "pool", small_pool()).value();
      auto index = pool.index<std::uint64_t>("index", "lodgetree:node=256:slots=8").value();
      for (std::uint64_t key = 2; key < n; ++key) ASSERT_EQ(index.insert(key, 7), Outcome::done);
      const Poked poked(pool);
      pmem::Offset last = poked.line()->head;
      while (Poked::next(*poked.leaf(last)) != 0) last = Poked::next(*poked.leaf(last));
      ASSERT_NE(last, poked.line()->head);
      const pmem::Word in_use = poked.leaf(last)->w & kShape.bits();
      if (in_use == 0) continue;
      auto* const slots = poked.medium.at<lodge::Slot>(last + kShape.slots_at);
      lost = std::exchange(slots[std::countr_zero(in_use)].key, 1);
      PoolAccess::state(pool).abandon();
    }
    for (int crash = 0; crash < 2; ++crash) {
      Pool pool = Pool::open(scratch / "pool", small_pool()).value();
      const auto index = pool.index<std::uint64_t>("index");
      ASSERT_TRUE(index) << index.error().message;
      for (std::uint64_t key = 2; key < n; ++key) {
        EXPECT_TRUE(key == lost || index->find(key)) << key << " of " << n << ", " << crash;
      }
      PoolAccess::state(pool).abandon();
    }
  }
}

}  // namespace
}  // namespace everleaf::test
