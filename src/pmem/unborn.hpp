// A file that gets its name when it is whole, so that no crash leaves half a file under it. Until
// then it has none, or a temporary one where the system cannot do that (NFS, no /proc).
#pragma once

#include <filesystem>

#include "pmem/file.hpp"

namespace everleaf::pmem {

class Unborn {
 public:
  explicit Unborn(std::filesystem::path path) : path_(std::move(path)) {}
  Unborn(const Unborn&) = delete;
  Unborn& operator=(const Unborn&) = delete;
  ~Unborn();

  [[nodiscard]] Result<Descriptor> open();
  // Gives the name to that file; exists if somebody was faster.
  [[nodiscard]] Result<void> name(const Descriptor& file);
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  [[nodiscard]] bool renamed(int error);

  std::filesystem::path path_;
  std::filesystem::path temporary_;
};

}  // namespace everleaf::pmem
