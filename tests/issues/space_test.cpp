// The stories: memory that waits for its grace period was not found by the thread that itself held
// the grace period back, so a full pool refused an insertion after a removal; and large blocks grew
// the file in every session before anybody looked for the room that earlier sessions had left. Then
// that look held up every thread: 4096 pages of a cold disk, under the heap's lock.
#include "epoch/space.hpp"

#include <thread>

#include "base/seam.hpp"
#include "forge.hpp"
#include "hooks.hpp"
#include "pmem/format.hpp"
#include "support.hpp"
#include "trees/lodgetree/layout.hpp"
#include "trees/pool_state.hpp"

namespace everleaf::test {
namespace {

std::string padded(const char* prefix, int number, std::size_t bytes) {
  std::string key = prefix;
  key += std::to_string(number);
  key.append(bytes, 'x');
  return key;
}

TEST(Space, AFullPoolTakesWhatWasJustRemoved) {
  PoolOptions options = small_pool();
  options.max_bytes = std::uint64_t{4} << 20;
  const Scratch scratch;
  Pool pool = Pool::open(scratch / "pool", options).value();
  auto index = pool.index<Bytes>("index", "wbtree:node=128").value();
  int keys = 0;
  while (index.insert(padded("a", keys, 16000), 1) == Outcome::done) ++keys;
  ASSERT_GT(keys, 100);
  for (int i = 0; i < 20; ++i) {
    ASSERT_EQ(index.remove(padded("a", i, 16000)), Outcome::done);
    EXPECT_EQ(index.insert(padded("b", i, 16000), 1), Outcome::done) << i;
  }
}

TEST(Space, SessionsDoNotGrowThePool) {
  for (const std::size_t bytes : {100U, 20000U}) {
    const Scratch scratch;
    std::uint64_t first = 0;
    for (int session = 0; session < 30; ++session) {
      Pool pool = Pool::open(scratch / "pool", small_pool()).value();
      auto index = pool.index<Bytes>("index").value();
      for (int i = 0; i < 40; ++i) {
        ASSERT_EQ(index.insert(padded("k", i, bytes), 1), Outcome::done);
      }
      for (int i = 0; i < 40; ++i) {
        ASSERT_EQ(index.remove(padded("k", i, bytes)), Outcome::done);
      }
      if (session == 0) first = pool.info().heap_bytes;
      EXPECT_EQ(pool.info().heap_bytes, first) << "session " << session;
    }
  }
}

// A pool of 300 slabs whose room lies at its end.
std::uint64_t with_room_at_the_end(const std::filesystem::path& path) {
  Pool pool = Pool::open(path, small_pool()).value();
  auto index = pool.index<Bytes>("index").value();
  for (int i = 0; i < 300; ++i) {
    EXPECT_EQ(index.insert(padded("k", 1000 + i, 60000), 1), Outcome::done);
  }
  for (int i = 280; i < 300; ++i) {
    EXPECT_EQ(index.remove(padded("k", 1000 + i, 60000)), Outcome::done);
  }
  return pool.info().heap_bytes;
}

TEST(Space, ALookTakesNoLongerThanOthersCanWait) {
  const Scratch scratch;
  const std::uint64_t before = with_room_at_the_end(scratch / "pool");
  Pool pool = Pool::open(scratch / "pool", small_pool()).value();
  auto index = pool.index<Bytes>("index").value();
  std::int64_t now_ms = 0;
  hooks.clock = [&](std::timespec& now) -> Answer {  // as if each look read a page
    ++now_ms;
    now = {now_ms / 1000, now_ms % 1000 * 1'000'000};
    return 0;
  };
  ASSERT_EQ(index.insert(padded("n", 1000, 60000), 1), Outcome::done);
  EXPECT_GT(pool.info().heap_bytes, before) << "it looked at every slab";
  for (int i = 1; i < 10; ++i) {
    ASSERT_EQ(index.insert(padded("n", 1000 + i, 60000), 1), Outcome::done);
  }
  const std::uint64_t later = pool.info().heap_bytes;
  for (int i = 10; i < 20; ++i) {
    ASSERT_EQ(index.insert(padded("n", 1000 + i, 60000), 1), Outcome::done);
  }
  reset_hooks();
  EXPECT_EQ(pool.info().heap_bytes, later) << "the room was not found";
  EXPECT_EQ(unsound(pool), "");
}

TEST(Space, AQuickLookFindsTheRoomAtOnce) {
  const Scratch scratch;
  const std::uint64_t before = with_room_at_the_end(scratch / "pool");
  Pool pool = Pool::open(scratch / "pool", small_pool()).value();
  auto index = pool.index<Bytes>("index").value();
  hooks.clock = [](std::timespec& now) -> Answer {
    now = {};
    return 0;
  };
  for (int i = 0; i < 19; ++i) {
    ASSERT_EQ(index.insert(padded("n", 1000 + i, 60000), 1), Outcome::done);
  }
  reset_hooks();
  EXPECT_EQ(pool.info().heap_bytes, before);
}

// A lock whose holder does not come back is given up, once; when he does, it is as before.
TEST(Space, ALockIsGivenUpOnce) {
  base::ImpatientMutex mutex;
  ASSERT_TRUE(mutex.lock());
  std::thread([&] {
    EXPECT_FALSE(mutex.lock());
    EXPECT_FALSE(mutex.lock());  // at once
    EXPECT_FALSE(mutex.lock_at_last());
    EXPECT_FALSE(mutex.lock_at_last());
  }).join();
  mutex.unlock();
  std::uint64_t count = 0;
  const auto work = [&] {
    for (int i = 0; i < 10'000; ++i) {
      ASSERT_TRUE(mutex.lock());
      ++count;
      mutex.unlock();
    }
  };
  std::thread other(work);
  work();
  other.join();
  EXPECT_EQ(count, 20'000U);
}

// A slab header that damage made, within an extent: the heap takes what is behind it for a block,
// and an extent there would share its bytes with the other one.
TEST(Space, ExtentsThatOverlap) {
  const Scratch scratch;
  const auto path = scratch / "pool";
  const auto extents_of = [](Pool& pool) {
    pmem::Medium& medium = PoolAccess::state(pool).medium();
    const pmem::Offset root = medium.at<pmem::DirectoryEntry>(pmem::kDirectoryAt)->root;
    return medium.at<epoch::Extent>(root + tree::lodgetree::kExtentsAt);
  };
  {
    Pool pool = Pool::open(path, small_pool()).value();
    auto index = pool.index<std::uint64_t>("index", "lodgetree").value();
    for (std::uint64_t n = 0; n < 20'000; ++n) ASSERT_EQ(index.insert(n, n), Outcome::done);
  }
  for (const bool forged : {false, true}) {
    {
      Pool pool = Pool::open(path, small_pool()).value();
      pmem::Medium& medium = PoolAccess::state(pool).medium();
      epoch::Extent* last = extents_of(pool);
      while (last[1].at != 0) ++last;
      ASSERT_GT(last->bytes, pmem::kSlabBytes);
      const pmem::Word slab = (last->at + last->bytes) / pmem::kSlabBytes - 1;
      const pmem::Offset at = slab * pmem::kSlabBytes;
      if (forged) {
        *medium.at<pmem::Word>(at) = large_header(at, 1);
        *medium.at<pmem::Word>(at + 64) = 1;  // allocated
        const pmem::Offset block = at + (last->at % pmem::kSlabBytes);
        ASSERT_GE(PoolAccess::state(pool).heap().allocated_bytes(block),
                  epoch::Space::kFirstExtentBytes);
        last[1] = {block, epoch::Space::kFirstExtentBytes};
      }
    }
    Pool pool = Pool::open(path, small_pool()).value();
    const auto index = pool.index<std::uint64_t>("index");
    ASSERT_EQ(index.has_value(), !forged);
    if (forged) {
      EXPECT_EQ(index.error().code, Code::corrupt) << index.error().message;
    }
  }
}

}  // namespace
}  // namespace everleaf::test
