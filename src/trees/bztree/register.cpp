#include "trees/bztree/register.hpp"

#include <cstring>

#include "trees/bztree/tree.hpp"
#include "trees/factory.hpp"

namespace everleaf::tree::bztree {
namespace {

// P9: an empty tree is the root block, the table of descriptors and one empty leaf. The directory's
// record allocates and covers them.
Outcome create(const Context& context, const Options& options, KeyType, alloc::Redo& record,
               std::vector<Reserved>& blocks) {
  pmem::Medium& medium = context.medium;
  Reserved root(context.heap);
  Reserved table(context.heap);
  Reserved leaf(context.heap);
  if (!root.get(sizeof(RootAt)) || !table.get(sizeof(pmwcas::TableAt)) || !leaf.get(options.page)) {
    return Outcome::out_of_space;
  }
  for (const Reserved* const one : {&root, &table, &leaf}) {
    if (!context.heap.activate(record, one->block())) return Outcome::corrupt;
  }
  // Nobody else knows these blocks.
  const auto zero = [&medium](Offset block, std::size_t bytes) {
    std::memset(medium.at(block), 0, bytes);
  };
  zero(root.block(), sizeof(RootAt));
  zero(table.block(), sizeof(pmwcas::TableAt));
  zero(leaf.block(), options.page);
  medium.store(medium.at<Word>(leaf.block()), Header::of(options.page, 0, 0).word);
  auto* const at = medium.at<RootAt>(root.block());
  medium.store(&at->child, leaf.block());
  medium.store(&at->table, table.block());
  medium.store(&at->layout, options.payloads ? kPayloadLayout : kLayout);
  medium.flush(medium.at(root.block()), sizeof(RootAt));
  medium.flush(medium.at(table.block()), sizeof(pmwcas::TableAt));
  medium.flush(medium.at(leaf.block()), options.page);
  record.cover(root.block(), sizeof(RootAt));
  record.cover(table.block(), sizeof(pmwcas::TableAt));
  record.cover(leaf.block(), options.page);
  record.store(context.root_word, root.block());
  blocks.push_back(std::move(root));
  blocks.push_back(std::move(table));
  blocks.push_back(std::move(leaf));
  return Outcome::done;
}

}  // namespace

constinit const Factory kFactory =
    factory_of<BzTree<U64Keys>, BzTree<BytesKeys>, parse_options, create>();

}  // namespace everleaf::tree::bztree
