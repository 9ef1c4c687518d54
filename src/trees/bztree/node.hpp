// What lies in a node: places, searches, and filling fresh ones. No fences, no allocation.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "base/stopwatch.hpp"
#include "pmwcas/pmwcas.hpp"
#include "trees/bztree/keys.hpp"
#include "trees/scan.hpp"

namespace everleaf::tree::bztree {

using Words = pmwcas::DescriptorPool;

[[nodiscard]] constexpr std::uint32_t padded(std::uint32_t bytes) {
  return (bytes + 7) / 8 * 8;
}

// The record's part of an entry: its value, and its key or the offset of the key's record.
[[nodiscard]] constexpr std::uint32_t record_bytes(std::uint32_t key_bytes, bool is_long) {
  return static_cast<std::uint32_t>(sizeof(Word)) +
         padded(is_long ? std::uint32_t{sizeof(Word)} : key_bytes);
}

class Node {
 public:
  explicit Node(std::byte* base)
      : base_(base), header_(Header::of(pmem::load(reinterpret_cast<const Word*>(base)))) {}

  [[nodiscard]] const Header& header() const { return header_; }
  [[nodiscard]] Word* status() const { return word_at(sizeof(Word)); }
  [[nodiscard]] std::byte* base() const { return base_; }

 protected:
  [[nodiscard]] Word* word_at(std::size_t at) const { return reinterpret_cast<Word*>(base_ + at); }
  std::byte* base_;
  Header header_;
};

// An entry that was found, or copied out of a leaf.
template <class Key>
struct Item {
  Key key;
  std::uint64_t value;
  Meta meta;
  Word stored;  // of a long key: the offset of its record
};

template <class Keys>
class Leaf : public Node {
 public:
  using Node::Node;
  using Key = typename Keys::Key;
  using Probe = typename Keys::Probe;
  struct Hit {
    std::uint32_t position = 0;
    Meta meta{0};
    bool found = false;
    bool damaged = false;
  };

  [[nodiscard]] Word* meta(std::uint32_t i) const { return word_at(kMetaAt + i * sizeof(Word)); }
  // The entry's record lies in the node.
  [[nodiscard]] bool sound(Meta m) const {
    const std::uint32_t least = record_bytes(m.key_bytes(), m.is_long());
    return m.offset() >= kMetaAt && m.total() >= least && m.offset() + m.total() <= header_.bytes;
  }
  [[nodiscard]] Word* value(Meta m) const { return word_at(m.offset()); }
  [[nodiscard]] Word stored(Meta m) const {
    Word word = 0;
    std::memcpy(&word, base_ + m.offset() + sizeof(Word), sizeof word);
    return word;
  }
  // Of a sound entry. Empty if its record is impossible.
  [[nodiscard]] Key key(const Keys& keys, Meta m) const {
    if constexpr (Keys::kRecords) {
      if (m.is_long()) return keys.key_of(stored(m));
    } else {
      static_cast<void>(keys);
    }
    return Keys::key_at(base_ + m.offset() + sizeof(Word), m.key_bytes());
  }
  // Room for one more entry of so many record bytes.
  [[nodiscard]] bool has_room(Status s, std::uint32_t total, std::uint32_t entries = 1) const {
    return kMetaAt + (s.count() + entries) * sizeof(Word) + s.block() + total <= header_.bytes;
  }
  // Every count is in bounds: who reads it by index stays inside.
  [[nodiscard]] bool plausible(Status s) const {
    return header_.count <= s.count() && (header_.bytes - s.block()) % sizeof(Word) == 0 &&
           kMetaAt + s.count() * sizeof(Word) + s.block() <= header_.bytes;
  }

  // Of an insertion: entries that are reserved like its own, and may turn into its key.
  struct Rivals {
    Word reservation;
    std::vector<std::uint32_t> entries;
  };
  // The visible entry of the key. `rivals`: by the same look at each entry, or one that becomes
  // visible between two looks would be missed.
  [[nodiscard]] Hit find(const Words& words, const Keys& keys, const Probe& probe, Status s,
                         Rivals* rivals = nullptr) const {
    const base::Stopwatch watch(base::Part::leaf);
    Hit hit;
    if (!plausible(s)) {
      hit.damaged = true;
      return hit;
    }
    hit.position = lower_bound(words, keys, probe, hit);
    if (hit.position < header_.count && look(words, keys, probe, hit)) return hit;
    for (hit.position = header_.count; hit.position < s.count(); ++hit.position) {
      hit.meta = Meta{words.read(meta(hit.position))};
      if (rivals != nullptr && hit.meta.word == rivals->reservation) {
        rivals->entries.push_back(hit.position);
      }
      if (!hit.meta.visible() || !hit.meta.tagged(probe.hash)) continue;
      if (!sound(hit.meta)) {
        hit.damaged = true;
        return hit;
      }
      if (key(keys, hit.meta) == probe.key) {
        hit.found = true;
        return hit;
      }
    }
    return hit;
  }

