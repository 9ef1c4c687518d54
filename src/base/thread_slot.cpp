#include "base/thread_slot.hpp"

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>

namespace everleaf::base {
namespace {

constexpr std::size_t kWords = kMaxThreads / 64;
std::array<std::atomic<std::uint64_t>, kWords> g_used{};
std::atomic<unsigned> g_limit{0};

// Gives the slot back when its thread ends.
struct Holder {
  bool armed = false;
  Holder() = default;
  Holder(const Holder&) = delete;
  Holder& operator=(const Holder&) = delete;
  ~Holder() {
    const unsigned slot = detail::current_slot;
    if (slot == kNoSlot) return;
    detail::current_slot = kNoSlot;
    // Release: the next owner's claim must see what this thread left in the slot's state.
    g_used[slot / 64].fetch_and(~(std::uint64_t{1} << (slot % 64)), std::memory_order_release);
  }
};

thread_local Holder t_holder;

void raise_limit(unsigned limit) noexcept {
  unsigned seen = g_limit.load(std::memory_order_relaxed);
  // seq_cst: a grace-period scan that misses this thread must come before its first pin.
  while (seen < limit && !g_limit.compare_exchange_weak(seen, limit, std::memory_order_seq_cst)) {
  }
}

}  // namespace

unsigned detail::claim_slot() noexcept {
  for (std::size_t word = 0; word < kWords; ++word) {
    std::uint64_t used = g_used[word].load(std::memory_order_relaxed);
    while (used != ~std::uint64_t{0}) {
      const auto bit = static_cast<unsigned>(std::countr_one(used));
      // Acquire: pairs with the release in ~Holder.
      if (g_used[word].compare_exchange_weak(used, used | (std::uint64_t{1} << bit),
                                             std::memory_order_acquire)) {
        const unsigned slot = static_cast<unsigned>(word) * 64 + bit;
        raise_limit(slot + 1);
        t_holder.armed = true;  // odr-use: constructs the holder, and with it the destructor
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
