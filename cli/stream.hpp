// Input and output by file descriptor, and signals that wait until they are asked for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <signal.h>

namespace everleaf::cli {

// Thrown where a command finds that it was asked to stop.
struct Interrupted {
  int signal;
};

// While it lives, SIGINT and SIGTERM stop nothing by themselves: check() and readable() throw
// Interrupted. So a load ends between two lines, and no signal slips in between a check and a read.
class Interrupts {
 public:
  Interrupts();
  ~Interrupts();
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  void check();
  // Waits until `fd` can be read.
  void readable(int fd);
  // Waits, at most that long.
  void sleep_ms(int milliseconds);

 private:
  void wait(int fd, int milliseconds);

  int fd_ = -1;
  sigset_t before_{};
};

// A file or standard input ("-"), read once. Throws Failure.
class Input {
 public:
  Input(const std::string& path, Interrupts* interrupts);
  ~Input();
  Input(const Input&) = delete;
  Input& operator=(const Input&) = delete;

  // Unread bytes, at least one; empty: the end.
  std::string_view peek();
  void consume(std::size_t bytes) { at_ += bytes; }
  // The next line without its end, be it that of Unix or of Windows.
  enum class Line : std::uint8_t { read, end, too_long };
  Line line(std::string& text, std::size_t most);

  [[nodiscard]] std::uint64_t position() const { return before_buffer_ + at_; }
  // 0: not known (a pipe).
  [[nodiscard]] std::uint64_t size() const { return size_; }
  [[nodiscard]] const std::string& name() const { return name_; }

 private:
  void fill();

  std::string name_;
  int fd_;
  Interrupts* interrupts_;
  std::uint64_t size_ = 0;
  std::uint64_t before_buffer_ = 0;
  std::vector<char> buffer_;
  std::size_t at_ = 0;
  std::size_t end_ = 0;
};

// Standard output, buffered; a full disk is a Failure and never silence. finish() at the end.
class Output {
 public:
  Output& operator<<(std::string_view text);
  void finish();

 private:
  std::string buffer_;
};

}  // namespace everleaf::cli
