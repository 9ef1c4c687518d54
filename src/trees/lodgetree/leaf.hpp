// One leaf: search, links, fingerprints. No flushes, no fences.
#pragma once

#include <bit>

#include <emmintrin.h>

#include "pmem/prefetch.hpp"
#include "trees/lodgetree/layout.hpp"

namespace everleaf::tree::lodgetree {

// A bit for each of n bytes (n a multiple of 16) that is `wanted`; word(i) gives eight of them.
template <class F>
[[nodiscard]] Word match_bytes(std::size_t n, std::uint8_t wanted, F&& word) {
  const __m128i all = _mm_set1_epi8(static_cast<char>(wanted));
  Word bits = 0;
  for (std::size_t i = 0; i < n; i += 16) {
    const __m128i some = _mm_set_epi64x(static_cast<long long>(word(i / 8 + 1)),
                                        static_cast<long long>(word(i / 8)));
    const auto hits = static_cast<unsigned>(_mm_movemask_epi8(_mm_cmpeq_epi8(some, all)));
    bits |= Word{hits} << i;
  }
  return bits;
}

class Leaf {
 public:
  Leaf(std::byte* base, const Shape& shape) : base_(base), shape_(&shape) {}

  [[nodiscard]] std::byte* base() const { return base_; }
  [[nodiscard]] LeafLine* line() const { return reinterpret_cast<LeafLine*>(base_); }
  [[nodiscard]] Slot* slot(std::size_t i) const {
    return reinterpret_cast<Slot*>(base_ + shape_->slots_at) + i;
  }
  [[nodiscard]] Word w() const { return pmem::load(&line()->w); }
  [[nodiscard]] Word used() const { return w() & shape_->bits(); }
  [[nodiscard]] Word stamp() const { return pmem::load(&line()->stamp); }
  [[nodiscard]] Word low() const { return pmem::load(&line()->low); }

  [[nodiscard]] static Offset next_of(Word w, Word links) {
    return ((w & kUse) != 0 ? links >> 32 : links & 0xFFFFFFFF) * kLeafAlign;
  }
  [[nodiscard]] Offset next() const { return next_of(w(), pmem::load(&line()->links)); }
  // The links with `next` as the one that does not count.
  [[nodiscard]] Word with_spare(Offset next) const {
    const Word links = pmem::load(&line()->links);
    const Word number = next / kLeafAlign;
    return (w() & kUse) != 0 ? (links >> 32 << 32) | number : (links & 0xFFFFFFFF) | number << 32;
  }

  [[nodiscard]] Word* fingerprints() const {
    return reinterpret_cast<Word*>(base_ + sizeof(LeafLine));
  }
  [[nodiscard]] std::uint8_t fingerprint(std::size_t i) const {
    return static_cast<std::uint8_t>(pmem::load(fingerprints() + i / 8) >> i % 8 * 8);
  }
  // Slots with that fingerprint, a bit each.
  [[nodiscard]] Word match(std::uint8_t fingerprint) const {
    const Word* const words = fingerprints();
    return match_bytes(shape_->slots_at - sizeof(LeafLine), fingerprint,
                       [words](std::size_t i) { return pmem::load(words + i); });
  }

  // A bit for the fingerprint of each of these slots.
  static constexpr unsigned kFilterBits = 54;
  [[nodiscard]] static constexpr Word filter_bit(std::uint8_t fingerprint) {
    return Word{1} << (fingerprint * kFilterBits >> 8);
  }
  [[nodiscard]] Word filter(Word slots) const {
    Word bits = 0;
    for (; slots != 0; slots &= slots - 1) {
      bits |= filter_bit(fingerprint(static_cast<std::size_t>(std::countr_zero(slots))));
    }
    return bits;
  }

  void prefetch_line() const { pmem::prefetch(base_); }
  void prefetch_to_write() const { pmem::prefetch_lines_to_write(base_, shape_->bytes); }
  void prefetch() const { pmem::prefetch_lines(base_, shape_->bytes); }

 private:
  std::byte* base_;
  const Shape* shape_;
};

}  // namespace everleaf::tree::lodgetree
