// Write-back without the kernel's: the first bytes of a pool are a private copy of the file's
// pages, and what was flushed is written to the file. A shared mapping costs a page fault at the
// first store to each page after every msync, and msync an interrupt of the storing core for each
// page.
//
// Thread safety: all methods from any thread.
// Invariants
//   W1. A page that was noted and not written is marked. Who takes the mark away copies the page
//       afterwards, so it copies the stores of all who noted it before.
//   W2. Marks are taken, and pages copied and written, by one thread at a time: so no older copy
//       comes after a newer one, and who finds his mark gone finds the page written, or failed_.
//   W3. Words are copied whole, so a crash leaves each as it was or as it is (M2 of medium.hpp).
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

  // `base`: where the first `bytes` of the file are mapped. May throw bad_alloc.
  WriteBack(int file, const std::byte* base, std::uint64_t bytes);

  // What lies behind them is mapped in another way.
  [[nodiscard]] std::uint64_t bytes() const noexcept { return pages_ * kPage; }

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

  [[nodiscard]] bool write_marked(std::uint64_t from, std::uint64_t last) noexcept;
  [[nodiscard]] bool write_pages(std::uint64_t first, std::uint64_t end) noexcept;

  const int file_;
  const std::byte* const base_;
  const std::uint64_t pages_;
  std::unique_ptr<std::atomic<std::uint64_t>[]> marks_;  // a bit for each page
  base::Mutex mutex_;                                    // W2; guards failed_
  bool failed_ = false;
};

}  // namespace everleaf::pmem
