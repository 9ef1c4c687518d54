// Where memory is out, a call on a store answers so and has changed nothing; and nothing is lost
// for the next session. Each call here fails at its first allocation, then at its second, and so
// on.
#include <new>

#include <everleaf/store.hpp>

#include "fails_at.hpp"
#include "hooks.hpp"
#include "support.hpp"

namespace everleaf::test {
namespace {

using Content = std::map<std::string, std::string>;

class StoreShortOfMemory : public ::testing::TestWithParam<Durability> {
 protected:
  StoreOptions options() const {
    StoreOptions options;
    options.pool = small_pool();
    options.pool.epoch_length = {};
    options.durability = GetParam();
    return options;
  }

  // Until it is not refused for lack of memory; the content is as it was after each refusal.
  template <class Call>
  Outcome insist(Call call) {
    for (int allocation = 1;; ++allocation) {
      Outcome is = Outcome::done;
      {
        const FailsAt fails(allocation);
        is = call();
      }
      if (is != Outcome::out_of_space) return is;
      EXPECT_TRUE(failed);
      ++refusals_;
      if (allocation % 4 == 1) expect_content();
      if (::testing::Test::HasFailure()) return is;
    }
  }

  void expect_content() {
    Content is;
    auto cursor = store_->table("t")->cursor();
    for (cursor.first(); cursor.valid(); cursor.next()) is.emplace(cursor.key(), cursor.value());
    EXPECT_EQ(cursor.outcome(), Outcome::done);
    EXPECT_EQ(is, map_);
  }

  Scratch scratch_;
  std::optional<Store> store_;
  Content map_;
  std::uint64_t refusals_ = 0;
};
INSTANTIATE_TEST_SUITE_P(Stores, StoreShortOfMemory,
                         ::testing::Values(Durability::buffered, Durability::strict),
                         [](const auto& one) { return std::string(to_string(one.param)); });

TEST_P(StoreShortOfMemory, NothingIsHalfDone) {
  Random random(seed());
  store_.emplace(Store::open(scratch_ / "s", options()).value());
  {
    auto table = store_->table("t").value();
    for (int i = 0; i < 250 && !HasFailure(); ++i) {
      const std::string key = Keys<Bytes>::nth(random.below(120));
      const std::string other = Keys<Bytes>::nth(random.below(120));
      const std::string value(random.below(300), 'v');
      if (i % 3 == 0) {
        Batch batch;
        batch.put<Bytes>(table, key, value);
        batch.erase<Bytes>(table, other);
        ASSERT_EQ(insist([&] { return store_->apply(batch); }), Outcome::done);
        map_[key] = value;
        map_.erase(other);
      } else if (i % 3 == 1) {
        ASSERT_EQ(insist([&] { return table.put(key, value); }), Outcome::done);
        map_[key] = value;
      } else {
        const Outcome is = insist([&] { return table.erase(key); });
        ASSERT_EQ(is, map_.erase(key) != 0 ? Outcome::done : Outcome::absent);
      }
      std::string read;
      const Outcome got = insist([&] { return table.get(key, read); });
      ASSERT_EQ(got, map_.contains(key) ? Outcome::done : Outcome::absent);
      auto cursor = table.cursor();
      for (int allocation = 1;; ++allocation) {
        const FailsAt fails(allocation);
        if (cursor.seek(key)) break;
        if (cursor.outcome() == Outcome::done) break;
        ASSERT_EQ(cursor.outcome(), Outcome::out_of_space);
      }
      if (i % 7 == 0) {
        const FailsAt fails(1 + i % 3);
        ASSERT_EQ(store_->pool().advance_epoch(), Outcome::done);
      }
    }
  }
  EXPECT_GT(refusals_, 50U);
  expect_content();
  store_.reset();
  store_.emplace(Store::open(scratch_ / "s", options()).value());
  expect_content();
  EXPECT_EQ(store_->info()->records, map_.size());
  EXPECT_TRUE(store_->check()->problems.empty());
}

// A drop is refused, or happens; in either case all blocks belong to somebody, at the latest after
// the next open.
TEST_P(StoreShortOfMemory, Drops) {
  int allocation = 1;
  for (bool over = false; !over && !HasFailure(); ++allocation) {
    store_.emplace(Store::open(scratch_ / "s", options()).value());
    {
      auto table = store_->table("t").value();
      for (std::uint64_t i = 0; i < 200; ++i) {
        ASSERT_EQ(table.put(Keys<Bytes>::nth(i), std::string(i, 'v')), Outcome::done);
      }
    }
    bool there = true;
    {
      const FailsAt fails(allocation);
      const auto dropped = store_->drop_table("t");
      over = !failed;
      if (!dropped) {
        EXPECT_EQ(dropped.error().code, Code::out_of_space);
      }
    }
    there = !store_->tables()->empty();
    EXPECT_TRUE(store_->check()->problems.empty());
    if (there) {
      EXPECT_EQ(store_->table("t")->count(), 200U);
    }
    store_.reset();
    store_.emplace(Store::open(scratch_ / "s", options()).value());
    EXPECT_EQ(store_->info()->records, there ? 200U : 0U);
    EXPECT_EQ(store_->check()->problems, std::vector<std::string>());
    store_.reset();
  }
  EXPECT_GT(allocation, 3);
}

// Every call of a session, over every tree: memory ends at the n-th allocation of the call, and is
// there again after it. The stories: std::terminate, where a destructor gave blocks back
// (pmwcas::Descriptor), or walked nodes (LodgeTree), and a list or a key's copy found no memory.
class StoreWithoutMemory : public ::testing::TestWithParam<std::string> {};

class Session {
 public:
  Session(std::filesystem::path path, const std::string& spec)
      : path_(std::move(path)), spec_(spec) {
    options_.pool = small_pool();
    options_.pool.epoch_length = {};
    options_.durability = durability_of(spec);
  }

