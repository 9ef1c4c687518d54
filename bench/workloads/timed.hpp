// The timed loop: the same code for every index.
//
// Thread t of T takes the operations t, t + T, t + 2T, ... of the sequence. Every answer is checked
// where it comes (two compares); one operation in `sample_every`, at random gaps, is timed by
// itself. The time of a phase is from the first thread's start to the last thread's end.
#pragma once

#include <barrier>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include <everleaf/index.hpp>

#include <time.h>

#include "histogram.hpp"
#include "plan.hpp"
#include "split.hpp"
#include "workloads/keys.hpp"
#include "workloads/random.hpp"

namespace everleaf::bench {

using Clock = std::chrono::steady_clock;

struct Job {
  Phase phase{Phase::Kind::load};
  std::span<const std::uint64_t> sequence;  // key numbers, one for each operation
  unsigned threads = 1;
  unsigned sample_every = 1;
  std::size_t scan_length = 0;
  std::uint64_t last_key = 0;  // largest key number that lives throughout: where scans end early
  std::span<const Phase::Kind> kinds = {};  // of a mix: one for each operation
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
  result.begin = Clock::now();
  for (std::size_t i = thread; i < ops; i += job.threads) {
    const bool timed = sampler.due();
    Clock::time_point before;
    if (timed) [[unlikely]]
      before = Clock::now();
    const Answer answer = operation(i);
    if (timed) [[unlikely]] {
      const std::chrono::nanoseconds spent = Clock::now() - before;
      result.latency.record(static_cast<std::uint64_t>(spent.count()));
    }
    if (!answer.right) [[unlikely]] {
      if (result.mistakes++ == 0) result.first_mistake = {i, answer.outcome};
      if (is_refusal(answer.outcome)) {
        result.refused = true;
        break;
      }
    }
  }
  result.end = Clock::now();
  if (split_begin) result.split = *split_so_far() - *split_begin;
  result.cpu_seconds = thread_cpu_seconds() - cpu_begin;
}

// A scan is right if it starts with the key that was asked for and its value, and ends early only
// at the last key; in a mix, keys beyond it may come and go.
template <class K>
Answer judge_scan(Outcome outcome, const std::vector<Entry<K>>& entries, K from,
                  std::uint64_t number, const Job& job) {
  if (outcome != Outcome::done || entries.empty()) return {false, outcome};
  const bool starts_right =
      entries.front().key == from && value_belongs(entries.front().value, number);
  const std::optional<std::uint64_t> last = KeyCodec<K>::number_of(entries.back().key);
  const bool ends_right = entries.size() == job.scan_length || last == job.last_key ||
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
Answer scan_one(Store& store, KeyCodec<K>& key, std::uint64_t number, const Job& job,
                std::vector<Entry<K>>& entries) {
  const K from = key(number);
  const Outcome outcome = store.scan(from, job.scan_length, entries);
  return judge_scan<K>(outcome, entries, from, number, job);
}

// What `thread` does in the phase. Store has the face of Index<K>.
template <class K, class Store>
void work(Store& store, const Job& job, unsigned thread, WorkerResult& result) {
  KeyCodec<K> key;
  const std::uint64_t* const keys = job.sequence.data();
  std::vector<Entry<K>> entries;
  if (job.phase.has(Phase::Kind::scan)) entries.reserve(job.scan_length);
  switch (job.phase.kind) {
    case Phase::Kind::load:
    case Phase::Kind::insert:
      return timed_loop(job, thread, result,
                        [&](std::size_t i) { return insert_one<K>(store, key, keys[i]); });
    case Phase::Kind::find:
      return timed_loop(job, thread, result,
                        [&](std::size_t i) { return find_one<K>(store, key, keys[i]); });
    case Phase::Kind::update:
      return timed_loop(job, thread, result,
                        [&](std::size_t i) { return update_one<K>(store, key, keys[i]); });
    case Phase::Kind::scan:
      return timed_loop(job, thread, result, [&](std::size_t i) {
        return scan_one<K>(store, key, keys[i], job, entries);
      });
    case Phase::Kind::remove:
      return timed_loop(job, thread, result,
                        [&](std::size_t i) { return remove_one<K>(store, key, keys[i]); });
    case Phase::Kind::mix:
      return timed_loop(job, thread, result, [&](std::size_t i) {
        switch (job.kinds[i]) {
          case Phase::Kind::find:
            return find_one<K>(store, key, keys[i]);
          case Phase::Kind::update:
            return update_one<K>(store, key, keys[i]);
          case Phase::Kind::scan:
            return scan_one<K>(store, key, keys[i], job, entries);
          case Phase::Kind::remove:
            return remove_one<K>(store, key, keys[i]);
          default:
            return insert_one<K>(store, key, keys[i]);
        }
      });
  }
}

// Runs the phase on results.size() threads that start together. One thread is the caller itself: a
// second one would give the rivals an arena of malloc that grows in small steps.
template <class K, class Store>
void run_threads(Store& store, const Job& job, std::span<WorkerResult> results) {
  if (results.size() == 1) return work<K>(store, job, 0, results[0]);
  std::barrier start(static_cast<std::ptrdiff_t>(results.size()));
  std::vector<std::jthread> threads;
  for (unsigned thread = 0; thread < results.size(); ++thread) {
    threads.emplace_back([&, thread] {
      start.arrive_and_wait();
      work<K>(store, job, thread, results[thread]);
    });
  }
}

}  // namespace everleaf::bench
