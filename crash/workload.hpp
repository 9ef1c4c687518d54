// Workloads: sequences of operations, a function of their seed, and the model that answers them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <everleaf/index.hpp>

namespace everleaf::crash {

enum class Do : std::uint8_t {
  insert,
  update,
  upsert,
  remove,
  bulk_load,    // `key` entries; needs an empty index, otherwise `not_empty`
  reopen,       // clean close, open
  no_space,     // an insert or upsert for which every allocation fails
  other_index,  // creates one more index; value: 0, of the same spec, else of another node size
  other_write,  // an upsert in the newest other index
  sync,         // what came before survives, also in a buffered tree
  tick,         // one step of the epochs' clock
  limit,        // clean close, open: the file may grow by `key` slabs
  churn,        // `key` entries in and out again, in an empty index; crashes are not looked at
  fill,         // close, open, and no space is left: keys with numbers below `key` go in until they
                // are refused; value 1: then each fourth gives way to larger ones; crashes are not
                // looked at
  // Of a store alone:
  exchange,  // a compare-and-set of what the key has
  batch,     // of keys below `key`; which ones, `value` says
  drop,      // of a table
};

struct Op {
  Do what = Do::insert;
  std::uint64_t key = 0;  // the number of the key; keys.hpp turns it into one
  std::uint64_t value = 0;
  bool operator==(const Op&) const = default;
};
std::string to_string(const Op& op);

struct WorkloadOptions {
  std::size_t ops = 200;
  std::uint64_t seed = 1;
  std::uint64_t keys = 0;  // key space; 0: as the number of operations suggests
  std::optional<std::uint64_t> sequence =
      std::nullopt;    // this one of `ops` operations, see nth_sequence
  bool ticks = false;  // for a buffered tree
  bool store = false;  // of a store (store_run.hpp)
};
std::vector<Op> make_workload(const WorkloadOptions& options);
// Records come and go, and then there is one more index, whose first blocks hold what those left.
std::vector<Op> used_blocks();
// A full pool whose leaves give keys up that lie side by side, and get them back: recovery from
// that has no space, either.
std::vector<Op> refilled_leaves();
// The n-th of all sequences of `length` operations over a small key space; false: there are no
// more.
bool nth_sequence(std::uint64_t n, std::size_t length, bool ticks, std::vector<Op>& ops);

inline constexpr std::size_t kMostOps = 1'000'000;  // of a workload

// Keys from this number on have lengths of all size classes, and beyond them.
inline constexpr std::uint64_t kSizedKeys = 1'000'000;

template <class K>
typename OwnedKey<K>::type make_key(std::uint64_t number);
template <>
std::uint64_t make_key<std::uint64_t>(std::uint64_t number);
template <>
std::string make_key<Bytes>(std::uint64_t number);

// What buffered trees of a pool may recover to, all of them alike: their state at the end of an
// epoch, two steps of the clock ago; while the clock steps, that of the next one, too. A state is a
// sum over its entries, so that a change costs one step and a wrong candidate one comparison.
template <class K>
class Prefixes {
 public:
  using Owned = typename OwnedKey<K>::type;
  using Entries = std::vector<Entry<K>>;
  using Others = std::span<const Entries>;  // of the indexes with numbers 1, 2, ...

