#include "trees/wbtree/register.hpp"

#include "trees/wbtree/tree.hpp"

namespace everleaf::tree::wbtree {

// P10, A10: an empty tree is one empty leaf; the directory's record allocates it and sets the root
// word.
Outcome create(Context context, const base::Spec& canonical, KeyType, alloc::Redo& record,
               std::vector<Reserved>& blocks) {
  const auto options = parse_options(canonical);
  if (!options) return Outcome::corrupt;
  const Shape& shape = options->leaf;
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

namespace {

template <class Keys>
Result<std::unique_ptr<detail::Tree<typename Keys::Key>>> open(const Context& context,
                                                               const base::Spec& canonical) {
  const auto options = parse_options(canonical);
  if (!options) return std::unexpected(options.error());
  return std::make_unique<WbTree<Keys>>(context, *options);
}

}  // namespace

Result<std::unique_ptr<detail::Tree<std::uint64_t>>> open_u64(Context context,
                                                              const base::Spec& canonical) {
  return open<U64Keys>(context, canonical);
}

Result<std::unique_ptr<detail::Tree<Bytes>>> open_bytes(Context context,
                                                        const base::Spec& canonical) {
  return open<BytesKeys>(context, canonical);
}

Result<void> validate(const base::Spec& canonical) {
  const auto options = parse_options(canonical);
  if (!options) return std::unexpected(options.error());
  return {};
}

}  // namespace everleaf::tree::wbtree