  [[nodiscard]] std::uint64_t value_of(const Words& words, Meta m) const {
    return words.read(value(m)) | (m.top() ? pmwcas::kControl : 0);
  }

 private:
  // Of the sorted entries; those that are deleted have their keys still.
  [[nodiscard]] std::uint32_t lower_bound(const Words& words, const Keys& keys, const Probe& probe,
                                          Hit& hit) const {
    std::uint32_t first = 0;
    if constexpr (!Keys::kRecords) {
      // The records of sorted entries lie in their order from the end.
      static_cast<void>(words), static_cast<void>(keys), static_cast<void>(hit);
      const std::byte* const last = base_ + header_.bytes;
      const auto key_of = [last](std::uint32_t i) {
        return Keys::key_at(last - (i + 1) * std::size_t{16} + sizeof(Word), sizeof(Word));
      };
      std::uint32_t n = header_.count;
      if (n == 0) return 0;
      while (n > 1) {
        const std::uint32_t half = n / 2;
        first += key_of(first + half - 1) < probe.key ? half : 0;
        n -= half;
      }
      return first + (key_of(first) < probe.key ? 1U : 0U);
    } else {
      // A long key goes with its deletion: such an entry is passed by.
      std::uint32_t last = header_.count;
      std::uint32_t found = last;
      while (first < last) {
        const std::uint32_t middle = (first + last) / 2;
        std::uint32_t i = middle;
        Meta m{words.read(meta(i))};
        while (!m.visible() && m.is_long() && ++i < last) m = Meta{words.read(meta(i))};
        if (i == last) {
          last = middle;
          continue;
        }
        if (!sound(m)) {
          hit.damaged = true;
          return header_.count;
        }
        if (key(keys, m) < probe.key) {
          first = i + 1;
        } else {
          found = i;
          last = middle;
        }
      }
      return found;
    }
  }
  [[nodiscard]] bool look(const Words& words, const Keys& keys, const Probe& probe,
                          Hit& hit) const {
    hit.meta = Meta{words.read(meta(hit.position))};
    if (!hit.meta.visible()) return false;
    hit.damaged = !sound(hit.meta);
    hit.found = !hit.damaged && key(keys, hit.meta) == probe.key;
    return hit.found || hit.damaged;
  }
};

// A separator of an inner node: the smallest key that may lie to its right.
template <class Key>
struct Separator {
  Word prefix = 0;
  Key key{};
  Offset record = 0;  // of a long one, which the node owns
};

template <class Keys>
class Inner : public Node {
 public:
  using Node::Node;
  using Key = typename Keys::Key;
  using Probe = typename Keys::Probe;

  [[nodiscard]] std::uint32_t separators() const { return header_.count - 1; }
  [[nodiscard]] Word prefix(std::uint32_t i) const {
    return pmem::load(word_at(kMetaAt + i * sizeof(Word)));
  }
  [[nodiscard]] Word* child(std::uint32_t i) const {
    return word_at(kMetaAt + (separators() + i) * sizeof(Word));
  }
  [[nodiscard]] static std::uint32_t fixed_bytes(std::size_t separators) {
    return static_cast<std::uint32_t>(
        kMetaAt + (2 * separators + 1 + (Keys::kInlineBytes ? separators : 0)) * sizeof(Word));
  }
  [[nodiscard]] static std::uint32_t bytes_of(const Separator<Key>& one) {
    if constexpr (Keys::kInlineBytes) {
      return one.record != 0 ? std::uint32_t{sizeof(Word)}
                             : padded(static_cast<std::uint32_t>(one.key.size()));
    } else {
      return 0;
    }
  }
  [[nodiscard]] static std::uint32_t bytes_for(std::span<const Separator<Key>> all) {
    std::uint32_t bytes = fixed_bytes(all.size());
    for (const auto& one : all) bytes += bytes_of(one);
    return bytes;
  }
  [[nodiscard]] bool plausible() const {
    return header_.count != 0 && fixed_bytes(separators()) <= header_.bytes;
  }

