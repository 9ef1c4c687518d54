// Splits: one redo record commits the old node, the new node's allocation and the parent (paper,
// 4.3). P7 and A7 of README.md. Moved entries stay where they are in the old node; only its control
// word, the front of its slot array and its link change.
#include "trees/wbtree/tree.hpp"

namespace everleaf::tree::wbtree {

// Splits nodes until the probe's leaf has a free entry, from the lowest node whose parent has room:
// each round is one split and leaves a valid tree.
template <class Keys>
Outcome WbTree<Keys>::make_room(const Probe& probe) {
  while (true) {
    Path path;
    const Walk walk = descend(probe, Aim::at, path);
    if (walk == Walk::corrupt) return Outcome::corrupt;
    if (walk == Walk::retry) continue;
    unsigned level = path.depth;
    const Node last = leaf(path.steps[level].node);
    if (!last.full(last.control())) return Outcome::done;  // somebody else made room
    // Allocating may store and fence, before the locks: what was read is made sure of first.
    const auto is_sure = [this](const Step& step) {
      return lock_of(step.node).unchanged(step.version);
    };
    bool sure = is_sure(path.steps[level]);
    while (level > 0 && sure) {
      const Node parent = inner(path.steps[level - 1].node);
      const bool full = parent.full(parent.control());
      sure = is_sure(path.steps[level - 1]);
      if (!full) break;
      --level;
    }
    if (!sure) continue;
    Outcome outcome = Outcome::done;
    if (split(path, level, probe, outcome) == Walk::retry) continue;
    if (outcome != Outcome::done || level == path.depth) return outcome;
  }
}

// Writes the upper part of `node` into the fresh node `right`, and says what stays. `keep` entries
// stay; of an inner node, entry number `keep` moves up to the parent.
template <class Keys>
void WbTree<Keys>::fill_right(alloc::Redo& record, Node node, Node right, const Slots& slots,
                              unsigned keep, Halves& halves) {
  const bool is_leaf = &node.shape() == &leaf_;
  const unsigned first = is_leaf ? keep : keep + 1;
  const unsigned moved = slots.count() - first;
  Slots order;
  order.clear();
  Word used = 0;
  for (unsigned i = 0; i < moved; ++i) {
    const unsigned from = slots.at(first + i);
    c_.medium.store(&right.entry(i)->key, node.key(from));
    c_.medium.store(&right.entry(i)->value, node.value(from));
    order.insert(i, i);
    used |= right.bit(i);
  }
  if (right.kind() != NodeKind::bitmap_only) {
    for (unsigned i = 0; i < right.slot_words(); ++i) {
      c_.medium.store(right.slot_word(i), order.word(i));
    }
  }
  if (right.kind() != NodeKind::slot_only) {
    c_.medium.store(right.control_word(), used | Node::empty_control(right.kind()));
  }
  c_.medium.store(right.link_word(), is_leaf ? node.link() : node.value(slots.at(keep)));
  const std::size_t bytes = right.shape().entries_at + moved * sizeof(Entry);
  c_.medium.flush(right.base(), bytes);
  record.cover(c_.medium.offset_of(right.base()), bytes);

  halves.left.clear();
  Word kept = 0;
  for (unsigned i = 0; i < keep; ++i) {
    halves.left.insert(i, slots.at(i));
    kept |= node.bit(slots.at(i));
  }
  halves.left_control = kept | Node::empty_control(node.kind());
  halves.separator = node.key(slots.at(keep));
  halves.last_of_left = keep == 0 ? halves.separator : node.key(slots.at(keep - 1));
}

// With bytes keys a leaf's separator becomes a record of its own: the shortest prefix of the first
// right key that is larger than the last left key.
template <class Keys>
Outcome WbTree<Keys>::own_separator(Halves& halves, Reserved& block, alloc::Redo& record,
                                    bool is_leaf) {
  if constexpr (Keys::kRecords) {
    if (!is_leaf) return Outcome::done;  // an inner node's median takes its record along
    const Bytes separator =
        Keys::separator(keys_.key_of(halves.last_of_left), keys_.key_of(halves.separator));
    if (!block.get(Keys::record_bytes(separator), alloc::Placement::together)) {
      return Outcome::out_of_space;
    }
    halves.separator = keys_.write_record(block.block(), separator, inner_.kind);
    record.cover(block.block(), Keys::record_bytes(separator));
    if (!c_.heap.activate(record, block.block())) return Outcome::corrupt;
  }
  return Outcome::done;
}

// Adds {separator, child} to a parent with room: the entry now, its slot and bit by the record.
template <class Keys>
void WbTree<Keys>::link_child(alloc::Redo& record, Node parent, unsigned position, Word separator,
                              Offset child) {
  const Word control = parent.control();
  Slots slots;
  parent.order(keys_, control, slots);
  const unsigned u = parent.free_entry(control);
  c_.medium.store(&parent.entry(u)->key, separator);
  c_.medium.store(&parent.entry(u)->value, child);
  c_.medium.flush(parent.entry(u), sizeof(Entry));
  record.cover(c_.medium.offset_of(parent.entry(u)), sizeof(Entry));
  slots.insert(position, u);
  log_slots(record, parent, slots);
  if (parent.kind() != NodeKind::slot_only) {
    record.store(c_.medium.offset_of(parent.control_word()), control | parent.bit(u) | 1);
  }
}

template <class Keys>
void WbTree<Keys>::fill_root(alloc::Redo& record, Node root, Offset left, Word separator,
                             Offset right) {
  Slots slots;
  slots.clear();
  slots.insert(0, 0);
  c_.medium.store(&root.entry(0)->key, separator);
  c_.medium.store(&root.entry(0)->value, right);
  for (unsigned i = 0; i < root.slot_words(); ++i) {
    c_.medium.store(root.slot_word(i), slots.word(i));
  }
  if (root.kind() != NodeKind::slot_only) c_.medium.store(root.control_word(), 3);
  c_.medium.store(root.link_word(), left);
  const std::size_t bytes = root.shape().entries_at + sizeof(Entry);
  c_.medium.flush(root.base(), bytes);
  record.cover(c_.medium.offset_of(root.base()), bytes);
}

template <class Keys>
typename WbTree<Keys>::Walk WbTree<Keys>::split(const Path& path, unsigned level,
                                                const Probe& probe, Outcome& outcome) {
  const bool is_leaf = level == path.depth;
  const Step& step = path.steps[level];
  Reserved right_block(c_.heap);
  Reserved root_block(c_.heap);
  Reserved separator_block(c_.heap);
  outcome = Outcome::out_of_space;
  const auto together = alloc::Placement::together;
  if (!right_block.get(leaf_.bytes, is_leaf ? alloc::Placement::anywhere : together)) {
    return Walk::there;
  }
  if (level == 0 && !root_block.get(inner_.bytes, together)) return Walk::there;

  base::LockSet locks;
  const bool locked = (level == 0 ? locks.try_lock(lock_of(c_.root_word), path.root_version)
                                  : locks.try_lock(lock_of(path.steps[level - 1].node),
                                                   path.steps[level - 1].version)) &&
                      locks.try_lock(lock_of(step.node), step.version);
  const Node node = is_leaf ? leaf(step.node) : inner(step.node);
  const Word control = node.control();
  // make_room looked at the nodes before they were locked; a lock proves the version, not the look.
  if (!locked || !node.full(control) ||
      (level > 0 &&
       inner(path.steps[level - 1].node).full(inner(path.steps[level - 1].node).control()))) {
    locks.release(false);
    return Walk::retry;
  }
  Slots slots;
  node.order(keys_, control, slots);
  outcome = Outcome::corrupt;
  if (slots.count() != node.shape().capacity || (level == 0 && path.depth == kMaxHeight)) {
    locks.release(false);
    return Walk::there;
  }
  // Rising keys: leave the old leaf full, so that a sorted load fills every leaf.
  const unsigned n = slots.count();
  const bool last = leaf(path.steps[path.depth].node).link() == 0;
  const bool rising =
      last && (is_leaf ? keys_.key_of(node.key(slots.at(n - 1))) < probe.key : step.position == n);
  Halves halves;
  alloc::Redo record;
  const Node right(c_.medium.at(right_block.block()), node.shape());
  fill_right(record, node, right, slots, rising ? n - 1 : n / 2, halves);
  outcome = own_separator(halves, separator_block, record, is_leaf);
  if (outcome == Outcome::done && (!c_.heap.activate(record, right_block.block()) ||
                                   (level == 0 && !c_.heap.activate(record, root_block.block())))) {
    outcome = Outcome::corrupt;
  }
  if (outcome != Outcome::done) {
    locks.release(false);
    return Walk::there;
  }
  log_slots_and_control(record, node, halves);
  if (is_leaf) record.store(c_.medium.offset_of(node.link_word()), right_block.block());
  if (level == 0) {
    fill_root(record, inner(root_block.block()), step.node, halves.separator, right_block.block());
    record.store(c_.root_word, root_block.block() | (path.depth + 1));
  } else {
    link_child(record, inner(path.steps[level - 1].node), path.steps[level - 1].position,
               halves.separator, right_block.block());
  }
  outcome = c_.redo.commit(record);
  for (Reserved* block : {&right_block, &root_block, &separator_block}) block->settle(outcome);
  locks.release(true);
  return Walk::there;
}

template <class Keys>
void WbTree<Keys>::log_slots_and_control(alloc::Redo& record, Node node,
                                         const Halves& halves) const {
  if (node.kind() != NodeKind::bitmap_only) log_slots(record, node, halves.left);
  if (node.kind() != NodeKind::slot_only) {
    record.store(c_.medium.offset_of(node.control_word()), halves.left_control);
  }
}

template Outcome WbTree<U64Keys>::make_room(const Probe&);
template Outcome WbTree<BytesKeys>::make_room(const Probe&);
template WbTree<U64Keys>::Walk WbTree<U64Keys>::split(const Path&, unsigned, const Probe&,
                                                      Outcome&);
template WbTree<BytesKeys>::Walk WbTree<BytesKeys>::split(const Path&, unsigned, const Probe&,
                                                          Outcome&);
template void WbTree<U64Keys>::fill_root(alloc::Redo&, Node, Offset, Word, Offset);
template void WbTree<BytesKeys>::fill_root(alloc::Redo&, Node, Offset, Word, Offset);
template void WbTree<U64Keys>::link_child(alloc::Redo&, Node, unsigned, Word, Offset);
template void WbTree<BytesKeys>::link_child(alloc::Redo&, Node, unsigned, Word, Offset);

}  // namespace everleaf::tree::wbtree
