#include "runner.hpp"

#include <algorithm>
#include <memory>
#include <optional>

#include <fmt/format.h>
#include <malloc.h>

#include "failure.hpp"
#include "interrupt.hpp"
#include "progress.hpp"
#include "workloads/sequence.hpp"
#include "workloads/space.hpp"

namespace everleaf::bench {
namespace {

struct Entrant {
  std::size_t column;  // in Plan::indexes
  std::unique_ptr<Contender> contender;
  Live live = {};             // its records; threads that race make them its own
  std::int64_t resident = 0;  // of the load
  std::int64_t resident_huge = 0;
};

class Runner {
 public:
  explicit Runner(const Plan& plan)
      : plan_(plan), keys_(key_order(plan.distribution), plan.seed), phases_(plan.phases) {
    // Every other phase needs records; a load that was not asked for is not reported.
    if (phases_.front().kind != Phase::Kind::load) {
      phases_.insert(phases_.begin(), Phase::Kind::load);
      phases_.front().batched = plan.store;
    }
    const auto file = [&](const IndexChoice& choice) { return needs_file(plan, choice); };
    if (std::ranges::any_of(plan.indexes, file)) scratch_.emplace(plan.dir);
    make_rows();
    progress_.emplace(
        count_steps());  // after the scratch directory, which wants no thread beside it
  }

  std::vector<Row> run() {
    for (unsigned repeat = 0; repeat < plan_.repeat; ++repeat) {
      for (const unsigned threads : plan_.threads) run_round(repeat, threads);
    }
    std::erase_if(rows_, [](const Row& row) { return row.mops.empty(); });
    return std::move(rows_);
  }

 private:
  void make_rows() {
    for (const unsigned threads : plan_.threads) {
      for (const Phase& phase : plan_.phases) {
        for (std::size_t column = 0; column < plan_.indexes.size(); ++column) {
          if (!takes_part(plan_.indexes[column], threads)) continue;
          Row& row = rows_.emplace_back();
          row.column = column;
          row.phase = phase;
          row.threads = threads;
        }
      }
    }
  }

  [[nodiscard]] std::uint64_t count_steps() const {
    std::uint64_t steps = 0;
    for (const unsigned threads : plan_.threads) {
      for (const IndexChoice& choice : plan_.indexes) {
        if (takes_part(choice, threads)) steps += plan_.repeat * phases_.size();
      }
    }
    return steps;
  }

  // Null for a load that was not asked for.
  Row* find_row(unsigned threads, const Phase& phase, std::size_t column) {
    const auto row = std::ranges::find_if(rows_, [&](const Row& candidate) {
      return candidate.threads == threads && candidate.phase == phase && candidate.column == column;
    });
    return row == rows_.end() ? nullptr : &*row;
  }

  // Empty indexes, every phase once, each phase on every index before the next phase: noise of the
  // machine that lasts for seconds hits all of them alike.
  void run_round(unsigned repeat, unsigned threads) {
    std::vector<Entrant> entrants;
    for (std::size_t column = 0; column < plan_.indexes.size(); ++column) {
      const IndexChoice& choice = plan_.indexes[column];
      if (!takes_part(choice, threads)) continue;
      if (Interrupt::asked()) return;
      entrants.push_back({column, make_contender(choice, plan_, scratch_ ? &*scratch_ : nullptr)});
    }
    if (entrants.empty()) return;
    // The one that goes first changes from repeat to repeat and from phase to phase.
    std::ranges::rotate(entrants,
                        entrants.begin() + static_cast<std::ptrdiff_t>(repeat % entrants.size()));
    IdRange live;
    std::uint64_t last_key = 0;
    for (std::size_t step = 0; step < phases_.size(); ++step) {
      const Phase& phase = phases_[step];
      const std::uint64_t seed = mix(plan_.seed + kGolden * (1 + repeat * phases_.size() + step));
      const Sequence sequence = make_sequence(phase, plan_, keys_, live, seed, threads);
      const IdRange after = live_after(phase, plan_, live);
      if (phase.kind == Phase::Kind::mix) {  // which may remove the largest key that there was
        last_key = largest_key(keys_, live_throughout(phase, plan_, live));
      }
      const std::size_t batch = batch_of(plan_, phase);
      const Job job{phase,
                    sequence.keys,
                    threads,
                    sequence.keys.size() / batch <= kTimeAllUpTo ? 1 : plan_.latency_every,
                    plan_.scan_length,
                    batch,
                    last_key,
                    sequence.kinds,
                    progress_->counter(),
                    look_ups_of(plan_, phase)};
      std::ranges::rotate(entrants, entrants.begin() + 1);
      for (Entrant& entrant : entrants) {
        if (Interrupt::asked()) return;
        progress_->begin(fmt::format("repeat {}/{}, {} thread(s), {}: {}", repeat + 1, plan_.repeat,
                                     threads, phase.text, entrant.contender->identity().name),
                         sequence.keys.size());
        last_key = run_phase(job, entrant, after);
      }
      live = after;
    }
    entrants.clear();
    ::malloc_trim(0);  // the next round's rivals pay their page faults again, as the pools do
  }

