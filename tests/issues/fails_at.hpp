// Allocations of this thread that fail: one, or all from one on.
#pragma once

#include <new>

#include "hooks.hpp"

namespace everleaf::test {

// Counts down to the allocation that fails; 0: none.
inline int failing = 0;
inline bool failed = false;         // it did
inline bool and_all_after = false;  // and those that follow
inline void maybe_fail() {
  if (failing == 0 || --failing != 0) return;
  failed = true;
  if (and_all_after) failing = 1;
  throw std::bad_alloc();
}

enum class Fails : bool { once, for_good };

// While it lives, the n-th allocation fails.
class FailsAt {
 public:
  explicit FailsAt(int allocation, Fails how = Fails::once) {
    failing = allocation;
    failed = false;
    and_all_after = how == Fails::for_good;
    before_allocation = maybe_fail;
  }
  FailsAt(const FailsAt&) = delete;
  FailsAt& operator=(const FailsAt&) = delete;
  ~FailsAt() { before_allocation = nullptr; }
};

}  // namespace everleaf::test
