// Leaf-count flush (paper, III-B): which pairs of a full buffer go to their leaves.
//
// Pairs are grouped by leaf, the oldest first. Grouping stops at the leaf that would be one more
// than t_node, and at one that would hold more than t_split pairs: that one is split, if it is the
// first. All pairs of a leaf go, or none (the stamp of the leaf speaks for all of them).
#pragma once

#include <bit>
#include <cstdint>

namespace everleaf::tree::lodgetree {

struct Plan {
  std::uint64_t leaves = 0;  // to be flushed, a bit each
  bool splits = false;       // the only one of them is too full
};

// pairs: their number, from the newest; target(pair): its leaf; adds(leaf): how many more pairs it
// would hold; count(leaf): how many it holds.
template <class Target, class Adds, class Count>
[[nodiscard]] Plan plan_flush(unsigned pairs, unsigned t_node, unsigned t_split, Target&& target,
                              Adds&& adds, Count&& count) {
  Plan plan;
  for (unsigned pair = pairs; pair-- > 0;) {
    const unsigned leaf = target(pair);
    const std::uint64_t bit = std::uint64_t{1} << leaf;
    if ((plan.leaves & bit) != 0) continue;
    const bool first = plan.leaves == 0;
    if (static_cast<unsigned>(std::popcount(plan.leaves)) == t_node) break;
    const unsigned more = adds(leaf);
    if (more != 0 && count(leaf) + more > t_split) {
      if (first) return {bit, true};
      break;
    }
    plan.leaves |= bit;
  }
  return plan;
}

}  // namespace everleaf::tree::lodgetree
