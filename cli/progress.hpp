// A line on the terminal that tells how far a long command is.
#pragma once

#include <chrono>
#include <cstdint>

namespace everleaf::cli {

// Silent where standard error is no terminal.
class Progress {
 public:
  // `total_bytes` 0: not known. The work begins at `first_byte`.
  Progress(std::uint64_t total_bytes, std::uint64_t first_byte);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Cheap: draws at most ten times a second.
  void update(std::uint64_t bytes, std::uint64_t lines);

 private:
  using Clock = std::chrono::steady_clock;

  std::uint64_t total_bytes_;
  std::uint64_t first_byte_;
  bool terminal_;
  bool drawn_ = false;
  Clock::time_point start_ = Clock::now();
  Clock::time_point next_ = start_;
};

}  // namespace everleaf::cli
