// Backups and repairs whose process dies: the source is as it was, and the copy is whole or has no
// name. The process ends before each call that makes something durable or gives the copy its name,
// and after that; what it has stored by then is there, as after a kill. Of power failures: nothing
// is stored in the copy between the last sync and its name.
#include <array>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <everleaf/store.hpp>

#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

constexpr int kDied = 7;
constexpr int kWrong = 8;
constexpr int kStoredUnsynced = 9;

// Of the child that makes a copy.
struct Watch {
  bool on = false;
  std::uint64_t die_at = 0;  // 0: never
  std::uint64_t calls = 0;
  std::uint64_t syncs = 0;
  std::string synced;  // the copy's bytes when something was synced last
} watch;

template <class F>
F real(const char* name) {
  return reinterpret_cast<F>(::dlsym(RTLD_NEXT, name));
}

void call() {
  if (watch.on && ++watch.calls == watch.die_at) ::_exit(kDied);
}

std::string bytes_of(int file) {
  std::string bytes;
  std::vector<char> buffer(1 << 16);
  for (off_t at = 0;; at += static_cast<off_t>(buffer.size())) {
    const ssize_t n = ::pread(file, buffer.data(), buffer.size(), at);
    if (n <= 0) return bytes;
    bytes.append(buffer.data(), static_cast<std::size_t>(n));
  }
}

// The file without a name that this process has open; -1: there is none.
int unnamed() {
  for (int file = 3; file < 64; ++file) {
    struct stat is {};
    if (::fstat(file, &is) == 0 && S_ISREG(is.st_mode) && is.st_nlink == 0) return file;
  }
  return -1;
}

void synced() {
  if (!watch.on) return;
  ++watch.syncs;
  if (const int file = unnamed(); file >= 0) watch.synced = bytes_of(file);
}

}  // namespace

// Instead of the system's, in this program.
extern "C" {
int linkat(int from, const char* source, int to, const char* target, int flags) noexcept {
  call();
  if (const int file = unnamed(); watch.on && watch.syncs != 0 && file >= 0) {
    if (bytes_of(file) != watch.synced) ::_exit(kStoredUnsynced);
  }
  const auto system = real<int (*)(int, const char*, int, const char*, int)>("linkat");
  const int result = system(from, source, to, target, flags);
  call();
  return result;
}
int fsync(int file) {
  call();
  const int result = real<int (*)(int)>("fsync")(file);
  synced();
  return result;
}
int fdatasync(int file) {
  call();
  const int result = real<int (*)(int)>("fdatasync")(file);
  synced();
  return result;
}
}

namespace everleaf {
namespace {

namespace fs = std::filesystem;
using Content = std::map<std::string, std::size_t>;  // hashes of the values

constexpr std::uint64_t kKeys = 40;  // of each table

StoreOptions options_of(Mode mode, Durability durability) {
  StoreOptions options;
  options.pool.mode = mode;
  options.pool.epoch_length = {};
  options.durability = durability;
  return options;
}

Content content_of(const fs::path& path) {
  StoreOptions options;
  options.pool.mode = Mode::read_only;
  Content content;
  auto store = Store::open(path, options);
  if (!store) return {{store.error().message, 0}};
  const auto report = store->check();
  if (!report) return {{report.error().message, 0}};
  for (const std::string& problem : report->problems) {
    // A death while a header copy is written: the other one counts.
    if (problem.find("header copy") == std::string::npos) return {{problem, 0}};
  }
  if (auto table = store->table("t")) {
    auto cursor = table->cursor();
    for (cursor.first(); cursor.valid(); cursor.next()) {
      content.emplace("t " + std::string(cursor.key()), std::hash<Bytes>{}(cursor.value()));
    }
  }
  if (auto table = store->table<std::uint64_t>("n")) {
    auto cursor = table->cursor();
    for (cursor.first(); cursor.valid(); cursor.next()) {
      content.emplace("n " + std::to_string(cursor.key()), std::hash<Bytes>{}(cursor.value()));
    }
  }
  return content;
}

class Copies : public testing::TestWithParam<Durability> {
 protected:
  void SetUp() override {
    const std::string name = "everleaf-copies-" + std::to_string(::getpid());
    const fs::path memory = "/dev/shm";  // where there is one: on a disk each sync takes its time
    make_source((fs::is_directory(memory) ? memory : fs::temp_directory_path()) / name);
  }
  void TearDown() override { fs::remove_all(folder_); }

