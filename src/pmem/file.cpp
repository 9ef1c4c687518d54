#include "pmem/file.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <limits>
#include <set>
#include <string>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/seam.hpp"

namespace everleaf::pmem {
namespace {

constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kStatBlock = 512;

Code code_of(int error) {
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return Code::not_found;
    case EACCES:
    case EPERM:
    case EROFS:
      return Code::permission;
    case EEXIST:
      return Code::exists;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return Code::out_of_space;
    default:
      return Code::io;
  }
}

// Which files this process has open: only to tell "by this process" from "by another".
struct OpenHere {
  base::Mutex mutex;
  std::multiset<std::pair<dev_t, ino_t>> files;
};

// Never destroyed: pools in static variables may be closed after any of ours.
OpenHere& open_here() {
  static OpenHere& table = *new OpenHere;
  return table;
}

std::pair<dev_t, ino_t> identity(int fd) {
  struct stat info {};
  ::fstat(fd, &info);
  return {info.st_dev, info.st_ino};
}

std::uint64_t resource_limit(int resource) {
  struct rlimit limit {};
  if (::getrlimit(static_cast<__rlimit_resource_t>(resource), &limit) != 0) return ~rlim_t{0};
  return limit.rlim_cur == RLIM_INFINITY ? ~std::uint64_t{0} : limit.rlim_cur;
}

Result<Mapping> failed_mapping(int error) {
  return std::unexpected(system_error("cannot map the pool", error));
}

}  // namespace

Error system_error(const std::string& what, int error) {
  return {code_of(error), what + ": " + std::strerror(error)};
}

Result<Descriptor> Descriptor::open(const std::filesystem::path& path, int flags,
                                    unsigned permissions) {
  int fd = -1;
  do {
    // Nobody waits for the other end of a FIFO.
    fd = ::open(path.c_str(), flags | O_CLOEXEC | O_NONBLOCK, permissions);
  } while (fd < 0 && errno == EINTR);
  if (fd < 0) return std::unexpected(system_error("cannot open " + path.string(), errno));
  return Descriptor(fd);
}

Result<Descriptor> Descriptor::duplicate() const {
  const int fd = ::fcntl(fd_, F_DUPFD_CLOEXEC, 0);
  if (fd < 0) return std::unexpected(system_error("cannot duplicate a descriptor", errno));
  return Descriptor(fd);
}

