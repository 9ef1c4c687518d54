// Caches and a persistent medium behind them: which lines come to the memory controller, what the
// medium reads and writes for them, and how long that would take. One core; the pool's memory
// alone.
//
// Caches    each level set-associative, least recently used goes, write-back and write-allocate. A
//           level holds whatever those before it hold: what leaves the last one leaves all.
// Flush     clwb writes a dirty line and keeps it, clflushopt writes it and throws it away, none
//           does nothing.
// Buffer    in front of the medium, whose blocks are four lines: reads and writes of a block that
// it
//           holds go no further. The least recently used block goes; if it has dirty lines the
//           medium writes the block, and reads it before if neither a read nor four writes filled
//           it.
// Time      of one access after the other: the cycles of the level that holds the line, or of all
// of
//           them and a read of the medium. A line that is written occupies its rank (line number
//           modulo ranks) for as many cycles as words changed, one line after the other; reads do
//           not wait for that. A fence waits for the lines that were flushed before it. Nothing
//           else takes time: not the processor's work, not eviction. (Chen and Jin, PVLDB 8(7),
//           table 4, give latencies and energies; their simulator is cycle-accurate, this is not.)
// Energy    of the bits that are read and of those that change when they are written.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "gauge.hpp"

namespace everleaf::crash {

inline constexpr std::size_t kLineBytes = 64;
inline constexpr std::size_t kBlockLines = 4;  // of 64 bytes: 256

enum class FlushBy : std::uint8_t { clwb, clflushopt, none };

struct CacheShape {
  std::size_t bytes;
  std::size_t ways;
  std::uint64_t cycles;  // to find a line there
};

struct Machine {
  std::vector<CacheShape> caches;  // from the core outwards, each at least as large as the last
  std::size_t buffer_blocks = 64;  // 16 KiB
  FlushBy flush = FlushBy::clwb;
  std::size_t ranks = 4;
  std::uint64_t read_cycles = 230;
  std::uint64_t write_cycles_per_word = 450;  // of 8 bytes, that changed
  double read_picojoules = 2;                 // a bit
  double write_picojoules = 16;               // a bit that changed
};

// Table 4 of the wB+-Tree paper; processor and memory of the BD+Tree's (Xeon Gold 6330, Optane).
Machine pcm_machine();
Machine optane_machine();
// All caches this part of their size, but at least one set.
Machine scaled(Machine machine, double scale);

// Lines are 64 bytes, blocks 256.
struct TrafficCounts {
  std::uint64_t reads = 0;  // lines from the memory controller
  std::uint64_t writes = 0;
  std::uint64_t media_reads = 0;  // blocks
  std::uint64_t media_writes = 0;
  std::uint64_t flushes = 0;  // as the program asks for them
  std::uint64_t fences = 0;
  std::uint64_t words_changed = 0;  // when lines were written
  std::uint64_t bits_changed = 0;
  std::uint64_t cycles = 0;
  TrafficCounts operator-(const TrafficCounts& other) const;
};

double picojoules(const TrafficCounts& counts, const Machine& machine);

// One level: which lines it holds.
class Cache {
 public:
  explicit Cache(const CacheShape& shape);
  // Whether the line is there; if so it is the most recently used of its set.
  bool touch(std::uint64_t line);
  // The line becomes the most recently used one; returns what goes for it.
  std::optional<std::uint64_t> add(std::uint64_t line);
  void remove(std::uint64_t line);

 private:
  static constexpr std::uint64_t kEmpty = ~std::uint64_t{0};
  std::span<std::uint64_t> set_of(std::uint64_t line);

  std::size_t ways_;
  std::size_t sets_;
  std::vector<std::uint64_t> lines_;  // of each set, the most recently used first
};

// Not thread-safe.
class TrafficModel final : public Gauge {
 public:
  // `memory`: what is modelled; what is in it now is on the medium.
  TrafficModel(std::span<const std::byte> memory, Machine machine);

  void read(std::size_t at, std::size_t bytes) override;
  void stored(std::size_t at, std::size_t bytes) override;
  void flushed(std::size_t at, std::size_t bytes) override;
  void fenced() override;

  [[nodiscard]] const TrafficCounts& counts() const { return counts_; }

 private:
  struct Block {
    std::uint64_t number;
    unsigned dirty = 0;  // a bit a line
    bool filled = false;
  };

  void access(std::uint64_t line, bool writes);
  void drop(std::uint64_t line);  // it left the last level
  void write_back(std::uint64_t line);
  Block& block_of(std::uint64_t line);
  void evict(const Block& block);

  std::span<const std::byte> memory_;
  std::vector<std::byte> medium_;
  Machine machine_;
  std::vector<Cache> caches_;
  std::vector<bool> dirty_;  // of lines in the caches
  std::list<Block> buffer_;  // the most recently used first
  std::unordered_map<std::uint64_t, std::list<Block>::iterator> blocks_;
  std::vector<std::uint64_t> rank_free_;  // cycle from which on the rank is free
  std::uint64_t flushed_until_ = 0;       // cycle at which all that was flushed is written
  TrafficCounts counts_;
};

}  // namespace everleaf::crash
