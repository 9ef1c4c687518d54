#include "meter.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>
#include <stdexcept>
#include <string>

#include <fmt/format.h>

#include "recorder.hpp"
#include "trees/pool_state.hpp"
#include "workload.hpp"

namespace everleaf::crash {
namespace {
constexpr std::size_t kLine = 64;
constexpr double kReadPicojoules = 2;
constexpr double kWritePicojoules = 16;
}  // namespace

double Costs::picojoules() const {
  return lines_read * kLine * 8 * kReadPicojoules + bits_flipped * kWritePicojoules;
}

Meter::Meter(std::span<const std::byte> arena)
    : arena_(arena), medium_(arena.begin(), arena.end()) {}

void Meter::read(std::size_t at, std::size_t bytes) {
  for (std::size_t line = at / kLine; line <= (at + bytes - 1) / kLine; ++line) {
    lines_.insert(line);
  }
}

void Meter::stored(std::size_t at, std::size_t bytes) {
  costs_.words += static_cast<double>((at + bytes - 1) / 8 - at / 8 + 1);
}

void Meter::flushed(std::size_t at, std::size_t bytes) {
  for (std::size_t line = at / kLine; line <= (at + bytes - 1) / kLine; ++line) {
    costs_.flushes += 1;
    for (std::size_t i = line * kLine; i < (line + 1) * kLine; ++i) {
      const auto changed = std::to_integer<unsigned>(arena_[i] ^ medium_[i]);
      costs_.bits_flipped += std::popcount(changed);
      medium_[i] = arena_[i];
    }
  }
}

Costs Meter::take() {
  Costs costs = costs_;
  costs.lines_read = static_cast<double>(lines_.size());
  costs_ = {};
  lines_.clear();
  return costs;
}

// --- Table 3 -------------------------------------------------------------------------------------

namespace {

using Formula = Count::Formula;

// Rows of Table 3 for a leaf with m entries.
struct Row {
  const char* spec;
  const char* name;
  unsigned entries;  // about 70 % full, as in the paper
  Formula (*insert)(double m);
  Formula (*remove)(double m);
};

constexpr Row kRows[] = {{"wbtree:structure=slot-only:node=128", "slot-only nodes", 5,
                          [](double) {
                            return Formula{3, 2, 2};
                          },
                          [](double) {
                            return Formula{1, 1, 1};
                          }},
                         {"wbtree:structure=slot-bitmap:node=512", "slot+bitmap nodes", 21,
                          [](double m) {
                            return Formula{0.125 * m + 4.25, m / 64 + 3 + 1.0 / 32, 3};
                          },
                          [](double m) {
                            return Formula{0.125 * m + 2, m / 64 + 2, 3};
                          }},
                         {"wbtree:structure=bitmap-leaf:node=512", "bitmap-only leaves", 21,
                          [](double) {
                            return Formula{3, 2, 2};
                          },
                          [](double) {
                            return Formula{1, 1, 1};
                          }}};

struct Measured {
  Costs insert;
  Costs remove;
  Costs find;
  Costs split;
};

void add(Costs& sum, const Costs& one, double times) {
  sum.words += one.words / times;
  sum.flushes += one.flushes / times;
  sum.fences += one.fences / times;
  sum.bits_flipped += one.bits_flipped / times;
  sum.lines_read += one.lines_read / times;
}

// Keys 10, 20, ..: one leaf. An insertion and a removal at every place between them.
std::optional<Measured> measure(const Row& row) {
  constexpr std::size_t kCapacity = std::size_t{1} << 20;
  Arena arena(kCapacity, 1, {});
  Recorder recorder(arena);
  Recorder::watch(&recorder);
  PoolOptions options;
  options.domain = Domain::memory;
  options.emulate = true;
  auto pool = PoolAccess::format(arena.base(0), kCapacity, kCapacity, options, &recorder);
  if (!pool) return std::nullopt;
  auto index = pool->index<std::uint64_t>("index", row.spec);
  if (!index) return std::nullopt;
  Random random(7);
  std::vector<std::uint64_t> keys;
  for (std::uint64_t i = 1; i <= row.entries; ++i) keys.push_back(i * 10);
  for (std::size_t i = keys.size(); i > 1; --i) std::swap(keys[i - 1], keys[random.below(i)]);
  for (const std::uint64_t key : keys) (void)index->insert(key, random.word());
  Meter meter({arena.base(0), kCapacity});
  recorder.listen(&meter);
  Measured all;
  const double places = row.entries + 1;
  for (std::uint64_t i = 0; i <= row.entries; ++i) {
    (void)meter.take();
    if (index->insert(i * 10 + 5, random.word()) != Outcome::done) return std::nullopt;
    add(all.insert, meter.take(), places);
    if (!index->find(i * 10 + 5)) return std::nullopt;
    add(all.find, meter.take(), places);
    if (index->remove(i * 10 + 5) != Outcome::done) return std::nullopt;
    add(all.remove, meter.take(), places);
  }
  // Until the leaf splits: the insertion that does it.
  for (std::uint64_t key = 1; index->stats().leaf_nodes == 1; key += 10) {
    (void)meter.take();
    if (index->insert(key, random.word()) != Outcome::done) return std::nullopt;
    all.split = meter.take();
  }
  recorder.listen(nullptr);
  PoolAccess::state(*pool).abandon();
  Recorder::watch(nullptr);
  return all;
}

void print(const Count& count) {
  const Costs& costs = count.measured;
  const auto paper = [&](double Formula::*figure, int digits) {
    return count.paper ? fmt::format("{:.{}f}", (*count.paper).*figure, digits) : "";
  };
  fmt::print("  {:<22} {:>7.2f} {:>7} {:>7.2f} {:>7} {:>5.2f} {:>5} {:>8.1f} {:>8.1f} {:>9.0f}\n",
             count.operation, costs.words, paper(&Formula::words, 2), costs.flushes,
             paper(&Formula::flushes, 2), costs.fences, paper(&Formula::fences, 0),
             costs.bits_flipped, costs.lines_read, costs.picojoules());
}

}  // namespace

std::vector<Count> count_table3() {
  std::vector<Count> counts;
  for (const Row& row : kRows) {
    const auto measured = measure(row);
    if (!measured) throw std::runtime_error(fmt::format("{}: cannot be measured", row.spec));
    const unsigned m = row.entries;
    const auto add_count = [&](const char* operation, unsigned entries, const Costs& costs,
                               const std::optional<Formula>& paper) {
      counts.push_back({row.spec, row.name, entries, operation, costs, paper});
    };
    add_count("insert", m, measured->insert, row.insert(m));
    add_count("remove", m + 1, measured->remove, row.remove(m + 1.0));
    add_count("find", m + 1, measured->find, std::nullopt);
    add_count("insert that splits", 0, measured->split, std::nullopt);
  }
  return counts;
}

int print_counts(const std::vector<Count>& counts) {
  int differs = 0;
  fmt::print(
      "wB+-Tree paper, Table 3: 8-byte keys, one operation in a leaf with m entries\n"
      "  {:<22} {:>7} {:>7} {:>7} {:>7} {:>5} {:>5} {:>8} {:>8} {:>9}\n",
      "", "N_w", "paper", "N_clf", "paper", "N_mf", "paper", "bits", "lines", "pJ");
  const char* nodes = nullptr;
  for (const Count& count : counts) {
    if (nodes != count.nodes) {
      fmt::print("{}, m = {} ({})\n", count.nodes, count.entries, count.spec);
    }
    nodes = count.nodes;
    print(count);
    if (count.paper && std::abs(count.measured.fences - count.paper->fences) >= 1e-9) differs = 1;
  }
  fmt::print(
      "N_w counts stored words of 8 bytes: a slot array is stored by words, the paper counts its\n"
      "bytes, those copied onto themselves included. bits: that change on the medium. lines: "
      "distinct\n"
      "lines read. pJ: 2 for a bit read, 16 for a bit written.\n");
  return differs;
}

}  // namespace everleaf::crash
