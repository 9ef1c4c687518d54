// everleaf: the library on the command line. Reference: docs/cli.md.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <string>
#include <string_view>
#include <utility>

#include <everleaf/version.h>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "commands.hpp"
#include "failure.hpp"
#include "text.hpp"

namespace everleaf::cli {
namespace {

constexpr std::string_view kFooter =
    "Exit codes: 0 done; 1 negative answer (key absent, damage found); 2 bad usage or input;\n"
    "3 cannot be opened, I/O error, locked, full. Reference: docs/cli.md";

int report(int exit_code, std::string message) {
  std::ranges::replace(message, '\n', ' ');  // one line, whatever an argument contained
  message = "everleaf: " + message + '\n';
  // Where nobody can read it the exit code is all there is.
  (void)std::fwrite(message.data(), 1, message.size(), stderr);
  return exit_code;
}

// A pool that is opened as file 2 would get the messages. What is opened here fails as a closed one
// does: it is for the other direction.
void take_standard_places() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(fd, F_GETFD) >= 0 || errno != EBADF) continue;
    if (::open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) != fd) std::_Exit(kExitIo);
  }
}

std::string chosen(const CLI::App& app) {
  std::string name = "everleaf";
  for (const CLI::App* at = &app; !at->get_subcommands().empty();) {
    at = at->get_subcommands().front();
    name += " " + at->get_name();
  }
  return name;
}

// CLI11 would only say that a command is missing.
bool is_command(CLI::App& app, std::string_view word) {
  return !app.get_subcommands([word](CLI::App* command) { return command->get_name() == word; })
              .empty();
}

int run(int argc, char** argv) {
  CLI::App app("Crash-consistent persistent B+-trees in a pool file.", "everleaf");
  app.set_version_flag("--version", std::string("everleaf ") + EVERLEAF_VERSION);
  app.require_subcommand(1);
  app.footer(std::string(kFooter));
  int status = 0;
  for (const auto add : {add_demo, add_load, add_dump, add_get, add_put, add_del, add_scan,
                         add_info, add_check, add_doctor, add_list, add_store}) {
    add(app, status);
  }
  add_bench(app);
  add_crash(app);
  add_paper(app);
  add_report(app);
  add_traffic(app);
  try {
    if (argc > 1 && argv[1][0] != '-' && !is_command(app, argv[1])) {
      throw Failure(kExitUsage,
                    fmt::format("unknown command {}; see everleaf --help", in_quotes(argv[1])));
    }
    app.parse(argc, argv);
    if (std::fflush(stdout) != 0) throw Failure(kExitIo, "cannot write to standard output");
    return status;
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) {  // --help, --version
      app.exit(error);
      if (!std::cout.flush()) return report(kExitIo, "cannot write to standard output");
      return 0;
    }
    return report(kExitUsage, fmt::format("{}; see {} --help", error.what(), chosen(app)));
  } catch (const Failure& failure) {
    return report(failure.exit_code(), failure.what());
  } catch (const std::exception& error) {
    return report(kExitIo, error.what());
  }
}

}  // namespace
}  // namespace everleaf::cli

int main(int argc, char** argv) {
  everleaf::cli::take_standard_places();
  std::signal(SIGXFSZ, SIG_IGN);  // a limit on files is an error like a full disk
  // Every option after one of these belongs to the program of that name, --help included.
  using Run = int (*)(char**);
  constexpr std::array<std::pair<std::string_view, Run>, 5> kPrograms{
      {{"bench", everleaf::cli::run_bench},
       {"crash", everleaf::cli::run_crash},
       {"paper", everleaf::cli::run_paper},
       {"report", everleaf::cli::run_report},
       {"traffic", everleaf::cli::run_traffic}}};
  for (const auto& [name, run] : kPrograms) {
    if (argc > 1 && argv[1] == name) return run(argv + 1);
  }
  return everleaf::cli::run(argc, argv);
}
