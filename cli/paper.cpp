// everleaf paper.
#include "commands.hpp"
#include "hand_over.hpp"
#include "options.hpp"

namespace everleaf::cli {

void add_paper(CLI::App& app) {
  const Command command(app, "paper",
                        "Run what the papers claim, and say what holds here (everleaf-paper)");
}

int run_paper(char** arguments) {
  return hand_over("everleaf-paper", "bench", "-DEVERLEAF_BENCH=ON (make bench), with Python 3",
                   arguments);
}

}  // namespace everleaf::cli
