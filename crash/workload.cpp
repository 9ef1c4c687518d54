#include "workload.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "base/limits.hpp"

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
      return fmt::format("create another index{}", op.value == 0 ? "" : " of another node size");
    case Do::other_write:
      return fmt::format("upsert({}, {}) in another index", op.key, op.value);
    case Do::sync:
      return "sync";
    case Do::tick:
      return "step of the clock";
    case Do::limit:
      return fmt::format("close and open with room for {} slabs", op.key);
    case Do::churn:
      return fmt::format("insert and remove {} entries", op.key);
    case Do::fill:
      return fmt::format("close and open, and fill the pool with up to {} entries", op.key);
    case Do::exchange:
      return fmt::format("compare and set({}, {})", op.key, op.value);
    case Do::batch:
      return fmt::format("batch({}, {})", op.key, op.value);
    case Do::drop:
      return fmt::format("drop a table({})", op.value);
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

// The heap's work. Slabs of one class come back and go to another; records of every size, many of
// them runs of slabs, which are cut, joined and formatted over what they held; a file that grows,
// and one that must not.
void heap_phases(Random& random, std::size_t most, std::vector<Op>& ops) {
  std::uint64_t kinds = 28;
  const auto sized = [&](Do what, std::uint64_t n) {
    ops.push_back({what, kSizedKeys + n % kinds, odd_value(random)});
  };
  // Long ones first: small records then find slabs that were full of bytes, and tables of trees
  // blocks that were.
  for (std::uint64_t n = 9; n < 14; ++n) sized(Do::insert, n);
  for (std::uint64_t n = 9; n < 14; ++n) sized(Do::remove, n);
  ops.push_back({Do::reopen, 0, 0});
  for (std::uint64_t n = 0; n < 8; ++n) sized(Do::insert, n);
  for (std::uint64_t n = 0; n < 8; ++n) sized(Do::remove, n);
  ops.push_back({Do::churn, 6000, 0});
  ops.push_back({Do::other_index, 0, 1 + random.below(8)});
  for (std::uint64_t n = 0; n < 24; ++n) ops.push_back({Do::other_write, n, n});
  while (ops.size() < most / 2) {
    sized(random.below(3) == 0 ? Do::remove : Do::upsert, random.word());
  }
  kinds = 112;  // more than there is room for
  ops.push_back({Do::limit, random.below(3), 0});
  for (std::uint64_t n = 0; n < 6; ++n) ops.push_back({Do::other_index, 0, 1 + n});
  while (ops.size() < most * 3 / 4) {
    if (random.below(16) == 0) ops.push_back({Do::reopen, 0, 0});
    sized(random.below(8) == 0 ? Do::remove : Do::upsert, random.word());
  }
}

// What was recycled must not come back: an old write far away that nothing moves, a key that comes
// and goes beside keys that are written all the time, and then the end of that whole range.
void come_and_go(Random& random, std::vector<Op>& ops) {
  for (std::uint64_t key = 0; key < 200; key += 2) ops.push_back({Do::upsert, key, key});
  ops.push_back({Do::update, 2 * random.below(4), odd_value(random)});
  const std::uint64_t key = 101 + 2 * random.below(12);
  const auto updates = [&](std::uint64_t n) {
    for (std::uint64_t i = 0; i < n; ++i) {
      ops.push_back({Do::update, key + 1 + i % 3 * 2, odd_value(random)});
    }
  };
  ops.push_back({Do::insert, key, odd_value(random)});
  updates(12);
  ops.push_back({Do::remove, key, 0});
  updates(48);
  for (std::uint64_t next = key + 1; next < key + 15; next += 2) {
    ops.push_back({Do::remove, next, 0});
  }
  for (std::uint64_t next = 80; next < key; next += 2) ops.push_back({Do::remove, next, 0});
}

// A pool without any space: what can be changed in place, what is refused, and what a removal gives
// back. Recovery has no space, either.
void full_pool(Random& random, std::size_t most, std::vector<Op>& ops) {
  constexpr std::uint64_t kKeys = 2048;
  for (const std::uint64_t crowded : {0, 1}) {
    ops.push_back({Do::fill, kKeys, crowded});
    const std::size_t end = ops.size() + most / 10;
    while (ops.size() < end) {
      for (unsigned n = 0; n < 4; ++n) ops.push_back(random_op(random, kKeys, true));
      const std::uint64_t first = random.below(kKeys - 8);
      for (std::uint64_t n = 0; n < 8; n += 2) ops.push_back({Do::remove, first + n, 0});
      for (std::uint64_t n = 0; n < 8; n += 2) {
        ops.push_back({Do::insert, first + n, odd_value(random)});
      }
    }
    ops.push_back({Do::reopen, 0, 0});
  }
}

