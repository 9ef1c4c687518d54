// Programs of src/pmwcas without a tree: a few words, simulated threads that change several of them
// at once, every crash, and an order of the calls that explains every answer and what recovery
// left.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "pmwcas/pmwcas.hpp"
#include "run.hpp"
#include "threads/explore.hpp"

namespace everleaf::crash {

// A word of a call, as it is asked for; what it comes to is known when the call runs.
struct WordChange {
  enum class Kind : std::uint8_t {
    values,     // "0:3>4"
    add,        // "0:+1"  the value that it finds, and one more
    keep,       // "0:="   must stay as it is found
    new_block,  // "0:b"   another block instead of the one that it names
    no_block,   // "0:-"   the block that it names is freed
  };
  Kind kind = Kind::values;
  std::size_t word = 0;
  std::uint64_t expected = 0;
  std::uint64_t desired = 0;
};

struct WordsCall {
  static constexpr std::uint64_t kPending = ~std::uint64_t{0};
  std::vector<WordChange> changes;
  bool later = false;                // "~" behind it: Durability::later
  bool repeat = false;               // "!" behind it: until it succeeds
  std::optional<std::size_t> reads;  // "r0"
  // In a history.
  bool ready = false;  // what it changes is known
  std::uint64_t invoked = 0;
  std::uint64_t returned = kPending;
  bool succeeded = false;
  std::uint64_t value = 0;  // that was read
};

struct WordsProgram {
  std::vector<std::uint64_t> values;
  std::uint64_t blocks = 0;  // bit i: word i names a block
  std::vector<std::vector<WordsCall>> threads;
};
// "5,7,b/0:5>6+1:7>8,r0/2:b+0:=": what the words hold (b: a block), then the calls of each thread.
std::string to_string(const WordsProgram& program);
std::optional<WordsProgram> parse_words(std::string_view text);
// Threads that meet: a few calls on two to four words.
WordsProgram make_words(std::uint64_t seed, unsigned threads);

// Whether some order of the calls that respects time explains every answer and ends with `after`.
// Of what calls with `later` changed, each word may still be as it was before.
bool explained(const std::vector<WordsCall>& calls, const std::vector<std::uint64_t>& before,
               const std::vector<std::uint64_t>& after);

// One schedule by hand: the thread runs until the path is reached once more, or, if there is none,
// until one more call of its has returned, or all have.
struct WordsStep {
  unsigned thread = 0;
  std::string until;
};
inline constexpr const char* kCall = "call";
inline constexpr const char* kEnd = "end";

// A schedule that no search would meet soon, and the path that proves that it was taken, if any
// does.
struct WordsStory {
  std::string program;
  std::vector<WordsStep> steps;
  std::string path;
};
std::vector<WordsStory> word_stories();
struct WordsConfig;
WordsConfig config_of(const WordsStory& story, Domain domain);

// One thread: each rule of an operation and its recovery, small enough for every crash of every
// recovery.
std::vector<WordsProgram> lone_programs();
// Two threads, an operation on two words each, that meet in one or both: small enough for all
// schedules.
std::vector<WordsProgram> pair_programs();

struct WordsConfig {
  WordsProgram program;
  std::vector<WordsCall> then;  // after each recovery; crashes in them, too, if nested
  Domain domain = Domain::memory;
  unsigned preemptions = 2;
  unsigned random_runs = 100;
  bool all_schedules = false;  // instead of these two: one schedule of each trace (traces.hpp)
  // Each thread is stopped for ever at each of its points, and the others must finish.
  bool park = false;
  unsigned nested = 1;  // crashes in a row: 2, those of recovery and what follows it
  std::uint64_t seed = 1;
  bool new_lanes = false;  // threads make theirs in the schedule
  std::optional<SiteId> dropped;
  bool collect_sites = false;
  std::vector<WordsStep> steps;  // not empty: this schedule only, then the threads in their order
  std::optional<std::vector<Switch>> replay;
  std::optional<Switch> parked;  // of the replay
  Deadline deadline;
};

// One thread: every crash, every crash of each recovery, and of the work after it.
WordsConfig all_crashes_of(WordsProgram program, Domain domain);
// Every schedule, and every crash in them.
WordsConfig all_schedules_of(WordsProgram program, unsigned nested, Domain domain);
// How far a program is explored when there are many: by its seed.
WordsConfig word_search(WordsProgram program, std::uint64_t seed, Domain domain);

struct WordsReport : Tally {
  std::uint64_t schedules = 0;
  std::uint64_t redundant = 0;  // of all schedules: of a trace that another one has
  std::uint64_t fences = 0;
  std::map<std::string, std::uint64_t, std::less<>> reached;  // base::reached
  std::map<SiteId, SiteUse> sites;
  std::string failure;
  std::vector<Switch> switches;
  std::optional<Switch> parked;
  std::string where;
  std::vector<std::string> history;
};

WordsReport run_words(const WordsConfig& config);

// "words=... domain=... nested=... lanes=... schedules=... parked=... switches=..."
std::string replay_line(const WordsConfig& config, const std::vector<Switch>& switches,
                        const std::optional<Switch>& parked);
inline std::string replay_line(const WordsConfig& config, const WordsReport& report) {
  return replay_line(config, report.switches, report.parked);
}
std::optional<WordsConfig> parse_words_replay(std::string_view line);
// What follows recovery in the programs of the checker: it works on the slot's own descriptors.
std::vector<WordsCall> work_after(const WordsProgram& program);

}  // namespace everleaf::crash
