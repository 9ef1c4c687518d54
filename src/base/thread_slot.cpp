#include "base/thread_slot.hpp"

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>

#include <pthread.h>

namespace everleaf::base {
namespace {

constexpr std::size_t kWords = (kMaxThreads + 63) / 64;
std::array<std::atomic<std::uint64_t>, kWords> g_used{};
std::atomic<unsigned> g_limit{0};

void give_back(unsigned slot) noexcept {
  // Release: the next owner's claim must see what this thread left in the slot's state.
  g_used[slot / 64].fetch_and(~(std::uint64_t{1} << (slot % 64)), std::memory_order_release);
}

// Gives the slot back when its thread ends. A POSIX key, not a thread_local object: its destructor
// runs after those of all thread_local objects, which may use the library themselves, and again if
// one of its own kind took a slot once more.
class EndOfThread {
 public:
  EndOfThread() noexcept : valid_(::pthread_key_create(&key_, &at_end) == 0) {}
  [[nodiscard]] bool watch() const noexcept {
    return valid_ && ::pthread_setspecific(key_, this) == 0;
  }

 private:
  static void at_end(void*) { detail::give_back_slot(); }
  pthread_key_t key_{};
  bool valid_;
};

const EndOfThread& end_of_thread() noexcept {
  static const EndOfThread key;
  return key;
}

// Keeps the library loaded while the thread lives: glibc unloads none that has a thread_local with
// a destructor left to call, but knows nothing of the key, whose destructor comes right after.
struct KeepLoaded {
  volatile bool kept = true;  // volatile: or the destructor would be empty and never registered
  ~KeepLoaded() { kept = false; }
};

void keep_loaded() noexcept {
  thread_local KeepLoaded keep;
  keep.kept = true;
}

void raise_limit(unsigned limit) noexcept {
  unsigned seen = g_limit.load(std::memory_order_relaxed);
  // seq_cst: a grace-period scan that misses this thread must come before its first pin.
  while (seen < limit && !g_limit.compare_exchange_weak(seen, limit, std::memory_order_seq_cst)) {
  }
}

}  // namespace

void detail::give_back_slot() noexcept {
  const unsigned slot = current_slot;
  current_slot = kNoSlot;
  if (slot != kNoSlot) give_back(slot);
}

unsigned detail::claim_slot() noexcept {
  for (std::size_t word = 0; word < kWords; ++word) {
    std::uint64_t used = g_used[word].load(std::memory_order_relaxed);
    while (used != ~std::uint64_t{0}) {
      const auto bit = static_cast<unsigned>(std::countr_one(used));
      if (word * 64 + bit >= kMaxThreads) return kNoSlot;
      // Acquire: pairs with the release in give_back.
      if (g_used[word].compare_exchange_weak(used, used | (std::uint64_t{1} << bit),
                                             std::memory_order_acquire)) {
        const unsigned slot = static_cast<unsigned>(word) * 64 + bit;
        if (!end_of_thread().watch()) {
          give_back(slot);
          return kNoSlot;
        }
        keep_loaded();
        raise_limit(slot + 1);
        current_slot = slot;
        return slot;
      }
    }
  }
  return kNoSlot;
}

unsigned slot_limit() noexcept {
  return g_limit.load(std::memory_order_seq_cst);  // pairs with raise_limit
}

}  // namespace everleaf::base
