// Fetching lines of memory that will be wanted soon. Any address will do.
#pragma once

#include <cstddef>

#include "pmem/medium.hpp"

namespace everleaf::pmem {

// GCC 12 takes a function that does nothing but __builtin_prefetch for one without effects, and
// drops its calls where it does not inline it. The empty asm is an effect.
[[gnu::always_inline]] inline void prefetch(const void* address) {
  __builtin_prefetch(address);
  asm volatile("");
}
[[gnu::always_inline]] inline void prefetch_to_write(const void* address) {
  __builtin_prefetch(address, 1);
  asm volatile("");
}

// From the line of `begin` on.
[[gnu::always_inline]] inline void prefetch_lines(const void* begin, std::size_t bytes) {
  const auto* const from = static_cast<const std::byte*>(begin);
  for (std::size_t at = 0; at < bytes; at += kLine) prefetch(from + at);
}
[[gnu::always_inline]] inline void prefetch_lines_to_write(const void* begin, std::size_t bytes) {
  const auto* const from = static_cast<const std::byte*>(begin);
  for (std::size_t at = 0; at < bytes; at += kLine) prefetch_to_write(from + at);
}

}  // namespace everleaf::pmem