// Tags of a buffered tree: leaves that nobody writes to until they are old, and just before they
// are made young; or sessions so short that only opening looks at them, until tags come round.
void grow_old(Random& random, std::uint64_t keys, bool sessions, std::vector<Op>& ops) {
  const auto ticks = [&ops](std::uint64_t n) { ops.insert(ops.end(), n, {Do::tick, 0, 0}); };
  if (sessions) {
    for (std::uint64_t n = 0; n < 16; ++n) {
      // Closing makes two steps before an image of the tree and two after it: rounds that begin
      // with a session are due when the next one opens, which reads the leaves, then.
      ticks(base::kTagRound - 3);
      ops.push_back({Do::reopen, 0, 0});
    }
    return;
  }
  ticks(base::kOldTag);
  for (std::uint64_t n = 0; n < base::kTagRound; ++n) {
    ops.push_back({Do::upsert, random.below(keys), odd_value(random)});
    ticks(1);
  }
}

// Keys of two tables that come, get other values and go; batches; and now and then a table goes, to
// come again. The values' numbers say which table it is, and how long they are.
std::vector<Op> store_workload(const WorkloadOptions& options) {
  static constexpr Do kWrites[] = {Do::upsert, Do::upsert, Do::upsert,   Do::insert,
                                   Do::update, Do::remove, Do::exchange, Do::batch};
  static constexpr Do kRare[] = {Do::reopen, Do::sync, Do::no_space, Do::drop};
  Random random(options.seed);
  const std::uint64_t keys = 6 + random.below(std::max<std::uint64_t>(options.ops / 4, 2));
  std::vector<Op> ops;
  while (ops.size() < options.ops) {
    if (options.ticks && random.below(3) == 0) ops.push_back({Do::tick, 0, 0});
    if (random.below(14) != 0) {
      ops.push_back({kWrites[random.below(std::size(kWrites))], random.below(keys), random.word()});
      if (ops.back().what == Do::batch) ops.back().key = keys;
      continue;
    }
    const Op rare{kRare[random.below(std::size(kRare))], keys, random.word()};
    ops.push_back(rare);
    if (rare.what == Do::drop) ops.push_back({Do::other_index, 0, rare.value});
  }
  ops.resize(options.ops);
  return ops;
}

}  // namespace

// Phases: (bulk load,) growth, churn, and removal of everything in order, so that every leaf is
// unlinked and the root shrinks. Rare events lie in between.
std::vector<Op> make_workload(const WorkloadOptions& options) {
  Random random(options.seed);
  std::vector<Op> ops;
  if (options.sequence) {
    nth_sequence(*options.sequence, options.ops, options.ticks, ops);
    return ops;
  }
  if (options.store) return store_workload(options);
  const std::uint64_t keys =
      options.keys != 0 ? options.keys : std::max<std::uint64_t>(4, options.ops / 3);
  // A second index beside the first: what becomes of one must become of the other.
  const bool two = options.seed % 3 == 0;
  std::size_t ages = options.ops / 100;
  std::size_t count = options.ops;  // without those that only let time pass
  const auto rare = [&] {
    if (two && random.below(4) == 0) {
      ops.push_back({Do::other_write, random.below(keys), odd_value(random)});
    }
    if (options.ticks && random.below(3) == 0) ops.push_back({Do::tick, 0, 0});
    if (options.ticks && random.below(24) == 0) ops.push_back({Do::reopen, 0, 0});
    const bool large = ops.size() > count / 3;  // many leaves
    if (options.ticks && large && ages != 0 && random.below(20) == 0) {
      const std::size_t before = ops.size();
      grow_old(random, keys, (options.seed + --ages) % 2 == 0, ops);
      count += ops.size() - before;
    }
    if (random.below(12) != 0) return;
    static constexpr Do kRare[] = {Do::reopen, Do::no_space, Do::other_index, Do::no_space,
                                   Do::sync};
    ops.push_back({kRare[random.below(std::size(kRare))], random.below(keys), odd_value(random)});
  };
  // Not always: long keys take time.
  if (options.seed % 5 == 2 && options.ops >= 100) heap_phases(random, options.ops, ops);
  if (options.seed % 5 == 4 && options.ops >= 200) come_and_go(random, ops);
  if (two) ops.push_back({Do::other_index, 0, 0});
  if (random.below(2) == 0) ops.push_back({Do::bulk_load, keys / 2, random.word()});
  const bool ascending = random.below(2) == 0;
  while (ops.size() < count * 2 / 5) {
    if (ascending) {
      ops.push_back({Do::insert, ops.size() % keys, odd_value(random)});
    } else {
      ops.push_back(random_op(random, keys, true));
    }
    rare();
  }
  while (ops.size() < count * 3 / 5) {
    ops.push_back(random_op(random, keys, random.below(2) == 0));
    rare();
  }
  // Not always, either: all that follows has a larger index.
  if (options.seed % 5 == 3 && options.ops >= 100) full_pool(random, options.ops, ops);
  const std::uint64_t step = random.below(2) == 0 ? 1 : keys - 1;
  for (std::uint64_t key = random.below(keys); ops.size() < count; key = (key + step) % keys) {
    ops.push_back({Do::remove, key, 0});
    rare();
  }
  ops.resize(count);
  return ops;
}