  Prefixes() = default;
  explicit Prefixes(const Entries& now, Others others = {}) {
    each(now, others, [this](const Key& key, std::uint64_t value) { base_[key] = value; });
    now_ = base_;
    sums_.back() = sum(now, others);
  }
  // A change that is about to be made; no value: a removal.
  void push(const Owned& key, std::optional<std::uint64_t> value, std::size_t index = 0) {
    const Change one{{index, key}, value};
    std::uint64_t next = sums_.back();
    if (const auto at = now_.find(one.key); at != now_.end()) next -= term(one.key, at->second);
    if (value) next += term(one.key, *value);
    change(now_, one);
    log_.push_back(one);
    sums_.push_back(next);
  }
  // Everything so far survives.
  void synced() {
    met_.clear();
    base_ = now_;
    log_.clear();
    sums_.erase(sums_.begin(), sums_.end() - 1);
    durable_ = in_flight_ = 0;
  }
  // The clock has made a step.
  void ticked() {
    durable_ = in_flight_;
    in_flight_ = log_.size();
    met_.erase(met_.begin(), met_.lower_bound(durable_));
  }
  // The clock made so many steps that everything up to the n-th change is durable.
  void waited(std::size_t n) {
    durable_ = in_flight_ = n;
    met_.erase(met_.begin(), met_.lower_bound(n));
  }
  [[nodiscard]] std::size_t changes() const { return log_.size(); }
  // What the clock is doing: it stands `still`, makes one `step`, or any number of `steps` before
  // or after the newest change; or `any` number of them anywhere between the changes.
  enum class Clock : std::uint8_t { still, step, steps, any };
  [[nodiscard]] bool allows(const Entries& found, Clock clock, Others others = {}) const {
    const auto possible = [&](std::size_t n) {
      return n >= durable_ &&
             (clock == Clock::any || n == durable_ || (clock != Clock::still && n == in_flight_) ||
              (clock == Clock::steps && n + 2 >= sums_.size()));
    };
    for (const auto& [n, state] : met_) {
      if (possible(n) && state.first == found && std::ranges::equal(state.others, others))
        return true;
    }
    const std::uint64_t wanted = sum(found, others);
    for (std::size_t n = durable_; n < sums_.size(); ++n) {
      if (!possible(n) || sums_[n] != wanted || !equals(n, found, others)) continue;
      met_.insert_or_assign(n, Met{found, {others.begin(), others.end()}});
      return true;
    }
    return false;
  }

 private:
  using Key = std::pair<std::size_t, Owned>;  // the index, and its key
  struct Change {
    Key key;
    std::optional<std::uint64_t> value;
  };
  using State = std::map<Key, std::uint64_t>;
  static std::uint64_t term(const Key& key, std::uint64_t value) {
    std::uint64_t z =
        (std::hash<Owned>{}(key.second) + key.first * 7919 + 1) * 0x9E3779B97F4A7C15ULL ^ value;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ULL;
    return (z ^ z >> 27) * 0x94D049BB133111EBULL;
  }
  template <class F>
  static void each(const Entries& first, Others others, F&& f) {
    for (const auto& entry : first) f({0, Owned(entry.key)}, entry.value);
    for (std::size_t i = 0; i < others.size(); ++i) {
      for (const auto& entry : others[i]) f({i + 1, Owned(entry.key)}, entry.value);
    }
  }
  static std::uint64_t sum(const Entries& first, Others others) {
    std::uint64_t all = 0;
    each(first, others, [&all](const Key& key, std::uint64_t value) { all += term(key, value); });
    return all;
  }
  static void change(State& state, const Change& one) {
    if (one.value) {
      state.insert_or_assign(one.key, *one.value);
    } else {
      state.erase(one.key);
    }
  }
  [[nodiscard]] bool equals(std::size_t changes, const Entries& found, Others others) const {
    State state = base_;
    for (std::size_t n = 0; n < changes; ++n) change(state, log_[n]);
    State is;
    each(found, others, [&is](const Key& key, std::uint64_t value) { is[key] = value; });
    return state == is;
  }

  State base_;
  State now_;
  std::vector<Change> log_;
  std::vector<std::uint64_t> sums_{0};  // after each prefix of log_
  std::size_t durable_ = 0;             // prefixes: at the end of the durable epoch,
  std::size_t in_flight_ = 0;           // and of the one in flight
  struct Met {
    Entries first;
    std::vector<Entries> others;
  };
  // Of prefixes that were found: most crashes come to the same few.
  mutable std::map<std::size_t, Met> met_;
};

class Random {  // splitmix64
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t word() {
    std::uint64_t z = state_ += 0x9E3779B97F4A7C15ULL;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ z >> 27) * 0x94D049BB133111EBULL;
    return z ^ z >> 31;
  }
  std::uint64_t below(std::uint64_t n) { return word() % n; }

 private:
  std::uint64_t state_;
};

// Whether the spec names a buffered tree of the registry.
bool is_buffered(std::string_view spec);

}  // namespace everleaf::crash
