// Scans in both directions. A leaf is copied out under its version, then sorted; no user code and
// no lock is involved.
#include <span>

#include "trees/wbtree/tree.hpp"

namespace everleaf::tree::wbtree {

template <class Keys>
struct WbTree<Keys>::Batch {
  std::array<wbtree::Entry, kMaxEntries + 1> entries;
  unsigned count = 0;
  bool sorted = false;
  Offset next = 0;

  [[nodiscard]] std::span<const wbtree::Entry> all() const { return {entries.data(), count}; }
};

// Copies a leaf's entries: in key order if it has a slot array, otherwise unsorted.
template <class Keys>
typename WbTree<Keys>::Walk WbTree<Keys>::read_leaf(Offset offset, std::uint64_t version,
                                                    Batch& batch) const {
  const Node node = leaf(offset);
  const base::VersionLock& lock = lock_of(offset);
  const Word control = node.control();
  batch.count = 0;
  batch.next = node.link();
  if (batch.next != 0 && possible(batch.next)) leaf(batch.next).prefetch();
  batch.sorted = node.kind() != NodeKind::bitmap_only && node.slots_valid(control);
  if (batch.sorted) {
    Slots slots;
    node.load_slots(slots);
    for (unsigned i = 0; i < slots.count(); ++i) {
      batch.entries[batch.count++] = {node.key(slots.at(i)), node.value(slots.at(i))};
    }
  } else {
    for (Word bits = node.used(control); bits != 0; bits &= bits - 1) {
      const auto i = static_cast<unsigned>(std::countr_zero(bits));
      batch.entries[batch.count++] = {node.key(i), node.value(i)};
    }
  }
  return lock.unchanged(version) ? Walk::there : Walk::retry;
}

// Sorts a copied batch; false if a key word is impossible. The copy was validated, and its key
// records outlive the caller's pin.
template <class Keys>
bool WbTree<Keys>::sort_batch(Batch& batch) const {
  if constexpr (Keys::kRecords) {
    for (unsigned i = 0; i < batch.count; ++i) {
      if (!keys_.readable(batch.entries[i].key)) return false;
    }
  }
  if (batch.sorted) return true;
  keys_.sort(std::span(batch.entries).first(batch.count));
  batch.sorted = true;
  return true;
}

template <class Keys>
Outcome WbTree<Keys>::scan(Key from, std::optional<Key> to, std::size_t limit, Out& out) const {
  out.clear();
  if (limit == 0) return Outcome::done;
  const alloc::Grace::Pin pin(c_.grace);
  if (!pin.ok()) return Outcome::too_many_threads;
  Ascent<Keys> ascent(keys_, from, to, limit, out);
  while (true) {
    const Probe probe = keys_.probe(ascent.bound());
    Place place;
    if (const Walk walk = descend(probe, place); walk != Walk::there) {
      if (walk == Walk::corrupt) return Outcome::corrupt;
      continue;
    }
    unsigned barren = 0;
    for (bool coupled = true, first = true; coupled; first = false) {
      Batch batch;
      if (read_leaf(place.node, place.version, batch) == Walk::retry) break;
      if (!sort_batch(batch)) return Outcome::corrupt;
      const std::size_t before = out.size();
      const Taken taken = ascent.take(batch.all(), first);
      if (taken == Taken::complete) return Outcome::done;
      if (taken != Taken::on) return Outcome::corrupt;
      if (batch.next == 0) return Outcome::done;
      // I3: leaves are not empty, so at most the first one adds nothing; more is a circle.
      barren = out.size() == before ? barren + 1 : 0;
      if (barren > 2) return Outcome::corrupt;
      if (!possible(batch.next)) return Outcome::corrupt;
      // The next leaf's version counts only if it was still the next leaf then.
      base::VersionLock* const lock = &lock_of(batch.next);
      const std::uint64_t version = lock->begin();
      coupled = place.lock->unchanged(place.version);
      place = {batch.next, lock, version, false};
    }
  }
}

template <class Keys>
Outcome WbTree<Keys>::scan_back(std::optional<Key> from, std::size_t limit, Out& out) const {
  out.clear();
  if (limit == 0) return Outcome::done;
  const alloc::Grace::Pin pin(c_.grace);
  if (!pin.ok()) return Outcome::too_many_threads;
  auto bound = Keys::own(from.value_or(Key{}));  // own copy: separators may go meanwhile
  Aim aim = from ? Aim::at : Aim::last;
  while (true) {
    const Probe probe = keys_.probe(bound);
    Path path;
    if (const Walk walk = descend(probe, aim, path); walk != Walk::there) {
      if (walk == Walk::corrupt) return Outcome::corrupt;
      continue;
    }
    Batch batch;
    const Step& step = path.steps[path.depth];
    if (read_leaf(step.node, step.version, batch) == Walk::retry) continue;
    if (!sort_batch(batch)) return Outcome::corrupt;
    const Taken taken = take_back(keys_, batch.all(), aim, Key(bound), limit, out);
    if (taken == Taken::damaged) return Outcome::corrupt;
    if (taken == Taken::complete) return Outcome::done;
    if (!path.has_low) return Outcome::done;
    if (!keys_.readable(path.low)) return Outcome::corrupt;
    Key low = keys_.key_of(path.low);
    if (aim == Aim::below && !(low < Key(bound))) return Outcome::corrupt;  // would not end
    if (!out.empty() && Key(out.back().key) < low) {
      // Below its leaf's range: an unlink further up gave it a larger one meanwhile, or damage.
      const auto is_same = [this](const Step& s) { return lock_of(s.node).unchanged(s.version); };
      if (std::ranges::all_of(std::span(path.steps).first(path.depth), is_same)) {
        return Outcome::corrupt;
      }
      base::reached("a scan downwards goes on below its leaf's range");
      low = Key(out.back().key);
    }
    bound = Keys::own(low);
    aim = Aim::below;
  }
}

template Outcome WbTree<U64Keys>::scan(std::uint64_t, std::optional<std::uint64_t>, std::size_t,
                                       Out&) const;
template Outcome WbTree<BytesKeys>::scan(Bytes, std::optional<Bytes>, std::size_t, Out&) const;
template Outcome WbTree<U64Keys>::scan_back(std::optional<std::uint64_t>, std::size_t, Out&) const;
template Outcome WbTree<BytesKeys>::scan_back(std::optional<Bytes>, std::size_t, Out&) const;

}  // namespace everleaf::tree::wbtree
