// A last-level node, in DRAM: a sorted index of leaves and, in the slots that it leaves free, an
// unsorted buffer of pairs on their way to those leaves (paper, III-A).
//
//   slot   0 .. n-1        index: leaf i, and from 1 on the separator before it
//          n .. S-m-1      free
//          S-m .. S-1      buffer, the newest first
//
// Thread safety: readers are optimistic: all that they read is atomic, and they validate the latch
// afterwards. Edits under the latch; what only its holders read is plain.
// Invariants
//   B1. n >= 1, and n + m < S but while a leaf split is being entered: one slot is kept for it.
//   B2. A key is in the buffer at most once. Its pair is newer than what its leaf says, and its
//       record in the log is live.
//   B3. `target` of a buffered pair is the leaf that its key belongs to; of an index slot the
//       number of pairs in the leaf, whose filter has the bits of their fingerprints.
//   B4. A buffered pair is `fresh` if its leaf does not have its key, and `unsure`, not fresh, as
//       long as nobody has looked (keys of 8 bytes alone). A pair that moves to a leaf is sure.
//   B5. Keys of bytes: a pair whose leaf has its key names the leaf's key record; another pair owns
//       its record.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstring>
#include <memory>

#include "base/node_arena.hpp"
#include "base/version_lock.hpp"
#include "pmem/prefetch.hpp"
#include "trees/inner.hpp"
#include "trees/lodgetree/leaf.hpp"
#include "trees/lodgetree/log.hpp"
#include "trees/lodgetree/split.hpp"

namespace everleaf::tree::lodgetree {

inline constexpr unsigned kMaxNodeSlots = 64;

// What comes first in a node, so that what a search compares begins with a line.
template <class Node>
struct OfWriters {
  std::atomic<Node*> right{nullptr};          // the next node
  std::uint64_t sequence = 0;                 // the largest order of its range
  std::atomic<std::uint64_t> fresh_bits{0};   // buffered pairs whose leaf does not have the key
  std::atomic<std::uint64_t> unsure_bits{0};  // nor those of which nobody knows that
  Heat heat;
};

template <class Keys>
class Node : public OfWriters<Node<Keys>> {
 public:
  using Probe = typename Keys::Probe;
  using Atomic = std::atomic<std::uint64_t>;
  using Half = std::atomic<std::uint32_t>;
  static constexpr unsigned kNoSlot = ~0U;

  // Whole lines: of the block that holds a node of so many slots.
  [[nodiscard]] static constexpr std::size_t bytes_of(unsigned slots) {
    const std::size_t words = 2 * slots + (Keys::kRecords ? slots : 0) + 2 * byte_words(slots);
    const std::size_t bytes = sizeof(Node) + words * 8 + slots * sizeof(Half);
    return (bytes + pmem::kLine - 1) / pmem::kLine * pmem::kLine;
  }
  // In a block of bytes_of() bytes.
  explicit Node(unsigned slots) : slots_(static_cast<std::uint8_t>(slots)) {
    static_assert(sizeof(Node) == pmem::kLine);
    std::memset(static_cast<void*>(this + 1), 0, bytes_of(slots) - sizeof(Node));
  }
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  std::atomic<bool> dead{false};  // its range passed to a neighbour

 private:
  std::atomic<std::uint8_t> leaves_{0};
  std::atomic<std::uint8_t> buffered_{0};
  const std::uint8_t slots_;
  std::atomic<std::uint64_t> removals_{0};

 public:
  base::VersionLock latch;

  // --- Shape ---
  [[nodiscard]] unsigned slots() const { return slots_; }
  [[nodiscard]] unsigned leaves() const { return leaves_.load(std::memory_order_acquire); }
  [[nodiscard]] unsigned buffered() const { return buffered_.load(std::memory_order_acquire); }
  [[nodiscard]] unsigned buffer_start() const { return slots_ - buffered(); }
  // The slots of the buffer, a bit each.
  [[nodiscard]] std::uint64_t buffer_bits() const {
    const unsigned m = buffered();
    return m == 0 ? 0 : ~std::uint64_t{0} >> (64 - m) << (slots_ - m);
  }

