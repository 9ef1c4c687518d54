// What scans of all trees share: which entries of a leaf's sorted copy they take. How to get at the
// leaves, and when a copy counts, is the room's.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <everleaf/index.hpp>

#include <emmintrin.h>

namespace everleaf::tree {

// Which leaf a way down leads to: the one for the probe, the one before it, or the last.
enum class Aim : std::uint8_t { at, below, last };

// How many numbers are below each of them, `most` at most, found eight at once by their distances
// from the least one, shifted to 15 bits. False where two come to the same distance.
template <std::size_t most>
class Ranks {
 public:
  [[nodiscard]] bool count(std::span<const std::uint64_t> numbers) {
    const std::size_t n = numbers.size();
    std::uint64_t least = ~std::uint64_t{0};
    std::uint64_t greatest = 0;
    for (const std::uint64_t number : numbers) {  // without branches
      least = std::min(least, number);
      greatest = std::max(greatest, number);
    }
    const auto width = static_cast<unsigned>(n == 0 ? 0 : std::bit_width(greatest - least));
    const unsigned shift = width > 15 ? width - 15 : 0;
    alignas(__m128i) std::array<std::uint16_t, kEights * 8> codes;
    for (std::size_t i = 0; i < n; ++i) {
      codes[i] = static_cast<std::uint16_t>((numbers[i] - least) >> shift);
    }
    for (std::size_t i = n; i % 8 != 0; ++i) codes[i] = 0;  // nothing is below it
    return count(codes.data(), n, std::make_index_sequence<kEights>());
  }
  [[nodiscard]] std::size_t operator[](std::size_t i) const { return ranks_[i]; }

 private:
  static constexpr std::size_t kEights = (most + 7) / 8;

  template <std::size_t... eights>
  [[nodiscard]] bool count(const std::uint16_t* codes, std::size_t n,
                           std::index_sequence<eights...> /*all*/) {
    std::size_t sum = 0;
    static_cast<void>(
        (((n + 7) / 8 == eights + 1 && (sum = count<eights + 1>(codes, n), true)) || ...));
    return sum == n * (n - 1) / 2;  // less if some are equal
  }
  // Each code is compared to all eights, whose counts stay in registers, if they are few. The sum
  // of all ranks.
  template <std::size_t eights>
  [[nodiscard]] std::size_t count(const std::uint16_t* codes, std::size_t n) {
    struct Eight {
      __m128i below = _mm_setzero_si128();
    };
    std::array<Eight, eights> all;
    for (std::size_t k = 0; k < n; ++k) {
      const __m128i other = _mm_set1_epi16(static_cast<short>(codes[k]));
#pragma GCC unroll 8
      for (std::size_t i = 0; i < eights; ++i) {
        const __m128i these = _mm_load_si128(reinterpret_cast<const __m128i*>(codes) + i);
        all[i].below = _mm_sub_epi16(all[i].below, _mm_cmpgt_epi16(these, other));
      }
    }
    __m128i sum = _mm_setzero_si128();
#pragma GCC unroll 8
    for (std::size_t i = 0; i < eights; ++i) {
      _mm_store_si128(reinterpret_cast<__m128i*>(ranks_.data()) + i, all[i].below);
      sum = _mm_add_epi32(sum, _mm_madd_epi16(all[i].below, _mm_set1_epi16(1)));
    }
    alignas(__m128i) std::array<std::uint32_t, 4> sums;
    _mm_store_si128(reinterpret_cast<__m128i*>(sums.data()), sum);
    return std::size_t{sums[0]} + sums[1] + sums[2] + sums[3];
  }

