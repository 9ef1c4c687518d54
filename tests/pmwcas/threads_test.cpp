// Real threads: sums stay, counts add up, blocks have one owner, slots are inherited.
#include <array>
#include <atomic>
#include <thread>

#include <gtest/gtest.h>

#include "words.hpp"

namespace everleaf::pmwcas {
namespace {

constexpr unsigned kThreads = 4;
constexpr std::size_t kAccounts = 5;
constexpr Word kEach = 1000;

template <class Body>
void in_threads(unsigned count, Body body) {
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < count; ++i) threads.emplace_back([&body, i] { body(i); });
  for (std::thread& one : threads) one.join();
}

// Moves some of one account to another; false: somebody was faster.
bool transfer(WordsPool& pool, test::Random& random) {
  const alloc::Grace::Pin pin(pool.grace());
  const std::size_t from = random.below(kAccounts);
  const std::size_t to = (from + 1 + random.below(kAccounts - 1)) % kAccounts;
  const Word has = pool.value(from);
  const Word gets = pool.value(to);
  const Word amount = random.below(has + 1);
  const auto durability = random.one_in(4) ? Durability::later : Durability::at_return;
  const Answer answer =
      change(pool, {{from, has, has - amount}, {to, gets, gets + amount}}, durability);
  EXPECT_TRUE(answer == Answer::succeeded || answer == Answer::failed);
  return answer == Answer::succeeded;
}

Word sum_of(const std::vector<Word>& values) {
  Word sum = 0;
  for (std::size_t i = 0; i < kAccounts; ++i) sum += values[i];
  return sum;
}

// An operation that changes nothing is a snapshot of its words.
bool snapshot(WordsPool& pool) {
  const alloc::Grace::Pin pin(pool.grace());
  const std::vector<Word> seen = pool.values();
  Descriptor operation = pool.words().allocate();
  for (std::size_t i = 0; i < kAccounts; ++i) {
    EXPECT_TRUE(operation.add_word(pool.word(i), seen[i], seen[i]));
  }
  if (operation.execute() != Answer::succeeded) return false;
  EXPECT_EQ(sum_of(seen), kAccounts * kEach);
  return true;
}

TEST(PmwcasThreads, TransfersKeepTheSum) {
  const std::uint64_t seed = test::seed();
  const auto pool = words_of(std::vector<Word>(kAccounts, kEach));
  std::atomic<std::uint64_t> moved{0};
  std::atomic<std::uint64_t> snapshots{0};
  in_threads(kThreads, [&](unsigned thread) {
    test::Random random(seed + thread);
    for (std::size_t i = 0; i < test::scaled(4000); ++i) {
      if (transfer(*pool, random)) ++moved;
      if (i % 8 == 0 && snapshot(*pool)) ++snapshots;
    }
  });
  EXPECT_GT(moved, 0U);
  EXPECT_GT(snapshots, 0U);
  EXPECT_EQ(sum_of(pool->values()), kAccounts * kEach);
  EXPECT_EQ(settled(*pool), "");
}

// Overlapping sets of words, one to three of five.
TEST(PmwcasThreads, CountersAddUp) {
  const std::uint64_t seed = test::seed();
  const auto pool = words_of(std::vector<Word>(kAccounts, 0));
  std::array<std::atomic<Word>, kAccounts> added{};
  in_threads(kThreads, [&](unsigned thread) {
    test::Random random(seed + thread);
    for (std::size_t i = 0; i < test::scaled(4000); ++i) {
      const alloc::Grace::Pin pin(pool->grace());
      Descriptor operation = pool->words().allocate();
      const std::size_t first = random.below(kAccounts);
      const std::size_t count = 1 + random.below(3);
      for (std::size_t n = 0; n < count; ++n) {
        const std::size_t word = (first + n) % kAccounts;
        const Word now = pool->value(word);
        EXPECT_EQ(now & kControl, 0U);
        EXPECT_TRUE(operation.add_word(pool->word(word), now, now + 1));
      }
      if (operation.execute() != Answer::succeeded) continue;
      for (std::size_t n = 0; n < count; ++n) ++added.at((first + n) % kAccounts);
    }
  });
  for (std::size_t i = 0; i < kAccounts; ++i) EXPECT_EQ(pool->value(i), added.at(i));
  EXPECT_EQ(settled(*pool), "");
}

TEST(PmwcasThreads, BlocksHaveOneOwner) {
  const auto pool = words_of({0, 0, 0}, 7);
  in_threads(kThreads, [&](unsigned thread) {
    for (std::size_t i = 0; i < test::scaled(2000); ++i) {
      const Answer answer = new_block(*pool, (i + thread) % 3);
      EXPECT_TRUE(answer == Answer::succeeded || answer == Answer::failed);
    }
  });
  EXPECT_EQ(settled(*pool), "");
  pool->grace().collect_all();
  EXPECT_EQ(pool->problem(), "");
}

// Threads come and go in the middle of what their slots have to finish.
TEST(PmwcasThreads, SlotsAreInherited) {
  const std::uint64_t seed = test::seed();
  const auto pool = words_of(std::vector<Word>(kAccounts, kEach));
  for (std::size_t wave = 0; wave < test::scaled(60); ++wave) {
    in_threads(kThreads, [&](unsigned thread) {
      test::Random random(seed + wave * kThreads + thread);
      for (std::size_t i = 0; i <= wave % 3; ++i) (void)transfer(*pool, random);
    });
  }
  EXPECT_EQ(sum_of(pool->values()), kAccounts * kEach);
  std::size_t lanes = 0;
  pool->words().for_each_block([&lanes](Offset, std::size_t) { ++lanes; });
  EXPECT_LE(lanes, kThreads + 3);  // and the table, and this thread's, and one that had not ended
  EXPECT_EQ(settled(*pool), "");
}

}  // namespace
}  // namespace everleaf::pmwcas
