// Media layout of the BD+Tree: the root block and leaves.
//
//   leaf: k metadata lines, then k x 28 slots of {key word, value} (k = node / 512; 256: 12 slots)
//
//   metadata line of cell i, which has slots 28 i to 28 i + 27:
//     0..27   fingerprints of the slots, a byte each
//     28      lines of the cell that the epoch of the newest word has noted: bit 0 this one, then
//             its slots'; means nothing after a crash
//     29..31  0
//     32..55  three words W: tag 34 | present 1 | retired 1 | bitmap 28
//     56..63  cell 0: next 32, replacement 32 (leaf numbers); otherwise 0
//
//   A W belongs to the epoch whose low 34 bits are its tag (fewer in the crash checker's build); of
//   the epochs that it does not name, it holds until the next larger tag. A word without `present`
//   is none.
//   A leaf's number is its offset / 256; 0 is none.
//
//   root block (4096 bytes), line 0:
//     0..7    image: number of its first block 32 (offset / 256; 0: none), low bits of its epoch 32
//     8..55   0
//     56..63  as in a leaf: next is the head of the leaf list
//   from byte 64 on: the table of extents.
//
//   image (image.cpp): a stream of words in blocks of a leaf's size, word 0 of each the offset of
//   the next, 0 in the last. The stream:
//     0       XXH3 checksum of the words behind it
//     1       words of the stream
//     2       epoch in which it was written
//     3       words of the space's state (epoch::Space::save)
//     4       leaves
//     5       epoch from which on it is not believed: a round of D10 is due
//     6..     the space's state, then the leaves from left to right: offset and, but for the first,
//             the separator before it; of bytes keys: length, and the bytes, the last word padded
//             with zeros
#pragma once

#include <cstddef>

#include "base/limits.hpp"
#include "epoch/epochs.hpp"
#include "epoch/space.hpp"
#include "pmem/medium.hpp"

namespace everleaf::tree::bdtree {

using epoch::Epoch;
using pmem::Offset;
using pmem::Word;

inline constexpr std::size_t kCellSlots = 28;
inline constexpr std::size_t kLeafAlign = epoch::kBlockAlign;
inline constexpr std::size_t kMaxCells = 4;
inline constexpr std::size_t kMaxSlots = kMaxCells * kCellSlots;

struct MetaLine {
  std::array<Word, 4> fingerprints;  // and, in byte 28, the noted lines
  std::array<Word, 3> w;
  Word links;
};
static_assert(sizeof(MetaLine) == pmem::kLine);

struct Slot {
  Word key;
  Word value;
};
static_assert(sizeof(Slot) == 16);

struct RootLine {
  Word image;
  std::array<Word, 6> reserved;
  Word links;
};
static_assert(sizeof(RootLine) == pmem::kLine &&
              offsetof(RootLine, links) == offsetof(MetaLine, links));

inline constexpr std::size_t kRootBytes = 4096;
inline constexpr std::size_t kExtentsAt = sizeof(RootLine);
inline constexpr std::size_t kExtents = (kRootBytes - kExtentsAt) / sizeof(epoch::Extent);

// What the node option comes to.
struct Shape {
  std::size_t bytes;
  std::size_t cells;
  std::size_t cell_slots;

  [[nodiscard]] constexpr std::size_t slots() const { return cells * cell_slots; }
  // Bits of slots that are there.
  [[nodiscard]] constexpr Word slot_bits() const { return (Word{1} << cell_slots) - 1; }
  [[nodiscard]] constexpr std::size_t slots_at() const { return cells * sizeof(MetaLine); }
};

constexpr Shape make_shape(std::size_t bytes) {
  if (bytes < 512) return {bytes, 1, (bytes - sizeof(MetaLine)) / sizeof(Slot)};
  return {bytes, bytes / 512, kCellSlots};
}
static_assert(make_shape(256).slots() == 12 && make_shape(512).slots() == 28);
static_assert(make_shape(2048).slots_at() + make_shape(2048).slots() * sizeof(Slot) == 2048);

// --- W ---
inline constexpr Word kBitmap = (Word{1} << kCellSlots) - 1;
inline constexpr Word kRetired = Word{1} << 28;
inline constexpr Word kPresent = Word{1} << 29;
inline constexpr unsigned kTagShift = 64 - base::kTagBits;
static_assert(kTagShift >= 30);

[[nodiscard]] constexpr Word tag_word(Epoch e) {
  return e << kTagShift | kPresent;
}
[[nodiscard]] constexpr bool present(Word w) {
  return (w & kPresent) != 0;
}
// Tags compare modulo 2^34 (D10); two words of one cell never have the same.
[[nodiscard]] constexpr bool newer(Word a, Word b) {
  return present(a) && (!present(b) || static_cast<std::int64_t>(a - b) > 0);
}
[[nodiscard]] constexpr bool of_epoch(Word w, Epoch e) {
  return present(w) && w >> kTagShift == tag_word(e) >> kTagShift;
}
// Whether the word is of a later epoch.
[[nodiscard]] constexpr bool after(Word w, Epoch e) {
  return present(w) &&
         static_cast<std::int64_t>((w >> kTagShift << kTagShift) - (e << kTagShift)) > 0;
}

// Whether the word has to be made young (D10).
[[nodiscard]] constexpr bool is_old(Word w, Epoch base) {
  return present(w) && !after(w, base - base::kOldTag);
}

}  // namespace everleaf::tree::bdtree
