// Insert, update, upsert and remove inside one leaf: D3 and D4 of README.md. P2: no flush, no
// fence; what is stored here is whole or erased after a crash (A2).
#include <algorithm>
#include <new>

#include "trees/bdtree/tree.hpp"

namespace everleaf::tree::bdtree {
namespace {

constexpr unsigned kNotedShift = 32;  // of the noted lines in the last word of the fingerprints
constexpr std::size_t kNotes = 8;     // of an operation in one leaf

constexpr std::size_t lines_of(std::size_t bytes) {
  return bytes / pmem::kLine + 2;
}

template <class Keys, class Insertion>
Word word_of(const Insertion& insertion, const typename Keys::Probe& probe) {
  if constexpr (Keys::kRecords) {
    return insertion.word;
  } else {
    return probe.key;
  }
}

}  // namespace

template <class Keys>
Outcome BdTree<Keys>::write(Key key, std::uint64_t value, Write what) {
  if (const Outcome admitted = c_.admit(what, Keys::too_long(key)); admitted != Outcome::done) {
    return admitted;
  }
  Insertion insertion(space_, kMaxSlots);
  return put(key, value, what, insertion);
}

template <class Keys>
Outcome BdTree<Keys>::exchange(Key key, std::uint64_t value, Write what,
                               std::optional<std::uint64_t>& old) {
  old.reset();
  if (const Outcome admitted = c_.admit(what, Keys::too_long(key)); admitted != Outcome::done) {
    return admitted;
  }
  Insertion insertion(space_, kMaxSlots);
  const Outcome outcome = put(key, value, what, insertion);
  old = insertion.old;
  return outcome;
}

template <class Keys>
Outcome BdTree<Keys>::put(Key key, std::uint64_t value, Write what, Insertion& insertion) {
  try {
    bool tried = false;
    while (true) {
      Attempt is = attempt(key, value, what, insertion);
      while (is.next == Next::split || is.next == Next::unlink) {
        const Next wanted = is.next;
        const Outcome outcome = is.outcome;
        is = wanted == Next::split ? split(key, insertion.most) : unlink_or_leave(key);
        if (is.next == Next::again) is = {wanted, outcome};
        // The key is gone whatever becomes of its leaf.
        if (is.next == Next::done && wanted == Next::unlink) return outcome;
        if (is.next == Next::done && is.outcome == Outcome::done) is.next = Next::again;
      }
      if (is.next == Next::done) return is.outcome;
      if (is.next != Next::grow) continue;
      if (const Outcome outcome = more_space(is.bytes, tried); outcome != Outcome::done) {
        return outcome;
      }
    }
  } catch (const std::bad_alloc&) {
    return Outcome::out_of_space;  // nothing was changed: memory is taken before the first store
  }
}

// The key is gone already: an empty leaf that stays for lack of memory is no refusal.
template <class Keys>
typename BdTree<Keys>::Attempt BdTree<Keys>::unlink_or_leave(Key key) {
  try {
    return unlink(key);
  } catch (const std::bad_alloc&) {
    return answer(Outcome::done);
  }
}

// Not within a section or a pin. What is free two epochs from now will do, once.
template <class Keys>
Outcome BdTree<Keys>::more_space(std::size_t bytes, bool& tried) {
  const Outcome grown = space_.grow(bytes);  // P3, A11
  if (grown != Outcome::out_of_space || tried) return grown;
  tried = true;
  // A retired leaf is unlinked after two epochs, and free after two more.
  for (int i = 0; i < 3; ++i) {
    if (const Outcome outcome = c_.epochs->sync(); outcome != Outcome::done) return outcome;
    grace_.collect_all();
  }
  return Outcome::done;
}

// D3: the epoch is still the one that was announced, and nobody of a later one was here.
template <class Keys>
bool BdTree<Keys>::writable(const Section& section, const Leaf& leaf) const {
  if (!section.is_current() || leaf.retired()) return false;
  for (std::size_t cell = 0; cell < options_.shape.cells; ++cell) {
    if (after(leaf.newest(cell), section.epoch())) return false;
  }
  return true;
}

// Of a leaf that is locked and in the inner nodes: starting again would not end. The clock is read
// after the words, so it is not behind their writers.
template <class Keys>
bool BdTree<Keys>::damaged(const Leaf& leaf) const {
  return leaf.retired() || of_the_future(leaf);
}

// The cell's word of this epoch: at first a copy of the newest over the oldest, which recovery
// cannot need any more (A3).
template <class Keys>
Versions BdTree<Keys>::begin_cell(Section& section, const Leaf& leaf, std::size_t cell) {
  Versions v = leaf.versions(cell);
  const Epoch e = section.epoch();
  if (of_epoch(v.w[0], e)) return v;
  MetaLine* const line = leaf.line(cell);
  const Word word = tag_word(e) | (v.w[0] & (kBitmap | kRetired));
  c_.medium.store(&line->w[v.at[2]], word);
  const Word last = pmem::load(&line->fingerprints[3]);
  c_.medium.store(&line->fingerprints[3],
                  (last & ~(Word{0xFF} << kNotedShift)) | Word{1} << kNotedShift, 1);
  section.note(line);
  return {{word, v.w[0], v.w[1]}, {v.at[2], v.at[0], v.at[1]}};
}

// After begin_cell().
template <class Keys>
void BdTree<Keys>::note_slot(Section& section, const Leaf& leaf, std::size_t slot) {
  MetaLine* const line = leaf.line(slot / kCellSlots);
  const std::size_t at = slot % kCellSlots * sizeof(Slot) / pmem::kLine;
  const Word bit = Word{2} << at << kNotedShift;
  const Word last = pmem::load(&line->fingerprints[3]);
  if ((last & bit) != 0) return;
  c_.medium.store(&line->fingerprints[3], last | bit, 0);
  section.note(leaf.slot(slot));
}

template <class Keys>
void BdTree<Keys>::store_fingerprint(const Leaf& leaf, std::size_t slot, std::uint8_t fingerprint) {
  const std::size_t i = slot % kCellSlots;
  Word* const word = &leaf.line(slot / kCellSlots)->fingerprints[i / 8];
  const unsigned shift = static_cast<unsigned>(i % 8) * 8;
  c_.medium.store(word, (pmem::load(word) & ~(Word{0xFF} << shift)) | Word{fingerprint} << shift,
                  1);
}

// A free slot; its cell has begun.
template <class Keys>
void BdTree<Keys>::put_slot(Section& section, const Leaf& leaf, std::size_t slot, Word key,
                            std::uint64_t value, std::uint8_t fingerprint) {
  c_.medium.store(&leaf.slot(slot)->key, key);
  c_.medium.store(&leaf.slot(slot)->value, value);
  store_fingerprint(leaf, slot, fingerprint);
  note_slot(section, leaf, slot);
}

template <class Keys>
std::size_t BdTree<Keys>::free_slot(const Leaf& leaf, Epoch e) const {
  for (std::size_t cell = 0; cell < options_.shape.cells; ++cell) {
    const Word free = ~leaf.versions(cell).taken(e) & options_.shape.slot_bits();
    if (free != 0) return Leaf::slot_of(cell, free);
  }
  return kNoSlot;
}

template <class Keys>
typename BdTree<Keys>::Attempt BdTree<Keys>::attempt(Key key, std::uint64_t value, Write what,
                                                     Insertion& insertion) {
  const alloc::Grace::Pin pin(grace_);
  if (!pin.ok()) return answer(Outcome::too_many_threads);
  Section section(*c_.epochs);
  const Probe probe = Keys::probe(key);
  typename Nodes::Place place;
  if (!nodes_.locate(probe, place)) return {Next::again};
  const Leaf here = leaf(place.leaf);
  // A new key needs the metadata alone: the stores to its slot wait for nothing.
  if (what == Write::insert) {
    here.prefetch_lines();
  } else {
    here.prefetch();
  }
  base::VersionLock& lock = lock_of(place.leaf);
  const std::uint64_t version = lock.begin();
  if (!place.lock->unchanged(place.version)) return {Next::again};
  Hit hit;
  search(here, probe, hit);
  if (const Outcome refused = detail::refusal(what, hit.found); refused != Outcome::done) {
    return lock.unchanged(version) ? answer(refused) : Attempt{Next::again};
  }
  std::size_t notes = kNotes;
  if constexpr (Keys::kRecords) {
    if (!hit.found) {
      const std::size_t bytes = Keys::record_bytes(key);
      if (insertion.block.at() == 0) {
        if (!insertion.block.get(bytes)) return {Next::grow, Outcome::done, bytes};
        insertion.word = keys_.write_record(insertion.block.at(), key);
      }
      notes += lines_of(bytes);
    }
  }
  if (!section.make_room(notes)) return answer(Outcome::out_of_space);
  if (!lock.try_lock(version)) return {Next::again};
  const base::Unlock unlock(lock);
  if (!writable(section, here)) {
    const bool ours = place.lock->unchanged(place.version);
    return ours && damaged(here) ? answer(Outcome::corrupt) : Attempt{Next::again};
  }
  if (hit.found) insertion.old = hit.value;
  return change(section, here, hit, probe, value, what, insertion);
}

// The leaf is locked and unchanged since `hit`.
template <class Keys>
typename BdTree<Keys>::Attempt BdTree<Keys>::change(Section& section, const Leaf& leaf,
                                                    const Hit& hit, const Probe& probe,
                                                    std::uint64_t value, Write what,
                                                    Insertion& insertion) {
  const Epoch e = section.epoch();
  const auto word_at = [&leaf](std::size_t cell, const Versions& v) {
    return &leaf.line(cell)->w[v.at[0]];
  };
  const std::size_t old_cell = hit.slot / kCellSlots;
  const Word old_bit = Word{1} << hit.slot % kCellSlots;
  if (what == Write::remove) {
    if constexpr (Keys::kRecords) limbo_.add(Keys::record_of(hit.key), e);
    const Versions v = begin_cell(section, leaf, old_cell);
    c_.medium.store(word_at(old_cell, v), v.w[0] & ~old_bit);
    return leaf.live() == 0 ? Attempt{Next::unlink, Outcome::done} : answer(Outcome::done);
  }
  if (hit.found && (leaf.versions(old_cell).own(e) & old_bit) != 0) {
    c_.medium.store(&leaf.slot(hit.slot)->value, value);
    note_slot(section, leaf, hit.slot);
    return answer(Outcome::done);
  }
  // Only a bulk load leaves room.
  const bool enough = insertion.most != kMaxSlots && !hit.found && leaf.live() >= insertion.most;
  const std::size_t slot = enough ? kNoSlot : free_slot(leaf, e);
  if (slot == kNoSlot) {
    leaf.prefetch();  // a split reads all of it
    return {Next::split};
  }
  const std::size_t cell = slot / kCellSlots;
  const Word bit = Word{1} << slot % kCellSlots;
  const Versions v = begin_cell(section, leaf, cell);
  put_slot(section, leaf, slot, hit.found ? hit.key : word_of<Keys>(insertion, probe), value,
           probe.fingerprint);
  if (!hit.found) {
    if constexpr (Keys::kRecords) {
      const Offset at = insertion.block.at();
      for (std::size_t line = 0; line < Keys::record_bytes(probe.key) + at % pmem::kLine;
           line += pmem::kLine) {
        section.note(c_.medium.at(at / pmem::kLine * pmem::kLine + line));
      }
      insertion.block.keep();
    }
    c_.medium.store(word_at(cell, v), v.w[0] | bit);
  } else if (cell == old_cell) {
    c_.medium.store(word_at(cell, v), (v.w[0] & ~old_bit) | bit);  // both in one store
  } else {
    const Versions old = begin_cell(section, leaf, old_cell);
    c_.medium.store(word_at(old_cell, old), old.w[0] & ~old_bit);
    c_.medium.store(word_at(cell, v), v.w[0] | bit);
  }
  return answer(Outcome::done);
}

// Bulk load: ascending inserts, which leave leaves behind them that are as full as they may be.
template <class Keys>
Outcome BdTree<Keys>::bulk_load(std::span<const everleaf::Entry<Key>> entries, double fill) {
  if (const Outcome admitted = c_.admit(); admitted != Outcome::done) return admitted;
  Out one;
  if (const Outcome outcome = scan(Key{}, std::nullopt, 1, one); outcome != Outcome::done) {
    return outcome;
  }
  if (!one.empty()) return Outcome::not_empty;
  if (const Outcome refused = loadable<Keys>(entries); refused != Outcome::done) return refused;
  const std::size_t slots = options_.shape.slots();
  const auto wanted =
      static_cast<std::size_t>(std::clamp(fill, 0.1, 1.0) * static_cast<double>(slots));
  const std::size_t most = wanted >= slots ? kMaxSlots : std::max<std::size_t>(wanted, 2);
  for (const auto& entry : entries) {
    Insertion insertion(space_, most);
    const Outcome outcome = put(entry.key, entry.value, Write::insert, insertion);
    if (outcome != Outcome::done) return outcome;
  }
  return Outcome::done;
}

EVERLEAF_INSTANTIATE(BdTree<U64Keys>);
EVERLEAF_INSTANTIATE(BdTree<BytesKeys>);

}  // namespace everleaf::tree::bdtree
