#include "threads/history.hpp"

#include <algorithm>
#include <array>
#include <set>
#include <tuple>
#include <utility>

#include <fmt/format.h>

namespace everleaf::crash {
namespace {

// What a call does to its key, and what it is told.
struct Effect {
  Outcome outcome;
  Held held;
};

Effect effect_of(const Call& call, Held held) {
  switch (call.kind) {
    case Call::Kind::insert:
      return held ? Effect{Outcome::exists, held} : Effect{Outcome::done, call.value};
    case Call::Kind::update:
      return held ? Effect{Outcome::done, call.value} : Effect{Outcome::absent, held};
    case Call::Kind::upsert:
      return {Outcome::done, call.value};
    case Call::Kind::remove:
      return held ? Effect{Outcome::done, Held{}} : Effect{Outcome::absent, held};
    case Call::Kind::find:
    case Call::Kind::tick:
    case Call::Kind::scan:
    case Call::Kind::many:
      break;
  }
  return {held ? Outcome::done : Outcome::absent, held};
}

// A set of calls.
class Taken {
 public:
  auto operator<=>(const Taken&) const = default;
  [[nodiscard]] bool has(std::size_t i) const { return (words_.at(i / 64) >> i % 64 & 1) != 0; }
  [[nodiscard]] Taken with(std::size_t i) const {
    Taken more = *this;
    more.words_.at(i / 64) |= std::uint64_t{1} << i % 64;
    return more;
  }

 private:
  std::array<std::uint64_t, kMostCalls / 64> words_{};
};

// Depth first over the calls that nobody unfinished precedes (Wing, Gong 1993), with the states
// that led nowhere remembered (Lowe 2017).
class Search {
 public:
  Search(std::span<const Call> calls, Held after) : calls_(calls), after_(after) {}

  bool run(const Taken& taken, Held held) {
    if (ends(taken) && held == after_) return true;
    if (!seen_.insert({taken, held}).second) return false;
    std::uint64_t first_return = Call::kPending;
    for (std::size_t i = 0; i < calls_.size(); ++i) {
      if (!taken.has(i)) first_return = std::min(first_return, calls_[i].returned);
    }
    for (std::size_t i = 0; i < calls_.size(); ++i) {
      const Call& call = calls_[i];
      if (taken.has(i) || call.invoked > first_return) continue;
      const Effect effect = effect_of(call, held);
      if (call.returned != Call::kPending) {
        if (effect.outcome != call.outcome) continue;
        if (call.kind == Call::Kind::find && effect.held && *effect.held != call.value) continue;
      }
      if (run(taken.with(i), effect.held)) return true;
    }
    return false;
  }

 private:
  // All that returned has happened.
  [[nodiscard]] bool ends(const Taken& taken) const {
    for (std::size_t i = 0; i < calls_.size(); ++i) {
      if (!taken.has(i) && calls_[i].returned != Call::kPending) return false;
    }
    return true;
  }
  std::span<const Call> calls_;
  Held after_;
  std::set<std::pair<Taken, Held>> seen_;
};

// The same over all keys, with the recovered state on the way. Both a call that only reads and the
// cut are taken as soon as they can be: neither takes a choice away from what comes later.
class CutSearch {
 public:
  CutSearch(std::span<const Call> calls, std::span<const Recovered> keys, std::uint64_t durable)
      : calls_(calls), durable_(durable) {
    for (const Recovered& one : keys) {
      keys_.push_back(one.key);
      before_.push_back(one.before);
      after_.push_back(one.after);
    }
  }
  bool run() { return run({}, before_, false); }

 private:
  using State = std::vector<Held>;

  [[nodiscard]] Held& held_of(State& state, const Call& call) const {
    const auto at = std::ranges::find(keys_, call.key) - keys_.begin();
    return state[static_cast<std::size_t>(at)];
  }

