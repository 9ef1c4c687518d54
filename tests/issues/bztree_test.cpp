// Stories of src/trees/bztree.
#include <gtest/gtest.h>

#include "pmem/format.hpp"
#include "support.hpp"
#include "trees/bztree/layout.hpp"
#include "trees/pool_state.hpp"

namespace everleaf::test {
namespace {

// The root block's status is the one status that nobody freezes. A damaged one that was frozen sent
// changes of structure to thaw the node above it, of which there is none.
TEST(BzTree, FrozenRootBlockIsCorrupt) {
  for (const std::uint64_t keys : {3U, 2000U}) {
    Pool pool = Pool::anonymous().value();
    auto index = pool.index<std::uint64_t>("index", "bztree:page=256:free=96").value();
    for (std::uint64_t i = 0; i < keys; ++i) ASSERT_EQ(index.insert(i * 10, i), Outcome::done);
    pmem::Medium& medium = PoolAccess::state(pool).medium();
    const auto root = medium.at<pmem::DirectoryEntry>(pmem::kDirectoryAt)->root;
    auto& status = medium.at<tree::bztree::RootAt>(root)->status;
    ASSERT_EQ(status & tree::bztree::kFrozen, 0U);
    status |= tree::bztree::kFrozen;
    EXPECT_NE(unsound(pool), "");
    Outcome outcome = Outcome::done;
    for (std::uint64_t i = 0; i < 1000 && outcome == Outcome::done; ++i) {
      outcome = index.insert(i * 10 + 5, i);
    }
    EXPECT_EQ(outcome, Outcome::corrupt);
    status &= ~tree::bztree::kFrozen;
    EXPECT_EQ(unsound(pool), "");
  }
}

// Records lie at multiples of 8 from the end of a leaf; damage put the next one in between.
TEST(BzTree, BlockThatIsNotAligned) {
  Pool pool = Pool::anonymous().value();
  auto index = pool.index<std::uint64_t>("index", "bztree").value();
  ASSERT_EQ(index.insert(1, 1), Outcome::done);
  pmem::Medium& medium = PoolAccess::state(pool).medium();
  const auto root = medium.at<pmem::DirectoryEntry>(pmem::kDirectoryAt)->root;
  auto* const leaf = medium.at<pmem::Word>(medium.at<tree::bztree::RootAt>(root)->child);
  leaf[1] += 5;  // the status
  EXPECT_EQ(index.insert(2, 2), Outcome::corrupt);
  EXPECT_NE(unsound(pool), "");
  leaf[1] -= 5;
  EXPECT_EQ(index.insert(2, 2), Outcome::done);
}

}  // namespace
}  // namespace everleaf::test
