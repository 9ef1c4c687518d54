// Blocks that travel with operations: none leaks, none has two owners.
#include <functional>
#include <map>
#include <thread>

#include <gtest/gtest.h>

#include "words.hpp"

namespace everleaf::pmwcas {
namespace {

TEST(PmwcasBlocks, DiscardGivesThemBack) {
  const auto pool = words_of({0}, 1);
  const Offset old = pool->value(0);
  const Offset block = pool->new_block();
  {
    Descriptor operation = pool->words().allocate();
    EXPECT_TRUE(operation.allocates(block));
    EXPECT_TRUE(operation.frees(old));
  }
  EXPECT_EQ(pool->new_block(), block);
  {
    Descriptor operation = pool->words().allocate();
    *operation.reserve_entry(pool->word(0), old, Policy::free_one) = block;
  }
  EXPECT_EQ(pool->new_block(), block);
  EXPECT_EQ(pool->value(0), old);
  EXPECT_EQ(settled(*pool), "");
}

TEST(PmwcasBlocks, FailureGivesThemBack) {
  const auto pool = words_of({0, 5}, 1);
  const Offset old = pool->value(0);
  Offset block = 0;
  {
    Descriptor operation = pool->words().allocate();
    block = pool->new_block();
    *operation.reserve_entry(pool->word(0), old, Policy::free_one) = block;
    EXPECT_TRUE(operation.add_word(pool->word(1), 6, 7));
    EXPECT_EQ(operation.execute(), Answer::failed);
  }
  EXPECT_EQ(pool->value(0), old);
  EXPECT_EQ(pool->heap().allocated_bytes(block), 0U);
  EXPECT_EQ(pool->new_block(), block);
  EXPECT_EQ(settled(*pool), "");
}

TEST(PmwcasBlocks, TheCallbackIsAskedInstead) {
  const auto pool = words_of({0, 5}, 1);
  std::map<Offset, bool> told;
  const auto tell = [&told](Offset block, bool freed) { told.emplace(block, freed); };
  const Offset old = pool->value(0);
  const Offset first = pool->new_block();
  {
    Descriptor discarded = pool->words().allocate(tell);
    EXPECT_TRUE(discarded.allocates(first));
  }
  EXPECT_EQ(told, (std::map<Offset, bool>{{first, false}}));
  const auto replace = [&](Word wanted) {
    told.clear();
    Descriptor operation = pool->words().allocate(tell);
    *operation.reserve_entry(pool->word(0), old, Policy::free_one) = first;
    EXPECT_TRUE(operation.add_word(pool->word(1), wanted, 7));
    const Answer answer = operation.execute();
    pool->words().settle();
    return answer;
  };
  EXPECT_EQ(replace(6), Answer::failed);
  EXPECT_EQ(told, (std::map<Offset, bool>{{first, false}}));
  EXPECT_EQ(replace(5), Answer::succeeded);
  EXPECT_EQ(told, (std::map<Offset, bool>{{old, true}}));
  EXPECT_EQ(settled(*pool), "");
}

TEST(PmwcasBlocks, EightAndEachOnce) {
  const auto pool = words_of({0});
  Descriptor operation = pool->words().allocate();
  std::vector<Offset> blocks;
  for (std::size_t i = 0; i < kMaxBlocks; ++i) {
    blocks.push_back(pool->new_block());
    EXPECT_TRUE(operation.allocates(blocks.back()));
    EXPECT_FALSE(operation.allocates(blocks.back()));
    EXPECT_FALSE(operation.frees(blocks.back()));
  }
  const Offset ninth = pool->new_block();
  EXPECT_FALSE(operation.allocates(ninth));
  EXPECT_TRUE(operation.add_word(pool->word(0), 0, 1));
  EXPECT_EQ(operation.execute(), Answer::succeeded);
  for (const Offset block : blocks) EXPECT_NE(pool->heap().allocated_bytes(block), 0U);
  Descriptor back = pool->words().allocate();
  for (const Offset block : blocks) EXPECT_TRUE(back.frees(block));
  EXPECT_TRUE(back.add_word(pool->word(0), 1, 2));
  EXPECT_EQ(back.execute(), Answer::succeeded);
  EXPECT_EQ(settled(*pool), "");
}

// A mistake of the caller gives nothing back twice: two who reserve next have two blocks.
TEST(PmwcasBlocks, NamedTwiceAndGivenBackOnce) {
  const auto pool = words_of({0, 0}, 3);
  const Offset old = pool->value(0);
  const Offset other = pool->value(1);
  const auto entries = [&](Descriptor& operation, Offset block) {
    *operation.reserve_entry(pool->word(0), old, Policy::free_one) = block;
    *operation.reserve_entry(pool->word(1), other, Policy::free_one) = block;
  };
  const auto twice = [&](Descriptor& operation, Offset block) {
    EXPECT_TRUE(operation.allocates(block));
    *operation.reserve_entry(pool->word(0), old, Policy::free_one) = block;
  };
  using Naming = std::function<void(Descriptor&, Offset)>;
  for (const Naming& named : {Naming(entries), Naming(twice)}) {
    for (const bool executed : {false, true}) {
      const Offset block = pool->new_block();
      {
        Descriptor operation = pool->words().allocate();
        named(operation, block);
        if (executed) {
          EXPECT_EQ(operation.execute(), Answer::corrupt);
        }
      }
      const Offset first = pool->new_block();
      const Offset second = pool->new_block();
      EXPECT_TRUE(first == block || second == block) << "it is lost";
      EXPECT_NE(first, second) << "it has two owners";
      pool->heap().recycle(first);
      pool->heap().recycle(second);
    }
  }
  EXPECT_EQ(pool->value(0), old);
  EXPECT_EQ(settled(*pool), "");
}

// To allocate what is in use already would free it when the operation fails.
TEST(PmwcasBlocks, InUseAlready) {
  const auto pool = words_of({0, 0, 5}, 3);
  const Offset used = pool->value(1);
  {
    Descriptor operation = pool->words().allocate();
    EXPECT_FALSE(operation.allocates(used));
    *operation.reserve_entry(pool->word(0), pool->value(0), Policy::free_one) = used;
    EXPECT_TRUE(operation.add_word(pool->word(2), 5, 6));
    EXPECT_EQ(operation.execute(), Answer::corrupt);
  }
  {
    Descriptor discarded = pool->words().allocate();
    *discarded.reserve_entry(pool->word(0), pool->value(0), Policy::free_one) = used;
  }
  {
    // The value that is there: neither freed nor allocated.
    Descriptor same = pool->words().allocate();
    *same.reserve_entry(pool->word(1), used, Policy::free_one) = used;
    EXPECT_EQ(same.execute(), Answer::corrupt);
  }
  EXPECT_NE(pool->heap().allocated_bytes(used), 0U);
  EXPECT_NE(pool->new_block(), used);
  EXPECT_EQ(pool->value(2), 5U);
  EXPECT_EQ(settled(*pool), "");
}

// Who comes second finds the block free already, and is not told that the pool is damaged.
TEST(PmwcasBlocks, FreedBySomebodyElse) {
  const auto pool = words_of({0, 5}, 1);
  const alloc::Grace::Pin pin(pool->grace());
  const Offset old = pool->value(0);
  Descriptor second = pool->words().allocate();
  *second.reserve_entry(pool->word(0), old, Policy::free_one) = pool->new_block();
  EXPECT_EQ(new_block(*pool, 0), Answer::succeeded);
  EXPECT_EQ(second.execute(), Answer::failed);
  // There is no such block, and the words say nothing else.
  Descriptor odd = pool->words().allocate();
  EXPECT_TRUE(odd.frees(pool->table() + 16));
  EXPECT_TRUE(odd.add_word(pool->word(1), 5, 6));
  EXPECT_EQ(odd.execute(), Answer::corrupt);
  EXPECT_EQ(pool->value(1), 5U);
  EXPECT_EQ(settled(*pool), "");
}

TEST(PmwcasBlocks, AreUsedAgain) {
  const auto pool = words_of({0, 0, 0, 0, 0}, 31);
  for (std::size_t i = 0; i < 300; ++i) ASSERT_EQ(new_block(*pool, i % 5), Answer::succeeded);
  const std::uint64_t bytes = pool->medium().size();
  // More than fits into it.
  for (std::size_t i = 0; i < bytes / pmem::kLine * 2; ++i) {
    ASSERT_EQ(new_block(*pool, i % 5), Answer::succeeded);
  }
  EXPECT_EQ(pool->medium().size(), bytes);
  EXPECT_EQ(settled(*pool), "");
}

TEST(PmwcasBlocks, AFullPoolSaysSo) {
  const auto pool = words_of({0, 0});
  ASSERT_EQ(change(*pool, {{0, 0, 1}, {1, 0, 1}}), Answer::succeeded);
  const Offset block = pool->new_block();
  pool->heap().fail_after(0);
  // Another thread has no lane yet; this one needs no more space.
  std::thread([&pool, block] {
    EXPECT_FALSE(pool->words().allocate().ok());
    EXPECT_EQ(change(*pool, {{0, 1, 5}}), Answer::out_of_space);
    std::map<Offset, bool> told;
    Descriptor operation =
        pool->words().allocate([&told](Offset at, bool freed) { told.emplace(at, freed); });
    EXPECT_TRUE(operation.allocates(block));
    EXPECT_TRUE(operation.add_word(pool->word(0), 1, 5));
    EXPECT_EQ(operation.execute(), Answer::out_of_space);
    EXPECT_EQ(told, (std::map<Offset, bool>{{block, false}}));
  }).join();
  EXPECT_EQ(change(*pool, {{0, 1, 2}, {1, 1, 2}}), Answer::succeeded);
  pool->heap().fail_after(~std::uint64_t{0});
  std::thread([&pool] {
    EXPECT_EQ(change(*pool, {{0, 2, 3}, {1, 2, 3}}), Answer::succeeded);
  }).join();
  EXPECT_EQ(settled(*pool), "");
}

}  // namespace
}  // namespace everleaf::pmwcas
