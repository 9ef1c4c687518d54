// everleaf-bench: measures trees and rivals side by side. What the figures mean: README.md here.
#include <CLI/CLI.hpp>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "failure.hpp"
#include "interrupt.hpp"
#include "plan.hpp"
#include "recovery.hpp"
#include "report.hpp"
#include "runner.hpp"
#include "split.hpp"

namespace everleaf::bench {
namespace {

void declare_store_options(CLI::App& app, Arguments& arguments) {
  app.add_flag(
      "--store", arguments.store,
      "Key-value stores: everleaf::Store over the trees of --index (default: bdtree, "
      "buffered, and wbtree, strict) beside LMDB, RocksDB and LevelDB; default workload: " +
          std::string(kStoreWorkload));
  app.add_option("--values", arguments.values,
                 "With --store: bytes of a value, 8 to 1048576; default: 100");
}

void declare_where(CLI::App& app, Arguments& arguments) {
  app.add_option("--domain", arguments.domain,
                 "volatile, process, cache, memory or disk; default: what the directory gives");
  app.add_flag("--emulate", arguments.emulate, "Allow a domain that the directory does not give");
  app.add_option("--pages", arguments.pages,
                 "small: 4 KiB for all; huge: 2 MiB for pools on tmpfs and in memory, and for the "
                 "maps; own: as each comes, pools with huge pages and maps with what malloc takes")
      ->check(CLI::IsMember({"small", "huge", "own"}))
      ->capture_default_str();
  app.add_option("--room", arguments.room,
                 "Space that pools take before the first phase, for example 1GB: none is cleared "
                 "while they are measured; default: they grow as they need it")
      ->transform(CLI::AsSizeValue(false));
  app.add_option("--epoch", arguments.epoch,
                 "Buffered trees: length of an epoch, 1us to 10s, for example 5ms; 0: only sync "
                 "steps; default: 50ms");
  app.add_option(
      "--dir", arguments.dir,
      "Where the pools and stores go, removed afterwards; default: /dev/shm, else the system's "
      "temporary directory");
}

void declare_options(CLI::App& app, Arguments& arguments) {
  app.add_option(
      "--index", arguments.index,
      "Comma-separated: specs of trees (wbtree:node=512), maps in memory (absl-btree, "
      "std-map), stores in files (lmdb, rocksdb or leveldb with -sync: each write waits "
      "for the device, or with -nosync: left to the page cache); default: every tree and "
      "absl-btree");
  app.add_option(
         "--workload", arguments.workload,
         "Comma-separated phases, run in this order on the same index; load comes first. "
         "A mix: mix:find=80:update=20 (percent; find, update, insert, scan, remove, upsert, "
         "modify: read and update). bulk-load or bulk-load:70 instead of load: one call, nodes so "
         "full (percent). find-many: find, --batch at once. With --store also "
         "batch-load, batch-insert and batch-upsert: "
         "--batch at once. Of papers: ycsb-a to ycsb-f; bz-read-only, "
         "bz-read-mostly, bz-read-heavy, bz-balanced; pb-mix; u1, u2, l1, z1 or z2 with "
         "-read-heavy, -write-heavy or -write-only; lodge-insert, lodge-search, "
         "lodge-skewed-insert, lodge-1-1, lodge-1-2; t1, t2, t3; trace: the requests of --trace")
      ->default_str(std::string(kWorkload));
  app.add_option_function<std::string>(
         "--records",
         [&arguments](const std::string& text) { arguments.records = parse_sizes(text); },
         "Records that load inserts (with --recovery also several numbers, comma-separated); "
         "default: half the space of keys of u1 (500000), u2, l1, "
         "z1 and z2 (5000000), t1 (11000000), t2 (5000000) and t3 (12500000), else 1000000, with "
         "--store 5000000")
      ->type_name("UINT,...");
  app.add_option("--ops", arguments.ops, "Operations of every other phase; default: --records");
  app.add_option("--trace", arguments.trace,
                 "Requests to a key-value cache, CSV; half of their keys are loaded before; --ops: "
                 "the first so many");
  app.add_option("--threads", arguments.threads, "Comma-separated numbers of threads")
      ->capture_default_str();
  app.add_option("--distribution", arguments.distribution,
                 "uniform, zipf:T, latest:T, ascending, descending or hotspot:R:O (O % of the "
                 "operations go to R % of the records), for what has none by its name")
      ->capture_default_str();
  app.add_option("--repeat", arguments.repeat, "Rounds, each with new indexes")
      ->capture_default_str();
  app.add_option("--json", arguments.json, "Write the rows to this file, too");
  app.add_option(
      "--keys", arguments.keys,
      "u64, bytes (20 bytes) or bytes:N (8 to 128); default: u64, with --store bytes:16");
  app.add_option(
      "--batch", arguments.batch,
      "Look-ups that are asked for at once (find_many); rivals take them one by one. In a mix "
      "they wait until there are so many; beside find-many, find asks one by one; workloads of "
      "keys that may be absent (u1 ... t3, trace) ask one by one. With --store: writes of a batch, "
      "or of a transaction. Latency is that of a batch, then (in a mix of the call that asks); "
      "default: 1, of find-many and with --store 1000");
  app.add_option("--scan-length", arguments.scan_length, "Entries of a scan; of ycsb-e: at most")
      ->capture_default_str();
  app.add_option(
         "--latency-every", arguments.latency_every,
         "Time one operation in so many by itself (phases of up to 10000: each); 1 shows the "
         "whole tail and costs throughput")
      ->capture_default_str();
  app.add_option("--seed", arguments.seed, "Of keys and sequences")->capture_default_str();
  app.add_flag("--recovery", arguments.recovery,
               "Instead of phases: writers are killed --repeat times, and each open is timed");
  app.add_flag(
      "--split", arguments.split,
      "Split the time of operations into traversal, leaf, pmwcas, flush, update; reading the clock "
      "so often makes them slower");
}

[[noreturn]] void refuse_file(const std::string& path) {
  throw Failure(kExitIo, fmt::format("cannot write to '{}'", path));
}

// Before the run, so that a wrong name costs no hours; keeps what an older run left there.
void check_writable(const std::string& path) {
  if (!std::ofstream(path, std::ios::app)) refuse_file(path);
}

void write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::trunc);
  file << text << std::flush;
  if (!file) refuse_file(path);
}

