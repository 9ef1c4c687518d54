// What observed/base/seam.hpp calls.
#include <cstdio>
#include <cstdlib>

#include "threads/scheduler.hpp"

namespace everleaf::crash::seam {
void lock(const void* mutex, bool& held) noexcept;
bool lock_or_give_up(const void* mutex, bool& held, unsigned patience) noexcept;
void unlock(const void* mutex, bool& held) noexcept;
void wait(unsigned round) noexcept;
void reached(const char* path) noexcept;

namespace {
constexpr unsigned kMostRounds = 100'000;

[[noreturn]] void alone(const char* what) {
  std::fprintf(stderr, "everleaf-crash: %s, and there is no other thread\n", what);
  std::abort();
}
}  // namespace

void lock(const void* mutex, bool& held) noexcept {
  Scheduler* const scheduler = Scheduler::active();
  if (scheduler != nullptr) scheduler->point();
  if (scheduler != nullptr) scheduler->touch(mutex, true);
  while (held) {
    if (scheduler == nullptr) alone("a lock is taken twice");
    scheduler->block_on(mutex);
    scheduler->touch(mutex, true);
  }
  held = true;
}

bool lock_or_give_up(const void* mutex, bool& held, unsigned patience) noexcept {
  Scheduler* const scheduler = Scheduler::active();
  if (scheduler != nullptr) scheduler->point();
  if (scheduler != nullptr) scheduler->touch(mutex, true);
  for (unsigned round = 0; held; ++round) {
    if (scheduler == nullptr) alone("a lock is taken twice");
    if (round == patience) {
      reached("a lock is given up");
      return false;
    }
    scheduler->spin();
    scheduler->touch(mutex, true);
  }
  return held = true;
}

void unlock(const void* mutex, bool& held) noexcept {
  held = false;
  if (Scheduler::active() == nullptr) return;
  Scheduler::active()->touch(mutex, true);
  Scheduler::active()->wake(mutex);
}

void wait(unsigned round) noexcept {
  if (Scheduler::active() != nullptr) return Scheduler::active()->spin();
  if (round > kMostRounds) alone("a loop waits");
}

}  // namespace everleaf::crash::seam
