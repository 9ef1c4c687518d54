// everleaf-traffic: what trees would read and write on a persistent medium, by the model of
// model.hpp, while they run workloads of everleaf-bench. README.md of crash/.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include <everleaf/index.hpp>

#include <fmt/format.h>

#include "arena.hpp"
#include "failure.hpp"
#include "head.hpp"
#include "plan.hpp"
#include "recorder.hpp"
#include "traffic/model.hpp"
#include "trees/pool_state.hpp"
#include "workloads/keys.hpp"
#include "workloads/sequence.hpp"

namespace everleaf::crash {
namespace {

using bench::Failure;
using bench::IdRange;
using bench::Phase;
using bench::Sequence;
using Json = nlohmann::ordered_json;

constexpr std::uint64_t kWarmUp = 10;  // the first operations of a phase, one in so many

struct Arguments {
  bench::Arguments bench;
  std::string machine = "optane";
  std::string flush;
  double cache_scale = 1;
  std::uint64_t epoch_ops = 50'000;
};

struct Row {
  std::string index;
  std::string phase;
  std::uint64_t ops = 0;
  TrafficCounts counts;
};

Machine machine_of(const Arguments& arguments) {
  Machine machine = arguments.machine == "pcm" ? pcm_machine() : optane_machine();
  if (arguments.flush == "clwb") machine.flush = FlushBy::clwb;
  if (arguments.flush == "clflushopt") machine.flush = FlushBy::clflushopt;
  if (arguments.flush == "none") machine.flush = FlushBy::none;
  return scaled(std::move(machine), arguments.cache_scale);
}

const char* name_of(FlushBy flush) {
  switch (flush) {
    case FlushBy::clwb:
      return "clwb";
    case FlushBy::clflushopt:
      return "clflushopt";
    default:
      return "none";
  }
}

// A pool in observed memory, and its index.
class Subject {
 public:
  Subject(const bench::Plan& plan, const std::string& spec, const Machine& machine)
      : plan_(plan),
        spec_(spec),
        machine_(machine),
        arena_(capacity(plan), 1, {}),
        recorder_(arena_) {
    Recorder::watch(&recorder_);
    PoolOptions options;
    options.domain = Domain::memory;
    options.emulate = true;
    options.epoch_length = {};  // the clock steps after so many operations
    auto pool = PoolAccess::format(arena_.base(0), arena_.capacity(), arena_.capacity(), options,
                                   &recorder_);
    if (!pool) throw Failure(bench::kExitIo, pool.error().message);
    pool_.emplace(*std::move(pool));
    auto index = pool_->index<std::uint64_t>("traffic", spec);
    if (!index) throw Failure(bench::kExitUsage, index.error().message);
    index_.emplace(*std::move(index));
  }
  Subject(const Subject&) = delete;
  Subject& operator=(const Subject&) = delete;
  ~Subject() {
    recorder_.listen(nullptr);
    index_.reset();
    if (pool_) PoolAccess::state(*pool_).abandon();
    Recorder::watch(nullptr);
  }

  std::vector<Row> run(std::uint64_t epoch_ops) {
    const bench::KeySpace keys(bench::key_order(plan_.distribution), plan_.seed);
    std::vector<Row> rows;
    IdRange live;
    std::vector<Phase> phases = plan_.phases;
    if (phases.front().kind != Phase::Kind::load) {
      phases.insert(phases.begin(), Phase(Phase::Kind::load));
    }
    for (std::size_t i = 0; i < phases.size(); ++i) {
      const Phase& phase = phases[i];
      const Sequence sequence = make_sequence(phase, plan_, keys, live, plan_.seed + i);
      live = live_after(phase, plan_, live);
      if (phase.kind == Phase::Kind::load) {
        load(phase, sequence, epoch_ops);
        model_.emplace(std::span(arena_.base(0), arena_.capacity()), machine_);
        recorder_.listen(&*model_);
        continue;
      }
      rows.push_back(measure(phase, sequence, epoch_ops));
    }
    return rows;
  }

 private:
  // Twice what any tree takes, more where nodes are loaded sparsely, and room for the heap's own.
  static std::size_t capacity(const bench::Plan& plan) {
    const unsigned fill = plan.phases.front().fill == 0 ? 100 : plan.phases.front().fill;
    const std::uint64_t records = plan.records * 100 / fill + plan.ops * plan.phases.size();
    constexpr std::size_t kMiB = std::size_t{1} << 20;
    return (static_cast<std::size_t>(records) * 160 / kMiB + 96) * kMiB;
  }

  void load(const Phase& phase, const Sequence& sequence, std::uint64_t epoch_ops) {
    if (phase.fill == 0) {
      for (std::uint64_t at = 0; at < sequence.keys.size(); ++at) {
        step(phase, sequence, at, epoch_ops);
      }
      return;
    }
    std::vector<Entry<std::uint64_t>> all;
    for (const std::uint64_t key : sequence.keys) all.push_back({key, bench::value_of(key, 0)});
    const Outcome outcome = index_->bulk_load(all, phase.fill / 100.0);
    if (outcome != Outcome::done) {
      throw Failure(bench::kExitIo,
                    fmt::format("{}, {}: answered '{}'", spec_, phase.text, to_string(outcome)));
    }
  }

