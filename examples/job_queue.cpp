// A queue of jobs for several workers that survives any crash: a strict store, so that a job that
// was accepted is durable, and batches, so that a job is in exactly one of two tables. What a
// worker had taken when the process died runs again at the next start: at least once.
#include <atomic>
#include <cassert>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <everleaf/store.hpp>

namespace {

using everleaf::Batch;
using everleaf::Outcome;
using everleaf::Store;
using everleaf::Table;

class Queue {
 public:
  using Job = std::pair<std::uint64_t, std::string>;

  // Puts back what a crash left half-done.
  explicit Queue(const Store& store)
      : store_(store),
        waiting_(store_.table<std::uint64_t>("waiting").value()),
        running_(store_.table<std::uint64_t>("running").value()) {
    std::vector<Job> left;
    auto cursor = running_.cursor();
    for (cursor.first(); cursor.valid(); cursor.next()) {
      left.emplace_back(cursor.key(), cursor.value());
    }
    for (const auto& [number, text] : left) move(number, text, running_, waiting_);
    for (Table<std::uint64_t>* table : {&waiting_, &running_}) {
      auto last = table->cursor();
      if (last.last() && last.key() >= next_) next_ = last.key() + 1;
    }
  }

  // done: the job survives.
  Outcome push(std::string_view text) {
    const std::lock_guard lock(mutex_);
    return waiting_.insert(next_++, text);
  }

  // The oldest that waits.
  std::optional<Job> take() {
    const std::lock_guard lock(mutex_);
    auto cursor = waiting_.cursor();
    if (!cursor.first()) return std::nullopt;
    Job job(cursor.key(), cursor.value());
    move(job.first, job.second, waiting_, running_);
    return job;
  }

  Outcome finish(const Job& job) { return running_.erase(job.first); }

  [[nodiscard]] std::uint64_t waiting() const { return waiting_.count(); }
  [[nodiscard]] std::uint64_t running() const { return running_.count(); }

 private:
  using Jobs = Table<std::uint64_t>;
  void move(std::uint64_t number, std::string_view text, const Jobs& from, const Jobs& to) {
    Batch batch;
    batch.erase<std::uint64_t>(from, number);
    batch.put<std::uint64_t>(to, number, text);
    if (store_.apply(batch) != Outcome::done) std::abort();  // a real program says so
  }

  Store store_;
  Jobs waiting_;
  Jobs running_;
  std::mutex mutex_;  // who takes which
  std::uint64_t next_ = 1;
};

}  // namespace

int main() {
  auto store = Store::open("jobs.pool", {{}, everleaf::Durability::strict}).value();
  Queue queue(store);
  const bool first = queue.waiting() == 0;
  if (first) {
    for (int i = 0; i < 20; ++i) {
      if (queue.push("job " + std::to_string(i)) != Outcome::done) return 1;
    }
    // Five are done, and in the midst of the sixth the process ends.
    for (int i = 0; i < 5; ++i) {
      const auto job = queue.take();
      if (!job || queue.finish(*job) != Outcome::done) return 1;
    }
    if (!queue.take() || queue.running() != 1) return 1;
    std::printf("run 1\n");
    std::fflush(stdout);
    std::_Exit(0);  // as a crash: nothing is closed
  }
  assert(queue.waiting() == 15 && queue.running() == 0);
  std::atomic<int> worked = 0;
  std::vector<std::thread> workers;
  for (int i = 0; i < 4; ++i) {
    workers.emplace_back([&] {
      while (const auto job = queue.take()) {
        if (queue.finish(*job) == Outcome::done) ++worked;
      }
    });
  }
  for (std::thread& worker : workers) worker.join();
  assert(worked == 15 && queue.waiting() == 0 && queue.running() == 0);
  std::printf("run 2\n");
  return worked == 15 ? 0 : 1;
}
