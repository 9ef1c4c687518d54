#include "scratch.hpp"

#include <array>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "failure.hpp"

namespace everleaf::bench {
namespace {

namespace fs = std::filesystem;

class ScratchTest : public testing::Test {
 protected:
  ScratchTest() {
    std::string name = (fs::temp_directory_path() / "scratch-test-XXXXXX").string();
    parent_ = ::mkdtemp(name.data());
  }
  ~ScratchTest() override { fs::remove_all(parent_); }

  fs::path parent_;
};

TEST_F(ScratchTest, GoesWithTheObject) {
  {
    Scratch scratch(parent_);
    const fs::path first = scratch.new_file();
    EXPECT_NE(first, scratch.new_file());
    std::ofstream(first) << "x";
    EXPECT_TRUE(fs::exists(first));
  }
  EXPECT_TRUE(fs::is_empty(parent_));
}

// The only wait is for the child that cleans up; it ends when it has, however slow the machine.
void die_and_leave_nothing(const fs::path& parent, int signal) {
  std::array<int, 2> ready{};
  ASSERT_EQ(::pipe(ready.data()), 0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    Scratch scratch(parent);
    std::ofstream(scratch.new_file()) << "x";
    [[maybe_unused]] const auto written = ::write(ready[1], "r", 1);
    while (true) ::pause();
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  ::close(ready[0]);
  ::close(ready[1]);
  EXPECT_FALSE(fs::is_empty(parent));
  ::kill(child, signal);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == signal);
  while (!fs::is_empty(parent)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

TEST_F(ScratchTest, GoesWithTheProcess) {
  for (const int signal : {SIGINT, SIGTERM, SIGKILL}) die_and_leave_nothing(parent_, signal);
}

// Killed at the moment at which the directory appears: in between, nobody must be without a child.
TEST_F(ScratchTest, GoesWithAProcessThatHasOnlyBegun) {
  for (int round = 0; round < 100; ++round) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      const Scratch scratch(parent_);
      while (true) ::pause();
    }
    while (fs::is_empty(parent_)) {
    }
    ::kill(child, SIGKILL);
    ASSERT_EQ(::waitpid(child, nullptr, 0), child);
    while (!fs::is_empty(parent_)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

TEST_F(ScratchTest, RefusesWhatIsNoDirectory) {
  try {
    const Scratch scratch(parent_ / "absent");
    FAIL();
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.exit_code(), kExitIo);
  }
}

}  // namespace
}  // namespace everleaf::bench
