// Ways down the tree, lookups and options.
#include "trees/wbtree/tree.hpp"

#include <string>

#include "base/stopwatch.hpp"
#include "trees/many.hpp"

namespace everleaf::tree::wbtree {

Result<Options> parse_options(const base::Spec& canonical) {
  const std::string_view structure = base::option_of(canonical, "structure");
  const std::string_view node = base::option_of(canonical, "node");
  const auto number = base::number_of(canonical, "node");
  if (!number || *number < kMinNodeBytes || *number > kMaxNodeBytes || *number % kNodeAlign != 0) {
    return std::unexpected(
        Error{Code::bad_option,
              "wbtree: node=" + std::string(node) + " is not a multiple of 64 from 128 to 1024"});
  }
  const auto bytes = static_cast<std::uint32_t>(*number);
  if (structure == "slot-only") {
    if (bytes != 128) {
      return std::unexpected(Error{Code::bad_option, "wbtree: structure=slot-only needs node=128"});
    }
    const Shape shape = make_shape(NodeKind::slot_only, bytes);
    return Options{shape, shape};
  }
  const Shape inner = make_shape(NodeKind::slot_bitmap, bytes);
  if (structure == "slot-bitmap") return Options{inner, inner};
  if (structure == "bitmap-leaf") {
    return Options{make_shape(NodeKind::bitmap_only, bytes), inner};
  }
  return std::unexpected(Error{Code::bad_option, "wbtree: structure=" + std::string(structure) +
                                                     " is none of slot-only, slot-bitmap, "
                                                     "bitmap-leaf"});
}

// The child for the probe, or 0 if the node changed or names an impossible child.
template <class Keys>
Offset WbTree<Keys>::child_for(const Place& place, const Probe& probe) const {
  const Node node = inner(place.node);
  const Word control = node.control();
  Slots slots;
  if (node.slots_valid(control)) {
    node.load_slots(slots);
    // A torn slot array may name a free entry, whose record may be gone: look before following.
    if (Keys::kRecords && !place.lock->unchanged(place.version)) return 0;
  } else {
    if (Keys::kRecords && !place.lock->unchanged(place.version)) return 0;
    node.sort_slots(keys_, control, slots);
  }
  const Offset child = node.child(slots, node.rank(keys_, slots, probe));
  return !probe.bad && possible(child) ? child : 0;
}

template <class Keys>
typename WbTree<Keys>::Way WbTree<Keys>::begin(const Probe& probe) const {
  probe.bad = false;
  base::reads_discarded();
  const base::VersionLock* const above = &lock_of(c_.root_word);
  const std::uint64_t version = above->begin();
  const Word root = pmem::load(root_word());
  const Offset node = root & ~Word{kNodeAlign - 1};
  return {above, version, possible(node) ? node : 0,
          static_cast<unsigned>(root & (kNodeAlign - 1))};
}

template <class Keys>
void WbTree<Keys>::prefetch(const Way& way) const {
  if (way.height <= kFetched && way.node != 0) node_of(way).prefetch();
}

template <class Keys>
std::optional<typename WbTree<Keys>::Walk> WbTree<Keys>::enter(const Way& way, Place& place) const {
  if (way.node == 0) return way.above->unchanged(way.version) ? Walk::corrupt : Walk::retry;
  place.node = way.node;
  place.lock = &lock_of(way.node);
  place.version = place.lock->begin();
  // The child's version counts only if it was still the child then.
  if (!way.above->unchanged(way.version)) return Walk::retry;
  return std::nullopt;
}

template <class Keys>
std::optional<typename WbTree<Keys>::Walk> WbTree<Keys>::leave(Way& way, const Place& place,
                                                               Offset child) const {
  if (child == 0) return place.lock->unchanged(place.version) ? Walk::corrupt : Walk::retry;
  way = {place.lock, place.version, child, way.height - 1};
  return std::nullopt;
}

template <class Keys>
std::optional<typename WbTree<Keys>::Walk> WbTree<Keys>::step(const Probe& probe, Way& way,
                                                              Place& place) const {
  if (const auto walk = enter(way, place)) return walk;
  if (way.height == 0) return Walk::there;
  return leave(way, place, child_for(place, probe));
}

template <class Keys>
typename WbTree<Keys>::Walk WbTree<Keys>::descend(const Probe& probe, Place& place) const {
  const base::Stopwatch watch(base::Part::traversal);
  Way way = begin(probe);
  place.is_root = way.height == 0;
  while (true) {
    prefetch(way);
    if (const auto walk = step(probe, way, place)) return *walk;
  }
}

template <class Keys>
typename WbTree<Keys>::Walk WbTree<Keys>::descend(const Probe& probe, Aim aim, Path& path) const {
  const base::Stopwatch watch(base::Part::traversal);
  probe.bad = false;
  path.has_low = false;
  base::reads_discarded();
  const base::VersionLock* above = &lock_of(c_.root_word);
  std::uint64_t above_version = path.root_version = above->begin();
  const Word root = pmem::load(root_word());
  Offset node = root & ~Word{kNodeAlign - 1};
  if (!possible(node)) return above->unchanged(above_version) ? Walk::corrupt : Walk::retry;
  path.depth = static_cast<unsigned>(root & (kNodeAlign - 1));
  for (unsigned level = 0;; ++level) {
    const base::VersionLock& lock = lock_of(node);
    const std::uint64_t version = lock.begin();
    if (!above->unchanged(above_version)) return Walk::retry;
    path.steps[level] = {node, version, 0};
    if (level == path.depth) return Walk::there;
    const Node here = inner(node);
    const Word control = here.control();
    if (!lock.unchanged(version)) return Walk::retry;
    Slots slots;
    here.order(keys_, control, slots);
    if (!lock.unchanged(version)) return Walk::retry;
    unsigned& position = path.steps[level].position;
    switch (aim) {
      case Aim::at:
        position = here.rank(keys_, slots, probe);
        break;
      case Aim::below:
        position = here.template rank<true>(keys_, slots, probe);
        break;
      case Aim::last:
        position = slots.count();
        break;
    }
    if (position != 0) {
      path.has_low = true;
      path.low = here.key(slots.at(position - 1));
    }
    const Offset child = here.child(slots, position);
    if (probe.bad || !possible(child)) {
      return lock.unchanged(version) ? Walk::corrupt : Walk::retry;
    }
    above = &lock;
    above_version = version;
    node = child;
  }
}

template <class Keys>
void WbTree<Keys>::search_leaf(Offset offset, const Probe& probe, const base::VersionLock& lock,
                               std::uint64_t version, Hit& hit) const {
  const base::Stopwatch watch(base::Part::traversal);
  const Node node = leaf(offset);
  hit.control = node.control();
  hit.found = false;
  if (node.kind() == NodeKind::bitmap_only) {
    hit.entry = node.find_in_bitmap(keys_, hit.control, probe);
    hit.found = hit.entry < 64;
    return;
  }
  if (node.slots_valid(hit.control)) {
    node.load_slots(hit.slots);
    if (Keys::kRecords && !lock.unchanged(version)) return;  // as in child_for; the caller looks
  } else {
    if (Keys::kRecords && !lock.unchanged(version)) return;
    node.sort_slots(keys_, hit.control, hit.slots);
  }
  hit.position = node.rank(keys_, hit.slots, probe);
  if (hit.position == 0) return;
  hit.entry = hit.slots.at(hit.position - 1);
  hit.found = keys_.compare(node.key(hit.entry), probe) == 0;
  if (hit.found) --hit.position;
}

template <class Keys>
Lookup WbTree<Keys>::find(Key key) const {
  const alloc::Grace::Pin pin(c_.grace);
  if (!pin.ok()) return {Outcome::too_many_threads, 0};
  if (keys_.too_long(key)) return {Outcome::absent, 0};
  const Probe probe = keys_.probe(key);
  while (true) {
    Place place;
    const Walk walk = descend(probe, place);
    if (walk == Walk::corrupt) return {Outcome::corrupt, 0};
    if (walk == Walk::retry) continue;
    Lookup answer;
    if (look(probe, place, answer)) return answer;
  }
}

// False: the leaf changed.
template <class Keys>
bool WbTree<Keys>::look(const Probe& probe, const Place& place, Lookup& answer) const {
  const base::VersionLock& lock = *place.lock;
  Hit hit;
  search_leaf(place.node, probe, lock, place.version, hit);
  const std::uint64_t value = hit.found ? leaf(place.node).value(hit.entry) : 0;
  answer = probe.bad ? Lookup{Outcome::corrupt, 0}
                     : Lookup{hit.found ? Outcome::done : Outcome::absent, value};
  return lock.unchanged(place.version);
}

template <class Keys>
class WbTree<Keys>::Search {
 public:
  using Halving = wbtree::Halving;
  static constexpr bool kHalves = !Keys::kRecords;
  Search(const WbTree& tree, Key key)
      : tree_(tree), probe_(tree.keys_.probe(key)), way_(tree.begin(probe_)) {
    prefetch();
  }
  std::optional<unsigned> enter(Halving& halving) {
    if (tree_.enter(way_, place_)) return std::nullopt;
    halving_ = nullptr;
    if constexpr (kHalves) {
      halving = tree_.node_of(way_).halving(probe_.key);
      if (halving.count != 0) halving_ = &halving;
      return halving.count;
    } else {
      return 0;
    }
  }
  Progress leave(Lookup& answer) {
    if (way_.height == 0) return look(answer) ? Progress::answered : Progress::alone;
    if (tree_.leave(way_, place_, child())) return Progress::alone;
    prefetch();
    return Progress::on;
  }

