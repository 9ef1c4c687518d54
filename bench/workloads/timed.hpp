// The timed loop: the same code for every index.
//
// Thread t of T takes the operations t, t + T, t + 2T, ... of the sequence. Every answer is checked
// where it comes (two compares); one operation in `sample_every`, at random gaps, is timed by
// itself, and then the thread also tells how far it is and looks whether it shall go on. The time
// of a phase is from the first thread's start to the last thread's end.
#pragma once

#include <atomic>
#include <barrier>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include <everleaf/index.hpp>

#include <time.h>

#include "compare/session.hpp"
#include "histogram.hpp"
#include "interrupt.hpp"
#include "plan.hpp"
#include "split.hpp"
#include "workloads/keys.hpp"
#include "workloads/over_time.hpp"
#include "workloads/random.hpp"

namespace everleaf::bench {

using Clock = std::chrono::steady_clock;

struct Job {
  Phase phase{Phase::Kind::load};
  std::span<const std::uint64_t> sequence;  // key numbers, one for each operation
  unsigned threads = 1;
  unsigned sample_every = 1;
  std::size_t scan_length = 0;
  std::size_t batch = 1;       // operations of a call: find_many(), or what a store has for writes
  std::uint64_t last_key = 0;  // largest key number that lives throughout: where scans end early
  std::span<const Phase::Kind> kinds = {};         // of a mix: one for each operation
  std::atomic<std::uint64_t>* progress = nullptr;  // counts operations; null: nobody looks
  std::size_t look_ups = 1;                        // of a mix: so many in one call
};

struct Mistake {
  std::uint64_t position = 0;       // in the sequence
  Outcome outcome = Outcome::done;  // done: the answer's content was wrong
};

// What one thread saw. Own cache lines: the threads write to it while they run.
struct alignas(128) WorkerResult {
  Histogram latency;
  std::uint64_t mistakes = 0;
  Mistake first_mistake;
  bool refused = false;  // the first mistake is a refusal (out of space, ...) that ended the thread
  Clock::time_point begin;
  Clock::time_point end;
  double cpu_seconds = 0;
  std::optional<Split> split;
  OverTime over_time;
  std::vector<std::uint8_t>
      answers;           // with whole_space: whether its operations were done, in order
  bool stopped = false;  // by an interrupt, before the last operation
};

// Gaps are uniform in 1 .. 2 * every - 1, so that no period of the index (a split every n inserts)
// can hide from the sampling or fill it.
class Sampler {
 public:
  Sampler(unsigned every, std::uint64_t seed) : random_(seed), width_(2 * every - 1) {
    left_ = gap();
  }

  bool due() {
    if (--left_ != 0) return false;
    left_ = gap();
    return true;
  }

 private:
  std::uint64_t gap() { return 1 + random_.below(width_); }

