// What a search of an inner node reads instead of its separators: their distances from the first
// one, shifted to 16 bits. 62 of them are two cache lines; the separators themselves are looked at
// where codes are equal.
//
// Thread safety: upper_bound() from any thread, which validates afterwards; edits under the node's
// lock. Loads acquire and stores release, as base/version_lock.hpp asks of what it guards.
// Invariant C1: the codes are those of the separators by encode(), and no separator is below base_.
// So a smaller code is of a smaller separator, and separators of one code are in any relation.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstdint>

#include <emmintrin.h>

#include "base/limits.hpp"

namespace everleaf::tree {

class Codes {
 public:
  static constexpr unsigned kMost = 64;

  // How many of `count` separators are at or below `key`; whole(i) is separator i.
  template <class Whole>
  [[nodiscard]] unsigned upper_bound(std::uint64_t key, unsigned count, Whole&& whole) const {
    const std::uint64_t base = base_.load(std::memory_order_acquire);
    if (key < base) return 0;
    const std::uint16_t code = encode(key, base, shift_.load(std::memory_order_acquire));
    unsigned rank = std::min(not_above(code, count), count);
    while (rank > 0 && at(rank - 1) == code && whole(rank - 1) > key) --rank;
    return rank;
  }

  // Separator `position` of now `count` is new; whole(i) as above.
  template <class Whole>
  void insert(unsigned position, unsigned count, Whole&& whole) {
    const std::uint64_t base = base_.load(std::memory_order_relaxed);
    const unsigned shift = shift_.load(std::memory_order_relaxed);
    const std::uint64_t key = whole(position);
    if (count == 1 || key < base || (key - base) >> shift > kLargest) return rebuild(count, whole);
    Array codes = read();
    std::copy_backward(codes.begin() + position, codes.begin() + count - 1, codes.begin() + count);
    codes[position] = encode(key, base, shift);
    write(codes);
  }
  // Separator `position` of `count` goes.
  void erase(unsigned position, unsigned count) {
    Array codes = read();
    std::copy(codes.begin() + position + 1, codes.begin() + count, codes.begin() + position);
    write(codes);
  }
  template <class Whole>
  void rebuild(unsigned count, Whole&& whole) {
    if (count == 0) return;
    const std::uint64_t base = whole(0);
    // The last separator in the lower half: what comes behind it has room.
    const auto width = static_cast<unsigned>(std::bit_width(whole(count - 1) - base));
    const unsigned shift = width > 15 ? width - 15 : 0;
    base_.store(base, std::memory_order_release);
    shift_.store(shift, std::memory_order_release);
    Array codes{};
    for (unsigned i = 0; i < count; ++i) codes[i] = encode(whole(i), base, shift);
    write(codes);
  }

 private:
  static constexpr std::uint64_t kLargest = 0xFFFF;
  using Array = std::array<std::uint16_t, kMost>;

  // Of a key that is not below base. What a reader sees may be torn: the shift is kept in bounds.
  [[nodiscard]] static std::uint16_t encode(std::uint64_t key, std::uint64_t base, unsigned shift) {
    return static_cast<std::uint16_t>(std::min((key - base) >> (shift & 63), kLargest));
  }
  [[nodiscard]] std::uint16_t at(unsigned i) const {
    return static_cast<std::uint16_t>(words_[i / 4].load(std::memory_order_acquire) >> i % 4 * 16);
  }
  // How many codes, from the first on, are at or below `code`; beyond the count they mean nothing.
  [[nodiscard]] unsigned not_above(std::uint16_t code, unsigned count) const {
    const __m128i wanted = _mm_set1_epi16(static_cast<short>(code));
    const auto eight = [this, wanted](std::size_t i) {
      const auto word = [this](std::size_t k) {
        return static_cast<long long>(words_[k].load(std::memory_order_acquire));
      };
      const __m128i codes = _mm_set_epi64x(word(2 * i + 1), word(2 * i));
      return _mm_cmpeq_epi16(_mm_subs_epu16(codes, wanted), _mm_setzero_si128());
    };
    std::uint64_t bits = 0;
    const unsigned end = base::kAllCodes ? kMost : std::min(count, kMost);
#pragma GCC unroll 4
    for (unsigned i = 0; 16 * i < end; ++i) {
      const __m128i sixteen = _mm_packs_epi16(eight(2 * i), eight(2 * i + 1));
      bits |= static_cast<std::uint64_t>(_mm_movemask_epi8(sixteen)) << 16 * i;
    }
    return static_cast<unsigned>(std::countr_one(bits));
  }

  [[nodiscard]] Array read() const {  // under the node's lock
    Array codes;
    for (unsigned i = 0; i < kMost / 4; ++i) {
      const std::uint64_t word = words_[i].load(std::memory_order_relaxed);
      for (unsigned k = 0; k < 4; ++k)
        codes[4 * i + k] = static_cast<std::uint16_t>(word >> 16 * k);
    }
    return codes;
  }
  void write(const Array& codes) {
    for (unsigned i = 0; i < kMost / 4; ++i) {
      std::uint64_t word = 0;
      for (unsigned k = 0; k < 4; ++k) word |= std::uint64_t{codes[4 * i + k]} << 16 * k;
      words_[i].store(word, std::memory_order_release);
    }
  }

  std::atomic<std::uint64_t> base_{0};
  std::atomic<std::uint32_t> shift_{0};
  std::array<std::atomic<std::uint64_t>, kMost / 4> words_{};
};

}  // namespace everleaf::tree
