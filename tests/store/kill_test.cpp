// kill -9 at any moment, with the clock running: what is there afterwards is what some number of
// the operations left, batches whole, no fewer than were acknowledged.
#include <atomic>
#include <chrono>
#include <csignal>
#include <thread>

#include <sys/wait.h>
#include <unistd.h>

#include "shared_log.hpp"
#include "stores.hpp"

namespace everleaf::test {
namespace {

// What a child tells its parent, in shared memory that outlives it.
struct Log {
  std::atomic<std::uint64_t> started{0};
  std::atomic<std::uint64_t> acknowledged{0};
};

using Two = std::array<Content, 2>;
constexpr std::array kNames{"a", "b"};

struct Change {
  std::size_t table;
  std::string key;
  std::optional<std::string> value;
};

// The i-th operation: one change, or a batch of them; or a table goes.
struct Operation {
  std::vector<Change> changes;
  bool drop = false;
};
Operation operation(std::uint64_t seed, std::uint64_t i) {
  Random random(seed * 1'000'003 + i);
  Operation op;
  op.drop = i % 501 == 500;
  const std::uint64_t count = random.one_in(4) ? 2 + random.below(20) : 1;
  for (std::uint64_t n = 0; n < count; ++n) {
    Change change{random.below(2), Keys<Bytes>::nth(random.below(400)), std::nullopt};
    if (!random.one_in(3)) change.value = value_of(random.word(), 5000);
    op.changes.push_back(std::move(change));
  }
  return op;
}

void remember(Two& maps, const Operation& op) {
  if (op.drop) {
    maps[0].clear();
    return;
  }
  for (const Change& change : op.changes) {
    if (change.value) {
      maps[change.table][change.key] = *change.value;
    } else {
      maps[change.table].erase(change.key);
    }
  }
}

bool perform(Store& store, const Operation& op) {
  if (op.drop) {
    // The drop is durable at once, and so is what came before it.
    return store.sync() == Outcome::done && store.drop_table(kNames[0]).has_value() &&
           store.table(kNames[0]).has_value();
  }
  Batch batch;
  for (const Change& change : op.changes) {
    auto table = store.table(kNames[change.table]);
    if (!table) return false;
    if (op.changes.size() == 1) {
      const Outcome outcome =
          change.value ? table->put(change.key, *change.value) : table->erase(change.key);
      return outcome == Outcome::done || outcome == Outcome::absent;
    }
    change.value ? batch.put<Bytes>(*table, change.key, *change.value)
                 : batch.erase<Bytes>(*table, change.key);
  }
  return store.apply(batch) == Outcome::done;
}

// Never returns: works until it is killed.
[[noreturn]] void child(const std::filesystem::path& path, Durability durability,
                        std::uint64_t seed, Log& log) {
  auto store = Store::open(path, small_store(durability));
  if (!store) ::_exit(2);
  for (const char* const name : kNames) {
    if (!store->table(name)) ::_exit(3);
  }
  for (std::uint64_t i = log.started.load();; ++i) {
    log.started.store(i + 1);
    const Operation op = operation(seed, i);
    if (!perform(*store, op)) ::_exit(4);
    const bool synced = durability == Durability::strict || op.drop ||
                        (i % 97 == 0 && store->sync() == Outcome::done);
    if (synced) log.acknowledged.store(i + 1);
  }
}

class Killed : public EveryStore {};
EVERLEAF_EVERY_STORE(Killed);

TEST_P(Killed, AtAnyMoment) {
  Scratch scratch;
  const std::uint64_t number = seed();
  Random random(number);
  SharedLog<Log> log;
  Two maps;
  std::uint64_t done = 0;  // operations that `maps` has
  const std::size_t rounds = scaled(12);
  for (std::size_t round = 0; round < rounds; ++round) {
    const pid_t pid = ::fork();
    if (pid == 0) child(scratch / "s", GetParam(), number, *log.operator->());
    ASSERT_GT(pid, 0);
    const std::uint64_t enough = done + 1 + random.below(400);
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (log->started.load() < enough && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
    ::kill(pid, SIGKILL);
    int status = 0;
    ::waitpid(pid, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status)) << WEXITSTATUS(status);
    auto store = Store::open(scratch / "s", small_store(GetParam())).value();
    Two is;
    for (std::size_t t = 0; t < 2; ++t) {
      auto table = store.table(kNames[t]);  // may be gone
      ASSERT_TRUE(table);
      std::string wrong;
      is[t] = content_of(*table, &wrong);
      ASSERT_EQ(wrong, "");
    }
    const std::uint64_t started = log->started.load();
    for (; done < log->acknowledged.load(); ++done) remember(maps, operation(number, done));
    for (; is != maps && done < started; ++done) remember(maps, operation(number, done));
    ASSERT_EQ(is, maps) << "after " << started << " operations";
    ASSERT_EQ(unsound(store), "");
    ASSERT_EQ(store.info()->records, maps[0].size() + maps[1].size());
    // The next child goes on from here.
    log->started.store(done);
    log->acknowledged.store(done);
  }
  EXPECT_GT(done, rounds);
}

}  // namespace
}  // namespace everleaf::test
