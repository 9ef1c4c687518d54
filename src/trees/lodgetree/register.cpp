#include "trees/lodgetree/register.hpp"

#include <cstring>

#include "trees/factory.hpp"
#include "trees/lodgetree/tree.hpp"

namespace everleaf::tree::lodgetree {
namespace {

// P1, A1: an empty tree is the root block, one extent and in it one empty leaf and one chunk of the
// log: the record that makes the directory entry covers them.
Outcome create(const Context& context, const Options& options, KeyType, alloc::Redo& record,
               std::vector<Reserved>& blocks) {
  pmem::Medium& medium = context.medium;
  const std::size_t chunk_bytes =
      (options.log + epoch::kChunkBytes - 1) / epoch::kChunkBytes * epoch::kChunkBytes;
  // The space makes blocks of one size in each of its chunks.
  const std::size_t extent_bytes = std::max(epoch::Space::kFirstExtentBytes,
                                            epoch::kBlockAlign + epoch::kChunkBytes + chunk_bytes);
  Reserved root(context.heap);
  Reserved extent(context.heap);
  if (!root.get(kRootBytes) || !extent.get(extent_bytes)) return Outcome::out_of_space;
  if (!context.heap.activate(record, root.block()) ||
      !context.heap.activate(record, extent.block())) {
    return Outcome::corrupt;
  }
  const Offset first = epoch::Space::first_block(extent.block());
  const Offset chunk = first + epoch::kChunkBytes;
  // Nobody else knows these blocks.
  const auto zero = [&](Offset at, std::size_t bytes) { std::memset(medium.at(at), 0, bytes); };
  zero(root.block(), kRootBytes);
  zero(first, options.shape.slots_at);
  zero(chunk, options.log);
  auto* const line = medium.at<RootLine>(root.block());
  medium.store(&line->session, 1);
  medium.store(&line->head, first);
  auto* const table = medium.at<epoch::Extent>(root.block() + kExtentsAt);
  medium.store(&table->at, extent.block());
  medium.store(&table->bytes, extent_bytes);
  medium.store(medium.at<Word>(root.block() + kDirectoryAt), chunk);
  medium.flush(line, kRootBytes);
  // crash: flush stays: the workloads do not put the tree where other bytes were
  medium.flush(medium.at(first), options.shape.slots_at);
  // crash: flush stays: likewise
  medium.flush(medium.at(chunk), options.log);
  record.cover(root.block(), kRootBytes);
  record.cover(first, options.shape.slots_at);
  blocks.push_back(std::move(root));
  blocks.push_back(std::move(extent));
  // P1: too much to cover. What stood there must not look like records of this session.
  // crash: fence stays: likewise
  if (!medium.fence()) return Outcome::io_error;
  record.store(context.root_word, blocks[blocks.size() - 2].block());
  return Outcome::done;
}

}  // namespace

constinit const Factory kFactory =
    factory_of<LodgeTree<U64Keys>, LodgeTree<BytesKeys>, parse_options, create>();

}  // namespace everleaf::tree::lodgetree
