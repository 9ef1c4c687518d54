// What lies in a node: places, searches, and filling fresh ones. No fences, no allocation.
#pragma once

#include <algorithm>
#include <bit>
#include <optional>
#include <span>
#include <vector>

#include <emmintrin.h>

#include "base/stopwatch.hpp"
#include "pmem/opaque.hpp"
#include "pmem/prefetch.hpp"
#include "pmwcas/pmwcas.hpp"
#include "trees/bztree/keys.hpp"
#include "trees/scan.hpp"

namespace everleaf::tree::bztree {

using Words = pmwcas::DescriptorPool;

[[nodiscard]] constexpr std::uint32_t padded(std::uint32_t bytes) {
  return (bytes + 7) / 8 * 8;
}

// The record's part of an entry: its value, its key or the offset of the key's record, and a short
// payload.
[[nodiscard]] constexpr std::uint32_t record_bytes(std::uint32_t key_bytes, bool is_long,
                                                   std::size_t payload_bytes = 0) {
  return static_cast<std::uint32_t>(sizeof(Word)) +
         padded(is_long ? std::uint32_t{sizeof(Word)} : key_bytes) +
         padded(static_cast<std::uint32_t>(payload_bytes));
}

class Node {
 public:
  explicit Node(std::byte* base)
      : base_(base), header_{pmem::load(reinterpret_cast<const Word*>(base))} {}

  // Whatever lies there now, that is its size: where another index has written over a node that
  // was looked at.
  void confine(std::uint32_t page) {
    header_ = Header::of(page, header_.count(), header_.level(), header_.shift());
  }

  [[nodiscard]] Header header() const { return header_; }
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
  Word stored;    // of a long key: the offset of its record
  Bytes payload;  // one that lies behind the key

  [[nodiscard]] std::uint32_t record_bytes() const {
    return bztree::record_bytes(meta.key_bytes(), meta.is_long(), payload.size());
  }
};

// The same for a scan, which wants no more of it.
template <class Key>
struct Pair {
  Key key;
  std::uint64_t value;
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

  // Of the metadata: behind the fingerprints.
  [[nodiscard]] std::uint32_t metas_at() const { return metas_at(header_.bytes()); }
  [[nodiscard]] static constexpr std::uint32_t metas_at(std::uint32_t page) {
    return static_cast<std::uint32_t>(kHeadBytes) + fingerprints_of(page);
  }
  [[nodiscard]] Word* meta(std::uint32_t i) const { return word_at(metas_at() + i * sizeof(Word)); }
  // The entry's record lies in the node, and its key is one that does: any one more fits a copy.
  [[nodiscard]] bool sound(Meta m) const {
    if constexpr (Keys::kInlineBytes) {
      if (!m.is_long() && m.key_bytes() > header_.bytes() / kLongKeys) return false;
    } else {
      if (m.is_long() || m.key_bytes() != sizeof(Word)) return false;
    }
    const std::uint32_t least = record_bytes(m.key_bytes(), m.is_long());
    return m.offset() >= metas_at() && m.total() >= least &&
           m.offset() + m.total() <= header_.bytes();
  }
  // Of 8-byte keys: no entry was deleted or got a new record, so that I6 holds, nor was one under
  // way; all lie in the order of their positions from the end on. Then the status is plausible,
  // too. `page` is the leaf's, and a constant where it is the usual one.
  [[nodiscard]] bool is_packed(std::uint32_t page, Status s) const {
    return !Keys::kInlineBytes && page <= kUsualPageBytes && s.count() <= most_packed(page) &&
           header_.count() <= s.count() && s.is_packed(kRecordBytes);
  }
  // Of larger pages none.
  [[nodiscard]] static constexpr std::uint32_t most_packed(std::uint32_t page) {
    return page <= kUsualPageBytes ? (page - metas_at(page)) / kEntryBytes : 0;
  }
  [[nodiscard]] static constexpr std::uint32_t packed_at(std::uint32_t page, std::uint32_t i) {
    return page - (i + 1) * kRecordBytes;
  }
  // Of a packed leaf's sorted entries bits 63 of the values, from bit 62 on: with that, all of
  // their metadata is known.
  [[nodiscard]] static constexpr std::uint32_t tops_at(std::uint32_t page) {
    return metas_at(page) - static_cast<std::uint32_t>(sizeof(Word));
  }
  [[nodiscard]] static constexpr Word top_of(std::uint32_t i) { return Meta::kVisible >> i; }
  // Entries from the first on whose metadata is known while the leaf is packed.
  [[nodiscard]] std::uint32_t known() const { return has_tops() ? header_.count() : 0; }
  [[nodiscard]] bool has_tops() const { return (header_.shift() & kHasTops) != 0; }
  static constexpr std::uint32_t kHasTops = 1;  // in the place of an inner node's shift
  // A scan wants it left alone: a writer replaces it before he changes anything. It need not be
  // durable; a leaf that has it after a crash is replaced as well.
  [[nodiscard]] bool is_asked_for() const { return (header_.shift() & kAskedFor) != 0; }
  void ask() const {
    // The order is nobody's concern, only that writers see it some day.
    std::atomic_ref<Word>(*word_at(0)).fetch_or(Word{kAskedFor} << Header::kShiftAt);
  }
  static constexpr std::uint32_t kAskedFor = 2;

