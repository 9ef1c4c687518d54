// The Factory of a room from what is the room's own: its options, its empty tree, its class.
#pragma once

#include "trees/contract.hpp"

namespace everleaf::tree {

// T is made from {context, options}. A tree that has work to do before it serves does it in open().
template <class T, auto parse>
Result<std::unique_ptr<detail::Tree<typename T::Key>>> open_tree(Context context,
                                                                 const base::Spec& canonical) {
  const auto options = parse(canonical);
  if (!options) return std::unexpected(options.error());
  auto tree = std::make_unique<T>(context, *options);
  if constexpr (requires { tree->open(); }) {
    if (auto opened = tree->open(); !opened) return std::unexpected(opened.error());
  }
  return tree;
}

// `parse` reads a canonical spec, `create` is Factory::create with what it read.
template <class U64Tree, class BytesTree, auto parse, auto create>
constexpr Factory factory_of() {
  return {.create = [](Context context, const base::Spec& canonical, KeyType key_type,
                       alloc::Redo& record, std::vector<Reserved>& blocks) -> Outcome {
            const auto options = parse(canonical);
            if (!options) return Outcome::corrupt;
            return create(context, *options, key_type, record, blocks);
          },
          .open_u64 = open_tree<U64Tree, parse>,
          .open_bytes = open_tree<BytesTree, parse>,
          .validate = [](const base::Spec& canonical) -> Result<void> {
            const auto options = parse(canonical);
            if (!options) return std::unexpected(options.error());
            return {};
          }};
}

}  // namespace everleaf::tree
