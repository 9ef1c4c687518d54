// Whose turn it is to make a pool's file longer, and threads that are stopped in their turn.
#include <atomic>
#include <cerrno>
#include <chrono>
#include <optional>
#include <string>
#include <thread>

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "pmem/growth_turns.hpp"
#include "support.hpp"
#include "trees/pool_state.hpp"

namespace everleaf::test {
namespace {

using pmem::GrowthTurns;
using Phase = GrowthTurns::Phase;

TEST(GrowthTurns, WhoIsStoppedLosesItsTurn) {
  GrowthTurns turns;
  auto stopped = turns.begin();
  ASSERT_TRUE(stopped);
  auto other = turns.begin();
  ASSERT_TRUE(other);
  EXPECT_EQ(turns.taken_over(), 1U);
  ASSERT_TRUE(turns.publish(*other, 4096));
  EXPECT_FALSE(turns.publish(*stopped, 8192));
  EXPECT_FALSE(turns.enter(*stopped, Phase::giving_back)) << "it would cut what is in use";
  EXPECT_FALSE(turns.enter(*stopped, Phase::alone));
  turns.end(*stopped);
  EXPECT_EQ(turns.bytes(), 4096U);
  // Nor does it end another one's.
  auto third = turns.begin();
  ASSERT_TRUE(third);
  turns.end(*stopped);
  EXPECT_TRUE(turns.publish(*third, std::uint64_t{1} << 40));
  EXPECT_EQ(turns.bytes(), std::uint64_t{1} << 40);
  EXPECT_EQ(turns.taken_over(), 1U);
}

TEST(GrowthTurns, NobodyTakesOverWhoGivesBack) {
  GrowthTurns turns;
  auto stopped = turns.begin();
  ASSERT_TRUE(turns.enter(*stopped, Phase::giving_back));
  EXPECT_FALSE(turns.begin());
  EXPECT_FALSE(turns.begin());
  ASSERT_TRUE(turns.enter(*stopped, Phase::working)) << "less is no change";
  EXPECT_FALSE(turns.begin());
  ASSERT_TRUE(turns.publish(*stopped, 64));
  EXPECT_TRUE(turns.begin());
  EXPECT_EQ(turns.bytes(), 64U);
  EXPECT_EQ(turns.taken_over(), 0U);
}

TEST(GrowthTurns, WhoHasGivenBackIsTakenOver) {
  GrowthTurns turns;
  auto stopped = turns.begin();
  ASSERT_TRUE(turns.enter(*stopped, Phase::giving_back));
  turns.leave_giving_back(*stopped);
  EXPECT_TRUE(turns.holds(*stopped));
  EXPECT_TRUE(turns.begin());
  EXPECT_EQ(turns.taken_over(), 1U);
  EXPECT_FALSE(turns.holds(*stopped));
}

TEST(GrowthTurns, NobodyWaitsForWhatIsThere) {
  GrowthTurns turns;
  auto first = turns.begin();
  ASSERT_TRUE(turns.publish(*first, 4096));
  auto stopped = turns.begin();
  ASSERT_TRUE(stopped);
  EXPECT_FALSE(turns.begin(4096));
  EXPECT_EQ(turns.taken_over(), 0U);
  EXPECT_TRUE(turns.begin(4097));
  EXPECT_EQ(turns.taken_over(), 1U);
}

// So that steps that take longer than the wait get through.
TEST(GrowthTurns, EachTakeOverIsWaitedForLonger) {
  constexpr std::uint64_t kTwice = 1'000'000'000;
  GrowthTurns turns;
  ASSERT_TRUE(turns.begin());
  auto second = turns.begin();
  ASSERT_TRUE(second);
  std::uint64_t from = base::now_ns();
  ASSERT_TRUE(turns.begin());
  EXPECT_GE(base::now_ns() - from, kTwice);
  from = base::now_ns();
  auto last = turns.begin();
  ASSERT_TRUE(last);
  EXPECT_GE(base::now_ns() - from, 2 * kTwice);
  turns.end(*last);  // nothing got through
  ASSERT_TRUE(turns.begin());
  from = base::now_ns();
  last = turns.begin();
  ASSERT_TRUE(last);
  EXPECT_GE(base::now_ns() - from, 4 * kTwice);
}

TEST(GrowthTurns, WhoIsAloneIsWaitedFor) {
  GrowthTurns turns;
  auto slow = turns.begin();
  ASSERT_TRUE(turns.enter(*slow, Phase::alone));
  std::atomic<bool> began = false;
  std::thread other([&] {
    auto turn = turns.begin();
    began = true;
    EXPECT_EQ(turns.bytes(), 128U);
    if (turn) turns.end(*turn);
  });
  // Longer than anybody else would wait: what is wrong may pass unseen, what is right never fails.
  std::this_thread::sleep_for(std::chrono::milliseconds(2500));
  EXPECT_FALSE(began);
  EXPECT_TRUE(turns.publish(*slow, 128));
  other.join();
  EXPECT_EQ(turns.taken_over(), 0U);
}

TEST(GrowthTurns, OneAtATime) {
  GrowthTurns turns;
  std::uint64_t bytes = 0;  // of the turns
  const auto grow = [&] {
    for (int i = 0; i < 20'000;) {
      auto turn = turns.begin();
      ASSERT_TRUE(turn);
      // On a busy machine it may have been taken over by now.
      if (!turns.enter(*turn, Phase::alone)) continue;
      ++i;
      EXPECT_EQ(turns.bytes(), bytes);
      bytes += pmem::kLine;
      EXPECT_TRUE(turns.publish(*turn, bytes));
    }
  };
  std::thread other(grow);
  grow();
  other.join();
  EXPECT_EQ(turns.bytes(), 40'000 * pmem::kLine);
}

// --- Threads that are stopped in the midst of a growth ---

enum class Point : std::uint8_t { nowhere, before_allocation, after_allocation, sync, cut };

// Where the thread that says so is stopped, once, until it may go on.
struct Trap {
  static inline thread_local bool mine = false;
  static inline std::atomic<Point> at = Point::nowhere;
  static inline std::atomic<bool> allocation_fails = false;  // its next one
  static inline std::atomic<bool> stopped = false;
  static inline std::atomic<bool> go_on = false;
  static inline std::atomic<bool> sync_fails = false;
  static inline std::atomic<int> cuts = 0;

  static void pass(Point point) {
    if (!mine || at != point) return;
    at = Point::nowhere;
    stopped = true;
    while (!go_on) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
};

}  // namespace
}  // namespace everleaf::test

// What the library calls, in this program.
extern "C" int fallocate(int fd, int mode, off_t from, off_t bytes) {
  using everleaf::test::Point;
  using everleaf::test::Trap;
  Trap::pass(Point::before_allocation);
  if (Trap::mine && Trap::allocation_fails.exchange(false)) {
    errno = ENOSPC;
    return -1;
  }
  const auto result = static_cast<int>(::syscall(SYS_fallocate, fd, mode, from, bytes));
  const int error = errno;
  Trap::pass(Point::after_allocation);
  errno = error;
  return result;
}

extern "C" int fdatasync(int fd) {
  if (everleaf::test::Trap::sync_fails.exchange(false)) {
    errno = EIO;
    return -1;
  }
  const auto result = static_cast<int>(::syscall(SYS_fdatasync, fd));
  everleaf::test::Trap::pass(everleaf::test::Point::sync);
  return result;
}

extern "C" int ftruncate(int fd, off_t bytes) noexcept {
  ++everleaf::test::Trap::cuts;
  everleaf::test::Trap::pass(everleaf::test::Point::cut);
  return static_cast<int>(::syscall(SYS_ftruncate, fd, bytes));
}

namespace everleaf::test {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kStep = 4 * kMiB;

// A pool that a second thread makes longer by a step, and is stopped at `point`.
class Growth : public ::testing::Test {
 protected:
  void open(Domain domain, bool huge_pages) {
    options_.domain = domain;
    options_.emulate = true;
    options_.max_bytes = 64 * kMiB;
    options_.huge_pages = huge_pages;
    pool_.emplace(Pool::open(scratch_ / "pool", options_).value());
    index_.emplace(pool_->index<Bytes>("index", "bztree").value());
    before_ = file().medium().size();
  }
  void stop_at(Point point, bool allocation_fails = false, std::uint64_t step = kStep) {
    Trap::stopped = Trap::go_on = false;
    Trap::cuts = 0;
    Trap::at = point;
    Trap::allocation_fails = allocation_fails;
    grower_ = std::thread([this, step] {
      Trap::mine = true;
      EXPECT_TRUE(file().grow(before_ + step));
      Trap::mine = false;
      ended_ = true;
    });
    while (!Trap::stopped && !ended_) std::this_thread::yield();
    ASSERT_TRUE(Trap::stopped) << "it does not come there";
  }
  void go_on() {
    Trap::go_on = true;
    if (grower_.joinable()) grower_.join();
  }
  void TearDown() override { go_on(); }

