// The image of a tree that was closed properly: what open() would learn from all leaves (layout.hpp
// has the words). Its blocks are of the tree's space and nobody's: what is not reachable is free,
// and it is read completely before anything is handed out.
#include <algorithm>
#include <cstring>

#include "trees/bdtree/tree.hpp"

namespace everleaf::tree::bdtree {
namespace {

constexpr std::size_t kHead = 6;  // words before the space's state

std::size_t block_words(const Shape& shape) {
  return shape.bytes / sizeof(Word) - 1;  // behind the first
}

std::uint64_t checksum_of(std::span<const Word> words) {
  return XXH3_64bits(words.data() + 1, (words.size() - 1) * sizeof(Word));
}

void append(std::vector<Word>& words, std::uint64_t key) {
  words.push_back(key);
}
void append(std::vector<Word>& words, Bytes key) {
  words.push_back(key.size());
  const std::size_t at = words.size();
  words.resize(at + (key.size() + sizeof(Word) - 1) / sizeof(Word));
  if (!key.empty()) std::memcpy(words.data() + at, key.data(), key.size());
}

// Takes words off the front; false: there are not enough.
bool take(std::span<const Word>& words, Word& word) {
  if (words.empty()) return false;
  word = words.front();
  words = words.subspan(1);
  return true;
}
bool take(std::span<const Word>& words, std::string& key) {
  Word bytes = 0;
  if (!take(words, bytes) || bytes > words.size_bytes()) return false;
  key.assign(reinterpret_cast<const char*>(words.data()), bytes);
  words = words.subspan((bytes + sizeof(Word) - 1) / sizeof(Word));
  return true;
}

}  // namespace

template <class Keys>
std::vector<Word> BdTree<Keys>::make_image() {
  std::vector<Word> leaves;
  std::vector<Offset> places;
  nodes_.for_each_leaf([&](Offset at, const Owned* low) {
    leaves.push_back(at);
    if (low != nullptr) append(leaves, Key(*low));
    places.push_back(at);
  });
  std::vector<Word> words{0, 0, c_.epochs->now(), 0, places.size(), next_round_};
  if constexpr (Keys::kRecords) {
    const std::vector<Word> space = space_.save(std::move(places));
    words[3] = space.size();
    words.insert(words.end(), space.begin(), space.end());
  }
  words.insert(words.end(), leaves.begin(), leaves.end());
  words[1] = words.size();
  words[0] = checksum_of(words);
  return words;
}

// P6. Nothing orders the stores of the image and of the word that names it: a torn image does not
// fit its checksum, an older one in the same place not the epoch in the word (A14).
template <class Keys>
void BdTree<Keys>::write_image(const std::vector<Word>& words) {
  const std::size_t per_block = block_words(options_.shape);
  const std::size_t per_chunk = epoch::kChunkBytes / options_.shape.bytes;
  std::vector<Offset> blocks((words.size() + per_block - 1) / per_block);
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    while ((blocks[i] = space_.reserve(options_.shape.bytes)) == 0) {
      const std::size_t chunks = (blocks.size() - i + per_chunk - 1) / per_chunk;
      if (space_.grow(chunks * epoch::kChunkBytes) != Outcome::done) return;
    }
  }
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    auto* const block = c_.medium.template at<Word>(blocks[i]);
    const auto part =
        std::span(words).subspan(i * per_block, std::min(per_block, words.size() - i * per_block));
    c_.medium.store(block, i + 1 == blocks.size() ? 0 : blocks[i + 1]);
    for (std::size_t k = 0; k < part.size(); ++k) c_.medium.store(block + 1 + k, part[k]);
    // The fence is that of the sync() that ends the session.
    // crash: flush stays: an image that is not there costs time, no data
    c_.medium.flush(block, sizeof(Word) + part.size_bytes());
  }
  RootLine* const line = root_line();
  c_.medium.store(&line->image, blocks.front() / kLeafAlign | words[2] << 32);
  // crash: flush stays: as above
  c_.medium.flush(line, sizeof(RootLine));
}

