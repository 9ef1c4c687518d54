// The story: a truncated redo record kept its checksum and its entries, and sequence numbers began
// at 1 at each open. A crash that left only word 0 of a new record on the medium could so revive a
// record of an earlier session, and undo newer acknowledged operations. Now the checksum goes with
// the record, and a sequence number is used once while a pool is open. For a time recovery alone
// wiped checksums: what had recovered with the help of a record was written to by the next
// recovery.
#include <cstring>

#include "alloc/redo_log.hpp"
#include "pmem/format.hpp"
#include "support.hpp"

namespace everleaf::test {
namespace {

TEST(StaleRecord, NoRecordOfAnEarlierSessionComesBack) {
  const Scratch scratch;
  const auto path = scratch / "pool";
  const std::string spec = "wbtree:structure=bitmap-leaf:node=128";
  Map<Bytes> map;
  {
    Pool pool = Pool::open(path, small_pool()).value();
    auto index = pool.index<Bytes>("index", spec).value();
    for (const std::string key : {"a", "b", "c"}) ASSERT_EQ(index.insert(key, 1), Outcome::done);
    ASSERT_EQ(index.remove("b"), Outcome::done);
    for (const std::string key : {"d", "e"}) ASSERT_EQ(index.insert(key, 2), Outcome::done);
  }
  (void)Pool::open(path, small_pool()).value();  // an open and a close between
  const auto closed = read_bytes(path);
  for (std::uint64_t count = 1; count < 16; ++count) {
    for (std::uint64_t sequence = 1; sequence < 32; ++sequence) {
      auto image = closed;
      const std::uint64_t head = count << 56 | sequence;
      for (std::size_t lane = 0; lane < 4; ++lane) {
        std::memcpy(&image[pmem::kLanesAt + lane * pmem::kLaneBytes], &head, sizeof head);
      }
      write_bytes(path, image);
      Pool pool = Pool::open(path, small_pool()).value();
      ASSERT_EQ(pool.info().replayed, 0U) << "count " << count << ", sequence " << sequence;
    }
  }
  Pool pool = Pool::open(path, small_pool()).value();
  EXPECT_EQ(pool.index<Bytes>("index").value().size(), 4U);
  EXPECT_EQ(unsound(pool), "");
}

// The lanes hold nothing that could come back, late records included, which a close settles.
class Lanes : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(StaleRecord, Lanes, testing::Values("wbtree:node=128", "pbtree:node=256"));

TEST_P(Lanes, ATruncatedRecordHasNoChecksum) {
  const Scratch scratch;
  const auto path = scratch / "pool";
  {
    Pool pool = Pool::open(path, small_pool()).value();
    auto index = pool.index<Bytes>("index", GetParam()).value();
    for (int i = 0; i < 200; ++i) ASSERT_EQ(index.insert(std::to_string(i), 1), Outcome::done);
  }
  const auto image = read_bytes(path);
  std::uint64_t behind = 0;
  for (std::size_t lane = 0; lane < pmem::kLanes; ++lane) {
    std::array<std::uint64_t, 3> words{};
    std::memcpy(words.data(), &image[pmem::kLanesAt + lane * pmem::kLaneBytes], sizeof words);
    EXPECT_EQ(words[0], 0U);
    EXPECT_EQ(words[1], 0U);
    behind += words[2];
  }
  EXPECT_NE(behind, 0U) << "no record was written";
}

}  // namespace
}  // namespace everleaf::test
