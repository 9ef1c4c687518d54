#include "workload.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace everleaf::crash {

std::string to_string(const Op& op) {
  switch (op.what) {
    case Do::insert:
      return fmt::format("insert({}, {})", op.key, op.value);
    case Do::update:
      return fmt::format("update({}, {})", op.key, op.value);
    case Do::upsert:
      return fmt::format("upsert({}, {})", op.key, op.value);
    case Do::remove:
      return fmt::format("remove({})", op.key);
    case Do::bulk_load:
      return fmt::format("bulk_load({} entries)", op.key);
    case Do::reopen:
      return "close and open";
    case Do::no_space:
      return fmt::format("upsert({}, {}) without space", op.key, op.value);
    case Do::other_index:
      return "create another index";
  }
  return "?";
}

namespace {

std::uint64_t odd_value(Random& random) {
  switch (random.below(5)) {
    case 0:
      return 0;
    case 1:
      return ~std::uint64_t{0};
    case 2:
      return random.below(4);
    default:
      return random.word();
  }
}

Op random_op(Random& random, std::uint64_t keys, bool growing) {
  static constexpr Do kGrow[] = {Do::insert, Do::insert, Do::insert,
                                 Do::upsert, Do::update, Do::remove};
  static constexpr Do kShrink[] = {Do::remove, Do::remove, Do::remove,
                                   Do::remove, Do::upsert, Do::insert};
  const Do what =
      growing ? kGrow[random.below(std::size(kGrow))] : kShrink[random.below(std::size(kShrink))];
  return {what, random.below(keys), odd_value(random)};
}

}  // namespace

// Phases: (bulk load,) growth, churn, and removal of everything in order, so that every leaf is
// unlinked and the root shrinks. Rare events lie in between.
std::vector<Op> make_workload(const WorkloadOptions& options) {
  Random random(options.seed);
  std::vector<Op> ops;
  const std::uint64_t keys =
      options.keys != 0 ? options.keys : std::max<std::uint64_t>(4, options.ops / 3);
  const auto rare = [&] {
    if (random.below(12) != 0) return;
    static constexpr Do kRare[] = {Do::reopen, Do::no_space, Do::other_index, Do::no_space};
    ops.push_back({kRare[random.below(std::size(kRare))], random.below(keys), odd_value(random)});
  };
  if (random.below(2) == 0) ops.push_back({Do::bulk_load, keys / 2, random.word()});
  const bool ascending = random.below(2) == 0;
  while (ops.size() < options.ops * 2 / 5) {
    if (ascending) {
      ops.push_back({Do::insert, ops.size() % keys, odd_value(random)});
    } else {
      ops.push_back(random_op(random, keys, true));
    }
    rare();
  }
  while (ops.size() < options.ops * 3 / 5) {
    ops.push_back(random_op(random, keys, random.below(2) == 0));
    rare();
  }
  const std::uint64_t step = random.below(2) == 0 ? 1 : keys - 1;
  for (std::uint64_t key = random.below(keys); ops.size() < options.ops;
       key = (key + step) % keys) {
    ops.push_back({Do::remove, key, 0});
    rare();
  }
  ops.resize(options.ops);
  return ops;
}

bool nth_sequence(std::uint64_t n, std::size_t length, std::vector<Op>& ops) {
  static constexpr Do kKinds[] = {Do::insert, Do::update, Do::remove};
  constexpr std::uint64_t kKeys = 3;
  ops.clear();
  for (std::size_t i = 0; i < length; ++i) {
    const std::uint64_t digit = n % (std::size(kKinds) * kKeys);
    n /= std::size(kKinds) * kKeys;
    ops.push_back({kKinds[digit / kKeys], digit % kKeys, i + 1});
  }
  return n == 0;
}

// Every third number, extremes first.
template <>
std::uint64_t make_key<std::uint64_t>(std::uint64_t number) {
  return number == 1 ? ~std::uint64_t{0} : number * 3;
}

// A common prefix, so that tags decide nothing; some keys empty, long or with zeros.
template <>
std::string make_key<Bytes>(std::uint64_t number) {
  if (number == 0) return {};
  std::string key = fmt::format("key{:08}", number * 3);
  if (number % 7 == 1) key += std::string(1, '\0');
  if (number % 11 == 2) key.append(150, 'x');
  return key;
}

}  // namespace everleaf::crash
