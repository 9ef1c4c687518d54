// An index's directory entry was filled by std::array::fill, which GCC expands at -O3 to stores
// without a hook. In a new pool they changed nothing, so the audit saw nothing; the images of a
// crash lacked the entry's spec, and a sound tree "leaked" its root. Reads of that kind decide
// nothing, and are not noticed at all.
#include "accesses.hpp"

#include <cstring>
#include <new>

#include <gtest/gtest.h>

#include "recorder.hpp"

namespace everleaf::crash {
namespace {

constexpr std::size_t kBytes = 4096;

class Accesses : public testing::Test {
 protected:
  Accesses() { Recorder::watch(&recorder_); }
  Accesses(const Accesses&) = delete;
  Accesses& operator=(const Accesses&) = delete;
  ~Accesses() override { Recorder::watch(nullptr); }

  Wide* wide(std::size_t at) { return new (arena_.active_base() + at) Wide; }

  // Every byte that differs from what is durable was recorded.
  std::string escaped() {
    recorder_.settle();
    return arena_.audit(true, kBytes);
  }

  // Executions after a crash that are told apart by what `read` sees.
  template <class F>
  std::size_t told_apart(F&& read) {
    recorder_.settle();
    arena_.enter();
    recorder_.switch_level();
    std::vector<Choice> path;
    std::size_t executions = 0;
    do {
      arena_.begin(path);
      read();
      path = arena_.path();
      arena_.end();
      ++executions;
    } while (Arena::advance(path));
    arena_.leave();
    recorder_.switch_level();
    return executions;
  }

  Arena arena_{kBytes, 2, {}};
  Recorder recorder_{arena_};
};

TEST_F(Accesses, AFillIsRecorded) {
  fill(*wide(64), 'x');
  EXPECT_EQ(escaped(), "");
}

TEST_F(Accesses, ACopyIsRecorded) {
  Wide from;
  from.name.fill('n');
  from.spec.fill('s');
  copy(*wide(64), from);
  EXPECT_EQ(escaped(), "");
  assign(*wide(1024), from);
  EXPECT_EQ(escaped(), "");
}

TEST_F(Accesses, TheAuditWouldNotice) {
  volatile char& one = wide(64)->name[3];  // this file has no hooks
  one = 'x';
  EXPECT_NE(escaped(), "");
}

TEST_F(Accesses, AComparisonDecides) {
  fill(*wide(64), 'x');
  const auto* const lines = reinterpret_cast<const Wide*>(arena_.base(1) + 64);
  Wide mine;
  mine.name.fill('x');
  mine.spec.fill('x');
  const Wide& other = mine;
  const std::size_t executions = told_apart([&] { (void)same(*lines, other); });
  EXPECT_GT(executions, 1U);
}

TEST_F(Accesses, ALoopDecides) {
  fill(*wide(64), 'x');
  const auto* const words = reinterpret_cast<const std::uint64_t*>(arena_.base(1) + 128);
  EXPECT_GT(told_apart([&] { (void)sum(words); }), 1U);
}

}  // namespace
}  // namespace everleaf::crash