  // Of a leaf that is to be looked up in, whatever lies there. With 8-byte keys without metadata of
  // entries that are sorted in most leaves, and without what is free in most: a cache that holds
  // the rest of all leaves need not hold those lines.
  static void prefetch_to_find(const std::byte* leaf) {
    if constexpr (Keys::kInlineBytes) {
      pmem::prefetch_lines(leaf, kUsualPageBytes);
    } else {
      constexpr std::uint32_t kOften = 36;  // entries
      constexpr std::uint32_t kUnsorted = metas_at(kUsualPageBytes) + 16 * sizeof(Word);
      pmem::prefetch(leaf);
      pmem::prefetch_lines(leaf + kUnsorted, 2 * pmem::kLine);
      pmem::prefetch_lines(leaf + packed_at(kUsualPageBytes, kOften - 1), kOften * kRecordBytes);
    }
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
    return s.count() + entries <= fingerprints_of(header_.bytes()) &&
           metas_at() + (s.count() + entries) * sizeof(Word) + s.block() + total <= header_.bytes();
  }
  // Every count is in bounds: who reads it by index stays inside.
  [[nodiscard]] bool plausible(Status s) const {
    return header_.bytes() <= kMaxPageBytes && header_.count() <= s.count() &&
           (header_.bytes() - s.block()) % sizeof(Word) == 0 &&
           s.deleted() <= s.block() + s.count() * sizeof(Word) &&
           s.count() <= fingerprints_of(header_.bytes()) &&
           metas_at() + s.count() * sizeof(Word) + s.block() <= header_.bytes();
  }

  // The visible entry of the key. By fingerprints, which lie beside the status, then the key, or
  // the hash in the metadata: of the leaf two or three lines are waited for, hardly ever more.
  [[gnu::always_inline]] Hit find(const Words& words, const Keys& keys, const Probe& probe,
                                  Status s) const {
    const base::Stopwatch watch(base::Part::leaf);
    if constexpr (!Keys::kInlineBytes) {
      if (header_.bytes() == kUsualPageBytes && is_packed(kUsualPageBytes, s)) [[likely]] {
        return find_packed(kUsualPageBytes, words, keys, probe, s);
      }
    }
    return find_in(*this, words, keys, probe, s);
  }
  [[nodiscard]] static constexpr std::uint8_t fingerprint_of(std::uint32_t hash) {
    return static_cast<std::uint8_t>(hash);  // of the bits in the metadata, which copies know
  }
  // By whose place it is (P1), before the entry is visible; durable then.
  void set_fingerprint(pmem::Medium& medium, std::uint32_t i, std::uint32_t hash) const {
    auto& byte = *reinterpret_cast<std::uint8_t*>(base_ + kHeadBytes + i);
    std::atomic_ref<std::uint8_t>(byte).store(fingerprint_of(hash), std::memory_order_release);
    medium.count_written(1);
    // In the status' line it comes before the status that shows the entry.
    if (!medium.orders_lines() || kHeadBytes + i >= pmem::kLine) medium.flush(&byte, 1);
  }

