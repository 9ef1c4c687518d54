// Splits: through a backup sibling (paper, III-C and Algorithm 2), or by a new node at an end of
// the level. P5 to P7 of README.md.
#include "trees/pbtree/tree.hpp"

namespace everleaf::tree::pbtree {

// Writes a whole node: entries before `pivot_at` to the left region, the one there is the pivot. No
// entries: the pivot is content.pivot, and does not count.
template <class Keys>
void PbTree<Keys>::fill(NodeOf node, Content content, std::span<const Entry> entries,
                        unsigned pivot_at) {
  Header* const header = node.header();
  const auto put = [&](Word& word, Word value) { c_.medium.store(&word, value); };
  const bool live = !entries.empty();
  const Word pivot = live ? Keys::plain(entries[pivot_at].key) : content.pivot;
  put(header->meta, live ? content.meta | kPivotLive : content.meta);
  put(header->split_key, content.split_key);
  put(header->leftmost, content.leftmost);
  put(header->pivot_key, pivot);
  put(header->pivot_value, live ? entries[pivot_at].value : 0);
  if (content.left != kLeftStays) put(header->left, content.left);
  put(header->right, content.right);
  put(header->next_split_key, content.next_split_key);
  const unsigned in_right = live ? static_cast<unsigned>(entries.size()) - pivot_at - 1 : 0;
  const unsigned left_begin = capacity_ - (live ? pivot_at : 0);
  for (unsigned i = 0; i < capacity_; ++i) {
    Entry entry{Keys::mark(pivot), 0};
    if (i < in_right) {
      entry = entries[pivot_at + 1 + i];
      entry.key = Keys::placed(entry.key, Side::right);
    } else if (i >= left_begin) {
      entry = entries[i - left_begin];
      entry.key = Keys::placed(entry.key, Side::left);
    }
    put(node.entry(i)->value, entry.value);
    put(node.entry(i)->key, entry.key);
  }
  c_.medium.flush(node.base(), bytes_);
}

// A fresh node that the record activates, and counts with (A4).
template <class Keys>
bool PbTree<Keys>::fill_fresh(alloc::Redo& record, Offset fresh, Content content,
                              std::span<const Entry> entries, unsigned pivot_at) {
  fill(at(fresh), content, entries, pivot_at);
  record.cover(fresh, bytes_);
  return c_.heap.activate(record, fresh);
}

// A record, and what it activates.
template <class Keys>
Outcome PbTree<Keys>::commit(const alloc::Redo& record, std::initializer_list<Reserved*> blocks) {
  const Outcome outcome = c_.redo.commit(record);
  for (Reserved* const block : blocks) block->settle(outcome);
  return outcome;
}

// A copy of the key as a bound of a node: of bytes, in a record of its own, which the redo record
// covers and activates.
template <class Keys>
Outcome PbTree<Keys>::own_key(Key key, Reserved& block, alloc::Redo& record, Word& word) {
  if constexpr (Keys::kRecords) {
    if (!block.get(Keys::record_bytes(key), alloc::Placement::together)) {
      return Outcome::out_of_space;
    }
    word = keys_.write_record(block.block(), key);
    record.cover(block.block(), Keys::record_bytes(key));
    return c_.heap.activate(record, block.block()) ? Outcome::done : Outcome::corrupt;
  } else {
    word = key;
    return Outcome::done;
  }
}

// A node that is rewritten or goes: the record of a pivot that does not count goes, too, unless it
// is that of the split key.
template <class Keys>
bool PbTree<Keys>::release_pivot(NodeOf node, alloc::Redo& record, Offset& freed) {
  freed = 0;
  if constexpr (Keys::kRecords) {
    const Word pivot = node.pivot();
    if (pivot == 0 || pivot == node.split_key() || (node.meta() & kPivotLive) != 0) return true;
    freed = Keys::record_of(pivot);
    return c_.heap.release(record, freed);
  }
  return true;
}

// Inner nodes lie together if there is room. Allocating may store and fence, before any lock: the
// caller has made sure of what it read since it began. To be locked before a record links it:
// nobody may change it as long as the record that covers it is there.
template <class Keys>
bool PbTree<Keys>::reserve_node(Reserved& block, unsigned level, Seen& fresh) const {
  const bool together = level > 0 && block.get(bytes_, alloc::Placement::together);
  if (!together && !block.get(bytes_)) return false;
  fresh = see(block.block());
  return true;
}

template <class Keys>
Outcome PbTree<Keys>::split(Seen node, unsigned level) {
  Owned separator{};
  bool linked = false;
  const Outcome outcome = split_off(node, level, separator, linked);
  if (outcome != Outcome::done || !linked) return outcome;
  count(Count::splits);
  // P7: without it the sibling is found all the same.
  static_cast<void>(post(level, separator));
  return Outcome::done;
}

// Splits a full node: the sibling becomes a copy of it, with the pivot that it will have, and the
// backup while the node itself is rewritten.
template <class Keys>
Outcome PbTree<Keys>::split_off(Seen seen, unsigned level, Owned& separator_key, bool& linked) {
  const Offset offset = seen.node;
  const NodeOf node = at(offset);
  const bool is_leaf = level == 0;
  Reserved block(c_.heap);
  Reserved separator_block(c_.heap);
  Seen fresh;
  if (!reserve_node(block, level, fresh)) return Outcome::out_of_space;
  base::LockSet locks;
  if (!lock_all(locks, {seen, fresh})) return Outcome::done;
  if (unfinished(node) || !node.ends().full()) return Outcome::done;
  // Copies that a crash left (A2) may be all that fills it.
  if (const Outcome sole = drop_losers(node); sole != Outcome::done) return sole;
  if (!node.ends().full()) return Outcome::done;
  if (!c_.redo.settle(offset)) return Outcome::io_error;
  Sorted sorted;
  node.sort_into(sorted);
  const unsigned n = sorted.count;
  const Offset next = node.right();
  if (n < 4 || (next != 0 && !possible(next))) return Outcome::corrupt;
  const unsigned median = n / 2;
  alloc::Redo record;
  Word separator = Keys::plain(sorted.entries[median].key);
  if (is_leaf) {
    const Outcome owned = own_key(
        Keys::separator(keys_.key_of(sorted.entries[median - 1].key), keys_.key_of(separator)),
        separator_block, record, separator);
    if (owned != Outcome::done) return owned;
  }
  const Word meta = node.meta();
  Offset freed = 0;
  const bool sound = fill_fresh(record, fresh.node,
                                {.meta = (meta & kLevelMask) | kCopy,
                                 .split_key = node.split_key(),
                                 .leftmost = node.leftmost(),
                                 .left = offset,
                                 .right = next,
                                 .next_split_key = separator},
                                sorted.all(), n * 3 / 4) &&
                     release_pivot(node, record, freed);
  if (!sound) return Outcome::corrupt;
  // P5: from here on the sibling has everything, and nobody looks into the node. The flag comes
  // last: who sees it must see the sibling, or he would look.
  record.store(c_.medium.offset_of(&node.header()->right), fresh.node);
  if (next != 0) record.store(c_.medium.offset_of(&at(next).header()->left), fresh.node);
  record.store(c_.medium.offset_of(&node.header()->meta), (meta + kRewrite) | kSplitting);
  // What frees a block must be over before somebody else gets the block.
  Outcome outcome =
      freed == 0 ? c_.redo.commit_late(record, offset, fresh.node) : c_.redo.commit(record);
  for (Reserved* const reserved : {&block, &separator_block}) reserved->settle(outcome);
  if (outcome == Outcome::done) outcome = finish_halves(node, at(fresh.node));
  if (outcome != Outcome::done) return outcome;
  if (freed != 0) c_.grace.retire(freed);
  separator_key = Keys::own(keys_.key_of(separator));
  linked = true;
  return outcome;
}

// Entries below the split key (inner nodes: and the one at it, whose child is the leftmost) become
// free, in any order: while kCopy is set, nobody minds what lies there.
template <class Keys>
void PbTree<Keys>::trim(Edit& edit, NodeOf right, Word split_key) {
  const Word pivot = right.pivot();
  const Probe bound = Keys::probe(keys_.key_of(split_key));
  const int most = right.level() == 0 ? -1 : 0;
  for (unsigned i = 0; i < capacity_; ++i) {
    const Word word = right.key(i);
    if (!keys_.in_left(word, pivot) || keys_.compare(word, bound) > most) continue;
    edit.store(&right.entry(i)->key, Keys::mark(pivot));
    edit.step();
  }
}

// From whatever step a crash left (A5). Both nodes are locked, and no late record names them but
// that of P5.
template <class Keys>
Outcome PbTree<Keys>::finish_halves(NodeOf node, NodeOf right) {
  Header* const header = right.header();
  Word split_key = right.split_key();
  const bool committed = split_key != node.split_key();
  if (!committed) {
    split_key = right.next_split_key();
    Sorted sorted;
    right.sort_into(sorted);
    const Probe bound = Keys::probe(keys_.key_of(split_key));
    unsigned keep = 0;
    while (keep < sorted.count && keys_.compare(sorted.entries[keep].key, bound) < 0) ++keep;
    if (keep == 0 || keep == sorted.count) return Outcome::corrupt;
    fill(node,
         {.meta = node.meta() & ~kPivotLive,
          .split_key = node.split_key(),
          .leftmost = node.leftmost(),
          .pivot = 0,
          .left = kLeftStays,  // the left sibling's to change, whose lock is not held (I3)
          .right = node.right(),
          .next_split_key = node.split_key()},
         sorted.all().first(keep), keep / 2);
  }
  // P6. In any prefix: the commit, then what waits for it.
  Edit edit(c_, offset_of(node), Edit::kManyLines, offset_of(right));
  if (!committed) {
    // The lower half counts with the commit. But for its links, which are others' to change.
    edit.cover(&node.header()->split_key, sizeof(Word) * 4);
    edit.cover(node.entry(0), capacity_ * sizeof(Entry));
    edit.store(&node.header()->meta, node.meta());  // or P5 would bring the old one back
    edit.store(&header->split_key, split_key);
  }
  if (node.level() > 0) {
    // The median's child before its entry goes.
    const Place place = right.find(Keys::probe(keys_.key_of(split_key)));
    if (place.found) edit.store(&header->leftmost, pmem::load(right.value_word(place)));
  }
  trim(edit, right, split_key);
  edit.store(&node.header()->meta, node.meta() & ~kSplitting);
  edit.store(&header->meta, right.meta() & ~kCopy);
  return edit.finish();
}

// Finishes the split of which the node is a half.
template <class Keys>
Outcome PbTree<Keys>::finish_split(Offset offset) {
  const Offset left = (at(offset).meta() & kCopy) != 0 ? at(offset).left() : offset;
  if (!possible(left)) return Outcome::corrupt;
  const Seen seen = see(left);
  const Offset right = at(left).right();
  if (!possible(right)) {
    return lock_of(left).unchanged(seen.version) ? Outcome::corrupt : Outcome::done;
  }
  base::LockSet locks;
  if (!lock_all(locks, {seen, see(right)})) return Outcome::done;
  // Somebody was faster; or, in a damaged pool, the two do not belong to each other. These are the
  // flags that finish_halves() clears: with any other one it could be asked for ever.
  if ((at(left).meta() & kSplitting) == 0 && (at(right).meta() & kCopy) == 0) {
    return unfinished(at(offset)) && at(offset).left() == left ? Outcome::corrupt : Outcome::done;
  }
  for (const Offset half : {left, right}) {
    if (!c_.redo.settle(half)) return Outcome::io_error;
  }
  count(Count::finished_splits);
  return finish_halves(at(left), at(right));
}

// The fresh leaf of append(), and the links of its neighbour.
template <class Keys>
Outcome PbTree<Keys>::fill_appended(alloc::Redo& record, const Found& found, Side side,
                                    Offset fresh, Entry entry, Reserved& separator_block,
                                    Word& separator) {
  const NodeOf node = at(found.node);
  const bool right = side == Side::right;
  const Key key = keys_.key_of(entry.key);
  Sorted sorted;
  node.sort_into(sorted);
  if (sorted.count == 0) return Outcome::corrupt;
  const Key edge = keys_.key_of(sorted.entries[right ? sorted.count - 1 : 0].key);
  if (right ? !(edge < key) : !(key < edge)) return Outcome::corrupt;
  const Outcome owned = own_key(right ? Keys::separator(edge, key) : Keys::separator(key, edge),
                                separator_block, record, separator);
  if (owned != Outcome::done) return owned;
  const Word split_key = right ? separator : node.split_key();
  const bool sound = fill_fresh(record, fresh,
                                {.split_key = split_key,
                                 .left = right ? found.node : 0,
                                 .right = right ? 0 : found.node,
                                 .next_split_key = split_key},
                                {&entry, 1}, 0);
  link_appended(record, node, side, fresh, separator);
  return sound ? Outcome::done : Outcome::corrupt;
}

// P11: what becomes of the node that was at this end of its level.
template <class Keys>
void PbTree<Keys>::link_appended(alloc::Redo& record, NodeOf node, Side side, Offset fresh,
                                 Word separator) {
  const auto set = [&](Word& word, Word value) { record.store(c_.medium.offset_of(&word), value); };
  Header& header = *node.header();
  if (side == Side::right) return set(header.right, fresh);
  set(header.left, fresh);
  set(header.split_key, separator);
  set(header.next_split_key, separator);
}

// P11: a leaf behind the last one or before the first one takes the new key alone: rising and
// falling keys fill their leaves, and none is copied.
template <class Keys>
Outcome PbTree<Keys>::append(const Found& found, Side side, Key key, std::uint64_t value,
                             Reserved& key_block, bool& appended) {
  Reserved block(c_.heap);
  Reserved separator_block(c_.heap);
  Seen fresh;
  if (!reserve_node(block, 0, fresh)) return Outcome::out_of_space;
  if (Keys::kRecords && !key_block.get(Keys::record_bytes(key))) return Outcome::out_of_space;
  base::LockSet locks;
  if (!lock_all(locks, {found, fresh})) return Outcome::done;
  if (!c_.redo.settle(found.node)) return Outcome::io_error;
  alloc::Redo record;
  Entry entry{0, value};
  Word separator = 0;
  Outcome outcome = own_key(key, key_block, record, entry.key);
  if (outcome == Outcome::done) {
    outcome = fill_appended(record, found, side, fresh.node, entry, separator_block, separator);
  }
  if (outcome != Outcome::done) return outcome;
  outcome = commit(record, {&block, &separator_block, &key_block});
  locks.release(true);
  appended = true;  // or it failed: not to be tried again
  if (outcome == Outcome::done) {
    count(Count::appended_nodes);
    // Not needed for what was asked (A6).
    if_memory([&] { static_cast<void>(post(0, Keys::own(keys_.key_of(separator)))); });
  }
  return outcome;
}

template void PbTree<U64Keys>::fill(NodeOf, Content, std::span<const Entry>, unsigned);
template void PbTree<BytesKeys>::fill(NodeOf, Content, std::span<const Entry>, unsigned);
template bool PbTree<U64Keys>::fill_fresh(alloc::Redo&, Offset, Content, std::span<const Entry>,
                                          unsigned);
template bool PbTree<BytesKeys>::fill_fresh(alloc::Redo&, Offset, Content, std::span<const Entry>,
                                            unsigned);
template Outcome PbTree<U64Keys>::commit(const alloc::Redo&, std::initializer_list<Reserved*>);
template Outcome PbTree<BytesKeys>::commit(const alloc::Redo&, std::initializer_list<Reserved*>);
template Outcome PbTree<U64Keys>::own_key(Key, Reserved&, alloc::Redo&, Word&);
template Outcome PbTree<BytesKeys>::own_key(Key, Reserved&, alloc::Redo&, Word&);
template bool PbTree<U64Keys>::release_pivot(NodeOf, alloc::Redo&, Offset&);
template bool PbTree<BytesKeys>::release_pivot(NodeOf, alloc::Redo&, Offset&);
template void PbTree<U64Keys>::link_appended(alloc::Redo&, NodeOf, Side, Offset, Word);
template void PbTree<BytesKeys>::link_appended(alloc::Redo&, NodeOf, Side, Offset, Word);
template bool PbTree<U64Keys>::reserve_node(Reserved&, unsigned, Seen&) const;
template bool PbTree<BytesKeys>::reserve_node(Reserved&, unsigned, Seen&) const;
template Outcome PbTree<U64Keys>::split(Seen, unsigned);
template Outcome PbTree<BytesKeys>::split(Seen, unsigned);
template Outcome PbTree<U64Keys>::finish_split(Offset);
template Outcome PbTree<BytesKeys>::finish_split(Offset);
template Outcome PbTree<U64Keys>::append(const Found&, Side, Key, std::uint64_t, Reserved&, bool&);
template Outcome PbTree<BytesKeys>::append(const Found&, Side, Key, std::uint64_t, Reserved&,
                                           bool&);

}  // namespace everleaf::tree::pbtree
