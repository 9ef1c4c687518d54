// The persistent multi-word compare-and-swap (Wang, Levandoski, Larson, ICDE 2018; Arulraj et al.,
// PVLDB 11(5), 2018, section 2.3). README.md has the contract of a word, the steps W1 to W6 and the
// crash cases.
//
// Thread safety: all methods of DescriptorPool from any thread but where they say otherwise; a
// Descriptor belongs to the thread that allocated it. Never blocks, but see the README's limits.
// Cost: execute() two fences, three if it allocates blocks; one fence with Durability::later, none
// for a single word where nothing is under way; read() one load there, and one fence where it
// meets a placed operation (R1).
// Invariants
//   I1. A value in a word counts as durable, or was written with Durability::later; a reference
//       stands for a value that does, or, while its operation is placed, will when who reads it has
//       flushed the words (R1).
//   I2. A reference never comes back once it has left a word: sequences, and install records.
//   I3. What a reference names stays as it is while the reference is in a word.
//   I4. A descriptor is used again when no word durably refers to it, and only then has blocks if
//       it was durably free since the last ones.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "alloc/grace.hpp"
#include "alloc/heap.hpp"
#include "alloc/redo_log.hpp"
#include "base/seam.hpp"
#include "pmwcas/layout.hpp"

namespace everleaf::pmwcas {

enum class Answer : std::uint8_t {
  succeeded,
  failed,    // a word was not as expected: nothing changed
  io_error,  // a write-back failed: the next recovery decides
  corrupt,   // a block that it frees is none: the pool is damaged; or the caller is mistaken: a
             // reserved entry has the control bit, or a value of Policy::free_one that is no block
             // to allocate, or blocks are named twice or are too many. Nothing changed
  out_of_space,  // without ok(): nothing changed
};

enum class Durability : std::uint8_t {
  at_return,
  later,  // each word old or new after a crash, until somebody builds on it; no blocks
};

// What becomes of the blocks that the values of a word name.
enum class Policy : std::uint8_t {
  none,
  free_one,  // the old one is freed if the operation succeeds, the new one given back if it fails
};

class DescriptorPool;

// An operation in the making, on the stack. What is not executed is discarded at the end.
class Descriptor {
 public:
  // Instead of the default for blocks that are not needed any more: a freed one is retired to its
  // grace period, which has not begun when this is called; one that was not used goes back to the
  // heap. A crash knows the default only. It is called where the operation is discarded or
  // fails, or when this thread slot executes or settles later, maybe by another thread that has the
  // slot then, or when the pool is closed: what it captures lives as long. It must not begin an
  // operation, nor throw.
  using Callback = std::function<void(Offset block, bool freed)>;

  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { discard(); }

  // False: no thread slot is free, or no space for this thread's lane.
  [[nodiscard]] bool ok() const { return lane_ != nullptr; }

  // False, and nothing is added: the word is there already, there are kMaxWords, or a value has the
  // control bit.
  bool add_word(Word* word, Word expected, Word desired);
  // The new value is written through the pointer before execute(); null as above.
  [[nodiscard]] Word* reserve_entry(Word* word, Word expected, Policy policy);
  // A block that was written as the new value is the caller's again.
  bool remove_word(Word* word);
  // A reserved block that succeeds together with the operation; one in use that goes with it.
  // False: kMaxBlocks, it is noted already, or there is no block to allocate, or one in use.
  // Whether there is one to free execute() knows: it fails if somebody else was first, for then a
  // word has changed.
  bool allocates(Offset block);
  bool frees(Offset block);

  // Once. The caller is pinned (alloc::Grace) since before he read what he expects. Without a word
  // it fails.
  [[nodiscard]] Answer execute(Durability durability = Durability::at_return);
  // Gives back what it allocates, by policies, too.
  void discard();

 private:
  friend class DescriptorPool;
  // No default values: zeroing what is not used costs as much as an installation.
  struct Block {
    Offset at;
    alloc::Heap::Bit bit;
    bool allocated;
  };
  struct Lane;  // a thread slot's descriptors
  struct Work {
    Word* word;
    Word expected;
    Word desired;
    Policy policy;
  };
  Descriptor(DescriptorPool& pool, Lane* lane, Callback callback)
      : pool_(pool), lane_(lane), callback_(std::move(callback)) {}
  [[nodiscard]] bool takes(const Word* word, Word expected, Word desired) const;
  Word* add(const Work& work);
  [[nodiscard]] bool note_block(Offset block, bool allocated);
  [[nodiscard]] bool note_policies();
  [[nodiscard]] alloc::Heap::Bit bit_of_reserved(Offset block) const;

  DescriptorPool& pool_;
  Lane* lane_;
  Callback callback_;
  [[nodiscard]] std::span<const Work> places() const { return std::span(words_).first(places_); }
  [[nodiscard]] std::span<Work> places() { return std::span(words_).first(places_); }
  [[nodiscard]] std::span<const Block> blocks() const {
    return std::span(blocks_).first(block_count_);
  }
  void clear() { places_ = count_ = block_count_ = 0; }

  std::array<Work, kMaxWords> words_;  // word null: a free place
  std::size_t places_ = 0;             // that were ever taken
  std::size_t count_ = 0;
  std::array<Block, kMaxBlocks> blocks_;
  std::size_t block_count_ = 0;
};

struct Statistics {
  std::uint64_t executed = 0;
  std::array<std::uint64_t, kMaxWords + 1> of_words{};  // the same by their number
  std::uint64_t failed = 0;
  std::uint64_t helped = 0;  // operations of others
};

class DescriptorPool {
 public:
  // `table`: a block of sizeof(TableAt), zero at first. recover() comes before anything else.
  DescriptorPool(pmem::Medium& medium, alloc::Heap& heap, alloc::RedoLog& redo, alloc::Grace& grace,
                 Offset table);
  DescriptorPool(const DescriptorPool&) = delete;
  DescriptorPool& operator=(const DescriptorPool&) = delete;
  ~DescriptorPool();

