// Where the time of operations goes: searching the way down and in the leaf, multi-word
// compare-and-swap, flushes and fences, or the rest.
#pragma once

#include <cstdint>
#include <optional>

namespace everleaf::bench {

// In ticks of the processor's clock.
struct Split {
  std::uint64_t traversal = 0;
  std::uint64_t leaf = 0;
  std::uint64_t words = 0;
  std::uint64_t flush = 0;
  std::uint64_t update = 0;

  [[nodiscard]] std::uint64_t total() const { return traversal + leaf + words + flush + update; }
  Split& operator+=(const Split& other) {
    traversal += other.traversal;
    leaf += other.leaf;
    words += other.words;
    flush += other.flush;
    update += other.update;
    return *this;
  }
  Split operator-(const Split& other) const {
    return {traversal - other.traversal, leaf - other.leaf, words - other.words,
            flush - other.flush, update - other.update};
  }
};

// Of the calling thread since its start. nullopt: this is the ordinary program, whose library reads
// no clock.
std::optional<Split> split_so_far();

}  // namespace everleaf::bench
