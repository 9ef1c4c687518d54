#include "base/announce.hpp"

#ifndef EVERLEAF_ANNOUNCE_BY_STORE

#include <chrono>
#include <thread>

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace everleaf::base {
namespace {

bool membarrier(int command) noexcept {
  return ::syscall(SYS_membarrier, command, 0, 0) == 0;
}

}  // namespace

namespace detail {
// Before it is set, announcements are sequentially consistent stores: right in any case.
std::atomic<bool> barriers_by_kernel{membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED)};
}  // namespace detail

void see_announcements() noexcept {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (!detail::barriers_by_kernel.load(std::memory_order_relaxed)) return;
  if (membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED)) return;
  // Forbidden meanwhile (a sandbox). From here on without it; no processor keeps a store to itself
  // for as long as this.
  detail::barriers_by_kernel.store(false, std::memory_order_seq_cst);
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
}

}  // namespace everleaf::base

#endif
