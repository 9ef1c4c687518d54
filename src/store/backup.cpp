// Backup: all entries are copied while others write; then, again and again, the keys that were
// written meanwhile; the last few of them while writers are held.
#include <new>
#include <string>
#include <system_error>

#include "store/latches.hpp"
#include "store/new_store.hpp"
#include "store/state.hpp"

namespace everleaf::store {
namespace {

constexpr std::size_t kFew = 256;  // keys that writers may be held for
constexpr int kRounds = 16;

using Keys = std::set<std::pair<TableBase*, OwnedAny>>;

std::unexpected<Error> failed(Outcome outcome, bool reading) {
  const std::string what = reading ? "the store cannot be read: " : "the copy cannot be written: ";
  const Code code = outcome == Outcome::out_of_space ? Code::out_of_space
                    : outcome == Outcome::corrupt    ? Code::corrupt
                                                     : Code::io;
  return std::unexpected(Error{code, what + std::string(to_string(outcome))});
}

// A table and its copy.
template <class K>
Result<void> copy_key(const TableOf<K>& from, Table<K>& to, K key) {
  const alloc::Grace::Pin pin(from.state.grace());
  if (!pin.ok()) return failed(Outcome::too_many_threads, true);
  Bytes value;
  const Outcome is = from.look(key, value);
  if (is != Outcome::done && is != Outcome::absent) return failed(is, true);
  const Outcome outcome = is == Outcome::done ? to.put(key, value) : to.erase(key);
  if (outcome == Outcome::done || (outcome == Outcome::absent && is == outcome)) return {};
  return failed(outcome, false);
}

}  // namespace

template <class K>
void State::watch(TableBase& table, K key) noexcept {
  const base::MutexGuard guard(watch_mutex_);
  try {
    written_.emplace(&table, OwnedAny(typename OwnedKey<K>::type(key)));
  } catch (const std::bad_alloc&) {
    watch_failed_ = true;
  }
}

template void State::watch(TableBase&, Bytes) noexcept;
template void State::watch(TableBase&, std::uint64_t) noexcept;

// The copy in the making.
class State::Copy {
 public:
  Copy(State& state, const std::filesystem::path& path) : state_(state), copy_(path) {}
  Copy(const Copy&) = delete;
  Copy& operator=(const Copy&) = delete;
  ~Copy() { state_.watching_.store(false); }

  Result<void> make() {
    if (auto made = copy_.make(state_.durability_); !made) return made;
    {
      const base::MutexGuard guard(state_.watch_mutex_);
      state_.written_.clear();
      state_.watch_failed_ = false;
    }
    state_.watching_.store(true);
    const AllLatches seen(state_);  // by all writers
    return {};
  }

  Result<void> copy_tables() {
    const auto all = state_.tables();
    if (!all) return std::unexpected(all.error());
    for (const IndexInfo& one : *all) {
      // A read-only store opens without what is damaged; a copy without it would pass for whole.
      if (state_.tables_.contains(one.name)) continue;
      return std::unexpected(Error{Code::corrupt, "table '" + one.name + "' cannot be read"});
    }
    for (const auto& [name, table] : state_.tables_) {
      auto copied = table->info.key_type == KeyType::u64 ? copy_table<std::uint64_t>(table)
                                                         : copy_table<Bytes>(table);
      if (!copied) return copied;
    }
    return {};
  }

  Result<void> copy_written() {
    for (int round = 0; round < kRounds; ++round) {
      const Keys keys = take_written();
      if (auto copied = copy(keys); !copied) return copied;
      if (keys.size() <= kFew) break;
    }
    const AllLatches held(state_);
    state_.watching_.store(false);
    if (auto copied = copy(take_written()); !copied) return copied;
    const base::MutexGuard guard(state_.watch_mutex_);
    if (state_.watch_failed_) return failed(Outcome::out_of_space, true);
    return {};
  }

  Result<void> name() {
    u64_.clear();
    bytes_.clear();
    return copy_.name();
  }

 private:
  template <class K>
  auto& copies() {
    if constexpr (std::same_as<K, Bytes>) {
      return bytes_;
    } else {
      return u64_;
    }
  }

  template <class K>
  Result<void> copy_table(const std::shared_ptr<TableBase>& table) {
    auto to = copy_.store().table<K>(table->info.name, table->info.spec);
    if (!to) return std::unexpected(to.error());
    copies<K>().emplace(table.get(), *to);
    const Table<K> from = state_.handle<K>(table);
    Cursor<K> cursor = from.cursor();
    // What writers put before the cursor may be any number of sizes; what they did not put is
    // looked for only where one size was not enough.
    Budget any(state_.medium().size());
    Budget unwritten(kMostRead * state_.medium().size());
    for (cursor.first(); cursor.valid(); cursor.next()) {
      std::uint64_t bytes = sizeof(Word) + cursor.value().size();
      if constexpr (std::same_as<K, Bytes>) bytes += cursor.key().size();
      if (!any.spend(bytes) && !was_written(*table, cursor.key()) && !unwritten.spend(bytes)) {
        return failed(Outcome::corrupt, true);
      }
      const Outcome outcome = to->put(cursor.key(), cursor.value());
      if (outcome != Outcome::done) return failed(outcome, false);
    }
    return cursor.outcome() == Outcome::done ? Result<void>()
                                             : Result<void>(failed(cursor.outcome(), true));
  }

  template <class K>
  bool was_written(TableBase& table, K key) {
    const base::MutexGuard guard(state_.watch_mutex_);
    return state_.written_.contains({&table, OwnedAny(typename OwnedKey<K>::type(key))});
  }
  Keys take_written() {
    const base::MutexGuard guard(state_.watch_mutex_);
    return std::exchange(state_.written_, {});
  }

  Result<void> copy(const Keys& keys) {
    for (const auto& [table, key] : keys) {
      auto copied = std::visit([&](const auto& owned) { return copy_one(*table, owned); }, key);
      if (!copied) return copied;
    }
    return {};
  }
  Result<void> copy_one(TableBase& table, std::uint64_t key) {
    return copy_key(static_cast<TableOf<std::uint64_t>&>(table), u64_.at(&table), key);
  }
  Result<void> copy_one(TableBase& table, const std::string& key) {
    return copy_key(static_cast<TableOf<Bytes>&>(table), bytes_.at(&table), Bytes(key));
  }

  State& state_;
  NewStore copy_;
  std::map<TableBase*, Table<std::uint64_t>> u64_;
  std::map<TableBase*, Table<Bytes>> bytes_;
};

Result<void> State::backup(const std::filesystem::path& path) {
  try {
    std::error_code error;
    if (std::filesystem::exists(path, error)) {
      return std::unexpected(Error{Code::exists, path.string() + " is there already"});
    }
    const base::MutexGuard guard(tables_mutex_);
    Copy copy(*this, path);
    if (auto made = copy.make(); !made) return made;
    if (auto copied = copy.copy_tables(); !copied) return copied;
    if (auto copied = copy.copy_written(); !copied) return copied;
    return copy.name();
  } catch (const std::bad_alloc&) {
    return std::unexpected(Error{Code::out_of_space, "no memory for the backup"});
  }
}

}  // namespace everleaf::store
