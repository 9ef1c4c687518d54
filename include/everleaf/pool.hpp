// A pool: one mapped file (or anonymous memory) that holds named indexes.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <everleaf/limits.hpp>
#include <everleaf/result.hpp>

namespace everleaf {

// What survives, and what it takes (docs/media-model.md).
enum class Domain : std::uint8_t {
  volatile_,  // nothing survives: anonymous memory
  process,    // death of the process (kill -9): tmpfs, hugetlbfs, or any file when asked for
  cache,      // power loss; the platform flushes the caches: sfence alone
  memory,     // power loss; clwb (else clflushopt, else clflush) and sfence
  disk,       // power loss; a file without DAX: written and synced at each fence
};

[[nodiscard]] std::string_view to_string(Domain domain) noexcept;
[[nodiscard]] std::optional<Domain> parse_domain(std::string_view name) noexcept;

struct DomainChoice {
  Domain domain = Domain::process;
  bool emulated = false;  // stronger than the device gives, by request
  std::string reason;     // one sentence
};

enum class Mode : std::uint8_t {
  open_or_create,
  create,     // the file must not exist
  open,       // the file must exist
  read_only,  // recovers in a private mapping, never changes the file
};

struct PoolOptions {
  Mode mode = Mode::open_or_create;
  std::optional<Domain> domain;  // default: detected from the file's device and mapping
  bool emulate = false;          // allow a domain that the device does not give, to measure it
  // Of buffered trees: 1 us to 10 s; 0: nobody steps the clock but sync() and advance_epoch().
  std::chrono::nanoseconds epoch_length = std::chrono::milliseconds(50);
  std::uint64_t max_bytes = 0;  // cap on the file's size; 0: as far as the disk goes, at most 1 TiB
  // On tmpfs and in anonymous memory: pages of 2 MiB where the system gives them, whatever the
  // mount says (Linux 6.1). What has them keeps them, whoever opens it. They are cleared as the
  // pool grows, 32 MiB in 6 to 110 ms (measured), and not page by page later; in files of 16 MiB
  // and more by a thread of the pool, ahead of need.
  bool huge_pages = true;
  // In `disk`: so much of the pool from its start may be a private copy of the file's pages,
  // written by system calls. Pages that are stored to take memory twice, until the pool is closed.
  // The rest is a shared mapping, and slower where many pages change. 0: all of it. Default: all
  // pools of a process together, a quarter of the memory that it may have.
  std::optional<std::uint64_t> private_bytes;
};

// Which tree keeps an index, and with which keys.
enum class KeyType : std::uint8_t { u64, bytes };
[[nodiscard]] std::string_view to_string(KeyType type) noexcept;

struct IndexInfo {
  std::string name;
  std::string spec;  // "wbtree:structure=bitmap-leaf:node=512": every option written out
  KeyType key_type = KeyType::u64;
  bool table = false;  // of a Store, which alone opens it (everleaf/store.hpp)
};

struct PoolInfo {
  std::string path;  // empty: anonymous
  std::string uuid;
  std::uint32_t version = 0;
  DomainChoice domain;
  bool read_only = false;
  bool clean = false;          // the pool had been closed properly before this open
  std::uint32_t replayed = 0;  // redo records that this open applied
  std::uint64_t file_bytes = 0;
  std::uint64_t heap_bytes = 0;   // heap handed to slabs so far, in memory alone if recovered there
  std::uint64_t block_bytes = 0;  // allocated blocks; walks every slab header
  std::uint64_t open_ns = 0;      // time from mapping to usable: header checks and recovery
  bool header_copy_damaged = false;
  // Freed while memory was out, and not used again until the next open. Damage is not among them.
  std::uint64_t lost_blocks = 0;
};

// The epochs of the buffered trees (docs/media-model.md). All zero in a pool without such trees.
struct EpochInfo {
  std::uint64_t now = 0;      // operations that begin now belong to it
  std::uint64_t durable = 0;  // a crash loses nothing of it and of those before
  std::uint64_t asked_ns = 0;
  std::uint64_t mean_ns = 0;  // that the background thread sustained
  std::uint64_t worst_ns = 0;
  std::uint64_t lines = 0;  // written back so far
};

// Persistence work of all threads on this pool since it was opened. Exact when no operation runs.
// Wrong by nothing in the domains that flush; zero where the domain has nothing to do.
struct Counters {
  std::uint64_t bytes_written = 0;       // by the tree's algorithm: N_w * 8
  std::uint64_t heap_bytes_written = 0;  // redo records and allocation words
  std::uint64_t flushes = 0;             // lines, N_clf
  std::uint64_t fences = 0;              // N_mf
};

struct CheckReport {
  std::vector<std::string> problems;  // empty: sound
  std::uint64_t keys = 0;
  std::uint64_t blocks_allocated = 0;
  std::uint64_t blocks_reachable = 0;
};

template <class K>
class Index;

namespace detail {
class PoolState;
}

// A handle; copies share the pool. The file is closed and marked clean when the last Pool and the
// last Index on it are gone. Thread-safe, but for assignment to one handle from two threads.
class Pool {
 public:
  // Opens or creates the file at `path`. Recovery of a crashed pool happens here: O(1) for trees of
  // instant recovery. Errors: every Code but wrong_tree..bad_option.
  [[nodiscard]] static Result<Pool> open(const std::filesystem::path& path,
                                         const PoolOptions& options = {});