  // Memory ends at allocation `n`: of the open, of each write, of the batch, ...
  void run(int n) {
    open(n);
    ASSERT_NO_FATAL_FAILURE(expect_content("opened"));
    write(n);
    ASSERT_NO_FATAL_FAILURE(expect_content("written"));
    apply(n);
    ASSERT_NO_FATAL_FAILURE(expect_content("batch"));
    if (n % 5 == 0) {
      ASSERT_NO_FATAL_FAILURE(drop(n / 5));
    }
    if (n % 7 == 0) {
      ASSERT_NO_FATAL_FAILURE(backup(n));
    }
    ASSERT_NO_FATAL_FAILURE(expect_content("dropped"));
    if (n % 3 == 1) {
      EXPECT_EQ(store_->check()->problems, std::vector<std::string>());
    }
    // The last handle goes, be it by close() or not.
    const FailsAt fails(1 + n % 23, Fails::for_good);
    if (n % 2 == 0) {
      table_.reset();
      (void)without([&] { return store_->close().has_value(); });
    }
    table_.reset();
    store_.reset();
  }

  [[nodiscard]] std::uint64_t failures() const { return failures_; }

 private:
  static Durability durability_of(const std::string& spec) {
    for (const TreeInfo& one : trees()) {
      if (spec.substr(0, spec.find(':')) == one.name) return one.durability;
    }
    ADD_FAILURE() << spec;
    return {};
  }

  // What `call` answers, false where it throws.
  template <class Call>
  bool without(Call call) {
    try {
      return call();
    } catch (const std::bad_alloc&) {
      return false;
    }
  }
  template <class Call>
  bool failing(int n, Call call) {
    const FailsAt fails(n, Fails::for_good);
    const bool done = without(call);
    failures_ += failed ? 1 : 0;
    return done;
  }
  // A write that throws has no excuse.
  template <class Call>
  Outcome writing(int n, Call call) {
    Outcome is = Outcome::corrupt;
    EXPECT_TRUE(failing(n, [&] {
      is = call();
      return true;
    }));
    return is;
  }

  void open(int n) {
    const auto opens = [&] {
      auto opened = Store::open(path_, options_);
      if (opened) store_.emplace(std::move(*opened));
      return opened.has_value();
    };
    if (!failing(1 + n % 97, opens)) {
      ASSERT_TRUE(opens());
    }
    const auto finds = [&] {
      auto table = store_->table("t", spec_);
      if (table) table_.emplace(std::move(*table));
      return table.has_value();
    };
    if (!failing(1 + n % 23, finds)) {
      ASSERT_TRUE(finds());
    }
  }

