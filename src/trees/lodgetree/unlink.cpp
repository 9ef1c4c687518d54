// What becomes of empty leaves: a leaf absorbs its right neighbour, whose range it takes (P10).
// Either the neighbour is empty, or the leaf is, and gets the neighbour's pairs.
#include <bit>

#include "trees/lodgetree/tree.hpp"

namespace everleaf::tree::lodgetree {

// P10, A14. Both have nothing in a buffer, so the stamp may speak for both ranges; it does so
// durably before the link turns, or an old record of the neighbour's range would come back. The
// sequence is at or above both. False: a fence failed, or the leaves hold more than their nodes
// say.
template <class Keys>
bool LodgeTree<Keys>::absorb(const Leaf& left, const Leaf& right, Word sequence, unsigned slot) {
  const Word w = left.w();
  const Word moved = right.used();  // once: in a damaged pool another index may write it
  if (std::popcount(moved) > std::popcount(~w & options_.shape.bits())) return false;
  if (moved != 0) {
    // Recovery finds no keys of another range in slots that the word on the medium names still.
    // crash: flush stays: this thread's fence writes it back, too; no program has another's here
    flush(left.line(), sizeof(LeafLine));  // P10
    // crash: fence stays: a planted bug (l33) without it is found, --mutate hardly comes there
    if (!fence(slot)) return false;  // P10
  }
  Word set = 0;
  for (Word bits = moved; bits != 0; bits &= bits - 1) {
    const auto from = static_cast<std::size_t>(std::countr_zero(bits));
    const Word free = ~(w | set) & options_.shape.bits();
    const auto to = static_cast<std::size_t>(std::countr_zero(free));
    store_slot(left, to, pmem::load(&right.slot(from)->key), pmem::load(&right.slot(from)->value),
               right.fingerprint(from));
    set |= Word{1} << to;
  }
  flush_slots(left, set);
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
  if constexpr (Keys::kRecords) retire_record(Keys::record_of(right.low()));
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
    node.enter(left, leaf(node.leaf(left)));
    Separator* const gone = Keys::kRecords ? node.separator(left + 1) : nullptr;
    node.remove_leaf(left + 1);
    if (gone != nullptr) upper_.retire(gone);  // G2: nobody who comes later finds it
    unlinked_.fetch_add(1, std::memory_order_relaxed);
  }
}

// The node's only leaf is empty, and another node takes its range: the one before it, whose last
// leaf absorbs this one; or, if the inner nodes give the range to the one behind, that one gets the
// leaf, which absorbs its first. Whoever absorbs gives its pairs up first, which may be to split a
// leaf of a full node: `divide`, that node has the key `full`.
template <class Keys>
typename LodgeTree<Keys>::Attempt LodgeTree<Keys>::unlink_node(Key key, Owned& full) {
  const alloc::Grace::Pin pin(grace_);
  if (!pin.ok()) return answer(Outcome::too_many_threads);
  Path path;
  if (!upper_.descend(Keys::probe(key), Aim::at, path)) return {Next::again};
  Node& node = *reinterpret_cast<Node*>(path.leaf);
  const std::uint64_t version = node.latch.begin();
  if (!path.parent().node->lock.unchanged(path.parent().version)) return {Next::again};
  Node* before = nullptr;
  std::uint64_t before_version = 0;
  if (path.has_low) {
    Path left;
    if (!upper_.descend(Keys::probe(Key(Upper::low_key(path))), Aim::below, left)) {
      return {Next::again};
    }
    before = reinterpret_cast<Node*>(left.leaf);
    before_version = before->latch.begin();
  }
  Node* const behind = node.right.load(std::memory_order_acquire);
  const std::uint64_t behind_version = behind == nullptr ? 0 : behind->latch.begin();
  base::LockSet locks;
  bool only_child = false;
  const bool locked = upper_.lock_for_removal(path, locks, only_child) &&
                      locks.try_lock(node.latch, version) &&
                      (before == nullptr || locks.try_lock(before->latch, before_version)) &&
                      (behind == nullptr || locks.try_lock(behind->latch, behind_version)) &&
                      (before == nullptr || before->right.load() == &node);
  if (!locked || !is_lonely(node)) {
    locks.release(false);
    return locked || only_child ? answer(Outcome::done) : Attempt{Next::again};
  }
  const bool to_behind = Upper::removed_position(path) == 0;
  const Attempt taken = to_behind ? give_leaf(node, *behind) : take_leaf(*before, node);
  if (taken.next == Next::again) return taken;
  if (taken.next == Next::divide) {
    const Node& other = to_behind ? *behind : *before;
    const Leaf there = leaf(other.leaf(to_behind ? 0 : other.leaves() - 1));
    full = Keys::own(keys_.key_of(there.low()));
    return taken;
  }
  if (taken.next != Next::done || taken.outcome != Outcome::done) return answer(Outcome::done);
  if (before != nullptr) before->right.store(behind, std::memory_order_release);
  node.dead.store(true, std::memory_order_release);
  upper_.remove_leaf(path);
  locks.release(true);
  (void)grace_.retire(tagged(&node));
  upper_.shrink_root();
  unlinked_.fetch_add(1, std::memory_order_relaxed);
  return answer(Outcome::done);
}

