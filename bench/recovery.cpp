#include "recovery.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <ctime>
#include <nlohmann/json.hpp>
#include <thread>

#include <everleaf/index.hpp>
#include <everleaf/pool.hpp>

#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "failure.hpp"
#include "interrupt.hpp"
#include "progress.hpp"
#include "report.hpp"
#include "scratch.hpp"
#include "workloads/keys.hpp"
#include "workloads/random.hpp"

namespace everleaf::bench {
namespace {

using Clock = std::chrono::steady_clock;
constexpr const char* kName = "bench";
constexpr std::uint64_t kNewEvery = 4;  // of the writes, an insertion; the others are updates
constexpr std::uint64_t kLooks = 10'000;
constexpr std::uint64_t kTold = 100;  // times that a child tells how far it is

std::uint64_t since(Clock::time_point from) {
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - from).count());
}

// Of all threads of this process.
std::uint64_t cpu_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(now.tv_nsec);
}

template <class T>
T must(Result<T> result, const std::string& what) {
  if (result) return *std::move(result);
  throw Failure(kExitIo, fmt::format("{}: {}", what, result.error().message));
}

template <class K>
class Subject {
 public:
  Subject(const Plan& plan, const IndexChoice& choice, unsigned threads, std::filesystem::path file)
      : plan_(plan),
        choice_(choice),
        threads_(threads),
        file_(std::move(file)),
        keys_(KeyOrder::scattered, plan.seed) {}

  RecoveryRow measure() {
    RecoveryRow row{choice_.name, {}, {}, threads_, plan_.records, 0, {}};
    for (unsigned round = 0; round < plan_.repeat; ++round) {
      kill_a_writer(round);
      if (Interrupt::asked()) break;
      row.opened.push_back(reopen(row));
      row.opened.back().pass = pass_over_leaves(file_, kName);
    }
    return row;
  }

 private:
  [[nodiscard]] Pool open(Mode mode) const {
    return must(Pool::open(file_, pool_options(plan_, mode)), "pool");
  }

  // The child's life: it tells when it is there, and does not end by itself.
  [[noreturn]] void write(unsigned round, int ready) const {
    try {
      Pool pool = open(round == 0 ? Mode::create : Mode::open);
      auto index = must(pool.index<K>(kName, choice_.name), choice_.name);
      if (round == 0) in_threads([&](unsigned thread) { load(index, thread, ready); });
      if (pool.sync() != Outcome::done) ::_exit(kExitIo);
      tell(ready, kReady);
      in_threads([&](unsigned thread) { go_on(index, round, thread); });
    } catch (const std::exception& error) {
      fmt::print(stderr, "everleaf-bench: {}\n", error.what());
    }
    ::_exit(kExitIo);
  }
  template <class Work>
  void in_threads(Work work) const {
    std::vector<std::thread> others;
    for (unsigned thread = 1; thread < threads_; ++thread) others.emplace_back(work, thread);
    work(0U);
    for (std::thread& other : others) other.join();
  }
  static constexpr char kFurther = 'f';
  static constexpr char kReady = 'r';
  static void tell(int to, char what) {
    if (::write(to, &what, 1) != 1) ::_exit(kExitIo);
  }
  void load(Index<K>& index, unsigned thread, int ready) const {
    KeyCodec<K> codec(plan_.key_bytes);
    const std::uint64_t tell_every = std::max<std::uint64_t>(1, plan_.records / threads_ / kTold);
    for (std::uint64_t id = thread; id < plan_.records; id += threads_) {
      const std::uint64_t key = keys_.key_of(id);
      if (index.insert(codec(key), value_of(key, 0)) != Outcome::done) ::_exit(kExitIo);
      if (thread == 0 && id / threads_ % tell_every == 0) tell(ready, kFurther);
    }
  }
  void go_on(Index<K>& index, unsigned round, unsigned thread) const {
    KeyCodec<K> codec(plan_.key_bytes);
    Random random(mix(plan_.seed + kGolden * (round * kMaxThreads + thread + 1)));
    // Ids of its own: behind the records, far from those of other threads and rounds.
    std::uint64_t fresh = plan_.records + ((std::uint64_t{round} * kMaxThreads + thread) << 32);
    for (std::uint64_t n = 0;; ++n) {
      const bool is_new = n % kNewEvery == 0;
      const std::uint64_t key = keys_.key_of(is_new ? fresh++ : random.below(plan_.records));
      if (index.upsert(codec(key), value_of(key, 1)) != Outcome::done) ::_exit(kExitIo);
    }
  }

