#include "workloads/trace.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <string_view>

#include <absl/container/flat_hash_map.h>
#include <fmt/format.h>

#include "failure.hpp"

namespace everleaf::bench {
namespace {

using Kind = Phase::Kind;

// Which fields of a line are used.
struct Columns {
  std::size_t key = 0;
  std::optional<std::size_t> operation;
  std::size_t count = 0;
};

constexpr Columns kTwitter{1, 5, 7};

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r";
  const std::size_t first = text.find_first_not_of(kBlank);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

void split(std::string_view line, std::vector<std::string_view>& fields) {
  fields.clear();
  while (true) {
    const std::size_t comma = line.find(',');
    fields.push_back(trimmed(line.substr(0, comma)));
    if (comma == std::string_view::npos) return;
    line.remove_prefix(comma + 1);
  }
}

std::string lower(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return out;
}

bool is_number(std::string_view text) {
  return !text.empty() &&
         std::ranges::all_of(text, [](unsigned char c) { return std::isdigit(c) || c == '.'; });
}

[[noreturn]] void refuse(const std::string& name, std::uint64_t line, const std::string& why) {
  throw Failure(kExitUsage, fmt::format("--trace: {}, line {}: {}", name, line, why));
}

// nullopt: no header.
std::optional<Columns> columns_of(const std::string& name, std::string_view line) {
  constexpr std::array<std::string_view, 5> kKeys = {"object", "obj", "obj_id", "id", "key"};
  const bool marked = line.starts_with('#');
  if (marked) line.remove_prefix(1);
  std::vector<std::string_view> fields;
  split(line, fields);
  if (!marked && is_number(fields.front())) return std::nullopt;
  Columns columns{fields.size(), std::nullopt, fields.size()};
  for (std::size_t i = 0; i < fields.size(); ++i) {
    const std::string field = lower(fields[i]);
    if (std::ranges::find(kKeys, field) != kKeys.end()) columns.key = i;
    if (field == "op" || field == "operation") columns.operation = i;
  }
  if (columns.key == fields.size()) {
    refuse(name, 1, "the header names no key (object, obj, obj_id, id or key)");
  }
  return columns;
}

std::optional<Kind> kind_of(std::string_view operation) {
  constexpr std::array<std::string_view, 8> kWrites = {"set",    "add",     "replace", "cas",
                                                       "append", "prepend", "incr",    "decr"};
  const std::string name = lower(operation);
  if (name == "get" || name == "gets") return Kind::find;
  if (name == "delete") return Kind::remove;
  if (std::ranges::find(kWrites, name) != kWrites.end()) return Kind::upsert;
  return std::nullopt;
}

class Reader {
 public:
  explicit Reader(std::string name) { trace_.name = std::move(name); }

  void take(std::string_view line, std::uint64_t number) {
    if (trimmed(line).empty()) return;
    if (!columns_) {
      columns_ = columns_of(trace_.name, line);
      if (columns_) return;
      columns_ = kTwitter;
    }
    split(line, fields_);
    if (fields_.size() != columns_->count) {
      refuse(trace_.name, number,
             fmt::format("{} fields where {} are expected{}", fields_.size(), columns_->count,
                         number == 1 ? " in a file without a header" : ""));
    }
    const std::string_view key = fields_[columns_->key];
    if (key.empty()) refuse(trace_.name, number, "the key is empty");
    if (trace_.distinct == std::numeric_limits<std::uint32_t>::max())
      refuse(trace_.name, number, "more keys than 2^32 - 1");
    const auto [place, is_new] = numbers_.try_emplace(absl::string_view(key.data(), key.size()),
                                                      static_cast<std::uint32_t>(trace_.distinct));
    if (is_new) ++trace_.distinct;
    Kind kind = is_new ? Kind::upsert : Kind::find;
    if (columns_->operation) {
      const std::string_view operation = fields_[*columns_->operation];
      const auto known = kind_of(operation);
      if (!known) refuse(trace_.name, number, fmt::format("unknown operation '{}'", operation));
      kind = *known;
    }
    trace_.keys.push_back(place->second);
    trace_.kinds.push_back(kind);
  }

  [[nodiscard]] std::uint64_t size() const { return trace_.keys.size(); }
  Trace finish() { return std::move(trace_); }

 private:
  Trace trace_;
  std::optional<Columns> columns_;
  std::vector<std::string_view> fields_;
  absl::flat_hash_map<std::string, std::uint32_t> numbers_;
};

}  // namespace

Trace read_trace(std::istream& in, const std::string& name, std::uint64_t most) {
  Reader reader(name);
  std::string line;
  for (std::uint64_t number = 1; reader.size() < most && std::getline(in, line); ++number) {
    reader.take(line, number);
  }
  if (in.bad()) throw Failure(kExitIo, fmt::format("--trace: cannot read {}", name));
  if (reader.size() == 0) {
    throw Failure(kExitUsage, fmt::format("--trace: {} holds no request", name));
  }
  return reader.finish();
}

Trace read_trace(const std::string& path, std::uint64_t most) {
  std::ifstream file(path);
  if (!file || std::filesystem::is_directory(path)) {
    const int error = file ? EISDIR : errno;
    throw Failure(kExitIo, fmt::format("--trace: cannot read {}: {}", path, std::strerror(error)));
  }
  return read_trace(file, std::filesystem::path(path).filename().string(), most);
}

}  // namespace everleaf::bench
