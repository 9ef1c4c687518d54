// Media structs of the BzTree (paper, Figure 2). All words are 8 bytes; W marks words of the
// multi-word compare-and-swap (src/pmwcas), whose bit 63 is not theirs.
//
//   leaf    +0   header   bytes: 32 | sorted entries: 16 | level 0: 8 | has bits 63: bit 56 |
//                         to be replaced before it changes: bit 57
//           +8   status W block bytes: 13 | deleted bytes: 13 | entries: 10 | version: 26 |
//                         frozen: bit 62. The paper has 22, 22, 16 and no version.
//           +16  fingerprints, a byte per entry: the low bits of its hash; in 1 KB room for 48,
//                of which 8-byte keys take 40; behind them, if the header says so, bit 63 of
//                the values of the sorted entries, from bit 62 on (older releases have none)
//           ..   metadata W, one per entry, growing upwards; zero behind the entries,
//                or bytes of a record that a crash took back
//           ..   free space
//           ..   records, growing downwards from the end: value W, key padded to 8 bytes; of
//                payloads (values=bytes) short ones behind the key, padded to 8 bytes
//                and their value W is the offset of the payload's block, which holds nothing else:
//                40 | its bytes: 17 bits; offset 0: it lies behind the key
//   inner   +0   header   bytes: 32 | children: 16 | level from 1: 8 | shift: 6
//           +8   status W version: 62 | frozen: bit 62
//           +16  the first prefix
//           +24  codes, 16 bits per separator that may fit: (prefix - first prefix) >> shift;
//                         those behind the last are ones
//           ..   children W, one more
//           ..   prefixes, one per separator: the key itself, or its first 8 bytes, big-endian
//           ..   bytes keys: slots, one per separator, and the separators' bytes at the end
//   root    +0   status W as an inner node's
//           +8   root node W
//           +16  index epoch of the last session that reserved entries: odd, or 0
//           +24  zero: the table of descriptors of layouts up to 2, whose releases know no number
//                of a layout, and refuse a pool without a table
//           +32  number of this layout
//           +40  table of descriptors
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include <everleaf/index.hpp>

#include "pmwcas/layout.hpp"

namespace everleaf::tree::bztree {

using pmem::Offset;
using pmem::Word;

inline constexpr std::uint32_t kMinPageBytes = 256;
inline constexpr std::uint32_t kMaxPageBytes = 4096;
inline constexpr std::uint32_t kUsualPageBytes = 1024;  // nothing but speed is a matter of it
inline constexpr std::uint32_t kMinFreeBytes = 32;
inline constexpr std::size_t kHeadBytes = 16;  // header and status
// Of a leaf: for each entry of 24 bytes that fits a page, in sixteens.
[[nodiscard]] constexpr std::uint32_t fingerprints_of(std::uint32_t page) {
  return (page * 3 + 1023) / 1024 * 16;
}
static_assert([] {
  for (std::uint32_t page = kMinPageBytes; page <= kMaxPageBytes; page += 64) {
    // And one of the empty key, which has less.
    if ((page - kHeadBytes - fingerprints_of(page)) / 24 + 1 > fingerprints_of(page)) return false;
  }
  return true;
}());
inline constexpr unsigned kMaxHeight = 32;
// Keys longer than this part of a page have a record of their own: a split finds a place between
// two of eight, and the lengths of the others fit their bits in the metadata.
inline constexpr std::uint32_t kLongKeys = 8;
// Percent of a page that an inner node may have after a merge: the next separators must not split
// it at once.
inline constexpr std::uint32_t kMergedInner = 75;
// 0: before statuses had versions and separators codes; 2: before the table moved; 3: before leaves
// had fingerprints and all inner nodes room for as many codes.
inline constexpr Word kLayout = 4;
inline constexpr Word kPayloadLayout = 5;  // of values=bytes, which earlier releases do not know

struct RootAt {
  Word status;
  Word child;
  Word epoch;
  Word old_table;
  Word layout;
  Word table;
  std::array<Word, 2> reserved;
};
static_assert(sizeof(RootAt) == pmem::kLine);

// One register: taken apart where a part is needed.
struct Header {
  Word word;

