// The root directory: named indexes of a pool.
//
// Thread safety: the owner serialises calls. A new entry is filled while its state word says free;
// the redo record that allocates the tree's first node sets the state word, so an index is there
// wholly or not at all.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include <everleaf/pool.hpp>

#include "alloc/redo_log.hpp"
#include "pmem/format.hpp"

namespace everleaf::tree {

class Directory {
 public:
  explicit Directory(pmem::Medium& medium) : medium_(medium) {}

  struct Found {
    IndexInfo info;
    pmem::Offset root_word;
  };
  // corrupt if the entry's checksum is wrong; an empty optional if there is no such index.
  [[nodiscard]] Result<std::optional<Found>> find(std::string_view name) const;
  [[nodiscard]] std::vector<Found> list(std::vector<std::string>* problems) const;

  // Fills a free entry and adds its state word to `record`; the offset of its root word.
  // out_of_space when all entries are taken.
  [[nodiscard]] Result<pmem::Offset> prepare(const IndexInfo& info, alloc::Redo& record);
  // The entry is free with `record`; its blocks are the caller's.
  static void remove(const Found& found, alloc::Redo& record);

 private:
  [[nodiscard]] pmem::DirectoryEntry* entry(std::size_t i) const {
    return medium_.at<pmem::DirectoryEntry>(pmem::kDirectoryAt + i * sizeof(pmem::DirectoryEntry));
  }
  // Whether the entry can be believed.
  [[nodiscard]] static bool whole(const pmem::DirectoryEntry& e);
  [[nodiscard]] Found read(const pmem::DirectoryEntry& e) const;
  pmem::Medium& medium_;
};

}  // namespace everleaf::tree
