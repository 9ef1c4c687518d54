// Scans downwards beside leaves that go: the reader is stopped at each of its points.
#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include "stops.hpp"

namespace everleaf::crash {
namespace {

// The last leaf of the first inner node goes, and the node with it: its range passes to the first
// leaf of the next one, of which no version changes, and a key of that range comes. A scan
// downwards that had been told the old range on its way, and stopped there, is not to take the key
// for damage, nor to answer it twice.
TEST(ScanDownwards, BesideAnUnlinkFurtherUp) {
  // Ascending keys: seven leaves of six below the first inner node.
  constexpr std::uint64_t kLast = 42;
  constexpr std::uint64_t kKeys = 140;
  constexpr auto key_of = &Entry<std::uint64_t>::key;
  bool met = false;
  const auto once = [&](std::optional<std::uint64_t> at, Stops stops) {
    SharedIndex<std::uint64_t> stage("wbtree:structure=slot-only:node=128");
    Index<std::uint64_t>& index = stage.index();
    for (std::uint64_t key = 1; key <= kKeys; ++key) (void)index.insert(key, key);
    for (std::uint64_t key = 1; key < kLast; ++key) (void)index.remove(key);
    const std::uint64_t inner_nodes = index.stats().inner_nodes;
    std::vector<Entry<std::uint64_t>> seen;
    const auto scan = [&] { EXPECT_EQ(index.scan_back(kLast + 2, kKeys, seen), Outcome::done); };
    const auto write = [&] {
      EXPECT_EQ(index.remove(kLast), Outcome::done);
      EXPECT_EQ(index.insert(kLast, kLast), Outcome::done);
    };
    const Stop stop = stop_first(at, stops, {{}, scan}, {{}, write});
    EXPECT_EQ(index.stats().inner_nodes, inner_nodes - 1);
    if (stop.ended) {
      EXPECT_EQ(std::ranges::adjacent_find(seen, std::ranges::less_equal(), key_of), seen.end());
      EXPECT_GE(seen.size(), 2U);
    }
    met = met || stage.has_reached("a scan downwards goes on below its leaf's range");
    return stop;
  };
  EXPECT_GT(stop_everywhere(once), 20U);
  EXPECT_TRUE(met);
}

// The same wherever a leaf may go, with every tree: what is answered falls, and what stays is
// there.
class ScansDownwards : public testing::TestWithParam<const char*> {};

TEST_P(ScansDownwards, BesideLeavesThatGo) {
  constexpr std::uint64_t kKeys = 120;
  constexpr auto key_of = &Entry<std::uint64_t>::key;
  for (std::uint64_t gone = 2; gone <= 70; gone += 4) {
    const auto once = [&](std::optional<std::uint64_t> at, Stops) {
      SharedIndex<std::uint64_t> stage(GetParam());
      Index<std::uint64_t>& index = stage.index();
      for (std::uint64_t key = 1; key <= kKeys; ++key) (void)index.insert(key, key);
      for (std::uint64_t key = 1; key < gone; ++key) (void)index.remove(key);
      std::vector<Entry<std::uint64_t>> seen;
      const auto scan = [&] { EXPECT_EQ(index.scan_back(gone + 3, kKeys, seen), Outcome::done); };
      const auto write = [&] {
        EXPECT_EQ(index.remove(gone), Outcome::done);
        EXPECT_EQ(index.insert(gone, gone), Outcome::done);
      };
      const Stop stop = stop_first(at, Stops::for_long, {{}, scan}, {{}, write});
      EXPECT_EQ(std::ranges::adjacent_find(seen, std::ranges::less_equal(), key_of), seen.end());
      EXPECT_GE(seen.size(), 3U);
      return stop;
    };
    EXPECT_GT(stop_everywhere(once), 5U) << gone;
  }
}

INSTANTIATE_TEST_SUITE_P(Trees, ScansDownwards,
                         testing::Values("wbtree:structure=slot-only:node=128",
                                         "wbtree:structure=bitmap-leaf:node=128", "pbtree:node=256",
                                         "bztree:page=256:free=96", "bdtree:node=256",
                                         "lodgetree:node=256:slots=6:t_split=5:log=4096"));

}  // namespace
}  // namespace everleaf::crash
