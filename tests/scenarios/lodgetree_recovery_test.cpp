// A replay by several threads: each takes some nodes of the last level in a row.
#include <atomic>
#include <csignal>

#include <sys/wait.h>
#include <unistd.h>

#include "base/parallel.hpp"
#include "pmem/medium.hpp"
#include "support.hpp"
#include "trees/pool_state.hpp"

namespace everleaf::test {
namespace {

// Ends the process at the n-th fence, whichever thread comes to it.
class Killer final : public pmem::Observer {
 public:
  explicit Killer(std::int64_t fences) : left_(fences) {}
  void flushed(pmem::Offset, std::size_t, pmem::Site) override {}
  void fencing(pmem::Site) override {
    if (left_.fetch_sub(1) == 1) ::kill(::getpid(), SIGKILL);
  }

 private:
  std::atomic<std::int64_t> left_;
};

constexpr const char* kSpec = "lodgetree:node=256:slots=63";
// Enough for a replay in two shares: judge() asks.
constexpr int kChanges = 120'000;

template <class K>
struct Replay {
  Scratch scratch;
  Map<K> map;
  Random random{7};
  PoolOptions options;

  void change(Index<K>& index) {
    const auto key = Keys<K>::nth(random.below(200'000));
    if (random.one_in(5)) {
      ASSERT_EQ(index.remove(key), map.erase(key) != 0 ? Outcome::done : Outcome::absent);
    } else {
      const std::uint64_t value = random.below(1'000'000);
      ASSERT_EQ(index.upsert(key, value), Outcome::done);
      map[key] = value;
    }
  }
  // A pool that nobody closed.
  void write() {
    Pool pool = Pool::open(scratch / "pool", options).value();
    auto index = pool.index<K>("index", kSpec).value();
    for (int i = 0; i < kChanges; ++i) ASSERT_NO_FATAL_FAILURE(change(index));
    PoolAccess::state(pool).abandon();
  }
  // Killed at this fence of recovery; false: it had fewer.
  [[nodiscard]] bool recover_until(std::int64_t fence) const {
    const pid_t child = ::fork();
    if (child == 0) {
      Killer killer(fence);
      auto pool = PoolAccess::open(scratch / "pool", options, &killer);
      if (!pool) ::_exit(3);
      ::_exit(pool->index<K>("index") ? 0 : 4);
    }
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    const bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    EXPECT_TRUE(killed || status == 0) << status;
    return killed;
  }
  void judge() {
    Pool pool = Pool::open(scratch / "pool", options).value();
    auto index = pool.index<K>("index").value();
    EXPECT_GE(figure(index.stats(), "replayed"), 4096U);
    EXPECT_GE(figure(index.stats(), "replay_shares"), std::min<std::size_t>(2, base::workers()));
    EXPECT_EQ(difference<K>(index, map), "");
    EXPECT_EQ(unsound(pool), "");
    // And it goes on from there.
    for (int i = 0; i < 20'000; ++i) ASSERT_NO_FATAL_FAILURE(change(index));
    EXPECT_EQ(difference<K>(index, map), "");
    EXPECT_EQ(unsound(pool), "");
  }
};

template <class K>
void replay_in_shares(PoolOptions options) {
  Replay<K> replay;
  replay.options = options;
  ASSERT_NO_FATAL_FAILURE(replay.write());
  replay.judge();
}

// A11 of src/trees/lodgetree/README.md with several threads, as a killed process leaves it: some
// leaves have their pairs, some their stamps, and recovery begins again.
template <class K>
void replay_after_kills() {
  Replay<K> replay;
  replay.options = small_pool();
  ASSERT_NO_FATAL_FAILURE(replay.write());
  std::int64_t fence = 1;
  unsigned kills = 0;
  // Each takes up what the one before has left.
  for (; kills < 12 && replay.recover_until(fence); fence = fence * 2 + 1) ++kills;
  EXPECT_GE(kills, 5U);
  Pool pool = Pool::open(replay.scratch / "pool", replay.options).value();
  auto index = pool.index<K>("index").value();
  EXPECT_EQ(difference<K>(index, replay.map), "");
  EXPECT_EQ(unsound(pool), "");
  for (int i = 0; i < 20'000; ++i) ASSERT_NO_FATAL_FAILURE(replay.change(index));
  EXPECT_EQ(difference<K>(index, replay.map), "");
}

TEST(LodgetreeRecovery, InSharesOfManyRecords) {
  replay_in_shares<std::uint64_t>(small_pool());
  replay_in_shares<Bytes>(small_pool());
}

TEST(LodgetreeRecovery, InSharesOnADisk) {
  replay_in_shares<std::uint64_t>(in_copies(on_disk()));
}

TEST(LodgetreeRecovery, KilledAgainAndAgain) {
  replay_after_kills<std::uint64_t>();
  replay_after_kills<Bytes>();
}

}  // namespace
}  // namespace everleaf::test
