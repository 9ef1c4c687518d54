// Splits, compactions and the retiring of empty leaves: D5 and D6 of README.md. No fence, no old
// bitmaps to copy: a leaf that recovery may need stays whole until two epochs have passed (A4), and
// is passed over afterwards (A5).
#include <algorithm>

#include "trees/bdtree/tree.hpp"

namespace everleaf::tree::bdtree {
namespace {

// With fewer live entries a full leaf is full of old versions: one new leaf is enough.
constexpr bool sparse(std::size_t live, std::size_t slots) {
  return live * 8 <= slots * 5;
}

}  // namespace

template <class Keys>
typename BdTree<Keys>::Attempt BdTree<Keys>::split(Key key, std::size_t most) {
  const alloc::Grace::Pin pin(grace_);
  if (!pin.ok()) return answer(Outcome::too_many_threads);
  Section section(*c_.epochs);
  const Probe probe = Keys::probe(key);
  Path path;
  if (!nodes_.descend(probe, Aim::at, path)) return {Next::again};
  leaf(path.leaf).prefetch();
  if (!nodes_.make_room(path)) return {Next::again};
  const std::uint64_t version = lock_of(path.leaf).begin();
  if (!path.parent().node->lock.unchanged(path.parent().version)) return {Next::again};
  return split_leaf(section, path, version, probe, most);
}

// The live slots in key order. False: a key record is impossible.
template <class Keys>
bool BdTree<Keys>::collect(const Leaf& leaf, Live& live) const {
  struct One {
    Word key;
    std::size_t slot;
  };
  std::array<One, kMaxSlots> items;
  leaf.for_each([&](std::size_t slot) {
    items[live.count++] = {pmem::load(&leaf.slot(slot)->key), slot};
  });
  const bool sound = sort_entries<kMaxSlots>(keys_, std::span(items.data(), live.count));
  for (std::size_t i = 0; i < live.count; ++i) live.slots[i] = items[i].slot;
  return sound;
}

// Whether the parent leads to the leaf for all of its keys: if not, separators made of them would
// be out of order. An image does not vouch for keys.
template <class Keys>
bool BdTree<Keys>::in_range(const Path& path, const Leaf& leaf, SlotNumbers slots) const {
  const auto here = [&](std::size_t slot) {
    const auto& parent = path.parent();
    return Nodes::leads_to(*parent.node, Keys::probe(key_at(leaf, slot)), parent.position);
  };
  return slots.empty() || (here(slots.front()) && here(slots.back()));
}

template <class Keys>
bool BdTree<Keys>::born_in(const Leaf& leaf, Epoch e) const {
  const Versions v = leaf.versions(0);
  return of_epoch(v.w[0], e) && !present(v.w[1]);
}

// A new leaf with these entries of `from`: a word of this epoch only, everything noted.
template <class Keys>
void BdTree<Keys>::fill(Section& section, Offset at, const Leaf& from, SlotNumbers slots,
                        Offset next) {
  const Leaf to = leaf(at);
  std::size_t done = 0;
  for (std::size_t cell = 0; cell < options_.shape.cells; ++cell) {
    MetaLine* const line = to.line(cell);
    const std::size_t n = std::min(slots.size() - done, options_.shape.cell_slots);
    std::array<Word, 4> fingerprints{};
    for (std::size_t i = 0; i < n; ++i) {
      const Slot* const source = from.slot(slots[done + i]);
      Slot* const slot = to.slot(cell * kCellSlots + i);
      c_.medium.store(&slot->key, pmem::load(&source->key));
      c_.medium.store(&slot->value, pmem::load(&source->value));
      fingerprints[i / 8] |= Word{from.fingerprint(slots[done + i])} << i % 8 * 8;
    }
    const std::size_t lines = (n * sizeof(Slot) + pmem::kLine - 1) / pmem::kLine;
    fingerprints[3] |= ((Word{2} << lines) - 1) << 32;  // what is noted
    for (std::size_t i = 0; i < 4; ++i) c_.medium.store(&line->fingerprints[i], fingerprints[i]);
    c_.medium.store(&line->w[0], tag_word(section.epoch()) | ((Word{1} << n) - 1));
    c_.medium.store(&line->w[1], 0);
    c_.medium.store(&line->w[2], 0);
    c_.medium.store(&line->links, cell == 0 ? Leaf::make_links(next, 0) : 0);
    section.note(line);
    for (std::size_t i = 0; i < lines; ++i) {
      section.note(to.slot(cell * kCellSlots + i * (pmem::kLine / sizeof(Slot))));
    }
    done += n;
  }
}

// The first key of the leaf's range: whatever the range is split into, or passes to, the leaf that
// it leads to later is the first of them, or the one before.
template <class Keys>
typename BdTree<Keys>::Owned BdTree<Keys>::low_of(const Path& path) {
  return path.has_low ? Nodes::low_key(path) : Owned{};
}

// From this epoch on the list goes by `replacement`.
template <class Keys>
void BdTree<Keys>::retire(Section& section, Offset at, Offset replacement) {
  const Leaf old = leaf(at);
  const Versions v = begin_cell(section, old, 0);
  c_.medium.store(&old.line(0)->links, Leaf::make_links(Leaf::next_of(old.links()), replacement));
  c_.medium.store(&old.line(0)->w[v.at[0]], v.w[0] | kRetired);
}

template <class Keys>
typename BdTree<Keys>::Attempt BdTree<Keys>::split_leaf(Section& section, const Path& path,
                                                        std::uint64_t version, const Probe& probe,
                                                        std::size_t most) {
  const Leaf old = leaf(path.leaf);
  const std::size_t bytes = options_.shape.bytes;
  Block left(space_);
  Block right(space_);
  // Most splits need both, whose lines come while the old leaf is sorted.
  for (Block* const block : {&left, &right}) {
    if (block->get(bytes)) leaf(block->at()).prefetch_for_stores();
  }
  // The locks go back before the blocks do.
  base::LockSet locks;
  const auto give_up = [&locks](Attempt why) {
    locks.release(false);
    return why;
  };
  if (!locks.try_lock(path.parent().node->lock, path.parent().version) ||
      !locks.try_lock(lock_of(path.leaf), version)) {
    return give_up({Next::again});
  }
  if (!writable(section, old)) {
    return give_up(damaged(old) ? answer(Outcome::corrupt) : Attempt{Next::again});
  }
  const Epoch e = section.epoch();
  Live live;
  if (!collect(old, live)) return give_up(answer(Outcome::corrupt));
  const SlotNumbers slots(live.slots.data(), live.count);
  const bool enough = slots.size() >= most;
  if (!enough && free_slot(old, e) != kNoSlot) return give_up(answer(Outcome::done));
  if (!in_range(path, old, slots)) return give_up(answer(Outcome::corrupt));
  const bool born = born_in(old, e);
  // Full of what no epoch has set: no walk has seen it.
  if (born && slots.size() < 2) return give_up(answer(Outcome::corrupt));
  const bool one = !born && !enough && sparse(slots.size(), options_.shape.slots());
  if ((!born && !left.get(bytes)) || (!one && !right.get(bytes))) {
    return give_up({Next::grow, Outcome::done, bytes});
  }
  if (!section.make_room(2 * bytes / pmem::kLine + 8)) {
    return give_up(answer(Outcome::out_of_space));
  }
  if (one) {
    compact(section, path, slots, left);
  } else {
    halve(section, path, slots, probe, born ? nullptr : &left, right);
  }
  return answer(Outcome::done);
}

// `left` takes the leaf's place, with these entries of it.
template <class Keys>
void BdTree<Keys>::replace(Section& section, const Path& path, SlotNumbers slots, Block& left,
                           Offset next) {
  fill(section, left.at(), leaf(path.leaf), slots, next);
  retire(section, path.leaf, left.at());
  Nodes::replace_child(*path.parent().node, path.parent().position, left.at());
  left.keep();
}

// One new leaf for a full one that is sparse.
template <class Keys>
void BdTree<Keys>::compact(Section& section, const Path& path, SlotNumbers slots, Block& left) {
  const Leaf old = leaf(path.leaf);
  retired_later(path.leaf, section.epoch(), low_of(path));
  replace(section, path, slots, left, Leaf::next_of(old.links()));
  compactions_.fetch_add(1, std::memory_order_relaxed);
}

// Two leaves for a full one; `left`: both are new, else the leaf was born in this epoch and stays.
// Memory is taken before the first store.
template <class Keys>
void BdTree<Keys>::halve(Section& section, const Path& path, SlotNumbers slots, const Probe& probe,
                         Block* left, Block& right) {
  const Leaf old = leaf(path.leaf);
  const Offset next = Leaf::next_of(old.links());
  // What comes in ascending order leaves full leaves behind.
  const bool append = next == 0 && key_at(old, slots.back()) < probe.key;
  const std::size_t keep = append ? slots.size() : slots.size() / 2;
  auto separator = Nodes::fresh(Keys::own(Keys::separator(
      key_at(old, slots[keep - 1]), append ? probe.key : key_at(old, slots[keep]))));
  if (left == nullptr) {
    move_right(section, old, slots.subspan(keep), right.at(), next);
    splits_in_place_.fetch_add(1, std::memory_order_relaxed);
  } else {
    retired_later(path.leaf, section.epoch(), low_of(path));
    fill(section, right.at(), old, slots.subspan(keep), next);
    replace(section, path, slots.first(keep), *left, right.at());
    splits_.fetch_add(1, std::memory_order_relaxed);
  }
  Nodes::insert_after(*path.parent().node, path.parent().position, std::move(separator),
                      right.at());
  right.keep();
}

// A6: recovery reads the leaf as it is now, or not at all.
template <class Keys>
void BdTree<Keys>::move_right(Section& section, const Leaf& from, SlotNumbers slots, Offset right,
                              Offset next) {
  fill(section, right, from, slots, next);
  std::array<Word, kMaxCells> gone{};
  for (const std::size_t slot : slots) {
    gone[slot / kCellSlots] |= Word{1} << slot % kCellSlots;
  }
  for (std::size_t cell = 0; cell < options_.shape.cells; ++cell) {
    const Versions v = begin_cell(section, from, cell);
    c_.medium.store(&from.line(cell)->w[v.at[0]], v.w[0] & ~gone[cell]);
  }
  c_.medium.store(&from.line(0)->links, Leaf::make_links(right, 0));
}

// D6, A7. A leaf that is the only one stays, empty.
template <class Keys>
typename BdTree<Keys>::Attempt BdTree<Keys>::unlink(Key key) {
  const alloc::Grace::Pin pin(grace_);
  if (!pin.ok()) return answer(Outcome::done);
  Section section(*c_.epochs);
  Path path;
  if (!nodes_.descend(Keys::probe(key), Aim::at, path)) return {Next::again};
  const Leaf old = leaf(path.leaf);
  const std::uint64_t version = lock_of(path.leaf).begin();
  if (!path.parent().node->lock.unchanged(path.parent().version)) return {Next::again};
  const bool empty = old.live() == 0;
  if (!lock_of(path.leaf).unchanged(version)) return {Next::again};
  if (!empty) return answer(Outcome::done);
  if (!section.make_room(2)) return answer(Outcome::done);
  base::LockSet locks;
  bool only_child = false;
  if (!nodes_.lock_for_removal(path, locks, only_child) ||
      !locks.try_lock(lock_of(path.leaf), version)) {
    locks.release(false);
    return only_child ? answer(Outcome::done) : Attempt{Next::again};
  }
  if (!writable(section, old)) {
    const bool never = damaged(old);
    locks.release(false);
    return never ? answer(Outcome::corrupt) : Attempt{Next::again};
  }
  retired_later(path.leaf, section.epoch(), low_of(path));
  retire(section, path.leaf, Leaf::next_of(old.links()));
  nodes_.remove_leaf(path);
  locks.release(true);
  nodes_.shrink_root();
  return answer(Outcome::done);
}

EVERLEAF_INSTANTIATE(BdTree<U64Keys>);
EVERLEAF_INSTANTIATE(BdTree<BytesKeys>);

}  // namespace everleaf::tree::bdtree
