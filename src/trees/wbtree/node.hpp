// Search and edit inside one node. No fences, no allocation.
//
// Thread safety: a Node is a view. Reads are acquire loads, stores go through the medium (release),
// so an optimistic reader that saw anything of a writer fails its version check. What a read
// returns before that check may be torn; it is never out of bounds.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <span>

#include "pmem/medium.hpp"
#include "pmem/prefetch.hpp"
#include "trees/wbtree/layout.hpp"

namespace everleaf::tree::wbtree {

// A slot array in registers and on the stack: byte 0 the count, bytes 1.. entry numbers by key.
struct Slots {
  // Eight bytes more than the largest array: the search loads eight slots from any position.
  alignas(8) std::array<std::uint8_t, 72> byte;
  [[nodiscard]] unsigned count() const { return byte[0]; }
  [[nodiscard]] unsigned at(unsigned position) const { return byte[position + 1]; }  // 0-based
  void clear() { byte.fill(0); }
  // Both ignore a position that only a damaged node can lead to.
  void insert(unsigned position, unsigned entry) {
    if (position > count() || count() >= kMaxEntries) return;
    std::memmove(&byte[position + 2], &byte[position + 1], count() - position);
    byte[position + 1] = static_cast<std::uint8_t>(entry);
    ++byte[0];
  }
  void erase(unsigned position) {
    if (position >= count()) return;
    std::memmove(&byte[position + 1], &byte[position + 2], count() - position - 1);
    --byte[0];
  }
  [[nodiscard]] Word word(unsigned i) const {
    Word value = 0;
    std::memcpy(&value, &byte[i * sizeof(Word)], sizeof value);
    return value;
  }
  void set_word(unsigned i, Word value) {
    std::memcpy(&byte[i * sizeof(Word)], &value, sizeof value);
  }
  // Words that hold the count and the slots.
  [[nodiscard]] unsigned words() const { return (count() + 8) / 8; }
};

// A slot word takes only the bytes that mean something; how many of them differ is what an
// algorithm that stores bytes would write (N_w).
inline unsigned changed_bytes(Word before, Word after) {
  unsigned n = 0;
  for (Word difference = before ^ after; difference != 0; difference >>= 8) {
    n += static_cast<unsigned>((difference & 0xFF) != 0);
  }
  return n;
}

// A binary search for 8-byte keys that takes one halving at a time (trees/many.hpp), without
// branches: when many take theirs in turn, none waits for its loads, and only the lines that they
// need are fetched.
struct Halving {
  static constexpr bool far = true;  // at every level: measured
  const Word* slots;
  const Entry* entries;
  Word key;
  unsigned capacity;
  unsigned count;                // 0: not for this node
  std::size_t before = 0;        // slots whose key is <= the key
  const Entry* entry = nullptr;  // of the slot that is looked at; in the end the last of those

  template <bool kFar>
  void fetch(std::size_t half) {
    const std::size_t at = before + half;
    const Word slot = pmem::load(slots + at / sizeof(Word)) >> at % sizeof(Word) * 8 & 0xFF;
    entry = &entries[slot < capacity ? slot : 0];  // as in Node::entry()
    if constexpr (kFar) pmem::prefetch(entry);
  }
  template <bool kFar>
  void halve(std::size_t half, std::size_t next) {
    const auto is_before = static_cast<std::size_t>(pmem::load(&entry->key) <= key) &
                           static_cast<std::size_t>(before + half <= count);
    before += half & (std::size_t{0} - is_before);
    fetch<kFar>(next);
  }
};

class Node {
 public:
  Node(std::byte* base, const Shape& shape) : base_(base), shape_(&shape) {}

