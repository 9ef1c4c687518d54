#include "progress.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

namespace everleaf::bench {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kPause{250};
constexpr unsigned kWidth = 20;

}  // namespace

std::string bar(double share, unsigned width) {
  const auto full =
      static_cast<unsigned>(std::floor(std::clamp(share, 0.0, 1.0) * static_cast<double>(width)));
  return fmt::format("[{:#<{}}{:-<{}}]", "", full, "", width - full);
}

Progress::Progress(std::uint64_t steps) : steps_(steps) {
  if (::isatty(STDERR_FILENO) != 1) return;
  painter_ = std::jthread([this](const std::stop_token& stop) { paint(stop); });
}

Progress::~Progress() {
  if (!painter_.joinable()) return;
  painter_.request_stop();
  painter_.join();
  fmt::print(stderr, "\r\x1b[K");
}

void Progress::begin(std::string what, std::uint64_t ops) {
  const std::lock_guard lock(mutex_);
  ++step_;
  what_ = std::move(what);
  ops_ = std::max<std::uint64_t>(ops, 1);
  checking_ = false;
  done_.store(0, std::memory_order_relaxed);
}

void Progress::check() {
  const std::lock_guard lock(mutex_);
  checking_ = true;
}

void Progress::paint(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  std::uint64_t step_before = 0;
  std::uint64_t done_before = 0;
  Clock::time_point then = Clock::now();
  while (!wake_.wait_for(lock, stop, kPause, [&] { return stop.stop_requested(); })) {
    if (step_ == 0) continue;
    const std::uint64_t done = done_.load(std::memory_order_relaxed);
    const Clock::time_point now = Clock::now();
    if (step_ != step_before) done_before = 0;
    const double seconds = std::chrono::duration<double>(now - then).count();
    const double rate = static_cast<double>(done - std::min(done, done_before)) / seconds;
    const double part = checking_ ? 1 : static_cast<double>(done) / static_cast<double>(ops_);
    const double share = (static_cast<double>(step_ - 1) + part) / static_cast<double>(steps_);
    const std::string speed =
        checking_ ? std::string("checking") : fmt::format("{:.3f} M keys/s", rate / 1e6);
    fmt::print(stderr, "\r\x1b[K{} {:3.0f} %  {}  {}", bar(share, kWidth), 100 * share, speed,
               what_);
    std::fflush(stderr);
    step_before = step_;
    done_before = done;
    then = now;
  }
}

}  // namespace everleaf::bench
