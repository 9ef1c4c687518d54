// The story: the heap published a slab's state before it had read the slab's bitmap. A release on
// another thread saw the state, took no lock and cleared its bit; the bitmap then said "free", and
// the block went both to that thread and to the free bits: two keys owned it. Now a state is
// published when the bitmap has been read (H5 in src/alloc/heap.hpp).
#include <chrono>
#include <semaphore>
#include <thread>

#include "hooks.hpp"
#include "support.hpp"

namespace everleaf::test {
namespace {

// The first thread's allocation after so many stops for the other thread; -1: none.
int stop_after = -1;
std::binary_semaphore stopped(0);
std::binary_semaphore go_on(0);

void maybe_stop() {
  if (stop_after == 0) {
    stopped.release();
    // Not for ever: the other thread may be waiting for a lock that this one holds.
    (void)go_on.try_acquire_for(std::chrono::milliseconds(100));
  }
  if (stop_after >= 0) --stop_after;
}

// Allocations of a removal that are tried, more than it makes.
constexpr int kMostStops = 12;

// Two threads remove keys whose records share a slab that nobody has looked at since the open; the
// first is stopped at each of its allocations in turn, the second then removes.
TEST(Adoption, OfASlabWhileAnotherThreadFreesInIt) {
  const Scratch scratch;
  const auto path = scratch / "pool";
  const auto key = [](char family, int i) { return family + Keys<Bytes>::nth(100000U + i) + "##"; };
  {
    Pool pool = Pool::open(path, small_pool()).value();
    auto index = pool.index<Bytes>("index").value();
    for (int i = 0; i < 1500; ++i) ASSERT_EQ(index.insert(key('k', i), 1), Outcome::done);
  }
  const auto sound = read_bytes(path);
  bool went_through = false;
  for (int stop = 0; stop < kMostStops && !went_through; ++stop) {
    write_bytes(path, sound);
    Pool pool = Pool::open(path, small_pool()).value();
    auto index = pool.index<Bytes>("index").value();
    std::binary_semaphore first_is_done(0);
    std::thread second([&] {
      stopped.acquire();
      EXPECT_EQ(index.remove(key('k', 1400)), Outcome::done);
      go_on.release();
      // Its block comes through the grace period, and back into use on this thread.
      for (int i = 700; i < 900; ++i) EXPECT_EQ(index.remove(key('k', i)), Outcome::done);
      first_is_done.acquire();
      for (int i = 0; i < 60; ++i) EXPECT_EQ(index.insert(key('b', i), 1), Outcome::done);
    });
    stop_after = stop;
    before_allocation = maybe_stop;
    EXPECT_EQ(index.remove(key('k', 5)), Outcome::done);
    before_allocation = nullptr;
    went_through = stop_after >= 0;
    if (went_through) stopped.release();
    first_is_done.release();
    second.join();
    (void)go_on.try_acquire();
    for (int i = 0; i < 3000; ++i) ASSERT_EQ(index.insert(key('a', i), 1), Outcome::done);
    EXPECT_EQ(unsound(pool), "") << "stopped at allocation " << stop;
  }
  EXPECT_TRUE(went_through) << "a removal makes more allocations than were tried";
}

}  // namespace
}  // namespace everleaf::test
