#include "hand_over.hpp"

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>
#include <system_error>

#include <fmt/format.h>
#include <unistd.h>

#include "failure.hpp"

namespace everleaf::cli {

int hand_over(const char* program, const char* folder, const char* hint, char** arguments) {
  std::error_code no_link;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", no_link);
  if (!no_link) {
    const auto here = self.parent_path();
    const std::array<std::filesystem::path, 3> places{here / program,
                                                      here.parent_path() / "libexec" / program,
                                                      here.parent_path() / folder / program};
    for (const auto& path : places) {
      if (::access(path.c_str(), X_OK) == 0) ::execv(path.c_str(), arguments);
    }
  }
  ::execvp(program, arguments);
  const int error = errno;
  fmt::print(stderr, "everleaf: {}\n",
             error == ENOENT ? fmt::format("{} is not there: build it with {}", program, hint)
                             : fmt::format("cannot run {}: {}", program, std::strerror(error)));
  return kExitIo;
}

}  // namespace everleaf::cli