  // --- Index ---
  [[nodiscard]] std::byte* leaf(unsigned i) const {
    return reinterpret_cast<std::byte*>(value(i) >> kLowBits << kUnusedBits);
  }
  // Whether the leaf may have a key of that fingerprint.
  [[nodiscard]] bool may_have(unsigned i, std::uint8_t fingerprint) const {
    return (filter(i) & Leaf::filter_bit(fingerprint)) != 0;
  }
  [[nodiscard]] bool has_filter_of(unsigned i, const Leaf& leaf) const {
    return filter(i) == leaf.filter(leaf.used());
  }
  // Leaf i is this one, as it is now.
  void enter(unsigned i, const Leaf& leaf) { set_leaf(i, leaf, leaf.filter(leaf.used())); }
  // Leaf i has its keys still, and new ones in these slots.
  void gain(unsigned i, const Leaf& leaf, std::uint64_t slots) {
    set_leaf(i, leaf, filter(i) | leaf.filter(slots));
  }
  [[nodiscard]] unsigned rank(const Probe& probe, Aim aim) const {
    return Separators<Keys, Halving>{{keys() + 1}, wholes() + 1, leaves() - 1}.rank(probe, aim);
  }
  [[nodiscard]] std::uint64_t separator_prefix(unsigned i) const {
    return keys()[i].load(std::memory_order_acquire);
  }
  [[nodiscard]] Separator* separator(unsigned i) const {
    return wholes()[i].load(std::memory_order_acquire);
  }
  [[nodiscard]] unsigned count(unsigned i) const { return target(i); }

  // --- Buffer ---
  [[nodiscard]] std::uint64_t key(unsigned slot) const {
    return keys()[slot].load(std::memory_order_acquire);
  }
  [[nodiscard]] std::uint64_t value(unsigned slot) const {
    return values()[slot].load(std::memory_order_acquire);
  }
  [[nodiscard]] unsigned target(unsigned slot) const { return byte(targets(), slot); }
  void set_target(unsigned slot, unsigned leaf) {
    set_byte(targets(), slot, static_cast<std::uint8_t>(leaf));
  }
  [[nodiscard]] bool is_removal(unsigned slot) const {
    return (removals_.load(std::memory_order_acquire) >> slot & 1) != 0;
  }
  [[nodiscard]] bool is_fresh(unsigned slot) const {
    return (this->fresh_bits.load(std::memory_order_relaxed) >> slot & 1) != 0;
  }
  [[nodiscard]] bool is_unsure(unsigned slot) const {
    return (this->unsure_bits.load(std::memory_order_relaxed) >> slot & 1) != 0;
  }
  // Somebody has looked.
  void settle(unsigned slot, bool fresh) {
    set_fresh(slot, fresh);
    set_bit(this->unsure_bits, slot, false);
  }
  [[nodiscard]] Ref ref(unsigned slot) const {
    return refs()[slot].load(std::memory_order_acquire);
  }
  // Buffered pairs with that fingerprint, a bit each.
  [[nodiscard]] std::uint64_t match(std::uint8_t fingerprint) const {
    return buffer_bits() & equal_bytes(prints(), fingerprint);
  }
  // The slot of the key, or kNoSlot.
  [[nodiscard]] unsigned search(const Keys& policy, const Probe& probe) const {
    for (std::uint64_t bits = match(probe.fingerprint); bits != 0; bits &= bits - 1) {
      const auto slot = static_cast<unsigned>(std::countr_zero(bits));
      if (policy.equal(key(slot), probe)) return slot;
    }
    return kNoSlot;
  }
  // Pairs for that leaf, a bit each.
  [[nodiscard]] std::uint64_t pairs_of(unsigned leaf) const {
    return buffer_bits() & equal_bytes(targets(), static_cast<std::uint8_t>(leaf));
  }
  [[nodiscard]] std::uint64_t unsure_pairs_of(unsigned leaf) const {
    const std::uint64_t unsure = this->unsure_bits.load(std::memory_order_relaxed);
    return unsure == 0 ? 0 : unsure & pairs_of(leaf);
  }
  // How many more pairs the leaf would hold, at least: of those that are unsure nobody knows.
  [[nodiscard]] unsigned adds(unsigned leaf) const {
    return static_cast<unsigned>(std::popcount(pairs_of(leaf) &
                                               this->fresh_bits.load(std::memory_order_relaxed) &
                                               ~removals_.load(std::memory_order_relaxed)));
  }
  // Whether a pair for the leaf is a removal.
  [[nodiscard]] bool removes(unsigned leaf) const {
    return (pairs_of(leaf) & removals_.load(std::memory_order_relaxed)) != 0;
  }
  // The leaf has lost the pair's key.
  void make_fresh(unsigned slot) { set_fresh(slot, true); }
  [[nodiscard]] std::uint8_t fingerprint(unsigned slot) const { return byte(prints(), slot); }

