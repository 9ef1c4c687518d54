// Mutation: each flush and fence site is dropped in turn, and the checker must notice.
#pragma once

#include <string>
#include <vector>

#include "run.hpp"

namespace everleaf::crash {

struct Mutant {
  SiteId site;
  bool caught = false;
  std::string by;         // what noticed it
  std::string justified;  // the sentence beside the site: `// crash: stays: ...`
};

// `configs`: the runs that a mutant has to survive to count as not caught; the first gives its
// sites together with the others. Each mutant runs in a child process: what it breaks may be
// anything.
std::vector<Mutant> mutate(const std::vector<Config>& configs, double seconds_each);

}  // namespace everleaf::crash
