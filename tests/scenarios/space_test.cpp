// Out of space is a refusal that changes nothing: at the k-th allocation for every k, and in a pool
// whose size is capped.
#include <array>
#include <chrono>
#include <csignal>
#include <thread>

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pmem/domain.hpp"
#include "support.hpp"
#include "trees/pool_state.hpp"

namespace everleaf::test {
namespace {

constexpr std::uint64_t kNever = ~std::uint64_t{0};

class Space : public EveryTree {};

// Works until an operation is refused, or to the end. True: to the end.
template <class K>
bool until_refused(Index<K>& index, Map<K>& map, const std::vector<Op<K>>& ops, Pool& pool) {
  for (const Op<K>& op : ops) {
    const Outcome outcome = apply<K>(index, op);
    if (outcome == Outcome::out_of_space) {
      EXPECT_EQ(difference<K>(index, map), "") << "refused " << show<K>(op);
      EXPECT_EQ(unsound(pool), "") << "refused " << show<K>(op);
      // What needs no space goes on.
      for (const auto& [key, value] : map) {
        EXPECT_EQ(index.update(key, value), Outcome::done);
        break;
      }
      return false;
    }
    EXPECT_EQ(outcome, apply<K>(map, op)) << show<K>(op);
  }
  return true;
}

TEST_P(Space, RefusedAtTheKthAllocation) {
  with_keys([]<class K>(const std::string& spec) {
    Random random(11);
    std::vector<Op<K>> ops;
    for (std::uint64_t i = 0; i < 160; ++i) {
      ops.push_back({Do::insert, Keys<K>::nth(random.below(500)), i});
      if (i % 4 == 3) ops.push_back({Do::remove, ops[random.below(ops.size())].key, 0});
    }
    for (std::uint64_t k = 0;; ++k) {
      ASSERT_LT(k, 5000U);
      Pool pool = Pool::anonymous().value();
      alloc::Heap& heap = PoolAccess::state(pool).heap();
      heap.fail_after(k);
      auto index = pool.index<K>("index", spec);
      if (!index) {
        EXPECT_EQ(index.error().code, Code::out_of_space);
        EXPECT_TRUE(pool.indexes().value().empty());
        EXPECT_EQ(unsound(pool), "");
        heap.fail_after(kNever);
        index = pool.index<K>("index", spec);
        ASSERT_TRUE(index) << "k " << k << ": " << index.error().message;
      }
      Map<K> map;
      const bool all = until_refused<K>(*index, map, ops, pool);
      heap.fail_after(kNever);
      for (const Op<K>& op : ops) ASSERT_EQ(apply<K>(*index, op), apply<K>(map, op)) << "k " << k;
      EXPECT_EQ(difference<K>(*index, map), "") << "k " << k;
      EXPECT_EQ(unsound(pool), "") << "k " << k;
      if (::testing::Test::HasFailure() || (all && k > 0)) break;
    }
  });
}

TEST_P(Space, BulkLoadRefusedAtTheKthAllocation) {
  with_keys([]<class K>(const std::string& spec) {
    std::vector<Entry<K>> entries;
    for (std::uint64_t i = 0; i < 90; ++i) entries.push_back({Keys<K>::nth(i), i});
    for (std::uint64_t k = 0; k < 200; ++k) {
      Pool pool = Pool::anonymous().value();
      auto index = pool.index<K>("index", spec).value();
      alloc::Heap& heap = PoolAccess::state(pool).heap();
      heap.fail_after(k);
      const Outcome outcome = index.bulk_load(entries, 0.7);
      heap.fail_after(kNever);
      // Refused or not, what is there is a prefix of the entries, and sound.
      const std::uint64_t n = index.size();
      ASSERT_LE(n, entries.size());
      Map<K> map;
      for (std::size_t i = 0; i < n; ++i) map.emplace(entries[i].key, entries[i].value);
      ASSERT_EQ(difference<K>(index, map), "") << "k " << k;
      ASSERT_EQ(unsound(pool), "") << "k " << k;
      for (const auto& entry : entries) (void)index.insert(entry.key, entry.value);
      ASSERT_EQ(index.size(), entries.size());
      if (outcome == Outcome::done) break;
      ASSERT_EQ(outcome, Outcome::out_of_space);
    }
  });
}

TEST_P(Space, UntilTheCapIsReached) {
  with_keys([]<class K>(const std::string& spec) {
    const Scratch scratch;
    PoolOptions options = small_pool();
    options.max_bytes = std::uint64_t{1} << 20;
    Map<K> map;
    std::uint64_t n = 0;
    {
      Pool pool = Pool::open(scratch / "pool", options).value();
      auto index = pool.index<K>("index", spec).value();
      const auto fill = [&] {
        while (true) {
          ASSERT_LT(n, 1'000'000U);
          const Owned<K> key = Keys<K>::nth(n++);
          const Outcome outcome = index.insert(key, n);
          if (outcome == Outcome::out_of_space) break;
          ASSERT_EQ(outcome, Outcome::done);
          map.emplace(key, n);
        }
        ASSERT_EQ(difference<K>(index, map, 50), "");
        ASSERT_EQ(unsound(pool), "");
      };
      ASSERT_NO_FATAL_FAILURE(fill());
      const std::size_t most = map.size();
      EXPECT_GT(most, 1000U);
      // Every other leaf or so, then everything below the middle.
      const std::uint64_t middle = n / 2;
      for (std::uint64_t i = 0; i < middle; ++i) {
        const Owned<K> key = Keys<K>::nth(i);
        ASSERT_EQ(index.remove(key), map.erase(key) != 0 ? Outcome::done : Outcome::absent);
      }
      ASSERT_NO_FATAL_FAILURE(fill());
      // A slab is a sixteenth of the pool, and one or two may have passed to another size of
      // blocks.
      EXPECT_GT(map.size(), most * 3 / 4) << "space of removed keys does not come back";
      EXPECT_LE(pool.info().file_bytes, options.max_bytes);
    }
    Pool pool = Pool::open(scratch / "pool", options).value();
    auto index = pool.index<K>("index", spec).value();
    EXPECT_EQ(difference<K>(index, map, 50), "");
    while (!map.empty()) {
      ASSERT_EQ(index.remove(map.begin()->first), Outcome::done);
      map.erase(map.begin());
    }
    EXPECT_EQ(difference<K>(index, map), "");
    EXPECT_EQ(unsound(pool), "");
  });
}

EVERLEAF_EVERY_TREE(Space);

// Where the kernel gives no huge pages, both pools are of small ones: the promises are the same.
TEST(HugePages, APoolWithThemIsBackedAndOpensWithout) {
  for (const bool huge : {true, false}) {
    const Scratch scratch;
    PoolOptions options = small_pool();
    std::uint64_t keys = 0;
    const auto with_index = [&](bool wanted, auto&& work) {
      options.huge_pages = wanted;
      Pool pool = Pool::open(scratch / "pool", options).value();
      work(pool.index<std::uint64_t>("index", "wbtree").value());
      EXPECT_EQ(unsound(pool), "");
    };
    with_index(huge, [&](Index<std::uint64_t> index) {
      while (std::filesystem::file_size(scratch / "pool") < kMostBytes / 5) {
        ASSERT_EQ(index.insert(keys, ~keys), Outcome::done);
        ++keys;
      }
    });
    struct stat info {};
    ASSERT_EQ(::stat((scratch / "pool").c_str(), &info), 0);
    EXPECT_GE(info.st_blocks * 512, info.st_size) << "holes: a store to one may be a SIGBUS";
    with_index(!huge, [&](Index<std::uint64_t> index) {
      for (std::uint64_t key = 0; key < keys; ++key) ASSERT_EQ(*index.find(key), ~key);
    });
  }
}

// The file of a process cannot get larger than a limit, as if the disk were full there.
class FileLimit {
 public:
  explicit FileLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit now{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &now);
  }
  FileLimit(const FileLimit&) = delete;
  FileLimit& operator=(const FileLimit&) = delete;
  ~FileLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  void (*handler_)(int);
  rlimit before_{};
};

// It took all that the disk had left, and left a hole that the next open could not fill.
TEST(HugePages, ARefusedGrowthTakesNothing) {
  const Scratch scratch;
  const auto file = scratch / "pool";
  const PoolOptions options = small_pool();
  std::uint64_t keys = 0;
  {
    // Growth by an eighth passes the limit: whole huge pages are below it, and a part of one.
    const FileLimit limit((std::uint64_t{21} << 20) + 3 * 4096);
    Pool pool = Pool::open(file, options).value();
    auto index = pool.index<std::uint64_t>("index", "wbtree").value();
    while (index.insert(keys, ~keys) == Outcome::done) ++keys;
    EXPECT_EQ(std::filesystem::file_size(file), pool.info().file_bytes);
  }
  Pool pool = Pool::open(file, options).value();
  auto index = pool.index<std::uint64_t>("index", "wbtree").value();
  for (std::uint64_t key = 0; key < keys; ++key) ASSERT_EQ(*index.find(key), ~key);
  EXPECT_EQ(index.insert(keys, 0), Outcome::done);
}

// As whoever is killed between the two steps leaves it: the file ends with a huge page, of which
// the last 4 KiB are there.
TEST(HugePages, AHoleOfAKilledGrowthIsDroppedAndDataIsNot) {
  constexpr off_t kMore = off_t{2} << 20;
  const Scratch scratch;
  const auto file = scratch / "pool";
  const PoolOptions options = small_pool();
  const auto open = [&] {
    Pool pool = Pool::open(file, options).value();
    auto index = pool.index<std::uint64_t>("index", "wbtree").value();
    for (std::uint64_t key = 0; key < 1000; ++key) EXPECT_EQ(index.upsert(key, key), Outcome::done);
  };
  open();
  const auto size = std::filesystem::file_size(file);
  const auto end = static_cast<off_t>(size) + kMore;
  const int fd = ::open(file.c_str(), O_RDWR);
  ASSERT_GE(fd, 0);
  ASSERT_EQ(::posix_fallocate(fd, end - 4096, 4096), 0);
  open();
  EXPECT_EQ(std::filesystem::file_size(file), size);
  // Another thread was about to add a block to the heap: it stays, the hole behind it goes.
  ASSERT_EQ(::pwrite(fd, "x", 1, static_cast<off_t>(size)), 1);
  ASSERT_EQ(::posix_fallocate(fd, end - 4096, 4096), 0);
  open();
  EXPECT_EQ(std::filesystem::file_size(file), size + 4096);
  // Damage, perhaps, and worth a repair.
  ASSERT_EQ(::pwrite(fd, "x", 1, end - 1), 1);
  open();
  EXPECT_EQ(std::filesystem::file_size(file), static_cast<std::uintmax_t>(end));
  ::close(fd);
}

// --- Room that was asked for ---

TEST(Room, IsThereBeforeItIsNeeded) {
  constexpr std::uint64_t kRoom = std::uint64_t{8} << 20;
  const Scratch scratch;
  const std::filesystem::path file = scratch / "pool";
  PoolOptions options;
  options.max_bytes = 2 * kRoom;
  {
    Pool pool = Pool::open(file, options).value();
    ASSERT_EQ(pool.make_room(kRoom), Outcome::done);
    const std::uint64_t size = pool.info().file_bytes;
    EXPECT_GE(size, kRoom);
    EXPECT_EQ(std::filesystem::file_size(file), size);
    EXPECT_EQ(pool.make_room(kRoom), Outcome::done);
    EXPECT_EQ(pool.info().file_bytes, size) << "it is there already";
    auto index = pool.index<std::uint64_t>("index", "wbtree").value();
    for (std::uint64_t key = 0; key < 100'000; ++key) {
      ASSERT_EQ(index.insert(key, key), Outcome::done);
    }
    EXPECT_EQ(pool.info().file_bytes, size) << "it grew all the same";
    EXPECT_EQ(pool.make_room(2 * kRoom), Outcome::out_of_space) << "beyond the cap";
    EXPECT_EQ(pool.make_room(~std::uint64_t{0}), Outcome::out_of_space);
    EXPECT_EQ(pool.info().file_bytes, size);
    EXPECT_EQ(unsound(pool), "");
  }
  options.mode = Mode::read_only;
  Pool pool = Pool::open(file, options).value();
  EXPECT_GE(pool.info().file_bytes, kRoom) << "a close keeps it";
  EXPECT_EQ(pool.make_room(kRoom), Outcome::read_only);
}

TEST(Room, InMemoryAndOnADisk) {
  static constexpr std::uint64_t kRoom = (std::uint64_t{3} << 20) + 5;
  const Scratch scratch;
  PoolOptions options;
  options.domain = Domain::disk;
  options.emulate = true;
  const auto fill = [](Pool& pool) {
    ASSERT_EQ(pool.make_room(kRoom), Outcome::done);
    EXPECT_GE(pool.info().file_bytes, kRoom);
    auto index = pool.index<std::uint64_t>("index", "bdtree").value();
    for (std::uint64_t key = 0; key < 200'000; ++key) {
      ASSERT_EQ(index.insert(key, key), Outcome::done);
    }
    EXPECT_EQ(pool.sync(), Outcome::done);
    EXPECT_EQ(unsound(pool), "");
  };
  {
    Pool pool = Pool::open(scratch / "pool", options).value();
    fill(pool);
  }
  Pool again = Pool::open(scratch / "pool", options).value();
  auto index = again.index<std::uint64_t>("index").value();
  for (std::uint64_t key = 0; key < 200'000; ++key) ASSERT_EQ(*index.find(key), key);
  Pool anonymous = Pool::anonymous().value();
  fill(anonymous);
}

// Beyond the limit a write is a signal that ends the process.
TEST(Room, ALimitOnFilesIsAnAnswer) {
  const Scratch scratch;
  const pid_t child = ::fork();
  if (child == 0) {
    std::signal(SIGXFSZ, SIG_DFL);
    Pool pool = Pool::open(scratch / "pool").value();
    const rlimit limit{std::uint64_t{64} << 20, std::uint64_t{64} << 20};
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) ::_exit(1);
    const std::uint64_t size = pool.info().file_bytes;
    if (pool.make_room(std::uint64_t{65} << 20) != Outcome::out_of_space) ::_exit(2);
    if (pool.info().file_bytes != size) ::_exit(3);
    ::_exit(pool.make_room(std::uint64_t{32} << 20) == Outcome::done ? 0 : 4);
  }
  ASSERT_GT(child, 0);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

// More than the file system has: it is found out before anything is taken.
TEST(Room, AFullDiskIsAnAnswer) {
  const Scratch scratch;
  Pool pool = Pool::open(scratch / "pool").value();
  const std::uint64_t size = pool.info().file_bytes;
  const std::uint64_t wanted = std::filesystem::space(scratch / "pool").available + (1 << 30);
  EXPECT_EQ(pool.make_room(wanted), Outcome::out_of_space);
  EXPECT_EQ(pool.info().file_bytes, size);
  EXPECT_EQ(std::filesystem::file_size(scratch / "pool"), size);
  EXPECT_EQ(pool.make_room(size + (2 << 20)), Outcome::done);
}

TEST(Room, KilledInTheMidst) {
  const Scratch scratch;
  const auto file = scratch / "pool";
  for (int round = 0; round < 6; ++round) {
    std::filesystem::remove(file);
    std::array<int, 2> ready{};
    ASSERT_EQ(::pipe(ready.data()), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      Pool pool = Pool::open(file).value();
      auto index = pool.index<std::uint64_t>("index", "wbtree").value();
      for (std::uint64_t key = 0; key < 1000; ++key) (void)index.insert(key, key);
      if (::write(ready[1], "x", 1) != 1) ::_exit(1);
      (void)pool.make_room(std::uint64_t{512} << 20);
      ::pause();
    }
    ASSERT_GT(child, 0);
    char byte = 0;
    ASSERT_EQ(::read(ready[0], &byte, 1), 1);
    std::this_thread::sleep_for(std::chrono::milliseconds(7 * round));
    ::kill(child, SIGKILL);
    ASSERT_EQ(::waitpid(child, nullptr, 0), child);
    ::close(ready[0]);
    ::close(ready[1]);
    Pool pool = Pool::open(file).value();
    auto index = pool.index<std::uint64_t>("index").value();
    for (std::uint64_t key = 0; key < 1000; ++key) ASSERT_EQ(*index.find(key), key) << round;
    EXPECT_EQ(unsound(pool), "");
    EXPECT_EQ(pool.make_room(std::uint64_t{64} << 20), Outcome::done);
  }
}

TEST(Room, BesideWriters) {
  const Scratch scratch;
  Pool pool = Pool::open(scratch / "pool").value();
  auto index = pool.index<std::uint64_t>("index", "wbtree").value();
  std::thread writer([&index] {
    for (std::uint64_t key = 0; key < 100'000; ++key) {
      ASSERT_EQ(index.insert(key, key), Outcome::done);
    }
  });
  constexpr std::uint64_t kRoom = std::uint64_t{40} << 20;  // two steps
  EXPECT_EQ(pool.make_room(kRoom), Outcome::done);
  writer.join();
  EXPECT_GE(pool.info().file_bytes, kRoom);
  EXPECT_EQ(unsound(pool), "");
}

// --- Growth ahead --------------------------------------------------------------------------------

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

// Nothing grows ahead but on tmpfs and hugetlbfs: where the scratch directory is on neither (no
// /dev/shm, or none to write to) there is nothing here to be tested.
class GrowthAhead : public ::testing::Test {
 protected:
  void SetUp() override {
    Pool pool = Pool::open(file_, small_pool()).value();
    if (!pmem::on_tmpfs(PoolAccess::state(pool).file().descriptor().get())) {
      GTEST_SKIP() << "the scratch directory is not on tmpfs";
    }
  }
  Pool open() { return Pool::open(file_, small_pool()).value(); }
  static pmem::PoolFile& file_of(Pool& pool) { return PoolAccess::state(pool).file(); }
  static void await_size(Pool& pool, std::uint64_t bytes) {
    while (file_of(pool).medium().size() < bytes) std::this_thread::yield();
  }
  // Each takes a slab.
  static std::string key(std::uint64_t i) { return std::string(20000, 'k') + std::to_string(i); }
  void expect_backed() {
    struct stat info {};
    ASSERT_EQ(::stat(file_.c_str(), &info), 0);
    EXPECT_GE(info.st_blocks * 512, info.st_size) << "holes: a store to one may be a SIGBUS";
  }

  Scratch scratch_;
  std::filesystem::path file_ = scratch_ / "pool";
};

TEST_F(GrowthAhead, LargePoolsHaveRoomSmallOnesHaveNot) {
  {
    Pool pool = open();
    ASSERT_TRUE(file_of(pool).grow(9 * kMiB));
    EXPECT_EQ(pool.info().file_bytes, 9 * kMiB);
    ASSERT_TRUE(file_of(pool).grow(32 * kMiB));
    await_size(pool, 36 * kMiB);
    ASSERT_TRUE(file_of(pool).grow(36 * kMiB));
    await_size(pool, 40 * kMiB);
    file_of(pool).stop_ahead();
    EXPECT_LE(pool.info().file_bytes, 42 * kMiB) << "more than an eighth";
    EXPECT_EQ(pool.info().file_bytes, std::filesystem::file_size(file_));
  }
  expect_backed();
}

TEST_F(GrowthAhead, TwoWritersAndACloseInTheMidst) {
  constexpr std::uint64_t kKeys = 300;  // of each
  {
    Pool pool = open();
    auto index = pool.index<Bytes>("index", "wbtree").value();
    const auto write = [&](std::uint64_t from) {
      for (std::uint64_t i = from; i < from + kKeys; ++i) {
        ASSERT_EQ(index.insert(key(i), i), Outcome::done);
      }
    };
    std::thread other(write, kKeys);
    write(0);
    other.join();
    EXPECT_GT(pool.info().file_bytes, 2 * kKeys * 65536);
  }
  expect_backed();
  Pool pool = open();
  EXPECT_TRUE(pool.info().clean);
  EXPECT_EQ(pool.info().file_bytes, std::filesystem::file_size(file_));
  auto index = pool.index<Bytes>("index").value();
  for (std::uint64_t i = 0; i < 2 * kKeys; ++i) ASSERT_EQ(*index.find(key(i)), i);
  EXPECT_EQ(unsound(pool), "");
}

TEST_F(GrowthAhead, EndsAtTheCap) {
  Pool pool = open();
  ASSERT_TRUE(file_of(pool).grow(60 * kMiB));
  await_size(pool, kMostBytes);
  EXPECT_TRUE(file_of(pool).grow(kMostBytes));
  EXPECT_FALSE(file_of(pool).grow(kMostBytes + 1));
  EXPECT_EQ(std::filesystem::file_size(file_), kMostBytes);
}

// What the thread does not get is left to others, and to whoever needs it.
TEST_F(GrowthAhead, RefusedIsNoError) {
  const FileLimit limit(21 * kMiB + 3 * 4096);
  Pool pool = open();
  ASSERT_TRUE(file_of(pool).grow(17 * kMiB));
  await_size(pool, 18 * kMiB);
  EXPECT_TRUE(file_of(pool).grow(21 * kMiB));
  EXPECT_FALSE(file_of(pool).grow(22 * kMiB));
  file_of(pool).stop_ahead();
  EXPECT_EQ(pool.info().file_bytes, 21 * kMiB);
  EXPECT_EQ(std::filesystem::file_size(file_), 21 * kMiB);
  expect_backed();
}

// The limit sends a signal that ends the process, unless the thread that passes it blocks it.
TEST_F(GrowthAhead, ALimitOnFilesDoesNotEndTheProgram) {
  const pid_t child = ::fork();
  if (child == 0) {
    std::signal(SIGXFSZ, SIG_DFL);
    const rlimit limit{21 * kMiB, 21 * kMiB};
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) ::_exit(1);
    Pool pool = open();
    if (!file_of(pool).grow(18 * kMiB)) ::_exit(2);
    await_size(pool, 20 * kMiB);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // for the step that is refused
    ::_exit(0);
  }
  ASSERT_GT(child, 0);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

TEST_F(GrowthAhead, KilledInTheMidst) {
  for (std::uint64_t round = 0; round < 12; ++round) {
    std::filesystem::remove(file_);
    std::array<int, 2> progress{};
    ASSERT_EQ(::pipe(progress.data()), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      Pool pool = open();
      auto index = pool.index<Bytes>("index", "wbtree").value();
      for (std::uint64_t i = 0;; ++i) {
        if (index.insert(key(i), i) != Outcome::done) ::pause();
        if (::write(progress[1], &i, sizeof i) != sizeof i) ::_exit(1);
      }
    }
    ASSERT_GT(child, 0);
    ::close(progress[1]);
    std::uint64_t last = 0;
    const std::uint64_t end = 260 + 37 * round;
    while (last < end && ::read(progress[0], &last, sizeof last) == sizeof last) {
    }
    ::kill(child, SIGKILL);
    while (::read(progress[0], &last, sizeof last) == sizeof last) {
    }
    ::close(progress[0]);
    ASSERT_EQ(::waitpid(child, nullptr, 0), child);
    ASSERT_GE(last, end);
    Pool pool = open();
    auto index = pool.index<Bytes>("index").value();
    for (std::uint64_t i = 0; i <= last; ++i) ASSERT_EQ(*index.find(key(i)), i) << round;
    EXPECT_EQ(unsound(pool), "");
    expect_backed();
  }
}

}  // namespace
}  // namespace everleaf::test