  static constexpr unsigned kCountAt = 32;
  static constexpr unsigned kLevelAt = 48;
  static constexpr unsigned kShiftAt = 56;
  // `count`: of sorted entries, or of children. `shift`: of codes.
  [[nodiscard]] static constexpr Header of(std::uint32_t bytes, std::uint32_t count,
                                           std::uint32_t level, std::uint32_t shift = 0) {
    return {bytes | static_cast<Word>(count) << kCountAt | static_cast<Word>(level) << kLevelAt |
            static_cast<Word>(shift) << kShiftAt};
  }
  [[nodiscard]] constexpr std::uint32_t bytes() const { return static_cast<std::uint32_t>(word); }
  [[nodiscard]] constexpr std::uint32_t count() const {
    return static_cast<std::uint32_t>(word >> kCountAt & 0xFFFF);
  }
  [[nodiscard]] constexpr std::uint32_t level() const {
    return static_cast<std::uint32_t>(word >> kLevelAt & 0xFF);
  }
  [[nodiscard]] constexpr std::uint32_t shift() const {
    return static_cast<std::uint32_t>(word >> kShiftAt & 0x3F);
  }
};

inline constexpr Word kFrozen = Word{1} << 62;

// The value of an index of payloads.
struct PayloadAt {
  Offset at;
  std::uint32_t bytes;

  static constexpr unsigned kBits = 17;
  static constexpr Word kMask = (Word{1} << kBits) - 1;
  [[nodiscard]] static constexpr PayloadAt of(Word word) {
    return {word >> kBits, static_cast<std::uint32_t>(word & kMask)};
  }
  [[nodiscard]] constexpr Word word() const { return at << kBits | bytes; }
};
// A number as a payload: its bytes, least first, up to the last that is not zero. It must stay.
[[nodiscard]] inline Bytes payload_of_number(const std::uint64_t& number) {
  const auto bytes = static_cast<std::size_t>(std::bit_width(number) + 7) / 8;
  return {reinterpret_cast<const char*>(&number), bytes};
}
static_assert(std::endian::native == std::endian::little);
static_assert(kMaxPayloadBytes < PayloadAt::kMask &&
              pmem::kMaxPoolBytes << PayloadAt::kBits < pmwcas::kControl);

// Of a leaf. Every change of what is visible in it makes it another word: deletions and new records
// by their bytes, the others by the version, which counts round.
struct Status {
  Word word;

  static constexpr unsigned kBits = 13;
  static constexpr unsigned kEntryBits = 10;
  static constexpr unsigned kVersionAt = 2 * kBits + kEntryBits;
  static constexpr Word kMask = (Word{1} << kBits) - 1;
  static constexpr Word kEntryMask = (Word{1} << kEntryBits) - 1;
  static constexpr Word kVersionMask = (kFrozen - 1) >> kVersionAt << kVersionAt;
  [[nodiscard]] constexpr bool frozen() const { return (word & kFrozen) != 0; }
  [[nodiscard]] constexpr std::uint32_t block() const {
    return static_cast<std::uint32_t>(word & kMask);
  }
  [[nodiscard]] constexpr std::uint32_t deleted() const {
    return static_cast<std::uint32_t>(word >> kBits & kMask);
  }
  [[nodiscard]] constexpr std::uint32_t count() const {
    return static_cast<std::uint32_t>(word >> 2 * kBits & kEntryMask);
  }
  // Nothing was deleted, and each entry has so many bytes of the block. Of a count whose bytes fit
  // the block's bits: else they would carry.
  [[nodiscard]] constexpr bool is_packed(std::uint32_t bytes) const {
    constexpr Word kPlain = (Word{1} << kVersionAt) - 1;
    return (word & kPlain) == count() * Status{0}.reserve(1, bytes);
  }
  // Whether a key may have become visible between two statuses of a leaf.
  [[nodiscard]] constexpr bool has_version_of(Status other) const {
    return ((word ^ other.word) & kVersionMask) == 0;
  }
  [[nodiscard]] constexpr Word freeze() const { return word | kFrozen; }
  [[nodiscard]] constexpr Word reserve(std::uint32_t entries, std::uint32_t bytes) const {
    return word + bytes + (static_cast<Word>(entries) << 2 * kBits);
  }
  [[nodiscard]] constexpr Word remove(std::uint32_t bytes) const {
    return word + (static_cast<Word>(bytes) << kBits);
  }
  [[nodiscard]] constexpr Word next() const {
    return (word & ~kVersionMask) | ((word + (Word{1} << kVersionAt)) & kVersionMask);
  }
};
static_assert(Status::kMask >= kMaxPageBytes &&
              Status::kEntryMask >= fingerprints_of(kMaxPageBytes));

// Metadata of an entry. Zero: never filled, reserved, or an insertion that gave up.
struct Meta {
  Word word;

