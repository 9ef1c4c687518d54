// Insert, update, upsert and remove inside one leaf: failure-atomic shifts (paper, Algorithm 1 and
// III-A). The steps P1..P4 are those of README.md.
#include <algorithm>

#include "trees/pbtree/tree.hpp"

namespace everleaf::tree::pbtree {

template <class Keys>
Outcome PbTree<Keys>::write(Key key, std::uint64_t value, Write what) {
  if (const Outcome admitted = c_.admit(what, Keys::too_long(key)); admitted != Outcome::done) {
    return admitted;
  }
  if (what == Write::remove) return remove(key);
  return c_.with_space([&] { return put(key, value, what, Batch::none); });
}

// Several leaves, seen wholly or not at all (paper, III-D). The paper holds the leaves' latches for
// that; here a gate is closed, since leaves split while the batch runs.
template <class Keys>
Outcome PbTree<Keys>::insert_all(Entries entries) {
  if (const Outcome admitted = c_.admit(); admitted != Outcome::done) return admitted;
  // A mutex may go to the same thread again and again: those who wait for the last batch come
  // first.
  for (unsigned round = 0; late_.load(std::memory_order_relaxed) != 0; ++round)
    base::wait_a_little(round);
  const base::MutexGuard guard(batches_);
  while (!gate_.try_lock(gate_.begin())) {  // at once: nobody else locks it
  }
  const base::Unlock open_again(gate_);
  Outcome outcome = Outcome::done;
  for (std::size_t i = 0; i < entries.size() && outcome == Outcome::done; ++i) {
    const auto& [key, value] = entries[i];
    outcome = c_.admit(Write::insert, Keys::too_long(key));
    if (outcome != Outcome::done) break;
    outcome = c_.with_space([&] { return put(key, value, Write::insert, Batch::own); });
  }
  return outcome;
}

// Moves the entries on the outer side of the place away from it, one by one, the outermost first;
// of each the value, then the key. Afterwards place.slot is free: it holds a copy of its neighbour,
// which loses against the one nearer to the free entries, or the mark. In a damaged node, too, it
// stays inside.
template <class Keys>
void PbTree<Keys>::make_gap(Edit& edit, NodeOf node, Ends ends, Place& place) const {
  const auto move = [&](unsigned from, unsigned to) {
    edit.store(&node.entry(to)->value, node.value(from));
    edit.store(&node.entry(to)->key, node.key(from));
    edit.step();
  };
  if (place.side == Side::right) {
    place.slot = std::min(place.slot, ends.right_end);
    for (unsigned i = ends.right_end; i > place.slot; --i) move(i - 1, i);
  } else {
    place.slot = std::max(place.slot, ends.left_begin);
    for (unsigned i = ends.left_begin; i < place.slot; ++i) move(i, i - 1);
    --place.slot;
  }
}

// The reverse, from the place outwards; of each entry the key, then the value: from its key on, the
// removed entry is a copy that loses. The outermost one becomes free.
template <class Keys>
void PbTree<Keys>::close_gap(Edit& edit, NodeOf node, unsigned last, const Place& place,
                             bool first_is_stored) const {
  const bool right = place.side == Side::right;
  for (unsigned to = place.slot; right ? to < last : to > last; to = right ? to + 1 : to - 1) {
    const unsigned from = right ? to + 1 : to - 1;
    if (to != place.slot || !first_is_stored) edit.store(&node.entry(to)->key, node.key(from));
    edit.store(&node.entry(to)->value, node.value(from));
    edit.step();
  }
  edit.store(&node.entry(last)->key, Keys::mark(node.pivot()));
}

// Takes out the copies that a crash left (A2) among the entries from slot `from` outwards: a shift
// that passes them would show what they say. The outermost one first, so that none is passed.
template <class Keys>
Outcome PbTree<Keys>::drop_losers(NodeOf node, Side side, unsigned from) {
  const bool right = side == Side::right;
  const auto inner = [&](unsigned i) { return right ? i - 1 : i + 1; };
  const auto [right_end, left_begin] = node.ends();
  if (right ? right_end == 0 : left_begin == capacity_) return Outcome::done;
  unsigned last = right ? right_end - 1 : left_begin;
  from = std::min(from, capacity_ - 1);
  for (unsigned i = last; right ? i > from : i < from; i = inner(i)) {
    if (node.key(i) != node.key(inner(i))) continue;
    const Place loser{side, false, true, false, false, inner(i)};
    Edit edit(c_, offset_of(node), node.lines(loser.slot, last));
    close_gap(edit, node, last, loser, false);
    if (const Outcome outcome = edit.finish(); outcome != Outcome::done) return outcome;
    last = inner(last);
  }
  return Outcome::done;
}

// Both regions.
template <class Keys>
Outcome PbTree<Keys>::drop_losers(NodeOf node) {
  const Outcome outcome = drop_losers(node, Side::right, 0);
  return outcome == Outcome::done ? drop_losers(node, Side::left, capacity_ - 1) : outcome;
}

// A key that is not there. The caller holds the lock, and the node has a free entry. `record`: of a
// bytes key, filled and flushed.
template <class Keys>
Outcome PbTree<Keys>::add(NodeOf node, Place place, Word key, Word value, Reserved& record) {
  const bool right = place.side == Side::right;
  const unsigned nearest = right ? place.slot : place.slot - 1;  // of those that move
  if (const Outcome sole = drop_losers(node, place.side, nearest); sole != Outcome::done)
    return sole;
  const Ends ends = node.ends();
  // It had room before the record was written: into the node itself, if damage shares them.
  if (ends.full()) return Outcome::corrupt;
  Edit edit(c_, offset_of(node),
            Keys::kRecords ? Edit::kManyLines
            : right        ? node.lines(place.slot, ends.right_end)
                           : node.lines(place.slot - 1, ends.left_begin - 1));
  make_gap(edit, node, ends, place);
  Entry* const entry = node.entry(place.slot);
  key = Keys::placed(key, place.side);
  if constexpr (Keys::kRecords) {
    // P3: entry and allocation of its record in one redo record (A3, A4)
    alloc::Redo& redo = edit.record();
    const Offset block = Keys::record_of(key);
    redo.cover(block, Keys::record_bytes(keys_.key_of(key)));
    if (!c_.heap.activate(redo, block)) return Outcome::corrupt;
    redo.store(c_.medium.offset_of(&entry->value), value);
    redo.store(c_.medium.offset_of(&entry->key), key);
    const Outcome outcome = edit.commit();
    record.settle(outcome);
    return outcome;
  }
  edit.store(&entry->value, value);
  edit.store(&entry->key, key);
  return edit.finish();
}

// Takes out a key that is there. Its copies that a crash left (A2) go first, or one of them would
// come back. `freed`: the key's record, to be retired.
template <class Keys>
Outcome PbTree<Keys>::drop(NodeOf node, Place place, Offset& freed) {
  freed = 0;
  const Word key = node.key(place.slot);
  const bool right = place.side == Side::right;
  while (right ? place.slot != 0 && node.key(place.slot - 1) == key
               : place.slot + 1 < capacity_ && node.key(place.slot + 1) == key) {
    place.slot = right ? place.slot - 1 : place.slot + 1;
  }
  if (const Outcome sole = drop_losers(node, place.side, place.slot); sole != Outcome::done)
    return sole;
  const unsigned last = node.ends().outermost(place.side);
  // What drop_losers() moved may have opened gaps in a damaged node; nothing is behind its end.
  if (last >= capacity_ || (right ? place.slot > last : place.slot < last)) return Outcome::corrupt;
  if constexpr (Keys::kRecords) {
    // P3: the store that hides the entry and the freeing of its record in one redo record
    const bool outermost = right ? place.slot >= last : place.slot <= last;
    const unsigned from = right ? place.slot + 1 : place.slot - 1;
    const Word hiding = outermost ? Keys::mark(node.pivot()) : node.key(from);
    freed = Keys::record_of(key);
    if (!c_.redo.settle(offset_of(node))) return Outcome::io_error;
    alloc::Redo redo;
    if (!c_.heap.release(redo, freed)) return Outcome::corrupt;
    redo.store(c_.medium.offset_of(&node.entry(place.slot)->key), hiding);
    const Outcome outcome = c_.redo.commit(redo);
    if (outcome != Outcome::done || outermost) return outcome;
  }
  Edit edit(c_, offset_of(node), node.lines(place.slot, last));
  close_gap(edit, node, last, place, Keys::kRecords);
  return edit.finish();
}

// P4: the pivot's value, then the bit that says that it counts.
template <class Keys>
Outcome PbTree<Keys>::set_pivot(NodeOf node, bool live, Word value) {
  Edit edit(c_, offset_of(node), 1);
  if (live) edit.store(&node.header()->pivot_value, value);
  const Word meta = node.meta() & ~kPivotLive;
  edit.store(&node.header()->meta, live ? meta | kPivotLive : meta);
  return edit.finish();
}

// A pivot whose word is that of the split key gets a record of its own as soon as it counts.
template <class Keys>
Outcome PbTree<Keys>::own_pivot(NodeOf node, Key key, Word value, Reserved& record) {
  if (!c_.redo.settle(offset_of(node))) return Outcome::io_error;
  alloc::Redo redo;
  Word word = 0;
  const Outcome owned = own_key(key, record, redo, word);
  if (owned != Outcome::done) return owned;
  Header* const header = node.header();
  redo.store(c_.medium.offset_of(&header->pivot_key), word);
  redo.store(c_.medium.offset_of(&header->pivot_value), value);
  redo.store(c_.medium.offset_of(&header->meta), node.meta() | kPivotLive);
  const Outcome outcome = c_.redo.commit(redo);
  record.settle(outcome);
  return outcome;
}

// Under the leaf's lock; the key is there (its value changes) or has room.
template <class Keys>
Outcome PbTree<Keys>::change(const Found& found, Key key, std::uint64_t value, Reserved& record) {
  const NodeOf node = at(found.node);
  const Place& place = found.place;
  if (place.found) {
    Edit edit(c_, found.node, 1);  // P2
    edit.store(node.value_word(place), value);
    return edit.finish();
  }
  if (place.pivot && !borrowed_pivot(node)) return set_pivot(node, true, value);
  if (place.pivot) return own_pivot(node, key, value, record);
  return add(node, place, keys_.write_record(record.block(), key), value, record);
}

template <class Keys>
Outcome PbTree<Keys>::put(Key key, std::uint64_t value, Write what, Batch batch) {
  const Probe probe = Keys::probe(key);
  Reserved record(c_.heap);
  Turn turn(*this);
  unsigned finished = 0;
  while (true) {
    const std::uint64_t gate = batch == Batch::none ? turn.begin() : 0;
    const alloc::Grace::Pin pin(c_.grace);
    if (!pin.ok()) return Outcome::too_many_threads;
    Found found;
    if (descend(probe, 0, found) != Walk::there) return Outcome::corrupt;
    base::VersionLock& lock = lock_of(found.node);
    const NodeOf node = at(found.node);
    const Place& place = found.place;
    const Outcome refused = detail::refusal(what, place.found);
    const bool pending = unfinished(node);
    const bool split_first = !place.found && !place.pivot && node.ends().full();
    if (refused != Outcome::done || pending || split_first || probe.bad) {
      const bool last = node.right() == 0 && !place.above;
      const bool first = node.left() == 0 && !place.below;
      if (!lock.unchanged(found.version) || gate_moved(gate, batch)) continue;
      if (probe.bad) return Outcome::corrupt;
      if (refused != Outcome::done) return refused;
      Outcome outcome = Outcome::done;
      if (pending) {
        outcome = ++finished > kMostFinished ? Outcome::corrupt : finish_split(found.node);
      } else if (last || first) {
        bool appended = false;
        outcome = append(found, last ? Side::right : Side::left, key, value, record, appended);
        if (appended) return outcome;
      } else {
        outcome = split(found, 0);
      }
      if (outcome != Outcome::done) return outcome;
      continue;
    }
    if constexpr (Keys::kRecords) {
      if (!place.found && (!place.pivot || borrowed_pivot(node))) {
        if (!lock.unchanged(found.version)) continue;
        if (!record.get(Keys::record_bytes(key))) return Outcome::out_of_space;
      }
    }
    if (!lock.try_lock(found.version)) continue;
    Outcome outcome = Outcome::done;
    {
      const base::Unlock unlock(lock);
      if (gate_moved(gate, batch)) continue;
      outcome = change(found, key, value, record);
    }
    if (found.stray != 0) if_memory([&] { mend(found); });
    return outcome;
  }
}

// A crash came between a split and its entry in the parent (A6); or another thread is just there.
template <class Keys>
void PbTree<Keys>::mend(const Found& found) {
  const NodeOf stray = at(found.stray);
  if (unfinished(stray) && finish_split(found.stray) != Outcome::done) return;
  const Word word = stray.split_key();
  if (!keys_.readable(word)) return;
  count(Count::late_parent_entries);
  // Not needed for what was asked: if space is out, the next one tries.
  static_cast<void>(post(found.stray_level, Keys::own(keys_.key_of(word))));
}

template <class Keys>
Outcome PbTree<Keys>::remove(Key key) {
  bool underflow = false;
  const Outcome outcome = take_out(key, underflow);
  if (!underflow) return outcome;
  if_memory([&] {
    if (rebalance(key)) return;
    c_.grace.collect_all();
    static_cast<void>(rebalance(key));
  });
  return outcome;
}

template <class Keys>
Outcome PbTree<Keys>::take_out(Key key, bool& underflow) {
  const Probe probe = Keys::probe(key);
  Turn turn(*this);
  unsigned finished = 0;
  while (true) {
    const std::uint64_t gate = turn.begin();
    const alloc::Grace::Pin pin(c_.grace);
    if (!pin.ok()) return Outcome::too_many_threads;
    Found found;
    if (descend(probe, 0, found) != Walk::there) return Outcome::corrupt;
    base::VersionLock& lock = lock_of(found.node);
    const NodeOf node = at(found.node);
    const bool pending = unfinished(node);
    if (!found.place.found || pending || probe.bad) {
      if (!lock.unchanged(found.version) || !gate_.unchanged(gate)) continue;
      if (probe.bad) return Outcome::corrupt;
      if (!found.place.found) return Outcome::absent;
      if (++finished > kMostFinished) return Outcome::corrupt;
      if (const Outcome done = finish_split(found.node); done != Outcome::done) return done;
      continue;
    }
    if (!lock.try_lock(found.version)) continue;
    Offset freed = 0;
    Outcome outcome = Outcome::done;
    {
      const base::Unlock unlock(lock);
      if (!gate_.unchanged(gate)) continue;
      outcome = found.place.pivot ? set_pivot(node, false, 0) : drop(node, found.place, freed);
      underflow = outcome == Outcome::done && sparse(node.used());
    }
    if (freed != 0 && outcome == Outcome::done) c_.grace.retire(freed);
    if (found.stray != 0) if_memory([&] { mend(found); });
    return outcome;
  }
}

template Outcome PbTree<U64Keys>::write(std::uint64_t, std::uint64_t, Write);
template Outcome PbTree<BytesKeys>::write(Bytes, std::uint64_t, Write);
template Outcome PbTree<U64Keys>::insert_all(Entries);
template Outcome PbTree<BytesKeys>::insert_all(Entries);
template Outcome PbTree<U64Keys>::add(NodeOf, Place, Word, Word, Reserved&);
template Outcome PbTree<BytesKeys>::add(NodeOf, Place, Word, Word, Reserved&);
template Outcome PbTree<U64Keys>::drop_losers(NodeOf);
template Outcome PbTree<BytesKeys>::drop_losers(NodeOf);
template Outcome PbTree<U64Keys>::drop(NodeOf, Place, Offset&);
template Outcome PbTree<BytesKeys>::drop(NodeOf, Place, Offset&);
template Outcome PbTree<U64Keys>::set_pivot(NodeOf, bool, Word);
template Outcome PbTree<BytesKeys>::set_pivot(NodeOf, bool, Word);

}  // namespace everleaf::tree::pbtree
