// The creation of a pool of words (src/words): every crash in it, every crash of each recovery, and
// an operation on the words that are there then.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "run.hpp"

namespace everleaf::crash {

struct NewWordsConfig {
  Domain domain = Domain::memory;
  std::size_t count = 12;  // words
  std::optional<SiteId> dropped = std::nullopt;
  bool collect_sites = false;
};

struct NewWordsReport : Tally {
  std::map<SiteId, SiteUse> sites;
  std::string failure;
  std::string where;  // the last flush or fence before it was noticed
};

NewWordsReport run_new_words(const NewWordsConfig& config);

}  // namespace everleaf::crash