  void make_source(const fs::path& folder, std::uint64_t keys = kKeys) {
    fs::remove_all(folder_);
    folder_ = folder;
    fs::create_directories(folder_);
    from_ = folder_ / "from";
    to_ = folder_ / "to";
    Store store = Store::open(from_, options_of(Mode::create, GetParam())).value();
    auto bytes = store.table("t").value();
    auto numbers = store.table<std::uint64_t>("n").value();
    // Some of several chunks.
    for (std::uint64_t n = 0; n < keys; ++n) {
      const std::string value(n % 10 == 9 ? 20'000 : n * 7, static_cast<char>('a' + n % 26));
      ASSERT_EQ(bytes.put("key" + std::to_string(n), value), Outcome::done);
      ASSERT_EQ(numbers.put(n << 40, value), Outcome::done);
    }
  }

  // How a process ends that makes a copy, and dies at a call of it.
  int make_copy(const std::function<bool()>& copy, std::uint64_t die_at, std::uint64_t& calls) {
    std::array<int, 2> ends{};
    if (::pipe(ends.data()) != 0) return -1;
    const pid_t child = ::fork();
    if (child == 0) {
      watch.die_at = die_at;
      const bool good = copy();
      watch.on = false;
      const bool told = ::write(ends[1], &watch.calls, sizeof calls) == sizeof calls;
      ::_exit(good && told ? 0 : kWrong);
    }
    ::close(ends[1]);
    int status = -1;
    ::waitpid(child, &status, 0);
    if (::read(ends[0], &calls, sizeof calls) != sizeof calls) calls = 0;
    ::close(ends[0]);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  bool backup() {
    Store store = Store::open(from_, options_of(Mode::open, GetParam())).value();
    watch.on = true;
    return store.backup(to_).has_value();
  }
  bool repair() {
    watch.on = true;
    const auto report = Store::repair(from_, to_);
    return report && report->sound();
  }

  void every_death(const std::function<bool()>& copy) {
    constexpr std::uint64_t kLast = 6;
    constexpr std::uint64_t kOthers = 12;
    const Content content = content_of(from_);
    ASSERT_EQ(content.size(), 2 * kKeys);
    std::uint64_t calls = 0;
    ASSERT_EQ(make_copy(copy, 0, calls), 0);
    ASSERT_GE(calls, 2U);
    EXPECT_EQ(content_of(to_), content);
    bool absent = false;
    bool whole = false;
    for (std::uint64_t at = 1; at <= calls; ++at) {
      if (at + kLast <= calls && at % (1 + calls / kOthers) != 0) continue;
      fs::remove(to_);
      std::uint64_t ignored = 0;
      const int ended = make_copy(copy, at, ignored);
      // The clock of a copy has a thread, so calls are a few more or less.
      if (ended == 0 && at + kLast > calls) continue;
      ASSERT_EQ(ended, kDied) << "call " << at << " of " << calls;
      const bool named = fs::exists(to_);
      (named ? whole : absent) = true;
      if (named) {
        EXPECT_EQ(content_of(to_), content) << "call " << at;
      }
      EXPECT_EQ(content_of(from_), content) << "call " << at;
      // Nothing else is left beside it.
      const auto files = std::distance(fs::directory_iterator(folder_), fs::directory_iterator());
      EXPECT_EQ(files, named ? 2 : 1);
    }
    EXPECT_TRUE(absent);
    EXPECT_TRUE(whole);
  }

  fs::path folder_;
  fs::path from_;
  fs::path to_;
};
INSTANTIATE_TEST_SUITE_P(Store, Copies, testing::Values(Durability::strict, Durability::buffered),
                         [](const auto& of) { return std::string(to_string(of.param)); });

TEST_P(Copies, Backup) {
  every_death([this] { return backup(); });
}

TEST_P(Copies, Repair) {
  every_death([this] { return repair(); });
}

// On a disk, if the system's folder for such files is on one; linkat() above looks.
TEST_P(Copies, NothingIsStoredAfterTheLastSync) {
  make_source(fs::temp_directory_path() / folder_.filename(), 10);
  for (const bool repairs : {false, true}) {
    fs::remove(to_);
    std::uint64_t calls = 0;
    ASSERT_EQ(make_copy([&] { return repairs ? repair() : backup(); }, 0, calls), 0);
    EXPECT_EQ(content_of(to_), content_of(from_));
  }
}

}  // namespace
}  // namespace everleaf
