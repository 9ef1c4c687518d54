// What is wrong with a store: its trees and its heap (the pool's check), the records.
#include <algorithm>
#include <new>
#include <string>

#include "store/state.hpp"

namespace everleaf::store {
namespace {

constexpr std::size_t kNamed = 16;  // problems of a table that are named one by one

std::string of_table(const TableBase& table, const std::string& what) {
  return "table '" + table.info.name + "': " + what;
}

}  // namespace

Result<CheckReport> State::check() {
  auto report = pool_.check();
  if (!report) return report;
  try {
    const base::MutexGuard guard(tables_mutex_);
    std::vector<Offset> records;
    for (const auto& [name, table] : tables_) {
      std::size_t damaged = 0;
      const auto problem = [&](const std::string& what, Offset at) {
        if (++damaged > kNamed) return;
        report->problems.push_back(of_table(*table, what + " at offset " + std::to_string(at)));
      };
      const Outcome walked = table->for_each_value([&](Word word, bool whole) {
        const Record record = Record::of(word);
        if (!whole) return problem("a value does not fit its checksum", record.at);
        if (!read_only() && !space_->in_use(record.at, record.bytes())) {
          return problem("the memory of a value is not in use", record.at);
        }
        records.push_back(record.at);
      });
      if (walked != Outcome::done) {
        report->problems.push_back(of_table(*table, std::string(to_string(walked))));
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
  } catch (const std::bad_alloc&) {
    return std::unexpected(Error{Code::out_of_space, "no memory to check the store"});
  }
  return report;
}

}  // namespace everleaf::store
