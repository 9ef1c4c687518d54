// The way down with lazy correction (paper, III-D, Algorithm 3), lookups and options.
#include "trees/pbtree/tree.hpp"

#include <string>

#include "base/stopwatch.hpp"
#include "trees/many.hpp"

namespace everleaf::tree::pbtree {

Result<Options> parse_options(const base::Spec& canonical) {
  const auto number = base::number_of(canonical, "node");
  if (!number || *number < kMinNodeBytes || *number > kMaxNodeBytes || *number % kNodeAlign != 0) {
    return std::unexpected(
        Error{Code::bad_option, "pbtree: node=" + std::string(base::option_of(canonical, "node")) +
                                    " is not a multiple of 64 from 256 to 4096"});
  }
  return Options{static_cast<std::uint32_t>(*number)};
}

// Whether a node is on the left of an unfinished split and the probe belongs to its right sibling,
// the backup: then nothing of the node may be looked at.
template <class Keys>
bool PbTree<Keys>::wholly_right(NodeOf node, Word meta, const Probe& probe, Offset& right) const {
  if ((meta & kSplitting) == 0) return false;
  right = node.right();
  return possible(right) && keys_.compare(at(right).split_key(), probe) <= 0;
}

// Lazy correction: the sibling to go on with, or 0 if the node is the right one. A node with an
// entry at or below the probe and one above it is; otherwise its split key and its right sibling's
// decide. What a half of an unfinished split has below the probe says nothing: copies that are not
// its own, or the middle of its rewriting.
template <class Keys>
Offset PbTree<Keys>::sibling_for(NodeOf node, Word meta, bool below, bool above, const Probe& probe,
                                 Found& found) const {
  if ((!below || (meta & (kCopy | kSplitting)) != 0) &&
      keys_.compare(node.split_key(), probe) > 0) {
    return node.left();
  }
  if (above) return 0;
  const Offset right = node.right();
  if (right == 0 || !possible(right) || keys_.compare(at(right).split_key(), probe) > 0) return 0;
  found.stray = right;
  found.stray_level = static_cast<unsigned>(meta & kLevelMask);
  return right;
}

template <class Keys>
typename PbTree<Keys>::Way PbTree<Keys>::begin(const Probe& probe, Found& found) const {
  probe.bad = false;
  found.stray = 0;
  const Root now = root();
  return {now.node, now.level, most_moves()};
}

// From the root, which may be another one by now.
template <class Keys>
void PbTree<Keys>::begin_again(Way& way, Found& found) const {
  base::reads_discarded();
  const Root now = root();
  way.node = now.node;
  way.level = now.level;
  found.stray = 0;
}

// One node: its child, its sibling, or the end of the way.
template <class Keys>
std::optional<typename PbTree<Keys>::Walk> PbTree<Keys>::step(const Probe& probe, unsigned wanted,
                                                              Way& way, Found& found) const {
  if (way.level < wanted) return Walk::no_such_level;
  if (way.moves-- == 0 || !possible(way.node)) return Walk::corrupt;
  const NodeOf here = at(way.node);
  // The inner nodes only told the way: what counts is what this node says of itself.
  if (way.level == wanted) {
    base::reads_discarded();
    found.version = lock_of(way.node).begin();
  }
  const Word meta = here.meta();
  if ((meta & (kLevelMask | kDead)) != way.level) {  // unlinked since; or damaged
    if (found.search) count(Count::wrong_child_visits);
    begin_again(way, found);
    return std::nullopt;
  }
  Offset sibling = 0;
  Offset child = 0;
  if (wholly_right(here, meta, probe, sibling)) {
    found.stray = sibling;
    found.stray_level = way.level;
  } else {
    sibling = 0;
    if (way.level == 0) {
      found.place = here.find(probe);
      sibling = sibling_for(here, meta, found.place.below, found.place.above, probe, found);
    } else {
      const auto route = here.route(probe);
      child = pmem::load(route.child);
      // A split may have rewritten the node meanwhile, free entries and all.
      if (((here.meta() ^ meta) & kStable) != 0) return std::nullopt;
      sibling = sibling_for(here, meta, route.below, route.above, probe, found);
    }
  }
  if (sibling != 0) {
    if (found.search) count(Count::wrong_child_visits);
    probe.bad = false;  // a node that is passed may name records that are gone
    way.node = sibling;
    return std::nullopt;
  }
  if (way.level == wanted) {
    found.node = way.node;
    return Walk::there;
  }
  if (probe.bad) {
    probe.bad = false;
    begin_again(way, found);
    return std::nullopt;
  }
  way.node = child;
  --way.level;
  if (possible(way.node)) at(way.node).prefetch();
  return std::nullopt;
}

template <class Keys>
typename PbTree<Keys>::Walk PbTree<Keys>::descend(const Probe& probe, unsigned wanted,
                                                  Found& found) const {
  const base::Stopwatch watch(base::Part::traversal);
  Way way = begin(probe, found);
  while (true) {
    if (const auto walk = step(probe, wanted, way, found)) return *walk;
  }
}

// From a node of the level, to the left; 0 if that never ends.
template <class Keys>
Offset PbTree<Keys>::first_of_level(Offset node) const {
  for (std::uint64_t moves = 0; possible(node) && moves < most_moves(); ++moves) {
    const Offset left = at(node).left();
    if (left == 0) return node;
    node = left;
  }
  return 0;
}

// False: the leaf changed.
template <class Keys>
bool PbTree<Keys>::look(const Probe& probe, const Found& found, Lookup& answer) const {
  const Place& place = found.place;
  const std::uint64_t value =
      place.found ? pmem::load(at(found.node).value_word(place)) : std::uint64_t{0};
  answer = probe.bad ? Lookup{Outcome::corrupt, 0}
                     : Lookup{place.found ? Outcome::done : Outcome::absent, value};
  return lock_of(found.node).unchanged(found.version);
}

// With 8-byte keys a Halving does what find() and route() do, in nodes that are no half of a split
// and are the key's. The others, and the pivot's own key, are left to step().
template <class Keys>
template <bool kAlone>
class PbTree<Keys>::Search {
 public:
  using Halving = pbtree::Halving;
  static constexpr bool kHalves = !Keys::kRecords;
  Search(const PbTree& tree, Key key)
      : tree_(tree),
        probe_(Keys::probe(key)),
        open_(tree.gate_.try_begin(gate_)),
        way_(tree.begin(probe_, found_)) {
    open_ = open_ && tree.possible(way_.node);
  }
  std::optional<unsigned> enter(Halving& halving) {
    if (!open_) return std::nullopt;
    halving_ = nullptr;
    if constexpr (kHalves) {
      if (way_.level == 0) {
        base::reads_discarded();
        found_.node = way_.node;
        found_.version = tree_.lock_of(way_.node).begin();
      }
      const NodeOf node = tree_.at(way_.node);
      meta_ = node.meta();
      constexpr Word kLooked = kLevelMask | kDead | kSplitting | kCopy;
      if ((meta_ & kLooked) != way_.level) return 0;
      halving = node.halving(probe_, way_.level);
      if (halving.count != 0) halving_ = &halving;
      return halving.count;
    } else {
      return 0;
    }
  }
  Progress leave(Lookup& answer) {
    if (halving_ == nullptr) return step(answer);
    const Halving h = *halving_;  // in registers
    if (!is_keys(h)) return step(answer);
    if (way_.level == 0) return look(h, answer);
    const Word* const word = child(h);
    return word == nullptr ? step(answer) : descend(h, pmem::load(word));
  }