  [[nodiscard]] std::uint64_t value_of(const Words& words, Meta m) const {
    return words.read(value(m)) | (m.top() ? pmwcas::kControl : 0);
  }
  // Of a sound entry whose value names a payload that lies behind the key. Null: it is damaged.
  [[nodiscard]] const std::byte* payload(Meta m, std::uint32_t bytes) const {
    const std::uint32_t before = record_bytes(m.key_bytes(), m.is_long());
    return padded(bytes) <= m.total() - before ? base_ + m.offset() + before : nullptr;
  }

  // take(metadata) of each visible entry, by their positions: how many of them are sorted. None:
  // the leaf is damaged.
  template <class Take>
  [[nodiscard]] std::optional<std::size_t> each_visible(const Words& words, Status s,
                                                        Take take) const {
    if (!plausible(s)) return {};
    std::size_t taken = 0;
    std::size_t sorted = 0;
    for (std::uint32_t i = 0; i < s.count(); ++i) {
      const Meta m{words.read(meta(i))};
      if (!m.visible()) continue;
      if (!sound(m)) return {};
      take(m);
      ++taken;
      if (i < header_.count()) sorted = taken;
    }
    return sorted;
  }
  // The visible entries of a packed leaf, in at most s.count() places from `out` on: the same, and
  // how many there are. Without metadata of those that are known. None: not all are what their
  // positions say; one has got a new record since the status was read, or is damaged.
  struct Copied {
    std::size_t all;
    std::size_t sorted;
  };
  [[nodiscard]] std::optional<Copied> copy_packed(const Words& words, Status s,
                                                  Pair<Key>* const out) const {
    const std::uint32_t page = header_.bytes();
    Pair<Key>* to = out;
    const auto copy = [&](std::uint32_t i, Word top) {
      const std::uint32_t at = packed_at(page, i);
      *to = {Keys::key_at(base_ + at + sizeof(Word), sizeof(Word)),
             words.read(word_at(at)) | (top & pmwcas::kControl)};
    };
    const Word tops = words.read(word_at(tops_at(page)));
    for (std::uint32_t i = 0; i < known(); ++i, ++to) copy(i, tops << (i + 1));
    std::size_t sorted = known();
    for (std::uint32_t i = known(); i < s.count(); ++i) {
      const Meta m{words.read(meta(i))};
      if (!m.visible()) continue;
      const Word made =
          Meta::entry(packed_at(page, i), kRecordBytes, sizeof(Word), m.tag(), 0).word;
      if (((m.word ^ made) & ~Meta::kTop) != 0) return {};
      copy(i, m.top() ? pmwcas::kControl : 0);
      ++to;
      if (i < header_.count()) ++sorted;
    }
    return Copied{static_cast<std::size_t>(to - out), sorted};
  }

 private:
  static constexpr std::uint32_t kMostMatches = 64;
  static constexpr std::uint32_t kRecordBytes = 2 * sizeof(Word);  // of an 8-byte key
  static constexpr std::uint32_t kEntryBytes = kRecordBytes + sizeof(Word);