  // Whether the child says that it writes; it does not if it ended, or somebody interrupts.
  [[nodiscard]] bool wait_for(int ready, unsigned round) const {
    constexpr int kPauseMs = 250;
    const bool shown = ::isatty(STDERR_FILENO) == 1;
    pollfd waiting{ready, POLLIN, 0};
    unsigned told = 0;
    char said = kFurther;
    while (!Interrupt::asked() && said == kFurther) {
      if (shown) {
        fmt::print(stderr, "\r\x1b[K{} {}, {} thread(s), round {}/{}: {}",
                   bar(static_cast<double>(told) / kTold, 20), choice_.name, threads_, round + 1,
                   plan_.repeat, round == 0 ? "loading" : "opening");
      }
      if (::poll(&waiting, 1, kPauseMs) != 1) continue;
      if (::read(ready, &said, 1) != 1) said = 0;
      ++told;
    }
    if (shown) fmt::print(stderr, "\r\x1b[K");
    return said == kReady;
  }

  void kill_a_writer(unsigned round) const {
    std::array<int, 2> ends{};
    if (::pipe(ends.data()) != 0) throw Failure(kExitIo, "no pipe");
    const pid_t child = ::fork();
    if (child < 0) throw Failure(kExitIo, "no process");
    if (child == 0) {
      // It has no end of its own, whatever happens to this process.
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::close(ends[0]);
      write(round, ends[1]);
    }
    ::close(ends[1]);
    const bool ready = wait_for(ends[0], round);
    ::close(ends[0]);
    if (ready) {
      Random random(mix(plan_.seed + round));
      std::this_thread::sleep_for(std::chrono::milliseconds(200 + random.below(300)));
    }
    ::kill(child, SIGKILL);
    int status = 0;
    ::waitpid(child, &status, 0);
    if (Interrupt::asked()) return;
    if (!ready || !WIFSIGNALED(status)) {
      throw Failure(kExitIo, fmt::format("{}: the writers ended by themselves", choice_.name));
    }
  }

  Reopened reopen(RecoveryRow& row) const {
    Reopened times;
    const std::uint64_t cpu_begun = cpu_ns();
    const auto opening = Clock::now();
    Pool pool = open(Mode::open);
    times.open_ns = pool.info().open_ns;
    times.replayed = pool.info().replayed;
    auto begun = Clock::now();
    const auto index = must(pool.index<K>(kName), choice_.name);
    times.index_ns = since(begun);
    const double whole = static_cast<double>(std::max<std::uint64_t>(1, since(opening)));
    times.cpu_share = std::min(1.0, static_cast<double>(cpu_ns() - cpu_begun) / whole);
    KeyCodec<K> codec(plan_.key_bytes);
    begun = Clock::now();
    look(index, codec, 0);
    times.find_ns = since(begun);
    const std::uint64_t step = std::max<std::uint64_t>(1, plan_.records / kLooks);
    for (std::uint64_t id = 0; id < plan_.records; id += step) look(index, codec, id);
    row.domain = to_string(pool.info().domain.domain);
    row.spec = index.info().spec;
    times.keys = index.size();
    row.keys = times.keys;
    const Stats stats = index.stats();
    times.dram_bytes = stats.dram_bytes;
    for (const auto& [name, value] : stats.more) {
      if (name == "rebuild_ns") times.rebuild_ns = value;
    }
    return times;
  }
  void look(const Index<K>& index, KeyCodec<K>& codec, std::uint64_t id) const {
    const std::uint64_t key = keys_.key_of(id);
    const Lookup found = index.find(codec(key));
    if (found && value_belongs(*found, key)) return;
    throw Failure(kExitWrongAnswer,
                  fmt::format("{}: record {} is lost, or has another value", choice_.name, id));
  }

  const Plan& plan_;
  const IndexChoice& choice_;
  const unsigned threads_;
  const std::filesystem::path file_;
  const KeySpace keys_;
};

std::string spread(const std::vector<double>& all) {
  const auto [least, most] = std::ranges::minmax(all);
  return fmt::format("{:.3f} ({:.3f} to {:.3f})", median(all), least, most);
}

std::string milliseconds(const RecoveryRow& row, std::uint64_t Reopened::*part) {
  std::vector<double> all;
  for (const Reopened& one : row.opened) all.push_back(static_cast<double>(one.*part) / 1e6);
  return spread(all);
}

