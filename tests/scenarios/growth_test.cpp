// Whose turn it is to make a pool's file longer, and threads that are stopped in their turn.
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <optional>
#include <string>
#include <thread>

#include <pthread.h>
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

TEST(GrowthTurns, WhoIsAloneIsWaitedFor) {
  GrowthTurns turns;
  auto slow = turns.begin();
  ASSERT_TRUE(turns.enter(*slow, Phase::alone));
  std::atomic<bool> began = false;
  std::thread other([&] {
    auto turn = turns.begin();
    ASSERT_TRUE(turn);
    began = true;
    EXPECT_EQ(turns.bytes(), 128U);
    turns.end(*turn);
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
      ASSERT_EQ(turns.bytes(), bytes);
      bytes += pmem::kLine;
      ASSERT_TRUE(turns.publish(*turn, bytes));
    }
  };
  std::thread other(grow);
  grow();
  other.join();
  EXPECT_EQ(turns.bytes(), 40'000 * pmem::kLine);
}

#ifndef __SANITIZE_THREAD__  // which holds signals back until the thread waits for something

// Stops threads where they are, but for what the system finishes first.
class Brake {
 public:
  Brake() {
    EXPECT_EQ(::pipe(stopped_.data()), 0);
    EXPECT_EQ(::pipe(go_on_.data()), 0);
    struct sigaction action {};
    action.sa_handler = stop_here;
    EXPECT_EQ(::sigaction(SIGUSR1, &action, &before_), 0);
  }
  Brake(const Brake&) = delete;
  Brake& operator=(const Brake&) = delete;
  ~Brake() {
    EXPECT_EQ(::sigaction(SIGUSR1, &before_, nullptr), 0);
    for (const int fd : {stopped_[0], stopped_[1], go_on_[0], go_on_[1]}) ::close(fd);
  }
  void stop(std::thread& thread) {
    ASSERT_EQ(::pthread_kill(thread.native_handle(), SIGUSR1), 0);
    char byte = 0;
    ASSERT_EQ(::read(stopped_[0], &byte, 1), 1);
  }
  void go_on() { ASSERT_EQ(::write(go_on_[1], "x", 1), 1); }

 private:
  static void stop_here(int) {
    char byte = 0;
    if (::write(stopped_[1], "x", 1) != 1 || ::read(go_on_[0], &byte, 1) != 1) ::abort();
  }
  static inline std::array<int, 2> stopped_{};
  static inline std::array<int, 2> go_on_{};
  struct sigaction before_ {};
};

// A thread is stopped for good, as far as others can see, while it makes the file longer; they make
// it longer all the same, and what they store there stays when it goes on.
void stop_in_the_midst(Domain domain) {
  constexpr int kRounds = 400;
  constexpr std::uint64_t kEnough = 3;  // each takes half a second
  constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
  const Scratch scratch;
  PoolOptions options;
  options.domain = domain;
  options.emulate = true;
  std::uint64_t keys = 0;
  const auto key = [](std::uint64_t i) { return std::string(20000, 'k') + std::to_string(i); };
  {
    Pool pool = Pool::open(scratch / "pool", options).value();
    pmem::PoolFile& file = PoolAccess::state(pool).file();
    auto index = pool.index<Bytes>("index", "bztree").value();
    Brake brake;
    std::atomic<int> round = 0;
    std::atomic<int> done = 0;
    std::atomic<bool> over = false;
    std::thread grower([&] {
      for (int seen = 0; !over;) {
        if (round == seen) continue;
        EXPECT_TRUE(file.grow(file.medium().size() + kMiB));
        done = ++seen;
      }
    });
    for (int i = 1; i <= kRounds && file.turns_taken_over() < kEnough; ++i) {
      round = i;
      for (int spin = 0; spin < i % 40 * 100; ++spin) base::wait_a_little(0);
      ASSERT_NO_FATAL_FAILURE(brake.stop(grower));
      // It has its own turn, and uses what it got: keys of that length take a slab each.
      const std::uint64_t taken = file.turns_taken_over();
      EXPECT_TRUE(file.grow(file.medium().size() + 1));
      if (file.turns_taken_over() != taken) {
        const std::uint64_t size = file.medium().size();
        while (file.medium().size() == size) {
          ASSERT_EQ(index.insert(key(keys), keys), Outcome::done);
          ++keys;
        }
      }
      ASSERT_NO_FATAL_FAILURE(brake.go_on());
      while (done != i) std::this_thread::yield();
    }
    over = true;
    grower.join();
    EXPECT_GE(file.turns_taken_over(), kEnough) << "it was never stopped in its turn";
    EXPECT_EQ(unsound(pool), "");
  }
  Pool pool = Pool::open(scratch / "pool", options).value();
  EXPECT_TRUE(pool.info().clean);
  auto index = pool.index<Bytes>("index").value();
  EXPECT_EQ(index.size(), keys);
  for (std::uint64_t i = 0; i < keys; ++i) ASSERT_EQ(*index.find(key(i)), i);
  EXPECT_EQ(unsound(pool), "");
}

TEST(Growth, AStoppedThreadHoldsNobodyUp) {
  stop_in_the_midst(Domain::process);
}

TEST(Growth, AStoppedThreadHoldsNobodyUpInMemory) {
  stop_in_the_midst(Domain::memory);
}

#endif

}  // namespace
}  // namespace everleaf::test
