// A bar, and keys per second, on stderr while the program runs, if stderr is a terminal.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>

namespace everleaf::bench {

// "[#####-----]". `share` from 0 to 1.
std::string bar(double share, unsigned width);

// Thread-safe. The drawing thread sleeps most of the time; without a terminal there is none.
class Progress {
 public:
  // `steps`: calls of begin() that will come.
  explicit Progress(std::uint64_t steps);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // The next step, of `ops` operations.
  void begin(std::string what, std::uint64_t ops);
  // What follows until begin() is no operation of the step.
  void check();

  // Where operations are counted; null if nobody looks.
  std::atomic<std::uint64_t>* counter() { return painter_.joinable() ? &done_ : nullptr; }

 private:
  void paint(const std::stop_token& stop);

  std::uint64_t steps_;
  std::atomic<std::uint64_t> done_ = 0;
  std::mutex mutex_;  // of all that follows
  std::condition_variable_any wake_;
  std::uint64_t step_ = 0;  // begun
  std::uint64_t ops_ = 0;
  bool checking_ = false;
  std::string what_;
  std::jthread painter_;  // last: it ends before what it reads
};

}  // namespace everleaf::bench
