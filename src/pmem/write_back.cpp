#include "pmem/write_back.hpp"

#include <algorithm>
#include <cerrno>
#include <new>

#include <everleaf/pool.hpp>

#include <sys/uio.h>
#include <unistd.h>

namespace everleaf::pmem {
namespace {

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
  // Release: pages that are copies were opened before. Acquire: so were those of who was faster.
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

void WriteBack::prepare(unsigned slot) noexcept {
  Local& mine = locals_[slot];
  // W4: not when something may have been written that the next fence covers.
  if (slot == kMaxThreads || mine.noted || mine.file.valid()) return;
  const std::uint32_t tries = mine.tries++;
  if ((tries & (tries - 1)) == 0) mine.file = file_.another();  // ever more seldom
}

void WriteBack::note(unsigned slot, std::uint64_t begin, std::uint64_t end) noexcept {
  Local& mine = locals_[slot];
  prepare(slot);
  const std::uint64_t copied = copies().bytes;
  const std::uint64_t first = begin / kPage;
  const std::uint64_t last = (std::min(end, copied) + kPage - 1) / kPage;
  if (slot == kMaxThreads) {
    slotless_.store(true, std::memory_order_relaxed);
    if (first < last) write_pages(mine, first, last);  // at once: there is no list
  } else {
    mine.noted = true;
    for (std::uint64_t page = first; page < last; ++page) {
      note_page(mine, static_cast<std::uint32_t>(page));
    }
  }
  for (std::uint64_t at = std::max(begin, copied); at < end; at = (at / kPage + 1) * kPage) {
    store_again(base_ + at);  // W4
  }
}

void WriteBack::note_page(Local& mine, std::uint32_t page) noexcept {
  if (mine.count != 0 && mine.pages[mine.count - 1] == page) return;
  if (!mine.pages) {
    mine.pages.reset(new (std::nothrow) std::uint32_t[kMostNoted]);
    if (!mine.pages) return write_pages(mine, page, page + std::uint64_t{1});
  }
  if (mine.count == kMostNoted) {
    sort(mine);
    if (mine.count > kMostNoted / 2) write_noted(mine);
  }
  mine.pages[mine.count++] = page;
}

void WriteBack::sort(Local& mine) noexcept {
  std::uint32_t* const first = mine.pages.get();
  std::sort(first, first + mine.count);
  mine.count = static_cast<std::size_t>(std::unique(first, first + mine.count) - first);
}

// Those that are noted, sorted: such that follow each other in one call. None is afterwards.
void WriteBack::write_noted(Local& mine) noexcept {
  for (std::size_t i = 0; i < mine.count;) {
    const std::uint64_t first = mine.pages[i];
    std::uint64_t end = first;
    while (i < mine.count && mine.pages[i] == end) {
      ++end;
      ++i;
    }
    write_pages(mine, first, end);
  }
  mine.count = 0;
}

// Other threads store to other lines of the pages meanwhile, records also by plain stores: what the
// kernel copies of those is not flushed yet, and will be written again. (pwritev2, which
// ThreadSanitizer leaves alone: it takes what pwrite reads for a read of the program's.)
void WriteBack::write_pages(const Local& mine, std::uint64_t first, std::uint64_t end) noexcept {
  // By the file that is synced: some file systems tell who wrote.
  const int file = mine.file.valid() ? mine.file.get() : file_.get();
  for (std::uint64_t at = first * kPage; at < end * kPage;) {
    const iovec piece{base_ + at, end * kPage - at};
    const ssize_t n = ::pwritev2(file, &piece, 1, static_cast<off_t>(at), 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return refused_.store(true, std::memory_order_release);
    at += static_cast<std::uint64_t>(n);
  }
}

// --- Fences --------------------------------------------------------------------------------------

bool WriteBack::fence(unsigned slot, std::atomic<bool>& failed) noexcept {
  bool good = true;
  if (Local& mine = locals_[slot]; mine.noted) {
    sort(mine);
    if (!failed.load(std::memory_order_relaxed)) write_noted(mine);
    good = sync(slot, failed);
    mine.noted = false;
    mine.count = 0;
  }
  // Relaxed: who flushed without a slot set it itself.
  return !slotless_.load(std::memory_order_relaxed) ? good : sync_in_turn(failed) && good;
}

bool WriteBack::sync(unsigned slot, std::atomic<bool>& failed) noexcept {
  const Local& mine = locals_[slot];
  return mine.file.valid() ? sync_by(mine.file, failed) : sync_in_turn(failed);
}

// Sticky: after a failed write-back the kernel may call the pages clean. (Release and acquire order
// nothing that W4 needs: a thread is told by its file, or has the turn, whose mutex orders.)
bool WriteBack::sync_by(const Descriptor& file, std::atomic<bool>& failed) const noexcept {
  const bool good = !failed.load(std::memory_order_acquire) &&
                    !refused_.load(std::memory_order_acquire) && ::fdatasync(file.get()) == 0;
  if (!good) failed.store(true, std::memory_order_release);
  return good;
}

// W4: what failed before this turn was told to a turn before it.
bool WriteBack::sync_in_turn(std::atomic<bool>& failed) noexcept {
  const base::MutexGuard guard(turn_);
  return sync_by(file_, failed);
}

}  // namespace everleaf::pmem