  void write(int n) {
    for (int i = 0; i < 40; ++i) {
      const std::string key = std::to_string(n * 13 % 50 + i * 7) +
                              std::string(static_cast<std::size_t>(i % 3 * 40), 'x');
      const std::string value(static_cast<std::size_t>(n * i % 3000), 'v');
      const Outcome put = writing(1 + (n + i) % 7, [&] { return table_->put(key, value); });
      if (put == Outcome::done) map_[key] = value;
      ASSERT_TRUE(put == Outcome::done || put == Outcome::out_of_space) << to_string(put);
      if (i % 4 != 0) continue;
      const std::string gone = std::to_string(i * 7 + n % 50);
      const Outcome erased = writing(1 + (n + i) % 5, [&] { return table_->erase(gone); });
      if (erased == Outcome::done) map_.erase(gone);
    }
  }

  void apply(int n) {
    Batch batch;
    Content next = map_;
    for (int i = 0; i < 30; ++i) {
      const std::string key = Keys<Bytes>::nth(static_cast<std::uint64_t>((n * 7 + i * 3) % 90));
      const std::string value(static_cast<std::size_t>(i) * 20, 'b');
      if (i % 3 == 2) {
        batch.erase<Bytes>(*table_, key);
        next.erase(key);
      } else {
        batch.put<Bytes>(*table_, key, value);
        next[key] = value;
      }
    }
    const Outcome is = writing(1 + n % 120, [&] { return store_->apply(batch); });
    if (is == Outcome::done) map_ = next;
    if (is == Outcome::io_error) {
      // It found no memory to go on or back: the pool stopped, and the next open has nothing of
      // the batch, or all (A10 of src/store/README.md).
      table_.reset();
      store_.reset();
      store_.emplace(Store::open(path_, options_).value());
      table_.emplace(store_->table("t").value());
      if (content() == next) map_ = next;
      return;
    }
    ASSERT_TRUE(is == Outcome::done || is == Outcome::out_of_space) << to_string(is);
  }

  void drop(int n) {
    {
      auto other = store_->table("u", spec_).value();
      for (int i = 0; i < 50; ++i) (void)other.put(std::to_string(i), "u");
    }
    const auto drops = [&] { return store_->drop_table("u").has_value(); };
    if (failing(1 + n % 60, drops)) return;
    const auto again = store_->drop_table("u");
    ASSERT_TRUE(again || again.error().code == Code::not_found) << again.error().message;
  }

  void backup(int n) {
    const auto to = path_.string() + "-copy";
    const bool done = failing(1 + n * 3 / 7, [&] { return store_->backup(to).has_value(); });
    EXPECT_EQ(std::filesystem::exists(to), done);
    if (done) {
      auto copy = Store::open(to, options_).value();
      EXPECT_EQ(copy.table("t").value().count(), map_.size());
    }
    std::filesystem::remove(to);
    for (const auto& one : std::filesystem::directory_iterator(path_.parent_path())) {
      EXPECT_EQ(one.path(), path_);
    }
  }

  [[nodiscard]] Content content() const {
    Content is;
    auto cursor = table_->cursor();
    for (cursor.first(); cursor.valid(); cursor.next()) is.emplace(cursor.key(), cursor.value());
    EXPECT_EQ(cursor.outcome(), Outcome::done);
    return is;
  }
  void expect_content(const char* when) {
    const Content is = content();
    const auto [one, other] = std::ranges::mismatch(is, map_);
    ASSERT_TRUE(is == map_) << when << ": " << is.size() << " keys for " << map_.size() << ", from "
                            << (one == is.end() ? "(none)" : show(one->first)) << " for "
                            << (other == map_.end() ? "(none)" : show(other->first));
  }

  const std::filesystem::path path_;
  const std::string spec_;
  StoreOptions options_;
  std::optional<Store> store_;
  std::optional<Table<Bytes>> table_;
  Content map_;
  std::uint64_t failures_ = 0;
};

TEST_P(StoreWithoutMemory, NoCallEndsTheProcess) {
  const Scratch scratch;
  Session session(scratch / "s", GetParam());
  for (int n = 0; n < 210 && !HasFatalFailure(); ++n) {
    SCOPED_TRACE(n);
    session.run(n);
  }
  EXPECT_GT(session.failures(), 500U);  // builds allocate differently
}
INSTANTIATE_TEST_SUITE_P(Trees, StoreWithoutMemory, ::testing::ValuesIn([] {
                           std::vector<std::string> names;
                           for (const TreeInfo& one : trees()) names.emplace_back(one.name);
                           return names;
                         }()),
                         [](const auto& one) { return one.param; });

}  // namespace
}  // namespace everleaf::test
