// Hotness-aware multiple split (paper, III-C): into how many nodes a full one splits.
//
// The clock counts leaf splits of the whole tree, modulo 2^32. `last` is the time since the split
// before the last one to the last one, `now` the time since. A burst: last > t * now; cooling: last
// * t < now.
#pragma once

#include <algorithm>
#include <cstdint>

namespace everleaf::tree::lodgetree {

struct Heat {
  std::uint32_t before = 0;  // ps_counter; equal to `at` if the node has not split twice
  std::uint32_t at = 0;      // ls_counter; 0 if it never did
  std::uint32_t ways = 2;    // M, of the last split

  // The time before a node's first split is the tree's age, no interval of its own.
  [[nodiscard]] constexpr Heat after_split(std::uint32_t now, std::uint32_t into) const {
    return {at == 0 ? now : at, now, into};
  }
};

enum class SplitKind : std::uint8_t { reducing, normal, adding };

// A node that has not split twice has no interval to compare with: a normal split.
[[nodiscard]] constexpr SplitKind kind_of(const Heat& heat, std::uint32_t now, std::uint64_t t) {
  if (heat.before == heat.at) return SplitKind::normal;
  const std::uint64_t last{heat.at - heat.before};
  const std::uint64_t since{now - heat.at};
  if (last > t * since) return SplitKind::adding;
  return last * t < since ? SplitKind::reducing : SplitKind::normal;
}

// M of this split, before the parent is asked; at least two ways, at most what the option allows.
[[nodiscard]] constexpr std::uint32_t ways_of(const Heat& heat, SplitKind kind,
                                              std::uint32_t most) {
  std::uint32_t ways = heat.ways;
  if (kind == SplitKind::adding) ++ways;
  if (kind == SplitKind::reducing && ways > 2) --ways;
  return std::clamp<std::uint32_t>(ways, 2, std::max<std::uint32_t>(most, 2));
}

// Formula (1), for a parent with `free` slots, which is at least one: a full parent was split
// before. N nodes take N - 1 slots, so N = X leaves one.
[[nodiscard]] constexpr std::uint32_t fitting(std::uint32_t ways, std::uint32_t free) {
  if (ways < free) return ways;
  return free <= 1 ? 2 : free;
}
static_assert(fitting(3, 5) == 3 && fitting(3, 3) == 3 && fitting(4, 2) == 2 && fitting(5, 1) == 2);

}  // namespace everleaf::tree::lodgetree