  // Anonymous memory, gone with the last handle.
  [[nodiscard]] static Result<Pool> anonymous(const PoolOptions& options = {});

  // Opens the index `name`, or creates it as `spec` says ("wbtree", "wbtree:node=1024", ...).
  // An existing index must be of that tree, with those options where the spec names them, and of
  // key type K; an empty spec takes an existing index as it is. K: std::uint64_t or Bytes.
  template <class K>
  [[nodiscard]] Result<Index<K>> index(std::string_view name, std::string_view spec);
  // Opens the index as it is, or creates a wB+-Tree with default options.
  template <class K>
  [[nodiscard]] Result<Index<K>> index(std::string_view name);

  // corrupt if an entry of the directory is damaged; where `problems` is given, the others instead,
  // and a sentence more in it for each that is.
  [[nodiscard]] Result<std::vector<IndexInfo>> indexes(
      std::vector<std::string>* problems = nullptr) const;
  [[nodiscard]] PoolInfo info() const;
  [[nodiscard]] Counters counters() const;

  // Structure of every index, heap accounting (allocated = reachable, nothing owned twice), header
  // copies. O(pool). No writer may run meanwhile.
  [[nodiscard]] Result<CheckReport> check() const;

  // Storage for so many bytes more than indexes have taken so far, at once instead of while the
  // pool grows; a close keeps it. On tmpfs and hugetlbfs and without a file it is cleared, too.
  // Later writes wait neither for it nor for the thread that clears it; writes meanwhile may, for
  // steps of 32 MiB. O(bytes). done, out_of_space (nothing changed, unless others took the space
  // meanwhile), read_only or io_error. From any thread.
  Outcome make_room(std::uint64_t bytes);

  // --- Buffered trees ---
  // Every operation on any of them that returned before is durable afterwards. O(changes of two
  // epochs). done, or io_error.
  Outcome sync();
  // An operation that has returned belongs to epochs().now or an earlier one: who waits for that
  // epoch acknowledges many operations at once. absent: the epoch has not begun.
  Outcome wait_durable(std::uint64_t epoch);
  [[nodiscard]] EpochInfo epochs() const;
  // One step of the clock by hand: epochs().durable rises by one. done, or io_error.
  Outcome advance_epoch();

  // Releases this handle. If it is the last one on the pool (no Index is left either), the file is
  // marked clean now and a failed write-back is the error; otherwise that happens, and an error is
  // lost, when the last handle goes.
  Result<void> close();

  Pool(const Pool&) = default;
  Pool(Pool&&) noexcept = default;
  Pool& operator=(const Pool&) = default;
  Pool& operator=(Pool&&) noexcept = default;
  ~Pool() = default;

 private:
  friend struct PoolAccess;
  explicit Pool(std::shared_ptr<detail::PoolState> state) : state_(std::move(state)) {}
  std::shared_ptr<detail::PoolState> state_;
};

// What `everleaf doctor` prints: the domain that a pool at `path` would get, and why.
[[nodiscard]] Result<DomainChoice> detect_domain(const std::filesystem::path& path);

// The instruction that `memory` uses here: "clwb", "clflushopt" or "clflush".
[[nodiscard]] std::string_view flush_instruction() noexcept;

}  // namespace everleaf
