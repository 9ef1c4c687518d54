// Scans in both directions. A leaf is copied out under its version; no lock is involved.
#include "trees/pbtree/tree.hpp"

namespace everleaf::tree::pbtree {

// Times in a row that a left sibling does not know the leaf that names it.
constexpr unsigned kMostUnlinked = 64;

// Copies a leaf's own entries, in order. False: it changed meanwhile.
template <class Keys>
bool PbTree<Keys>::read_leaf(Offset offset, std::uint64_t version, Sorted& sorted,
                             Offset& next) const {
  const NodeOf node = at(offset);
  const Word meta = node.meta();
  next = node.right();
  if (next != 0 && possible(next)) at(next).prefetch();
  node.sort_into(sorted);
  if ((meta & (kCopy | kSplitting)) != 0 && lock_of(offset).unchanged(version)) {
    // A crash left a split unfinished (A5): not all of it is the node's.
    const Probe low = Keys::probe(keys_.key_of(node.split_key()));
    const bool bounded = (meta & kSplitting) != 0 && next != 0 && possible(next);
    const Probe high = Keys::probe(bounded ? keys_.key_of(at(next).split_key()) : Key{});
    unsigned kept = 0;
    for (const Entry& entry : sorted.all()) {
      if (keys_.compare(entry.key, low) < 0) continue;
      if (bounded && keys_.compare(entry.key, high) >= 0) continue;
      sorted.entries[kept++] = entry;
    }
    sorted.count = kept;
  }
  return lock_of(offset).unchanged(version);
}

// The copy was validated, and its key records outlive the caller's pin.
template <class Keys>
bool PbTree<Keys>::readable(const Sorted& sorted) const {
  if constexpr (Keys::kRecords) {
    for (const Entry& entry : sorted.all()) {
      if (!keys_.readable(entry.key)) return false;
    }
  }
  return true;
}

// A scan counts if no insert_all() ran beside it. After the second try it keeps them out.
template <class Keys>
template <class Scan>
Outcome PbTree<Keys>::beside_batches(Scan scan) const {
  Turn turn(*this);
  while (true) {
    const std::uint64_t gate = turn.begin();
    const Outcome outcome = scan();
    if (gate_.unchanged(gate)) return outcome;
  }
}

template <class Keys>
Outcome PbTree<Keys>::scan(Key from, std::optional<Key> to, std::size_t limit, Out& out) const {
  out.clear();
  if (limit == 0) return Outcome::done;
  return beside_batches([&] { return scan_once(from, to, limit, out); });
}

template <class Keys>
Outcome PbTree<Keys>::scan_back(std::optional<Key> from, std::size_t limit, Out& out) const {
  out.clear();
  if (limit == 0) return Outcome::done;
  return beside_batches([&] { return scan_back_once(from, limit, out); });
}

template <class Keys>
Outcome PbTree<Keys>::scan_once(Key from, std::optional<Key> to, std::size_t limit,
                                Out& out) const {
  out.clear();
  const alloc::Grace::Pin pin(c_.grace);
  if (!pin.ok()) return Outcome::too_many_threads;
  Ascent<Keys> ascent(keys_, from, to, limit, out);
  while (true) {
    Found found;
    if (descend(Keys::probe(ascent.bound()), 0, found) != Walk::there) return Outcome::corrupt;
    std::uint64_t barren = 0;
    for (bool coupled = true, first = true; coupled; first = false) {
      Sorted sorted;
      Offset next = 0;
      if (!read_leaf(found.node, found.version, sorted, next)) break;
      if (!readable(sorted)) return Outcome::corrupt;
      const std::size_t before = out.size();
      const Taken taken = ascent.take(sorted.all(), first);
      if (taken == Taken::complete) return Outcome::done;
      if (taken != Taken::on) return Outcome::corrupt;
      if (next == 0) return Outcome::done;
      // Leaves may be empty, but keys rise: a circle adds nothing, again and again.
      barren = out.size() == before ? barren + 1 : 0;
      if (barren > most_moves() || !possible(next)) return Outcome::corrupt;
      // The next leaf's version counts only if it was still the next leaf then.
      const std::uint64_t version = lock_of(next).begin();
      coupled = lock_of(found.node).unchanged(found.version);
      found.node = next;
      found.version = version;
    }
  }
}

// Against the order of the list: the left sibling counts if its right one is the leaf that was
// read.
template <class Keys>
Outcome PbTree<Keys>::scan_back_once(std::optional<Key> from, std::size_t limit, Out& out) const {
  out.clear();
  const alloc::Grace::Pin pin(c_.grace);
  if (!pin.ok()) return Outcome::too_many_threads;
  auto bound = Keys::own(from.value_or(Key{}));
  Aim aim = from ? Aim::at : Aim::last;
  std::uint64_t moves = 0;
  unsigned unlinked = 0;
  while (true) {
    Found found;
    if (aim == Aim::last) {
      if (!last_leaf(found)) return Outcome::corrupt;
    } else if (descend(Keys::probe(Key(bound)), 0, found) != Walk::there) {
      return Outcome::corrupt;
    }
    for (bool coupled = true; coupled;) {
      Sorted sorted;
      Offset next = 0;
      const NodeOf node = at(found.node);
      const Offset left = node.left();
      const Word low = node.split_key();
      if (!read_leaf(found.node, found.version, sorted, next)) break;
      if (aim == Aim::last && next != 0) break;
      if (!readable(sorted) || !keys_.readable(low)) return Outcome::corrupt;
      const std::size_t before = out.size();
      const Taken taken = take_back(keys_, sorted.all(), aim, Key(bound), limit, out);
      if (taken == Taken::damaged) return Outcome::corrupt;
      if (taken == Taken::complete) return Outcome::done;
      if (left == 0) return Outcome::done;
      if (out.size() != before) moves = unlinked = 0;  // keys fall: a circle adds nothing, for ever
      if (!possible(left) || ++moves > most_moves()) return Outcome::corrupt;
      bound = Keys::own(keys_.key_of(low));
      aim = Aim::below;
      const std::uint64_t version = lock_of(left).begin();
      const bool linked = at(left).right() == found.node && (at(left).meta() & kDead) == 0;
      const bool same = node.left() == left;
      const bool sure =
          lock_of(found.node).unchanged(found.version) && lock_of(left).unchanged(version);
      // Who splits or merges the left one changes both links under its lock (I3); only damage
      // leads here and back to this leaf each time, and each time by a long way.
      if (sure && same && !linked && ++unlinked > kMostUnlinked) return Outcome::corrupt;
      coupled = sure && linked;
      found.node = left;
      found.version = version;
    }
  }
}

// False: the tree is damaged.
template <class Keys>
bool PbTree<Keys>::last_leaf(Found& found) const {
  std::uint64_t rounds = 0;
  while (true) {
    auto [node, level] = root();
    while (true) {
      if (!possible(node) || ++rounds > most_moves()) return false;
      const NodeOf here = at(node);
      if (level == 0) {
        base::reads_discarded();
        found.version = lock_of(node).begin();
      }
      const Word meta = here.meta();
      if ((meta & (kLevelMask | kDead)) != level) break;  // as in descend()
      if (const Offset right = here.right(); right != 0) {
        node = right;
        continue;
      }
      if (level == 0) {
        found.node = node;
        return true;
      }
      Sorted sorted;
      here.sort_into(sorted);
      const Offset child =
          sorted.count == 0 ? here.leftmost() : sorted.entries[sorted.count - 1].value;
      if (((here.meta() ^ meta) & kStable) != 0) continue;
      node = child;
      --level;
    }
  }
}

template Outcome PbTree<U64Keys>::scan(std::uint64_t, std::optional<std::uint64_t>, std::size_t,
                                       Out&) const;
template Outcome PbTree<BytesKeys>::scan(Bytes, std::optional<Bytes>, std::size_t, Out&) const;
template Outcome PbTree<U64Keys>::scan_back(std::optional<std::uint64_t>, std::size_t, Out&) const;
template Outcome PbTree<BytesKeys>::scan_back(std::optional<Bytes>, std::size_t, Out&) const;

}  // namespace everleaf::tree::pbtree
