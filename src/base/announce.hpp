// Announcements that cost their thread no barrier ("asymmetric fences", as in userspace RCU).
//
// A thread publishes a word and then reads; another one writes, and then looks at that word. Each
// must not miss the other, which takes a full barrier between store and load on both sides. Here
// the frequent side has none: the rare side makes every running thread of the process execute one,
// by membarrier(2). That is worth it: a locked instruction waits until all stores of the operation
// before have left the core, cache misses included.
//
// Where the kernel has no membarrier, and under ThreadSanitizer, which does not know it, the
// announcement is a sequentially consistent store, and the rare side needs nothing.
#pragma once

#include <atomic>
#include <cstdint>

namespace everleaf::base {

#if defined(__SANITIZE_THREAD__)
#define EVERLEAF_ANNOUNCE_BY_STORE 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define EVERLEAF_ANNOUNCE_BY_STORE 1
#endif
#endif

#ifdef EVERLEAF_ANNOUNCE_BY_STORE
inline void announce(std::atomic<std::uint64_t>& word, std::uint64_t value) noexcept {
  word.store(value, std::memory_order_seq_cst);
}
inline void see_announcements() noexcept {}
#else
namespace detail {
// Whether the kernel runs barriers for us; false until it is known.
extern std::atomic<bool> barriers_by_kernel;
}  // namespace detail

// Loads that follow in this thread are later than the store, as see_announcements() sees them.
inline void announce(std::atomic<std::uint64_t>& word, std::uint64_t value) noexcept {
  if (detail::barriers_by_kernel.load(std::memory_order_relaxed)) {
    word.store(value, std::memory_order_release);
    std::atomic_signal_fence(std::memory_order_seq_cst);  // the compiler keeps the order, too
  } else {
    word.store(value, std::memory_order_seq_cst);
  }
}

// Between this thread's stores before and its loads of announced words after: a thread whose
// announcement those loads miss sees those stores. Some microseconds if other threads run.
void see_announcements() noexcept;
#endif

}  // namespace everleaf::base
