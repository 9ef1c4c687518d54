#include "plan.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <system_error>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/duration.hpp"
#include "failure.hpp"

namespace everleaf::bench {
namespace {

[[noreturn]] void refuse(const std::string& message) {
  throw Failure(kExitUsage, message);
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
  const auto rival = std::ranges::find(kRivalNames, name);
  if (rival != kRivalNames.end()) {
    return {name, static_cast<Rival>(std::distance(kRivalNames.begin(), rival))};
  }
  const std::string_view tree = std::string_view(name).substr(0, name.find(':'));
  std::vector<std::string_view> known;
  for (const TreeInfo& info : trees()) {
    if (info.name == tree) return {name, std::nullopt};
    known.push_back(info.name);
  }
  known.insert(known.end(), kRivalNames.begin(), kRivalNames.end());
  refuse(fmt::format("unknown index '{}'; there are: {}", tree, fmt::join(known, ", ")));
}

std::vector<IndexChoice> parse_indexes(const std::string& text) {
  std::vector<IndexChoice> indexes;
  if (text.empty()) {
    for (const TreeInfo& info : trees()) indexes.push_back({std::string(info.name), std::nullopt});
    indexes.push_back({std::string(kRivalNames[0]), Rival::absl_btree});
    return indexes;
  }
  for (const std::string& name : split_list(text, "--index")) indexes.push_back(parse_index(name));
  return indexes;
}

std::vector<Phase> parse_phases(const std::string& text) {
  std::vector<Phase> phases;
  for (const std::string& name : split_list(text, "--workload")) {
    const auto known = std::ranges::find(kPhaseNames, name);
    if (known == kPhaseNames.end()) {
      refuse(
          fmt::format("unknown workload '{}'; there are: {}", name, fmt::join(kPhaseNames, ", ")));
    }
    phases.push_back(static_cast<Phase>(std::distance(kPhaseNames.begin(), known)));
    if (phases.back() == Phase::load && phases.size() > 1) {
      refuse("--workload: load fills an empty index, so it must come first");
    }
  }
  return phases;
}

std::vector<unsigned> parse_threads(const std::string& text) {
  std::vector<unsigned> counts;
  for (const std::string& part : split_list(text, "--threads")) {
    unsigned count = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), count);
    // The main thread has a slot of the library, too.
    if (error != std::errc{} || end != part.data() + part.size() || count < 1 ||
        count >= kMaxThreads) {
      refuse(fmt::format("--threads: '{}' is not a number from 1 to {}", part, kMaxThreads - 1));
    }
    counts.push_back(count);
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
  check("--records", arguments.records, kMost);
  if (arguments.ops != 0) check("--ops", arguments.ops, kMost);
  check("--repeat", arguments.repeat, 1000);
  check("--scan-length", arguments.scan_length, 1'000'000);
}

// A phase that takes existing keys needs some.
void check_order(const Plan& plan) {
  std::uint64_t live = plan.records;
  for (const Phase phase : plan.phases) {
    if (live == 0 && phase != Phase::insert) {
      refuse(
          fmt::format("--workload: remove leaves nothing for {}; choose fewer --ops than "
                      "--records, or another order",
                      to_string(phase)));
    }
    if (phase == Phase::insert) live += plan.ops;
    if (phase == Phase::remove) live -= ops_of(plan, phase, live);
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

}  // namespace

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
  refuse(
      fmt::format("unknown distribution '{}'; there are: uniform, zipf:T, latest:T, ascending, "
                  "descending (T such as 0.99)",
                  text));
}

std::uint64_t ops_of(const Plan& plan, Phase phase, std::uint64_t live) {
  if (phase == Phase::load) return plan.records;
  return phase == Phase::remove ? std::min(plan.ops, live) : plan.ops;
}

Plan make_plan(const Arguments& arguments) {
  check_numbers(arguments);
  Plan plan;
  plan.indexes = parse_indexes(arguments.index);
  plan.phases = parse_phases(arguments.workload);
  plan.records = arguments.records;
  plan.ops = arguments.ops == 0 ? arguments.records : arguments.ops;
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
  plan.epoch = choose_epoch(arguments.epoch);
  plan.dir = choose_dir(arguments.dir);
  plan.repeat = static_cast<unsigned>(arguments.repeat);
  plan.json = arguments.json;
  if (arguments.keys != "u64" && arguments.keys != "bytes") {
    refuse(fmt::format("unknown kind of keys '{}'; there are: u64, bytes", arguments.keys));
  }
  plan.keys = arguments.keys == "u64" ? KeyType::u64 : KeyType::bytes;
  plan.scan_length = static_cast<std::size_t>(arguments.scan_length);
  plan.seed = arguments.seed;
  check_order(plan);
  check_entrants(plan);
  return plan;
}

}  // namespace everleaf::bench
