// The stories: memory that waits for its grace period was not found by the thread that itself held
// the grace period back, so a full pool refused an insertion after a removal; and large blocks grew
// the file in every session before anybody looked for the room that earlier sessions had left.
#include "support.hpp"

namespace everleaf::test {
namespace {

std::string padded(const char* prefix, int number, std::size_t bytes) {
  return prefix + std::to_string(number) + std::string(bytes, 'x');
}

TEST(Space, AFullPoolTakesWhatWasJustRemoved) {
  PoolOptions options = small_pool();
  options.max_bytes = std::uint64_t{4} << 20;
  const Scratch scratch;
  Pool pool = Pool::open(scratch / "pool", options).value();
  auto index = pool.index<Bytes>("index", "wbtree:node=128").value();
  int keys = 0;
  while (index.insert(padded("a", keys, 16000), 1) == Outcome::done) ++keys;
  ASSERT_GT(keys, 100);
  for (int i = 0; i < 20; ++i) {
    ASSERT_EQ(index.remove(padded("a", i, 16000)), Outcome::done);
    EXPECT_EQ(index.insert(padded("b", i, 16000), 1), Outcome::done) << i;
  }
}

TEST(Space, SessionsDoNotGrowThePool) {
  for (const std::size_t bytes : {100U, 20000U}) {
    const Scratch scratch;
    std::uint64_t first = 0;
    for (int session = 0; session < 30; ++session) {
      Pool pool = Pool::open(scratch / "pool", small_pool()).value();
      auto index = pool.index<Bytes>("index").value();
      for (int i = 0; i < 40; ++i) {
        ASSERT_EQ(index.insert(padded("k", i, bytes), 1), Outcome::done);
      }
      for (int i = 0; i < 40; ++i) {
        ASSERT_EQ(index.remove(padded("k", i, bytes)), Outcome::done);
      }
      if (session == 0) first = pool.info().heap_bytes;
      EXPECT_EQ(pool.info().heap_bytes, first) << "session " << session;
    }
  }
}

}  // namespace
}  // namespace everleaf::test