Descriptor Descriptor::another() const noexcept {
  std::array<char, 48> path{};
  // The thread's: the process's first one may have ended, or have other files.
  (void)std::snprintf(path.data(), path.size(), "/proc/thread-self/fd/%d", fd_);
  Descriptor other(::open(path.data(), O_RDWR | O_CLOEXEC | O_NONBLOCK));
  // Not one of the standard ones, which the program may have closed to open it again.
  if (other.valid() && other.get() <= STDERR_FILENO) {
    other = Descriptor(::fcntl(other.get(), F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
  }
  if (!other.valid() || identity(other.get()) != identity(fd_)) return {};
  // Each thread may want one: the program keeps half of what it may have.
  const auto number = static_cast<std::uint64_t>(other.get());
  return number < resource_limit(RLIMIT_NOFILE) / 2 ? std::move(other) : Descriptor();
}

Descriptor::~Descriptor() {
  if (fd_ < 0) return;
  if (locked_) {
    const base::MutexGuard guard(open_here().mutex);
    const auto mine = open_here().files.find(identity(fd_));
    if (mine != open_here().files.end()) open_here().files.erase(mine);
    // A child of fork() has the same open file, and keeps it: closing ours would not unlock it.
    (void)::flock(fd_, LOCK_UN);
  }
  ::close(fd_);
}

Result<void> Descriptor::lock(bool exclusive, const std::filesystem::path& path) {
  const base::MutexGuard guard(open_here().mutex);
  const auto id = identity(fd_);
  // flock belongs to the open file, not to the process: a second open here conflicts as well.
  if (::flock(fd_, (exclusive ? LOCK_EX : LOCK_SH) | LOCK_NB) == 0) {
    open_here().files.insert(id);
    locked_ = true;
    return {};
  }
  if (errno != EWOULDBLOCK)
    return std::unexpected(system_error("cannot lock " + path.string(), errno));
  if (open_here().files.contains(id)) {
    return std::unexpected(Error{Code::locked_here, path.string() +
                                                        " is open in this process already: share "
                                                        "that Pool instead of opening it again"});
  }
  return std::unexpected(
      Error{Code::locked, path.string() + " is open in another process: close it there; of a "
                                          "store, that process can make a backup "
                                          "(Store::backup, everleaf_backup, backup in "
                                          "Python)"});
}

int reserve_blocks(const Descriptor& file, std::uint64_t from, std::uint64_t to) noexcept {
  int error = 0;
  do {
    error = ::fallocate(file.get(), 0, static_cast<off_t>(from), static_cast<off_t>(to - from)) == 0
                ? 0
                : errno;
  } while (error == EINTR);
  return error;
}

int append_zeros(const Descriptor& file, std::uint64_t bytes) noexcept {
  static constexpr std::array<std::byte, kPage> kZeros{};
  while (true) {
    struct stat info {};
    if (::fstat(file.get(), &info) != 0) return errno;
    const auto now = static_cast<std::uint64_t>(info.st_size);
    if (now >= bytes) return 0;
    const iovec piece{const_cast<std::byte*>(kZeros.data()), std::min(bytes - now, kPage)};
    // At the end that it has then.
    const ssize_t n = ::pwritev2(file.get(), &piece, 1, static_cast<off_t>(now), RWF_APPEND);
    if (n == 0) return ENOSPC;
    if (n < 0 && errno != EINTR) return errno;
  }
}

Result<void> allocate(const Descriptor& file, std::uint64_t from, std::uint64_t to) {
  int error = reserve_blocks(file, from, to);
  if (error == EOPNOTSUPP) {
    // It writes the blocks one by one where the file system cannot do better.
    error = ::posix_fallocate(file.get(), static_cast<off_t>(from), static_cast<off_t>(to - from));
  }
  if (error != 0) return std::unexpected(system_error("cannot grow the pool", error));
  return {};
}

std::uint64_t space_left(const Descriptor& file) {
  struct statvfs disk {};
  if (::fstatvfs(file.get(), &disk) != 0) return ~std::uint64_t{0};
  return static_cast<std::uint64_t>(disk.f_bavail) * disk.f_frsize;
}

Result<void> fill_holes(const Descriptor& file, std::uint64_t bytes, bool exact) {
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) return std::unexpected(system_error("cannot stat", errno));
  const std::uint64_t backed = static_cast<std::uint64_t>(info.st_blocks) * kStatBlock;
  if (backed >= bytes) {
    // On disks the count includes metadata, so there may be small holes all the same. Asking costs
    // little, unless the file system cannot do it: then each block would be read.
    const int error = exact ? 0 : reserve_blocks(file, 0, bytes);
    if (error == 0 || error == EOPNOTSUPP) return {};
    return std::unexpected(system_error("cannot fill holes", error));
  }
  // A failed fallocate keeps what it got: the disk would stay full.
  if (const std::uint64_t left = space_left(file); bytes - backed > left) {
    return std::unexpected(Error{
        Code::out_of_space, std::to_string(bytes - backed) + " bytes are missing, the disk has " +
                                std::to_string(left) + " left: make room there"});
  }
  return allocate(file, 0, bytes);
}

Result<std::uint64_t> size_of(const Descriptor& file) {
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) return std::unexpected(system_error("cannot stat", errno));
  return static_cast<std::uint64_t>(info.st_size);
}