// What a recovery from the leaves took, beside a pass over them.
std::string passes(const RecoveryRow& row) {
  std::vector<double> rebuilt;
  std::vector<double> passed;
  std::vector<double> ratios;
  for (const Reopened& one : row.opened) {
    if (one.pass.leaves == 0 || one.pass.ns == 0) return "";
    rebuilt.push_back(static_cast<double>(one.rebuild_ns) / 1e6);
    passed.push_back(static_cast<double>(one.pass.ns) / 1e6);
    ratios.push_back(rebuilt.back() / passed.back());
  }
  return fmt::format(
      "{}, {} records, {} writing: inner nodes rebuilt in {} ms; one pass over the first lines of "
      "{} leaves {} "
      "ms: {} times that\n",
      row.name, row.records, row.threads, spread(rebuilt), row.opened.back().pass.leaves,
      spread(passed), spread(ratios));
}

RecoveryRow measure_one(const Plan& plan, const IndexChoice& choice, unsigned threads,
                        const std::filesystem::path& file) {
  RecoveryRow row = plan.keys == KeyType::u64
                        ? Subject<std::uint64_t>(plan, choice, threads, file).measure()
                        : Subject<Bytes>(plan, choice, threads, file).measure();
  std::filesystem::remove(file);
  return row;
}

}  // namespace

std::vector<RecoveryRow> measure_recovery(const Plan& plan) {
  if (plan.domain == Domain::volatile_)
    throw Failure(kExitUsage, "--recovery: a volatile pool is gone with its process");
  if (plan.room != 0)
    throw Failure(kExitUsage, "--recovery: its pools grow as they need it, no --room");
  Scratch scratch(plan.dir);
  std::vector<RecoveryRow> rows;
  for (const std::uint64_t records : plan.sizes) {
    Plan sized = plan;
    sized.records = records;
    for (const IndexChoice& choice : plan.indexes) {
      if (choice.rival) continue;
      for (const unsigned threads : plan.threads) {
        if (Interrupt::asked()) return rows;
        RecoveryRow row = measure_one(sized, choice, threads, scratch.new_file());
        if (!row.opened.empty()) rows.push_back(std::move(row));
      }
    }
  }
  if (rows.empty() && !Interrupt::asked())
    throw Failure(kExitUsage, "--recovery: no tree; rivals are left out");
  return rows;
}

std::string recovery_table(const Plan& plan, const std::vector<RecoveryRow>& rows) {
  std::string text = fmt::format(
      "{} keys; writers (1 insertion, 3 updates) killed with SIGKILL {} times; "
      "milliseconds: median (least to most)\n{:<24} {:>10} {:>4} {:>10} {:>28} {:>28} {:>28}\n",
      plan.keys_text, plan.repeat, "index", "records", "thr", "keys", "open the pool",
      "open the index", "first find");
  for (const RecoveryRow& row : rows) {
    text +=
        fmt::format("{:<24} {:>10} {:>4} {:>10} {:>28} {:>28} {:>28}\n", row.name, row.records,
                    row.threads, row.keys, milliseconds(row, &Reopened::open_ns),
                    milliseconds(row, &Reopened::index_ns), milliseconds(row, &Reopened::find_ns));
  }
  for (const RecoveryRow& row : rows) text += passes(row);
  return text;
}

std::string recovery_json(const Plan& plan, const Run& run, const std::vector<RecoveryRow>& rows) {
  nlohmann::ordered_json json = head_json(run);
  json["interrupted"] = Interrupt::asked();
  json["recovery"] = nlohmann::ordered_json::array();
  for (const RecoveryRow& row : rows) {
    nlohmann::ordered_json one = {{"index", row.name},      {"spec", row.spec},
                                  {"threads", row.threads}, {"records", row.records},
                                  {"keys", plan.keys_text}, {"size", row.keys},
                                  {"domain", row.domain},   {"pages", plan.pages}};
    for (const Reopened& times : row.opened) {
      one["opened"].push_back({{"open_ns", times.open_ns},
                               {"index_ns", times.index_ns},
                               {"find_ns", times.find_ns},
                               {"cpu_share", times.cpu_share},
                               {"size", times.keys},
                               {"replayed", times.replayed},
                               {"dram_bytes", times.dram_bytes},
                               {"rebuild_ns", times.rebuild_ns},
                               {"leaf_pass_ns", times.pass.ns},
                               {"leaves", times.pass.leaves}});
    }
    json["recovery"].push_back(one);
  }
  return json.dump(2) + "\n";
}

}  // namespace everleaf::bench
