// What becomes of empty leaves: a leaf absorbs its right neighbour, whose range it takes (P10).
// Either the neighbour is empty, or the leaf is, and gets the neighbour's pairs.
#include <bit>

#include "trees/lodgetree/tree.hpp"

namespace everleaf::tree::lodgetree {

// P10, A14. Both have nothing in a buffer, so the stamp may speak for both ranges; it does so
// durably before the link turns, or an old record of the neighbour's range would come back. The
// sequence is at or above both. False: a fence failed.
template <class Keys>
bool LodgeTree<Keys>::absorb(const Leaf& left, const Leaf& right, Word sequence, unsigned slot) {
  const Word w = left.w();
  Word set = 0;
  for (Word bits = right.used(); bits != 0; bits &= bits - 1) {
    const auto from = static_cast<std::size_t>(std::countr_zero(bits));
    const Word free = ~(w | set) & options_.shape.bits();
    const auto to = static_cast<std::size_t>(std::countr_zero(free));
    store_slot(left, to, pmem::load(&right.slot(from)->key), pmem::load(&right.slot(from)->value),
               right.fingerprint(from));
    set |= Word{1} << to;
  }
  if (set != 0) flush_prints(left);
  c_.medium.store(&left.line()->stamp, sequence);
  c_.medium.store(&left.line()->links, left.with_spare(right.next()), 4);
  flush(left.line(), sizeof(LeafLine));  // P10
  if (!fence(slot)) return false;        // P10
  {
    const base::Durable durable;  // who reads it waits for the latch, and so for the fence
    c_.medium.store(&left.line()->w, (w | set) ^ kUse);
  }
  flush(left.line(), sizeof(LeafLine));  // P10
  if (!fence(slot)) return false;        // P10
  if constexpr (Keys::kRecords) (void)grace_.retire(Keys::record_of(right.low()));
  (void)grace_.retire(c_.medium.offset_of(right.base()));
  return true;
}

// Under the node's latch. Empty leaves that have a neighbour in the node go.
template <class Keys>
void LodgeTree<Keys>::unlink_empty(Node& node, unsigned slot) {
  for (unsigned i = node.leaves(); i-- > 0 && node.leaves() > 1;) {
    if (node.count(i) != 0 || node.pairs_of(i) != 0) continue;
    const unsigned left = i == 0 ? 0 : i - 1;
    for (const unsigned one : {left, left + 1}) {
      const Attempt is = flush_leaf(node, one, slot);
      // A flush that splits or empties leaves moves them: the next removal comes by again.
      if (is.next != Next::done || is.outcome != Outcome::done) return;
    }
    if (left + 1 >= node.leaves() || (node.count(left) != 0 && node.count(left + 1) != 0)) return;
    if (node.pairs_of(left) != 0 || node.pairs_of(left + 1) != 0) return;
    if (!absorb(leaf(node.leaf(left)), leaf(node.leaf(left + 1)), node.sequence, slot)) return;
    node.set_count(left, node.count(left) + node.count(left + 1));
    if constexpr (Keys::kRecords) upper_.retire(node.separator(left + 1));
    node.remove_leaf(left + 1);
    unlinked_.fetch_add(1, std::memory_order_relaxed);
  }
}

// The node's only leaf is empty: the last leaf of the node before it absorbs it, under the same
// inner node. The first node of an inner node stays.
template <class Keys>
typename LodgeTree<Keys>::Attempt LodgeTree<Keys>::unlink_node(Key key) {
  const alloc::Grace::Pin pin(grace_);
  if (!pin.ok()) return answer(Outcome::too_many_threads);
  Path path;
  if (!upper_.descend(Keys::probe(key), Aim::at, path)) return {Next::again};
  const auto& above = path.parent();
  if (above.position == 0) return answer(Outcome::done);
  Node& node = *reinterpret_cast<Node*>(path.leaf);
  Node& left = *reinterpret_cast<Node*>(Upper::child_at(*above.node, above.position - 1));
  if (!above.node->lock.unchanged(above.version)) return {Next::again};
  const unsigned slot = base::thread_slot();
  base::LockSet locks;
  const auto leave = [&locks](Next next) {
    locks.release(false);
    return Attempt{next};
  };
  const std::uint64_t version = node.latch.begin();
  const std::uint64_t left_version = left.latch.begin();
  if (!locks.try_lock(above.node->lock, above.version) ||
      !locks.try_lock(left.latch, left_version) || !locks.try_lock(node.latch, version)) {
    return leave(Next::again);
  }
  if (node.leaves() != 1 || node.count(0) != 0 || node.buffered() != 0) return leave(Next::done);
  const Attempt flushed = flush_leaf(left, left.leaves() - 1, slot);
  if (flushed.next != Next::done || flushed.outcome != Outcome::done) return answer(Outcome::done);
  const unsigned last = left.leaves() - 1;
  if (left.pairs_of(last) != 0) return answer(Outcome::done);
  left.sequence = std::max(left.sequence, node.sequence);
  if (!absorb(leaf(left.leaf(last)), leaf(node.leaf(0)), left.sequence, slot)) {
    return answer(Outcome::done);
  }
  left.right.store(node.right.load(std::memory_order_relaxed), std::memory_order_release);
  node.dead.store(true, std::memory_order_release);
  upper_.remove_child(*above.node, above.position);
  (void)grace_.retire(tagged(&node));
  unlinked_.fetch_add(1, std::memory_order_relaxed);
  return answer(Outcome::done);
}

template <class Keys>
void LodgeTree<Keys>::unlink_lonely(Key key) {
  try {
    while (unlink_node(key).next == Next::again) {
    }
  } catch (const std::bad_alloc&) {  // it stays
  }
}

template class LodgeTree<U64Keys>;
template class LodgeTree<BytesKeys>;

}  // namespace everleaf::tree::lodgetree
