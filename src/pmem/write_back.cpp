#include "pmem/write_back.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>

#include <unistd.h>

namespace everleaf::pmem {
namespace {

std::atomic<std::uint64_t> taken_by_all{0};

// Other threads store to other lines of the page meanwhile, records also by plain stores: what is
// copied of those is not flushed yet, and will be copied again. To the language that would be a
// race with any load of its own; so it is an instruction, as write-back in other domains is.
std::uint64_t word_at(const std::uint64_t* from) noexcept {
  std::uint64_t word = 0;
  asm volatile("movq (%1), %0" : "=r"(word) : "r"(from) : "memory");  // W3
  return word;
}

}  // namespace

WriteBack::WriteBack(int file, const std::byte* base, std::uint64_t most, std::uint64_t budget)
    : file_(file),
      base_(base),
      most_(most),
      budget_(budget),
      marks_(new std::atomic<std::uint64_t>[most / kPage / kBits + 1]()) {}

WriteBack::~WriteBack() {
  taken_by_all.fetch_sub(taken_, std::memory_order_relaxed);
}

bool WriteBack::take(std::uint64_t bytes) noexcept {
  if (budget_ == kNoBudget) return true;
  if (taken_by_all.fetch_add(bytes, std::memory_order_relaxed) + bytes > budget_) {
    taken_by_all.fetch_sub(bytes, std::memory_order_relaxed);
    return false;
  }
  taken_ += bytes;
  return true;
}

void WriteBack::extend(std::uint64_t bytes) noexcept {
  pages_.store(bytes / kPage, std::memory_order_release);
}

// Behind the last page of the copies that [.., end) reaches.
std::uint64_t WriteBack::end_page(std::uint64_t end) const noexcept {
  return std::min((end + kPage - 1) / kPage, pages());
}

void WriteBack::note(std::uint64_t begin, std::uint64_t end) noexcept {
  const std::uint64_t last = end_page(end);
  for (std::uint64_t page = begin / kPage; page < last; ++page) {
    // Also where it is marked: a locked instruction, which the stores before it are visible by.
    marks_[page / kBits].fetch_or(std::uint64_t{1} << page % kBits, std::memory_order_seq_cst);
  }
}

bool WriteBack::write(std::uint64_t begin, std::uint64_t end) noexcept {
  const base::MutexGuard guard(mutex_);
  failed_ = failed_ || !write_marked(begin / kPage, end_page(end));
  return !failed_;
}

// Pages [from, last).
bool WriteBack::write_marked(std::uint64_t from, std::uint64_t last) noexcept {
  std::uint64_t run = from;  // [run, run_end) is to be written
  std::uint64_t run_end = from;
  for (std::uint64_t page = from; page < last; page = (page / kBits + 1) * kBits) {
    std::uint64_t mask = ~std::uint64_t{0} << page % kBits;
    const std::uint64_t base = page / kBits * kBits;
    if (last - base < kBits) mask &= (std::uint64_t{1} << (last - base)) - 1;
    std::atomic<std::uint64_t>& word = marks_[page / kBits];
    if ((word.load(std::memory_order_relaxed) & mask) == 0) continue;
    std::uint64_t taken = word.fetch_and(~mask, std::memory_order_seq_cst) & mask;
    for (; taken != 0; taken &= taken - 1) {
      const std::uint64_t one = base + static_cast<std::uint64_t>(std::countr_zero(taken));
      if (one != run_end || run_end - run == kMostAtOnce) {
        if (!write_pages(run, run_end)) return false;
        run = one;
      }
      run_end = one + 1;
    }
  }
  return write_pages(run, run_end);
}

bool WriteBack::write_pages(std::uint64_t first, std::uint64_t end) noexcept {
  if (first == end) return true;
  const std::uint64_t count = (end - first) * kWords;
  const auto* const from = reinterpret_cast<const std::uint64_t*>(base_ + first * kPage);
  for (std::uint64_t i = 0; i < count; ++i) copy_[i] = word_at(from + i);
  const auto* const bytes = reinterpret_cast<const std::byte*>(copy_.data());
  const std::uint64_t total = count * 8;
  for (std::uint64_t done = 0; done < total;) {
    const ssize_t n =
        ::pwrite(file_, bytes + done, total - done, static_cast<off_t>(first * kPage + done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    done += static_cast<std::uint64_t>(n);
  }
  return true;
}

bool WriteBack::sync() noexcept {
  return ::fdatasync(file_) == 0;
}

}  // namespace everleaf::pmem
