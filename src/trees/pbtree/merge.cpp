// Merging and borrowing on underflow, and roots with a single child. P8, P9, A7 of README.md.
#include <algorithm>

#include "trees/pbtree/tree.hpp"

namespace everleaf::tree::pbtree {

template <class Keys>
struct PbTree<Keys>::Pair {
  Found parent;
  Word separator;  // the parent's entry of the right one
  Offset left, right;
  Offset before, after;  // their neighbours
  std::uint64_t left_version, right_version, before_version;
  Seen first, second;  // what takes their place
};

// Looks at the child for the probe and its right neighbour, or its left one if it is the last.
template <class Keys>
typename PbTree<Keys>::Balance PbTree<Keys>::find_pair(unsigned level, const Probe& probe,
                                                       Pair& pair) {
  pair.parent.search = false;
  const Walk walk = descend(probe, level + 1, pair.parent);
  if (walk != Walk::there) return Balance::done;
  const NodeOf parent = at(pair.parent.node);
  if (unfinished(parent)) {
    return finish_split(pair.parent.node) == Outcome::done ? Balance::retry : Balance::done;
  }
  Sorted sorted;
  parent.sort_into(sorted);
  if (!lock_of(pair.parent.node).unchanged(pair.parent.version)) return Balance::retry;
  if (sorted.count == 0) return Balance::go_up;
  unsigned i = 0;
  while (i < sorted.count && keys_.compare(sorted.entries[i].key, probe) <= 0) ++i;
  if (i == sorted.count) --i;
  pair.separator = sorted.entries[i].key;
  pair.left = i == 0 ? parent.leftmost() : sorted.entries[i - 1].value;
  pair.right = sorted.entries[i].value;
  if (!lock_of(pair.parent.node).unchanged(pair.parent.version)) return Balance::retry;
  if (!possible(pair.left) || !possible(pair.right)) return Balance::done;
  pair.left_version = lock_of(pair.left).begin();
  pair.right_version = lock_of(pair.right).begin();
  for (const Offset node : {pair.left, pair.right}) {
    if (unfinished(at(node))) {
      return finish_split(node) == Outcome::done ? Balance::retry : Balance::done;
    }
  }
  // A node between them that the parent does not know yet: another time.
  if (at(pair.left).right() != pair.right) return Balance::done;
  pair.before = at(pair.left).left();
  pair.after = at(pair.right).right();
  if (pair.before != 0) {
    if (!possible(pair.before)) return Balance::done;
    pair.before_version = lock_of(pair.before).begin();
    // It may have been merged away while that waited, and still name its old neighbour.
    if ((at(pair.before).meta() & kDead) != 0 || at(pair.before).right() != pair.left ||
        at(pair.left).left() != pair.before) {
      return Balance::retry;
    }
  }
  if (pair.after != 0 && !possible(pair.after)) return Balance::done;
  const bool sure = lock_of(pair.parent.node).unchanged(pair.parent.version) &&
                    lock_of(pair.left).unchanged(pair.left_version) &&
                    lock_of(pair.right).unchanged(pair.right_version) &&
                    (pair.before == 0 || lock_of(pair.before).unchanged(pair.before_version));
  return sure ? Balance::found : Balance::retry;
}

template <class Keys>
bool PbTree<Keys>::lock_pair(const Pair& pair, base::LockSet& locks) const {
  const Seen left{pair.left, pair.left_version};
  const Seen before = pair.before == 0 ? left : Seen{pair.before, pair.before_version};
  const Seen right{pair.right, pair.right_version};
  return lock_all(locks, {pair.parent, left, right, before, pair.first, pair.second});
}

// L2 of the redo log, before anything of them changes.
template <class Keys>
Outcome PbTree<Keys>::settle_pair(const Pair& pair) const {
  for (const Offset node : {pair.parent.node, pair.left, pair.right, pair.before}) {
    if (node != 0 && !c_.redo.settle(node)) return Outcome::io_error;
  }
  return Outcome::done;
}

// What both hold together. Of inner nodes the right one's leftmost child becomes an entry at its
// split key.
template <class Keys>
void PbTree<Keys>::join(const Pair& pair, Sorted& sorted) const {
  const NodeOf right = at(pair.right);
  at(pair.left).sort_into(sorted);
  Sorted behind;
  right.sort_into(behind);
  if (right.level() > 0) sorted.push(right.split_key(), right.leftmost());
  for (const Entry& entry : behind.all()) sorted.push(entry.key, entry.value);
}

// One fresh node, or two, for a pair: what is needed besides the pair.
template <class Keys>
struct PbTree<Keys>::Replacement {
  explicit Replacement(alloc::Heap& heap) : separator_block(heap) {}
  const Sorted* sorted = nullptr;
  unsigned keep = 0;  // entries of the first fresh node
  bool is_leaf = false;
  Word separator = 0;  // of the second one
  Reserved separator_block;
  alloc::Redo record;
  std::array<Offset, 5> freed{};

