// RocksDB and LevelDB behind the face of Index<K>: their interfaces are one but for names. As they
// come, but for compression, which is off. Thread-safe.
//
// Their writes do not look whether the key is there. Where a phase knows it anyway, insert and
// update are Put, remove is Delete, and all answer `done`: the audits after the phase see what was
// lost. Where it does not (may_meet), they look first, under a lock that keeps the two together.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <everleaf/index.hpp>

#include <fmt/format.h>

#include "failure.hpp"
#include "workloads/values.hpp"

#ifdef EVERLEAF_BENCH_ROCKSDB
#include <rocksdb/db.h>
#include <rocksdb/write_batch.h>
#endif
#ifdef EVERLEAF_BENCH_LEVELDB
#include <leveldb/db.h>
#include <leveldb/write_batch.h>
#endif

namespace everleaf::bench {

#ifdef EVERLEAF_BENCH_ROCKSDB
struct RocksDb {
  static constexpr const char* kName = "RocksDB";
  using Db = rocksdb::DB;
  using Options = rocksdb::Options;
  using ReadOptions = rocksdb::ReadOptions;
  using WriteBatch = rocksdb::WriteBatch;
  using WriteOptions = rocksdb::WriteOptions;
  using Slice = rocksdb::Slice;
  using Status = rocksdb::Status;
  static constexpr auto kNoCompression = rocksdb::kNoCompression;
  static Status sync(Db& db) { return db.FlushWAL(true); }
  static bool is_full(const Status& status) { return status.IsNoSpace(); }
  // Where it lies, without a copy, as the others show theirs.
  using Found = rocksdb::PinnableSlice;
  static Status get(Db& db, const ReadOptions& options, const Slice& key, Found& found) {
    found.Reset();
    return db.Get(options, db.DefaultColumnFamily(), key, &found);
  }
};
#endif

#ifdef EVERLEAF_BENCH_LEVELDB
struct LevelDb {
  static constexpr const char* kName = "LevelDB";
  using Db = leveldb::DB;
  using Options = leveldb::Options;
  using ReadOptions = leveldb::ReadOptions;
  using WriteBatch = leveldb::WriteBatch;
  using WriteOptions = leveldb::WriteOptions;
  using Slice = leveldb::Slice;
  using Status = leveldb::Status;
  static constexpr auto kNoCompression = leveldb::kNoCompression;
  static Status sync(Db& db) {
    WriteOptions options;
    options.sync = true;
    WriteBatch nothing;
    return db.Write(options, &nothing);
  }
  static bool is_full(const Status&) { return false; }  // it says an I/O error
  using Found = std::string;                            // it knows no other way
  static Status get(Db& db, const ReadOptions& options, const Slice& key, Found& found) {
    return db.Get(options, key, &found);
  }
};
#endif

template <class K, class Api>
class LsmMap {
 public:
  // An empty store in the new directory `dir`. With `syncs` a write returns when its log is synced.
  LsmMap(const std::filesystem::path& dir, bool syncs, std::size_t value_bytes)
      : values_(value_bytes) {
    typename Api::Options options;
    options.create_if_missing = true;
    options.error_if_exists = true;
    options.compression = Api::kNoCompression;
    typename Api::Db* db = nullptr;
    const typename Api::Status status = Api::Db::Open(options, dir.string(), &db);
    if (!status.ok()) {
      throw Failure(kExitIo,
                    fmt::format("{}, {}: {}", Api::kName, dir.string(), status.ToString()));
    }
    db_.reset(db);
    write_.sync = syncs;
  }

  class Session {
   public:
    Session(LsmMap& map, bool may_meet) : map_(map), may_meet_(may_meet), values_(map.values_) {}

    Outcome insert(K key, std::uint64_t value) {
      return write(key, Outcome::absent, Outcome::exists, [&] { return put(key, value); });
    }
    Outcome update(K key, std::uint64_t value) {
      return write(key, Outcome::done, Outcome::absent, [&] { return put(key, value); });
    }
    Outcome upsert(K key, std::uint64_t value) { return put(key, value); }
    // One batch, which the log has whole or not at all.
    Outcome upsert_all(std::span<const K> keys, std::span<const std::uint64_t> values) {
      batch_.Clear();
      for (std::size_t i = 0; i < keys.size(); ++i) {
        batch_.Put(name_of(keys[i]), slice_of(values_(values[i])));
      }
      return outcome_of(map_.db_->Write(map_.write_, &batch_));
    }
    Outcome remove(K key) {
      return write(key, Outcome::done, Outcome::absent,
                   [&] { return outcome_of(map_.db_->Delete(map_.write_, name_of(key))); });
    }

