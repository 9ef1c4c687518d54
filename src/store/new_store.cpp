#include "store/new_store.hpp"

#include <cerrno>
#include <string>

#include <unistd.h>

namespace everleaf::store {

Result<void> NewStore::make(Durability durability) {
  // No crash of it matters before it has a name, and name() writes all of it back.
  PoolOptions options;
  options.domain = Domain::process;
  auto pool = PoolAccess::create_unnamed(unborn_, options);
  if (!pool) return std::unexpected(pool.error());
  auto file = PoolAccess::state(*pool).file().descriptor().duplicate();
  if (!file) return std::unexpected(file.error());
  file_ = std::move(*file);
  auto store = StoreAccess::over(std::move(*pool), durability);
  if (!store) return std::unexpected(store.error());
  store_.emplace(std::move(*store));
  return {};
}

Result<void> NewStore::name() {
  if (const Outcome synced = store_->sync(); synced != Outcome::done) {
    return std::unexpected(
        Error{synced == Outcome::out_of_space ? Code::out_of_space : Code::io,
              unborn_.path().string() + " cannot be written: " + std::string(describe(synced))});
  }
  auto closed = store_->close();
  store_.reset();
  if (!closed) return closed;
  if (::fsync(file_.get()) != 0) {
    return std::unexpected(
        pmem::system_error("cannot write back " + unborn_.path().string(), errno));
  }
  return unborn_.name(file_);
}

}  // namespace everleaf::store
