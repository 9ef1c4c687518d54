// What the tests of src/pmwcas share: pools of words, and operations in one line.
#pragma once

#include <initializer_list>
#include <memory>
#include <vector>

#include "support.hpp"
#include "words_pool.hpp"

namespace everleaf::pmwcas {

using crash::WordsPool;

inline PoolOptions options_in(Domain domain) {
  PoolOptions options = test::small_pool();
  options.domain = domain;
  options.emulate = true;
  return options;
}

// In anonymous memory; `memory`: references stay until later fences.
inline std::unique_ptr<WordsPool> words_of(const std::vector<Word>& values, Word blocks = 0,
                                           Domain domain = Domain::memory) {
  return WordsPool::create(pmem::PoolFile::anonymous(options_in(domain), nullptr), values, blocks);
}

struct Change {
  std::size_t word;
  Word expected;
  Word desired;
};

inline Answer change(WordsPool& pool, std::initializer_list<Change> changes,
                     Durability durability = Durability::at_return) {
  const alloc::Grace::Pin pin(pool.grace());
  Descriptor operation = pool.words().allocate();
  for (const Change& one : changes) {
    if (!operation.add_word(pool.word(one.word), one.expected, one.desired)) return Answer::corrupt;
  }
  return operation.execute(durability);
}

// Another block instead of the one that the word names.
inline Answer new_block(WordsPool& pool, std::size_t word) {
  const alloc::Grace::Pin pin(pool.grace());
  Descriptor operation = pool.words().allocate();
  Word* const entry = operation.reserve_entry(pool.word(word), pool.value(word), Policy::free_one);
  const Offset block = pool.new_block();
  if (entry == nullptr || block == 0) return Answer::corrupt;
  *entry = block;
  return operation.execute();
}

// Everything is as if no operation had ever been: one word each, and only what is reachable.
inline std::string settled(WordsPool& pool) {
  return pool.words().settle_all() ? pool.problem() : "a write-back failed";
}

}  // namespace everleaf::pmwcas
