// The one seam for waiting, mutexes, time, processes, checksums and long walks over words: a
// deterministic scheduler replaces this header by include path and then steps every wait of the
// library.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <thread>

#include <unistd.h>

namespace everleaf::base {

using Mutex = std::mutex;
using MutexGuard = std::lock_guard<std::mutex>;

// A mutex for what can also be had without it, at some cost: who waits gives up in the end, so a
// thread that was stopped for good while it held it stops nobody. Of a holder that was given up
// nobody waits again. Many who have it in turn are waited for longer than one.
class ImpatientMutex {
 public:
  // False: one holder kept it for half a second.
  [[nodiscard]] bool lock() noexcept { return lock(given_up_, std::chrono::milliseconds(500)); }
  // The same for who has no other way left.
  [[nodiscard]] bool lock_at_last() noexcept {
    return lock(given_up_at_last_, std::chrono::seconds(2));
  }
  void unlock() noexcept {
    holder_.fetch_add(1, std::memory_order_relaxed);
    mutex_.unlock();
  }

 private:
  bool lock(std::atomic<std::uint64_t>& given_up, std::chrono::milliseconds patience) noexcept {
    if (mutex_.try_lock()) return true;
    for (int turn = 0; turn < 20; ++turn) {
      const std::uint64_t holder = holder_.load(std::memory_order_relaxed);
      if (given_up.load(std::memory_order_relaxed) == holder) return false;
      if (wait(patience)) return true;
      if (holder_.load(std::memory_order_relaxed) != holder) continue;
      given_up.store(holder, std::memory_order_relaxed);
      return false;
    }
    return false;
  }
  bool wait(std::chrono::milliseconds patience) noexcept {
#ifdef __SANITIZE_THREAD__
    // ThreadSanitizer knows no waiting by the steady clock.
    return mutex_.try_lock_until(std::chrono::system_clock::now() + patience);
#else
    return mutex_.try_lock_for(patience);
#endif
  }
  std::timed_mutex mutex_;
  std::atomic<std::uint64_t> holder_{1};  // each of them another one
  std::atomic<std::uint64_t> given_up_{0};
  std::atomic<std::uint64_t> given_up_at_last_{0};
};

// Called in every spin loop with the number of rounds waited so far.
inline void wait_a_little(unsigned round) noexcept {
  if (round < 64) {
    __builtin_ia32_pause();
  } else {
    std::this_thread::yield();  // more threads than cores: let the holder run
  }
}

inline std::uint64_t now_ns() noexcept {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                        std::chrono::steady_clock::now().time_since_epoch())
                                        .count());
}

// A child of fork() has another one.
inline int process_id() noexcept {
  return ::getpid();
}

// What this thread read is thrown away: an optimistic reader starts again.
inline void reads_discarded() noexcept {}

// While it lives the crash checker knows something of what this thread does; here it is nothing.
template <class What>
class Scope {
 public:
  Scope() noexcept {}
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;
  ~Scope() {}
};
// What it reads or stores counts as durable by the protocol of its words, though the bytes are not
// yet. Without it the crash checker takes a read of another thread's store for a dependency.
using Durable = Scope<struct DurableByProtocol>;
// Of what its compare-and-swaps find it learns nothing but that it is not what was expected, and
// looks again.
using Unseen = Scope<struct FoundUnseen>;

// Names a path that few schedules take: the crash checker counts them.
inline void reached(const char*) noexcept {}

// The first of `n` words, `stride` words apart, that has `value` where `mask` has ones; n: none. Of
// thousands of words hardly one, or nothing would be gained: the crash checker reads them without
// its hooks, one by one all the same.
inline std::size_t first_where(const std::uint64_t* first, std::size_t stride, std::size_t n,
                               std::uint64_t mask, std::uint64_t value) noexcept {
  std::size_t i = 0;
  while (i < n && (__atomic_load_n(first + i * stride, __ATOMIC_RELAXED) & mask) != value) ++i;
  return i;
}
// The same for one that is not zero.
inline std::size_t first_used(const std::uint64_t* first, std::size_t stride,
                              std::size_t n) noexcept {
  std::size_t i = 0;
  while (i < n && __atomic_load_n(first + i * stride, __ATOMIC_RELAXED) == 0) ++i;
  return i;
}

// A checksum over memory that a crash may have torn. The crash checker takes all torn images of it
// for one; here it is nothing. The ranges include the checksum itself, unless it was verified
// before. begin() after all ranges are named, end() with the verdict, and nothing else is read or
// written between them.
class Verification {
 public:
  void over(const void*, std::size_t) noexcept {}
  void begin() noexcept {}
  bool end(bool whole) noexcept { return whole; }
};

}  // namespace everleaf::base