  [[nodiscard]] std::byte* base() const { return base_; }
  [[nodiscard]] const Shape& shape() const { return *shape_; }
  [[nodiscard]] NodeKind kind() const { return shape_->kind; }
  [[nodiscard]] Word* control_word() const { return word_at(kControlAt); }
  [[nodiscard]] Word* link_word() const { return word_at(kLinkAt); }
  [[nodiscard]] Word* slot_word(unsigned i) const {
    return word_at(kind() == NodeKind::slot_only ? kControlAt : kSlotsAt + i * 8);
  }
  [[nodiscard]] unsigned slot_words() const {
    return kind() == NodeKind::slot_only ? 1 : (shape_->entries_at - kSlotsAt) / 8;
  }
  // How many bytes of slot word `i` an algorithm changes that makes `after` of `before`: in a
  // slot-only node the word is stored as one, because it is the commit.
  [[nodiscard]] unsigned slot_bytes(Word before, Word after) const {
    return kind() == NodeKind::slot_only ? 8 : changed_bytes(before, after);
  }
  [[nodiscard]] Entry* entry(unsigned i) const {
    // A damaged or torn slot must not lead out of the node.
    return entries() + (i < shape_->capacity ? i : 0);
  }
  [[nodiscard]] Word control() const { return pmem::load(control_word()); }
  [[nodiscard]] Word link() const { return pmem::load(link_word()); }
  [[nodiscard]] Word key(unsigned i) const { return pmem::load(&entry(i)->key); }
  [[nodiscard]] Word value(unsigned i) const { return pmem::load(&entry(i)->value); }

  // The control word with no entries in it (valid slot array).
  [[nodiscard]] static Word empty_control(NodeKind kind) {
    return kind == NodeKind::slot_bitmap ? 1 : 0;
  }
  [[nodiscard]] bool slots_valid(Word control) const {
    return kind() == NodeKind::slot_only || (control & 1) != 0;
  }
  [[nodiscard]] unsigned count(Word control) const {
    const auto n = kind() == NodeKind::slot_only
                       ? static_cast<unsigned>(control & 0xFF)
                       : static_cast<unsigned>(std::popcount(control >> 1));
    return std::min(n, shape_->capacity);
  }
  [[nodiscard]] bool full(Word control) const { return count(control) == shape_->capacity; }
  // Bit u: entry u is in use.
  [[nodiscard]] Word used(Word control) const {
    if (kind() != NodeKind::slot_only) return control >> 1 & all_entries();
    Word bits = 0;
    for (unsigned left = count(control); left != 0; --left) {
      control >>= 8;
      bits |= Word{1} << (control & 7);
    }
    return bits;
  }
  // The bitmap's bit of an entry: none in slot-only nodes, none for a damaged entry number.
  [[nodiscard]] Word bit(unsigned entry_number) const {
    const bool has_bit = kind() != NodeKind::slot_only && entry_number < shape_->capacity;
    return has_bit ? Word{1} << (entry_number + 1) : 0;
  }
  // An entry that is not in use; the node is not full.
  [[nodiscard]] unsigned free_entry(Word control) const {
    return static_cast<unsigned>(std::countr_one(used(control)));
  }

  // Loads a slot array that is valid; its entry numbers may still be damaged or torn.
  void load_slots(Slots& slots) const {
    slots.set_word(0, pmem::load(slot_word(0)));
    slots.byte[0] = static_cast<std::uint8_t>(std::min<unsigned>(slots.byte[0], shape_->capacity));
    // One word more than the slots fill, because an insertion may reach into it.
    const unsigned last = std::min(slots.words(), slot_words() - 1);
    for (unsigned i = 1; i <= last; ++i) slots.set_word(i, pmem::load(slot_word(i)));
  }

  // Entries in use, by key: for bitmap-only leaves, and where a crash left the slot array invalid
  // (A2, A3).
  template <class Keys>
  void sort_slots(const Keys& keys, Word control, Slots& slots) const {
    slots.clear();
    struct Numbered {
      Word key;
      unsigned entry;
    };
    std::array<Numbered, 64> sorted;
    unsigned n = 0;
    for (Word bits = used(control); bits != 0; bits &= bits - 1) {
      const auto i = static_cast<unsigned>(std::countr_zero(bits));
      sorted[n++] = {key(i), i};
    }
    keys.sort(std::span(sorted).first(n));
    for (unsigned i = 0; i < n; ++i) slots.byte[i + 1] = static_cast<std::uint8_t>(sorted[i].entry);
    slots.byte[0] = static_cast<std::uint8_t>(n);
  }

