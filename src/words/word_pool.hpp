// A pool with words and nothing else: the smallest owner of a DescriptorPool, for whoever builds on
// it without a tree. README.md has an example.
//
// Thread safety: open and the destructor belong to one thread; the rest from any thread, by the
// rules of the DescriptorPool.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>

#include <everleaf/pool.hpp>

#include "alloc/ground.hpp"
#include "pmem/pool_file.hpp"
#include "pmwcas/pmwcas.hpp"

namespace everleaf::pmwcas {

inline constexpr std::size_t kMostPoolWords = std::size_t{1} << 20;

class WordPool {
 public:
  // Opens the file and recovers what a crash interrupted, or creates it with `count` words of zero.
  // bad_argument: no words, more than kMostPoolWords, or a read-only pool; wrong_tree: the pool has
  // another number of words, or indexes; and the errors of Pool::open. O(count) when it creates,
  // else as recovery (README.md).
  static Result<std::unique_ptr<WordPool>> open(const std::filesystem::path& path,
                                                std::size_t count, const PoolOptions& options = {});
  WordPool(const WordPool&) = delete;
  WordPool& operator=(const WordPool&) = delete;
  // Nobody else is there. What succeeded is durable already.
  ~WordPool();

  [[nodiscard]] std::size_t count() const { return count_; }
  // The index is below count(). At the same place in every session.
  [[nodiscard]] Word* word(std::size_t index) { return words_at_ + index; }
  // The value of that word now.
  [[nodiscard]] Word value(std::size_t index) {
    const alloc::Grace::Pin pin(ground_.grace);
    return words_->read(word(index));
  }
  [[nodiscard]] DescriptorPool& words() { return *words_; }
  // Whoever works on words is pinned since before he reads what he expects.
  [[nodiscard]] alloc::Grace& grace() { return ground_.grace; }
  // Of blocks that words name.
  [[nodiscard]] alloc::Heap& heap() { return ground_.heap; }
  [[nodiscard]] pmem::Medium& medium() { return file_->medium(); }

 private:
  friend struct WordPoolAccess;
  explicit WordPool(std::unique_ptr<pmem::PoolFile> file);
  [[nodiscard]] Result<void> create(std::size_t count);
  [[nodiscard]] Result<void> start(std::size_t count);

  std::unique_ptr<pmem::PoolFile> file_;
  alloc::Ground ground_;
  std::size_t count_ = 0;
  Word* words_at_ = nullptr;
  std::unique_ptr<DescriptorPool> words_;  // since it is open
};

// For the crash checker, as PoolAccess.
struct WordPoolAccess {
  // The pool in a file that is open for writing.
  static Result<std::unique_ptr<WordPool>> over(std::unique_ptr<pmem::PoolFile> file,
                                                std::size_t count);
  // What the death of the process does: nothing is written any more.
  static void abandon(WordPool& pool) { pool.words_.reset(); }
};

}  // namespace everleaf::pmwcas
