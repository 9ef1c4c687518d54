#include "words/word_pool.hpp"

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "trees/directory.hpp"

namespace everleaf::pmwcas {
namespace {

// The directory names the pool's home: the offset of the table of lanes, and a line behind it the
// words. Programs that know trees only refuse it by its name.
constexpr std::string_view kName = "words";
constexpr std::size_t kWordsAt = pmem::kLine / sizeof(Word);

std::string spec_of(std::size_t count) {
  return "words:count=" + std::to_string(count);
}

}  // namespace

WordPool::WordPool(std::unique_ptr<pmem::PoolFile> file)
    : file_(std::move(file)), ground_(*file_) {}

WordPool::~WordPool() {
  if (words_ && words_->settle_all() && ground_.redo.settle_all()) (void)file_->mark_clean();
}

Result<std::unique_ptr<WordPool>> WordPool::open(const std::filesystem::path& path,
                                                 std::size_t count, const PoolOptions& options) {
  if (count == 0 || count > kMostPoolWords || options.mode == Mode::read_only) {
    return std::unexpected(Error{Code::bad_argument, "a pool of words has 1 to " +
                                                         std::to_string(kMostPoolWords) +
                                                         " of them, and is not read-only"});
  }
  auto file = pmem::PoolFile::open(path, options, nullptr);
  if (!file) return std::unexpected(file.error());
  return WordPoolAccess::over(std::move(*file), count);
}

Result<std::unique_ptr<WordPool>> WordPoolAccess::over(std::unique_ptr<pmem::PoolFile> file,
                                                       std::size_t count) {
  std::unique_ptr<WordPool> pool(new WordPool(std::move(file)));
  if (auto started = pool->start(count); !started) {
    pool->words_.reset();  // leave it as it is
    return std::unexpected(started.error());
  }
  return pool;
}

Result<void> WordPool::start(std::size_t count) {
  if (auto replayed = ground_.redo.recover(); !replayed) return std::unexpected(replayed.error());
  const tree::Directory directory(medium());
  std::vector<std::string> problems;
  const bool is_new = directory.list(&problems).empty();
  if (!problems.empty()) return std::unexpected(Error{Code::corrupt, problems.front()});
  if (is_new) {
    if (auto made = create(count); !made) return made;
  }
  const auto found = directory.find(kName);
  if (!found) return std::unexpected(found.error());
  if (!*found || (*found)->info.spec != spec_of(count)) {
    return std::unexpected(
        Error{Code::wrong_tree,
              "the pool does not hold " + std::to_string(count) + " words and nothing else"});
  }
  const Offset home = pmem::load(medium().at<Word>((*found)->root_word));
  if (ground_.heap.allocated_bytes(home) / sizeof(Word) < kWordsAt + count) {
    return std::unexpected(Error{Code::corrupt, "the block of the words is damaged"});
  }
  count_ = count;
  words_at_ = medium().at<Word>(home) + kWordsAt;
  words_ = std::make_unique<DescriptorPool>(medium(), ground_.heap, ground_.redo, ground_.grace,
                                            pmem::load(medium().at<Word>(home)));
  if (auto recovered = words_->recover(); !recovered) return recovered;
  return file_->mark_open();
}

// One redo record: the words are there, all of them, or nothing is.
Result<void> WordPool::create(std::size_t count) {
  const auto no_space = [] {
    return std::unexpected(Error{Code::out_of_space, "no space for the words"});
  };
  const std::size_t bytes = (kWordsAt + count) * sizeof(Word);
  const Offset home = ground_.heap.reserve((bytes + pmem::kLine - 1) / pmem::kLine * pmem::kLine);
  const Offset table = ground_.heap.reserve(sizeof(TableAt));
  alloc::Redo record;
  if (home == 0 || table == 0 || !ground_.heap.activate(record, home) ||
      !ground_.heap.activate(record, table))
    return no_space();
  const auto zero = [this](Offset block, std::size_t size) {
    std::memset(medium().at(block), 0, size);  // which nobody else knows
    medium().flush(medium().at(block), size);
  };
  zero(table, sizeof(TableAt));
  zero(home, bytes);
  medium().store(medium().at<Word>(home), table);
  medium().flush(medium().at(home), sizeof(Word));
  const auto failed = [] {
    return std::unexpected(Error{Code::io, "a write-back failed: the words are not there"});
  };
  if (!medium().fence()) return failed();  // too much for the record to cover
  tree::Directory directory(medium());
  const auto root =
      directory.prepare({std::string(kName), spec_of(count), KeyType::u64, false}, record);
  if (!root) return std::unexpected(root.error());
  record.store(*root, home);
  const Outcome outcome = ground_.redo.commit(record);
  if (outcome == Outcome::out_of_space) return no_space();
  if (outcome != Outcome::done) return failed();
  return {};
}

}  // namespace everleaf::pmwcas
