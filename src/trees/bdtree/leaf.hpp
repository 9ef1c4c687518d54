// Search and edit inside one leaf; no fences, no allocation.
#pragma once

#include <bit>
#include <cstdint>

#include <emmintrin.h>

#include "pmem/prefetch.hpp"
#include "trees/bdtree/layout.hpp"

namespace everleaf::tree::bdtree {

// The words of a cell, the newest first, and where they stand.
struct Versions {
  std::array<Word, 3> w;
  std::array<unsigned, 3> at;

  [[nodiscard]] Word newest() const { return w[0]; }
  // Slots that an operation of epoch e must not use (D4): set now, or in what recovery may restore.
  [[nodiscard]] Word taken(Epoch e) const {
    const bool mine = of_epoch(w[0], e);
    const Word before = mine ? w[1] : w[0];
    Word all = w[0] | before;
    if (of_epoch(before, e - 1)) all |= mine ? w[2] : w[1];
    return all & kBitmap;
  }
  // Slots whose content no earlier epoch needs: they may be changed in place.
  [[nodiscard]] Word own(Epoch e) const {
    if (!of_epoch(w[0], e)) return 0;
    Word old = w[1];
    if (of_epoch(w[1], e - 1)) old |= w[2];
    return w[0] & ~old & kBitmap;
  }
};

class Leaf {
 public:
  Leaf(std::byte* base, const Shape& shape) : base_(base), shape_(&shape) {}

  [[nodiscard]] std::byte* base() const { return base_; }
  [[nodiscard]] MetaLine* line(std::size_t cell) const {
    return reinterpret_cast<MetaLine*>(base_) + cell;
  }
  // `slot` counts through all cells.
  [[nodiscard]] Slot* slot(std::size_t slot) const {
    return reinterpret_cast<Slot*>(base_ + shape_->slots_at()) + slot;
  }
  // The first of these slots of a cell.
  [[nodiscard]] static std::size_t slot_of(std::size_t cell, Word bits) {
    return cell * kCellSlots + static_cast<std::size_t>(std::countr_zero(bits));
  }
  [[nodiscard]] Word newest(std::size_t cell) const {
    const MetaLine* const l = line(cell);
    const Word a = pmem::load(&l->w[0]);
    const Word b = pmem::load(&l->w[1]);
    const Word c = pmem::load(&l->w[2]);
    const Word ab = newer(b, a) ? b : a;
    return newer(c, ab) ? c : ab;
  }
  [[nodiscard]] bool retired() const { return (newest(0) & kRetired) != 0; }
  [[nodiscard]] Versions versions(std::size_t cell) const {
    const MetaLine* const l = line(cell);
    Versions v{{pmem::load(&l->w[0]), pmem::load(&l->w[1]), pmem::load(&l->w[2])}, {0, 1, 2}};
    const auto order = [&v](std::size_t i, std::size_t j) {
      if (!newer(v.w[j], v.w[i])) return;
      std::swap(v.w[i], v.w[j]);
      std::swap(v.at[i], v.at[j]);
    };
    order(0, 1);
    order(1, 2);
    order(0, 1);
    return v;
  }

  [[nodiscard]] Word links() const { return pmem::load(&line(0)->links); }
  [[nodiscard]] static Offset next_of(Word links) { return (links & 0xFFFFFFFF) * kLeafAlign; }
  [[nodiscard]] static Offset replacement_of(Word links) { return (links >> 32) * kLeafAlign; }
  [[nodiscard]] static Word make_links(Offset next, Offset replacement) {
    return next / kLeafAlign | replacement / kLeafAlign << 32;
  }

  // Slots of the cell with that fingerprint, a bit each.
  [[nodiscard]] Word match(std::size_t cell, std::uint8_t fingerprint) const {
    const MetaLine* const l = line(cell);
    const auto word = [l](std::size_t i) {
      return static_cast<long long>(pmem::load(&l->fingerprints[i]));
    };
    const __m128i wanted = _mm_set1_epi8(static_cast<char>(fingerprint));
    const __m128i low = _mm_cmpeq_epi8(_mm_set_epi64x(word(1), word(0)), wanted);
    const __m128i high = _mm_cmpeq_epi8(_mm_set_epi64x(word(3), word(2)), wanted);
    const auto bits = static_cast<unsigned>(_mm_movemask_epi8(low)) |
                      static_cast<unsigned>(_mm_movemask_epi8(high)) << 16;
    return bits & kBitmap;
  }
  [[nodiscard]] std::uint8_t fingerprint(std::size_t slot) const {
    const std::size_t i = slot % kCellSlots;
    const Word word = pmem::load(&line(slot / kCellSlots)->fingerprints[i / 8]);
    return static_cast<std::uint8_t>(word >> i % 8 * 8);
  }

  [[nodiscard]] std::size_t live() const {
    std::size_t n = 0;
    for (std::size_t cell = 0; cell < shape_->cells; ++cell) {
      n += static_cast<std::size_t>(std::popcount(newest(cell) & shape_->slot_bits()));
    }
    return n;
  }
  // visit(slot) for every live slot that is there: a damaged leaf may name others.
  template <class F>
  void for_each(F&& visit) const {
    for (std::size_t cell = 0; cell < shape_->cells; ++cell) {
      for (Word bits = newest(cell) & shape_->slot_bits(); bits != 0; bits &= bits - 1) {
        visit(slot_of(cell, bits));
      }
    }
  }

  void prefetch_lines() const {
    for (std::size_t cell = 0; cell < shape_->cells; ++cell) pmem::prefetch(line(cell));
  }
  void prefetch() const { pmem::prefetch_lines(base_, shape_->bytes); }
  void prefetch_for_stores() const { pmem::prefetch_lines_to_write(base_, shape_->bytes); }

 private:
  std::byte* base_;
  const Shape* shape_;
};

}  // namespace everleaf::tree::bdtree
