#include "mutate.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <set>

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

namespace everleaf::crash {
namespace {

constexpr std::uint64_t kMost = 48;

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

std::string noticed(Config config, const SiteId& site, bool after_drop, double seconds) {
  config.dropped = site;
  config.after_drop = after_drop;
  if (after_drop) config.nested = 1;
  // Far into the workload rather than deep into its first crash points.
  config.most = std::min(config.most, kMost);
  config.deadline = std::chrono::steady_clock::now() +
                    std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000));
  const Report report = run(config);
  return report.failure ? report.failure->operation + ": " + report.failure->what : "";
}

// The answer of a child process: empty if nothing was noticed.
std::string in_child(const std::vector<Config>& configs, const SiteId& site, double seconds) {
  std::array<int, 2> ends{};
  if (::pipe(ends.data()) != 0) return "no pipe";
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(ends[0]);
    if (std::freopen("/dev/null", "w", stderr) == nullptr) ::_exit(3);
    if (std::freopen("/dev/null", "w", stdout) == nullptr) ::_exit(3);
    ::alarm(static_cast<unsigned>(seconds * 2 * static_cast<double>(configs.size())) + 5);
    // Up to the first drop nothing differs; recovery is the second pass.
    for (const bool after_drop : {true, false}) {
      for (const Config& config : configs) {
        const std::string text = noticed(config, site, after_drop, seconds);
        if (text.empty()) continue;
        if (::write(ends[1], text.data(), text.size()) < 0) ::_exit(3);
        ::_exit(1);
      }
    }
    ::_exit(0);
  }
  ::close(ends[1]);
  std::string text;
  std::array<char, 512> buffer{};
  for (ssize_t n = 0; (n = ::read(ends[0], buffer.data(), buffer.size())) > 0;) {
    text.append(buffer.data(), static_cast<std::size_t>(n));
  }
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return {};
  return text.empty() ? "the recovery crashes or does not end" : text;
}

}  // namespace

std::vector<Mutant> mutate(const std::vector<Config>& configs, double seconds_each) {
  std::set<SiteId> sites;
  for (Config config : configs) {
    config.collect_sites = true;
    // A crash point or two of everything: recovery has sites, too.
    config.deadline = std::chrono::steady_clock::now() +
                      std::chrono::milliseconds(static_cast<std::int64_t>(seconds_each * 1000));
    for (const auto& [site, count] : run(config).sites) sites.insert(site);
  }
  std::vector<Mutant> mutants;
  for (const SiteId& site : sites) {
    Mutant mutant{site, false, in_child(configs, site, seconds_each), justification(site)};
    mutant.caught = !mutant.by.empty();
    std::fprintf(stderr, "%s %s: %s\n", mutant.caught ? "caught" : "NOT CAUGHT",
                 to_string(site).c_str(), mutant.by.substr(0, 120).c_str());
    mutants.push_back(std::move(mutant));
  }
  return mutants;
}

}  // namespace everleaf::crash
