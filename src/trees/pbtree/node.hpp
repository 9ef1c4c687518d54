// Search inside one node. No stores, no fences, no allocation.
//
// Thread safety: a Node is a view. Reads are acquire loads. Readers of a leaf check its version
// afterwards; readers of inner nodes check nothing, may be sent to a wrong child, and find out
// there (paper, III-D). What a read returns may be torn; it is never out of bounds.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <span>

#include "pmem/medium.hpp"
#include "pmem/prefetch.hpp"
#include "trees/pbtree/keys.hpp"
#include "trees/pbtree/layout.hpp"

namespace everleaf::tree::pbtree {

// What a node holds, or two neighbours, in key order, out of any region.
struct Sorted {
  std::array<Entry, std::size_t{2} * kMaxEntries> entries;
  unsigned count = 0;

  void push(Word key, Word value) {
    if (count < entries.size()) entries[count++] = {key, value};
  }
  [[nodiscard]] std::span<const Entry> all() const { return {entries.data(), count}; }
};

// Where a key stands or would stand.
struct Place {
  Side side;
  bool pivot;     // it is the pivot: `slot` means nothing
  bool found;     // pivot: live
  bool below;     // the node has an entry at or below the key,
  bool above;     // and one above it
  unsigned slot;  // found: the entry; otherwise the first larger entry of the region, or its end
};

// The regions: entries [0, right_end) and [left_begin, capacity).
struct Ends {
  unsigned right_end;
  unsigned left_begin;
  // In a damaged node they may overlap.
  [[nodiscard]] bool full() const { return right_end >= left_begin; }
  // The entry of a region that is nearest to the free ones; it has one.
  [[nodiscard]] unsigned outermost(Side side) const {
    return side == Side::left ? left_begin : right_end == 0 ? 0 : right_end - 1;
  }
};

// A binary search for 8-byte keys that takes one halving at a time (trees/many.hpp), without
// branches: when many take theirs in turn, none waits for its loads, and only the lines that they
// need are fetched. Less the pivot, modulo 2^64, the keys of the right region are small and ascend,
// marks are 0, and those of the left region are large and ascend: what goes before a key left of
// the pivot comes first. So it does right of it, where one less makes the marks the largest.
struct Halving {
  const Entry* next;  // behind those that go before the key
  Word zero;          // the pivot; plus one on its right, where marks do not go before the key
  Word end;           // what goes before the key is below that, less `zero`
  const Header* header;
  Word key;
  unsigned count;  // of all entries; 0: not for this node
  unsigned right;  // 1: the key is right of the pivot; 0: left of it
  bool far;        // not in the first caches

  // Entries at or below the key; in a leaf's left region below it.
  [[nodiscard]] std::size_t before() const { return static_cast<std::size_t>(next - entries()); }
  [[nodiscard]] const Entry* entries() const { return reinterpret_cast<const Entry*>(header + 1); }
  [[nodiscard]] Word key_at(std::size_t i) const { return pmem::load(&entries()[i].key); }
  [[nodiscard]] Word pivot() const { return zero - right; }

  template <bool kFar>
  void fetch(std::size_t half) const {
    if constexpr (kFar) pmem::prefetch(next + half - 1);
  }
  template <bool kFar>
  void halve(std::size_t half, std::size_t then) {
    const Word is_before = 0 - static_cast<Word>(pmem::load(&next[half - 1].key) - zero < end);
    next = reinterpret_cast<const Entry*>(reinterpret_cast<const std::byte*>(next) +
                                          (half * sizeof(Entry) & is_before));
    fetch<kFar>(then);
  }
};

template <class Keys>
class Node {
 public:
  using Probe = typename Keys::Probe;

  Node(std::byte* base, unsigned capacity, const Keys& keys)
      : header_(reinterpret_cast<Header*>(base)),
        entries_(reinterpret_cast<Entry*>(base + sizeof(Header))),
        capacity_(capacity),
        keys_(&keys) {}

