#include "trees/bdtree/register.hpp"

#include <cstring>

#include "trees/bdtree/tree.hpp"
#include "trees/factory.hpp"

namespace everleaf::tree::bdtree {
namespace {

// P1, A1: an empty tree is the root block, one extent and in it one empty leaf, all strict: the
// record that makes the directory entry covers them. The leaf is of the durable epoch, so that no
// recovery takes it back.
Outcome create(const Context& context, const Options& options, KeyType, alloc::Redo& record,
               std::vector<Reserved>& blocks) {
  pmem::Medium& medium = context.medium;
  Reserved root(context.heap);
  Reserved extent(context.heap);
  if (!root.get(kRootBytes) || !extent.get(epoch::Space::kFirstExtentBytes)) {
    return Outcome::out_of_space;
  }
  if (!context.heap.activate(record, root.block()) ||
      !context.heap.activate(record, extent.block())) {
    return Outcome::corrupt;
  }
  const Offset first = epoch::Space::first_block(extent.block());
  std::memset(medium.at(root.block()), 0, kRootBytes);  // which nobody else knows
  medium.store(&medium.at<MetaLine>(root.block())->links, Leaf::make_links(first, 0));
  auto* const table = medium.at<epoch::Extent>(root.block() + kExtentsAt);
  medium.store(&table->at, extent.block());
  medium.store(&table->bytes, epoch::Space::kFirstExtentBytes);
  medium.flush(medium.at(root.block()), kRootBytes);
  const Leaf leaf(medium.at(first), options.shape);
  for (std::size_t cell = 0; cell < options.shape.cells; ++cell) {
    MetaLine* const line = leaf.line(cell);
    for (Word& word : line->fingerprints) medium.store(&word, 0, 0);
    medium.store(&line->w[0], tag_word(context.epochs->durable()));
    medium.store(&line->w[1], 0, 0);
    medium.store(&line->w[2], 0, 0);
    medium.store(&line->links, 0, 0);
  }
  medium.flush(leaf.base(), options.shape.slots_at());
  record.cover(root.block(), kRootBytes);
  record.cover(first, options.shape.slots_at());
  record.store(context.root_word, root.block());
  blocks.push_back(std::move(root));
  blocks.push_back(std::move(extent));
  return Outcome::done;
}

}  // namespace

constinit const Factory kFactory =
    factory_of<BdTree<U64Keys>, BdTree<BytesKeys>, parse_options, create>();

}  // namespace everleaf::tree::bdtree
