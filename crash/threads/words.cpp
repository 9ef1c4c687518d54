#include "threads/words.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <functional>
#include <set>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>

#include "base/thread_slot.hpp"
#include "threads/text.hpp"
#include "threads/traces.hpp"
#include "threads/words_pool.hpp"

namespace everleaf::crash {
namespace {

using Kind = WordChange::Kind;
using Values = std::vector<std::uint64_t>;

constexpr std::size_t kCapacity = std::size_t{1} << 20;
constexpr std::uint64_t kMostPoints = 100'000;
constexpr std::uint64_t kMostEvents = 5'000'000;
constexpr std::uint64_t kMostExecutions = 4000;  // of a crash point
constexpr std::uint64_t kMostNested = 256;       // and of one of a recovery

// What the calls of a thread come to, from a state that is known.
struct History {
  Values before;
  std::vector<std::vector<WordsCall>> threads;

  [[nodiscard]] std::vector<WordsCall> calls() const {
    std::vector<WordsCall> all;
    for (const auto& one : threads) all.insert(all.end(), one.begin(), one.end());
    return all;
  }
  [[nodiscard]] std::uint64_t hash() const {
    std::uint64_t hash = 0;
    const auto mix = [&hash](std::uint64_t word) {
      hash = (hash ^ word) * 0x9E3779B97F4A7C15ULL;
      hash ^= hash >> 31;
    };
    for (const std::uint64_t value : before) mix(value);
    for (const auto& calls : threads) {
      for (const WordsCall& call : calls) {
        mix(call.invoked);
        mix(call.returned);
        mix(call.value * 4 + (call.succeeded ? 2 : 0) + (call.ready ? 1 : 0));
        for (const WordChange& one : call.changes) mix(one.expected * 31 + one.desired);
      }
      mix(~std::uint64_t{0});
    }
    return hash;
  }
};

// Orders of calls, depth first. Of each word: its value, and what a crash may leave of it.
class Orders {
 public:
  Orders(const std::vector<WordsCall>& calls, const Values& after) : calls_(calls), after_(after) {}

  bool run(const Values& before) {
    std::vector<Values> left;
    for (const std::uint64_t value : before) left.push_back({value});
    return run(0, before, left);
  }

 private:
  bool run(std::uint32_t taken, const Values& state, const std::vector<Values>& left) {
    if (ends(taken) && fits(left)) return true;
    if (!seen_.insert({taken, left}).second) return false;
    std::uint64_t first_return = WordsCall::kPending;
    for (std::size_t i = 0; i < calls_.size(); ++i) {
      if ((taken >> i & 1) == 0) first_return = std::min(first_return, calls_[i].returned);
    }
    for (std::size_t i = 0; i < calls_.size(); ++i) {
      const WordsCall& call = calls_[i];
      if ((taken >> i & 1) != 0 || call.invoked > first_return) continue;
      Values then = state;
      std::vector<Values> then_left = left;
      if (!happens(call, then, then_left)) continue;
      if (run(taken | std::uint32_t{1} << i, then, then_left)) return true;
    }
    return false;
  }

  // False: it cannot have been answered so.
  static bool happens(const WordsCall& call, Values& state, std::vector<Values>& left) {
    const bool pending = call.returned == WordsCall::kPending;
    if (call.reads) return pending || state[*call.reads] == call.value;
    if (!call.ready) return false;
    const bool can = std::ranges::all_of(
        call.changes, [&](const WordChange& one) { return state[one.word] == one.expected; });
    if (!pending && can != call.succeeded) return false;
    if (!can) return true;
    for (const WordChange& one : call.changes) {
      state[one.word] = one.desired;
      if (!call.later) left[one.word].clear();
      left[one.word].push_back(one.desired);
    }
    return true;
  }

  [[nodiscard]] bool ends(std::uint32_t taken) const {
    for (std::size_t i = 0; i < calls_.size(); ++i) {
      if ((taken >> i & 1) == 0 && calls_[i].returned != WordsCall::kPending) return false;
    }
    return true;
  }
  [[nodiscard]] bool fits(const std::vector<Values>& left) const {
    for (std::size_t i = 0; i < left.size(); ++i) {
      if (std::ranges::find(left[i], after_[i]) == left[i].end()) return false;
    }
    return true;
  }