  alignas(__m128i) std::array<std::uint16_t, kEights * 8> ranks_;
};

// Puts what was copied out of a leaf, `most` entries at most, in key order. False: a key record is
// impossible.
// By counting where that tells all apart: few entries, and hardly a branch to guess. In a damaged
// pool another thread may write where the records lie, so where each entry is put must not depend
// on what comparisons say later: each is there once, in whatever order.
template <std::size_t most, class Keys, class Item>
[[nodiscard]] bool sort_entries(const Keys& keys, std::span<Item> entries) {
  const std::size_t n = entries.size();
  std::array<Item, most> from;
  std::ranges::copy(entries, from.begin());
  std::array<std::uint64_t, most> order;
  bool sound = true;
  const auto put = [&](auto&& is_below) {
    if (Ranks<most> ranks; ranks.count(std::span(order).first(n))) {
      for (std::size_t i = 0; i < n; ++i) entries[ranks[i]] = from[i];
      return;
    }
    std::array<std::uint16_t, most> sorted;
    for (std::size_t i = 0; i < n; ++i) {
      auto* const end = sorted.data() + i;
      auto* const at = std::upper_bound(sorted.data(), end, i, is_below);
      std::copy_backward(at, end, end + 1);
      *at = static_cast<std::uint16_t>(i);
    }
    for (std::size_t i = 0; i < n; ++i) entries[i] = from[sorted[i]];
  };
  if constexpr (Keys::kRecords) {
    std::array<Bytes, most> key;
    // Their misses overlap.
    for (const Item& item : entries) keys.prefetch(item.key);
    std::size_t common = kMaxKeyBytes;
    for (std::size_t i = 0; i < n; ++i) {
      const std::optional<Bytes> one = keys.read(from[i].key);
      sound = sound && one;
      key[i] = one.value_or(Bytes{});
      const Bytes shared = key[0].substr(0, common);
      if (i != 0 && key[i].starts_with(shared)) continue;
      common = static_cast<std::size_t>(std::ranges::mismatch(shared, key[i]).in1 - shared.begin());
    }
    // The first eight bytes in which they differ.
    for (std::size_t i = 0; i < n; ++i)
      order[i] = Keys::prefix_of(key[i].substr(std::min(common, key[i].size())));
    put([&](std::size_t a, std::size_t b) {
      return order[a] != order[b] ? order[a] < order[b] : key[a] < key[b];
    });
  } else {
    for (std::size_t i = 0; i < n; ++i) order[i] = from[i].key;
    put([&](std::size_t a, std::size_t b) { return order[a] < order[b]; });
  }
  return sound;
}

// Of one leaf of a scan.
enum class Taken : std::uint8_t {
  on,        // there may be more
  complete,  // all that was asked for
  behind,    // it has keys at or below the bound, and nothing was taken of it
  damaged    // keys do not rise: what lies behind one that is too large would be missed
};

// An upward scan between two leaves.
template <class Keys>
class Ascent {
 public:
  using Key = typename Keys::Key;
  using Out = std::vector<Entry<Key>>;

  Ascent(const Keys& keys, Key from, std::optional<Key> to, std::size_t limit, Out& out)
      : keys_(keys), to_(to), limit_(limit), out_(out), bound_(Keys::own(from)) {}

  // Everything below it was copied out.
  [[nodiscard]] Key bound() const { return bound_; }
  // Copies out what lies behind the bound, and moves it. `found`: the leaf is the bound's own,
  // found from the root; others have no keys at or before it, unless their range grew meanwhile.
  template <class Item>
  [[nodiscard]] Taken take(std::span<const Item> sorted, bool found) {
    std::size_t i = 0;
    for (; i < sorted.size(); ++i) {
      const Key key = keys_.key_of(sorted[i].key);
      if (bound() < key || (inclusive_ && key == bound())) break;
    }
    if (i != 0 && !found) return Taken::behind;
    std::optional<Key> last;
    for (; i < sorted.size(); ++i) {
      const Key key = keys_.key_of(sorted[i].key);
      if (last && !(*last < key)) return Taken::damaged;
      if (to_ && *to_ < key) return Taken::complete;
      out_.push_back({Keys::own(key), sorted[i].value});
      if (out_.size() == limit_) return Taken::complete;
      last = key;
    }
    if (!out_.empty()) {
      bound_ = out_.back().key;
      inclusive_ = false;
    }
    return Taken::on;
  }

 private:
  const Keys& keys_;
  const std::optional<Key> to_;
  const std::size_t limit_;
  Out& out_;
  typename OwnedKey<Key>::type bound_;
  bool inclusive_ = true;  // afterwards the bound is the last key that was copied out
};

// Copies out, from the last one downwards, what lies at the bound or below it (Aim::at), below it,
// or anywhere (last). Keys that do not fall, in the leaf or from the one before, are damage.
template <class Keys, class Item, class Key = typename Keys::Key>
[[nodiscard]] Taken take_back(const Keys& keys, std::span<const Item> sorted, Aim aim, Key bound,
                              std::size_t limit, std::vector<Entry<Key>>& out) {
  for (std::size_t i = sorted.size(); i-- > 0;) {
    const Key key = keys.key_of(sorted[i].key);
    if (aim == Aim::at ? bound < key : aim == Aim::below && !(key < bound)) continue;
    if (!out.empty() && !(key < Key(out.back().key))) return Taken::damaged;
    out.push_back({Keys::own(key), sorted[i].value});
    if (out.size() == limit) return Taken::complete;
  }
  return Taken::on;
}

}  // namespace everleaf::tree
