// Tree specs: "wbtree:structure=bitmap-leaf:node=512".
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <everleaf/index.hpp>

namespace everleaf::base {

struct Spec {
  std::string tree;
  std::vector<std::pair<std::string, std::string>> options;
};

// The tree's name.
[[nodiscard]] inline std::string_view tree_of(std::string_view text) {
  return text.substr(0, text.find(':'));
}

// Splits a spec; bad_option if a part has no '='.
Result<Spec> parse_spec(std::string_view text);

// Every option of `tree` written out in its order, with defaults for those that `spec` leaves out:
// two specs mean the same index exactly when their canonical forms are equal.
// unknown_option names the option and what there is.
Result<Spec> canonical_spec(Spec spec, const TreeInfo& tree);
std::string to_string(const Spec& spec);

// The value of an option in a canonical spec. `place`: where it is looked for first.
std::string_view option_of(const Spec& canonical, std::string_view name, std::size_t place = 0);
// The same as a number; none if it is not one.
std::optional<std::uint64_t> number_of(const Spec& canonical, std::string_view name,
                                       std::size_t place = 0);

}  // namespace everleaf::base
