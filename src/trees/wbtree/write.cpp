// Insert, update, upsert and remove inside one leaf: paper, Figures 9 and 10, sections 4.3 and 4.4.
// The steps P1..P6 are those of README.md. A crash before P1 or P3 is durable is case A1.
#include "trees/wbtree/tree.hpp"

namespace everleaf::tree::wbtree {

template <class Keys>
Outcome WbTree<Keys>::write(Key key, std::uint64_t value, Write what) {
  if (const Outcome admitted = c_.admit(what, Keys::too_long(key)); admitted != Outcome::done) {
    return admitted;
  }
  if (what == Write::remove) return remove(key);
  return c_.with_space([&] { return put(key, value, what); });
}

template <class Keys>
Outcome WbTree<Keys>::put(Key key, std::uint64_t value, Write what) {
  const alloc::Grace::Pin pin(c_.grace);
  if (!pin.ok()) return Outcome::too_many_threads;
  const Probe probe = keys_.probe(key);
  Reserved record(c_.heap);
  while (true) {
    Place place;
    const Walk walk = descend(probe, place);
    if (walk == Walk::corrupt) return Outcome::corrupt;
    if (walk == Walk::retry) continue;
    base::VersionLock& lock = *place.lock;
    const Node node = leaf(place.node);
    Hit hit;
    search_leaf(place.node, probe, lock, place.version, hit);
    const Outcome refused = detail::refusal(what, hit.found);
    const bool full = !hit.found && node.full(hit.control);
    if (refused != Outcome::done || full || probe.bad) {
      if (!lock.unchanged(place.version)) continue;
      if (probe.bad) return Outcome::corrupt;
      if (refused != Outcome::done) return refused;
      if (const Outcome room = make_room(probe); room != Outcome::done) return room;
      continue;
    }
    if constexpr (Keys::kRecords) {
      if (!hit.found) {
        // Allocating may store and fence, before the lock: what was read is made sure of first.
        if (!lock.unchanged(place.version)) continue;
        if (!record.get(Keys::record_bytes(key))) return Outcome::out_of_space;
      }
    }
    if (!lock.try_lock(place.version)) continue;
    const base::Unlock unlock(lock);
    return hit.found ? store_value(node, hit, value) : insert_entry(node, hit, key, record, value);
  }
}

// A failed fence: what was not made durable is not acknowledged, and nothing more is stored.
constexpr Outcome durable(bool fenced) {
  return fenced ? Outcome::done : Outcome::io_error;
}

template <class Keys>
Outcome WbTree<Keys>::store_value(Node node, const Hit& hit, std::uint64_t value) {
  if (!repair_slots(node)) return Outcome::io_error;
  Word* const word = &node.entry(hit.entry)->value;
  c_.medium.store(word, value);
  return durable(c_.medium.persist(word, sizeof(Word)));  // P6: durable before anybody sees it
}

// P1: durable before the slot array changes.
template <class Keys>
bool WbTree<Keys>::invalidate_slots(Node node, Word control) {
  if (node.kind() != NodeKind::slot_bitmap || (control & 1) == 0) return true;
  c_.medium.store(node.control_word(), control & ~Word{1});
  return c_.medium.persist(node.control_word(), sizeof(Word));
}

template <class Keys>
Outcome WbTree<Keys>::insert_entry(Node node, Hit& hit, Key key, Reserved& record,
                                   std::uint64_t value) {
  const unsigned u = node.free_entry(hit.control);
  if (node.kind() != NodeKind::bitmap_only) hit.slots.insert(hit.position, u);
  const Word added = node.bit(u);
  const Word after = hit.control | added | Node::empty_control(node.kind());
  Word word = 0;
  if constexpr (Keys::kRecords) {
    word = keys_.write_record(record.block(), key, node.kind());
  } else {
    word = key;
  }
  Entry* const entry = node.entry(u);
  const auto write_entry = [&] {
    c_.medium.store(&entry->key, word);
    c_.medium.store(&entry->value, value);
    c_.medium.flush(entry, sizeof(Entry));
  };
  if constexpr (Keys::kRecords) {
    // P5: the record's allocation and the leaf change together.
    write_entry();
    alloc::Redo redo;
    redo.cover(record.block(), Keys::record_bytes(key));
    redo.cover(c_.medium.offset_of(entry), sizeof(Entry));
    if (!c_.heap.activate(redo, record.block())) return Outcome::corrupt;
    if (node.kind() != NodeKind::bitmap_only) log_slots(redo, node, hit.slots);
    if (node.kind() != NodeKind::slot_only) {
      redo.store(c_.medium.offset_of(node.control_word()), after);
    }
    const Outcome outcome = c_.redo.commit(redo);
    record.settle(outcome);
    return outcome;
  }
  if (!invalidate_slots(node, hit.control)) return Outcome::io_error;
  write_entry();
  return commit_in_place(node, hit.slots, hit.control, after);
}

// P2 and P3: what was prepared becomes valid by one word. For slot+bitmap nodes bit 0 is durably
// clear.
template <class Keys>
Outcome WbTree<Keys>::commit_in_place(Node node, const Slots& slots, Word before, Word after) {
  if (node.kind() == NodeKind::slot_only) {
    const bool added = slots.count() > (before & 0xFF);
    if (added && !c_.medium.fence()) return Outcome::io_error;  // P2: the entry before its slot
    write_slots(node, slots);
    return durable(c_.medium.fence());  // P3: durable before anybody sees it
  }
  if (node.kind() == NodeKind::slot_bitmap) {
    write_slots(node, slots);
    // P2: entry and slot array before the bits that vouch for them
    if (!c_.medium.fence()) return Outcome::io_error;
  } else if ((after & ~before) != 0) {
    if (!c_.medium.fence()) return Outcome::io_error;  // P2: the entry before its bit
  }
  c_.medium.store(node.control_word(), after);
  return durable(c_.medium.persist(node.control_word(), sizeof(Word)));  // P3
}

// P4: a crash left the slot array invalid (A2); the next writer rebuilds it. Another crash here
// (A3) finds bit 0 clear again. False: a write-back failed.
template <class Keys>
bool WbTree<Keys>::repair_slots(Node node) {
  const Word control = node.control();
  if (node.kind() != NodeKind::slot_bitmap || (control & 1) != 0) return true;
  Slots slots;
  node.sort_slots(keys_, control, slots);
  write_slots(node, slots);
  if (!c_.medium.fence()) return false;  // P4: the array before bit 0
  c_.medium.store(node.control_word(), control | 1);
  // crash: flush stays: who loses it repairs again (A3); a bit that is read is durable everywhere
  // crash: fence stays: as the flush
  return c_.medium.persist(node.control_word(), sizeof(Word));
}

// Stores and flushes the slot words that differ from the node's.
template <class Keys>
void WbTree<Keys>::write_slots(Node node, const Slots& slots) {
  for (unsigned i = 0; i < slots.words(); ++i) {
    const Word now = pmem::load(node.slot_word(i));
    const Word wanted = slots.word(i);
    if (now != wanted) c_.medium.store(node.slot_word(i), wanted, node.slot_bytes(now, wanted));
  }
  c_.medium.flush(node.slot_word(0), slots.words() * sizeof(Word));
}

template <class Keys>
void WbTree<Keys>::log_slots(alloc::Redo& record, Node node, const Slots& slots) const {
  for (unsigned i = 0; i < slots.words(); ++i) {
    const Word now = pmem::load(node.slot_word(i));
    const Word wanted = slots.word(i);
    if (now != wanted) {
      record.store(c_.medium.offset_of(node.slot_word(i)), wanted, node.slot_bytes(now, wanted));
    }
  }
}

// Adds the freeing of a key record to the redo record; false if there is no such block.
template <class Keys>
bool WbTree<Keys>::release_record(alloc::Redo& record, Word key, Offset& block) {
  block = 0;
  if constexpr (Keys::kRecords) {
    block = Keys::record_of(key);
    return c_.heap.release(record, block);
  }
  return true;
}

template <class Keys>
Outcome WbTree<Keys>::remove(Key key) {
  const alloc::Grace::Pin pin(c_.grace);
  if (!pin.ok()) return Outcome::too_many_threads;
  const Probe probe = keys_.probe(key);
  while (true) {
    Place place;
    const Walk walk = descend(probe, place);
    if (walk == Walk::corrupt) return Outcome::corrupt;
    if (walk == Walk::retry) continue;
    base::VersionLock& lock = *place.lock;
    const Node node = leaf(place.node);
    Hit hit;
    search_leaf(place.node, probe, lock, place.version, hit);
    if (!hit.found || probe.bad) {
      if (!lock.unchanged(place.version)) continue;
      return probe.bad ? Outcome::corrupt : Outcome::absent;
    }
    if (node.count(hit.control) == 1 && !place.is_root) {
      // The last entry goes together with its leaf (I3).
      Outcome outcome = Outcome::done;
      if (unlink(probe, outcome) == Walk::retry) continue;
      return outcome;
    }
    if (!lock.try_lock(place.version)) continue;
    const base::Unlock unlock(lock);
    return remove_entry(node, hit);
  }
}

template <class Keys>
Outcome WbTree<Keys>::remove_entry(Node node, Hit& hit) {
  const Word key = node.key(hit.entry);
  if (node.kind() != NodeKind::bitmap_only) hit.slots.erase(hit.position);
  const Word bit = node.bit(hit.entry);
  const Word after = (hit.control & ~bit) | Node::empty_control(node.kind());
  if constexpr (Keys::kRecords) {
    // P5: the record's freeing and the leaf change together.
    alloc::Redo redo;
    Offset block = 0;
    if (!release_record(redo, key, block)) return Outcome::corrupt;
    if (node.kind() != NodeKind::bitmap_only) log_slots(redo, node, hit.slots);
    if (node.kind() != NodeKind::slot_only) {
      redo.store(c_.medium.offset_of(node.control_word()), after);
    }
    const Outcome outcome = c_.redo.commit(redo);
    if (outcome == Outcome::done) c_.grace.retire(block);
    return outcome;
  }
  if (!invalidate_slots(node, hit.control)) return Outcome::io_error;
  return commit_in_place(node, hit.slots, hit.control, after);
}

template Outcome WbTree<U64Keys>::write(std::uint64_t, std::uint64_t, Write);
template Outcome WbTree<BytesKeys>::write(Bytes, std::uint64_t, Write);
template void WbTree<U64Keys>::log_slots(alloc::Redo&, Node, const Slots&) const;
template void WbTree<BytesKeys>::log_slots(alloc::Redo&, Node, const Slots&) const;
template bool WbTree<U64Keys>::release_record(alloc::Redo&, Word, Offset&);
template bool WbTree<BytesKeys>::release_record(alloc::Redo&, Word, Offset&);

}  // namespace everleaf::tree::wbtree
