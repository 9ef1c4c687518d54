// What lies in a node: places, searches, and filling fresh ones. No fences, no allocation.
#pragma once

#include <algorithm>
#include <bit>
#include <span>
#include <vector>

#include <emmintrin.h>

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
    return header_.bytes <= kMaxPageBytes && header_.count <= s.count() &&
           (header_.bytes - s.block()) % sizeof(Word) == 0 &&
           s.deleted() <= s.block() + s.count() * sizeof(Word) &&
           kMetaAt + s.count() * sizeof(Word) + s.block() <= header_.bytes;
  }

  // The visible entry of the key. By the hashes in the metadata: what is compared with the key is
  // hardly ever another one, and of the records one line is waited for.
  [[nodiscard]] Hit find(const Words& words, const Keys& keys, const Probe& probe, Status s) const {
    const base::Stopwatch watch(base::Part::leaf);
    Hit hit;
    if (!plausible(s)) {
      hit.damaged = true;
      return hit;
    }
    const auto is_there = [&](std::uint32_t i, Meta m) {
      if (!m.visible() || !m.tagged(probe.hash)) return false;
      hit.position = i;
      hit.meta = m;
      hit.damaged = !sound(m);
      hit.found = !hit.damaged && key(keys, m) == probe.key;
      return hit.found || hit.damaged;
    };
    for (std::uint32_t begin = 0; begin < s.count(); begin += kMostCandidates) {
      const std::uint32_t n = std::min(s.count() - begin, kMostCandidates);
      for (std::uint64_t met = candidates(begin, n, probe.hash); met != 0; met &= met - 1) {
        const std::uint32_t at = begin + static_cast<std::uint32_t>(std::countr_zero(met));
        if (is_there(at, Meta{words.read(meta(at))})) return hit;
      }
    }
    return hit;
  }

  [[nodiscard]] std::uint64_t value_of(const Words& words, Meta m) const {
    return words.read(value(m)) | (m.top() ? pmwcas::kControl : 0);
  }

 private:
  static constexpr std::uint32_t kMostCandidates = 64;

  // Which of n entries may be visible with the hash: they are, or an operation is under way, or
  // there are hardly any. An entry that stays visible keeps its hash (G3), and its word has the
  // control bit meanwhile: it is among them, and still there when it is read. If there is none,
  // there was a moment without the key. All are looked at: which one it will be nobody can predict.
  [[nodiscard]] std::uint64_t candidates(std::uint32_t begin, std::uint32_t n,
                                         std::uint32_t hash) const {
    if (n < 8) return (std::uint64_t{1} << n) - 1;
    const base::Durable durable;  // values in words are (src/pmwcas, I1)
    const __m128i wanted = Meta::high_of(hash);
    const Word* const words = meta(begin);
    // The last ones first, some of them again.
    std::uint64_t met = eight_candidates(words + n - 8, wanted) << (n - 8);
    for (std::size_t i = 0; i + 8 < n; i += 8) met |= eight_candidates(words + i, wanted) << i;
    return met;
  }
  [[nodiscard]] static std::uint64_t eight_candidates(const Word* words, __m128i wanted) {
    const auto two = [words](std::size_t k) {
      return _mm_castsi128_ps(_mm_set_epi64x(static_cast<long long>(pmem::load(words + k + 1)),
                                             static_cast<long long>(pmem::load(words + k))));
    };
    const auto four = [&](std::size_t k) {
      const __m128i high = _mm_castps_si128(_mm_shuffle_ps(two(k), two(k + 2), 0xDD));
      return _mm_or_si128(_mm_cmpeq_epi32(_mm_and_si128(high, Meta::high_mask()), wanted), high);
    };
    const __m128i signs = _mm_packs_epi32(four(0), four(4));
    return static_cast<std::uint64_t>(
        _mm_movemask_epi8(_mm_packs_epi16(signs, _mm_setzero_si128())));
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
  static constexpr std::uint16_t kNoCode = 0xFFFF;  // behind the last, and the largest one
  using Node::Node;
  using Key = typename Keys::Key;
  using Probe = typename Keys::Probe;

  [[nodiscard]] std::uint32_t separators() const { return header_.count - 1; }
  [[nodiscard]] std::uint16_t code(std::uint32_t i) const {
    return static_cast<std::uint16_t>(code_word(i / kCodes) >> i % kCodes * 16);
  }
  // With those behind the last separator.
  [[nodiscard]] std::uint32_t code_places() const {
    return static_cast<std::uint32_t>((prefixes_at(separators()) - kMetaAt) / sizeof(kNoCode));
  }
  [[nodiscard]] Word prefix(std::uint32_t i) const {
    return pmem::load(word_at(prefixes_at(separators()) + i * sizeof(Word)));
  }
  [[nodiscard]] Word* child(std::uint32_t i) const {
    const std::uint32_t n = separators();
    return word_at(prefixes_at(n) + (n + i) * sizeof(Word));
  }
  [[nodiscard]] static std::uint32_t fixed_bytes(std::size_t separators) {
    return static_cast<std::uint32_t>(prefixes_at(separators) +
                                      (2 * separators + 1 + (Keys::kInlineBytes ? separators : 0)) *
                                          sizeof(Word));
  }
  // The code of a prefix that is not below the first one. Codes keep the order; where they are
  // equal, prefixes may differ.
  [[nodiscard]] static std::uint16_t encode(Word prefix, Word first, std::uint32_t shift) {
    return static_cast<std::uint16_t>(std::min<Word>((prefix - first) >> shift, kNoCode));
  }
  [[nodiscard]] static std::uint32_t shift_of(Word first, Word last) {
    const auto width = static_cast<std::uint32_t>(std::bit_width(last - first));
    return width > 16 ? width - 16 : 0;
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
      return upper_bound(probe.prefix - (aim == Aim::below ? 1 : 0));
    } else {
      std::uint32_t first = probe.prefix == 0 ? 0 : upper_bound(probe.prefix - 1);
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
    const Word first = all.empty() ? 0 : all.front().prefix;
    const std::uint32_t shift = all.empty() ? 0 : shift_of(first, all.back().prefix);
    put(0, Header{bytes, static_cast<std::uint32_t>(children.size()), level, shift}.word());
    put(sizeof(Word), 0);
    std::size_t at = kMetaAt;
    for (std::size_t i = 0; at < prefixes_at(all.size()); at += sizeof(Word)) {
      Word codes = 0;
      for (std::size_t k = 0; k < kCodes; ++k, ++i) {
        const Word one = i < all.size() ? encode(all[i].prefix, first, shift) : kNoCode;
        codes |= one << 16 * k;
      }
      put(at, codes);
    }
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
  static constexpr std::size_t kCodes = sizeof(Word) / 2;  // in a word
  [[nodiscard]] static constexpr std::size_t prefixes_at(std::size_t separators) {
    return kMetaAt + (separators + 2 * kCodes - 1) / (2 * kCodes) * 2 * sizeof(Word);
  }
  [[nodiscard]] std::size_t slots_at() const {
    return prefixes_at(separators()) + (2 * separators() + 1) * sizeof(Word);
  }
  [[nodiscard]] Word code_word(std::size_t i) const {
    return pmem::load(word_at(kMetaAt + i * sizeof(Word)));
  }
  // Codes not above `code`.
  [[nodiscard]] std::uint32_t codes_not_above(std::uint16_t code) const {
    const __m128i wanted = _mm_set1_epi16(static_cast<short>(code));
    const std::uint32_t n = separators();
    __m128i counts = _mm_setzero_si128();
    for (std::size_t i = 0; i * kCodes < n; i += 2) {
      const __m128i eight = _mm_set_epi64x(static_cast<long long>(code_word(i + 1)),
                                           static_cast<long long>(code_word(i)));
      const __m128i above = _mm_subs_epu16(eight, wanted);
      counts = _mm_sub_epi16(counts, _mm_cmpeq_epi16(above, _mm_setzero_si128()));
    }
    // Eight counts, none of them above 255 in a page of 4096 bytes: the sums of their bytes.
    counts = _mm_sad_epu8(counts, _mm_setzero_si128());
    const auto all = _mm_cvtsi128_si32(_mm_add_epi32(counts, _mm_unpackhi_epi64(counts, counts)));
    return std::min(static_cast<std::uint32_t>(all), n);
  }
  // Prefixes not above `word`: by codes, and among equal ones by themselves.
  [[nodiscard]] std::uint32_t upper_bound(Word word) const {
    if (separators() == 0) return 0;
    const Word first = prefix(0);
    if (word < first) return 0;
    const std::uint16_t its = encode(word, first, header_.shift);
    const std::uint32_t last = codes_not_above(its);
    if (last == 0 || code(last - 1) != its) return last;
    const std::uint32_t begin = its == 0 ? 0 : codes_not_above(static_cast<std::uint16_t>(its - 1));
    return upper_bound(begin, last - std::min(begin, last), word);
  }
  // Of n from `first` on; without branches that depend on it.
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
