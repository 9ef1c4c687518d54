#include "threads/scheduler.hpp"

#include <algorithm>
#include <bit>
#include <random>
#include <utility>

#include <sys/mman.h>
#include <ucontext.h>

#include "base/thread_slot.hpp"

namespace everleaf::crash {
namespace {

constexpr std::size_t kStackBytes = std::size_t{512} << 10;
// Waiting loops that only wait on each other end here.
constexpr std::uint64_t kMostQuiet = 20000;

unsigned next_of(unsigned current, unsigned able) {
  // In a circle, from the one behind `current`.
  const unsigned start = current == kNobody ? 0 : current + 1;
  const unsigned rotated = start >= kMostFibers ? 0 : able >> start << start;
  return static_cast<unsigned>(std::countr_zero(rotated != 0 ? rotated : able));
}

bool in(unsigned thread, unsigned able) {
  return thread < kMostFibers && (able >> thread & 1) != 0;
}

}  // namespace

unsigned Replay::choose(std::uint64_t point, unsigned current, unsigned able) {
  while (next_ < switches_.size() && switches_[next_].at < point) ++next_;
  if (next_ < switches_.size() && switches_[next_].at == point && in(switches_[next_].to, able)) {
    return switches_[next_++].to;
  }
  return in(current, able) ? current : next_of(current, able);
}

RandomPriorities::RandomPriorities(std::uint64_t seed, unsigned threads, std::uint64_t length,
                                   unsigned changes) {
  std::mt19937_64 random(seed);
  for (unsigned i = 0; i < threads; ++i) priority_.push_back(i + 1);
  std::ranges::shuffle(priority_, random);
  for (unsigned i = 0; i < changes; ++i) {
    change_at_.push_back(random() % std::max<std::uint64_t>(length, 1));
  }
  std::ranges::sort(change_at_);
}

unsigned RandomPriorities::choose(std::uint64_t point, unsigned current, unsigned able) {
  for (; next_ < change_at_.size() && change_at_[next_] <= point; ++next_) {
    if (current < priority_.size()) priority_[current] = --lowest_;
  }
  unsigned best = kNobody;
  for (unsigned i = 0; i < priority_.size(); ++i) {
    if (in(i, able) && (best == kNobody || priority_[i] > priority_[best])) best = i;
  }
  return best;
}

struct Scheduler::Fiber {
  enum class State : std::uint8_t { able, waiting, blocked, parked, ended };
  ucontext_t context{};
  std::byte* stack = nullptr;
  State state = State::ended;
  const void* blocked_on = nullptr;
  unsigned slot = base::kNoSlot;