  [[nodiscard]] Header* header() const { return header_; }
  [[nodiscard]] std::byte* base() const { return reinterpret_cast<std::byte*>(header_); }
  [[nodiscard]] Entry* entry(unsigned i) const { return entries_ + i; }
  [[nodiscard]] unsigned capacity() const { return capacity_; }
  // How many lines two entries and those between them lie on.
  [[nodiscard]] static unsigned lines(unsigned a, unsigned b) {
    constexpr auto kInLine = static_cast<unsigned>(pmem::kLine / sizeof(Entry));
    return (a < b ? b / kInLine - a / kInLine : a / kInLine - b / kInLine) + 1;
  }
  [[nodiscard]] std::size_t bytes() const { return sizeof(Header) + capacity_ * sizeof(Entry); }

  [[nodiscard]] Word meta() const { return pmem::load(&header_->meta); }
  [[nodiscard]] unsigned level() const { return static_cast<unsigned>(meta() & kLevelMask); }
  [[nodiscard]] Word split_key() const { return pmem::load(&header_->split_key); }
  [[nodiscard]] Word leftmost() const { return pmem::load(&header_->leftmost); }
  [[nodiscard]] Word pivot() const { return pmem::load(&header_->pivot_key); }
  [[nodiscard]] Offset left() const { return pmem::load(&header_->left); }
  [[nodiscard]] Offset right() const { return pmem::load(&header_->right); }
  [[nodiscard]] Word next_split_key() const { return pmem::load(&header_->next_split_key); }
  [[nodiscard]] Word key(unsigned i) const { return pmem::load(&entries_[i].key); }
  [[nodiscard]] Word value(unsigned i) const { return pmem::load(&entries_[i].value); }
  [[nodiscard]] Word* value_word(const Place& place) const {
    return place.pivot ? &header_->pivot_value : &entries_[place.slot].value;
  }

  [[nodiscard]] Ends ends() const {
    const Word pivot_key = pivot();
    return {first([&](unsigned i) { return !keys_->in_right(key(i), pivot_key); }),
            first([&](unsigned i) { return keys_->in_left(key(i), pivot_key); })};
  }

  // Entries of the right region at or below the probe.
  [[nodiscard]] unsigned right_rank(Word pivot_key, const Probe& probe) const {
    return first([&](unsigned i) {
      const Word word = key(i);
      return !keys_->in_right(word, pivot_key) || keys_->compare(word, probe) > 0;
    });
  }
  // The first entry of the left region at (kOr) or above the probe.
  template <bool kOr>
  [[nodiscard]] unsigned left_rank(Word pivot_key, const Probe& probe) const {
    return first([&](unsigned i) {
      const Word word = key(i);
      if (!keys_->in_left(word, pivot_key)) return false;
      const int order = keys_->compare(word, probe);
      return kOr ? order >= 0 : order > 0;
    });
  }

  // Of two equal keys the one nearer to the free entries counts (rule E): the last of them in the
  // right region, the first of them in the left one. So do the two searches find it.
  [[nodiscard]] Place find(const Probe& probe) const {
    const Word pivot_key = pivot();
    const bool live = (meta() & kPivotLive) != 0;
    const int order = keys_->compare(pivot_key, probe);
    const auto is_left = [&](unsigned i) { return keys_->in_left(key(i), pivot_key); };
    const auto is_right = [&](unsigned i) { return keys_->in_right(key(i), pivot_key); };
    const bool any_left = is_left(capacity_ - 1);
    if (order == 0) return {Side::right, true, live, live || any_left, is_right(0), 0};
    if (order < 0) {
      const unsigned rank = right_rank(pivot_key, probe);
      const bool found = rank != 0 && keys_->compare(key(rank - 1), probe) == 0;
      const bool below = rank != 0 || live || any_left;
      const bool above = rank != capacity_ && is_right(rank);
      return {Side::right, false, found, below, above, found ? rank - 1 : rank};
    }
    const unsigned rank = left_rank<true>(pivot_key, probe);
    const bool found = rank != capacity_ && keys_->compare(key(rank), probe) == 0;
    const bool below = found || (rank != 0 && is_left(rank - 1));
    const bool above = rank + static_cast<unsigned>(found) < capacity_ || live || is_right(0);
    return {Side::left, false, found, below, above, rank};
  }

