#include "threads/concurrent.hpp"

#include <algorithm>
#include <array>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>

#include "threads/text.hpp"
#include "trees/pool_state.hpp"
#include "values.hpp"

namespace everleaf::crash {
namespace {

constexpr std::size_t kCapacity = std::size_t{2} << 20;
constexpr std::uint64_t kMostPoints = 200'000;
constexpr std::uint64_t kMostEvents = 20'000'000;
constexpr const char* kName = "index";
constexpr std::uint32_t kMostKeys = 512;
constexpr std::uint64_t kAfterwards = 9000;  // values of what is written after a crash
constexpr std::ptrdiff_t kTogether = 3;
constexpr std::string_view kLetters = "iuprfsmt";  // in the order of Call::Kind

std::uint64_t preloaded(std::uint32_t key) {
  return 1000 + key;
}

// One program on one index. Level 0 of the arena holds the pool before the threads, level 1 a
// schedule, level 2 what recovery makes of a crash in it.
template <class K>
class Concurrent final : Crasher {
 public:
  explicit Concurrent(const ConcurrentConfig& config)
      : config_(config),
        arena_(kCapacity, 3,
               {config.domain == Domain::disk ? std::size_t{8} : std::size_t{64},
                config.domain == Domain::cache || config.domain == Domain::process}),
        recorder_(arena_) {
    options_.domain = config.domain;  // the library has paths of its own for each
    options_.emulate = true;
    options_.epoch_length = {};  // the program steps the clock
    recorder_.crasher = this;
    recorder_.dropped = config.dropped;
    Recorder::watch(&recorder_);
  }
  Concurrent(const Concurrent&) = delete;
  Concurrent& operator=(const Concurrent&) = delete;
  ~Concurrent() { Recorder::watch(nullptr); }

  ConcurrentReport go() {
    take_slots(config_.program.threads.size());
    preload();
    if (!report_.failure.empty()) return std::move(report_);
    recorder_.settle();
    arena_.enter();
    recorder_.switch_level();
    if (config_.replay) {
      Replay policy(*config_.replay);
      (void)schedule(policy);
      report_.switches = *config_.replay;
    } else {
      explore();
    }
    arena_.leave();
    recorder_.switch_level();
    report_.merged = arena_.merged();
    report_.reached = recorder_.reached;
    return std::move(report_);
  }

 private:
  using Owned = typename OwnedKey<K>::type;

  void preload() {
    recorder_.crasher = nullptr;
    auto pool = PoolAccess::format(arena_.base(0), bytes_, kCapacity, options_, &recorder_);
    if (!pool) return fail("format: " + pool.error().message);
    auto index = values_in<K>(*pool, kName, config_.spec);
    if (!index) return fail("index: " + index.error().message);
    for (const std::uint32_t key : config_.program.preload) {
      if (index->insert(make_key<K>(key), preloaded(key)) != Outcome::done) fail("cannot preload");
    }
    for (const std::uint32_t key : config_.program.removed) {
      if (index->remove(make_key<K>(key)) != Outcome::done) fail("cannot preload");
    }
    if (pool->sync() != Outcome::done) fail("cannot preload");
    bytes_ = PoolAccess::state(*pool).medium().size();
    recorder_.crasher = this;
  }

  // --- Schedules ---
  // First without crashes: many races need none, and a schedule takes little time then.
  void explore() {
    crashes_ = false;
    explore_until(config_.crashes ? config_.deadline.part(0.25) : config_.deadline);
    if (!config_.crashes || !report_.failure.empty()) return;
    crashes_ = true;
    explore_until(config_.deadline);
  }

  void explore_until(const Deadline& deadline) {
    Explorer explorer({static_cast<unsigned>(config_.program.threads.size()), config_.preemptions,
                       config_.random_runs, config_.seed, deadline, sleeper()});
    explorer.all([this](Policy& policy, Trace& trace) {
      trace = schedule(policy);
      return report_.failure.empty();
    });
    report_.switches = explorer.failing();
    report_.complete = explorer.complete();
  }

