// Ctrl-C: what is under way ends early, and what was found is still written down.
#pragma once

#include <csignal>

namespace everleaf::crash {

inline volatile std::sig_atomic_t interrupt_came = 0;

[[nodiscard]] inline bool interrupted() noexcept {
  return interrupt_came != 0;
}

// The signal is remembered; `once`: a second one ends the process.
inline void remember(int signal, bool once) {
  struct sigaction action {};
  action.sa_handler = [](int) { interrupt_came = 1; };
  action.sa_flags = once ? static_cast<int>(SA_RESETHAND) : 0;
  ::sigaction(signal, &action, nullptr);
}

}  // namespace everleaf::crash
