// One run of the checker: a workload on one index, and every crash of it that the options ask for.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "arena.hpp"
#include "deadline.hpp"
#include "recorder.hpp"
#include "tally.hpp"
#include "workload.hpp"

namespace everleaf::crash {

// Where a crash happened and which image it left: a crash point of one level, and the choices of
// the recovery that follows it.
struct Crash {
  std::uint64_t point = 0;
  std::vector<Choice> choices;
};

inline constexpr std::uint64_t kMostPoolBytes = std::uint64_t{60} << 20;  // 64: all slabs' states

struct Config {
  std::string spec = "wbtree";
  KeyType keys = KeyType::u64;
  bool store = false;  // a store over that tree instead of an index (store_run.hpp)
  Domain domain = Domain::memory;
  std::uint64_t pool_bytes = pmem::kMinPoolBytes;  // of a new pool of an index; whole pages
  std::vector<Op> ops;
  unsigned nested = 1;                // crashes in a row: 1, none of recovery
  std::uint64_t most = 500;           // executions per crash point before the rest is sampled,
  std::uint64_t most_nested = 64;     // and per crash point of a recovery
  std::uint64_t crash_on_every = 16;  // of the recoveries, crashes in the work after them
  std::uint64_t readers = 8;  // one crash point in so many: its images are read first; 0: none
  bool eager = false;         // enumerate images instead of choosing lazily,
  std::uint64_t most_images = ~std::uint64_t{0};  // but of crash points with more of them none
  bool unordered = false;  // words of a line reach the medium in any order, in `memory`, too
  bool permuted = false;   // plain stores between two atomic accesses are made in any order
  bool record_only = false;
  bool collect_sites = false;
  bool collect_outcomes = false;
  std::optional<SiteId> dropped;
  std::string line;  // of its replay, without the crash: for an execution that ends the process
  bool after_drop = false;                 // no crashes before the workload met what is dropped
  bool skip_creation = false;              // crashes in it were looked at already
  std::optional<std::size_t> only_op;      // crashes in this operation only
  std::uint64_t stride = 1;                // each so many-th crash point only
  std::vector<std::uint64_t> only_points;  // not empty: these only, in rising order
  std::vector<Crash> replay;               // not empty: this one only
  Deadline deadline;
  std::function<void(std::uint64_t points, std::uint64_t executions)> progress;
};

struct Failure {
  std::string what;
  std::size_t op = 0;  // index into the workload; its size: before or after it
  std::string operation;
  std::string where;  // file:line of the last flush or fence
  std::string store;  // and of the last store
  std::string lost;
  std::vector<Crash> crashes;
  bool of_reader = false;
};

struct Report : Tally {
  std::uint64_t operations = 0;
  std::uint64_t out_of_space = 0;   // operations that ended so, without injected failures
  std::uint64_t refused_opens = 0;  // of a full pool, that were tried again with more room
  std::uint64_t waits = 0;          // operations of a buffered tree that waited for epochs
  std::uint64_t pool_bytes = 0;     // at the end
  std::uint64_t stores = 0;
  std::uint64_t flushes = 0;
  std::uint64_t fences = 0;
  std::uint64_t readers = 0;  // executions whose image was read first
  double seconds = 0;         // of processor time: other programs may share the core
  bool replayed = false;      // the crash to be replayed was met
  std::optional<Failure> failure;
  std::map<SiteId, SiteUse> sites;
  std::map<std::string, std::uint64_t, std::less<>> reached;  // base::reached
  // What recovery saw, per crash point: hashes of the recovered content.
  std::map<std::uint64_t, std::map<std::uint64_t, std::uint64_t>> outcomes;
};

Report run(const Config& config);

// The whole workload with few images of each crash point and no crashes in recovery, then the same
// as `config` asks: where the time ends in the midst of that, its later operations were not all
// left out. A crash point counts once.
Report run_glancing_first(const Config& config);
inline constexpr std::uint64_t kGlance = 32;  // executions of a crash point, when it is sampled

// --- What runs of an index and of a store share ---
using Points = std::array<std::uint64_t, kMostLevels + 1>;  // crash points so far, of each level
Model model_of(const Config& config);
// Whether the options leave this crash point out.
bool is_passed_over(const Config& config, std::uint64_t point);
// Whether the images of the crash before an execution on `level` are opened read-only first. All or
// none of them: a path of choices begins with those of the reader.
bool is_read_first(const Config& config, const Points& points, std::size_t level);
// Everything but one line's newest stores, nothing but one line's, or anything.
std::vector<Choice> sampled_path(std::uint64_t n, Random& random);
Failure failure_of(std::string what, std::size_t op, std::string operation, Arena& arena,
                   const Recorder& recorder, const Points& points);
// Of a process that ends; without memory.
void say_last_words(const char* what, const char* operation, const Config& config,
                    const Arena& arena, const Recorder& recorder, const Points& points) noexcept;

// Lazy choice beside enumeration.
struct Comparison {
  std::uint64_t points = 0;  // that have few enough images
  std::uint64_t images = 0;
  std::uint64_t executions = 0;  // that lazy choice took for them
  std::string wrong;             // they differ, or something fails
};
// Whether recoveries see the same of every crash point with up to so many images.
Comparison compare_with_eager(Config config, std::uint64_t most_images);

}  // namespace everleaf::crash
