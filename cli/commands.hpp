// One function for each subcommand: it declares the options and what runs when it is chosen.
#pragma once

namespace CLI {
class App;
}

namespace everleaf::cli {

// `status` receives the exit code of the command that ran.
void add_demo(CLI::App& app, int& status);
void add_load(CLI::App& app, int& status);
void add_dump(CLI::App& app, int& status);
void add_get(CLI::App& app, int& status);
void add_put(CLI::App& app, int& status);
void add_del(CLI::App& app, int& status);
void add_scan(CLI::App& app, int& status);
void add_info(CLI::App& app, int& status);
void add_check(CLI::App& app, int& status);
void add_doctor(CLI::App& app, int& status);
void add_list(CLI::App& app, int& status);
void add_store(CLI::App& app, int& status);

// Only for the list of commands: main() hands over to run_bench before it reads any option.
void add_bench(CLI::App& app);
int run_bench(char** arguments);

// The same for everleaf-crash, everleaf-paper, everleaf-report and everleaf-traffic.
void add_crash(CLI::App& app);
int run_crash(char** arguments);
void add_paper(CLI::App& app);
int run_paper(char** arguments);
void add_report(CLI::App& app);
int run_report(char** arguments);
void add_traffic(CLI::App& app);
int run_traffic(char** arguments);

}  // namespace everleaf::cli
