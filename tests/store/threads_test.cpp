// Writers, readers, cursors, batches, drops and a backup, all at once.
#include <atomic>
#include <thread>

#include "stores.hpp"

namespace everleaf::test {
namespace {

class Threads : public EveryStore {
 protected:
  StoreOptions options() const {
    StoreOptions options = small_store(GetParam());
    options.pool.epoch_length = std::chrono::microseconds(200);
    return options;
  }
  Scratch scratch_;
  Store store_ = Store::open(scratch_ / "s", options()).value();
};
EVERLEAF_EVERY_STORE(Threads);

// Threads that run until then end, whatever a test comes to.
struct Stop {
  std::atomic<bool>& stop;
  ~Stop() { stop = true; }
};

// A value says which key it belongs to, and from its first byte to its last which write made it.
std::string stamped(std::uint64_t key, std::uint64_t n) {
  std::string value = std::to_string(key);
  value += ':';
  value.append(10 + n % 300, static_cast<char>('a' + n % 26));
  return value;
}
bool fits(std::uint64_t key, Bytes value) {
  const std::string head = std::to_string(key) + ":";
  return value.starts_with(head) &&
         value.substr(head.size()).find_first_not_of(value.back()) == Bytes::npos;
}

// Who stays (n * 1000 + 999) is met, each once, in order; how often that is not so.
std::uint64_t walk(const Table<std::uint64_t>& table, std::uint64_t from, bool up) {
  std::uint64_t wrong = 0;
  std::uint64_t stayed = 0;
  std::optional<std::uint64_t> last;
  auto cursor = table.cursor(from);
  for (up ? cursor.first() : cursor.last(); cursor.valid(); up ? cursor.next() : cursor.prev()) {
    if (!fits(cursor.key(), cursor.value())) ++wrong;
    if (last && (up ? cursor.key() <= *last : cursor.key() >= *last)) ++wrong;
    last = cursor.key();
    if (*last % 1000 != 999) continue;
    const std::uint64_t group = *last / 1000;
    if (stayed != 0 && group != (up ? stayed : stayed - 2)) ++wrong;
    stayed = group + 1;
  }
  return wrong + (cursor.outcome() == Outcome::done ? 0 : 1);
}

TEST_P(Threads, EveryOneItsKeys) {
  constexpr std::uint64_t kWriters = 3;
  constexpr std::uint64_t kKeys = 200;  // of each, and as many that stay
  auto table = store_.table<std::uint64_t>("t").value();
  for (std::uint64_t key = 0; key < kKeys; ++key) {
    ASSERT_EQ(table.put(key * 1000 + 999, stamped(key * 1000 + 999, 0)), Outcome::done);
  }
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> wrong{0};
  std::array<std::map<std::uint64_t, std::string>, kWriters> maps;
  const auto writer = [&](std::uint64_t w) {
    Random random(w + 1);
    for (std::uint64_t i = 0; i < scaled(6000); ++i) {
      const std::uint64_t key = random.below(kKeys) * 1000 + w;
      const std::string value = stamped(key, random.word() % 100000);
      Outcome is = Outcome::done;
      if (random.one_in(4)) {
        is = table.erase(key);
        wrong += is == (maps[w].erase(key) != 0 ? Outcome::done : Outcome::absent) ? 0U : 1U;
        continue;
      }
      if (random.one_in(8)) {
        Batch batch;
        for (std::uint64_t n = 0; n < 5; ++n) {
          const std::uint64_t one = random.below(kKeys) * 1000 + w;
          batch.put<std::uint64_t>(table, one, stamped(one, i));
          maps[w][one] = stamped(one, i);
        }
        is = store_.apply(batch);
      } else {
        is = table.put(key, value);
        maps[w][key] = value;
      }
      wrong += is == Outcome::done ? 0U : 1U;
    }
  };
  const auto reader = [&](std::uint64_t r) {
    Random random(r + 100);
    std::string value;
    while (!stop.load()) {
      const std::uint64_t key = random.below(kKeys) * 1000 + random.below(kWriters);
      const Outcome is = table.get(key, value);
      if (is == Outcome::done ? !fits(key, value) : is != Outcome::absent) ++wrong;
      const View view = table.get_view(key);
      if (view && !fits(key, *view)) ++wrong;
      wrong += walk(table, random.below(kKeys) * 1000, random.one_in(2));
    }
  };
  {
    std::vector<std::jthread> readers;
    for (std::uint64_t r = 0; r < 2; ++r) readers.emplace_back(reader, r);
    std::vector<std::jthread> writers;
    for (std::uint64_t w = 0; w < kWriters; ++w) writers.emplace_back(writer, w);
    writers.clear();
    stop = true;
  }
  EXPECT_EQ(wrong.load(), 0U);
  for (const auto& map : maps) {
    for (const auto& [key, value] : map) ASSERT_EQ(table.get(key).value(), value);
  }
  EXPECT_EQ(table.count(), kKeys + maps[0].size() + maps[1].size() + maps[2].size());
  EXPECT_EQ(unsound(store_), "");
}

// Compare-and-set counts, batches move: no update is lost, the sum stays.
TEST_P(Threads, SharedKeys) {
  constexpr std::uint64_t kThreads = 4;
  auto counters = store_.table<std::uint64_t>("counters").value();
  auto accounts = store_.table("accounts").value();
  for (std::uint64_t k = 0; k < 4; ++k) ASSERT_EQ(counters.put(k, "0"), Outcome::done);
  const std::uint64_t times = scaled(1500);
  std::atomic<std::uint64_t> wrong{0};
  const auto work = [&](std::uint64_t t) {
    Random random(t);
    for (std::uint64_t i = 0; i < times; ++i) {
      const std::uint64_t key = random.below(4);
      while (true) {
        const std::string old = counters.get(key).value();
        const Outcome is = counters.compare_and_set(key, old, std::to_string(std::stoull(old) + 1));
        if (is == Outcome::done) break;
        if (is != Outcome::differs) ++wrong;
      }
      // All of a batch's keys have one value once no batch runs: the last one's.
      Batch batch;
      for (const char* const name : {"x", "y", "z"}) {
        batch.put<Bytes>(accounts, name, std::to_string(t * times + i));
      }
      if (store_.apply(batch) != Outcome::done) ++wrong;
    }
  };
  {
    std::vector<std::jthread> threads;
    for (std::uint64_t t = 0; t < kThreads; ++t) threads.emplace_back(work, t);
  }
  EXPECT_EQ(wrong.load(), 0U);
  std::uint64_t sum = 0;
  for (std::uint64_t k = 0; k < 4; ++k) sum += std::stoull(counters.get(k).value());
  EXPECT_EQ(sum, kThreads * times);
  EXPECT_EQ(accounts.get("x").value(), accounts.get("y").value());
  EXPECT_EQ(accounts.get("x").value(), accounts.get("z").value());
  EXPECT_EQ(unsound(store_), "");
}

TEST_P(Threads, DropsUnderReadersAndWriters) {
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> wrong{0};
  auto stays = store_.table("stays").value();
  const auto work = [&](std::uint64_t t) {
    Random random(t);
    while (!stop.load()) {
      auto table = store_.table<std::uint64_t>("goes");
      if (!table) {
        ++wrong;
        return;
      }
      for (int i = 0; i < 200; ++i) {
        const std::uint64_t key = random.below(100);
        const Outcome put = table->put(key, stamped(key, random.below(1000)));
        const View view = table->get_view(key);
        if (view ? !fits(key, *view) : view.outcome() == Outcome::corrupt) ++wrong;
        if (put != Outcome::done && put != Outcome::dropped) ++wrong;
        if (put == Outcome::dropped) break;
        if (stays.put(std::to_string(key), "v") != Outcome::done) ++wrong;
      }
      auto cursor = table->cursor();
      for (cursor.first(); cursor.valid(); cursor.next()) {
        if (!fits(cursor.key(), cursor.value())) ++wrong;
      }
    }
  };
  {
    std::vector<std::jthread> threads;
    for (std::uint64_t t = 0; t < 3; ++t) threads.emplace_back(work, t);
    for (std::uint64_t i = 0; i < scaled(60); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      const auto dropped = store_.drop_table("goes");
      if (!dropped && dropped.error().code != Code::not_found) ++wrong;
    }
    stop = true;
  }
  EXPECT_EQ(wrong.load(), 0U);
  EXPECT_EQ(unsound(store_), "");
}

// Each key's values grow; pairs are written by batches. The copy shows one instant: pairs are
// equal, and a writer that counts has no gap.
TEST_P(Threads, BackupUnderWriters) {
  auto pairs = store_.table<std::uint64_t>("pairs").value();
  auto counts = store_.table("counts").value();
  for (std::uint64_t k = 0; k < 2000; ++k) ASSERT_EQ(pairs.put(k, "0"), Outcome::done);
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> wrong{0};
  const std::jthread pair_writer([&] {
    Random random(1);
    for (std::uint64_t i = 1; !stop.load(); ++i) {
      const std::uint64_t k = random.below(1000);
      Batch batch;
      batch.put<std::uint64_t>(pairs, k, std::to_string(i));
      batch.put<std::uint64_t>(pairs, k + 1000, std::to_string(i));
      if (store_.apply(batch) != Outcome::done) ++wrong;
    }
  });
  const std::jthread counter([&] {
    for (std::uint64_t i = 0; !stop.load(); ++i) {
      if (counts.put(std::to_string(i % 100), std::to_string(i)) != Outcome::done) ++wrong;
    }
  });
  const Stop at_the_end{stop};
  for (int n = 0; n < 3; ++n) {
    const auto path = scratch_ / ("copy" + std::to_string(n));
    const auto made = store_.backup(path);
    ASSERT_TRUE(made) << made.error().message;
    auto copy = Store::open(path, options()).value();
    const auto copied = content_of(copy.table<std::uint64_t>("pairs").value());
    ASSERT_EQ(copied.size(), 2000U);
    for (std::uint64_t k = 0; k < 1000; ++k) ASSERT_EQ(copied.at(k), copied.at(k + 1000));
    std::vector<std::uint64_t> seen;
    for (const auto& [key, value] : content_of(copy.table("counts").value())) {
      seen.push_back(std::stoull(value));
    }
    std::ranges::sort(seen);
    for (std::size_t i = 1; i < seen.size(); ++i) ASSERT_EQ(seen[i], seen[i - 1] + 1);
    EXPECT_EQ(unsound(copy), "");
  }
  EXPECT_EQ(wrong.load(), 0U);
}

}  // namespace
}  // namespace everleaf::test
