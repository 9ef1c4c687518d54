#include "base/spec.hpp"

#include <algorithm>
#include <charconv>

namespace everleaf::base {

Result<Spec> parse_spec(std::string_view text) {
  Spec spec;
  spec.options.reserve(static_cast<std::size_t>(std::ranges::count(text, ':')));
  bool first = true;
  while (true) {
    const std::size_t colon = text.find(':');
    const std::string_view part = text.substr(0, colon);
    if (first) {
      spec.tree = part;
      first = false;
    } else {
      const std::size_t equals = part.find('=');
      if (equals == std::string_view::npos || equals == 0) {
        return std::unexpected(Error{Code::bad_option, "tree option '" + std::string(part) +
                                                           "' is not of the form name=value"});
      }
      const std::string_view name = part.substr(0, equals);
      const auto same = [name](const auto& option) { return option.first == name; };
      if (std::ranges::any_of(spec.options, same)) {
        return std::unexpected(Error{
            Code::bad_option, "tree option '" + std::string(name) + "' is there more than once"});
      }
      spec.options.emplace_back(name, part.substr(equals + 1));
    }
    if (colon == std::string_view::npos) return spec;
    text.remove_prefix(colon + 1);
  }
}

Result<Spec> canonical_spec(Spec spec, const TreeInfo& tree) {
  const auto name_of = &std::pair<std::string, std::string>::first;
  // What a pool names is canonical, and each open reads it.
  if (std::ranges::equal(spec.options, tree.options, {}, name_of, &OptionInfo::name)) return spec;
  for (const auto& [name, value] : spec.options) {
    if (std::ranges::find(tree.options, std::string_view(name), &OptionInfo::name) ==
        tree.options.end()) {
      std::string known;
      for (const OptionInfo& option : tree.options) {
        known += (known.empty() ? "" : ", ") + std::string(option.name);
      }
      return std::unexpected(
          Error{Code::unknown_option,
                std::string(tree.name) + " has no option '" + name + "'; it has: " + known});
    }
  }
  Spec canonical{std::string(tree.name), {}};
  canonical.options.reserve(tree.options.size());
  for (const OptionInfo& option : tree.options) {
    const auto given = std::ranges::find(spec.options, option.name, name_of);
    canonical.options.emplace_back(
        option.name, given == spec.options.end() ? option.default_value : given->second);
  }
  return canonical;
}

std::string to_string(const Spec& spec) {
  std::string text = spec.tree;
  for (const auto& [name, value] : spec.options) {
    text += ':';
    text += name;
    text += '=';
    text += value;
  }
  return text;
}

std::string_view option_of(const Spec& canonical, std::string_view name, std::size_t place) {
  if (place < canonical.options.size() && canonical.options[place].first == name) {
    return canonical.options[place].second;
  }
  const auto given =
      std::ranges::find(canonical.options, name, &std::pair<std::string, std::string>::first);
  return given == canonical.options.end() ? std::string_view{} : std::string_view(given->second);
}

std::optional<std::uint64_t> number_of(const Spec& canonical, std::string_view name,
                                       std::size_t place) {
  const std::string_view text = option_of(canonical, name, place);
  const char* const end = text.data() + text.size();
  std::uint64_t number = 0;
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc{} || stop != end) return std::nullopt;
  return number;
}

}  // namespace everleaf::base
