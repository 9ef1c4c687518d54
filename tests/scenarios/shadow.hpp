// What of a pool would survive a crash now: the stand-in for a crash checker.
//
// A Shadow observes one pool. It keeps the bytes that are durable, notes lines as they are flushed,
// and makes them durable at the fence. Between fences any subset of the words that differ from the
// durable ones may have reached the medium: flushed ones as they were at the flush or as they are
// now, others because a cache line was evicted. That is weaker than x86 guarantees (it keeps no
// order within a line) and what a page write-back on a disk guarantees: 8-byte words are atomic,
// nothing else.
#pragma once

#include <array>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <vector>

#include "pmem/medium.hpp"
#include "support.hpp"

namespace everleaf::test {

// A view on a file of at most kMostBytes, through which changes of other mappings are seen.
class FileView {
 public:
  explicit FileView(const std::filesystem::path& path);
  FileView(const FileView&) = delete;
  FileView& operator=(const FileView&) = delete;
  ~FileView();
  [[nodiscard]] std::span<std::byte> bytes() const;
  // The file becomes this; pages that are equal already are not touched.
  void become(std::span<const std::byte> bytes);

 private:
  int fd_;
  std::byte* base_;
};

class Shadow final : public pmem::Observer {
 public:
  using OnFence = std::function<void()>;
  // `path`: a pool that is whole on its medium now.
  Shadow(const std::filesystem::path& path, OnFence on_fence);
  void flushed(pmem::Offset at, std::size_t bytes, pmem::Site site) override;
  void fencing(pmem::Site site) override;

  // Canaries: the n-th flush (fence) from the beginning is lost.
  std::uint64_t lost_flush = 0;
  std::uint64_t lost_fence = 0;

  [[nodiscard]] std::uint64_t flushes() const { return flushes_; }
  [[nodiscard]] std::uint64_t fences() const { return fences_; }
  // Blocks that the redo record of this moment takes or frees.
  [[nodiscard]] std::size_t redo_blocks() const;
  [[nodiscard]] bool grew() const { return grew_; }

  enum class Image : std::uint8_t {
    durable,  // nothing that was not fenced
    noted,    // everything that was flushed
    live,     // everything that was stored
    lines,    // some lines
    words,    // some words
    one,      // one word that was not fenced
    all_but_one
  };
  void make(Image kind, Random& random, std::vector<std::byte>& image);

 private:
  using Line = std::array<std::byte, pmem::kLine>;
  struct Change {
    pmem::Offset at;
    pmem::Word value;
  };
  void catch_up();
  void find_changes();
  void put_noted(std::vector<std::byte>& image) const;

  FileView live_;
  OnFence on_fence_;
  std::vector<std::byte> durable_;
  std::map<pmem::Offset, Line> noted_;
  std::vector<Change> changes_;  // words that are not durable
  bool compared_ = false;        // changes_ is of this fence
  std::uint64_t flushes_ = 0;
  std::uint64_t fences_ = 0;
  bool grew_ = false;
};

std::string_view to_string(Shadow::Image kind);

}  // namespace everleaf::test