  struct Pair {
    std::uint64_t key;
    std::uint64_t value;
    std::uint8_t fingerprint;
    bool removal;
    bool fresh;
    bool unsure;
    unsigned target;
    Ref ref;
  };
  [[nodiscard]] Pair pair(unsigned slot) const {
    return {key(slot),      value(slot),     fingerprint(slot), is_removal(slot),
            is_fresh(slot), is_unsure(slot), target(slot),      ref(slot)};
  }
  // There is room.
  void put(const Pair& pair) {
    const unsigned slot = buffer_start() - 1;
    place(slot, pair);
    buffered_.store(static_cast<std::uint8_t>(buffered() + 1), std::memory_order_release);
  }
  // A newer pair of the same key, which names the same key record.
  void replace(unsigned slot, std::uint64_t value, bool removal, Ref ref) {
    values()[slot].store(value, std::memory_order_release);
    set_removal(slot, removal);
    set_ref(slot, ref);
  }
  // The pairs go; the others close up.
  void take_out(std::uint64_t bits) {
    const unsigned first = buffer_start();
    const std::uint64_t removal = removals_.load(std::memory_order_relaxed);
    const std::uint64_t fresh = this->fresh_bits.load(std::memory_order_relaxed);
    const std::uint64_t unsure = this->unsure_bits.load(std::memory_order_relaxed);
    std::uint64_t still_removal = 0;
    std::uint64_t still_fresh = 0;
    std::uint64_t still_unsure = 0;
    unsigned to = slots_;
    for (unsigned slot = slots_; slot-- > first;) {
      if ((bits >> slot & 1) != 0) continue;
      --to;
      still_removal |= (removal >> slot & 1) << to;
      still_fresh |= (fresh >> slot & 1) << to;
      still_unsure |= (unsure >> slot & 1) << to;
      if (to == slot) continue;
      keys()[to].store(keys()[slot].load(std::memory_order_relaxed), std::memory_order_release);
      values()[to].store(values()[slot].load(std::memory_order_relaxed), std::memory_order_release);
      set_byte(prints(), to, fingerprint(slot));
      set_target(to, target(slot));
      set_ref(to, ref(slot));
    }
    removals_.store(still_removal, std::memory_order_release);
    this->fresh_bits.store(still_fresh, std::memory_order_relaxed);
    this->unsure_bits.store(still_unsure, std::memory_order_relaxed);
    buffered_.store(static_cast<std::uint8_t>(slots_ - to), std::memory_order_release);
  }

