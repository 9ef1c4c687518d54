// The public face over the room.
#include <everleaf/store.hpp>

#include "base/last_words.hpp"
#include "store/state.hpp"

namespace everleaf {
namespace {

std::unexpected<Error> closed() {
  return std::unexpected(Error{Code::bad_argument, "the store is closed"});
}

}  // namespace

Result<Store> StoreAccess::over(Pool pool, std::optional<Durability> durability) {
  auto state = store::State::start(std::move(pool), durability);
  if (!state) return std::unexpected(state.error());
  return Store(std::move(*state));
}

Result<Store> Store::open(const std::filesystem::path& path, const StoreOptions& options) {
  auto pool = Pool::open(path, options.pool);
  if (!pool) return std::unexpected(pool.error());
  auto store = StoreAccess::over(std::move(*pool), options.durability);
  if (store) return store;
  return std::unexpected(Error{store.error().code, path.string() + ": " + store.error().message});
}

Result<Store> Store::anonymous(const StoreOptions& options) {
  auto pool = Pool::anonymous(options.pool);
  if (!pool) return std::unexpected(pool.error());
  return StoreAccess::over(std::move(*pool), options.durability);
}

template <class K>
Result<Table<K>> Store::table(std::string_view name, std::string_view spec) {
  if (!state_) return closed();
  auto table = state_->table<K>(name, spec);
  if (!table) return std::unexpected(table.error());
  return Table<K>(state_, std::move(*table));
}

Result<void> Store::drop_table(std::string_view name) {
  if (!state_) return closed();
  return state_->drop_table(name);
}
Result<std::vector<IndexInfo>> Store::tables() const {
  if (!state_) return closed();
  return state_->tables();
}
Outcome Store::apply(const Batch& batch) {
  return state_ ? state_->apply(batch.items_) : Outcome::dropped;
}
Outcome Store::sync() {
  return state_ ? state_->sync() : Outcome::dropped;
}
Result<void> Store::backup(const std::filesystem::path& path) {
  if (!state_) return closed();
  return state_->backup(path);
}
Result<RepairReport> Store::repair(const std::filesystem::path& from,
                                   const std::filesystem::path& to, const RepairOptions& options) {
  return store::State::repair(from, to, options);
}
Result<CheckReport> Store::check() const {
  if (!state_) return closed();
  return state_->check();
}
Result<StoreInfo> Store::info() const {
  if (!state_) return closed();
  return state_->info();
}
Pool Store::pool() const {
  return state_->pool();
}

Result<void> Store::close() {
  if (!state_) return {};
  if (auto ours = state_->of_this_process(); !ours) return ours;
  return base::LastWords::of([this] { state_.reset(); });
}

Batch::Batch() = default;
Batch::Batch(Batch&&) noexcept = default;
Batch& Batch::operator=(Batch&&) noexcept = default;
Batch::~Batch() = default;

template <class K>
void Batch::put(const Table<K>& table, K key, Bytes value) {
  store::BatchItem item;
  item.table = table.table_;
  item.key.emplace<typename OwnedKey<K>::type>(key);
  item.value.emplace(value);
  // Whole by now: without its value, for lack of memory, it would be a removal.
  items_.push_back(std::move(item));
}
template <class K>
void Batch::erase(const Table<K>& table, K key) {
  store::BatchItem item;
  item.table = table.table_;
  item.key.emplace<typename OwnedKey<K>::type>(key);
  items_.push_back(std::move(item));
}
void Batch::clear() {
  items_.clear();
}
std::size_t Batch::size() const noexcept {
  return items_.size();
}

template Result<Table<Bytes>> Store::table(std::string_view, std::string_view);
template Result<Table<std::uint64_t>> Store::table(std::string_view, std::string_view);
template void Batch::put(const Table<Bytes>&, Bytes, Bytes);
template void Batch::put(const Table<std::uint64_t>&, std::uint64_t, Bytes);
template void Batch::erase(const Table<Bytes>&, Bytes);
template void Batch::erase(const Table<std::uint64_t>&, std::uint64_t);

}  // namespace everleaf