  const std::vector<WordsCall>& calls_;
  const Values& after_;
  std::set<std::pair<std::uint32_t, std::vector<Values>>> seen_;
};

std::string show(const Values& values) {
  std::string text;
  for (const std::uint64_t value : values)
    text += fmt::format("{}{}", text.empty() ? "" : ",", value);
  return text;
}

std::string show_change(const WordChange& one) {
  switch (one.kind) {
    case Kind::values:
      return fmt::format("{}:{}>{}", one.word, one.expected, one.desired);
    case Kind::add:
      return fmt::format("{}:+1", one.word);
    case Kind::keep:
      return fmt::format("{}:=", one.word);
    case Kind::new_block:
      return fmt::format("{}:b", one.word);
    case Kind::no_block:
      break;
  }
  return fmt::format("{}:-", one.word);
}

std::string show_call(const WordsCall& call) {
  if (call.reads) return fmt::format("r{}", *call.reads);
  std::string text;
  for (const WordChange& one : call.changes) {
    text += fmt::format("{}{}", text.empty() ? "" : "+", show_change(one));
  }
  return fmt::format("{}{}{}", text, call.later ? "~" : "", call.repeat ? "!" : "");
}

std::string show_done(const WordsCall& call) {
  std::string text = show_call(call);
  if (call.ready) {
    for (const WordChange& one : call.changes) {
      text += fmt::format(" [{}:{}>{}]", one.word, one.expected, one.desired);
    }
  }
  if (call.returned == WordsCall::kPending)
    return fmt::format("{} pending since {}", text, call.invoked);
  if (call.reads)
    return fmt::format("{} = {} [{}, {}]", text, call.value, call.invoked, call.returned);
  return fmt::format("{} {} [{}, {}]", text, call.succeeded ? "succeeded" : "failed", call.invoked,
                     call.returned);
}

// Plays steps. `progress` counts what a step waits for.
class Steps final : public Policy {
 public:
  using Progress = std::function<std::uint64_t(const WordsStep&)>;
  Steps(const std::vector<WordsStep>& steps, Progress progress)
      : steps_(steps), progress_(std::move(progress)) {}

  unsigned choose(std::uint64_t, unsigned, unsigned able) override {
    while (next_ < steps_.size()) {
      const WordsStep& step = steps_[next_];
      if (!begun_) from_ = progress_(step);
      begun_ = true;
      const bool can = (able >> step.thread & 1) != 0;
      if (can && (step.until == kEnd || progress_(step) == from_)) return step.thread;
      ++next_;
      begun_ = false;
    }
    return static_cast<unsigned>(std::countr_zero(able));
  }

 private:
  const std::vector<WordsStep>& steps_;
  Progress progress_;
  std::size_t next_ = 0;
  std::uint64_t from_ = 0;
  bool begun_ = false;
};

// One program. Level 0 of the arena holds the pool before the threads, level 1 a schedule, level 2
// what recovery makes of a crash in it, level 3 the same of a crash in that.
class Words final : Crasher {
 public:
  explicit Words(const WordsConfig& config)
      : config_(config),
        arena_(kCapacity, 2 + config.nested,
               {config.domain == Domain::disk ? std::size_t{8} : std::size_t{64},
                config.domain == Domain::cache || config.domain == Domain::process}),
        recorder_(arena_) {
    options_.domain = config.domain;
    options_.emulate = true;
    scheduler_.wants_touches = config.all_schedules;
    recorder_.crasher = this;
    recorder_.dropped = config.dropped;
    recorder_.collect_sites = config.collect_sites;
    Recorder::watch(&recorder_);
  }
  Words(const Words&) = delete;
  Words& operator=(const Words&) = delete;
  ~Words() { Recorder::watch(nullptr); }

