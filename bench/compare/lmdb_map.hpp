// LMDB behind the face of Index<K>. Each write is a transaction of its own, but for upsert_all(),
// which is one; a reading transaction is kept by each thread and renewed for each read, as LMDB's
// authors advise. Thread-safe.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <vector>

#include <everleaf/index.hpp>

#include <fmt/format.h>
#include <lmdb.h>

#include "failure.hpp"
#include "workloads/values.hpp"

namespace everleaf::bench {

template <class K>
class LmdbMap {
 public:
  // An empty store in the new directory `dir`. With `syncs` a write returns after fdatasync.
  LmdbMap(const std::filesystem::path& dir, bool syncs, std::size_t value_bytes)
      : values_(value_bytes) {
    constexpr std::size_t kAddresses = std::size_t{1} << 40;  // reserved, not used
    constexpr unsigned kReaders = 2048;
    std::error_code error;
    if (!std::filesystem::create_directory(dir, error)) must(error.value(), dir);
    MDB_env* env = nullptr;
    must(mdb_env_create(&env), dir);
    env_.reset(env);
    must(mdb_env_set_mapsize(env, kAddresses), dir);
    must(mdb_env_set_maxreaders(env, kReaders), dir);
    must(mdb_env_open(env, dir.c_str(), MDB_NOTLS | (syncs ? 0U : unsigned{MDB_NOSYNC}), 0600),
         dir);
    MDB_txn* txn = nullptr;
    must(mdb_txn_begin(env, nullptr, 0, &txn), dir);
    // Numbers are compared as such, which is faster than bytes.
    must(mdb_dbi_open(txn, nullptr, kNumbers ? MDB_INTEGERKEY : 0, &dbi_), dir);
    must(mdb_txn_commit(txn), dir);
  }

  class Session {
   public:
    explicit Session(LmdbMap& map) : env_(map.env_.get()), dbi_(map.dbi_), values_(map.values_) {
      must(mdb_txn_begin(env_, nullptr, MDB_RDONLY, &reader_), "a reader");
      must(mdb_cursor_open(reader_, dbi_, &cursor_), "a cursor");
      mdb_txn_reset(reader_);
    }
    ~Session() {
      mdb_cursor_close(cursor_);
      mdb_txn_abort(reader_);
    }
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;

    Outcome insert(K key, std::uint64_t value) { return put(key, value, MDB_NOOVERWRITE); }
    Outcome upsert(K key, std::uint64_t value) { return put(key, value, 0); }

    Outcome update(K key, std::uint64_t value) {
      return write([&](MDB_txn* txn) {
        MDB_cursor* at = nullptr;
        if (const int error = mdb_cursor_open(txn, dbi_, &at); error != 0) return error;
        MDB_val name = view(key);
        MDB_val data{};
        int error = mdb_cursor_get(at, &name, &data, MDB_SET);
        data = view(values_(value));
        if (error == 0) error = mdb_cursor_put(at, &name, &data, MDB_CURRENT);
        mdb_cursor_close(at);
        return error;
      });
    }

    Outcome upsert_all(std::span<const K> keys, std::span<const std::uint64_t> values) {
      return write([&](MDB_txn* txn) {
        int error = 0;
        for (std::size_t i = 0; error == 0 && i < keys.size(); ++i) {
          MDB_val name = view(keys[i]);
          MDB_val data = view(values_(values[i]));
          error = mdb_put(txn, dbi_, &name, &data, 0);
        }
        return error;
      });
    }

    Outcome remove(K key) {
      return write([&](MDB_txn* txn) {
        MDB_val name = view(key);
        return mdb_del(txn, dbi_, &name, nullptr);
      });
    }

    Lookup find(K key) {
      Lookup hit{Outcome::absent, 0};
      hit.outcome = outcome_of(mdb_txn_renew(reader_));
      if (hit.outcome != Outcome::done) return hit;
      MDB_val name = view(key);
      MDB_val data{};
      hit.outcome = outcome_of(mdb_get(reader_, dbi_, &name, &data));
      if (hit.outcome == Outcome::done) {
        const std::optional<std::uint64_t> number = values_.number_of(text_of(data));
        hit = number ? Lookup{Outcome::done, *number} : Lookup{Outcome::corrupt, 0};
      }
      mdb_txn_reset(reader_);
      return hit;
    }