  // A thread that only reads: what it holds on to while others work is what they must leave alone.
  [[nodiscard]] unsigned sleeper() const {
    const auto reads = [](const Call& call) {
      return call.kind == Call::Kind::find || call.kind == Call::Kind::scan ||
             call.kind == Call::Kind::many;
    };
    const auto& threads = config_.program.threads;
    const auto found = std::ranges::find_if(
        threads, [&](const auto& calls) { return std::ranges::all_of(calls, reads); });
    return found == threads.end() ? kNobody : static_cast<unsigned>(found - threads.begin());
  }

  Trace schedule(Policy& policy) {
    ++report_.schedules;
    arena_.begin({});
    recorder_.allow(kMostEvents);
    quiet_ = true;
    Trace trace;
    {
      auto pool = PoolAccess::attach(arena_.base(1), bytes_, kCapacity, options_, &recorder_);
      if (pool) {
        live_ = &PoolAccess::state(*pool).medium();
        trace = run_threads(*pool, policy);
        quiet_ = true;
        PoolAccess::state(*pool).abandon();
      } else {
        fail("open: " + pool.error().message);
      }
    }
    recorder_.settle();
    arena_.end();
    recorder_.switch_level();
    if (!report_.failure.empty() && report_.history.empty()) {
      for (const auto& calls : calls_) {
        for (const Call& call : calls) report_.history.push_back(to_string(call));
        report_.history.emplace_back("--");
      }
    }
    return trace;
  }

  Trace run_threads(Pool& pool, Policy& policy) {
    auto index = values_in<K>(pool, kName, {});
    if (!index) {
      fail("index: " + index.error().message);
      return {};
    }
    calls_.assign(config_.program.threads.size(), {});
    clock_ = 0;
    std::vector<Scheduler::Body> bodies;
    for (std::size_t thread = 0; thread < calls_.size(); ++thread) {
      bodies.emplace_back([this, thread, &pool, &index] {
        for (const Call& asked : config_.program.threads[thread])
          perform(pool, *index, thread, asked);
      });
    }
    quiet_ = !crashes_;
    recorder_.look_for_dependencies(strict_);
    recorder_.new_threads();
    Trace trace = scheduler_.run(bodies, policy, kMostPoints);
    quiet_ = true;
    recorder_.look_for_dependencies(false);
    if (!trace.stuck.empty()) {
      fail(trace.stuck);
      return trace;
    }
    recorder_.settle();
    if (report_.failure.empty()) judge(pool, *index, "at the end");
    return trace;
  }

  void perform(Pool& pool, Values<K>& index, std::size_t thread, const Call& asked) {
    if (asked.kind == Call::Kind::tick) {
      if (pool.advance_epoch() != Outcome::done) fail("the clock does not step");
      if (!quiet_) crash_point();
      return;
    }
    if (asked.kind == Call::Kind::scan) return scan(index, thread, asked);
    if (asked.kind == Call::Kind::many) return find_together(index, thread, asked);
    Call& call = calls_[thread].emplace_back(asked);
    call.returned = Call::kPending;
    call.invoked = ++clock_;
    call.first_epoch = pool.epochs().now;
    const Owned key = make_key<K>(call.key);
    Outcome outcome = Outcome::done;
    std::uint64_t value = call.value;
    recorder_.forget_reads();
    switch (call.kind) {
      case Call::Kind::insert:
        outcome = index.insert(key, value);
        break;
      case Call::Kind::update:
        outcome = index.update(key, value);
        break;
      case Call::Kind::upsert:
        outcome = index.upsert(key, value);
        break;
      case Call::Kind::remove:
        outcome = index.remove(key);
        break;
      case Call::Kind::find:
      case Call::Kind::scan:
      case Call::Kind::many:
      case Call::Kind::tick: {
        const Lookup found = index.find(key);
        outcome = found.outcome;
        value = found ? *found : 0;
        break;
      }
    }
    call.outcome = outcome;
    call.value = value;
    call.last_epoch = ~std::uint64_t{0};  // not known yet
    call.returned = ++clock_;
    call.last_epoch = pool.epochs().now;
    answered();
    if (!quiet_) crash_point();  // what it was told must survive from here on
  }

