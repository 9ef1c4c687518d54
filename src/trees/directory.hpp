// The root directory: named indexes of a pool.
//
// Thread safety: the owner serialises calls. A new entry is filled while its state word says free;
// the redo record that allocates the tree's first node sets the state word, so an index is there
// wholly or not at all.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
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

  // A place that is free in the pool, or is about to be, and not given to anybody else before the
  // end of this: who still reads what was there comes by its root word. The directory outlives it.
  class Held {
   public:
    Held() = default;
    Held(Directory& in, std::uint64_t bit) : in_(&in), bit_(bit) { in.held_.fetch_or(bit_); }
    Held(Held&& other) noexcept : in_(std::exchange(other.in_, nullptr)), bit_(other.bit_) {}
    Held& operator=(Held&& other) noexcept {
      std::swap(in_, other.in_);
      std::swap(bit_, other.bit_);
      return *this;
    }
    ~Held() {
      if (in_ != nullptr) in_->held_.fetch_and(~bit_);
    }

   private:
    Directory* in_ = nullptr;
    std::uint64_t bit_ = 0;
  };
  [[nodiscard]] Held hold(const Found& found) { return {*this, bit_of(found)}; }

 private:
  [[nodiscard]] static std::uint64_t bit_of(const Found& found) {
    return std::uint64_t{1} << (found.root_word - pmem::kDirectoryAt) /
                                   sizeof(pmem::DirectoryEntry);
  }
  [[nodiscard]] pmem::DirectoryEntry* entry(std::size_t i) const {
    return medium_.at<pmem::DirectoryEntry>(pmem::kDirectoryAt + i * sizeof(pmem::DirectoryEntry));
  }
  // Whether the entry can be believed.
  [[nodiscard]] static bool whole(const pmem::DirectoryEntry& e);
  [[nodiscard]] Found read(const pmem::DirectoryEntry& e) const;
  pmem::Medium& medium_;
  std::atomic<std::uint64_t> held_{0};  // a bit for each place
  static_assert(kMaxIndexes <= 64);
};

}  // namespace everleaf::tree
