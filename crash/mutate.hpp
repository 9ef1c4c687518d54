// Mutation: each flush and fence site is dropped in turn, and the checker must notice.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "run.hpp"

namespace everleaf::crash {

struct Mutant {
  SiteId site;
  std::vector<std::size_t> met_by;  // which of the runs
  bool judged = false;              // false: an interrupt came before
  bool caught = false;
  std::string by;         // what noticed it
  std::string justified;  // the sentence beside the site: `// crash: flush stays: ...`
};

struct Mutation {
  std::vector<Mutant> mutants;
  std::vector<Report> looks;  // of the runs that looked for sites
};

// All sites that the runs meet and whose names contain `part`. Each is dropped in those runs that
// meet it most often, in the workload or in recovery, for so many seconds of processor time
// altogether, and in a process of its own, so many at a time: what it breaks may be anything.
Mutation mutate(const std::vector<Config>& configs, std::string_view part, double seconds_each,
                unsigned jobs);
// The same for the sites of src/pmwcas and src/words, by programs without a tree: they have no
// numbers.
std::vector<Mutant> mutate_words(std::string_view part, double seconds_each, unsigned jobs);
// Calls of flush() and fence() in the sources of the library, "file:line", whose names contain
// `part` and of which none of the mutants is: no run came by. Where none of a file's sites was met
// (a room that the runs do not use), the file alone.
std::vector<std::string> not_met(const std::vector<Mutant>& mutants, std::string_view part);

}  // namespace everleaf::crash
