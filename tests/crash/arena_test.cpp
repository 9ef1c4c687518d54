#include "arena.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "recorder.hpp"

namespace everleaf::crash {
namespace {

constexpr std::size_t kBytes = 4096;

// What the hooks do for a store and a load.
void store(Arena& arena, std::size_t at, std::uint64_t value, unsigned thread = 0) {
  arena.will_write(at, sizeof value);
  std::memcpy(arena.active_base() + at, &value, sizeof value);
  arena.wrote(at, sizeof value, nullptr, thread);
}

std::uint64_t load(Arena& arena, std::size_t at) {
  arena.will_read(at, sizeof(std::uint64_t));
  std::uint64_t value = 0;
  std::memcpy(&value, arena.active_base() + at, sizeof value);
  return value;
}

// All executions of `recovery` after a crash here.
template <class F>
std::uint64_t after_a_crash(Arena& arena, F&& recovery) {
  arena.enter();
  std::vector<Choice> path;
  std::uint64_t executions = 0;
  do {
    arena.begin(path);
    recovery();
    path = arena.path();
    arena.end();
    ++executions;
  } while (Arena::advance(path));
  arena.leave();
  return executions;
}

// Words that are the same in all images of a line.
TEST(Arena, AReadOfWhatIsTheSameInAllImagesDecidesNothing) {
  for (const std::size_t unit : {std::size_t{8}, std::size_t{64}}) {
    Arena arena(kBytes, 2, {.unit = unit, .all_survive = false});
    store(arena, 64, 1);
    store(arena, 80, 2);
    const std::uint64_t executions = after_a_crash(arena, [&] {
      for (const std::size_t at : {std::size_t{0}, std::size_t{72}, std::size_t{88}}) {
        EXPECT_FALSE(arena.open_in(at, 8));
        EXPECT_EQ(load(arena, at), 0U);
      }
      EXPECT_FALSE(arena.open_in(128, kBytes - 128));
      EXPECT_FALSE(arena.open_in(88, 64));
      EXPECT_TRUE(arena.open_in(0, 65));
      EXPECT_TRUE(arena.open_in(60, 5));
      EXPECT_TRUE(arena.open_in(0, kBytes));
      EXPECT_TRUE(arena.open_in(87, 1));
      (void)load(arena, 80);
    });
    EXPECT_EQ(executions, 2U) << unit;
  }
}

// Where a unit is a word, its number could make up for the word: 120 of 256 contents looked like
// another one, so that crashes in a recovery were taken for others that had been looked at.
TEST(Arena, ContentsHaveHashesOfTheirOwn) {
  Arena arena(kBytes, 3, {.unit = 8, .all_survive = false});
  arena.enter();
  std::set<std::uint64_t> states;
  std::set<std::uint64_t> contents;
  for (std::uint64_t a = 0; a < 16; ++a) {
    for (std::uint64_t b = 0; b < 16; ++b) {
      arena.begin({});
      for (std::size_t word = 0; word < 2; ++word) {
        store(arena, 8 * word, word == 0 ? a : b);
        arena.flushed(8 * word, 8, 0);
      }
      arena.fenced(0);
      states.insert(arena.state_hash());
      contents.insert(arena.content_hash().value());
      arena.end();
    }
  }
  EXPECT_EQ(states.size(), 256U);
  EXPECT_EQ(contents.size(), 256U);
}

// V1: after an execution each level holds what it held before, whatever recovery decided, stored
// and made durable.
TEST(Arena, AnExecutionLeavesNoTrace) {
  for (const std::size_t unit : {64U, 8U}) {
    for (const bool all_survive : {false, true}) {
      Arena arena(kBytes, 4, {.unit = unit, .all_survive = all_survive});
      const auto memory = [&arena] {
        return std::vector<std::byte>(arena.base(0), arena.base(0) + arena.bytes());
      };
      store(arena, 0, 1);
      store(arena, 64, 2);
      arena.enter();
      arena.begin({});
      arena.end();
      const auto before = memory();
      for (const bool flushes : {true, false}) {
        arena.begin({});
        (void)load(arena, 64);
        store(arena, 128, 3);
        if (flushes) {
          arena.flushed(128, 8, 0);
          arena.fenced(0);
        }
        store(arena, 192, 4);
        const auto within = memory();
        after_a_crash(arena, [&] {
          (void)load(arena, 0);
          store(arena, 128, 5);
          arena.flushed(128, 8, 0);
          arena.fenced(0);
          store(arena, 256, 6);
        });
        EXPECT_EQ(memory(), within);
        arena.end();
        EXPECT_EQ(memory(), before);
      }
      arena.leave();
    }
  }
}

TEST(Arena, AReadTellsTheImagesApart) {
  Arena arena(kBytes, 2, {});
  store(arena, 0, 1);
  store(arena, 8, 2);   // the same line
  store(arena, 64, 3);  // another one
  std::set<std::vector<std::uint64_t>> seen;
  const auto executions = after_a_crash(arena, [&] {
    seen.insert({load(arena, 0), load(arena, 8), load(arena, 64)});
  });
  const std::set<std::vector<std::uint64_t>> expected{{0, 0, 0}, {1, 0, 0}, {1, 2, 0},
                                                      {0, 0, 3}, {1, 0, 3}, {1, 2, 3}};
  EXPECT_EQ(seen, expected);
  EXPECT_EQ(executions, expected.size());
}

// What copies words may do so in any order; what comes after the copy is after all of it.
TEST(Arena, ACopyHasNoOrder) {
  Arena arena(kBytes, 2, {});
  const std::uint64_t words[] = {1, 2, 3};
  arena.will_write(0, sizeof words);
  std::memcpy(arena.base(arena.level()), words, sizeof words);
  arena.wrote(0, sizeof words, nullptr, 0);
  store(arena, 24, 4);
  std::set<std::vector<std::uint64_t>> seen;
  after_a_crash(arena, [&] {
    seen.insert({load(arena, 0), load(arena, 8), load(arena, 16), load(arena, 24)});
  });
  std::set<std::vector<std::uint64_t>> expected{{1, 2, 3, 4}};
  for (std::uint64_t set = 0; set < 8; ++set) {
    expected.insert({set & 1, set & 2, (set >> 2) * 3, 0});
  }
  EXPECT_EQ(seen, expected);
}

// Of a long one: what begins at either end, one word alone, all but one.
TEST(Arena, ALongCopyHasManyOrders) {
  Arena arena(kBytes, 2, {});
  constexpr std::size_t kWords = 6;
  const std::uint64_t words[kWords] = {1, 1, 1, 1, 1, 1};
  arena.will_write(0, sizeof words);
  std::memcpy(arena.base(arena.level()), words, sizeof words);
  arena.wrote(0, sizeof words, nullptr, 0);
  std::set<std::uint64_t> seen;
  after_a_crash(arena, [&] {
    std::uint64_t set = 0;
    for (std::size_t i = 0; i < kWords; ++i) set |= load(arena, 8 * i) << i;
    seen.insert(set);
  });
  std::set<std::uint64_t> expected;
  for (std::size_t i = 0; i <= kWords; ++i) {
    expected.insert((1U << i) - 1);
    expected.insert(63U & ~((1U << i) - 1));
    expected.insert(63U & (1U << i));
    expected.insert(63U & ~(1U << i));
  }
  EXPECT_EQ(seen, expected);
}

TEST(Arena, AFlushCountsWithTheFenceOfItsThread) {
  Arena arena(kBytes, 2, {});
  store(arena, 0, 1);
  arena.flushed(0, 8, 0);
  store(arena, 8, 2);
  arena.fenced(1);
  std::set<std::uint64_t> seen;
  after_a_crash(arena, [&] { seen.insert(load(arena, 0)); });
  EXPECT_EQ(seen, (std::set<std::uint64_t>{0, 1}));
  arena.fenced(0);
  seen.clear();
  after_a_crash(arena, [&] { seen.insert(load(arena, 0) * 10 + load(arena, 8)); });
  EXPECT_EQ(seen, (std::set<std::uint64_t>{10, 12}));
}

// What recovery overwrites it need not tell apart; what it does not, stays open.
TEST(Arena, AWriteDecidesNothing) {
  Arena arena(kBytes, 2, {});
  store(arena, 0, 1);
  store(arena, 8, 2);
  std::set<std::uint64_t> seen;
  const auto executions = after_a_crash(arena, [&] {
    store(arena, 0, 7);
    EXPECT_EQ(load(arena, 0), 7U);
    seen.insert(load(arena, 8));
    EXPECT_EQ(load(arena, 0), 7U);
  });
  EXPECT_EQ(seen, (std::set<std::uint64_t>{0, 2}));
  EXPECT_EQ(executions, 2U);
}

// What a reader read is decided for the writer after it, what it only wrote over is not.
TEST(Arena, AReaderStoresToACopy) {
  for (const std::size_t levels : {2, 3}) {
    Arena arena(kBytes, levels, {});
    store(arena, 0, 1);
    store(arena, 8, 2);
    store(arena, 64, 3);
    std::set<std::vector<std::uint64_t>> seen;
    const auto executions = after_a_crash(arena, [&] {
      arena.begin_reading();
      EXPECT_EQ(arena.active_base(), arena.readers_base());
      store(arena, 0, 7);
      store(arena, 128, 8);
      const std::uint64_t second = load(arena, 8);
      EXPECT_EQ(load(arena, 0), 7U);
      EXPECT_EQ(load(arena, 128), 8U);
      for (std::size_t at = 64; at < 128; at += 8) store(arena, at, 9);
      EXPECT_TRUE(arena.end_reading());
      EXPECT_EQ(load(arena, 8), second);
      EXPECT_EQ(load(arena, 128), 0U);
      seen.insert({load(arena, 0), load(arena, 8), load(arena, 64)});
      EXPECT_EQ(std::memcmp(arena.base(1), arena.readers_base(), kBytes), 0);
    });
    const std::set<std::vector<std::uint64_t>> expected{{0, 0, 0}, {1, 0, 0}, {1, 2, 0},
                                                        {0, 0, 3}, {1, 0, 3}, {1, 2, 3}};
    EXPECT_EQ(seen, expected);
    EXPECT_EQ(executions, expected.size());
  }
}

// A crash of the writer's recovery finds what the reader left open.
TEST(Arena, AReaderIsForgottenInACrashAfterIt) {
  Arena arena(kBytes, 3, {});
  store(arena, 0, 1);
  store(arena, 8, 2);
  std::set<std::vector<std::uint64_t>> seen;
  after_a_crash(arena, [&] {
    arena.begin_reading();
    store(arena, 0, 7);
    EXPECT_TRUE(arena.end_reading());
    store(arena, 16, 3);
    after_a_crash(arena, [&] {
      arena.begin_reading();
      store(arena, 8, 7);
      const std::uint64_t first = load(arena, 0);
      EXPECT_TRUE(arena.end_reading());
      seen.insert({first, load(arena, 8), load(arena, 16)});
    });
  });
  const std::set<std::vector<std::uint64_t>> expected{{0, 0, 0}, {1, 0, 0}, {1, 2, 0},
                                                      {0, 0, 3}, {1, 0, 3}, {1, 2, 3}};
  EXPECT_EQ(seen, expected);
}

TEST(Arena, AReaderThatStoresElsewhereIsTold) {
  Arena arena(kBytes, 2, {});
  after_a_crash(arena, [&] {
    arena.begin_reading();
    const auto* const outside = arena.base(1) + 64;
    arena.will_write(static_cast<std::size_t>(outside - arena.active_base()), 8);
    EXPECT_FALSE(arena.end_reading());
    arena.begin_reading();
    EXPECT_TRUE(arena.end_reading());
  });
}

// A crash of a recovery that wrote to an undecided line: both histories are open.
TEST(Arena, HistoriesOfTwoCrashesMultiply) {
  Arena arena(kBytes, 3, {});
  store(arena, 0, 1);
  store(arena, 8, 2);
  std::set<std::vector<std::uint64_t>> seen;
  after_a_crash(arena, [&] {
    store(arena, 16, 3);
    arena.flushed(16, 8, 0);
    arena.fenced(0);
    store(arena, 0, 4);
    after_a_crash(arena, [&] { seen.insert({load(arena, 0), load(arena, 8), load(arena, 16)}); });
  });
  const std::set<std::vector<std::uint64_t>> expected{
      {0, 0, 3}, {1, 0, 3}, {1, 2, 3}, {4, 0, 3}, {4, 2, 3}};
  EXPECT_EQ(seen, expected);
}

// Over three lines: all newest, or which is the first that is not. What lies behind that one stays
// open, and so does what the torn one holds.
TEST(Arena, AChecksumIsWholeOrTorn) {
  Arena arena(kBytes, 2, {});
  for (const std::size_t line : {0, 64, 128}) {
    store(arena, line, 1);
    store(arena, line, 2);
  }
  std::uint64_t whole = 0;
  std::set<std::vector<std::uint64_t>> torn;
  const auto sum = [&] { return load(arena, 0) + load(arena, 64) + load(arena, 128); };
  const auto executions = after_a_crash(arena, [&] {
    arena.verify_over(0, 136);
    arena.verify_begin();
    const bool good = sum() == 6;
    arena.verify_end(good);
    if (good) {
      ++whole;
      EXPECT_EQ(sum(), 6U);
    } else {
      torn.insert({load(arena, 0), load(arena, 64), load(arena, 128)});
    }
  });
  EXPECT_EQ(whole, 1U);
  EXPECT_EQ(torn.size(), 26U);  // 3 x 3 x 3 images but the newest
  EXPECT_EQ(executions, 27U);
  const auto unread = after_a_crash(arena, [&] {
    arena.verify_over(0, 136);
    arena.verify_begin();
    arena.verify_end(sum() == 6);
  });
  EXPECT_EQ(unread, 7U);
}

// What lay there before fits its own checksum.
TEST(Arena, AChecksumMayFitWhatWasThereBefore) {
  Arena arena(kBytes, 2, {});
  store(arena, 0, 1);
  store(arena, 64, 1);
  std::set<std::uint64_t> whole;
  after_a_crash(arena, [&] {
    arena.verify_over(0, 72);
    arena.verify_begin();
    const bool good = load(arena, 0) == load(arena, 64);
    arena.verify_end(good);
    if (!good) return;
    EXPECT_EQ(load(arena, 0), load(arena, 64));
    whole.insert(load(arena, 0));
  });
  EXPECT_EQ(whole.size(), 2U);
}

// A checksum that overlooks a line: its torn image is accepted, and seen.
TEST(Arena, ABadChecksumIsFollowed) {
  Arena arena(kBytes, 2, {});
  store(arena, 0, 1);
  store(arena, 64, 1);
  bool seen = false;
  after_a_crash(arena, [&] {
    arena.verify_over(0, 72);
    arena.verify_begin();
    const bool good = load(arena, 0) == 1;
    arena.verify_end(good);
    seen = seen || (good && load(arena, 64) == 0);
  });
  EXPECT_TRUE(seen);
}

// A torn image that fits: what was tried is what is there afterwards.
TEST(Arena, ATornImageThatFitsStays) {
  Arena arena(kBytes, 2, {});
  store(arena, 0, 1);
  store(arena, 64, 1);
  store(arena, 64, 2);
  unsigned fits = 0;
  after_a_crash(arena, [&] {
    arena.verify_over(0, 72);
    arena.verify_begin();
    const bool good = load(arena, 0) == 1 && load(arena, 64) == 0;
    arena.verify_end(good);
    if (!good) return;
    ++fits;
    EXPECT_EQ(load(arena, 64), 0U);
  });
  EXPECT_EQ(fits, 1U);
}

// A record that a crash left torn, and a recovery that writes something else in its place, of which
// a part is the same: after a crash of that recovery the record may be whole, and stays so.
class Mended : public testing::TestWithParam<std::tuple<bool, bool, std::size_t>> {
 protected:
  // In one line, or in two.
  void write(std::uint64_t first, std::uint64_t second) {
    std::array<std::pair<std::size_t, std::uint64_t>, 3> words{
        {{0, 5}, {at_, first}, {at_ + 8, second}}};
    if (backwards_) std::ranges::reverse(words);
    for (const auto& [word, value] : words) {
      arena_.will_write(word, sizeof value);
      std::memcpy(arena_.active_base() + word, &value, sizeof value);
      arena_.wrote(word, sizeof value, nullptr, 0, kFirstGroup);
    }
  }
  bool is_whole() {
    return load(arena_, 0) == 5 && load(arena_, at_) == 1 && load(arena_, at_ + 8) == 2;
  }
  bool verify() {
    arena_.verify_over(0, at_ + 16);
    arena_.verify_begin();
    const bool good = is_whole();
    arena_.verify_end(good);
    return good;
  }

