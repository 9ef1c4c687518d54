// Key policies: what a slot's key word means, and what separators are.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "trees/bdtree/layout.hpp"
#include "trees/contract.hpp"

namespace everleaf::tree::bdtree {

// A bytes separator in DRAM; inner nodes own theirs.
struct Separator {
  std::string key;
};

// 8-byte keys: the key word is the key.
class U64Keys {
 public:
  using Key = std::uint64_t;
  static constexpr bool kRecords = false;
  struct Probe {
    std::uint64_t key;
    std::uint64_t prefix;
    std::uint8_t fingerprint;
  };

  explicit U64Keys(pmem::Medium&) {}
  [[nodiscard]] static Probe probe(Key key) { return {key, key, fingerprint_of(key)}; }
  [[nodiscard]] static bool too_long(Key) { return false; }
  [[nodiscard]] bool equal(Word word, const Probe& probe) const { return word == probe.key; }
  [[nodiscard]] bool readable(Word) const { return true; }
  [[nodiscard]] Key key_of(Word word) const { return word; }
  [[nodiscard]] static std::uint64_t own(Key key) { return key; }
  [[nodiscard]] static std::uint8_t fingerprint_of(Key key) {
    return static_cast<std::uint8_t>(key * 0x9E3779B97F4A7C15ULL >> 56);
  }
  [[nodiscard]] static std::uint64_t prefix_of(Key key) { return key; }
  // The smallest key above `left`, which is not the largest one.
  [[nodiscard]] static std::uint64_t successor(Key left) { return left + 1; }
  // A key above `left`, not above `right`.
  [[nodiscard]] static std::uint64_t between(Key, Key right) { return right; }
};

// Bytes keys: the word is 24 bits of hash and the offset of the key's record {length 32, bytes}.
class BytesKeys {
 public:
  using Key = Bytes;
  static constexpr bool kRecords = true;
  static constexpr unsigned kHashShift = 40;
  static constexpr Word kOffsetMask = (Word{1} << kHashShift) - 1;
  static_assert(pmem::kMaxPoolBytes - 1 <= kOffsetMask);

  struct Probe {
    Bytes key;
    std::uint64_t prefix;
    Word hash;  // shifted into place
    std::uint8_t fingerprint;
  };

  explicit BytesKeys(pmem::Medium& medium) : medium_(&medium) {}
  [[nodiscard]] static Probe probe(Key key) {
    const std::uint64_t hash = hash_of(key);
    return {key, prefix_of(key), hash & ~kOffsetMask, static_cast<std::uint8_t>(hash)};
  }
  [[nodiscard]] static bool too_long(Key key) { return key.size() > kMaxKeyBytes; }
  [[nodiscard]] bool equal(Word word, const Probe& probe) const {
    return (word & ~kOffsetMask) == probe.hash && key_of(word) == probe.key;
  }
  // Whether the word names a record inside the pool.
  [[nodiscard]] bool readable(Word word) const { return length_of(word) <= kMaxKeyBytes; }
  // Empty if it does not; valid while the caller is pinned.
  [[nodiscard]] Key key_of(Word word) const {
    const std::uint64_t length = length_of(word);
    if (length > kMaxKeyBytes) return {};
    return {medium_->at<char>((word & kOffsetMask) + sizeof(std::uint32_t)), length};
  }
  [[nodiscard]] static std::string own(Key key) { return std::string(key); }
  [[nodiscard]] static std::uint8_t fingerprint_of(Key key) {
    return static_cast<std::uint8_t>(hash_of(key));
  }
  [[nodiscard]] static std::uint64_t prefix_of(Key key) {
    std::uint64_t prefix = 0;
    if (key.empty()) return 0;  // its data may be null
    std::memcpy(&prefix, key.data(), std::min<std::size_t>(key.size(), sizeof prefix));
    return __builtin_bswap64(prefix);
  }
  [[nodiscard]] static std::string successor(Key left) { return std::string(left) + '\0'; }
  [[nodiscard]] static std::string between(Key left, Key right) {
    const auto differ = std::ranges::mismatch(left, right).in2;
    return std::string(right.substr(0, static_cast<std::size_t>(differ - right.begin()) + 1));
  }

  [[nodiscard]] static Offset record_of(Word word) { return word & kOffsetMask; }
  [[nodiscard]] static std::size_t record_bytes(Key key) {
    return sizeof(std::uint32_t) + key.size();
  }
  // Fills a reserved block; the key word.
  Word write_record(Offset block, Key key) const {
    const auto length = static_cast<std::uint32_t>(key.size());
    std::byte* const record = medium_->at(block);
    std::memcpy(record, &length, sizeof length);
    if (!key.empty()) std::memcpy(record + sizeof length, key.data(), key.size());
    medium_->count_written(record_bytes(key));
    return block | (hash_of(key) & ~kOffsetMask);
  }
  [[nodiscard]] bool hash_matches(Word word) const {
    return (hash_of(key_of(word)) & ~kOffsetMask) == (word & ~kOffsetMask);
  }

 private:
  [[nodiscard]] static std::uint64_t hash_of(Key key) {
    return XXH3_64bits(key.data(), key.size());
  }
  // Larger than any key if the word names no record.
  [[nodiscard]] std::uint64_t length_of(Word word) const {
    const Offset at = word & kOffsetMask;
    std::uint32_t length = 0;
    if (at < pmem::kHeapAt || at % 16 != 0 || !medium_->contains(at, sizeof length)) {
      return ~std::uint64_t{0};
    }
    std::memcpy(&length, medium_->at(at), sizeof length);
    if (!medium_->contains(at + sizeof length, length)) return ~std::uint64_t{0};
    return length;
  }
  pmem::Medium* medium_;
};

}  // namespace everleaf::tree::bdtree
