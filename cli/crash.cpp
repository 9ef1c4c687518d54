// everleaf crash: hands over to the program everleaf-crash, which has the library observed inside.
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include <fmt/format.h>
#include <unistd.h>

#include "commands.hpp"
#include "failure.hpp"
#include "options.hpp"

namespace everleaf::cli {
namespace {

constexpr const char* kProgram = "everleaf-crash";

// Beside this program, where an installation may put it, and where a build tree has it.
std::vector<std::filesystem::path> candidates() {
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return {};
  const auto here = self.parent_path();
  return {here / kProgram, here.parent_path() / "libexec" / kProgram,
          here.parent_path() / "crash" / kProgram};
}

}  // namespace

void add_crash(CLI::App& app) {
  const Command command(app, "crash",
                        "Look for crashes that an index does not survive (everleaf-crash)");
}

int run_crash(char** arguments) {
  for (const auto& path : candidates()) {
    if (::access(path.c_str(), X_OK) == 0) ::execv(path.c_str(), arguments);
  }
  ::execvp(kProgram, arguments);
  const int error = errno;
  fmt::print(stderr, "everleaf: {}\n",
             error == ENOENT ? "everleaf-crash is not there: build it with -DEVERLEAF_CRASH=ON "
                             : fmt::format("cannot run everleaf-crash: {}", std::strerror(error)));
  return kExitIo;
}

}  // namespace everleaf::cli
