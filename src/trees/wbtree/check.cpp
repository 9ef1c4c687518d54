// Structure checks, statistics and the list of blocks: one walk that trusts no word.
#include <string>
#include <tuple>
#include <unordered_set>

#include "trees/problems.hpp"
#include "trees/wbtree/tree.hpp"

namespace everleaf::tree::wbtree {

template <class Keys>
struct WbTree<Keys>::Survey {
  const detail::Visit* visit = nullptr;
  CheckReport report;
  Stats stats;
  std::unordered_set<Offset> seen;
  Offset last_leaf = 0;
  Offset expected_next = 0;  // link of the last leaf
  bool has_low = false;      // bounds of the node that is walked: [low, high)
  bool has_high = false;
  decltype(Keys::own(Key{})) low{};
  decltype(Keys::own(Key{})) high{};

  void problem(std::string text) { add_problem(report, std::move(text)); }
};

// Order and bounds of one node's keys; its records. False: do not go on from here.
template <class Keys>
bool WbTree<Keys>::survey_keys(Survey& s, Offset offset, Node node, const Slots& slots) const {
  Key previous{};
  for (unsigned i = 0; i < slots.count(); ++i) {
    const Word word = node.key(slots.at(i));
    const std::optional<Key> read = keys_.read(word);
    const Key key = read.value_or(Key{});
    if constexpr (Keys::kRecords) {
      const std::size_t bytes = c_.heap.allocated_bytes(Keys::record_of(word));
      if (!read || bytes < Keys::record_bytes(key)) {
        s.problem(at_node(offset, "a key record is impossible or not allocated"));
        return false;
      }
      s.stats.pool_bytes += bytes;
      if (s.visit != nullptr) (*s.visit)(Keys::record_of(word), bytes);
      if (!Keys::tag_matches(word, key, node.kind()))
        s.problem(at_node(offset, "a key's tag is wrong"));
    }
    if (i != 0 && !(previous < key)) s.problem(at_node(offset, "keys are not ascending"));
    if ((s.has_low && key < Key(s.low)) || (s.has_high && !(key < Key(s.high)))) {
      s.problem(at_node(offset, "a key lies outside the range that the parent gives"));
    }
    previous = key;
  }
  return true;
}

template <class Keys>
void WbTree<Keys>::survey_leaf(Survey& s, Offset offset, Node node, const Slots& slots,
                               bool is_root) const {
  ++s.stats.leaf_nodes;
  s.report.keys += slots.count();
  if (slots.count() == 0 && !is_root) s.problem(at_node(offset, "an empty leaf is linked"));
  if (s.last_leaf != 0 && s.expected_next != offset) {
    s.problem(at_node(s.last_leaf, "its link is not the next leaf"));
  }
  s.last_leaf = offset;
  s.expected_next = node.link();
}

template <class Keys>
void WbTree<Keys>::survey_node(Survey& s, Offset offset, unsigned height) const {
  if (s.report.problems.size() >= kMostProblems) return;
  if (!possible(offset) || c_.heap.allocated_bytes(offset) < leaf_.bytes) {
    s.problem(at_node(offset, "it is impossible or not allocated"));
    return;
  }
  if (!s.seen.insert(offset).second) {
    s.problem(at_node(offset, "it is linked twice"));
    return;
  }
  const bool is_leaf = height == 0;
  const std::size_t bytes = c_.heap.allocated_bytes(offset);
  s.stats.pool_bytes += bytes;
  if (s.visit != nullptr) (*s.visit)(offset, bytes);
  const Node node = is_leaf ? leaf(offset) : inner(offset);
  const Word control = node.control();
  Slots slots;
  node.order(keys_, control, slots);
  Word named = 0;
  for (unsigned i = 0; i < slots.count(); ++i) {
    if (slots.at(i) < node.shape().capacity) named |= Word{1} << slots.at(i);
  }
  if (node.used(control) != named || node.count(control) != slots.count() ||
      static_cast<unsigned>(std::popcount(named)) != slots.count()) {
    s.problem(at_node(offset, "slot array and bitmap disagree"));
    return;
  }
  if (!survey_keys(s, offset, node, slots)) return;
  if (is_leaf) {
    survey_leaf(s, offset, node, slots, s.stats.height == 0);
    return;
  }
  ++s.stats.inner_nodes;
  const auto [has_low, low, has_high, high] = std::tuple(s.has_low, s.low, s.has_high, s.high);
  for (unsigned position = 0; position <= slots.count(); ++position) {
    s.has_low = position == 0 ? has_low : true;
    s.low = position == 0 ? low : Keys::own(keys_.key_of(node.key(slots.at(position - 1))));
    s.has_high = position == slots.count() ? has_high : true;
    s.high =
        position == slots.count() ? high : Keys::own(keys_.key_of(node.key(slots.at(position))));
    survey_node(s, node.child(slots, position), height - 1);
  }
}

template <class Keys>
void WbTree<Keys>::survey(Survey& s) const {
  const alloc::Grace::Pin pin(c_.grace);
  const Word root = pmem::load(root_word());
  s.stats.height = root & (kNodeAlign - 1);
  survey_node(s, root & ~Word{kNodeAlign - 1}, static_cast<unsigned>(s.stats.height));
  if (s.last_leaf != 0 && s.expected_next != 0) {
    s.problem(at_node(s.last_leaf, "the last leaf links to another"));
  }
  s.stats.keys = s.report.keys;
  s.stats.dram_bytes = base::LockTable::kStripes * sizeof(base::VersionLock);
}

template <class Keys>
CheckReport WbTree<Keys>::check() const {
  Survey s;
  survey(s);
  return std::move(s.report);
}

template <class Keys>
Stats WbTree<Keys>::stats() const {
  Survey s;
  survey(s);
  return std::move(s.stats);
}

template <class Keys>
void WbTree<Keys>::for_each_block(const detail::Visit& visit) const {
  Survey s;
  s.visit = &visit;
  survey(s);
}

template CheckReport WbTree<U64Keys>::check() const;
template CheckReport WbTree<BytesKeys>::check() const;
template Stats WbTree<U64Keys>::stats() const;
template Stats WbTree<BytesKeys>::stats() const;
template void WbTree<U64Keys>::for_each_block(const detail::Visit&) const;
template void WbTree<BytesKeys>::for_each_block(const detail::Visit&) const;

}  // namespace everleaf::tree::wbtree
