// A table of everleaf::Store behind the face of Index<K>: values are bytes that stand for a number.
// Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <everleaf/store.hpp>

#include "workloads/values.hpp"

namespace everleaf::bench {

template <class K>
class StoreMap {
 public:
  StoreMap(Store store, Table<K> table, std::size_t value_bytes)
      : store_(std::move(store)), table_(std::move(table)), values_(value_bytes) {}

  class Session {
   public:
    explicit Session(StoreMap& map)
        : store_(map.store_), table_(map.table_), cursor_(table_.cursor()), values_(map.values_) {}

    Outcome insert(K key, std::uint64_t value) { return table_.insert(key, values_(value)); }
    Outcome update(K key, std::uint64_t value) { return table_.update(key, values_(value)); }
    Outcome upsert(K key, std::uint64_t value) { return table_.put(key, values_(value)); }
    Outcome remove(K key) { return table_.erase(key); }

    Lookup find(K key) {
      const View view = table_.get_view(key);
      if (!view) return {view.outcome(), 0};
      const std::optional<std::uint64_t> number = values_.number_of(*view);
      return number ? Lookup{Outcome::done, *number} : Lookup{Outcome::corrupt, 0};
    }

    // One batch.
    Outcome upsert_all(std::span<const K> keys, std::span<const std::uint64_t> values) {
      batch_.clear();
      for (std::size_t i = 0; i < keys.size(); ++i) {
        batch_.put<K>(table_, keys[i], values_(values[i]));
      }
      return store_.apply(batch_);
    }

    // Assigns to the entries that `out` has, so that strings keep their memory.
    Outcome scan(K from, std::size_t limit, std::vector<Entry<K>>& out) {
      std::size_t count = 0;
      bool there = cursor_.seek(from);
      while (there && count < limit) {
        if (count == out.size()) out.emplace_back();
        out[count].key = cursor_.key();
        const std::optional<std::uint64_t> number = values_.number_of(cursor_.value());
        if (!number) return Outcome::corrupt;
        out[count].value = *number;
        if (++count < limit) there = cursor_.next();
      }
      out.resize(count);
      return there ? Outcome::done : cursor_.outcome();
    }

   private:
    Store& store_;
    Table<K>& table_;
    Cursor<K> cursor_;
    ValueCodec values_;
    Batch batch_;
  };

  // It finds out by itself what is there.
  Session session(bool /*may_meet*/) { return Session(*this); }

  Outcome sync() { return store_.sync(); }

  Store& store() { return store_; }
  Table<K>& table() { return table_; }

 private:
  Store store_;
  Table<K> table_;
  ValueCodec values_;
};

}  // namespace everleaf::bench
