// A pool that somebody damaged: each word of the table, a lane and the words under evil values. It
// is refused, or works on; it neither ends the process nor hangs.
#include <cstdlib>
#include <cstring>
#include <functional>
#include <thread>

#include <gtest/gtest.h>

#include "words.hpp"

namespace everleaf::pmwcas {
namespace {

constexpr std::size_t kWords = 4;

// Memory for a pool, as aligned as a mapping.
class Memory {
 public:
  explicit Memory(std::size_t bytes)
      : bytes_(bytes), base_(static_cast<std::byte*>(std::aligned_alloc(4096, bytes)), std::free) {}
  [[nodiscard]] std::byte* base() const { return base_.get(); }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  void become(const Memory& other) const { std::memcpy(base(), other.base(), bytes_); }
  [[nodiscard]] Word& word(Offset at) const { return *reinterpret_cast<Word*>(base_.get() + at); }

 private:
  std::size_t bytes_;
  std::unique_ptr<std::byte, void (*)(void*)> base_;
};

PoolOptions options() {
  return options_in(Domain::memory);
}

WordsPool::File attach(const Memory& memory) {
  return pmem::PoolFile::attach(memory.base(), memory.bytes(), memory.bytes(), options(), nullptr);
}

struct Damaged {
  Memory memory{pmem::kMinPoolBytes};
  Offset table = 0;
  Offset lane = 0;
  Offset words = 0;
};

// Operations under way of all kinds: succeeded, failed, undecided (by hand), and a free descriptor.
void make(Damaged& made) {
  auto pool = WordsPool::create(pmem::PoolFile::format(made.memory.base(), made.memory.bytes(),
                                                       made.memory.bytes(), options(), nullptr),
                                std::vector<Word>(kWords, 1), 8);
  ASSERT_TRUE(pool);
  ASSERT_EQ(change(*pool, {{0, 1, 2}, {1, 1, 2}}), Answer::succeeded);
  ASSERT_EQ(new_block(*pool, 3), Answer::succeeded);
  ASSERT_EQ(change(*pool, {{0, 2, 3}, {2, 9, 3}}), Answer::failed);
  ASSERT_EQ(change(*pool, {{1, 2, 3}, {2, 1, 3}}), Answer::succeeded);
  made.table = pool->table();
  made.words = pool->medium().offset_of(pool->word(0));
  pool->words().for_each_block([&](Offset at, std::size_t) {
    if (at != made.table) made.lane = at;
  });
}

// Opens it and works on all words. False: it was refused.
bool use(const Memory& memory) {
  auto pool = WordsPool::open(attach(memory));
  if (!pool) return false;
  for (int round = 0; round < 3; ++round) {
    for (std::size_t i = 0; i < kWords - 1; ++i) {
      EXPECT_EQ((*pool)->value(i) & kControl, 0U);
      const Word a = (*pool)->value(i);
      const Word b = (*pool)->value((i + 1) % kWords);
      (void)change(**pool, {{i, a, a / 2 + 1}, {(i + 1) % kWords, b, b / 2 + 1}});
    }
    (void)new_block(**pool, kWords - 1);
  }
  EXPECT_TRUE((*pool)->words().settle_all());
  (void)(*pool)->problem();
  return true;
}

TEST(PmwcasDamage, IsRefusedOrHarmless) {
  const std::uint64_t seed = test::seed();
  test::Random random(seed);
  Damaged made;
  make(made);
  std::vector<Offset> places;
  for (std::size_t i = 0; i < 4; ++i) places.push_back(made.table + i * sizeof(Word));
  for (std::size_t i = 0; i < sizeof(LaneAt) / sizeof(Word); ++i) {
    places.push_back(made.lane + i * sizeof(Word));
  }
  for (std::size_t i = 0; i < kWords; ++i) places.push_back(made.words + i * sizeof(Word));
  const Memory damaged(pmem::kMinPoolBytes);
  std::uint64_t refused = 0;
  std::uint64_t used = 0;
  for (const Offset place : places) {
    const Word good = made.memory.word(place);
    std::vector<Word> evil{0,
                           1,
                           ~Word{0},
                           kControl,
                           kControl | random.word(),
                           random.word(),
                           good ^ Word{1} << random.below(64),
                           good ^ Word{1} << random.below(8),
                           made.table,
                           made.lane,
                           made.lane + 64,
                           made.words,
                           made.words + 1,
                           pmem::kMinPoolBytes - 4,
                           pmem::kHeapAt,
                           good + 1};
    // References of all kinds, to every descriptor, now and at its next use.
    for (unsigned kind = 0; kind < 4; ++kind) {
      const auto which = static_cast<unsigned>(random.below(kDescriptors));
      const Word sequence = State{made.memory.word(made.lane + offsetof(LaneAt, descriptors) +
                                                   which * sizeof(DescriptorAt))}
                                .sequence();
      for (Word next = 0; next < 2; ++next) {
        evil.push_back(Reference(static_cast<Reference::Kind>(kind), 0, which,
                                 static_cast<unsigned>(random.below(8)), sequence + next)
                           .word());
      }
    }
    for (const Word value : evil) {
      damaged.become(made.memory);
      damaged.word(place) = value;
      (use(damaged) ? used : refused) += 1;
    }
  }
  EXPECT_GT(refused, 0U);
  EXPECT_GT(used, 0U);
}

Offset descriptor_at(const Damaged& made, unsigned which) {
  return made.lane + offsetof(LaneAt, descriptors) + which * sizeof(DescriptorAt);
}

// Pools that can be used after spoil(damaged, slot, descriptor's number, its next sequence, offset
// of a word): for each descriptor of the lane and each word.
template <class Spoil>
std::uint64_t used_with(const Damaged& made, Spoil spoil) {
  unsigned slot = 0;
  while (made.memory.word(made.table + slot * sizeof(Word)) != made.lane) ++slot;
  const Memory damaged(pmem::kMinPoolBytes);
  std::uint64_t used = 0;
  for (unsigned which = 0; which < kDescriptors; ++which) {
    const Word next = State{made.memory.word(descriptor_at(made, which))}.sequence() + 1;
    for (std::size_t i = 0; i < kWords; ++i) {
      damaged.become(made.memory);
      spoil(damaged, slot, which, next, made.words + i * sizeof(Word));
      used += use(damaged) ? 1 : 0;
    }
  }
  return used;
}

// What lies behind the words of a descriptor is of earlier operations: a reference that names it is
// damage, not the operation that is under way there.
TEST(PmwcasDamage, AReferenceBehindTheWords) {
  Damaged made;
  make(made);
  for (unsigned index = 0; index < kMaxWords; ++index) {
    const auto spoil = [&](const Memory& damaged, unsigned slot, unsigned which, Word next,
                           Offset word) {
      damaged.word(word) = Reference(Reference::Kind::descriptor, slot, which, index, next).word();
      damaged.word(descriptor_at(made, which) + offsetof(DescriptorAt, words) +
                   index * sizeof(WordEntry)) = word;
    };
    EXPECT_GT(used_with(made, spoil), 0U) << index;
  }
}

// An install that stands for an install, in the word and in its record: a swap of the word for
// itself had no end.
TEST(PmwcasDamage, AnInstallThatStandsForItself) {
  Damaged made;
  make(made);
  const auto spoil = [&](const Memory& damaged, unsigned slot, unsigned which, Word next,
                         Offset word) {
    const Offset record = made.lane + offsetof(LaneAt, install);
    const Word install = Reference(Reference::Kind::install, slot, which, 0, next).word();
    damaged.word(record + offsetof(InstallAt, old)) = damaged.word(word);
    damaged.word(record + offsetof(InstallAt, sequence)) = next;
    damaged.word(record + offsetof(InstallAt, target)) = install;
    damaged.word(record + offsetof(InstallAt, at)) = 0;
    damaged.word(word) = install;
  };
  EXPECT_GT(used_with(made, spoil), 0U);
}

// Two slots that name one lane, or the table itself, would work on the same descriptors.
TEST(PmwcasDamage, ALaneBelongsToOneSlot) {
  Damaged made;
  make(made);
  const Memory damaged(pmem::kMinPoolBytes);
  for (const Offset other : {made.lane, made.table}) {
    damaged.become(made.memory);
    damaged.word(made.table + 5 * sizeof(Word)) = other;
    const auto pool = WordsPool::open(attach(damaged));
    ASSERT_FALSE(pool);
    EXPECT_EQ(pool.error().code, Code::corrupt);
  }
  damaged.become(made.memory);
  EXPECT_TRUE(use(damaged));
}

// Its targets are written over while it is under way: who helps goes nowhere else.
TEST(PmwcasDamage, TargetsThatAreNoWords) {
  for (const Offset target : {Offset{1} << 39, Offset{pmem::kMinPoolBytes - 4}, Offset{8}}) {
    Damaged made;
    make(made);
    auto opened = WordsPool::open(attach(made.memory));
    ASSERT_TRUE(opened);
    WordsPool& pool = **opened;
    unsigned slot = 0;
    while (made.memory.word(made.table + slot * sizeof(Word)) != made.lane) ++slot;
    const Offset descriptor = descriptor_at(made, 1);
    const Word next = State{made.memory.word(descriptor)}.sequence() + 1;
    // The second target is right: it says that the reference is the operation's own.
    const auto entry = [&](std::size_t index) {
      return descriptor + offsetof(DescriptorAt, words) + index * sizeof(WordEntry);
    };
    made.memory.word(entry(0) + offsetof(WordEntry, at)) = target;
    made.memory.word(entry(1) + offsetof(WordEntry, at)) = made.words;
    made.memory.word(entry(1) + offsetof(WordEntry, expected)) = 5;
    made.memory.word(entry(1) + offsetof(WordEntry, desired)) = 6;
    made.memory.word(descriptor) = State::undecided(next, 2, 0).word;
    made.memory.word(made.words) = Reference(Reference::Kind::descriptor, slot, 1, 1, next).word();
    std::thread([&] {  // whose lane is another
      (void)change(pool, {{0, 5, 7}});
      EXPECT_EQ(pool.value(0) & kControl, 0U);
    })
        .join();
  }
}

// A pool in use, of whose free descriptors some are written over, as if an operation that nobody
// has begun were under way. Another thread meets the reference in the first word.
class Forged {
 public:
  Forged() {
    make(made_);
    pool_ = WordsPool::open(attach(made_.memory)).value();
    while (made_.memory.word(made_.table + slot_ * sizeof(Word)) != made_.lane) ++slot_;
  }
  [[nodiscard]] Offset state_of(unsigned which) const { return descriptor_at(made_, which); }
  [[nodiscard]] Offset word(std::size_t i) const { return made_.words + i * sizeof(Word); }
  [[nodiscard]] Word undecided(unsigned which) const {
    return State::undecided(next(which), 2, 0).word;
  }
  [[nodiscard]] Word reference(unsigned which, unsigned index) const {
    return Reference(Reference::Kind::descriptor, slot_, which, index, next(which)).word();
  }
  // Of two words; undecided or placed.
  void begin(unsigned which, std::array<WordEntry, 2> entries, Status status) {
    const Word state = State{undecided(which)}.decided(status).word;
    std::memcpy(pool_->medium().at(state_of(which) + offsetof(DescriptorAt, words)), entries.data(),
                sizeof entries);
    made_.memory.word(state_of(which)) = state;
  }
  void put(Offset at, Word value) { made_.memory.word(at) = value; }
  void meet() {
    std::thread([&] {  // whose lane is another
      (void)change(*pool_, {{0, 5, 7}});
      EXPECT_EQ(pool_->value(0) & kControl, 0U);
      EXPECT_EQ(change(*pool_, {{0, pool_->value(0), 9}}), Answer::succeeded);
    })
        .join();
  }

