// Private copies of a file's pages, many threads on the same ones: what a thread flushed and fenced
// is in the file, whoever else writes the page there.
#include <array>
#include <atomic>
#include <csignal>
#include <cstring>
#include <latch>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "pmem/file.hpp"
#include "pmem/medium.hpp"
#include "support.hpp"

namespace everleaf::test {
namespace {

constexpr std::uint64_t kPage = pmem::WriteBack::kPage;
constexpr std::uint64_t kPages = 96;
constexpr std::uint64_t kBytes = kPages * kPage;

// A file of zeros on a disk, the first `copied` bytes of it copies.
class Mapped {
 public:
  explicit Mapped(std::uint64_t copied, std::uint64_t bytes = kBytes) {
    write_bytes(path(), std::vector<std::byte>(bytes));
    file_ = pmem::Descriptor::open(path(), O_RDWR).value();
    mapping_ = pmem::Mapping::shared(file_, bytes, false).value();
    auto write_back = std::make_unique<pmem::WriteBack>(file_, mapping_.base(), bytes,
                                                        pmem::WriteBack::kNoBudget);
    EXPECT_TRUE(copied == 0 || mapping_.copy(file_, 0, copied));
    EXPECT_TRUE(write_back->extend(write_back->copies(), copied));
    medium_.emplace(mapping_.base(), bytes, Domain::disk, nullptr, std::move(write_back));
  }
  [[nodiscard]] std::filesystem::path path() const { return scratch_ / "file"; }
  pmem::Medium& medium() { return *medium_; }
  [[nodiscard]] pmem::Word in_file(pmem::Offset at) const {
    pmem::Word word = 0;
    EXPECT_EQ(::pread(file_.get(), &word, sizeof word, static_cast<off_t>(at)), 8);
    return word;
  }
  [[nodiscard]] std::vector<std::byte> bytes() const {
    return {mapping_.base(), mapping_.base() + mapping_.bytes()};
  }

