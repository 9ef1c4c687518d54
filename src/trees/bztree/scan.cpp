// Scans in both directions, leaf by leaf (paper, 4.2.6).
#include "trees/bztree/tree.hpp"

namespace everleaf::tree::bztree {

// What the leaf held at one moment, by two looks that see the same: a removal changes the status,
// an insertion the number of visible entries, an update a value or the metadata. False: the leaf is
// damaged.
template <class Keys>
bool BzTree<Keys>::snapshot(const LeafOf& leaf, Items& items) const {
  while (true) {
    base::reads_discarded();
    const Status before = status(leaf);
    if (!gather(leaf, items)) return false;
    std::size_t visible = 0;
    for (std::uint32_t i = 0; i < before.count(); ++i) {
      visible += Meta{words_->read(leaf.meta(i))}.visible() ? 1 : 0;
    }
    const bool same = visible == items.size() && std::ranges::all_of(items, [&](const auto& item) {
                        return leaf.value_of(*words_, item.meta) == item.value;
                      });
    if (same && status(leaf).word == before.word) return true;
  }
}

template <class Keys>
Outcome BzTree<Keys>::scan(Key from, std::optional<Key> to, std::size_t limit, Out& out) const {
  out.clear();
  if (limit == 0) return Outcome::done;
  Ascent<Keys> ascent(keys_, from, to, limit, out);
  Owned next = Keys::own(from);
  Items items;
  while (true) {
    // One pin per leaf: memory comes back while a long scan goes on.
    const alloc::Grace::Pin pin(c_.grace);
    if (!pin.ok()) return Outcome::too_many_threads;
    Path path;
    if (!descend(Keys::probe(next), Aim::at, path)) return Outcome::corrupt;
    if (!snapshot(leaf(path.leaf), items)) return Outcome::corrupt;
    if (ascent.take(std::span<const Item<Key>>(items))) return Outcome::done;
    std::optional<Owned> high = bound(path, true);
    if (!high || (to && *to < Key(*high))) return Outcome::done;
    if (!(Key(next) < Key(*high))) return Outcome::corrupt;  // would not end
    next = std::move(*high);
  }
}

template <class Keys>
Outcome BzTree<Keys>::scan_back(std::optional<Key> from, std::size_t limit, Out& out) const {
  out.clear();
  if (limit == 0) return Outcome::done;
  Owned bound_key = Keys::own(from.value_or(Key{}));
  Aim aim = from ? Aim::at : Aim::last;
  Items items;
  while (true) {
    const alloc::Grace::Pin pin(c_.grace);
    if (!pin.ok()) return Outcome::too_many_threads;
    Path path;
    if (!descend(Keys::probe(bound_key), aim, path)) return Outcome::corrupt;
    if (!snapshot(leaf(path.leaf), items)) return Outcome::corrupt;
    const std::span<const Item<Key>> all(items);
    if (take_back(keys_, all, aim, Key(bound_key), limit, out)) return Outcome::done;
    std::optional<Owned> low = bound(path, false);
    if (!low) return Outcome::done;
    if (aim == Aim::below && !(Key(*low) < Key(bound_key))) return Outcome::corrupt;
    bound_key = std::move(*low);
    aim = Aim::below;
  }
}

template class BzTree<U64Keys>;
template class BzTree<BytesKeys>;

}  // namespace everleaf::tree::bztree
