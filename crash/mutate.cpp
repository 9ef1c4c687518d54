#include "mutate.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <regex>

#include <fmt/format.h>

#include "interrupt.hpp"
#include "processes.hpp"
#include "threads/concurrent.hpp"
#include "threads/new_words.hpp"
#include "threads/words.hpp"

namespace everleaf::crash {
namespace {

constexpr std::size_t kTries = 6;  // runs that look for a site, of each kind
constexpr double kLookAround = 0.5;
constexpr std::uint64_t kCrashesToLookAt = 30;
constexpr std::uint64_t kDeep = 64;     // images of a crash, at last
constexpr std::size_t kKnownTries = 3;  // of each known program
constexpr double kKnownSeconds = 2;

// On the site's line or the two above it.
std::string justification(const SiteId& site) {
  std::ifstream file(std::string(EVERLEAF_SOURCE_DIR) + "/" + site.file);
  const std::string mark =
      fmt::format("crash: {} stays: ", site.act == Act::flush ? "flush" : "fence");
  std::string line;
  std::string found;
  for (unsigned number = 1; number <= site.line && std::getline(file, line); ++number) {
    const std::size_t at = line.find(mark);
    if (at != std::string::npos && number + 2 >= site.line) found = line.substr(at + mark.size());
  }
  return found;
}

// Programs that come to what random ones seldom do.
bool is_known(const Config& config) {
  return config.ops == used_blocks() || config.ops == refilled_leaves();
}

// --- Which run meets which site, and how often ---
struct Coverage {
  std::map<SiteId, SiteUse> sites;
  Report look;
  double operations = 1;
  double executions = 1;
};

Coverage cover(Config config) {
  config.collect_sites = true;
  config.record_only = true;
  const Report workload = run(config);
  Coverage all;
  all.operations = static_cast<double>(std::max<std::uint64_t>(workload.operations, 1));
  for (const auto& [site, use] : workload.sites) all.sites[site].workload = use.workload;
  // A few images of crashes from the beginning to the end: recovery has sites, too.
  config.record_only = false;
  config.nested = 2;
  config.most = 4;
  config.most_nested = 2;
  config.deadline = Deadline::within(kLookAround);
  config.stride = 1 + workload.crash_points / kCrashesToLookAt;
  // What this one is there for may be a single image of a single crash.
  if (config.ops == refilled_leaves()) {
    config.nested = 1;
    config.most = 16;
    config.stride = 1;
  }
  const Report recoveries = run(config);
  all.executions = static_cast<double>(std::max<std::uint64_t>(recoveries.executions, 1));
  for (const auto& [site, use] : recoveries.sites) {
    all.sites[site].recovery = use.recovery;
    all.sites[site].points = use.points;
  }
  all.look = recoveries;
  return all;
}

// The runs that meet a site most, of different specs, keys and domains.
std::vector<std::size_t> best(const std::vector<Config>& configs,
                              const std::vector<double>& rates) {
  std::vector<std::size_t> picked;
  while (picked.size() < kTries) {
    double highest = 0;
    std::size_t at = 0;
    for (std::size_t i = 0; i < configs.size(); ++i) {
      double score = rates[i];
      for (const std::size_t other : picked) {
        const bool same_keys = configs[other].keys == configs[i].keys;
        if (other == i) score = 0;
        if (same_keys && configs[other].spec == configs[i].spec) score *= 0.3;
        if (same_keys) score *= 0.5;
        if (configs[other].domain == configs[i].domain) score *= 0.5;
      }
      if (score <= highest) continue;
      highest = score;
      at = i;
    }
    if (highest <= 0) break;
    picked.push_back(at);
  }
  return picked;
}

// --- One site ---
enum class Way : std::uint8_t { workload, recovery, threads };
struct Try {
  std::size_t config;
  Way way;
  std::vector<std::uint64_t> points = {};  // whose recoveries meet the site
};

// Runs that meet the site in the workload and such that meet it in recovery by turns; then threads.
std::vector<Try> tries(const std::vector<Config>& configs, const std::vector<Coverage>& coverage,
                       const SiteId& site) {
  std::vector<double> workload;
  std::vector<double> recovery;
  for (const Coverage& one : coverage) {
    const auto use = one.sites.find(site);
    const SiteUse found = use == one.sites.end() ? SiteUse{} : use->second;
    workload.push_back(static_cast<double>(found.workload) / one.operations);
    recovery.push_back(static_cast<double>(found.recovery) / one.executions);
  }
  const auto first = best(configs, workload);
  const auto second = best(configs, recovery);
  std::vector<Try> all;
  for (std::size_t i = 0; i < kTries; ++i) {
    if (i < first.size()) all.push_back({first[i], Way::workload});
    if (i >= second.size()) continue;
    all.push_back({second[i], Way::recovery, coverage[second[i]].sites.at(site).points});
  }
  for (std::size_t i = 0; i < std::min<std::size_t>(first.size(), 2); ++i) {
    if (!configs[first[i]].store) all.push_back({first[i], Way::threads});
  }
  return all;
}

// First the smallest one, however little time there is: two threads begin a session side by side.
// Then a split or a merge in one thread, a change of what it leaves in the other: for fences that
// come before a lock is given back.
constexpr std::array kMeetings{"2,4/i5=1/i6=2", "2,4,6,8,10,12,14/i5=1/r2,f2",
                               "2,4,6,8,10,12/i5=1/u2=7,f2", "2,4,6,8,10,12,14/r4,r6,r8/i3=1,f3"};

std::string by_threads(const Config& like, const SiteId& site, const Deadline& until) {
  for (std::uint64_t seed = 0; seed == 0 || !is_late(until); ++seed) {
    ConcurrentConfig config;
    config.spec = like.spec;
    config.keys = like.keys;
    config.domain = like.domain;
    config.seed = seed;
    config.program = seed < kMeetings.size() ? *parse_program(kMeetings[seed])
                                             : make_program(seed, 2, is_buffered(like.spec));
    config.preemptions = 1;
    config.random_runs = 10;
    config.dropped = site;
    config.deadline = seed == 0 ? Deadline::within(1) : Deadline::within(1, until);
    const ConcurrentReport report = run_concurrent(config);
    if (!report.failure.empty()) return to_string(config.program) + ": " + report.failure;
  }
  return {};
}

std::string noticed(Config config, const Try& one, const SiteId& site, std::uint64_t most,
                    double seconds) {
  const Way way = one.way;
  if (way == Way::threads) return by_threads(config, site, Deadline::within(seconds));
  config.dropped = site;
  if (most < kDeep) config.only_points = one.points;
  config.most = std::min(config.most, most);
  config.deadline = Deadline::within(seconds);
  config.after_drop = way == Way::workload;  // up to the first drop nothing differs
  config.nested = config.after_drop ? 1 : 2;
  config.skip_creation = !config.after_drop;
  config.crash_on_every = 2;
  const Report report = run(config);
  return report.failure ? report.failure->operation + ": " + report.failure->what : "";
}

// A look at all that the runs come to, a few images of each crash; then deeper, as far as the time
// goes.
std::string noticed(const std::vector<Config>& configs, const std::vector<Try>& all,
                    const SiteId& site, double seconds) {
  for (const auto& [most, share] : {std::pair{kDeep / 16, 0.3}, {kDeep / 4, 0.3}, {kDeep, 0.4}}) {
    for (const Try& one : all) {
      const Config& config = configs[one.config];
      const std::string text =
          noticed(config, one, site, most, seconds * share / static_cast<double>(all.size()));
      if (text.empty()) continue;
      return fmt::format("{} {} {}: {}", config.spec, everleaf::to_string(config.keys),
                         everleaf::to_string(config.domain), text);
    }
  }
  return {};
}

std::string by_known_programs(const std::vector<Config>& configs,
                              const std::vector<Coverage>& coverage, const SiteId& site) {
  std::array<std::size_t, 2> tried{};  // a program for each kind of keys
  for (std::size_t i = 0; i < configs.size(); ++i) {
    const auto use = coverage[i].sites.find(site);
    if (use == coverage[i].sites.end() || use->second.workload == 0) continue;
    if (!is_known(configs[i])) continue;
    if (++tried[configs[i].keys == KeyType::bytes ? 1 : 0] > kKnownTries) continue;
    const std::string text = noticed(configs[i], {i, Way::workload}, site, kDeep, kKnownSeconds);
    if (!text.empty()) return fmt::format("{}, a known program: {}", configs[i].spec, text);
  }
  return {};
}

// --- Programs of src/pmwcas, and the pool of src/words ---
constexpr std::array kWordDomains{Domain::memory, Domain::disk};

std::string by_new_words(const SiteId& site) {
  for (const Domain domain : kWordDomains) {
    const NewWordsReport report = run_new_words({.domain = domain, .dropped = site});
    if (!report.failure.empty())
      return fmt::format("a new pool of words, {}: {}", everleaf::to_string(domain),
                         report.failure);
  }
  return {};
}

std::string by_words(const SiteId& site, double seconds) {
  const auto until = Deadline::within(seconds);
  for (WordsProgram& program : lone_programs()) {
    WordsConfig config = all_crashes_of(std::move(program), Domain::memory);
    config.dropped = site;
    const WordsReport report = run_words(config);
    if (!report.failure.empty()) return replay_line(config, report) + ": " + report.failure;
  }
  for (const WordsStory& story : word_stories()) {
    WordsConfig config = config_of(story, Domain::memory);
    config.dropped = site;
    const WordsReport report = run_words(config);
    if (!report.failure.empty()) return replay_line(config, report) + ": " + report.failure;
  }
  for (std::uint64_t seed = 0; seed == 0 || !is_late(until); ++seed) {
    for (const Domain domain : kWordDomains) {
      for (unsigned threads = 1; threads <= 3; ++threads) {
        WordsConfig config = word_search(make_words(seed, threads), seed, domain);
        config.dropped = site;
        config.deadline = Deadline::within(1, until);
        const WordsReport report = run_words(config);
        if (!report.failure.empty()) return replay_line(config, report) + ": " + report.failure;
      }
    }
  }
  return {};
}

using Noticed = std::function<std::string(const SiteId&)>;

std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

// Each in a process of its own: what is broken may end it.
std::vector<Mutant> hunt(std::vector<Mutant> mutants, const Noticed& noticed_by,
                         double seconds_each, unsigned jobs) {
  for (Mutant& mutant : mutants) mutant.justified = justification(mutant.site);
  const auto look = [&](std::size_t i) {
    // Of what a broken pool makes the library say.
    [[maybe_unused]] const std::FILE* const quiet = std::freopen("/dev/null", "w", stderr);
    return noticed_by(mutants[i].site);
  };
  const auto ended = [&](std::size_t i, const Ended& end) {
    if (interrupted()) return true;
    Mutant& mutant = mutants[i];
    mutant.judged = true;
    mutant.by = end.answer;
    if (!end.died.empty()) {
      mutant.by = end.printed.empty() ? end.died : first_line(end.printed) + " (" + end.died + ")";
    }
    mutant.caught = !mutant.by.empty() && !end.out_of_time;  // that proves nothing
    std::fprintf(stderr, "%s %s: %s\n", mutant.caught ? "caught" : "NOT CAUGHT",
                 to_string(mutant.site).c_str(), mutant.by.substr(0, 160).c_str());
    return true;
  };
  in_processes(
      {mutants.size(), jobs, seconds_each * 2 + 5 + 2 * kKnownTries * kKnownSeconds, look, ended});
  return mutants;
}

}  // namespace

std::vector<std::string> not_met(const std::vector<Mutant>& mutants, std::string_view part) {
  namespace fs = std::filesystem;
  // A call, not a declaration, nor one that hands its caller's site on.
  const std::regex call(R"(\b(flush|fence)\()");
  const std::regex other(
      R"(^\s*//|\bsite\)|\bsites\(\)|Site site|\bflush\(\)|\bvoid flush\(|\bbool fence\(|Site::current)");
  const auto met = [&mutants](const std::string& file, unsigned first, unsigned last) {
    return std::ranges::any_of(mutants, [&](const Mutant& one) {
      return one.site.file == file && one.site.line >= first && one.site.line <= last;
    });
  };
  std::vector<std::string> found;
  const fs::path root(EVERLEAF_SOURCE_DIR);
  for (const auto& entry : fs::recursive_directory_iterator(root / "src")) {
    const std::string file = fs::relative(entry.path(), root).string();
    // The medium is what the others call.
    if (!entry.is_regular_file() || file.find("src/pmem/medium") == 0) continue;
    std::ifstream source(entry.path());
    std::string line;
    std::vector<std::string> lines;
    for (unsigned number = 1; std::getline(source, line); ++number) {
      if (!std::regex_search(line, call) || std::regex_search(line, other)) continue;
      const std::string name = fmt::format("{}:{}", file, number);
      // A call of several lines has its last one's number.
      if (name.find(part) != std::string::npos && !met(file, number, number + 2)) {
        lines.push_back(name);
      }
    }
    if (!lines.empty() && !met(file, 0, ~0U)) lines = {file};
    found.insert(found.end(), lines.begin(), lines.end());
  }
  std::ranges::sort(found);
  return found;
}

std::vector<Mutant> mutate_words(std::string_view part, double seconds_each, unsigned jobs) {
  constexpr std::string_view kPool = "src/words/";
  std::map<SiteId, SiteUse> sites;
  for (const Domain domain : kWordDomains)
    sites.merge(run_new_words({.domain = domain, .collect_sites = true}).sites);
  const auto collect = [&sites](WordsConfig config) {
    config.collect_sites = true;
    config.deadline = Deadline::within(1);
    sites.merge(run_words(config).sites);
  };
  for (WordsProgram& program : lone_programs()) {
    collect(all_crashes_of(std::move(program), Domain::memory));
  }
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    for (unsigned threads = 1; threads <= 3; ++threads) {
      collect(word_search(make_words(seed, threads), seed, Domain::memory));
    }
  }
  std::vector<Mutant> mutants;
  for (const auto& [site, use] : sites) {
    const std::string name = to_string(site);
    const bool its = name.starts_with("src/pmwcas/") || name.starts_with(kPool);
    if (its && name.find(part) != std::string::npos) mutants.emplace_back().site = site;
  }
  return hunt(
      std::move(mutants),
      [seconds_each, kPool](const SiteId& site) {
        return site.file.starts_with(kPool) ? by_new_words(site) : by_words(site, seconds_each);
      },
      seconds_each, jobs);
}

Mutation mutate(const std::vector<Config>& configs, std::string_view part, double seconds_each,
                unsigned jobs) {
  std::vector<Coverage> coverage;
  std::map<SiteId, Mutant> sites;
  for (std::size_t i = 0; i < configs.size() && !interrupted(); ++i) {
    coverage.push_back(cover(configs[i]));  // trees have sites of their own for a disk
    for (const auto& [site, use] : coverage.back().sites) {
      if (to_string(site).find(part) == std::string::npos) continue;
      sites[site].site = site;
      sites[site].met_by.push_back(i);
    }
  }
  std::vector<Mutant> mutants;
  for (auto& [site, mutant] : sites) mutants.push_back(std::move(mutant));
  const auto by_trees = [&](const SiteId& site) {
    const std::string by = noticed(configs, tries(configs, coverage, site), site, seconds_each);
    return by.empty() ? by_known_programs(configs, coverage, site) : by;
  };
  Mutation done{hunt(std::move(mutants), by_trees, seconds_each, jobs), {}};
  for (Coverage& one : coverage) done.looks.push_back(std::move(one.look));
  return done;
}

}  // namespace everleaf::crash
