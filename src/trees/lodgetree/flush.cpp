// Leaf-count flush: pairs of the buffer go to their leaves (P3, P4), in two halves: prepare()
// writes what no crash can see yet, commit() turns the words. The fence between them is the
// caller's.
#include <bit>

#include "trees/lodgetree/tree.hpp"

namespace everleaf::tree::lodgetree {

template <class Keys>
template <class Adds>
Plan LodgeTree<Keys>::plan_of(const Node& node, Adds&& adds) const {
  const unsigned pairs = node.buffered();  // once: it may change meanwhile
  const unsigned first = node.slots() - pairs;
  return plan_flush(
      pairs, options_.t_node, options_.t_split,
      [&](unsigned pair) { return node.target(first + pair); }, adds,
      [&node](unsigned leaf) { return node.count(leaf); });
}

// Under the latch: before a leaf is chosen, what is true of its pairs (B4).
template <class Keys>
void LodgeTree<Keys>::settle_pairs(Node& node, unsigned i) const {
  for (std::uint64_t bits = node.unsure_pairs_of(i); bits != 0; bits &= bits - 1) {
    const auto pair = static_cast<unsigned>(std::countr_zero(bits));
    node.settle(pair, search(leaf(node.leaf(i)), probe_of(node.key(pair))) == kNoSlot);
  }
}

// A full buffer: the leaves that the operation is going to write arrive while it reads its own. All
// lines of them: which ones it will be, only the first one could tell. What the plan is made of may
// change meanwhile, and pairs that are unsure count as changes: rather a leaf too many.
template <class Keys>
void LodgeTree<Keys>::expect_flush(const Place& place) const {
  const Node& node = *place.node;
  if (has_room(node)) return;
  const Plan plan = plan_of(node, [&node](unsigned leaf) { return node.adds(leaf); });
  for (std::uint64_t bits = plan.leaves; bits != 0; bits &= bits - 1) {
    std::byte* const base = node.leaf(static_cast<unsigned>(std::countr_zero(bits)));
    if (!node.latch.unchanged(place.version)) return;
    leaf(base).prefetch_to_write();
  }
}

// Chooses by leaf count.
template <class Keys>
typename LodgeTree<Keys>::Attempt LodgeTree<Keys>::prepare(Node& node, Step& step) {
  const auto adds = [&](unsigned leaf) {
    settle_pairs(node, leaf);
    return node.adds(leaf);
  };
  return prepare(node, plan_of(node, adds), step);
}

template <class Keys>
typename LodgeTree<Keys>::Attempt LodgeTree<Keys>::prepare(Node& node, Plan plan, Step& step) {
  for (std::uint64_t bits = plan.leaves; c_.read_only && bits != 0; bits &= bits - 1) {
    own_leaf(node, static_cast<unsigned>(std::countr_zero(bits)));
  }
  if (plan.splits) {
    const auto i = static_cast<unsigned>(std::countr_zero(plan.leaves));
    const Attempt split = prepare_split(node, i, step);
    if (split.next != Next::done || split.outcome != Outcome::done) return split;
  } else {
    for (std::uint64_t bits = plan.leaves; bits != 0; bits &= bits - 1) {
      const auto i = static_cast<unsigned>(std::countr_zero(bits));
      if (!prepare_leaf(node, i, node.pairs_of(i), step)) return answer(Outcome::corrupt);
    }
  }
  const auto gone = static_cast<unsigned>(std::popcount(step.pairs));
  step.room = has_room(node.leaves() + (step.splits ? 1 : 0), node.buffered() - gone);
  return answer(Outcome::done);
}

template <class Keys>
std::byte* LodgeTree<Keys>::new_overlay_leaf() {
  overlay_.push_back(std::make_unique<LeafCopy[]>(options_.shape.bytes / kLeafAlign));
  return overlay_.back()[0].bytes.data();
}

template <class Keys>
std::byte* LodgeTree<Keys>::copy_of(const std::byte* base) {
  std::byte* const copy = new_overlay_leaf();
  std::memcpy(copy, base, options_.shape.bytes);
  return copy;
}

// Recovery of a read-only pool changes copies.
template <class Keys>
void LodgeTree<Keys>::own_leaf(Node& node, unsigned i) {
  std::byte* const base = node.leaf(i);
  if (!c_.medium.contains(c_.medium.offset_of(base), 1)) return;
  node.enter(i, leaf(copy_of(base)));
}

template <class Keys>
void LodgeTree<Keys>::store_slot(const Leaf& leaf, std::size_t slot, Word key, std::uint64_t value,
                                 std::uint8_t fingerprint) {
  Slot* const to = leaf.slot(slot);
  c_.medium.store(&to->key, key);
  c_.medium.store(&to->value, value);
  store_print(leaf, slot, fingerprint);
}

template <class Keys>
void LodgeTree<Keys>::store_print(const Leaf& leaf, std::size_t slot, std::uint8_t fingerprint) {
  Word* const prints = leaf.fingerprints() + slot / 8;
  const unsigned shift = static_cast<unsigned>(slot % 8) * 8;
  const base::Durable durable;  // whoever reads it needs it only if the word, later in its line, is
  c_.medium.store(prints,
                  (pmem::load(prints) & ~(Word{0xFF} << shift)) | Word{fingerprint} << shift, 1);
}

// The lines of these slots, each once and when all is stored: a store to a line that is being
// written back waits for it.
template <class Keys>
void LodgeTree<Keys>::flush_slots(const Leaf& leaf, Word slots) const {
  constexpr unsigned kOfLine = pmem::kLine / sizeof(Slot);
  static_assert(kMaxSlots + make_shape(1024).slots_at / sizeof(Slot) <= 64);
  Word places = slots << (options_.shape.slots_at / sizeof(Slot));
  while (places != 0) {
    const unsigned line = static_cast<unsigned>(std::countr_zero(places)) / kOfLine;
    places &= ~(((Word{1} << kOfLine) - 1) << line * kOfLine);
    flush(leaf.base() + line * pmem::kLine, pmem::kLine);  // P3, P5, P10, P13
  }
}

// Where lines keep the order of their stores, the word's own line needs no flush before it.
template <class Keys>
void LodgeTree<Keys>::flush_prints(const Leaf& leaf) {
  if (c_.medium.orders_lines() && options_.shape.slots_at <= pmem::kLine) return;
  flush(leaf.fingerprints(), options_.shape.slots_at - sizeof(LeafLine));  // P3
}

// P3, A3: new pairs in free slots, new values in place. Their records are durable and above the
// stamp: whatever a crash keeps of this, replay stores the same again. False: damaged.
template <class Keys>
bool LodgeTree<Keys>::prepare_leaf(Node& node, unsigned i, std::uint64_t pairs, Step& step) {
  const Leaf here = leaf(node.leaf(i));
  const Word w = here.w();
  Word set = 0;
  Word clear = 0;
  Word changed = 0;
  for (std::uint64_t bits = pairs; bits != 0; bits &= bits - 1) {
    const auto pair = static_cast<unsigned>(std::countr_zero(bits));
    const Word key = node.key(pair);
    const std::size_t slot = node.is_fresh(pair) ? kNoSlot : search(here, probe_of(key));
    if (!node.is_fresh(pair) && slot == kNoSlot) return false;
    if (node.is_removal(pair)) {
      if (slot != kNoSlot) clear |= Word{1} << slot;
      free_record(step, key);
    } else if (slot != kNoSlot) {
      c_.medium.store(&here.slot(slot)->value, node.value(pair));
      changed |= Word{1} << slot;
    } else {
      const Word free = ~(w | set) & options_.shape.bits();
      if (free == 0) return false;
      const auto to = static_cast<std::size_t>(std::countr_zero(free));
      store_slot(here, to, key, node.value(pair), node.fingerprint(pair));
      set |= Word{1} << to;
    }
  }
  flush_slots(here, set | changed);
  if (set != 0) flush_prints(here);
  const Word now = (w | set) & ~clear;
  const auto count = static_cast<std::size_t>(std::popcount(now & options_.shape.bits()));
  step.parts[step.count++] = {i, here.base(), now, count, true, set, clear != 0};
  step.pairs |= pairs;
  return true;
}

// The key record of a removal that leaves the buffer.
template <class Keys>
void LodgeTree<Keys>::free_record(Step& step, Word key) const {
  if constexpr (Keys::kRecords) {
    step.freed[step.freed_count++] = Keys::record_of(key);
  } else {
    (void)step;
    (void)key;
  }
}

// After the fence behind prepare(): A4, A6. False: a fence failed.
template <class Keys>
bool LodgeTree<Keys>::commit(Node& node, Step& step, unsigned slot) {
  const std::span parts(step.parts.data(), step.count);
  {
    const base::Durable durable;  // P3: the log says the same, durably
    for (const Part& part : parts) c_.medium.store(&leaf(part.base).line()->w, part.w);
    if (!c_.medium.orders_lines() && !c_.read_only) {
      // P3, A5: pages of a disk have no order: a stamp must not get there before its word.
      for (const Part& part : parts) c_.medium.flush(part.base, sizeof(LeafLine));
      if (!c_.medium.fence()) return false;
    }
    for (const Part& part : parts) {
      if (part.stamped) c_.medium.store(&leaf(part.base).line()->stamp, node.sequence);
    }
  }
  const bool keeps = take_records(node, step, slot);
  for (std::uint64_t bits = step.loners; bits != 0; bits &= bits - 1) {
    node.make_fresh(static_cast<unsigned>(std::countr_zero(bits)));
  }
  node.take_out(step.pairs);
  for (const Part& part : parts) {
    if (part.loses) {
      node.enter(part.leaf, leaf(part.base));
    } else {
      node.gain(part.leaf, leaf(part.base), part.gained);
    }
  }
  if (step.splits) {
    node.insert_leaf(parts[0].leaf, std::move(step.separator), leaf(step.right_base));
    step.right.keep();
    step.low.keep();
    leaf_splits_.fetch_add(1, std::memory_order_relaxed);
  }
  Counts& mine = (*counts_)[slot];
  add(mine.flushes, 1);
  add(mine.flushed_leaves, step.count + (step.splits ? 1 : 0));
  add(mine.flushed_pairs, static_cast<unsigned>(std::popcount(step.pairs)));
  if (!step.at_once && keeps) return true;
  if (!fence(slot)) return false;  // P5, or P4 with too many key records
  if (c_.read_only) return true;
  log_.ready(slot);
  return keeps || release_keys(slot, {step.freed.data(), step.freed_count});
}

// The records of the pairs that go die with the next fence, and key records that nobody needs are
// kept until then; false: not these.
template <class Keys>
bool LodgeTree<Keys>::take_records(Node& node, const Step& step, unsigned slot) {
  if (c_.read_only) return true;
  std::array<Ref, kMaxNodeSlots> refs;
  std::size_t count = 0;
  for (std::uint64_t bits = step.pairs; bits != 0; bits &= bits - 1) {
    refs[count++] = node.ref(static_cast<unsigned>(std::countr_zero(bits)));
  }
  std::array<std::byte*, kMaxNodeSlots> lines;
  for (unsigned i = 0; i < step.count; ++i) lines[i] = step.parts[i].base;
  return log_.defer(slot, {refs.data(), count}, {lines.data(), step.count},
                    {step.freed.data(), step.freed_count});
}

// P4, F5: behind a fence of the slot. No living record names what is freed: nor one that another
// thread flushed.
template <class Keys>
bool LodgeTree<Keys>::release_keys(unsigned slot, std::span<const Offset> more) {
  Log::Kept kept;
  const std::size_t count = log_.take_keys(slot, kept);
  if (!log_.settle()) return false;
  for (const Offset key : std::span(kept).first(count)) retire_record(key);
  for (const Offset key : more) retire_record(key);
  return true;
}

// Those of all slots, whose threads may sleep or be gone. False: a fence failed.
template <class Keys>
bool LodgeTree<Keys>::release_all_keys() {
  const alloc::Grace::Pin pin(grace_);
  if (!pin.ok()) return true;
  const unsigned limit = base::slot_limit();
  for (unsigned slot = 0; Keys::kRecords && slot < limit; ++slot) {
    Log::Kept kept;
    std::size_t count = 0;
    if (!log_.take_keys_of(slot, kept, count)) return false;
    if (count != 0 && !log_.settle()) return false;
    for (const Offset key : std::span(kept).first(count)) retire_record(key);
  }
  return true;
}

template <class Keys>
typename LodgeTree<Keys>::Attempt LodgeTree<Keys>::run_step(Node& node, Plan plan, unsigned slot) {
  Step step(space_);
  const Attempt prepared = prepare(node, plan, step);
  if (prepared.next != Next::done || prepared.outcome != Outcome::done) return prepared;
  if (!fence(slot)) return answer(Outcome::io_error);  // P3
  return answer(commit(node, step, slot) ? Outcome::done : Outcome::io_error);
}

template <class Keys>
typename LodgeTree<Keys>::Attempt LodgeTree<Keys>::flush_leaf(Node& node, unsigned i,
                                                              unsigned slot) {
  while (node.pairs_of(i) != 0) {
    settle_pairs(node, i);
    const unsigned adds = node.adds(i);
    const Plan plan{std::uint64_t{1} << i, adds != 0 && node.count(i) + adds > options_.t_split};
    const Attempt is = run_step(node, plan, slot);
    if (is.next != Next::done || is.outcome != Outcome::done) return is;
  }
  return answer(Outcome::done);
}

// All pairs, with the steps that a full buffer takes.
template <class Keys>
typename LodgeTree<Keys>::Attempt LodgeTree<Keys>::flush_node(Node& node, unsigned slot) {
  while (node.buffered() != 0) {
    Step step(space_);
    const Attempt prepared = prepare(node, step);
    if (prepared.next != Next::done || prepared.outcome != Outcome::done) return prepared;
    if (!fence(slot)) return answer(Outcome::io_error);
    if (!commit(node, step, slot)) return answer(Outcome::io_error);
  }
  return answer(Outcome::done);
}

// Everything that the buffers hold from the node of that key on up to another node; no operation
// runs there. False: something had to stay. The way goes by what leaves say of their ranges; where
// that leads to another node than the next one, it is damaged, and what is behind stays in the log.
template <class Keys>
bool LodgeTree<Keys>::flush_range(Owned from, const Node* end) {
  const unsigned slot = base::thread_slot();
  if (slot == base::kNoSlot) return false;
  log_.ready(slot);
  bool tried = false;
  bool all = true;
  const Node* next = nullptr;
  while (true) {
    Attempt is = answer(Outcome::done);
    bool last = false;
    {
      const alloc::Grace::Pin pin(grace_);
      Place place;
      if (!locate(Keys::probe(Key(from)), place)) continue;
      if (next != nullptr && place.node != next) {
        all = false;
        break;
      }
      if (!place.node->latch.try_lock(place.version)) continue;
      const base::Unlock unlock(place.node->latch);
      is = flush_node(*place.node, slot);
      Node* const right = place.node->right.load(std::memory_order_relaxed);
      const bool go_on = is.next == Next::done;
      last = go_on && (right == end || right == nullptr);
      if (last && (right != end || is.outcome != Outcome::done)) all = false;
      if (go_on && !last) {
        from = first_key(*right);
        next = right;
      }
    }
    if (last) break;
    if (is.next == Next::divide) is = divide(Key(from));
    const bool grown = is.next != Next::grow || more_space(is.bytes, tried) == Outcome::done;
    if (!grown || is.outcome != Outcome::done) all = false;
    if (!grown || c_.medium.failed()) break;
  }
  return log_.settle() && all;
}

EVERLEAF_INSTANTIATE(LodgeTree<U64Keys>);
EVERLEAF_INSTANTIATE(LodgeTree<BytesKeys>);

}  // namespace everleaf::tree::lodgetree
