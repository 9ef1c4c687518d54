// A replay by several threads: each takes some nodes of the last level in a row.
#include "base/parallel.hpp"
#include "support.hpp"
#include "trees/pool_state.hpp"

namespace everleaf::test {
namespace {

TEST(LodgetreeRecovery, InSharesOfManyRecords) {
  const Scratch scratch;
  Map<std::uint64_t> map;
  Random random(7);
  const auto change = [&](Index<std::uint64_t>& index) {
    const std::uint64_t key = random.below(200'000);
    if (random.one_in(5)) {
      ASSERT_EQ(index.remove(key), map.erase(key) != 0 ? Outcome::done : Outcome::absent);
    } else {
      const std::uint64_t value = random.below(1'000'000);
      ASSERT_EQ(index.upsert(key, value), Outcome::done);
      map[key] = value;
    }
  };
  {
    Pool pool = Pool::open(scratch / "pool").value();
    auto index = pool.index<std::uint64_t>("index", "lodgetree:node=256:slots=63").value();
    for (int i = 0; i < 250'000; ++i) ASSERT_NO_FATAL_FAILURE(change(index));
    PoolAccess::state(pool).abandon();
  }
  Pool pool = Pool::open(scratch / "pool").value();
  auto index = pool.index<std::uint64_t>("index").value();
  EXPECT_GE(figure(index.stats(), "replayed"), 4096U);
  EXPECT_GE(figure(index.stats(), "replay_shares"), std::min<std::size_t>(2, base::workers()));
  EXPECT_EQ(difference<std::uint64_t>(index, map), "");
  EXPECT_EQ(unsound(pool), "");
  // And it goes on from there.
  for (int i = 0; i < 20'000; ++i) ASSERT_NO_FATAL_FAILURE(change(index));
  EXPECT_EQ(difference<std::uint64_t>(index, map), "");
  EXPECT_EQ(unsound(pool), "");
}

}  // namespace
}  // namespace everleaf::test
