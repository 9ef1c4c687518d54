// The stories: memory that waits for its grace period was not found by the thread that itself held
// the grace period back, so a full pool refused an insertion after a removal; and large blocks grew
// the file in every session before anybody looked for the room that earlier sessions had left. Then
// that look held up every thread: 4096 pages of a cold disk, under the heap's lock.
#include <thread>

#include "base/seam.hpp"
#include "hooks.hpp"
#include "support.hpp"

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

}  // namespace
}  // namespace everleaf::test
