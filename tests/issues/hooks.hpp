// System calls and allocations that a test may answer instead of the system.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <functional>
#include <optional>
#include <string>

#include <sys/statvfs.h>

namespace everleaf::test {

// An answer: 0 for success or an errno; none: the system is asked.
using Answer = std::optional<int>;

struct Hooks {
  std::function<Answer(int flags)> open;
  std::function<void(int file)> opened;    // by the system
  std::function<Answer(int file)> pwrite;  // what the library writes pages by
  std::function<Answer(int file)> fsync;
  std::function<Answer(int file)> fdatasync;
  std::function<Answer(int file, std::uint64_t from, std::uint64_t bytes)> drop_cache;
  std::function<Answer(struct statvfs& info)> fstatvfs;
  std::function<Answer()> fallocate;
  std::function<Answer()> posix_fallocate;
  std::function<Answer()> linkat;
  std::function<Answer(std::timespec& now)> clock;
  std::function<Answer()> new_thread;
};

// Set while one thread runs; reset_hooks() gives everything back to the system.
extern Hooks hooks;
inline void reset_hooks() {
  hooks = {};
}

using Hook = void (*)();
// Called before each allocation of this thread by operator new.
inline constinit thread_local Hook before_allocation = nullptr;

}  // namespace everleaf::test
