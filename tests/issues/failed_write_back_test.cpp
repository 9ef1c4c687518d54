// The story: fences of the `disk` domain set a flag when msync failed, and the operation went on
// storing. A split whose redo record could not be written was applied all the same; the kernel then
// wrote back the old leaf's page alone, and half of the acknowledged keys were gone. Now a failed
// fence stops the operation before its next store, so what the kernel writes later is one of the
// images that a crash may leave.
#include <algorithm>
#include <cerrno>

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "support.hpp"
#include "trees/pool_state.hpp"

namespace {
// The msync after so many good ones fails, and all that follow.
int good_msyncs = -1;
// What the good ones have written of the mapping at `mapped_at`.
const std::byte* mapped_at = nullptr;
std::vector<std::byte> durable;
}  // namespace

extern "C" int msync(void* address, size_t bytes, int flags) {
  if (good_msyncs == 0) {
    errno = EIO;
    return -1;
  }
  if (good_msyncs > 0) {
    --good_msyncs;
    const auto* const from = static_cast<const std::byte*>(address);
    std::copy_n(from, bytes, durable.begin() + (from - mapped_at));
  }
  return static_cast<int>(::syscall(SYS_msync, address, bytes, flags));
}

namespace everleaf::test {
namespace {

constexpr std::size_t kPage = 4096;

PoolOptions on_disk() {
  PoolOptions options = small_pool();
  options.domain = Domain::disk;
  options.emulate = true;
  return options;
}

class FailedWriteBack : public EveryTree {};

// An operation ends at the n-th failed fence, for each n; then any subset of the pages that it
// dirtied reaches the file.
TEST_P(FailedWriteBack, AnyPagesThatReachTheFileLeaveASoundPool) {
  with_keys([]<class K>(const std::string& spec) {
    const std::uint64_t seed = test::seed();
    Random random(seed);
    const Scratch scratch;
    const auto path = scratch / "pool";
    const auto crashed = scratch / "crashed";
    for (const std::uint64_t keys : {5U, 59U, 62U}) {
      for (int step = 0; step < 12; ++step) {
        std::filesystem::remove(path);
        Map<K> map;
        Outcome outcome = Outcome::done;
        std::vector<std::byte> after;
        {
          Pool pool = Pool::open(path, on_disk()).value();
          auto index = pool.index<K>("index", spec).value();
          for (std::uint64_t i = 0; i < keys; ++i) {
            ASSERT_EQ(index.insert(Keys<K>::nth(i * 2), i), Outcome::done);
            map.emplace(Keys<K>::nth(i * 2), i);
          }
          durable = read_bytes(path);
          mapped_at = PoolAccess::state(pool).medium().base();
          good_msyncs = step;
          outcome =
              step % 3 == 2 ? index.remove(Keys<K>::nth(2)) : index.insert(Keys<K>::nth(3), 1);
          after = read_bytes(path);
          if (outcome != Outcome::done) {
            EXPECT_EQ(index.insert(Keys<K>::nth(5), 1), Outcome::io_error);
          }
          good_msyncs = -1;
        }
        if (outcome == Outcome::done) continue;  // it has fewer fences than that
        ASSERT_EQ(outcome, Outcome::io_error);
        Map<K> changed = map;
        if (step % 3 == 2) {
          changed.erase(Keys<K>::nth(2));
        } else {
          changed.emplace(Keys<K>::nth(3), 1);
        }
        for (int image = 0; image < 8; ++image) {
          std::vector<std::byte> mixed = durable;
          for (std::size_t at = 0; at < mixed.size(); at += kPage) {
            if (random.one_in(2)) {
              std::copy_n(after.begin() + static_cast<std::ptrdiff_t>(at), kPage,
                          mixed.begin() + static_cast<std::ptrdiff_t>(at));
            }
          }
          write_bytes(crashed, mixed);
          Pool pool = Pool::open(crashed, on_disk()).value();
          auto index = pool.index<K>("index", spec).value();
          if (difference<K>(index, changed) != "") {
            EXPECT_EQ(difference<K>(index, map), "") << "seed " << seed << ", fence " << step;
          }
          EXPECT_EQ(unsound(pool), "") << "seed " << seed << ", fence " << step;
        }
      }
    }
  });
}

EVERLEAF_EVERY_TREE(FailedWriteBack);

}  // namespace
}  // namespace everleaf::test
