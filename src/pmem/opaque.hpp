// A value that the compiler knows nothing about.
#pragma once

#include "pmem/medium.hpp"

namespace everleaf::pmem {

// The same word. What is computed from it is computed: no branch takes its place, where a condition
// would be a branch that nobody could predict.
[[gnu::always_inline]] inline Word opaque(Word word) {
  asm("" : "+r"(word));
  return word;
}

}  // namespace everleaf::pmem
