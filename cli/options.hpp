// Declaring a subcommand and its options. Only options.cpp and main.cpp see CLI11 itself, which
// takes seconds to compile. Targets must live until the command has run.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace everleaf::cli {

class Command {
 public:
  Command(CLI::App& app, const std::string& name, const std::string& help);
  // A subcommand of this one, which then does nothing alone.
  [[nodiscard]] Command within(const std::string& name, const std::string& help);

  void positional(const std::string& name, std::string& target, const std::string& help);
  void positionals(const std::string& name, std::vector<std::string>& target,
                   const std::string& help);
  // A default that is not empty is shown.
  void option(const std::string& name, std::string& target, const std::string& help);
  void option(const std::string& name, std::optional<std::string>& target, const std::string& help);
  // It may be given again.
  void options(const std::string& name, std::vector<std::string>& target, const std::string& help);
  void number(const std::string& name, std::uint64_t& target, const std::string& help);
  // A number with an optional suffix K, M, G or T, for a std::uint64_t or an optional one.
  template <class Target>
  void size(const std::string& name, Target& target, const std::string& help) {
    read_size(name, help, [&target](std::uint64_t size) { target = size; });
  }
  // A number and its unit, or 0 (duration.hpp).
  void epoch(const std::string& name, std::chrono::nanoseconds& target, const std::string& help);
  void flag(const std::string& name, bool& target, const std::string& help);
  // Of these options declared before: the first goes with none of the others.
  void excludes(const std::string& name, std::initializer_list<std::string> others);

  // What happens when the command is chosen.
  void run(std::function<void()> action);

 private:
  void read_size(const std::string& name, const std::string& help,
                 const std::function<void(std::uint64_t)>& set);

  CLI::App* command_;
};

}  // namespace everleaf::cli