  template <class Keys>
  void order(const Keys& keys, Word control, Slots& slots) const {
    if (kind() != NodeKind::bitmap_only && slots_valid(control)) {
      load_slots(slots);
    } else {
      sort_slots(keys, control, slots);
    }
  }

  // Number of slots whose key is <= the probe (or < with kBelow): binary search down to eight
  // slots, which are then taken one by one, with 8-byte keys from one register (paper, 4.5).
  template <bool kBelow = false, class Keys>
  [[nodiscard]] unsigned rank(const Keys& keys, const Slots& slots,
                              const typename Keys::Probe& probe) const {
    unsigned low = 0;
    if constexpr (Keys::kRecords) {
      const auto goes_before = [&](unsigned entry_number) {
        const int order = keys.compare(key(entry_number), probe);
        return kBelow ? order < 0 : order <= 0;
      };
      unsigned high = slots.count();
      while (high - low > 8) {
        const unsigned middle = (low + high) / 2;
        if (goes_before(slots.at(middle))) {
          low = middle + 1;
        } else {
          high = middle;
        }
      }
      while (low < high && goes_before(slots.at(low))) ++low;
      return low;
    } else {
      // Without a branch on a key: a misprediction costs more than the loads.
      const auto goes_before = [&](unsigned entry_number) {
        const Word word = key(entry_number);
        return static_cast<unsigned>(kBelow ? word < probe.key : word <= probe.key);
      };
      unsigned left = slots.count();
      while (left > 8) {
        const unsigned half = left / 2;
        low += half & (0U - goes_before(slots.at(low + half - 1)));
        left -= half;
      }
      Word last = 0;
      std::memcpy(&last, &slots.byte[low + 1], sizeof last);
      unsigned before = 0;
      for (unsigned i = 0; i < left; ++i, last >>= 8) before += goes_before(last & 0xFF);
      return low + before;
    }
  }

  [[nodiscard]] Halving halving(Word key_word) const {
    const bool ordered = kind() != NodeKind::bitmap_only && slots_valid(control());
    const auto first = static_cast<unsigned>(pmem::load(slot_word(0)) & 0xFF);
    return {slot_word(0), entries(), key_word, shape_->capacity,
            ordered ? std::min(first, shape_->capacity) : 0};
  }

  // The entry of a bitmap-only leaf with this key, or 64.
  template <class Keys>
  [[nodiscard]] unsigned find_in_bitmap(const Keys& keys, Word control,
                                        const typename Keys::Probe& probe) const {
    const Word bits = used(control);
    if constexpr (Keys::kRecords) {
      for (Word left = bits; left != 0; left &= left - 1) {
        const auto i = static_cast<unsigned>(std::countr_zero(left));
        if (keys.equal_in_bitmap_leaf(key(i), probe)) return i;
      }
      return 64;
    } else {
      // Free entries are compared as well and masked out: no branch per entry.
      const auto limit = static_cast<unsigned>(std::bit_width(bits));
      Word match = 0;
      for (unsigned i = 0; i < limit; ++i) {
        match |= static_cast<Word>(pmem::load(&entries()[i].key) == probe.key) << i;
      }
      return static_cast<unsigned>(std::countr_zero(match & bits));
    }
  }

  // The child behind `position` separators.
  [[nodiscard]] Offset child(const Slots& slots, unsigned position) const {
    return position == 0 ? link() : value(slots.at(position - 1));
  }

  void prefetch() const { pmem::prefetch_lines(base_, shape_->bytes); }
  // For a Halving, which fetches what else it needs.
  void prefetch_slots() const {
    pmem::prefetch_lines(base_,
                         kind() == NodeKind::bitmap_only ? shape_->bytes : shape_->entries_at);
  }

 private:
  [[nodiscard]] Word* word_at(std::uint32_t at) const {
    return reinterpret_cast<Word*>(base_ + at);
  }
  [[nodiscard]] Entry* entries() const {
    return reinterpret_cast<Entry*>(base_ + shape_->entries_at);
  }
  [[nodiscard]] Word all_entries() const { return (Word{1} << shape_->capacity) - 1; }
  std::byte* base_;
  const Shape* shape_;
};

}  // namespace everleaf::tree::wbtree
