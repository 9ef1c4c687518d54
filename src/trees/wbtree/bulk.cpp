// Bulk load: leaves are appended at the right end, one redo record each, so that a crash leaves a
// valid tree with a prefix of the entries. P9 and A9 of README.md.
#include <algorithm>

#include "trees/wbtree/tree.hpp"

namespace everleaf::tree::wbtree {

// The blocks of one step; a crash needs no undo (A11).
template <class Keys>
class WbTree<Keys>::Blocks {
 public:
  explicit Blocks(alloc::Heap& heap) : heap_(heap) {}
  // Reserves a block and adds its activation to the record; 0: out of space.
  [[nodiscard]] Offset get(std::size_t bytes, alloc::Redo& record,
                           alloc::Placement placement = alloc::Placement::anywhere) {
    Reserved block(heap_);
    if (!block.get(bytes, placement) || !heap_.activate(record, block.block())) return 0;
    blocks_.push_back(std::move(block));
    return blocks_.back().block();
  }
  void settle(Outcome committed) {
    for (Reserved& block : blocks_) block.settle(committed);
  }

 private:
  alloc::Heap& heap_;
  std::vector<Reserved> blocks_;
};

// Writes entries 0.. of a fresh leaf; false when space is out.
template <class Keys>
bool WbTree<Keys>::fill_leaf(Node node, Entries entries, alloc::Redo& record, Blocks& blocks) {
  Slots slots;
  slots.clear();
  Word used = 0;
  for (unsigned i = 0; i < entries.size(); ++i) {
    Word word = 0;
    if constexpr (Keys::kRecords) {
      const Offset block = blocks.get(Keys::record_bytes(entries[i].key), record);
      if (block == 0) return false;
      word = keys_.write_record(block, entries[i].key, node.kind());
    } else {
      word = entries[i].key;
    }
    c_.medium.store(&node.entry(i)->key, word);
    c_.medium.store(&node.entry(i)->value, entries[i].value);
    slots.insert(i, i);
    used |= node.bit(i);
  }
  for (unsigned i = 0; node.kind() != NodeKind::bitmap_only && i < node.slot_words(); ++i) {
    c_.medium.store(node.slot_word(i), slots.word(i));
  }
  if (node.kind() != NodeKind::slot_only) {
    c_.medium.store(node.control_word(), used | Node::empty_control(node.kind()));
  }
  c_.medium.store(node.link_word(), 0);
  c_.medium.flush(node.base(), node.shape().entries_at + entries.size() * sizeof(wbtree::Entry));
  return true;
}

// Adds the last leaf's link and the parent's entry (or a new root) to the record.
template <class Keys>
bool WbTree<Keys>::link_last(const Path& path, Offset fresh, Word separator, alloc::Redo& record,
                             Blocks& blocks) {
  const Offset last = path.steps[path.depth].node;
  record.store(c_.medium.offset_of(leaf(last).link_word()), fresh);
  if (path.depth != 0) {
    const Step& parent = path.steps[path.depth - 1];
    link_child(record, inner(parent.node), parent.position, separator, fresh);
    return true;
  }
  const Offset root = blocks.get(inner_.bytes, record, alloc::Placement::together);
  if (root == 0) return false;
  fill_root(record, inner(root), last, separator, fresh);
  record.store(c_.root_word, root | 1);
  return true;
}

// One leaf behind the last one; `before` is the last entry so far, or null for the first leaf,
// which takes the place of the empty root.
template <class Keys>
typename WbTree<Keys>::Walk WbTree<Keys>::append_leaf(Entries entries,
                                                      const everleaf::Entry<Key>* before,
                                                      Outcome& outcome) {
  outcome = Outcome::corrupt;
  const Key first = entries.front().key;
  const Probe probe = keys_.probe(first);
  Path path;
  if (const Walk walk = descend(probe, Aim::last, path); walk != Walk::there) return walk;
  unsigned level = path.depth;
  while (level > 0) {
    const Node parent = inner(path.steps[level - 1].node);
    if (!parent.full(parent.control())) break;
    --level;
  }
  if (level != path.depth) {  // the parent is full: split it, or what is full above it
    const Walk walk = split(path, level, probe, outcome);
    return outcome == Outcome::done ? Walk::retry : walk;
  }
  Blocks blocks(c_.heap);
  alloc::Redo record;
  outcome = Outcome::out_of_space;
  const Offset fresh = blocks.get(leaf_.bytes, record);
  if (fresh == 0 || !fill_leaf(leaf(fresh), entries, record, blocks)) return Walk::there;
  base::LockSet locks;
  const Step& last = path.steps[path.depth];
  bool locked = locks.try_lock(lock_of(last.node), last.version);
  if (path.depth == 0) {
    locked = locked && locks.try_lock(lock_of(c_.root_word), path.root_version);
  } else {
    const Step& parent = path.steps[path.depth - 1];
    locked = locked && locks.try_lock(lock_of(parent.node), parent.version);
  }
  const auto leave = [&](Walk walk) {
    locks.release(false);
    return walk;
  };
  if (!locked) return leave(Walk::retry);
  bool sound = true;
  if (before == nullptr) {
    record.store(c_.root_word, fresh);
    sound = c_.heap.release(record, last.node);
  } else {
    Word separator = 0;
    if constexpr (Keys::kRecords) {
      const Bytes prefix = Keys::separator(before->key, first);
      const Offset block =
          blocks.get(Keys::record_bytes(prefix), record, alloc::Placement::together);
      if (block == 0) return leave(Walk::there);
      separator = keys_.write_record(block, prefix, inner_.kind);
    } else {
      separator = first;
    }
    if (!link_last(path, fresh, separator, record, blocks)) return leave(Walk::there);
  }
  outcome = Outcome::corrupt;
  if (!sound) return leave(Walk::there);
  // Leaf and key records before the record: too many to cover one by one.
  outcome = c_.medium.fence() ? c_.redo.commit(record) : Outcome::io_error;
  blocks.settle(outcome);
  locks.release(true);
  if (outcome == Outcome::done && before == nullptr) c_.grace.retire(last.node);
  return Walk::there;
}

template <class Keys>
Outcome WbTree<Keys>::expect_empty() const {
  const alloc::Grace::Pin pin(c_.grace);
  if (!pin.ok()) return Outcome::too_many_threads;
  const Word root = pmem::load(root_word());
  if (!possible(root & ~Word{kNodeAlign - 1})) return Outcome::corrupt;
  const Node empty = leaf(root & ~Word{kNodeAlign - 1});
  const bool is_empty = root % kNodeAlign == 0 && empty.count(empty.control()) == 0;
  return is_empty ? Outcome::done : Outcome::not_empty;
}

template <class Keys>
Outcome WbTree<Keys>::bulk_load(Entries entries, double fill) {
  if (const Outcome admitted = c_.admit(); admitted != Outcome::done) return admitted;
  if (const Outcome refusal = loadable<Keys>(entries); refusal != Outcome::done) return refusal;
  if (const Outcome refusal = expect_empty(); refusal != Outcome::done) return refusal;
  const double wanted = std::clamp(fill, 0.1, 1.0) * leaf_.capacity;
  const auto each = std::max<std::size_t>(1, static_cast<std::size_t>(wanted));
  for (std::size_t done = 0; done < entries.size();) {
    const Entries chunk = entries.subspan(done, std::min(each, entries.size() - done));
    const Outcome outcome = c_.with_space([&] {
      const alloc::Grace::Pin pin(c_.grace);
      Outcome appended = Outcome::too_many_threads;
      while (pin.ok() && append_leaf(chunk, done == 0 ? nullptr : &entries[done - 1], appended) ==
                             Walk::retry) {
      }
      return appended;
    });
    if (outcome != Outcome::done) return outcome;
    done += chunk.size();
  }
  return Outcome::done;
}

template Outcome WbTree<U64Keys>::bulk_load(Entries, double);
template Outcome WbTree<BytesKeys>::bulk_load(Entries, double);

}  // namespace everleaf::tree::wbtree
