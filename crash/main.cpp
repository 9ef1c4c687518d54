// everleaf-crash: looks for crashes that an index does not survive. README.md here.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include <everleaf/index.hpp>

#include <fmt/format.h>
#include <malloc.h>
#include <unistd.h>

#include "interrupt.hpp"
#include "meter.hpp"
#include "mutate.hpp"
#include "processes.hpp"
#include "run.hpp"
#include "shrink.hpp"
#include "threads/concurrent.hpp"
#include "threads/words.hpp"

namespace everleaf::crash {
namespace {

constexpr int kExitFound = 1;
constexpr int kExitUsage = 2;
constexpr int kExitIo = 3;
constexpr int kExitInterrupted = 130;
constexpr double kLongShrink = 20;  // seconds
constexpr double kShortShrink = 2;
using Clock = std::chrono::steady_clock;

struct Arguments {
  std::string index = "all";
  std::string keys = "both";
  std::string domain = "memory";
  std::size_t ops = 200;
  std::uint64_t seed = 1;
  unsigned nested = 2;
  unsigned threads = 1;
  double budget = 60;
  bool processor_time = false;
  unsigned jobs = std::max(1U, std::thread::hardware_concurrency());
  std::size_t exhaustive = 0;
  std::string json;
  std::string replay;
  std::string program;
  std::string site;
  bool pmwcas = false;
  bool store = false;
  bool all_schedules = false;
  bool mutate = false;
  bool planted = false;
  bool first = false;
  bool counts = false;
  bool eager = false;
  bool unordered = false;
  bool permuted = false;
  bool record_only = false;
  std::uint64_t most = 500;
  std::uint64_t most_nested = 64;
  std::uint64_t crash_on_every = 16;
  std::uint64_t readers = Config{}.readers;
  std::uint64_t pool_mib = Config{}.pool_bytes >> 20;
};

void declare_options(CLI::App& app, Arguments& a) {
  app.add_option("--index", a.index, "A tree's spec (wbtree:node=512), or all")
      ->capture_default_str();
  app.add_option("--keys", a.keys, "u64, bytes or both")
      ->capture_default_str()
      ->check(CLI::IsMember({"u64", "bytes", "both"}));
  app.add_option("--domain", a.domain, "memory, cache, process or disk")
      ->capture_default_str()
      ->check(CLI::IsMember({"memory", "cache", "process", "disk"}));
  app.add_option("--ops", a.ops, "Operations of a workload")
      ->capture_default_str()
      ->check(CLI::Range(std::size_t{1}, kMostOps));
  app.add_option("--seed", a.seed, "Of the first workload; the next ones count up")
      ->capture_default_str();
  app.add_option("--nested", a.nested,
                 "Crashes in a row: 1 (none in recovery), 2, or 3 (at random)")
      ->capture_default_str()
      ->check(CLI::Range(1, 3));
  app.add_option("--threads", a.threads,
                 "More than 1: tiny concurrent programs, every schedule with two preemptions")
      ->capture_default_str()
      ->check(CLI::Range(1U, kMostFibers));
  app.add_option("--budget", a.budget,
                 "Seconds for all indexes together; with --mutate and --planted of processor time, "
                 "so that other load changes little: for all sites together, for each run of a bug")
      ->capture_default_str()
      ->check(CLI::Range(0.1, 1e6));
  app.add_flag("--processor-time", a.processor_time,
               "The budget is processor time, of all processes together");
  app.add_option("--jobs", a.jobs,
                 "Indexes at once, each in a process of its own; 1: none of these")
      ->capture_default_str()
      ->check(CLI::Range(1, 256));
  app.add_option("--exhaustive", a.exhaustive, "All sequences of N operations over three keys")
      ->check(CLI::Range(1, 6));
  app.add_option("--json", a.json, "Write one row per index to this file");
  app.add_option("--replay", a.replay, "Replay a failure from its line");
  app.add_option(
      "--program", a.program,
      "One concurrent program, e.g. 2,4,6/r4/i5=1,f4: keys before, calls of each thread (insert, "
      "update, upsert p, remove, find, scan, many look-ups, tick of the clock)");
  app.add_option("--most", a.most, "Executions of a crash point before the rest is sampled")
      ->capture_default_str();
  app.add_option("--most-nested", a.most_nested, "The same of a crash point in a recovery")
      ->capture_default_str();
  app.add_option(
         "--crash-on-every", a.crash_on_every,
         "Crashes in the work after a recovery, and in a recovery that opening an index is: "
         "of each so many-th; 1: of all")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--readers", a.readers,
                 "Images are opened read-only first at one crash point in so many; 0: at none")
      ->capture_default_str();
  app.add_option("--pool-mib", a.pool_mib, "MiB of a new pool; an execution costs the same")
      ->capture_default_str()
      ->check(CLI::Range(Config{}.pool_bytes >> 20, kMostPoolBytes >> 20));
}

void declare_ways(CLI::App& app, Arguments& a) {
  app.add_flag("--pmwcas", a.pmwcas,
               "Programs of src/pmwcas without a tree; --program 1,2/0:1>3+1:2>4/r0,1:+1");
  app.add_flag("--store", a.store, "A store over the tree: two tables, values, batches, drops");
  app.add_flag("--all-schedules", a.all_schedules,
               "With --pmwcas: every schedule of one program, or of those that are small enough");
  app.add_flag("--mutate", a.mutate, "Drop each flush and fence in turn: the checker must notice");
  app.add_option("--site", a.site, "With --mutate: only sites whose name contains this");
  app.add_flag("--planted", a.planted,
               "Plant known bugs in copies of the sources, one by one: each must be found");
  app.add_flag("--first", a.first, "Stop at the first failure, and do not spend long on shrinking");
  app.add_flag("--counts", a.counts, "Table 3 of the wB+-Tree paper beside what is counted");
  app.add_flag("--eager", a.eager,
               "Enumerate the images instead of choosing lazily (tiny workloads)");
  app.add_flag("--unordered", a.unordered, "Words of a line reach the medium in any order");
  app.add_flag("--permuted", a.permuted,
               "Plain stores between two atomic accesses, flushes or fences are made in any order, "
               "as a compiler may; memory and disk");
  app.add_flag("--record-only", a.record_only, "No crashes: measures the cost of recording");
}

struct Row {
  std::string index;
  KeyType keys = KeyType::u64;
  Report sum;
  std::uint64_t workloads = 0;
  std::uint64_t schedules = 0;
  std::uint64_t failures = 0;
  std::uint64_t compared_points = 0;  // of sequences, with enumeration
};

std::vector<std::pair<std::string, KeyType>> cases(const Arguments& a) {
  std::vector<std::pair<std::string, KeyType>> all;
  std::vector<std::string> specs;
  if (a.index != "all") {
    specs.push_back(a.index);
  } else {
    for (const TreeInfo& tree : trees()) {
      for (const std::string_view spec : tree.test_specs) specs.emplace_back(spec);
    }
  }
  for (const std::string& spec : specs) {
    if (a.keys != "bytes") all.emplace_back(spec, KeyType::u64);
    if (a.keys != "u64") all.emplace_back(spec, KeyType::bytes);
  }
  return all;
}

std::string row_name(const Arguments& a, const std::string& spec) {
  std::string name = a.store ? "store " : "";
  return name += spec;
}

// What is wrong with a spec; empty: nothing.
std::string complaint(const std::string& spec) {
  auto pool = Pool::anonymous();
  if (!pool) return pool.error().message;
  const auto index = pool->index<std::uint64_t>("index", spec);
  return index ? std::string{} : index.error().message;
}

void print_failure(const Config& config, const Origin& origin, const Failure& failure) {
  fmt::print("FAILURE {}\n", failure.what);
  for (std::size_t i = 0; i < config.ops.size(); ++i) {
    fmt::print("  {} {}\n", i == failure.op ? "->" : "  ", to_string(config.ops[i]));
  }
  fmt::print("crash in {}\n  last flush or fence at {}\n  last store at {}\n", failure.operation,
             failure.where, failure.store);
  if (!failure.lost.empty()) fmt::print("what was not durable:\n{}", failure.lost);
  fmt::print("replay: everleaf crash --replay '{}'\n", replay_line(config, origin, failure));
}

void add(Report& sum, const Report& one) {
  sum.Tally::add(one);
  sum.operations += one.operations;
  sum.readers += one.readers;
  sum.seconds += one.seconds;
  sum.stores += one.stores;
}

double rate(const Report& report) {
  return report.seconds > 0 ? static_cast<double>(report.executions) / report.seconds : 0;
}

Clock::time_point from_now(double seconds) {
  return Clock::now() +
         std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

// Before anything is done: it would be in vain.
void can_write(const std::string& path) {
  if (!path.empty() && !std::ofstream(path, std::ios::app)) {
    throw std::runtime_error("cannot write to '" + path + "'");
  }
}

void write_json(const std::string& path, const nlohmann::json& rows) {
  if (path.empty()) return;
  std::ofstream file(path, std::ios::trunc);
  file << rows.dump(2) << "\n";
  if (!file) throw std::runtime_error("cannot write to '" + path + "'");
}

int exit_code(std::uint64_t failures) {
  return failures != 0 ? kExitFound : interrupted() ? kExitInterrupted : 0;
}

Config base_config(const Arguments& a, const std::string& spec, KeyType keys) {
  Config config;
  config.spec = spec;
  config.keys = keys;
  config.store = a.store;
  config.domain = parse_domain(a.domain).value_or(Domain::memory);
  config.nested = a.eager ? 1 : a.nested;
  config.eager = a.eager;
  config.most = a.most;
  config.most_nested = a.most_nested;
  config.crash_on_every = a.crash_on_every;
  config.readers = a.readers;
  config.pool_bytes = a.pool_mib << 20;
  config.unordered = a.unordered;
  config.permuted = a.permuted;
  config.record_only = a.record_only;
  return config;
}

void report_failure(Config config, Origin origin, Failure failure, double seconds) {
  if (seconds > 0) shrink(config, origin, failure, seconds);
  print_failure(config, origin, failure);
}

// One line of a terminal, while this lives; where there is none, a line now and then.
class Progress {
 public:
  Progress() = default;
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress() {
    if (terminal_) fmt::print(stderr, "\r\033[K");
  }
  // What the row has, and what is under way.
  void show(const Row& row, std::uint64_t points, std::uint64_t executions) {
    const Clock::time_point now = Clock::now();
    if (!terminal_ && now < next_line_) return;
    next_line_ = now + kLineEvery;
    const double seconds = std::chrono::duration<double>(now - begun_).count();
    executions += row.sum.executions;
    fmt::print(stderr, "{}{} {}: {} crash points, {} executions, {:.0f} a second, {} failures{}",
               terminal_ ? "\r" : "", row.index, everleaf::to_string(row.keys),
               row.sum.crash_points + points, executions,
               static_cast<double>(executions) / std::max(seconds, 1e-3), row.failures,
               terminal_ ? "\033[K" : "\n");
  }

 private:
  const bool terminal_ = ::isatty(STDERR_FILENO) == 1;
  static constexpr std::chrono::seconds kLineEvery{10};
  const Clock::time_point begun_ = Clock::now();
  Clock::time_point next_line_ = begun_ + kLineEvery;
};

// The last operation of a sequence; those before it are the last ones of others. 1: a failure.
std::uint64_t compare(Config config, const Origin& origin, std::uint64_t& points) {
  constexpr std::uint64_t kMostImages = 300;
  config.only_op = config.ops.size() - 1;
  config.skip_creation = true;
  const Comparison comparison = compare_with_eager(config, kMostImages);
  points += comparison.points;
  if (comparison.wrong.empty()) return 0;
  print_failure(config, origin, {comparison.wrong, *config.only_op, {}, {}, {}, {}, {}});
  return 1;
}

// Workloads until the time is up; each of another seed, so of another shape.
Row check(const Arguments& a, const std::string& spec, KeyType keys, const Deadline& until) {
  Row row{row_name(a, spec), keys, {}, 0, 0, 0, 0};
  Progress progress;
  for (std::uint64_t n = 0; row.failures == 0 && (n == 0 || !is_late(until)); ++n) {
    Config config = base_config(a, spec, keys);
    Origin origin{{a.ops, a.seed + n, 0, std::nullopt, is_buffered(spec), a.store}, {}};
    config.deadline = until;
    config.skip_creation = n != 0;  // it is the same for each workload
    bool more = true;
    if (a.exhaustive != 0) {
      more = nth_sequence(n, a.exhaustive, is_buffered(config.spec), config.ops);
      if (!more) break;
      origin.workload = {a.exhaustive, 0, 0, n, is_buffered(spec), false};
    } else {
      config.ops = make_workload(origin.workload);
    }
    for (std::size_t i = 0; i < config.ops.size(); ++i) origin.kept.push_back(i);
    config.line = replay_line(config, origin, {});
    config.progress = [&](std::uint64_t points, std::uint64_t executions) {
      if ((points & 31) == 0) progress.show(row, points, executions);
    };
    const bool glances = n == 0 && a.exhaustive == 0 && !a.eager && !a.record_only;
    const Report report = glances ? run_glancing_first(config) : run(config);
    add(row.sum, report);
    ++row.workloads;
    if (report.failure) {
      ++row.failures;
      config.progress = nullptr;
      report_failure(config, origin, *report.failure,
                     a.exhaustive != 0 ? 0
                     : a.first         ? kShortShrink
                                       : kLongShrink);
    }
    if (a.exhaustive != 0 && !a.eager && !report.failure) {
      row.failures += compare(config, origin, row.compared_points);
    }
    if (a.record_only) break;
    // Its comparison may have ended early.
    if (a.exhaustive != 0 && is_late(until)) row.sum.complete = false;
  }
  return row;
}

void print_failure(const ConcurrentConfig& config, const ConcurrentReport& report) {
  fmt::print("FAILURE {}\n", report.failure);
  for (const std::string& line : report.history) fmt::print("  {}\n", line);
  if (!report.where.empty()) fmt::print("last flush or fence at {}\n", report.where);
  fmt::print("replay: everleaf crash --replay '{}'\n", replay_line(config, report.switches));
}

// Concurrent programs until the time is up.
Row check_threads(const Arguments& a, const std::string& spec, KeyType keys,
                  const Deadline& until) {
  constexpr double kMostPerProgram = 0.5;  // seconds of processor time
  Row row{spec, keys, {}, 0, 0, 0, 0};
  Progress progress;
  const double begun = processor_seconds();
  for (std::uint64_t n = 0; row.failures == 0 && (n == 0 || !is_late(until)); ++n) {
    ConcurrentConfig config;
    config.spec = spec;
    config.keys = keys;
    config.domain = parse_domain(a.domain).value_or(Domain::memory);
    config.seed = a.seed + n;
    config.program = a.program.empty()
                         ? make_program(config.seed, a.threads, is_buffered(config.spec))
                         : *parse_program(a.program);
    // Many programs rather than all schedules of few: one preemption finds most of what two find.
    // Three threads have too many schedules with two.
    const bool deep = !a.program.empty() || n % 8 == 7;
    config.preemptions = config.program.threads.size() == 2 && deep ? 2 : 1;
    config.random_runs = deep ? 100 : 20;
    config.deadline = a.program.empty() ? Deadline::within(kMostPerProgram, until) : until;
    const ConcurrentReport report = run_concurrent(config);
    ++row.workloads;
    row.schedules += report.schedules;
    row.sum.Tally::add(report);
    for (const auto& calls : config.program.threads) row.sum.operations += calls.size();
    if (!report.failure.empty()) {
      ++row.failures;
      print_failure(config, report);
    }
    progress.show(row, 0, 0);
    if (!a.program.empty()) break;
  }
  row.sum.seconds = processor_seconds() - begun;
  return row;
}

void print_failure(const WordsConfig& config, const WordsReport& report) {
  fmt::print("FAILURE {}\n", report.failure);
  for (const std::string& line : report.history) fmt::print("  {}\n", line);
  if (!report.where.empty()) fmt::print("last flush or fence at {}\n", report.where);
  fmt::print("replay: everleaf crash --replay '{}'\n", replay_line(config, report));
}

// Programs on a few words until the time is up: schedules, threads that stop, recoveries that
// crash.
class WordsRun {
 public:
  explicit WordsRun(const Arguments& a)
      : a_(a),
        until_(a.processor_time ? Deadline::within(a.budget) : Deadline{from_now(a.budget)}),
        domain_(parse_domain(a.domain).value_or(Domain::memory)) {}

  int go() {
    if (a_.all_schedules) {
      check_all_schedules();
    } else if (!a_.program.empty()) {
      WordsConfig config = word_search(*parse_words(a_.program), a_.seed, domain_);
      config.preemptions = 2;
      check(std::move(config), {});
    } else {
      check_known();
      for (std::uint64_t seed = a_.seed; on(); ++seed) {
        check(word_search(make_words(seed, a_.threads), seed, domain_), kMostPerProgram);
      }
    }
    print();
    write_json(a_.json, nlohmann::json::array({row()}));
    return exit_code(failures_);
  }

 private:
  static constexpr double kMostPerProgram = 0.8;  // seconds of processor time

  [[nodiscard]] bool on() const { return (failures_ == 0 || !a_.first) && !is_late(until_); }

  void check_all_schedules() {
    for (WordsProgram& program :
         a_.program.empty() ? pair_programs() : std::vector{*parse_words(a_.program)}) {
      if (!on()) return;
      WordsConfig config = all_schedules_of(std::move(program), std::min(a_.nested, 2U), domain_);
      config.deadline = until_;
      check(config);
    }
  }

  void check_known() {
    if (a_.threads == 1) {
      for (WordsProgram& program : lone_programs()) {
        if (on()) check(all_crashes_of(std::move(program), domain_), kMostPerProgram);
      }
      return;
    }
    for (const WordsStory& story : word_stories()) {
      if (on()) check(config_of(story, domain_));
    }
  }

  void check(WordsConfig config, std::optional<double> seconds) {
    config.nested = std::min(a_.nested, config.nested);
    if (seconds) config.deadline = Deadline::within(*seconds, until_);
    check(config);
  }

  void check(const WordsConfig& config) {
    const WordsReport report = crash::run_words(config);
    sum_.add(report);
    sum_.schedules += report.schedules;
    sum_.redundant += report.redundant;
    for (const auto& calls : config.program.threads) operations_ += calls.size();
    for (const auto& [path, times] : report.reached) sum_.reached[path] += times;
    ++programs_;
    if (report.failure.empty()) return;
    ++failures_;
    print_failure(config, report);
  }

  void print() const {
    fmt::print(
        "{} programs, {} schedules, {} crash points, {} in recovery, {} executions, {} failures\n",
        programs_, sum_.schedules, sum_.crash_points, sum_.nested_points, sum_.executions,
        failures_);
    if (a_.all_schedules) {
      fmt::print("{} of the schedules redundant; {}\n", sum_.redundant,
                 sum_.complete && on() ? "all are run" : "NOT ALL are run");
    }
    for (const auto& [path, times] : sum_.reached) fmt::print("  {:>9} {}\n", times, path);
  }

  [[nodiscard]] nlohmann::json row() const {
    const double seconds = processor_seconds() - begun_;
    return {{"index", "pmwcas"},
            {"keys", nullptr},
            {"domain", a_.domain},
            {"threads", a_.threads},
            {"workloads", programs_},
            {"schedules", sum_.schedules},
            {"operations", operations_},
            {"crash_points", sum_.crash_points},
            {"nested_crash_points", sum_.nested_points},
            {"sampled_crash_points", sum_.sampled_points},
            {"complete", sum_.complete},
            {"executions", sum_.executions},
            {"executions_per_second", static_cast<double>(sum_.executions) / seconds},
            {"merged_stores", sum_.merged},
            {"reached", sum_.reached},
            {"failures", failures_}};
  }

  const Arguments& a_;
  const double begun_ = processor_seconds();
  const Deadline until_;
  const Domain domain_;
  WordsReport sum_;
  std::uint64_t programs_ = 0;
  std::uint64_t operations_ = 0;
  std::uint64_t failures_ = 0;
};

int replay_words(const Arguments& a) {
  const auto config = parse_words_replay(a.replay);
  if (!config) {
    fmt::print(stderr, "everleaf-crash: this is no replay line\n");
    return kExitUsage;
  }
  const WordsReport report = crash::run_words(*config);
  if (report.failure.empty()) {
    fmt::print("no failure: {} crash points, {} executions\n", report.crash_points,
               report.executions);
    return 0;
  }
  print_failure(*config, report);
  return kExitFound;
}

// Values of "name=value" words.
std::string word_of(std::string_view line, std::string_view name) {
  const std::string start = std::string(name) + "=";
  for (std::size_t at = 0; at < line.size();) {
    const std::size_t end = std::min(line.find(' ', at), line.size());
    const std::string_view word = line.substr(at, end - at);
    if (word.starts_with(start)) return std::string(word.substr(start.size()));
    at = end + 1;
  }
  return {};
}

int replay_threads(const Arguments& a) {
  ConcurrentConfig config;
  config.spec = word_of(a.replay, "spec");
  const std::string keys = word_of(a.replay, "keys");
  config.keys = keys == "bytes" ? KeyType::bytes : KeyType::u64;
  const auto domain = parse_domain(word_of(a.replay, "domain"));
  const auto program = parse_program(word_of(a.replay, "program"));
  config.replay = parse_switches(word_of(a.replay, "switches"));
  if (!domain || !program || !config.replay || config.spec.empty() ||
      (keys != "u64" && keys != "bytes")) {
    fmt::print(stderr, "everleaf-crash: this is no replay line\n");
    return kExitUsage;
  }
  config.domain = *domain;
  config.program = *program;
  const ConcurrentReport report = run_concurrent(config);
  if (report.failure.empty()) {
    fmt::print("no failure: {} crash points, {} executions\n", report.crash_points,
               report.executions);
    return 0;
  }
  print_failure(config, report);
  return kExitFound;
}

nlohmann::json to_json(const Row& row, const Arguments& a) {
  return {{"index", row.index},
          {"keys", everleaf::to_string(row.keys)},
          {"domain", a.domain},
          {"threads", a.threads},
          {"workloads", row.workloads},
          {"schedules", row.schedules},
          {"operations", row.sum.operations},
          {"crash_points", row.sum.crash_points},
          {"nested_crash_points", row.sum.nested_points},
          {"sampled_crash_points", row.sum.sampled_points},
          {"sampled_nested_crash_points", row.sum.sampled_nested_points},
          {"complete", row.sum.complete},
          {"executions", row.sum.executions},
          {"read_first", row.sum.readers},
          {"executions_per_second", rate(row.sum)},
          {"merged_stores", row.sum.merged},
          {"compared_crash_points", row.compared_points},
          {"failures", row.failures}};
}

void print_row(const nlohmann::json& row) {
  const auto number = [&](const char* name) { return row.at(name).get<std::uint64_t>(); };
  const bool all_followed =
      row.at("complete") &&
      number("sampled_crash_points") + number("sampled_nested_crash_points") == 0;
  fmt::print("{:<40} {:>5} {:>8} {:>9} {:>11} {:>10.0f} {:>8}{}\n",
             row.at("index").get<std::string>(), row.at("keys").get<std::string>(),
             number("operations"), number("crash_points"), number("executions"),
             row.at("executions_per_second").get<double>(), number("failures"),
             all_followed ? "" : " *");
  std::fflush(stdout);
}

int run_checks(const Arguments& a) {
  const auto all = cases(a);
  const unsigned jobs = a.record_only ? 1 : a.jobs;
  const auto end = from_now(a.budget);
  const double begun = processor_seconds();
  double spent = 0;          // by processes that have ended
  std::size_t finished = 0;  // cases
  nlohmann::json rows = nlohmann::json::array();
  std::uint64_t failures = 0;
  // What is left of the time, for those that are left and those that still run.
  const auto share = [&](std::size_t i) -> Deadline {
    if (a.processor_time) {
      const double left = a.budget - spent - (jobs > 1 ? 0 : processor_seconds() - begun);
      return Deadline::within(std::max(left, 0.0) / static_cast<double>(all.size() - finished));
    }
    const auto now = Clock::now();
    return {now + std::max(end - now, Clock::duration{}) * jobs /
                      static_cast<Clock::rep>(all.size() - i + jobs - 1)};
  };
  const auto look = [&](std::size_t i) {
    const Deadline until = share(i);
    return a.threads == 1 && a.program.empty()
               ? check(a, all[i].first, all[i].second, until)
               : check_threads(a, all[i].first, all[i].second, until);
  };
  const auto note = [&](const nlohmann::json& row) {
    print_row(row);
    rows.push_back(row);
    ++finished;
    failures += row.at("failures").get<std::uint64_t>();
    return !a.first || failures == 0;
  };
  const auto ended = [&](std::size_t i, const Ended& end_of) {
    spent += end_of.processor_s;
    fmt::print("{}", end_of.printed);
    if (end_of.died.empty()) return note(nlohmann::json::parse(end_of.answer));
    fmt::print("{}\n", end_of.died);
    return note(to_json(Row{row_name(a, all[i].first), all[i].second, {}, 0, 0, 1, 0}, a));
  };
  fmt::print("{:<40} {:>5} {:>8} {:>9} {:>11} {:>10} {:>8}\n", "index", "keys", "ops", "points",
             "executions", "per s", "failures");
  std::fflush(stdout);
  if (jobs > 1) {
    in_processes(
        {all.size(), jobs, 0, [&](std::size_t i) { return to_json(look(i), a).dump(); }, ended});
  } else {
    for (std::size_t i = 0; i < all.size(); ++i) {
      const Row row = look(i);
      const bool more = note(to_json(row, a));
      if (a.record_only) fmt::print("{:.4f} s, {} stores\n", row.sum.seconds, row.sum.stores);
      if (!more || interrupted()) break;
    }
  }
  write_json(a.json, rows);
  return exit_code(failures);
}

// What the runs of one index meet, whoever caught it.
struct MutantRow {
  std::string index;
  std::string keys;
  Report look;
  std::size_t sites = 0;
  std::size_t caught = 0;
  std::size_t justified = 0;

  void count(const Mutant& mutant) {
    ++sites;
    caught += mutant.caught ? 1U : 0U;
    justified += !mutant.caught && !mutant.justified.empty() ? 1U : 0U;
  }
  [[nodiscard]] std::size_t missed() const { return sites - caught - justified; }
};

nlohmann::json to_json(const MutantRow& row, const Arguments& a) {
  return {{"index", row.index},
          {"keys", row.keys.empty() ? nlohmann::json() : nlohmann::json(row.keys)},
          {"domain", a.domain},
          {"operations", row.look.operations},
          {"crash_points", row.look.crash_points},
          {"executions", row.look.executions},
          {"executions_per_second", rate(row.look)},
          {"sites", row.sites},
          {"caught", row.caught},
          {"justified", row.justified},
          {"failures", row.missed()}};
}

void print_mutants(const std::vector<Mutant>& mutants) {
  for (const Mutant& mutant : mutants) {
    if (mutant.caught && !mutant.justified.empty()) {
      fmt::print("caught, though the source says why it cannot be: {}: {}\n",
                 to_string(mutant.site), mutant.by);
    }
    if (mutant.caught) continue;
    fmt::print("not caught: {}{}\n", to_string(mutant.site),
               mutant.justified.empty() ? "" : ": " + mutant.justified);
  }
}

// Runs of all indexes that are asked for: `of` says whose each is.
std::vector<Config> mutant_runs(const Arguments& a, std::vector<std::size_t>& of) {
  constexpr std::uint64_t kSeeds = 5;  // all that a workload may have (README, Cost) among them
  std::vector<Config> configs;
  const auto all = cases(a);
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (std::uint64_t n = 0; n < kSeeds; ++n) {
      Config config = base_config(a, all[i].first, all[i].second);
      config.ops =
          make_workload({a.ops, a.seed + n, 0, std::nullopt, is_buffered(config.spec), a.store});
      configs.push_back(config);
      // A line keeps the order of its stores in `memory`, which hides what `disk` needs.
      if (a.domain == "memory") {
        config.domain = Domain::disk;
        configs.push_back(std::move(config));
      }
    }
    if (!a.store) {
      configs.push_back(base_config(a, all[i].first, all[i].second));
      configs.back().ops = all[i].second == KeyType::bytes ? used_blocks() : refilled_leaves();
    }
    of.resize(configs.size(), i);
  }
  return configs;
}

int run_mutants(const Arguments& a) {
  constexpr double kSitesAtLength = 20;  // that nobody misses; the others take little time
  const double seconds = a.budget * a.jobs / kSitesAtLength;
  std::vector<MutantRow> rows;
  std::vector<Mutant> mutants;
  if (!a.pmwcas) {
    for (const auto& [spec, keys] : cases(a)) {
      rows.push_back({row_name(a, spec), std::string(everleaf::to_string(keys)), {}});
    }
    std::vector<std::size_t> of;
    Mutation done = mutate(mutant_runs(a, of), a.site, seconds, a.jobs);
    for (std::size_t i = 0; i < done.looks.size(); ++i) add(rows[of[i]].look, done.looks[i]);
    mutants = std::move(done.mutants);
    for (Mutant& mutant : mutants) {  // runs become rows
      for (std::size_t& run : mutant.met_by) run = of[run];
      const auto twice = std::ranges::unique(mutant.met_by);
      mutant.met_by.erase(twice.begin(), twice.end());
    }
  }
  if (a.pmwcas || (a.index == "all" && !a.store)) {
    rows.push_back({"pmwcas", {}, {}});
    // A site may be one of a tree's runs, too.
    for (Mutant& one : mutate_words(a.site, seconds, a.jobs)) {
      one.met_by = {rows.size() - 1};
      const auto same = std::ranges::find(mutants, one.site, &Mutant::site);
      if (same == mutants.end()) {
        mutants.push_back(std::move(one));
        continue;
      }
      same->met_by.push_back(rows.size() - 1);
      if (same->caught) continue;
      one.met_by = std::move(same->met_by);
      *same = std::move(one);
    }
  }
  std::erase_if(mutants, [](const Mutant& mutant) { return !mutant.judged; });
  print_mutants(mutants);
  MutantRow sum{"all", a.keys, {}};
  for (const Mutant& mutant : mutants) {
    sum.count(mutant);
    for (const std::size_t row : mutant.met_by) rows[row].count(mutant);
  }
  const auto missed = interrupted() ? std::vector<std::string>{} : not_met(mutants, a.site);
  for (const std::string& site : missed) fmt::print("not met by any run: {}\n", site);
  fmt::print("{} sites, {} caught, {} justified; {} not met\n", sum.sites, sum.caught,
             sum.justified, missed.size());
  nlohmann::json json = nlohmann::json::array();
  for (const MutantRow& row : rows) {
    json.push_back(to_json(row, a));
    add(sum.look, row.look);
  }
  json.push_back(to_json(sum, a));  // each site once
  json.back()["not_met"] = missed;
  write_json(a.json, json);
  return exit_code(sum.missed());
}

int run_replay(const Arguments& a) {
  if (a.replay.find("words=") != std::string::npos) return replay_words(a);
  if (!word_of(a.replay, "program").empty()) return replay_threads(a);
  Config config;
  Origin origin;
  if (!parse_replay(a.replay, config, origin)) {
    fmt::print(stderr, "everleaf-crash: this is no replay line\n");
    return kExitUsage;
  }
  const Report report = run(config);
  if (!report.failure && !config.replay.empty() && !report.replayed) {
    fmt::print(stderr,
               "everleaf-crash: this replay line is of another build: its crash is not met\n");
    return kExitUsage;
  }
  if (!report.failure) {
    fmt::print("no failure: {} crash points, {} executions\n", report.crash_points,
               report.executions);
    return 0;
  }
  print_failure(config, origin, *report.failure);
  return kExitFound;
}

// A script beside the sources: it needs a compiler, and a program for each bug.
int run_planted(const Arguments& a) {
  const std::string script = std::string(EVERLEAF_SOURCE_DIR) + "/crash/planted/planted.py";
  const std::string work = std::string(EVERLEAF_SOURCE_DIR) + "/build/planted";
  const std::string budget = std::to_string(std::max(1, static_cast<int>(a.budget)));
  std::vector<const char*> words{script.c_str(), "--work", work.c_str(), "--budget",
                                 budget.c_str()};
  if (!a.json.empty()) words.insert(words.end(), {"--json", a.json.c_str()});
  words.push_back(nullptr);
  ::execv(script.c_str(), const_cast<char* const*>(words.data()));
  throw std::runtime_error("cannot run crash/planted/planted.py: the source tree is needed");
}

nlohmann::json to_json(const Count& count) {
  const Costs& is = count.measured;
  nlohmann::json json = {{"spec", count.spec},
                         {"nodes", count.nodes},
                         {"entries", count.entries},
                         {"operation", count.operation},
                         {"paper", nullptr},
                         {"measured",
                          {{"words", is.words},
                           {"flushes", is.flushes},
                           {"fences", is.fences},
                           {"bits_flipped", is.bits_flipped},
                           {"lines_read", is.lines_read},
                           {"picojoules", is.picojoules()}}}};
  if (count.paper) {
    json["paper"] = {{"words", count.paper->words},
                     {"flushes", count.paper->flushes},
                     {"fences", count.paper->fences}};
  }
  return json;
}

int run_counts(const Arguments& a) {
  const std::vector<Count> counts = count_table3();
  nlohmann::json rows = nlohmann::json::array();
  for (const Count& count : counts) rows.push_back(to_json(count));
  write_json(a.json, {{"counts", rows}});
  return print_counts(counts);
}

// The options that each way to work listens to, beside the one that asks for it.
std::vector<std::string_view> heeded(const Arguments& a) {
  if (!a.replay.empty()) return {"--replay"};
  if (a.planted) return {"--planted", "--budget", "--json"};
  if (a.counts) return {"--counts", "--json"};
  if (a.mutate) {
    return {"--mutate", "--index",  "--keys", "--domain", "--ops",
            "--seed",   "--nested", "--most", "--budget", "--processor-time",
            "--jobs",   "--site",   "--json", "--pmwcas", "--store"};
  }
  if (a.pmwcas) {
    return {"--pmwcas", "--threads", "--domain",         "--seed",
            "--nested", "--budget",  "--processor-time", "--jobs",
            "--json",   "--program", "--first",          "--all-schedules"};
  }
  std::vector<std::string_view> all{"--index", "--keys", "--domain", "--threads",       "--budget",
                                    "--jobs",  "--json", "--first",  "--processor-time"};
  const auto more = [&all](std::initializer_list<std::string_view> names) {
    all.insert(all.end(), names);
  };
  if (a.threads > 1 || !a.program.empty()) {
    more({"--seed", "--program"});
    return all;
  }
  more({"--nested", "--most", "--most-nested", "--unordered", "--readers"});
  if (a.store) {
    more({"--store", "--ops", "--seed"});
  } else {
    more({"--crash-on-every", "--eager"});
  }
  if (a.domain == "memory" || a.domain == "disk") more({"--permuted"});
  if (a.store) return all;
  if (a.exhaustive != 0) {
    more({"--exhaustive"});
    return all;
  }
  more({"--ops", "--seed", "--record-only", "--pool-mib"});
  return all;
}

// What was asked for and would not be done; empty: nothing.
std::string in_vain(const CLI::App& app, const Arguments& a) {
  const auto names = heeded(a);
  for (const CLI::Option* const option : app.get_options()) {
    const std::string name = option->get_name();
    if (option->count() == 0 || name == "--help" || std::ranges::find(names, name) != names.end())
      continue;
    return name + " has no meaning with the other options";
  }
  return {};
}

int run_program(int argc, char** argv) {
  CLI::App app("Crashes an index at every point and recovers every image that is left.",
               "everleaf-crash");
  Arguments arguments;
  declare_options(app, arguments);
  declare_ways(app, arguments);
  try {
    app.parse(argc, argv);
    const bool replays = app.count("--replay") != 0;
    const std::string spec = replays ? word_of(arguments.replay, "spec") : arguments.index;
    if (const std::string wrong = spec == "all" || spec.empty() ? std::string{} : complaint(spec);
        !wrong.empty()) {
      fmt::print(stderr, "everleaf-crash: {}\n", wrong);
      return kExitUsage;
    }
    if (const std::string wrong = in_vain(app, arguments); !wrong.empty()) {
      fmt::print(stderr, "everleaf-crash: {}\n", wrong);
      return kExitUsage;
    }
    if (replays) return run_replay(arguments);
    can_write(arguments.json);
    // The script of --planted has its own way.
    if (!arguments.planted) {
      remember(SIGINT, true);
      remember(SIGTERM, true);
    }
    if (arguments.pmwcas && !arguments.program.empty() && !parse_words(arguments.program)) {
      fmt::print(stderr, "everleaf-crash: --program '{}' is none\n", arguments.program);
      return kExitUsage;
    }
    if (arguments.pmwcas && !arguments.mutate) return WordsRun(arguments).go();
    const auto program = parse_program(arguments.program);
    if (!program || (!arguments.program.empty() && program->threads.empty())) {
      fmt::print(stderr, "everleaf-crash: --program '{}' is none\n", arguments.program);
      return kExitUsage;
    }
    if (arguments.counts) return run_counts(arguments);
    if (arguments.planted) return run_planted(arguments);
    // Those of the trees are met by indexes.
    if (arguments.store && arguments.site.empty()) arguments.site = "src/store";
    return arguments.mutate ? run_mutants(arguments) : run_checks(arguments);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kExitUsage;
  } catch (const std::exception& error) {
    fmt::print(stderr, "everleaf-crash: {}\n", error.what());
    return kExitIo;
  }
}

}  // namespace
}  // namespace everleaf::crash

int main(int argc, char** argv) {
  // Executions make and free the same blocks: nothing goes back to the system in between.
  (void)::mallopt(M_TRIM_THRESHOLD, 1 << 30);
  (void)::mallopt(M_MMAP_THRESHOLD, 1 << 30);
  return everleaf::crash::run_program(argc, argv);
}
