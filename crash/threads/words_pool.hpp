// A pool with words and nothing else in it: the smallest owner of src/pmwcas, for its tests.
//
// Its first block, the home, holds the offset of the operations' table, how many words there are,
// which of them name blocks, and the words. Nothing in it is inline that touches the pool: the
// crash checker compiles words_pool.cpp with hooks, and its own code without.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "alloc/ground.hpp"
#include "pmem/pool_file.hpp"
#include "pmwcas/pmwcas.hpp"
#include "words/word_pool.hpp"

namespace everleaf::crash {

class WordsPool {
 public:
  using Offset = pmem::Offset;
  using Word = pmem::Word;
  using File = Result<std::unique_ptr<pmem::PoolFile>>;

  // `blocks`: bit i, word i names a block or holds 0; it begins with a block. Null: no pool, or no
  // space in it.
  static std::unique_ptr<WordsPool> create(File file, const std::vector<Word>& values,
                                           Word blocks = 0);
  // Recovers.
  static Result<std::unique_ptr<WordsPool>> open(File file);
  WordsPool(const WordsPool&) = delete;
  WordsPool& operator=(const WordsPool&) = delete;

  [[nodiscard]] pmem::Medium& medium() { return file_->medium(); }
  [[nodiscard]] alloc::Heap& heap() { return ground_.heap; }
  [[nodiscard]] alloc::Grace& grace() { return ground_.grace; }
  [[nodiscard]] pmwcas::DescriptorPool& words() { return *words_; }
  [[nodiscard]] Offset table() const { return table_; }
  [[nodiscard]] std::size_t count() const { return count_; }
  [[nodiscard]] bool names_block(std::size_t index) const { return (blocks_ >> index & 1) != 0; }
  [[nodiscard]] Word* word(std::size_t index);
  [[nodiscard]] Word value(std::size_t index);
  [[nodiscard]] std::vector<Word> values();

  // A reserved block, filled and flushed; 0: no space.
  [[nodiscard]] Offset new_block();

  // What is allocated against what can be reached, and references that are left, while no operation
  // is under way. Empty: fine.
  [[nodiscard]] std::string problem();

 private:
  explicit WordsPool(std::unique_ptr<pmem::PoolFile> file);
  bool make(const std::vector<Word>& values, Word blocks);
  Result<void> start();

  std::unique_ptr<pmem::PoolFile> file_;
  alloc::Ground ground_;
  Offset home_ = 0;
  Offset table_ = 0;
  std::size_t count_ = 0;
  Word blocks_ = 0;
  std::unique_ptr<pmwcas::DescriptorPool> words_;
};

// The same of a pool of src/words, which is observed, too.
struct WordPoolProbe {
  // A pool whose blocks of the sizes that one with so many words takes have been used before.
  static bool use_blocks(pmem::PoolFile& file, std::size_t count);
  static std::vector<pmem::Word> values(pmwcas::WordPool& pool);
  // One operation on the first word and the last: each is one more. False: it does not succeed.
  static bool add_one(pmwcas::WordPool& pool);
  // While no operation is under way. Empty: fine.
  static std::string problem(pmwcas::WordPool& pool);
};

}  // namespace everleaf::crash
