// Payloads do what strings in a std::map do: of any length, across reopens, on a full pool, in a
// damaged one, and beside threads.
#include <atomic>
#include <cstring>
#include <thread>

#include "pmem/format.hpp"
#include "support.hpp"
#include "trees/bztree/layout.hpp"
#include "trees/pool_state.hpp"

namespace everleaf::test {
namespace {

constexpr const char* kSpecs[] = {
    "bztree:values=bytes", "bztree:page=256:free=96:values=bytes:inline=16",
    "bztree:page=256:free=96:values=bytes:inline=0:merge=45",
    "bztree:page=512:free=128:split=75:dead=20:update=inline:reserve=entry:values=bytes",
    "bztree:page=4096:values=bytes:inline=512"};

class PayloadsOf : public ::testing::TestWithParam<Case> {
 protected:
  // test(key type), by a generic lambda.
  template <class Test>
  void with_keys(Test test) {
    if (GetParam().keys == KeyType::u64) {
      test.template operator()<std::uint64_t>(GetParam().spec);
    } else {
      test.template operator()<Bytes>(GetParam().spec);
    }
  }
};
std::vector<Case> cases() {
  std::vector<Case> all;
  for (const char* const spec : kSpecs) {
    for (const KeyType keys : {KeyType::u64, KeyType::bytes}) all.push_back({spec, keys});
  }
  return all;
}
INSTANTIATE_TEST_SUITE_P(Trees, PayloadsOf, ::testing::ValuesIn(cases()), name_of);

std::string odd_payload(Random& random) {
  static constexpr std::size_t kLengths[] = {0,  1,  2,   7,   8,   9,   15,  16,  17,
                                             31, 32, 127, 128, 129, 500, 512, 513, 5000};
  std::size_t length = kLengths[random.below(std::size(kLengths))];
  if (random.one_in(500)) length = kMaxPayloadBytes - random.below(2);
  std::string payload(length, '\0');
  for (char& c : payload) c = static_cast<char>(random.word());
  return payload;
}

template <class K>
using Strings = std::map<Owned<K>, std::string>;

template <class K>
std::string differs(const Payloads<K>& payloads, const Strings<K>& map) {
  std::vector<PayloadEntry<K>> out;
  if (payloads.scan(K{}, kAll, out) != Outcome::done) return "scan";
  if (out.size() != map.size()) return "scan: so many are there";
  std::size_t i = 0;
  for (const auto& [key, payload] : map) {
    if (out[i].key != key || out[i].payload != payload) return "scan: " + show(key);
    std::string one = "before";
    if (payloads.find(key, one) != Outcome::done || one != payload) return "find: " + show(key);
    ++i;
  }
  std::vector<PayloadEntry<K>> back;
  if (payloads.scan_back({}, kAll, back) != Outcome::done) return "scan_back";
  std::ranges::reverse(back);
  return back == out ? "" : "scan_back differs";
}

template <class K>
std::string compare_part(const Payloads<K>& payloads, const Strings<K>& map, const Owned<K>& from,
                         const Owned<K>& to, std::size_t limit) {
  std::vector<PayloadEntry<K>> out;
  std::vector<PayloadEntry<K>> should;
  for (auto it = map.lower_bound(from); it != map.end() && should.size() < limit; ++it) {
    if (to < it->first) break;
    should.push_back({it->first, it->second});
  }
  if (payloads.scan(from, to, limit, out) != Outcome::done || out != should) return "a part";
  should.clear();
  auto it = map.upper_bound(from);
  while (it != map.begin() && should.size() < limit) {
    --it;
    should.push_back({it->first, it->second});
  }
  if (payloads.scan_back(K(from), limit, out) != Outcome::done || out != should) return "back";
  return {};
}

// Payloads beside their model.
template <class K>
class Beside {
 public:
  explicit Beside(std::string spec) : spec_(std::move(spec)) { reopen(); }

  void reopen() {
    payloads_.reset();
    pool_.reset();
    PoolOptions options = small_pool();
    options.max_bytes = 4 * kMostBytes;
    pool_.emplace(Pool::open(scratch_ / "pool", options).value());
    payloads_.emplace(pool_->index<K>("index", spec_).value().payloads().value());
  }

