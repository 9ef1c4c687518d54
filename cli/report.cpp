// everleaf report.
#include "commands.hpp"
#include "hand_over.hpp"
#include "options.hpp"

namespace everleaf::cli {

void add_report(CLI::App& app) {
  const Command command(app, "report", "Results as one HTML page with charts (everleaf-report)");
}

int run_report(char** arguments) {
  return hand_over("everleaf-report", "bench",
                   "-DEVERLEAF_BENCH=ON (make bench), with Python 3 and matplotlib", arguments);
}

}  // namespace everleaf::cli