  [[nodiscard]] bool two() const { return keep < sorted->count; }
};

// What goes: both nodes, pivots that do not count, and a right leaf's split key (an inner node's
// becomes an entry's).
template <class Keys>
Outcome PbTree<Keys>::release_pair(const Pair& pair, Replacement& r) {
  const NodeOf right = at(pair.right);
  r.freed[0] = pair.left;
  r.freed[1] = pair.right;
  bool sound = c_.heap.release(r.record, pair.left) && c_.heap.release(r.record, pair.right) &&
               release_pivot(at(pair.left), r.record, r.freed[2]) &&
               release_pivot(right, r.record, r.freed[3]);
  if (Keys::kRecords && r.is_leaf) {
    r.freed[4] = Keys::record_of(right.split_key());
    sound = sound && c_.heap.release(r.record, r.freed[4]);
  }
  return sound ? Outcome::done : Outcome::corrupt;
}

// P8: the right one is found by its left sibling from here on (A7).
template <class Keys>
Outcome PbTree<Keys>::forget_right(const Pair& pair) {
  const NodeOf parent = at(pair.parent.node);
  const Place place = parent.find(Keys::probe(keys_.key_of(pair.separator)));
  if (!place.found) return Outcome::corrupt;
  Offset freed = 0;
  const Outcome dropped = place.pivot ? set_pivot(parent, false, 0) : drop(parent, place, freed);
  if (freed != 0 && dropped == Outcome::done) c_.grace.retire(freed);
  // P9 stores into the parent, too.
  if (!c_.redo.settle(pair.parent.node)) return Outcome::io_error;
  return dropped;
}

// Blocks that go (0: none): the separator's record, which went before, is none of them.
template <class Keys>
bool PbTree<Keys>::in_use(std::span<const Offset> blocks) const {
  return std::ranges::all_of(
      blocks, [this](Offset block) { return block == 0 || c_.heap.allocated_bytes(block) != 0; });
}

// P9. The parent's entry of the right one went before.
template <class Keys>
Outcome PbTree<Keys>::link_replacement(const Pair& pair, Replacement& r) {
  const NodeOf left = at(pair.left);
  const NodeOf parent = at(pair.parent.node);
  Word* const word = parent.route(Keys::probe(keys_.key_of(left.split_key()))).child;
  if (pmem::load(word) != pair.left) return Outcome::corrupt;
  const auto write = [&](Offset node, std::span<const Entry> entries, Content content) {
    content.meta = left.meta() & kLevelMask;
    content.pivot = content.next_split_key = content.split_key;
    return fill_fresh(r.record, node, content, entries, static_cast<unsigned>(entries.size() / 2));
  };
  bool sound = write(pair.first.node, r.sorted->all().first(r.keep),
                     {.split_key = left.split_key(),
                      .leftmost = left.leftmost(),
                      .left = pair.before,
                      .right = r.two() ? pair.second.node : pair.after});
  if (r.two()) {
    auto rest = r.sorted->all().subspan(r.keep);
    const Word child = r.is_leaf ? 0 : rest.front().value;
    if (!r.is_leaf) rest = rest.subspan(1);
    sound = sound && write(pair.second.node, rest,
                           {.split_key = r.separator,
                            .leftmost = child,
                            .left = pair.first.node,
                            .right = pair.after});
  }
  if (!sound) return Outcome::corrupt;
  r.record.store(c_.medium.offset_of(word), pair.first.node);
  if (pair.before != 0) {
    r.record.store(c_.medium.offset_of(&at(pair.before).header()->right), pair.first.node);
  }
  if (pair.after != 0) {
    r.record.store(c_.medium.offset_of(&at(pair.after).header()->left),
                   r.two() ? pair.second.node : pair.first.node);
  }
  return commit(r.record, {&r.separator_block});
}

// An empty leaf goes, and its range passes to the other one; needs no fresh node, so that space
// comes back when there is none. P9.
template <class Keys>
Outcome PbTree<Keys>::absorb(const Pair& pair, bool left_goes) {
  const NodeOf left = at(pair.left);
  const NodeOf right = at(pair.right);
  const NodeOf gone = left_goes ? left : right;
  if (const Outcome settled = settle_pair(pair); settled != Outcome::done) return settled;
  alloc::Redo record;
  std::array<Offset, 3> freed{left_goes ? pair.left : pair.right};
  bool sound = c_.heap.release(record, freed[0]) && release_pivot(gone, record, freed[1]);
  // A pivot that does not count may live on with the record.
  if (Keys::kRecords && !(left_goes && borrowed_pivot(right))) {
    freed[2] = Keys::record_of(right.split_key());
    sound = sound && c_.heap.release(record, freed[2]);
  }
  if (!sound) return Outcome::corrupt;
  if (const Outcome outcome = forget_right(pair); outcome != Outcome::done) return outcome;
  if (!in_use(freed)) return Outcome::corrupt;
  const auto set = [&](Word& word, Word value) { record.store(c_.medium.offset_of(&word), value); };
  if (left_goes) {
    Word* const word =
        at(pair.parent.node).route(Keys::probe(keys_.key_of(left.split_key()))).child;
    if (pmem::load(word) != pair.left) return Outcome::corrupt;
    set(*word, pair.right);
    set(right.header()->split_key, left.split_key());
    set(right.header()->next_split_key, left.split_key());
    set(right.header()->left, pair.before);
    if (pair.before != 0) set(at(pair.before).header()->right, pair.right);
  } else {
    set(left.header()->right, pair.after);
    if (pair.after != 0) set(at(pair.after).header()->left, pair.left);
  }
  const Outcome outcome = c_.redo.commit(record);
  if (outcome != Outcome::done) return outcome;
  mark_dead(gone);
  for (const Offset block : freed) {
    if (block != 0) c_.grace.retire(block);
  }
  return Outcome::done;
}

// Puts one fresh node (keep == count), or two, in the place of the pair. `separator`: between two.
template <class Keys>
Outcome PbTree<Keys>::replace_pair(const Pair& pair, const Sorted& sorted, unsigned keep,
                                   Owned& separator) {
  if (const Outcome settled = settle_pair(pair); settled != Outcome::done) return settled;
  Replacement r(c_.heap);
  r.sorted = &sorted;
  r.keep = keep;
  r.is_leaf = at(pair.left).level() == 0;
  if (r.two()) {
    r.separator = sorted.entries[keep].key;
    Key key = keys_.key_of(r.separator);
    if (r.is_leaf) key = Keys::separator(keys_.key_of(sorted.entries[keep - 1].key), key);
    separator = Keys::own(key);
    const Outcome owned =
        r.is_leaf ? own_key(key, r.separator_block, r.record, r.separator) : Outcome::done;
    if (owned != Outcome::done) return owned;
  }
  Outcome outcome = release_pair(pair, r);
  if (outcome == Outcome::done) outcome = forget_right(pair);
  if (outcome == Outcome::done && !in_use(r.freed)) outcome = Outcome::corrupt;
  if (outcome != Outcome::done) return outcome;
  outcome = link_replacement(pair, r);
  if (outcome != Outcome::done) return outcome;
  for (const NodeOf node : {at(pair.left), at(pair.right)}) mark_dead(node);
  for (const Offset block : r.freed) {
    if (block != 0) c_.grace.retire(block);
  }
  return Outcome::done;
}

template <class Keys>
typename PbTree<Keys>::Balance PbTree<Keys>::rebalance(unsigned level, const Probe& probe) {
  Pair pair;
  const Balance looked = find_pair(level, probe, pair);
  if (looked != Balance::found) return looked;
  Reserved first(c_.heap);
  Reserved second(c_.heap);
  const bool space =
      reserve_node(first, level, pair.first) && reserve_node(second, level, pair.second);
  if (!space) pair.first = pair.second = {pair.left, pair.left_version};  // held anyway
  base::LockSet locks;
  if (!lock_pair(pair, locks)) return Balance::retry;
  const unsigned in_left = at(pair.left).used();
  const unsigned in_right = at(pair.right).used();
  Outcome outcome = Outcome::out_of_space;
  bool two = false;
  Owned separator{};
  Sorted sorted;
  if (level == 0 && std::min(in_left, in_right) == 0) {
    outcome = absorb(pair, in_left == 0);
  } else if (space) {
    join(pair, sorted);
    two = sorted.count > capacity_ * 2 / 3;
    if (!two || std::min(in_left, in_right) <= capacity_ / 8) {
      outcome = replace_pair(pair, sorted, two ? sorted.count / 2 : sorted.count, separator);
      first.settle(outcome);
      if (two) second.settle(outcome);
    }
  }
  const bool parent_is_sparse = at(pair.parent.node).used() <= capacity_ / 4;
  locks.release(true);
  if (outcome == Outcome::out_of_space && !space) return Balance::no_space;
  if (outcome != Outcome::done) return Balance::done;
  count(two ? Count::borrows : Count::merges);
  if (two) static_cast<void>(post(level, separator));
  return parent_is_sparse ? Balance::go_up : Balance::done;
}

// After a removal that left a leaf sparse. What cannot be done now is left to the next one.
template <class Keys>
bool PbTree<Keys>::rebalance(Key key) {
  const alloc::Grace::Pin pin(c_.grace);
  if (!pin.ok()) return true;
  const Probe probe = Keys::probe(key);
  Balance balance = Balance::go_up;
  // Once more if inner nodes were merged: the leaf may have a neighbour under its parent now.
  for (unsigned passes = 0, level = 1; passes < 2 && level > 0; ++passes) {
    balance = Balance::go_up;
    for (level = 0; level < kMaxLevel && balance == Balance::go_up; ++level) {
      unsigned tries = 0;
      do {
        balance = rebalance(level, probe);
      } while (balance == Balance::retry && ++tries < 64);
    }
    --level;
  }
  shrink_root();
  base::reads_discarded();  // the removal's answer is not of them
  return balance != Balance::no_space;
}

// A root without entries gives way to its only child.
template <class Keys>
void PbTree<Keys>::shrink_root() {
  while (true) {
    base::reads_discarded();
    const Seen word = see(c_.root_word);
    const auto [offset, level] = root();
    if (level == 0 || !possible(offset)) return;
    const Seen seen = see(offset);
    const NodeOf node = at(offset);
    const Offset child = node.leftmost();
    if (node.used() != 0 || unfinished(node) || node.right() != 0 || !possible(child)) return;
    const Seen below = see(child);
    // Siblings that nobody knows yet need the root.
    if (at(child).right() != 0 || at(child).left() != 0) return;
    base::LockSet locks;
    if (!lock_all(locks, {word, seen, below})) continue;
    if (!c_.redo.settle(offset)) return;
    alloc::Redo record;
    Offset freed = 0;
    if (!release_pivot(node, record, freed) || !c_.heap.release(record, offset)) return;
    record.store(c_.root_word, child | (level - 1));
    if (c_.redo.commit(record) != Outcome::done) return;
    mark_dead(node);
    c_.grace.retire(offset);
    if (freed != 0) c_.grace.retire(freed);
  }
}

template bool PbTree<U64Keys>::rebalance(std::uint64_t);
template bool PbTree<BytesKeys>::rebalance(Bytes);

}  // namespace everleaf::tree::pbtree
