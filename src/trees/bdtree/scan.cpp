// Range reads: leaf by leaf along the list, each at one instant, sorted on the way out.
#include "trees/bdtree/tree.hpp"

namespace everleaf::tree::bdtree {

// A leaf's entries as they were at one moment.
template <class Keys>
struct BdTree<Keys>::Batch {
  std::array<Slot, kMaxSlots> entries;
  std::size_t count = 0;
  bool retired = false;
  Offset next = 0;  // or the replacement
  std::uint64_t version = 0;
  bool sound = true;

  [[nodiscard]] std::span<const Slot> all() const { return {entries.data(), count}; }
};

// False: it changed meanwhile.
template <class Keys>
bool BdTree<Keys>::read_leaf(Offset at, Batch& batch) const {
  const Leaf here = leaf(at);
  here.prefetch();
  const base::VersionLock& lock = lock_of(at);
  const std::uint64_t version = batch.version = lock.begin();
  batch.count = 0;
  batch.retired = here.retired();
  const Word links = here.links();
  batch.next = batch.retired ? Leaf::replacement_of(links) : Leaf::next_of(links);
  if (!batch.retired) {
    here.for_each([&](std::size_t slot) {
      batch.entries[batch.count++] = {pmem::load(&here.slot(slot)->key),
                                      pmem::load(&here.slot(slot)->value)};
    });
  }
  if (!lock.unchanged(version)) return false;
  if (batch.next != 0 && possible(batch.next)) leaf(batch.next).prefetch();
  batch.sound = sort_entries<kMaxSlots>(keys_, std::span(batch.entries.data(), batch.count));
  return true;
}

template <class Keys>
Outcome BdTree<Keys>::scan(Key from, std::optional<Key> to, std::size_t limit, Out& out) const {
  out.clear();
  if (limit == 0) return Outcome::done;
  const alloc::Grace::Pin pin(grace_);
  if (!pin.ok()) return Outcome::too_many_threads;
  Ascent<Keys> ascent(keys_, from, to, limit, out);
  std::uint64_t left = c_.medium.size() / options_.shape.bytes;  // a damaged list may be a circle
  Batch batch;
  while (true) {
    typename Nodes::Place place;
    if (!nodes_.locate(Keys::probe(ascent.bound()), place)) continue;
    Offset at = place.leaf;
    // The leaf is the right one as of the parent's version; from there on, the list leads.
    if (!read_leaf(at, batch) || !place.lock->unchanged(place.version)) continue;
    Offset live = 0;  // the last leaf that was read and not retired
    std::uint64_t version = 0;
    for (bool found = true;; found = false) {
      if (!batch.sound) return Outcome::corrupt;
      const Taken taken = ascent.take(batch.all(), found);
      if (taken == Taken::complete) return Outcome::done;
      if (taken == Taken::damaged) return Outcome::corrupt;
      if (taken == Taken::behind) {
        // The range of an emptied leaf may have passed to the one behind it (D6), and with it keys
        // that were inserted since; not over one that is as it was read.
        if (live != 0 && lock_of(live).unchanged(version)) return Outcome::corrupt;
        if (left-- == 0) return Outcome::corrupt;
        break;
      }
      if (!batch.retired) {
        live = at;
        version = batch.version;
      }
      if (batch.next == 0) return Outcome::done;
      if (!possible(batch.next) || left-- == 0) return Outcome::corrupt;
      at = batch.next;
      while (!read_leaf(at, batch)) {
      }
    }
  }
}

template <class Keys>
Outcome BdTree<Keys>::scan_back(std::optional<Key> from, std::size_t limit, Out& out) const {
  out.clear();
  if (limit == 0) return Outcome::done;
  const alloc::Grace::Pin pin(grace_);
  if (!pin.ok()) return Outcome::too_many_threads;
  Owned bound = from ? Keys::own(*from) : Owned{};
  Aim aim = from ? Aim::at : Aim::last;
  Batch batch;
  while (true) {
    Path path;
    if (!nodes_.descend(Keys::probe(bound), aim, path)) continue;
    if (!read_leaf(path.leaf, batch)) continue;
    if (!path.parent().node->lock.unchanged(path.parent().version)) continue;
    if (!batch.sound) return Outcome::corrupt;
    const Taken taken = take_back(keys_, batch.all(), aim, Key(bound), limit, out);
    if (taken == Taken::damaged) return Outcome::corrupt;
    if (taken == Taken::complete) return Outcome::done;
    if (!path.has_low) return Outcome::done;
    bound = Nodes::low_key(path);
    aim = Aim::below;
  }
}

EVERLEAF_INSTANTIATE(BdTree<U64Keys>);
EVERLEAF_INSTANTIATE(BdTree<BytesKeys>);

}  // namespace everleaf::tree::bdtree
