// Splits of leaves (P5) and of last-level nodes (in DRAM), and what becomes of empty leaves (P10).
#include <algorithm>
#include <bit>

#include "trees/lodgetree/tree.hpp"

namespace everleaf::tree::lodgetree {

// --- A leaf ---
// What the leaf comes to with its pairs, in key order. False: damaged.
template <class Keys>
bool LodgeTree<Keys>::merge_pairs(const Node& node, unsigned i, Merged& all) const {
  const Leaf here = leaf(node.leaf(i));
  std::array<unsigned, kMaxSlots> pair_of;
  pair_of.fill(Node::kNoSlot);
  for (std::uint64_t bits = node.pairs_of(i); bits != 0; bits &= bits - 1) {
    const auto pair = static_cast<unsigned>(std::countr_zero(bits));
    if (node.is_fresh(pair)) {
      if (node.is_removal(pair)) continue;
      all.items[all.count++] = {node.key(pair), node.value(pair), kNoSlot, pair};
      continue;
    }
    const std::size_t slot = search(here, probe_of(node.key(pair)));
    if (slot == kNoSlot) return false;
    pair_of[slot] = pair;
    if (node.is_removal(pair)) all.removed |= Word{1} << slot;
  }
  for (Word bits = here.used() & ~all.removed; bits != 0; bits &= bits - 1) {
    const auto slot = static_cast<std::size_t>(std::countr_zero(bits));
    const unsigned pair = pair_of[slot];
    const Word value =
        pair == Node::kNoSlot ? pmem::load(&here.slot(slot)->value) : node.value(pair);
    all.items[all.count++] = {pmem::load(&here.slot(slot)->key), value, slot, pair};
  }
  return sort_entries<kMaxSlots + kMaxNodeSlots>(keys_, std::span(all.items.data(), all.count));
}

// Whether the keys, of which the first `keep` stay, are all of the leaf's range: a damaged pool
// may have others.
template <class Keys>
bool LodgeTree<Keys>::splittable(const Node& node, unsigned i, const Merged& all,
                                 std::size_t keep) const {
  const auto in_leaf = [&](const Item& item) {
    return keys_.readable(item.key) && node.rank(probe_of(item.key), Aim::at) == i;
  };
  return in_leaf(all.items[0]) && in_leaf(all.items[all.count - 1]) &&
         keys_.key_of(all.items[keep - 1].key) < keys_.key_of(all.items[keep].key);
}

template <class Keys>
bool LodgeTree<Keys>::new_leaf(Step& step) {
  if (c_.read_only) {
    step.right_base = new_overlay_leaf();
    return true;
  }
  if (!step.right.get(options_.shape.bytes)) return false;  // or has it
  step.right_base = c_.medium.at(step.right.at());
  return true;
}

template <class Keys>
typename LodgeTree<Keys>::Attempt LodgeTree<Keys>::prepare_split(Node& node, unsigned i,
                                                                 Step& step) {
  const bool full =
      node.leaves() + node.buffered() >= options_.slots || node.leaves() + 2 >= options_.slots;
  // What takes nothing away from the leaf splits it.
  if (full && !node.removes(i)) return {Next::divide};
  Merged all;
  // Its lines arrive while the pairs are sorted.
  if (!c_.read_only && new_leaf(step)) leaf(step.right_base).prefetch_to_write();
  if (!merge_pairs(node, i, all)) return answer(Outcome::corrupt);
  if (all.count <= options_.t_split) {
    prepare_clear(node, i, all, step);
    return answer(Outcome::done);
  }
  // The pair that the split adds has its slot; there is a leaf's worth of pairs below the node's
  // most.
  if (full) return {Next::divide};
  // One that is to take more than a leaf holds leaves pairs in the buffer.
  const std::size_t keep = all.count - std::min<std::size_t>(all.count / 2, options_.t_split);
  if (!splittable(node, i, all, keep)) return answer(Outcome::corrupt);
  const Owned low = Keys::own(
      Keys::separator(keys_.key_of(all.items[keep - 1].key), keys_.key_of(all.items[keep].key)));
  step.separator = Upper::fresh(low);
  if constexpr (Keys::kRecords) {
    if (!c_.read_only && !step.low.get(Keys::record_bytes(low))) {
      return {Next::grow, Outcome::done, Keys::record_bytes(low)};
    }
  }
  if (!new_leaf(step)) return {Next::grow, Outcome::done, options_.shape.bytes};
  step.splits = true;
  step.at_once = true;  // P5: the link turns
  fill_right(node, leaf(node.leaf(i)), all, keep, low, step);
  settle_left(node, i, all, keep, low, step);
  return answer(Outcome::done);
}

// P4: the leaf is full of what its pairs remove. Those slots are cleared alone; the pairs stay, so
// the stamp does, and find nothing to remove the next time.
template <class Keys>
void LodgeTree<Keys>::prepare_clear(Node& node, unsigned i, const Merged& all, Step& step) {
  const Leaf here = leaf(node.leaf(i));
  const Word now = here.w() & ~all.removed;
  const auto count = static_cast<std::size_t>(std::popcount(now & options_.shape.bits()));
  step.parts[step.count++] = {i, here.base(), now, count, false, 0, true};
  step.at_once = true;  // a pair that stays may be superseded: no removal would tell recovery
  for (std::uint64_t bits = node.pairs_of(i); bits != 0; bits &= bits - 1) {
    const auto pair = static_cast<unsigned>(std::countr_zero(bits));
    if (node.is_removal(pair)) step.loners |= std::uint64_t{1} << pair;
  }
}

// P5: the new leaf has all of its range, pairs included, so its stamp says so.
template <class Keys>
void LodgeTree<Keys>::fill_right(const Node& node, const Leaf& left, const Merged& all,
                                 std::size_t keep, const Owned& low, Step& step) {
  const Leaf right = leaf(step.right_base);
  Word low_word = 0;
  if constexpr (Keys::kRecords) {
    if (!c_.read_only) {
      low_word = keys_.write_record(step.low.at(), Key(low));
      flush(c_.medium.at(step.low.at()), Keys::record_bytes(Key(low)));  // P5
    }
  } else {
    low_word = low;
  }
  for (std::size_t at = 0; at < options_.shape.slots_at - sizeof(LeafLine); at += sizeof(Word)) {
    c_.medium.store(right.fingerprints() + at / sizeof(Word), 0, 0);
  }
  for (std::size_t k = keep; k < all.count; ++k) {
    const Item& item = all.items[k];
    store_slot(right, k - keep, item.key, item.value, Keys::fingerprint_of(keys_.key_of(item.key)));
  }
  const Word slots = (Word{1} << (all.count - keep)) - 1;
  flush_slots(right, slots);
  LeafLine* const line = right.line();
  c_.medium.store(&line->w, slots);
  c_.medium.store(&line->stamp, node.sequence);
  c_.medium.store(&line->links, left.next() / kLeafAlign);
  c_.medium.store(&line->low, low_word);
  flush(right.base(), options_.shape.slots_at);  // P5
}

// P5: of the old leaf only the free slots and the link that does not count change before the word
// does. Its own pairs go along if they fit into those slots.
template <class Keys>
void LodgeTree<Keys>::settle_left(Node& node, unsigned i, const Merged& all, std::size_t keep,
                                  const Owned& low, Step& step) {
  const Leaf here = leaf(node.leaf(i));
  const Word w = here.w();
  Word stays = 0;
  std::size_t more = 0;
  for (std::size_t k = 0; k < keep; ++k) {
    const Item& item = all.items[k];
    if (item.slot == kNoSlot) {
      ++more;
    } else {
      stays |= Word{1} << item.slot;
    }
  }
  Word free = ~w & options_.shape.bits();
  Word changed = 0;
  const bool fits = more <= static_cast<std::size_t>(std::popcount(free));
  for (std::size_t k = 0; fits && k < keep; ++k) {
    const Item& item = all.items[k];
    if (item.pair == Node::kNoSlot) continue;
    if (item.slot != kNoSlot) {
      c_.medium.store(&here.slot(item.slot)->value, item.value);
      changed |= Word{1} << item.slot;
      continue;
    }
    const auto to = static_cast<std::size_t>(std::countr_zero(free));
    store_slot(here, to, item.key, item.value, node.fingerprint(item.pair));
    free &= free - 1;
    stays |= Word{1} << to;
    changed |= Word{1} << to;
  }
  flush_slots(here, changed);
  if (fits && more != 0) flush_prints(here);
  for (std::uint64_t bits = node.pairs_of(i); bits != 0; bits &= bits - 1) {
    const auto pair = static_cast<unsigned>(std::countr_zero(bits));
    const Word key = node.key(pair);
    const bool leaves = !(keys_.key_of(key) < Key(low));
    if (leaves || fits) {
      step.pairs |= std::uint64_t{1} << pair;
      if (node.is_removal(pair)) free_record(step, key);
    } else if (node.is_removal(pair) && !node.is_fresh(pair)) {
      const std::size_t slot = search(here, probe_of(key));  // its pair stays, and so does its key
      if (slot != kNoSlot) stays |= Word{1} << slot;
    }
  }
  c_.medium.store(&here.line()->links, here.with_spare(step.right.at()), 4);
  flush(here.line(), sizeof(LeafLine));  // P5
  const Word now = stays | ((w & kUse) ^ kUse);
  const auto count = static_cast<std::size_t>(std::popcount(stays));
  step.parts[step.count++] = {i, here.base(), now, count, fits, 0, true};
}

// --- A node ---
template <class Keys>
typename LodgeTree<Keys>::Attempt LodgeTree<Keys>::divide(Key key) {
  const alloc::Grace::Pin pin(grace_);
  if (!pin.ok()) return answer(Outcome::too_many_threads);
  const Probe probe = Keys::probe(key);
  Path path;
  if (!upper_.descend(probe, Aim::at, path)) return {Next::again};
  if (!upper_.make_room(path)) return {Next::again};
  Node& node = *reinterpret_cast<Node*>(path.leaf);
  const std::uint64_t version = node.latch.begin();
  auto& above = path.parent();
  base::LockSet locks;
  if (!locks.try_lock(above.node->lock, above.version) || !locks.try_lock(node.latch, version)) {
    locks.release(false);
    return {Next::again};
  }
  if (node.leaves() + 2 < options_.slots && node.leaves() + node.buffered() < options_.slots) {
    locks.release(false);
    return answer(Outcome::done);  // somebody else has done it
  }
  const auto now = static_cast<std::uint32_t>(leaf_splits_.load(std::memory_order_relaxed));
  const unsigned free = Upper::kFanout - Upper::separators(*above.node);
  const SplitKind kind = kind_of(node.heat, now, options_.t);
  const unsigned ways =
      std::min(fitting(ways_of(node.heat, kind, options_.split), free), node.leaves());
  std::array<Node*, kMaxNodeSlots> fresh{};
  struct Guard {
    std::span<Node*> nodes;
    ~Guard() {
      for (Node* const one : nodes) {
        if (one != nullptr) base::NodeArena::free(one);
      }
    }
  } const guard{{fresh.data(), ways - 1}};
  for (unsigned i = 0; i + 1 < ways; ++i) fresh[i] = make_node();
  node.heat = node.heat.after_split(now, ways);
  divide_node(path, node, {fresh.data(), ways - 1}, ways);
  node_splits_[static_cast<std::size_t>(kind)].fetch_add(1, std::memory_order_relaxed);
  fresh.fill(nullptr);
  return answer(Outcome::done);
}

// From the right, so that leaves keep their numbers; the node keeps the first ones.
template <class Keys>
void LodgeTree<Keys>::divide_node(const Path& path, Node& node, std::span<Node* const> fresh,
                                  unsigned ways) {
  const auto& above = path.parent();
  const unsigned n = node.leaves();
  unsigned end = n;
  for (unsigned part = ways; part-- > 1;) {
    const unsigned first = n * part / ways;
    Node& to = *fresh[part - 1];
    Fresh up = node.copy_to(to, first, end);
    to.heat = node.heat;
    to.right.store(node.right.load(std::memory_order_relaxed), std::memory_order_relaxed);
    node.right.store(&to, std::memory_order_release);
    Upper::insert_after(*above.node, above.position, std::move(up),
                        reinterpret_cast<std::uint64_t>(&to));
    node.cut(first);
    end = first;
  }
}

EVERLEAF_INSTANTIATE(LodgeTree<U64Keys>);
EVERLEAF_INSTANTIATE(LodgeTree<BytesKeys>);

}  // namespace everleaf::tree::lodgetree