std::vector<Op> used_blocks() {
  constexpr std::uint64_t kLength = 4;  // of 72 bytes: records of the size of a BzTree's table
  constexpr std::uint64_t kLengths = 14;
  std::vector<Op> ops;
  for (const Do what : {Do::insert, Do::remove}) {
    for (std::uint64_t n = 0; n < 20; ++n)
      ops.push_back({what, kSizedKeys + kLength + kLengths * n, 7});
  }
  ops.push_back({Do::other_index, 0, 0});
  ops.push_back({Do::other_write, 3, 4});
  return ops;
}

std::vector<Op> refilled_leaves() {
  constexpr std::uint64_t kKeys = 1000;
  constexpr std::uint64_t kRow = 10;
  Random random(1);
  std::vector<Op> ops{{Do::fill, kKeys, 0}};
  for (unsigned round = 0; round < 10; ++round) {
    const std::uint64_t first = random.below(kKeys - 2 * kRow);
    for (std::uint64_t n = 0; n < kRow; ++n) ops.push_back({Do::remove, first + n, 0});
    for (std::uint64_t n = 0; n < kRow; ++n) ops.push_back({Do::insert, first + n, n});
  }
  return ops;
}

bool nth_sequence(std::uint64_t n, std::size_t length, bool ticks, std::vector<Op>& ops) {
  static constexpr Do kKinds[] = {Do::insert, Do::update, Do::remove, Do::tick};
  constexpr std::uint64_t kKeys = 3;
  const std::uint64_t kinds = 3 * kKeys + (ticks ? 1 : 0);
  ops.clear();
  for (std::size_t i = 0; i < length; ++i) {
    const std::uint64_t digit = n % kinds;
    n /= kinds;
    ops.push_back({kKinds[digit / kKeys], digit % kKeys, i + 1});
  }
  return n == 0;
}

// Every third number, extremes first.
template <>
std::uint64_t make_key<std::uint64_t>(std::uint64_t number) {
  return number == 1 ? ~std::uint64_t{0} : number * 3;
}

namespace {

// "key" and eight digits. Each execution makes some: fmt took a hundredth of its time.
std::string numbered(std::uint64_t n) {
  std::string key = "key00000000";
  for (std::size_t i = key.size(); n != 0; n /= 10) key[--i] = static_cast<char>('0' + n % 10);
  return key;
}

}  // namespace

// A common prefix, so that tags decide nothing; some keys empty, long, with zeros, or the beginning
// of another; neighbours with a long common prefix, which so have a long separator.
template <>
std::string make_key<Bytes>(std::uint64_t number) {
  if (number == 0) return {};
  if (number >= kSizedKeys) {
    static constexpr std::size_t kLengths[] = {2,   24,    40,    56,    72,    88,    112,
                                               200, 12000, 20000, 40000, 65000, 65536, 8000};
    const std::uint64_t n = number - kSizedKeys;
    // All bits: what a bitmap must not be made of.
    std::string sized(kLengths[n % std::size(kLengths)], '\xFF');
    sized[0] = static_cast<char>('0' + n / std::size(kLengths) % 64);
    sized[1] = static_cast<char>('0' + n % std::size(kLengths));
    return sized;
  }
  constexpr std::uint64_t kFamily = 20;
  if (const std::uint64_t child = number % 32; child >= kFamily && child < kFamily + 8) {
    return numbered((number - child + kFamily) * 3) + std::string(140, 'x') + std::to_string(child);
  }
  // Every fourth is the one before it and a byte more.
  const bool longer = number % 4 == 3;
  std::string key = numbered((longer ? number - 1 : number) * 3);
  if (longer) return key + '!';
  if (number % 7 == 1) key += std::string(1, '\0');
  if (number % 11 == 2) key.append(150, 'x');
  return key;
}

bool is_buffered(std::string_view spec) {
  const auto row = std::ranges::find(trees(), spec.substr(0, spec.find(':')), &TreeInfo::name);
  return row != trees().end() && row->durability == Durability::buffered;
}

}  // namespace everleaf::crash
