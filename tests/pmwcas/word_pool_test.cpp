// The pool of words by itself: what it refuses, and that others refuse it.
#include "words/word_pool.hpp"

#include <everleaf/index.hpp>

#include <gtest/gtest.h>

#include "words.hpp"

namespace everleaf::pmwcas {
namespace {

Code refusal(const std::filesystem::path& path, std::size_t count, const PoolOptions& options) {
  const auto pool = WordPool::open(path, count, options);
  return pool ? Code::exists : pool.error().code;
}

TEST(WordPool, KeepsItsWords) {
  const test::Scratch scratch;
  const auto path = scratch / "words";
  const PoolOptions options = options_in(Domain::process);
  {
    auto pool = WordPool::open(path, 1000, options).value();
    EXPECT_EQ(pool->count(), 1000U);
    const alloc::Grace::Pin pin(pool->grace());
    Descriptor ends = pool->words().allocate();
    ASSERT_TRUE(ends.ok());
    ASSERT_TRUE(ends.add_word(pool->word(0), 0, 5));
    ASSERT_TRUE(ends.add_word(pool->word(999), 0, 7));
    EXPECT_EQ(ends.execute(), Answer::succeeded);
    EXPECT_EQ(refusal(path, 1000, options), Code::locked_here);
  }
  auto pool = WordPool::open(path, 1000, options).value();
  EXPECT_EQ(pool->value(0), 5U);
  EXPECT_EQ(pool->value(500), 0U);
  EXPECT_EQ(pool->value(999), 7U);
}

TEST(WordPool, RefusesWhatItIsNot) {
  const test::Scratch scratch;
  const auto path = scratch / "words";
  PoolOptions options = options_in(Domain::process);
  EXPECT_EQ(refusal(path, 0, options), Code::bad_argument);
  EXPECT_EQ(refusal(path, kMostPoolWords + 1, options), Code::bad_argument);
  EXPECT_FALSE(std::filesystem::exists(path));
  ASSERT_TRUE(WordPool::open(path, 3, options));
  EXPECT_EQ(refusal(path, 4, options), Code::wrong_tree);
  // A program that knows trees only.
  {
    auto pool = Pool::open(path, options);
    ASSERT_TRUE(pool);
    EXPECT_EQ(pool->index<std::uint64_t>("words").error().code, Code::newer_version);
  }
  const auto indexes = scratch / "indexes";
  {
    auto pool = Pool::open(indexes, options);
    ASSERT_TRUE(pool);
    ASSERT_TRUE(pool->index<std::uint64_t>("numbers"));
  }
  EXPECT_EQ(refusal(indexes, 3, options), Code::wrong_tree);
  options.mode = Mode::read_only;
  EXPECT_EQ(refusal(path, 3, options), Code::bad_argument);
  options.mode = Mode::open_or_create;
  EXPECT_TRUE(WordPool::open(path, 3, options));  // as it was
}

}  // namespace
}  // namespace everleaf::pmwcas
