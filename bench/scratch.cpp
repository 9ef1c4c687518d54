#include "scratch.hpp"

#include <array>
#include <cerrno>
#include <csignal>
#include <system_error>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include "failure.hpp"

namespace everleaf::bench {
namespace {

[[noreturn]] void fail(const std::filesystem::path& path, int error) {
  throw Failure(kExitIo, fmt::format("cannot make a directory for the pools in {}: {}",
                                     path.string(), std::generic_category().message(error)));
}

// The child. Its own session and no terminal: signals meant for the parent do not reach it, and
// whoever reads the parent's output does not wait for it.
[[noreturn]] void remove_when_parent_ends(int pipe_end, const std::filesystem::path& dir) {
  ::setsid();
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) std::signal(signal, SIG_IGN);
  if (const int null = ::open("/dev/null", O_RDWR); null >= 0) {
    for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::dup2(null, fd);
  }
  char byte = 0;
  while (::read(pipe_end, &byte, 1) < 0 && errno == EINTR) {
  }
  std::error_code ignored;
  std::filesystem::remove_all(dir, ignored);
  ::_exit(0);
}

}  // namespace

Scratch::Scratch(const std::filesystem::path& parent) {
  std::string name = (parent / "everleaf-bench-XXXXXX").string();
  // The child must exist before the directory does, or a signal in between would leave it; so the
  // signals wait.
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::sigprocmask(SIG_SETMASK, &all, &before);
  std::array<int, 2> ends{};
  int error = 0;
  if (::mkdtemp(name.data()) == nullptr) {
    error = errno;
  } else {
    dir_ = name;
    if (::pipe2(ends.data(), O_CLOEXEC) != 0 || (janitor_ = ::fork()) < 0) {
      error = errno;
      ::rmdir(name.c_str());
    }
  }
  if (janitor_ == 0) {
    ::close(ends[1]);
    remove_when_parent_ends(ends[0], dir_);
  }
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  if (error != 0) fail(parent, error);
  ::close(ends[0]);
  life_line_ = ends[1];
}

Scratch::~Scratch() {
  ::close(life_line_);
  while (::waitpid(janitor_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

std::filesystem::path Scratch::new_file() {
  return dir_ / fmt::format("{}.pool", files_++);
}

}  // namespace everleaf::bench
