// Media layout of PB+tree nodes (paper, Figure 2). All words are 8 bytes, little-endian.
//
//   +0   meta: level 8 | flags 8 | 0 | rewrites 32
//   +8   split key: no key of the node is smaller
//   +16  leftmost child (inner): of keys from the split key up to the first entry
//   +24  pivot key: larger keys are in the right region, smaller ones in the left region
//   +32  pivot value or child; it counts while kPivotLive is set
//   +40  left sibling (0: none)
//   +48  right sibling (0: none)
//   +56  next split key: the split that made the node is committed when +8 becomes this
//   +64  entries: {key, value or child}
//          right region: 0 .. r-1, ascending, grows up
//          free:         r .. l-1, the key is the mark
//          left region:  l .. capacity-1, ascending, grows down
//
// An entry is 16 bytes, aligned to 16: it never straddles a line. The mark of a free entry is the
// pivot key (8-byte keys) or 0 (bytes keys), so regions tell their own ends, even in a full node,
// and every key and every value is possible (rule E of the README).
// The paper's front and rear hints are not stored: a binary search finds the ends.
// A child is the offset of a node. The directory's root word is `offset of the root | its level`
// (offsets are multiples of 64). Key words: trees/keys.hpp; the tag of a bytes key is a bit that
// says "left region" and the first 23 bits of the key. Split key or pivot key 0: the empty key.
#pragma once

#include <cstddef>
#include <cstdint>

#include "pmem/medium.hpp"

namespace everleaf::tree::pbtree {

using pmem::Offset;
using pmem::Word;

struct Entry {
  Word key;
  Word value;
};
static_assert(sizeof(Entry) == 16);

struct Header {
  Word meta;
  Word split_key;
  Word leftmost;
  Word pivot_key;
  Word pivot_value;
  Word left;
  Word right;
  Word next_split_key;
};
static_assert(sizeof(Header) == pmem::kLine && offsetof(Header, pivot_key) == 24 &&
              offsetof(Header, left) == 40 && offsetof(Header, next_split_key) == 56);

// Flags of the meta word.
inline constexpr Word kPivotLive = Word{1} << 8;
// Left half of a split that is not finished: keys from the right sibling's split key on are not the
// node's, and if that is the node's own split key, none are.
inline constexpr Word kSplitting = Word{1} << 9;
// Right half: entries below the split key are not the node's.
inline constexpr Word kCopy = Word{1} << 10;
// Unlinked; only in memory, for threads that are still on their way to it.
inline constexpr Word kDead = Word{1} << 11;
inline constexpr Word kLevelMask = 0xFF;
// A pivot's key never changes under the same number of rewrites; of bytes keys in a leaf its word
// may, when the same key gets a record of its own.
inline constexpr Word kRewrite = Word{1} << 32;
// What must not change while a reader looks for a child.
inline constexpr Word kStable = kLevelMask | kDead | kSplitting | ~(kRewrite - 1);

inline constexpr std::uint32_t kNodeAlign = 64;
inline constexpr std::uint32_t kMinNodeBytes = 256;
inline constexpr std::uint32_t kMaxNodeBytes = 4096;
inline constexpr std::uint32_t kMaxLevel = 63;  // low bits of the root word

constexpr unsigned capacity_of(std::uint32_t node_bytes) {
  return (node_bytes - static_cast<std::uint32_t>(sizeof(Header))) /
         static_cast<std::uint32_t>(sizeof(Entry));
}
inline constexpr unsigned kMaxEntries = capacity_of(kMaxNodeBytes) + 1;  // the pivot's included
static_assert(capacity_of(512) == 28 && capacity_of(1024) == 60);

}  // namespace everleaf::tree::pbtree
