// What a crash leaves: the death of a process in every domain, images at every fence, write-backs
// that fail.
#include <algorithm>
#include <cerrno>
#include <functional>

#include <gtest/gtest.h>

#include "hooks.hpp"
#include "shadow.hpp"
#include "words.hpp"

namespace everleaf::pmwcas {
namespace {

using Values = std::vector<Word>;

WordsPool::File file_in(const std::filesystem::path& path, Domain domain,
                        pmem::Observer* observer = nullptr) {
  return pmem::PoolFile::open(path, options_in(domain), observer);
}

class PmwcasDomains : public ::testing::TestWithParam<Domain> {};

// The pool goes without settle_all(): what is stored stays, as when a process dies.
TEST_P(PmwcasDomains, EverythingAnsweredIsThere) {
  const test::Scratch scratch;
  const auto path = scratch / "pool";
  Values values{0, 1, 2};
  ASSERT_TRUE(WordsPool::create(file_in(path, GetParam()), values, 1));
  for (Word round = 1; round < 40; ++round) {
    auto pool = WordsPool::open(file_in(path, GetParam()));
    ASSERT_TRUE(pool) << pool.error().message;
    ASSERT_EQ((*pool)->problem(), "");
    if (round == 1) values[0] = (*pool)->value(0);
    ASSERT_EQ((*pool)->values(), values);
    for (Word i = 0; i < round % 7; ++i) {
      ASSERT_EQ(change(**pool, {{1, values[1], round}, {2, values[2], i}}), Answer::succeeded);
      values[1] = round;
      values[2] = i;
      ASSERT_EQ(change(**pool, {{1, values[1], 99}, {2, values[2] + 1, 99}}), Answer::failed);
      if (i % 3 == 0) {
        ASSERT_EQ(new_block(**pool, 0), Answer::succeeded);
      }
      values[0] = (*pool)->value(0);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Domains, PmwcasDomains,
                         ::testing::Values(Domain::process, Domain::cache, Domain::memory,
                                           Domain::disk),
                         [](const auto& one) { return std::string(to_string(one.param)); });

// The words are those before the pending operation or those after it.
std::string judge(const std::filesystem::path& path, const Values& before, const Values& after) {
  auto pool = WordsPool::open(file_in(path, Domain::process));
  if (!pool) return pool.error().message;
  if (std::string wrong = (*pool)->problem(); !wrong.empty()) return wrong;
  Values now = (*pool)->values();
  const auto same = [&now](const Values& other) {
    // Word 0 names a block, which is another one each time.
    return std::equal(now.begin() + 1, now.end(), other.begin() + 1);
  };
  if (!same(before) && !same(after)) return "neither before nor after";
  // It works on, with the descriptors that recovery gave back.
  for (Word i = 0; i < 6; ++i) {
    if (change(**pool, {{1, now[1], i}, {2, now[2], i}}) != Answer::succeeded) return "it fails";
    if (new_block(**pool, 0) != Answer::succeeded) return "a block fails";
    now[1] = now[2] = i;
  }
  if ((*pool)->values()[2] != 5) return "it is lost";
  return settled(**pool);
}

// One operation: word 1 and 2 get the same value, sometimes word 0 another block as well.
Answer step(WordsPool& pool, Word value) {
  const alloc::Grace::Pin pin(pool.grace());
  Descriptor operation = pool.words().allocate();
  const bool fails = value % 5 == 4;
  EXPECT_TRUE(operation.add_word(pool.word(2), pool.value(2), value));
  EXPECT_TRUE(operation.add_word(pool.word(1), pool.value(1) + (fails ? 1 : 0), value));
  if (value % 3 == 0) {
    const Offset block = pool.new_block();
    *operation.reserve_entry(pool.word(0), pool.value(0), Policy::free_one) = block;
  }
  const Answer answer = operation.execute();
  EXPECT_TRUE(answer == Answer::io_error || answer == (fails ? Answer::failed : Answer::succeeded));
  return answer;
}

TEST(PmwcasCrash, ImagesAtEveryFence) {
  const std::uint64_t seed = test::seed();
  test::Random random(seed);
  const test::Scratch scratch;
  const auto path = scratch / "pool";
  Values before{0, 1000, 1000};
  Values after = before;
  ASSERT_TRUE(WordsPool::create(file_in(path, Domain::process), before, 1));
  test::FileView view(scratch / "image");
  std::string wrong;
  std::uint64_t images = 0;
  test::Shadow* seen = nullptr;
  std::vector<std::byte> image;
  test::Shadow shadow(path, [&] {
    using Image = test::Shadow::Image;
    for (const auto kind : {Image::durable, Image::noted, Image::live, Image::lines, Image::words,
                            Image::words, Image::one, Image::all_but_one}) {
      if (!wrong.empty()) return;
      seen->make(kind, random, image);
      view.become(image);
      ++images;
      wrong = judge(scratch / "image", before, after);
      if (!wrong.empty()) wrong += " in image " + std::string(test::to_string(kind));
    }
  });
  seen = &shadow;
  auto pool = WordsPool::open(file_in(path, Domain::disk, &shadow));
  ASSERT_TRUE(pool);
  for (Word value = 1; value < test::scaled(60) && wrong.empty(); ++value) {
    if (value % 5 != 4) after = {0, value, value};
    (void)step(**pool, value);
    before = after;
  }
  EXPECT_EQ(wrong, "");
  EXPECT_GT(images, 100U);
}

// The n-th write-back fails; then any of the pages that were stored to reach the file.
TEST(PmwcasCrash, AfterAFailedWriteBackTheNextRecoveryDecides) {
  const std::uint64_t seed = test::seed();
  test::Random random(seed);
  const test::Scratch scratch;
  const auto path = scratch / "pool";
  const auto crashed = scratch / "crashed";
  bool ended = false;
  for (int good = 0; !ended; ++good) {
    std::filesystem::remove(path);
    const Values before{0, 1, 1};
    std::vector<std::byte> durable;
    Answer answer = Answer::succeeded;
    Values after = before;
    {
      PoolOptions mapped = options_in(Domain::disk);
      mapped.private_bytes = 0;  // what was stored may be in the file
      auto pool = WordsPool::create(pmem::PoolFile::open(path, mapped, nullptr), before, 1);
      ASSERT_TRUE(pool);
      (void)pool->words().allocate();
      durable = test::read_bytes(path);
      test::hooks.fdatasync = [good, &path, &durable](int) mutable -> test::Answer {
        if (good == 0) return EIO;
        --good;
        durable = test::read_bytes(path);
        return 0;
      };
      for (Word value = 3; value < 6 && answer != Answer::io_error; ++value) {
        answer = step(*pool, value);
        if (answer == Answer::succeeded) after = {0, value, value};
        if (answer == Answer::io_error) {
          // Nothing is answered otherwise any more, and readers see values.
          EXPECT_EQ(step(*pool, 8), Answer::io_error);
          for (const Word word : pool->values()) EXPECT_EQ(word & kControl, 0U);
        }
      }
      ended = answer != Answer::io_error;
      test::reset_hooks();
    }
    const auto live = test::read_bytes(path);
    Values then = after;
    for (Word value = 3; value < 6; ++value) {
      if (after[1] < value && value % 5 != 4) {
        then = {0, value, value};
        break;
      }
    }
    for (int image = 0; image < 8; ++image) {
      auto bytes = durable;
      for (std::size_t page = 0; page < bytes.size(); page += test::kPage) {
        if (image == 0 || !random.one_in(2)) continue;
        std::copy_n(live.begin() + static_cast<std::ptrdiff_t>(page), test::kPage,
                    bytes.begin() + static_cast<std::ptrdiff_t>(page));
      }
      test::write_bytes(crashed, image == 7 ? live : bytes);
      EXPECT_EQ(judge(crashed, after, then), "") << "after " << good << " write-backs";
    }
  }
}

}  // namespace
}  // namespace everleaf::pmwcas
