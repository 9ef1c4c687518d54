// Key policies: how a key word compares with the key that is looked for.
#pragma once

#include <algorithm>
#include <span>

#include "trees/keys.hpp"
#include "trees/wbtree/layout.hpp"

namespace everleaf::tree::wbtree {

class U64Keys : public KeyWords {
 public:
  using KeyWords::KeyWords;
  struct Probe {
    std::uint64_t key;
    mutable bool bad = false;  // a key word was impossible: the node changed or the pool is damaged
  };

  [[nodiscard]] Probe probe(Key key) const { return {key}; }
  [[nodiscard]] Probe probe_of(Word word) const { return {word}; }

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
};

// Paper, 4.6: the key word points to the key.
class BytesKeys : public KeyRecords {
 public:
  using KeyRecords::KeyRecords;
  struct Probe {
    Bytes key;
    Word prefix;  // tags, shifted into place
    Word hash;
    mutable bool bad = false;
  };

  [[nodiscard]] Probe probe(Key key) const { return {key, prefix_tag(key), hash_tag(key)}; }
  [[nodiscard]] Probe probe_of(Word word) const { return probe(key_of(word)); }

  [[nodiscard]] int compare(Word word, const Probe& probe) const {
    const Word prefix = tag_of(word);
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
    return tag_of(word) == probe.hash && compare_bytes(word, probe) == 0;
  }

  // Whether a word's tag is that of its key, in a node of that kind.
  [[nodiscard]] static bool tag_matches(Word word, Key key, NodeKind kind) {
    return tag_of(word) == tag_for(key, kind);
  }
  // Fills a reserved block and starts its write-back; the key word for a node of that kind.
  Word write_record(Offset block, Key key, NodeKind kind) const {
    store_record(block, key);
    medium_->flush(medium_->at(block), record_bytes(key));
    return block | tag_for(key, kind);
  }

 private:
  [[nodiscard]] static int sign(int order) { return order < 0 ? -1 : static_cast<int>(order > 0); }
  [[nodiscard]] static Word prefix_tag(Key key) {
    Word tag = 0;
    for (std::size_t i = 0; i < 3; ++i) {
      tag = tag << 8 | (i < key.size() ? static_cast<unsigned char>(key[i]) : 0U);
    }
    return tag << kOffsetBits;
  }
  [[nodiscard]] static Word hash_tag(Key key) { return tag_of(hash_of(key)); }
  [[nodiscard]] static Word tag_for(Key key, NodeKind kind) {
    return kind == NodeKind::bitmap_only ? hash_tag(key) : prefix_tag(key);
  }
  [[nodiscard]] int compare_bytes(Word word, const Probe& probe) const {
    const std::optional<Key> key = read(word);
    if (!key) {
      probe.bad = true;
      return -1;
    }
    return sign(key->compare(probe.key));
  }
};

}  // namespace everleaf::tree::wbtree
