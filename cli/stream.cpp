#include "stream.hpp"

#include <array>
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "failure.hpp"

namespace everleaf::cli {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{1} << 18;

[[noreturn]] void fail(const std::string& what, int error) {
  throw Failure(kExitIo, what + ": " + std::strerror(error));
}

}  // namespace

Interrupts::Interrupts() {
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, SIGINT);
  ::sigaddset(&set, SIGTERM);
  ::sigprocmask(SIG_BLOCK, &set, &before_);
  fd_ = ::signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
  if (fd_ < 0) fail("cannot wait for signals", errno);
}

Interrupts::~Interrupts() {
  ::close(fd_);
  ::sigprocmask(SIG_SETMASK, &before_, nullptr);
}

void Interrupts::check() {
  signalfd_siginfo info{};
  if (::read(fd_, &info, sizeof info) == sizeof info) {
    throw Interrupted{static_cast<int>(info.ssi_signo)};
  }
}

void Interrupts::wait(int fd, int milliseconds) {
  std::array<pollfd, 2> both{pollfd{fd_, POLLIN, 0}, pollfd{fd, POLLIN, 0}};
  while (::poll(both.data(), fd < 0 ? 1 : 2, milliseconds) < 0 && errno == EINTR) {
  }
  check();
}

void Interrupts::readable(int fd) {
  wait(fd, -1);
}

void Interrupts::sleep_ms(int milliseconds) {
  wait(-1, milliseconds);
}

Input::Input(const std::string& path, Interrupts* interrupts)
    : name_(path == "-" ? "standard input" : path),
      fd_(path == "-" ? ::dup(STDIN_FILENO)
                      : ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)),
      interrupts_(interrupts),
      buffer_(kBufferBytes) {
  if (fd_ < 0) fail("cannot read " + name_, errno);
  struct stat info {};
  if (::fstat(fd_, &info) != 0) return;
  if (S_ISDIR(info.st_mode)) {
    ::close(fd_);
    fail("cannot read " + name_, EISDIR);
  }
  if (S_ISREG(info.st_mode)) size_ = static_cast<std::uint64_t>(info.st_size);
}

Input::~Input() {
  ::close(fd_);
}

std::string_view Input::peek() {
  if (at_ == end_) fill();
  return {buffer_.data() + at_, end_ - at_};
}

Input::Line Input::line(std::string& text, std::size_t most) {
  text.clear();
  bool any = false;
  while (true) {
    const std::string_view bytes = peek();
    if (bytes.empty()) break;
    any = true;
    const std::size_t newline = bytes.find('\n');
    const std::string_view part = bytes.substr(0, newline);
    text += part;
    if (text.size() > most) return Line::too_long;
    consume(part.size() + (newline == std::string_view::npos ? 0 : 1));
    if (newline != std::string_view::npos) break;
  }
  if (text.ends_with('\r')) text.pop_back();
  return any ? Line::read : Line::end;
}

void Input::fill() {
  before_buffer_ += end_;
  at_ = end_ = 0;
  ssize_t got = 0;
  do {
    // A FIFO was opened without waiting for its writer.
    pollfd one{fd_, POLLIN, 0};
    if (interrupts_ != nullptr) {
      interrupts_->readable(fd_);
    } else {
      (void)::poll(&one, 1, -1);
    }
    got = ::read(fd_, buffer_.data(), buffer_.size());
  } while (got < 0 && (errno == EINTR || errno == EAGAIN));
  if (got < 0) fail("cannot read " + name_, errno);
  end_ = static_cast<std::size_t>(got);
}

Output& Output::operator<<(std::string_view text) {
  buffer_ += text;
  if (buffer_.size() >= kBufferBytes) finish();
  return *this;
}

void Output::finish() {
  std::string_view rest = buffer_;
  while (!rest.empty()) {
    const ssize_t put = ::write(STDOUT_FILENO, rest.data(), rest.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) fail("cannot write to standard output", errno);
    rest.remove_prefix(static_cast<std::size_t>(put));
  }
  buffer_.clear();
}

}  // namespace everleaf::cli
