// Write-back without the kernel's: the first bytes of a pool are a private copy of the file's
// pages, and pages of which something was flushed are written to the file. A shared mapping costs a
// page fault at the first store to each page after every msync, and msync an interrupt of the
// storing core for each page.
//
// Thread safety: note(), write() and sync() from any thread; take() and extend() by one at a time.
// Invariants
//   W1. A page that was noted and not written is marked. Who takes the mark away copies the page
//       afterwards, so it copies the stores of all who noted it before.
//   W2. Marks are taken, and pages copied and written, by one thread at a time: so no older copy
//       comes after a newer one, and who finds his mark gone finds the page written, or failed_.
//   W3. Words are copied whole. That the kernel does so, too, when it copies aligned words into a
//       page that another sync may be sending to the disk, is assumed (M2 of medium.hpp).
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/seam.hpp"

namespace everleaf::pmem {

class WriteBack {
 public:
  static constexpr std::uint64_t kPage = 4096;
  static constexpr std::uint64_t kNoBudget = ~std::uint64_t{0};

  // `base`: where the file is mapped; at most so many of its first bytes will be copies. `budget`:
  // of all such objects of the process. May throw bad_alloc.
  WriteBack(int file, const std::byte* base, std::uint64_t most, std::uint64_t budget);
  WriteBack(const WriteBack&) = delete;
  WriteBack& operator=(const WriteBack&) = delete;
  ~WriteBack();

  // The first bytes() are copies; what lies behind them is mapped in another way.
  [[nodiscard]] std::uint64_t bytes() const noexcept { return pages() * kPage; }
  [[nodiscard]] std::uint64_t most() const noexcept { return most_; }
  // Memory for more of them, which goes back with this object. False: the budget is spent.
  [[nodiscard]] bool take(std::uint64_t bytes) noexcept;
  // The first `bytes` are copies from now on.
  void extend(std::uint64_t bytes) noexcept;

  // [begin, end) is to be written; the caller's stores there are done.
  void note(std::uint64_t begin, std::uint64_t end) noexcept;
  // Writes the pages of [begin, end) that are marked. False: the file system refused, now or
  // before.
  [[nodiscard]] bool write(std::uint64_t begin, std::uint64_t end) noexcept;
  // All that was written is durable. False: it may not be.
  [[nodiscard]] bool sync() noexcept;

 private:
  static constexpr std::uint64_t kMostAtOnce = 16;  // pages of a system call
  static constexpr std::uint64_t kBits = 64;
  static constexpr std::uint64_t kWords = kPage / 8;

  [[nodiscard]] std::uint64_t pages() const noexcept {
    return pages_.load(std::memory_order_acquire);
  }
  [[nodiscard]] std::uint64_t end_page(std::uint64_t end) const noexcept;
  [[nodiscard]] bool write_marked(std::uint64_t from, std::uint64_t last) noexcept;
  [[nodiscard]] bool write_pages(std::uint64_t first, std::uint64_t end) noexcept;

  const int file_;
  const std::byte* const base_;
  const std::uint64_t most_;
  const std::uint64_t budget_;
  std::uint64_t taken_ = 0;
  std::atomic<std::uint64_t> pages_{0};
  std::unique_ptr<std::atomic<std::uint64_t>[]> marks_;  // a bit for each page
  base::Mutex mutex_;                                    // W2; guards the next two
  bool failed_ = false;
  std::array<std::uint64_t, kMostAtOnce * kWords> copy_;  // not on the stack of whoever fences
};

}  // namespace everleaf::pmem