// The ordinary library has no stopwatches, so that they cost it nothing.
void hand_over_to_split(char** argv) {
  const auto self = std::filesystem::read_symlink("/proc/self/exe");
  const auto program = self.parent_path() / "everleaf-bench-split";
  ::execv(program.c_str(), argv);
  throw Failure(kExitIo,
                fmt::format("--split: cannot run {}: {}", program.string(), std::strerror(errno)));
}

// The entries of GLIBC_TUNABLES but those that decide about malloc's huge pages.
std::string other_tunables() {
  const char* const set = std::getenv("GLIBC_TUNABLES");
  std::string others;
  std::istringstream entries(set == nullptr ? "" : set);
  for (std::string entry; std::getline(entries, entry, ':');) {
    if (!entry.starts_with("glibc.malloc.hugetlb=")) others += entry + ":";
  }
  return others;
}

// glibc decides at the start whether malloc asks for huge pages.
void ask_malloc_for_huge_pages(char** argv) {
  const std::string wanted = other_tunables() + "glibc.malloc.hugetlb=1";
  const char* const set = std::getenv("GLIBC_TUNABLES");
  if (set != nullptr && wanted == set) return;
  ::setenv("GLIBC_TUNABLES", wanted.c_str(), 1);
  ::execv("/proc/self/exe", argv);
  throw Failure(kExitIo, fmt::format("--pages huge: cannot start again: {}", std::strerror(errno)));
}

void choose_pages(const std::string& pages, char** argv) {
  if (pages == "huge") ask_malloc_for_huge_pages(argv);
  // Inner nodes of the trees, and what malloc takes where huge pages are `always`.
  if (pages == "small") (void)::prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
}

void measure(const Arguments& arguments, int argc, char** argv) {
  const Plan plan = make_plan(arguments);
  check_specs(plan);
  if (!plan.json.empty()) check_writable(plan.json);
  const Interrupt interrupt;
  const Run described = describe_run("everleaf-bench", argc, argv);
  if (arguments.recovery) {
    const std::vector<RecoveryRow> rows = measure_recovery(plan);
    fmt::print("{}", recovery_table(plan, rows));
    if (!plan.json.empty()) write_file(plan.json, recovery_json(plan, described, rows));
    return;
  }
  const std::vector<Row> rows = run(plan);
  fmt::print("{}", to_table(plan, described.machine, rows));
  if (!plan.json.empty()) write_file(plan.json, to_json(plan, described, rows));
}

int run_program(int argc, char** argv) {
  CLI::App app("Measures persistent trees, maps in memory and stores in files side by side.",
               "everleaf-bench");
  Arguments arguments;
  declare_options(app, arguments);
  declare_where(app, arguments);
  declare_store_options(app, arguments);
  try {
    app.parse(argc, argv);
    if (arguments.split && !split_so_far()) hand_over_to_split(argv);
    choose_pages(arguments.pages, argv);
    measure(arguments, argc, argv);
    // Whoever started this program shall see why it ended.
    if (Interrupt::asked()) {
      std::fflush(stdout);
      std::raise(SIGINT);
    }
    return 0;
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kExitUsage;
  } catch (const Failure& failure) {
    fmt::print(stderr, "everleaf-bench: {}\n", failure.what());
    return failure.exit_code();
  } catch (const std::exception& error) {
    fmt::print(stderr, "everleaf-bench: {}\n", error.what());
    return kExitIo;
  }
}

}  // namespace
}  // namespace everleaf::bench

int main(int argc, char** argv) {
  return everleaf::bench::run_program(argc, argv);
}
