// Media structs of the multi-word compare-and-swap. README.md tells what they mean.
#pragma once

#include <array>
#include <cstddef>

#include <everleaf/limits.hpp>

#include "pmem/medium.hpp"

namespace everleaf::pmwcas {

using pmem::Offset;
using pmem::Word;

inline constexpr std::size_t kMaxWords = 6;
inline constexpr std::size_t kMaxBlocks = 8;
inline constexpr std::size_t kDescriptors = 4;  // of a lane

// Of every word: 1 while an operation is under way, and then the rest is a reference.
inline constexpr Word kControl = Word{1} << 63;

// Of an operation. placed: it cannot fail any more; whether it is durable is not known (W4).
enum class Status : std::uint8_t { free = 0, undecided = 1, succeeded = 2, failed = 3, placed = 4 };

struct WordEntry {
  Word at;  // its offset; 0: none
  Word expected;
  Word desired;
};

struct alignas(pmem::kLine) DescriptorAt {
  Word state;  // State
  std::array<WordEntry, kMaxWords> words;
  std::array<Word, kMaxBlocks> blocks;  // offset | kAllocated; 0: none
  std::array<Word, 5> reserved;
};
static_assert(sizeof(DescriptorAt) == 256 && offsetof(DescriptorAt, words) == 8 &&
              offsetof(DescriptorAt, blocks) == 152);

// Of a block in a descriptor: allocated by the operation, else freed.
inline constexpr Word kAllocated = 1;

// A helper's conditional install of one word.
struct alignas(pmem::kLine) InstallAt {
  Word sequence;
  Word target;  // the reference that it installs
  Word at;      // offset of the word; 0: none
  Word old;
  std::array<Word, 4> reserved;
};
static_assert(sizeof(InstallAt) == pmem::kLine);

struct LaneAt {
  InstallAt install;
  std::array<DescriptorAt, kDescriptors> descriptors;
};
static_assert(sizeof(LaneAt) == 1088);

struct TableAt {
  std::array<Word, kMaxThreads> lanes;  // offsets; 0: none yet
};

// What a word holds while an operation is under way.
class Reference {
 public:
  enum class Kind : std::uint8_t { descriptor = 0, marker = 1, install = 2 };
  static constexpr unsigned kSequenceBits = 46;
  static constexpr Word kSequenceMask = (Word{1} << kSequenceBits) - 1;

  explicit constexpr Reference(Word word) : word_(word) {}
  constexpr Reference(Kind kind, unsigned slot, unsigned descriptor, unsigned index, Word sequence)
      : word_(kControl | static_cast<Word>(kind) << 61 |
              static_cast<Word>(slot * 32 + descriptor * 8 + index) << kSequenceBits |
              (sequence & kSequenceMask)) {}

  [[nodiscard]] constexpr Word word() const { return word_; }
  [[nodiscard]] constexpr Kind kind() const { return static_cast<Kind>(word_ >> 61 & 3); }
  [[nodiscard]] constexpr unsigned slot() const { return number() / 32; }
  [[nodiscard]] constexpr unsigned descriptor() const { return number() / 8 % kDescriptors; }
  [[nodiscard]] constexpr unsigned index() const { return number() % 8; }
  [[nodiscard]] constexpr Word sequence() const { return word_ & kSequenceMask; }
  [[nodiscard]] constexpr Reference as(Kind kind) const {
    return Reference((word_ & ~(Word{3} << 61)) | static_cast<Word>(kind) << 61);
  }

 private:
  [[nodiscard]] constexpr unsigned number() const {
    return static_cast<unsigned>(word_ >> kSequenceBits & 0x7FFF);
  }
  Word word_;
};
static_assert(kMaxThreads * 32 <= 1U << 15 && kMaxWords <= 8);

// Of a descriptor: blocks: 4 | words: 3 | sequence: 46 | Status: 3. What else lies in its fields
// is of earlier operations.
struct State {
  Word word;

  static constexpr unsigned kStatusBits = 3;
  static constexpr unsigned kWordsAt = kStatusBits + Reference::kSequenceBits;
  static constexpr unsigned kBlocksAt = kWordsAt + 3;
  [[nodiscard]] static constexpr State free(Word sequence) {
    return {(sequence & Reference::kSequenceMask) << kStatusBits};
  }
  [[nodiscard]] static constexpr State undecided(Word sequence, std::size_t words,
                                                 std::size_t blocks) {
    return State{free(sequence).word | static_cast<Word>(words) << kWordsAt |
                 static_cast<Word>(blocks) << kBlocksAt}
        .decided(Status::undecided);
  }
  [[nodiscard]] constexpr State decided(Status status) const {
    return {(word >> kStatusBits << kStatusBits) | static_cast<Word>(status)};
  }
  [[nodiscard]] constexpr Status status() const {
    return static_cast<Status>(word & ((Word{1} << kStatusBits) - 1));
  }
  // Not over: who meets it helps.
  [[nodiscard]] constexpr bool is_open() const {
    return status() == Status::undecided || status() == Status::placed;
  }
  [[nodiscard]] constexpr Word sequence() const {
    return word >> kStatusBits & Reference::kSequenceMask;
  }
  [[nodiscard]] constexpr std::size_t words() const { return word >> kWordsAt & 7; }
  [[nodiscard]] constexpr std::size_t blocks() const { return word >> kBlocksAt & 15; }
  [[nodiscard]] constexpr bool possible() const {
    return word >> (kBlocksAt + 4) == 0 && status() <= Status::placed && words() <= kMaxWords &&
           blocks() <= kMaxBlocks;
  }
};
static_assert(kMaxWords < 8 && kMaxBlocks < 16);

}  // namespace everleaf::pmwcas
