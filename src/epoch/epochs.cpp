#include "epoch/epochs.hpp"

#include <algorithm>
#include <exception>
#include <new>

namespace everleaf::epoch {
namespace {

// Below it a sleep is longer than what is asked for.
constexpr std::chrono::microseconds kShortestSleep{100};

}  // namespace

Epochs::Epochs(pmem::Medium& medium, pmem::Word* clock)
    : medium_(medium),
      word_(clock),
      clock_(std::max(pmem::load(clock), kFirstEpoch)),
      slots_(std::make_unique<std::array<Slot, kMaxThreads>>()) {}

bool Epochs::Section::make_room(std::size_t lines) {
  auto& list = slot_.lines[epoch_ % kLists];
  if (list.capacity() - list.size() >= lines) return true;
  try {
    list.reserve(std::max(list.size() + lines, 2 * list.capacity()));
  } catch (const std::bad_alloc&) {
    return false;
  }
  return true;
}

// Advancing_ is held.
Outcome Epochs::step() {
  if (medium_.failed()) return Outcome::io_error;
  const Epoch c = clock_.load(std::memory_order_relaxed);
  // Who is missed below sees the clock at c, since it was set there by the step before.
  base::see_announcements();
  const unsigned limit = base::slot_limit();
  for (unsigned i = 0; i < limit; ++i) {
    Slot& slot = (*slots_)[i];
    // E1. Acquire: what the writer stored and noted. seq_cst: pairs with Section,
    // where announcements are seq_cst stores.
    for (unsigned round = 0;; ++round) {
      const Epoch announced = slot.announced.load(std::memory_order_seq_cst);
      if (announced == 0 || announced >= c) break;
      base::wait_a_little(round);
    }
  }
  std::uint64_t lines = 0;
  for (unsigned i = 0; i < limit; ++i) {
    auto& list = (*slots_)[i].lines[(c - 1) % kLists];
    for (const std::uint64_t line : list) {
      medium_.flush(medium_.at(line * pmem::kLine), pmem::kLine);
    }
    lines += list.size();
    list.clear();
  }
  if (!medium_.fence()) return Outcome::io_error;  // E2: durable before the clock says so
  medium_.store(word_, c + 1);
  if (!medium_.persist(word_, sizeof(pmem::Word))) return Outcome::io_error;  // E3: before E4
  clock_.store(c + 1, std::memory_order_seq_cst);
  steps_.fetch_add(1, std::memory_order_relaxed);
  lines_.fetch_add(lines, std::memory_order_relaxed);
  return Outcome::done;
}

// Both sides store and then look, seq_cst: a hold and a step never miss each other.
Epochs::Hold::Hold(Epochs& epochs) noexcept : epochs_(epochs) {
  for (unsigned round = 0;; ++round) {
    epochs.holds_.fetch_add(1, std::memory_order_seq_cst);
    if (!epochs.stepping_.load(std::memory_order_seq_cst)) break;
    epochs.holds_.fetch_sub(1, std::memory_order_seq_cst);
    base::wait_a_little(round);
  }
  (*epochs.slots_)[base::thread_slot()].holding = true;
}

Epochs::Hold::~Hold() {
  (*epochs_.slots_)[base::thread_slot()].holding = false;
  // Release: the step sees what was stored under the hold.
  epochs_.holds_.fetch_sub(1, std::memory_order_release);
}

// No hold lives with it. It is not kept waiting by holds that begin after it.
class Epochs::Pause {
 public:
  explicit Pause(Epochs& epochs) noexcept : epochs_(epochs) {
    epochs_.stepping_.store(true, std::memory_order_seq_cst);
    for (unsigned round = 0; epochs_.holds_.load(std::memory_order_seq_cst) != 0; ++round) {
      base::wait_a_little(round);
    }
  }
  Pause(const Pause&) = delete;
  Pause& operator=(const Pause&) = delete;
  ~Pause() { epochs_.stepping_.store(false, std::memory_order_release); }

