// Optimistic version locks in a DRAM stripe table. Locks are not in the pool: the algorithm's N_w
// is exact, readers dirty no line, a crash leaves no lock behind, and a read-only pool can be read.
//
// Protocol (a seqlock without stand-alone fences, so that TSan understands it):
//   reader: v = begin(); read data with ACQUIRE loads; if (!unchanged(v)) start again
//   writer: try_lock(v); write data with RELEASE stores; unlock()
// A reader that saw a writer's store (acquire reads from release) also sees that writer's lock, so
// its later unchanged() fails. On x86 both orders are plain moves.
//
// Two nodes may share a stripe: readers do not care, a writer locks a stripe once (LockSet).
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/limits.hpp"
#include "base/seam.hpp"

namespace everleaf::base {

class VersionLock {
 public:
  // Waits until no writer holds the lock; returns its version (even).
  [[nodiscard]] std::uint64_t begin() const noexcept {
    for (unsigned round = 0;; ++round) {
      // Acquire: the data loads that follow must not be older than this version.
      std::uint64_t version = 0;
      if (try_begin(version)) return version;
      wait_a_little(round);
    }
  }

  // begin() without waiting; false: a writer holds the lock.
  [[nodiscard]] bool try_begin(std::uint64_t& version) const noexcept {
    version = word_.load(std::memory_order_acquire);
    return (version & 1) == 0;
  }

  // True if no writer took the lock since begin() returned `version`. Relaxed is enough: the data
  // loads before it are acquire loads.
  [[nodiscard]] bool unchanged(std::uint64_t version) const noexcept {
    return word_.load(std::memory_order_relaxed) == version;
  }

  // Takes the lock if nothing changed since `version`.
  [[nodiscard]] bool try_lock(std::uint64_t version) noexcept {
    // Acquire: the holder's loads must not be older than the lock.
    return word_.compare_exchange_strong(version, version + 1, std::memory_order_acquire,
                                         std::memory_order_relaxed);
  }

  void unlock() noexcept {
    // Release: the holder's stores must be visible before the new version.
    word_.store(word_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  }

  // Gives the lock back with the version it had: nothing was changed.
  void unlock_unchanged() noexcept {
    word_.store(word_.load(std::memory_order_relaxed) - 1, std::memory_order_release);
  }

 private:
  std::atomic<std::uint64_t> word_{0};
};

// Unlocks a lock that is held; something may have been changed under it.
class Unlock {
 public:
  explicit Unlock(VersionLock& lock) noexcept : lock_(lock) {}
  Unlock(const Unlock&) = delete;
  Unlock& operator=(const Unlock&) = delete;
  ~Unlock() { lock_.unlock(); }

 private:
  VersionLock& lock_;
};

class LockTable {
 public:
  static constexpr std::size_t kStripes = std::size_t{1} << kLockStripeBits;

  LockTable() : locks_(std::make_unique<std::array<VersionLock, kStripes>>()) {}

  [[nodiscard]] VersionLock& of(std::uint64_t offset) const noexcept {
    // Fibonacci hashing: nodes lie at regular distances.
    return (*locks_)[(offset >> 6) * 0x9E3779B97F4A7C15ULL >> (64 - kLockStripeBits)];
  }

 private:
  std::unique_ptr<std::array<VersionLock, kStripes>> locks_;
};

// The locks that one operation holds. Never waits: taking a lock either works at once or the
// operation starts again, so there is no deadlock whatever the order.
class LockSet {
 public:
  LockSet() = default;
  LockSet(const LockSet&) = delete;
  LockSet& operator=(const LockSet&) = delete;
  ~LockSet() { release(true); }

  // `version` is what begin() returned for this stripe.
  [[nodiscard]] bool try_lock(VersionLock& lock, std::uint64_t version) noexcept {
    for (std::size_t i = 0; i < count_; ++i) {
      if (held_[i].lock == &lock) return held_[i].version == version;
    }
    if (count_ == held_.size() || !lock.try_lock(version)) return false;
    held_[count_++] = {&lock, version};
    return true;
  }

  // Something was changed under these locks (or not: then readers need not start again).
  void release(bool changed) noexcept {
    for (std::size_t i = 0; i < count_; ++i) {
      if (changed) {
        held_[i].lock->unlock();
      } else {
        held_[i].lock->unlock_unchanged();
      }
    }
    count_ = 0;
  }

 private:
  struct Held {
    VersionLock* lock;
    std::uint64_t version;
  };
  std::array<Held, 72> held_;  // an unlink holds at most a path of 64 nodes and its neighbours
  std::size_t count_ = 0;
};

}  // namespace everleaf::base
