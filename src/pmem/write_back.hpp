// Write-back of a pool's file on a `disk`. The first bytes of the pool are a private copy of the
// file's pages, and pages of which something was flushed are written to the file; the rest is a
// shared mapping. All of it as a shared mapping would cost a page fault at the first store to each
// page after every sync, and each sync an interrupt of the storing core for each page.
//
// Nobody waits for another thread here, wherever that was stopped, but for W4's last sentence.
//
// Thread safety: prepare(), note(), fence() and sync() by the thread that has the slot, or with
// kMaxThreads by any that has none; the rest by any.
// Invariants
//   W1. Who noted a page writes it itself before it syncs: nobody relies on another's write.
//   W2. A page is written from where it lies, and copied by the call that writes it, one call after
//       the other: the kernel has the page or the file locked meanwhile (assumed of file systems
//       that go past the page cache). So of two writes of a page the later one has the newer words.
//       Who is stopped before its write and goes on writes what is there then: at most stores that
//       nobody has flushed, which may reach the file at any time.
//   W3. The kernel copies aligned words whole, from a page that is stored to meanwhile, and to one
//       that another sync may be sending to the disk. Assumed (M2 of medium.hpp); the first half
//       is tested (WriteBack.WordsArriveWhole).
//   W4. The kernel tells of a failed write-back once for each open file (Linux 4.13), and a file
//       that is opened afterwards is not told of what others were. So each slot syncs by an open
//       file of its own, and what a fence covers is made dirty after that file was opened, and
//       after its last sync: copies are written then, and each page of the shared mapping in which
//       something was flushed is stored to once more. (Where the file system drops what a page held
//       whose write-back failed, and another thread was told of that before this slot opened its
//       file, that is too late.) Slots that get no file of their own (few descriptors are left, no
//       right to open the file again, no /proc) and threads without a slot share the pool's, one at
//       a time, and who was told says so to the next. Once threads without a slot were here all
//       fences sync by that, too: a thread may get its slot between its flush and its fence.
//   W5. copies() is changed by one word: longer, or closed for good. Both are done before a size of
//       the pool is published that needs them, and may be done twice.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/seam.hpp"
#include "pmem/file.hpp"

namespace everleaf::pmem {

class WriteBack {
 public:
  static constexpr std::uint64_t kPage = 4096;
  static constexpr std::uint64_t kNoBudget = ~std::uint64_t{0};
  struct Copies {
    std::uint64_t bytes;  // from the start; what lies behind them
    bool closed;          // is a shared mapping, or nobody's yet
  };

  // `base`: where the file, which outlives this, is mapped; at most so many of its first bytes will
  // be copies, whole pages. `budget`: of all such objects of the process. May throw bad_alloc.
  WriteBack(const Descriptor& file, std::byte* base, std::uint64_t most, std::uint64_t budget);
  WriteBack(const WriteBack&) = delete;
  WriteBack& operator=(const WriteBack&) = delete;
  ~WriteBack();

  [[nodiscard]] Copies copies() const noexcept { return copies_of(copies_.load(kAcquire)); }
  [[nodiscard]] std::uint64_t most() const noexcept { return most_; }
  // Memory for more of them. False: the budget is spent.
  [[nodiscard]] bool take(std::uint64_t bytes) noexcept;
  void give_back(std::uint64_t bytes) noexcept;
  // The first `bytes` are copies from now on. False: `seen` is no longer so.
  [[nodiscard]] bool extend(Copies seen, std::uint64_t bytes) noexcept;
  // There will be no more of them.
  [[nodiscard]] bool close(Copies seen) noexcept;

  // [begin, end) is to be durable at the slot's next fence; the caller's stores there are done.
  void note(unsigned slot, std::uint64_t begin, std::uint64_t end) noexcept;
  // What was noted is durable. False: it may not be, and `failed` is set; also if it was before.
  [[nodiscard]] bool fence(unsigned slot, std::atomic<bool>& failed) noexcept;
  // Before what a sync() without a fence is for.
  void prepare(unsigned slot) noexcept;
  // What the file system was asked for since prepare() is durable: the file's size. Otherwise as
  // fence().
  [[nodiscard]] bool sync(unsigned slot, std::atomic<bool>& failed) noexcept;

 private:
  static constexpr auto kAcquire = std::memory_order_acquire;
  static constexpr std::size_t kMostNoted = 8192;  // pages: 32 KiB of each thread that fences

  struct alignas(64) Local {
    Descriptor file;                         // W4
    std::unique_ptr<std::uint32_t[]> pages;  // noted copies, kMostNoted at most
    std::size_t count = 0;                   // of them
    bool noted = false;                      // something
    std::uint32_t tries = 0;                 // to get a file
  };

  static constexpr Copies copies_of(std::uint64_t word) noexcept {
    return {word / 2 * kPage, word % 2 != 0};
  }
  static constexpr std::uint64_t word_of(Copies copies) noexcept {
    return copies.bytes / kPage * 2 + (copies.closed ? 1 : 0);
  }
  [[nodiscard]] bool change(Copies from, Copies to) noexcept;
  void note_page(Local& mine, std::uint32_t page) noexcept;
  static void sort(Local& mine) noexcept;
  void write_noted(Local& mine) noexcept;
  void write_pages(const Local& mine, std::uint64_t first, std::uint64_t end) noexcept;
  [[nodiscard]] bool sync_by(const Descriptor& file, std::atomic<bool>& failed) const noexcept;
  [[nodiscard]] bool sync_in_turn(std::atomic<bool>& failed) noexcept;

  const Descriptor& file_;
  std::byte* const base_;
  const std::uint64_t most_;
  const std::uint64_t budget_;
  std::atomic<std::uint64_t> taken_{0};
  std::atomic<std::uint64_t> copies_{0};  // W5: pages, and in bit 0 whether it is closed
  std::atomic<bool> refused_{false};      // a write was: no sync succeeds any more
  std::atomic<bool> slotless_{false};     // threads without a slot were here, and may have one now
  base::Mutex turn_;                      // to sync by file_
  const std::unique_ptr<Local[]> locals_;
};

}  // namespace everleaf::pmem
