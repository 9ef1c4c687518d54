// The `disk` domain on the file system of the build folder: few operations, each of them synced.
#include "support.hpp"
#include "trees/pool_state.hpp"

namespace everleaf::test {
namespace {

class Disk : public EveryTree {};

TEST_P(Disk, OperationsAndReopen) {
  with_keys([]<class K>(const std::string& spec) {
    const std::uint64_t seed = test::seed();
    Random random(seed);
    const Scratch scratch(std::filesystem::current_path());
    Map<K> map;
    {
      Pool pool = Pool::open(scratch / "pool", on_disk()).value();
      EXPECT_EQ(pool.info().domain.domain, Domain::disk);
      auto index = pool.index<K>("index", spec).value();
      for (std::size_t i = 0; i < 200; ++i) {
        const auto op = random_op<K>(random, Keys<K>::nth(random.below(100)));
        ASSERT_EQ(apply<K>(index, op), apply<K>(map, op)) << "seed " << seed;
      }
      EXPECT_GT(pool.counters().fences, is_buffered(spec) ? 0U : 100U);
      EXPECT_TRUE(pool.close());
    }
    Pool pool = Pool::open(scratch / "pool", on_disk()).value();
    auto index = pool.index<K>("index", spec).value();
    EXPECT_EQ(difference<K>(index, map), "") << "seed " << seed;
    EXPECT_EQ(unsound(pool), "");
  });
}

// After a failed write-back nothing more is acknowledged; what is there stays readable.
TEST_P(Disk, AFailedWriteBackIsSticky) {
  with_keys([]<class K>(const std::string& spec) {
    const Scratch scratch(std::filesystem::current_path());
    Pool pool = Pool::open(scratch / "pool", on_disk()).value();
    auto index = pool.index<K>("index", spec).value();
    const auto first = Keys<K>::nth(1);
    const auto second = Keys<K>::nth(2);
    ASSERT_EQ(index.insert(first, 1), Outcome::done);
    PoolAccess::state(pool).medium().fail();  // what a failed msync does
    EXPECT_EQ(index.insert(second, 2), Outcome::io_error);
    EXPECT_EQ(index.update(first, 3), Outcome::io_error);
    EXPECT_EQ(index.remove(first), Outcome::io_error);
    EXPECT_EQ(index.sync(), Outcome::io_error);
    EXPECT_EQ(*index.find(first), 1U);
    EXPECT_FALSE(pool.index<K>("another", spec));
  });
}

EVERLEAF_EVERY_TREE(Disk);

}  // namespace
}  // namespace everleaf::test
