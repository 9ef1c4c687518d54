// What is there after a clean close, after kill -9 at any moment, and what a read-only open does.
#include <atomic>
#include <chrono>
#include <csignal>
#include <thread>

#include <sys/wait.h>
#include <unistd.h>

#include "shared_log.hpp"
#include "support.hpp"
#include "trees/pool_state.hpp"

namespace everleaf::test {
namespace {

// What a child tells its parent, in shared memory that outlives it. Operations are numbered and
// follow from the seed, so the numbers are all that needs to be told.
struct Log {
  std::atomic<std::uint64_t> started{0};
  std::atomic<std::uint64_t> returned{0};
  std::atomic<std::uint64_t> acknowledged{0};  // what must be there: see is_buffered()
  std::atomic<std::uint64_t> wrong{0};         // answers that differ from the model's
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

// The i-th operation of a run; phases of growth and of decay, so that all leaves split and vanish.
template <class K>
Op<K> operation(std::uint64_t seed, std::uint64_t i) {
  Random random(seed * 1'000'003 + i);
  const Owned<K> key = random.one_in(4) ? Keys<K>::odd(random) : Keys<K>::nth(random.below(1500));
  Op<K> op = random_op<K>(random, key);
  if (i % 8192 >= 4096 && op.what == Do::insert) op.what = Do::remove;
  return op;
}

// Never returns: works until it is killed.
template <class K>
[[noreturn]] void child(const std::filesystem::path& path, const PoolOptions& options,
                        const std::string& spec, std::uint64_t seed, const Map<K>& before,
                        Log& log) {
  Map<K> map = before;
  auto pool = Pool::open(path, options);
  if (!pool) ::_exit(2);
  auto index = pool->index<K>("index", spec);
  if (!index) ::_exit(3);
  for (std::uint64_t i = 0;; ++i) {
    const Op<K> op = operation<K>(seed, i);
    log.started.store(i + 1, std::memory_order_release);
    const Outcome outcome = apply<K>(*index, op);
    if (outcome != apply<K>(map, op)) log.wrong.fetch_add(1);
    log.returned.store(i + 1, std::memory_order_release);
    const bool syncs = is_buffered(spec) && i % 64 == 63;
    if (syncs && index->sync() != Outcome::done) ::_exit(4);
    if (syncs || !is_buffered(spec)) log.acknowledged.store(i + 1, std::memory_order_release);
  }
}

class Reopen : public EveryTree {};

TEST_P(Reopen, AfterACleanClose) {
  with_keys([]<class K>(const std::string& spec) {
    const std::uint64_t seed = test::seed();
    const Scratch scratch;
    Map<K> map;
    for (int round = 0; round < 5; ++round) {
      Pool pool = Pool::open(scratch / "pool", small_pool()).value();
      EXPECT_TRUE(pool.info().clean);
      EXPECT_EQ(pool.info().replayed, 0U);
      auto index = pool.index<K>("index", spec).value();
      ASSERT_EQ(difference<K>(index, map), "") << "seed " << seed;
      for (std::uint64_t i = 0; i < 400; ++i) {
        const auto op = operation<K>(seed + static_cast<std::uint64_t>(round), i);
        ASSERT_EQ(apply<K>(index, op), apply<K>(map, op));
      }
      ASSERT_EQ(unsound(pool), "");
    }
  });
}

// `map` is the state after `first` operations; the index shows that or a later one, up to the one
// that was running after `last`.
template <class K>
void settle(const Index<K>& index, Map<K>& map, std::uint64_t seed, std::uint64_t first,
            std::uint64_t last) {
  const std::string wrong = difference<K>(index, map, 3);
  if (wrong.empty()) return;
  for (std::uint64_t i = first; i <= last; ++i) {
    (void)apply<K>(map, operation<K>(seed, i));
    if (difference<K>(index, map, 3).empty()) return;
  }
  FAIL() << wrong << "; seed " << seed << ", operations " << first << " to " << last;
}

template <class K>
void read_only_changes_nothing(const std::filesystem::path& path, const std::string& spec,
                               Map<K> map, std::uint64_t seed, std::uint64_t first,
                               std::uint64_t last) {
  const auto before = read_bytes(path);
  {
    Pool pool = Pool::open(path, small_pool(Mode::read_only)).value();
    auto index = pool.index<K>("index", spec).value();
    settle<K>(index, map, seed, first, last);
    EXPECT_EQ(unsound(pool), "");
    EXPECT_EQ(index.insert(Keys<K>::nth(1), 1), Outcome::read_only);
    EXPECT_EQ(index.remove(Keys<K>::nth(1)), Outcome::read_only);
  }
  EXPECT_TRUE(read_bytes(path) == before) << "a read-only open changed the file";
}

#if !defined(__SANITIZE_THREAD__)  // it and fork do not go together
template <class K>
void after_kill(const std::string& spec, const PoolOptions& options, std::uint64_t rounds) {
  const std::uint64_t seed = test::seed();
  Random random(seed);
  const Scratch scratch;
  const auto path = scratch / "pool";
  { Pool::open(path, options).value().index<K>("index", spec).value(); }
  Map<K> map;
  std::uint64_t all = 0;
  for (std::uint64_t round = 0; round < rounds; ++round) {
    SharedLog<Log> log;
    const std::uint64_t run = seed + round;
    std::fflush(nullptr);
    const pid_t pid = ::fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) child<K>(path, options, spec, run, map, *log.operator->());
    // Not a matter of timing: any moment is a good one once work has begun; in the first round
    // once there is something that must be there.
    const std::atomic<std::uint64_t>& begun = round == 0 ? log->acknowledged : log->started;
    while (begun.load(std::memory_order_acquire) == 0) {
      siginfo_t ended{};  // asked, not reaped
      const bool gone =
          ::waitid(P_PID, static_cast<id_t>(pid), &ended, WEXITED | WNOHANG | WNOWAIT) == 0 &&
          ended.si_pid == pid;
      if (gone) break;
      std::this_thread::yield();
    }
    std::this_thread::sleep_for(std::chrono::microseconds(random.below(20000)));
    ASSERT_EQ(::kill(pid, SIGKILL), 0);
    int status = 0;
    ASSERT_EQ(::waitpid(pid, &status, 0), pid);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the child ended by itself: " << status;
    const std::uint64_t done = log->acknowledged.load(std::memory_order_acquire);
    const std::uint64_t returned = log->returned.load(std::memory_order_acquire);
    EXPECT_EQ(log->wrong.load(), 0U);
    all += done;
    for (std::uint64_t i = 0; i < done; ++i) (void)apply<K>(map, operation<K>(run, i));
    read_only_changes_nothing<K>(path, spec, map, run, done, returned);
    Pool pool = Pool::open(path, options).value();
    EXPECT_FALSE(pool.info().clean);
    auto index = pool.index<K>("index", spec).value();
    ASSERT_NO_FATAL_FAILURE(settle<K>(index, map, run, done, returned));
    ASSERT_EQ(unsound(pool), "");
    for (std::uint64_t i = 0; i < 300; ++i) {
      const auto op = operation<K>(~run, i);
      ASSERT_EQ(apply<K>(index, op), apply<K>(map, op)) << show<K>(op);
    }
    ASSERT_EQ(difference<K>(index, map, 3), "");
    ASSERT_EQ(unsound(pool), "");
  }
  EXPECT_GT(all, 0U);
  testing::Test::RecordProperty("acknowledged", static_cast<int>(all));
}

TEST_P(Reopen, AfterKill) {
  with_keys(
      []<class K>(const std::string& spec) { after_kill<K>(spec, small_pool(), scaled(12)); });
}

// What the process left in the page cache, the next open writes back before it reads it.
TEST_P(Reopen, AfterKillOnDisk) {
  with_keys([]<class K>(const std::string& spec) {
    after_kill<K>(spec, on_disk(), scaled(3));
    after_kill<K>(spec, in_copies(on_disk()), scaled(3));
  });
}
#endif

class Image : public EveryTree {};

std::uint64_t from_image(const Stats& stats) {
  const auto found = std::ranges::find(stats.more, "opened_from_image",
                                       [](const auto& figure) { return figure.first; });
  return found == stats.more.end() ? 2 : found->second;
}

// After a proper close nothing is rebuilt: whatever happened before it, for readers as well, and
// after a crash that the index was not open in.
TEST_P(Image, ServesAfterACleanClose) {
  with_keys([]<class K>(const std::string& spec) {
    const std::uint64_t seed = test::seed();
    const Scratch scratch;
    Map<K> map;
    for (std::uint64_t round = 0; round < 6; ++round) {
      {
        Pool pool = Pool::open(scratch / "pool", small_pool()).value();
        auto index = pool.index<K>("index", spec).value();
        EXPECT_EQ(from_image(index.stats()), round == 0 ? 0U : 1U);
        EXPECT_EQ(difference<K>(index, map), "");
        EXPECT_EQ(unsound(pool), "");
        for (std::uint64_t i = 0; i < 3000; ++i) {
          const Op<K> op = operation<K>(seed + round / 2, i + round % 2 * 4096);
          EXPECT_EQ(apply<K>(index, op), apply<K>(map, op));
        }
      }
      Pool pool = Pool::open(scratch / "pool", small_pool(Mode::read_only)).value();
      EXPECT_EQ(from_image(pool.index<K>("index").value().stats()), 1U);
    }
    {
      Pool pool = Pool::open(scratch / "pool", small_pool()).value();
      EXPECT_EQ(pool.index<K>("other", spec).value().insert(Keys<K>::nth(1), 1), Outcome::done);
      PoolAccess::state(pool).abandon();
    }
    Pool pool = Pool::open(scratch / "pool", small_pool()).value();
    EXPECT_FALSE(pool.info().clean);
    auto index = pool.index<K>("index").value();
    EXPECT_EQ(from_image(index.stats()), 1U);
    EXPECT_EQ(difference<K>(index, map), "");
    EXPECT_EQ(unsound(pool), "");
  });
}

// The image is for one open: what the next session changes, it does not know.
TEST_P(Image, IsNotBelievedTwice) {
  with_keys([]<class K>(const std::string& spec) {
    const Scratch scratch;
    {
      Pool pool = Pool::open(scratch / "pool", small_pool()).value();
      auto index = pool.index<K>("index", spec).value();
      for (std::uint64_t i = 0; i < 500; ++i) (void)index.insert(Keys<K>::nth(2 * i), i);
    }
    Map<K> map;
    {
      Pool pool = Pool::open(scratch / "pool", small_pool()).value();
      auto index = pool.index<K>("index").value();
      for (std::uint64_t i = 0; i < 500; ++i) (void)index.insert(Keys<K>::nth(2 * i + 1), i);
      ASSERT_EQ(index.sync(), Outcome::done);
      PoolAccess::state(pool).abandon();
    }
    Pool pool = Pool::open(scratch / "pool", small_pool()).value();
    auto index = pool.index<K>("index").value();
    EXPECT_EQ(from_image(index.stats()), 0U);
    EXPECT_EQ(index.size(), 1000U);
    EXPECT_EQ(unsound(pool), "");
  });
}

EVERLEAF_EVERY_TREE_THAT(Image, is_buffered_case);
EVERLEAF_EVERY_TREE(Reopen);

}  // namespace
}  // namespace everleaf::test
