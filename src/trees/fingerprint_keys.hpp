// Key policies: fingerprints, the tag of a bytes key (24 bits of its hash), and what inner nodes
// compare.
#pragma once

#include <algorithm>
#include <cstring>
#include <string>

#include "pmem/medium.hpp"
#include "trees/keys.hpp"

namespace everleaf::tree {

// A bytes separator in DRAM; inner nodes own theirs.
struct Separator {
  std::string key;
  Separator* next = nullptr;  // of those that wait for the tree's end

  // Of DRAM, what the string has for itself included.
  [[nodiscard]] std::size_t bytes() const {
    return sizeof *this + (key.capacity() > 15 ? key.capacity() + 1 : 0);
  }
};

class U64Keys : public KeyWords {
 public:
  using KeyWords::KeyWords;
  struct Probe {
    std::uint64_t key;
    std::uint64_t prefix;
    std::uint8_t fingerprint;
  };

  [[nodiscard]] static Probe probe(Key key) { return {key, key, fingerprint_of(key)}; }
  [[nodiscard]] bool equal(pmem::Word word, const Probe& probe) const { return word == probe.key; }
  [[nodiscard]] static std::uint8_t fingerprint_of(Key key) {
    return static_cast<std::uint8_t>(key * 0x9E3779B97F4A7C15ULL >> 56);
  }
  [[nodiscard]] static std::uint64_t prefix_of(Key key) { return key; }
  // Of what a key's word only names, for checksums.
  [[nodiscard]] static std::uint64_t named_hash(Key) { return 0; }
  // The smallest key above `left`, which is not the largest one.
  [[nodiscard]] static std::uint64_t successor(Key left) { return left + 1; }
};

class BytesKeys : public KeyRecords {
 public:
  using KeyRecords::KeyRecords;
  struct Probe {
    Bytes key;
    std::uint64_t prefix;
    pmem::Word hash;  // shifted into place
    std::uint8_t fingerprint;
  };

  [[nodiscard]] static Probe probe(Key key) {
    const std::uint64_t hash = hash_of(key);
    return {key, prefix_of(key), tag_of(hash), static_cast<std::uint8_t>(hash)};
  }
  [[nodiscard]] bool equal(pmem::Word word, const Probe& probe) const {
    return tag_of(word) == probe.hash && read(word) == probe.key;
  }
  [[nodiscard]] static std::uint8_t fingerprint_of(Key key) {
    return static_cast<std::uint8_t>(hash_of(key));
  }
  [[nodiscard]] static std::uint64_t prefix_of(Key key) {
    std::uint64_t prefix = 0;
    if (key.empty()) return 0;  // its data may be null
    std::memcpy(&prefix, key.data(), std::min<std::size_t>(key.size(), sizeof prefix));
    return __builtin_bswap64(prefix);
  }
  [[nodiscard]] static std::uint64_t named_hash(Key key) { return hash_of(key); }
  [[nodiscard]] static std::string successor(Key left) { return std::string(left) + '\0'; }

  // Fills a reserved block; the key word.
  pmem::Word write_record(pmem::Offset block, Key key) const {
    store_record(block, key);
    return block | tag_of(hash_of(key));
  }
  [[nodiscard]] bool hash_matches(pmem::Word word) const {
    return tag_of(hash_of(key_of(word))) == tag_of(word);
  }
};

}  // namespace everleaf::tree
