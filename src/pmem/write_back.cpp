#include "pmem/write_back.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>

#include <unistd.h>

namespace everleaf::pmem {
namespace {

constexpr std::uint64_t kWordsOfPage = WriteBack::kPage / 8;

}  // namespace

WriteBack::WriteBack(int file, const std::byte* base, std::uint64_t bytes)
    : file_(file),
      base_(base),
      pages_(bytes / kPage),
      marks_(new std::atomic<std::uint64_t>[pages_ / kBits + 1]()) {}

void WriteBack::note(std::uint64_t begin, std::uint64_t end) noexcept {
  const std::uint64_t last = std::min((end + kPage - 1) / kPage, pages_);
  for (std::uint64_t page = begin / kPage; page < last; ++page) {
    // Also where it is marked: a locked instruction, which the stores before it are visible by.
    marks_[page / kBits].fetch_or(std::uint64_t{1} << page % kBits, std::memory_order_seq_cst);
  }
}

bool WriteBack::write(std::uint64_t begin, std::uint64_t end) noexcept {
  const base::MutexGuard guard(mutex_);
  failed_ = failed_ || !write_marked(begin / kPage, std::min((end + kPage - 1) / kPage, pages_));
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
  std::array<std::uint64_t, kMostAtOnce * kWordsOfPage> copy;
  auto* const words =
      reinterpret_cast<std::uint64_t*>(const_cast<std::byte*>(base_) + first * kPage);
  const std::uint64_t count = (end - first) * kWordsOfPage;
  for (std::uint64_t i = 0; i < count; ++i) {
    copy[i] = std::atomic_ref(words[i]).load(std::memory_order_relaxed);  // W3
  }
  const auto* const bytes = reinterpret_cast<const std::byte*>(copy.data());
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
