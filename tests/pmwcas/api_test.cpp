// The calls of a descriptor, one thread.
#include <gtest/gtest.h>

#include "words.hpp"

namespace everleaf::pmwcas {
namespace {

using Values = std::vector<Word>;

TEST(PmwcasApi, RefusesWhatItCannotDo) {
  const auto pool = words_of(Values(kMaxWords + 1, 5));
  Descriptor operation = pool->words().allocate();
  EXPECT_TRUE(operation.add_word(pool->word(0), 5, 6));
  EXPECT_FALSE(operation.add_word(pool->word(0), 5, 7));
  EXPECT_EQ(operation.reserve_entry(pool->word(0), 5, Policy::none), nullptr);
  EXPECT_FALSE(operation.add_word(nullptr, 5, 7));
  EXPECT_FALSE(operation.add_word(pool->word(1), kControl, 7));
  EXPECT_FALSE(operation.add_word(pool->word(1), 5, kControl | 7));
  EXPECT_EQ(operation.reserve_entry(pool->word(1), kControl, Policy::none), nullptr);
  EXPECT_FALSE(operation.remove_word(pool->word(1)));
  EXPECT_FALSE(operation.remove_word(nullptr));
  for (std::size_t i = 1; i < kMaxWords; ++i) {
    EXPECT_TRUE(operation.add_word(pool->word(i), 5, 6));
  }
  EXPECT_FALSE(operation.add_word(pool->word(kMaxWords), 5, 6));
  EXPECT_TRUE(operation.remove_word(pool->word(3)));
  EXPECT_FALSE(operation.remove_word(pool->word(3)));
  EXPECT_TRUE(operation.add_word(pool->word(kMaxWords), 5, 6));
  EXPECT_EQ(operation.execute(), Answer::succeeded);
  EXPECT_EQ(pool->values(), (Values{6, 6, 6, 5, 6, 6, 6}));
}

TEST(PmwcasApi, ReservedEntriesStayWhereTheyAre) {
  const auto pool = words_of({1, 2, 3});
  Descriptor operation = pool->words().allocate();
  Word* const first = operation.reserve_entry(pool->word(0), 1, Policy::none);
  Word* const second = operation.reserve_entry(pool->word(1), 2, Policy::none);
  ASSERT_TRUE(first != nullptr && second != nullptr);
  EXPECT_TRUE(operation.remove_word(pool->word(0)));
  EXPECT_TRUE(operation.add_word(pool->word(2), 3, 33));
  *second = 22;
  EXPECT_EQ(operation.execute(), Answer::succeeded);
  EXPECT_EQ(pool->values(), (Values{1, 22, 33}));
}

TEST(PmwcasApi, AReservedEntryDoesNotTakeTheControlBit) {
  const auto pool = words_of({1});
  for (const Policy policy : {Policy::none, Policy::free_one}) {
    Descriptor operation = pool->words().allocate();
    *operation.reserve_entry(pool->word(0), 1, policy) = kControl | 1;
    EXPECT_EQ(operation.execute(), Answer::corrupt);
    EXPECT_EQ(pool->value(0), 1U);
  }
  EXPECT_EQ(settled(*pool), "");
}

// Any word of six can be the one that is not as expected; then none changes.
TEST(PmwcasApi, AllOrNothing) {
  const auto pool = words_of(Values(kMaxWords, 1));
  for (std::size_t odd = 0; odd < kMaxWords; ++odd) {
    Descriptor operation = pool->words().allocate();
    for (std::size_t i = kMaxWords; i-- != 0;) {
      EXPECT_TRUE(operation.add_word(pool->word(i), i == odd ? 2 : 1, 3));
    }
    EXPECT_EQ(operation.execute(), Answer::failed);
    EXPECT_EQ(pool->values(), Values(kMaxWords, 1));
  }
  EXPECT_EQ(change(*pool, {{4, 1, 8}, {0, 1, 9}}), Answer::succeeded);
  EXPECT_EQ(pool->values(), (Values{9, 1, 1, 1, 8, 1}));
  EXPECT_EQ(change(*pool, {{0, 9, 9}}), Answer::succeeded);
  EXPECT_EQ(pool->words().statistics().executed, kMaxWords + 2);
  EXPECT_EQ(pool->words().statistics().failed, kMaxWords);
  EXPECT_EQ(settled(*pool), "");
}

TEST(PmwcasApi, WithoutAWordNothingHappens) {
  const auto pool = words_of({1});
  const Offset block = pool->new_block();
  Descriptor operation = pool->words().allocate();
  EXPECT_TRUE(operation.allocates(block));
  EXPECT_EQ(operation.execute(), Answer::failed);
  EXPECT_EQ(pool->new_block(), block);
}

// A word keeps its reference until later fences; who reads it does not see that.
TEST(PmwcasApi, ValuesHaveNoControlBit) {
  const auto pool = words_of({1, 1});
  bool referenced = false;
  for (Word i = 1; i < 20; ++i) {
    ASSERT_EQ(change(*pool, {{0, i, i + 1}, {1, i, i + 1}}), Answer::succeeded);
    referenced = referenced || (pmem::load(pool->word(0)) & kControl) != 0;
    EXPECT_EQ(pool->values(), (Values{i + 1, i + 1}));
    EXPECT_EQ(change(*pool, {{0, i + 1, 7}, {1, i, 7}}), Answer::failed);
    EXPECT_EQ(pool->values(), (Values{i + 1, i + 1}));
  }
  EXPECT_TRUE(referenced);
  pool->words().settle();
  EXPECT_EQ(pmem::load(pool->word(0)), 20U);
}

// Where fences cost nothing the words are rid of references at once.
TEST(PmwcasApi, WithoutFencesEverythingIsDoneAtOnce) {
  for (const Domain domain : {Domain::volatile_, Domain::process, Domain::cache}) {
    const auto pool = words_of({1, 1}, 0, domain);
    EXPECT_EQ(change(*pool, {{0, 1, 2}, {1, 1, 3}}), Answer::succeeded);
    EXPECT_EQ(pool->problem(), "");
    EXPECT_EQ(change(*pool, {{0, 1, 2}, {1, 3, 4}}), Answer::failed);
    EXPECT_EQ(pool->problem(), "");
  }
}

TEST(PmwcasApi, FourDescriptorsServeAnyNumber) {
  const auto pool = words_of(Values(kMaxWords, 0));
  for (Word i = 0; i < 5000; ++i) {
    const std::size_t a = i % kMaxWords;
    const std::size_t b = (i + 1 + i % 3) % kMaxWords;
    const auto durability = i % 5 == 0 ? Durability::later : Durability::at_return;
    ASSERT_EQ(change(*pool, {{a, pool->value(a), i}, {b, pool->value(b), i + 1}}, durability),
              Answer::succeeded);
    ASSERT_EQ(pool->value(a), i);
    ASSERT_EQ(pool->value(b), i + 1);
  }
  EXPECT_EQ(settled(*pool), "");
}

// Prepared descriptors take none of the four.
TEST(PmwcasApi, ManyAreInTheMaking) {
  const auto pool = words_of(Values(12, 0));
  std::vector<std::unique_ptr<Descriptor>> all;
  for (std::size_t i = 0; i < 12; ++i) {
    all.emplace_back(new Descriptor(pool->words().allocate()));
    EXPECT_TRUE(all.back()->add_word(pool->word(i), 0, i + 1));
    EXPECT_TRUE(all.back()->add_word(pool->word((i + 1) % 12), 0, i + 1));
  }
  for (std::size_t i = 12; i-- != 0;) {
    EXPECT_EQ(all[i]->execute(), i % 2 == 1 ? Answer::succeeded : Answer::failed) << i;
  }
  all.clear();
  EXPECT_EQ(settled(*pool), "");
}

std::uint64_t fences_of(WordsPool& pool, unsigned operations, Durability durability) {
  const auto before = pool.medium().counters().fences;
  for (unsigned i = 0; i < operations; ++i) {
    const Word now = pool.value(0);
    EXPECT_EQ(change(pool, {{0, now, now + 1}, {1, now, now + 1}}, durability), Answer::succeeded);
  }
  return pool.medium().counters().fences - before;
}

TEST(PmwcasApi, TwoFencesEach) {
  const auto pool = words_of({0, 0, 0}, 4);
  (void)fences_of(*pool, 10, Durability::at_return);
  EXPECT_EQ(fences_of(*pool, 100, Durability::at_return), 200U);
  const auto later = fences_of(*pool, 100, Durability::later);
  EXPECT_GE(later, 100U);
  EXPECT_LT(later, 200U);
  const auto before = pool->medium().counters().fences;
  for (int i = 0; i < 20; ++i) EXPECT_EQ(new_block(*pool, 2), Answer::succeeded);
  EXPECT_EQ(pool->medium().counters().fences - before, 60U);
}

// One swap each; what nobody takes along settle() makes durable.
TEST(PmwcasApi, SingleWordsThatAreDurableLater) {
  const auto pool = words_of({0, 0, 0}, 4);
  (void)fences_of(*pool, 10, Durability::at_return);
  EXPECT_EQ(settled(*pool), "");
  const auto counted = [&pool] { return pool->medium().counters(); };
  const auto before = counted();
  for (Word now = 10; now < 100; ++now) {
    ASSERT_EQ(change(*pool, {{0, now, now + 1}}, Durability::later), Answer::succeeded) << now;
  }
  EXPECT_EQ(change(*pool, {{0, 7, 8}}, Durability::later), Answer::failed);
  EXPECT_EQ(counted().fences, before.fences);
  EXPECT_EQ(counted().flushes, before.flushes);
  EXPECT_EQ(pool->value(0), 100U);
  EXPECT_EQ(settled(*pool), "");
  EXPECT_EQ(counted().fences, before.fences + 1);
  EXPECT_EQ(counted().flushes, before.flushes + 1);
}

// More of them than a lane remembers: the others are durable before.
TEST(PmwcasApi, ManySingleWordsThatAreDurableLater) {
  constexpr std::size_t kMany = 40;
  const auto pool = words_of(std::vector<Word>(kMany, 0));
  ASSERT_EQ(change(*pool, {{0, 0, 1}, {1, 0, 1}}), Answer::succeeded);
  EXPECT_EQ(settled(*pool), "");
  const auto before = pool->medium().counters().fences;
  for (std::size_t i = 2; i < kMany; ++i) {
    ASSERT_EQ(change(*pool, {{i, 0, 1}}, Durability::later), Answer::succeeded) << i;
  }
  EXPECT_EQ(pool->medium().counters().fences - before, (kMany - 2) / 16);
  EXPECT_EQ(settled(*pool), "");
  EXPECT_EQ(pool->medium().counters().fences - before, (kMany - 2) / 16 + 1);
}

}  // namespace
}  // namespace everleaf::pmwcas