  // Finishes what a crash interrupted; nobody else is there. Writes nothing if there is nothing.
  // corrupt: the table or a lane is damaged. O(lanes).
  [[nodiscard]] everleaf::Result<void> recover();

  // The value of a word. The caller is pinned.
  [[nodiscard]] Word read(const Word* word) const {
    const base::Durable durable;  // I1
    const Word value = pmem::load(word);
    return (value & kControl) == 0 ? value : resolve(word, value);
  }

  [[nodiscard]] Descriptor allocate(Descriptor::Callback callback = {});

  // W6 of everything that this thread slot has executed: freed blocks are in their grace period
  // afterwards, and what was to be durable later is. Up to three fences.
  void settle();
  // The same for all slots; nobody else is there. False: a write-back failed.
  bool settle_all();

  void for_each_block(const std::function<void(Offset, std::size_t)>& visit) const;
  [[nodiscard]] Statistics statistics() const;
  // Of other thread slots. O(kMaxThreads).
  [[nodiscard]] std::uint64_t executed_by_others() const;

 private:
  friend class Descriptor;
  using Lane = Descriptor::Lane;
  using Kind = Reference::Kind;
  struct Operation;  // the words of a descriptor, copied out
  class Recovery;
  enum class Step : std::uint8_t { decided, blocked, io_error };
  struct Blocker {  // an open operation, and the word where its reference was met
    Reference reference{0};
    const Word* word = nullptr;
  };

  [[nodiscard]] Word resolve(const Word* word, Word seen) const;
  [[nodiscard]] LaneAt* lane_at(unsigned slot) const;
  [[nodiscard]] DescriptorAt* descriptor_of(Reference reference) const;
  [[nodiscard]] static bool swap(Word* word, Word from, Word to);
  [[nodiscard]] static Word value_of(const DescriptorAt& descriptor, State state,
                                     Reference reference);
  void make_durable(Reference reference) const;
  Lane* lane();
  Lane* new_lane(unsigned slot);

  [[nodiscard]] Answer run(Descriptor& mine, Durability durability);
  [[nodiscard]] Answer run_alone(Word* word, Word expected, Word desired, Lane& lane);
  class Lines;
  void write_out(Descriptor& mine, std::size_t which, Lines& lines);
  static void fetch_next(const Lane& lane, std::size_t bytes);
  void note_met(const Operation& operation, Lane& lane, Lines& lines);
  [[nodiscard]] Step install_all(const Operation& operation, Lane& lane, bool owner,
                                 Blocker& blocker);
  [[nodiscard]] bool place(const Operation& operation, std::size_t index, Lane& lane, bool owner);
  void finish_install(Word* word, Word seen);
  [[nodiscard]] Step replace_decided(Word* word, Reference seen, const Lane& lane,
                                     Blocker& blocker);
  [[nodiscard]] bool help(Blocker blocker, Lane& lane);
  [[nodiscard]] bool copy_out(Reference reference, Operation& operation) const;
  static bool decide(const Operation& operation, Status from, Status to);

  // The words of an operation that need not be durable soon: a second fence of the next one
  // takes them along, most of which are its own.
  enum class Rest : std::uint8_t { waits, goes_along };
  // `lines`: what it makes durable beside what is pending.
  [[nodiscard]] bool fence(Lane& lane, Lines& lines, Rest rest,
                           pmem::Site site = pmem::Site::current());
  void note_pending(const Lane& lane, Lines& lines, Rest rest) const;
  void advance(Lane& lane, Rest rest);
  void clean(Lane& lane, std::size_t which);
  void free(Lane& lane, std::size_t which);
  void done(Lane& lane, std::size_t which);
  void change_bits(const Descriptor::Block& block, bool set);
  void finish(Lane& lane, std::size_t which);
  [[nodiscard]] bool settle(Lane& lane);

  pmem::Medium& medium_;
  alloc::Heap& heap_;
  alloc::RedoLog& redo_;
  alloc::Grace& grace_;
  const Offset table_;
  std::unique_ptr<std::array<std::atomic<Lane*>, kMaxThreads>> lanes_;
};

// Of a change that is tried until it succeeds: each attempt fails by an operation that another
// thread has executed meanwhile, or did something that had to be done first, which comes to an end.
// Where others execute none for long, the pool is damaged: what the caller stores changes the words
// that it expects.
class Retries {
 public:
  explicit Retries(const DescriptorPool& pool) : pool_(pool) {}
  // After an attempt that failed. False: the next one would fail, too.
  [[nodiscard]] bool again() {
    if (++failed_ % kMost != 0) return true;
    const std::uint64_t now = pool_.executed_by_others();
    return std::exchange(others_, now) != now;
  }

 private:
  // Of each thread that sleeps others may finish one operation, which it has not counted yet; and
  // for that the caller may have to replace nodes.
  static constexpr std::uint64_t kMost = 4 * kMaxThreads;
  const DescriptorPool& pool_;
  std::uint64_t failed_ = 0;
  std::uint64_t others_ = ~std::uint64_t{0};
};

}  // namespace everleaf::pmwcas
