#include "shadow.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "alloc/redo_log.hpp"
#include "pmem/format.hpp"

namespace everleaf::test {
namespace {

const std::byte* as_const_bytes(std::span<std::byte> bytes) {
  return bytes.data();
}

}  // namespace

FileView::FileView(const std::filesystem::path& path)
    : fd_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)),
      base_(static_cast<std::byte*>(
          ::mmap(nullptr, kMostBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0))) {
  if (fd_ < 0 || base_ == MAP_FAILED) throw std::runtime_error("cannot map " + path.string());
}

FileView::~FileView() {
  ::munmap(base_, kMostBytes);
  ::close(fd_);
}

std::span<std::byte> FileView::bytes() const {
  struct stat info {};
  if (::fstat(fd_, &info) != 0) throw std::runtime_error("fstat");
  return {base_, std::min<std::size_t>(static_cast<std::size_t>(info.st_size), kMostBytes)};
}

void FileView::become(std::span<const std::byte> wanted) {
  if (bytes().size() != wanted.size() && ::ftruncate(fd_, static_cast<off_t>(wanted.size())) != 0) {
    throw std::runtime_error("ftruncate");
  }
  for (std::size_t at = 0; at < wanted.size(); at += kPage) {
    const std::size_t n = std::min(kPage, wanted.size() - at);
    if (std::memcmp(base_ + at, wanted.data() + at, n) != 0) {
      std::memcpy(base_ + at, wanted.data() + at, n);
    }
  }
}

Shadow::Shadow(const std::filesystem::path& path, OnFence on_fence)
    : live_(path), on_fence_(std::move(on_fence)) {
  const auto now = live_.bytes();
  durable_.assign(now.begin(), now.end());
}

// The file grew: the system has made its new size durable, with zeros in it.
void Shadow::catch_up() {
  const std::size_t size = live_.bytes().size();
  grew_ = grew_ || size > durable_.size();
  if (size > durable_.size()) durable_.resize(size);
}

void Shadow::flushed(pmem::Offset at, std::size_t bytes, pmem::Site) {
  if (++flushes_ == lost_flush) return;
  catch_up();
  const std::byte* const base = live_.bytes().data();
  for (pmem::Offset line = at; line < at + bytes; line += pmem::kLine) {
    std::memcpy(noted_[line].data(), base + line, pmem::kLine);
  }
}

void Shadow::fencing(pmem::Site) {
  if (++fences_ == lost_fence) return;
  catch_up();
  compared_ = false;
  if (on_fence_) on_fence_();
  put_noted(durable_);
  noted_.clear();
}

std::size_t Shadow::redo_blocks() const {
  const auto live = live_.bytes();
  std::size_t most = 0;
  for (std::size_t lane = 0; lane < pmem::kLanes; ++lane) {
    const pmem::Offset at = pmem::kLanesAt + lane * pmem::kLaneBytes;
    for (const std::byte* const base : {std::as_const(durable_).data(), as_const_bytes(live)}) {
      std::array<pmem::Word, pmem::kLaneBytes / sizeof(pmem::Word)> words{};
      std::memcpy(words.data(), base + at, sizeof words);
      const std::size_t entries =
          std::min<std::uint64_t>(words[0] >> alloc::RedoLog::kCountShift, alloc::Redo::kMax);
      std::size_t blocks = 0;
      for (std::size_t i = 0; i < entries; ++i) {
        blocks += static_cast<std::size_t>((words[alloc::RedoLog::kEntriesWord + 2 * i] & 7) != 0);
      }
      most = std::max(most, blocks);
    }
  }
  return most;
}

void Shadow::find_changes() {
  if (compared_) return;
  compared_ = true;
  changes_.clear();
  const std::byte* const live = live_.bytes().data();
  const auto compare = [&](const std::byte* now, pmem::Offset line) {
    for (pmem::Offset word = 0; word < pmem::kLine; word += sizeof(pmem::Word)) {
      if (std::memcmp(now + word, &durable_[line + word], sizeof(pmem::Word)) == 0) continue;
      Change change{line + word, 0};
      std::memcpy(&change.value, now + word, sizeof change.value);
      changes_.push_back(change);
    }
  };
  for (const auto& [line, content] : noted_) compare(content.data(), line);
  // A pool's size is a multiple of pages.
  for (std::size_t page = 0; page < durable_.size(); page += kPage) {
    if (std::memcmp(live + page, &durable_[page], kPage) == 0) continue;
    for (std::size_t line = page; line < page + kPage; line += pmem::kLine) {
      // As flushed: it is in the list already.
      const auto known = noted_.find(line);
      if (known != noted_.end() &&
          std::memcmp(known->second.data(), live + line, pmem::kLine) == 0) {
        continue;
      }
      compare(live + line, line);
    }
  }
}

void Shadow::put_noted(std::vector<std::byte>& image) const {
  for (const auto& [line, content] : noted_) {
    std::memcpy(&image[line], content.data(), pmem::kLine);
  }
}

void Shadow::make(Image kind, Random& random, std::vector<std::byte>& image) {
  image = durable_;
  const auto put = [&image](const Change& change) {
    std::memcpy(&image[change.at], &change.value, sizeof change.value);
  };
  if (kind == Image::noted) put_noted(image);
  if (kind == Image::live) {
    const auto live = live_.bytes();
    image.assign(live.begin(), live.end());
  }
  if (kind == Image::durable || kind == Image::noted || kind == Image::live) return;
  find_changes();
  if (changes_.empty()) return;
  const std::size_t chosen = random.below(changes_.size());
  const std::uint64_t density = 1 + random.below(7);  // of 8
  bool take = false;
  for (std::size_t i = 0; i < changes_.size(); ++i) {
    switch (kind) {
      case Image::lines:
        if (i == 0 || changes_[i].at / pmem::kLine != changes_[i - 1].at / pmem::kLine) {
          take = random.below(8) < density;
        }
        break;
      case Image::words:
        take = random.below(8) < density;
        break;
      case Image::one:
        take = i == chosen;
        break;
      default:
        take = i != chosen;
        break;
    }
    if (take) put(changes_[i]);
  }
}

std::string_view to_string(Shadow::Image kind) {
  switch (kind) {
    case Shadow::Image::durable:
      return "durable";
    case Shadow::Image::noted:
      return "noted";
    case Shadow::Image::live:
      return "live";
    case Shadow::Image::lines:
      return "some lines";
    case Shadow::Image::words:
      return "some words";
    case Shadow::Image::one:
      return "one word";
    case Shadow::Image::all_but_one:
      return "all words but one";
  }
  return "?";
}

}  // namespace everleaf::test