bool has_holes(const Descriptor& file) {
  struct stat info {};
  return ::fstat(file.get(), &info) == 0 &&
         static_cast<std::uint64_t>(info.st_blocks) * kStatBlock <
             static_cast<std::uint64_t>(info.st_size);
}

bool only_zeros_from(const Descriptor& file, std::uint64_t from) {
  std::array<std::byte, 1 << 16> piece;
  while (true) {
    const off_t data = ::lseek(file.get(), static_cast<off_t>(from), SEEK_DATA);
    if (data < 0) return errno == ENXIO;  // nothing but a hole
    const ssize_t n = ::pread(file.get(), piece.data(), piece.size(), data);
    if (n <= 0) return n == 0;
    const auto end = piece.begin() + n;
    if (std::any_of(piece.begin(), end, [](std::byte b) { return b != std::byte{0}; })) {
      return false;
    }
    from = static_cast<std::uint64_t>(data + n);
  }
}

std::uint64_t first_hole(const Descriptor& file, std::uint64_t from) {
  const off_t hole = ::lseek(file.get(), static_cast<off_t>(from), SEEK_HOLE);
  if (hole >= 0) return static_cast<std::uint64_t>(hole);
  return std::numeric_limits<std::uint64_t>::max();
}

bool cut(const Descriptor& file, std::uint64_t bytes) {
  return ::ftruncate(file.get(), static_cast<off_t>(bytes)) == 0;
}

namespace {

// The smallest of the limits `names` of a control group and of those that it is in; each is a
// number or "max".
std::uint64_t group_limit(const std::string& root, std::string path,
                          std::initializer_list<const char*> names) {
  std::uint64_t limit = ~std::uint64_t{0};
  while (true) {
    for (const char* const name : names) {
      std::ifstream file(root + path + "/" + name);
      if (std::uint64_t most = 0; file >> most) limit = std::min(limit, most);
    }
    if (path.empty()) return limit;
    path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
  }
}

}  // namespace

std::uint64_t memory_limit() {
  const auto pages = static_cast<std::uint64_t>(std::max(::sysconf(_SC_PHYS_PAGES), 0L));
  std::uint64_t limit = std::min(pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)),
                                 resource_limit(RLIMIT_DATA));
  // "0::/path" of the unified hierarchy, "4:memory:/path" of the older one.
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const std::size_t path = line.find('/');
    if (path == std::string::npos) continue;
    if (line.starts_with("0::")) {
      limit = std::min(
          limit, group_limit("/sys/fs/cgroup", line.substr(path), {"memory.max", "memory.high"}));
    } else if (line.find("memory") < path) {
      limit = std::min(limit, group_limit("/sys/fs/cgroup/memory", line.substr(path),
                                          {"memory.limit_in_bytes"}));
    }
  }
  return limit;
}

std::uint64_t largest_written_file() {
  return resource_limit(RLIMIT_FSIZE);
}

Result<void> sync_directory(const std::filesystem::path& file) {
  std::filesystem::path parent = file.parent_path();
  if (parent.empty()) parent = ".";
  auto directory = Descriptor::open(parent, O_RDONLY | O_DIRECTORY);
  if (!directory) return std::unexpected(directory.error());
  if (::fsync(directory->get()) != 0 && errno != EINVAL) {
    return std::unexpected(system_error("cannot sync the directory " + parent.string(), errno));
  }
  return {};
}

