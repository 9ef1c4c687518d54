// What is there after a clean close, after kill -9 at any moment, and what a read-only open does.
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

#include "shared_log.hpp"
#include "support.hpp"
#include "trees/pool_state.hpp"

namespace everleaf::test {
namespace {

// What a child's writers tell its parent, in shared memory that outlives it. Operations are
// numbered and follow from the run and the writer, so the numbers are all that needs to be told.
inline constexpr std::size_t kMostWriters = 3;
struct alignas(64) Told {
  std::atomic<std::uint64_t> started{0};
  std::atomic<std::uint64_t> returned{0};
  std::atomic<std::uint64_t> acknowledged{0};  // what must be there: see is_buffered()
};
struct Log {
  std::array<Told, kMostWriters> of;
  std::atomic<std::uint64_t> wrong{0};  // answers that differ from the model's
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

// The operations of one writer of a run.
struct Writer {
  std::uint64_t seed = 0;
  std::size_t number = 0;
  std::size_t writers = 1;
};

// Each key has one writer, so that what is there of it follows from that writer's operations alone;
// neighbours in a leaf have different ones.
template <class K>
std::size_t owner(const Owned<K>& key, std::size_t writers) {
  return std::hash<std::string>{}(show(key)) % writers;
}

// The i-th operation of a writer; phases of growth and of decay, so that all leaves split and
// vanish.
template <class K>
Op<K> operation(const Writer& writer, std::uint64_t i) {
  Random random(writer.seed * 1'000'003 + i * writer.writers + writer.number);
  for (;;) {
    const Owned<K> key = random.one_in(4) ? Keys<K>::odd(random) : Keys<K>::nth(random.below(1500));
    if (owner<K>(key, writer.writers) != writer.number) continue;
    Op<K> op = random_op<K>(random, key);
    if (i % 8192 >= 4096 && op.what == Do::insert) op.what = Do::remove;
    return op;
  }
}

// Of each writer, the entries that are its own.
template <class K>
std::vector<Map<K>> by_writer(const std::vector<Entry<K>>& entries, std::size_t writers) {
  std::vector<Map<K>> maps(writers);
  for (const auto& [key, value] : entries) {
    Owned<K> own(key);
    Map<K>& map = maps[owner<K>(own, writers)];
    map.emplace(std::move(own), value);
  }
  return maps;
}

// Never returns: works until the process is killed.
template <class K>
[[noreturn]] void work(Index<K>& index, const std::string& spec, const Writer& writer, Map<K> map,
                       Log& log) {
  Told& told = log.of[writer.number];
  for (std::uint64_t i = 0;; ++i) {
    const Op<K> op = operation<K>(writer, i);
    told.started.store(i + 1, std::memory_order_release);
    const Outcome outcome = apply<K>(index, op);
    if (outcome != apply<K>(map, op)) log.wrong.fetch_add(1);
    told.returned.store(i + 1, std::memory_order_release);
    const bool syncs = is_buffered(spec) && i % 64 == 63;
    if (syncs && index.sync() != Outcome::done) ::_exit(4);
    if (syncs || !is_buffered(spec)) told.acknowledged.store(i + 1, std::memory_order_release);
  }
}

template <class K>
[[noreturn]] void child(const std::filesystem::path& path, const PoolOptions& options,
                        const std::string& spec, std::uint64_t seed,
                        const std::vector<Map<K>>& before, Log& log) {
  auto pool = Pool::open(path, options);
  if (!pool) ::_exit(2);
  auto index = pool->index<K>("index", spec);
  if (!index) ::_exit(3);
  std::vector<std::thread> others;
  for (std::size_t number = 1; number < before.size(); ++number) {
    others.emplace_back([&, number] {
      work<K>(*index, spec, {seed, number, before.size()}, before[number], log);
    });
  }
  work<K>(*index, spec, {seed, 0, before.size()}, before[0], log);
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
        const auto op = operation<K>({.seed = seed + static_cast<std::uint64_t>(round)}, i);
        ASSERT_EQ(apply<K>(index, op), apply<K>(map, op));
      }
      ASSERT_EQ(unsound(pool), "");
    }
  });
}

// How many of each writer's operations must be there, and after how many the last had begun.
struct Moment {
  std::vector<std::uint64_t> first;
  std::vector<std::uint64_t> last;
};

// `maps` are the states after `first` operations; of each writer the index shows that or a later
// one, up to the one that was running after `last`.
template <class K>
void settle(const Index<K>& index, std::vector<Map<K>>& maps, std::uint64_t seed,
            const Moment& moment) {
  std::vector<Entry<K>> seen;
  ASSERT_EQ(index.scan(K{}, kAll, seen), Outcome::done);
  const std::vector<Map<K>> there = by_writer<K>(seen, maps.size());
  Map<K> whole;
  for (std::size_t number = 0; number < maps.size(); ++number) {
    Map<K>& map = maps[number];
    const std::string wrong = difference<K>(entries_of<K>(there[number]), map);
    for (std::uint64_t i = moment.first[number]; map != there[number]; ++i) {
      ASSERT_LE(i, moment.last[number])
          << wrong << "; seed " << seed << ", writer " << number << " of " << maps.size()
          << ", operations " << moment.first[number] << " to " << moment.last[number];
      (void)apply<K>(map, operation<K>({seed, number, maps.size()}, i));
    }
    whole.insert(map.begin(), map.end());
  }
  EXPECT_EQ(difference<K>(index, whole, 3), "");
}

