// The stories: a pool copied with holes was mapped as it was, and a full disk then meant SIGBUS; a
// file beyond the largest pool made the heap look outside its tables; a file system without
// nameless files could not hold a new pool, and then not where a crash had left a temporary file of
// the same process number, where two threads created at once, or without hard links; filling a
// file's holes filled the user's disk before it failed, and read the whole file where the system
// cannot reserve blocks.
#include <barrier>
#include <cerrno>
#include <thread>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "hooks.hpp"
#include "pmem/format.hpp"
#include "support.hpp"

namespace everleaf::test {
namespace {

// A file system that knows no O_TMPFILE.
void without_nameless_files() {
  hooks.open = [](int flags) -> Answer {
    if ((flags & O_TMPFILE) == O_TMPFILE) return EOPNOTSUPP;
    return std::nullopt;
  };
}

std::size_t files_in(const Scratch& scratch) {
  const auto files = std::filesystem::directory_iterator(scratch.path());
  return static_cast<std::size_t>(std::distance(begin(files), end(files)));
}

TEST(OddFiles, HolesAreFilledAtOpen) {
  const Scratch scratch;
  const auto path = scratch / "pool";
  { (void)Pool::open(path, small_pool()).value().index<std::uint64_t>("index").value(); }
  const auto bytes = read_bytes(path);
  const int file = ::open(path.c_str(), O_RDWR, 0);
  ASSERT_GE(file, 0);
  // The end of the file holds nothing yet.
  const auto half = static_cast<off_t>(bytes.size() / 2);
  ASSERT_EQ(::fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, half, half), 0);
  struct stat info {};
  ASSERT_EQ(::fstat(file, &info), 0);
  ASSERT_LT(static_cast<std::size_t>(info.st_blocks) * 512, bytes.size());
  Pool pool = Pool::open(path, small_pool()).value();
  ASSERT_EQ(::fstat(file, &info), 0);
  EXPECT_GE(static_cast<std::size_t>(info.st_blocks) * 512, bytes.size());
  ::close(file);
}

// By a hole with something behind it: zeros alone would be cut off again.
void extend(const std::filesystem::path& path, off_t bytes) {
  const int file = ::open(path.c_str(), O_WRONLY);
  ASSERT_GE(file, 0);
  EXPECT_EQ(::pwrite(file, "x", 1, bytes - 1), 1);
  ::close(file);
}

TEST(OddFiles, HolesLargerThanTheDisk) {
  const Scratch scratch;
  const auto path = scratch / "pool";
  { (void)Pool::open(path, small_pool()).value(); }
  extend(path, off_t{400} << 20);
  hooks.fstatvfs = [](struct statvfs& disk) -> Answer {
    disk.f_bavail = (std::uint64_t{100} << 20) / disk.f_frsize;
    return 0;
  };
  hooks.fallocate = hooks.posix_fallocate = []() -> Answer {
    ADD_FAILURE() << "blocks were taken";
    return ENOSPC;
  };
  const auto pool = Pool::open(path, small_pool());
  reset_hooks();
  ASSERT_FALSE(pool);
  EXPECT_EQ(pool.error().code, Code::out_of_space);
}

TEST(OddFiles, WithoutReservedBlocks) {
  const Scratch scratch(
      std::filesystem::current_path());  // on a disk: blocks alone do not settle it
  const auto path = scratch / "pool";
  { (void)Pool::open(path, small_pool()).value(); }
  PoolOptions options = small_pool();
  options.domain.reset();
  int written = 0;
  hooks.fallocate = []() -> Answer { return EOPNOTSUPP; };
  hooks.posix_fallocate = [&written]() -> Answer {
    ++written;
    return std::nullopt;
  };
  EXPECT_TRUE(Pool::open(path, options));
  EXPECT_EQ(written, 0) << "the file has all its blocks";
  extend(path, off_t{4} << 20);
  EXPECT_TRUE(Pool::open(path, options));
  EXPECT_EQ(written, 1);
  reset_hooks();
}

TEST(OddFiles, LargerThanAnyPool) {
  const Scratch scratch;
  const auto path = scratch / "pool";
  { (void)Pool::open(path, small_pool()).value(); }
  ASSERT_EQ(::truncate(path.c_str(), (off_t{1} << 40) + 65536), 0);
  const auto pool = Pool::open(path, small_pool());
  ASSERT_FALSE(pool);
  EXPECT_EQ(pool.error().code, Code::corrupt);
}

TEST(OddFiles, WithoutNamelessFiles) {
  const Scratch scratch;
  without_nameless_files();
  {
    Pool pool = Pool::open(scratch / "pool", small_pool()).value();
    auto index = pool.index<std::uint64_t>("index").value();
    EXPECT_EQ(index.insert(1, 2), Outcome::done);
    PoolOptions fresh = small_pool(Mode::create);
    EXPECT_EQ(Pool::open(scratch / "pool", fresh).error().code, Code::exists);
  }
  reset_hooks();
  EXPECT_EQ(
      *Pool::open(scratch / "pool", small_pool()).value().index<std::uint64_t>("index")->find(1),
      2U);
  EXPECT_EQ(files_in(scratch), 1U) << "a temporary file was left";
}

TEST(OddFiles, TemporaryNamesThatAreTaken) {
  const Scratch scratch;
  without_nameless_files();
  write_bytes(scratch / ("pool.new-" + std::to_string(::getpid())), {});
  EXPECT_TRUE(Pool::open(scratch / "pool", small_pool()));
  for (int round = 0; round < 50; ++round) {
    const auto path = scratch / ("pool" + std::to_string(round));
    std::barrier together(2);
    const auto open = [&] {
      together.arrive_and_wait();
      const auto pool = Pool::open(path, small_pool());
      together.arrive_and_wait();  // neither closes before both have opened
      return pool ? std::optional<Error>() : pool.error();
    };
    std::optional<Error> first;
    std::thread other([&] { first = open(); });
    const auto second = open();
    other.join();
    ASSERT_NE(first.has_value(), second.has_value());
    const Error refused = first ? *first : *second;
    EXPECT_EQ(refused.code, Code::locked_here) << refused.message;
  }
  hooks.open = [](int flags) -> Answer {
    if ((flags & O_TMPFILE) == O_TMPFILE) return EOPNOTSUPP;
    if ((flags & O_EXCL) != 0) return EEXIST;
    return std::nullopt;
  };
  const auto none_free = Pool::open(scratch / "new", small_pool());
  ASSERT_FALSE(none_free);
  EXPECT_EQ(none_free.error().code, Code::io);
  reset_hooks();
}

TEST(OddFiles, WithoutHardLinks) {
  const Scratch scratch;
  const auto path = scratch / "pool";
  without_nameless_files();
  hooks.linkat = []() -> Answer { return EPERM; };
  { EXPECT_TRUE(Pool::open(path, small_pool(Mode::create))); }
  EXPECT_EQ(files_in(scratch), 1U);
  const auto bytes = read_bytes(path);
  // Somebody else's pool of that name is not replaced.
  hooks.linkat = [&]() -> Answer {
    write_bytes(path, bytes);
    return EPERM;
  };
  std::filesystem::remove(path);
  const auto second = Pool::open(path, small_pool(Mode::create));
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Code::exists);
  EXPECT_EQ(files_in(scratch), 1U);
  reset_hooks();
}

}  // namespace
}  // namespace everleaf::test
