// The stories: a pool copied with holes was mapped as it was, and a full disk then meant SIGBUS; a
// file beyond the largest pool made the heap look outside its tables; a file system without
// nameless files could not hold a new pool; filling a file's holes filled the user's disk before it
// failed, and read the whole file where the system cannot reserve blocks.
#include <cerrno>

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

TEST(OddFiles, HolesLargerThanTheDisk) {
  const Scratch scratch;
  const auto path = scratch / "pool";
  { (void)Pool::open(path, small_pool()).value(); }
  ASSERT_EQ(::truncate(path.c_str(), off_t{400} << 20), 0);
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
  ASSERT_EQ(::truncate(path.c_str(), off_t{4} << 20), 0);
  EXPECT_TRUE(Pool::open(path, options));
  EXPECT_EQ(written, 1);
  reset_hooks();
}

TEST(OddFiles, LargerThanAnyPool) {
  const Scratch scratch;
  const auto path = scratch / "pool";
  { (void)Pool::open(path, small_pool()).value(); }
  if (::truncate(path.c_str(), (off_t{1} << 40) + 65536) != 0) {
    GTEST_SKIP() << "no file of that size here";
  }
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
  std::size_t files = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(scratch.path())) {
    ++files;
  }
  EXPECT_EQ(files, 1U) << "a temporary file was left";
}

}  // namespace
}  // namespace everleaf::test
