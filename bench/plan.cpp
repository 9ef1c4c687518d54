#include "plan.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <concepts>
#include <limits>
#include <memory>
#include <numeric>
#include <system_error>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/duration.hpp"
#include "failure.hpp"
#include "workloads/keys.hpp"
#include "workloads/named.hpp"
#include "workloads/trace.hpp"
#include "workloads/values.hpp"

namespace everleaf::bench {
namespace {

[[noreturn]] void refuse(const std::string& message) {
  throw Failure(kExitUsage, message);
}

// Whole numbers from 1 to `most` alone, as they are printed.
template <std::unsigned_integral Number>
std::optional<Number> parse_whole(std::string_view digits, Number most) {
  if (digits.starts_with('0')) return std::nullopt;
  Number number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc{} || end != digits.data() + digits.size()) return std::nullopt;
  return number > most ? std::nullopt : std::optional(number);
}

std::vector<std::string> split_list(std::string_view text, std::string_view option) {
  std::vector<std::string> parts;
  while (true) {
    const std::size_t comma = text.find(',');
    const std::string_view part = text.substr(0, comma);
    if (part.empty()) refuse(fmt::format("{}: an element of the list is empty", option));
    if (std::ranges::find(parts, part) != parts.end()) {
      refuse(fmt::format("{}: '{}' is listed twice", option, part));
    }
    parts.emplace_back(part);
    if (comma == std::string_view::npos) return parts;
    text.remove_prefix(comma + 1);
  }
}

IndexChoice parse_index(const std::string& name) {
  const auto rival = std::ranges::find(kRivals, name, &RivalInfo::name);
  if (rival != kRivals.end()) {
    if (!rival->built) {
      refuse(fmt::format("--index: {} is not in this program, which was built without {}", name,
                         rival->package));
    }
    return {name, static_cast<Rival>(std::distance(kRivals.begin(), rival))};
  }
  const std::string_view tree = std::string_view(name).substr(0, name.find(':'));
  std::vector<std::string_view> known;
  for (const TreeInfo& info : trees()) {
    if (info.name == tree) return {name, std::nullopt};
    known.push_back(info.name);
  }
  for (const RivalInfo& info : kRivals) known.push_back(info.name);
  refuse(fmt::format("unknown index '{}'; there are: {}", tree, fmt::join(known, ", ")));
}

// The default trees of both durabilities, and the rivals that there are: first who promises least.
std::vector<IndexChoice> default_stores() {
  std::vector<IndexChoice> stores = {{"bdtree", std::nullopt}, {"wbtree", std::nullopt}};
  for (const bool syncs : {false, true}) {
    for (std::size_t i = 0; i < kRivals.size(); ++i) {
      const RivalInfo& info = kRivals[i];
      if (!info.stored || !info.built || info.syncs != syncs) continue;
      stores.push_back({std::string(info.name), static_cast<Rival>(i)});
    }
  }
  return stores;
}

std::vector<IndexChoice> parse_indexes(const std::string& text, bool store) {
  std::vector<IndexChoice> indexes;
  if (text.empty() && store) return default_stores();
  if (text.empty()) {
    for (const TreeInfo& info : trees()) indexes.push_back({std::string(info.name), std::nullopt});
    indexes.push_back({std::string(info_of(Rival::absl_btree).name), Rival::absl_btree});
    return indexes;
  }
  for (const std::string& name : split_list(text, "--index")) {
    indexes.push_back(parse_index(name));
    const auto rival = indexes.back().rival;
    if (store && rival && !info_of(*rival).stored) {
      refuse(fmt::format("--store: {} is no store, but a map in memory; leave it out", name));
    }
  }
  return indexes;
}

// "find=80" of a mix: into its place in `percent`.
void parse_share(std::string_view part, const std::string& mix,
                 std::array<unsigned, Phase::kKinds>& percent) {
  const std::size_t equals = part.find('=');
  const std::string_view name = part.substr(0, equals);
  const auto first = Phase::kNames.begin() + 1;  // not load
  const auto known = std::find(first, Phase::kNames.end(), name);
  if (known == Phase::kNames.end()) {
    refuse(fmt::format("--workload: '{}' in '{}' is no operation of a mix; there are: {}", name,
                       mix, fmt::join(first, Phase::kNames.end(), ", ")));
  }
  const std::string_view digits =
      equals == std::string_view::npos ? std::string_view() : part.substr(equals + 1);
  const std::optional<unsigned> share = parse_whole(digits, 100U);
  if (!share) {
    refuse(
        fmt::format("--workload: '{}' in '{}' gives {} no percentage from 1 to 100, as {}=20 does",
                    part, mix, name, name));
  }
  unsigned& place = percent[static_cast<std::size_t>(std::distance(Phase::kNames.begin(), known))];
  if (place != 0) refuse(fmt::format("--workload: '{}' has {} twice", mix, name));
  place = *share;
}

// "mix:find=80:update=20".
Phase parse_mix(const std::string& text) {
  std::array<unsigned, Phase::kKinds> percent{};
  std::size_t colon = text.find(':');
  if (colon == std::string::npos) {
    refuse("--workload: a mix says how much of what, for example mix:find=80:update=20");
  }
  while (colon != std::string::npos) {
    const std::size_t next = text.find(':', colon + 1);
    parse_share(std::string_view(text).substr(colon + 1, next - colon - 1), text, percent);
    colon = next;
  }
  const unsigned sum = std::accumulate(percent.begin(), percent.end(), 0U);
  if (sum != 100) {
    refuse(fmt::format("--workload: the percentages of '{}' add up to {}, not to 100", text, sum));
  }
  return {text, percent};
}

// The requests of --trace on a space of their keys.
Phase make_trace_phase(const Arguments& arguments) {
  if (arguments.trace.empty()) refuse("--workload: trace needs --trace FILE");
  constexpr std::uint64_t kAll = std::numeric_limits<std::uint64_t>::max();
  const std::uint64_t most = arguments.ops.value_or(kAll);
  const auto trace = std::make_shared<const Trace>(read_trace(arguments.trace, most));
  Phase phase("trace", std::array<unsigned, Phase::kKinds>{});
  for (const Phase::Kind kind : trace->kinds) phase.percent[static_cast<std::size_t>(kind)] = 1;
  phase.distribution = Distribution{};
  phase.distribution->text = trace->name;
  phase.whole_space = true;
  phase.trace = trace;
  return phase;
}

// "batch-load", "batch-insert", "batch-upsert".
std::optional<Phase> parse_batched(std::string_view name, bool store) {
  constexpr std::string_view kBatched = "batch-";
  if (!name.starts_with(kBatched)) return std::nullopt;
  for (const Phase::Kind kind : {Phase::Kind::load, Phase::Kind::insert, Phase::Kind::upsert}) {
    Phase phase(kind);
    if (name.substr(kBatched.size()) != phase.text) continue;
    if (!store) refuse(fmt::format("--workload: {} is for stores; add --store", name));
    phase.text = name;
    phase.batched = true;
    return phase;
  }
  return std::nullopt;
}

// "bulk-load", "bulk-load:70".
std::optional<Phase> parse_bulk_load(std::string_view name, bool store) {
  constexpr std::string_view kBulk = "bulk-load";
  constexpr unsigned kLeastFill = 10;
  if (name.substr(0, name.find(':')) != kBulk) return std::nullopt;
  if (store) refuse("--workload: bulk-load is for indexes; of stores there is batch-load");
  Phase phase(Phase::Kind::load);
  phase.text = name;
  phase.fill = 100;
  if (name.size() == kBulk.size()) return phase;
  phase.fill = parse_whole(name.substr(kBulk.size() + 1), 100U).value_or(0);
  if (phase.fill >= kLeastFill) return phase;
  refuse(fmt::format("--workload: '{}' does not say how full nodes are to be, {} to 100 percent",
                     name, kLeastFill));
}

Phase parse_phase(const std::string& name, bool store) {
  if (auto bulk = parse_bulk_load(name, store)) return *std::move(bulk);
  if (name == "find-many") {
    if (store) refuse("--workload: find-many is for indexes; leave --store out");
    Phase phase(Phase::Kind::find);
    phase.text = name;
    phase.batched = true;
    return phase;
  }
  if (auto batched = parse_batched(name, store)) return *std::move(batched);
  if (name.substr(0, name.find(':')) == "mix") return parse_mix(name);
  if (const NamedWorkload* named = find_workload(name)) return named->phase;
  const auto known = std::ranges::find(Phase::kNames, name);
  if (known == Phase::kNames.end()) {
    std::vector<std::string_view> names(Phase::kNames.begin(), Phase::kNames.end());
    for (const NamedWorkload& workload : named_workloads()) names.push_back(workload.phase.text);
    refuse(fmt::format(
        "unknown workload '{}'; there are: {}, bulk-load, find-many, trace, mixes such as "
        "mix:find=80:update=20, and with --store batch-load, batch-insert, batch-upsert",
        name, fmt::join(names, ", ")));
  }
  return static_cast<Phase::Kind>(std::distance(Phase::kNames.begin(), known));
}

std::vector<Phase> parse_phases(const Arguments& arguments) {
  std::vector<Phase> phases;
  const std::string text =
      arguments.workload.value_or(std::string(arguments.store ? kStoreWorkload : kWorkload));
  for (const std::string& name : split_list(text, "--workload")) {
    phases.push_back(name == "trace" ? make_trace_phase(arguments)
                                     : parse_phase(name, arguments.store));
    if (phases.back().kind == Phase::Kind::load && phases.size() > 1) {
      refuse("--workload: load fills an empty index, so it must come first");
    }
  }
  return phases;
}

std::vector<unsigned> parse_threads(const std::string& text) {
  std::vector<unsigned> counts;
  for (const std::string& part : split_list(text, "--threads")) {
    // The main thread has a slot of the library, too.
    const std::optional<unsigned> count = parse_whole(part, kMaxThreads - 1);
    if (!count) {
      refuse(fmt::format("--threads: '{}' is not a number from 1 to {}", part, kMaxThreads - 1));
    }
    counts.push_back(*count);
  }
  return counts;
}

std::chrono::nanoseconds choose_epoch(const std::string& text) {
  if (text.empty()) return PoolOptions{}.epoch_length;
  const auto length = cli::parse_epoch(text);
  if (!length) refuse(fmt::format("--epoch: '{}' is not {}", text, cli::kEpochForm));
  return *length;
}

std::filesystem::path choose_dir(const std::string& text) {
  if (!text.empty()) return text;
  std::error_code error;
  if (std::filesystem::is_directory("/dev/shm", error)) return "/dev/shm";
  const auto dir = std::filesystem::temp_directory_path(error);
  if (error) throw Failure(kExitIo, "there is no temporary directory; name one with --dir");
  return dir;
}

void check_numbers(const Arguments& arguments) {
  // Ids of loaded and of inserted records must fit in 64 bits with room to spare.
  constexpr std::uint64_t kMost = std::uint64_t{1} << 40;
  const auto check = [](std::string_view name, std::uint64_t value, std::uint64_t most) {
    if (value < 1 || value > most) refuse(fmt::format("{} must be from 1 to {}", name, most));
  };
  for (const std::uint64_t records : arguments.records) check("--records", records, kMost);
  if (arguments.records.size() > 1 && !arguments.recovery) {
    refuse("--records: several numbers are for --recovery");
  }
  if (!arguments.trace.empty() && !arguments.records.empty()) {
    refuse("--records: half of the keys of a trace are loaded; leave it out");
  }
  if (arguments.ops) check("--ops", *arguments.ops, kMost);
  check("--repeat", arguments.repeat, 1000);
  check("--scan-length", arguments.scan_length, 1'000'000);
  if (arguments.batch) {
    check("--batch", *arguments.batch, arguments.store ? kMaxBatchOperations : 1'000'000);
  }
  if (arguments.values) {
    if (!arguments.store) refuse("--values: those of trees are 8 bytes; it is for --store");
    if (*arguments.values < ValueCodec::kLeast || *arguments.values > ValueCodec::kMost) {
      refuse(fmt::format("--values must be from {} to {}", ValueCodec::kLeast, ValueCodec::kMost));
    }
  }
  for (const auto& [name, given] :
       {std::pair{"--recovery", arguments.recovery}, {"--split", arguments.split}}) {
    if (arguments.store && given) refuse(fmt::format("{} is for trees, not for --store", name));
  }
  check("--latency-every", arguments.latency_every, 1'000'000);
}

// Some workloads are defined by how much is loaded.
std::uint64_t default_records(const Plan& plan) {
  const NamedWorkload* first = nullptr;
  for (const Phase& phase : plan.phases) {
    if (phase.trace) return (phase.trace->distinct + 1) / 2;
    const NamedWorkload* named = find_workload(phase.text);
    if (named == nullptr || named->records == 0) continue;
    if (first != nullptr && first->records != named->records) {
      refuse(
          fmt::format("--workload: {} loads {} records and {} loads {}; run them apart, or say "
                      "--records",
                      first->phase.text, first->records, named->phase.text, named->records));
    }
    first = named;
  }
  if (first != nullptr) return first->records;
  return plan.store ? 5'000'000 : 1'000'000;
}

// A phase that takes existing keys needs some; one that draws from a space of keys leaves it open
// which there are.
void check_order(const Plan& plan) {
  std::uint64_t live = plan.records;
  const Phase* open = nullptr;
  for (const Phase& phase : plan.phases) {
    if (open != nullptr && !phase.whole_space) {
      refuse(
          fmt::format("--workload: {} leaves open which records there are, so {} cannot follow "
                      "it; list it earlier",
                      open->text, phase.text));
    }
    if (phase.whole_space) open = &phase;
    if (live == 0 && phase.kind != Phase::Kind::insert) {
      refuse(
          fmt::format("--workload: remove leaves nothing for {}; choose fewer --ops than "
                      "--records, or another order",
                      phase.text));
    }
    if (phase.whole_space) continue;
    const Counts counts = counts_of(plan, phase, live);
    const std::uint64_t removes = count_of(counts, Phase::Kind::remove);
    if (phase.kind == Phase::Kind::mix && removes >= live) {
      refuse(
          fmt::format("--workload: '{}' would remove all of the {} records that it meets; choose "
                      "fewer --ops",
                      phase.text, live));
    }
    live += count_of(counts, Phase::Kind::insert) - removes;
  }
}

// Rivals are left out with more than one thread; something must remain.
void check_entrants(const Plan& plan) {
  for (const IndexChoice& choice : plan.indexes) {
    for (const unsigned threads : plan.threads) {
      if (takes_part(choice, threads)) return;
    }
  }
  refuse("--threads: absl-btree and std-map are not thread-safe, so they run with 1 thread only");
}

// Options that would be without effect.
void check_meaning(const Plan& plan, const Arguments& arguments) {
  const auto is_tree = [](const IndexChoice& choice) { return !choice.rival; };
  const auto has_epochs = [](const IndexChoice& choice) {
    return !choice.rival && is_buffered(choice.name);
  };
  if (!arguments.epoch.empty() && std::ranges::none_of(plan.indexes, has_epochs)) {
    refuse("--epoch: no buffered tree is measured");
  }
  if (plan.room != 0 && std::ranges::none_of(plan.indexes, is_tree)) {
    refuse("--room: no tree is measured, and rivals take no room before");
  }
}

Distribution parse_hotspot(std::string_view text) {
  const std::size_t first = text.find(':') + 1;
  const std::size_t second = text.find(':', first);
  if (second != std::string_view::npos) {
    const auto records = parse_whole(text.substr(first, second - first), 99U);
    const auto ops = parse_whole(text.substr(second + 1), 99U);
    if (records && ops) {
      return {Distribution::Kind::hotspot, 0, std::string(text), *records, *ops};
    }
  }
  refuse(
      fmt::format("--distribution: '{}' is not hotspot:R:O with percentages from 1 to 99", text));
}

// Length of a key.
std::size_t parse_keys(std::string_view text) {
  constexpr std::string_view kSized = "bytes:";
  if (text == "u64") return sizeof(std::uint64_t);
  if (text == "bytes") return KeyCodec<Bytes>::kReadable;
  if (text.starts_with(kSized)) {
    const auto bytes = parse_whole(text.substr(kSized.size()), KeyCodec<Bytes>::kMost);
    if (bytes && *bytes >= KeyCodec<Bytes>::kLeast) return *bytes;
    refuse(fmt::format("--keys: '{}' is not bytes:N with N from {} to {}", text,
                       KeyCodec<Bytes>::kLeast, KeyCodec<Bytes>::kMost));
  }
  refuse(fmt::format("unknown kind of keys '{}'; there are: u64, bytes, bytes:N", text));
}

}  // namespace

