// Files, locks and mappings: system calls with their errors told in words.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>

#include <everleaf/result.hpp>

namespace everleaf::pmem {

Error system_error(const std::string& what, int error);

// An open file that closes itself.
class Descriptor {
 public:
  static Result<Descriptor> open(const std::filesystem::path& path, int flags,
                                 unsigned permissions = 0666);
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), locked_(std::exchange(other.locked_, false)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    std::swap(locked_, other.locked_);
    return *this;
  }
  ~Descriptor();
  // Another one for the same open file, whose lock ends with the one that locked it.
  [[nodiscard]] Result<Descriptor> duplicate() const;
  // One of another open file, of the same bytes; none: few descriptors are left, the process may
  // not open it any more, or the system shows none (/proc).
  [[nodiscard]] Descriptor another() const noexcept;
  [[nodiscard]] int get() const noexcept { return fd_; }
  [[nodiscard]] bool valid() const noexcept { return fd_ >= 0; }
  // Locks the file until it is closed: exclusively, or shared with other readers. locked /
  // locked_here.
  Result<void> lock(bool exclusive, const std::filesystem::path& path);

 private:
  int fd_ = -1;
  bool locked_ = false;
};

// Reserves storage for [from, to): a full disk is an error here, never a SIGBUS later.
Result<void> allocate(const Descriptor& file, std::uint64_t from, std::uint64_t to);
// The same where the file system can do it, whoever stores to those bytes meanwhile: else
// EOPNOTSUPP, where allocate() writes blocks one by one.
[[nodiscard]] int reserve_blocks(const Descriptor& file, std::uint64_t from,
                                 std::uint64_t to) noexcept;

// For file systems that cannot: writes zeros behind the end until the file has `bytes` at least, or
// some more if others do so, too; what it has is not touched. 0 or errno. Linux 4.16.
[[nodiscard]] int append_zeros(const Descriptor& file, std::uint64_t bytes) noexcept;

// What one page table entry can map; mappings are aligned so.
inline constexpr std::uint64_t kHugePage = std::uint64_t{2} << 20;

// Backs the first `bytes` of a file that may have holes. out_of_space before anything is taken if
// the holes are larger than what the disk has left. `exact`: the file's count of blocks holds no
// metadata, so it alone tells whether there are holes.
Result<void> fill_holes(const Descriptor& file, std::uint64_t bytes, bool exact);

Result<std::uint64_t> size_of(const Descriptor& file);
// Whether less is backed than its size.
[[nodiscard]] bool has_holes(const Descriptor& file);
// Whether everything from there on reads as zero; takes no storage for holes. False: also unknown.
[[nodiscard]] bool only_zeros_from(const Descriptor& file, std::uint64_t from);
// Where the first hole from there on begins; the file's end: there is none, or it is unknown.
[[nodiscard]] std::uint64_t first_hole(const Descriptor& file, std::uint64_t from);
// On its file system, for this user; ~0: unknown.
[[nodiscard]] std::uint64_t space_left(const Descriptor& file);
// What is behind the first `bytes` goes.
[[nodiscard]] bool cut(const Descriptor& file, std::uint64_t bytes);

// Bytes of memory that this process may have: the machine's, or fewer by a limit of its own or of
// its control groups.
[[nodiscard]] std::uint64_t memory_limit();
// Beyond it a write to a file is a signal.
[[nodiscard]] std::uint64_t largest_written_file();

// Makes the entry of a new file durable.
Result<void> sync_directory(const std::filesystem::path& file);

// A mapping that unmaps itself.
class Mapping {
 public:
  // Shared mapping of `bytes` of the file, which may reach beyond its end: the file grows into it.
  static Result<Mapping> shared(const Descriptor& file, std::uint64_t bytes, bool synchronous);
  // Copy on write: stores stay in this process.
  static Result<Mapping> copy(const Descriptor& file, std::uint64_t bytes);
  // Zeroed memory, taken as it is touched; `huge`: in huge pages where the system gives them.
  static Result<Mapping> anonymous(std::uint64_t bytes, bool huge);

  Mapping() = default;
  Mapping(Mapping&& other) noexcept
      : base_(std::exchange(other.base_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Mapping& operator=(Mapping&& other) noexcept {
    std::swap(base_, other.base_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Mapping();
  [[nodiscard]] std::byte* base() const noexcept { return base_; }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }

  // Maps pages [from, to) of the mapping anew, as a copy: stores to them stay in this process.
  // Nobody is there. `reserved`: nor can be, before they are open. False: they are as they were.
  [[nodiscard]] bool copy(const Descriptor& file, std::uint64_t from, std::uint64_t to,
                          bool reserved = false);
  // Pages that are reserved may be used. They may be open already.
  [[nodiscard]] bool open(std::uint64_t from, std::uint64_t to);
  // Maps pages that are reserved as the file's own. They may be that already. False: they cannot be
  // used.
  [[nodiscard]] bool share(const Descriptor& file, std::uint64_t from, std::uint64_t to);

  // All pages of [from, to) are there afterwards, where the system knows how (Linux 5.14).
  void touch(std::uint64_t from, std::uint64_t to) const noexcept;

  // Of the tmpfs file that is mapped: storage for [at, at + kHugePage) as one page. False: the
  // kernel does not do it; the file may end behind the range then, with a hole in it.
  [[nodiscard]] bool back_with_huge_page(const Descriptor& file, std::uint64_t at) const;

 private:
  static Result<Mapping> map(int file, std::uint64_t bytes, int flags);
  [[nodiscard]] bool map_again(const Descriptor& file, std::uint64_t from, std::uint64_t to,
                               int protection, int flags);
  Mapping(std::byte* base, std::uint64_t bytes) : base_(base), bytes_(bytes) {}
  std::byte* base_ = nullptr;
  std::uint64_t bytes_ = 0;
};

}  // namespace everleaf::pmem
