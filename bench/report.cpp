#include "report.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "interrupt.hpp"

namespace everleaf::bench {
namespace {

const Row* find(const std::vector<Row>& rows, unsigned threads, const Phase& phase,
                std::size_t column) {
  const auto row = std::ranges::find_if(rows, [&](const Row& candidate) {
    return candidate.threads == threads && candidate.phase == phase && candidate.column == column;
  });
  return row == rows.end() ? nullptr : &*row;
}

double per_op(std::uint64_t total, const Row& row) {
  return static_cast<double>(total) /
         (static_cast<double>(row.ops) * static_cast<double>(row.mops.size()));
}

double huge_share(const Row& row) {
  if (row.resident <= 0) return 0;
  return std::clamp(static_cast<double>(row.resident_huge) / static_cast<double>(row.resident), 0.0,
                    1.0);
}

double rounded(double value) {
  return std::round(value * 1e4) / 1e4;
}

constexpr std::array kParts = {&Split::traversal, &Split::leaf, &Split::words, &Split::flush,
                               &Split::update};
constexpr std::array kShareNames = {"share_traversal", "share_leaf", "share_words", "share_flush",
                                    "share_update"};

double share_of(const Split& split, std::uint64_t Split::*part) {
  return static_cast<double>(split.*part) /
         static_cast<double>(std::max<std::uint64_t>(split.total(), 1));
}

using Json = nlohmann::ordered_json;

Json optional_json(const std::optional<double>& value) {
  return value ? Json(rounded(*value)) : Json(nullptr);
}

// Counters of persistence mean nothing for a volatile map: null, not 0.
Json per_op_json(std::uint64_t total, const Row& row) {
  return row.identity.persistent ? Json(rounded(per_op(total, row))) : Json(nullptr);
}

// A phase neither begins nor ends with an epoch: a mean over fewer would be a matter of chance.
constexpr std::uint64_t kEnoughSteps = 10;

std::optional<double> mean_epoch_ns(const EpochShare& epochs) {
  if (epochs.steps < kEnoughSteps) return std::nullopt;
  return 1e9 * epochs.seconds / static_cast<double>(epochs.steps);
}

// What an acknowledged write outlives.
std::string survives(const Identity& identity) {
  const Domain domain = identity.domain.domain;
  if (domain == Domain::volatile_) return "nothing";
  return fmt::format("{}{}{}", domain == Domain::process ? "kill" : "power loss",
                     identity.domain.emulated ? " (emulated)" : "",
                     identity.buffered ? ", 2 epochs late" : "");
}

// Null but for buffered trees.
void add_epochs(Json& json, const Row& row, const Plan& plan) {
  const EpochShare& epochs = row.epochs;
  const bool buffered = row.identity.buffered;
  const auto mean = mean_epoch_ns(epochs);
  json["epoch_ns"] = buffered ? Json(plan.epoch.count()) : Json(nullptr);
  json["epoch_mean_ns"] = mean ? Json(std::llround(*mean)) : Json(nullptr);
  json["epoch_worst_ns"] = epochs.worst_ns > 0 ? Json(epochs.worst_ns) : Json(nullptr);
  json["epoch_steps"] = buffered ? Json(epochs.steps) : Json(nullptr);
  json["lines_per_op"] = buffered ? Json(rounded(per_op(epochs.lines, row))) : Json(nullptr);
}

// Of stores: blocks on disk over bytes of the keys and values that are there.
double disk_per_live(const Row& row, const Plan& plan) {
  return row.pool_bytes_per_key / static_cast<double>(plan.key_bytes + plan.value_bytes);
}

// Null in the ordinary program.
void add_split(Json& json, const Row& row) {
  for (std::size_t i = 0; i < kParts.size(); ++i) {
    json[kShareNames[i]] =
        row.split ? Json(rounded(share_of(*row.split, kParts[i]))) : Json(nullptr);
  }
}

void add_space(Json& json, const Row& row, const Plan& plan) {
  json["pool_bytes_per_key"] = rounded(row.pool_bytes_per_key);
  json["file_bytes_per_key"] =
      row.identity.in_dram ? Json(nullptr) : Json(rounded(row.file_bytes_per_key));
  json["disk_per_live"] = plan.store ? Json(rounded(disk_per_live(row, plan))) : Json(nullptr);
  json["dram_bytes_per_key"] = row.identity.persistent || row.identity.in_dram
                                   ? Json(rounded(row.dram_bytes_per_key))
                                   : Json(nullptr);
}

void add_over_time(Json& json, const Row& row) {
  json["over_time"] = Json::array();
  for (std::size_t repeat = 0; repeat < row.over_time.size(); ++repeat) {
    const auto& [ops, seconds] = row.over_time[repeat];
    for (std::size_t second = 0; second < ops.size(); ++second) {
      const double length = std::clamp(seconds - static_cast<double>(second), 0.0, 1.0);
      json["over_time"].push_back(Json{{"repeat", repeat + 1},
                                       {"second", second},
                                       {"length", rounded(length)},
                                       {"ops", ops[second]}});
    }
  }
}

void add_ratios(Json& json, const Row& row, const std::vector<Row>& rows, const Plan& plan) {
  json["ratios"] = Json::object();
  for (std::size_t column = 0; column < plan.indexes.size(); ++column) {
    if (!plan.indexes[column].rival) continue;
    const auto ratio = ratio_to(row, rows, column);
    if (!ratio) continue;
    json["ratios"][plan.indexes[column].name] = Json{{"ratio", rounded(ratio->of_medians)},
                                                     {"min", rounded(ratio->min)},
                                                     {"max", rounded(ratio->max)}};
  }
}

Json row_json(const Row& row, const std::vector<Row>& rows, const Plan& plan) {
  const Ratios ratios = ratios_of(row, rows, plan);
  const auto [least, most] = std::ranges::minmax(row.mops);
  Json json;
  json["index"] = row.identity.name;
  json["spec"] = row.identity.spec;
  json["phase"] = row.phase.text;
  json["threads"] = row.threads;
  json["records"] = plan.records;
  json["ops"] = row.ops;
  json["repeat"] = row.mops.size();
  json["distribution"] = distribution_of(plan, row.phase).text;
  json["keys"] = plan.keys_text;
  json["scan_length"] = plan.scan_length;
  // Of stores, how it is for their batched phases.
  json["batch"] =
      plan.store ? plan.batch : std::max(batch_of(plan, row.phase), look_ups_of(plan, row.phase));
  json["pages"] = plan.pages;
  json["room"] = plan.room;
  json["store"] = plan.store;
  json["value_bytes"] = plan.value_bytes;
  json["seed"] = plan.seed;
  json["domain"] = to_string(row.identity.domain.domain);
  json["survives"] = survives(row.identity);
  json["emulated"] = row.identity.domain.emulated;
  json["huge_pages"] = rounded(huge_share(row));
  json["mops"] = median(row.mops);
  json["mops_min"] = least;
  json["mops_max"] = most;
  json["cpu_share"] = rounded(row.cpu_share);
  json["rival"] = ratios.rival.empty() ? Json(nullptr) : Json(ratios.rival);
  json["ratio_to_first_rival"] = optional_json(ratios.to_rival);
  json["ratio_min"] = optional_json(ratios.to_rival_min);
  json["ratio_max"] = optional_json(ratios.to_rival_max);
  add_ratios(json, row, rows, plan);
  json["ratio_to_one_thread"] = optional_json(ratios.to_one_thread);
  for (const auto& [name, fraction] : {std::pair{"p50_ns", 0.5},
                                       {"p90_ns", 0.9},
                                       {"p99_ns", 0.99},
                                       {"p999_ns", 0.999},
                                       {"p9999_ns", 0.9999},
                                       {"p99999_ns", 0.99999}}) {
    json[name] = row.latency.quantile(fraction);
  }
  json["max_ns"] = row.latency.max();
  json["slowest100_ns"] = std::llround(row.latency.slowest_mean());
  json["latency_every"] = row.latency_every;
  json["latency_samples"] = row.latency.count();
  json["flushes_per_op"] = per_op_json(row.counters.flushes, row);
  json["fences_per_op"] = per_op_json(row.counters.fences, row);
  json["words_per_op"] = per_op_json(row.counters.bytes_written / 8, row);
  json["heap_words_per_op"] = per_op_json(row.counters.heap_bytes_written / 8, row);
  add_epochs(json, row, plan);
  add_split(json, row);
  add_over_time(json, row);
  add_space(json, row, plan);
  json["tree"] = row.identity.persistent ? Json::object() : Json(nullptr);
  for (const Figure& figure : row.figures) {
    json["tree"][figure.name] =
        Json{{"now", figure.now},
             {"change", figure.change},
             {"per_op", static_cast<double>(figure.change) / static_cast<double>(row.ops)}};
  }
  return json;
}

std::string or_dash(const std::optional<double>& value) {
  return value ? fmt::format("{:.2f}", *value) : "-";
}

// Strict trees on a disk do some hundred operations a second.
std::string mops_text(double mops) {
  return mops < 0.01 ? fmt::format("{:.6f}", mops) : fmt::format("{:.3f}", mops);
}

std::string counter_text(std::uint64_t total, const Row& row) {
  return row.identity.persistent ? fmt::format("{:.2f}", per_op(total, row)) : "-";
}

std::vector<std::string> table_line(const Row& row, const std::vector<Row>& rows,
                                    const Plan& plan) {
  const Ratios ratios = ratios_of(row, rows, plan);
  const auto [least, most] = std::ranges::minmax(row.mops);
  const auto quantile = [&](double fraction) {
    return fmt::format("{}", row.latency.quantile(fraction));
  };
  return {row.phase.text,
          fmt::format("{}", row.threads),
          row.identity.name,
          mops_text(median(row.mops)),
          mops_text(least) + "-" + mops_text(most),
          fmt::format("{:.0f}", 100 * row.cpu_share),
          or_dash(ratios.to_rival),
          or_dash(ratios.to_one_thread),
          quantile(0.5),
          quantile(0.99),
          quantile(0.999),
          quantile(0.99999),
          fmt::format("{:.0f}", row.latency.slowest_mean()),
          fmt::format("{}", row.latency.max()),
          counter_text(row.counters.flushes, row),
          counter_text(row.counters.fences, row),
          counter_text(row.counters.bytes_written / 8, row),
          row.identity.in_dram ? "-" : fmt::format("{:.1f}", row.pool_bytes_per_key),
          row.identity.in_dram ? "-" : fmt::format("{:.1f}", row.file_bytes_per_key),
          row.identity.persistent || row.identity.in_dram
              ? fmt::format("{:.1f}", row.dram_bytes_per_key)
              : "-",
          survives(row.identity)};
}

constexpr std::array<std::string_view, 21> kTitles = {
    "phase",    "thr",      "index",    "Mops",       "range",      "cpu %",      "rival x",
    "1 thr x",  "p50 ns",   "p99 ns",   "p99.9 ns",   "p99.999 ns", "slow100 ns", "max ns",
    "flush/op", "fence/op", "words/op", "pool B/key", "file B/key", "dram B/key", "survives"};
// Behind them with --split.
constexpr std::array<std::string_view, 5> kSplitTitles = {"traversal %", "leaf %", "pmwcas %",
                                                          "flush %", "update %"};

// Text columns to the left, numbers to the right.
std::string align(const std::vector<std::vector<std::string>>& lines) {
  std::vector<std::size_t> widths(lines[0].size());
  for (const auto& line : lines) {
    for (std::size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], line[i].size());
  }
  std::string text;
  for (const auto& line : lines) {
    for (std::size_t i = 0; i < line.size(); ++i) {
      const bool is_text = i == 0 || i == 2 || i + 1 == kTitles.size();
      text += is_text ? fmt::format("{:<{}}", line[i], widths[i])
                      : fmt::format("{:>{}}", line[i], widths[i]);
      text += i + 1 < line.size() ? "  " : "\n";
    }
  }
  return text;
}

void add_split(std::vector<std::vector<std::string>>& lines, const std::vector<Row>& rows) {
  lines[0].insert(lines[0].end(), kSplitTitles.begin(), kSplitTitles.end());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    for (const auto part : kParts) {
      lines[i + 1].push_back(
          rows[i].split ? fmt::format("{:.0f}", 100 * share_of(*rows[i].split, part)) : "-");
    }
  }
}

