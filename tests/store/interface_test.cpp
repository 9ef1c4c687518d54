// What include/everleaf/store.hpp says, call by call.
#include <fstream>
#include <limits>
#include <stdexcept>

#include <everleaf/typed.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include "stores.hpp"

namespace everleaf::test {
namespace {

class Interface : public EveryStore {
 protected:
  Store store_ = Store::anonymous(in_memory(GetParam())).value();
};
EVERLEAF_EVERY_STORE(Interface);

TEST_P(Interface, WritesAndReads) {
  auto table = store_.table("t").value();
  EXPECT_EQ(table.get("k").error(), Outcome::absent);
  EXPECT_EQ(table.update("k", "x"), Outcome::absent);
  EXPECT_EQ(table.erase("k"), Outcome::absent);
  EXPECT_EQ(table.insert("k", "one"), Outcome::done);
  EXPECT_EQ(table.insert("k", "two"), Outcome::exists);
  EXPECT_EQ(table.get("k").value(), "one");
  EXPECT_EQ(table.put("k", "two"), Outcome::done);
  EXPECT_EQ(table.update("k", "three"), Outcome::done);
  EXPECT_EQ(table.put("", ""), Outcome::done);
  EXPECT_EQ(table.get("").value(), "");
  EXPECT_TRUE(table.contains("k"));
  EXPECT_FALSE(table.contains("l"));
  EXPECT_EQ(table.count(), 2U);
  EXPECT_EQ(table.stats().value_bytes, 5U);
  {
    const View view = table.get_view("k");
    ASSERT_TRUE(view);
    EXPECT_EQ(table.erase("k"), Outcome::done);
    for (int i = 0; i < 100; ++i) EXPECT_EQ(table.put("other", std::string(5, 'x')), Outcome::done);
    EXPECT_EQ(store_.sync(), Outcome::done);
    EXPECT_EQ(*view, "three");
  }
  EXPECT_EQ(table.get_view("k").outcome(), Outcome::absent);
  EXPECT_EQ(unsound(store_), "");
}

TEST_P(Interface, NumberKeys) {
  auto table = store_.table<std::uint64_t>("n").value();
  constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();
  for (const std::uint64_t key : {std::uint64_t{0}, std::uint64_t{7}, kMost}) {
    EXPECT_EQ(table.put(key, std::to_string(key)), Outcome::done);
  }
  auto cursor = table.cursor();
  ASSERT_TRUE(cursor.last());
  EXPECT_EQ(cursor.key(), kMost);
  EXPECT_FALSE(cursor.next());
  ASSERT_TRUE(cursor.seek(1));
  EXPECT_EQ(cursor.key(), 7U);
  ASSERT_TRUE(cursor.prev());
  EXPECT_EQ(cursor.key(), 0U);
  EXPECT_FALSE(cursor.prev());
  EXPECT_EQ(cursor.outcome(), Outcome::done);
}

TEST_P(Interface, Limits) {
  auto table = store_.table("t").value();
  const std::string long_key(kMaxKeyBytes, 'k');
  EXPECT_EQ(table.put(long_key, "v"), Outcome::done);
  EXPECT_EQ(table.get(long_key).value(), "v");
  auto cursor = table.cursor();
  EXPECT_TRUE(cursor.first() && !cursor.next());
  EXPECT_EQ(table.put(long_key + "k", "v"), Outcome::key_too_long);
  EXPECT_EQ(table.erase(long_key + "k"), Outcome::absent);
  EXPECT_EQ(table.get(long_key + "k").error(), Outcome::absent);
  const std::string million(std::size_t{1} << 20, 'v');
  EXPECT_EQ(table.put("m", million), Outcome::done);
  EXPECT_EQ(table.get("m").value(), million);
  // Its pages are never touched.
  EXPECT_EQ(table.put("h", Bytes(million.data(), kMaxValueBytes + 1)), Outcome::value_too_long);
  EXPECT_EQ(unsound(store_), "");
}

TEST_P(Interface, CompareAndSet) {
  auto table = store_.table("t").value();
  EXPECT_EQ(table.compare_and_set("k", "a", "b"), Outcome::differs);
  EXPECT_EQ(table.compare_and_set("k", {}, {}), Outcome::done);
  EXPECT_EQ(table.compare_and_set("k", {}, "a"), Outcome::done);
  EXPECT_EQ(table.compare_and_set("k", {}, "a"), Outcome::differs);
  EXPECT_EQ(table.compare_and_set("k", "b", "c"), Outcome::differs);
  EXPECT_EQ(table.get("k").value(), "a");
  EXPECT_EQ(table.compare_and_set("k", "a", "b"), Outcome::done);
  EXPECT_EQ(table.get("k").value(), "b");
  EXPECT_EQ(table.compare_and_set("k", "b", {}), Outcome::done);
  EXPECT_FALSE(table.contains("k"));
}

TEST_P(Interface, CursorsAndBounds) {
  auto table = store_.table("t").value();
  Content all;
  for (int i = 0; i < 1000; ++i)
    all.emplace(std::string("k").append(std::to_string(i * 7)), std::to_string(i));
  for (const auto& [key, value] : all) ASSERT_EQ(table.put(key, value), Outcome::done);
  EXPECT_EQ(content_of(table), all);
  auto cursor = table.cursor("k2", "k4");
  auto expected = all.lower_bound("k2");
  for (cursor.first(); cursor.valid(); cursor.next(), ++expected) {
    ASSERT_EQ(cursor.key(), expected->first);
    ASSERT_EQ(cursor.value(), expected->second);
  }
  EXPECT_EQ(expected, all.lower_bound("k4"));
  for (cursor.last(); cursor.valid(); cursor.prev()) ASSERT_EQ(cursor.key(), (--expected)->first);
  EXPECT_EQ(expected, all.lower_bound("k2"));
  EXPECT_FALSE(cursor.seek("k5"));
  EXPECT_FALSE(cursor.seek_for_prev("k1"));
  ASSERT_TRUE(cursor.seek_for_prev("k9"));
  EXPECT_EQ(cursor.key(), std::prev(all.lower_bound("k4"))->first);
  ASSERT_TRUE(cursor.seek("k1"));
  EXPECT_EQ(cursor.key(), all.lower_bound("k2")->first);
  std::size_t n = 0;
  auto prefix = table.prefix("k69");
  for (prefix.first(); prefix.valid(); prefix.next(), ++n) {
    EXPECT_TRUE(prefix.key().starts_with("k69"));
  }
  EXPECT_EQ(n, static_cast<std::size_t>(std::ranges::count_if(
                   all, [](const auto& one) { return one.first.starts_with("k69"); })));
  // There and back, over page borders.
  Random random(5);
  auto at = all.begin();
  auto walker = table.cursor();
  ASSERT_TRUE(walker.first());
  for (int i = 0; i < 20000; ++i) {
    const bool up = random.below(100) < (i % 4000 < 2000 ? 60U : 40U);
    if (up ? std::next(at) == all.end() : at == all.begin()) continue;
    up ? ++at : --at;
    ASSERT_TRUE(up ? walker.next() : walker.prev());
    ASSERT_EQ(walker.key(), at->first);
  }
}

TEST_P(Interface, CursorsSeeNewNeighbours) {
  auto table = store_.table("t").value();
  for (const char* key : {"b", "d", "f"}) EXPECT_EQ(table.put(key, key), Outcome::done);
  auto cursor = table.cursor();
  ASSERT_TRUE(cursor.seek("d"));
  EXPECT_EQ(table.erase("d"), Outcome::done);
  EXPECT_EQ(table.put("c", "c"), Outcome::done);
  EXPECT_EQ(cursor.value(), "d");  // a copy
  ASSERT_TRUE(cursor.prev());
  EXPECT_EQ(cursor.key(), "c");
}

TEST_P(Interface, Batches) {
  auto table = store_.table("t").value();
  auto numbers = store_.table<std::uint64_t>("n").value();
  EXPECT_EQ(table.put("gone", "x"), Outcome::done);
  EXPECT_EQ(table.put("old", "x"), Outcome::done);
  Batch batch;
  batch.put<Bytes>(table, "new", "1");
  batch.put<Bytes>(table, "old", "2");
  batch.erase<Bytes>(table, "gone");
  batch.erase<Bytes>(table, "never");
  batch.put<std::uint64_t>(numbers, 4, "a");
  batch.put<std::uint64_t>(numbers, 4, "b");
  batch.put<Bytes>(table, "short-lived", "x");
  batch.erase<Bytes>(table, "short-lived");
  EXPECT_EQ(batch.size(), 8U);
  EXPECT_EQ(store_.apply(batch), Outcome::done);
  EXPECT_EQ(content_of(table), (Content{{"new", "1"}, {"old", "2"}}));
  EXPECT_EQ(numbers.get(4).value(), "b");
  EXPECT_EQ(numbers.count(), 1U);
  batch.clear();
  EXPECT_EQ(store_.apply(batch), Outcome::done);
  batch.put<Bytes>(table, "new", "3");
  batch.put<Bytes>(table, std::string(kMaxKeyBytes + 1, 'x'), "3");
  EXPECT_EQ(store_.apply(batch), Outcome::key_too_long);
  EXPECT_EQ(table.get("new").value(), "1");
  Batch many;
  for (std::size_t i = 0; i <= kMaxBatchOperations; ++i) many.put<std::uint64_t>(numbers, i, "");
  EXPECT_EQ(store_.apply(many), Outcome::batch_too_large);
  EXPECT_EQ(unsound(store_), "");
}

// What memory was out for is not there as something else: a put without its value is a removal.
TEST_P(Interface, BatchesTakeWholeWrites) {
  auto table = store_.table("t").value();
  ASSERT_EQ(table.put("k", "v"), Outcome::done);
  Batch batch;
  volatile std::size_t most = std::numeric_limits<std::size_t>::max();
  EXPECT_THROW(batch.put<Bytes>(table, "k", Bytes("v", most)), std::length_error);
  EXPECT_EQ(batch.size(), 0U);
  EXPECT_EQ(store_.apply(batch), Outcome::done);
  EXPECT_EQ(table.get("k").value(), "v");
}

TEST_P(Interface, BatchesOfOtherStores) {
  Batch batch;
  {
    auto other = Store::anonymous(in_memory(GetParam())).value();
    batch.put<Bytes>(other.table("t").value(), "k", "v");
    EXPECT_EQ(store_.apply(batch), Outcome::dropped);
    EXPECT_EQ(other.apply(batch), Outcome::done);
  }
  // Where the store was that is gone, another one may be.
  for (int i = 0; i < 4; ++i) {
    auto another = Store::anonymous(in_memory(GetParam())).value();
    EXPECT_EQ(another.apply(batch), Outcome::dropped);
  }
}

TEST_P(Interface, Tables) {
  auto a = store_.table("a").value();
  auto b = store_.table<std::uint64_t>("b").value();
  EXPECT_EQ(store_.table("b").error().code, Code::wrong_key_type);
  const bool strict = GetParam() == Durability::strict;
  EXPECT_EQ(store_.table("c", strict ? "bdtree" : "wbtree").error().code, Code::wrong_tree);
  if (strict) {
    EXPECT_EQ(store_.table("c", "bztree:values=bytes").error().code, Code::bad_option);
    EXPECT_EQ(store_.table("a", "bztree:values=bytes").error().code, Code::bad_option);
  }
  EXPECT_EQ(store_.table("c", "no-tree").error().code, Code::unknown_tree);
  EXPECT_EQ(store_.table("").error().code, Code::bad_argument);
  EXPECT_EQ(store_.tables()->size(), 2U);
  // What a table holds is nothing for the pool's users.
  Pool pool = store_.pool();
  EXPECT_EQ(pool.index<Bytes>("a", "").error().code, Code::wrong_tree);
  ASSERT_TRUE(pool.index<Bytes>("plain", "wbtree"));
  EXPECT_EQ(store_.table("plain").error().code, Code::wrong_tree);
  EXPECT_EQ(store_.tables()->size(), 2U);
  EXPECT_EQ(unsound(store_), "");
}

// What pool.hpp advises holds in every store, from its first moment on.
TEST_P(Interface, WaitsForWhatHasReturned) {
  for (int round = 0; round < 2; ++round) {
    const std::uint64_t now = store_.pool().epochs().now;
    EXPECT_EQ(store_.pool().wait_durable(now), Outcome::done) << now;
    EXPECT_EQ(store_.pool().wait_durable(now + 1000), Outcome::absent);
    ASSERT_EQ(store_.table("t")->put("a", "1"), Outcome::done);
  }
}

// A reader of a dropped table comes by its root word in the directory: no other table gets that
// place before the reader is gone. Tables are listed in the order of their places.
TEST_P(Interface, ADroppedTablesPlaceIsNobodysWhileItIsRead) {
  const auto order = [this] {
    std::string names;
    const auto all = store_.tables().value();
    for (const IndexInfo& one : all) names += one.name;
    return names;
  };
  auto table = store_.table("a").value();
  ASSERT_EQ(table.put("k", "v"), Outcome::done);
  ASSERT_TRUE(store_.table("b"));
  {
    const View view = table.get_view("k");
    ASSERT_TRUE(store_.drop_table("a"));
    ASSERT_TRUE(store_.table("c"));
    EXPECT_EQ(order(), "bc");
    EXPECT_EQ(*view, "v");
  }
  ASSERT_TRUE(store_.drop_table("c"));
  ASSERT_TRUE(store_.table("d"));
  EXPECT_EQ(order(), "db");
}

TEST_P(Interface, DropTable) {
  const auto before = store_.pool().info().block_bytes;
  std::uint64_t after_one = 0;
  for (int round = 0; round < 5; ++round) {
    auto table = store_.table("t").value();
    for (std::uint64_t i = 0; i < 3000; ++i) {
      ASSERT_EQ(table.put(std::to_string(i), value_of(i)), Outcome::done);
    }
    if (round == 3) {
      const View view = table.get_view("7");
      ASSERT_TRUE(store_.drop_table("t"));
      EXPECT_EQ(*view, value_of(7));
    } else {
      ASSERT_TRUE(store_.drop_table("t"));
    }
    EXPECT_EQ(table.put("x", "y"), Outcome::dropped);
    EXPECT_EQ(table.erase("x"), Outcome::dropped);
    EXPECT_EQ(table.get("7").error(), Outcome::dropped);
    EXPECT_FALSE(table.cursor().first());
    EXPECT_EQ(table.count(), 0U);
    EXPECT_TRUE(store_.tables()->empty());
    EXPECT_EQ(unsound(store_), "");
    const auto bytes = store_.pool().info().block_bytes;
    if (round == 0) after_one = bytes;
    // Memory for records stays with the store, what the tree had is back.
    EXPECT_LE(bytes, after_one);
  }
  EXPECT_GT(after_one, before);
  EXPECT_EQ(store_.drop_table("t").error().code, Code::not_found);
  EXPECT_EQ(store_.info()->records, 0U);
}

struct Point {
  double x;
  double y;
};

TEST_P(Interface, TypedTables) {
  auto points = TypedTable<std::int64_t, Point>::open(store_, "points").value();
  for (const std::int64_t key : {7, -7, 0}) {
    EXPECT_EQ(points.put(key, {static_cast<double>(key), 0.5}), Outcome::done);
  }
  EXPECT_EQ(points.get(-7)->x, -7);
  EXPECT_EQ(points.get(8).error(), Outcome::absent);
  std::vector<std::int64_t> order;
  const auto note = [&order](std::int64_t key, const Point& point) {
    EXPECT_EQ(point.y, 0.5);
    order.push_back(key);
    return true;
  };
  EXPECT_EQ(points.for_each({}, {}, note), Outcome::done);
  EXPECT_EQ(points.for_each(-7, 7, note), Outcome::done);
  EXPECT_EQ(order, (std::vector<std::int64_t>{-7, 0, 7, -7, 0}));
  Batch batch;
  points.erase(batch, 7);
  points.put(batch, 8, {8, 8});
  EXPECT_EQ(store_.apply(batch), Outcome::done);
  EXPECT_TRUE(points.contains(8) && !points.contains(7));
  EXPECT_EQ(points.table().put(KeyCodec<std::int64_t>::raw(1), "no point"), Outcome::done);
  EXPECT_EQ(points.get(1).error(), Outcome::corrupt);
  auto names = TypedTable<std::string, std::string>::open(store_, "names").value();
  EXPECT_EQ(names.insert("k", "v"), Outcome::done);
  EXPECT_EQ(names.get("k").value(), "v");
}

class Files : public EveryStore {
 protected:
  Scratch scratch_;
};
EVERLEAF_EVERY_STORE(Files);

TEST_P(Files, OpensAgainFromItsImage) {
  Content all;
  for (int round = 0; round < 4; ++round) {
    auto store = Store::open(scratch_ / "s", small_store(GetParam())).value();
    EXPECT_EQ(store.info()->opened_from_image, round != 0);
    auto table = store.table("t").value();
    EXPECT_EQ(content_of(table), all);
    EXPECT_EQ(store.info()->records, all.size());
    for (std::uint64_t i = 0; i < 500; ++i) {
      const std::string key = std::to_string(i * 7 % 900 + static_cast<std::uint64_t>(round));
      ASSERT_EQ(table.put(key, value_of(i)), Outcome::done);
      all[key] = value_of(i);
    }
    EXPECT_EQ(unsound(store), "");
    table = store.table("t").value();
    if (round % 2 == 0) {
      // The last handle is the table's.
      store = Store::anonymous().value();
    } else {
      table = Store::anonymous()->table("other").value();
      EXPECT_TRUE(store.close());
    }
  }
}

TEST_P(Files, Modes) {
  EXPECT_EQ(Store::open(scratch_ / "s", small_store(GetParam(), Mode::open)).error().code,
            Code::not_found);
  {
    auto store = Store::open(scratch_ / "s", small_store(GetParam())).value();
    EXPECT_EQ(store.table("t")->put("k", "v"), Outcome::done);
    EXPECT_EQ(Store::open(scratch_ / "s", small_store(GetParam())).error().code, Code::locked_here);
  }
  const bool strict = GetParam() == Durability::strict;
  const Durability other = strict ? Durability::buffered : Durability::strict;
  EXPECT_EQ(Store::open(scratch_ / "s", small_store(other)).error().code, Code::wrong_tree);
  auto store = Store::open(scratch_ / "s", small_store(GetParam(), Mode::read_only)).value();
  auto table = store.table("t").value();
  EXPECT_EQ(table.get("k").value(), "v");
  EXPECT_EQ(table.put("k", "w"), Outcome::read_only);
  EXPECT_EQ(table.erase("k"), Outcome::read_only);
  EXPECT_EQ(store.table("u").error().code, Code::not_found);
  EXPECT_EQ(store.drop_table("t").error().code, Code::read_only);
  Batch batch;
  batch.erase<Bytes>(table, "k");
  EXPECT_EQ(store.apply(batch), Outcome::read_only);
  EXPECT_EQ(unsound(store), "");
  { auto pool = Pool::open(scratch_ / "plain", small_pool()).value(); }
  EXPECT_EQ(Store::open(scratch_ / "plain", small_store(GetParam(), Mode::read_only)).error().code,
            Code::not_found);
}

// A child of fork() that goes as any process does: it closes nothing of its parent's.
TEST_P(Files, AChildClosesNothing) {
  auto store =
      std::make_unique<Store>(Store::open(scratch_ / "s", small_store(GetParam())).value());
  auto table = std::make_unique<Table<Bytes>>(store->table("t").value());
  ASSERT_EQ(table->put("before", "v"), Outcome::done);
  ASSERT_EQ(store->sync(), Outcome::done);
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    table.reset();
    const bool closed = store->close().has_value();
    store.reset();
    ::_exit(closed ? 1 : 0);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  Content all{{"before", "v"}};
  for (int i = 0; i < 50; ++i) {
    all["after" + std::to_string(i)] = std::to_string(i);
    ASSERT_EQ(table->put("after" + std::to_string(i), std::to_string(i)), Outcome::done);
  }
  ASSERT_EQ(store->sync(), Outcome::done);
  write_bytes(scratch_ / "died", read_bytes(scratch_ / "s"));
  auto again = Store::open(scratch_ / "died", small_store(GetParam())).value();
  EXPECT_FALSE(again.info()->opened_from_image);
  auto other = again.table("u").value();
  for (int i = 0; i < 200; ++i) ASSERT_EQ(other.put(std::to_string(i), "other"), Outcome::done);
  EXPECT_EQ(content_of(again.table("t").value()), all);
  EXPECT_EQ(unsound(again), "");
}

TEST_P(Interface, AClosedHandleSaysSo) {
  auto table = store_.table("t").value();
  Batch batch;
  batch.put<Bytes>(table, "a", "1");
  ASSERT_TRUE(store_.close());
  EXPECT_TRUE(store_.close());  // as often as you like
  EXPECT_EQ(store_.table("t").error().code, Code::bad_argument);
  EXPECT_EQ(store_.drop_table("t").error().code, Code::bad_argument);
  EXPECT_EQ(store_.tables().error().code, Code::bad_argument);
  EXPECT_EQ(store_.backup("never").error().code, Code::bad_argument);
  EXPECT_EQ(store_.check().error().code, Code::bad_argument);
  EXPECT_EQ(store_.info().error().code, Code::bad_argument);
  EXPECT_EQ(store_.apply(batch), Outcome::dropped);
  EXPECT_EQ(store_.sync(), Outcome::dropped);
  // The table keeps it open.
  EXPECT_EQ(table.put("a", "1"), Outcome::done);
  EXPECT_EQ(table.get("a").value_or(""), "1");
}

// Nor does a child that lives on keep its parent, or anybody else, from opening the store again.
TEST_P(Files, AChildHoldsNoLock) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  auto store = Store::open(scratch_ / "s", small_store(GetParam())).value();
  ASSERT_EQ(store.table("t")->put("a", "1"), Outcome::done);
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    ::close(ends[1]);
    char byte = 0;
    (void)!::read(ends[0], &byte, 1);  // until the parent has done
    ::_exit(0);
  }
  EXPECT_TRUE(store.close());
  auto again = Store::open(scratch_ / "s", small_store(GetParam()));
  EXPECT_TRUE(again.has_value()) << again.error().message;
  EXPECT_FALSE(Store::open(scratch_ / "s", small_store(GetParam())).has_value());
  ::close(ends[0]);
  ::close(ends[1]);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
}

TEST_P(Files, Backup) {
  auto store = Store::open(scratch_ / "s", small_store(GetParam())).value();
  auto table = store.table("t").value();
  auto numbers = store.table<std::uint64_t>("n").value();
  Content all;
  for (std::uint64_t i = 0; i < 1000; ++i) {
    all[std::to_string(i)] = value_of(i, 500);
    ASSERT_EQ(table.put(std::to_string(i), value_of(i, 500)), Outcome::done);
    ASSERT_EQ(numbers.put(i, "n"), Outcome::done);
  }
  ASSERT_TRUE(store.backup(scratch_ / "copy"));
  EXPECT_EQ(store.backup(scratch_ / "copy").error().code, Code::exists);
  EXPECT_FALSE(store.backup(scratch_ / "no" / "such"));
  auto copy = Store::open(scratch_ / "copy", small_store(GetParam(), Mode::open)).value();
  EXPECT_EQ(content_of(copy.table("t").value()), all);
  EXPECT_EQ(copy.table<std::uint64_t>("n")->count(), 1000U);
  EXPECT_EQ(unsound(copy), "");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(scratch_.path()), {}), 2);
}

}  // namespace
}  // namespace everleaf::test
