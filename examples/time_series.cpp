// Measurements of many sensors by time: a range is read with a cursor, old ones go by range, in
// batches of bounded size. A crash in between leaves a part of the old ones, and all of the rest.
#include <cassert>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>

#include <everleaf/store.hpp>

namespace {

using everleaf::Batch;
using everleaf::Bytes;
using everleaf::Outcome;
using everleaf::Store;
using everleaf::Table;

// Sensor and time with the highest byte first: the order of the bytes is that of the numbers.
std::string key_of(std::uint32_t sensor, std::uint64_t seconds) {
  std::string key;
  for (int shift = 24; shift >= 0; shift -= 8) key += static_cast<char>(sensor >> shift);
  for (int shift = 56; shift >= 0; shift -= 8) key += static_cast<char>(seconds >> shift);
  return key;
}

class Series {
 public:
  explicit Series(const Store& store)
      : store_(store), table_(store_.table("measurements").value()) {}

  Outcome record(std::uint32_t sensor, std::uint64_t seconds, double value) {
    const Bytes bytes(reinterpret_cast<const char*>(&value), sizeof value);
    return table_.put(key_of(sensor, seconds), bytes);
  }

  // Of from <= time < to; 0 if there is none.
  [[nodiscard]] double mean(std::uint32_t sensor, std::uint64_t from, std::uint64_t to) const {
    double sum = 0;
    std::uint64_t count = 0;
    auto cursor = table_.cursor(key_of(sensor, from), key_of(sensor, to));
    for (cursor.first(); cursor.valid(); cursor.next(), ++count) {
      double value = 0;
      std::memcpy(&value, cursor.value().data(), sizeof value);
      sum += value;
    }
    return count == 0 ? 0 : sum / static_cast<double>(count);
  }

  // Everything of the sensor before `seconds`.
  Outcome forget(std::uint32_t sensor, std::uint64_t seconds) {
    constexpr std::size_t kAtOnce = 1000;
    auto cursor = table_.cursor(key_of(sensor, 0), key_of(sensor, seconds));
    cursor.first();
    while (cursor.valid()) {
      Batch batch;
      for (; cursor.valid() && batch.size() < kAtOnce; cursor.next()) {
        batch.erase<Bytes>(table_, cursor.key());
      }
      if (const Outcome outcome = store_.apply(batch); outcome != Outcome::done) return outcome;
    }
    return cursor.outcome();
  }

  [[nodiscard]] std::uint64_t size() const { return table_.count(); }

 private:
  Store store_;
  Table<Bytes> table_;
};

}  // namespace

int main() {
  constexpr std::uint64_t kHour = 3600;
  auto store = Store::open("sensors.pool").value();
  Series series(store);
  const std::uint64_t run = series.size() == 0 ? 1 : 2;  // one hour each
  for (std::uint64_t second = (run - 1) * kHour; second < run * kHour; ++second) {
    for (const std::uint32_t sensor : {7U, 8U}) {
      if (series.record(sensor, second, static_cast<double>(sensor * second)) != Outcome::done) {
        return 1;
      }
    }
  }
  // The hour before this one goes; sensor 8 keeps everything.
  if (series.forget(7, (run - 1) * kHour) != Outcome::done) return 1;
  assert(series.size() == kHour + run * kHour);
  assert(series.mean(7, (run - 1) * kHour, run * kHour) ==
         7 * (static_cast<double>((2 * run - 1) * kHour) - 1) / 2);
  assert(run == 1 || series.mean(7, 0, kHour) == 0);
  if (store.sync() != Outcome::done) return 1;
  std::printf("run %llu\n", static_cast<unsigned long long>(run));
  return 0;
}
