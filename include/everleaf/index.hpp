// The ordered map. Everything that a user needs is in this header and the two that it includes.
//
//   auto pool = everleaf::Pool::open("data.pool").value();
//   auto index = pool.index<std::uint64_t>("orders").value();
//   index.insert(42, 4711);
//
// Keys: std::uint64_t (all 2^64 values) or Bytes (0 to kMaxKeyBytes bytes, memcmp order).
// Values: any 64-bit value. A value is only a number here: who stores offsets of blocks of his own
// in it must free those blocks himself. Trees with an option `values=bytes` (bztree) also keep
// payloads of any bytes: Payloads, below. Tables of such values over any tree: everleaf/store.hpp.
// Every operation is thread-safe, with any number of threads up to kMaxThreads and no set-up.
// Acknowledged means: returned `done` (strict trees), or covered by sync() (buffered trees).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <everleaf/pool.hpp>
#include <everleaf/result.hpp>

namespace everleaf {

using Bytes = std::string_view;

template <class K>
struct OwnedKey;
template <>
struct OwnedKey<std::uint64_t> {
  using type = std::uint64_t;
};
template <>
struct OwnedKey<Bytes> {
  using type = std::string;
};

// A pair that was copied out of an index.
template <class K>
struct Entry {
  typename OwnedKey<K>::type key{};
  std::uint64_t value = 0;
  friend bool operator==(const Entry&, const Entry&) = default;
};

struct Stats {
  std::uint64_t keys = 0;
  std::uint64_t height = 0;  // levels of inner nodes above the leaves
  std::uint64_t inner_nodes = 0;
  std::uint64_t leaf_nodes = 0;
  std::uint64_t pool_bytes = 0;  // blocks of this index, of keys and payloads, too
  std::uint64_t dram_bytes = 0;
  std::vector<std::pair<std::string, std::uint64_t>> more;  // what only this tree counts
};

namespace detail {
template <class K>
class Tree;
template <class K>
class PayloadTree;
}  // namespace detail

template <class K>
class Payloads;

template <class K>
class Index {
 public:
  // O(log n). Writes: done, exists (insert) or absent (update, remove), or a refusal that changes
  // nothing.
  Outcome insert(K key, std::uint64_t value);
  Outcome update(K key, std::uint64_t value);
  Outcome upsert(K key, std::uint64_t value);
  Outcome remove(K key);
  [[nodiscard]] Lookup find(K key) const;

  // Replaces `answers` by those of find() to each key, in their order, each at some moment of the
  // call. Several times as fast as one after the other where the index is larger than the caches.
  void find_many(std::span<const K> keys, std::vector<Lookup>& answers) const;

  // Inserts strictly ascending entries, one after the other; a refusal (exists, out_of_space, ...)
  // ends it and leaves those before, as a crash does. In trees with TreeInfo::whole_batches no
  // other thread ever sees a part of it, not in a look-up, not in the widest scan: all of what it
  // inserts, or nothing; other operations on the index wait meanwhile. O(entries * log n).
  Outcome insert_all(std::span<const Entry<K>> entries);

  // Replaces `out`, in which no key may lie, by the entries with keys >= from (and <= to),
  // ascending, at most `limit`.
  // Each entry was there at some moment of the call; no entry twice; an entry that stays throughout
  // is never missed. O(log n + entries). Outcome: done, or why it stopped early.
  Outcome scan(K from, std::size_t limit, std::vector<Entry<K>>& out) const;
  Outcome scan(K from, K to, std::size_t limit, std::vector<Entry<K>>& out) const;

  // The same downwards, from the largest key <= `from`; nullopt starts at the end. One descent per
  // leaf.
  Outcome scan_back(std::optional<K> from, std::size_t limit, std::vector<Entry<K>>& out) const;

  // Fills an empty index from strictly ascending entries, leaves filled to `fill` (0.1 to 1). No
  // other writer may run. A crash leaves a prefix of the entries.
  Outcome bulk_load(std::span<const Entry<K>> entries, double fill = 1.0);

  // Number of keys: walks the leaves, O(n / leaf); exact when no writer runs.
  [[nodiscard]] std::uint64_t size() const;

  // Everything that returned before is durable afterwards. Strict trees: nothing to do.
  Outcome sync();

  // Structure only (order, links, reachability inside this index). O(n), no writer may run.
  [[nodiscard]] CheckReport check() const;
  [[nodiscard]] Stats stats() const;

