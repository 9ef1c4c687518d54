#include "workloads/named.hpp"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <utility>

namespace everleaf::bench {
namespace {

using Kind = Phase::Kind;
using Shares = std::initializer_list<std::pair<Kind, unsigned>>;

Phase make(std::string name, Shares shares, const char* distribution = nullptr) {
  std::array<unsigned, Phase::kKinds> percent{};
  for (const auto& [kind, share] : shares) percent[static_cast<std::size_t>(kind)] = share;
  Phase phase(std::move(name), percent);
  if (distribution != nullptr) phase.distribution = parse_distribution(distribution);
  return phase;
}

// B. F. Cooper et al., "Benchmarking cloud serving systems with YCSB" (SoCC 2010), table 2; F is
// `workloadf` of the program. Exponent and longest scan (100) are the program's defaults.
void add_ycsb(std::vector<NamedWorkload>& all) {
  constexpr const char* kZipf = "zipf:0.99";
  all.push_back({make("ycsb-a", {{Kind::find, 50}, {Kind::update, 50}}, kZipf)});
  all.push_back({make("ycsb-b", {{Kind::find, 95}, {Kind::update, 5}}, kZipf)});
  all.push_back({make("ycsb-c", {{Kind::find, 100}}, kZipf)});
  all.push_back({make("ycsb-d", {{Kind::find, 95}, {Kind::insert, 5}}, "latest:0.99")});
  Phase scans = make("ycsb-e", {{Kind::scan, 95}, {Kind::insert, 5}}, kZipf);
  scans.varied_scans = true;
  all.push_back({std::move(scans)});
  all.push_back({make("ycsb-f", {{Kind::find, 50}, {Kind::modify, 50}}, kZipf)});
}

// BzTree, 7.1.2: writes are upserts; keys uniform, Zipfian or monotonic, so as --distribution says.
void add_bztree(std::vector<NamedWorkload>& all) {
  all.push_back({make("bz-read-only", {{Kind::find, 100}})});
  all.push_back({make("bz-read-mostly", {{Kind::find, 90}, {Kind::upsert, 10}})});
  all.push_back({make("bz-read-heavy", {{Kind::find, 75}, {Kind::upsert, 25}})});
  all.push_back({make("bz-balanced", {{Kind::find, 50}, {Kind::upsert, 50}})});
}

// Buffered Persistence in B+ Trees, 4.1 and table 2: operations draw from a space of keys of which
// half is loaded; writes are insertions and deletions in equal parts.
void add_bdtree(std::vector<NamedWorkload>& all) {
  struct Space {
    const char* name;
    const char* distribution;
    std::uint64_t keys;
  };
  constexpr std::array<Space, 5> kSpaces = {{{"u1", "uniform", 1'000'000},
                                             {"u2", "uniform", 10'000'000},
                                             {"l1", "latest:0.99", 10'000'000},
                                             {"z1", "zipf:1.01", 10'000'000},
                                             {"z2", "zipf:1.05", 10'000'000}}};
  constexpr std::array<std::pair<const char*, unsigned>, 3> kReads = {
      {{"read-heavy", 80}, {"write-heavy", 20}, {"write-only", 0}}};
  for (const Space& space : kSpaces) {
    for (const auto& [name, reads] : kReads) {
      const unsigned half = (100 - reads) / 2;
      Phase phase = make(std::string(space.name) + "-" + name,
                         {{Kind::find, reads}, {Kind::insert, half}, {Kind::remove, half}},
                         space.distribution);
      phase.whole_space = true;
      all.push_back({std::move(phase), space.keys / 2});
    }
  }
}

// Buffered Persistence, table 1: traces of caches by their parameters. As many keys as make 10
// million requests touch the working set that the table states for so many, at 16 bytes a pair; it
// states none for t2, which is small with any number. Writes are taken for sets.
void add_cache_traces(std::vector<NamedWorkload>& all) {
  struct Parameters {
    const char* name;
    unsigned reads;
    const char* distribution;
    std::uint64_t keys;
  };
  for (const Parameters& trace : {Parameters{"t1", 85, "zipf:0.6372", 22'000'000},
                                  {"t2", 50, "zipf:1.7366", 10'000'000},
                                  {"t3", 50, "uniform", 25'000'000}}) {
    Phase phase = make(trace.name, {{Kind::find, trace.reads}, {Kind::upsert, 100 - trace.reads}},
                       trace.distribution);
    phase.whole_space = true;
    all.push_back({std::move(phase), trace.keys / 2});
  }
}

// LodgeTree, IV-B. An insertion into hot keys meets keys that are there: it overwrites them.
void add_lodgetree(std::vector<NamedWorkload>& all) {
  all.push_back({make("lodge-insert", {{Kind::insert, 100}}, "uniform")});
  all.push_back({make("lodge-search", {{Kind::find, 100}}, "uniform")});
  Phase skewed = make("lodge-skewed-insert", {{Kind::upsert, 100}}, "hotspot:20:80");
  skewed.whole_space = true;
  all.push_back({std::move(skewed)});
  all.push_back({make("lodge-1-1", {{Kind::insert, 50}, {Kind::find, 50}}, "uniform")});
  all.push_back({make("lodge-1-2", {{Kind::insert, 34}, {Kind::find, 66}}, "uniform")});
}

}  // namespace

const std::vector<NamedWorkload>& named_workloads() {
  static const std::vector<NamedWorkload> all = [] {
    std::vector<NamedWorkload> list;
    add_ycsb(list);
    add_bztree(list);
    // Pivotal B+tree, figure 11.
    list.push_back({make("pb-mix", {{Kind::insert, 19}, {Kind::remove, 5}, {Kind::find, 76}})});
    add_bdtree(list);
    add_cache_traces(list);
    add_lodgetree(list);
    return list;
  }();
  return all;
}

const NamedWorkload* find_workload(std::string_view name) {
  const auto& all = named_workloads();
  const auto hit = std::ranges::find_if(
      all, [&](const NamedWorkload& workload) { return workload.phase.text == name; });
  return hit == all.end() ? nullptr : &*hit;
}

}  // namespace everleaf::bench
