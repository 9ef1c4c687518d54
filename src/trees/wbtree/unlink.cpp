// Removing the last entry of a leaf: the leaf goes too, and with it inner nodes that would be left
// without a child. One redo record commits all of it. P8 and A8 of README.md.
#include "trees/wbtree/tree.hpp"

namespace everleaf::tree::wbtree {

// What goes and what changes.
template <class Keys>
struct WbTree<Keys>::Unlinking {
  bool has_anchor = false;
  unsigned anchor = 0;  // level of the lowest inner node that keeps a child; all below it go
  bool has_left = false;
  Offset left = 0;  // the leaf before the one that goes
  std::uint64_t left_version = 0;
  std::array<Offset, kMaxHeight + 4> freed;
  unsigned freed_count = 0;
};

// The leaf whose link points to the path's leaf: rightmost under the child before, at the lowest
// level where there is one.
template <class Keys>
typename WbTree<Keys>::Walk WbTree<Keys>::find_left_leaf(const Path& path, Unlinking& u) const {
  unsigned level = path.depth;
  while (level > 0 && path.steps[level - 1].position == 0) --level;
  u.has_left = level > 0;
  if (!u.has_left) return Walk::there;
  const Step* from = &path.steps[level - 1];
  const base::VersionLock* above = &lock_of(from->node);
  std::uint64_t above_version = from->version;
  Offset node = from->node;
  for (unsigned at = level - 1; at < path.depth; ++at) {
    const Node here = inner(node);
    Slots slots;
    const Word control = here.control();
    if (!above->unchanged(above_version)) return Walk::retry;
    here.order(keys_, control, slots);
    if (!above->unchanged(above_version)) return Walk::retry;
    const unsigned position = at == level - 1 ? from->position - 1 : slots.count();
    const Offset child = here.child(slots, position);
    if (!above->unchanged(above_version)) return Walk::retry;
    if (!possible(child)) return Walk::corrupt;
    const base::VersionLock& lock = lock_of(child);
    const std::uint64_t version = lock.begin();
    if (!above->unchanged(above_version)) return Walk::retry;
    above = &lock;
    above_version = version;
    node = child;
  }
  u.left = node;
  u.left_version = above_version;
  const Offset next = leaf(node).link();
  if (!above->unchanged(above_version)) return Walk::retry;
  const Step& last = path.steps[path.depth];
  if (next == last.node) return Walk::there;
  // Another thread may have unlinked the leaf meanwhile; then its version tells.
  return lock_of(last.node).unchanged(last.version) ? Walk::corrupt : Walk::retry;
}

// The root word if the root goes, the anchor, all nodes below it on the path, the left leaf.
template <class Keys>
bool WbTree<Keys>::lock_for_unlink(const Path& path, const Unlinking& u,
                                   base::LockSet& locks) const {
  if ((!u.has_anchor || u.anchor == 0) &&
      !locks.try_lock(lock_of(c_.root_word), path.root_version)) {
    return false;
  }
  for (unsigned level = u.anchor; level <= path.depth; ++level) {
    const Step& step = path.steps[level];
    if (!locks.try_lock(lock_of(step.node), step.version)) return false;
  }
  return !u.has_left || locks.try_lock(lock_of(u.left), u.left_version);
}

template <class Keys>
bool WbTree<Keys>::free_block(Unlinking& u, alloc::Redo& record, Offset block) {
  if (u.freed_count == u.freed.size() || !c_.heap.release(record, block)) return false;
  u.freed[u.freed_count++] = block;
  return true;
}

// Takes the path's child out of the anchor; a root that is left with one child goes as well.
template <class Keys>
bool WbTree<Keys>::drop_child(const Path& path, Unlinking& u, alloc::Redo& record) {
  const Step& step = path.steps[u.anchor];
  const Node node = inner(step.node);
  const Word control = node.control();
  Slots slots;
  node.order(keys_, control, slots);
  if (slots.count() == 0 || step.position > slots.count()) return false;
  // The range of the child passes to the left, or from the leftmost child to the right.
  const unsigned dropped = step.position == 0 ? 0 : step.position - 1;
  const unsigned entry = slots.at(dropped);
  if constexpr (Keys::kRecords) {
    if (!free_block(u, record, Keys::record_of(node.key(entry)))) return false;
  }
  const Offset first = step.position == 0 ? node.value(entry) : node.link();
  if (u.anchor == 0 && slots.count() == 1) {
    record.store(c_.root_word, first | (path.depth - 1));
    return free_block(u, record, step.node);
  }
  slots.erase(dropped);
  log_slots(record, node, slots);
  if (node.kind() != NodeKind::slot_only) {
    const Word after = (control & ~node.bit(entry)) | 1;
    record.store(c_.medium.offset_of(node.control_word()), after);
  }
  if (step.position == 0) record.store(c_.medium.offset_of(node.link_word()), first);
  return true;
}

template <class Keys>
typename WbTree<Keys>::Walk WbTree<Keys>::unlink(const Probe& probe, Outcome& outcome) {
  outcome = Outcome::corrupt;
  Path path;
  if (const Walk walk = descend(probe, Aim::at, path); walk != Walk::there) return walk;
  Unlinking u;
  for (unsigned level = path.depth; level-- > 0 && !u.has_anchor;) {
    const Node node = inner(path.steps[level].node);
    u.has_anchor = node.count(node.control()) != 0;
    u.anchor = level;
  }
  if (const Walk walk = find_left_leaf(path, u); walk != Walk::there) return walk;
  base::LockSet locks;
  const auto leave = [&](Walk walk) {
    locks.release(false);
    return walk;
  };
  if (!lock_for_unlink(path, u, locks)) return leave(Walk::retry);
  // From here on nothing moves. What was looked at before the locks is looked at again.
  const Offset last = path.steps[path.depth].node;
  const Node node = leaf(last);
  Hit hit;
  search_leaf(last, probe, lock_of(last), path.steps[path.depth].version + 1, hit);
  if (!hit.found || path.depth == 0 || node.count(hit.control) != 1) return leave(Walk::retry);
  if (u.has_anchor &&
      inner(path.steps[u.anchor].node).count(inner(path.steps[u.anchor].node).control()) == 0) {
    return leave(Walk::retry);
  }
  alloc::Redo record;
  const unsigned first_gone = u.has_anchor ? u.anchor + 1 : 0;
  bool sound = true;
  if constexpr (Keys::kRecords) {
    sound = free_block(u, record, Keys::record_of(node.key(hit.entry)));
  }
  if (u.has_anchor) {
    for (unsigned level = first_gone; sound && level <= path.depth; ++level) {
      sound = free_block(u, record, path.steps[level].node);
    }
    sound = sound && drop_child(path, u, record);
  } else {
    // Every node above has this child alone: the leaf becomes the empty root.
    for (unsigned level = 0; sound && level < path.depth; ++level) {
      sound = free_block(u, record, path.steps[level].node);
    }
    record.store(c_.root_word, last);
    record.store(c_.medium.offset_of(node.control_word()), Node::empty_control(node.kind()));
    if (node.kind() == NodeKind::slot_bitmap)
      record.store(c_.medium.offset_of(node.slot_word(0)), 0);
  }
  if (u.has_left) record.store(c_.medium.offset_of(leaf(u.left).link_word()), node.link());
  if (!sound) return leave(Walk::there);
  outcome = c_.redo.commit(record);
  locks.release(true);
  if (outcome != Outcome::done) return Walk::there;
  for (unsigned i = 0; i < u.freed_count; ++i) c_.grace.retire(u.freed[i]);
  return Walk::there;
}

template WbTree<U64Keys>::Walk WbTree<U64Keys>::unlink(const Probe&, Outcome&);
template WbTree<BytesKeys>::Walk WbTree<BytesKeys>::unlink(const Probe&, Outcome&);

}  // namespace everleaf::tree::wbtree
