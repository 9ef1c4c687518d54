#include "leaf_pass.hpp"

#include <array>
#include <chrono>
#include <cstddef>
#include <optional>
#include <span>
#include <string_view>

#include <everleaf/limits.hpp>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "failure.hpp"
#include "pmem/format.hpp"
#include "trees/bdtree/leaf.hpp"

namespace everleaf::bench {
namespace {

using pmem::Offset;
using tree::bdtree::Leaf;
constexpr std::size_t kHugePage = std::size_t{2} << 20;

// A file's bytes, mapped where huge pages fit; for the life of the process.
std::optional<std::span<std::byte>> map_whole(const char* file) {
  const int fd = ::open(file, O_RDONLY | O_CLOEXEC);
  struct stat status {};
  if (fd < 0 || ::fstat(fd, &status) != 0) return std::nullopt;
  const auto bytes = static_cast<std::size_t>(status.st_size);
  void* const room =
      ::mmap(nullptr, bytes + kHugePage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (room == MAP_FAILED) return std::nullopt;
  auto* const aligned =
      static_cast<std::byte*>(room) +
      (kHugePage - reinterpret_cast<std::uintptr_t>(room) % kHugePage) % kHugePage;
  void* const mapped =
      ::mmap(aligned, bytes, PROT_READ, MAP_SHARED | MAP_FIXED | MAP_POPULATE, fd, 0);
  if (mapped == MAP_FAILED) return std::nullopt;
  return std::span(static_cast<std::byte*>(mapped), bytes);
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
    const auto mapped = map_whole(pool.c_str());
    if (!mapped) ::_exit(kExitIo);
    const List list(*mapped);
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