 private:
  Epochs& epochs_;
};

bool Epochs::holding() const {
  const unsigned slot = base::thread_slot();
  return slot != base::kNoSlot && (*slots_)[slot].holding;
}

Outcome Epochs::advance() {
  if (holding()) return Outcome::out_of_space;
  {
    const base::MutexGuard guard(advancing_);
    const Pause pause(*this);
    if (const Outcome outcome = step(); outcome != Outcome::done) return outcome;
  }
  if (running_.load(std::memory_order_relaxed)) {
    const std::lock_guard guard(waking_);
    advanced_.notify_all();
  }
  const base::MutexGuard guard(listening_);
  for (std::size_t i = 0; const Listener* const one = listener(i); ++i) (*one)();
  return Outcome::done;
}

// Null: there are no more. Listening_ is held, so that it stays.
const Epochs::Listener* Epochs::listener(std::size_t i) {
  const base::MutexGuard guard(adding_);
  return i < listeners_.size() ? &listeners_[i].second : nullptr;
}

Outcome Epochs::sync() {
  const Epoch last = now();
  while (durable() < last) {
    if (const Outcome outcome = advance(); outcome != Outcome::done) return outcome;
  }
  return Outcome::done;
}

Outcome Epochs::wait_durable(Epoch epoch) {
  if (epoch > now()) return Outcome::absent;  // nothing has run in it yet
  if (durable() < epoch && holding()) return Outcome::out_of_space;
  if (running_.load(std::memory_order_relaxed)) {
    std::unique_lock lock(waking_);
    advanced_.wait(lock, [&] { return durable() >= epoch || medium_.failed() || stopping_; });
  }
  while (durable() < epoch) {
    if (const Outcome outcome = advance(); outcome != Outcome::done) return outcome;
  }
  return Outcome::done;
}

std::uint64_t Epochs::listen(Listener listener) {
  const base::MutexGuard guard(adding_);
  listeners_.emplace_back(next_listener_, std::move(listener));
  return next_listener_++;
}

void Epochs::forget(std::uint64_t number) {
  const base::MutexGuard guard(listening_);
  const base::MutexGuard changing(adding_);
  std::erase_if(listeners_, [number](const auto& entry) { return entry.first == number; });
}

bool Epochs::start(std::chrono::nanoseconds length) {
  if (length.count() == 0 || running_.load(std::memory_order_relaxed)) return true;
  stopping_ = false;
  try {
    thread_ = std::thread([this, length] { run(length); });
  } catch (const std::exception&) {  // system_error, or no memory
    return false;
  }
  // Not before: who sees it waits for the thread. Steps until now were waited for by nobody.
  running_.store(true, std::memory_order_relaxed);
  return true;
}

void Epochs::stop() {
  if (!running_.load(std::memory_order_relaxed)) return;
  {
    const std::lock_guard guard(waking_);
    stopping_ = true;
    wake_.notify_all();
    advanced_.notify_all();
  }
  thread_.join();
  running_.store(false);
}

void Epochs::run(std::chrono::nanoseconds length) {
  auto last = std::chrono::steady_clock::now();
  while (true) {
    const auto due = last + length;
    if (length >= kShortestSleep) {
      std::unique_lock lock(waking_);
      if (wake_.wait_until(lock, due, [this] { return stopping_; })) return;
    } else {
      for (unsigned round = 0; std::chrono::steady_clock::now() < due; ++round) {
        base::wait_a_little(round);
      }
      const std::lock_guard lock(waking_);
      if (stopping_) return;
    }
    if (advance() != Outcome::done) {
      const std::lock_guard lock(waking_);
      advanced_.notify_all();
      return;
    }
    const auto now = std::chrono::steady_clock::now();
    const auto ns = static_cast<std::uint64_t>(std::chrono::nanoseconds(now - last).count());
    timed_steps_.fetch_add(1, std::memory_order_relaxed);
    timed_ns_.fetch_add(ns, std::memory_order_relaxed);
    worst_ns_.store(std::max(ns, worst_ns_.load(std::memory_order_relaxed)),
                    std::memory_order_relaxed);
    last = now;
  }
}

Epochs::Figures Epochs::figures() const {
  Figures figures;
  figures.steps = steps_.load(std::memory_order_relaxed);
  figures.lines = lines_.load(std::memory_order_relaxed);
  figures.worst_ns = worst_ns_.load(std::memory_order_relaxed);
  const std::uint64_t timed = timed_steps_.load(std::memory_order_relaxed);
  figures.mean_ns = timed == 0 ? 0 : timed_ns_.load(std::memory_order_relaxed) / timed;
  return figures;
}

}  // namespace everleaf::epoch
