#include "pmem/unborn.hpp"

#include <cerrno>
#include <cstdint>
#include <random>
#include <string>

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

namespace everleaf::pmem {
namespace {
constexpr int kMostNames = 16;
}  // namespace

Unborn::~Unborn() {
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

Result<Descriptor> Unborn::open() {
  std::filesystem::path parent = path_.parent_path();
  if (parent.empty()) parent = ".";
  if (::access("/proc/self/fd", X_OK) == 0) {
    auto nameless = Descriptor::open(parent, O_RDWR | O_TMPFILE, 0666);
    if (nameless) return nameless;
    // Older kernels and some file systems say EISDIR or EOPNOTSUPP: both come out as `io`.
    if (nameless.error().code != Code::io) return nameless;
  }
  std::random_device random;
  for (int attempt = 1;; ++attempt) {
    // Random: a crash leaves such a file, and process numbers come again.
    std::filesystem::path temporary = path_;
    temporary += ".new-" + std::to_string(std::uint64_t{random()} << 32 | random());
    auto named = Descriptor::open(temporary, O_RDWR | O_CREAT | O_EXCL, 0666);
    if (named) temporary_ = std::move(temporary);
    if (named || named.error().code != Code::exists) return named;
    if (attempt == kMostNames) {
      // Not `exists`: that would speak of the pool.
      return std::unexpected(Error{Code::io, "no temporary name is free: " + temporary.string()});
    }
  }
}

Result<void> Unborn::name(const Descriptor& file) {
  const std::string source =
      temporary_.empty() ? "/proc/self/fd/" + std::to_string(file.get()) : temporary_.string();
  if (::linkat(AT_FDCWD, source.c_str(), AT_FDCWD, path_.c_str(), AT_SYMLINK_FOLLOW) != 0 &&
      !renamed(errno)) {
    return std::unexpected(system_error("cannot create " + path_.string(), errno));
  }
  auto synced = sync_directory(path_);
  if (!synced) ::unlink(path_.c_str());  // a refusal leaves nothing behind
  return synced;
}

// Where there are no hard links. errno is that of the rename if it was tried.
bool Unborn::renamed(int error) {
  const bool no_links = error == EPERM || error == EOPNOTSUPP || error == ENOSYS;
  if (temporary_.empty() || !no_links ||
      ::renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD, path_.c_str(), RENAME_NOREPLACE) != 0) {
    return false;
  }
  temporary_.clear();
  return true;
}

}  // namespace everleaf::pmem