bool is_buffered(std::string_view spec) {
  const auto tree = std::ranges::find(trees(), spec.substr(0, spec.find(':')), &TreeInfo::name);
  return tree != trees().end() && tree->durability == Durability::buffered;
}

std::vector<std::uint64_t> parse_sizes(std::string_view text) {
  std::vector<std::uint64_t> sizes;
  while (true) {
    const std::size_t comma = text.find(',');
    const std::string_view part = text.substr(0, comma);
    const auto size = parse_whole(part, std::numeric_limits<std::uint64_t>::max());
    if (!size)
      refuse(fmt::format("--records: '{}' is no whole number of 1 or more, as 1000000 is", part));
    sizes.push_back(*size);
    if (comma == std::string_view::npos) return sizes;
    text.remove_prefix(comma + 1);
  }
}

Distribution parse_distribution(std::string_view text) {
  using Kind = Distribution::Kind;
  const std::string name(text.substr(0, text.find(':')));
  const bool has_exponent = name.size() < text.size();
  for (const auto& [kind, known] : {std::pair{Kind::uniform, "uniform"},
                                    {Kind::ascending, "ascending"},
                                    {Kind::descending, "descending"}}) {
    if (name == known && !has_exponent) return {kind, 0, name};
  }
  for (const auto& [kind, known] : {std::pair{Kind::zipf, "zipf"}, {Kind::latest, "latest"}}) {
    if (name != known || !has_exponent) continue;
    const std::string_view digits = text.substr(name.size() + 1);
    double exponent = 0;
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), exponent);
    if (error == std::errc{} && end == digits.data() + digits.size() && exponent > 0 &&
        exponent <= 10) {
      return {kind, exponent, std::string(text)};
    }
    refuse(fmt::format("--distribution: '{}' in '{}' is not an exponent above 0 and up to 10",
                       digits, text));
  }
  if (name == "hotspot" && has_exponent) return parse_hotspot(text);
  refuse(
      fmt::format("unknown distribution '{}'; there are: uniform, zipf:T, latest:T (T such as "
                  "0.99), ascending, descending, hotspot:R:O (O % of the operations go to R % of "
                  "the records)",
                  text));
}

