// What threads asked and were told, and whether some order of it makes sense: linearizability key
// by key (Herlihy, Wing 1990; keys of a map are independent objects), with a crash at the end. What
// a buffered tree is recovered to is judged over all keys at once: it is the state in the middle of
// an order (Izraelevitz and others, DISC 2016).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <everleaf/index.hpp>

namespace everleaf::crash {

struct Call {
  // scan: of all keys from `key` on; in a history it stands as a find of each of them.
  // many: look-ups together, of `key` and the next two keys that the program names; so does it.
  // tick: a step of the epochs' clock; it stands in no history.
  enum class Kind : std::uint8_t { insert, update, upsert, remove, find, scan, many, tick };
  static constexpr std::uint64_t kPending = ~std::uint64_t{0};
  Kind kind = Kind::find;
  std::uint32_t key = 0;
  std::uint64_t value = 0;  // asked for, or found
  std::uint64_t invoked = 0;
  std::uint64_t returned = kPending;  // a crash came first
  Outcome outcome = Outcome::done;
  // Of a buffered tree: the epochs in which it began and had ended.
  std::uint64_t first_epoch = 0;
  std::uint64_t last_epoch = 0;
};

// Calls that can be put in order; a scan counts once for each key.
inline constexpr std::size_t kMostCalls = 256;

// What a key holds; empty: it is absent.
using Held = std::optional<std::uint64_t>;

// Whether the calls, all of one key, have an order that respects time, begins with `before` and
// ends with `after`. A pending call may have happened, or not. At most
// kMostCalls.
bool has_order(std::span<const Call> calls, Held before, Held after);

// Of a key: what it held before all calls, and what a crash left.
struct Recovered {
  std::uint32_t key;
  Held before;
  Held after;
};
// Whether calls of all keys, each of them named, have an order that respects time, explains every
// answer and passes through the recovered state: after every change that had ended in epochs up to
// `durable`, before every one that began later. At most kMostCalls.
bool has_cut(std::span<const Call> calls, std::span<const Recovered> keys, std::uint64_t durable);

// "insert(3, 7) -> done [4, 9]"
std::string to_string(const Call& call);

}  // namespace everleaf::crash
