// A deterministic scheduler: simulated threads that run one at a time on one real thread and change
// places only where the observed build has a hook. The same decisions give the same execution.
//
// A simulated thread is a fiber with a stack of its own. The thread slot of src/base is swapped
// with it, so the library sees different threads. Points: every access that the runtime reports,
// every flush and fence, and every turn of a loop that waits (base/seam.hpp).
//
// Not thread-safe: one Scheduler runs at a time, on the thread that calls run().
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace everleaf::crash {

inline constexpr unsigned kMostFibers = 8;
inline constexpr unsigned kNobody = ~0U;

// A departure from "go on with the same thread": before point `at`, thread `to` takes over.
struct Switch {
  std::uint64_t at;
  unsigned to;
  bool operator==(const Switch&) const = default;
};

// A word that a step of a thread loads or stores to: its number, of the pool or of the process.
struct Touch {
  std::uint64_t unit;
  bool stores;
  bool operator==(const Touch&) const = default;
};

// What a run was like.
struct Trace {
  std::uint64_t points = 0;
  // Per point: bit i, thread i could have run instead; upper half: who did run.
  std::vector<std::uint16_t> choices;
  // Per point, what the step behind it touched; if the scheduler was asked for that.
  std::vector<std::vector<Touch>> touched;
  // Threads that wait for something that never comes, or a loop without end: empty if all ended.
  std::string stuck;
};

// Decides who runs. `able`: bit i, thread i can run; `current` may be unable (it ended or waits).
class Policy {
 public:
  virtual ~Policy() = default;
  virtual unsigned choose(std::uint64_t point, unsigned current, unsigned able) = 0;
};

// Plays given switches, otherwise goes on with the same thread; where that one cannot, with the
// next one in a circle.
class Replay final : public Policy {
 public:
  explicit Replay(std::span<const Switch> switches) : switches_(switches) {}
  unsigned choose(std::uint64_t point, unsigned current, unsigned able) override;

 private:
  std::span<const Switch> switches_;
  std::size_t next_ = 0;
};

// Randomised priorities (Burckhardt and others, ASPLOS 2010): the able thread of the highest
// priority runs; at `changes` random points of about `length` the runner falls below all others.
class RandomPriorities final : public Policy {
 public:
  RandomPriorities(std::uint64_t seed, unsigned threads, std::uint64_t length, unsigned changes);
  unsigned choose(std::uint64_t point, unsigned current, unsigned able) override;

 private:
  std::vector<std::int64_t> priority_;
  std::vector<std::uint64_t> change_at_;  // rising
  std::size_t next_ = 0;
  std::int64_t lowest_ = 0;
};

class Scheduler {
 public:
  using Body = std::function<void()>;
  enum class Stops : std::uint8_t { for_ever, for_long };
  Scheduler();
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // Runs the bodies to their ends, or until they are stuck; then their fibers are abandoned, and
  // what they held is lost: the caller throws away the objects that they used.
  // `parked`: the thread is stopped at the first of its points from that one on, for ever or until
  // nobody else can run.
  Trace run(std::span<const Body> bodies, Policy& policy, std::uint64_t most_points,
            std::optional<Switch> parked = {}, Stops stops = Stops::for_ever);

  // The scheduler whose fiber runs now, or null.
  [[nodiscard]] static Scheduler* active() noexcept { return active_; }
  [[nodiscard]] unsigned current() const noexcept { return current_; }
  // Of the run that is under way.
  [[nodiscard]] const Trace& so_far() const noexcept { return trace_; }

  // From the hooks, and whoever stands for what they do not see: what the current step touches.
  void touch(std::uint64_t unit, bool stores) noexcept {
    if (!trace_.touched.empty()) trace_.touched.back().push_back({unit, stores});
  }
  // Of memory outside the pool.
  void touch(const volatile void* at, bool stores) noexcept {
    touch(kOutside | reinterpret_cast<std::uintptr_t>(at) / 8, stores);
  }
  static constexpr std::uint64_t kOutside = std::uint64_t{1} << 63;
  // No memory, one of each thread: what marks its calls, and its coming to a fence.
  static constexpr std::uint64_t kCall = std::uint64_t{1} << 62;
  static constexpr std::uint64_t kArrival = std::uint64_t{1} << 61;
  void touch_others(std::uint64_t units) noexcept {
    for (unsigned thread = 0; thread < threads_; ++thread) {
      if (thread != current_) touch(units | thread, false);
    }
  }
  bool wants_touches = false;

  // While it lives the hooks find no scheduler: for what happens outside the simulated time.
  class Pause {
   public:
    Pause() noexcept : paused_(std::exchange(active_, nullptr)) {}
    Pause(const Pause&) = delete;
    Pause& operator=(const Pause&) = delete;
    ~Pause() { active_ = paused_; }

   private:
    Scheduler* paused_;
  };

  // From the hooks. Before an access: another thread may run first.
  void point() noexcept;
  // In a loop that waits for another thread: the others come first.
  void spin() noexcept;
  // For mutexes: the current thread cannot run until wake(what).
  void block_on(const void* what) noexcept;
  void wake(const void* what) noexcept;
  // Parks the current thread: what a thread that was stopped by the system looks like.
  void park() noexcept;

 private:
  struct Fiber;
  static void enter();
  [[nodiscard]] unsigned able() const noexcept;
  void hand_over(unsigned to) noexcept;
  unsigned choose(unsigned set);
  void decide() noexcept;
  void give_up(std::string why) noexcept;

  static inline Scheduler* active_ = nullptr;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::unique_ptr<Fiber> home_;
  std::span<const Body> bodies_;
  Policy* policy_ = nullptr;
  Trace trace_;
  std::uint64_t most_points_ = 0;
  std::optional<Switch> parked_;
  Stops stops_ = Stops::for_ever;
  std::uint64_t quiet_ = 0;  // points since a thread did something else than wait
  unsigned current_ = kNobody;
  unsigned threads_ = 0;
};

}  // namespace everleaf::crash