  // --- Edits of the index ---
  using Fresh = typename Inner<Keys>::Fresh;
  // Leaf i becomes two; there is room, and no pair for the new one.
  void insert_leaf(unsigned i, Fresh separator, const Leaf& leaf) {
    const unsigned n = leaves();
    for (unsigned k = n; k > i + 1; --k) move_index(k - 1, k);
    set_index(i + 1, std::move(separator), leaf);
    leaves_.store(static_cast<std::uint8_t>(n + 1), std::memory_order_release);
    for (unsigned slot = buffer_start(); slot < slots_; ++slot) {
      if (target(slot) > i) set_target(slot, target(slot) + 1);
    }
  }
  // Leaf i goes, its range to the one before; no pair is buffered for it. The caller retires the
  // separator.
  void remove_leaf(unsigned i) {
    const unsigned n = leaves();
    for (unsigned k = i + 1; k < n; ++k) move_index(k, k - 1);
    leaves_.store(static_cast<std::uint8_t>(n - 1), std::memory_order_release);
    for (unsigned slot = buffer_start(); slot < slots_; ++slot) {
      if (target(slot) > i) set_target(slot, target(slot) - 1);
    }
  }
  // A new leaf at the end; of a node that is being built, or loaded.
  void append_leaf(Fresh separator, const Leaf& leaf) {
    const unsigned n = leaves();
    set_index(n, std::move(separator), leaf);
    leaves_.store(static_cast<std::uint8_t>(n + 1), std::memory_order_release);
  }
  // Leaves `first` to `last` - 1 and their pairs are copied to an empty node. The separator of
  // `first` goes up.
  Fresh copy_to(Node& to, unsigned first, unsigned last) {
    for (unsigned i = first; i < last; ++i) {
      const unsigned k = i - first;
      to.values()[k].store(values()[i].load(std::memory_order_relaxed), std::memory_order_release);
      to.set_target(k, target(i));
      to.set_ref(k, ref(i));
      if (k == 0) continue;
      to.keys()[k].store(keys()[i].load(std::memory_order_relaxed), std::memory_order_release);
      if constexpr (Keys::kRecords) {
        to.wholes()[k].store(wholes()[i].load(std::memory_order_relaxed),
                             std::memory_order_release);
      }
    }
    to.leaves_.store(static_cast<std::uint8_t>(last - first), std::memory_order_release);
    for (unsigned slot = slots_; slot-- > buffer_start();) {
      if (target(slot) < first || target(slot) >= last) continue;
      Pair one = pair(slot);
      one.target -= first;
      to.put(one);
    }
    to.sequence = this->sequence;
    Fresh up{separator_prefix(first), nullptr};
    if constexpr (Keys::kRecords) up.whole.reset(separator(first));
    return up;
  }
  // Leaves from `first` on and their pairs went elsewhere.
  void cut(unsigned first) {
    std::uint64_t gone = 0;
    for (unsigned slot = buffer_start(); slot < slots_; ++slot) {
      gone |= std::uint64_t{target(slot) >= first} << slot;
    }
    leaves_.store(static_cast<std::uint8_t>(first), std::memory_order_release);
    take_out(gone);
  }

  // What a search needs; not targets and references to the log, which are of writers. The number of
  // slots is the tree's: to ask the node would be to wait for it.
  void prefetch(unsigned slots) const {
    pmem::prefetch_lines(this, sizeof(Node) + (byte_words(slots) + 2 * slots) * 8);
  }
  // All of it.
  void prefetch_to_write(unsigned slots) const {
    pmem::prefetch_lines_to_write(this, bytes_of(slots));
  }

 private:
  [[nodiscard]] std::uint64_t filter(unsigned i) const {
    return (value(i) & kLow) | std::uint64_t{ref(i)} << kLowBits;
  }
  void set_leaf(unsigned i, const Leaf& leaf, std::uint64_t filter) {
    const auto address = reinterpret_cast<std::uint64_t>(leaf.base());
    values()[i].store(address >> kUnusedBits << kLowBits | (filter & kLow),
                      std::memory_order_release);
    set_ref(i, static_cast<Ref>(filter >> kLowBits));
    set_target(i, static_cast<unsigned>(std::popcount(leaf.used())));
  }
  // The value of an index slot: the address of a leaf, of which x86-64 gives programs 47 bits and
  // the lowest are 0, and the lower bits of the filter.
  static constexpr unsigned kUnusedBits = 6;
  static constexpr unsigned kLowBits = 22;
  static constexpr std::uint64_t kLow = (std::uint64_t{1} << kLowBits) - 1;
  static_assert(1U << kUnusedBits == pmem::kLine && Leaf::kFilterBits <= kLowBits + 32);