 private:
  // sibling_for() would say no: the key is not below the split key, and an entry is above it. Left
  // of the pivot each entry that does not go before the key is above it, or in a leaf the key's
  // own, which tells as much; so is a live pivot. Right of the pivot what is behind the entries
  // that go before the key may be a mark, or left of the pivot.
  [[nodiscard]] bool is_keys(const Halving& h) const {
    const std::size_t before = h.before();
    const Word behind = h.key_at(std::min<std::size_t>(before, h.count - 1));
    const auto some = static_cast<unsigned>(before < h.count);
    const auto live = static_cast<unsigned>((meta_ & kPivotLive) != 0);
    const unsigned above =
        h.right != 0 ? some & static_cast<unsigned>(behind > h.pivot()) : some | live;
    return pmem::load(&h.header->split_key) <= h.key &&
           (above != 0 || pmem::load(&h.header->right) == 0);
  }
  Progress look(const Halving& h, Lookup& answer) const {
    const std::size_t i = h.before() - h.right;
    const bool found = i < h.count && h.key_at(i) == h.key;
    answer = found ? Lookup{Outcome::done, pmem::load(&h.entries()[i].value)}
                   : Lookup{Outcome::absent, 0};
    const bool sure =
        tree_.lock_of(found_.node).unchanged(found_.version) && tree_.gate_.unchanged(gate_);
    return sure ? Progress::answered : Progress::alone;
  }
  // nullptr: for step() to find. Which region the last entry before the key is in is told by the
  // key that is read here, before the child is.
  [[nodiscard]] const Word* child(const Halving& h) const {
    const std::size_t before = h.before();
    const std::size_t i = before - 1;
    const Word word = before == 0 ? h.pivot() : h.key_at(i);
    const auto below = static_cast<unsigned>(word < h.pivot()) |
                       (h.right & static_cast<unsigned>(word > h.pivot()));
    if (below == 0) {
      if (h.right == 0) return &h.header->leftmost;
      return (meta_ & kPivotLive) != 0 ? &h.header->pivot_value : nullptr;
    }
    // Of two equal keys the last one counts, which it is, or in the left region the first.
    const auto lone =
        static_cast<unsigned>(h.key_at(i - static_cast<std::size_t>(i != 0)) != word) |
        static_cast<unsigned>(i == 0) | h.right;
    return lone != 0 ? &h.entries()[i].value : nullptr;
  }
  // A level down, or a writer changed the node: no damage makes it endless.
  Progress descend(const Halving& h, Offset child) {
    // A split may have rewritten the node meanwhile, free entries and all.
    if (((pmem::load(&h.header->meta) ^ meta_) & kStable) != 0) return Progress::on;
    if (!tree_.possible(child)) return Progress::alone;
    way_.node = child;
    --way_.level;
    if (way_.level > NodeOf::kFar) return Progress::on;
    if constexpr (kAlone) {
      tree_.at(child).prefetch();
    } else {
      tree_.at(child).prefetch_for_halving();
    }
    return Progress::on;
  }
  Progress step(Lookup& answer) {
    const auto walk = tree_.step(probe_, 0, way_, found_);
    if (!walk) return tree_.possible(way_.node) ? Progress::on : Progress::alone;
    const bool sure =
        walk == Walk::there && tree_.look(probe_, found_, answer) && tree_.gate_.unchanged(gate_);
    return sure ? Progress::answered : Progress::alone;
  }