  void scan(Values<K>& index, std::size_t thread, const Call& asked) {
    const std::uint64_t invoked = ++clock_;
    std::vector<Entry<K>> out;
    const Owned from = make_key<K>(asked.key);
    recorder_.forget_reads();
    const Outcome outcome = index.scan(from, ~std::size_t{0}, out);
    const std::uint64_t returned = ++clock_;
    answered();
    if (outcome != Outcome::done || !std::ranges::is_sorted(out, {}, &Entry<K>::key)) {
      return fail(fmt::format("scan({}) answers '{}', or not in order", asked.key,
                              everleaf::to_string(outcome)));
    }
    std::size_t known = 0;
    for (const std::uint32_t key : keys_) {
      const Owned wanted = make_key<K>(key);
      if (wanted < from) continue;
      const auto at = std::ranges::find(out, wanted, &Entry<K>::key);
      known += at == out.end() ? 0 : 1;
      calls_[thread].push_back({Call::Kind::find, key, at == out.end() ? 0 : at->value, invoked,
                                returned, at == out.end() ? Outcome::absent : Outcome::done});
    }
    if (known != out.size()) return fail(fmt::format("scan({}) makes keys up", asked.key));
    if (!quiet_) crash_point();
  }

  void find_together(Values<K>& index, std::size_t thread, const Call& asked) {
    const auto first = std::ranges::lower_bound(keys_, asked.key);
    const std::span<const std::uint32_t> numbers(first,
                                                 first + std::min(kTogether, keys_.end() - first));
    std::vector<Owned> owned;
    for (const std::uint32_t number : numbers) owned.push_back(make_key<K>(number));
    const std::vector<K> wanted(owned.begin(), owned.end());
    std::vector<Lookup> answers;
    const std::uint64_t invoked = ++clock_;
    recorder_.forget_reads();
    index.find_many(wanted, answers);
    const std::uint64_t returned = ++clock_;
    answered();
    for (std::size_t i = 0; i < answers.size(); ++i) {
      calls_[thread].push_back({Call::Kind::find, numbers[i], answers[i] ? *answers[i] : 0, invoked,
                                returned, answers[i].outcome});
    }
    if (!quiet_) crash_point();
  }

  void answered() {
    if (!recorder_.dependencies()) return;
    if (const std::string what = recorder_.depends(); !what.empty())
      fail("a call answers after reading " + what);
  }

  // --- Crashes ---
  void escaped(const std::string& what) override { fail(what); }

  void dying(const char* what) noexcept override {
    LastWords words;
    words.begin(what, recorder_.last_site(), line_.c_str());
    add_switches(words, scheduler_.so_far());
    words.add("'\n");
    words.write();
  }

  void crash_point() override {
    if (quiet_ || arena_.level() != 1 || !report_.failure.empty()) return;
    if (!seen_.insert(arena_.state_hash() * 31 + history_hash()).second) return;
    ++report_.crash_points;
    const Recoveries done = crash_here(recorder_, config_.most, [this] {
      recover();
      return report_.failure.empty();
    });
    report_.executions += done.executions;
    report_.sampled_points += done.all ? 0 : 1;
    recorder_.allow(kMostEvents);
  }

  void recover() {
    recorder_.allow(kMostEvents);
    auto pool = PoolAccess::attach(arena_.base(2), live_->size(), kCapacity, options_, &recorder_);
    recorder_.settle();
    if (!pool) return fail("open: " + pool.error().message);
    auto index = values_in<K>(*pool, kName, {});
    if (!index) return fail("index: " + index.error().message);
    judge(*pool, *index, "after a crash", strict_ ? 0 : pool->epochs().durable);
    if (report_.failure.empty()) go_on(*pool, *index);
    recorder_.settle();
    PoolAccess::state(*pool).abandon();
  }

