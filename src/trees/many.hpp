// Look-ups of many keys at once: each search prefetches a node and lets the others take a step
// before it looks at it, so that their cache misses overlap.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include <everleaf/result.hpp>

#include "alloc/grace.hpp"

namespace everleaf::tree {

enum class Progress : std::uint8_t {
  on,        // one more step
  answered,  // the answer is there
  alone      // something changed, or is damaged: find() it
};

// More at once do not find more memory that is idle.
inline constexpr std::size_t kSearchesAtOnce = 32;

// As find() of each key. A Search is made from the tree and a key, and takes steps as long as a pin
// of `grace` lives; step(Lookup&) tells how far it came.
template <class Search, class Tree, class Key>
void search_together(const Tree& tree, alloc::Grace& grace, std::span<const Key> keys,
                     std::span<Lookup> answers) {
  for (std::size_t begin = 0; begin < keys.size(); begin += kSearchesAtOnce) {
    const std::size_t n = std::min(keys.size() - begin, kSearchesAtOnce);
    std::array<std::uint8_t, kSearchesAtOnce> alone;
    std::size_t alone_count = 0;
    {
      const alloc::Grace::Pin pin(grace);
      if (!pin.ok()) {
        std::ranges::fill(answers.subspan(begin), Lookup{Outcome::too_many_threads, 0});
        return;
      }
      std::array<std::optional<Search>, kSearchesAtOnce> searches;
      std::array<std::uint8_t, kSearchesAtOnce> open;
      for (std::size_t i = 0; i < n; ++i) {
        searches[i].emplace(tree, keys[begin + i]);
        open[i] = static_cast<std::uint8_t>(i);
      }
      for (std::size_t left = n; left != 0;) {
        for (std::size_t i = 0; i < left;) {
          const std::uint8_t which = open[i];
          const Progress progress = searches[which]->step(answers[begin + which]);
          if (progress == Progress::on) {
            ++i;
            continue;
          }
          if (progress == Progress::alone) alone[alone_count++] = which;
          open[i] = open[--left];
        }
      }
    }
    // Not pinned: they may have to wait.
    for (std::size_t i = 0; i < alone_count; ++i)
      answers[begin + alone[i]] = tree.find(keys[begin + alone[i]]);
  }
}

}  // namespace everleaf::tree
