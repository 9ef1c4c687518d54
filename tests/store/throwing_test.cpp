// The face that throws: answers come back, all else is thrown, with the code of the plain face.
#include <cctype>
#include <cstring>
#include <set>

#include <everleaf/throwing.hpp>

#include "stores.hpp"

namespace everleaf::test {
namespace {

template <class Call>
std::optional<throwing::StoreError> thrown(Call&& call) {
  try {
    std::forward<Call>(call)();
  } catch (const throwing::StoreError& error) {
    return error;
  }
  return std::nullopt;
}
template <class Why, class Call>
void expect_thrown(Why why, Call&& call) {
  const auto error = thrown(std::forward<Call>(call));
  ASSERT_TRUE(error.has_value()) << to_string(why);
  EXPECT_TRUE(*error == why) << error->what();
  EXPECT_FALSE(std::string(error->what()).empty());
}

static_assert(kMaxThreads == 1'024, "the sentence of too_many_threads says so");

// Each outcome has a sentence that goes on after a name and a colon, and is more than its name.
TEST(Throwing, OutcomesHaveSentences) {
  std::set<std::string> sentences;
  for (int i = 0; to_string(static_cast<Outcome>(i)) != "unknown outcome"; ++i) {
    const auto outcome = static_cast<Outcome>(i);
    const std::string sentence(describe(outcome));
    EXPECT_NE(sentence, to_string(outcome));
    EXPECT_EQ(std::strlen(describe(outcome).data()), sentence.size());
    EXPECT_TRUE(std::islower(static_cast<unsigned char>(sentence.front()))) << sentence;
    EXPECT_NE(sentence.back(), '.') << sentence;
    EXPECT_TRUE(sentences.insert(sentence).second) << sentence << ", twice";
  }
  EXPECT_EQ(sentences.size(), static_cast<std::size_t>(Outcome::dropped) + 1);
}

TEST(Throwing, AnswersAreAnswers) {
  auto store = throwing::Store::anonymous(in_memory(Durability::buffered));
  auto table = store.table("t");
  table.put("a", "1");
  EXPECT_FALSE(table.insert("a", "2"));
  EXPECT_TRUE(table.insert("b", "2"));
  EXPECT_FALSE(table.update("c", "3"));
  EXPECT_TRUE(table.update("b", "3"));
  EXPECT_FALSE(table.erase("c"));
  EXPECT_EQ(table.get("b"), "3");
  EXPECT_EQ(table.get("c"), std::nullopt);
  EXPECT_FALSE(table.compare_and_set("b", "2", "4"));
  EXPECT_TRUE(table.compare_and_set("b", "3", std::nullopt));
  EXPECT_FALSE(table.contains("b"));
  std::string seen;
  EXPECT_TRUE(table.with_value("a", [&seen](Bytes value) { seen = value; }));
  EXPECT_EQ(seen, "1");
  EXPECT_FALSE(table.with_value("b", [](Bytes) { FAIL(); }));
  EXPECT_EQ(table.count(), 1U);
  auto cursor = table.cursor();
  EXPECT_TRUE(cursor.first());
  EXPECT_EQ(cursor.key(), "a");
  EXPECT_FALSE(cursor.next());
  EXPECT_FALSE(table.prefix("b").first());
  auto numbers = store.table<std::uint64_t>("n");
  numbers.put(7, "seven");
  EXPECT_EQ(numbers.get(7), "seven");
  Batch batch;
  batch.put<Bytes>(table.plain(), "z", "26");
  store.apply(batch);
  store.sync();
  EXPECT_EQ(table.get("z"), "26");
  EXPECT_EQ(store.tables().size(), 2U);
  EXPECT_TRUE(store.check().problems.empty());
  store.close();
}

TEST(Throwing, TheRestIsThrown) {
  const Scratch scratch;
  expect_thrown(Code::not_found, [&] {
    (void)throwing::Store::open(scratch / "none", small_store(Durability::strict, Mode::open));
  });
  {
    auto store = throwing::Store::open(scratch / "s", small_store(Durability::strict));
    auto table = store.table("t");
    table.put("a", "1");
    expect_thrown(Code::wrong_key_type, [&] { (void)store.table<std::uint64_t>("t"); });
    expect_thrown(Code::exists, [&] { store.backup(scratch / "s"); });
    expect_thrown(Code::not_found, [&] { store.drop_table("u"); });
    expect_thrown(Code::not_found,
                  [&] { (void)throwing::Store::repair(scratch / "none", scratch / "r"); });
    const std::string long_key(kMaxKeyBytes + 1, 'k');
    expect_thrown(Outcome::key_too_long, [&] { table.put(long_key, "1"); });
    EXPECT_EQ(thrown([&] { table.put(long_key, "1"); })->what(),
              "put: " + std::string(describe(Outcome::key_too_long)));
    auto gone = store.table("gone");
    gone.put("a", "1");
    store.drop_table("gone");
    expect_thrown(Outcome::dropped, [&] { (void)gone.get("a"); });
    expect_thrown(Outcome::dropped, [&] { (void)gone.contains("a"); });
    expect_thrown(Outcome::dropped, [&] { (void)gone.count(); });
    expect_thrown(Outcome::dropped, [&] { (void)gone.cursor().first(); });
    Batch batch;
    batch.put<Bytes>(gone.plain(), "a", "1");
    expect_thrown(Outcome::dropped, [&] { store.apply(batch); });
  }
  auto store =
      throwing::Store::open(scratch / "s", small_store(Durability::strict, Mode::read_only));
  auto table = store.table("t");
  EXPECT_EQ(table.get("a"), "1");
  expect_thrown(Outcome::read_only, [&] { table.put("a", "2"); });
}

}  // namespace
}  // namespace everleaf::test