  // Writes where calls were cut short, and to the first key: a thread that has gone must not be
  // waited for, and what it left must not stop anybody.
  void go_on(Pool& pool, Values<K>& index) {
    std::vector<std::uint32_t> keys;
    for (const auto& of_thread : calls_) {
      for (const Call& call : of_thread) {
        const bool cut = call.returned == Call::kPending;
        if ((cut || keys.empty()) && std::ranges::find(keys, call.key) == keys.end())
          keys.push_back(call.key);
      }
    }
    for (const std::uint32_t number : keys) {
      const Owned key = make_key<K>(number);
      const std::uint64_t value = kAfterwards + number;
      const bool there = static_cast<bool>(index.find(key));
      const Outcome outcome = there ? index.remove(key) : index.insert(key, value);
      if (outcome == Outcome::out_of_space) continue;
      const Lookup found = index.find(key);
      if (outcome != Outcome::done || static_cast<bool>(found) == there ||
          (!there && *found != value)) {
        return fail(fmt::format("afterwards: {} of key {} answers '{}', or has no effect",
                                there ? "remove" : "insert", number, everleaf::to_string(outcome)));
      }
    }
    const auto report = pool.check();
    if (!report) return fail("afterwards: check: " + report.error().message);
    if (!report->problems.empty()) return fail("afterwards: check: " + report->problems.front());
  }

  // The content against every key's calls, and the structure. `durable`: 0, or the epoch to the end
  // of which a buffered tree was recovered.
  void judge(Pool& pool, Values<K>& index, std::string_view when, std::uint64_t durable = 0) {
    std::vector<Call> all;
    std::vector<Recovered> keys;
    for (const std::uint32_t key : keys_) {
      std::vector<Call> calls;
      for (const auto& of_thread : calls_) {
        std::ranges::copy_if(of_thread, std::back_inserter(calls),
                             [key](const Call& call) { return call.key == key; });
      }
      const bool was_there = config_.program.begins_with(key);
      if (calls.empty() && !was_there) continue;
      const Lookup found = index.find(make_key<K>(key));
      const Held after = found ? Held(*found) : Held{};
      const Held before = was_there ? Held(preloaded(key)) : Held{};
      if (found.outcome != Outcome::done && found.outcome != Outcome::absent) {
        return fail(fmt::format("{}: find({}) answers '{}'", when, key,
                                everleaf::to_string(found.outcome)));
      }
      const bool changes = std::ranges::any_of(
          calls, [](const Call& call) { return call.kind != Call::Kind::find; });
      if (durable != 0 && changes) {
        all.insert(all.end(), calls.begin(), calls.end());
        keys.push_back({key, before, after});
        continue;
      }
      if (!has_order(calls, before, after)) {
        return fail(fmt::format("{}: key {} is {}, which no order of its calls explains", when, key,
                                after ? fmt::format("{}", *after) : "absent"));
      }
    }
    if (!has_cut(all, keys, durable)) {
      return fail(
          fmt::format("{}: {}, which no order of the calls passes through at the end of "
                      "epoch {}",
                      when, show(keys), durable));
    }
    const auto report = pool.check();
    if (!report) return fail(fmt::format("{}: check: {}", when, report.error().message));
    if (!report->problems.empty()) {
      fail(fmt::format("{}: check: {}", when, report->problems.front()));
    }
  }

  static std::string show(std::span<const Recovered> keys) {
    std::string text;
    for (const Recovered& one : keys) {
      text += fmt::format("{}key {} is {}", text.empty() ? "" : ", ", one.key,
                          one.after ? fmt::format("{}", *one.after) : "absent");
    }
    return text;
  }