    Lookup find(K key) {
      const Outcome outcome = outcome_of(Api::get(*map_.db_, map_.read_, name_of(key), found_));
      if (outcome != Outcome::done) return {outcome, 0};
      const std::optional<std::uint64_t> number = values_.number_of({found_.data(), found_.size()});
      return number ? Lookup{Outcome::done, *number} : Lookup{Outcome::corrupt, 0};
    }

    // Assigns to the entries that `out` has, so that strings keep their memory.
    Outcome scan(K from, std::size_t limit, std::vector<Entry<K>>& out) {
      std::size_t count = 0;
      const auto at = owned(map_.db_->NewIterator(map_.read_));
      for (at->Seek(name_of(from)); at->Valid() && count < limit; ++count) {
        if (count == out.size()) out.emplace_back();
        const std::string_view name(at->key().data(), at->key().size());
        if constexpr (kNumbers) {
          if (name.size() != sizeof(std::uint64_t)) return Outcome::corrupt;
          out[count].key = big_endian(number_in(name));
        } else {
          out[count].key.assign(name);
        }
        const auto number = values_.number_of({at->value().data(), at->value().size()});
        if (!number) return Outcome::corrupt;
        out[count].value = *number;
        if (count + 1 < limit) at->Next();
      }
      out.resize(count);
      return outcome_of(at->status());
    }

   private:
    template <class T>
    static std::unique_ptr<T> owned(T* made) {
      return std::unique_ptr<T>(made);
    }

    // `wanted`: what a look-up must say for the write to happen; otherwise the answer is `other`.
    template <class Work>
    Outcome write(const K& key, Outcome wanted, Outcome other, Work work) {
      if (!may_meet_) return work();
      const std::lock_guard lock(map_.locks_[std::hash<K>()(key) % map_.locks_.size()]);
      const Outcome there = find(key).outcome;
      if (there == wanted) return work();
      return there == Outcome::done || there == Outcome::absent ? other : there;
    }

    Outcome put(const K& key, std::uint64_t value) {
      return outcome_of(map_.db_->Put(map_.write_, name_of(key), slice_of(values_(value))));
    }

    static typename Api::Slice slice_of(std::string_view text) {
      return {text.data(), text.size()};
    }
    // Lives until the next call.
    typename Api::Slice name_of(const K& key) {
      if constexpr (kNumbers) {
        number_ = big_endian(key);
        return {reinterpret_cast<const char*>(&number_), sizeof number_};
      } else {
        return {key.data(), key.size()};
      }
    }

    LsmMap& map_;
    bool may_meet_;
    std::uint64_t number_ = 0;
    typename Api::Found found_;
    ValueCodec values_;
    typename Api::WriteBatch batch_;
  };

  Session session(bool may_meet) { return Session(*this, may_meet); }

  Outcome sync() { return outcome_of(Api::sync(*db_)); }

 private:
  static constexpr bool kNumbers = std::is_same_v<K, std::uint64_t>;

  // So that the order of the bytes is that of the numbers. Its own inverse.
  static std::uint64_t big_endian(std::uint64_t number) {
    return std::endian::native == std::endian::big ? number : __builtin_bswap64(number);
  }
  static std::uint64_t number_in(std::string_view text) {
    std::uint64_t number = 0;
    std::memcpy(&number, text.data(), sizeof number);
    return number;
  }

  static Outcome outcome_of(const typename Api::Status& status) {
    if (status.ok()) return Outcome::done;
    if (status.IsNotFound()) return Outcome::absent;
    if (status.IsCorruption()) return Outcome::corrupt;
    return Api::is_full(status) ? Outcome::out_of_space : Outcome::io_error;
  }

  std::unique_ptr<typename Api::Db> db_;
  typename Api::ReadOptions read_;
  typename Api::WriteOptions write_;
  std::array<std::mutex, 256> locks_;
  ValueCodec values_;
};

}  // namespace everleaf::bench
