#include "shrink.hpp"

#include <algorithm>
#include <charconv>
#include <sstream>
#include <utility>

#include <fmt/format.h>

namespace everleaf::crash {
namespace {

std::vector<Op> kept_ops(const Origin& origin) {
  const std::vector<Op> all = make_workload(origin.workload);
  std::vector<Op> ops;
  for (const std::size_t i : origin.kept) {
    if (i < all.size()) ops.push_back(all[i]);
  }
  return ops;
}

// Whether this choice of operations fails, too.
bool fails(Config& config, Origin& origin, Failure& failure, std::vector<std::size_t> kept,
           const Deadline& until) {
  Origin candidate{origin.workload, std::move(kept)};
  Config shorter = config;
  shorter.ops = kept_ops(candidate);
  shorter.only_op = shorter.ops.size() - 1;
  shorter.deadline = until;
  shorter.progress = nullptr;
  shorter.line = replay_line(shorter, candidate, {});
  const Report report = run(shorter);
  if (!report.failure) return false;
  config.ops = std::move(shorter.ops);
  origin = std::move(candidate);
  failure = *report.failure;
  return true;
}

bool number(std::string_view text, std::uint64_t& value) {
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  return result.ec == std::errc{} && result.ptr == text.data() + text.size();
}

std::vector<std::string> split(const std::string& text, char by) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, by);) parts.push_back(part);
  return parts;
}

std::string ranges(const std::vector<std::size_t>& kept) {
  std::string text;
  for (std::size_t i = 0; i < kept.size();) {
    std::size_t end = i;
    while (end + 1 < kept.size() && kept[end + 1] == kept[end] + 1) ++end;
    if (!text.empty()) text += ',';
    text += end == i ? fmt::format("{}", kept[i]) : fmt::format("{}-{}", kept[i], kept[end]);
    i = end + 1;
  }
  return text.empty() ? "none" : text;
}

bool parse_kept(const std::string& text, std::vector<std::size_t>& kept) {
  kept.clear();
  if (text == "none") return true;
  for (const std::string& part : split(text, ',')) {
    const auto ends = split(part, '-');
    std::uint64_t from = 0;
    std::uint64_t to = 0;
    if (ends.empty() || part.ends_with('-')) return false;
    if (!number(ends.front(), from) || !number(ends.back(), to)) return false;
    if (to < from || to - from > 1'000'000) return false;
    for (; from <= to; ++from) kept.push_back(from);
  }
  return true;
}

bool parse_crash(const std::string& text, std::vector<Crash>& crashes) {
  for (const std::string& part : split(text, '+')) {
    const std::size_t slash = part.find('/');
    Crash crash;
    if (slash == std::string::npos ||
        !number(std::string_view(part).substr(0, slash), crash.point)) {
      return false;
    }
    for (const std::string& choice : split(part.substr(slash + 1), '.')) {
      const std::size_t of = choice.find("of");
      std::uint64_t pick = 0;
      std::uint64_t count = 0;
      if (of == std::string::npos || !number(std::string_view(choice).substr(0, of), pick) ||
          !number(std::string_view(choice).substr(of + 2), count) || pick >= count ||
          count > ~std::uint32_t{0}) {
        return false;
      }
      crash.choices.push_back(
          {static_cast<std::uint32_t>(pick), static_cast<std::uint32_t>(count)});
    }
    crashes.push_back(std::move(crash));
  }
  return !crashes.empty() && crashes.size() < kMostLevels;
}

}  // namespace

void shrink(Config& config, Origin& origin, Failure& failure, double seconds) {
  const auto until = Deadline::within(seconds);
  if (failure.op >= config.ops.size()) {  // before any operation
    origin.kept.clear();
    config.ops.clear();
    return;
  }
  std::vector<std::size_t> kept = origin.kept;
  kept.resize(failure.op + 1);
  // In a shorter workload the crash point has another number.
  const std::uint64_t readers =
      std::exchange(config.readers, failure.of_reader ? 1 : config.readers);
  if (!fails(config, origin, failure, kept, until)) {
    config.readers = readers;
    return;
  }
  for (std::size_t chunk = kept.size() / 2; chunk != 0 && !is_late(until); chunk /= 2) {
    // The last operation stays: the crash is in it.
    for (std::size_t at = 0; at + 1 < origin.kept.size() && !is_late(until);) {
      kept = origin.kept;
      const std::size_t n = std::min(chunk, kept.size() - 1 - at);
      const auto first = kept.begin() + static_cast<std::ptrdiff_t>(at);
      kept.erase(first, first + static_cast<std::ptrdiff_t>(n));
      if (!fails(config, origin, failure, kept, until)) at += n;
    }
  }
}

