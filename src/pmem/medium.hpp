// The medium: the mapped bytes of a pool and the only code that flushes and fences them.
//
// Thread safety: all methods from any thread. A flush concerns the calling thread's next fence.
// Invariants
//   M1. After flush(p, n) and then a fence() by the same thread that returned true, the bytes
//       [p, p + n) as they were at the flush survive what the domain names. After one that returned
//       false they may or may not, failed() is true for good, and the caller must not make the next
//       store that relied on them.
//   M2. Only aligned 8-byte words are failure-atomic. No order of two stores between fences is
//       promised, but that of the stores to one line where orders_lines() says so: a line is
//       written back whole, and x86 makes stores visible in their order. Elsewhere than on a `disk`
//       (write_back.hpp) flushes write back, and the kernel is asked for the size of the file
//       alone.
//   M3. size() only grows once the pool is open; bytes below it are backed by storage, so touching
//       them cannot fault (for want of storage: a store to a private copy may want memory).
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include <everleaf/pool.hpp>

#include "base/thread_slot.hpp"
#include "pmem/site.hpp"
#include "pmem/write_back.hpp"

namespace everleaf::pmem {

// Distance from the start of the pool. 0 is the header, so it doubles as "none".
using Offset = std::uint64_t;

inline constexpr std::size_t kLine = 64;
inline constexpr std::uint64_t kMaxPoolBytes = std::uint64_t{1} << 40;

// A word of the pool. Everything that another thread may read goes through these two.
using Word = std::uint64_t;

// Acquire: see base/version_lock.hpp; on x86 a plain load.
inline Word load(const Word* word) noexcept {
  return std::atomic_ref<Word>(*const_cast<Word*>(word)).load(std::memory_order_acquire);
}

// What a test sees of the persistence work: the images that a crash could leave.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void flushed(Offset at, std::size_t bytes, Site site) = 0;
  virtual void fencing(Site site) = 0;  // before the fence takes effect
};

class Medium {
 public:
  // `write_back`: of a file on a `disk`; without one nothing is written back there.
  Medium(std::byte* base, std::uint64_t size, Domain domain, Observer* observer,
         std::unique_ptr<WriteBack> write_back = nullptr);
  Medium(const Medium&) = delete;
  Medium& operator=(const Medium&) = delete;

  [[nodiscard]] std::byte* base() const noexcept { return base_; }
  [[nodiscard]] Domain domain() const noexcept { return domain_; }
  [[nodiscard]] std::uint64_t size() const noexcept {
    return size_.load(std::memory_order_acquire);  // the bytes below it are mapped
  }
  void grow(std::uint64_t size) noexcept {
    std::uint64_t now = size_.load(std::memory_order_relaxed);
    while (now < size && !size_.compare_exchange_weak(now, size, std::memory_order_release,
                                                      std::memory_order_relaxed)) {
    }
  }
  // Before anybody else uses it: what lies behind `size` was given back.
  void cut(std::uint64_t size) noexcept { size_.store(size, std::memory_order_release); }

  [[nodiscard]] bool contains(Offset at, std::uint64_t bytes) const noexcept {
    const std::uint64_t limit = size();
    return at <= limit && bytes <= limit - at;
  }

  template <class T = std::byte>
  [[nodiscard]] T* at(Offset offset) const noexcept {
    return reinterpret_cast<T*>(base_ + offset);
  }
  [[nodiscard]] Offset offset_of(const void* address) const noexcept {
    return static_cast<Offset>(static_cast<const std::byte*>(address) - base_);
  }

  // All domains but `disk`, whose pages are copied while they change (M2).
  [[nodiscard]] bool orders_lines() const noexcept { return domain_ != Domain::disk; }
  // Whether a fence takes long: it pays to let work ride on one that comes anyway.
  [[nodiscard]] bool fences_wait() const noexcept {
    return domain_ == Domain::memory || domain_ == Domain::disk;
  }

