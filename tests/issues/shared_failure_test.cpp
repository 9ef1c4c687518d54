// The story: the kernel tells of a failed write-back once for each open file, and all threads
// synced by one: so the thread whose pages had failed was not told if another one was, and
// acknowledged what was lost. Then a sync waited for those that ran beside it, for ever if one of
// them was stopped. Now each thread has a file of its own to sync by, is told by that, and waits
// for nobody.
#include <cerrno>
#include <map>
#include <mutex>
#include <semaphore>
#include <set>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "alloc/redo_log.hpp"
#include "hooks.hpp"
#include "pmem/format.hpp"
#include "support.hpp"
#include "trees/pool_state.hpp"

namespace everleaf::test {
namespace {

enum class Role : std::uint8_t { none, loses, is_told, is_told_growing };
thread_local Role role = Role::none;
thread_local bool growing = false;

// What the kernel knows of one file: how many write-backs failed, and how many of them each open
// file was told of. Who opens it is not told of what others were.
class Kernel {
 public:
  void opened(int file) {
    const std::lock_guard guard(mutex_);
    told_[file] = failures_;
  }
  void fail() {
    const std::lock_guard guard(mutex_);
    ++failures_;
  }
  Answer sync(int file) {
    const std::lock_guard guard(mutex_);
    syncs_.insert(file);
    const int told = std::exchange(told_[file], failures_);
    return told == failures_ ? 0 : EIO;
  }
  [[nodiscard]] std::set<int> syncs() {
    const std::lock_guard guard(mutex_);
    return syncs_;
  }

 private:
  std::mutex mutex_;
  int failures_ = 0;
  std::map<int, int> told_;  // 0 for what was opened before
  std::set<int> syncs_;
};

class SharedFailure : public testing::TestWithParam<bool> {
 protected:
  static PoolOptions options() { return GetParam() ? in_copies(on_disk()) : on_disk(); }

