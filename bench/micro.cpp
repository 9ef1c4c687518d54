// everleaf-micro: what two papers measure without a tree. Figure 4 of the wB+-Tree paper (2.4): 8
// bytes written to each line of an array ten times as large as the last-level cache, but at most 1
// GiB, in order or along a list in random order; alone, with clflush, and with mfence every i
// lines. Figure 1 of the PB+tree paper (II-C): nodes of such an array read from their first key to
// their last, or from the last. And what a fence costs (docs/decisions.md, 99): who waits for the
// lines that were flushed, the fence, loads behind it, or a locked instruction.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <emmintrin.h>
#include <fmt/format.h>
#include <unistd.h>

#include "pmem/medium.hpp"

namespace {

constexpr std::array kEvery{1U, 2U, 4U, 8U, 16U};
constexpr std::array<std::size_t, 4> kNodes{256, 512, 1024, 2048};
constexpr unsigned kNever = 0;

struct alignas(64) Line {
  std::uint64_t value;
  std::uint64_t next;  // of the list in random order
};

// Of this thread: what others take of the processor is not counted.
double seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

// `next` of a line's number: the line after it. ns a line.
template <bool flushes, class Next>
double write_lines(std::vector<Line>& lines, unsigned fence_every, Next next) {
  const double begun = seconds();
  std::uint64_t at = 0;
  unsigned since = 0;
  for (std::size_t n = 0; n < lines.size(); ++n) {
    Line& line = lines[at];
    at = next(at);
    line.value = n;
    if constexpr (flushes) {
      _mm_clflush(&line);
      if (++since == fence_every) {
        _mm_mfence();
        since = 0;
      }
    }
  }
  _mm_mfence();
  return (seconds() - begun) * 1e9 / static_cast<double>(lines.size());
}

template <class Next>
nlohmann::json writes(std::vector<Line>& lines, Next next) {
  nlohmann::json curves{{"write", write_lines<false>(lines, kNever, next)},
                        {"flush", write_lines<true>(lines, kNever, next)}};
  for (const unsigned every : kEvery) {
    curves["fence"][std::to_string(every)] = write_lines<true>(lines, every, next);
  }
  return curves;
}

// For a key that no node has: a search that the compiler can neither leave out nor turn around.
// ns a node.
double scan_nodes(const std::vector<Line>& lines, std::size_t node_bytes, bool ascending,
                  const std::vector<std::uint32_t>& order) {
  const auto* const keys = reinterpret_cast<const std::uint64_t*>(lines.data());
  const std::size_t each = node_bytes / sizeof(std::uint64_t);
  constexpr std::uint64_t kNowhere = ~std::uint64_t{0};
  const double begun = seconds();
  for (const std::uint32_t node : order) {
    const std::uint64_t* const first = keys + node * each;
    if (ascending) {
      for (std::size_t i = 0; i < each; ++i) {
        if (first[i] == kNowhere) return 0;
      }
    } else {
      for (std::size_t i = each; i-- > 0;) {
        if (first[i] == kNowhere) return 0;
      }
    }
  }
  return (seconds() - begun) * 1e9 / static_cast<double>(order.size());
}

// One direction after the other, which finds what the first one left in the caches.
nlohmann::json scans(const std::vector<Line>& lines, std::mt19937_64& random, bool ascending) {
  nlohmann::json all;
  for (const std::size_t node : kNodes) {
    std::vector<std::uint32_t> order(lines.size() * sizeof(Line) / node);
    std::iota(order.begin(), order.end(), 0U);
    std::ranges::shuffle(order, random);
    auto& one = all[std::to_string(node)];
    for (const bool up : {ascending, !ascending}) {
      one[up ? "ascending" : "descending"] = scan_nodes(lines, node, up, order);
    }
  }
  return all;
}

// Behind the fence of each round.
struct Behind {
  bool loads = false;          // a chain of them, each with the address from the one before
  bool locks = false;          // a locked instruction on a line that nobody flushes
  bool locks_flushed = false;  // and one, behind the loads, on a line that was
};

// ns a round: `flushed` of 64 lines that the nearest cache holds are stored to, and flushed if
// `fences`; a fence; then what is behind it.
double fence_rounds(std::vector<Line>& lines, unsigned flushed, bool fences, Behind behind) {
  constexpr unsigned kRounds = 100'000;
  constexpr std::size_t kStored = 64;
  constexpr std::size_t kLoaded = 16;
  constexpr unsigned kLoads = 128;
  auto* const base = reinterpret_cast<std::byte*>(lines.data());
  everleaf::pmem::Medium medium(base, lines.size() * sizeof(Line), everleaf::Domain::memory,
                                nullptr);
  Line* const loaded = lines.data() + kStored;
  for (std::size_t i = 0; i < kLoaded; ++i) loaded[i].next = (i + 5) % kLoaded;
  std::uint64_t& locked = lines[kStored + kLoaded].value;
  std::uint64_t at = 0;
  std::size_t line = 0;
  const double begun = seconds();
  for (unsigned n = 0; n < kRounds; ++n) {
    const std::size_t first = line;
    for (unsigned i = 0; i < flushed; ++i, line = (line + 1) % kStored) {
      medium.store(&lines[line].value, n, 0);
      if (fences) medium.flush(&lines[line].value, sizeof(std::uint64_t));
    }
    if (fences) (void)medium.fence();
    for (unsigned i = 0; behind.loads && i < kLoads; ++i) {
      at = std::atomic_ref(loaded[at].next).load(std::memory_order_relaxed);
    }
    // Not before the loads are done.
    if (behind.locks) std::atomic_ref(locked).fetch_add(at + 1);
    if (behind.locks_flushed) std::atomic_ref(lines[first].value).fetch_add(at + 1);
  }
  return (seconds() - begun) * 1e9 / kRounds;
}

nlohmann::json fences(std::vector<Line>& lines) {
  nlohmann::json all;
  const auto pair = [&](unsigned flushed, Behind behind) {
    return nlohmann::json{{"with", fence_rounds(lines, flushed, true, behind)},
                          {"without", fence_rounds(lines, flushed, false, behind)}};
  };
  for (const unsigned flushed : {1U, 2U, 4U, 8U}) {
    all["locked"][std::to_string(flushed)] = pair(flushed, {.locks = true});
  }
  all["loads"] = pair(1, {.loads = true});
  all["loads_locked"] = pair(1, {.loads = true, .locks = true});
  all["loads_locked_flushed"] = pair(1, {.loads = true, .locks_flushed = true});
  return all;
}

constexpr std::size_t kKiB = 1024;

// What the first processor has; sysconf() may count those of a whole socket.
std::size_t last_cache_bytes() {
  constexpr std::size_t kUnknown = 32 * kKiB;
  std::ifstream file("/sys/devices/system/cpu/cpu0/cache/index3/size");
  std::size_t size = 0;  // "32768K"
  if (!(file >> size) || file.peek() != 'K') size = kUnknown;
  return size * kKiB;
}

// Ten times the cache; of a huge one less, or a round would take minutes and gigabytes.
std::size_t default_lines(std::size_t cache_bytes) {
  constexpr std::size_t kMostBytes = kKiB * kKiB * kKiB;
  return std::min(10 * cache_bytes, kMostBytes) / sizeof(Line);
}

void show_progress(unsigned round, unsigned rounds, const char* what) {
  if (::isatty(STDERR_FILENO) != 1) return;
  fmt::print(stderr, "\r\x1b[K  round {}/{}: {}", round + 1, rounds, what);
  std::fflush(stderr);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Writes with clflush and mfence, scans of nodes in both directions, and fences."};
  const std::size_t cache_bytes = last_cache_bytes();
  std::size_t count = default_lines(cache_bytes);
  unsigned repeat = 3;
  std::uint64_t seed = 1;
  std::string json;
  app.add_option("--lines", count,
                 "Lines of 64 bytes (default: ten times the last-level cache, at most 1 GiB)")
      ->check(CLI::Range(std::size_t{1000}, std::size_t{1} << 30));
  app.add_option("--repeat", repeat, "Rounds")->check(CLI::Range(1, 100));
  app.add_option("--seed", seed, "Of the random order");
  app.add_option("--json", json, "Results for programs; default: standard output");
  CLI11_PARSE(app, argc, argv);

  std::mt19937_64 random(seed);
  std::vector<Line> lines(count / 32 * 32);
  std::vector<std::uint32_t> order(lines.size());
  std::iota(order.begin(), order.end(), 0U);
  std::ranges::shuffle(order, random);
  for (std::size_t i = 0; i < order.size(); ++i) {
    lines[order[i]].next = order[(i + 1) % order.size()];
  }
  nlohmann::json out{{"lines", lines.size()},
                     {"bytes", lines.size() * sizeof(Line)},
                     {"cache_bytes", cache_bytes},
                     {"rounds", nlohmann::json::array()}};
  for (unsigned round = 0; round < repeat; ++round) {
    nlohmann::json one;
    show_progress(round, repeat, "writes in order");
    one["sequential"] = writes(lines, [](std::uint64_t at) { return at + 1; });
    show_progress(round, repeat, "writes in random order");
    one["random"] = writes(lines, [&lines](std::uint64_t at) { return lines[at].next; });
    show_progress(round, repeat, "scans of nodes");
    one["scan"] = scans(lines, random, round % 2 == 0);
    show_progress(round, repeat, "fences");
    one["fence"] = fences(lines);
    out["rounds"].push_back(std::move(one));
  }
  if (::isatty(STDERR_FILENO) == 1) fmt::print(stderr, "\r\x1b[K");
  if (json.empty()) {
    fmt::print("{}\n", out.dump(2));
    return 0;
  }
  std::ofstream file(json);
  file << out.dump(2) << '\n';
  if (!file.flush()) {
    fmt::print(stderr, "everleaf-micro: cannot write {}\n", json);
    return 3;
  }
  return 0;
}
