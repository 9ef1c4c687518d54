// Stands in for src/base/seam.hpp in the observed build: mutexes and waiting belong to the
// deterministic scheduler. Simulated threads have no time.
#pragma once

#include <cstdint>
#include <mutex>

namespace everleaf::crash::seam {
void lock(const void* mutex, bool& held) noexcept;
void unlock(const void* mutex, bool& held) noexcept;
void wait(unsigned round) noexcept;
}  // namespace everleaf::crash::seam

namespace everleaf::base {

class Mutex {
 public:
  void lock() noexcept { crash::seam::lock(this, held_); }
  void unlock() noexcept { crash::seam::unlock(this, held_); }

 private:
  bool held_ = false;
};
using MutexGuard = std::lock_guard<Mutex>;

inline void wait_a_little(unsigned round) noexcept {
  crash::seam::wait(round);
}

inline std::uint64_t now_ns() noexcept {
  return 0;
}

}  // namespace everleaf::base
