// The story: the kernel tells a failed write-back of a file to one of the threads that wait for it,
// and not to the one whose pages failed. That one acknowledged what was lost. Now a sync succeeds
// only if none that ran beside it failed.
#include <cerrno>
#include <chrono>
#include <semaphore>
#include <thread>

#include "hooks.hpp"
#include "support.hpp"

namespace everleaf::test {
namespace {

enum class Role : std::uint8_t { none, loses, is_told };
thread_local Role role = Role::none;

// One thread's sync loses its pages and succeeds; another's, of other pages, is told.
class SharedFailure : public testing::Test {
 protected:
  // What the loser's update answers. `late`: the one who is told learns it only after the loser's
  // sync has ended; `growing`: it is in the sync of a growing file.
  Outcome of_the_loser(bool late, bool growing) {
    const Scratch scratch;
    Pool pool = Pool::open(scratch / "pool", on_disk()).value();
    auto index = pool.index<Bytes>("index").value();
    for (int i = 0; i < 100; ++i) {
      EXPECT_EQ(index.insert(std::to_string(100 + i), 1), Outcome::done);
    }
    std::binary_semaphore told_is_in(0);
    std::binary_semaphore loser_is_in(0);
    std::binary_semaphore loser_may_go(0);
    std::binary_semaphore loser_is_out(0);
    const auto sync = [&](bool told) -> Answer {
      if (role == Role::loses) {
        role = Role::none;
        loser_is_in.release();
        loser_may_go.acquire();
      } else if (told && role == Role::is_told) {
        role = Role::none;
        told_is_in.release();
        loser_is_in.acquire();
        if (late) loser_may_go.release();
        // Not for ever: the loser waits for this call to end.
        if (late) (void)loser_is_out.try_acquire_for(std::chrono::milliseconds(200));
        return EIO;
      }
      return 0;
    };
    hooks.msync = [&](std::byte*, std::size_t) { return sync(!growing); };
    hooks.fdatasync = [&](int) { return sync(growing); };
    std::thread other([&] {
      role = Role::is_told;
      const std::string large(60000, '0');
      Outcome outcome = Outcome::done;
      for (int i = 0; outcome == Outcome::done; ++i) {
        outcome = index.insert(large + std::to_string(i), 7);
      }
      EXPECT_EQ(outcome, Outcome::io_error);
      if (!late) loser_may_go.release();
    });
    told_is_in.acquire();
    role = Role::loses;
    const Outcome outcome = index.update("199", 99);
    loser_is_out.release();
    other.join();
    reset_hooks();
    return outcome;
  }
};

TEST_F(SharedFailure, ToldWhileTheLoserWaits) {
  EXPECT_EQ(of_the_loser(false, false), Outcome::io_error);
}

TEST_F(SharedFailure, ToldAfterTheLosersSync) {
  EXPECT_EQ(of_the_loser(true, false), Outcome::io_error);
}

TEST_F(SharedFailure, ToldWhileTheFileGrows) {
  EXPECT_EQ(of_the_loser(false, true), Outcome::io_error);
  EXPECT_EQ(of_the_loser(true, true), Outcome::io_error);
}

}  // namespace
}  // namespace everleaf::test
