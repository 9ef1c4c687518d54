// Private copies of a file's pages, many threads on the same ones: what a thread flushed and fenced
// is in the file, whoever wrote the page there.
#include <cstring>
#include <latch>
#include <thread>

#include <fcntl.h>
#include <unistd.h>

#include "pmem/file.hpp"
#include "pmem/medium.hpp"
#include "support.hpp"

namespace everleaf::test {
namespace {

constexpr std::uint64_t kPages = 96;  // more than a word has marks
constexpr std::uint64_t kBytes = kPages * pmem::WriteBack::kPage;

TEST(WriteBack, HasInTheFileWhatWasFenced) {
  const Scratch scratch;
  write_bytes(scratch / "file", std::vector<std::byte>(kBytes));
  const auto file = pmem::Descriptor::open(scratch / "file", O_RDWR).value();
  auto mapping = pmem::Mapping::shared(file, kBytes, false).value();
  ASSERT_TRUE(mapping.copy(file, 0, kBytes));
  auto write_back = std::make_unique<pmem::WriteBack>(file.get(), mapping.base(), kBytes,
                                                      pmem::WriteBack::kNoBudget);
  write_back->extend(kBytes);
  pmem::Medium medium(mapping.base(), kBytes, Domain::disk, nullptr, std::move(write_back));
  constexpr unsigned kThreads = 4;
  std::latch start(kThreads);
  const auto work = [&](unsigned thread) {
    Random random(thread);
    start.arrive_and_wait();
    for (std::uint64_t i = 1; i <= scaled(3000); ++i) {
      // Few pages at first: all threads in one line.
      const std::uint64_t page = random.below(i % 2 == 0 ? 2 : kPages);
      const pmem::Offset at = page * pmem::WriteBack::kPage + thread * sizeof(pmem::Word);
      medium.store(medium.at<pmem::Word>(at), i);
      // And by plain stores, as records are written.
      const pmem::Offset record = at / pmem::kLine * pmem::kLine + (2 + thread) * pmem::kLine;
      std::memset(medium.at(record), static_cast<int>(i % 256), pmem::kLine);
      medium.flush(medium.at(record), pmem::kLine);
      const bool wide = random.one_in(8);
      medium.flush(medium.at(at), sizeof(pmem::Word));
      if (wide) medium.flush(medium.at(0), kBytes);
      ASSERT_TRUE(medium.fence());
      pmem::Word found = 0;
      ASSERT_EQ(::pread(file.get(), &found, sizeof found, static_cast<off_t>(at)), 8);
      ASSERT_EQ(found, i) << "page " << page;
    }
  };
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < kThreads; ++t) threads.emplace_back(work, t);
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(read_bytes(scratch / "file"),
            std::vector<std::byte>(mapping.base(), mapping.base() + kBytes));
}

// All objects of a process share what they may take, unless they were given a size.
TEST(WriteBack, HasABudget) {
  constexpr std::uint64_t kBudget = 10 * pmem::WriteBack::kPage;
  const auto make = [](std::uint64_t budget) {
    return std::make_unique<pmem::WriteBack>(-1, nullptr, kBytes, budget);
  };
  auto one = make(kBudget);
  const auto other = make(kBudget);
  EXPECT_TRUE(one->take(6 * pmem::WriteBack::kPage));
  EXPECT_FALSE(other->take(6 * pmem::WriteBack::kPage));
  EXPECT_TRUE(make(pmem::WriteBack::kNoBudget)->take(kBytes));
  one.reset();
  EXPECT_TRUE(other->take(6 * pmem::WriteBack::kPage));
}

}  // namespace
}  // namespace everleaf::test
