// Look-ups of many keys at once: each search prefetches a node and lets the others take a step
// before it looks at it, so that their cache misses overlap.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
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

// A Search may take its steps in three parts, so that searches halve their nodes in turn, too:
// enter(Halving&) a node (nullopt: look it up alone; else how many entries it halves), where the
// Halving stays until the third; unless that is 0 fetch(half), what is looked at when that many
// entries may go before the key, and halve(half, next), look at it and fetch(next), until all are
// told apart (without fetching, if no Halving is `far`); and leave(Lookup&), which tells how far it
// came.
template <class Search>
concept Halves = requires {
  typename Search::Halving;
};

struct NoHalving {};
template <class Search>
struct HalvingOf {
  using Type = NoHalving;
};
template <Halves Search>
struct HalvingOf<Search> {
  using Type = typename Search::Halving;
};

// All of them in step, until the up to `most` entries of each are told apart; never beyond them.
template <bool kFar, class Halving>
void halve_all(std::span<Halving> all, std::size_t most) {
  std::size_t next = std::bit_floor(most);
  std::size_t half = most + 1 - next;
  for (Halving& one : all) one.template fetch<kFar>(half);
  while (half != 0) {
    next /= 2;
    for (Halving& one : all) one.template halve<kFar>(half, next);
    half = next;
  }
}

// Measured, by turns: those that halve (kHalves), with one line on its way for each, gain by 96;
// nodes that are fetched wholly, or in a few steps, do not.
template <class Search>
constexpr std::size_t searches_at_once() {
  if constexpr (Halves<Search>) {
    return Search::kHalves ? 96 : 32;
  } else {
    return 32;
  }
}

// One such search by itself, without branches that depend on keys. False: find() it otherwise.
template <Halves Search, class Tree, class Key>
bool search_alone(const Tree& tree, alloc::Grace& grace, Key key, Lookup& answer) {
  const alloc::Grace::Pin pin(grace);
  if (!pin.ok()) return false;
  Search search(tree, key);
  // More than a sound tree has levels, beside writers, too. What damage makes longer is find()'s.
  for (unsigned round = 0; round < 128; ++round) {
    typename Search::Halving halving;
    const std::optional<unsigned> entries = search.enter(halving);
    if (!entries) return false;
    if (*entries != 0) halve_all<false>(std::span(&halving, 1), *entries);
    const Progress progress = search.leave(answer);
    if (progress != Progress::on) return progress == Progress::answered;
  }
  return false;
}

// As find() of each key. A Search is made from the tree and a key, and takes steps as long as a pin
// of `grace` lives; step(Lookup&) tells how far it came.
template <class Search, class Tree, class Key>
void search_together(const Tree& tree, alloc::Grace& grace, std::span<const Key> keys,
                     std::span<Lookup> answers) {
  constexpr std::size_t kAtOnce = searches_at_once<Search>();
  for (std::size_t begin = 0; begin < keys.size(); begin += kAtOnce) {
    const std::size_t n = std::min(keys.size() - begin, kAtOnce);
    std::array<std::uint8_t, kAtOnce> alone;
    std::size_t alone_count = 0;
    {
      const alloc::Grace::Pin pin(grace);
      if (!pin.ok()) {
        std::ranges::fill(answers.subspan(begin), Lookup{Outcome::too_many_threads, 0});
        return;
      }
      std::array<std::optional<Search>, kAtOnce> searches;
      std::array<std::uint8_t, kAtOnce> open;
      // A search that does not halve writes to the one behind the others.
      std::array<typename HalvingOf<Search>::Type, Halves<Search> ? kAtOnce : 1> halvings;
      for (std::size_t i = 0; i < n; ++i) {
        searches[i].emplace(tree, keys[begin + i]);
        open[i] = static_cast<std::uint8_t>(i);
      }
      for (std::size_t left = n; left != 0;) {
        if constexpr (Halves<Search>) {
          std::size_t count = 0;
          std::size_t most = 0;
          bool far = false;
          for (std::size_t i = 0; i < left;) {
            const std::uint8_t which = open[i];
            const std::optional<unsigned> entries = searches[which]->enter(halvings[count]);
            if (!entries) {
              alone[alone_count++] = which;
              open[i] = open[--left];
              continue;
            }
            if (*entries != 0) far |= halvings[count++].far;
            most = std::max<std::size_t>(most, *entries);
            ++i;
          }
          const auto all = std::span(halvings).first(count);
          if (most != 0 && far) halve_all<true>(all, most);
          if (most != 0 && !far) halve_all<false>(all, most);
        }
        for (std::size_t i = 0; i < left;) {
          const std::uint8_t which = open[i];
          const Progress progress = [&] {
            if constexpr (Halves<Search>) {
              return searches[which]->leave(answers[begin + which]);
            } else {
              return searches[which]->step(answers[begin + which]);
            }
          }();
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