  // Whether it answered as it should.
  bool step(std::uint64_t kind, const Owned<K>& key, const std::string& payload) {
    const bool there = map_.contains(key);
    const Outcome if_there = there ? Outcome::done : Outcome::absent;
    switch (kind) {
      case 0:
      case 1:
        map_.try_emplace(key, payload);
        return payloads_->insert(key, payload) == (there ? Outcome::exists : Outcome::done);
      case 2:
      case 3:
        if (there) map_[key] = payload;
        return payloads_->update(key, payload) == if_there;
      case 4:
        map_[key] = payload;
        return payloads_->upsert(key, payload) == Outcome::done;
      case 5:
      case 6:
        map_.erase(key);
        return payloads_->remove(key) == if_there;
      default: {
        std::string found = "before";
        return payloads_->find(key, found) == if_there && found == (there ? map_[key] : "");
      }
    }
  }

  [[nodiscard]] std::string check() const {
    const std::string wrong = differs<K>(*payloads_, map_);
    return wrong.empty() ? unsound(*pool_) : wrong;
  }
  [[nodiscard]] const Strings<K>& map() const { return map_; }
  [[nodiscard]] const Payloads<K>& payloads() const { return *payloads_; }

 private:
  Scratch scratch_;
  std::string spec_;
  std::optional<Pool> pool_;
  std::optional<Payloads<K>> payloads_;
  Strings<K> map_;
};

TEST_P(PayloadsOf, AnyOperations) {
  with_keys([]<class K>(const std::string& spec) {
    Random random(seed());
    Beside<K> beside(spec);
    const std::size_t steps = scaled(20000);
    for (std::size_t i = 0; i < steps; ++i) {
      const std::uint64_t n = random.below(i % 5000 < 3500 ? 1000 : 100);
      const Owned<K> key = random.one_in(6) ? Keys<K>::odd(random) : Keys<K>::nth(n);
      ASSERT_TRUE(beside.step(random.below(8), key, odd_payload(random))) << "step " << i;
      if (random.one_in(200)) {
        static constexpr std::size_t kLimits[] = {0, 1, 5, 100, kAll};
        ASSERT_EQ(compare_part<K>(beside.payloads(), beside.map(), key, Keys<K>::odd(random),
                                  kLimits[random.below(std::size(kLimits))]),
                  "");
      }
      if (random.one_in(4000)) beside.reopen();
    }
    EXPECT_EQ(beside.check(), "");
    beside.reopen();
    EXPECT_EQ(beside.check(), "");
    // All memory of what is removed comes back: no block stays that nobody names.
    const Strings<K> all = beside.map();
    for (const auto& [key, payload] : all) ASSERT_TRUE(beside.step(5, key, {}));
    beside.reopen();
    EXPECT_EQ(beside.check(), "");
  });
}

// An index of payloads has numbers, too: those of at most eight bytes.
TEST_P(PayloadsOf, AreNumbers) {
  with_keys([]<class K>(const std::string& spec) {
    Pool pool = Pool::anonymous().value();
    auto index = pool.index<K>("index", spec).value();
    auto payloads = index.payloads().value();
    std::vector<Entry<K>> entries;
    for (std::uint64_t i = 0; i < 300; ++i) {
      const std::uint64_t value = i == 0 ? 0 : ~std::uint64_t{0} >> i % 64;
      entries.push_back({Keys<K>::nth(i), value});
    }
    ASSERT_EQ(index.bulk_load(entries), Outcome::done);
    std::string payload;
    for (const auto& entry : entries) {
      EXPECT_EQ(*index.find(entry.key), entry.value);
      ASSERT_EQ(payloads.find(entry.key, payload), Outcome::done);
      ASSERT_LE(payload.size(), sizeof entry.value);
      EXPECT_TRUE(payload.empty() || payload.back() != '\0');
      std::uint64_t value = 0;
      std::memcpy(&value, payload.data(), payload.size());
      EXPECT_EQ(value, entry.value);
    }
    EXPECT_EQ(index.update(entries[3].key, 0x6162), Outcome::done);
    ASSERT_EQ(payloads.find(entries[3].key, payload), Outcome::done);
    EXPECT_EQ(payload, "ba");
    // One that is no number.
    EXPECT_EQ(payloads.update(entries[5].key, "nine char"), Outcome::done);
    EXPECT_EQ(index.find(entries[5].key).outcome, Outcome::value_too_long);
    std::vector<Entry<K>> out;
    EXPECT_EQ(index.scan(K{}, kAll, out), Outcome::value_too_long);
    EXPECT_EQ(out.size(), 5U);
    EXPECT_EQ(index.scan_back({}, kAll, out), Outcome::value_too_long);
    EXPECT_EQ(out.size(), entries.size() - 6);
    std::vector<Lookup> answers;
    const std::vector<K> keys{entries[4].key, entries[5].key};
    index.find_many(keys, answers);
    EXPECT_EQ(answers[0].outcome, Outcome::done);
    EXPECT_EQ(answers[1].outcome, Outcome::value_too_long);
    EXPECT_EQ(index.remove(entries[5].key), Outcome::done);
    EXPECT_EQ(index.scan(K{}, kAll, out), Outcome::done);
    EXPECT_EQ(unsound(pool), "");
  });
}

TEST_P(PayloadsOf, Refusals) {
  with_keys([]<class K>(const std::string& spec) {
    const Scratch scratch;
    const Owned<K> key = Keys<K>::nth(1);
    const std::string longest(kMaxPayloadBytes, 'x');
    {
      Pool pool = Pool::open(scratch / "pool", small_pool()).value();
      auto payloads = pool.index<K>("index", spec).value().payloads().value();
      EXPECT_EQ(payloads.insert(key, longest + "x"), Outcome::value_too_long);
      EXPECT_EQ(payloads.upsert(key, longest + "x"), Outcome::value_too_long);
      std::string payload = "before";
      EXPECT_EQ(payloads.find(key, payload), Outcome::absent);
      EXPECT_EQ(payload, "");
      EXPECT_EQ(payloads.insert(key, longest), Outcome::done);
      EXPECT_EQ(payloads.update(key, longest + "x"), Outcome::value_too_long);
      EXPECT_EQ(payloads.find(key, payload), Outcome::done);
      EXPECT_EQ(payload, longest);
      // Others are not made, nor opened, as they are not.
      const auto numbers = pool.index<K>("numbers", "bztree");
      ASSERT_TRUE(numbers);
      const auto none = numbers->payloads();
      ASSERT_FALSE(none);
      EXPECT_EQ(none.error().code, Code::bad_argument);
      EXPECT_NE(none.error().message.find("values=bytes"), std::string::npos);
      EXPECT_FALSE(pool.index<K>("numbers", "bztree:values=bytes"));
      EXPECT_FALSE(pool.index<K>("index", "bztree:values=numbers"));
      EXPECT_FALSE(pool.index<K>("new", "bztree:values=letters"));
      EXPECT_FALSE(pool.index<K>("new", "bztree:values=bytes:inline=513"));
      EXPECT_TRUE(pool.index<K>("other", "wbtree"));
      EXPECT_FALSE(pool.index<K>("other").value().payloads());
    }
    PoolOptions reading = small_pool(Mode::read_only);
    Pool pool = Pool::open(scratch / "pool", reading).value();
    auto payloads = pool.index<K>("index").value().payloads().value();
    std::string payload;
    EXPECT_EQ(payloads.find(key, payload), Outcome::done);
    EXPECT_EQ(payload, longest);
    EXPECT_EQ(payloads.upsert(key, "short"), Outcome::read_only);
    EXPECT_EQ(payloads.remove(key), Outcome::read_only);
  });
}

// Until nothing fits, then half is removed, and again: what was refused changed nothing, and no
// block is lost.
TEST_P(PayloadsOf, OnAFullPool) {
  with_keys([]<class K>(const std::string& spec) {
    const Scratch scratch;
    PoolOptions options = small_pool();
    options.max_bytes = std::uint64_t{2} << 20;
    Pool pool = Pool::open(scratch / "pool", options).value();
    auto payloads = pool.index<K>("index", spec).value().payloads().value();
    Random random(5);
    Strings<K> map;
    for (int round = 0; round < 3; ++round) {
      Outcome outcome = Outcome::done;
      for (std::uint64_t i = 0; outcome == Outcome::done; ++i) {
        ASSERT_LT(i, 200'000U);
        const Owned<K> key = Keys<K>::nth(random.below(20'000));
        std::string payload(random.below(400), static_cast<char>('a' + i % 26));
        outcome = payloads.upsert(key, payload);
        if (outcome == Outcome::done) map[key] = std::move(payload);
      }
      EXPECT_EQ(outcome, Outcome::out_of_space);
      EXPECT_EQ(differs<K>(payloads, map), "");
      EXPECT_EQ(unsound(pool), "");
      bool odd = false;
      for (auto it = map.begin(); it != map.end(); odd = !odd) {
        if (odd) {
          ++it;
          continue;
        }
        ASSERT_EQ(payloads.remove(it->first), Outcome::done);
        it = map.erase(it);
      }
    }
    EXPECT_EQ(differs<K>(payloads, map), "");
    EXPECT_EQ(unsound(pool), "");
  });
}

// Words that damage makes of payloads' words: each is an answer, and none leads out of the pool.
TEST_P(PayloadsOf, InADamagedPool) {
  with_keys([]<class K>(const std::string& spec) {
    const Scratch scratch;
    {
      Pool pool = Pool::open(scratch / "pool", small_pool()).value();
      auto payloads = pool.index<K>("index", spec).value().payloads().value();
      Random random(6);
      for (std::uint64_t i = 0; i < 200; ++i) {
        ASSERT_EQ(payloads.insert(Keys<K>::nth(i), odd_payload(random)), Outcome::done);
      }
    }
    const std::vector<std::byte> sound = read_bytes(scratch / "pool");
    Random random(seed());
    const auto words = static_cast<std::uint64_t>(sound.size() / sizeof(std::uint64_t));
    constexpr std::uint64_t kHeapWord = pmem::kHeapAt / sizeof(std::uint64_t);
    std::size_t opened = 0;
    std::size_t found = 0;
    for (std::size_t round = 0; round < scaled(60); ++round) {
      std::vector<std::byte> bytes = sound;
      std::uint64_t done = 0;
      // Of those that are not zero, some: most lie in nodes and payloads.
      for (std::uint64_t tries = 0; tries < 100'000 && done < 30; ++tries) {
        const std::uint64_t at = (kHeapWord + random.below(words - kHeapWord)) * 8;
        std::uint64_t word = 0;
        std::memcpy(&word, &bytes[at], sizeof word);
        if (word == 0) continue;
        switch (random.below(4)) {
          case 0:
            word ^= std::uint64_t{1} << random.below(64);
            break;
          case 1:
            word += random.below(1000) << 17;
            break;
          case 2:
            word |= std::uint64_t{0x1FFFF};
            break;
          default:
            word = random.word() >> random.below(64);
        }
        std::memcpy(&bytes[at], &word, sizeof word);
        ++done;
      }
      write_bytes(scratch / "damaged", bytes);
      auto pool = Pool::open(scratch / "damaged", small_pool());
      if (!pool) continue;
      (void)pool->check();
      auto index = pool->index<K>("index");
      if (!index) continue;
      auto payloads = index->payloads();
      ASSERT_TRUE(payloads);
      std::string payload;
      std::vector<PayloadEntry<K>> out;
      for (std::uint64_t i = 0; i < 200; ++i) {
        found += payloads->find(Keys<K>::nth(i), payload) == Outcome::done ? 1 : 0;
        EXPECT_LE(payload.size(), kMaxPayloadBytes);
        if (i % 3 == 0) (void)payloads->update(Keys<K>::nth(i), odd_payload(random));
        if (i % 3 == 1) (void)payloads->remove(Keys<K>::nth(i));
      }
      (void)payloads->scan(K{}, 1000, out);
      (void)payloads->scan_back({}, 1000, out);
      ++opened;
    }
    if (scaled(60) < 10) return;  // a single pool may be refused
    EXPECT_GT(opened, 0U);
    EXPECT_GT(found, 0U);
  });
}

// The only leaf of a tree of one: entry 0's value.
std::uint64_t* value_word(Pool& pool, std::uint64_t page) {
  pmem::Medium& medium = PoolAccess::state(pool).medium();
  const auto* const entry = medium.at<pmem::DirectoryEntry>(pmem::kDirectoryAt);
  const auto* const root = medium.at<tree::bztree::RootAt>(entry->root);
  std::byte* const leaf = medium.at(root->child);
  const std::uint32_t metas = 16 + tree::bztree::fingerprints_of(static_cast<std::uint32_t>(page));
  std::uint64_t meta = 0;
  std::memcpy(&meta, leaf + metas, sizeof meta);
  return reinterpret_cast<std::uint64_t*>(leaf + tree::bztree::Meta{meta}.offset());
}

// Each thing that a payload's word can wrongly say is noticed by `check`, and by who would read
// something else than a payload.
TEST_P(PayloadsOf, WordsThatAreWrong) {
  with_keys([]<class K>(const std::string& spec) {
    using tree::bztree::PayloadAt;
    const std::uint64_t page = spec.contains("page=256")    ? 256
                               : spec.contains("page=512")  ? 512
                               : spec.contains("page=4096") ? 4096
                                                            : 1024;
    const Owned<K> key = Keys<K>::nth(1);
    for (const bool in_block : {false, true}) {
      Pool pool = Pool::anonymous().value();
      auto payloads = pool.index<K>("index", spec).value().payloads().value();
      const std::string text(in_block ? 2000 : 0, 'x');
      ASSERT_EQ(payloads.insert(key, text), Outcome::done);
      std::uint64_t& word = *value_word(pool, page);
      const std::uint64_t right = word;
      const PayloadAt is = PayloadAt::of(right);
      ASSERT_EQ(is.bytes, text.size());
      ASSERT_EQ(is.at != 0, in_block);
      const std::uint64_t size = PoolAccess::state(pool).medium().size();
      struct Wrong {
        PayloadAt says;
        bool readable;  // as some bytes of the pool
      };
      std::vector<Wrong> all{{{0, 2000}, false},         // behind the key, too long
                             {{size - 8, 2000}, false},  // ends outside
                             {{size * 2, 2000}, false},  // begins there
                             {{64, 2000}, false},        // in the pool's header
                             {{is.at, 70'000}, false}};  // longer than any
      if (in_block) {
        all.push_back({{is.at, 60'000}, true});     // longer than its block
        all.push_back({{is.at + 64, 1900}, true});  // in the midst of it
        all.push_back({{is.at, 0}, true});          // short, and in a block
      } else {
        all.push_back({{0, 1}, false});  // longer than its record
      }
      for (const auto& [says, readable] : all) {
        word = says.word();
        const std::string how = std::to_string(says.at) + " " + std::to_string(says.bytes);
        EXPECT_NE(unsound(pool), "") << how;
        std::string payload;
        std::vector<PayloadEntry<K>> out;
        const Outcome outcome = readable ? Outcome::done : Outcome::corrupt;
        EXPECT_EQ(payloads.find(key, payload), outcome) << how;
        EXPECT_EQ(payloads.scan(K{}, kAll, out), outcome) << how;
        EXPECT_EQ(payloads.scan_back({}, kAll, out), outcome) << how;
      }
      word = right;
      EXPECT_EQ(unsound(pool), "");
    }
  });
}

// Keys that lie where the answer goes; sizes that are counted beside writers.
TEST_P(PayloadsOf, KeysInTheAnswer) {
  Pool pool = Pool::anonymous().value();
  auto payloads = pool.index<Bytes>("index", GetParam().spec).value().payloads().value();
  ASSERT_EQ(payloads.insert("a key that is longer than a small string", "value"), Outcome::done);
  std::string text = "a key that is longer than a small string";
  EXPECT_EQ(payloads.find(text, text), Outcome::done);
  EXPECT_EQ(text, "value");
  EXPECT_EQ(payloads.find(text, text), Outcome::absent);
  EXPECT_EQ(text, "");
}

TEST_P(PayloadsOf, AreCountedBesideUpdates) {
  with_keys([]<class K>(const std::string& spec) {
    Pool pool = Pool::anonymous().value();
    auto index = pool.index<K>("index", spec).value();
    auto payloads = index.payloads().value();
    constexpr std::uint64_t kKeys = 500;
    const std::string text(600, 'x');
    for (std::uint64_t i = 0; i < kKeys; ++i) {
      ASSERT_EQ(payloads.insert(Keys<K>::nth(i), text), Outcome::done);
    }
    std::atomic<bool> stop = false;
    std::thread writer([&] {
      Random random(3);
      while (!stop) (void)payloads.update(Keys<K>::nth(random.below(kKeys)), text);
    });
    // A leaf that is replaced meanwhile may be counted as it was.
    std::uint64_t wrong = 0;
    for (std::size_t i = 0; i < scaled(200); ++i) wrong += index.size() == kKeys ? 0 : 1;
    stop = true;
    writer.join();
    EXPECT_EQ(wrong, 0U);
    EXPECT_EQ(unsound(pool), "");
  });
}

// A payload says which key it belongs to, and from its first byte to its last which write made it.
std::string stamped(std::uint64_t key, std::uint64_t n) {
  std::string payload = std::to_string(key) + ":";
  payload.append(n * 7 % 300, static_cast<char>('a' + n % 26));
  return payload;
}
bool fits(std::uint64_t key, std::string_view payload) {
  const std::string head = std::to_string(key) + ":";
  return payload.starts_with(head) &&
         payload.substr(head.size()).find_first_not_of(payload.back()) == std::string_view::npos;
}

constexpr std::uint64_t kShared = 60;  // keys, of which every third one is always there

// How often something was wrong.
template <class K>
std::uint64_t write_shared(Payloads<K> payloads, std::uint64_t seed) {
  Random random(seed);
  std::uint64_t wrong = 0;
  const std::size_t writes = scaled(15000);
  for (std::uint64_t n = 1; n <= writes; ++n) {
    const std::uint64_t i = random.below(kShared);
    const Owned<K> key = Keys<K>::nth(i);
    const std::string payload = stamped(i, n);
    Outcome outcome = Outcome::done;
    if (i % 3 == 0) {
      outcome = payloads.update(key, payload);
    } else if (random.one_in(2)) {
      outcome = payloads.upsert(key, payload);
    } else {
      outcome = payloads.remove(key);
      if (outcome == Outcome::absent) outcome = Outcome::done;
    }
    if (outcome != Outcome::done) ++wrong;
  }
  return wrong;
}

template <class K>
std::uint64_t read_shared(const Payloads<K>& payloads, Random& random) {
  std::uint64_t wrong = 0;
  std::string payload;
  const std::uint64_t i = random.below(kShared);
  const Outcome outcome = payloads.find(Keys<K>::nth(i), payload);
  if (outcome == Outcome::done ? !fits(i, payload) : outcome != Outcome::absent || i % 3 == 0) {
    ++wrong;
  }
  std::vector<PayloadEntry<K>> out;
  const Outcome scanned =
      random.one_in(2) ? payloads.scan(K{}, kAll, out) : payloads.scan_back({}, kAll, out);
  if (scanned != Outcome::done) ++wrong;
  std::uint64_t stayed = 0;
  for (const auto& entry : out) {
    std::uint64_t k = 0;
    while (k < kShared && Keys<K>::nth(k) != entry.key) ++k;
    if (k == kShared || !fits(k, entry.payload)) ++wrong;
    if (k % 3 == 0) ++stayed;
  }
  return wrong + (stayed == kShared / 3 ? 0 : 1);
}

TEST_P(PayloadsOf, BesideThreads) {
  with_keys([]<class K>(const std::string& spec) {
    const Scratch scratch;
    Pool pool = Pool::open(scratch / "pool", small_pool()).value();
    auto payloads = pool.index<K>("index", spec).value().payloads().value();
    for (std::uint64_t i = 0; i < kShared; i += 3) {
      ASSERT_EQ(payloads.insert(Keys<K>::nth(i), stamped(i, 0)), Outcome::done);
    }
    std::atomic<int> writers = 2;
    std::atomic<std::uint64_t> wrong = 0;
    std::vector<std::thread> threads;
    for (std::uint64_t t = 0; t < 2; ++t) {
      threads.emplace_back([&, t] {
        wrong += write_shared<K>(payloads, t);
        --writers;
      });
    }
    threads.emplace_back([&] {
      Random random(7);
      while (writers != 0) wrong += read_shared<K>(payloads, random);
    });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(wrong, 0U);
    EXPECT_EQ(unsound(pool), "");
    Random random(8);
    for (int i = 0; i < 200; ++i) EXPECT_EQ(read_shared<K>(payloads, random), 0U);
  });
}

}  // namespace
}  // namespace everleaf::test