  // Of an inner node: the child for the probe, and whether an entry is below and above.
  struct Route {
    Word* child;
    bool below;
    bool above;
  };
  [[nodiscard]] Route route(const Probe& probe) const {
    const Word pivot_key = pivot();
    const bool live = (meta() & kPivotLive) != 0;
    const int order = keys_->compare(pivot_key, probe);
    if (order <= 0) {
      const unsigned rank = order == 0 ? 0 : right_rank(pivot_key, probe);
      const bool above = rank != capacity_ && keys_->in_right(key(rank), pivot_key);
      if (rank != 0) return {&entries_[rank - 1].value, true, above};
      if (live) return {&header_->pivot_value, true, above};
      return before_left(capacity_, pivot_key, above);
    }
    const unsigned rank = left_rank<false>(pivot_key, probe);
    const bool above = rank != capacity_ || live || keys_->in_right(key(0), pivot_key);
    return before_left(rank, pivot_key, above);
  }

  // For 8-byte keys. Nodes up to this level are far.
  static constexpr unsigned kFar = 1;
  [[nodiscard]] Halving halving(const Probe& probe, unsigned level) const {
    const Word pivot_key = pivot();
    const auto right = static_cast<unsigned>(probe.key > pivot_key);
    const Word end = probe.key - pivot_key + ((1 - right) & static_cast<unsigned>(level != 0));
    const bool can = probe.key != pivot_key && end != 0;
    return {entries_,  pivot_key + right,   end,   header_,
            probe.key, can ? capacity_ : 0, right, level <= kFar};
  }
  // The header, and what the first halving and the two that may follow it look at.
  void prefetch_for_halving() const {
    const unsigned half = std::bit_floor(capacity_);
    pmem::prefetch(header_);
    pmem::prefetch(entries_ + (capacity_ - half));
    pmem::prefetch(entries_ + (half / 2 - 1));
    pmem::prefetch(entries_ + (capacity_ - half / 2));
  }
  // Everything in it, without the losers among equal keys.
  void sort_into(Sorted& sorted) const {
    sorted.count = 0;
    const Word pivot_key = pivot();
    const auto [end, begin] = ends();
    for (unsigned i = begin; i < capacity_; ++i) {
      const Word word = key(i);
      // A crash in the middle of a trimming leaves marks between what was trimmed.
      if (!keys_->in_left(word, pivot_key)) continue;
      if (i == begin || word != key(i - 1)) sorted.push(Keys::plain(word), value(i));
    }
    if ((meta() & kPivotLive) != 0) sorted.push(pivot_key, pmem::load(&header_->pivot_value));
    for (unsigned i = 0; i < end; ++i) {
      const Word word = key(i);
      if (i + 1 == end || word != key(i + 1)) sorted.push(word, value(i));
    }
  }
  // Entries in use, losers among equal keys included.
  [[nodiscard]] unsigned used() const {
    const Ends regions = ends();
    return regions.right_end + capacity_ - regions.left_begin +
           static_cast<unsigned>((meta() & kPivotLive) != 0);
  }

  void prefetch() const { pmem::prefetch_lines(header_, bytes()); }

 private:
  // The first index for which `is` holds, where it holds for all behind that; capacity if none.
  template <class Is>
  [[nodiscard]] unsigned first(Is is) const {
    unsigned at = 0;
    for (unsigned size = capacity_; size > 1;) {
      const unsigned half = size / 2;
      at += is(at + half - 1) ? 0 : half;
      size -= half;
    }
    return at + static_cast<unsigned>(!is(at));
  }

  // The child of the last entry of the left region before `rank`. Its key is read once: a removal
  // may put the mark there meanwhile, which all free entries before it have, too.
  [[nodiscard]] Route before_left(unsigned rank, Word pivot_key, bool above) const {
    const Word word = rank == 0 ? pivot_key : key(rank - 1);
    if (rank == 0 || !keys_->in_left(word, pivot_key)) return {&header_->leftmost, false, above};
    unsigned i = rank - 1;
    while (i != 0 && key(i - 1) == word) --i;
    return {&entries_[i].value, true, above};
  }

  Header* header_;
  Entry* entries_;
  unsigned capacity_;
  const Keys* keys_;
};

}  // namespace everleaf::tree::pbtree
