// Whose turn it is to make a pool's file longer, and threads that are stopped in their turn, or in
// any other call of the system that makes something durable.
#include <atomic>
#include <cerrno>
#include <chrono>
#include <fstream>
#include <optional>
#include <string>
#include <thread>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
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

TEST(GrowthTurns, OneAtATime) {
  GrowthTurns turns;
  std::uint64_t bytes = 0;  // of the turns
  const auto grow = [&] {
    for (int i = 0; i < 20'000;) {
      auto turn = turns.begin();
      if (!turn) continue;  // or given up
      // On a busy machine it may have been taken over by now.
      if (!turns.enter(*turn, Phase::giving_back)) continue;
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

enum class Point : std::uint8_t {
  nowhere,
  before_allocation,
  after_allocation,
  append,
  write,
  written,
  sync,
  synced,
  open_copies,
  opened_copies,
  share,
  cut,
};

// Where the thread that says so is stopped, once, until it may go on.
struct Trap {
  static inline thread_local bool mine = false;
  static inline std::atomic<Point> at = Point::nowhere;
  static inline std::atomic<int> times = 0;                  // that it passes there before
  static inline std::atomic<bool> allocation_fails = false;  // its next one
  static inline std::atomic<bool> no_allocation = false;     // by anybody
  static inline std::atomic<bool> no_copies = false;
  static inline std::atomic<bool> no_mapping = false;  // anew, of what is mapped
  static inline std::atomic<bool> stopped = false;
  static inline std::atomic<bool> go_on = false;
  static inline std::atomic<bool> sync_fails = false;
  static inline std::atomic<int> cuts = 0;

  static void pass(Point point) {
    if (!mine || at != point || times-- > 0) return;
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
  if (Trap::no_allocation) {
    errno = EOPNOTSUPP;
    return -1;
  }
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
  everleaf::test::Trap::pass(everleaf::test::Point::sync);
  const auto result = static_cast<int>(::syscall(SYS_fdatasync, fd));
  everleaf::test::Trap::pass(everleaf::test::Point::synced);
  return result;
}

extern "C" ssize_t pwritev2(int fd, const iovec* pieces, int count, off_t at, int flags) {
  using everleaf::test::Point;
  using everleaf::test::Trap;
  Trap::pass((flags & RWF_APPEND) != 0 ? Point::append : Point::write);
  const ssize_t result = ::syscall(SYS_pwritev2, fd, pieces, count, at, 0, flags);
  if (flags == 0) Trap::pass(Point::written);
  return result;
}

extern "C" int mprotect(void* address, size_t bytes, int protection) noexcept {
  using everleaf::test::Point;
  using everleaf::test::Trap;
  Trap::pass(Point::open_copies);
  if (Trap::no_copies && protection == (PROT_READ | PROT_WRITE)) {
    errno = ENOMEM;
    return -1;
  }
  const auto result = static_cast<int>(::syscall(SYS_mprotect, address, bytes, protection));
  Trap::pass(Point::opened_copies);
  return result;
}

// (Also called before ThreadSanitizer is ready.)
extern "C" [[gnu::no_sanitize_thread]] void* mmap(void* address, size_t bytes, int protection,
                                                  int flags, int fd, off_t at) noexcept {
  if ((flags & MAP_FIXED) != 0 && fd >= 0 && everleaf::test::Trap::no_mapping) {
    errno = ENOMEM;
    return MAP_FAILED;
  }
  if ((flags & (MAP_SHARED | MAP_FIXED)) == (MAP_SHARED | MAP_FIXED)) {
    everleaf::test::Trap::pass(everleaf::test::Point::share);
  }
  const auto result = ::syscall(SYS_mmap, address, bytes, protection, flags, fd, at);
  return __builtin_bit_cast(void*, result);  // calls nothing that is instrumented
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
  void open(Domain domain, bool huge_pages, std::optional<std::uint64_t> private_bytes = {}) {
    options_.private_bytes = private_bytes;
    options_.domain = domain;
    options_.emulate = true;
    options_.max_bytes = 64 * kMiB;
    options_.huge_pages = huge_pages;
    pool_.emplace(Pool::open(path(), options_).value());
    index_.emplace(pool_->index<Bytes>("index", "bztree").value());
    before_ = file().medium().size();
    ASSERT_TRUE(file().descriptor().another().valid()) << "threads share a file, and wait";
  }
  void stop_at(Point point, bool allocation_fails = false, std::uint64_t step = kStep) {
    Trap::allocation_fails = allocation_fails;
    stop_in(point, 0, [this, step] { EXPECT_TRUE(file().grow(before_ + step)); });
    ASSERT_TRUE(Trap::stopped) << "it does not come there";
  }
  // A thread that does so is stopped when it comes to the point once more than so many times.
  template <class Body>
  void stop_in(Point point, int times, Body body) {
    Trap::stopped = Trap::go_on = ended_ = false;
    Trap::cuts = 0;
    Trap::times = times;
    Trap::at = point;
    stopped_ = std::thread([this, body] {
      Trap::mine = true;
      body();
      Trap::mine = false;
      ended_ = true;
    });
    while (!Trap::stopped && !ended_) std::this_thread::yield();
  }
  void go_on() {
    Trap::go_on = true;
    if (stopped_.joinable()) stopped_.join();
    Trap::at = Point::nowhere;
  }
  void TearDown() override {
    go_on();
    Trap::no_allocation = Trap::no_copies = Trap::no_mapping = false;
  }

  pmem::PoolFile& file() { return PoolAccess::state(*pool_).file(); }
  // Keys of that length take a slab each.
  static std::string key(std::uint64_t i) { return std::string(20000, 'k') + std::to_string(i); }
  void insert(std::uint64_t keys) {
    for (; keys != 0; --keys, ++keys_) {
      ASSERT_EQ(index_->insert(key(keys_), keys_), Outcome::done);
    }
  }
  // Until everything that there was is in use.
  void fill() {
    const std::uint64_t size = file().medium().size();
    while (file().medium().size() == size) ASSERT_NO_FATAL_FAILURE(insert(1));
  }
  [[nodiscard]] std::filesystem::path path() const { return scratch_ / "pool"; }
  Index<Bytes>& index() { return *index_; }
  void close() {
    index_.reset();
    pool_.reset();
  }
  void reopen() {
    pool_.emplace(Pool::open(path(), options_).value());
    index_.emplace(pool_->index<Bytes>("index").value());
  }
  void remove() {
    close();
    std::filesystem::remove(path());
    keys_ = 0;
  }
  void verify() {
    EXPECT_EQ(unsound(*pool_), "");
    close();
    reopen();
    EXPECT_TRUE(pool_->info().clean);
    EXPECT_EQ(index().size(), keys_);
    for (std::uint64_t i = 0; i < keys_; ++i) ASSERT_EQ(*index().find(key(i)), i);
    EXPECT_EQ(unsound(*pool_), "");
  }
  // Others make the file longer all the same, and what they store there stays when it goes on.
  void nobody_is_held_up(Domain domain, Point point, bool huge_pages,
                         std::optional<std::uint64_t> private_bytes = {}) {
    open(domain, huge_pages, private_bytes);
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
  std::thread stopped_;
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
  nobody_is_held_up(Domain::memory, Point::synced, true);
}

// The file system has no fallocate: what it is made longer by lies behind what others use.
TEST_F(Growth, AStoppedThreadThatAppendsHoldsNobodyUp) {
  Trap::no_allocation = true;
  nobody_is_held_up(Domain::process, Point::append, false);
}

class GrowthOnADisk : public Growth {
 protected:
  void nobody_is_held_up(Point point, std::optional<std::uint64_t> private_bytes) {
    Growth::nobody_is_held_up(Domain::disk, point, false, private_bytes);
  }
};

TEST_F(GrowthOnADisk, AStoppedThreadHoldsNobodyUp) {
  nobody_is_held_up(Point::before_allocation, {});
}

TEST_F(GrowthOnADisk, AStoppedThreadThatSyncsHoldsNobodyUp) {
  nobody_is_held_up(Point::sync, {});
}

TEST_F(GrowthOnADisk, AStoppedThreadThatHasSyncedHoldsNobodyUp) {
  nobody_is_held_up(Point::synced, 0);
}

// What others have stored to copies stays when it makes copies of the same pages.
TEST_F(GrowthOnADisk, AStoppedThreadThatMakesCopiesHoldsNobodyUp) {
  nobody_is_held_up(Point::open_copies, {});
}

TEST_F(GrowthOnADisk, AStoppedThreadThatHasMadeCopiesHoldsNobodyUp) {
  nobody_is_held_up(Point::opened_copies, pmem::kMinPoolBytes + kMiB);
}

// No more copies can be had: what is shared may be shared again.
TEST_F(GrowthOnADisk, AStoppedThreadThatSharesHoldsNobodyUp) {
  open(Domain::disk, false);
  Trap::no_copies = true;
  ASSERT_NO_FATAL_FAILURE(stop_at(Point::share));
  EXPECT_TRUE(file().grow(before_ + kStep));
  EXPECT_EQ(file().medium().write_back()->copies().bytes, before_);
  EXPECT_TRUE(file().medium().write_back()->copies().closed);
  ASSERT_NO_FATAL_FAILURE(fill());
  go_on();
  verify();
}

// It could have copies, others could not: then there are none.
TEST_F(GrowthOnADisk, WhoLosesItsTurnMakesNoCopiesOfWhatIsShared) {
  open(Domain::disk, false);
  ASSERT_NO_FATAL_FAILURE(stop_at(Point::opened_copies));
  Trap::no_copies = true;
  EXPECT_TRUE(file().grow(before_ + kStep));
  ASSERT_NO_FATAL_FAILURE(fill());
  go_on();
  EXPECT_EQ(file().medium().write_back()->copies().bytes, before_);
  verify();
}

TEST_F(GrowthOnADisk, WithoutCopiesIfTheSystemRefusesThem) {
  Trap::no_mapping = true;
  open(Domain::disk, false);
  EXPECT_EQ(file().medium().write_back()->most(), 0U);
  ASSERT_NO_FATAL_FAILURE(fill());
  Trap::no_mapping = false;
  verify();
}

TEST_F(GrowthOnADisk, WhatCannotBeSharedIsNotUsed) {
  open(Domain::disk, false);
  Trap::no_copies = Trap::no_mapping = true;
  EXPECT_FALSE(file().grow(before_ + kStep));
  EXPECT_EQ(std::filesystem::file_size(path()), before_);
  Trap::no_mapping = false;
  EXPECT_TRUE(file().grow(before_ + kStep));
  ASSERT_NO_FATAL_FAILURE(fill());
  verify();
}

// A size that is no multiple of a page, as files may have that others made longer.
TEST_F(GrowthOnADisk, CopiesEndBeforeHalfAPage) {
  open(Domain::disk, false);
  close();
  std::ofstream(path(), std::ios::app) << std::string(192, 'x');
  reopen();
  EXPECT_EQ(file().medium().size(), before_ + 192);
  EXPECT_TRUE(file().make_room(before_ + 192));
  EXPECT_EQ(file().medium().write_back()->copies().bytes, before_);
  ASSERT_NO_FATAL_FAILURE(fill());
  EXPECT_TRUE(file().grow(before_ + kStep));
  ASSERT_NO_FATAL_FAILURE(fill());
  verify();
}

// A thread in the midst of its operation, where it makes something durable. Others do theirs in the
// same leaves, and make the file longer.
class Fence : public Growth, public ::testing::WithParamInterface<bool> {
 protected:
  void nobody_is_held_up(Point point) {
    int stops = 0;
    for (int times = 0; times < 12; ++times) {
      open(Domain::disk, false, GetParam() ? std::nullopt : std::optional<std::uint64_t>(0));
      ASSERT_NO_FATAL_FAILURE(insert(20));
      std::uint64_t late = 0;
      // The last one takes a block from the heap.
      const auto late_key = [](std::uint64_t i) { return std::string(i < 2 ? i : 9000, 'l'); };
      stop_in(point, times, [&] {
        for (; late < 3; ++late) {
          ASSERT_EQ(index().insert(late_key(late), late), Outcome::done);
        }
      });
      if (Trap::stopped) {
        ++stops;
        ASSERT_NO_FATAL_FAILURE(fill());
        EXPECT_EQ(index().update(key(0), 7), Outcome::done);
        EXPECT_EQ(index().update(key(0), 0), Outcome::done);
      }
      go_on();
      for (std::uint64_t i = 0; i < late; ++i) {
        EXPECT_EQ(*index().find(late_key(i)), i);
        EXPECT_EQ(index().remove(late_key(i)), Outcome::done);
      }
      EXPECT_EQ(late, 3U);
      verify();
      remove();
    }
    EXPECT_EQ(stops > 2, GetParam() || point == Point::sync || point == Point::synced);
  }
};
INSTANTIATE_TEST_SUITE_P(Mapped, Fence, testing::Bool(), [](const auto& of) {
  return std::string(of.param ? "Copies" : "Shared");
});

TEST_P(Fence, AStoppedThreadThatWritesHoldsNobodyUp) {
  nobody_is_held_up(Point::write);
}

// What it has written is what others have stored since.
TEST_P(Fence, AStoppedThreadThatHasWrittenHoldsNobodyUp) {
  nobody_is_held_up(Point::written);
}

TEST_P(Fence, AStoppedThreadThatSyncsHoldsNobodyUp) {
  nobody_is_held_up(Point::sync);
}

TEST_P(Fence, AStoppedThreadThatHasSyncedHoldsNobodyUp) {
  nobody_is_held_up(Point::synced);
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

}  // namespace
}  // namespace everleaf::test
