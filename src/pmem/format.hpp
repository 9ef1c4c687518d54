// The pool's media format, version 1. docs/pool-format.md tells the same for people.
//
//   0       header copy A (256 bytes used of 4096)
//   4096    header copy B
//   8192    state: two lines that change while the pool is in use
//   12288   directory: 63 entries of 256 bytes
//   28416   offset of the Store's root block, 0: there is none; otherwise reserved
//   28672   64 redo lanes of 2048 bytes
//   196608  heap: slabs of 64 KiB up to the frontier
//
// Integers are little-endian. Reserved bytes are zero and stay zero.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include <everleaf/pool.hpp>

#include "pmem/medium.hpp"

namespace everleaf::pmem {

static_assert(std::endian::native == std::endian::little, "the media format is little-endian");

inline constexpr std::uint64_t kMagic = 0x314641454C525645ULL;  // "EVRLEAF1" read as bytes
inline constexpr std::uint32_t kVersion = 1;
inline constexpr std::uint32_t kEndianMark = 0x01020304;

inline constexpr Offset kHeaderA = 0;
inline constexpr Offset kHeaderB = 4096;
inline constexpr Offset kStateAt = 8192;
inline constexpr Offset kDirectoryAt = 12288;
inline constexpr Offset kStoreAt = 28416;
inline constexpr Offset kLanesAt = 28672;
inline constexpr std::size_t kLanes = 64;
inline constexpr std::size_t kLaneBytes = 2048;
inline constexpr Offset kHeapAt = 196608;
inline constexpr std::uint64_t kSlabBytes = 65536;
inline constexpr std::uint64_t kMinPoolBytes = std::uint64_t{1} << 20;

// Feature bits of this version. An unknown compatible bit is ignored, an unknown
// read-only-compatible bit allows only Mode::read_only, an unknown incompatible bit refuses.
// kImages: there may be some, which who does not know them would leave beside what it changes.
inline constexpr std::uint64_t kImages = 1;
inline constexpr std::uint64_t kKnownReadOnlyCompatible = kImages;
// There is a Store: values of its tables name records (src/store).
inline constexpr std::uint64_t kStore = 1;
// There may be late records in the redo lanes: who does not know them would apply them by lane, not
// by age. Only while the pool is open, and after a crash.
inline constexpr std::uint64_t kLateRecords = 2;
inline constexpr std::uint64_t kKnownIncompatible = kStore | kLateRecords;

struct Header {
  std::uint64_t magic;             // 0: written last, in one word
  std::uint32_t version;           // 8
  std::uint32_t endian;            // 12
  std::uint64_t compatible;        // 16
  std::uint64_t ro_compatible;     // 24
  std::uint64_t incompatible;      // 32
  std::array<std::byte, 16> uuid;  // 40
  std::uint64_t sequence;          // 56: the valid copy with the larger one counts
  std::uint64_t clean;             // 64: 1 after a proper close
  std::uint64_t file_bytes;  // 72: size at the last open or close: a shorter file is truncated
  std::uint64_t created_s;   // 80: seconds since 1970
  std::array<std::byte, 160> reserved;
  std::uint64_t checksum;  // 248: XXH3 of bytes 8..247
};
static_assert(sizeof(Header) == 256 && offsetof(Header, uuid) == 40 &&
              offsetof(Header, sequence) == 56 && offsetof(Header, checksum) == 248);

struct PoolState {
  Word frontier;  // end of the slabs in use: no block above it was ever handed out
  std::array<Word, 7> reserved;
  Word clock;  // 64: epochs of the buffered trees (src/epoch); 0: never stepped
  std::array<Word, 7> reserved_clock;
};
static_assert(sizeof(PoolState) == 2 * kLine && offsetof(PoolState, clock) == kLine);

// The root block of a Store (src/store), on a line of its own.
struct StoreRoot {
  Word kind;      // 1: strict, 2: buffered
  Word image;     // 8: offset of what is in use, after a proper close; 0: none
  Word batch;     // 16: offset of a batch's list | its state; 0: none
  Word dropping;  // 24: offset of a list of blocks that are to be freed; 0: none
  Word dropped;   // 32: how many of them are free
  std::array<Word, 3> reserved;
  std::array<std::array<Word, 2>, 252> extents;  // 64: {offset, bytes} of memory for records
};
static_assert(sizeof(StoreRoot) == 4096 && offsetof(StoreRoot, extents) == kLine);

// Words that the root names, in its memory for records: an image, a batch, what is to be freed.
struct StoreList {
  std::uint64_t checksum;  // XXH3 of what follows
  std::uint64_t count;     // words behind it
};

inline constexpr std::size_t kSpecBytes = 128;
inline constexpr std::uint64_t kTableBit = 256;  // a table of the pool's Store

struct DirectoryEntry {
  Word state;                                // 0: free, 1: in use; set last, by the redo log
  std::uint64_t key_type;                    // 8: KeyType, and kTableBit
  std::array<char, kMaxNameBytes + 1> name;  // 16: zero-terminated
  std::array<char, kSpecBytes> spec;         // 80: canonical, zero-terminated
  Word root;                                 // 208: the tree's own word
  std::array<Word, 4> reserved;              // 216
  std::uint64_t checksum;                    // 248: XXH3 of bytes 8..207
};
static_assert(sizeof(DirectoryEntry) == 256 && offsetof(DirectoryEntry, spec) == 80 &&
              offsetof(DirectoryEntry, root) == 208 && offsetof(DirectoryEntry, checksum) == 248);
static_assert(kDirectoryAt + kMaxIndexes * sizeof(DirectoryEntry) <= kStoreAt);
static_assert(kLanesAt + kLanes * kLaneBytes <= kHeapAt && kHeapAt % kSlabBytes == 0);

}  // namespace everleaf::pmem
