// People by number, and by city: two tables that batches keep in step, whatever crashes.
#include <cassert>
#include <cstdio>
#include <string>

#include <everleaf/store.hpp>

namespace {

using everleaf::Batch;
using everleaf::Bytes;
using everleaf::Outcome;
using everleaf::Store;
using everleaf::Table;

struct People {
  Store store;
  Table<std::uint64_t> cities;  // number -> city
  Table<Bytes> by_city;         // city, zero byte, number -> nothing
};

std::string entry(const std::string& city, std::uint64_t number) {
  return city + '\0' + std::to_string(number);
}

// A writer of the same person may run meanwhile: the first one wins, the other one tries again.
Outcome move_to(People& people, std::uint64_t number, const std::string& city) {
  const auto before = people.cities.get(number);
  if (!before && before.error() != Outcome::absent) return before.error();
  Batch batch;
  if (before) batch.erase<Bytes>(people.by_city, entry(*before, number));
  batch.put<std::uint64_t>(people.cities, number, city);
  batch.put<Bytes>(people.by_city, entry(city, number), "");
  return people.store.apply(batch);
}

std::size_t living_in(const People& people, const std::string& city) {
  std::size_t count = 0;
  const std::string prefix = city + '\0';
  auto cursor = people.by_city.prefix(prefix);
  for (cursor.first(); cursor.valid(); cursor.next()) ++count;
  return count;
}

}  // namespace

int main() {
  auto store = Store::open("people.pool").value();
  People people{store, store.table<std::uint64_t>("people").value(),
                store.table("by city").value()};
  const std::uint64_t run = people.cities.count() / 3 + 1;  // three people a run
  for (std::uint64_t n = 3 * run; n < 3 * run + 3; ++n) {
    if (move_to(people, n, "Paris") != Outcome::done) return 1;
  }
  if (move_to(people, 3 * run, "Rome") != Outcome::done) return 1;
  if (store.sync() != Outcome::done) return 1;
  assert(living_in(people, "Rome") == run && living_in(people, "Paris") == 2 * run);
  assert(people.by_city.count() == people.cities.count());
  std::printf("run %llu\n", static_cast<unsigned long long>(run));
  return 0;
}
