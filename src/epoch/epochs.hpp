// Persistence epochs (Du, Scott, SIGMOD 2024, section 3.1). README.md has the steps and crash
// cases.
//
// Thread safety: all methods from any thread, but for start() and stop().
// Invariants
//   E1. The clock word in the pool is never behind now().
//   E2. While a Section of epoch e lives, now() <= e + 1.
//   E3. Everything noted in epochs up to durable() survives what the domain names.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include <everleaf/pool.hpp>
#include <everleaf/result.hpp>

#include "base/announce.hpp"
#include "base/seam.hpp"
#include "base/thread_slot.hpp"
#include "pmem/medium.hpp"

namespace everleaf::epoch {

using Epoch = std::uint64_t;

// Of a pool whose clock word is 0. Its durable epoch is that of everything created strictly.
inline constexpr Epoch kFirstEpoch = 4;

class Epochs {
 public:
  // `clock`: a word of the pool on a line of its own.
  Epochs(pmem::Medium& medium, pmem::Word* clock);
  Epochs(const Epochs&) = delete;
  Epochs& operator=(const Epochs&) = delete;
  ~Epochs() { stop(); }

  [[nodiscard]] Epoch now() const noexcept { return clock_.load(std::memory_order_acquire); }
  [[nodiscard]] Epoch durable() const noexcept { return now() - 2; }

  static constexpr std::size_t kLists = 4;
  struct alignas(pmem::kLine) Slot {
    std::atomic<Epoch> announced{0};
    // Numbers of noted lines, by epoch modulo kLists: the owner's, and from E1 on advance()'s.
    std::array<std::vector<std::uint64_t>, kLists> lines;
    bool holding = false;  // the owner's
  };

  // While it lives the clock stands, so that several sections are of one epoch: recovery finds all
  // of them or none. Waits for a step that is under way or wants to be; steps wait for it. For a
  // thread that has a slot, outside of sections; not nested. advance(), sync() and
  // wait_durable() of this thread answer out_of_space meanwhile: what would wait for epochs has to
  // do without.
  class Hold {
   public:
    explicit Hold(Epochs& epochs) noexcept;
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;
    ~Hold();

   private:
    Epochs& epochs_;
  };

  // Announces the calling thread, which has a slot, as a writer of the current epoch. Not nested;
  // no sync() inside.
  class Section {
   public:
    explicit Section(Epochs& epochs) noexcept
        : epochs_(epochs), slot_((*epochs.slots_)[base::thread_slot()]) {
      epoch_ = epochs.clock_.load(std::memory_order_relaxed);
      while (true) {
        // Before the second look at the clock: advance() must not miss it.
        base::announce(slot_.announced, epoch_);
        const Epoch now = epochs.clock_.load(std::memory_order_seq_cst);
        if (now == epoch_) return;
        epoch_ = now;
      }
    }
    Section(const Section&) = delete;
    Section& operator=(const Section&) = delete;
    ~Section() {
      // Release: everything stored and noted here comes before it is drained.
      slot_.announced.store(0, std::memory_order_release);
    }
    [[nodiscard]] Epoch epoch() const noexcept { return epoch_; }
    // Whether the epoch is still the active one; asked under the locks of what will change.
    [[nodiscard]] bool is_current() const noexcept {
      return epochs_.clock_.load(std::memory_order_seq_cst) == epoch_;
    }
    // Space for that many more notes. False: out of memory.
    [[nodiscard]] bool make_room(std::size_t lines);
    // The line of this address was changed in this epoch. After make_room().
    void note(const void* address) {
      slot_.lines[epoch_ % kLists].push_back(epochs_.medium_.offset_of(address) / pmem::kLine);
    }

   private:
    Epochs& epochs_;
    Slot& slot_;
    Epoch epoch_;
  };

  // One step of the clock; waits for the writers of the epoch in flight. Not within a Section.
  // io_error: a write-back failed.
  [[nodiscard]] Outcome advance();
  // Everything that returned before is durable afterwards: at most two steps.
  [[nodiscard]] Outcome sync();
  // Until durable() >= epoch: waits for the background thread, or steps by itself if there is none.
  [[nodiscard]] Outcome wait_durable(Epoch epoch);

  // Called after each step, outside of sections, never twice at once; may listen(), too, but not
  // forget(). Returns a number for forget().
  using Listener = std::function<void()>;
  std::uint64_t listen(Listener listener);
  // Waits until the listener is not running.
  void forget(std::uint64_t number);

  // The background thread that steps every `length`; 0: none. False: the system gives no thread.
  [[nodiscard]] bool start(std::chrono::nanoseconds length);
  void stop();

  struct Figures {
    std::uint64_t steps = 0;
    std::uint64_t mean_ns = 0;  // between steps of the background thread
    std::uint64_t worst_ns = 0;
    std::uint64_t lines = 0;  // written back
  };
  [[nodiscard]] Figures figures() const;

 private:
  [[nodiscard]] bool holding() const;  // the calling thread
  Outcome step();
  class Pause;
  const Listener* listener(std::size_t i);
  void run(std::chrono::nanoseconds length);

  pmem::Medium& medium_;
  pmem::Word* const word_;
  std::atomic<Epoch> clock_;
  std::unique_ptr<std::array<Slot, kMaxThreads>> slots_;
  base::Mutex advancing_;
  std::atomic<bool> stepping_{false};  // no Hold begins
  std::atomic<unsigned> holds_{0};
  base::Mutex listening_;  // held while listeners run, and while one goes
  base::Mutex adding_;     // guards the next two, within the one before
  std::deque<std::pair<std::uint64_t, Listener>> listeners_;  // they stay where they are
  std::uint64_t next_listener_ = 1;

  std::thread thread_;
  std::mutex waking_;
  std::condition_variable wake_;      // of the background thread
  std::condition_variable advanced_;  // of those who wait for an epoch
  bool stopping_ = false;
  std::atomic<bool> running_{false};
  std::atomic<std::uint64_t> steps_{0};
  std::atomic<std::uint64_t> lines_{0};
  std::atomic<std::uint64_t> timed_steps_{0};
  std::atomic<std::uint64_t> timed_ns_{0};
  std::atomic<std::uint64_t> worst_ns_{0};
};

}  // namespace everleaf::epoch
