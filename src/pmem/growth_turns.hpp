// Whose turn it is to make the file of a pool longer. Not a lock: who was stopped in its turn loses
// it after half a second, learns of that when it wants to publish a size, and has changed nothing
// that others use. Where steps are that slow by themselves the next ones are waited for longer, so
// that one of them gets through.
//
// Thread safety: all methods from any thread; a Turn belongs to the thread that began it.
// Invariants
//   U1. No two turns have one ticket: who lost its turn cannot change the word any more.
//   U2. Sizes are published by the holder alone, and only grow. What was allocated below a
//       published size is given back by nobody: giving back is a phase that nobody takes over, and
//       who had lost its turn before does not enter it.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <thread>

#include "base/seam.hpp"
#include "pmem/medium.hpp"

namespace everleaf::pmem {

class GrowthTurns {
 public:
  enum class Phase : std::uint8_t {
    none = 0,
    working = 1,      // all that is done may be done twice, or beside others' work: taken over
    giving_back = 2,  // who waits for two seconds gives up: its holder's step was refused
  };
  class Turn {
    friend class GrowthTurns;
    explicit Turn(std::uint64_t word) : word_(word) {}
    std::uint64_t word_;
  };

  // Waits for the turn. nullopt: there are `wanted` bytes now, or somebody keeps on giving back.
  [[nodiscard]] std::optional<Turn> begin(std::uint64_t wanted = kAny) noexcept {
    Patience patience;
    std::uint64_t seen = word_.load(std::memory_order_acquire);
    while (bytes_of(seen) < wanted) {
      const Phase phase = phase_of(seen);
      const std::uint64_t waited = phase == Phase::none ? 0 : patience.waited(seen);
      const unsigned slow = std::min(in_a_row_.load(std::memory_order_relaxed), kMostDoublings);
      const bool taken_over = phase == Phase::working && waited >= kPatience << slow;
      if (phase == Phase::none || taken_over) {
        const std::uint64_t mine = word_of(bytes_of(seen), ticket_of(seen) + 1, Phase::working);
        // Acquire: what the turn before has done. Release: for whom it is taken from, nothing.
        if (word_.compare_exchange_strong(seen, mine, std::memory_order_acq_rel,
                                          std::memory_order_acquire)) {
          if (taken_over) {
            taken_over_.fetch_add(1, std::memory_order_relaxed);
            in_a_row_.fetch_add(1, std::memory_order_relaxed);
          }
          return Turn(mine);
        }
        continue;
      }
      if (phase == Phase::giving_back) {
        if (given_up_.load(std::memory_order_relaxed) == seen) return std::nullopt;
        if (waited >= kLastPatience) {
          given_up_.store(seen, std::memory_order_relaxed);
          return std::nullopt;
        }
      }
      patience.wait();
      seen = word_.load(std::memory_order_acquire);
    }
    return std::nullopt;
  }

  // Before what must not be done beside another turn. False: the turn is lost.
  [[nodiscard]] bool enter(Turn& turn, Phase phase) noexcept {
    return phase_of(turn.word_) >= phase ||
           change(turn, word_of(bytes_of(turn.word_), ticket_of(turn.word_), phase));
  }
  // Everything is given back.
  void leave_giving_back(Turn& turn) noexcept {
    if (phase_of(turn.word_) != Phase::giving_back) return;
    (void)change(turn, word_of(bytes_of(turn.word_), ticket_of(turn.word_), Phase::working));
  }
  // Whether it is not lost yet.
  [[nodiscard]] bool holds(const Turn& turn) const noexcept {
    return word_.load(std::memory_order_relaxed) == turn.word_;
  }

  // Ends the turn with this size of the file, whole lines. False: it was lost, and nothing changed.
  [[nodiscard]] bool publish(Turn& turn, std::uint64_t bytes) noexcept {
    const bool more = bytes > bytes_of(turn.word_);
    if (!change(turn, word_of(bytes, ticket_of(turn.word_), Phase::none))) return false;
    if (more) in_a_row_.store(0, std::memory_order_relaxed);
    return true;
  }
  void end(Turn& turn) noexcept { (void)publish(turn, bytes_of(turn.word_)); }

  // Published last; 0: none was. Who published it may have got no further.
  [[nodiscard]] std::uint64_t bytes() const noexcept {
    return bytes_of(word_.load(std::memory_order_acquire));
  }
  // Turns that were lost, as long as the object lives.
  [[nodiscard]] std::uint64_t taken_over() const noexcept {
    return taken_over_.load(std::memory_order_relaxed);
  }

 private:
  static constexpr std::uint64_t kPatience = 500'000'000;  // nanoseconds
  static constexpr std::uint64_t kLastPatience = 2'000'000'000;
  static constexpr unsigned kMostDoublings = 5;
  static constexpr std::uint64_t kAny = ~std::uint64_t{0};
  static constexpr unsigned kTicketBits = 27;
  static constexpr unsigned kBytesAt = kTicketBits + 2;

  static constexpr Phase phase_of(std::uint64_t word) { return static_cast<Phase>(word & 3); }
  static constexpr std::uint64_t ticket_of(std::uint64_t word) {
    return word >> 2 & ((std::uint64_t{1} << kTicketBits) - 1);
  }
  static constexpr std::uint64_t bytes_of(std::uint64_t word) { return (word >> kBytesAt) * kLine; }
  static constexpr std::uint64_t word_of(std::uint64_t bytes, std::uint64_t ticket, Phase phase) {
    return (bytes / kLine) << kBytesAt | (ticket << 2 & ((std::uint64_t{1} << kBytesAt) - 1)) |
           static_cast<std::uint64_t>(phase);
  }

  [[nodiscard]] bool change(Turn& turn, std::uint64_t to) noexcept {
    std::uint64_t expected = turn.word_;
    // Release: what was done in the turn comes before what says so.
    if (!word_.compare_exchange_strong(expected, to, std::memory_order_release,
                                       std::memory_order_relaxed)) {
      return false;
    }
    turn.word_ = to;
    return true;
  }

  // How long one word has been there.
  class Patience {
   public:
    std::uint64_t waited(std::uint64_t word) noexcept {
      if (word != word_ || round_ == 0) {
        word_ = word;
        since_ = base::now_ns();
        round_ = 0;
      }
      return base::now_ns() - since_;
    }
    void wait() noexcept {
      constexpr unsigned kSpins = 64;
      constexpr unsigned kShort = 256;
      // A step of growth takes about a millisecond.
      if (round_ < kSpins) {
        base::wait_a_little(round_);
      } else {
        std::this_thread::sleep_for(std::chrono::microseconds(round_ < kShort ? 50 : 1000));
      }
      ++round_;
    }

   private:
    std::uint64_t word_ = 0;
    std::uint64_t since_ = 0;
    unsigned round_ = 0;
  };

  std::atomic<std::uint64_t> word_{0};  // phase: 2 bits; ticket: 27; the size in lines: 35
  std::atomic<std::uint64_t> given_up_{0};
  std::atomic<std::uint64_t> taken_over_{0};
  std::atomic<unsigned> in_a_row_{0};  // taken over since a size was published
};

}  // namespace everleaf::pmem
