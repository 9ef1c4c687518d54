#include "trees/pbtree/register.hpp"

#include "trees/factory.hpp"
#include "trees/pbtree/tree.hpp"

namespace everleaf::tree::pbtree {
namespace {

// P10, A8: an empty tree is one leaf whose pivot is the smallest key and does not count: all bytes
// are zero. The directory's record allocates it and sets the root word.
Outcome create(const Context& context, const Options& options, KeyType, alloc::Redo& record,
               std::vector<Reserved>& blocks) {
  Reserved reserved(context.heap);
  if (!reserved.get(options.node_bytes)) return Outcome::out_of_space;
  const Offset block = reserved.block();
  if (!context.heap.activate(record, block)) return Outcome::corrupt;
  auto* const words = context.medium.at<Word>(block);
  for (std::size_t i = 0; i < options.node_bytes / sizeof(Word); ++i) {
    context.medium.store(words + i, 0);
  }
  context.medium.flush(words, options.node_bytes);
  record.cover(block, options.node_bytes);
  record.store(context.root_word, block);
  blocks.push_back(std::move(reserved));
  return Outcome::done;
}

}  // namespace

constinit const Factory kFactory =
    factory_of<PbTree<U64Keys>, PbTree<BytesKeys>, parse_options, create>();

}  // namespace everleaf::tree::pbtree
