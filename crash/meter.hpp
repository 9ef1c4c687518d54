// Counts on the hooks: what an operation costs in the terms of the wB+-Tree paper (section 2.5) and
// of phase-change memory (its section 5.1: 2 pJ for a bit that is read, 16 pJ for one that is
// written, and only bits that change are written).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <unordered_set>
#include <vector>

#include "gauge.hpp"

namespace everleaf::crash {

struct Costs {
  double words = 0;         // N_w: words stored
  double flushes = 0;       // N_clf: lines
  double fences = 0;        // N_mf
  double bits_flipped = 0;  // of the medium, when lines are written back
  double lines_read = 0;    // distinct lines; a cache holds them for the operation
  double picojoules() const;
};

// Not thread-safe.
class Meter final : public Gauge {
 public:
  // `arena`: where the observed memory is; what is in it now is on the medium.
  explicit Meter(std::span<const std::byte> arena);

  void read(std::size_t at, std::size_t bytes) override;
  void stored(std::size_t at, std::size_t bytes) override;
  void flushed(std::size_t at, std::size_t bytes) override;
  void fenced() override { costs_.fences += 1; }

  // What came since the last call.
  Costs take();

 private:
  std::span<const std::byte> arena_;
  std::vector<std::byte> medium_;
  std::unordered_set<std::size_t> lines_;
  Costs costs_;
};

// One operation in a leaf, beside its formula in Table 3 of the paper, if that has one.
struct Count {
  struct Formula {
    double words;
    double flushes;
    double fences;
  };
  const char* spec;
  const char* nodes;  // as the paper calls them
  unsigned entries;   // m, before the operation
  const char* operation;
  Costs measured;
  std::optional<Formula> paper;
};

// Table 3. Throws std::runtime_error if an index refuses to be measured.
std::vector<Count> count_table3();

// 0, or 1 if fences differ from the paper's.
int print_counts(const std::vector<Count>& counts);

}  // namespace everleaf::crash
