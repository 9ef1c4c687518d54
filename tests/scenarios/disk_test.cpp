// The `disk` domain on the file system of the build folder: few operations, each of them synced.
#include "support.hpp"
#include "trees/pool_state.hpp"

namespace everleaf::test {
namespace {

class Disk : public EveryTree {};

template <class K>
void operations_and_reopen(const std::string& spec, const PoolOptions& options) {
  const std::uint64_t seed = test::seed();
  Random random(seed);
  const Scratch scratch(std::filesystem::current_path());
  Map<K> map;
  {
    Pool pool = Pool::open(scratch / "pool", options).value();
    EXPECT_EQ(pool.info().domain.domain, Domain::disk);
    auto index = pool.index<K>("index", spec).value();
    for (std::size_t i = 0; i < 120; ++i) {
      const auto op = random_op<K>(random, Keys<K>::nth(random.below(100)));
      ASSERT_EQ(apply<K>(index, op), apply<K>(map, op)) << "seed " << seed;
    }
    EXPECT_GT(pool.counters().fences, is_buffered(spec) ? 0U : 60U);
    EXPECT_TRUE(pool.close());
  }
  Pool pool = Pool::open(scratch / "pool", options).value();
  auto index = pool.index<K>("index", spec).value();
  EXPECT_EQ(difference<K>(index, map), "") << "seed " << seed;
  EXPECT_EQ(unsound(pool), "");
}

TEST_P(Disk, OperationsAndReopen) {
  with_keys([]<class K>(const std::string& spec) {
    operations_and_reopen<K>(spec, on_disk());
    operations_and_reopen<K>(spec, in_copies(on_disk()));
  });
}

// Private copies as far as they may go, the rest a shared mapping.
TEST(DiskCopies, EndWhereTheyMay) {
  const Scratch scratch;
  PoolOptions options = on_disk();
  options.private_bytes = std::uint64_t{2} << 20;  // after that growth leaves it shared
  const std::uint64_t keys = 200'000;
  {
    Pool pool = Pool::open(scratch / "pool", options).value();
    auto index = pool.index<std::uint64_t>("index", "bdtree").value();
    for (std::uint64_t i = 0; i < keys; ++i) ASSERT_EQ(index.insert(i * 7, i), Outcome::done);
    ASSERT_EQ(pool.sync(), Outcome::done);
    EXPECT_GT(pool.info().file_bytes, 2 * *options.private_bytes);
    PoolAccess::state(pool).abandon();
  }
  Pool pool = Pool::open(scratch / "pool", in_copies(options)).value();
  const auto index = pool.index<std::uint64_t>("index").value();
  for (std::uint64_t i = 0; i < keys; ++i) ASSERT_EQ(*index.find(i * 7), i);
  EXPECT_EQ(unsound(pool), "");
}

// What was not written back is not in the file, whoever dies.
TEST(DiskCopies, StoresAloneDoNotReachTheFile) {
  const Scratch scratch;
  PoolOptions options = in_copies(on_disk());
  options.epoch_length = {};
  Pool pool = Pool::open(scratch / "pool", options).value();
  auto index = pool.index<std::uint64_t>("index", "bdtree").value();
  ASSERT_EQ(index.insert(1, 1), Outcome::done);
  ASSERT_EQ(pool.sync(), Outcome::done);
  const auto before = read_bytes(scratch / "pool");
  ASSERT_EQ(index.insert(2, 2), Outcome::done);
  EXPECT_EQ(read_bytes(scratch / "pool"), before);
  ASSERT_EQ(pool.sync(), Outcome::done);
  EXPECT_NE(read_bytes(scratch / "pool"), before);
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
    PoolAccess::state(pool).medium().fail();  // what a failed sync does
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
