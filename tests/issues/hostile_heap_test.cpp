// The stories: a free-run header that lay over living slabs was believed, and blocks were handed
// out far beyond the file; a node offset that pointed at a slab's own header let a tree overwrite
// it, and a freed block's bit was then looked up in a bitmap of another class. Now a header carries
// a check that binds it to its slab, runs over slabs in use are refused, and no node starts in the
// lines that belong to the heap.
#include <cstring>

#include "forge.hpp"
#include "pmem/format.hpp"
#include "support.hpp"
#include "trees/pool_state.hpp"

namespace everleaf::test {
namespace {

// Every bit of every slab header, flipped; then the pool is used up to its last slab.
TEST(HostileHeap, DamagedSlabHeaders) {
  const Scratch scratch;
  const auto path = scratch / "pool";
  std::size_t slabs = 0;
  {
    Pool pool = Pool::open(path, small_pool()).value();
    (void)pool.index<Bytes>("small", "wbtree:node=128").value();
    auto index = pool.index<std::uint64_t>("large", "wbtree:node=1024").value();
    for (std::uint64_t i = 0; i < 4000; ++i) ASSERT_EQ(index.insert(i, i), Outcome::done);
    for (std::uint64_t i = 1000; i < 3000; ++i) ASSERT_EQ(index.remove(i), Outcome::done);
    slabs = pool.info().heap_bytes / pmem::kSlabBytes;
  }
  const auto sound = read_bytes(path);
  for (std::size_t slab = 0; slab < slabs; ++slab) {
    for (unsigned bit = 0; bit < 64; ++bit) {
      auto image = sound;
      image[pmem::kHeapAt + slab * pmem::kSlabBytes + bit / 8] ^= std::byte{1} << (bit % 8);
      write_bytes(path, image);
      Pool pool = Pool::open(path, small_pool()).value();
      EXPECT_NE(unsound(pool), "") << "slab " << slab << ", bit " << bit;
      auto index = pool.index<std::uint64_t>("large").value();
      for (std::uint64_t i = 0; i < 4000; i += 3) (void)index.remove(i);
      auto small = pool.index<Bytes>("small").value();
      for (std::uint64_t i = 0; i < 300; ++i) (void)small.insert(std::to_string(i), i);
      auto& state = PoolAccess::state(pool);
      for (int i = 0; i < 100; ++i) {
        const auto block = state.heap().reserve(1024);
        ASSERT_TRUE(block == 0 || state.medium().contains(block, 1024));
      }
    }
  }
}

// A thread was killed between its frontier and its slab's header: the slab is free. But a header of
// zeros over anything else is damage, and what lies behind it stays as it is.
TEST(HostileHeap, ASlabOfZerosIsFree) {
  const Scratch scratch;
  const auto path = scratch / "pool";
  { (void)Pool::open(path, small_pool()).value().index<std::uint64_t>("index").value(); }
  auto image = read_bytes(path);
  std::uint64_t frontier = 0;
  std::memcpy(&frontier, &image[pmem::kStateAt], sizeof frontier);
  const std::uint64_t end = frontier + 2 * pmem::kSlabBytes;
  ASSERT_LE(end, image.size());
  std::memcpy(&image[pmem::kStateAt], &end, sizeof end);
  const auto use = [&] {
    Pool pool = Pool::open(path, small_pool()).value();
    auto index = pool.index<std::uint64_t>("index").value();
    for (std::uint64_t i = 0; i < 20'000; ++i) EXPECT_EQ(index.upsert(i, i), Outcome::done);
  };
  write_bytes(path, image);
  {
    Pool pool = Pool::open(path, small_pool()).value();
    EXPECT_EQ(unsound(pool), "");
  }
  use();
  auto used = read_bytes(path);
  const auto slab_is_used = [&](std::uint64_t slab) {
    return std::any_of(&used[slab], &used[slab] + sizeof(std::uint64_t),
                       [](std::byte one) { return one != std::byte{0}; });
  };
  EXPECT_TRUE(slab_is_used(frontier));
  EXPECT_TRUE(slab_is_used(frontier + pmem::kSlabBytes));

  image[frontier + 5000] = std::byte{1};
  write_bytes(path, image);
  {
    Pool pool = Pool::open(path, small_pool()).value();
    EXPECT_NE(unsound(pool), "");
  }
  use();
  used = read_bytes(path);
  EXPECT_FALSE(slab_is_used(frontier));
  EXPECT_FALSE(slab_is_used(frontier + pmem::kSlabBytes)) << "it may be the inside of a block";
  EXPECT_EQ(used[frontier + 5000], std::byte{1});
}

// Releases that made a slab's header before the frontier could be killed in between. Such a header
// over several slabs would count once the frontier is behind them all.
TEST(HostileHeap, AnEarlyHeaderIsDropped) {
  const Scratch scratch;
  const auto path = scratch / "pool";
  std::uint64_t before = 0;
  {
    Pool pool = Pool::open(path, small_pool()).value();
    (void)pool.index<std::uint64_t>("index").value();
    before = pool.info().heap_bytes + pmem::kHeapAt;
    ASSERT_NE(PoolAccess::state(pool).heap().reserve(3 * pmem::kSlabBytes), 0U);
    ASSERT_EQ(pool.info().heap_bytes + pmem::kHeapAt, before + 4 * pmem::kSlabBytes);
  }
  auto image = read_bytes(path);
  std::memcpy(&image[pmem::kStateAt], &before, sizeof before);
  const auto header_of = [&](const std::vector<std::byte>& bytes) {
    std::uint64_t header = 0;
    std::memcpy(&header, &bytes[before], sizeof header);
    return header;
  };
  ASSERT_NE(header_of(image), 0U);
  write_bytes(path, image);
  { (void)Pool::open(path, small_pool()).value(); }
  EXPECT_EQ(header_of(read_bytes(path)), 0U);

  // With a block in use it is the frontier that is damaged: nothing is made worse by an open.
  image[before + 64] = std::byte{1};
  write_bytes(path, image);
  { (void)Pool::open(path, small_pool()).value(); }
  EXPECT_NE(header_of(read_bytes(path)), 0U);
}

// A damaged header of a large block: its inside, which is all zeros, is not taken for free slabs.
TEST(HostileHeap, ZerosBehindDamageStay) {
  const Scratch scratch;
  const auto path = scratch / "pool";
  pmem::Offset block = 0;
  constexpr std::size_t kBytes = 8 * pmem::kSlabBytes;
  {
    Pool pool = Pool::open(path, small_pool()).value();
    (void)pool.index<std::uint64_t>("index").value();
    auto& state = PoolAccess::state(pool);
    block = state.heap().reserve(kBytes);
    ASSERT_NE(block, 0U);
    *state.medium().at<pmem::Word>(block / pmem::kSlabBytes * pmem::kSlabBytes + 64) = 1;
  }
  auto image = read_bytes(path);
  image[block / pmem::kSlabBytes * pmem::kSlabBytes + 5] ^= std::byte{1};
  write_bytes(path, image);
  Pool pool = Pool::open(path, small_pool()).value();
  auto& state = PoolAccess::state(pool);
  while (const pmem::Offset at = state.heap().reserve(4096)) {
    ASSERT_TRUE(at < block || at >= block + kBytes);
  }
}

// A leaf that claims to lie on a slab's header.
TEST(HostileHeap, NoNodeLiesOnASlabHeader) {
  const Scratch scratch;
  const auto path = scratch / "pool";
  { (void)Pool::open(path, small_pool()).value().index<std::uint64_t>("index").value(); }
  auto image = read_bytes(path);
  for (const std::uint64_t within : {0U, 64U}) {
    const std::uint64_t root = pmem::kHeapAt + within;
    std::memcpy(&image[pmem::kDirectoryAt + offsetof(pmem::DirectoryEntry, root)], &root,
                sizeof root);
    write_bytes(path, image);
    Pool pool = Pool::open(path, small_pool()).value();
    auto index = pool.index<std::uint64_t>("index").value();
    EXPECT_EQ(index.insert(1, 1), Outcome::corrupt);
    EXPECT_EQ(index.find(1).outcome, Outcome::corrupt);
    EXPECT_NE(unsound(pool), "");
  }
}

// Two damaged words name one block: both would give it back, and two owners would get it.
TEST(HostileHeap, ABlockGoesOnceInARecord) {
  Pool pool = Pool::anonymous().value();
  auto& state = PoolAccess::state(pool);
  alloc::Heap& heap = state.heap();
  const auto first = heap.reserve(64);
  const auto second = heap.reserve(64);
  alloc::Redo both;
  ASSERT_TRUE(heap.activate(both, first) && heap.activate(both, second));
  ASSERT_EQ(state.redo().commit(both), Outcome::done);
  alloc::Redo gone;
  EXPECT_TRUE(heap.release(gone, first));
  EXPECT_FALSE(heap.release(gone, first));
  EXPECT_TRUE(heap.release(gone, second));
}

// The frontier of a pool that is open: nobody looks behind the end, or for ever.
TEST(HostileHeap, AFrontierBehindTheEnd) {
  Pool pool = Pool::anonymous().value();
  auto index = pool.index<std::uint64_t>("index").value();
  ASSERT_EQ(index.insert(1, 1), Outcome::done);
  auto& frontier =
      *PoolAccess::state(pool).medium().at<pmem::Word>(pmem::kStateAt);  // its first word
  const pmem::Word sound = frontier;
  ASSERT_EQ(sound, pool.info().heap_bytes + pmem::kHeapAt);
  const std::uint64_t bytes = pool.info().block_bytes;
  for (const pmem::Word bad : {pmem::Word{1} << 63, ~pmem::Word{0}, pmem::kMaxPoolBytes}) {
    frontier = bad;
    EXPECT_EQ(pool.info().block_bytes, bytes);
    EXPECT_NE(unsound(pool), "") << bad;
  }
  frontier = sound;
  EXPECT_EQ(unsound(pool), "");
}

// A header that makes a freed block longer than it is, over slabs of another owner.
TEST(HostileHeap, ALargeBlockThatGrew) {
  Pool pool = Pool::anonymous().value();
  auto& state = PoolAccess::state(pool);
  alloc::Heap& heap = state.heap();
  const auto in_use = [&](std::size_t bytes) {
    const auto block = heap.reserve(bytes);
    alloc::Redo record;
    EXPECT_TRUE(heap.activate(record, block));
    EXPECT_EQ(state.redo().commit(record), Outcome::done);
    return block;
  };
  const auto large = in_use(pmem::kSlabBytes + 1000);
  const auto other = in_use(pmem::kSlabBytes + 1000);
  ASSERT_EQ(other, large + 2 * pmem::kSlabBytes);
  const std::size_t bytes = heap.allocated_bytes(other);
  const pmem::Offset slab = large / pmem::kSlabBytes * pmem::kSlabBytes;
  auto& header = *state.medium().at<pmem::Word>(slab);
  ASSERT_EQ(header, large_header(slab, 2));
  header = large_header(slab, 3);
  EXPECT_EQ(heap.allocated_bytes(large), bytes + pmem::kSlabBytes);
  alloc::Redo record;
  ASSERT_TRUE(heap.release(record, large));
  ASSERT_EQ(state.redo().commit(record), Outcome::done);
  heap.recycle(large);
  for (int i = 0; i < 100; ++i) {
    const auto block = heap.reserve(1024);
    EXPECT_TRUE(block < other || block >= other + bytes);
  }
}

}  // namespace
}  // namespace everleaf::test