  pmem::PoolFile& file() { return PoolAccess::state(*pool_).file(); }
  // Keys of that length take a slab each.
  static std::string key(std::uint64_t i) { return std::string(20000, 'k') + std::to_string(i); }
  // Until everything that there was is in use.
  void fill() {
    const std::uint64_t size = file().medium().size();
    for (; file().medium().size() == size; ++keys_) {
      ASSERT_EQ(index_->insert(key(keys_), keys_), Outcome::done);
    }
  }
  void verify() {
    EXPECT_EQ(unsound(*pool_), "");
    index_.reset();
    pool_.reset();
    pool_.emplace(Pool::open(scratch_ / "pool", options_).value());
    EXPECT_TRUE(pool_->info().clean);
    auto index = pool_->index<Bytes>("index").value();
    EXPECT_EQ(index.size(), keys_);
    for (std::uint64_t i = 0; i < keys_; ++i) ASSERT_EQ(*index.find(key(i)), i);
    EXPECT_EQ(unsound(*pool_), "");
  }
  // Others make the file longer all the same, and what they store there stays when it goes on.
  void nobody_is_held_up(Domain domain, Point point, bool huge_pages) {
    open(domain, huge_pages);
    ASSERT_NO_FATAL_FAILURE(stop_at(point));
    EXPECT_TRUE(file().grow(before_ + kStep));
    EXPECT_GE(file().turns_taken_over(), 1U);
    ASSERT_NO_FATAL_FAILURE(fill());
    go_on();
    EXPECT_EQ(Trap::cuts, 0);
    verify();
  }