  [[nodiscard]] std::uint64_t history_hash() const {
    std::uint64_t hash = 0;
    const auto mix = [&hash](std::uint64_t word) {
      hash = (hash ^ word) * 0x9E3779B97F4A7C15ULL;
      hash ^= hash >> 31;
    };
    for (const auto& calls : calls_) {
      for (const Call& call : calls) {
        mix(call.invoked);
        mix(call.returned);
        mix(call.value + static_cast<std::uint64_t>(call.outcome) * 7919);
        mix(call.first_epoch * 7919 + call.last_epoch);
      }
      mix(~std::uint64_t{0});
    }
    return hash;
  }

  void fail(const std::string& what) {
    if (!report_.failure.empty()) return;
    report_.failure = what;
    report_.where = recorder_.last();
  }

  const ConcurrentConfig& config_;
  const std::vector<std::uint32_t> keys_ = config_.program.keys();
  const bool strict_ = !is_buffered(config_.spec);
  const std::string line_ = replay_line(config_, {});
  Arena arena_;
  Recorder recorder_;
  Signals signals_{this};
  Scheduler scheduler_;
  PoolOptions options_;
  std::uint64_t bytes_ = pmem::kMinPoolBytes;  // before the threads
  const pmem::Medium* live_ = nullptr;         // of the schedule; it may grow
  bool crashes_ = config_.crashes;
  bool quiet_ = true;
  std::uint64_t clock_ = 0;
  std::vector<std::vector<Call>> calls_;
  std::unordered_set<std::uint64_t> seen_;
  ConcurrentReport report_;
};

}  // namespace

bool Program::begins_with(std::uint32_t key) const {
  return std::ranges::find(preload, key) != preload.end() &&
         std::ranges::find(removed, key) == removed.end();
}

std::vector<std::uint32_t> Program::keys() const {
  std::vector<std::uint32_t> all = preload;
  for (const auto& of_thread : threads) {
    for (const Call& call : of_thread) all.push_back(call.key);
  }
  std::ranges::sort(all);
  const auto twice = std::ranges::unique(all);
  all.erase(twice.begin(), twice.end());
  return all;
}

std::string to_string(const Program& program) {
  std::string text;
  for (const std::uint32_t key : program.preload) {
    text += fmt::format("{}{}", text.empty() ? "" : ",", key);
  }
  for (const std::uint32_t key : program.removed) text += fmt::format(",!{}", key);
  for (const auto& calls : program.threads) {
    text += '/';
    for (std::size_t i = 0; i < calls.size(); ++i) {
      text += fmt::format("{}{}{}", i == 0 ? "" : ",",
                          kLetters[static_cast<std::size_t>(calls[i].kind)], calls[i].key);
      if (calls[i].kind < Call::Kind::remove) text += fmt::format("={}", calls[i].value);
    }
  }
  return text;
}

// What a judge looks at, and the scheduler runs.
static bool can_be_judged(const Program& program) {
  const std::vector<std::uint32_t> keys = program.keys();
  std::size_t calls = 0;
  std::size_t scans = 0;
  for (const auto& of_thread : program.threads) {
    for (const Call& call : of_thread) {
      ++(call.kind == Call::Kind::scan ? scans : calls);
      if (call.kind == Call::Kind::many) calls += kTogether - 1;
    }
  }
  return program.threads.size() <= kMostFibers && (keys.empty() || keys.back() < kMostKeys) &&
         calls + scans * keys.size() <= kMostCalls;
}

std::optional<Program> parse_program(std::string_view text) {
  Program program;
  const auto parts = split(text, '/');
  for (const std::string_view key : split(parts.front(), ',')) {
    if (key.empty()) continue;
    const bool removed = key.front() == '!';
    auto& keys = removed ? program.removed : program.preload;
    if (!number(key.substr(removed ? 1 : 0), keys.emplace_back())) return std::nullopt;
  }
  for (std::size_t i = 1; i < parts.size(); ++i) {
    auto& calls = program.threads.emplace_back();
    for (const std::string_view word : split(parts[i], ',')) {
      const std::size_t kind = word.empty() ? std::string_view::npos : kLetters.find(word.front());
      if (kind == std::string_view::npos) return std::nullopt;
      Call& call = calls.emplace_back();
      call.kind = static_cast<Call::Kind>(kind);
      const auto sides = split(word.substr(1), '=');
      if (!number(sides[0], call.key) || (sides.size() == 2 && !number(sides[1], call.value)) ||
          sides.size() > 2) {
        return std::nullopt;
      }
    }
  }
  if (!can_be_judged(program)) return std::nullopt;
  return program;
}

namespace {

// The first key from this one on that is there before; itself if there is none.
std::uint32_t next_there(const Program& program, std::uint32_t key) {
  for (std::uint32_t at = key; at < key + 24; ++at) {
    if (program.begins_with(at)) return at;
  }
  return key;
}

// Instead of what that thread does: it removes neighbours, of the last leaf or of another, which so
// comes by every number of keys at which a tree may merge it.
void remove_neighbours(Random& random, Program& program, unsigned thread) {
  std::vector<std::uint32_t> there;
  for (const std::uint32_t key : program.preload) {
    if (program.begins_with(key)) there.push_back(key);
  }
  if (there.empty()) return;
  std::size_t at = random.below(3) == 0 ? random.below(there.size()) : there.size() - 1;
  auto& calls = program.threads[thread];
  calls.clear();
  while (calls.size() < 3 && at < there.size()) calls.push_back({Call::Kind::remove, there[at--]});
}

// Many full leaves side by side, and new keys in any of them: neighbours split at once.
void fill_leaves(Random& random, Program& program) {
  constexpr std::uint32_t kKeys = 30;
  program.preload.clear();
  program.removed.clear();
  for (std::uint32_t key = 1; key <= kKeys; ++key) program.preload.push_back(key * 2);
  for (auto& calls : program.threads) {
    for (Call& call : calls) {
      if (call.kind == Call::Kind::tick) continue;
      const auto key = static_cast<std::uint32_t>(random.below(kKeys) * 2 + 1);
      call = {Call::Kind::insert, key, call.value};
    }
  }
}

// The first thread only reads; the others fill its leaf and its neighbours and empty them again, so
// that blocks are freed and handed out again while it sleeps: one preemption of it is enough.
void churn_beside_reader(Random& random, Program& program, unsigned clock, bool together) {
  const auto first = static_cast<std::uint32_t>(1 + random.below(12));
  bool reads = true;
  std::uint64_t value = 100;
  for (unsigned thread = 0; thread < program.threads.size(); ++thread) {
    if (thread == clock) continue;
    auto& calls = program.threads[thread];
    calls.clear();
    if (std::exchange(reads, false)) {
      const bool scans = random.below(3) == 0;
      calls.push_back({scans      ? Call::Kind::scan
                       : together ? Call::Kind::many
                                  : Call::Kind::find,
                       next_there(program, first + static_cast<std::uint32_t>(random.below(6)))});
      continue;
    }
    const auto change = [&](bool fills, std::uint32_t key) {
      calls.push_back({fills ? Call::Kind::insert : Call::Kind::remove, key, value++});
    };
    if (random.below(2) == 0) {  // a key that comes and goes: leaves that only grow are replaced
      for (std::uint64_t n = 8 + random.below(6); n != 0; --n) {
        change(true, first | 1U);
        change(false, first | 1U);
      }
      continue;
    }
    const bool fills_first = random.below(2) == 0;
    const std::uint64_t keys = 3 + random.below(5);
    for (const bool fills : {fills_first, !fills_first, fills_first}) {
      for (std::uint32_t key = first; key < first + keys; ++key) change(fills, key);
    }
  }
}

void look_up_together(Program& program) {
  for (auto& calls : program.threads) {
    for (Call& call : calls) {
      if (call.kind == Call::Kind::find) call.kind = Call::Kind::many;
    }
  }
}

}  // namespace

Program make_program(std::uint64_t seed, unsigned threads, bool ticks) {
  Random random(seed);
  Program program;
  // Rising keys fill leaves, and the last leaf has few: unlinking and splitting are near.
  const std::uint64_t preload = random.below(21);
  for (std::uint32_t key = 0; key < preload; ++key) program.preload.push_back(key * 2 + 2);
  // In half of the programs leaves are large enough to be split, and nearly empty.
  if (random.below(2) == 0) {
    for (const std::uint32_t key : program.preload) {
      if (random.below(6) != 0) program.removed.push_back(key);
    }
  }
  std::uint64_t value = 1;
  const std::uint64_t last = preload * 2;
  const std::uint64_t around =
      random.below(2) == 0 ? last - std::min<std::uint64_t>(last, 6) : random.below(last + 2);
  // Most calls meet at these: new keys and old ones, near each other and anywhere.
  std::array<std::uint32_t, 4> met{};
  for (std::size_t i = 0; i < met.size(); ++i) {
    const auto at =
        static_cast<std::uint32_t>(i < 2 ? around + random.below(8) : random.below(last + 2));
    met.at(i) = i % 2 == 0 ? at | 1U : next_there(program, at & ~1U);
  }
  constexpr std::array kKinds{Call::Kind::insert, Call::Kind::insert, Call::Kind::remove,
                              Call::Kind::remove, Call::Kind::upsert, Call::Kind::update,
                              Call::Kind::find,   Call::Kind::scan};
  // A clock of its own steps once while a writer is in the middle of a call, and then waits for it.
  const bool own_clock = ticks && threads < kMostFibers && random.below(2) == 0;
  const std::uint64_t clock = own_clock ? random.below(threads + 1) : kNobody;
  for (unsigned thread = 0; thread <= threads; ++thread) {
    if (thread == clock) program.threads.emplace_back(2 + random.below(2), Call{Call::Kind::tick});
    if (thread == threads) break;
    auto& calls = program.threads.emplace_back();
    for (std::uint64_t i = 0; i <= random.below(3); ++i) {
      const Call::Kind kind = kKinds.at(random.below(kKinds.size()));
      const bool grows = kind == Call::Kind::insert;
      const bool shrinks = kind == Call::Kind::remove;
      auto key = static_cast<std::uint32_t>(around + random.below(8));
      if (random.below(4) != 0) {
        const std::size_t pick = random.below(met.size());
        key = met.at(grows ? pick & ~std::size_t{1} : shrinks ? pick | 1 : pick);
      } else if (random.below(8) != 0) {
        // Insertions of new keys and removals of old ones.
        key = grows ? key | 1U : key & ~1U;
      }
      calls.push_back({kind, key, value++});
      if (ticks && clock == kNobody && random.below(2) == 0) {
        calls.push_back({Call::Kind::tick});
      }
    }
  }
  if (seed % 4 == 3) remove_neighbours(random, program, clock == 0 ? 1 : 0);
  if (seed % 8 == 5) fill_leaves(random, program);
  if (seed % 8 == 1)
    churn_beside_reader(random, program, static_cast<unsigned>(clock), seed % 16 == 9);
  if (seed % 2 == 0) look_up_together(program);
  return program;
}

std::string replay_line(const ConcurrentConfig& config, const std::vector<Switch>& switches) {
  return fmt::format("spec={} keys={} domain={} program={} switches={}", config.spec,
                     everleaf::to_string(config.keys), everleaf::to_string(config.domain),
                     to_string(config.program), to_string(switches));
}

ConcurrentReport run_concurrent(const ConcurrentConfig& config) {
  if (config.keys == KeyType::u64) return Concurrent<std::uint64_t>(config).go();
  return Concurrent<Bytes>(config).go();
}

}  // namespace everleaf::crash
