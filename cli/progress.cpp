#include "progress.hpp"

#include <algorithm>
#include <cstdio>
#include <string>

#include <fmt/format.h>
#include <unistd.h>

#include "text.hpp"

namespace everleaf::cli {

Progress::Progress(std::uint64_t total_bytes, std::uint64_t first_byte)
    : total_bytes_(total_bytes), first_byte_(first_byte), terminal_(::isatty(STDERR_FILENO) == 1) {}

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
    const auto total = static_cast<double>(total_bytes_);
    const double part = std::min(static_cast<double>(bytes) / total, 1.0);
    const double done = part - static_cast<double>(first_byte_) / total;
    const double left = done > 0 ? seconds * (1 - part) / done : 0;
    constexpr std::size_t kWidth = 30;
    const auto full = static_cast<std::size_t>(part * kWidth);
    fmt::print(stderr, "\r\x1b[K[{:<{}}] {:3.0f}%  {} lines  {}  {:.0f} s left",
               std::string(full, '='), kWidth, part * 100, grouped(lines), rate, left);
  }
  std::fflush(stderr);
  drawn_ = true;
}

}  // namespace everleaf::cli