// Of stores.
void add_space(std::vector<std::vector<std::string>>& lines, const std::vector<Row>& rows,
               const Plan& plan) {
  lines[0].emplace_back("disk/live");
  for (std::size_t i = 0; i < rows.size(); ++i) {
    lines[i + 1].push_back(fmt::format("{:.2f}", disk_per_live(rows[i], plan)));
  }
}

// Of stores: one line for each of ours and each phase, one column for each rival. Empty without.
std::string ratio_table(const Plan& plan, const std::vector<Row>& rows) {
  std::vector<std::vector<std::string>> lines = {{"phase", "thr", "times as fast as"}};
  std::vector<std::size_t> rivals;
  for (std::size_t column = 0; column < plan.indexes.size(); ++column) {
    if (!plan.indexes[column].rival) continue;
    rivals.push_back(column);
    lines[0].push_back(plan.indexes[column].name);
  }
  for (const Row& row : rows) {
    if (plan.indexes[row.column].rival) continue;
    auto& line = lines.emplace_back(
        std::vector{row.phase.text, fmt::format("{}", row.threads), row.identity.name});
    for (const std::size_t column : rivals) {
      const auto ratio = ratio_to(row, rows, column);
      line.push_back(
          ratio ? fmt::format("{:.2f} ({:.2f}-{:.2f})", ratio->of_medians, ratio->min, ratio->max)
                : "-");
    }
  }
  return rivals.empty() || lines.size() == 1 ? "" : "\n" + align(lines);
}

