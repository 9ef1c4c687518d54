// Stands in for src/base/seam.hpp in the observed build: mutexes and waiting belong to the
// deterministic scheduler. Simulated threads have no time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>

namespace everleaf::crash::seam {
void lock(const void* mutex, bool& held) noexcept;
bool lock_or_give_up(const void* mutex, bool& held, unsigned patience) noexcept;
void unlock(const void* mutex, bool& held) noexcept;
void wait(unsigned round) noexcept;
void reads_discarded() noexcept;
void durable(bool begins) noexcept;
void unseen(bool begins) noexcept;
void reached(const char* path) noexcept;
std::size_t first_where(const std::uint64_t* first, std::size_t stride, std::size_t n,
                        std::uint64_t mask, std::uint64_t value, bool other) noexcept;
void verify_over(const void* from, std::size_t bytes) noexcept;
void verify_begin() noexcept;
void verify_end(bool whole) noexcept;
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

class ImpatientMutex {
 public:
  [[nodiscard]] bool lock() noexcept { return crash::seam::lock_or_give_up(this, held_, 16); }
  [[nodiscard]] bool lock_at_last() noexcept {
    return crash::seam::lock_or_give_up(this, held_, 2000);
  }
  void unlock() noexcept { crash::seam::unlock(this, held_); }

 private:
  bool held_ = false;
};

inline void wait_a_little(unsigned round) noexcept {
  crash::seam::wait(round);
}

inline std::uint64_t now_ns() noexcept {
  return 0;
}

// No simulated thread forks, and each execution would ask the system a few times.
inline int process_id() noexcept {
  return 0;
}

inline void reads_discarded() noexcept {
  crash::seam::reads_discarded();
}

template <void (*tell)(bool begins) noexcept>
class Scope {
 public:
  Scope() noexcept { tell(true); }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;
  ~Scope() { tell(false); }
};
using Durable = Scope<crash::seam::durable>;
using Unseen = Scope<crash::seam::unseen>;

inline void reached(const char* path) noexcept {
  crash::seam::reached(path);
}

inline std::size_t first_where(const std::uint64_t* first, std::size_t stride, std::size_t n,
                               std::uint64_t mask, std::uint64_t value) noexcept {
  return crash::seam::first_where(first, stride, n, mask, value, false);
}
inline std::size_t first_used(const std::uint64_t* first, std::size_t stride,
                              std::size_t n) noexcept {
  return crash::seam::first_where(first, stride, n, ~std::uint64_t{0}, 0, true);
}

class Verification {
 public:
  void over(const void* from, std::size_t bytes) noexcept { crash::seam::verify_over(from, bytes); }
  void begin() noexcept { crash::seam::verify_begin(); }
  bool end(bool whole) noexcept {
    crash::seam::verify_end(whole);
    return whole;
  }
};

}  // namespace everleaf::base
