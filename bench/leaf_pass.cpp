#include "leaf_pass.hpp"

#include <array>
#include <chrono>
#include <cstddef>
#include <span>
#include <string_view>

#include <everleaf/limits.hpp>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include "failure.hpp"
#include "pmem/file.hpp"
#include "pmem/format.hpp"
#include "trees/bdtree/leaf.hpp"

namespace everleaf::bench {
namespace {

using pmem::Offset;
using tree::bdtree::Leaf;
constexpr std::size_t kPage = 4096;

// So that the pass meets no page fault.
void touch(std::span<std::byte> bytes) {
  for (std::size_t at = 0; at < bytes.size(); at += kPage) {
    (void)*static_cast<volatile const std::byte*>(bytes.data() + at);
  }
}

class List {
 public:
  explicit List(std::span<std::byte> pool) : pool_(pool) {}

  // The block that the root word of the index names; 0: there is no such index of a BD+Tree.
  [[nodiscard]] Offset root_of(std::string_view index) const {
    for (std::size_t i = 0; i < kMaxIndexes; ++i) {
      const Offset at = pmem::kDirectoryAt + i * sizeof(pmem::DirectoryEntry);
      if (at + sizeof(pmem::DirectoryEntry) > pool_.size()) return 0;
      const auto* const entry = reinterpret_cast<const pmem::DirectoryEntry*>(pool_.data() + at);
      if (entry->state == 0 || index != entry->name.data()) continue;
      return std::string_view(entry->spec.data()).starts_with("bdtree") ? entry->root : 0;
    }
    return 0;
  }
  // False: it leads out of the file, or in a circle.
  [[nodiscard]] bool follow(Offset root, LeafPass& pass) const {
    std::uint64_t most = pool_.size() / tree::bdtree::kLeafAlign;
    const auto begun = std::chrono::steady_clock::now();
    for (Offset at = root; at != 0;) {
      if (at + sizeof(tree::bdtree::MetaLine) > pool_.size() || most-- == 0) return false;
      // The root block's first line has its link where a leaf has it.
      const pmem::Word links = Leaf(pool_.data() + at, tree::bdtree::Shape{}).links();
      pass.leaves += at != root ? 1 : 0;
      at = Leaf::next_of(links);
    }
    pass.ns = static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                             std::chrono::steady_clock::now() - begun)
                                             .count());
    return true;
  }

 private:
  std::span<std::byte> pool_;
};

}  // namespace

LeafPass pass_over_leaves(const std::filesystem::path& pool, const std::string& index) {
  const Failure failure(kExitIo, fmt::format("{}: its leaves cannot be followed", pool.string()));
  std::array<int, 2> ends{};
  if (::pipe(ends.data()) != 0) throw failure;
  const pid_t child = ::fork();
  if (child == 0) {
    LeafPass pass;
    const auto file = pmem::Descriptor::open(pool, O_RDONLY);
    if (!file) ::_exit(kExitIo);
    const auto bytes = pmem::size_of(*file);
    if (!bytes) ::_exit(kExitIo);
    const auto mapping = pmem::Mapping::copy(*file, *bytes);
    if (!mapping) ::_exit(kExitIo);
    const std::span whole(mapping->base(), *bytes);
    touch(whole);
    const List list(whole);
    const Offset root = list.root_of(index);
    if (root != 0 && !list.follow(root, pass)) ::_exit(kExitIo);
    ::_exit(::write(ends[1], &pass, sizeof pass) == sizeof pass ? 0 : kExitIo);
  }
  ::close(ends[1]);
  LeafPass pass;
  const bool answered = child > 0 && ::read(ends[0], &pass, sizeof pass) == sizeof pass;
  ::close(ends[0]);
  if (child > 0) ::waitpid(child, nullptr, 0);
  if (!answered) throw failure;
  return pass;
}

}  // namespace everleaf::bench
