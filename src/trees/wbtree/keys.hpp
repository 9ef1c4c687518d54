// Key policies: what a key word means, and how it compares with the key that is looked for.
#pragma once

#include <algorithm>
#include <bit>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "trees/contract.hpp"
#include "trees/wbtree/layout.hpp"

namespace everleaf::tree::wbtree {

// 8-byte keys: the key word is the key.
class U64Keys {
 public:
  using Key = std::uint64_t;
  static constexpr bool kRecords = false;
  struct Probe {
    std::uint64_t key;
    mutable bool bad = false;  // a key word was impossible: the node changed or the pool is damaged
  };

  explicit U64Keys(pmem::Medium&) {}
  [[nodiscard]] Probe probe(Key key) const { return {key}; }
  [[nodiscard]] Probe probe_of(Word word) const { return {word}; }
  [[nodiscard]] bool too_long(Key) const { return false; }

  // Sign of `word` against the probe: <0, 0, >0.
  [[nodiscard]] int compare(Word word, const Probe& probe) const {
    return word < probe.key ? -1 : static_cast<int>(word > probe.key);
  }
  // By the items' `key` words.
  template <class Item>
  void sort(std::span<Item> items) const {
    std::ranges::sort(items, {}, &Item::key);
  }
  [[nodiscard]] bool equal_in_bitmap_leaf(Word word, const Probe& probe) const {
    return word == probe.key;
  }
  [[nodiscard]] bool readable(Word) const { return true; }
  [[nodiscard]] Key key_of(Word word) const { return word; }
  [[nodiscard]] static std::uint64_t own(Key key) { return key; }
};

// Bytes keys: the key word points to the key's record (paper, 4.6).
class BytesKeys {
 public:
  using Key = Bytes;
  static constexpr bool kRecords = true;
  static constexpr unsigned kTagShift = 40;
  static constexpr Word kOffsetMask = (Word{1} << kTagShift) - 1;
  static_assert(pmem::kMaxPoolBytes - 1 <= kOffsetMask);

  struct Probe {
    Bytes key;
    Word prefix;  // tags, shifted into place
    Word hash;
    mutable bool bad = false;
  };

  explicit BytesKeys(pmem::Medium& medium) : medium_(&medium) {}

  [[nodiscard]] Probe probe(Key key) const { return {key, prefix_tag(key), hash_tag(key)}; }
  [[nodiscard]] Probe probe_of(Word word) const { return probe(key_of(word)); }
  [[nodiscard]] bool too_long(Key key) const { return key.size() > kMaxKeyBytes; }

  [[nodiscard]] int compare(Word word, const Probe& probe) const {
    const Word prefix = word & ~kOffsetMask;
    // A shorter prefix is padded with zeros: unequal tags decide, equal ones do not.
    if (prefix != probe.prefix) return prefix < probe.prefix ? -1 : 1;
    return compare_bytes(word, probe);
  }
  // A heap sort: in a damaged pool another thread may write where the records lie, and it stays in
  // its range whatever the comparisons say.
  template <class Item>
  void sort(std::span<Item> items) const {
    const auto before = [this](const Item& a, const Item& b) {
      return key_of(a.key) < key_of(b.key);
    };
    std::ranges::make_heap(items, before);
    std::ranges::sort_heap(items, before);
  }
  [[nodiscard]] bool equal_in_bitmap_leaf(Word word, const Probe& probe) const {
    return (word & ~kOffsetMask) == probe.hash && compare_bytes(word, probe) == 0;
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

  // Whether a word's tag is that of its key, in a node of that kind.
  [[nodiscard]] bool tag_matches(Word word, NodeKind kind) const {
    const Key key = key_of(word);
    const Word tag = kind == NodeKind::bitmap_only ? hash_tag(key) : prefix_tag(key);
    return (word & ~kOffsetMask) == tag;
  }
  // The shortest prefix of `right` that is larger than `left` (left < right).
  [[nodiscard]] static Bytes separator(Bytes left, Bytes right) {
    const auto differ = std::ranges::mismatch(left, right).in2;
    return right.substr(0, static_cast<std::size_t>(differ - right.begin()) + 1);
  }
  [[nodiscard]] static Offset record_of(Word word) { return word & kOffsetMask; }
  [[nodiscard]] static std::size_t record_bytes(Key key) {
    return sizeof(std::uint32_t) + key.size();
  }
  // Fills a reserved block and starts its write-back; the key word for a node of that kind.
  Word write_record(Offset block, Key key, NodeKind kind) const {
    const auto length = static_cast<std::uint32_t>(key.size());
    std::byte* const record = medium_->at(block);
    std::memcpy(record, &length, sizeof length);
    if (!key.empty()) std::memcpy(record + sizeof length, key.data(), key.size());
    medium_->count_written(record_bytes(key));
    medium_->flush(record, record_bytes(key));
    return block | (kind == NodeKind::bitmap_only ? hash_tag(key) : prefix_tag(key));
  }

 private:
  [[nodiscard]] static int sign(int order) { return order < 0 ? -1 : static_cast<int>(order > 0); }
  [[nodiscard]] static Word prefix_tag(Key key) {
    Word tag = 0;
    for (std::size_t i = 0; i < 3; ++i) {
      tag = tag << 8 | (i < key.size() ? static_cast<unsigned char>(key[i]) : 0U);
    }
    return tag << kTagShift;
  }
  [[nodiscard]] static Word hash_tag(Key key) {
    return XXH3_64bits(key.data(), key.size()) & ~kOffsetMask;
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
  [[nodiscard]] int compare_bytes(Word word, const Probe& probe) const {
    if (!readable(word)) {
      probe.bad = true;
      return -1;
    }
    return sign(key_of(word).compare(probe.key));
  }

  pmem::Medium* medium_;
};

}  // namespace everleaf::tree::wbtree