 private:
  [[nodiscard]] Word next(unsigned which) const {
    return State{made_.memory.word(state_of(which))}.sequence() + 1;
  }
  Damaged made_;
  std::unique_ptr<WordsPool> pool_;
  unsigned slot_ = 0;
};

// Each stands where the other one wants to go: who helps went round for ever.
TEST(PmwcasDamage, OperationsThatBlockEachOther) {
  for (const Status status : {Status::undecided, Status::placed}) {
    Forged forged;
    const std::array<WordEntry, 2> both{{{forged.word(0), 5, 6}, {forged.word(1), 5, 6}}};
    forged.put(forged.word(0), forged.reference(2, 0));
    forged.put(forged.word(1), forged.reference(1, 1));
    forged.begin(1, both, status);
    forged.begin(2, both, status);
    forged.meet();
  }
}

// What it installs there makes it undecided again, for ever.
TEST(PmwcasDamage, AnOperationOnItsOwnState) {
  for (const Status status : {Status::undecided, Status::placed}) {
    Forged forged;
    const WordEntry honest{forged.word(0), 5, 6};
    const WordEntry own{forged.state_of(1), forged.undecided(1), 8};
    const bool first = own.at < honest.at;
    forged.put(forged.word(0), forged.reference(1, first ? 1 : 0));
    forged.begin(1, first ? std::array{own, honest} : std::array{honest, own}, status);
    forged.meet();
  }
}

}  // namespace
}  // namespace everleaf::pmwcas