  const PbTree& tree_;
  const Probe probe_;
  std::uint64_t gate_ = 0;
  bool open_;  // no batch was running
  Found found_;
  Way way_;
  Word meta_ = 0;                     // of the node, when it was entered
  const Halving* halving_ = nullptr;  // nullptr: left to step()
};

template <class Keys>
Lookup PbTree<Keys>::find(Key key) const {
  if (Keys::too_long(key)) return {Outcome::absent, 0};
  if constexpr (!Keys::kRecords) {
    const base::Stopwatch watch(base::Part::traversal);
    Lookup answer;
    if (search_alone<Search<true>>(*this, c_.grace, key, answer)) return answer;
  }
  const Probe probe = Keys::probe(key);
  Turn turn(*this);
  while (true) {
    const std::uint64_t gate = turn.begin();
    const alloc::Grace::Pin pin(c_.grace);
    if (!pin.ok()) return {Outcome::too_many_threads, 0};
    Found found;
    if (descend(probe, 0, found) != Walk::there) return {Outcome::corrupt, 0};
    Lookup answer;
    if (look(probe, found, answer) && gate_.unchanged(gate)) return answer;
  }
}

template <class Keys>
void PbTree<Keys>::find_many(std::span<const Key> keys, std::span<Lookup> answers) const {
  search_together<Search<false>>(*this, c_.grace, keys, answers);
}

template class PbTree<U64Keys>;
template class PbTree<BytesKeys>;

}  // namespace everleaf::tree::pbtree
