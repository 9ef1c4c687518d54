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

// Apart, so that a lock that nobody else can want needs no registers for them.
[[gnu::noinline]] void lock_among(Scheduler& scheduler, const void* mutex, bool& held) {
  scheduler.point();
  scheduler.touch(mutex, true);
  while (held) {
    scheduler.block_on(mutex);
    scheduler.touch(mutex, true);
  }
  held = true;
}

[[gnu::noinline]] void unlocked_among(Scheduler& scheduler, const void* mutex) {
  scheduler.touch(mutex, true);
  scheduler.wake(mutex);
}

}  // namespace

void lock(const void* mutex, bool& held) noexcept {
  if (Scheduler::active() != nullptr) return lock_among(*Scheduler::active(), mutex, held);
  if (held) alone("a lock is taken twice");
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
  if (Scheduler::active() != nullptr) unlocked_among(*Scheduler::active(), mutex);
}

void wait(unsigned round) noexcept {
  if (Scheduler::active() != nullptr) return Scheduler::active()->spin();
  if (round > kMostRounds) alone("a loop waits");
}

}  // namespace everleaf::crash::seam
