// everleaf bench.
#include "commands.hpp"
#include "hand_over.hpp"
#include "options.hpp"

namespace everleaf::cli {

void add_bench(CLI::App& app) {
  const Command command(app, "bench",
                        "Measure trees and stores (everleaf-bench; see `everleaf bench --help`)");
}

int run_bench(char** arguments) {
  return hand_over("everleaf-bench", "bench", "-DEVERLEAF_BENCH=ON (make bench)", arguments);
}

}  // namespace everleaf::cli