  Random random_;
  std::uint64_t width_;
  std::uint64_t left_;
};

struct Answer {
  bool right;
  Outcome outcome;
};

inline bool is_refusal(Outcome outcome) {
  return outcome != Outcome::done && outcome != Outcome::exists && outcome != Outcome::absent;
}

// Processor time of the calling thread.
inline double thread_cpu_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

template <class Operation>
void timed_loop(const Job& job, unsigned thread, WorkerResult& result, Operation operation) {
  Sampler sampler(job.sample_every, thread + 1);
  const std::size_t ops = job.sequence.size();
  const double cpu_begin = thread_cpu_seconds();
  const std::optional<Split> split_begin = split_so_far();
  std::size_t i = thread;
  std::size_t told = i;
  result.begin = Clock::now();
  for (; i < ops; i += job.threads * job.batch) {
    const bool timed = sampler.due();
    Clock::time_point before;
    if (timed) [[unlikely]]
      before = Clock::now();
    const Answer answer = operation(i);
    if (timed) [[unlikely]] {
      const Clock::time_point after = Clock::now();
      const std::chrono::nanoseconds spent = after - before;
      result.latency.record(static_cast<std::uint64_t>(spent.count()));
      result.over_time.note(after - result.begin, i / job.threads + job.batch);
      if (job.progress != nullptr) {
        job.progress->fetch_add((i - told) / job.threads, std::memory_order_relaxed);
        told = i;
      }
    }
    if (!answer.right) [[unlikely]] {
      if (result.mistakes++ == 0) result.first_mistake = {i, answer.outcome};
      if (is_refusal(answer.outcome)) {
        result.refused = true;
        break;
      }
    }
    if (timed && Interrupt::asked()) [[unlikely]] {
      result.stopped = true;
      break;
    }
  }
  result.end = Clock::now();
  const std::size_t own = (ops + job.threads - 1 - thread) / job.threads;
  result.over_time.note(result.end - result.begin, std::min(i / job.threads, own));
  if (split_begin) result.split = *split_so_far() - *split_begin;
  result.cpu_seconds = thread_cpu_seconds() - cpu_begin;
}

// A scan is right if it starts with the key that was asked for and its value, and ends early only
// at the last key; in a mix, keys beyond it may come and go.
template <class K>
Answer judge_scan(Outcome outcome, const std::vector<Entry<K>>& entries, K from,
                  const KeyCodec<K>& codec, std::uint64_t number, std::size_t length,
                  const Job& job) {
  if (outcome != Outcome::done || entries.empty()) return {false, outcome};
  const bool starts_right =
      entries.front().key == from && value_belongs(entries.front().value, number);
  const std::optional<std::uint64_t> last = codec.number_of(entries.back().key);
  const bool ends_right = entries.size() == length || last == job.last_key ||
                          (job.phase.kind == Phase::Kind::mix && last > job.last_key);
  return {starts_right && ends_right, outcome};
}

// One operation and its check. Inlined whatever the compiler thinks: each is used by its own phase
// and by the mix, and a call would cost the rivals most. No class around them: its members would be
// read again in every operation.
template <class K, class Store>
[[gnu::always_inline]] inline Answer insert_one(Store& store, KeyCodec<K>& key,
                                                std::uint64_t number) {
  const Outcome outcome = store.insert(key(number), value_of(number, 0));
  return {outcome == Outcome::done, outcome};
}
template <class K, class Store>
[[gnu::always_inline]] inline Answer find_one(Store& store, KeyCodec<K>& key,
                                              std::uint64_t number) {
  const Lookup hit = store.find(key(number));
  return {hit.outcome == Outcome::done && value_belongs(hit.value, number), hit.outcome};
}
template <class K, class Store>
[[gnu::always_inline]] inline Answer update_one(Store& store, KeyCodec<K>& key,
                                                std::uint64_t number) {
  const Outcome outcome = store.update(key(number), value_of(number, 1));
  return {outcome == Outcome::done, outcome};
}
template <class K, class Store>
[[gnu::always_inline]] inline Answer remove_one(Store& store, KeyCodec<K>& key,
                                                std::uint64_t number) {
  const Outcome outcome = store.remove(key(number));
  return {outcome == Outcome::done, outcome};
}
template <class K, class Store>
[[gnu::always_inline]] inline Answer upsert_one(Store& store, KeyCodec<K>& key,
                                                std::uint64_t number) {
  const Outcome outcome = store.upsert(key(number), value_of(number, 1));
  return {outcome == Outcome::done, outcome};
}
// Read, modify, write: two calls, as a user would.
template <class K, class Store>
[[gnu::always_inline]] inline Answer modify_one(Store& store, KeyCodec<K>& key,
                                                std::uint64_t number) {
  const Answer read = find_one<K>(store, key, number);
  return read.right ? update_one<K>(store, key, number) : read;
}
// Entries that operation i of the sequence asks for.
inline std::size_t scan_length_of(const Job& job, std::size_t i) {
  if (!job.phase.varied_scans) return job.scan_length;
  return static_cast<std::size_t>(1 + Random(i).below(job.scan_length));
}
template <class K, class Store>
Answer scan_one(Store& store, KeyCodec<K>& key, std::size_t i, const Job& job,
                std::vector<Entry<K>>& entries) {
  const std::uint64_t number = job.sequence[i];
  const std::size_t length = scan_length_of(job, i);
  const K from = key(number);
  const Outcome outcome = store.scan(from, length, entries);
  return judge_scan<K>(outcome, entries, from, key, number, length, job);
}

// Keys may be there or not: `done` is for settle() (space.hpp) to judge. What can be judged here is
// a value, and that the answer is one of the two.
template <class K, class Store>
Answer whole_space_one(Store& store, KeyCodec<K>& key, std::uint64_t number, Phase::Kind kind,
                       std::uint8_t& done) {
  Answer answer = kind == Phase::Kind::find     ? find_one<K>(store, key, number)
                  : kind == Phase::Kind::insert ? insert_one<K>(store, key, number)
                  : kind == Phase::Kind::remove ? remove_one<K>(store, key, number)
                                                : upsert_one<K>(store, key, number);
  done = answer.outcome == Outcome::done ? 1 : 0;
  const Outcome other = kind == Phase::Kind::insert ? Outcome::exists : Outcome::absent;
  if (kind != Phase::Kind::upsert && answer.outcome == other) answer.right = true;
  return answer;
}

template <class K, class Store>
void work_on_whole_space(Store& store, KeyCodec<K> key, const Job& job, unsigned thread,
                         WorkerResult& result) {
  result.answers.resize(job.sequence.size() / job.threads + 1);  // unless it has them
  timed_loop(job, thread, result, [&](std::size_t i) {
    return whole_space_one<K>(store, key, job.sequence[i], job.kinds[i],
                              result.answers[i / job.threads]);
  });
}

// Look-ups that are asked for at once, where the store can; else one after the other.
template <class K, class Store>
class Together {
 public:
  Together(Store& store, KeyCodec<K> key, std::size_t most)
      : store_(store), key_(std::move(key)), owned_(most), numbers_(most) {}

