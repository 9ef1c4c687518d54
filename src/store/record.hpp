// What a value word of a table means, and what a record holds.
//
//   value word    offset / 16 of the record 36 | length of the value 28
//   record        +0  XXH3 of the value, seeded with the hash of table name and key: 8 bytes
//                 +8  the value
//
// The length is in the word, so that recovery learns which memory is in use from the keys alone.
#pragma once

#include <cstring>
#include <string_view>

#define XXH_INLINE_ALL
#include <everleaf/index.hpp>

#include <xxhash.h>

#include "pmem/format.hpp"
#include "pmem/medium.hpp"

namespace everleaf::store {

using pmem::Offset;
using pmem::Word;

inline constexpr unsigned kLengthBits = 28;
static_assert(kMaxValueBytes == (std::size_t{1} << kLengthBits) - 1);
static_assert(pmem::kMaxPoolBytes / 16 <= Word{1} << (64 - kLengthBits));

struct Record {
  Offset at;
  std::uint64_t length;

  [[nodiscard]] static constexpr Record of(Word word) {
    return {(word >> kLengthBits) * 16, word & kMaxValueBytes};
  }
  [[nodiscard]] constexpr Word word() const { return at / 16 << kLengthBits | length; }
  [[nodiscard]] constexpr std::size_t bytes() const { return sizeof(Word) + length; }
  [[nodiscard]] bool inside(const pmem::Medium& medium) const {
    return at >= pmem::kHeapAt && medium.contains(at, bytes());
  }
};

// In sizes of the pool, what is read of a table's values and keys to check, to copy or to repair
// it. A sound one has less than one size of them; forged words may all name the longest.
inline constexpr std::uint64_t kMostRead = 64;

// Bytes that may still be read.
class Budget {
 public:
  explicit Budget(std::uint64_t bytes) : left_(bytes) {}
  // False: not so much is left, and nothing any more.
  [[nodiscard]] bool spend(std::uint64_t bytes) {
    exceeded_ = exceeded_ || bytes > left_;
    left_ = exceeded_ ? 0 : left_ - bytes;
    return !exceeded_;
  }
  [[nodiscard]] bool exceeded() const { return exceeded_; }

 private:
  std::uint64_t left_;
  bool exceeded_ = false;
};

// The seed of a value's checksum. Also says which latch a key has.
[[nodiscard]] inline std::uint64_t hash_of(std::uint64_t table, Bytes key) {
  return XXH3_64bits_withSeed(key.data(), key.size(), table);
}
[[nodiscard]] inline std::uint64_t hash_of(std::uint64_t table, std::uint64_t key) {
  return XXH3_64bits_withSeed(&key, sizeof key, table);
}
[[nodiscard]] inline std::uint64_t checksum_of(std::uint64_t hash, Bytes value) {
  return XXH3_64bits_withSeed(value.data(), value.size(), hash);
}

}  // namespace everleaf::store
