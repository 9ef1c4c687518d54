#include "threads/history.hpp"

#include <algorithm>
#include <array>
#include <set>
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
      break;
  }
  return {held ? Outcome::done : Outcome::absent, held};
}

// Depth first over the calls that nobody unfinished precedes (Wing, Gong 1993), with the states
// that led nowhere remembered (Lowe 2017).
class Search {
 public:
  Search(std::span<const Call> calls, Held after) : calls_(calls), after_(after) {}

  bool run(std::uint32_t taken, Held held) {
    if (ends(taken) && held == after_) return true;
    if (!seen_.insert({taken, held}).second) return false;
    std::uint64_t first_return = Call::kPending;
    for (std::size_t i = 0; i < calls_.size(); ++i) {
      if ((taken >> i & 1) == 0) first_return = std::min(first_return, calls_[i].returned);
    }
    for (std::size_t i = 0; i < calls_.size(); ++i) {
      const Call& call = calls_[i];
      if ((taken >> i & 1) != 0 || call.invoked > first_return) continue;
      const Effect effect = effect_of(call, held);
      if (call.returned != Call::kPending) {
        if (effect.outcome != call.outcome) continue;
        if (call.kind == Call::Kind::find && effect.held && *effect.held != call.value) continue;
      }
      if (run(taken | std::uint32_t{1} << i, effect.held)) return true;
    }
    return false;
  }

 private:
  // All that returned has happened.
  [[nodiscard]] bool ends(std::uint32_t taken) const {
    for (std::size_t i = 0; i < calls_.size(); ++i) {
      if ((taken >> i & 1) == 0 && calls_[i].returned != Call::kPending) return false;
    }
    return true;
  }
  std::span<const Call> calls_;
  Held after_;
  std::set<std::pair<std::uint32_t, Held>> seen_;
};

}  // namespace

bool has_order(std::span<const Call> calls, Held before, Held after) {
  return Search(calls, after).run(0, before);
}

std::string to_string(const Call& call) {
  constexpr std::array kNames{"insert", "update", "upsert", "remove", "find", "scan"};
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
