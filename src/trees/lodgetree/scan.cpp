// Range reads: leaf by leaf, each with its pairs of the buffer, at one instant.
#include <algorithm>

#include "trees/lodgetree/tree.hpp"

namespace everleaf::tree::lodgetree {

template <class Keys>
struct LodgeTree<Keys>::Batch {
  static constexpr std::size_t kMost = kMaxSlots + kMaxNodeSlots;
  std::array<Slot, kMost> entries;
  std::size_t count = 0;

  [[nodiscard]] std::span<const Slot> all() const { return {entries.data(), count}; }
  [[nodiscard]] bool sort(const Keys& keys) {
    return sort_entries<kMost>(keys, std::span(entries.data(), count));
  }
};

// What the leaf and its pairs come to, unsorted; the caller validates the latch, before it sorts.
// `base` was validated.
template <class Keys>
void LodgeTree<Keys>::read_leaf(const Node& node, unsigned i, std::byte* base, Batch& batch) const {
  const Leaf here = leaf(base);
  here.prefetch();
  batch.count = 0;
  Word used = here.used();
  for (std::uint64_t bits = node.buffer_bits(); bits != 0; bits &= bits - 1) {
    const auto pair = static_cast<unsigned>(std::countr_zero(bits));
    if (node.target(pair) != i) continue;
    const Word key = node.key(pair);
    if (const std::size_t slot = search(here, probe_of(key)); slot != kNoSlot) {
      used &= ~(Word{1} << slot);
    }
    if (!node.is_removal(pair)) batch.entries[batch.count++] = {key, node.value(pair)};
  }
  for (; used != 0; used &= used - 1) {
    const auto slot = static_cast<std::size_t>(std::countr_zero(used));
    batch.entries[batch.count++] = {pmem::load(&here.slot(slot)->key),
                                    pmem::load(&here.slot(slot)->value)};
  }
}

template <class Keys>
Outcome LodgeTree<Keys>::scan(Key from, std::optional<Key> to, std::size_t limit, Out& out) const {
  out.clear();
  if (limit == 0) return Outcome::done;
  const alloc::Grace::Pin pin(grace_);
  if (!pin.ok()) return Outcome::too_many_threads;
  Ascent<Keys> ascent(keys_, from, to, limit, out);
  Batch batch;
  while (true) {
    Place place;
    const Probe probe = Keys::probe(ascent.bound());
    if (!locate(probe, place)) continue;
    unsigned i = place.node->rank(probe, Aim::at);
    bool found = true;
    // From here on leaf by leaf, as long as nobody changes the node; and on to the next one.
    while (true) {
      const Node& node = *place.node;
      const unsigned leaves = node.leaves();
      if (i >= leaves) {
        Node* const right = node.right.load(std::memory_order_acquire);
        if (!node.latch.unchanged(place.version)) break;
        if (right == nullptr) return Outcome::done;
        const std::uint64_t version = right->latch.begin();
        // What moved to the right one meanwhile may have been copied out.
        if (!node.latch.unchanged(place.version)) break;
        place = {right, version};
        if (right->dead.load(std::memory_order_acquire)) break;
        i = 0;
        continue;
      }
      std::byte* const base = node.leaf(i);
      if (!node.latch.unchanged(place.version)) break;
      std::byte* const next = i + 1 < leaves ? node.leaf(i + 1) : nullptr;
      read_leaf(node, i, base, batch);
      if (!node.latch.unchanged(place.version)) break;
      if (next != nullptr) leaf(next).prefetch();
      if (!batch.sort(keys_)) return Outcome::corrupt;
      const Taken taken = ascent.take(batch.all(), found);
      if (taken == Taken::complete) return Outcome::done;
      if (taken != Taken::on) return Outcome::corrupt;
      found = false;
      ++i;
    }
  }
}

template <class Keys>
Outcome LodgeTree<Keys>::scan_back(std::optional<Key> from, std::size_t limit, Out& out) const {
  out.clear();
  if (limit == 0) return Outcome::done;
  const alloc::Grace::Pin pin(grace_);
  if (!pin.ok()) return Outcome::too_many_threads;
  Owned bound = from ? Keys::own(*from) : Owned{};
  Aim aim = from ? Aim::at : Aim::last;
  Batch batch;
  while (true) {
    const Probe probe = Keys::probe(Key(bound));
    Path path;
    if (!upper_.descend(probe, aim, path)) continue;
    const Node& node = *reinterpret_cast<Node*>(path.leaf);
    const std::uint64_t version = node.latch.begin();
    if (!path.parent().node->lock.unchanged(path.parent().version)) continue;
    const unsigned first = node.rank(probe, aim);
    unsigned i = first;
    while (true) {
      std::byte* const base = node.leaf(i);
      if (!node.latch.unchanged(version)) break;
      read_leaf(node, i, base, batch);
      const bool has_low = i > 0 || path.has_low;
      Owned low{};
      if (i > 0) {
        low = separator_key(node, i);
      } else if (path.has_low) {
        low = Upper::low_key(path);
      }
      if (!node.latch.unchanged(version)) break;
      if (!batch.sort(keys_)) return Outcome::corrupt;
      const Taken taken = take_back(keys_, batch.all(), aim, Key(bound), limit, out);
      if (taken == Taken::damaged) return Outcome::corrupt;
      if (taken == Taken::complete || !has_low) return Outcome::done;
      bound = std::move(low);
      aim = Aim::below;
      if (i-- == 0) break;
    }
  }
}

EVERLEAF_INSTANTIATE(LodgeTree<U64Keys>);
EVERLEAF_INSTANTIATE(LodgeTree<BytesKeys>);

}  // namespace everleaf::tree::lodgetree
