// What ends a command early: one sentence for people, and the exit code (docs/cli.md).
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include <everleaf/result.hpp>

namespace everleaf::cli {

inline constexpr int kExitNo = 1;     // a negative answer: key absent, damage found
inline constexpr int kExitUsage = 2;  // bad usage, bad input
inline constexpr int kExitIo = 3;     // cannot be opened, I/O, locked, full

class Failure : public std::runtime_error {
 public:
  Failure(int exit_code, std::string_view message)
      : std::runtime_error(std::string(message)), exit_code_(exit_code) {}
  [[nodiscard]] int exit_code() const noexcept { return exit_code_; }

 private:
  int exit_code_;
};

// Usage errors are those that another command line would avoid.
[[nodiscard]] int exit_code_of(Code code) noexcept;
[[nodiscard]] int exit_code_of(Outcome outcome) noexcept;

template <class T>
T value_or_fail(Result<T> result) {
  if (!result) throw Failure(exit_code_of(result.error().code), result.error().message);
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

}  // namespace everleaf::cli