  // Failure-atomic store of one word by a tree's algorithm; counts in N_w as `bytes`, the bytes
  // of the word that the algorithm changes.
  void store(Word* word, Word value, unsigned bytes = 8) noexcept {
    // Release: see base/version_lock.hpp; on x86 a plain store.
    std::atomic_ref<Word>(*word).store(value, std::memory_order_release);
    if (bytes != 0) add(local().bytes_written, bytes);
  }
  void count_written(std::uint64_t bytes) noexcept { add(local().bytes_written, bytes); }
  void count_heap_written(std::uint64_t bytes) noexcept { add(local().heap_bytes_written, bytes); }

  // Starts the write-back of every line that [address, address + bytes) touches.
  void flush(const void* address, std::size_t bytes, Site site = Site::current()) noexcept {
    if (mode_ != Mode::nothing && mode_ != Mode::fence_only) flush_lines(address, bytes, site);
  }

  // The same for lines that lie apart, each with its own site.
  void flush_each(std::span<const std::byte* const> lines, const Site* sites) noexcept {
    if (mode_ != Mode::nothing && mode_ != Mode::fence_only) flush_apart(lines, sites);
  }

  // Waits for this thread's flushes; later stores come after them. False: a write-back failed (only
  // `disk` can), and nothing that follows in the operation's order may be stored.
  [[nodiscard]] bool fence(Site site = Site::current()) noexcept {
    if (mode_ == Mode::nothing) {
      // A crash of the process keeps every store that was executed: only the compiler could
      // reorder them.
      std::atomic_signal_fence(std::memory_order_seq_cst);
      return true;
    }
    return fence_slow(site);
  }

  [[nodiscard]] bool persist(const void* address, std::size_t bytes,
                             Site site = Site::current()) noexcept {
    flush(address, bytes, site);
    return fence(site);
  }

  // Null: no file on a `disk`.
  [[nodiscard]] WriteBack* write_back() const noexcept { return write_back_.get(); }
  // Of a file on a `disk`: before its size changes, and after that. False: a write-back failed
  // (M1); else the size is durable.
  void prepare_sync() noexcept { write_back_->prepare(slot()); }
  [[nodiscard]] bool sync() noexcept { return write_back_->sync(slot(), failed_); }

  // A write-back failed: what was acknowledged before is safe, nothing more can be promised.
  [[nodiscard]] bool failed() const noexcept { return failed_.load(std::memory_order_relaxed); }
  void fail() noexcept { failed_.store(true, std::memory_order_relaxed); }

  [[nodiscard]] Counters counters() const noexcept;

  // The best write-back instruction of this CPU.
  [[nodiscard]] static std::string_view flush_instruction() noexcept;

 private:
  enum class Mode : std::uint8_t { nothing, fence_only, clwb, clflushopt, clflush, disk, observed };
  struct alignas(kLine) Local {
    std::atomic<std::uint64_t> bytes_written{0};
    std::atomic<std::uint64_t> heap_bytes_written{0};
    std::atomic<std::uint64_t> flushes{0};
    std::atomic<std::uint64_t> fences{0};
  };
  static_assert(sizeof(Local) == kLine);

  // Only the owner of a slot writes its counters: no locked instruction.
  static void add(std::atomic<std::uint64_t>& counter, std::uint64_t n) noexcept {
    counter.store(counter.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
  }
  static unsigned slot() noexcept {
    const unsigned slot = base::thread_slot();
    return slot == base::kNoSlot ? kMaxThreads : slot;
  }
  Local& local() noexcept { return locals_[slot()]; }
  void flush_lines(const void* address, std::size_t bytes, Site site) noexcept;
  void flush_apart(std::span<const std::byte* const> lines, const Site* sites) noexcept;
  void start(std::byte* line, std::uint64_t lines, const Site& site) noexcept;
  bool fence_slow(Site site) noexcept;
  static Mode mode_for(Domain domain, const Observer* observer) noexcept;

  std::byte* const base_;
  std::atomic<std::uint64_t> size_;
  const Domain domain_;
  const Mode mode_;
  Observer* const observer_;
  const std::unique_ptr<WriteBack> write_back_;
  std::atomic<bool> failed_{false};
  std::unique_ptr<std::array<Local, kMaxThreads + 1>> locals_owner_;
  Local* const locals_;
};

}  // namespace everleaf::pmem
