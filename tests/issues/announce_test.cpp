// The grace periods and the epochs rely on one thing: of a thread that announces itself and then
// looks, and one that changes something and then looks for announcements, at least one sees the
// other. Announcements have no barrier of their own (base/announce.hpp).
#include "base/announce.hpp"

#include <atomic>
#include <cstdint>
#include <thread>

#include <gtest/gtest.h>

namespace everleaf {
namespace {

constexpr std::uint64_t kRounds = 8'000;

struct alignas(64) Word {
  std::atomic<std::uint64_t> value{0};
};

// Both threads leave the gate of a round at the same time.
void meet(std::atomic<std::uint64_t>& gate, std::uint64_t round) {
  gate.fetch_add(1);
  while (gate.load() < 2 * round) {
  }
}

TEST(Announce, OneOfTwoSeesTheOther) {
  Word announced;
  Word changed;
  Word gate;
  std::uint64_t seen_by_frequent = 0;
  std::uint64_t missed = 0;
  std::thread frequent([&] {
    for (std::uint64_t round = 1; round <= kRounds; ++round) {
      meet(gate.value, 2 * round - 1);
      base::announce(announced.value, round);
      seen_by_frequent = changed.value.load(std::memory_order_acquire);
      meet(gate.value, 2 * round);
    }
  });
  for (std::uint64_t round = 1; round <= kRounds; ++round) {
    meet(gate.value, 2 * round - 1);
    changed.value.store(round, std::memory_order_seq_cst);
    base::see_announcements();
    const std::uint64_t seen = announced.value.load(std::memory_order_seq_cst);
    meet(gate.value, 2 * round);
    if (seen != round && seen_by_frequent != round) ++missed;
  }
  frequent.join();
  EXPECT_EQ(missed, 0U);
}

}  // namespace
}  // namespace everleaf
