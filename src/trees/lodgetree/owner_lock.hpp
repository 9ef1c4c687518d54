// A lock that one thread, its owner, takes all the time, and others hardly ever.
//
// The owner executes no locked instruction: behind a fence that would wait until the fence is over,
// and the next operation's way down can be spent on that. Others take a barrier of all threads
// (base/announce.hpp), some microseconds.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/announce.hpp"
#include "base/seam.hpp"

namespace everleaf::tree::lodgetree {

class OwnerLock {
 public:
  // While it lives, the owner has it.
  class Owner {
   public:
    explicit Owner(OwnerLock& lock) : lock_(lock) { lock_.own(); }
    Owner(const Owner&) = delete;
    Owner& operator=(const Owner&) = delete;
    // Release: another thread that sees it sees what was changed.
    ~Owner() { lock_.owned_.store(0, std::memory_order_release); }

   private:
    OwnerLock& lock_;
  };
  // Any thread, the owner included.
  class Other {
   public:
    explicit Other(OwnerLock& lock) : lock_(lock), guard_(lock.others_) { lock_.take(); }
    Other(const Other&) = delete;
    Other& operator=(const Other&) = delete;
    ~Other() { lock_.taken_.store(false, std::memory_order_release); }  // as the owner's

   private:
    OwnerLock& lock_;
    const base::MutexGuard guard_;
  };

 private:
  void own() {
    while (true) {
      base::announce(owned_, 1);  // before the look: take() must not miss it
      if (!taken_.load(std::memory_order_seq_cst)) return;
      owned_.store(0, std::memory_order_release);
      for (unsigned round = 0; taken_.load(std::memory_order_acquire); ++round) {
        base::wait_a_little(round);
      }
    }
  }
  void take() {
    taken_.store(true, std::memory_order_seq_cst);
    base::see_announcements();  // an owner that is missed below sees `taken`
    for (unsigned round = 0; owned_.load(std::memory_order_seq_cst) != 0; ++round) {
      base::wait_a_little(round);
    }
  }

  std::atomic<std::uint64_t> owned_{0};
  std::atomic<bool> taken_{false};
  base::Mutex others_;
};

}  // namespace everleaf::tree::lodgetree
