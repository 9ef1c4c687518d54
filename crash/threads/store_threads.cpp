#include "threads/store_threads.hpp"

#include <algorithm>
#include <map>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>

#include "store/state.hpp"

namespace everleaf::crash {
namespace {

constexpr std::size_t kCapacity = std::size_t{4} << 20;
constexpr std::uint64_t kMostPoints = 400'000;
constexpr std::uint64_t kMostEvents = 50'000'000;

using Kind = StoreStep::Kind;
using Content = StoreContent;
using Call = StoreCall;
constexpr std::uint64_t kPending = StoreCall::kPending;

// What a call comes to, and is told.
Outcome change(Content& content, const StoreStep& step) {
  if (step.kind == Kind::drop) {
    return content.erase(step.table) != 0 ? Outcome::done : Outcome::corrupt;
  }
  const bool gone =
      std::ranges::any_of(step.puts, [&](const Put& one) { return !content.contains(one.table); });
  if (gone) return Outcome::dropped;
  Outcome outcome = Outcome::done;
  for (const Put& one : step.puts) {
    auto& table = content[one.table];
    if (one.value) {
      table[one.key] = *one.value;
    } else if (table.erase(one.key) == 0 && step.kind == Kind::write) {
      outcome = Outcome::absent;
    }
  }
  return outcome;
}

// Orders of calls, depth first.
class Orders {
 public:
  Orders(const Content& is, std::uint64_t durable) : is_(is), durable_(durable) {}

  // Whether the calls that are left can go on from `now`. `cut`: the state was met.
  bool run(const Content& now, const std::vector<const Call*>& left, bool cut) {
    cut = cut || (is_ == now &&
                  std::ranges::none_of(left, [this](const Call* call) { return survives(*call); }));
    if (cut && std::ranges::none_of(left, returned)) return true;
    for (const Call* const next : left) {
      const bool late = std::ranges::any_of(
          left, [next](const Call* other) { return other->returned < next->invoked; });
      if (late) continue;
      Content then = now;
      const Outcome outcome = change(then, *next->step);
      if (returned(next) && outcome != next->outcome) continue;
      if (outcome == Outcome::done && !cut && next->first_epoch > durable_) continue;
      std::vector<const Call*> rest = left;
      std::erase(rest, next);
      if (run(then, rest, cut)) return true;
    }
    return false;
  }

 private:
  static bool returned(const Call* call) { return call->returned != kPending; }
  [[nodiscard]] bool survives(const Call& call) const {
    return returned(&call) && (call.durable || call.last_epoch <= durable_);
  }

  const Content& is_;
  const std::uint64_t durable_;
};

// Level 0 of the arena: the store before the threads; 1: a schedule; 2: what recovery makes of it.
class StoreThreads final : Crasher {
 public:
  explicit StoreThreads(const StoreProgram& program)
      : program_(program),
        arena_(kCapacity, 3,
               {program.domain == Domain::disk ? std::size_t{8} : std::size_t{64},
                program.domain == Domain::cache || program.domain == Domain::process}),
        recorder_(arena_) {
    options_.domain = program.domain;
    options_.emulate = true;
    options_.epoch_length = {};
    Recorder::watch(&recorder_);
  }
  StoreThreads(const StoreThreads&) = delete;
  StoreThreads& operator=(const StoreThreads&) = delete;
  ~StoreThreads() override { Recorder::watch(nullptr); }

  StoreThreadsReport go() {
    take_slots(program_.threads.size());
    prepare();
    if (!report_.failure.empty()) return std::move(report_);
    recorder_.crasher = this;
    recorder_.dropped =
        program_.dropped;  // not before: else what the threads find is wrong already
    arena_.enter();
    recorder_.switch_level();
    Explorer explorer({static_cast<unsigned>(program_.threads.size()), program_.preemptions,
                       program_.random_runs, 1, program_.deadline});
    explorer.all([this](Policy& policy, Trace& trace) {
      trace = schedule(policy);
      return report_.failure.empty();
    });
    arena_.leave();
    recorder_.switch_level();
    report_.switches = explorer.failing();
    report_.complete = explorer.complete();
    return std::move(report_);
  }