Result<Mapping> Mapping::map(int file, std::uint64_t bytes, int flags) {
  const auto map_at = [&](std::byte* base, int more) {
    return ::mmap(base, bytes, PROT_READ | PROT_WRITE, flags | more, file, 0);
  };
  // The kernel aligns for some file systems alone. So: where there is room for an aligned range.
  const std::uint64_t room = bytes + kHugePage;
  void* base = MAP_FAILED;
  void* const free =
      ::mmap(nullptr, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (free != MAP_FAILED) {
    ::munmap(free, room);
    const std::uint64_t before =
        (kHugePage - reinterpret_cast<std::uintptr_t>(free) % kHugePage) % kHugePage;
    base = map_at(static_cast<std::byte*>(free) + before, MAP_FIXED_NOREPLACE);
  }
  // Another thread may have been faster.
  if (base == MAP_FAILED) base = map_at(nullptr, 0);
  if (base == MAP_FAILED) return failed_mapping(errno);
  return Mapping(static_cast<std::byte*>(base), bytes);
}

Result<Mapping> Mapping::shared(const Descriptor& file, std::uint64_t bytes, bool synchronous) {
  return map(file.get(), bytes,
             synchronous ? MAP_SHARED_VALIDATE | MAP_SYNC : MAP_SHARED | MAP_NORESERVE);
}

Result<Mapping> Mapping::copy(const Descriptor& file, std::uint64_t bytes) {
  return map(file.get(), bytes, MAP_PRIVATE | MAP_NORESERVE);
}

Result<Mapping> Mapping::anonymous(std::uint64_t bytes, bool huge) {
  auto mapping = map(-1, bytes, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE);
  // A wish: without it everything works, slower.
  if (mapping) ::madvise(mapping->base(), bytes, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
  return mapping;
}

void Mapping::touch(std::uint64_t from, std::uint64_t to) const noexcept {
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  from = from / page * page;
  (void)::madvise(base_ + from, to - from, MADV_POPULATE_WRITE);
}

bool Mapping::map_again(const Descriptor& file, std::uint64_t from, std::uint64_t to,
                        int protection, int flags) {
  void* const at = ::mmap(base_ + from, to - from, protection, flags | MAP_NORESERVE, file.get(),
                          static_cast<off_t>(from));
  if (at == base_ + from) return true;
  // Kernels that do not know MAP_FIXED_NOREPLACE take the address for a wish.
  if (at != MAP_FAILED) ::munmap(at, to - from);
  return false;
}

bool Mapping::copy(const Descriptor& file, std::uint64_t from, std::uint64_t to, bool reserved) {
  constexpr int kUsable = PROT_READ | PROT_WRITE;
  if (!map_again(file, from, to, reserved ? PROT_NONE : kUsable, MAP_PRIVATE | MAP_FIXED)) {
    // Older kernels have unmapped it by now.
    (void)map_again(file, from, to, kUsable, MAP_SHARED | MAP_FIXED_NOREPLACE);
    return false;
  }
  // A core has no business with the pool, as with a shared mapping.
  (void)::madvise(base_ + from, to - from, MADV_DONTDUMP);
  return true;
}

bool Mapping::open(std::uint64_t from, std::uint64_t to) {
  return ::mprotect(base_ + from, to - from, PROT_READ | PROT_WRITE) == 0;
}

bool Mapping::share(const Descriptor& file, std::uint64_t from, std::uint64_t to) {
  constexpr int kUsable = PROT_READ | PROT_WRITE;
  if (map_again(file, from, to, kUsable, MAP_SHARED | MAP_FIXED)) return true;
  const int error = errno;
  // As in copy(), and others may use it already.
  const bool shared = map_again(file, from, to, kUsable, MAP_SHARED | MAP_FIXED_NOREPLACE);
  errno = error;
  return shared;
}

bool Mapping::back_with_huge_page(const Descriptor& file, std::uint64_t at) const {
#ifdef MADV_COLLAPSE
  constexpr int kCollapse = MADV_COLLAPSE;
#else
  constexpr int kCollapse = 25;  // headers before Linux 6.1
#endif
  // The kernel wants one page at least to be there, and the file to reach the end of the range.
  return reserve_blocks(file, at + kHugePage - kPage, at + kHugePage) == 0 &&
         ::madvise(base_ + at, kHugePage, kCollapse) == 0;
}

Mapping::~Mapping() {
  if (base_ != nullptr) ::munmap(base_, bytes_);
}

}  // namespace everleaf::pmem
