#include "pmem/write_back.hpp"

#include <algorithm>
#include <cerrno>
#include <new>

#include <everleaf/pool.hpp>

#include <sys/uio.h>
#include <unistd.h>

#include "base/seam.hpp"

namespace everleaf::pmem {
namespace {

constexpr std::uint64_t kLineBytes = 64;

std::atomic<std::uint64_t> taken_by_all{0};

// The page is dirty afterwards. Other threads store to the word's line, perhaps: an instruction, as
// write-back in other domains is, and no access of the language.
void store_again(std::byte* word) noexcept {
  asm volatile("lock orq $0, (%0)" : : "r"(word) : "memory", "cc");
}

}  // namespace

WriteBack::WriteBack(const Descriptor& file, std::byte* base, std::uint64_t most,
                     std::uint64_t budget)
    : file_(file),
      base_(base),
      most_(most / kPage * kPage),
      budget_(budget),
      locals_(new Local[kMaxThreads + 1]) {}

WriteBack::~WriteBack() {
  taken_by_all.fetch_sub(taken_.load(std::memory_order_relaxed), std::memory_order_relaxed);
}

// --- What is a copy ------------------------------------------------------------------------------

bool WriteBack::take(std::uint64_t bytes) noexcept {
  if (budget_ == kNoBudget) return true;
  if (taken_by_all.fetch_add(bytes, std::memory_order_relaxed) + bytes > budget_) {
    taken_by_all.fetch_sub(bytes, std::memory_order_relaxed);
    return false;
  }
  taken_.fetch_add(bytes, std::memory_order_relaxed);
  return true;
}

void WriteBack::give_back(std::uint64_t bytes) noexcept {
  if (budget_ == kNoBudget) return;
  taken_.fetch_sub(bytes, std::memory_order_relaxed);
  taken_by_all.fetch_sub(bytes, std::memory_order_relaxed);
}

bool WriteBack::change(Copies from, Copies to) noexcept {
  std::uint64_t expected = word_of(from);
  return copies_.compare_exchange_strong(expected, word_of(to), std::memory_order_acq_rel,
                                         std::memory_order_relaxed);
}

bool WriteBack::extend(Copies seen, std::uint64_t bytes) noexcept {
  return change(seen, {bytes, false});
}

bool WriteBack::close(Copies seen) noexcept {
  return change(seen, {seen.bytes, true});
}

// --- Flushes -------------------------------------------------------------------------------------

// W4: before anything is written that a sync by that file is asked for.
bool WriteBack::has_file(unsigned slot) noexcept {
  Local& mine = locals_[slot];
  if (!mine.file.valid() && slot < kMaxThreads) mine.file = file_.another();
  return mine.file.valid();
}

void WriteBack::note(unsigned slot, std::uint64_t begin, std::uint64_t end) noexcept {
  Local& mine = locals_[slot];
  if (!mine.noted) {
    mine.noted = true;
    (void)has_file(slot);
  }
  const std::uint64_t copied = copies().bytes;
  const std::uint64_t last = (std::min(end, copied) + kPage - 1) / kPage;
  for (std::uint64_t page = begin / kPage; page < last; ++page) {
    note_page(mine, static_cast<std::uint32_t>(page));
  }
  for (std::uint64_t at = std::max(begin, copied); at < end; at += kLineBytes) {
    store_again(base_ + at);  // W4
  }
}

void WriteBack::note_page(Local& mine, std::uint32_t page) noexcept {
  if (mine.count != 0 && mine.pages[mine.count - 1] == page) return;
  if (!mine.pages) {
    mine.pages.reset(new (std::nothrow) std::uint32_t[kMostNoted]);
    if (!mine.pages) {
      mine.refused = !write_pages(page, page + std::uint64_t{1}) || mine.refused;
      return;
    }
  }
  if (mine.count == kMostNoted) {
    sort(mine);
    if (mine.count > kMostNoted / 2) {
      mine.refused = !write_noted(mine) || mine.refused;
      mine.count = 0;
    }
  }
  mine.pages[mine.count++] = page;
}

void WriteBack::sort(Local& mine) noexcept {
  std::uint32_t* const first = mine.pages.get();
  std::sort(first, first + mine.count);
  mine.count = static_cast<std::size_t>(std::unique(first, first + mine.count) - first);
}

// --- Fences --------------------------------------------------------------------------------------

bool WriteBack::fence(unsigned slot, std::atomic<bool>& failed) noexcept {
  Local& mine = locals_[slot];
  if (!mine.noted) return true;
  bool good = !failed.load(std::memory_order_acquire);
  if (good) {
    sort(mine);
    good = write_noted(mine) && !mine.refused && sync(slot, failed);
  }
  // Sticky: after a failed write-back the kernel may call the pages clean.
  if (!good) failed.store(true, std::memory_order_release);
  mine.noted = false;
  mine.refused = false;
  mine.count = 0;
  return good;
}

// Pages that follow each other in one call.
bool WriteBack::write_noted(Local& mine) noexcept {
  for (std::size_t i = 0; i < mine.count;) {
    const std::uint64_t first = mine.pages[i];
    std::uint64_t end = first;
    while (i < mine.count && mine.pages[i] == end) {
      ++end;
      ++i;
    }
    if (!write_pages(first, end)) return false;
  }
  return true;
}

// Other threads store to other lines of the pages meanwhile, records also by plain stores: what the
// kernel copies of those is not flushed yet, and will be written again. (pwritev2, which
// ThreadSanitizer leaves alone: it takes what pwrite reads for a read of the program's.)
bool WriteBack::write_pages(std::uint64_t first, std::uint64_t end) noexcept {
  for (std::uint64_t at = first * kPage; at < end * kPage;) {
    const iovec piece{base_ + at, end * kPage - at};
    const ssize_t n = ::pwritev2(file_.get(), &piece, 1, static_cast<off_t>(at), 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    at += static_cast<std::uint64_t>(n);
  }
  return true;
}

bool WriteBack::sync(unsigned slot, std::atomic<bool>& failed) noexcept {
  if (!has_file(slot)) return sync_in_turn(failed);
  const bool good = ::fdatasync(locals_[slot].file.get()) == 0;
  if (!good) failed.store(true, std::memory_order_release);
  return good;
}

// W4: what failed before this turn was told to a turn before it.
bool WriteBack::sync_in_turn(std::atomic<bool>& failed) noexcept {
  for (unsigned round = 0; syncing_.exchange(true, std::memory_order_acquire); ++round) {
    base::wait_a_little(round);
  }
  const bool good = !failed.load(std::memory_order_relaxed) && ::fdatasync(file_.get()) == 0;
  if (!good) failed.store(true, std::memory_order_relaxed);
  syncing_.store(false, std::memory_order_release);
  return good;
}

}  // namespace everleaf::pmem