  // What the loser's update answers: its pages fail, and another thread is told before it, and is
  // stopped as long as the update lasts.
  static Outcome of_the_loser(Role other_role) {
    const Scratch scratch;
    Pool pool = Pool::open(scratch / "pool", options()).value();
    auto index = pool.index<Bytes>("index", "bztree").value();
    for (int i = 0; i < 100; ++i) {
      EXPECT_EQ(index.insert(std::to_string(100 + i), 1), Outcome::done);
    }
    Kernel kernel;
    std::binary_semaphore told(0);
    std::binary_semaphore may_go(0);
    hooks.opened = [&](int file) { kernel.opened(file); };
    hooks.fallocate = [&]() -> Answer {
      growing = true;
      return std::nullopt;
    };
    hooks.fdatasync = [&](int file) -> Answer {
      const bool grows = std::exchange(growing, false);
      if (role == Role::is_told || (role == Role::is_told_growing && grows)) {
        role = Role::none;
        kernel.fail();
        EXPECT_EQ(*kernel.sync(file), EIO);
        told.release();
        may_go.acquire();
        return EIO;
      }
      return kernel.sync(file);
    };
    std::thread other([&] {
      role = other_role;
      const std::string large(60000, '0');
      Outcome outcome = Outcome::done;
      for (int i = 0; outcome == Outcome::done; ++i) {
        outcome = index.insert(large + std::to_string(i), 7);
      }
      EXPECT_EQ(outcome, Outcome::io_error);
    });
    told.acquire();
    const Outcome outcome = index.update("199", 99);
    may_go.release();
    other.join();
    reset_hooks();
    return outcome;
  }
};

TEST_P(SharedFailure, IsToldToWhoLoses) {
  EXPECT_EQ(of_the_loser(Role::is_told), Outcome::io_error);
}

TEST_P(SharedFailure, IsToldToWhoLosesBesideAGrowth) {
  EXPECT_EQ(of_the_loser(Role::is_told_growing), Outcome::io_error);
}

// Where no descriptor is left the pool's own is shared, and who was told says so.
TEST_P(SharedFailure, IsPassedOnWithoutDescriptors) {
  const Scratch scratch;
  Pool pool = Pool::open(scratch / "pool", options()).value();
  auto index = pool.index<std::uint64_t>("index", "bztree").value();
  Kernel kernel;
  hooks.open = [](int) -> Answer { return EMFILE; };
  hooks.fdatasync = [&](int file) { return kernel.sync(file); };
  const auto insert = [&](std::uint64_t from) {
    for (std::uint64_t key = from; key < from + 20; ++key) {
      if (const Outcome outcome = index.insert(key, key); outcome != Outcome::done) return outcome;
    }
    return Outcome::done;
  };
  std::vector<std::thread> threads;
  for (std::uint64_t t = 1; t <= 3; ++t) {
    threads.emplace_back([&, t] { EXPECT_EQ(insert(t * 1000), Outcome::done); });
  }
  for (auto& thread : threads) thread.join();
  // This thread had opened one when it made the index; the others had none.
  EXPECT_EQ(kernel.syncs().size(), 1U);
  threads.clear();
  kernel.fail();
  for (std::uint64_t t = 4; t <= 6; ++t) {
    threads.emplace_back([&, t] { EXPECT_EQ(insert(t * 1000), Outcome::io_error); });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(insert(0), Outcome::io_error);
  reset_hooks();
}

// A file that is opened late is not told of what failed before: so nothing is written before that.
TEST_P(SharedFailure, FilesAreOpenedBeforeAnythingIsWritten) {
  const Scratch scratch;
  Pool pool = Pool::open(scratch / "pool", options()).value();
  auto index = pool.index<std::uint64_t>("index", "bztree").value();
  std::vector<std::string> calls;
  hooks.opened = [&](int file) { calls.push_back("open " + std::to_string(file)); };
  hooks.pwrite = [&](int) -> Answer {
    calls.emplace_back("write");
    return std::nullopt;
  };
  hooks.fdatasync = [&](int file) -> Answer {
    calls.push_back("sync " + std::to_string(file));
    return std::nullopt;
  };
  std::thread other([&] { EXPECT_EQ(index.insert(1, 1), Outcome::done); });
  other.join();
  reset_hooks();
  ASSERT_GE(calls.size(), 2U);
  ASSERT_TRUE(calls[0].starts_with("open "));
  const std::string sync = "sync" + calls[0].substr(4);
  std::size_t syncs = 0;
  for (std::size_t i = 1; i < calls.size(); ++i) {
    EXPECT_TRUE(calls[i] == sync || calls[i] == "write") << calls[i];
    if (calls[i] == sync) ++syncs;
  }
  EXPECT_GT(syncs, 0U);
  EXPECT_EQ(calls.size() - 1 > syncs, GetParam()) << "a shared mapping is not written";
}

// A descriptor that is there only after something was written comes too late for that.
TEST_P(SharedFailure, NoFileIsOpenedBetweenAFlushAndItsFence) {
  const Scratch scratch;
  Pool pool = Pool::open(scratch / "pool", options()).value();
  pmem::Medium& medium = PoolAccess::state(pool).medium();
  bool none_left = true;
  std::vector<std::string> calls;
  hooks.open = [&](int) -> Answer {
    if (!none_left) return std::nullopt;
    calls.emplace_back("none");
    return EMFILE;
  };
  hooks.opened = [&](int) { calls.emplace_back("open"); };
  hooks.fdatasync = [&](int) -> Answer {
    calls.emplace_back("sync");
    return std::nullopt;
  };
  std::thread other([&] {
    medium.flush(medium.at(pmem::kStateAt), 8);
    none_left = false;
    EXPECT_TRUE(medium.fence());
    medium.flush(medium.at(pmem::kStateAt), 8);
    calls.emplace_back("flushed");
    EXPECT_TRUE(medium.fence());
  });
  other.join();
  reset_hooks();
  EXPECT_EQ(calls, (std::vector<std::string>{"none", "sync", "open", "flushed", "sync"}));
}

// The program keeps half of the descriptors that it may have, and the standard ones.
TEST_P(SharedFailure, DescriptorsAreLeft) {
  const Scratch scratch;
  Pool pool = Pool::open(scratch / "pool", options()).value();
  const pmem::Descriptor& file = PoolAccess::state(pool).file().descriptor();
  EXPECT_TRUE(file.another().valid());
  struct rlimit before {};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  struct rlimit small = before;
  small.rlim_cur = 2 * static_cast<rlim_t>(file.get());
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &small), 0);
  EXPECT_FALSE(file.another().valid());
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  const int standard = ::dup(STDIN_FILENO);
  ::close(STDIN_FILENO);
  EXPECT_GT(file.another().get(), STDERR_FILENO);
  ::dup2(standard, STDIN_FILENO);
  ::close(standard);
}

// Threads that are stopped in their first operation keep lanes of the redo log.
TEST(RedoLanes, AreNotWaitedForForEver) {
  constexpr int kLanes = 32;
  const Scratch scratch;
  Pool pool = Pool::open(scratch / "pool", on_disk()).value();
  auto index = pool.index<std::uint64_t>("index", "bztree").value();
  ASSERT_EQ(index.insert(1, 1), Outcome::done);
  alloc::RedoLog& redo = PoolAccess::state(pool).redo();
  std::counting_semaphore<kLanes> stopped(0);
  std::counting_semaphore<kLanes> may_go(0);
  hooks.fdatasync = [&](int) -> Answer {
    if (role == Role::is_told) {
      role = Role::none;
      stopped.release();
      may_go.acquire();
    }
    return std::nullopt;
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < kLanes; ++i) {
    threads.emplace_back([&] {
      role = Role::is_told;
      EXPECT_EQ(redo.commit(alloc::Redo()), Outcome::done);
    });
  }
  for (int i = 0; i < kLanes; ++i) stopped.acquire();
  std::thread new_one([&] {
    EXPECT_EQ(index.insert(2, 2), Outcome::out_of_space);
    EXPECT_EQ(*index.find(1), 1U);
  });
  new_one.join();
  EXPECT_EQ(index.insert(3, 3), Outcome::done) << "it has a descriptor";
  may_go.release(kLanes);
  for (auto& thread : threads) thread.join();
  std::thread another([&] { EXPECT_EQ(index.insert(2, 2), Outcome::done); });
  another.join();
  reset_hooks();
  EXPECT_EQ(index.size(), 3U);
  EXPECT_EQ(unsound(pool), "");
}

INSTANTIATE_TEST_SUITE_P(Mapped, SharedFailure, testing::Bool(), [](const auto& of) {
  return std::string(of.param ? "Copies" : "Shared");
});

}  // namespace
}  // namespace everleaf::test
