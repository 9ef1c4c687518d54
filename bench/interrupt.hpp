// Ctrl-C: the first one asks the run to end in order, a second one ends the program at once.
#pragma once

#include <signal.h>

namespace everleaf::bench {

// While it lives SIGINT only leaves a note, once. A SIGINT that was ignored stays so.
class Interrupt {
 public:
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  static bool asked() noexcept;

 private:
  struct sigaction before_ {};
};

}  // namespace everleaf::bench