 private:
  void prefetch() const {
    if (way_.height > kFetched || way_.node == 0) return;
    if constexpr (kHalves) {
      tree_.node_of(way_).prefetch_slots();
    } else {
      tree_.node_of(way_).prefetch();
    }
  }
  [[nodiscard]] Offset child() const {
    if (halving_ == nullptr) {
      return tree_.child_for(place_, probe_);
    }
    const Offset child =
        halving_->before == 0 ? tree_.inner(way_.node).link() : pmem::load(&halving_->entry->value);
    return tree_.possible(child) ? child : 0;
  }
  [[nodiscard]] bool look(Lookup& answer) const {
    if (halving_ == nullptr) return tree_.look(probe_, place_, answer);
    const bool found = halving_->before != 0 && pmem::load(&halving_->entry->key) == halving_->key;
    answer = found ? Lookup{Outcome::done, pmem::load(&halving_->entry->value)}
                   : Lookup{Outcome::absent, 0};
    return place_.lock->unchanged(place_.version);
  }

  const WbTree& tree_;
  const Probe probe_;
  Way way_;
  Place place_;
  const Halving* halving_ = nullptr;  // nullptr: the node is searched as find() does
};

template <class Keys>
void WbTree<Keys>::find_many(std::span<const Key> keys, std::span<Lookup> answers) const {
  search_together<Search>(*this, c_.grace, keys, answers);
}

template class WbTree<U64Keys>;
template class WbTree<BytesKeys>;

}  // namespace everleaf::tree::wbtree
