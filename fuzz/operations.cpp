// Calls on a store of three tables, one of them with u64 keys, read off the input, beside a
// std::map; with closes and deaths of the process in between. First byte: the tree.
#include <algorithm>
#include <array>
#include <concepts>
#include <filesystem>
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
using Numbers = std::map<std::uint64_t, std::string>;

// What the store holds. Tables "t" and "u" have keys of bytes, "n" has numbers.
struct Model {
  std::array<Map, 2> bytes;
  Numbers numbers;
  bool operator==(const Model&) const = default;
};
constexpr std::array kNames{"t", "u"};

std::uint64_t key_at(const Numbers::const_iterator& at) {
  return at->first;
}
const std::string& key_at(const Map::const_iterator& at) {
  return at->first;
}

class Session {
 public:
  explicit Session(fuzz::Choices choices) : choices_(choices), file_(empty_store()) { open(); }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  ~Session() {
    forget_tables();
    expect(store_->close().has_value(), "close");
  }

  void run() {
    // Bounded: each step may write back.
    for (int steps = 0; steps < 300 && !choices_.empty(); ++steps) {
      step();
      since_sync_.push_back(model_);
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
    open_tables();
  }
  void open_tables() {
    for (std::size_t i = 0; i < kNames.size(); ++i) {
      tables_.at(i).emplace(store_->table(kNames.at(i), spec_).value());
    }
    numbers_.emplace(store_->table<std::uint64_t>("n", spec_).value());
  }
  void forget_tables() {
    tables_ = {};
    numbers_.reset();
  }

  // Few keys, so that calls meet; some long.
  std::string key() {
    const auto n = choices_.below(64);
    std::string key = std::to_string(n % 32);
    key.append(n < 32 ? 0 : n * 9, 'k');
    return key;
  }
  // The ends of the range among them, and such that are neighbours.
  std::uint64_t number() {
    const auto n = choices_.below(40);
    return n < 24 ? n : n < 32 ? ~(n - 24) : std::uint64_t{1} << (n - 32) * 7;
  }
  std::string value() {
    const auto n = choices_.below(256);
    return std::string(n < 250 ? n : n * 80, static_cast<char>('a' + n % 26));
  }

  // One call in three is one on numbers, one in six on the second table.
  template <class F>
  void with_table(F&& f) {
    const auto n = choices_.below(6);
    if (n >= 4) return f(*numbers_, model_.numbers, [this] { return number(); });
    const std::size_t i = n == 3 ? 1 : 0;
    f(*tables_.at(i), model_.bytes.at(i), [this] { return key(); });
  }

  void step() {
    const auto what = choices_.below(20);
    if (what < 13) {
      return with_table(
          [&](auto& table, auto& map, auto any_key) { call(what, table, map, any_key()); });
    }
    switch (what) {
      case 13:
        return batch();
      case 14:
        return sync();
      case 15:
        expect(store_->pool().advance_epoch() == Outcome::done, "advance_epoch");
        return;
      case 16:
        return reopen();
      case 17:
        return drop();
      case 18:
        return back_up();
      default:
        return repair();
    }
  }

  template <class T, class M, class K>
  void call(std::uint64_t what, T& table, M& map, const K& k) {
    const auto at = map.find(k);
    const bool there = at != map.end();
    switch (what) {
      case 0:
      case 1:
      case 2: {
        const std::string v = value();
        expect(table.put(k, v) == Outcome::done, "put");
        map[k] = v;
        break;
      }
      case 3: {
        const std::string v = value();
        expect(table.insert(k, v) == (there ? Outcome::exists : Outcome::done), "insert");
        map.emplace(k, v);
        break;
      }
      case 4: {
        const std::string v = value();
        expect(table.update(k, v) == (there ? Outcome::done : Outcome::absent), "update");
        if (there) at->second = v;
        break;
      }
      case 5:
      case 6:
        expect(table.erase(k) == (there ? Outcome::done : Outcome::absent), "erase");
        map.erase(k);
        break;
      case 7:
        return compare_and_set(table, map, k);
      case 8: {
        const auto got = table.get(k);
        expect(there ? got && *got == at->second : got.error() == Outcome::absent, "get");
        expect(table.contains(k) == there, "contains");
        break;
      }
      case 9:
        return view(table, map, k);
      case 10:
        return walk(table.cursor(), map.begin(), map.end(), map.lower_bound(k), k);
      case 11:
        return walk_bounded(table, map, k);
      default:
        return walk_prefix(k);
    }
  }

  template <class T, class M, class K>
  void compare_and_set(T& table, M& map, const K& k) {
    const std::string v = value();
    const auto at = map.find(k);
    std::optional<std::string> old;
    if (at != map.end()) old = at->second;
    const bool right = choices_.below(3) != 0;
    std::optional<std::string> expected = old;
    if (!right) expected = old.value_or("").append(1, 'x');
    const bool erase = choices_.below(4) == 0;
    const Outcome outcome =
        table.compare_and_set(k, expected ? std::optional<Bytes>(*expected) : std::nullopt,
                              erase ? std::nullopt : std::optional<Bytes>(v));
    expect(outcome == (right ? Outcome::done : Outcome::differs), "compare_and_set");
    if (!right) return;
    if (erase) {
      map.erase(k);
    } else {
      map[k] = v;
    }
  }

  // It does not change, whatever becomes of its key.
  template <class T, class M, class K>
  void view(T& table, M& map, const K& k) {
    const auto at = map.find(k);
    const View seen = table.get_view(k);
    expect(seen.outcome() == (at == map.end() ? Outcome::absent : Outcome::done), "get_view");
    if (!seen) return;
    const std::string old = at->second;
    expect(*seen == old, "a view");
    if (choices_.below(2) == 0) {
      expect(table.erase(k) == Outcome::done, "erase under a view");
      map.erase(at);
    } else {
      const std::string v = value();
      expect(table.put(k, v) == Outcome::done, "put under a view");
      at->second = v;
    }
    expect(*seen == old, "a view of what is gone");
  }

  void batch() {
    Batch batch;
    for (auto n = choices_.below(12); n != 0; --n) {
      with_table([&](auto& table, auto& map, auto any_key) {
        const auto k = any_key();
        if (choices_.below(3) == 0) {
          batch.erase(table, key_of(k));
          map.erase(k);
        } else {
          const std::string v = value();
          batch.put(table, key_of(k), v);
          map[k] = v;
        }
      });
    }
    expect(store_->apply(batch) == Outcome::done, "apply");
  }
  static std::uint64_t key_of(std::uint64_t k) { return k; }
  static Bytes key_of(const std::string& k) { return k; }

  // Steps from `at`, the first key from k on, over [first, last).
  template <class C, class I, class K>
  void walk(C cursor, const I first, const I last, I at, const K& k) {
    expect(cursor.seek(k) == (at != last), "seek");
    for (int i = 0; i < 8 && cursor.valid(); ++i) {
      expect(cursor.key() == key_at(at) && cursor.value() == at->second, "an entry of a cursor");
      if (choices_.below(2) == 0) {
        expect(cursor.next() == (++at != last), "next");
      } else {
        const bool at_first = at == first;
        if (!at_first) --at;
        expect(cursor.prev() == !at_first, "prev");
      }
    }
    expect(cursor.outcome() == Outcome::done, "the end of a walk");
    ends(cursor, first, last);
  }
  template <class C, class I>
  void ends(C& cursor, const I first, const I last) {
    const bool any = first != last;
    expect(cursor.first() == any && (!any || cursor.key() == key_at(first)), "first");
    expect(cursor.last() == any && (!any || cursor.key() == key_at(std::prev(last))), "last");
  }

  template <class T, class M, class K>
  void walk_bounded(T& table, M& map, const K& k) {
    const K other = [&] {
      if constexpr (std::same_as<K, std::string>) {
        return key();
      } else {
        return number();
      }
    }();
    const K& from = std::min(k, other);
    const K& to = std::max(k, other);
    const auto first = map.lower_bound(from);
    const auto last = map.lower_bound(to);
    // Beyond a bound is none; at the first one below it seek begins with the first.
    auto cursor = table.cursor(key_of(from), key_of(to));
    expect(cursor.seek_for_prev(key_of(to)) == (first != last), "seek_for_prev");
    if (first != last) expect(cursor.key() == key_at(std::prev(last)), "seek_for_prev's key");
    walk(std::move(cursor), first, last, first, from);
  }

  // Of bytes alone.
  void walk_prefix(std::uint64_t) { walk_prefix(key()); }
  void walk_prefix(const std::string& k) {
    const std::string prefix = k.substr(0, choices_.below(4));
    const Map& map = model_.bytes[0];
    const auto first = map.lower_bound(prefix);
    const auto last = std::find_if(
        first, map.end(), [&](const auto& entry) { return !entry.first.starts_with(prefix); });
    walk(tables_[0]->prefix(prefix), first, last, first, prefix);
  }

  void sync() {
    expect(store_->sync() == Outcome::done, "sync");
    synced();
  }
  void synced() {
    synced_ = model_;
    since_sync_.clear();
  }

  // What came before is durable, too.
  void drop() {
    const auto which = choices_.below(3);
    const char* const name = which == 2 ? "n" : kNames.at(which);
    expect(store_->drop_table(name).has_value(), "drop_table");
    if (which == 2) {
      expect(numbers_->put(1, "gone") == Outcome::dropped, "a put to a dropped table");
      model_.numbers.clear();
    } else {
      expect(tables_.at(which)->put("1", "gone") == Outcome::dropped, "a put to a dropped table");
      model_.bytes.at(which).clear();
    }
    forget_tables();
    open_tables();
    synced();
  }

  // A copy equals the model, and is sound.
  void copied(const std::filesystem::path& path, const Model& is) {
    StoreOptions options;
    options.pool.mode = Mode::read_only;
    {
      Store copy = Store::open(path, options).value();
      const auto report = copy.check();
      expect(report && report->problems.empty(), "check finds damage in a copy");
      expect(content(copy) == is, "a copy differs");
    }
    std::filesystem::remove(path);
  }
  [[nodiscard]] bool may_copy() { return ++copies_ <= kMostCopies; }

  void back_up() {
    if (!may_copy()) return;
    const auto path = fuzz::scratch("everleaf-fuzz-copy-");
    std::filesystem::remove(path);
    expect(store_->backup(path).has_value(), "backup");
    expect(store_->backup(path).error().code == Code::exists, "a backup over a file");
    copied(path, model_);
  }

  // Of a sound store that was closed: nothing is lost.
  void repair() {
    if (!may_copy()) return;
    forget_tables();
    expect(store_->close().has_value(), "close");
    store_.reset();
    const auto path = fuzz::scratch("everleaf-fuzz-repaired-");
    std::filesystem::remove(path);
    const auto report = Store::repair(file_.path(), path);
    expect(report && report->sound(), "the repair of a sound store");
    copied(path, model_);
    open();
    synced();
  }

  void reopen() {
    forget_tables();
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
      Model is = content(*store_);
      expect(is == synced_ || std::ranges::find(since_sync_, is) != since_sync_.end(),
             "a crash left what never was");
      model_ = std::move(is);
    }
    synced();
  }

  template <class K, class M>
  static void read(Store& store, const char* name, M& map) {
    auto table = store.table<K>(name).value();
    auto cursor = table.cursor();
    for (bool there = cursor.first(); there; there = cursor.next()) {
      map.emplace(cursor.key(), cursor.value());
    }
    expect(cursor.outcome() == Outcome::done, "a walk");
    expect(table.count() == map.size(), "count");
  }
  static Model content(Store& store) {
    Model is;
    for (std::size_t i = 0; i < kNames.size(); ++i)
      read<Bytes>(store, kNames.at(i), is.bytes.at(i));
    read<std::uint64_t>(store, "n", is.numbers);
    return is;
  }
  void compare() { expect(content(*store_) == model_, "the store differs from the model"); }

  static constexpr int kMostCopies = 3;  // of one input: each makes a file
  fuzz::Choices choices_;
  std::string spec_;
  bool buffered_ = false;
  fuzz::File file_;
  std::optional<Store> store_;
  std::array<std::optional<Table<Bytes>>, 2> tables_;
  std::optional<Table<std::uint64_t>> numbers_;
  Model model_;
  Model synced_;
  std::vector<Model> since_sync_;
  int copies_ = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Session(fuzz::Choices({data, size})).run();
  return 0;
}