  // A separator whose bytes do not lie in the node has the empty key.
  [[nodiscard]] Separator<Key> separator(const Keys& keys, std::uint32_t i) const {
    Separator<Key> one{prefix(i), {}, 0};
    if constexpr (Keys::kInlineBytes) {
      const Word slot = pmem::load(word_at(slots_at() + i * sizeof(Word)));
      const auto at = static_cast<std::uint32_t>(slot & 0xFFFF);
      const auto bytes = static_cast<std::uint32_t>(slot >> 16 & 0xFFFF);
      const bool is_long = (slot & kLongSlot) != 0;
      if (at + (is_long ? sizeof(Word) : bytes) > header_.bytes) return one;
      if (is_long) {
        std::memcpy(&one.record, base_ + at, sizeof one.record);
        one.key = keys.key_of(one.record);
      } else {
        one.key = Keys::key_at(base_ + at, bytes);
      }
    } else {
      static_cast<void>(keys);
      one.key = one.prefix;
    }
    return one;
  }

  // Separators before the child to take: those at or below the probe, or below it.
  [[nodiscard]] std::uint32_t rank(const Keys& keys, const Probe& probe, Aim aim) const {
    const std::uint32_t n = separators();
    if (aim == Aim::last) return n;
    if constexpr (!Keys::kInlineBytes) {
      static_cast<void>(keys);
      if (aim == Aim::below && probe.prefix == 0) return 0;
      return upper_bound(0, n, probe.prefix - (aim == Aim::below ? 1 : 0));
    } else {
      std::uint32_t first = probe.prefix == 0 ? 0 : upper_bound(0, n, probe.prefix - 1);
      std::uint32_t last = first;
      while (last < n && prefix(last) == probe.prefix) ++last;
      while (first < last) {
        const std::uint32_t middle = (first + last) / 2;
        const Key key = separator(keys, middle).key;
        if (key < probe.key || (aim == Aim::at && key == probe.key)) {
          first = middle + 1;
        } else {
          last = middle;
        }
      }
      return first;
    }
  }

  // Fills a fresh block of `bytes`.
  static void fill(pmem::Medium& medium, Offset block, std::uint32_t bytes, std::uint32_t level,
                   std::span<const Separator<Key>> all, std::span<const Offset> children) {
    std::byte* const base = medium.at(block);
    const auto put = [&](std::size_t at, Word word) {
      medium.store(reinterpret_cast<Word*>(base + at), word, 0);
    };
    put(0, Header{bytes, static_cast<std::uint32_t>(children.size()), level}.word());
    put(sizeof(Word), 0);
    std::size_t at = kMetaAt;
    for (const auto& one : all) {
      put(at, one.prefix);
      at += sizeof(Word);
    }
    for (const Offset child : children) {
      put(at, child);
      at += sizeof(Word);
    }
    if constexpr (Keys::kInlineBytes) {
      std::uint32_t end = bytes;
      for (const auto& one : all) {
        end -= bytes_of(one);
        put(at, end | static_cast<Word>(one.record != 0 ? 0 : one.key.size()) << 16 |
                    (one.record != 0 ? kLongSlot : 0));
        at += sizeof(Word);
        if (one.record != 0) {
          put(end, one.record);
        } else {
          Keys::copy_to(base + end, one.key);
        }
      }
    }
    medium.count_written(bytes);
    medium.flush(base, bytes);
  }

 private:
  static constexpr Word kLongSlot = Word{1} << 32;
  [[nodiscard]] std::size_t slots_at() const {
    return kMetaAt + (2 * separators() + 1) * sizeof(Word);
  }
  // Prefixes not above `word`, from `first` on; without branches that depend on it.
  [[nodiscard]] std::uint32_t upper_bound(std::uint32_t first, std::uint32_t n, Word word) const {
    if (n == 0) return first;
    while (n > 1) {
      const std::uint32_t half = n / 2;
      first += prefix(first + half - 1) <= word ? half : 0;
      n -= half;
    }
    return first + (prefix(first) <= word ? 1U : 0U);
  }
};

}  // namespace everleaf::tree::bztree
