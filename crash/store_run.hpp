// One run of the checker on a store: tables of both kinds of keys, records, batches, drops.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "run.hpp"

namespace everleaf::crash {

struct Put {
  std::string table;
  std::string key;  // of a u64 table: up to 8 bytes, the first one is the highest; not 0 at the end
  std::optional<std::string> value;  // none: erase
};

struct StoreStep {
  enum class Kind : std::uint8_t {
    write,     // the first put or erasure
    insert,    // as Table::insert, update, compare_and_set
    update,    //
    exchange,  //
    batch,     //
    full,      // a batch where the heap gives `blocks` and no more: it may be refused
    create,    // a table that may be there
    drop,      // one that may not
    backup,    // strict stores only: a copy in a file beside, which has no name before it is whole
    tick,      // of the clock
    sync,
    reopen,  // clean close, open
  };
  Kind kind = Kind::write;
  std::vector<Put> puts = {};
  std::string table = {};
  std::uint64_t blocks = 0;
};
std::string to_string(const StoreStep& step);

struct StoreConfig {
  Config run;  // but for its operations. The spec's tree says whether the store is buffered, `keys`
               // which ones table "a" has; those of "b" are bytes.
  std::vector<StoreStep> steps;
};

struct StoreReport : Report {
  // Crash cases of src/store/README.md, and base::reached: executions that came by.
  std::map<std::string, std::uint64_t, std::less<>> reached;
};

StoreReport run_store(const StoreConfig& config);

// Operations for stores (WorkloadOptions::store) as steps; numbers become keys, tables and values.
std::vector<StoreStep> store_steps(const std::vector<Op>& ops, KeyType keys);

}  // namespace everleaf::crash