  // Without a branch that depends on whether an entry is sorted, which nobody could predict.
  [[gnu::always_inline]] Hit find_packed(std::uint32_t page, const Words& words, const Keys& keys,
                                         const Probe& probe, Status s) const {
    const std::uint64_t counted = (std::uint64_t{1} << s.count()) - 1;
    const std::uint32_t sorted = known();
    // Of an entry of the key, but for its place and bit 63 of its value.
    const Meta its = Meta::entry(0, kRecordBytes, sizeof(Word), probe.hash, 0);
    std::uint64_t met = match(0, probe.hash, fingerprints_of(page)) & counted;
    for (; met != 0; met &= met - 1) {
      const auto i = static_cast<std::uint32_t>(std::countr_zero(met));
      const Word known = pmem::opaque(i < sorted ? ~Word{0} : 0);
      const Word at = metas_at(page) + i * Word{sizeof(Word)};
      const Word word = words.read(word_at(at + (known & (tops_at(page) - at))));
      const Word made = its.at(packed_at(page, i)).word;
      if (((word ^ made) & ~known & ~Meta::kTop) != 0) [[unlikely]] {
        const Meta m{word};
        // Another key's, or deleted, or under way: then its record is being written.
        if (!m.visible() || !m.tagged(probe.hash)) continue;
        // It has got a new record since the status was read; or it is damaged.
        return find_by_metadata(*this, words, keys, probe, s);
      }
      if (Keys::key_at(base_ + packed_at(page, i) + sizeof(Word), sizeof(Word)) == probe.key) {
        // Bit 62 - i of those that lie together, or bit 60 of its own metadata, to bit 60.
        static_assert(top_of(0) == Meta::kVisible && top_of(2) == Meta::kTop);
        const Word top = word << (2 + ((i - Word{2}) & known)) >> 2 & Meta::kTop;
        return {i, {made | top}, true, false};
      }
    }
    return {};
  }
  // In a leaf of any kind. By its value: or each leaf that is searched would have to lie in memory.
  [[gnu::noinline]] static Hit find_in(Leaf leaf, const Words& words, const Keys& keys,
                                       const Probe& probe, Status s) {
    if (!leaf.plausible(s)) return {0, {0}, false, true};
    if constexpr (!Keys::kInlineBytes) {
      const std::uint32_t page = leaf.header_.bytes();
      if (leaf.is_packed(page, s)) return leaf.find_packed(page, words, keys, probe, s);
    }
    return find_by_metadata(leaf, words, keys, probe, s);
  }
  // Of a plausible status.
  [[gnu::noinline]] static Hit find_by_metadata(Leaf leaf, const Words& words, const Keys& keys,
                                                const Probe& probe, Status s) {
    Hit hit;
    leaf.each_match(s, probe.hash, [&](std::uint32_t i) {
      const Meta m{words.read(leaf.meta(i))};
      if (!m.visible() || !m.tagged(probe.hash)) return false;
      const bool damaged = !leaf.sound(m);
      hit = {i, m, !damaged && leaf.key(keys, m) == probe.key, damaged};
      return hit.found || hit.damaged;
    });
    return hit;
  }
  // Counted entries with the hash's fingerprint, until `stop(position)`.
  template <class Stop>
  [[gnu::always_inline]] void each_match(Status s, std::uint32_t hash, Stop stop) const {
    for (std::uint32_t begin = 0; begin < s.count(); begin += kMostMatches) {
      const std::uint32_t n = std::min(fingerprints_of(header_.bytes()) - begin, kMostMatches);
      const std::uint32_t last = std::min(s.count() - begin, kMostMatches);
      const std::uint64_t counted = ~std::uint64_t{0} >> (kMostMatches - last);
      for (std::uint64_t met = match(begin, hash, n) & counted; met != 0; met &= met - 1) {
        if (stop(begin + static_cast<std::uint32_t>(std::countr_zero(met)))) return;
      }
    }
  }

  // Which of the entries from `begin` on have the hash's fingerprint, a bit each, those behind the
  // last one, too. An entry that is visible when the status is read has had its own since before.
  [[gnu::always_inline]] std::uint64_t match(std::uint32_t begin, std::uint32_t hash,
                                             std::uint32_t n) const {
    const base::Durable durable;  // whether an entry is there its metadata tells
    const __m128i wanted = _mm_set1_epi8(static_cast<char>(fingerprint_of(hash)));
    std::uint64_t met = 0;
#pragma GCC unroll 3
    for (std::uint32_t i = 0; i < n; i += 16) {
      const Word* const words = word_at(kHeadBytes + begin + i);
      const __m128i some = _mm_set_epi64x(static_cast<long long>(pmem::load(words + 1)),
                                          static_cast<long long>(pmem::load(words)));
      const auto hits = static_cast<unsigned>(_mm_movemask_epi8(_mm_cmpeq_epi8(some, wanted)));
      met |= std::uint64_t{hits} << i;
    }
    return met;
  }
};

// Where bits 63 of values lie no fingerprint does, and as many bits are left as entries may be
// packed.
static_assert([] {
  using U64Leaf = Leaf<U64Keys>;
  for (std::uint32_t page = kMinPageBytes; page <= kUsualPageBytes; page += 64) {
    const std::uint32_t most = U64Leaf::most_packed(page);
    const std::uint32_t last_byte = kHeadBytes + most - 1;  // of fingerprints
    const std::uint32_t bits_from = U64Leaf::tops_at(page) * 8 + 63 - most;
    if (most > 62 || last_byte >= bits_from / 8) return false;
  }
  return true;
}());

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
  static constexpr std::uint32_t kCodesAt = 3 * sizeof(Word);
  static constexpr std::uint16_t kNoCode = 0xFFFF;  // behind the last, and the largest one
  using Node::Node;
  using Key = typename Keys::Key;
  using Probe = typename Keys::Probe;

