#include "progress.hpp"

#include <algorithm>
#include <cstdio>
#include <string>

#include <fmt/format.h>
#include <unistd.h>

#include "text.hpp"

namespace everleaf::cli {

Progress::Progress(std::uint64_t total_bytes)
    : total_bytes_(total_bytes), terminal_(::isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() {
  if (drawn_) std::fputs("\r\x1b[K", stderr);  // what follows starts on a clean line
}

void Progress::update(std::uint64_t bytes, std::uint64_t lines) {
  if (!terminal_) return;
  const auto now = Clock::now();
  if (now < next_) return;
  next_ = now + std::chrono::milliseconds(100);
  const double seconds = std::max(std::chrono::duration<double>(now - start_).count(), 1e-3);
  const std::string rate = human_rate(static_cast<double>(lines) / seconds);
  if (total_bytes_ == 0) {
    fmt::print(stderr, "\r\x1b[K{} lines  {}", grouped(lines), rate);
  } else {
    const double part =
        std::min(static_cast<double>(bytes) / static_cast<double>(total_bytes_), 1.0);
    const double left = part > 0 ? seconds / part - seconds : 0;
    constexpr std::size_t kWidth = 30;
    const auto full = static_cast<std::size_t>(part * kWidth);
    fmt::print(stderr, "\r\x1b[K[{:<{}}] {:3.0f}%  {} lines  {}  {:.0f} s left",
               std::string(full, '='), kWidth, part * 100, grouped(lines), rate, left);
  }
  std::fflush(stderr);
  drawn_ = true;
}

}  // namespace everleaf::cli
