// A store that is filled before it has a name: what a backup or a repair makes. Without name() it
// is gone with its process, whatever ends that.
#pragma once

#include "pmem/unborn.hpp"
#include "store/state.hpp"

namespace everleaf::store {

class NewStore {
 public:
  explicit NewStore(const std::filesystem::path& path) : unborn_(path) {}
  [[nodiscard]] Result<void> make(Durability durability);
  [[nodiscard]] Store& store() { return *store_; }
  // Syncs and closes it, and gives it its name. No table of it may be open any more.
  [[nodiscard]] Result<void> name();

 private:
  pmem::Unborn unborn_;
  pmem::Descriptor file_;
  std::optional<Store> store_;
};

}  // namespace everleaf::store
