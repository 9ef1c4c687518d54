// Key policies: comparisons, and how a key word shows its region.
#pragma once

#include "trees/keys.hpp"
#include "trees/pbtree/layout.hpp"

namespace everleaf::tree::pbtree {

enum class Side : std::uint8_t { left, right };

class U64Keys : public KeyWords {
 public:
  using KeyWords::KeyWords;
  struct Probe {
    std::uint64_t key;
    mutable bool bad = false;  // a key word was impossible: the node changed or the pool is damaged
  };

  [[nodiscard]] static Probe probe(Key key) { return {key}; }
  // Sign of `word` against the probe.
  [[nodiscard]] static int compare(Word word, const Probe& probe) {
    return word < probe.key ? -1 : static_cast<int>(word > probe.key);
  }
  [[nodiscard]] static Word mark(Word pivot) { return pivot; }
  [[nodiscard]] static bool in_right(Word word, Word pivot) { return word > pivot; }
  [[nodiscard]] static bool in_left(Word word, Word pivot) { return word < pivot; }
  // The word as it stands in that region, and out of any region.
  [[nodiscard]] static Word placed(Word word, Side) { return word; }
  [[nodiscard]] static Word plain(Word word) { return word; }
  [[nodiscard]] static Word write_record(Offset, Key key) { return key; }
};

// Paper: 8-byte keys only. Here the word names the key's record, as in the wB+-Tree (4.6).
class BytesKeys : public KeyRecords {
 public:
  using KeyRecords::KeyRecords;
  struct Probe {
    Bytes key;
    Word prefix;
    mutable bool bad = false;
  };

  [[nodiscard]] static Probe probe(Key key) { return {key, prefix_of(key)}; }
  [[nodiscard]] int compare(Word word, const Probe& probe) const {
    if (word == 0) return probe.key.empty() ? 0 : -1;  // the smallest key
    const Word prefix = plain(word) & ~kOffsetMask;
    // A shorter prefix is padded with zeros: unequal tags decide, equal ones do not.
    if (prefix != probe.prefix) return prefix < probe.prefix ? -1 : 1;
    const std::optional<Key> key = read(word);
    if (!key) {
      probe.bad = true;
      return -1;
    }
    const int order = key->compare(probe.key);
    return order < 0 ? -1 : static_cast<int>(order > 0);
  }
  [[nodiscard]] static Word mark(Word) { return 0; }
  [[nodiscard]] static bool in_right(Word word, Word) { return word != 0 && (word & kLeft) == 0; }
  [[nodiscard]] static bool in_left(Word word, Word) { return (word & kLeft) != 0; }
  [[nodiscard]] static Word placed(Word word, Side side) {
    return side == Side::left ? word | kLeft : word & ~kLeft;
  }
  [[nodiscard]] static Word plain(Word word) { return word & ~kLeft; }

  // 0 names the empty key, which as a bound needs no record.
  [[nodiscard]] std::optional<Key> read(Word word) const {
    return word == 0 ? Key{} : KeyRecords::read(word);
  }
  [[nodiscard]] bool readable(Word word) const { return read(word).has_value(); }
  [[nodiscard]] Key key_of(Word word) const { return read(word).value_or(Key{}); }
  [[nodiscard]] bool tag_matches(Word word) const {
    return (plain(word) & ~kOffsetMask) == prefix_of(key_of(word));
  }
  // Fills a reserved block and starts its write-back; the key word.
  [[nodiscard]] Word write_record(Offset block, Key key) const {
    store_record(block, key);
    medium_->flush(medium_->at(block), record_bytes(key));
    return block | prefix_of(key);
  }

 private:
  static constexpr Word kLeft = Word{1} << 63;
  // The first 23 bits, in place.
  [[nodiscard]] static Word prefix_of(Key key) {
    Word tag = 0;
    for (std::size_t i = 0; i < 3; ++i) {
      tag = tag << 8 | (i < key.size() ? static_cast<unsigned char>(key[i]) : 0U);
    }
    return tag >> 1 << kOffsetBits;
  }
};

}  // namespace everleaf::tree::pbtree
