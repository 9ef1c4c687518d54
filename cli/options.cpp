#include "options.hpp"

#include <CLI/CLI.hpp>
#include <utility>

#include <fmt/format.h>

#include "duration.hpp"
#include "text.hpp"

namespace everleaf::cli {

Command::Command(CLI::App& app, const std::string& name, const std::string& help)
    : command_(app.add_subcommand(name, help)) {}

Command Command::within(const std::string& name, const std::string& help) {
  command_->require_subcommand(1);
  return {*command_, name, help};
}

void Command::positional(const std::string& name, std::string& target, const std::string& help) {
  command_->add_option(name, target, help)->required();
}

void Command::positionals(const std::string& name, std::vector<std::string>& target,
                          const std::string& help) {
  command_->add_option(name, target, help);
}

void Command::option(const std::string& name, std::string& target, const std::string& help) {
  CLI::Option* const option = command_->add_option(name, target, help);
  if (!target.empty()) option->capture_default_str();
}

void Command::option(const std::string& name, std::optional<std::string>& target,
                     const std::string& help) {
  command_->add_option(name, target, help);
}

void Command::options(const std::string& name, std::vector<std::string>& target,
                      const std::string& help) {
  command_->add_option(name, target, help)->expected(1)->take_all();
}

// CLI11 itself would take -1 for 2^64 - 1.
void Command::number(const std::string& name, std::uint64_t& target, const std::string& help) {
  const auto read = [name, &target](const std::string& text) {
    const auto number = parse_number(text);
    if (!number) {
      throw CLI::ValidationError(name, fmt::format("{} is not {}", in_quotes(text), kNumberRange));
    }
    target = *number;
  };
  command_->add_option_function<std::string>(name, read, help)->type_name("N");
}

void Command::read_size(const std::string& name, const std::string& help,
                        const std::function<void(std::uint64_t)>& set) {
  const auto read = [name, set](const std::string& text) {
    const auto size = parse_size(text);
    if (!size) {
      throw CLI::ValidationError(name, fmt::format("{} is not a size like 512M", in_quotes(text)));
    }
    set(*size);
  };
  command_->add_option_function<std::string>(name, read, help)->type_name("SIZE");
}

void Command::epoch(const std::string& name, std::chrono::nanoseconds& target,
                    const std::string& help) {
  const auto read = [name, &target](const std::string& text) {
    const auto length = parse_epoch(text);
    if (!length) {
      throw CLI::ValidationError(name, fmt::format("{} is not {}", in_quotes(text), kEpochForm));
    }
    target = *length;
  };
  command_->add_option_function<std::string>(name, read, help)->type_name("LENGTH");
}

void Command::flag(const std::string& name, bool& target, const std::string& help) {
  command_->add_flag(name, target, help);
}

void Command::excludes(const std::string& name, std::initializer_list<std::string> others) {
  for (const std::string& other : others) {
    command_->get_option(name)->excludes(command_->get_option(other));
  }
}

void Command::run(std::function<void()> action) {
  command_->callback(std::move(action));
}

}  // namespace everleaf::cli