  bool run(Taken taken, State state, bool cut) {
    while (const auto read = free_read(taken, state)) taken = taken.with(*read);
    cut = cut || (state == after_ && durable_are_in(taken));
    if (cut && ends(taken)) return true;
    if (!seen_.insert({taken, state, cut}).second) return false;
    for (std::size_t i = 0; i < calls_.size(); ++i) {
      if (!next(taken, i)) continue;
      const Call& call = calls_[i];
      const Effect effect = effect_of(call, held_of(state, call));
      const bool changes = call.kind != Call::Kind::find && effect.outcome == Outcome::done;
      if (!explains(call, effect) || (changes && !cut && call.first_epoch > durable_)) continue;
      State then = state;
      held_of(then, call) = effect.held;
      if (run(taken.with(i), std::move(then), cut)) return true;
    }
    return false;
  }

  // A call that returned and changes nothing, and fits here.
  std::optional<std::size_t> free_read(const Taken& taken, State& state) const {
    for (std::size_t i = 0; i < calls_.size(); ++i) {
      const Call& call = calls_[i];
      if (call.returned == Call::kPending || !next(taken, i)) continue;
      const Held& held = held_of(state, call);
      const Effect effect = effect_of(call, held);
      if (effect.held == held && explains(call, effect)) return i;
    }
    return std::nullopt;
  }

  static bool explains(const Call& call, const Effect& effect) {
    if (call.returned == Call::kPending) return true;
    if (effect.outcome != call.outcome) return false;
    return call.kind != Call::Kind::find || !effect.held || *effect.held == call.value;
  }

  // Not taken yet, and nobody unfinished precedes it.
  [[nodiscard]] bool next(const Taken& taken, std::size_t i) const {
    if (taken.has(i)) return false;
    for (std::size_t j = 0; j < calls_.size(); ++j) {
      if (!taken.has(j) && calls_[j].returned < calls_[i].invoked) return false;
    }
    return true;
  }
  [[nodiscard]] bool durable_are_in(const Taken& taken) const {
    for (std::size_t i = 0; i < calls_.size(); ++i) {
      const Call& call = calls_[i];
      const bool changed = call.kind != Call::Kind::find && call.outcome == Outcome::done &&
                           call.returned != Call::kPending;
      if (!taken.has(i) && changed && call.last_epoch <= durable_) return false;
    }
    return true;
  }
  [[nodiscard]] bool ends(const Taken& taken) const {
    for (std::size_t i = 0; i < calls_.size(); ++i) {
      if (!taken.has(i) && calls_[i].returned != Call::kPending) return false;
    }
    return true;
  }

  std::span<const Call> calls_;
  const std::uint64_t durable_;
  std::vector<std::uint32_t> keys_;
  State before_;
  State after_;
  std::set<std::tuple<Taken, State, bool>> seen_;
};

}  // namespace

bool has_cut(std::span<const Call> calls, std::span<const Recovered> keys, std::uint64_t durable) {
  return CutSearch(calls, keys, durable).run();
}

bool has_order(std::span<const Call> calls, Held before, Held after) {
  return Search(calls, after).run({}, before);
}

std::string to_string(const Call& call) {
  constexpr std::array kNames{"insert", "update", "upsert", "remove", "find", "scan", "many"};
  const bool asks = call.kind < Call::Kind::remove;
  std::string text = fmt::format("{}({}{})", kNames.at(static_cast<std::size_t>(call.kind)),
                                 call.key, asks ? fmt::format(", {}", call.value) : "");
  if (call.returned == Call::kPending) return text + fmt::format(" pending [{}, ..", call.invoked);
  text += fmt::format(" -> {}", everleaf::to_string(call.outcome));
  if (call.kind == Call::Kind::find && call.outcome == Outcome::done) {
    text += fmt::format(" {}", call.value);
  }
  return text + fmt::format(" [{}, {}]", call.invoked, call.returned);
}

}  // namespace everleaf::crash
