// everleaf crash.
#include "commands.hpp"
#include "hand_over.hpp"
#include "options.hpp"

namespace everleaf::cli {

void add_crash(CLI::App& app) {
  const Command command(app, "crash",
                        "Look for crashes that an index does not survive (everleaf-crash)");
}

int run_crash(char** arguments) {
  return hand_over("everleaf-crash", "crash", "-DEVERLEAF_CRASH=ON", arguments);
}

}  // namespace everleaf::cli