  WordsReport go() {
    take_slots(config_.program.threads.size());
    preload();
    if (!report_.failure.empty()) return std::move(report_);
    recorder_.settle();
    arena_.enter();
    recorder_.switch_level();
    if (!config_.steps.empty()) {
      Steps policy(config_.steps, [this](const WordsStep& step) { return progress(step); });
      report_.switches = switches_of(schedule(policy));
    } else if (config_.replay) {
      parked_ = config_.parked;
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
    report_.sites = recorder_.sites;
    report_.fences = recorder_.fences;
    if (!report_.failure.empty()) report_.parked = parked_;
    return std::move(report_);
  }

 private:
  // Each thread has its lane already: its first use takes locks, and many lines are open in it.
  void preload() {
    recorder_.crasher = nullptr;
    auto pool = WordsPool::create(
        pmem::PoolFile::format(arena_.base(0), bytes_, kCapacity, options_, &recorder_),
        config_.program.values, config_.program.blocks);
    if (!pool) return fail("no pool");
    const unsigned own = base::detail::current_slot;
    for (std::size_t thread = 0; thread <= config_.program.threads.size(); ++thread) {
      const bool lane = config_.new_lanes || pool->words().allocate().ok();
      if (!lane) fail("no lane");
      base::detail::current_slot = base::kNoSlot;
      slots_.push_back(base::thread_slot());
    }
    base::detail::current_slot = own;
    for (const unsigned slot : slots_) {
      base::detail::current_slot = slot;
      base::detail::give_back_slot();
    }
    base::detail::current_slot = own;
    bytes_ = pool->medium().size();
    recorder_.crasher = this;
  }

  // --- Schedules ---
  void explore() {
    const auto threads = static_cast<unsigned>(config_.program.threads.size());
    if (config_.all_schedules) return explore_traces();
    Explorer explorer({threads, config_.preemptions, config_.random_runs, config_.seed,
                       config_.deadline, kNobody});
    explorer.all([this](Policy& policy, Trace& trace) {
      trace = schedule(policy);
      return report_.failure.empty();
    });
    report_.switches = explorer.failing();
    report_.complete = explorer.complete();
    for (unsigned thread = 0; config_.park && thread < threads; ++thread) park(thread);
  }

  void explore_traces() {
    Traces traces;
    report_.complete = traces.all(
        [this](Policy& policy, Trace& trace) {
          trace = schedule(policy);
          if (!report_.failure.empty()) report_.switches = switches_of(trace);
          return report_.failure.empty();
        },
        config_.deadline);
    report_.redundant = traces.redundant();
  }

  [[nodiscard]] std::uint64_t progress(const WordsStep& step) const {
    if (step.until == kCall) return calls_returned(step.thread);
    const auto found = recorder_.reached.find(step.until);
    return found == recorder_.reached.end() ? 0 : found->second;
  }

  [[nodiscard]] std::uint64_t calls_returned(unsigned thread) const {
    const auto& calls = history_.threads[thread];
    return static_cast<std::uint64_t>(std::ranges::count_if(
        calls, [](const WordsCall& call) { return call.returned != WordsCall::kPending; }));
  }

  // The thread alone up to each of its points, and never again; the others after it.
  void park(unsigned thread) {
    bool stopped = true;
    for (std::uint64_t at = 1; stopped; ++at) {
      if (is_late(config_.deadline)) {
        report_.complete = false;
        return;
      }
      const std::vector<Switch> switches{{0, thread}};
      Replay policy(switches);
      parked_ = Switch{at, thread};
      const Trace trace = schedule(policy);
      if (!report_.failure.empty()) {
        report_.switches = switches;
        return;
      }
      const auto own = std::ranges::count_if(
          trace.choices, [thread](std::uint16_t one) { return one >> 8U == thread; });
      stopped = static_cast<std::uint64_t>(own) >= at;
    }
    parked_.reset();
  }

  Trace schedule(Policy& policy) {
    ++report_.schedules;
    arena_.begin({});
    recorder_.allow(kMostEvents);
    quiet_ = true;
    Trace trace;
    {
      auto pool = attach(1);
      if (pool) {
        trace = run_threads(**pool, policy);
      } else {
        fail("open: " + pool.error().message);
      }
      quiet_ = true;
    }
    recorder_.settle();
    arena_.end();
    recorder_.switch_level();
    if (!report_.failure.empty() && report_.history.empty()) {
      for (const auto& calls : history_.threads) {
        for (const WordsCall& call : calls) report_.history.push_back(show_done(call));
        report_.history.emplace_back("--");
      }
    }
    return trace;
  }

  Result<std::unique_ptr<WordsPool>> attach(std::size_t level) {
    auto pool = WordsPool::open(
        pmem::PoolFile::attach(arena_.base(level), bytes_, kCapacity, options_, &recorder_));
    recorder_.settle();
    return pool;
  }

  Trace run_threads(WordsPool& pool, Policy& policy) {
    const auto& threads = config_.program.threads;
    history_ = {pool.values(), {}};
    history_.threads.resize(threads.size());
    clock_ = 0;
    // Where they do not go by who comes first, two threads that begin do not depend on each other.
    const std::vector<unsigned> slots =
        config_.all_schedules ? claim_slots(threads.size()) : std::vector<unsigned>{};
    std::vector<Scheduler::Body> bodies;
    for (std::size_t thread = 0; thread < threads.size(); ++thread) {
      bodies.emplace_back([this, thread, &pool, &slots] {
        // A thread that is stopped in the middle of these would keep its slot for ever.
        slot_of_thread([&] {
          if (config_.all_schedules) base::detail::current_slot = slots[thread];
          (void)base::thread_slot();
        });
        for (const WordsCall& asked : config_.program.threads[thread]) perform(pool, thread, asked);
        slot_of_thread([] { base::detail::give_back_slot(); });
      });
    }
    quiet_ = false;
    recorder_.look_for_dependencies(true);
    recorder_.new_threads();
    Trace trace = scheduler_.run(bodies, policy, kMostPoints, parked_);
    quiet_ = true;
    recorder_.look_for_dependencies(false);
    recorder_.settle();
    if (!trace.stuck.empty()) {
      fail(trace.stuck);
    } else if (parked_) {
      others_finished();
    } else if (report_.failure.empty()) {
      at_the_end(pool);
    }
    return trace;
  }

  static std::vector<unsigned> claim_slots(std::size_t threads) {
    const unsigned own = base::detail::current_slot;
    std::vector<unsigned> slots;
    while (slots.size() < threads) {
      base::detail::current_slot = base::kNoSlot;
      slots.push_back(base::thread_slot());
    }
    base::detail::current_slot = own;
    return slots;
  }

  // Time goes by calls that begin and end: the end of one and the beginning of another thread's
  // depend on each other. And what a crash leaves must agree with what was answered.
  static void invoked() {
    if (Scheduler::active() != nullptr) Scheduler::active()->touch_others(Scheduler::kCall);
  }
  static void returned(std::size_t thread) {
    if (Scheduler::active() == nullptr) return;
    Scheduler::active()->touch(Scheduler::kCall | thread, true);
    Scheduler::active()->touch_others(Scheduler::kArrival);
  }

  template <class Change>
  static void slot_of_thread(Change change) {
    const Scheduler::Pause pause;
    change();
  }

  void others_finished() {
    for (std::size_t thread = 0; thread < history_.threads.size(); ++thread) {
      const auto& calls = history_.threads[thread];
      const bool all = calls.size() == config_.program.threads[thread].size() &&
                       (calls.empty() || calls.back().returned != WordsCall::kPending);
      if (!all && thread != parked_->to) fail("a thread waits for one that was stopped");
    }
  }

  void at_the_end(WordsPool& pool) {
    judge(pool, "at the end");
    if (!pool.words().settle_all()) fail("cannot settle");
    recorder_.settle();
    if (const std::string what = pool.problem(); !what.empty()) fail("at the end: " + what);
  }

  // --- Calls ---
  void perform(WordsPool& pool, std::size_t thread, const WordsCall& asked) {
    for (bool again = true; again && report_.failure.empty();) {
      auto& mine = history_.threads[thread];  // a crash puts it aside for a while
      mine.push_back(asked);
      mine.back().invoked = ++clock_;
      invoked();
      recorder_.forget_reads();
      if (asked.reads) {
        mine.back().value = pool.value(*asked.reads);
      } else {
        change(pool, mine.back());
      }
      WordsCall& call = mine.back();
      call.returned = ++clock_;
      returned(thread);
      if (recorder_.dependencies()) {
        if (const std::string what = recorder_.depends(); !what.empty())
          fail("a call answers after reading " + what);
      }
      crash_point();  // what it was told must survive from here on
      again = asked.repeat && !call.succeeded;
      if (again) mine.pop_back();
    }
  }

  void change(WordsPool& pool, WordsCall& call) {
    const alloc::Grace::Pin pin(pool.grace());
    pmwcas::Descriptor operation = pool.words().allocate();
    if (!operation.ok()) return fail("no lane");
    for (WordChange& one : call.changes) {
      if (!add(pool, operation, one)) return fail("a word is refused");
    }
    call.ready = true;
    const auto durability = call.later ? pmwcas::Durability::later : pmwcas::Durability::at_return;
    const pmwcas::Answer answer = operation.execute(durability);
    call.succeeded = answer == pmwcas::Answer::succeeded;
    if (!call.succeeded && answer != pmwcas::Answer::failed) fail("an operation is not answered");
  }

  bool add(WordsPool& pool, pmwcas::Descriptor& operation, WordChange& one) {
    pmem::Word* const word = pool.word(one.word);
    if (one.kind != Kind::values) one.expected = pool.value(one.word);
    switch (one.kind) {
      case Kind::values:
        break;
      case Kind::add:
        one.desired = one.expected + 1;
        break;
      case Kind::keep:
        one.desired = one.expected;
        break;
      case Kind::new_block:
      case Kind::no_block: {
        one.desired = one.kind == Kind::no_block ? 0 : pool.new_block();
        pmem::Word* const desired =
            operation.reserve_entry(word, one.expected, pmwcas::Policy::free_one);
        if (desired == nullptr) return false;
        *desired = one.desired;
        return one.kind == Kind::no_block || one.desired != 0;
      }
    }
    return operation.add_word(word, one.expected, one.desired);
  }

  // --- Crashes ---
  void escaped(const std::string& what) override { fail(what); }

  void dying(const char* what) noexcept override {
    LastWords words;
    words.begin(what, recorder_.last_site(), line_.c_str());
    add_switches(words, scheduler_.so_far());
    if (parked_) {
      words.add(" parked=%llu:%u", static_cast<unsigned long long>(parked_->at), parked_->to);
    }
    words.add("'\n");
    words.write();
  }

  void crash_point() override {
    const std::size_t level = arena_.level();
    if (quiet_ || level == 0 || level > config_.nested || !report_.failure.empty()) return;
    if (!seen_.at(level).insert(arena_.state_hash() * 31 + history_.hash()).second) return;
    ++(level == 1 ? report_.crash_points : report_.nested_points);
    const std::uint64_t most = level == 1 ? kMostExecutions : kMostNested;
    const Recoveries done = crash_here(recorder_, most, [this, level] {
      recover(level + 1);
      return report_.failure.empty();
    });
    report_.executions += done.executions;
    report_.sampled_points += done.all ? 0 : 1;
    recorder_.allow(kMostEvents);
  }

  void recover(std::size_t level) {
    recorder_.allow(kMostEvents);
    auto pool = attach(level);
    if (!pool) return fail("open: " + pool.error().message);
    judge(**pool, "after a crash");
    if (const std::string what = (*pool)->problem(); !what.empty()) fail("after a crash: " + what);
    if (level > 2 || config_.then.empty() || !report_.failure.empty()) return;
    // The slot is that of the thread that crashed: its descriptors are used again.
    History crashed = std::exchange(history_, History{(*pool)->values(), {}});
    history_.threads.resize(1);
    const std::uint64_t clock = std::exchange(clock_, 0);
    for (const WordsCall& asked : config_.then) perform(**pool, 0, asked);
    if (report_.failure.empty()) at_the_end(**pool);
    if (!report_.failure.empty() && report_.history.empty()) {
      for (const WordsCall& call : history_.threads[0])
        report_.history.push_back("after the crash: " + show_done(call));
      report_.history.emplace_back("--");
      for (const auto& calls : crashed.threads) {
        for (const WordsCall& call : calls) report_.history.push_back(show_done(call));
        report_.history.emplace_back("--");
      }
    }
    history_ = std::move(crashed);
    clock_ = clock;
  }

  void judge(WordsPool& pool, std::string_view when) {
    const Values after = pool.values();
    recorder_.settle();
    for (std::size_t i = 0; i < after.size(); ++i) {
      if ((after[i] & pmwcas::kControl) != 0) return fail(fmt::format("{}: word {}", when, i));
    }
    if (!explained(history_.calls(), history_.before, after)) {
      fail(fmt::format("{}: the words hold {}, which no order of the calls explains (before: {})",
                       when, show(after), show(history_.before)));
    }
  }

  void fail(const std::string& what) {
    if (!report_.failure.empty()) return;
    report_.failure = what;
    report_.where = recorder_.last();
  }

  const WordsConfig& config_;
  const std::string line_ = replay_line(config_, {}, {});
  Arena arena_;
  Recorder recorder_;
  Signals signals_{this};
  Scheduler scheduler_;
  PoolOptions options_;
  std::uint64_t bytes_ = pmem::kMinPoolBytes;
  bool quiet_ = true;
  std::uint64_t clock_ = 0;
  std::optional<Switch> parked_;
  std::vector<unsigned> slots_;
  History history_;
  std::array<std::unordered_set<std::uint64_t>, kMostLevels> seen_;
  WordsReport report_;
};

std::optional<WordChange> parse_change(std::string_view text) {
  WordChange one;
  const auto sides = split(text, ':');
  if (sides.size() != 2 || !number(sides[0], one.word)) return std::nullopt;
  if (sides[1] == "+1") {
    one.kind = Kind::add;
  } else if (sides[1] == "=") {
    one.kind = Kind::keep;
  } else if (sides[1] == "b") {
    one.kind = Kind::new_block;
  } else if (sides[1] == "-") {
    one.kind = Kind::no_block;
  } else {
    const auto values = split(sides[1], '>');
    if (values.size() != 2 || !number(values[0], one.expected) || !number(values[1], one.desired))
      return std::nullopt;
  }
  return one;
}

std::optional<WordsCall> parse_call(std::string_view text) {
  WordsCall call;
  if (text.starts_with('r')) {
    std::size_t word = 0;
    if (!number(text.substr(1), word)) return std::nullopt;
    call.reads = word;
    return call;
  }
  for (; text.ends_with('~') || text.ends_with('!'); text.remove_suffix(1)) {
    (text.back() == '~' ? call.later : call.repeat) = true;
  }
  std::string_view rest = text;
  while (!rest.empty()) {
    // "+1" is no separator.
    std::size_t end = rest.find('+', rest.find(':') + 2);
    const auto one = parse_change(rest.substr(0, end));
    if (!one) return std::nullopt;
    call.changes.push_back(*one);
    rest = end == std::string_view::npos ? std::string_view{} : rest.substr(end + 1);
  }
  if (call.changes.empty()) return std::nullopt;
  return call;
}

std::vector<WordsProgram> programs_of(std::initializer_list<const char*> texts) {
  std::vector<WordsProgram> programs;
  for (const char* const text : texts) programs.push_back(*parse_words(text));
  return programs;
}

std::string word_of(std::string_view line, std::string_view name) {
  for (const std::string_view word : split(line, ' ')) {
    if (word.starts_with(name)) return std::string(word.substr(name.size()));
  }
  return {};
}

}  // namespace

bool explained(const std::vector<WordsCall>& calls, const Values& before, const Values& after) {
  return Orders(calls, after).run(before);
}

std::string to_string(const WordsProgram& program) {
  std::string text;
  for (std::size_t i = 0; i < program.values.size(); ++i) {
    const bool block = (program.blocks >> i & 1) != 0;
    text += fmt::format("{}{}", i == 0 ? "" : ",", block ? "b" : std::to_string(program.values[i]));
  }
  for (const auto& calls : program.threads) {
    text += '/';
    for (std::size_t i = 0; i < calls.size(); ++i) {
      text += fmt::format("{}{}", i == 0 ? "" : ",", show_call(calls[i]));
    }
  }
  return text;
}

std::optional<WordsProgram> parse_words(std::string_view text) {
  WordsProgram program;
  const auto parts = split(text, '/');
  for (const std::string_view value : split(parts.front(), ',')) {
    if (value == "b") program.blocks |= std::uint64_t{1} << program.values.size();
    if (!number(value, program.values.emplace_back()) && value != "b") return std::nullopt;
  }
  for (std::size_t i = 1; i < parts.size(); ++i) {
    auto& calls = program.threads.emplace_back();
    for (const std::string_view one : split(parts[i], ',')) {
      const auto call = parse_call(one);
      if (!call) return std::nullopt;
      for (const WordChange& change : call->changes) {
        if (change.word >= program.values.size()) return std::nullopt;
      }
      if (call->reads && *call->reads >= program.values.size()) return std::nullopt;
      calls.push_back(*call);
    }
  }
  return program;
}

WordsProgram make_words(std::uint64_t seed, unsigned threads) {
  Random random(seed);
  WordsProgram program;
  const std::size_t words = 1 + random.below(4);
  for (std::size_t i = 0; i < words; ++i) {
    program.values.push_back(random.below(2));
    if (random.below(5) == 0) program.blocks |= std::uint64_t{1} << i;
  }
  for (unsigned thread = 0; thread < threads; ++thread) {
    auto& calls = program.threads.emplace_back();
    for (std::uint64_t n = 0; n <= random.below(3); ++n) {
      WordsCall& call = calls.emplace_back();
      if (random.below(6) == 0) {
        call.reads = random.below(words);
        continue;
      }
      std::vector<std::size_t> order(words);
      for (std::size_t i = 0; i < words; ++i) order[i] = i;
      for (std::size_t i = words; i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
      order.resize(1 + random.below(std::min<std::size_t>(words, 3)));
      for (const std::size_t word : order) {
        const bool block = (program.blocks >> word & 1) != 0;
        const std::uint64_t pick = random.below(8);
        WordChange one{Kind::values, word, random.below(2), random.below(3)};
        if (pick < 4) one.kind = Kind::add;
        if (block) one.kind = pick < 6 ? Kind::new_block : Kind::no_block;
        if (pick == 7) one.kind = Kind::keep;
        call.changes.push_back(one);
      }
      call.later = random.below(6) == 0;
    }
  }
  return program;
}

std::vector<WordsCall> work_after(const WordsProgram& program) {
  std::vector<WordsCall> calls(2);
  for (std::size_t word = 0; word < program.values.size() && word < pmwcas::kMaxWords; ++word) {
    const bool block = (program.blocks >> word & 1) != 0;
    const WordChange one{block ? Kind::new_block : Kind::add, word, 0, 0};
    if (word == 0) calls[0].changes.push_back(one);
    calls[1].changes.push_back(one);
  }
  return calls;
}

std::vector<WordsProgram> lone_programs() {
  return programs_of(
      {"7/0:+1", "0,0/0:+1+1:+1", "0,0,0/1:+1+0:+1+2:+1", "0,0/0:5>6+1:0>1", "0,0/0:0>1+1:5>6,0:+1",
       "0/0:+1,0:+1,0:+1,0:+1,0:+1,0:+1", "0,0/0:+1+1:+1~,0:+1+1:+1", "0,0/0:+1~,1:+1~,0:+1",
       "b/0:b", "b,0/0:b+1:+1,0:b", "b/0:-,0:b", "b,0/0:b+1:5>6,0:b", "b,b/0:b+1:-,1:b",
       // Descriptors used again: blocks after blocks, fewer words, none, and blocks after none.
       "b,b/0:b,1:b,1:b", "0,0,0/0:+1+1:+1+2:+1,2:+1,0:+1,1:+1+2:+1", "b,0/1:+1,1:+1,0:b,1:+1",
       // More words that are durable later than a lane remembers, and then one of the first.
       "0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0/0:+1~,1:+1~,2:+1~,3:+1~,4:+1~,5:+1~,6:+1~,7:+1~,"
       "8:+1~,9:+1~,10:+1~,11:+1~,12:+1~,13:+1~,14:+1~,15:+1~,16:+1~,0:+1+1:+1"});
}

// The same words, by what is found and by values that only one of them can find; in opposite order;
// one that is shared; one operation that fails, one that must only stay, one that is durable later.
std::vector<WordsProgram> pair_programs() {
  return programs_of({"0,0/0:+1+1:+1/0:+1+1:+1", "0,0/0:0>1+1:0>1/1:0>2+0:0>2",
                      "0,0,0/0:+1+1:+1/1:+1+2:+1", "0,0/0:+1+1:5>6/0:+1+1:+1",
                      "0,0/0:+1+1:+1/1:=+0:=", "0,0/0:+1+1:+1~/0:+1+1:+1"});
}

WordsConfig all_crashes_of(WordsProgram program, Domain domain) {
  WordsConfig config;
  config.program = std::move(program);
  config.domain = domain;
  config.preemptions = config.random_runs = 0;
  config.nested = 2;
  config.then = work_after(config.program);
  return config;
}

WordsConfig all_schedules_of(WordsProgram program, unsigned nested, Domain domain) {
  WordsConfig config;
  config.program = std::move(program);
  config.all_schedules = true;
  config.nested = nested;
  if (nested > 1) config.then = work_after(config.program);
  config.domain = domain;
  return config;
}

WordsConfig word_search(WordsProgram program, std::uint64_t seed, Domain domain) {
  WordsConfig config;
  config.seed = seed;
  config.domain = domain;
  config.program = std::move(program);
  const bool alone = config.program.threads.size() == 1;
  const bool deep = seed % 8 == 7;
  config.preemptions = alone ? 0 : deep ? 2 : 1;
  config.random_runs = alone ? 0 : deep ? 100 : 20;
  config.park = !alone && seed % 3 == 0;
  config.new_lanes = alone && seed % 8 == 3;
  config.nested = !config.new_lanes && (alone || seed % 4 == 1) ? 2 : 1;
  if (config.nested > 1) config.then = work_after(config.program);
  return config;
}

WordsReport run_words(const WordsConfig& config) {
  return Words(config).go();
}

std::string replay_line(const WordsConfig& config, const std::vector<Switch>& switches,
                        const std::optional<Switch>& parked) {
  return fmt::format("words={} domain={} nested={} lanes={} schedules={}{} switches={}",
                     to_string(config.program), everleaf::to_string(config.domain), config.nested,
                     config.new_lanes ? "new" : "old", config.all_schedules ? "all" : "some",
                     parked ? fmt::format(" parked={}:{}", parked->at, parked->to) : "",
                     to_string(switches));
}

std::optional<WordsConfig> parse_words_replay(std::string_view line) {
  WordsConfig config;
  const auto program = parse_words(word_of(line, "words="));
  const auto domain = parse_domain(word_of(line, "domain="));
  const auto parked = parse_switches(word_of(line, "parked="));
  config.replay = parse_switches(word_of(line, "switches="));
  if (!program || !domain || !parked || !config.replay ||
      !number(word_of(line, "nested="), config.nested) || config.nested < 1 || config.nested > 2) {
    return std::nullopt;
  }
  config.program = *program;
  config.domain = *domain;
  config.new_lanes = word_of(line, "lanes=") == "new";
  config.all_schedules = word_of(line, "schedules=") == "all";  // points are counted so
  if (config.nested > 1) config.then = work_after(config.program);
  if (!parked->empty()) config.parked = parked->front();
  return config;
}

}  // namespace everleaf::crash
