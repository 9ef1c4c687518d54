// What is wrong with a store: its trees and its heap (the pool's check), the records.
#include <algorithm>
#include <new>
#include <string>

#include "store/state.hpp"

namespace everleaf::store {
namespace {

std::string of_table(const TableBase& table, const std::string& what) {
  return "table '" + table.info.name + "': " + what;
}

// The tree's own check names the node; here is where the walk came to.
std::string cannot_go_on(Outcome outcome, Offset last) {
  std::string what = "its keys cannot all be walked (" + std::string(to_string(outcome)) + "): ";
  if (last == 0) return what + "not even the first one";
  return what + "none behind that of the value at offset " + std::to_string(last);
}

// Keys and values of a sound store do not overlap.
std::string too_much(Offset last) {
  return "its keys and values have many times the bytes of the pool: none was read behind that at "
         "offset " +
         std::to_string(last);
}

}  // namespace

// Blocks that are in use are those of `named` and those that wait to be free. What waits becomes
// free meanwhile, never the other way round: it is counted first, and no sooner than it must be,
// for each block that is freed in between hides one that is lost.
void State::add_unnamed(std::vector<Offset> named, std::vector<std::string>& problems) const {
  std::ranges::sort(named);
  named.erase(std::ranges::unique(named).begin(), named.end());
  const std::uint64_t accounted = pending_.load(std::memory_order_acquire) + named.size();
  const std::uint64_t in_use = space_->in_use().blocks;
  if (in_use <= accounted) return;
  problems.push_back("blocks for values that are in use, and that no key names: " +
                     std::to_string(in_use - accounted));
}

Result<CheckReport> State::check() {
  auto report = pool_.check();
  if (!report) return report;
  try {
    const base::MutexGuard guard(tables_mutex_);
    std::vector<Offset> records;
    std::vector<Offset> damaged_records;  // their keys may be another's
    bool all_walked = true;
    for (const auto& [name, table] : tables_) {
      Budget budget(kMostRead * medium().size());
      std::size_t damaged = 0;
      Offset last = 0;
      const auto problem = [&](const std::string& what, Offset at) {
        if (++damaged > kNamed) return;
        report->problems.push_back(of_table(*table, what + " at offset " + std::to_string(at)));
      };
      const Outcome walked = table->for_each_value(budget, [&](Word word, bool whole) {
        const Record record = Record::of(word);
        last = record.at;
        const bool in_use = read_only() || space_->in_use(record.at, record.bytes());
        if (!whole && in_use) damaged_records.push_back(record.at);
        if (!whole) return problem("a value does not fit its checksum", record.at);
        if (!in_use) return problem("the memory of a value is not in use", record.at);
        records.push_back(record.at);
      });
      if (walked != Outcome::done) {
        report->problems.push_back(
            of_table(*table, budget.exceeded() ? too_much(last) : cannot_go_on(walked, last)));
        all_walked = false;
      }
      if (damaged > kNamed) {
        report->problems.push_back(
            of_table(*table, "and " + std::to_string(damaged - kNamed) + " values more"));
      }
    }
    std::ranges::sort(records);
    if (const auto twice = std::ranges::adjacent_find(records); twice != records.end()) {
      report->problems.push_back("the value at offset " + std::to_string(*twice) +
                                 " belongs to two keys");
    }
    if (all_walked && !read_only() && !medium().failed()) {
      records.insert(records.end(), damaged_records.begin(), damaged_records.end());
      add_unnamed(std::move(records), report->problems);
    }
  } catch (const std::bad_alloc&) {
    return std::unexpected(Error{Code::out_of_space, "no memory to check the store"});
  }
  return report;
}

}  // namespace everleaf::store
