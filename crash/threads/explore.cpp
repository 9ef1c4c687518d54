#include "threads/explore.hpp"

#include <algorithm>
#include <deque>
#include <utility>

#include <fmt/format.h>

#include "base/thread_slot.hpp"
#include "threads/text.hpp"
#include "workload.hpp"

namespace everleaf::crash {

// A schedule's children have one more preemption, behind its last.
void Explorer::all(const Run& run) {
  if (bounded(run)) at_random(run);
}

bool Explorer::bounded(const Run& run) {
  using Open = std::deque<std::vector<Switch>>;
  Random random(what_.seed);
  const auto is_last = [this](const std::vector<Switch>& one) {
    const std::size_t beginning = !one.empty() && one.front().at == 0 ? 1 : 0;
    return one.size() - beginning == what_.preemptions;
  };
  // Breadth first, so that few preemptions come first. Of those with the most preemptions any comes
  // next: there may be no time for all.
  const auto take = [&](Open& open) {
    if (is_last(open.front())) std::swap(open.front(), open[random.below(open.size())]);
    std::vector<Switch> one = std::move(open.front());
    open.pop_front();
    return one;
  };
  Open stop_sleeper;
  Open open{{}};
  for (unsigned first = 1; first < what_.threads; ++first) open.push_back({{0, first}});
  while (!open.empty() || !stop_sleeper.empty()) {
    if (is_late(what_.deadline)) {
      complete_ = false;
      return true;
    }
    const std::vector<Switch> switches = take(stop_sleeper.empty() ? open : stop_sleeper);
    Replay policy(switches);
    Trace trace;
    if (!run(policy, trace)) {
      failing_ = switches;
      return false;
    }
    length_ = std::max(length_, trace.points);
    if (is_last(switches)) continue;
    const std::uint64_t from = switches.empty() ? 1 : switches.back().at + 1;
    for (std::uint64_t point = from; point < trace.choices.size(); ++point) {
      const unsigned others = trace.choices[point] & 0xFFU;
      const unsigned stopped = trace.choices[point] >> 8U;
      for (unsigned thread = 0; thread < what_.threads; ++thread) {
        if ((others >> thread & 1) == 0) continue;
        auto& list = stopped == what_.sleeper ? stop_sleeper : open;
        list.push_back(switches);
        list.back().push_back({point, thread});
      }
    }
  }
  return true;
}

void Explorer::at_random(const Run& run) {
  for (unsigned i = 0; i < what_.random_runs; ++i) {
    if (is_late(what_.deadline)) return;
    RandomPriorities policy(what_.seed * 1000 + i, what_.threads, length_, 3);
    Trace trace;
    if (run(policy, trace)) continue;
    failing_ = switches_of(trace);
    return;
  }
}

Recoveries crash_here(Recorder& recorder, std::uint64_t most,
                      const std::function<bool()>& recover) {
  const Scheduler::Pause pause;
  const bool dependencies = recorder.dependencies();
  recorder.look_for_dependencies(false);
  Arena& arena = recorder.arena();
  arena.enter();
  recorder.switch_level();
  Recoveries done;
  std::vector<Choice> path;
  for (bool more = true; more;) {
    arena.begin(path);
    more = recover();
    path = arena.path();
    arena.end();
    recorder.switch_level();
    ++done.executions;
    done.all = !more || done.executions != most;
    more = more && done.all && Arena::advance(path);
  }
  arena.leave();
  recorder.switch_level();
  recorder.look_for_dependencies(dependencies);
  return done;
}

namespace {
template <class F>
void each_switch(const Trace& trace, F&& f) {
  unsigned before = kNobody;
  for (std::uint64_t point = 0; point < trace.choices.size(); ++point) {
    const auto who = static_cast<unsigned>(trace.choices[point] >> 8);
    if (who != before) f(Switch{point, who});
    before = who;
  }
}
}  // namespace

std::vector<Switch> switches_of(const Trace& trace) {
  std::vector<Switch> switches;
  each_switch(trace, [&switches](const Switch& one) { switches.push_back(one); });
  return switches;
}

void add_switches(LastWords& words, const Trace& trace) noexcept {
  const char* comma = "";
  each_switch(trace, [&](const Switch& one) {
    words.add("%s%llu:%u", comma, static_cast<unsigned long long>(one.at), one.to);
    comma = ",";
  });
}

std::string to_string(const std::vector<Switch>& switches) {
  std::string text;
  for (const Switch& one : switches) {
    text += fmt::format("{}{}:{}", text.empty() ? "" : ",", one.at, one.to);
  }
  return text;
}

std::optional<std::vector<Switch>> parse_switches(std::string_view text) {
  std::vector<Switch> switches;
  if (text.empty()) return switches;
  for (const std::string_view word : split(text, ',')) {
    const auto sides = split(word, ':');
    Switch& one = switches.emplace_back();
    if (sides.size() != 2 || !number(sides[0], one.at) || !number(sides[1], one.to)) {
      return std::nullopt;
    }
  }
  return switches;
}

void take_slots(std::size_t threads) {
  std::vector<unsigned> taken{base::thread_slot()};
  for (std::size_t thread = 0; thread < threads; ++thread) {
    base::detail::current_slot = base::kNoSlot;
    taken.push_back(base::thread_slot());
  }
  for (; taken.size() > 1; taken.pop_back()) {
    base::detail::current_slot = taken.back();
    base::detail::give_back_slot();
  }
  base::detail::current_slot = taken.front();
}

}  // namespace everleaf::crash
