// Media layout of the LodgeTree: root block, leaves, log. All words are 8 bytes, little-endian.
//
//   leaf: 256, 512 or 1024 bytes
//     0..7    W: bitmap of the slots in use | use bit 63: which of the two links counts
//     8..15   stamp: every log record of this leaf's range with an order up to it is in the leaf
//             or has a newer one there
//     16..23  next0 32, next1 32: the leaf to the right (leaf numbers; 0: none)
//     24..31  low: key word at or below all keys of the range; 0 in the first leaf
//     32..    fingerprints of the slots, a byte each, padded to 16
//     ..      slots of {key word, value}
//   A leaf's number is its offset / 256. The low of bytes keys has a key record of its own.
//
//   root block (8192 bytes)
//     0..7    session: log records of others mean nothing
//     8..15   head: offset of the first leaf
//     16..63  0
//     64..    table of extents (src/epoch/space.hpp), up to byte 4096
//     4096..  directory of the log: offsets of chunks, 0: none
//
//   log chunk: records of 32 bytes
//     0..7    key word
//     8..15   value
//     16..23  order: session 23, count 40 | bit 0: a removal
//     24..31  XXH3 of the words before, seeded with the record's offset and the key's hash
#pragma once

#include <array>
#include <cstddef>

#include "epoch/space.hpp"
#include "pmem/medium.hpp"

namespace everleaf::tree::lodgetree {

using pmem::Offset;
using pmem::Word;

inline constexpr std::size_t kLeafAlign = epoch::kBlockAlign;
inline constexpr std::size_t kMaxSlots = 58;

struct LeafLine {
  Word w;
  Word stamp;
  Word links;
  Word low;
};
static_assert(sizeof(LeafLine) == 32);

struct Slot {
  Word key;
  Word value;
};
static_assert(sizeof(Slot) == 16);

// What the node option comes to.
struct Shape {
  std::size_t bytes;
  std::size_t slots;
  std::size_t slots_at;

  [[nodiscard]] constexpr Word bits() const { return (Word{1} << slots) - 1; }
};

constexpr Shape make_shape(std::size_t bytes) {
  std::size_t slots = (bytes - sizeof(LeafLine)) / 17;
  const auto at = [](std::size_t n) { return sizeof(LeafLine) + (n + 15) / 16 * 16; };
  while (at(slots) + slots * sizeof(Slot) > bytes) --slots;
  return {bytes, slots, at(slots)};
}
static_assert(make_shape(512).slots == 28 && make_shape(512).slots_at == 64);
static_assert(make_shape(256).slots == 13 && make_shape(256).slots_at == 48);
static_assert(make_shape(1024).slots == kMaxSlots && make_shape(1024).slots_at == 96);

inline constexpr Word kUse = Word{1} << 63;

struct Record {
  Word key;
  Word value;
  Word order;
  Word sum;
};
static_assert(sizeof(Record) == 32 && pmem::kLine % sizeof(Record) == 0);

// Of a chunk of the log.
inline constexpr std::size_t kMaxChunkBytes = 16 * epoch::kChunkBytes;

inline constexpr Word kRemoval = 1;
inline constexpr unsigned kCountBits = 40;
// Of a node in one session; half of what fits, so that replay has room above the last one.
inline constexpr Word kMaxCount = (Word{1} << (kCountBits - 1)) - 1;
inline constexpr Word kMaxSession = (Word{1} << 23) - 1;
// Orders of a session begin here; an order is shifted by one in a record.
[[nodiscard]] constexpr Word first_order(Word session) {
  return session << kCountBits;
}
[[nodiscard]] constexpr Word count_of(Word order) {
  return order & ((Word{1} << kCountBits) - 1);
}
[[nodiscard]] constexpr Word session_of(Word order) {
  return order >> kCountBits;
}

struct RootLine {
  Word session;
  Word head;
  std::array<Word, 6> reserved;
};
static_assert(sizeof(RootLine) == pmem::kLine);

inline constexpr std::size_t kRootBytes = 8192;
inline constexpr std::size_t kExtentsAt = sizeof(RootLine);
inline constexpr std::size_t kDirectoryAt = 4096;
inline constexpr std::size_t kExtents = (kDirectoryAt - kExtentsAt) / sizeof(epoch::Extent);
inline constexpr std::size_t kMaxChunks = (kRootBytes - kDirectoryAt) / sizeof(Word);

}  // namespace everleaf::tree::lodgetree
