// Calls on a store, read off the input, beside a std::map; with closes and deaths of the process in
// between. First byte: the tree.
#include <algorithm>
#include <map>
#include <optional>
#include <vector>

#include "file.hpp"
#include "store/state.hpp"
#include "trees/pool_state.hpp"

using namespace everleaf;
using fuzz::expect;

namespace {

using Map = std::map<std::string, std::string>;

class Session {
 public:
  explicit Session(fuzz::Choices choices) : choices_(choices), file_(empty_store()) { open(); }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  ~Session() {
    table_.reset();
    expect(store_->close().has_value(), "close");
  }

  void run() {
    // Bounded: each step may write back.
    for (int steps = 0; steps < 300 && !choices_.empty(); ++steps) {
      step();
      since_sync_.push_back(map_);
    }
    compare();
    const auto report = store_->check();
    expect(report && report->problems.empty(), "check finds damage");
  }

 private:
  // A pool of that tree's durability, as create would leave it.
  std::span<const std::uint8_t> empty_store() {
    const auto& tree = trees()[choices_.below(trees().size())];
    spec_ = tree.name;
    buffered_ = tree.durability == Durability::buffered;
    static std::map<bool, std::vector<std::uint8_t>> made;
    auto& bytes = made[buffered_];
    if (bytes.empty()) {
      const auto path = fuzz::scratch("everleaf-fuzz-");
      StoreOptions options;
      options.pool.mode = Mode::create;
      options.durability = tree.durability;
      expect(Store::open(path, options).has_value(), "create");
      bytes = fuzz::take_file(path);
    }
    return bytes;
  }

  void open() {
    StoreOptions options;
    options.pool.epoch_length = {};
    auto store = Store::open(file_.path(), options);
    expect(store.has_value(), store ? "" : store.error().message.c_str());
    store_.emplace(std::move(*store));
    table_.emplace(store_->table("t", spec_).value());
  }

  // Few keys, so that calls meet; some long.
  std::string key() {
    const auto n = choices_.below(64);
    std::string key = std::to_string(n % 32);
    key.append(n < 32 ? 0 : n * 9, 'k');
    return key;
  }
  std::string value() {
    const auto n = choices_.below(256);
    return std::string(n < 250 ? n : n * 80, static_cast<char>('a' + n % 26));
  }

  void step() {
    switch (choices_.below(16)) {
      case 0:
      case 1:
      case 2: {
        const std::string k = key();
        const std::string v = value();
        expect(table_->put(k, v) == Outcome::done, "put");
        map_[k] = v;
        break;
      }
      case 3: {
        const std::string k = key();
        const std::string v = value();
        const bool is_new = map_.emplace(k, v).second;
        expect(table_->insert(k, v) == (is_new ? Outcome::done : Outcome::exists), "insert");
        break;
      }
      case 4: {
        const std::string k = key();
        const std::string v = value();
        const auto at = map_.find(k);
        expect(table_->update(k, v) == (at != map_.end() ? Outcome::done : Outcome::absent),
               "update");
        if (at != map_.end()) at->second = v;
        break;
      }
      case 5:
      case 6: {
        const std::string k = key();
        expect(table_->erase(k) == (map_.erase(k) != 0 ? Outcome::done : Outcome::absent), "erase");
        break;
      }
      case 7:
        compare_and_set();
        break;
      case 8:
        batch();
        break;
      case 9: {
        const std::string k = key();
        const auto got = table_->get(k);
        const auto at = map_.find(k);
        expect(at == map_.end() ? got.error() == Outcome::absent : got && *got == at->second,
               "get");
        break;
      }
      case 10:
      case 11:
        walk();
        break;
      case 12:
        expect(store_->sync() == Outcome::done, "sync");
        synced_ = map_;
        since_sync_.clear();
        break;
      case 13:
        expect(store_->pool().advance_epoch() == Outcome::done, "advance_epoch");
        break;
      case 14:
        reopen();
        break;
      default:
        expect(store_->drop_table("t").has_value(), "drop_table");
        map_.clear();
        synced_.clear();
        since_sync_.clear();
        table_.emplace(store_->table("t", spec_).value());
    }
  }

  void compare_and_set() {
    const std::string k = key();
    const std::string v = value();
    const auto at = map_.find(k);
    std::optional<std::string> old;
    if (at != map_.end()) old = at->second;
    const bool right = choices_.below(3) != 0;
    std::optional<std::string> expected = old;
    if (!right) expected = old.value_or("").append(1, 'x');
    const bool erase = choices_.below(4) == 0;
    const Outcome outcome =
        table_->compare_and_set(k, expected ? std::optional<Bytes>(*expected) : std::nullopt,
                                erase ? std::nullopt : std::optional<Bytes>(v));
    expect(outcome == (right ? Outcome::done : Outcome::differs), "compare_and_set");
    if (!right) return;
    if (erase) {
      map_.erase(k);
    } else {
      map_[k] = v;
    }
  }

  void batch() {
    Batch batch;
    for (auto n = choices_.below(12); n != 0; --n) {
      const std::string k = key();
      if (choices_.below(3) == 0) {
        batch.erase<Bytes>(*table_, k);
        map_.erase(k);
      } else {
        const std::string v = value();
        batch.put<Bytes>(*table_, k, v);
        map_[k] = v;
      }
    }
    expect(store_->apply(batch) == Outcome::done, "apply");
  }

  void walk() {
    auto cursor = table_->cursor();
    const std::string k = key();
    auto at = map_.lower_bound(k);
    expect(cursor.seek(k) == (at != map_.end()), "seek");
    for (int i = 0; i < 8 && cursor.valid(); ++i) {
      expect(cursor.key() == at->first && cursor.value() == at->second, "an entry of a cursor");
      if (choices_.below(2) == 0) {
        expect(cursor.next() == (++at != map_.end()), "next");
      } else {
        const bool first = at == map_.begin();
        if (!first) --at;
        expect(cursor.prev() == !first, "prev");
      }
    }
  }

  void reopen() {
    table_.reset();
    const bool dies = choices_.below(2) == 0;
    if (dies) {
      StoreAccess::state(*store_).abandon();
      Pool pool = store_->pool();
      PoolAccess::state(pool).abandon();
    }
    expect(store_->close().has_value(), "close");
    store_.reset();
    open();
    if (dies && buffered_) {
      // As it was at one moment since the last sync.
      Map is = content();
      expect(is == synced_ || std::ranges::find(since_sync_, is) != since_sync_.end(),
             "a crash left what never was");
      map_ = std::move(is);
    }
    synced_ = map_;
    since_sync_.clear();
  }

  Map content() {
    Map is;
    auto cursor = table_->cursor();
    for (bool there = cursor.first(); there; there = cursor.next()) {
      is.emplace(cursor.key(), cursor.value());
    }
    expect(cursor.outcome() == Outcome::done, "a walk");
    return is;
  }
  void compare() {
    expect(content() == map_, "the store differs from the model");
    expect(table_->count() == map_.size(), "count");
  }

  fuzz::Choices choices_;
  std::string spec_;
  bool buffered_ = false;
  fuzz::File file_;
  std::optional<Store> store_;
  std::optional<Table<Bytes>> table_;
  Map map_;
  Map synced_;
  std::vector<Map> since_sync_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Session(fuzz::Choices({data, size})).run();
  return 0;
}
