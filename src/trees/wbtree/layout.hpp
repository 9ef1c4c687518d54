// Media layout of wB+-Tree nodes (paper, Figure 8). All words are 8 bytes, little-endian.
//
//   slot-only node (Figure 8 c, d), 128 bytes, up to 7 entries
//     +0   slots: byte 0 the count, bytes 1..7 entry numbers in key order
//     +8   link: leaf: next leaf (0: none); inner: leftmost child
//     +16  entries: {key, value or child} x 7
//
//   slot+bitmap node (Figure 8 e, f)                bitmap-only leaf (Figure 8 b)
//     +0   bitmap: bit 0 slot array valid,            +0   bitmap: bit 0 unused (zero),
//          bit u + 1: entry u is in use                    bit u + 1: entry u is in use
//     +8   link                                       +8   link
//     +16  slot array: as above, padded to 16         +16  entries
//     +..  entries
//
// An entry is 16 bytes, aligned to 16: it never straddles a line. A child is the offset of a node.
// The directory's root word is `offset of the root | levels of inner nodes` (offsets are multiples
// of 64). Key words: trees/keys.hpp. The tag of a bytes key is its first three bytes, big-endian,
// where keys are searched in order; 24 bits of its hash in bitmap-only leaves.
#pragma once

#include <bit>
#include <cstdint>

#include "pmem/medium.hpp"

namespace everleaf::tree::wbtree {

using pmem::Offset;
using pmem::Word;

enum class NodeKind : std::uint8_t { slot_only, slot_bitmap, bitmap_only };

struct Entry {
  Word key;
  Word value;
};
static_assert(sizeof(Entry) == 16);

inline constexpr std::uint32_t kControlAt = 0;
inline constexpr std::uint32_t kLinkAt = 8;
inline constexpr std::uint32_t kSlotsAt = 16;
inline constexpr std::uint32_t kNodeAlign = 64;
inline constexpr std::uint32_t kMinNodeBytes = 128;
inline constexpr std::uint32_t kMaxNodeBytes = 1024;
inline constexpr std::uint32_t kMaxEntries = 63;  // bits 1..63 of the bitmap
inline constexpr std::uint32_t kMaxHeight = 63;   // low bits of the root word

struct Shape {
  NodeKind kind;
  std::uint32_t bytes;
  std::uint32_t capacity;
  std::uint32_t entries_at;
};

constexpr Shape make_shape(NodeKind kind, std::uint32_t bytes) {
  if (kind == NodeKind::slot_only) return {kind, bytes, 7, 16};
  constexpr auto kEntryBytes = static_cast<std::uint32_t>(sizeof(Entry));
  std::uint32_t capacity = (bytes - 16) / kEntryBytes;
  std::uint32_t entries_at = 16;
  if (capacity > kMaxEntries) capacity = kMaxEntries;
  if (kind == NodeKind::slot_bitmap) {
    const auto start = [](std::uint32_t n) { return kSlotsAt + (1 + n + 15) / 16 * 16; };
    while (start(capacity) + capacity * kEntryBytes > bytes) --capacity;
    entries_at = start(capacity);
  }
  return {kind, bytes, capacity, entries_at};
}
// The paper's n = 31 and n' = 29 for nodes of 512 bytes, and what 2 and 16 lines give.
static_assert(make_shape(NodeKind::bitmap_only, 512).capacity == 31);
static_assert(make_shape(NodeKind::slot_bitmap, 512).capacity == 29);
static_assert(make_shape(NodeKind::bitmap_only, 1024).capacity == 63);
static_assert(make_shape(NodeKind::slot_bitmap, 1024).capacity == 59);
static_assert(make_shape(NodeKind::slot_bitmap, 1024).entries_at == 80);
static_assert(make_shape(NodeKind::slot_bitmap, 128).capacity == 6);
static_assert(make_shape(NodeKind::bitmap_only, 128).capacity == 7);

}  // namespace everleaf::tree::wbtree
