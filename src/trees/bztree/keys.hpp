// Key policies: how keys lie in leaves and as separators of inner nodes.
#pragma once

#include <bit>
#include <cstring>

#include "trees/bztree/layout.hpp"
#include "trees/keys.hpp"

namespace everleaf::tree::bztree {

// 8-byte keys: the prefix is the key.
class U64Keys : public KeyWords {
 public:
  using KeyWords::key_of;
  using KeyWords::KeyWords;
  static constexpr bool kInlineBytes = false;
  struct Probe {
    Key key;
    Word prefix;
    std::uint32_t hash;
  };
  [[nodiscard]] static Probe probe(Key key) {
    return {key, key, static_cast<std::uint32_t>(key * 0x9E3779B97F4A7C15ULL >> 32)};
  }
  [[nodiscard]] static Word prefix_of(Key key) { return key; }
  [[nodiscard]] static std::uint32_t bytes_of(Key) { return sizeof(Word); }
  static void copy_to(std::byte* to, Key key) { std::memcpy(to, &key, sizeof key); }
  [[nodiscard]] static Key key_at(const std::byte* at, std::uint32_t) {
    Key key = 0;
    std::memcpy(&key, at, sizeof key);
    return key;
  }
};

// Bytes keys: inline up to an eighth of a page, longer ones in a record of their own.
class BytesKeys : public KeyRecords {
 public:
  using KeyRecords::key_of;
  using KeyRecords::KeyRecords;
  using KeyRecords::readable;
  using KeyRecords::store_record;
  static constexpr bool kInlineBytes = true;
  struct Probe {
    Key key;
    Word prefix;
    std::uint32_t hash;
  };
  [[nodiscard]] static Probe probe(Key key) {
    return {key, prefix_of(key), static_cast<std::uint32_t>(hash_of(key))};
  }
  // Keeps the order; equal prefixes say nothing.
  [[nodiscard]] static Word prefix_of(Key key) {
    Word word = 0;
    if (!key.empty()) std::memcpy(&word, key.data(), std::min(key.size(), sizeof word));
    return std::byteswap(word);
  }
  [[nodiscard]] static std::uint32_t bytes_of(Key key) {
    return static_cast<std::uint32_t>(key.size());
  }
  static void copy_to(std::byte* to, Key key) {
    // A damaged pool may name a key in what is free, where the copy goes.
    if (!key.empty()) std::memmove(to, key.data(), key.size());
  }
  [[nodiscard]] static Key key_at(const std::byte* at, std::uint32_t bytes) {
    return {reinterpret_cast<const char*>(at), bytes};
  }
  [[nodiscard]] static Key key_of(Key key) { return key; }  // for what scans share
};

}  // namespace everleaf::tree::bztree