  Row measure(const Phase& phase, const Sequence& sequence, std::uint64_t epoch_ops) {
    const std::uint64_t warm = sequence.keys.size() / kWarmUp;
    TrafficCounts before;
    for (std::uint64_t at = 0; at < sequence.keys.size(); ++at) {
      if (at == warm) before = model_->counts();
      step(phase, sequence, at, epoch_ops);
    }
    return {spec_, phase.text, sequence.keys.size() - warm, model_->counts() - before};
  }

  void step(const Phase& phase, const Sequence& sequence, std::uint64_t at,
            std::uint64_t epoch_ops) {
    const Phase::Kind kind = sequence.kinds.empty() ? phase.kind : sequence.kinds[at];
    const Outcome outcome = apply(kind, sequence.keys[at]);
    const bool may_miss =
        phase.whole_space && (outcome == Outcome::absent || outcome == Outcome::exists);
    if (outcome != Outcome::done && !may_miss) {
      throw Failure(outcome == Outcome::absent || outcome == Outcome::exists
                        ? bench::kExitWrongAnswer
                        : bench::kExitIo,
                    fmt::format("{}, {}: operation {} answered '{}'", spec_, phase.text, at,
                                to_string(outcome)));
    }
    if (++since_step_ < epoch_ops) return;
    since_step_ = 0;
    (void)pool_->advance_epoch();  // strict trees have none
  }

  Outcome apply(Phase::Kind kind, std::uint64_t key) {
    const std::uint64_t value = bench::value_of(key, kind == Phase::Kind::load ? 0 : 1);
    switch (kind) {
      case Phase::Kind::find:
        return index_->find(key).outcome;
      case Phase::Kind::scan:
        return index_->scan(key, plan_.scan_length, entries_);
      case Phase::Kind::update:
        return index_->update(key, value);
      case Phase::Kind::upsert:
        return index_->upsert(key, value);
      case Phase::Kind::remove:
        return index_->remove(key);
      case Phase::Kind::modify: {
        const Outcome found = index_->find(key).outcome;
        return found == Outcome::done ? index_->update(key, value) : found;
      }
      default:
        return index_->insert(key, value);
    }
  }

