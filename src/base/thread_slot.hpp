// Thread slots: a small number for each running thread, taken at first use and given back when the
// thread ends. Per-thread state anywhere in the library is an array over slots, so threads come and
// go without a call, and the next thread in a slot inherits what the last one left there.
#pragma once

#include <everleaf/pool.hpp>

namespace everleaf::base {

inline constexpr unsigned kNoSlot = ~0U;

namespace detail {
inline thread_local unsigned current_slot = kNoSlot;
unsigned claim_slot() noexcept;
// What the end of a thread does; for threads that a checker simulates.
void give_back_slot() noexcept;
}  // namespace detail

// This thread's slot in [0, kMaxThreads), or kNoSlot while all are taken. A new owner sees
// everything that the former owner of the slot wrote.
inline unsigned thread_slot() noexcept {
  const unsigned slot = detail::current_slot;
  return slot != kNoSlot ? slot : detail::claim_slot();
}

// One more than the largest slot ever used: loops over slots stop here.
unsigned slot_limit() noexcept;

}  // namespace everleaf::base