  [[nodiscard]] IndexInfo info() const;

  // The same index by its payloads; bad_argument if it was not created with `values=bytes`.
  [[nodiscard]] Result<Payloads<K>> payloads() const;

 private:
  friend class Pool;
  Index(std::shared_ptr<detail::PoolState> state, detail::Tree<K>* tree)
      : state_(std::move(state)), tree_(tree) {}
  std::shared_ptr<detail::PoolState> state_;
  detail::Tree<K>* tree_;  // owned by state_
};

// A pair of key and payload that was copied out of an index.
template <class K>
struct PayloadEntry {
  typename OwnedKey<K>::type key{};
  std::string payload;
  friend bool operator==(const PayloadEntry&, const PayloadEntry&) = default;
};

// An index of the option `values=bytes` by what it keeps: payloads of 0 to kMaxPayloadBytes bytes.
//
//   auto index = pool.index<std::uint64_t>("people", "bztree:values=bytes").value();
//   auto people = index.payloads().value();
//   people.insert(1815, "Ada");
//
// All promises of Index hold, for payloads whole: durable, visible and gone together with their
// keys, and copied out as they were at one moment. Payloads have no checksums (a Store's have).
// The index has them as numbers, too: a number is the payload of its bytes, least first, up to the
// last that is not zero. Of one that is longer than 8 bytes find() and find_many() answer
// value_too_long, and scans stop there, with the entries before it. What is copied out may throw
// std::bad_alloc. An update of a long payload needs room for the new one beside the old one.
template <class K>
class Payloads {
 public:
  // Writes: as an Index's, and value_too_long of more than kMaxPayloadBytes.
  Outcome insert(K key, Bytes payload);
  Outcome update(K key, Bytes payload);
  Outcome upsert(K key, Bytes payload);
  Outcome remove(K key);
  // done, and `payload` is replaced by the key's; or why not (absent, ...), and it is empty.
  [[nodiscard]] Outcome find(K key, std::string& payload) const;
  // As an Index's; no key may lie in `out`.
  Outcome scan(K from, std::size_t limit, std::vector<PayloadEntry<K>>& out) const;
  Outcome scan(K from, K to, std::size_t limit, std::vector<PayloadEntry<K>>& out) const;
  Outcome scan_back(std::optional<K> from, std::size_t limit,
                    std::vector<PayloadEntry<K>>& out) const;

 private:
  friend class Index<K>;
  Payloads(std::shared_ptr<detail::PoolState> state, detail::PayloadTree<K>* tree)
      : state_(std::move(state)), tree_(tree) {}
  std::shared_ptr<detail::PoolState> state_;
  detail::PayloadTree<K>* tree_;  // owned by state_
};

extern template class Index<std::uint64_t>;
extern template class Index<Bytes>;
extern template class Payloads<std::uint64_t>;
extern template class Payloads<Bytes>;
extern template Result<Index<std::uint64_t>> Pool::index(std::string_view, std::string_view);
extern template Result<Index<Bytes>> Pool::index(std::string_view, std::string_view);
extern template Result<Index<std::uint64_t>> Pool::index(std::string_view);
extern template Result<Index<Bytes>> Pool::index(std::string_view);

// --- The registry: one row for each tree -------------------------------------------------------

enum class Durability : std::uint8_t { strict, buffered };
enum class InnerNodes : std::uint8_t { pool, dram };
enum class Recovery : std::uint8_t { instant, rebuild, replay };

[[nodiscard]] std::string_view to_string(Durability durability) noexcept;
[[nodiscard]] std::string_view to_string(InnerNodes inner) noexcept;
[[nodiscard]] std::string_view to_string(Recovery recovery) noexcept;

struct OptionInfo {
  std::string_view name;
  std::string_view default_value;
  std::string_view values;  // for people: "slot-only, slot, bitmap-leaf"
  std::string_view help;
};

struct TreeInfo {
  std::string_view name;
  std::string_view summary;
  std::string_view paper;
  Durability durability;
  InnerNodes inner_nodes;
  Recovery recovery;
  bool latch_free;
  bool whole_batches;  // see Index::insert_all
  std::span<const OptionInfo> options;
  std::span<const std::string_view> test_specs;  // the option sets that every test runs
};

[[nodiscard]] std::span<const TreeInfo> trees() noexcept;

}  // namespace everleaf
