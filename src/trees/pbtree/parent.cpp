// Entries of new nodes in their parents, and new roots. P7 and A6 of README.md: a node whose parent
// does not know it is found by its left sibling, so this can come at any time, or never.
#include "trees/pbtree/tree.hpp"

namespace everleaf::tree::pbtree {

// Makes the node of `level` with this split key known to its parent. Done as well if there is no
// such node any more.
template <class Keys>
Outcome PbTree<Keys>::post(unsigned level, Key split_key) {
  const Probe probe = Keys::probe(split_key);
  // In a damaged node an entry may not be found that was just added.
  for (std::uint64_t rounds = 0; rounds < most_moves(); ++rounds) {
    Found child;
    child.search = false;  // a node that no parent names is reached by its sibling
    const Walk walk = descend(probe, level, child);
    if (walk != Walk::there) return walk == Walk::corrupt ? Outcome::corrupt : Outcome::done;
    const NodeOf node = at(child.node);
    // The backup of a split that is not committed has its left sibling's split key.
    if (unfinished(node)) {
      const Outcome finished = finish_split(child.node);
      if (finished != Outcome::done) return finished;
      continue;
    }
    const bool gone = node.left() == 0 || keys_.compare(node.split_key(), probe) != 0;
    if (!lock_of(child.node).unchanged(child.version)) continue;
    if (gone) return Outcome::done;
    Found parent;
    parent.search = false;
    Outcome outcome = Outcome::done;
    switch (descend(probe, level + 1, parent)) {
      case Walk::corrupt:
        return Outcome::corrupt;
      case Walk::no_such_level:
        outcome = grow_root(level, child, split_key);
        break;
      case Walk::there: {
        const NodeOf above = at(parent.node);
        const Place place = above.find(probe);
        const bool leftmost = keys_.compare(above.split_key(), probe) == 0;
        const bool pending = unfinished(above);
        const bool full = above.ends().full();
        const bool last = above.right() == 0 && !place.above;
        const bool first = above.left() == 0 && !place.below;
        if (!lock_of(parent.node).unchanged(parent.version)) break;
        if (place.found || leftmost) return Outcome::done;
        if (probe.bad) return Outcome::corrupt;
        if (pending) {
          outcome = finish_split(parent.node);
        } else if (place.pivot || !full) {
          outcome = post_into(child, parent, place, split_key);
        } else if (last || first) {
          outcome = append_inner(child, parent, last ? Side::right : Side::left, split_key);
        } else {
          outcome = split(parent, level + 1);
        }
        break;
      }
    }
    if (outcome != Outcome::done) return outcome;
  }
  return Outcome::corrupt;
}

template <class Keys>
Outcome PbTree<Keys>::post_into(const Found& child, const Found& parent, const Place& place,
                                Key split_key) {
  Reserved record(c_.heap);
  if constexpr (Keys::kRecords) {
    if (!place.pivot && !record.get(Keys::record_bytes(split_key), alloc::Placement::together)) {
      return Outcome::out_of_space;
    }
  }
  base::LockSet locks;
  if (!lock_all(locks, {child, parent})) return Outcome::done;
  const NodeOf above = at(parent.node);
  // After nodes were put before the first one, its parent learns of the first one first: else the
  // one that it takes for it would have two entries.
  if (above.left() == 0) {
    const Offset first = first_of_level(above.leftmost());
    if (first == 0) return Outcome::corrupt;
    if (first != above.leftmost()) {
      Edit edit(c_, parent.node, 1);  // P7: durable before the entry
      edit.store(&above.header()->leftmost, first);
      if (const Outcome outcome = edit.finish(); outcome != Outcome::done) return outcome;
    }
  }
  return place.pivot
             ? set_pivot(above, true, child.node)
             : add(above, place, keys_.write_record(record.block(), split_key), child.node, record);
}

// P11: the first or last inner node of a level is full and the new child comes before or behind all
// of its entries. Behind: the child is the leftmost one of the fresh node. Before: it is that of
// the old node, and the fresh one gets what lies before it.
template <class Keys>
Outcome PbTree<Keys>::append_inner(const Found& child, const Found& parent, Side side,
                                   Key split_key) {
  const bool right = side == Side::right;
  Reserved block(c_.heap);
  Reserved separator_block(c_.heap);
  Reserved pivot_block(c_.heap);
  Seen fresh;
  if (!reserve_node(block, 1, fresh)) return Outcome::out_of_space;
  base::LockSet locks;
  if (!lock_all(locks, {child, parent, fresh})) return Outcome::done;
  if (!c_.redo.settle(parent.node)) return Outcome::io_error;
  const NodeOf node = at(parent.node);
  const Offset leftmost = right ? child.node : first_of_level(child.node);
  alloc::Redo record;
  Word separator = 0;
  Outcome outcome = own_key(split_key, separator_block, record, separator);
  // The keys to come lie to the right of the pivot, or to its left.
  Word pivot = separator;
  if (outcome == Outcome::done && !right) outcome = own_key(split_key, pivot_block, record, pivot);
  if (outcome != Outcome::done) return outcome;
  const Word fresh_split_key = right ? separator : node.split_key();
  const bool sound = fill_fresh(record, fresh.node,
                                {.meta = node.level(),
                                 .split_key = fresh_split_key,
                                 .leftmost = leftmost,
                                 .pivot = pivot,
                                 .left = right ? parent.node : 0,
                                 .right = right ? 0 : parent.node,
                                 .next_split_key = fresh_split_key},
                                {}, 0);
  if (!sound || leftmost == 0) return Outcome::corrupt;
  link_appended(record, node, side, fresh.node, separator);
  if (!right) record.store(c_.medium.offset_of(&node.header()->leftmost), child.node);
  outcome = commit(record, {&block, &separator_block, &pivot_block});
  locks.release(true);
  if (outcome != Outcome::done) return outcome;
  count(Count::appended_nodes);
  return post(node.level(), split_key);
}

// A new root over the top level, with the child as its only entry; nodes between are posted later.
template <class Keys>
Outcome PbTree<Keys>::grow_root(unsigned level, const Found& child, Key split_key) {
  const Seen word = see(c_.root_word);
  if (root().level != level || !lock_of(word.node).unchanged(word.version)) return Outcome::done;
  if (level == kMaxLevel) return Outcome::corrupt;
  Reserved block(c_.heap);
  Reserved separator_block(c_.heap);
  Seen fresh;
  if (!reserve_node(block, 1, fresh)) return Outcome::out_of_space;
  base::LockSet locks;
  if (!lock_all(locks, {child, word, fresh})) return Outcome::done;
  const Offset first = first_of_level(at(child.node).left());
  if (first == 0) return Outcome::corrupt;
  alloc::Redo record;
  Entry entry{0, child.node};
  const Outcome owned = own_key(split_key, separator_block, record, entry.key);
  if (owned != Outcome::done) return owned;
  if (!fill_fresh(record, fresh.node, {.meta = level + 1, .leftmost = first}, {&entry, 1}, 0)) {
    return Outcome::corrupt;
  }
  record.store(c_.root_word, fresh.node | (level + 1));
  return commit(record, {&block, &separator_block});
}

template Outcome PbTree<U64Keys>::post(unsigned, std::uint64_t);
template Outcome PbTree<BytesKeys>::post(unsigned, Bytes);

}  // namespace everleaf::tree::pbtree