 private:
  void prepare() {
    auto pool = PoolAccess::format(arena_.base(0), bytes_, kCapacity, options_, &recorder_);
    if (!pool) return fail("format: " + pool.error().message);
    {
      auto store = StoreAccess::over(*pool, buffered_ ? Durability::buffered : Durability::strict);
      if (!store) return fail("store: " + store.error().message);
      for (const char* const name : {"a", "b"}) {
        if (!store->table(name, program_.spec)) return fail("no table");
        before_[name];
      }
      for (const Put& put : program_.before) {
        if (store->table(put.table)->put(put.key, *put.value) != Outcome::done) fail("no put");
        before_[put.table][put.key] = *put.value;
      }
      if (store->sync() != Outcome::done) fail("no sync");
      StoreAccess::state(*store).abandon();
    }
    bytes_ = PoolAccess::state(*pool).medium().size();
    PoolAccess::state(*pool).abandon();
    recorder_.settle();
  }

  // --- Schedules ---
  Trace schedule(Policy& policy) {
    ++report_.schedules;
    arena_.begin({});
    recorder_.allow(kMostEvents);
    quiet_ = true;
    Trace trace;
    {
      auto pool = PoolAccess::attach(arena_.base(1), bytes_, kCapacity, options_, &recorder_);
      if (!pool) {
        fail("open: " + pool.error().message);
      } else {
        live_ = &PoolAccess::state(*pool).medium();
        trace = run_threads(*pool, policy);
        quiet_ = true;
        PoolAccess::state(*pool).abandon();
      }
    }
    recorder_.settle();
    arena_.end();
    recorder_.switch_level();
    return trace;
  }

  Trace run_threads(Pool& pool, Policy& policy) {
    auto store = StoreAccess::over(pool);
    if (!store) {
      fail("store: " + store.error().message);
      return {};
    }
    std::map<std::string, Table<Bytes>> tables;
    for (const char* const name : {"a", "b"}) tables.emplace(name, store->table(name).value());
    calls_.assign(program_.threads.size(), {});
    clock_ = 0;
    std::vector<Scheduler::Body> bodies;
    for (std::size_t thread = 0; thread < calls_.size(); ++thread) {
      bodies.emplace_back([&, thread] {
        for (const StoreStep& step : program_.threads[thread]) {
          perform(*store, tables, thread, step);
        }
      });
    }
    recorder_.settle();
    recorder_.new_threads();
    quiet_ = false;
    Trace trace = scheduler_.run(bodies, policy, kMostPoints);
    quiet_ = true;
    recorder_.settle();
    if (!trace.stuck.empty()) {
      fail(trace.stuck);
    } else if (report_.failure.empty()) {
      judge(*store, true);
    }
    StoreAccess::state(*store).abandon();
    return trace;
  }

  void perform(Store& store, std::map<std::string, Table<Bytes>>& tables, std::size_t thread,
               const StoreStep& step) {
    if (step.kind == Kind::tick) {
      if (store.pool().advance_epoch() != Outcome::done) fail("the clock does not step");
      return crash_point();
    }
    if (step.kind == Kind::sync) return sync(store);
    const std::size_t number = calls_[thread].size();
    calls_[thread].push_back({&step, ++clock_});
    calls_[thread][number].first_epoch = store.pool().epochs().now;
    const Outcome outcome = answer(store, tables, step);
    Call& call = calls_[thread][number];
    call.outcome = outcome;
    call.returned = ++clock_;
    call.last_epoch = store.pool().epochs().now;
    call.durable = step.kind == Kind::drop && outcome == Outcome::done;  // at once
    crash_point();
  }

  // Whatever clock a crash leaves: what had returned before survives.
  void sync(Store& store) {
    std::vector<std::pair<std::size_t, std::size_t>> before;
    for (std::size_t thread = 0; thread < calls_.size(); ++thread) {
      for (std::size_t i = 0; i < calls_[thread].size(); ++i) {
        if (calls_[thread][i].returned != kPending) before.emplace_back(thread, i);
      }
    }
    if (store.sync() != Outcome::done) fail("sync fails");
    for (const auto& [thread, i] : before) calls_[thread][i].durable = true;
    crash_point();
  }

  static Outcome answer(Store& store, std::map<std::string, Table<Bytes>>& tables,
                        const StoreStep& step) {
    if (step.kind == Kind::drop) {
      return store.drop_table(step.table) ? Outcome::done : Outcome::corrupt;
    }
    if (step.kind == Kind::write) {
      const Put& one = step.puts.front();
      auto& table = tables.at(one.table);
      return one.value ? table.put(one.key, *one.value) : table.erase(one.key);
    }
    Batch batch;
    for (const Put& one : step.puts) {
      const auto& table = tables.at(one.table);
      one.value ? batch.put<Bytes>(table, one.key, *one.value) : batch.erase<Bytes>(table, one.key);
    }
    return store.apply(batch);
  }

  // --- Crashes ---
  void escaped(const std::string& what) override { fail(what); }

