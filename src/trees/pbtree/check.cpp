// Structure checks, statistics and the list of blocks: one walk, level by level, that trusts no
// word.
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "trees/pbtree/tree.hpp"
#include "trees/problems.hpp"

namespace everleaf::tree::pbtree {

template <class Keys>
struct PbTree<Keys>::Survey {
  const detail::Visit* visit = nullptr;
  CheckReport report;
  Stats stats;
  std::unordered_set<Offset> seen;
  std::unordered_set<Offset> below;  // nodes of the level below, no parent named them yet
  std::unordered_set<Offset> here;   // nodes of this level
  std::uint64_t unknown = 0;         // nodes that no parent names
  std::uint64_t unfinished = 0;
  bool has_low = false;
  bool has_high = false;
  Owned low{};
  Owned high{};
  bool stop = false;

  void problem(std::string text) { stop = !add_problem(report, std::move(text)) || stop; }
};

// A key word: readable, allocated. `owned`: its record is this word's. False: do not follow it.
template <class Keys>
bool PbTree<Keys>::survey_key(Survey& s, Offset offset, Word word, bool owned) const {
  if constexpr (Keys::kRecords) {
    if (word == 0) return true;
    const Offset record = Keys::record_of(word);
    const std::size_t bytes = c_.heap.allocated_bytes(record);
    if (!keys_.readable(word) || bytes < Keys::record_bytes(keys_.key_of(word))) {
      s.problem(at_node(offset, "a key record is impossible or not allocated"));
      return false;
    }
    if (!keys_.tag_matches(word)) s.problem(at_node(offset, "a key's tag is wrong"));
    if (owned) {
      s.stats.pool_bytes += bytes;
      if (s.visit != nullptr) (*s.visit)(record, bytes);
    }
  } else {
    static_cast<void>(s), static_cast<void>(offset), static_cast<void>(word);
    static_cast<void>(owned);
  }
  return true;
}

// Both regions are whole: free entries lie between them alone.
template <class Keys>
bool PbTree<Keys>::survey_regions(Survey& s, Offset offset, NodeOf node) const {
  const Word pivot = node.pivot();
  const bool trimmed = (node.meta() & kCopy) != 0;
  unsigned changes = 0;
  Word before = 0;
  for (unsigned i = 0; i < capacity_; ++i) {
    const Word word = node.key(i);
    const Word region = keys_.in_right(word, pivot) ? 0 : keys_.in_left(word, pivot) ? 2 : 1;
    if (region < before && !(trimmed && region == 1)) ++changes;
    before = region;
  }
  if (changes == 0) return true;
  s.problem(at_node(offset, "its regions have gaps"));
  return false;
}

// Entries of one node: of those in its bounds, order and ownership; of an inner node, the children.
template <class Keys>
void PbTree<Keys>::survey_entries(Survey& s, Offset offset, NodeOf node) const {
  const Word meta = node.meta();
  const bool is_leaf = node.level() == 0;
  const Word pivot = node.pivot();
  // The sibling has everything, the node may be half rewritten (A5).
  if ((meta & kSplitting) != 0 && possible(node.right()) &&
      at(node.right()).split_key() == node.split_key()) {
    return;
  }
  if (!survey_regions(s, offset, node)) return;
  Sorted sorted;
  node.sort_into(sorted);
  const bool own_pivot = (meta & kPivotLive) == 0 && pivot != node.split_key();
  if (own_pivot && !survey_key(s, offset, pivot, true)) return;
  Sorted kept;
  Offset leftmost = node.leftmost();
  for (const Entry& entry : sorted.all()) {
    if (!survey_key(s, offset, entry.key, false)) continue;
    const Key key = keys_.key_of(entry.key);
    const bool low = s.has_low && (is_leaf ? key < Key(s.low) : !(Key(s.low) < key));
    const bool high = s.has_high && !(key < Key(s.high));
    if ((low && (meta & kCopy) == 0) || (high && (meta & kSplitting) == 0)) {
      s.problem(at_node(offset, "a key lies outside of the node's range"));
    }
    // A split that was committed, and no more: its leftmost child is still an entry.
    if (low && !is_leaf && key == Key(s.low)) leftmost = entry.value;
    if (low || high) continue;
    if (kept.count != 0 && !(keys_.key_of(kept.entries[kept.count - 1].key) < key)) {
      s.problem(at_node(offset, "keys are not ascending"));
    }
    kept.push(entry.key, entry.value);
    static_cast<void>(survey_key(s, offset, entry.key, true));
  }
  if (is_leaf) {
    s.report.keys += kept.count;
  } else {
    survey_children(s, offset, leftmost, kept);
  }
}

// Each child lies on the level below, and no key that leads to it is above its split key.
template <class Keys>
void PbTree<Keys>::survey_children(Survey& s, Offset offset, Offset leftmost,
                                   const Sorted& sorted) const {
  const NodeOf node = at(offset);
  const auto child = [&](Word word, Offset below) {
    if (!s.below.contains(below)) {
      s.problem(at_node(offset, "a child is not on the level below"));
      return;
    }
    const NodeOf named = at(below);
    // Only what was put before the first node of a level moves a split key away, until the parent
    // learns of it.
    const bool first = word == 0 && word == node.split_key();
    if (!first && (!keys_.readable(named.split_key()) ||
                   keys_.key_of(named.split_key()) != keys_.key_of(word))) {
      s.problem(at_node(offset, "a child's split key is not that of its entry"));
    }
    if (s.here.erase(below) == 0) s.problem(at_node(offset, "a child is named twice"));
  };
  child(node.split_key(), leftmost);
  for (const Entry& entry : sorted.all()) child(entry.key, entry.value);
}

template <class Keys>
bool PbTree<Keys>::survey_node(Survey& s, Offset offset, unsigned level) const {
  if (!possible(offset) || c_.heap.allocated_bytes(offset) < bytes_) {
    s.problem(at_node(offset, "it is impossible or not allocated"));
    return false;
  }
  if (!s.seen.insert(offset).second) {
    s.problem(at_node(offset, "it is linked twice"));
    return false;
  }
  const NodeOf node = at(offset);
  if (node.level() != level || (node.meta() & kDead) != 0) {
    s.problem(at_node(offset, "it is not a node of its level"));
    return false;
  }
  const std::size_t bytes = c_.heap.allocated_bytes(offset);
  s.stats.pool_bytes += bytes;
  if (s.visit != nullptr) (*s.visit)(offset, bytes);
  return true;
}

// A level from its first node on.
template <class Keys>
void PbTree<Keys>::survey_level(Survey& s, unsigned level, Offset first) const {
  std::unordered_set<Offset> nodes;
  Offset before = 0;
  s.has_low = false;
  for (Offset offset = first; offset != 0 && !s.stop;) {
    if (!survey_node(s, offset, level)) return;
    nodes.insert(offset);
    const NodeOf node = at(offset);
    if (node.left() != before) s.problem(at_node(offset, "its left link is not its left sibling"));
    const Word split = node.split_key();
    // A split that is not committed: both halves have the same split key, the left one's.
    const bool backup =
        before != 0 && (at(before).meta() & kSplitting) != 0 && at(before).split_key() == split;
    if (!survey_key(s, offset, split, !backup)) return;
    if (backup && level == 0 && !survey_key(s, offset, node.next_split_key(), true)) return;
    const Key low = keys_.key_of(split);
    if (before == 0 ? split != 0 : !backup && !(Key(s.low) < low)) {
      s.problem(at_node(offset, "its split key is not above that of its left sibling"));
    }
    s.has_low = split != 0 || before != 0;
    s.low = Keys::own(low);
    const Offset right = node.right();
    s.has_high = right != 0;
    if (right != 0) {
      if (!possible(right)) {
        s.problem(at_node(offset, "its right link is impossible"));
        return;
      }
      const Word high = at(right).split_key();
      if (!survey_key(s, right, high, false)) return;
      s.high = Keys::own(keys_.key_of(high));
    }
    s.unfinished += static_cast<std::uint64_t>(unfinished(node));
    survey_entries(s, offset, node);
    ++(level == 0 ? s.stats.leaf_nodes : s.stats.inner_nodes);
    before = offset;
    offset = right;
  }
  s.unknown += s.here.size();
  s.below = nodes;
  s.here = std::move(nodes);
}

template <class Keys>
void PbTree<Keys>::survey(Survey& s) const {
  const alloc::Grace::Pin pin(c_.grace);
  if (!pin.ok()) {
    s.problem("more threads than can be served");
    return;
  }
  const Root top = root();
  s.stats.height = top.level;
  // The first nodes of the levels, from the top; then the levels from the leaves up, so that a
  // level's children are known when it is looked at.
  std::array<Offset, kMaxLevel + 1> first{};
  Offset node = top.node;
  for (unsigned level = top.level;; --level) {
    if (const Offset leftmost = first_of_level(node); leftmost != 0) node = leftmost;
    if (!possible(node)) {
      s.problem(at_node(node, "it is impossible"));
      return;
    }
    first[level] = node;
    if (level == 0) break;
    node = at(node).leftmost();
  }
  for (unsigned level = 0; level <= s.stats.height && !s.stop; ++level) {
    survey_level(s, level, first[level]);
  }
  // Of the top level, nobody but the root word needs to know one.
  s.unknown += s.here.empty() ? 0 : s.here.size() - 1;
  s.stats.keys = s.report.keys;
  s.stats.dram_bytes = base::LockTable::kStripes * sizeof(base::VersionLock);
  s.stats.more = {{"nodes_without_parent_entry", s.unknown}, {"unfinished_halves", s.unfinished}};
  for (std::size_t i = 0; i < kCountNames.size(); ++i) {
    s.stats.more.emplace_back(kCountNames[i], counts_[i].load(std::memory_order_relaxed));
  }
}

template <class Keys>
CheckReport PbTree<Keys>::check() const {
  Survey s;
  survey(s);
  return std::move(s.report);
}

template <class Keys>
Stats PbTree<Keys>::stats() const {
  Survey s;
  survey(s);
  return std::move(s.stats);
}

template <class Keys>
void PbTree<Keys>::for_each_block(const detail::Visit& visit) const {
  Survey s;
  s.visit = &visit;
  survey(s);
}

template CheckReport PbTree<U64Keys>::check() const;
template CheckReport PbTree<BytesKeys>::check() const;
template Stats PbTree<U64Keys>::stats() const;
template Stats PbTree<BytesKeys>::stats() const;
template void PbTree<U64Keys>::for_each_block(const detail::Visit&) const;
template void PbTree<BytesKeys>::for_each_block(const detail::Visit&) const;

}  // namespace everleaf::tree::pbtree