// The last leaf of `left` absorbs the only one of `node`, which is empty.
template <class Keys>
typename LodgeTree<Keys>::Attempt LodgeTree<Keys>::take_leaf(Node& left, Node& node) {
  const unsigned slot = base::thread_slot();
  const Attempt flushed = flush_leaf(left, left.leaves() - 1, slot);
  if (flushed.next != Next::done || flushed.outcome != Outcome::done) return flushed;
  const unsigned last = left.leaves() - 1;
  if (left.pairs_of(last) != 0) return {Next::again};  // it was split
  left.sequence = std::max(left.sequence, node.sequence);
  const bool absorbed = absorb(leaf(left.leaf(last)), leaf(node.leaf(0)), left.sequence, slot);
  return answer(absorbed ? Outcome::done : Outcome::io_error);
}

// The only leaf of `node`, which is empty, becomes the first one of `right`.
template <class Keys>
typename LodgeTree<Keys>::Attempt LodgeTree<Keys>::give_leaf(Node& node, Node& right) {
  const unsigned slot = base::thread_slot();
  const Attempt flushed = flush_leaf(right, 0, slot);
  if (flushed.next != Next::done || flushed.outcome != Outcome::done) return flushed;
  right.sequence = std::max(right.sequence, node.sequence);
  if (!absorb(leaf(node.leaf(0)), leaf(right.leaf(0)), right.sequence, slot)) {
    return answer(Outcome::io_error);
  }
  right.enter(0, leaf(node.leaf(0)));
  return answer(Outcome::done);
}

// One is enough, and a few that make room above, unless others fill what is divided.
constexpr unsigned kMostDivided = 64;
// Beside others it has to try again. In a damaged tree what goes before a node may never know it.
// The empty node stays, until a removal comes by again.
constexpr unsigned kMostTried = 4096;

template <class Keys>
void LodgeTree<Keys>::unlink_lonely(Key key) {
  try {
    Owned full{};
    unsigned divided = 0;
    for (unsigned tried = 0; tried < kMostTried; ++tried) {
      Attempt is = unlink_node(key, full);
      if (is.next == Next::divide) {
        // A damaged leaf names another node than its own, again and again; others fill the node
        // hardly as often. The empty one stays.
        if (++divided > kMostDivided) return;
        is = divide(Key(full));
        if (is.next == Next::done && is.outcome == Outcome::done) continue;
      }
      if (is.next != Next::again) return;
    }
  } catch (const std::bad_alloc&) {  // it stays
  }
}

EVERLEAF_INSTANTIATE(LodgeTree<U64Keys>);
EVERLEAF_INSTANTIATE(LodgeTree<BytesKeys>);

}  // namespace everleaf::tree::lodgetree
