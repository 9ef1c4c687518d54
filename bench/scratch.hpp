// A directory for the pools of one run, gone when the program is gone, however it ended.
#pragma once

#include <filesystem>
#include <string>

#include <sys/types.h>

namespace everleaf::bench {

// A child process makes the directory, holds the read end of a pipe and removes the directory when
// the write end closes: at the destructor, and as well when this process dies of SIGINT, SIGKILL or
// a crash. Signal handlers could not do the latter, and unlinking the open files would change what
// fsync costs. To be made before any thread is started. Not thread-safe.
class Scratch {
 public:
  // Throws Failure (kExitIo) if no directory can be made inside `parent`.
  explicit Scratch(const std::filesystem::path& parent);
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  // A path in the directory that was not given out before.
  std::filesystem::path new_file();

 private:
  void end_janitor();

  std::filesystem::path dir_;
  int life_line_ = -1;
  pid_t janitor_ = -1;
  unsigned files_ = 0;
};

}  // namespace everleaf::bench