std::string replay_line(const Config& config, const Origin& origin, const Failure& failure) {
  std::string crash;
  for (const Crash& one : failure.crashes) {
    crash += fmt::format("{}{}/", crash.empty() ? "" : "+", one.point);
    for (std::size_t i = 0; i < one.choices.size(); ++i) {
      crash +=
          fmt::format("{}{}of{}", i == 0 ? "" : ".", one.choices[i].pick, one.choices[i].count);
    }
  }
  std::string line =
      fmt::format("spec={} keys={} domain={} seed={} ops={} keep={}", config.spec,
                  everleaf::to_string(config.keys), everleaf::to_string(config.domain),
                  origin.workload.seed, origin.workload.ops, ranges(origin.kept));
  if (origin.workload.sequence) line += fmt::format(" sequence={}", *origin.workload.sequence);
  if (config.store) line += " store=1";
  if (config.unordered) line += " unordered=1";
  if (config.permuted) line += " permuted=1";
  if (config.pool_bytes != Config{}.pool_bytes) line += fmt::format(" pool={}", config.pool_bytes);
  if (config.readers != 0) line += fmt::format(" readers={}", config.readers);
  if (config.dropped) {
    line += fmt::format(" drop={}:{}:{}", config.dropped->file, config.dropped->line,
                        config.dropped->act == Act::flush ? "flush" : "fence");
  }
  if (!crash.empty()) line += " crash=" + crash;
  return line;
}

bool parse_replay(std::string_view line, Config& config, Origin& origin) {
  bool good = true;
  config.spec.clear();
  config.readers = 0;  // a line from before there were any
  std::istringstream words{std::string(line)};
  for (std::string word; words >> word;) {
    const std::size_t equals = word.find('=');
    if (equals == std::string::npos) return false;
    const std::string name = word.substr(0, equals);
    const std::string value = word.substr(equals + 1);
    std::uint64_t n = 0;
    if (name == "spec") {
      config.spec = value;
    } else if (name == "keys") {
      good = good && (value == "u64" || value == "bytes");
      config.keys = value == "bytes" ? KeyType::bytes : KeyType::u64;
    } else if (name == "domain") {
      const auto domain = parse_domain(value);
      good = good && domain.has_value();
      config.domain = domain.value_or(Domain::memory);
    } else if (name == "seed") {
      good = good && number(value, origin.workload.seed);
    } else if (name == "ops") {
      good = good && number(value, n) && n <= kMostOps;
      origin.workload.ops = good ? n : 0;
    } else if (name == "sequence") {
      good = good && number(value, n);
      origin.workload.sequence = n;
    } else if (name == "keep") {
      good = good && parse_kept(value, origin.kept);
    } else if (name == "store") {
      config.store = origin.workload.store = true;
    } else if (name == "unordered") {
      config.unordered = true;
    } else if (name == "permuted") {
      config.permuted = true;
    } else if (name == "pool") {
      good = good && number(value, config.pool_bytes) && config.pool_bytes % 4096 == 0 &&
             config.pool_bytes >= pmem::kMinPoolBytes && config.pool_bytes <= kMostPoolBytes;
    } else if (name == "readers") {
      good = good && number(value, config.readers);
    } else if (name == "drop") {
      const auto parts = split(value, ':');
      good = good && parts.size() == 3 && number(parts[1], n) &&
             (parts[2] == "flush" || parts[2] == "fence");
      if (good)
        config.dropped = SiteId{parts[0], static_cast<unsigned>(n),
                                parts[2] == "flush" ? Act::flush : Act::fence};
    } else if (name == "crash") {
      good = good && parse_crash(value, config.replay);
    } else {
      good = false;
    }
  }
  if (!good || config.spec.empty()) return false;
  origin.workload.ticks = is_buffered(config.spec);
  config.ops = kept_ops(origin);
  config.line = replay_line(config, origin, {});
  config.nested = static_cast<unsigned>(std::max<std::size_t>(1, config.replay.size()));
  return true;
}

}  // namespace everleaf::crash
