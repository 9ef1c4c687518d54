// JSON output. Key order is kept as written: docs/cli.md shows it.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "stream.hpp"
#include "text.hpp"

namespace everleaf::cli {

using Json = nlohmann::ordered_json;

// A key: a number, or a string with the escapes of TSV (JSON strings cannot hold every byte).
inline Json json_key(std::uint64_t key) {
  return key;
}
inline Json json_key(std::string_view key) {
  return escape(key);
}

// Text that is not UTF-8 (a path, say) gets replacement characters.
inline std::string to_text(const Json& json, int indent = 2) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

inline void print(const Json& json) {
  Output output;
  output << to_text(json) << "\n";
  output.finish();
}

}  // namespace everleaf::cli