template <class K>
void read_only_changes_nothing(const std::filesystem::path& path, const std::string& spec,
                               std::vector<Map<K>> maps, std::uint64_t seed, const Moment& moment) {
  const auto before = read_bytes(path);
  {
    Pool pool = Pool::open(path, small_pool(Mode::read_only)).value();
    auto index = pool.index<K>("index", spec).value();
    settle<K>(index, maps, seed, moment);
    EXPECT_EQ(unsound(pool), "");
    EXPECT_EQ(index.insert(Keys<K>::nth(1), 1), Outcome::read_only);
    EXPECT_EQ(index.remove(Keys<K>::nth(1)), Outcome::read_only);
  }
  EXPECT_TRUE(read_bytes(path) == before) << "a read-only open changed the file";
}

#if !defined(__SANITIZE_THREAD__)  // it and fork do not go together
// Not a matter of timing: any moment is a good one once all have begun; in the first round once
// there is something of each that must be there.
void await_work(pid_t pid, const Log& log, std::size_t writers, bool first_round) {
  for (std::size_t number = 0; number < writers; ++number) {
    const Told& told = log.of[number];
    const std::atomic<std::uint64_t>& begun = first_round ? told.acknowledged : told.started;
    while (begun.load(std::memory_order_acquire) == 0) {
      siginfo_t ended{};  // asked, not reaped
      const bool gone =
          ::waitid(P_PID, static_cast<id_t>(pid), &ended, WEXITED | WNOHANG | WNOWAIT) == 0 &&
          ended.si_pid == pid;
      if (gone) return;
      std::this_thread::yield();
    }
  }
}

template <class K>
void after_kill(const std::string& spec, const PoolOptions& options, std::size_t writers,
                std::uint64_t rounds) {
  const std::uint64_t seed = test::seed();
  Random random(seed);
  const Scratch scratch;
  const auto path = scratch / "pool";
  { Pool::open(path, options).value().index<K>("index", spec).value(); }
  std::vector<Map<K>> maps(writers);
  std::uint64_t all = 0;
  for (std::uint64_t round = 0; round < rounds; ++round) {
    SharedLog<Log> log;
    const std::uint64_t run = seed + round;
    std::fflush(nullptr);
    const pid_t pid = ::fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) child<K>(path, options, spec, run, maps, *log.operator->());
    await_work(pid, *log.operator->(), writers, round == 0);
    std::this_thread::sleep_for(std::chrono::microseconds(random.below(20000)));
    ASSERT_EQ(::kill(pid, SIGKILL), 0);
    int status = 0;
    ASSERT_EQ(::waitpid(pid, &status, 0), pid);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the child ended by itself: " << status;
    EXPECT_EQ(log->wrong.load(), 0U);
    Moment moment;
    for (std::size_t number = 0; number < writers; ++number) {
      const std::uint64_t done = log->of[number].acknowledged.load(std::memory_order_acquire);
      moment.first.push_back(done);
      moment.last.push_back(log->of[number].returned.load(std::memory_order_acquire));
      all += done;
      for (std::uint64_t i = 0; i < done; ++i) {
        (void)apply<K>(maps[number], operation<K>({run, number, writers}, i));
      }
    }
    read_only_changes_nothing<K>(path, spec, maps, run, moment);
    Pool pool = Pool::open(path, options).value();
    EXPECT_FALSE(pool.info().clean);
    auto index = pool.index<K>("index", spec).value();
    ASSERT_NO_FATAL_FAILURE(settle<K>(index, maps, run, moment));
    ASSERT_EQ(unsound(pool), "");
    Map<K> whole;
    for (const Map<K>& map : maps) whole.insert(map.begin(), map.end());
    for (std::uint64_t i = 0; i < 300; ++i) {
      const auto op = operation<K>({.seed = ~run}, i);
      ASSERT_EQ(apply<K>(index, op), apply<K>(whole, op)) << show<K>(op);
    }
    ASSERT_EQ(difference<K>(index, whole, 3), "");
    ASSERT_EQ(unsound(pool), "");
    maps = by_writer<K>(entries_of<K>(whole), writers);
  }
  EXPECT_GT(all, 0U);
  testing::Test::RecordProperty("acknowledged", static_cast<int>(all));
}

TEST_P(Reopen, AfterKill) {
  with_keys(
      []<class K>(const std::string& spec) { after_kill<K>(spec, small_pool(), 1, scaled(8)); });
}

// More writers than processors, so that some are killed in the middle of what others help with.
TEST_P(Reopen, AfterKillOfSeveralWriters) {
  with_keys([]<class K>(const std::string& spec) {
    after_kill<K>(spec, small_pool(), kMostWriters, scaled(8));
  });
}

// What the process left in the page cache, the next open writes back before it reads it.
TEST_P(Reopen, AfterKillOnDisk) {
  with_keys([]<class K>(const std::string& spec) {
    after_kill<K>(spec, on_disk(), 1, scaled(3));
    after_kill<K>(spec, in_copies(on_disk()), 2, scaled(3));
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
          const Op<K> op = operation<K>({.seed = seed + round / 2}, i + round % 2 * 4096);
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