 private:
  Scratch scratch_;
  PoolOptions options_;
  std::optional<Pool> pool_;
  std::optional<Index<Bytes>> index_;
  std::uint64_t keys_ = 0;
  std::thread grower_;
  std::atomic<bool> ended_ = false;

 protected:
  std::uint64_t before_ = 0;
};

TEST_F(Growth, AStoppedThreadHoldsNobodyUp) {
  nobody_is_held_up(Domain::process, Point::before_allocation, true);
}

TEST_F(Growth, AStoppedThreadThatHasAllocatedHoldsNobodyUp) {
  nobody_is_held_up(Domain::process, Point::after_allocation, false);
}

TEST_F(Growth, AStoppedThreadThatSyncsHoldsNobodyUp) {
  nobody_is_held_up(Domain::memory, Point::sync, true);
}

// What it was refused before is in use when it goes on: it gives nothing back.
TEST_F(Growth, WhoHasLostItsTurnCutsNothing) {
  open(Domain::process, false);
  ASSERT_NO_FATAL_FAILURE(stop_at(Point::before_allocation, true));
  EXPECT_TRUE(file().grow(before_ + kStep));
  ASSERT_NO_FATAL_FAILURE(fill());
  go_on();
  EXPECT_EQ(Trap::cuts, 0);
  verify();
}

TEST_F(Growth, WhoGivesBackIsNotTakenOver) {
  open(Domain::process, false);
  constexpr std::uint64_t kLess = 4096;  // than a step
  ASSERT_NO_FATAL_FAILURE(stop_at(Point::cut, true, kLess));
  EXPECT_FALSE(file().grow(before_ + kMiB)) << "its storage would be cut";
  EXPECT_EQ(file().turns_taken_over(), 0U);
  go_on();  // the step was refused; what was asked for is not
  EXPECT_EQ(Trap::cuts, 1);
  EXPECT_EQ(file().medium().size(), before_ + kLess);
  EXPECT_TRUE(file().grow(before_ + kMiB));
  ASSERT_NO_FATAL_FAILURE(fill());
  verify();
}

TEST_F(Growth, AFailedSyncIsSticky) {
  open(Domain::memory, false);
  Trap::sync_fails = true;
  EXPECT_FALSE(file().grow(before_ + kStep));
  EXPECT_TRUE(file().medium().failed());
  EXPECT_FALSE(file().grow(before_ + kStep));
  EXPECT_EQ(file().medium().size(), before_);
}

TEST_F(Growth, OnADiskItIsWaitedFor) {
  open(Domain::disk, false);
  ASSERT_NO_FATAL_FAILURE(stop_at(Point::after_allocation));
  std::atomic<bool> grown = false;
  std::thread other([&] {
    EXPECT_TRUE(file().grow(before_ + kStep));
    grown = true;
  });
  // Longer than elsewhere: what is wrong may pass unseen, what is right never fails.
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  EXPECT_FALSE(grown);
  go_on();
  other.join();
  EXPECT_EQ(file().turns_taken_over(), 0U);
  ASSERT_NO_FATAL_FAILURE(fill());
  verify();
}

}  // namespace
}  // namespace everleaf::test
