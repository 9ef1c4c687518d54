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

// What the child tells: how making the directory went, and then its name.
void tell(int pipe_end, int error, const std::string& name) {
  [[maybe_unused]] ssize_t ignored = ::write(pipe_end, &error, sizeof error);
  ignored = ::write(pipe_end, name.data(), name.size());
}

bool read_all(int pipe_end, void* to, std::size_t bytes) {
  auto* at = static_cast<char*>(to);
  while (bytes > 0) {
    const ssize_t got = ::read(pipe_end, at, bytes);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    at += got;
    bytes -= static_cast<std::size_t>(got);
  }
  return true;
}

// The child. Its own session and no terminal: signals meant for the parent do not reach it, and
// whoever reads the parent's output does not wait for it. Signals are blocked, SIGPIPE too: a
// parent that is gone already is no reason to leave the directory.
[[noreturn]] void keep_until_parent_ends(int life_line, int answer, std::string name) {
  ::setsid();
  if (const int null = ::open("/dev/null", O_RDWR); null >= 0) {
    for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::dup2(null, fd);
  }
  const int error = ::mkdtemp(name.data()) == nullptr ? errno : 0;
  tell(answer, error, name);
  if (error != 0) ::_exit(0);
  char byte = 0;
  while (::read(life_line, &byte, 1) < 0 && errno == EINTR) {
  }
  std::error_code ignored;
  std::filesystem::remove_all(name, ignored);
  ::_exit(0);
}

}  // namespace

Scratch::Scratch(const std::filesystem::path& parent) {
  std::string name = (parent / "everleaf-bench-XXXXXX").string();
  std::array<int, 2> life{};
  std::array<int, 2> answer{};
  if (::pipe2(life.data(), O_CLOEXEC) != 0) fail(parent, errno);
  if (::pipe2(answer.data(), O_CLOEXEC) != 0) {
    const int error = errno;
    for (const int end : life) ::close(end);
    fail(parent, error);
  }
  // The child must exist before the directory does, so the child makes it: whenever this process is
  // killed, somebody is left to remove it. The child keeps the signals blocked.
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::sigprocmask(SIG_SETMASK, &all, &before);
  janitor_ = ::fork();
  int error = janitor_ < 0 ? errno : 0;
  if (janitor_ == 0) {
    ::close(life[1]);
    ::close(answer[0]);
    keep_until_parent_ends(life[0], answer[1], name);
  }
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  ::close(life[0]);
  ::close(answer[1]);
  if (error == 0 && (!read_all(answer[0], &error, sizeof error) ||
                     !read_all(answer[0], name.data(), name.size()))) {
    error = EIO;  // the child died
  }
  ::close(answer[0]);
  dir_ = name;
  life_line_ = life[1];
  if (error == 0) return;
  end_janitor();
  fail(parent, error);
}

void Scratch::end_janitor() {
  ::close(life_line_);
  while (janitor_ > 0 && ::waitpid(janitor_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

Scratch::~Scratch() {
  end_janitor();
}

std::filesystem::path Scratch::new_file() {
  return dir_ / fmt::format("{}.pool", files_++);
}

}  // namespace everleaf::bench
