#include "pmem/domain.hpp"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "pmem/file.hpp"

namespace everleaf::pmem {
namespace {

// "cpu_cache" where the platform flushes the caches on power loss.
std::string persistence_domain_of(const struct stat& info) {
  const bool character = S_ISCHR(info.st_mode);
  const dev_t device = character ? info.st_rdev : info.st_dev;
  const std::string root = std::string("/sys/dev/") + (character ? "char/" : "block/") +
                           std::to_string(major(device)) + ":" + std::to_string(minor(device));
  // The region is the parent of the namespace; a partition stands one level deeper.
  for (const char* path : {"/device/../persistence_domain", "/../device/../persistence_domain",
                           "/device/../../persistence_domain", "/../../persistence_domain"}) {
    std::ifstream file(root + path);
    std::string word;
    if (file >> word) return word;
  }
  return {};
}

bool is_dax_device(const struct stat& info) {
  if (!S_ISCHR(info.st_mode)) return false;
  const std::string device =
      std::to_string(major(info.st_rdev)) + ":" + std::to_string(minor(info.st_rdev));
  std::error_code none;
  const auto subsystem =
      std::filesystem::read_symlink("/sys/dev/char/" + device + "/subsystem", none);
  return subsystem.filename() == "dax";
}

bool maps_synchronously(int fd) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  void* const address = ::mmap(nullptr, page, PROT_READ, MAP_SHARED_VALIDATE | MAP_SYNC, fd, 0);
  if (address == MAP_FAILED) return false;
  ::munmap(address, page);
  return true;
}

DomainChoice dax(const struct stat& info, const std::string& what) {
  const std::string platform = persistence_domain_of(info);
  if (platform == "cpu_cache") {
    return {Domain::cache, false, what + ", and the platform flushes the CPU caches on power loss"};
  }
  return {Domain::memory, false,
          what + ", persistence domain " + (platform.empty() ? "not told" : platform)};
}

// Larger means stronger: what a domain promises includes what the smaller ones promise. cache,
// memory and disk survive the same; they differ in what the device must do for it.
bool gives(Domain device, Domain wanted) {
  if (wanted == Domain::process || wanted == device) return true;
  if (wanted == Domain::volatile_) return true;
  // A sync is right on DAX too, and clwb where the caches are persistent: only slower.
  if (device == Domain::cache) return wanted == Domain::memory || wanted == Domain::disk;
  if (device == Domain::memory) return wanted == Domain::disk;
  return false;
}

}  // namespace

bool on_tmpfs(int fd) {
  struct statfs system {};
  return ::fstatfs(fd, &system) == 0 && system.f_type == TMPFS_MAGIC;
}

bool on_hugetlbfs(int fd) {
  struct statfs system {};
  return ::fstatfs(fd, &system) == 0 && system.f_type == HUGETLBFS_MAGIC;
}

DomainChoice detect(int fd) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return {Domain::process, false, "the file cannot be examined"};
  if (is_dax_device(info)) return dax(info, "a DAX character device");
  if (on_tmpfs(fd))
    return {Domain::process, false, "tmpfs: survives the process, not a power loss"};
  if (on_hugetlbfs(fd)) {
    return {Domain::process, false, "hugetlbfs: survives the process, not a power loss"};
  }
  if (S_ISREG(info.st_mode) && maps_synchronously(fd)) return dax(info, "a DAX file (MAP_SYNC)");
  return {Domain::disk, false, "a file without DAX: only a sync of the file makes it durable"};
}

Result<DomainChoice> choose(int fd, const PoolOptions& options) {
  DomainChoice choice = detect(fd);
  if (!options.domain || *options.domain == choice.domain) return choice;
  const Domain wanted = *options.domain;
  if (wanted == Domain::volatile_) {
    return std::unexpected(
        Error{Code::bad_argument, "the volatile domain is for anonymous pools, not for files"});
  }
  const std::string asked = "asked for " + std::string(to_string(wanted)) + "; the device gives " +
                            std::string(to_string(choice.domain)) + " (" + choice.reason + ")";
  if (gives(choice.domain, wanted)) return DomainChoice{wanted, false, asked};
  if (options.emulate) return DomainChoice{wanted, true, asked};
  return std::unexpected(Error{
      Code::domain_too_strong,
      asked +
          "; with emulate (--emulate) it can be measured all the same, without its durability"});
}

}  // namespace everleaf::pmem

namespace everleaf {

Result<DomainChoice> detect_domain(const std::filesystem::path& path) {
  std::filesystem::path place = path;
  std::error_code ignored;
  if (!std::filesystem::exists(place, ignored)) place = place.parent_path();
  if (place.empty()) place = ".";
  if (!std::filesystem::is_directory(place, ignored)) {
    auto fd = pmem::Descriptor::open(place, O_RDONLY);
    if (!fd) return std::unexpected(fd.error());
    struct stat info {};
    if (::fstat(fd->get(), &info) != 0 || !(S_ISREG(info.st_mode) || pmem::is_dax_device(info))) {
      return std::unexpected(
          Error{Code::bad_argument,
                place.string() + " is neither a file nor a directory nor a DAX device"});
    }
    return pmem::detect(fd->get());
  }
  // A directory cannot be mapped: ask a file without a name in it.
  auto probe = pmem::Descriptor::open(place, O_RDWR | O_TMPFILE);
  if (probe && ::ftruncate(probe->get(), 4096) == 0) return pmem::detect(probe->get());
  auto directory = pmem::Descriptor::open(place, O_RDONLY | O_DIRECTORY);
  if (!directory) return std::unexpected(directory.error());
  return pmem::detect(directory->get());
}

}  // namespace everleaf