// 1,234,567 ns -> "1.235 ms"
std::string ms_text(double ns) {
  return fmt::format("{:.3f} ms", ns / 1e6);
}

// Over all rows of a buffered index; empty for the others.
std::string describe_epochs(const Plan& plan, const std::vector<Row>& rows, std::size_t column) {
  EpochShare epochs;
  bool buffered = false;
  for (const Row& row : rows) {
    if (row.column != column || !row.identity.buffered) continue;
    buffered = true;
    epochs.add(row.epochs);
  }
  if (!buffered) return {};
  if (plan.epoch.count() == 0) return "  epochs: none by the clock, only sync steps\n";
  const std::string asked = ms_text(static_cast<double>(plan.epoch.count()));
  const auto mean_ns = mean_epoch_ns(epochs);
  const std::string mean =
      mean_ns ? ms_text(*mean_ns) + " on average"
              : fmt::format("too few ({}) in the phases for an average", epochs.steps);
  const std::string worst =
      epochs.worst_ns == 0 ? ""
                           : ", " + ms_text(static_cast<double>(epochs.worst_ns)) + " at worst";
  return fmt::format("  epochs: {} asked, {}{}\n", asked, mean, worst);
}

// For each index: what it survives, what pages it lies in, how long its epochs were.
std::string describe_indexes(const Plan& plan, const std::vector<Row>& rows) {
  std::string text;
  for (std::size_t column = 0; column < plan.indexes.size(); ++column) {
    const IndexChoice& choice = plan.indexes[column];
    const bool partial = std::ranges::any_of(
        plan.threads, [&](unsigned threads) { return !takes_part(choice, threads); });
    const std::string_view note = partial ? "; not thread-safe: with 1 thread only" : "";
    const auto row = std::ranges::find(rows, column, &Row::column);
    if (row == rows.end()) {
      text += fmt::format("{}: left out{}\n", choice.name, note);
      continue;
    }
    const Identity& identity = row->identity;
    const DomainChoice& domain = identity.domain;
    // Room that was made before is not seen to grow.
    const std::string pages = plan.room != 0 ? std::string()
                                             : fmt::format(", {:.0f} % of its memory in huge pages",
                                                           100 * huge_share(*row));
    text += fmt::format("{}: domain {}{} ({}){}{}\n", identity.spec, to_string(domain.domain),
                        domain.emulated ? ", emulated" : "", domain.reason, pages, note);
    text += describe_epochs(plan, rows, column);
  }
  return text;
}

}  // namespace