  // Of an insertion under way, with `reserve=entry`: the index epoch of its reservation.
  static constexpr Word kReserved = Word{1} << 61;
  static constexpr Word kVisible = Word{1} << 62;
  static constexpr Word kTop = Word{1} << 60;   // bit 63 of the value
  static constexpr Word kLong = Word{1} << 59;  // the record holds the offset of the key's record
  static constexpr Word kEpochMask = (Word{1} << 28) - 1;
  static constexpr Word kTagMask = (Word{1} << 14) - 1;
  static constexpr unsigned kTagAt = 42;

  // offset and total are multiples of 8
  [[nodiscard]] static constexpr Meta entry(std::uint32_t offset, std::uint32_t total,
                                            std::uint32_t key_bytes, std::uint32_t hash,
                                            Word flags) {
    return {kVisible | flags | (hash & kTagMask) << kTagAt | static_cast<Word>(total / 8) << 29 |
            static_cast<Word>(key_bytes) << 13 | offset / 8};
  }
  // Of one that has no offset yet.
  [[nodiscard]] constexpr Meta at(std::uint32_t offset) const { return {word | offset / 8}; }
  [[nodiscard]] static constexpr Meta reservation(Word epoch) {
    return {kReserved | (epoch & kEpochMask) << 32};
  }
  [[nodiscard]] constexpr bool visible() const { return (word & kVisible) != 0; }
  // Of an index epoch to come. Epochs count round.
  [[nodiscard]] constexpr bool reserved_after(Word epoch) const {
    return (word & kReserved) != 0 && ((epoch - (word >> 32)) & kEpochMask) > kEpochMask / 2;
  }
  [[nodiscard]] constexpr bool top() const { return (word & kTop) != 0; }
  [[nodiscard]] constexpr bool is_long() const { return (word & kLong) != 0; }
  [[nodiscard]] constexpr std::uint32_t offset() const {
    return static_cast<std::uint32_t>(word & 0x1FFF) * 8;
  }
  [[nodiscard]] constexpr std::uint32_t key_bytes() const {
    return static_cast<std::uint32_t>(word >> 13 & 0xFFFF);
  }
  [[nodiscard]] constexpr std::uint32_t total() const {
    return static_cast<std::uint32_t>(word >> 29 & 0x1FFF) * 8;
  }
  [[nodiscard]] constexpr std::uint32_t tag() const {  // of the key's hash
    return static_cast<std::uint32_t>(word >> kTagAt & kTagMask);
  }
  [[nodiscard]] constexpr bool tagged(std::uint32_t hash) const {
    return tag() == (hash & kTagMask);
  }
  // Deleted: the offset stays.
  [[nodiscard]] constexpr Word hidden() const { return word & ~kVisible; }
};

}  // namespace everleaf::tree::bztree