  // A byte for each slot, and as many as match_bytes() wants.
  [[nodiscard]] static constexpr std::size_t byte_words(unsigned slots) {
    return (slots + 15) / 16 * 2;
  }
  [[nodiscard]] static std::uint8_t byte(const Atomic* bytes, unsigned slot) {
    return static_cast<std::uint8_t>(bytes[slot / 8].load(std::memory_order_acquire) >>
                                     slot % 8 * 8);
  }
  // Words, not bytes: whole words are read soon, and would wait until a store of a byte of theirs
  // has left the processor, behind a fence.
  static void set_byte(Atomic* bytes, unsigned slot, std::uint8_t to) {
    const unsigned shift = slot % 8 * 8;
    Atomic& word = bytes[slot / 8];
    const std::uint64_t others =
        word.load(std::memory_order_relaxed) & ~(std::uint64_t{0xFF} << shift);
    word.store(others | std::uint64_t{to} << shift, std::memory_order_release);
  }
  // Slots with that byte, a bit each; beyond the last slot they mean nothing.
  [[nodiscard]] std::uint64_t equal_bytes(const Atomic* bytes, std::uint8_t wanted) const {
    return match_bytes(byte_words(slots_) * 8, wanted,
                       [bytes](std::size_t i) { return bytes[i].load(std::memory_order_acquire); });
  }
  [[nodiscard]] Atomic* words() const {
    return reinterpret_cast<Atomic*>(const_cast<Node*>(this) + 1);
  }
  [[nodiscard]] Atomic* prints() const { return words(); }
  [[nodiscard]] Atomic* keys() const { return prints() + byte_words(slots_); }
  [[nodiscard]] Atomic* values() const { return keys() + slots_; }
  [[nodiscard]] std::atomic<Separator*>* wholes() const {
    return reinterpret_cast<std::atomic<Separator*>*>(values() + slots_);
  }
  [[nodiscard]] Atomic* targets() const {
    return values() + slots_ + (Keys::kRecords ? slots_ : 0);
  }
  // Of an index slot the upper bits of the filter.
  [[nodiscard]] Half* refs() const {
    return reinterpret_cast<Half*>(targets() + byte_words(slots_));
  }
  void set_ref(unsigned slot, Ref ref) { refs()[slot].store(ref, std::memory_order_release); }

  void set_removal(unsigned slot, bool removal) { set_bit(removals_, slot, removal); }
  void set_fresh(unsigned slot, bool fresh) { set_bit(this->fresh_bits, slot, fresh); }
  static void set_bit(Atomic& bits, unsigned slot, bool to) {
    const std::uint64_t bit = std::uint64_t{1} << slot;
    const std::uint64_t now = bits.load(std::memory_order_relaxed) & ~bit;
    bits.store(now | (to ? bit : 0), std::memory_order_release);
  }
  void place(unsigned slot, const Pair& pair) {
    keys()[slot].store(pair.key, std::memory_order_release);
    values()[slot].store(pair.value, std::memory_order_release);
    set_byte(prints(), slot, pair.fingerprint);
    set_target(slot, pair.target);
    set_removal(slot, pair.removal);
    set_fresh(slot, pair.fresh);
    set_bit(this->unsure_bits, slot, pair.unsure);
    set_ref(slot, pair.ref);
  }
  void set_index(unsigned i, Fresh separator, const Leaf& leaf) {
    keys()[i].store(separator.prefix, std::memory_order_release);
    if constexpr (Keys::kRecords) {
      wholes()[i].store(separator.whole.release(), std::memory_order_release);
    }
    enter(i, leaf);
  }
  void move_index(unsigned from, unsigned to) {
    keys()[to].store(keys()[from].load(std::memory_order_relaxed), std::memory_order_release);
    values()[to].store(values()[from].load(std::memory_order_relaxed), std::memory_order_release);
    if constexpr (Keys::kRecords) {
      wholes()[to].store(wholes()[from].load(std::memory_order_relaxed), std::memory_order_release);
    }
    set_target(to, target(from));
    set_ref(to, ref(from));
  }
};

}  // namespace everleaf::tree::lodgetree