  void confine(std::uint32_t page) {
    Node::confine(page);
    if (!plausible(page)) header_ = Header::of(page, 1, header_.level(), header_.shift());
  }
  [[nodiscard]] std::uint32_t separators() const { return header_.count() - 1; }
  [[nodiscard]] std::uint16_t code(std::int64_t i) const {
    const auto* const codes = reinterpret_cast<const std::uint16_t*>(base_ + kCodesAt);
    // Relaxed: written before the child word that led here, which was read with acquire.
    return std::atomic_ref<std::uint16_t>(const_cast<std::uint16_t&>(codes[i]))
        .load(std::memory_order_relaxed);
  }
  // With those behind the last separator: as many as separators fit a page, in any node.
  [[nodiscard]] static constexpr std::uint32_t codes_of(std::uint32_t page) {
    constexpr std::uint32_t kBeside = kCodesAt + sizeof(Word);  // one child more
    constexpr std::uint32_t kEight = 8 * (sizeof(kNoCode) + kSeparatorBytes);
    return (page + kEight - 1 - kBeside) / kEight * 8;
  }
  [[nodiscard]] std::uint32_t code_places() const { return codes_of(header_.bytes()); }
  // What codes count from: the first prefix.
  [[nodiscard]] Word first() const { return pmem::load(word_at(kHeadBytes)); }
  [[nodiscard]] Word* child(std::uint32_t i) const {
    return word_at(children_at(header_.bytes()) + i * sizeof(Word));
  }
  [[nodiscard]] Word prefix(std::uint32_t i) const {
    return pmem::load(word_at(prefixes_at() + i * sizeof(Word)));
  }
  // From the start on, of a node with as many separators as fit: all that most searches read. With
  // bytes keys the prefixes, too, and where they are equal what lies behind them.
  [[nodiscard]] static constexpr std::uint32_t searched_bytes(std::uint32_t page) {
    if (Keys::kInlineBytes) return page;
    return children_at(page) + codes_of(page) * static_cast<std::uint32_t>(sizeof(Word));
  }
  [[nodiscard]] static constexpr std::uint32_t fixed_bytes(std::uint32_t page,
                                                           std::size_t separators) {
    return static_cast<std::uint32_t>(children_at(page) +
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
  [[nodiscard]] static std::uint32_t bytes_for(std::uint32_t page,
                                               std::span<const Separator<Key>> all) {
    std::uint32_t bytes = fixed_bytes(page, all.size());
    for (const auto& one : all) bytes += bytes_of(one);
    return bytes;
  }
  // As many as fit a page.
  [[nodiscard]] bool plausible(std::uint32_t page) const {
    return separators() <= most_separators(page);  // without children: too many
  }
  // That a page has room for, without bytes of keys.
  [[nodiscard]] static constexpr std::uint32_t most_separators(std::uint32_t page) {
    const std::uint32_t none = fixed_bytes(page, 0);
    return std::min(codes_of(page), (page - none) / (fixed_bytes(page, 1) - none));
  }

  // A separator whose bytes do not lie in the node has the empty key.
  [[nodiscard]] Separator<Key> separator(const Keys& keys, std::uint32_t i) const {
    Separator<Key> one{prefix(i), {}, 0};
    if constexpr (Keys::kInlineBytes) {
      const Word slot = pmem::load(word_at(slots_at() + i * sizeof(Word)));
      const auto at = static_cast<std::uint32_t>(slot & 0xFFFF);
      const auto bytes = static_cast<std::uint32_t>(slot >> 16 & 0xFFFF);
      const bool is_long = (slot & kLongSlot) != 0;
      if (at + (is_long ? sizeof(Word) : bytes) > header_.bytes()) return one;
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
    put(0, Header::of(bytes, static_cast<std::uint32_t>(children.size()), level, shift).word);
    put(sizeof(Word), 0);
    put(kHeadBytes, first);
    std::size_t at = kCodesAt;
    for (std::size_t i = 0; at < children_at(bytes); at += sizeof(Word)) {
      Word codes = 0;
      for (std::size_t k = 0; k < kCodes; ++k, ++i) {
        const Word one = i < all.size() ? encode(all[i].prefix, first, shift) : kNoCode;
        codes |= one << 16 * k;
      }
      put(at, codes);
    }
    for (const Offset child : children) {
      put(at, child);
      at += sizeof(Word);
    }
    for (const auto& one : all) {
      put(at, one.prefix);
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
  // At least: its prefix and a child, of bytes keys its slot and bytes, too.
  static constexpr std::uint32_t kSeparatorBytes = (Keys::kInlineBytes ? 4 : 2) * sizeof(Word);
  [[nodiscard]] static constexpr std::uint32_t children_at(std::uint32_t page) {
    return kCodesAt + codes_of(page) * static_cast<std::uint32_t>(sizeof(kNoCode));
  }
  [[nodiscard]] std::uint32_t prefixes_at() const {
    return children_at(header_.bytes()) +
           header_.count() * static_cast<std::uint32_t>(sizeof(Word));
  }
  [[nodiscard]] std::size_t slots_at() const { return prefixes_at() + separators() * sizeof(Word); }
  // Codes not above `code`. All places are looked at: where a loop over the codes of one node ends
  // nobody could predict.
  [[gnu::always_inline]] std::uint32_t codes_not_above(std::uint16_t code) const {
    const std::uint32_t n = code_places() / 8;
    const __m128i wanted = _mm_set1_epi16(static_cast<short>(code));
    const auto* const eights = reinterpret_cast<const __m128i*>(base_ + kCodesAt);
    __m128i counts = _mm_setzero_si128();
    for (std::uint32_t i = 0; i < n; ++i) {
      const __m128i above = _mm_subs_epu16(_mm_loadu_si128(eights + i), wanted);
      counts = _mm_sub_epi16(counts, _mm_cmpeq_epi16(above, _mm_setzero_si128()));
    }
    // Eight counts, none of them above 255 in a page of 4096 bytes: the sums of their bytes.
    counts = _mm_sad_epu8(counts, _mm_setzero_si128());
    const auto all = static_cast<std::uint32_t>(
        _mm_cvtsi128_si32(_mm_add_epi32(counts, _mm_unpackhi_epi64(counts, counts))));
    return std::min(all, separators());
  }
  // Prefixes not above `word`: by codes, and among equal ones by themselves. Without branches that
  // depend on it but for equal codes, which are few.
  [[gnu::always_inline]] std::uint32_t upper_bound(Word word) const {
    const Word first = this->first();
    const Word counts = pmem::opaque(word < first ? 0 : ~Word{0});
    const std::uint16_t its = encode(word, first, header_.shift());
    const std::uint32_t last = codes_not_above(its) & static_cast<std::uint32_t>(counts);
    // Before the first code lies a part of the first prefix: where it equals, nothing comes of it.
    if (code(std::int64_t{last} - 1) != its) [[likely]]
      return last;
    return among_equal(*this, its, last, word);
  }
  // Out of line, and by its value: or each node that is searched would have to lie in memory.
  [[gnu::noinline]] static std::uint32_t among_equal(Inner node, std::uint16_t its,
                                                     std::uint32_t last, Word word) {
    const std::uint32_t begin =
        its == 0 ? 0 : node.codes_not_above(static_cast<std::uint16_t>(its - 1));
    // In a damaged pool another index may write over the node between the two counts.
    return begin < last ? node.upper_bound(begin, last - begin, word) : last;
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

template <class Keys>
constexpr bool has_a_code_for_each(std::uint32_t beside) {
  for (std::uint32_t page = kMinPageBytes; page <= kMaxPageBytes; page += 64) {
    const std::uint32_t codes = Inner<Keys>::codes_of(page);
    if (Inner<Keys>::fixed_bytes(page, codes + 1) + (codes + 1) * beside <= page) return false;
  }
  return true;
}
static_assert(has_a_code_for_each<U64Keys>(0) && has_a_code_for_each<BytesKeys>(sizeof(Word)));

}  // namespace everleaf::tree::bztree
