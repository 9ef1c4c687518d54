// Power cuts of a real file system: ext4 on a loop device, which EXT4_IOC_SHUTDOWN stops at once,
// its journal where it was. What the file system had not written is gone when it is mounted again.
// Needs root, a loop device and mkfs.ext4; is skipped without them.
#include <csignal>
#include <cstdlib>

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support.hpp"

namespace everleaf::test {
namespace {

// Of <linux/ext4.h>, which Debian's headers lack.
constexpr unsigned long kShutdown = _IOR('X', 125, std::uint32_t);
constexpr std::uint32_t kLeaveTheJournal = 2;

class LoopMount {
 public:
  LoopMount() {
    std::filesystem::create_directory(point_);
    made_ = ran("truncate --size=48M " + image() + " && mkfs.ext4 -q -F " + image()) && mount();
  }
  LoopMount(const LoopMount&) = delete;
  LoopMount& operator=(const LoopMount&) = delete;
  ~LoopMount() {
    if (mounted_) (void)ran("umount --lazy " + point_.string());
  }
  [[nodiscard]] bool made() const { return made_; }
  [[nodiscard]] std::filesystem::path operator/(const char* name) const { return point_ / name; }

  // False: this kernel's ext4 does not know how.
  [[nodiscard]] bool cut_power() const {
    const int directory = ::open(point_.c_str(), O_RDONLY | O_DIRECTORY);
    const int is = ::ioctl(directory, kShutdown, &kLeaveTheJournal);
    ::close(directory);
    return is == 0;
  }
  [[nodiscard]] bool mount_again() {
    mounted_ = !ran("umount " + point_.string());
    return !mounted_ && mount();
  }

 private:
  static bool ran(const std::string& command) {
    return std::system((command + " >/dev/null 2>&1").c_str()) == 0;
  }
  [[nodiscard]] std::string image() const { return (scratch_ / "image").string(); }
  [[nodiscard]] bool mount() {
    return mounted_ = ran("mount -o loop " + image() + ' ' + point_.string());
  }

  Scratch scratch_;
  std::filesystem::path point_ = scratch_ / "mount";
  bool made_ = false;
  bool mounted_ = false;
};

PoolOptions on_disk() {
  PoolOptions options;
  options.domain = Domain::disk;
  options.max_bytes = std::uint64_t{32} << 20;
  options.epoch_length = std::chrono::milliseconds(5);
  return options;
}

// Inserts 0, 1, 2, ... from `key` on and tells how many are there for good, until it is killed.
[[noreturn]] void insert_for_ever(const std::filesystem::path& path, const char* spec,
                                  std::uint64_t key, bool buffered, int acknowledged) {
  auto pool = Pool::open(path, on_disk());
  if (!pool) ::_exit(1);
  auto index = pool->index<std::uint64_t>("index", spec);
  if (!index) ::_exit(1);
  while (index->insert(key, key * 3) == Outcome::done) {
    ++key;
    if (buffered && key % 64 != 0) continue;
    if (buffered && pool->sync() != Outcome::done) break;
    if (::write(acknowledged, &key, sizeof key) != sizeof key) break;
  }
  ::_exit(0);
}

// All insertions up to one, which is behind all that were acknowledged.
void look(const LoopMount& disk, std::uint64_t acknowledged, bool cut, std::uint64_t& present) {
  Pool pool = Pool::open(disk / "pool", on_disk()).value();
  auto index = pool.index<std::uint64_t>("index").value();
  std::vector<Entry<std::uint64_t>> found;
  ASSERT_EQ(index.scan(0, ~std::size_t{0}, found), Outcome::done);
  present = found.size();
  ASSERT_GE(present, acknowledged);
  for (std::uint64_t key = 0; key < present; ++key) {
    ASSERT_EQ(found[key].key, key);
    ASSERT_EQ(found[key].value, key * 3);
  }
  EXPECT_EQ(unsound(pool), "");
  if (cut) {
    ASSERT_EQ(pool.sync(), Outcome::done);
    ASSERT_TRUE(disk.cut_power());
  }
}

void cut_and_look(const char* spec, bool buffered) {
  // Where nobody may mount, or the kernel lacks what it takes, this cannot be seen;
  // issues/power_cut plays the same cuts without privileges.
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  LoopMount disk;
  if (!disk.made()) GTEST_SKIP() << "needs mkfs.ext4 and a loop device";
  Random random(3);
  std::uint64_t present = 0;
  for (int round = 0; round < 8; ++round) {
    std::array<int, 2> pipe{};
    ASSERT_EQ(::pipe(pipe.data()), 0);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) insert_for_ever(disk / "pool", spec, present, buffered, pipe[1]);
    ::close(pipe[1]);
    std::uint64_t acknowledged = present;
    std::uint64_t count = 0;
    for (std::uint64_t left = 1 + random.below(20); left != 0; --left) {
      ASSERT_EQ(::read(pipe[0], &count, sizeof count), static_cast<ssize_t>(sizeof count));
      acknowledged = count;
    }
    ::usleep(static_cast<useconds_t>(random.below(3000)));
    const bool cut = disk.cut_power();
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    while (::read(pipe[0], &count, sizeof count) == sizeof count) acknowledged = count;
    ::close(pipe[0]);
    if (!cut) GTEST_SKIP() << "this kernel cannot stop ext4";
    ASSERT_TRUE(disk.mount_again());

    // Cut again before the pool is closed, now and then: recovery, too.
    const bool again = round % 3 == 2;
    ASSERT_NO_FATAL_FAILURE(look(disk, acknowledged, again, present)) << "round " << round;
    if (again) {
      ASSERT_TRUE(disk.mount_again());
    }
  }
  EXPECT_GT(present, 0U);
}

TEST(LoopExt4, Buffered) {
  cut_and_look("bdtree", true);
}
TEST(LoopExt4, Strict) {
  cut_and_look("wbtree", false);
}

}  // namespace
}  // namespace everleaf::test
