// Structure, statistics, blocks.
#include <algorithm>

#include "trees/bdtree/tree.hpp"
#include "trees/problems.hpp"

namespace everleaf::tree::bdtree {
// What is wrong with a leaf whose keys lie in [low, high).
template <class Keys>
std::string BdTree<Keys>::inspect(Offset at, const Owned* low, const Owned* high) const {
  const Leaf here = leaf(at);
  for (std::size_t cell = 0; cell < options_.shape.cells; ++cell) {
    const Versions v = here.versions(cell);
    if (!present(v.w[0])) return "a cell without a word";
    for (std::size_t i = 0; i < 3; ++i) {
      if (after(v.w[i], c_.epochs->now())) return "a word of an epoch that has not begun";
      if ((v.w[i] & kBitmap) >> options_.shape.cell_slots != 0) return "a slot that is not there";
      for (std::size_t k = 0; k < i; ++k) {
        if (present(v.w[i]) && v.w[i] >> kTagShift == v.w[k] >> kTagShift)
          return "two words of one epoch";
      }
    }
  }
  std::string problem;
  if (!space_.in_use(at, options_.shape.bytes)) problem = "its memory counts as free";
  std::vector<Key> keys;
  here.for_each([&](std::size_t slot) {
    const Word word = pmem::load(&here.slot(slot)->key);
    if (!keys_.readable(word)) {
      problem = "a key record outside the pool";
      return;
    }
    const Key key = keys_.key_of(word);
    keys.push_back(key);
    if (here.fingerprint(slot) != Keys::fingerprint_of(key)) problem = "a wrong fingerprint";
    if constexpr (Keys::kRecords) {
      if (!keys_.hash_matches(word)) problem = "a key word with a wrong hash";
      if (!space_.in_use(Keys::record_of(word), Keys::record_bytes(key)))
        problem = "the memory of a key record counts as free";
    }
    if ((low != nullptr && key < Key(*low)) || (high != nullptr && !(key < Key(*high)))) {
      problem = "a key outside the leaf's range";
    }
  });
  // By a heap: it stays inside whatever the comparisons say, should another thread of a damaged
  // pool write where the keys lie.
  std::ranges::make_heap(keys);
  std::ranges::sort_heap(keys);
  if (std::ranges::adjacent_find(keys) != keys.end()) problem = "a key twice";
  return problem;
}

template <class Keys>
CheckReport BdTree<Keys>::check() const {
  const alloc::Grace::Pin pin(grace_);
  CheckReport report;
  struct Known {
    Offset at;
    std::optional<Owned> low;
  };
  std::vector<Known> known;
  nodes_.for_each_leaf([&known](Offset at, const Owned* low) {
    known.push_back({at, low == nullptr ? std::nullopt : std::optional<Owned>(*low)});
  });
  std::size_t next = 0;
  for_each_linked([&](Offset at, const Leaf& here) {
    if (here.retired()) {
      if (!space_.in_use(at, options_.shape.bytes)) {
        add_problem(report, at_node(at, "retired, and its memory counts as free"));
      }
      return true;
    }
    if (next == known.size() || known[next].at != at) {
      add_problem(report, at_node(at, "not where the inner nodes expect it"));
      return false;
    }
    const Owned* const low = known[next].low ? &*known[next].low : nullptr;
    ++next;
    const Owned* const high = next < known.size() ? &*known[next].low : nullptr;
    if (low != nullptr && high != nullptr && !(*low < *high)) {
      add_problem(report, at_node(at, "its separators are out of order"));
    }
    if (const std::string problem = inspect(at, low, high); !problem.empty()) {
      add_problem(report, at_node(at, problem));
    }
    report.keys += here.live();
    return true;
  });
  if (report.problems.empty() && next != known.size()) {
    add_problem(report, at_node(known[next].at, "the inner nodes name it, the list does not"));
  }
  if (!space_.table_is_whole()) add_problem(report, at_node(head(), epoch::kHoleInTable));
  return report;
}

template <class Keys>
Stats BdTree<Keys>::stats() const {
  const alloc::Grace::Pin pin(grace_);
  Stats stats;
  std::uint64_t retired = 0;
  std::uint64_t instances = 0;
  std::uint64_t retired_instances = 0;
  const Epoch now = c_.epochs->now();
  for_each_linked([&](Offset, const Leaf& here) {
    std::uint64_t taken = 0;
    for (std::size_t cell = 0; cell < options_.shape.cells; ++cell) {
      taken += static_cast<std::uint64_t>(std::popcount(here.versions(cell).taken(now)));
    }
    if (here.retired()) {
      ++retired;
      if (after(here.newest(0), now - 2)) retired_instances += taken;  // recovery may read it
      return true;
    }
    ++stats.leaf_nodes;
    stats.keys += here.live();
    instances += taken;
    return true;
  });
  const auto size = nodes_.size();
  stats.height = size.height;
  stats.inner_nodes = size.nodes;
  stats.dram_bytes =
      size.bytes + space_.dram_bytes() + base::LockTable::kStripes * sizeof(base::VersionLock);
  stats.pool_bytes = kRootBytes + space_.bytes_owned();
  stats.more = {{"retired_leaves", retired},
                {"key_instances", instances},
                {"retired_instances", retired_instances},
                {"blocks_in_use", space_.in_use().blocks},
                {"splits", splits_.load(std::memory_order_relaxed)},
                {"splits_in_place", splits_in_place_.load(std::memory_order_relaxed)},
                {"compactions", compactions_.load(std::memory_order_relaxed)},
                {"opened_from_image", from_image_ ? 1U : 0U},
                {"rebuild_ns", rebuild_ns_},
                {"rebuild_threads", workers_},
                {"words_rolled_back", rolled_back_.load(std::memory_order_relaxed)},
                {"words_restamped", restamped_.load(std::memory_order_relaxed)}};
  return stats;
}

template <class Keys>
void BdTree<Keys>::for_each_block(const detail::Visit& visit) const {
  visit(head(), kRootBytes);
  space_.for_each_extent(visit);
}

EVERLEAF_INSTANTIATE(BdTree<U64Keys>);
EVERLEAF_INSTANTIATE(BdTree<BytesKeys>);

}  // namespace everleaf::tree::bdtree
