#include "words_pool.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "pmem/format.hpp"

namespace everleaf::crash {
namespace {

constexpr std::size_t kBlockWords = pmem::kLine / sizeof(pmem::Word);
constexpr std::size_t kWordsAt = kBlockWords;  // a line behind the home's start

// The first has a line of its own, the next two share one: words of a line become durable together,
// and each line has its own flush. What follows lies side by side, or there would be too many
// images.
constexpr std::size_t place_of(std::size_t index) {
  const std::size_t line = std::min<std::size_t>((index + 1) / 2, 2);
  return kWordsAt + line * kBlockWords + index - (line == 0 ? 0 : 2 * line - 1);
}
// Of a home with so many; whole lines.
constexpr std::size_t words_for(std::size_t count) {
  return (place_of(count) + kBlockWords - 1) / kBlockWords * kBlockWords;
}

// Memory that blocks of this size are made of later has been used before.
bool fill_unused(alloc::Heap& heap, pmem::Medium& medium, std::size_t bytes) {
  std::array<pmem::Offset, 8> blocks{};
  for (pmem::Offset& block : blocks) {
    block = heap.reserve(bytes);
    if (block == 0) return false;
    auto* const words = medium.at<pmem::Word>(block);
    for (std::size_t i = 0; i < bytes / sizeof(pmem::Word); ++i) {
      medium.store(words + i, ~pmem::Word{0});
    }
    if (!medium.persist(words, bytes)) return false;
  }
  for (const pmem::Offset block : blocks) heap.recycle(block);
  return true;
}

// Allocated is what is reachable. Empty: so it is.
std::string unequal(std::vector<pmem::Offset> reachable, alloc::Heap& heap) {
  std::vector<pmem::Offset> allocated;
  std::vector<std::string> problems;
  heap.for_each_allocated([&](pmem::Offset at, std::size_t) { allocated.push_back(at); },
                          &problems);
  if (!problems.empty()) return problems.front();
  std::ranges::sort(reachable);
  std::ranges::sort(allocated);
  const auto twice = std::ranges::adjacent_find(reachable);
  if (twice != reachable.end()) return "owned twice: the block at " + std::to_string(*twice);
  std::vector<pmem::Offset> odd;
  std::ranges::set_symmetric_difference(reachable, allocated, std::back_inserter(odd));
  if (odd.empty()) return {};
  const bool leak = std::ranges::binary_search(allocated, odd.front());
  return (leak ? "a leak: the block at " : "named, but free: the block at ") +
         std::to_string(odd.front());
}

}  // namespace

WordsPool::WordsPool(std::unique_ptr<pmem::PoolFile> file)
    : file_(std::move(file)), ground_(*file_) {}

std::unique_ptr<WordsPool> WordsPool::create(File file, const std::vector<Word>& values,
                                             Word blocks) {
  if (!file) return nullptr;
  std::unique_ptr<WordsPool> pool(new WordsPool(std::move(*file)));
  return pool->make(values, blocks) && pool->start() ? std::move(pool) : nullptr;
}

Result<std::unique_ptr<WordsPool>> WordsPool::open(File file) {
  if (!file) return std::unexpected(file.error());
  std::unique_ptr<WordsPool> pool(new WordsPool(std::move(*file)));
  if (auto started = pool->start(); !started) return std::unexpected(started.error());
  return pool;
}

bool WordsPool::make(const std::vector<Word>& values, Word blocks) {
  const std::size_t bytes = words_for(values.size()) * sizeof(Word);
  const Offset home = ground_.heap.reserve(bytes);
  const Offset table = ground_.heap.reserve(sizeof(pmwcas::TableAt));
  if (home == 0 || table == 0) return false;
  alloc::Redo record;
  for (std::size_t i = 0; i < sizeof(pmwcas::TableAt) / sizeof(Word); ++i) {
    medium().store(medium().at<Word>(table) + i, 0);
  }
  if (!fill_unused(ground_.heap, medium(), sizeof(pmwcas::LaneAt))) return false;
  auto* const words = medium().at<Word>(home);
  medium().store(words, table);
  medium().store(words + 1, values.size());
  medium().store(words + 2, blocks);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const Offset block = (blocks >> i & 1) != 0 ? new_block() : 0;
    if (block != 0 && !ground_.heap.activate(record, block)) return false;
    medium().store(words + place_of(i), block != 0 ? block : values[i]);
  }
  medium().flush(words, bytes);
  if (!medium().persist(medium().at(table), sizeof(pmwcas::TableAt))) return false;
  if (!ground_.heap.activate(record, home) || !ground_.heap.activate(record, table)) return false;
  record.store(pmem::kDirectoryAt, home);
  return ground_.redo.commit(record) == Outcome::done;
}