  const bench::Plan& plan_;
  std::string spec_;
  const Machine& machine_;
  Arena arena_;
  Recorder recorder_;
  std::optional<Pool> pool_;
  std::optional<Index<std::uint64_t>> index_;
  std::optional<TrafficModel> model_;
  std::vector<Entry<std::uint64_t>> entries_;
  std::uint64_t since_step_ = 0;
};

double mib(std::uint64_t units, std::size_t bytes) {
  return static_cast<double>(units) * static_cast<double>(bytes) / (1 << 20);
}

Json to_json(const Row& row, const bench::Plan& plan, const Arguments& arguments,
             const Machine& machine) {
  const TrafficCounts& is = row.counts;
  const auto per_op = [&](std::uint64_t count) {
    return static_cast<double>(count) / static_cast<double>(row.ops);
  };
  return {{"index", row.index},
          {"workload", row.phase},
          {"records", plan.records},
          {"ops", row.ops},
          {"epoch_ops", arguments.epoch_ops},
          {"machine", arguments.machine},
          {"flush", name_of(machine.flush)},
          {"cache_bytes", machine.caches.back().bytes},
          {"read_mib", mib(is.reads, kLineBytes)},
          {"written_mib", mib(is.writes, kLineBytes)},
          {"media_read_mib", mib(is.media_reads, kLineBytes * kBlockLines)},
          {"media_written_mib", mib(is.media_writes, kLineBytes * kBlockLines)},
          {"flushes_per_op", per_op(is.flushes)},
          {"fences_per_op", per_op(is.fences)},
          {"words_changed_per_op", per_op(is.words_changed)},
          {"bits_changed_per_op", per_op(is.bits_changed)},
          {"picojoules_per_op", picojoules(is, machine) / static_cast<double>(row.ops)},
          {"cycles_per_op", per_op(is.cycles)}};
}

void print(const Json& rows, const Machine& machine) {
  fmt::print(
      "last cache {} KiB, flush by {}; MiB per million operations; bits, pJ and cycles of one\n"
      "{:<44} {:<18} {:>9} {:>9} {:>9} {:>9} {:>8} {:>8} {:>8} {:>9} {:>8}\n",
      machine.caches.back().bytes >> 10, name_of(machine.flush), "index", "workload", "read",
      "written", "media rd", "media wr", "flushes", "fences", "bits", "pJ", "cycles");
  for (const Json& row : rows) {
    const auto number = [&](const char* name) { return row.at(name).get<double>(); };
    const double millions = number("ops") / 1e6;
    fmt::print(
        "{:<44} {:<18} {:>9.2f} {:>9.2f} {:>9.2f} {:>9.2f} {:>8.2f} {:>8.2f} {:>8.1f} "
        "{:>9.0f} {:>8.0f}\n",
        row.at("index").get<std::string>(), row.at("workload").get<std::string>(),
        number("read_mib") / millions, number("written_mib") / millions,
        number("media_read_mib") / millions, number("media_written_mib") / millions,
        number("flushes_per_op"), number("fences_per_op"), number("bits_changed_per_op"),
        number("picojoules_per_op"), number("cycles_per_op"));
  }
}

void declare_options(CLI::App& app, Arguments& a) {
  app.add_option("--index", a.bench.index, "Comma-separated specs of trees; default: all");
  app.add_option("--workload", a.bench.workload,
                 "Phases of everleaf-bench; a load comes first and is not counted, nor is the "
                 "first tenth of each phase, which warms the caches")
      ->capture_default_str();
  app.add_option("--records", a.bench.records, "As everleaf-bench")->expected(1)->type_name("UINT");
  app.add_option("--ops", a.bench.ops, "As everleaf-bench");
  app.add_option("--distribution", a.bench.distribution, "As everleaf-bench")
      ->capture_default_str();
  app.add_option("--trace", a.bench.trace, "As everleaf-bench");
  app.add_option("--scan-length", a.bench.scan_length, "Entries of a scan")->capture_default_str();
  app.add_option("--seed", a.bench.seed, "Of keys and sequences")->capture_default_str();
  app.add_option("--machine", a.machine,
                 "optane: caches of a Xeon Gold 6330, clwb; pcm: those of the wB+-Tree paper's "
                 "table 4, clflush")
      ->check(CLI::IsMember({"optane", "pcm"}))
      ->capture_default_str();
  app.add_option("--flush", a.flush, "What a flush does; default: the machine's")
      ->check(CLI::IsMember({"clwb", "clflushopt", "none"}));
  app.add_option("--cache-scale", a.cache_scale, "All caches this part of their size")
      ->check(CLI::Range(1e-6, 1e3))
      ->capture_default_str();
  app.add_option("--epoch-ops", a.epoch_ops,
                 "Buffered trees: operations of an epoch; 50 ms at a million a second")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--json", a.bench.json, "Write the rows to this file, too");
}

// Before anything else looks at the names: whether a rival was built in does not matter here.
void refuse_rivals(const std::string& names) {
  std::istringstream list(names);
  for (std::string name; std::getline(list, name, ',');) {
    if (std::ranges::find(bench::kRivals, name, &bench::RivalInfo::name) == bench::kRivals.end()) {
      continue;
    }
    throw Failure(bench::kExitUsage, fmt::format("--index: {} is no tree of this library", name));
  }
}

void measure(Arguments& arguments, const bench::Run& described) {
  if (arguments.bench.index.empty()) {
    for (const TreeInfo& info : trees()) {
      arguments.bench.index += (arguments.bench.index.empty() ? "" : ",") + std::string(info.name);
    }
  }
  refuse_rivals(arguments.bench.index);
  const bench::Plan plan = bench::make_plan(arguments.bench);
  const Machine machine = machine_of(arguments);
  Json rows = Json::array();
  for (const bench::IndexChoice& choice : plan.indexes) {
    Subject subject(plan, choice.name, machine);
    for (const Row& row : subject.run(arguments.epoch_ops)) {
      rows.push_back(to_json(row, plan, arguments, machine));
    }
  }
  print(rows, machine);
  if (plan.json.empty()) return;
  std::ofstream file(plan.json, std::ios::trunc);
  Json json = bench::head_json(described);
  json["traffic"] = rows;
  file << json.dump(2) << "\n";
  file.flush();
  if (!file) throw Failure(bench::kExitIo, fmt::format("cannot write to '{}'", plan.json));
}

int run_program(int argc, char** argv) {
  CLI::App app("Models the traffic of trees on persistent memory.", "everleaf-traffic");
  Arguments arguments;
  arguments.bench.workload = "find,update,insert,remove";
  declare_options(app, arguments);
  try {
    app.parse(argc, argv);
    measure(arguments, bench::describe_run("everleaf-traffic", argc, argv));
    return 0;
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : bench::kExitUsage;
  } catch (const Failure& failure) {
    fmt::print(stderr, "everleaf-traffic: {}\n", failure.what());
    return failure.exit_code();
  } catch (const std::exception& error) {
    fmt::print(stderr, "everleaf-traffic: {}\n", error.what());
    return bench::kExitIo;
  }
}

}  // namespace
}  // namespace everleaf::crash

int main(int argc, char** argv) {
  return everleaf::crash::run_program(argc, argv);
}
