#include "interrupt.hpp"

#include <atomic>

namespace everleaf::bench {
namespace {

std::atomic<bool> note = false;
static_assert(std::atomic<bool>::is_always_lock_free);  // or a handler could not write it

void leave_note(int) {
  note.store(true, std::memory_order_relaxed);
}

}  // namespace

Interrupt::Interrupt() {
  struct sigaction action {};
  action.sa_handler = leave_note;
  action.sa_flags = SA_RESTART | static_cast<int>(SA_RESETHAND);
  ::sigaction(SIGINT, nullptr, &before_);
  if (before_.sa_handler != SIG_IGN) ::sigaction(SIGINT, &action, nullptr);
}

Interrupt::~Interrupt() {
  ::sigaction(SIGINT, &before_, nullptr);
}

bool Interrupt::asked() noexcept {
  return note.load(std::memory_order_relaxed);
}

}  // namespace everleaf::bench
