#include "trees/wbtree/register.hpp"

#include "trees/factory.hpp"
#include "trees/wbtree/tree.hpp"

namespace everleaf::tree::wbtree {
namespace {

// P10, A10: an empty tree is one empty leaf; the directory's record allocates it and sets the root
// word.
Outcome create(const Context& context, const Options& options, KeyType, alloc::Redo& record,
               std::vector<Reserved>& blocks) {
  const Shape& shape = options.leaf;
  Reserved reserved(context.heap);
  if (!reserved.get(shape.bytes)) return Outcome::out_of_space;
  const Offset block = reserved.block();
  if (!context.heap.activate(record, block)) return Outcome::corrupt;
  const Node leaf(context.medium.at(block), shape);
  context.medium.store(leaf.control_word(), Node::empty_control(shape.kind));
  context.medium.store(leaf.link_word(), 0);
  if (shape.kind != NodeKind::bitmap_only) {
    for (unsigned i = shape.kind == NodeKind::slot_only ? 1 : 0; i < leaf.slot_words(); ++i) {
      context.medium.store(leaf.slot_word(i), 0);
    }
  }
  context.medium.flush(leaf.base(), shape.entries_at);
  record.cover(block, shape.entries_at);
  record.store(context.root_word, block);
  blocks.push_back(std::move(reserved));
  return Outcome::done;
}

}  // namespace

constinit const Factory kFactory =
    factory_of<WbTree<U64Keys>, WbTree<BytesKeys>, parse_options, create>();

}  // namespace everleaf::tree::wbtree