  Fiber() = default;
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;
  ~Fiber() {
    if (stack != nullptr) ::munmap(stack, kStackBytes);
  }
};

Scheduler::Scheduler() : home_(std::make_unique<Fiber>()) {}
Scheduler::~Scheduler() = default;

void Scheduler::enter() {
  Scheduler& self = *active_;
  self.bodies_[self.current_]();
  base::detail::give_back_slot();  // the thread ends
  Fiber& mine = *self.fibers_[self.current_];
  mine.state = Fiber::State::ended;
  self.decide();
}

Trace Scheduler::run(std::span<const Body> bodies, Policy& policy, std::uint64_t most_points,
                     std::optional<Switch> parked, Stops stops) {
  bodies_ = bodies;
  parked_ = parked;
  stops_ = stops;
  policy_ = &policy;
  most_points_ = most_points;
  trace_ = {};
  quiet_ = 0;
  threads_ = static_cast<unsigned>(std::min<std::size_t>(bodies.size(), kMostFibers));
  while (fibers_.size() < threads_) fibers_.push_back(std::make_unique<Fiber>());
  for (unsigned i = 0; i < threads_; ++i) {
    Fiber& fiber = *fibers_[i];
    if (fiber.stack == nullptr) {
      void* const stack = ::mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
      if (stack == MAP_FAILED) throw std::bad_alloc();
      fiber.stack = static_cast<std::byte*>(stack);
    }
    ::getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack;
    fiber.context.uc_stack.ss_size = kStackBytes;
    fiber.context.uc_link = nullptr;
    fiber.state = Fiber::State::able;
    fiber.slot = base::kNoSlot;
    ::makecontext(&fiber.context, &Scheduler::enter, 0);
  }
  Scheduler* const outer = std::exchange(active_, this);
  home_->slot = base::detail::current_slot;
  current_ = kNobody;
  if (threads_ != 0) {
    const unsigned first = choose(able());
    current_ = first;
    base::detail::current_slot = base::kNoSlot;
    ::swapcontext(&home_->context, &fibers_[first]->context);
  }
  active_ = outer;
  // Of threads that did not end.
  for (unsigned i = 0; i < threads_; ++i) {
    base::detail::current_slot = std::exchange(fibers_[i]->slot, base::kNoSlot);
    base::detail::give_back_slot();
  }
  base::detail::current_slot = home_->slot;
  current_ = kNobody;
  return std::move(trace_);
}

unsigned Scheduler::able() const noexcept {
  unsigned set = 0;
  for (unsigned i = 0; i < threads_; ++i) {
    set |= static_cast<unsigned>(fibers_[i]->state == Fiber::State::able) << i;
  }
  return set;
}

void Scheduler::hand_over(unsigned to) noexcept {
  if (to == current_) return;
  Fiber& from = *fibers_[current_];
  from.slot = base::detail::current_slot;
  current_ = to;
  base::detail::current_slot = fibers_[to]->slot;
  ::swapcontext(&from.context, &fibers_[to]->context);
}

// Leaves all fibers where they are and goes back to run().
void Scheduler::give_up(std::string why) noexcept {
  trace_.stuck = std::move(why);
  const unsigned last = std::exchange(current_, kNobody);
  fibers_[last]->slot = base::detail::current_slot;
  ::swapcontext(&fibers_[last]->context, &home_->context);
}

unsigned Scheduler::choose(unsigned set) {
  const unsigned chosen = policy_->choose(trace_.points, current_, set);
  trace_.choices.push_back(static_cast<std::uint16_t>(chosen << 8 | (set & ~(1U << chosen))));
  ++trace_.points;
  if (wants_touches) trace_.touched.emplace_back();
  return chosen;
}

void Scheduler::decide() noexcept {
  unsigned set = able();
  if (set == 0) {
    // Whoever only waits may look again.
    for (unsigned i = 0; i < threads_; ++i) {
      if (fibers_[i]->state == Fiber::State::waiting) fibers_[i]->state = Fiber::State::able;
    }
    set = able();
  }
  if (set == 0 && stops_ == Stops::for_long && parked_) {
    Fiber& fiber = *fibers_[parked_->to];
    if (fiber.state == Fiber::State::parked) fiber.state = Fiber::State::able;
    parked_.reset();
    set = able();
  }
  if (set == 0) {
    const bool blocked =
        std::any_of(fibers_.begin(), fibers_.begin() + threads_,
                    [](const auto& fiber) { return fiber->state == Fiber::State::blocked; });
    give_up(blocked ? "every thread waits for a lock" : std::string{});
    return;
  }
  const unsigned chosen = choose(set);
  hand_over(chosen);
}

void Scheduler::point() noexcept {
  quiet_ = 0;
  // Somebody does something: those who wait may look again.
  for (unsigned i = 0; i < threads_; ++i) {
    if (fibers_[i]->state == Fiber::State::waiting) fibers_[i]->state = Fiber::State::able;
  }
  if (trace_.points >= most_points_) {
    give_up("no end after " + std::to_string(trace_.points) + " steps");
    return;
  }
  if (parked_ && parked_->to == current_ && parked_->at <= trace_.points) return park();
  decide();
}

void Scheduler::spin() noexcept {
  if (++quiet_ > kMostQuiet) {
    give_up("the threads wait for each other");
    return;
  }
  fibers_[current_]->state = Fiber::State::waiting;
  decide();
}

void Scheduler::block_on(const void* what) noexcept {
  Fiber& mine = *fibers_[current_];
  mine.state = Fiber::State::blocked;
  mine.blocked_on = what;
  decide();
}

void Scheduler::wake(const void* what) noexcept {
  for (unsigned i = 0; i < threads_; ++i) {
    Fiber& fiber = *fibers_[i];
    if (fiber.state == Fiber::State::blocked && fiber.blocked_on == what) {
      fiber.state = Fiber::State::able;
    }
  }
}

void Scheduler::park() noexcept {
  fibers_[current_]->state = Fiber::State::parked;
  decide();
}

}  // namespace everleaf::crash
