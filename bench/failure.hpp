// What ends the program early: a sentence for people and an exit code.
#pragma once

#include <stdexcept>
#include <string>

namespace everleaf::bench {

inline constexpr int kExitWrongAnswer = 1;  // an index answered wrongly
inline constexpr int kExitUsage = 2;
inline constexpr int kExitIo = 3;

class Failure : public std::runtime_error {
 public:
  Failure(int exit_code, const std::string& message)
      : std::runtime_error(message), exit_code_(exit_code) {}
  [[nodiscard]] int exit_code() const { return exit_code_; }

 private:
  int exit_code_;
};

}  // namespace everleaf::bench