Counts counts_of(const Plan& plan, const Phase& phase, std::uint64_t live) {
  std::uint64_t ops = plan.ops;
  if (phase.kind == Phase::Kind::load) ops = plan.records;
  if (phase.kind == Phase::Kind::remove) ops = std::min(plan.ops, live);
  Counts counts{};
  std::uint64_t percent = 0;
  std::uint64_t done = 0;
  for (std::size_t kind = 0; kind < counts.size(); ++kind) {
    percent += phase.percent[kind];
    counts[kind] = ops * percent / 100 - done;
    done += counts[kind];
  }
  return counts;
}

PoolOptions pool_options(const Plan& plan, Mode mode) {
  PoolOptions options;
  options.mode = mode;
  options.domain = plan.domain;
  options.emulate = plan.emulate;
  options.epoch_length = plan.epoch;
  options.huge_pages = plan.pages != "small";
  return options;
}

Plan make_plan(const Arguments& arguments) {
  check_numbers(arguments);
  Plan plan;
  plan.store = arguments.store;
  plan.indexes = parse_indexes(arguments.index, plan.store);
  plan.phases = parse_phases(arguments);
  const bool has_trace =
      std::ranges::any_of(plan.phases, [](const Phase& phase) { return phase.trace != nullptr; });
  if (!arguments.trace.empty() && !has_trace) refuse("--trace: --workload does not list trace");
  plan.records = arguments.records.empty() ? default_records(plan) : arguments.records.front();
  plan.sizes = arguments.records.empty() ? std::vector{plan.records} : arguments.records;
  plan.ops = arguments.ops.value_or(plan.records);
  plan.threads = parse_threads(arguments.threads);
  plan.distribution = parse_distribution(arguments.distribution);
  if (!arguments.domain.empty()) {
    plan.domain = parse_domain(arguments.domain);
    if (!plan.domain) {
      refuse(fmt::format("unknown domain '{}'; there are: volatile, process, cache, memory, disk",
                         arguments.domain));
    }
  }
  plan.emulate = arguments.emulate;
  plan.pages = arguments.pages;
  plan.room = arguments.room;
  plan.epoch = choose_epoch(arguments.epoch);
  plan.dir = choose_dir(arguments.dir);
  plan.repeat = static_cast<unsigned>(arguments.repeat);
  plan.json = arguments.json;
  plan.keys_text = arguments.keys.value_or(plan.store ? "bytes:16" : "u64");
  plan.key_bytes = parse_keys(plan.keys_text);
  plan.keys = plan.keys_text == "u64" ? KeyType::u64 : KeyType::bytes;
  if (plan.store) plan.value_bytes = static_cast<std::size_t>(arguments.values.value_or(100));
  plan.scan_length = static_cast<std::size_t>(arguments.scan_length);
  plan.batch = static_cast<std::size_t>(arguments.batch.value_or(plan.store ? kStoreBatch : 1));
  plan.many = static_cast<std::size_t>(arguments.batch.value_or(kManyLookUps));
  plan.latency_every = static_cast<unsigned>(arguments.latency_every);
  plan.seed = arguments.seed;
  check_order(plan);
  check_entrants(plan);
  check_meaning(plan, arguments);
  return plan;
}

}  // namespace everleaf::bench
