// The story: a truncated redo record kept its checksum and its entries, and sequence numbers began
// at 1 at each open. A crash that left only word 0 of a new record on the medium could so revive a
// record of an earlier session, and undo newer acknowledged operations. Now the checksum goes with
// the record, and a sequence number is used once while a pool is open. For a time recovery alone
// wiped checksums: what had recovered with the help of a record was written to by the next
// recovery.
#include <array>
#include <cstring>
#include <span>
#include <string_view>

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

// The first words of a lane; the last one is of an entry.
using Lane = std::array<std::uint64_t, 4>;
Lane lane(std::span<const std::byte> image, std::size_t number) {
  Lane words{};
  std::memcpy(words.data(), &image[pmem::kLanesAt + number * pmem::kLaneBytes], sizeof words);
  return words;
}

// The lanes hold nothing that could come back; late records, in the lanes of threads, are truncated
// by the close.
TEST(StaleRecord, ATruncatedRecordHasNoChecksum) {
  for (const char* const spec : {"wbtree:node=128", "pbtree:node=256"}) {
    const Scratch scratch;
    const auto path = scratch / "pool";
    PoolOptions options = small_pool();
    options.domain = Domain::memory;
    options.emulate = true;
    {
      Pool pool = Pool::open(path, options).value();
      auto index = pool.index<std::uint64_t>("index", spec).value();
      for (std::uint64_t i = 0; i < 2000; ++i)
        ASSERT_EQ(index.insert(i * 7919 % 2003, 1), Outcome::done);
    }
    const auto image = read_bytes(path);
    unsigned everybodys = 0;
    unsigned late = 0;
    for (std::size_t number = 0; number < pmem::kLanes; ++number) {
      const Lane words = lane(image, number);
      EXPECT_EQ(words[0], 0U) << spec;
      EXPECT_EQ(words[1], 0U) << spec;
      if (words[3] != 0) ++(number < pmem::kLanes / 2 ? everybodys : late);
    }
    EXPECT_GT(everybodys, 0U) << spec;
    if (std::string_view(spec).starts_with("pbtree")) {
      EXPECT_GT(late, 1U);
    }
  }
}

// Of an older build, or of a truncation that reached the medium by half.
TEST(StaleRecord, AnOpenWipesChecksums) {
  const Scratch scratch;
  const auto path = scratch / "pool";
  (void)Pool::open(path, small_pool()).value();
  for (const Lane& forged : {Lane{0, 7, 7, 7}, Lane{std::uint64_t{2} << 56 | 1, 0, 7, 7}}) {
    auto image = read_bytes(path);
    std::memcpy(&image[pmem::kLanesAt + 5 * pmem::kLaneBytes], forged.data(), sizeof forged);
    write_bytes(path, image);
    EXPECT_EQ(Pool::open(path, small_pool()).value().info().replayed, 0U);
    const Lane words = lane(read_bytes(path), 5);
    EXPECT_EQ(words[0], 0U);
    EXPECT_EQ(words[1], 0U);
  }
}

}  // namespace
}  // namespace everleaf::test