    // Assigns to the entries that `out` has, so that strings keep their memory.
    Outcome scan(K from, std::size_t limit, std::vector<Entry<K>>& out) {
      std::size_t count = 0;
      int error = mdb_txn_renew(reader_);
      if (error != 0) return outcome_of(error);
      MDB_val name = view(from);
      // LMDB has no empty key: the first entry is what follows it.
      const MDB_cursor_op first = name.mv_size == 0 ? MDB_FIRST : MDB_SET_RANGE;
      MDB_val data{};
      error = mdb_cursor_renew(reader_, cursor_);
      if (error == 0) error = mdb_cursor_get(cursor_, &name, &data, first);
      for (; error == 0 && count < limit; ++count) {
        if (count == out.size()) out.emplace_back();
        if constexpr (kNumbers) {
          out[count].key = number_in(name);
        } else {
          out[count].key.assign(text_of(name));
        }
        const std::optional<std::uint64_t> number = values_.number_of(text_of(data));
        if (!number) {
          mdb_txn_reset(reader_);
          return Outcome::corrupt;
        }
        out[count].value = *number;
        if (count + 1 < limit) error = mdb_cursor_get(cursor_, &name, &data, MDB_NEXT);
      }
      mdb_txn_reset(reader_);
      out.resize(count);
      return error == MDB_NOTFOUND ? Outcome::done : outcome_of(error);
    }

   private:
    template <class Work>
    Outcome write(Work work) {
      MDB_txn* txn = nullptr;
      if (const int error = mdb_txn_begin(env_, nullptr, 0, &txn); error != 0) {
        return outcome_of(error);
      }
      if (const int error = work(txn); error != 0) {
        mdb_txn_abort(txn);
        return outcome_of(error);
      }
      return outcome_of(mdb_txn_commit(txn));
    }

    Outcome put(const K& key, std::uint64_t value, unsigned flags) {
      return write([&](MDB_txn* txn) {
        MDB_val name = view(key);
        MDB_val data = view(values_(value));
        return mdb_put(txn, dbi_, &name, &data, flags);
      });
    }

    MDB_env* env_;
    MDB_dbi dbi_;
    MDB_txn* reader_ = nullptr;
    MDB_cursor* cursor_ = nullptr;
    ValueCodec values_;
  };

  // It finds out by itself what is there.
  Session session(bool /*may_meet*/) { return Session(*this); }

  Outcome sync() { return outcome_of(mdb_env_sync(env_.get(), 1)); }

 private:
  static constexpr bool kNumbers = std::is_same_v<K, std::uint64_t>;

  // LMDB's interface has no const: it does not write to what is put in or asked for.
  static MDB_val view(const std::uint64_t& number) {
    return {sizeof number, const_cast<std::uint64_t*>(&number)};
  }
  static MDB_val view(const Bytes& bytes) {
    return {bytes.size(), const_cast<char*>(bytes.data())};
  }
  static std::string_view text_of(const MDB_val& data) {
    return {static_cast<const char*>(data.mv_data), data.mv_size};
  }
  static std::uint64_t number_in(const MDB_val& data) {
    std::uint64_t number = 0;
    std::memcpy(&number, data.mv_data, sizeof number);
    return number;
  }

  static Outcome outcome_of(int error) {
    switch (error) {
      case 0:
        return Outcome::done;
      case MDB_KEYEXIST:
        return Outcome::exists;
      case MDB_NOTFOUND:
        return Outcome::absent;
      case MDB_MAP_FULL:
      case ENOSPC:
        return Outcome::out_of_space;
      case MDB_CORRUPTED:
      case MDB_PAGE_NOTFOUND:
      case MDB_INVALID:
        return Outcome::corrupt;
      default:
        return Outcome::io_error;
    }
  }

  static void must(int error, const std::filesystem::path& what) {
    if (error == 0) return;
    throw Failure(kExitIo, fmt::format("LMDB, {}: {}", what.string(), mdb_strerror(error)));
  }

  struct Close {
    void operator()(MDB_env* env) const { mdb_env_close(env); }
  };
  std::unique_ptr<MDB_env, Close> env_;
  MDB_dbi dbi_ = 0;
  ValueCodec values_;
};

}  // namespace everleaf::bench