  const bool backwards_ = std::get<0>(GetParam());
  const bool reads_ = std::get<1>(GetParam());  // what it took for torn
  const std::size_t at_ = std::get<2>(GetParam());
  Arena arena_{kBytes, 4, {}};
};
INSTANTIATE_TEST_SUITE_P(Arena, Mended,
                         testing::Combine(testing::Bool(), testing::Bool(),
                                          testing::Values(std::size_t{8}, std::size_t{64})));

TEST_P(Mended, WhatARecoveryWroteOver) {
  bool mended = false;
  bool later = false;  // after a crash of a recovery that did not look at it
  write(1, 2);
  after_a_crash(arena_, [&] {
    if (verify()) return;
    if (reads_) (void)is_whole();
    write(1, 7);
    after_a_crash(arena_, [&] {
      const bool good = verify();
      EXPECT_EQ(good, is_whole());
      mended = mended || good;
    });
    after_a_crash(arena_, [&] {
      store(arena_, 256, 1);
      after_a_crash(arena_, [&] {
        const bool good = verify();
        EXPECT_EQ(good, is_whole());
        later = later || good;
      });
    });
  });
  EXPECT_TRUE(mended);
  EXPECT_TRUE(later);
}

// What holds nothing but zeroes.
TEST(Arena, KnowsWhatIsZero) {
  Arena arena(kBytes, 3, {});
  EXPECT_EQ(arena.untouched(0, kBytes), kBytes);
  store(arena, 1032, 0);
  EXPECT_EQ(arena.untouched(8, kBytes - 8), kBytes - 8);
  store(arena, 1032, 1);
  EXPECT_EQ(arena.untouched(1024, 8), 0U);
  EXPECT_EQ(arena.untouched(1000, 64), 24U);
  EXPECT_EQ(arena.untouched(0, kBytes), 1024U);
  EXPECT_EQ(arena.untouched(0, 1000), 1000U);
  EXPECT_EQ(arena.untouched(2048, 1024), 1024U);
  after_a_crash(arena, [&] { store(arena, 3000 / 8 * 8, std::uint64_t{1} << 63); });
  EXPECT_EQ(arena.untouched(2048, 1024), 768U);
  store(arena, 1032, 0);
  EXPECT_EQ(arena.untouched(1024, 8), 0U) << "a crash may lose the zero";
  EXPECT_EQ(arena.untouched(kBytes - 8, 16), 0U);
  EXPECT_EQ(arena.untouched(kBytes - 8, 8), 8U);
}

// Stores that lead back to what was durable: whole is that image, not the one that came last.
TEST(Arena, TheNewestImageMayBeTheOldest) {
  Arena arena(kBytes, 3, {});
  for (const std::size_t line : {0, 64}) {
    store(arena, line, 1);
    arena.flushed(line, 8, 0);
    arena.fenced(0);
    store(arena, line, 2);
    store(arena, line, 1);
  }
  std::set<std::pair<bool, std::uint64_t>> seen;
  const auto sum = [&] { return load(arena, 0) + load(arena, 64); };
  const auto verify = [&] {
    arena.verify_over(0, 8);
    arena.verify_over(64, 8);
    arena.verify_begin();
    const bool good = sum() == 2;
    arena.verify_end(good);
    seen.insert({good, sum()});
  };
  const std::set<std::pair<bool, std::uint64_t>> expected{{false, 3}, {false, 4}, {true, 2}};
  after_a_crash(arena, verify);
  EXPECT_EQ(seen, expected);
  seen.clear();
  after_a_crash(arena, [&] {
    store(arena, 8, 3);
    after_a_crash(arena, verify);
  });
  EXPECT_EQ(seen, expected);
}

TEST(Arena, KnowsWhatOthersCanLose) {
  Arena arena(kBytes, 2, {});
  store(arena, 0, 1, 0);
  store(arena, 8, 2, kAnyThread);
  std::vector<Arena::Unsynced> seen;
  arena.unsynced(0, 8, 0, seen);
  EXPECT_TRUE(seen.empty());
  arena.unsynced(8, 8, 1, seen);
  EXPECT_TRUE(seen.empty());
  arena.unsynced(0, 8, 1, seen);
  ASSERT_EQ(seen.size(), 1U);
  EXPECT_TRUE(arena.still(seen[0]));
  arena.flushed(0, 8, 0);
  EXPECT_TRUE(arena.still(seen[0]));
  arena.fenced(0);
  EXPECT_FALSE(arena.still(seen[0]));
  // What is there already cannot be lost.
  seen.clear();
  store(arena, 0, 1, 0);
  arena.unsynced(0, 8, 1, seen);
  EXPECT_TRUE(seen.empty());
  store(arena, 0, 3, 0);
  store(arena, 0, 1, 0);
  arena.unsynced(0, 8, 1, seen);
  EXPECT_EQ(seen.size(), 2U);
}

// A compiler may exchange them, but for an atomic store, a flush or a fence between them.
TEST(Recorder, PlainStoresHaveNoOrderWhereThatIsAskedFor) {
  for (const bool permuted : {false, true}) {
    Arena arena(kBytes, 2, {});
    Recorder recorder(arena);
    recorder.permute(permuted);
    const auto plain = [&](std::size_t at) {
      recorder.write(at, 8, nullptr);
      arena.base(0)[at] = std::byte{1};
    };
    plain(0);
    plain(8);
    recorder.settle();
    recorder.atomic();
    recorder.before_store(16, 8);
    arena.base(0)[16] = std::byte{1};
    recorder.after_store(16, 8, nullptr);
    plain(24);
    plain(32);
    recorder.settle();
    std::set<std::vector<std::uint64_t>> seen;
    after_a_crash(arena, [&] {
      std::vector<std::uint64_t> words;
      for (std::size_t at = 0; at < 40; at += 8) words.push_back(load(arena, at));
      seen.insert(words);
    });
    std::set<std::vector<std::uint64_t>> expected{{0, 0, 0, 0, 0}, {1, 0, 0, 0, 0},
                                                  {1, 1, 0, 0, 0}, {1, 1, 1, 0, 0},
                                                  {1, 1, 1, 1, 0}, {1, 1, 1, 1, 1}};
    if (permuted) expected.insert({{0, 1, 0, 0, 0}, {1, 1, 1, 0, 1}});
    EXPECT_EQ(seen, expected) << permuted;
  }
}

// A kill may come in the middle of a copy, after any of its words, and finds what was copied so
// far.
TEST(Recorder, ACopyIsHalfDoneWhereStoresSurvive) {
  struct Kill final : Crasher {
    explicit Kill(Arena& of) : arena(of) {}
    void crash_point() override {
      std::vector<std::uint64_t> words(4);
      (void)after_a_crash(arena, [&] {
        for (std::size_t i = 0; i < words.size(); ++i) words[i] = load(arena, 8 * i);
      });
      seen.push_back(words);
    }
    void escaped(const std::string& what) override { ADD_FAILURE() << what; }
    Arena& arena;
    std::vector<std::vector<std::uint64_t>> seen;
  };
  Arena arena(kBytes, 2, {.all_survive = true});
  Recorder recorder(arena);
  Kill kill(arena);
  recorder.crasher = &kill;
  recorder.before_store(4, 24);  // from the middle of a word to that of another
  for (std::size_t i = 4; i < 28; ++i) arena.base(0)[i] = std::byte{1};
  recorder.after_store(4, 24, nullptr);
  constexpr std::uint64_t kHigh = 0x0101010100000000;
  constexpr std::uint64_t kLow = 0x0000000001010101;
  const std::vector<std::vector<std::uint64_t>> expected{{kHigh, 0, 0, 0},
                                                         {kHigh, kHigh | kLow, 0, 0},
                                                         {kHigh, kHigh | kLow, kHigh | kLow, 0},
                                                         {kHigh, kHigh | kLow, kHigh | kLow, kLow}};
  EXPECT_EQ(kill.seen, expected);
}

}  // namespace
}  // namespace everleaf::crash