  // Returns the largest key number that is live afterwards. An interrupted phase leaves no trace in
  // the rows.
  std::uint64_t run_phase(const Job& job, Entrant& entrant, IdRange live) {
    Contender& contender = *entrant.contender;
    const Measured measured = contender.run(job);
    const std::string where = fmt::format("{}, {} with {} thread(s)", contender.identity().name,
                                          job.phase.text, job.threads);
    refuse_mistakes(measured, job, where);
    std::uint64_t last_key = job.last_key;
    if (measured.stopped) return last_key;
    progress_->check();
    if (job.phase.whole_space) {
      const std::string problem =
          settle(entrant.live, keys_, job.sequence, job.kinds, job.threads, measured.answers);
      if (!problem.empty()) fail_wrong(where, problem);
    } else {
      entrant.live = {live};
    }
    if (job.phase.writes()) {
      const Audit audit = contender.audit(keys_, entrant.live);
      if (!audit.problem.empty()) fail_wrong(where, audit.problem);
      last_key = audit.last_key;
    }
    if (job.phase.overwrites()) {
      const std::string problem = contender.audit_updates(job);
      if (!problem.empty()) fail_wrong(where, problem);
    }
    if (job.phase.kind == Phase::Kind::load) {
      entrant.resident = measured.resident;
      entrant.resident_huge = measured.resident_huge;
    }
    if (Row* row = find_row(job.threads, job.phase, entrant.column)) {
      add(*row, measured, job, entrant);
    }
    return last_key;
  }

  static void add(Row& row, const Measured& measured, const Job& job, const Entrant& entrant) {
    const auto ops = static_cast<double>(job.sequence.size());
    row.identity = entrant.contender->identity();
    row.ops = job.sequence.size();
    row.latency_every = job.sample_every;
    row.mops.push_back(ops / measured.seconds / 1e6);
    row.cpu_share = std::min(row.cpu_share, measured.cpu_share);
    row.latency.merge(measured.latency);
    row.over_time.emplace_back(measured.over_time.ops(), measured.work_seconds);
    row.counters.bytes_written += measured.counters.bytes_written;
    row.counters.heap_bytes_written += measured.counters.heap_bytes_written;
    row.counters.flushes += measured.counters.flushes;
    row.counters.fences += measured.counters.fences;
    row.epochs.add(measured.epochs);
    if (measured.split && row.identity.persistent) {
      row.split = row.split.value_or(Split{}) += *measured.split;
    }
    const auto keys = static_cast<double>(std::max<std::uint64_t>(entrant.live.size(), 1));
    row.pool_bytes_per_key = static_cast<double>(measured.pool_bytes) / keys;
    row.file_bytes_per_key = static_cast<double>(measured.file_bytes) / keys;
    row.dram_bytes_per_key = static_cast<double>(measured.dram_bytes) / keys;
    row.figures = measured.figures;
    row.resident += entrant.resident;
    row.resident_huge += entrant.resident_huge;
  }

  static void refuse_mistakes(const Measured& measured, const Job& job, const std::string& where) {
    if (measured.mistakes == 0) return;
    const Mistake& first = measured.first_mistake;
    if (measured.refused) {
      throw Failure(first.outcome == Outcome::corrupt ? kExitWrongAnswer : kExitIo,
                    fmt::format("{}: operation {} of {} answered '{}'", where, first.position,
                                job.sequence.size(), to_string(first.outcome)));
    }
    const bool one_each = job.batch == 1 && job.look_ups == 1;
    fail_wrong(where, fmt::format("{} of {} answers were wrong; the first, {} {}, answered '{}'{}",
                                  measured.mistakes, job.sequence.size(),
                                  one_each ? "operation" : "of the call at operation",
                                  first.position, to_string(first.outcome),
                                  first.outcome == Outcome::done ? " with the wrong content" : ""));
  }

  [[noreturn]] static void fail_wrong(const std::string& where, const std::string& problem) {
    throw Failure(kExitWrongAnswer, fmt::format("{}: {}", where, problem));
  }

  const Plan& plan_;
  KeySpace keys_;
  std::vector<Phase> phases_;
  std::optional<Scratch> scratch_;
  std::vector<Row> rows_;
  std::optional<Progress> progress_;
};

}  // namespace

std::vector<Row> run(const Plan& plan) {
  return Runner(plan).run();
}

}  // namespace everleaf::bench
