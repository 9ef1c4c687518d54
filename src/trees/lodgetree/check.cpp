// Structure, statistics, blocks.
#include <algorithm>
#include <bit>

#include "trees/lodgetree/tree.hpp"
#include "trees/problems.hpp"

namespace everleaf::tree::lodgetree {

// What is wrong with a leaf whose keys lie in [low, high).
template <class Keys>
std::string LodgeTree<Keys>::inspect_leaf(const Node& node, unsigned i, const Owned* low,
                                          const Owned* high) const {
  const Leaf here = leaf(node.leaf(i));
  if (node.count(i) != static_cast<unsigned>(std::popcount(here.used()))) return "a wrong count";
  if (here.stamp() > node.sequence) return "a stamp above the node's orders";
  const bool in_pool = c_.medium.contains(c_.medium.offset_of(here.base()), 1);
  if (in_pool && !space_.in_use(c_.medium.offset_of(here.base()), options_.shape.bytes)) {
    return "its memory counts as free";
  }
  if (in_pool && low != nullptr &&
      (!keys_.readable(here.low()) || keys_.key_of(here.low()) != Key(*low))) {
    return "its bound is not its separator";
  }
  std::vector<Key> keys;
  for (Word bits = here.used(); bits != 0; bits &= bits - 1) {
    const auto slot = static_cast<std::size_t>(std::countr_zero(bits));
    const Word word = pmem::load(&here.slot(slot)->key);
    if (!keys_.readable(word)) return "a key record outside the pool";
    const Key key = keys_.key_of(word);
    keys.push_back(key);
    if (here.fingerprint(slot) != Keys::fingerprint_of(key)) return "a wrong fingerprint";
    if constexpr (Keys::kRecords) {
      if (!keys_.hash_matches(word)) return "a key word with a wrong hash";
      if (!space_.in_use(Keys::record_of(word), Keys::record_bytes(key))) {
        return "the memory of a key record counts as free";
      }
    }
    if ((low != nullptr && key < Key(*low)) || (high != nullptr && !(key < Key(*high)))) {
      return "a key outside the leaf's range";
    }
  }
  // By a heap: it stays inside whatever the comparisons say, should another index of a damaged pool
  // write where the keys lie.
  std::ranges::make_heap(keys);
  std::ranges::sort_heap(keys);
  if (std::ranges::adjacent_find(keys) != keys.end()) return "a key twice";
  return node.has_filter_of(i, here) ? "" : "a wrong filter";
}

// B2 to B5.
template <class Keys>
std::string LodgeTree<Keys>::inspect_pair(const Node& node, unsigned pair) const {
  const Probe probe = probe_of(node.key(pair));
  if (node.fingerprint(pair) != probe.fingerprint) return "a pair with a wrong fingerprint";
  if (node.search(keys_, probe) != pair) return "a pair twice";
  if (node.rank(probe, Aim::at) != node.target(pair)) return "a pair for another leaf";
  const Leaf here = leaf(node.leaf(node.target(pair)));
  const std::size_t slot = search(here, probe);
  const bool says_fresh = node.is_fresh(pair);
  if (node.is_unsure(pair) ? says_fresh : says_fresh != (slot == kNoSlot)) {
    return "a pair that is fresh, or not";
  }
  if (slot != kNoSlot && node.key(pair) != pmem::load(&here.slot(slot)->key)) {
    return "a pair with a key record of its own";
  }
  if (!c_.read_only && !log_.is_live(node.ref(pair))) return "a pair without a record";
  return "";
}

// Under the latch, or without writers.
template <class Keys>
bool LodgeTree<Keys>::in_leaf(const Node& node, unsigned pair) const {
  if (!node.is_unsure(pair)) return !node.is_fresh(pair);
  return search(leaf(node.leaf(node.target(pair))), probe_of(node.key(pair))) != kNoSlot;
}

template <class Keys>
std::size_t LodgeTree<Keys>::keys_in(const Node& node) const {
  std::size_t keys = 0;
  for (unsigned i = 0; i < node.leaves(); ++i) keys += node.count(i);
  for (std::uint64_t bits = node.buffer_bits(); bits != 0; bits &= bits - 1) {
    const auto pair = static_cast<unsigned>(std::countr_zero(bits));
    const bool there = in_leaf(node, pair);
    if (!there && !node.is_removal(pair)) ++keys;
    if (there && node.is_removal(pair)) --keys;
  }
  return keys;
}

// Leaves are looked at only if most of what is left of them is removed.
template <class Keys>
bool LodgeTree<Keys>::has_keys(const Node& node) const {
  std::size_t in_leaves = 0;
  for (unsigned i = 0; i < node.leaves(); ++i) in_leaves += node.count(i);
  return in_leaves > node.buffered() || keys_in(node) != 0;
}

template <class Keys>
CheckReport LodgeTree<Keys>::check() const {
  const alloc::Grace::Pin pin(grace_);
  CheckReport report;
  std::vector<std::pair<Node*, std::optional<Owned>>> nodes;
  for_each_node([&nodes](Node& node, const Owned* low) {
    nodes.emplace_back(&node, low == nullptr ? std::nullopt : std::optional<Owned>(*low));
  });
  const auto note = [&](const std::byte* base, const std::string& what) {
    if (what.empty()) return;
    add_problem(report, at_node(c_.medium.offset_of(base), what));
  };
  Offset linked = c_.read_only ? 0 : pmem::load(&root()->head);
  for (std::size_t k = 0; k < nodes.size(); ++k) {
    const Node& node = *nodes[k].first;
    const Node* const right = k + 1 < nodes.size() ? nodes[k + 1].first : nullptr;
    if (node.right.load() != right) note(node.leaf(0), "its inner node does not lead to the next");
    std::optional<Owned> low = nodes[k].second;
    for (unsigned i = 0; i < node.leaves(); ++i) {
      std::optional<Owned> high;
      if (i + 1 < node.leaves()) {
        high = separator_key(node, i + 1);
      } else if (right != nullptr) {
        high = nodes[k + 1].second;
      }
      std::byte* const base = node.leaf(i);
      if (low && high && !(*low < *high)) note(base, "its separators are out of order");
      note(base, inspect_leaf(node, i, low ? &*low : nullptr, high ? &*high : nullptr));
      if (!c_.read_only && linked != c_.medium.offset_of(base)) {
        note(base, "not where the list leads");
        return report;
      }
      if (!c_.read_only) linked = leaf(base).next();
      low = high;
    }
    for (std::uint64_t bits = node.buffer_bits(); bits != 0; bits &= bits - 1) {
      const auto pair = static_cast<unsigned>(std::countr_zero(bits));
      note(node.leaf(0), inspect_pair(node, pair));
    }
    report.keys += keys_in(node);
  }
  if (linked != 0) add_problem(report, at_node(linked, "in the list behind the last leaf"));
  if (!space_.table_is_whole()) {
    add_problem(report, at_node(root_block(), epoch::kHoleInTable));
  }
  return report;
}

template <class Keys>
Stats LodgeTree<Keys>::stats() const {
  const alloc::Grace::Pin pin(grace_);
  Stats stats;
  std::uint64_t nodes = 0;
  std::uint64_t pairs = 0;
  std::uint64_t free = 0;
  std::uint64_t separators = 0;  // bytes
  for_each_node([&](Node& node, const Owned*) {
    base::LockSet lock;
    // Pairs that are unsure are looked for in their leaves.
    while (!Keys::kRecords && !lock.try_lock(node.latch, node.latch.begin())) {
    }
    ++nodes;
    stats.leaf_nodes += node.leaves();
    stats.keys += keys_in(node);
    pairs += node.buffered();
    free += options_.slots - node.leaves();
    if constexpr (Keys::kRecords) {
      for (unsigned i = 1; i < node.leaves(); ++i) {
        const Separator* const separator = node.separator(i);
        separators += separator == nullptr ? 0 : separator->bytes();
      }
    }
    lock.release(false);
  });
  const auto size = upper_.size();
  const auto log = log_.figures();
  stats.height = nodes == 1 ? 1 : size.height + 1;
  stats.inner_nodes = size.nodes + nodes;
  stats.dram_bytes = size.bytes + nodes * Node::bytes_of(options_.slots) + separators +
                     space_.dram_bytes() + log.dram_bytes + sizeof *counts_ +
                     overlay_.size() * options_.shape.bytes;
  stats.pool_bytes = kRootBytes + space_.bytes_owned();
  const auto value = [](const std::atomic<std::uint64_t>& counter) {
    return counter.load(std::memory_order_relaxed);
  };
  stats.more = {{"last_level_nodes", nodes},
                {"empty_slots_permille", free * 1000 / (nodes * options_.slots)},
                {"buffered", pairs},
                {"buffer_hits", sum_of(&Counts::hits)},
                {"flushes", sum_of(&Counts::flushes)},
                {"flushed_leaves", sum_of(&Counts::flushed_leaves)},
                {"flushed_pairs", sum_of(&Counts::flushed_pairs)},
                {"forced_flushes", value(forced_)},
                {"leaf_splits", value(leaf_splits_)},
                {"unlinked_leaves", value(unlinked_)},
                {"reducing_splits", value(node_splits_[0])},
                {"normal_splits", value(node_splits_[1])},
                {"adding_splits", value(node_splits_[2])},
                {"log_chunks", log.chunks},
                {"log_chunks_free", log.free},
                {"log_bytes", log.chunks * log_.chunk_bytes()},
                {"log_records_live", log.live},
                {"replayed", replayed_},
                {"replay_shares", shares_},
                {"rebuild_ns", rebuild_ns_}};
  return stats;
}

template <class Keys>
void LodgeTree<Keys>::for_each_block(const detail::Visit& visit) const {
  visit(root_block(), kRootBytes);
  space_.for_each_extent(visit);
}

EVERLEAF_INSTANTIATE(LodgeTree<U64Keys>);
EVERLEAF_INSTANTIATE(LodgeTree<BytesKeys>);

}  // namespace everleaf::tree::lodgetree
