#include "threads/concurrent.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <unordered_set>

#include <fmt/format.h>

#include "trees/pool_state.hpp"

namespace everleaf::crash {
namespace {

constexpr std::size_t kCapacity = std::size_t{2} << 20;
constexpr std::uint64_t kMostPoints = 200'000;
constexpr std::uint64_t kMostEvents = 20'000'000;
constexpr std::uint64_t kMostExecutions = 2000;  // of a crash point
constexpr const char* kName = "index";
constexpr std::string_view kLetters = "iuprfst";  // in the order of Call::Kind

std::uint64_t preloaded(std::uint32_t key) {
  return 1000 + key;
}

std::vector<std::string_view> split(std::string_view text, char at) {
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t end = text.find(at);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

template <class T>
bool number(std::string_view text, T& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc{} && end == text.data() + text.size();
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
    options_.domain = Domain::memory;
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
    preload();
    if (!report_.failure.empty()) return std::move(report_);
    recorder_.settle();
    arena_.enter();
    recorder_.switch_level();
    if (config_.replay) {
      Replay policy(*config_.replay);
      (void)schedule(policy, *config_.replay);
    } else {
      bounded();
      at_random();
    }
    arena_.leave();
    recorder_.switch_level();
    return std::move(report_);
  }

 private:
  using Owned = typename OwnedKey<K>::type;

  void preload() {
    recorder_.crasher = nullptr;
    auto pool = PoolAccess::format(arena_.base(0), bytes_, kCapacity, options_, &recorder_);
    if (!pool) return fail("format: " + pool.error().message);
    auto index = pool->index<K>(kName, config_.spec);
    if (!index) return fail("index: " + index.error().message);
    for (const std::uint32_t key : config_.program.preload) {
      if (index->insert(make_key<K>(key), preloaded(key)) != Outcome::done) fail("cannot preload");
    }
    if (pool->sync() != Outcome::done) fail("cannot preload");
    bytes_ = PoolAccess::state(*pool).medium().size();
    recorder_.crasher = this;
  }

  // --- Schedules ---
  // Depth first; a schedule's children have one more preemption, behind its last.
  void bounded() {
    std::vector<std::vector<Switch>> open{{}};
    std::size_t next = 0;  // breadth first, so that few preemptions come first
    while (next < open.size() && report_.failure.empty()) {
      if (std::chrono::steady_clock::now() > config_.deadline) {
        report_.complete = false;
        return;
      }
      const std::vector<Switch> switches = std::move(open[next++]);
      Replay policy(switches);
      const Trace trace = schedule(policy, switches);
      length_ = std::max(length_, trace.points);
      if (switches.size() == config_.preemptions) continue;
      const std::uint64_t from = switches.empty() ? 0 : switches.back().at + 1;
      for (std::uint64_t point = from; point < trace.choices.size(); ++point) {
        const unsigned others = trace.choices[point] & 0xFFU;
        for (unsigned thread = 0; thread < config_.program.threads.size(); ++thread) {
          if ((others >> thread & 1) == 0) continue;
          open.push_back(switches);
          open.back().push_back({point, thread});
        }
      }
    }
  }

  void at_random() {
    const auto threads = static_cast<unsigned>(config_.program.threads.size());
    for (unsigned i = 0; i < config_.random_runs && report_.failure.empty(); ++i) {
      if (std::chrono::steady_clock::now() > config_.deadline) return;
      RandomPriorities policy(config_.seed * 1000 + i, threads, length_, 3);
      const Trace trace = schedule(policy, {});
      if (report_.failure.empty()) continue;
      // The same schedule as a list of switches, for the replay line.
      for (std::uint64_t point = 0; point < trace.choices.size(); ++point) {
        const auto who = static_cast<unsigned>(trace.choices[point] >> 8);
        const unsigned before =
            point == 0 ? kNobody : static_cast<unsigned>(trace.choices[point - 1] >> 8);
        if (who != before) report_.switches.push_back({point, who});
      }
    }
  }

  Trace schedule(Policy& policy, const std::vector<Switch>& switches) {
    ++report_.schedules;
    arena_.begin({});
    recorder_.allow(kMostEvents);
    quiet_ = true;
    Trace trace;
    {
      auto pool = PoolAccess::attach(arena_.base(1), bytes_, kCapacity, options_, &recorder_);
      if (pool) {
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
      report_.switches = switches;
      for (const auto& calls : calls_) {
        for (const Call& call : calls) report_.history.push_back(to_string(call));
        report_.history.emplace_back("--");
      }
    }
    return trace;
  }

  Trace run_threads(Pool& pool, Policy& policy) {
    auto index = pool.index<K>(kName, {});
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
    quiet_ = !config_.crashes;
    recorder_.dependencies = strict_;
    Trace trace = scheduler_.run(bodies, policy, kMostPoints);
    quiet_ = true;
    recorder_.dependencies = false;
    if (!trace.stuck.empty()) {
      fail(trace.stuck);
      return trace;
    }
    recorder_.settle();
    if (report_.failure.empty()) judge(pool, *index, "at the end");
    return trace;
  }

  void perform(Pool& pool, Index<K>& index, std::size_t thread, const Call& asked) {
    if (asked.kind == Call::Kind::tick) {
      if (pool.advance_epoch() != Outcome::done) fail("the clock does not step");
      if (!quiet_) crash_point();
      return;
    }
    if (asked.kind == Call::Kind::scan) return scan(index, thread, asked);
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

  void scan(Index<K>& index, std::size_t thread, const Call& asked) {
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
    for (std::uint32_t key = 0; key < kMostKeys; ++key) {
      const Owned wanted = make_key<K>(key);
      if (wanted < from) continue;
      const auto at = std::ranges::find(out, wanted, &Entry<K>::key);
      if (at == out.end() && !used(key)) continue;
      known += at == out.end() ? 0 : 1;
      calls_[thread].push_back({Call::Kind::find, key, at == out.end() ? 0 : at->value, invoked,
                                returned, at == out.end() ? Outcome::absent : Outcome::done});
    }
    if (known != out.size()) return fail(fmt::format("scan({}) makes keys up", asked.key));
    if (!quiet_) crash_point();
  }

  void answered() {
    if (!recorder_.dependencies) return;
    if (const std::string what = recorder_.depends(); !what.empty())
      fail("a call answers after reading " + what);
  }

  [[nodiscard]] bool used(std::uint32_t key) const {
    if (std::ranges::find(config_.program.preload, key) != config_.program.preload.end())
      return true;
    return std::ranges::any_of(config_.program.threads, [key](const auto& calls) {
      return std::ranges::find(calls, key, &Call::key) != calls.end();
    });
  }

  // --- Crashes ---
  void escaped(const std::string& what) override { fail(what); }

  void crash_point() override {
    if (quiet_ || arena_.level() != 1 || !report_.failure.empty()) return;
    if (!seen_.insert(arena_.state_hash() * 31 + history_hash()).second) return;
    ++report_.crash_points;
    const Scheduler::Pause pause;
    recorder_.dependencies = false;
    arena_.enter();
    recorder_.switch_level();
    std::vector<Choice> path;
    std::uint64_t left = kMostExecutions;
    do {
      arena_.begin(path);
      recover();
      path = arena_.path();
      arena_.end();
      recorder_.switch_level();
      ++report_.executions;
    } while (report_.failure.empty() && --left != 0 && Arena::advance(path));
    report_.sampled += left == 0 ? 1 : 0;
    arena_.leave();
    recorder_.switch_level();
    recorder_.allow(kMostEvents);
    recorder_.dependencies = strict_;
  }

  void recover() {
    recorder_.allow(kMostEvents);
    auto pool = PoolAccess::attach(arena_.base(2), bytes_, kCapacity, options_, &recorder_);
    recorder_.settle();
    if (!pool) return fail("open: " + pool.error().message);
    auto index = pool->index<K>(kName, {});
    if (!index) return fail("index: " + index.error().message);
    judge(*pool, *index, "after a crash", strict_ ? 0 : pool->epochs().durable);
    recorder_.settle();
    PoolAccess::state(*pool).abandon();
  }

  // Of a key's calls, those that a buffered tree has to show: what ended in durable epochs, and
  // what may have done so. What readers saw of later ones is gone with them.
  static void keep_durable(std::vector<Call>& calls, std::uint64_t durable) {
    std::erase_if(calls, [durable](const Call& call) {
      return call.kind == Call::Kind::find || call.first_epoch > durable;
    });
    for (Call& call : calls) {
      if (call.returned == Call::kPending || call.last_epoch > durable)
        call.returned = Call::kPending;
    }
  }

  // The content against every key's calls, and the structure. `durable`: 0, or the epoch to the end
  // of which a buffered tree was recovered.
  void judge(Pool& pool, Index<K>& index, std::string_view when, std::uint64_t durable = 0) {
    for (std::uint32_t key = 0; key < kMostKeys; ++key) {
      std::vector<Call> calls;
      for (const auto& of_thread : calls_) {
        std::ranges::copy_if(of_thread, std::back_inserter(calls),
                             [key](const Call& call) { return call.key == key; });
      }
      const bool was_there =
          std::ranges::find(config_.program.preload, key) != config_.program.preload.end();
      if (durable != 0) keep_durable(calls, durable);
      if (calls.empty() && !was_there) continue;
      const Lookup found = index.find(make_key<K>(key));
      const Held after = found ? Held(*found) : Held{};
      const Held before = was_there ? Held(preloaded(key)) : Held{};
      if (found.outcome != Outcome::done && found.outcome != Outcome::absent) {
        return fail(fmt::format("{}: find({}) answers '{}'", when, key,
                                everleaf::to_string(found.outcome)));
      }
      if (!has_order(calls, before, after)) {
        return fail(fmt::format("{}: key {} is {}, which no order of its calls explains", when, key,
                                after ? fmt::format("{}", *after) : "absent"));
      }
    }
    const auto report = pool.check();
    if (!report) return fail(fmt::format("{}: check: {}", when, report.error().message));
    if (!report->problems.empty()) {
      fail(fmt::format("{}: check: {}", when, report->problems.front()));
    }
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

  static constexpr std::uint32_t kMostKeys = 64;
  const ConcurrentConfig& config_;
  const bool strict_ = !is_buffered(config_.spec);
  Arena arena_;
  Recorder recorder_;
  Scheduler scheduler_;
  PoolOptions options_;
  std::uint64_t bytes_ = pmem::kMinPoolBytes;
  bool quiet_ = true;
  std::uint64_t clock_ = 0;
  std::uint64_t length_ = 1;
  std::vector<std::vector<Call>> calls_;
  std::unordered_set<std::uint64_t> seen_;
  ConcurrentReport report_;
};

}  // namespace

std::string to_string(const Program& program) {
  std::string text;
  for (const std::uint32_t key : program.preload) {
    text += fmt::format("{}{}", text.empty() ? "" : ",", key);
  }
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

std::optional<Program> parse_program(std::string_view text) {
  Program program;
  const auto parts = split(text, '/');
  for (const std::string_view key : split(parts.front(), ',')) {
    if (key.empty()) continue;
    if (!number(key, program.preload.emplace_back())) return std::nullopt;
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
  return program;
}

Program make_program(std::uint64_t seed, unsigned threads, bool ticks) {
  Random random(seed);
  Program program;
  // Rising keys fill leaves, and the last leaf has few: unlinking and splitting are near.
  const std::uint64_t preload = random.below(21);
  for (std::uint32_t key = 0; key < preload; ++key) program.preload.push_back(key * 2 + 2);
  std::uint64_t value = 1;
  const std::uint64_t last = preload * 2;
  const std::uint64_t around =
      random.below(2) == 0 ? last - std::min<std::uint64_t>(last, 6) : random.below(last + 2);
  constexpr std::array kKinds{Call::Kind::insert, Call::Kind::insert, Call::Kind::remove,
                              Call::Kind::remove, Call::Kind::upsert, Call::Kind::update,
                              Call::Kind::find,   Call::Kind::scan};
  for (unsigned thread = 0; thread < threads; ++thread) {
    auto& calls = program.threads.emplace_back();
    for (std::uint64_t i = 0; i <= random.below(3); ++i) {
      const Call::Kind kind = kKinds.at(random.below(kKinds.size()));
      auto key = static_cast<std::uint32_t>(around + random.below(8));
      // Insertions of new keys and removals of old ones, most of the time.
      if (random.below(8) != 0) key = kind == Call::Kind::insert ? key | 1U : key & ~1U;
      calls.push_back({kind, key, value++});
      if (ticks && random.below(2) == 0) calls.push_back({Call::Kind::tick});
    }
  }
  return program;
}

std::string to_string(const std::vector<Switch>& switches) {
  std::string text;
  for (const Switch& one : switches) {
    text += fmt::format("{}{}:{}", text.empty() ? "" : ",", one.at, one.to);
  }
  return text;
}

std::optional<std::vector<Switch>> parse_switches(std::string_view text) {
  std::vector<Switch> switches;
  if (text.empty()) return switches;
  for (const std::string_view word : split(text, ',')) {
    const auto sides = split(word, ':');
    Switch& one = switches.emplace_back();
    if (sides.size() != 2 || !number(sides[0], one.at) || !number(sides[1], one.to)) {
      return std::nullopt;
    }
  }
  return switches;
}

ConcurrentReport run_concurrent(const ConcurrentConfig& config) {
  if (config.keys == KeyType::u64) return Concurrent<std::uint64_t>(config).go();
  return Concurrent<Bytes>(config).go();
}

}  // namespace everleaf::crash