  void crash_point() override {
    if (quiet_ || arena_.level() != 1 || !report_.failure.empty()) return;
    if (!seen_.insert(arena_.state_hash() * 31 + history_hash()).second) return;
    ++report_.crash_points;
    const Recoveries done = crash_here(recorder_, program_.most, [this] {
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
    if (!pool) return fail("open: " + pool.error().message);
    {
      auto store = StoreAccess::over(*pool);
      recorder_.settle();
      if (!store) {
        fail("store: " + store.error().message);
      } else {
        judge(*store, false);
        StoreAccess::state(*store).abandon();
      }
    }
    PoolAccess::state(*pool).abandon();
    recorder_.settle();
  }

  [[nodiscard]] std::uint64_t history_hash() const {
    std::uint64_t hash = 0;
    for (const auto& of_thread : calls_) {
      for (const Call& call : of_thread) {
        for (const std::uint64_t word :
             {call.invoked, call.returned, static_cast<std::uint64_t>(call.outcome),
              call.first_epoch, call.last_epoch, std::uint64_t{call.durable}}) {
          hash = (hash ^ word) * 0x9E3779B97F4A7C15ULL;
          hash ^= hash >> 31;
        }
      }
      hash += of_thread.size() + 1;
    }
    return hash;
  }

  // --- Judgement ---
  // `all`: every call has happened; after a crash of a buffered store it is the state in the middle
  // of an order, at the end of the durable epoch.
  void judge(Store& store, bool all) {
    Content is;
    const std::vector<IndexInfo> tables = store.tables().value();
    for (const IndexInfo& info : tables) {
      auto table = store.table(info.name).value();
      auto& content = is[info.name];
      auto cursor = table.cursor();
      for (cursor.first(); cursor.valid(); cursor.next()) {
        content.emplace(cursor.key(), cursor.value());
      }
      if (cursor.outcome() != Outcome::done) return fail("a cursor finds damage");
    }
    std::vector<Call> calls;
    for (const auto& of_thread : calls_)
      calls.insert(calls.end(), of_thread.begin(), of_thread.end());
    const std::uint64_t durable = all || !buffered_ ? kPending : store.pool().epochs().durable;
    if (!passes_through(calls, before_, is, durable)) {
      return fail(
          durable == kPending
              ? "no order: " + show(is)
              : fmt::format("no order passes through the end of epoch {}:{}", durable, show(is)));
    }
    const auto report = store.check();
    if (!report) return fail("check: " + report.error().message);
    for (const std::string& problem : report->problems) {
      if (problem.find("header copy") == std::string::npos) return fail("check: " + problem);
    }
    std::uint64_t keys = 0;
    for (const auto& [name, content] : is) keys += content.size();
    // Of a store that was opened: else old ones wait.
    if (!all && store.info()->records != keys) fail("records that no key names, or keys without");
  }

  static std::string show(const Content& is) {
    std::string text;
    for (const auto& [name, content] : is) {
      text += " " + name + "{";
      for (const auto& [key, value] : content) {
        text += fmt::format("{}={}({}) ", key, value.substr(0, 4), value.size());
      }
      text += "}";
    }
    return text;
  }

  void fail(const std::string& what) {
    if (!report_.failure.empty()) return;
    report_.failure = fmt::format("{}, crash at {}", what, recorder_.last());
    for (const auto& of_thread : calls_) {
      for (const Call& call : of_thread) {
        report_.failure += fmt::format("\n  {} -> {} [{}, {}]", to_string(*call.step),
                                       everleaf::to_string(call.outcome), call.invoked,
                                       static_cast<std::int64_t>(call.returned));
      }
      report_.failure += "\n  --";
    }
  }

  const StoreProgram& program_;
  const bool buffered_ = is_buffered(program_.spec);
  Arena arena_;
  Recorder recorder_;
  Scheduler scheduler_;
  PoolOptions options_;
  std::uint64_t bytes_ = pmem::kMinPoolBytes;
  const pmem::Medium* live_ = nullptr;
  Content before_;
  std::vector<std::vector<Call>> calls_;
  std::uint64_t clock_ = 0;
  bool quiet_ = true;
  std::unordered_set<std::uint64_t> seen_;
  StoreThreadsReport report_;
};

}  // namespace

bool passes_through(const std::vector<StoreCall>& calls, const StoreContent& before,
                    const StoreContent& is, std::uint64_t durable) {
  std::vector<const StoreCall*> all;
  for (const StoreCall& call : calls) all.push_back(&call);
  return Orders(is, durable).run(before, all, false);
}

StoreThreadsReport run_store_threads(const StoreProgram& program) {
  return StoreThreads(program).go();
}

}  // namespace everleaf::crash