  [[nodiscard]] bool full() const { return count_ == numbers_.size(); }
  [[nodiscard]] bool empty() const { return count_ == 0; }
  void add(std::uint64_t number) {
    if constexpr (kMany) owned_[count_] = key_(number);
    numbers_[count_++] = number;
  }
  // Of all that were added since.
  Answer ask() {
    const auto numbers = std::span(numbers_).first(std::exchange(count_, 0));
    if constexpr (kMany) {
      asked_.assign(owned_.begin(), owned_.begin() + static_cast<std::ptrdiff_t>(numbers.size()));
      store_.find_many(std::span<const K>(asked_), answers_);
      for (std::size_t i = 0; i < numbers.size(); ++i) {
        const bool right = answers_[i] && value_belongs(*answers_[i], numbers[i]);
        if (!right) return {false, answers_[i].outcome};
      }
    } else {
      for (const std::uint64_t number : numbers) {
        const Answer answer = find_one<K>(store_, key_, number);
        if (!answer.right) return answer;
      }
    }
    return {true, Outcome::done};
  }

 private:
  static constexpr bool kMany =
      requires(Store & store, std::span<const K> keys, std::vector<Lookup>& answers) {
    store.find_many(keys, answers);
  };
  Store& store_;
  KeyCodec<K> key_;
  std::vector<typename OwnedKey<K>::type> owned_;
  std::vector<std::uint64_t> numbers_;
  std::size_t count_ = 0;
  std::vector<K> asked_;
  std::vector<Lookup> answers_;
};

// With kTogether look-ups wait until there are job.look_ups of them. A key that a mix looks up
// is there from then to the end, so that the wait changes no answer.
template <bool kTogether, class K, class Store>
void work_on_mix(Store& store, KeyCodec<K> key, const Job& job, unsigned thread,
                 std::vector<Entry<K>>& entries, WorkerResult& result) {
  const std::uint64_t* const keys = job.sequence.data();
  const auto one = [&](std::size_t i) {
    switch (job.kinds[i]) {
      case Phase::Kind::find:
        return find_one<K>(store, key, keys[i]);
      case Phase::Kind::update:
        return update_one<K>(store, key, keys[i]);
      case Phase::Kind::upsert:
        return upsert_one<K>(store, key, keys[i]);
      case Phase::Kind::modify:
        return modify_one<K>(store, key, keys[i]);
      case Phase::Kind::scan:
        return scan_one<K>(store, key, i, job, entries);
      case Phase::Kind::remove:
        return remove_one<K>(store, key, keys[i]);
      default:
        return insert_one<K>(store, key, keys[i]);
    }
  };
  if constexpr (kTogether) {
    Together<K, Store> look_ups(store, key, job.look_ups);
    timed_loop(job, thread, result, [&](std::size_t i) {
      Answer answer{true, Outcome::done};
      if (job.kinds[i] == Phase::Kind::find) {
        look_ups.add(keys[i]);
      } else {
        answer = one(i);
      }
      const bool last = i + job.threads >= job.sequence.size();
      if (!answer.right || look_ups.empty() || !(last || look_ups.full())) return answer;
      return look_ups.ask();
    });
  } else {
    timed_loop(job, thread, result, one);
  }
}

template <class K, class Store>
void work_in_batches(Store& store, KeyCodec<K> key, const Job& job, unsigned thread,
                     WorkerResult& result) {
  Together<K, Store> look_ups(store, std::move(key), job.batch);
  timed_loop(job, thread, result, [&](std::size_t i) {
    const std::size_t left = (job.sequence.size() - i + job.threads - 1) / job.threads;
    const std::size_t n = std::min(left, job.batch);
    for (std::size_t k = 0; k < n; ++k) look_ups.add(job.sequence[i + k * job.threads]);
    return look_ups.ask();
  });
}

// Writes of many at once, of stores.
template <class K, class Store>
void write_in_batches(Store& store, KeyCodec<K> key, const Job& job, unsigned thread,
                      WorkerResult& result) {
  std::vector<typename OwnedKey<K>::type> owned(job.batch);
  std::vector<K> keys;
  std::vector<std::uint64_t> values(job.batch);
  const std::uint64_t writer = job.phase.overwrites() ? 1 : 0;
  timed_loop(job, thread, result, [&](std::size_t i) {
    const std::size_t left = (job.sequence.size() - i + job.threads - 1) / job.threads;
    const std::size_t n = std::min(left, job.batch);
    for (std::size_t k = 0; k < n; ++k) {
      const std::uint64_t number = job.sequence[i + k * job.threads];
      owned[k] = key(number);
      values[k] = value_of(number, writer);
    }
    keys.assign(owned.begin(), owned.begin() + static_cast<std::ptrdiff_t>(n));
    const Outcome outcome = store.upsert_all(std::span<const K>(keys), std::span(values).first(n));
    return Answer{outcome == Outcome::done, outcome};
  });
}

// All records in one call by the first thread, whoever else there is; of what has no such call, one
// by one in their order.
template <class K, class Store>
void load_in_bulk(Store& store, KeyCodec<K> key, const Job& job, unsigned thread,
                  WorkerResult& result) {
  result.begin = result.end = Clock::now();
  if (thread != 0) return;
  Job alone = job;
  alone.threads = 1;
  if constexpr (requires { store.bulk_load({}, 1.0); }) {
    std::vector<Entry<K>> entries(job.sequence.size());
    for (std::size_t i = 0; i < entries.size(); ++i) {
      entries[i].key = key(job.sequence[i]);
      entries[i].value = value_of(job.sequence[i], 0);
    }
    timed_loop(alone, thread, result, [&](std::size_t) {
      const Outcome outcome = store.bulk_load(entries, job.phase.fill / 100.0);
      return Answer{outcome == Outcome::done, outcome};
    });
  } else {
    alone.batch = 1;
    timed_loop(alone, thread, result,
               [&](std::size_t i) { return insert_one<K>(store, key, job.sequence[i]); });
  }
}

// What `thread` does in the phase. Store has the face of Index<K>, or sessions that have it.
template <class K, class Store>
void work(Store& index, KeyCodec<K> key, const Job& job, unsigned thread, WorkerResult& result) {
  auto&& store = session_of(index, job.phase.whole_space);
  const std::uint64_t* const keys = job.sequence.data();
  std::vector<Entry<K>> entries;
  if (job.phase.has(Phase::Kind::scan)) entries.reserve(job.scan_length);
  if constexpr (requires { store.upsert_all({}, {}); }) {
    if (job.phase.batched) {
      return write_in_batches<K>(store, std::move(key), job, thread, result);
    }
  }
  if (job.phase.fill != 0) return load_in_bulk<K>(store, std::move(key), job, thread, result);
  switch (job.phase.kind) {
    case Phase::Kind::load:
    case Phase::Kind::insert:
      return timed_loop(job, thread, result,
                        [&](std::size_t i) { return insert_one<K>(store, key, keys[i]); });
    case Phase::Kind::find:
      if (job.batch != 1) return work_in_batches<K>(store, std::move(key), job, thread, result);
      return timed_loop(job, thread, result,
                        [&](std::size_t i) { return find_one<K>(store, key, keys[i]); });
    case Phase::Kind::update:
      return timed_loop(job, thread, result,
                        [&](std::size_t i) { return update_one<K>(store, key, keys[i]); });
    case Phase::Kind::scan:
      return timed_loop(job, thread, result,
                        [&](std::size_t i) { return scan_one<K>(store, key, i, job, entries); });
    case Phase::Kind::remove:
      return timed_loop(job, thread, result,
                        [&](std::size_t i) { return remove_one<K>(store, key, keys[i]); });
    case Phase::Kind::upsert:
      return timed_loop(job, thread, result,
                        [&](std::size_t i) { return upsert_one<K>(store, key, keys[i]); });
    case Phase::Kind::modify:
      return timed_loop(job, thread, result,
                        [&](std::size_t i) { return modify_one<K>(store, key, keys[i]); });
    case Phase::Kind::mix:
      if (job.phase.whole_space) {
        return work_on_whole_space<K>(store, std::move(key), job, thread, result);
      }
      if (job.look_ups != 1) {
        return work_on_mix<true, K>(store, std::move(key), job, thread, entries, result);
      }
      return work_on_mix<false, K>(store, std::move(key), job, thread, entries, result);
  }
}

// Runs the phase on results.size() threads that start together. One thread is the caller itself: a
// second one would give the rivals an arena of malloc that grows in small steps.
template <class K, class Store>
void run_threads(Store& store, const KeyCodec<K>& codec, const Job& job,
                 std::span<WorkerResult> results) {
  if (results.size() == 1) return work<K>(store, codec, job, 0, results[0]);
  std::barrier start(static_cast<std::ptrdiff_t>(results.size()));
  std::vector<std::jthread> threads;
  for (unsigned thread = 0; thread < results.size(); ++thread) {
    threads.emplace_back([&, thread] {
      start.arrive_and_wait();
      work<K>(store, codec, job, thread, results[thread]);
    });
  }
}

}  // namespace everleaf::bench
