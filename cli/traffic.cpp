// everleaf traffic.
#include "commands.hpp"
#include "hand_over.hpp"
#include "options.hpp"

namespace everleaf::cli {

void add_traffic(CLI::App& app) {
  const Command command(app, "traffic",
                        "Model what trees read and write on a medium (everleaf-traffic)");
}

int run_traffic(char** arguments) {
  return hand_over("everleaf-traffic", "crash/traffic", "-DEVERLEAF_CRASH=ON -DEVERLEAF_BENCH=ON",
                   arguments);
}

}  // namespace everleaf::cli