double median(std::vector<double> values) {
  std::ranges::sort(values);
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

Ratios ratios_of(const Row& row, const std::vector<Row>& rows, const Plan& plan) {
  Ratios ratios;
  if (const Row* one = find(rows, 1, row.phase, row.column)) {
    ratios.to_one_thread = median(row.mops) / median(one->mops);
  }
  const auto first = std::ranges::find_if(
      plan.indexes, [](const IndexChoice& choice) { return choice.rival.has_value(); });
  if (first == plan.indexes.end()) return ratios;
  const auto column = static_cast<std::size_t>(std::distance(plan.indexes.begin(), first));
  const auto ratio = ratio_to(row, rows, column);
  if (!ratio) return ratios;
  ratios.rival = first->name;
  ratios.to_rival = ratio->of_medians;
  ratios.to_rival_min = ratio->min;
  ratios.to_rival_max = ratio->max;
  return ratios;
}

std::optional<Ratio> ratio_to(const Row& row, const std::vector<Row>& rows, std::size_t column) {
  const Row* rival = find(rows, row.threads, row.phase, column);
  if (rival == nullptr) return std::nullopt;
  std::vector<double> pairwise;
  // An interrupt may have come between the two.
  for (std::size_t i = 0; i < std::min(row.mops.size(), rival->mops.size()); ++i) {
    pairwise.push_back(row.mops[i] / rival->mops[i]);
  }
  const auto [least, most] = std::ranges::minmax(pairwise);
  return Ratio{median(row.mops) / median(rival->mops), least, most};
}

std::string to_json(const Plan& plan, const Run& run, const std::vector<Row>& rows) {
  Json json = head_json(run);
  json["interrupted"] = Interrupt::asked();
  json["rows"] = Json::array();
  for (const Row& row : rows) json["rows"].push_back(row_json(row, rows, plan));
  return json.dump(2) + "\n";
}

std::string to_table(const Plan& plan, const Machine& machine, const std::vector<Row>& rows) {
  std::string text = fmt::format(
      "{} records, {} keys, {}{}, {} repeats, seed {}\n"
      "{}, {} cores, Linux {}, flush by {}, THP {} (tmpfs {}), clock read {} ns, load average "
      "{:.2f}\n",
      plan.records, plan.keys_text,
      plan.store ? fmt::format("values of {} bytes, ", plan.value_bytes) : "",
      plan.distribution.text, plan.repeat, plan.seed, machine.cpu, machine.cores, machine.kernel,
      flush_instruction(), machine.thp, machine.thp_shmem, machine.clock_ns, machine.load_average);
  if (!machine.optimized) text += "assertions are on: these are not the speeds of a release\n";
  if (Interrupt::asked()) text += "interrupted: what was measured until then\n";
  text += describe_indexes(plan, rows) + "\n";
  std::vector<std::vector<std::string>> lines = {{kTitles.begin(), kTitles.end()}};
  for (const Row& row : rows) lines.push_back(table_line(row, rows, plan));
  if (std::ranges::any_of(rows, [](const Row& row) { return row.split.has_value(); })) {
    add_split(lines, rows);
  }
  if (plan.store) add_space(lines, rows, plan);
  text += align(lines);
  return plan.store ? text + ratio_table(plan, rows) : text;
}

}  // namespace everleaf::bench