Result<void> WordsPool::start() {
  if (auto replayed = ground_.redo.recover(); !replayed) return std::unexpected(replayed.error());
  home_ = pmem::load(medium().at<Word>(pmem::kDirectoryAt));
  const std::size_t words = ground_.heap.allocated_bytes(home_) / sizeof(Word);
  if (words < kWordsAt) return std::unexpected(Error{Code::corrupt, "no home"});
  const auto* const home = medium().at<Word>(home_);
  table_ = pmem::load(home);
  count_ = pmem::load(home + 1);
  blocks_ = pmem::load(home + 2);
  if (count_ > words || words_for(count_) > words)
    return std::unexpected(Error{Code::corrupt, "too many words"});
  words_ = std::make_unique<pmwcas::DescriptorPool>(medium(), ground_.heap, ground_.redo,
                                                    ground_.grace, table_);
  return words_->recover();
}

WordsPool::Word* WordsPool::word(std::size_t index) {
  return medium().at<Word>(home_) + place_of(index);
}

WordsPool::Word WordsPool::value(std::size_t index) {
  const alloc::Grace::Pin pin(ground_.grace);
  return words_->read(word(index));
}

std::vector<WordsPool::Word> WordsPool::values() {
  std::vector<Word> all;
  for (std::size_t i = 0; i < count_; ++i) all.push_back(value(i));
  return all;
}

WordsPool::Offset WordsPool::new_block() {
  const Offset block = ground_.heap.reserve(pmem::kLine);
  if (block == 0) return 0;
  auto* const words = medium().at<Word>(block);
  for (std::size_t i = 0; i < kBlockWords; ++i) medium().store(words + i, block);
  medium().flush(words, pmem::kLine);
  return block;
}

std::string WordsPool::problem() {
  std::vector<Offset> reachable{home_};
  words_->for_each_block([&](Offset at, std::size_t) { reachable.push_back(at); });
  for (std::size_t i = 0; i < count_; ++i) {
    const Word raw = pmem::load(word(i));
    if ((raw & pmwcas::kControl) != 0) return "word " + std::to_string(i) + " holds a reference";
    if (!names_block(i) || raw == 0) continue;
    reachable.push_back(raw);
    const bool block = raw % sizeof(Word) == 0 && medium().contains(raw, pmem::kLine);
    for (std::size_t part = 0; block && part < kBlockWords; ++part) {
      if (pmem::load(medium().at<Word>(raw) + part) != raw)
        return "the block of word " + std::to_string(i) + " is not as it was filled";
    }
  }
  return unequal(std::move(reachable), ground_.heap);
}

// --- Pools of src/words --------------------------------------------------------------------------

bool WordPoolProbe::use_blocks(pmem::PoolFile& file, std::size_t count) {
  alloc::Ground ground(file);
  const std::size_t home = (kWordsAt + count) * sizeof(pmem::Word);
  const auto used = [&](std::size_t bytes) {
    return fill_unused(ground.heap, file.medium(),
                       (bytes + pmem::kLine - 1) / pmem::kLine * pmem::kLine);
  };
  return used(home) && used(sizeof(pmwcas::TableAt)) && used(sizeof(pmwcas::LaneAt));
}

std::vector<pmem::Word> WordPoolProbe::values(pmwcas::WordPool& pool) {
  std::vector<pmem::Word> all;
  for (std::size_t i = 0; i < pool.count(); ++i) all.push_back(pool.value(i));
  return all;
}

bool WordPoolProbe::add_one(pmwcas::WordPool& pool) {
  const alloc::Grace::Pin pin(pool.grace());
  pmwcas::Descriptor ends = pool.words().allocate();
  if (!ends.ok()) return false;
  for (const std::size_t i : {std::size_t{0}, pool.count() - 1}) {
    const pmem::Word is = pool.words().read(pool.word(i));
    if (!ends.add_word(pool.word(i), is, is + 1)) return false;
  }
  return ends.execute() == pmwcas::Answer::succeeded;
}

std::string WordPoolProbe::problem(pmwcas::WordPool& pool) {
  if (!pool.words().settle_all()) return "cannot settle";
  const pmem::Offset first = pool.medium().offset_of(pool.word(0));
  std::vector<pmem::Offset> reachable{first - kWordsAt * sizeof(pmem::Word)};
  pool.words().for_each_block([&](pmem::Offset at, std::size_t) { reachable.push_back(at); });
  for (std::size_t i = 0; i < pool.count(); ++i) {
    if ((pmem::load(pool.word(i)) & pmwcas::kControl) != 0)
      return "word " + std::to_string(i) + " holds a reference";
  }
  return unequal(std::move(reachable), pool.heap());
}

}  // namespace everleaf::crash
