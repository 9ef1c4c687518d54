// What a key word means, for all trees. A room derives its key policies from these two and adds
// what it searches by: probes, tags, comparisons.
//
// A word of a bytes key is `tag << 40 | offset of the key record`; a record is a 4-byte length and
// the bytes. The tag is the room's.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstring>
#include <optional>
#include <span>
#include <string>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "pmem/prefetch.hpp"
#include "trees/contract.hpp"

namespace everleaf::tree {

// 8-byte keys: the word is the key.
class KeyWords {
 public:
  using Key = std::uint64_t;
  static constexpr bool kRecords = false;

  explicit KeyWords(pmem::Medium&) {}
  [[nodiscard]] static bool too_long(Key) { return false; }
  [[nodiscard]] bool readable(pmem::Word) const { return true; }
  [[nodiscard]] std::optional<Key> read(pmem::Word word) const { return word; }
  [[nodiscard]] Key key_of(pmem::Word word) const { return word; }
  [[nodiscard]] static std::uint64_t own(Key key) { return key; }
  // There are none.
  [[nodiscard]] static pmem::Offset record_of(pmem::Word) { return 0; }
  [[nodiscard]] static std::size_t record_bytes(Key) { return 0; }
  // A key above `left`, not above `right` (left < right).
  [[nodiscard]] static Key separator(Key, Key right) { return right; }
};

// Bytes keys: the word names the key's record.
class KeyRecords {
 public:
  using Key = Bytes;
  static constexpr bool kRecords = true;

  explicit KeyRecords(pmem::Medium& medium) : medium_(&medium) {}
  [[nodiscard]] static bool too_long(Key key) { return key.size() > kMaxKeyBytes; }
  // Whether the word names a record inside the pool.
  [[nodiscard]] bool readable(pmem::Word word) const { return read(word).has_value(); }
  // Nothing if it does not; valid while the caller is pinned.
  [[nodiscard]] std::optional<Key> read(pmem::Word word) const {
    using Length = std::uint32_t;
    const pmem::Offset at = record_of(word);
    const std::uint64_t end = medium_->size();
    if (at < pmem::kHeapAt || at % 16 != 0 || at + sizeof(Length) > end) return {};
    Length* const record = medium_->at<Length>(at);
    const Length length = std::atomic_ref<Length>(*record).load(std::memory_order_relaxed);
    if (length > kMaxKeyBytes || length > end - at - sizeof length) return {};
    return Key(reinterpret_cast<const char*>(record + 1), length);
  }
  // The same, or an empty key.
  [[nodiscard]] Key key_of(pmem::Word word) const { return read(word).value_or(Key{}); }
  // The record's first line, if it names one.
  void prefetch(pmem::Word word) const {
    if (medium_->contains(record_of(word), sizeof(std::uint32_t))) {
      pmem::prefetch(medium_->at(record_of(word)));
    }
  }
  [[nodiscard]] static std::string own(Key key) { return std::string(key); }
  // The shortest prefix of `right` that is larger than `left` (left < right).
  [[nodiscard]] static Key separator(Key left, Key right) {
    const auto differ = std::ranges::mismatch(left, right).in2;
    return right.substr(0, static_cast<std::size_t>(differ - right.begin()) + 1);
  }

  [[nodiscard]] static pmem::Offset record_of(pmem::Word word) { return word & kOffsetMask; }
  [[nodiscard]] static std::size_t record_bytes(Key key) {
    return sizeof(std::uint32_t) + key.size();
  }

 protected:
  static constexpr unsigned kOffsetBits = 40;
  static constexpr pmem::Word kOffsetMask = (pmem::Word{1} << kOffsetBits) - 1;
  static_assert(pmem::kMaxPoolBytes - 1 <= kOffsetMask);

  // In place, as in a word.
  [[nodiscard]] static pmem::Word tag_of(pmem::Word word) { return word & ~kOffsetMask; }
  [[nodiscard]] static std::uint64_t hash_of(Key key) {
    return XXH3_64bits(key.data(), key.size());
  }
  // Fills a reserved block; no flush.
  void store_record(pmem::Offset block, Key key) const {
    const auto length = static_cast<std::uint32_t>(key.size());
    std::byte* const record = medium_->at(block);
    // In a damaged pool the key may lie in the very block that is free.
    if (!key.empty()) std::memmove(record + sizeof length, key.data(), key.size());
    std::memcpy(record, &length, sizeof length);
    medium_->count_written(record_bytes(key));
  }

  pmem::Medium* medium_;
};

// What a bulk load refuses before its first store.
template <class Keys>
[[nodiscard]] Outcome loadable(std::span<const Entry<typename Keys::Key>> entries) {
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (Keys::too_long(entries[i].key)) return Outcome::key_too_long;
    if (i != 0 && !(entries[i - 1].key < entries[i].key)) return Outcome::not_ascending;
  }
  return Outcome::done;
}

}  // namespace everleaf::tree
