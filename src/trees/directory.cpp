#include "trees/directory.hpp"

#include <algorithm>
#include <string>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace everleaf::tree {
namespace {

constexpr std::size_t kSummedFrom = offsetof(pmem::DirectoryEntry, key_type);
constexpr std::size_t kSummedTo = offsetof(pmem::DirectoryEntry, root);

std::uint64_t checksum_of(const pmem::DirectoryEntry& entry) {
  return XXH3_64bits(reinterpret_cast<const std::byte*>(&entry) + kSummedFrom,
                     kSummedTo - kSummedFrom);
}

std::string damage(std::size_t i) {
  return "directory entry " + std::to_string(i) + " is damaged: restore the pool from a copy";
}

}  // namespace

bool Directory::whole(const pmem::DirectoryEntry& e) {
  return pmem::load(&e.state) == 1 && e.checksum == checksum_of(e) &&
         (e.key_type & ~pmem::kTableBit) <= 1 && e.name.back() == 0 && e.spec.back() == 0;
}

Directory::Found Directory::read(const pmem::DirectoryEntry& e) const {
  return {{e.name.data(), e.spec.data(), static_cast<KeyType>(e.key_type & ~pmem::kTableBit),
           (e.key_type & pmem::kTableBit) != 0},
          medium_.offset_of(&e.root)};
}

Result<std::optional<Directory::Found>> Directory::find(std::string_view name) const {
  std::optional<std::size_t> damaged;
  for (std::size_t i = 0; i < kMaxIndexes; ++i) {
    const pmem::DirectoryEntry& e = *entry(i);
    if (pmem::load(&e.state) == 0) continue;
    if (!whole(e)) {
      damaged = damaged.value_or(i);
    } else if (name == e.name.data()) {
      return std::optional(read(e));
    }
  }
  // A damaged entry may be the one that was asked for: do not call it absent, let alone create it.
  if (damaged) return std::unexpected(Error{Code::corrupt, damage(*damaged)});
  return std::optional<Found>{};
}

std::vector<Directory::Found> Directory::list(std::vector<std::string>* problems) const {
  std::vector<Found> all;
  for (std::size_t i = 0; i < kMaxIndexes; ++i) {
    const pmem::DirectoryEntry& e = *entry(i);
    if (pmem::load(&e.state) == 0) continue;
    if (whole(e)) {
      all.push_back(read(e));
    } else if (problems != nullptr) {
      problems->push_back(damage(i));
    }
  }
  return all;
}

Result<pmem::Offset> Directory::prepare(const IndexInfo& info, alloc::Redo& record) {
  for (std::size_t i = 0; i < kMaxIndexes; ++i) {
    pmem::DirectoryEntry& e = *entry(i);
    if (pmem::load(&e.state) != 0 || (held_.load() >> i & 1) != 0) continue;
    e.key_type = static_cast<std::uint64_t>(info.key_type) | (info.table ? pmem::kTableBit : 0);
    e.name.fill(0);
    e.spec.fill(0);
    std::ranges::copy(info.name, e.name.begin());
    std::ranges::copy(info.spec, e.spec.begin());
    e.root = 0;
    e.checksum = checksum_of(e);
    medium_.flush(&e, sizeof e);
    record.cover(medium_.offset_of(&e) + kSummedFrom, kSummedTo - kSummedFrom);
    record.cover(medium_.offset_of(&e.checksum), sizeof e.checksum);
    record.store(medium_.offset_of(&e.state), 1, 0);
    return medium_.offset_of(&e.root);
  }
  return std::unexpected(
      Error{Code::out_of_space, "the pool holds " + std::to_string(kMaxIndexes) +
                                    " indexes and tables already: use another pool"});
}

void Directory::remove(const Found& found, alloc::Redo& record) {
  constexpr std::size_t kBack =
      offsetof(pmem::DirectoryEntry, root) - offsetof(pmem::DirectoryEntry, state);
  record.store(found.root_word - kBack, 0, 0);
}

}  // namespace everleaf::tree
