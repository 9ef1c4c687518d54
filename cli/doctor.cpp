// everleaf doctor: what this machine gives, and why.
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include <everleaf/pool.hpp>
#include <everleaf/version.h>

#include <fmt/format.h>
#include <unistd.h>

#include "commands.hpp"
#include "failure.hpp"
#include "json.hpp"
#include "options.hpp"
#include "text.hpp"

namespace everleaf::cli {
namespace {

struct Place {
  std::string path;
  DomainChoice domain;
  bool writable = false;
  std::uint64_t free_bytes = 0;
};

struct Machine {
  std::string flush_instruction;
  long page_bytes = 0;
  unsigned cores = 0;
  std::string huge_pages;        // of anonymous memory
  std::string shmem_huge_pages;  // of tmpfs, unless its mount says otherwise
};

// The chosen word of "always [madvise] never".
std::string chosen_in(const std::string& path) {
  std::ifstream file(path);
  std::string word;
  while (file >> word) {
    if (word.size() > 2 && word.front() == '[') return word.substr(1, word.size() - 2);
  }
  return "unknown";
}

Machine this_machine() {
  const std::string settings = "/sys/kernel/mm/transparent_hugepage/";
  return {std::string(flush_instruction()), ::sysconf(_SC_PAGESIZE),
          std::thread::hardware_concurrency(), chosen_in(settings + "enabled"),
          chosen_in(settings + "shmem_enabled")};
}

Place examine(const std::string& path) {
  std::error_code error;
  const std::filesystem::path place(path);
  if (!std::filesystem::exists(place, error)) {
    throw Failure(kExitIo, fmt::format("cannot examine {}: no such file or directory", path));
  }
  const auto space = std::filesystem::space(place, error);
  return {path, value_or_fail(detect_domain(place)), ::access(path.c_str(), W_OK) == 0,
          error ? 0 : space.available};
}

// Where a pool is likely to go: here, on tmpfs, in the directory for temporary files.
std::vector<std::string> usual_places() {
  std::error_code ignored;
  std::vector<std::string> places{"."};
  if (std::filesystem::is_directory("/dev/shm", ignored)) places.emplace_back("/dev/shm");
  const auto temporary = std::filesystem::temp_directory_path(ignored);
  if (!ignored) places.push_back(temporary.string());
  return places;
}

void print_json(const Machine& machine, const std::vector<Place>& places) {
  Json directories = Json::array();
  for (const Place& place : places) {
    directories.push_back(Json{{"path", place.path},
                               {"domain", to_string(place.domain.domain)},
                               {"reason", place.domain.reason},
                               {"writable", place.writable},
                               {"free_bytes", place.free_bytes}});
  }
  print(Json{{"version", EVERLEAF_VERSION},
             {"flush_instruction", machine.flush_instruction},
             {"page_bytes", machine.page_bytes},
             {"cores", machine.cores},
             {"huge_pages", machine.huge_pages},
             {"shmem_huge_pages", machine.shmem_huge_pages},
             {"directories", std::move(directories)}});
}

void print_text(const Machine& machine, const std::vector<Place>& places) {
  fmt::print("everleaf            {}\n", EVERLEAF_VERSION);
  fmt::print("flush instruction   {} (used by the domain memory)\n", machine.flush_instruction);
  fmt::print("page size           {} bytes\n", machine.page_bytes);
  fmt::print(
      "huge pages          {} for anonymous memory, {} for tmpfs (unless mounted with "
      "huge=)\n",
      machine.huge_pages, machine.shmem_huge_pages);
  fmt::print("cores               {}\n\n", machine.cores);
  for (const Place& place : places) {
    fmt::print("{:<19} {} - {}; {} free{}\n", place.path, to_string(place.domain.domain),
               place.domain.reason, human_bytes(place.free_bytes),
               place.writable ? "" : ", not writable for you");
  }
}

}  // namespace

void add_doctor(CLI::App& app, int& status) {
  struct Arguments {
    std::vector<std::string> places;
    bool json = false;
  };
  auto arguments = std::make_shared<Arguments>();
  Command command(app, "doctor", "Say which persistence domain a directory gives, and why");
  command.positionals("DIR", arguments->places, "Directories or pools; default: the usual places");
  command.flag("--json", arguments->json, "For programs");
  command.run([arguments, &status] {
    std::vector<Place> places;
    for (const std::string& path : arguments->places.empty() ? usual_places() : arguments->places) {
      places.push_back(examine(path));
    }
    arguments->json ? print_json(this_machine(), places) : print_text(this_machine(), places);
    status = 0;
  });
}

}  // namespace everleaf::cli