 private:
  Scratch scratch_;
  pmem::Descriptor file_;
  pmem::Mapping mapping_;
  std::optional<pmem::Medium> medium_;
};

TEST(WriteBack, HasInTheFileWhatWasFenced) {
  Mapped mapped(kBytes);
  pmem::Medium& medium = mapped.medium();
  constexpr unsigned kThreads = 4;
  std::latch start(kThreads);
  const auto work = [&](unsigned thread) {
    Random random(thread);
    start.arrive_and_wait();
    for (std::uint64_t i = 1; i <= scaled(3000); ++i) {
      // Few pages at first: all threads in one line.
      const std::uint64_t page = random.below(i % 2 == 0 ? 2 : kPages);
      const pmem::Offset at = page * kPage + thread * sizeof(pmem::Word);
      medium.store(medium.at<pmem::Word>(at), i);
      // And by plain stores, as records are written.
      const pmem::Offset record = at / pmem::kLine * pmem::kLine + (2 + thread) * pmem::kLine;
      std::memset(medium.at(record), static_cast<int>(i % 256), pmem::kLine);
      medium.flush(medium.at(record), pmem::kLine);
      const bool wide = random.one_in(8);
      medium.flush(medium.at(at), sizeof(pmem::Word));
      if (wide) medium.flush(medium.at(0), kBytes);
      ASSERT_TRUE(medium.fence());
      ASSERT_EQ(mapped.in_file(at), i) << "page " << page;
    }
  };
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < kThreads; ++t) threads.emplace_back(work, t);
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(read_bytes(mapped.path()), mapped.bytes());
}

// W3: whatever the kernel copies while words are stored, it copies them whole.
TEST(WriteBack, WordsArriveWhole) {
  Mapped mapped(kPage);
  pmem::Medium& medium = mapped.medium();
  std::atomic<bool> ended = false;
  std::thread writer([&] {
    for (unsigned byte = 0; !ended; byte = (byte + 1) % 256) {
      for (pmem::Offset at = 0; at < kPage; at += sizeof(pmem::Word)) {
        medium.store(medium.at<pmem::Word>(at), byte * 0x0101'0101'0101'0101U);
      }
    }
  });
  std::array<pmem::Word, kPage / sizeof(pmem::Word)> found{};
  const int file = ::open(mapped.path().c_str(), O_RDONLY);
  std::set<pmem::Word> values;
  for (std::uint64_t i = 0; i < scaled(20'000); ++i) {
    medium.write_back()->note(kMaxThreads, 0, kPage);  // without a slot: written at once
    ASSERT_EQ(::pread(file, found.data(), kPage, 0), static_cast<ssize_t>(kPage));
    for (const pmem::Word word : found) {
      ASSERT_EQ(word, word % 256 * 0x0101'0101'0101'0101U);
      values.insert(word);
    }
  }
  ended = true;
  writer.join();
  ::close(file);
  EXPECT_GT(values.size(), 1U);
}

// More pages than a thread notes, some of them again and again.
TEST(WriteBack, WritesMoreThanItNotes) {
  constexpr std::uint64_t kMany = 30'000;
  Mapped mapped(kMany * kPage, kMany * kPage);
  pmem::Medium& medium = mapped.medium();
  for (std::uint64_t i = 0; i < kMany; ++i) {
    for (const std::uint64_t page : {i, i % 7, i * 7919 % kMany}) {
      const pmem::Offset at = page * kPage + 8 * (i % 512);
      medium.store(medium.at<pmem::Word>(at), i + 1);
      medium.flush(medium.at(at), sizeof(pmem::Word));
    }
  }
  ASSERT_TRUE(medium.fence());
  EXPECT_TRUE(read_bytes(mapped.path()) == mapped.bytes());
}

// Threads without a slot have nothing of their own to note pages in.
TEST(WriteBack, WritesForThreadsWithoutASlot) {
  Mapped mapped(kBytes / 2);
  pmem::Medium& medium = mapped.medium();
  pmem::WriteBack& write_back = *medium.write_back();
  std::atomic<bool> failed = false;
  const auto work = [&](unsigned thread) {
    Random random(thread);
    for (std::uint64_t i = 1; i <= scaled(1000); ++i) {
      const pmem::Offset at = random.below(kPages) * kPage + thread * pmem::kLine;
      medium.store(medium.at<pmem::Word>(at), i);
      write_back.note(kMaxThreads, at, at + pmem::kLine);
      ASSERT_TRUE(write_back.fence(kMaxThreads, failed));
      ASSERT_EQ(mapped.in_file(at), i);
    }
  };
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 3; ++t) threads.emplace_back(work, t);
  for (auto& thread : threads) thread.join();
  EXPECT_TRUE(read_bytes(mapped.path()) == mapped.bytes());
}

// A thread that has no slot when it flushes may have one when it fences.
TEST(WriteBack, SyncsWhatWasFlushedWithoutASlot) {
  Mapped mapped(kPage);
  pmem::Medium& medium = mapped.medium();
  std::atomic<bool> failed = false;
  medium.write_back()->note(kMaxThreads, kPage, kPage + 8);
  EXPECT_TRUE(medium.fence());
  const auto seen = medium.write_back()->fence(0, failed);
  EXPECT_TRUE(seen);
  failed = true;  // what a sync by the common file was told
  EXPECT_FALSE(medium.write_back()->fence(0, failed));
}

// --- W4: of a shared mapping ---------------------------------------------------------------------

std::atomic<bool> faulted = false;
std::byte* guarded = nullptr;

void on_fault(int) {
  faulted = true;
  (void)::mprotect(guarded, kPage, PROT_READ | PROT_WRITE);
}

// A page whose write-back failed passes for clean: the kernel would have its next store fault. What
// another thread was told of may be of a page that this one stored to before.
TEST(WriteBack, WhatIsFlushedIsStoredToOnceMore) {
  Mapped mapped(kPage);
  pmem::Medium& medium = mapped.medium();
  struct sigaction action {};
  struct sigaction before {};
  action.sa_handler = on_fault;
  ASSERT_EQ(::sigaction(SIGSEGV, &action, &before), 0);
  struct Flush {
    pmem::Offset at;
    std::uint64_t bytes;
    pmem::Offset page;
  };
  for (int round = 0; round < 2; ++round) {  // also after a fence
    for (const Flush flush : {Flush{kPage + 128, 8, kPage}, Flush{3 * kPage + 4088, 8, 3 * kPage},
                              // From the copies on, and to a word of the last page.
                              Flush{64, 3 * kPage, kPage}, Flush{64, 3 * kPage, 2 * kPage},
                              Flush{64, 3 * kPage, 3 * kPage}}) {
      medium.store(medium.at<pmem::Word>(flush.at), 5);
      guarded = medium.at(flush.page);
      ASSERT_EQ(::mprotect(guarded, kPage, PROT_READ), 0);
      faulted = false;
      medium.flush(medium.at(flush.at), flush.bytes);
      EXPECT_TRUE(faulted) << flush.at << ", " << flush.page;
      EXPECT_EQ(pmem::load(medium.at<pmem::Word>(flush.at)), 5U);
    }
    EXPECT_TRUE(medium.fence());
  }
  ASSERT_EQ(::sigaction(SIGSEGV, &before, nullptr), 0);
}

// --- How much is copied --------------------------------------------------------------------------

// All objects of a process share what they may take, unless they were given a size.
TEST(WriteBack, HasABudget) {
  constexpr std::uint64_t kBudget = 10 * kPage;
  const pmem::Descriptor none;
  const auto make = [&](std::uint64_t budget) {
    return std::make_unique<pmem::WriteBack>(none, nullptr, kBytes, budget);
  };
  auto one = make(kBudget);
  const auto other = make(kBudget);
  EXPECT_TRUE(one->take(6 * kPage));
  EXPECT_FALSE(other->take(6 * kPage));
  EXPECT_TRUE(make(pmem::WriteBack::kNoBudget)->take(kBytes));
  one->give_back(2 * kPage);
  EXPECT_TRUE(other->take(6 * kPage));
  EXPECT_FALSE(other->take(kPage));
  one.reset();
  EXPECT_TRUE(other->take(4 * kPage));
}

TEST(WriteBack, CopiesEndOnce) {
  const pmem::Descriptor none;
  pmem::WriteBack write_back(none, nullptr, kBytes + 100, pmem::WriteBack::kNoBudget);
  EXPECT_EQ(write_back.most(), kBytes);
  const auto first = write_back.copies();
  EXPECT_TRUE(write_back.extend(first, 2 * kPage));
  EXPECT_FALSE(write_back.extend(first, 3 * kPage));
  EXPECT_FALSE(write_back.close(first));
  const auto second = write_back.copies();
  EXPECT_EQ(second.bytes, 2 * kPage);
  EXPECT_FALSE(second.closed);
  EXPECT_TRUE(write_back.close(second));
  EXPECT_FALSE(write_back.extend(second, 3 * kPage));
  EXPECT_EQ(write_back.copies().bytes, 2 * kPage);
  EXPECT_TRUE(write_back.copies().closed);
}

}  // namespace
}  // namespace everleaf::test
