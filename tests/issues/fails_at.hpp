// One allocation of this thread that fails.
#pragma once

#include <new>

#include "hooks.hpp"

namespace everleaf::test {

// Counts down to the allocation that fails; 0: none.
inline int failing = 0;
inline bool failed = false;  // it did
inline void maybe_fail() {
  if (failing == 0 || --failing != 0) return;
  failed = true;
  throw std::bad_alloc();
}

// While it lives, the n-th allocation fails.
class FailsAt {
 public:
  explicit FailsAt(int allocation) {
    failing = allocation;
    failed = false;
    before_allocation = maybe_fail;
  }
  FailsAt(const FailsAt&) = delete;
  FailsAt& operator=(const FailsAt&) = delete;
  ~FailsAt() { before_allocation = nullptr; }
};

}  // namespace everleaf::test
