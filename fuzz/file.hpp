// A file in memory, at a path of its own: what opens files can be fed from a fuzzer.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <system_error>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>

namespace everleaf::fuzz {

class File {
 public:
  explicit File(std::span<const std::uint8_t> bytes) : fd_(::memfd_create("fuzz", MFD_CLOEXEC)) {
    if (fd_ < 0) std::abort();
    while (!bytes.empty()) {
      const ssize_t put = ::write(fd_, bytes.data(), bytes.size());
      if (put <= 0) std::abort();
      bytes = bytes.subspan(static_cast<std::size_t>(put));
    }
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() { ::close(fd_); }
  [[nodiscard]] std::filesystem::path path() const {
    return "/proc/self/fd/" + std::to_string(fd_);
  }

 private:
  int fd_;
};

// A path for a moment, in memory where the system has that: on a disk each write would wait.
inline std::filesystem::path scratch(const std::string& name) {
  std::error_code ignored;
  const std::filesystem::path memory = "/dev/shm";
  const bool there = std::filesystem::is_directory(memory, ignored);
  return (there ? memory : std::filesystem::temp_directory_path()) /
         (name + std::to_string(::getpid()));
}

// The bytes of the file there, which goes.
inline std::vector<std::uint8_t> take_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::vector<std::uint8_t> bytes{std::istreambuf_iterator<char>(file), {}};
  if (!file || bytes.empty()) std::abort();
  std::filesystem::remove(path);
  return bytes;
}

// Small decisions out of the fuzzer's bytes; zeros when they are used up.
class Choices {
 public:
  explicit Choices(std::span<const std::uint8_t> bytes) : bytes_(bytes) {}
  [[nodiscard]] bool empty() const { return bytes_.empty(); }
  std::uint64_t take(std::size_t bytes) {
    std::uint64_t value = 0;
    for (; bytes != 0; --bytes) {
      value = value << 8 | (bytes_.empty() ? 0U : bytes_.front());
      if (!bytes_.empty()) bytes_ = bytes_.subspan(1);
    }
    return value;
  }
  std::uint64_t below(std::uint64_t n) { return take(n > 256 ? 2 : 1) % n; }
  std::string text(std::size_t most) {
    const std::size_t size = std::min<std::size_t>(below(most + 1), bytes_.size());
    std::string text(reinterpret_cast<const char*>(bytes_.data()), size);
    bytes_ = bytes_.subspan(size);
    return text;
  }

 private:
  std::span<const std::uint8_t> bytes_;
};

// The fuzzer's finding.
inline void expect(bool true_, const char* what) {
  if (true_) return;
  ::dprintf(2, "fuzz: %s\n", what);
  std::abort();
}

}  // namespace everleaf::fuzz