// After a sync(): what is not waiting here is durable.
template <class Keys>
bool BdTree<Keys>::closing() {
  if (listener_ == 0) return true;  // read-only, or done
  grace_.collect_all();
  {
    const base::MutexGuard guard(queue_);
    if (!retired_.empty() || !limbo_.empty()) return false;
  }
  if (in_round_ || restamped_in_ > c_.epochs->durable()) return false;
  // The reclaimer stores nothing more.
  c_.epochs->forget(listener_);
  listener_ = 0;
  if (grace_.lost() != 0) return true;  // a walk finds it
  try {
    write_image(make_image());
  } catch (const std::bad_alloc&) {
    // The next open reads the leaves.
  }
  return true;
}

// The words of the image. Takes the blocks in the space, so that none is read twice.
template <class Keys>
bool BdTree<Keys>::read_image(std::vector<Word>& words) {
  const Word named = pmem::load(&root_line()->image);
  const std::size_t bytes = options_.shape.bytes;
  const std::size_t per_block = block_words(options_.shape);
  std::vector<std::span<const Word>> parts;
  std::size_t size = 0;
  std::size_t found = 0;
  for (Offset at = (named & 0xFFFFFFFF) * kLeafAlign; at != 0;) {
    if (!possible(at) || !space_.claim(at, bytes)) return false;
    const auto* const block = c_.medium.template at<Word>(at);
    if (parts.empty()) size = pmem::load(block + 2);
    if (size < kHead || size <= found) return false;
    parts.emplace_back(block + 1, std::min(per_block, size - found));
    found += parts.back().size();
    at = pmem::load(block);
  }
  if (parts.empty() || found != size) return false;
  words.reserve(size);
  base::Verification verification;
  for (const auto part : parts) verification.over(part.data(), part.size_bytes());
  verification.begin();
  for (const auto part : parts) words.insert(words.end(), part.begin(), part.end());
  if (!verification.end(checksum_of(words) == words[0])) return false;
  if (words[2] > c_.epochs->now() || (words[2] & 0xFFFFFFFF) != named >> 32) return false;
  // D10: a walk looks at all tags, and a round is due.
  return words[5] > c_.epochs->now() && words[5] <= words[2] + base::kTagRound;
}

// False: there is none, or it is damaged; the space is as after its open(). What the leaves hold is
// not looked at: whoever reads or changes them does not trust it, and check() does look.
template <class Keys>
bool BdTree<Keys>::load_image(Children& children) {
  if (pmem::load(&root_line()->image) == 0) return false;
  std::vector<Word> words;
  const bool read = read_image(words);
  const auto refused = [&] {
    children.clear();
    (void)space_.open();  // it was done
    return false;
  };
  (void)space_.open();  // its blocks are free
  if (!read) return refused();
  std::span<const Word> rest = std::span<const Word>(words).subspan(kHead);
  if (words[3] > rest.size() || !space_.load(rest.first(words[3]))) return refused();
  rest = rest.subspan(words[3]);
  next_round_ = words[5];
  if (words[4] > rest.size()) return refused();
  children.reserve(words[4]);
  Owned left{};
  for (Word i = 0; i < words[4]; ++i) {
    Owned separator{};
    Offset at = 0;
    if (!take(rest, at) || (i != 0 && !take(rest, separator))) return refused();
    if (!possible(at) || !space_.claim(at, options_.shape.bytes)) return refused();
    if (i > 1 && !(left < separator)) return refused();
    children.push_back({i == 0 ? typename Nodes::Fresh{} : Nodes::fresh(separator), at});
    left = std::move(separator);
  }
  const bool whole = rest.empty() && !children.empty() &&
                     children.front().child == Leaf::next_of(leaf(head()).links());
  return whole || refused();
}

// P7: durable before anything of the tree changes, or a crash would bring the image back (A16).
template <class Keys>
Result<void> BdTree<Keys>::drop_image() {
  RootLine* const line = root_line();
  if (c_.read_only || pmem::load(&line->image) == 0) return {};
  c_.medium.store(&line->image, 0);
  if (c_.medium.persist(line, sizeof(Word))) return {};
  return std::unexpected(Error{Code::io, "a write-back failed when the index was opened"});
}

EVERLEAF_INSTANTIATE(BdTree<U64Keys>);
EVERLEAF_INSTANTIATE(BdTree<BytesKeys>);

}  // namespace everleaf::tree::bdtree
