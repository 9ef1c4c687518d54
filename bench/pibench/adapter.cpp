// Any tree of the registry for PiBench: EVERLEAF_INDEX of the environment is its spec, as of
// `everleaf --index`; without it, the default tree.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <tree_api.hpp>  // the harness's own where it is another version
#include <type_traits>
#include <utility>
#include <vector>

#include <everleaf/index.hpp>

namespace {

using everleaf::Bytes;
using everleaf::Index;
using everleaf::Outcome;
using everleaf::Pool;

// A refusal that is no answer would count as a fast operation.
bool answered(Outcome outcome, Outcome no) {
  if (outcome == Outcome::done) return true;
  if (outcome == no) return false;
  const std::string_view why = everleaf::to_string(outcome);
  std::fprintf(stderr, "everleaf: %.*s\n", static_cast<int>(why.size()), why.data());
  std::abort();
}

// Keys of 8 bytes are numbers in the machine's order, as the harness makes them.
template <class K>
K to_key(const char* key, std::size_t bytes) {
  if constexpr (std::is_same_v<K, Bytes>) {
    return {key, bytes};
  } else {
    std::uint64_t number = 0;
    std::memcpy(&number, key, sizeof number);
    return number;
  }
}

template <class K>
class Adapter final : public tree_api {
 public:
  Adapter(Pool pool, Index<K> index, std::size_t value_size)
      : pool_(std::move(pool)), index_(std::move(index)), value_size_(value_size) {}

  bool find(const char* key, std::size_t key_size, char* value_out) override {
    const auto hit = index_.find(to_key<K>(key, key_size));
    if (!answered(hit.outcome, Outcome::absent)) return false;
    std::memcpy(value_out, &hit.value, value_size_);
    return true;
  }
  bool insert(const char* key, std::size_t key_size, const char* value,
              std::size_t value_size) override {
    return answered(index_.insert(to_key<K>(key, key_size), to_value(value, value_size)),
                    Outcome::exists);
  }
  bool update(const char* key, std::size_t key_size, const char* value,
              std::size_t value_size) override {
    return answered(index_.update(to_key<K>(key, key_size), to_value(value, value_size)),
                    Outcome::absent);
  }
  bool remove(const char* key, std::size_t key_size) override {
    return answered(index_.remove(to_key<K>(key, key_size)), Outcome::absent);
  }
  int scan(const char* key, std::size_t key_size, int count, char*& records) override {
    thread_local std::vector<everleaf::Entry<K>> entries;
    thread_local std::vector<char> bytes;
    const auto limit = static_cast<std::size_t>(std::max(count, 0));
    answered(index_.scan(to_key<K>(key, key_size), limit, entries), Outcome::done);
    bytes.clear();
    const auto append = [](const void* from, std::size_t n) {
      bytes.insert(bytes.end(), static_cast<const char*>(from), static_cast<const char*>(from) + n);
    };
    for (const auto& entry : entries) {
      if constexpr (std::is_same_v<K, Bytes>) {
        append(entry.key.data(), entry.key.size());
      } else {
        append(&entry.key, sizeof entry.key);
      }
      append(&entry.value, value_size_);
    }
    records = bytes.data();
    return static_cast<int>(entries.size());
  }
  // Overrides where the harness has it. `data`: records <key><value> in any order.
  virtual bool bulk_load(const char* data, std::size_t count, std::size_t key_size,
                         std::size_t value_size) {
    std::vector<everleaf::Entry<K>> entries;
    entries.reserve(count);
    for (const char* at = data; count != 0; --count, at += key_size + value_size) {
      entries.push_back({typename everleaf::OwnedKey<K>::type(to_key<K>(at, key_size)),
                         to_value(at + key_size, value_size)});
    }
    std::ranges::sort(entries, {}, &everleaf::Entry<K>::key);
    return index_.bulk_load(entries) == Outcome::done;
  }

 private:
  static std::uint64_t to_value(const char* value, std::size_t bytes) {
    std::uint64_t number = 0;
    std::memcpy(&number, value, std::min(bytes, sizeof number));
    return number;
  }

  Pool pool_;
  Index<K> index_;
  const std::size_t value_size_;
};

template <class K>
tree_api* open(const tree_options_t& options, const char* spec) {
  everleaf::PoolOptions pool_options;
  if (options.pool_size != 0) pool_options.max_bytes = options.pool_size;
  auto pool = options.pool_path.empty() ? Pool::anonymous(pool_options)
                                        : Pool::open(options.pool_path, pool_options);
  if (!pool) {
    std::fprintf(stderr, "everleaf: %s\n", pool.error().message.c_str());
    return nullptr;
  }
  auto index = pool->template index<K>("pibench", spec);
  if (!index) {
    std::fprintf(stderr, "everleaf: %s\n", index.error().message.c_str());
    return nullptr;
  }
  return new Adapter<K>(std::move(*pool), std::move(*index), options.value_size);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) tree_api* create_tree(
    const tree_options_t& options) {
  const char* const asked = std::getenv("EVERLEAF_INDEX");
  const char* const spec = asked != nullptr ? asked : "";
  if (options.value_size == 0 || options.value_size > sizeof(std::uint64_t) ||
      options.key_size == 0 || options.key_size > everleaf::kMaxKeyBytes) {
    std::fprintf(stderr, "everleaf: values have 1 to 8 bytes, keys 1 to %zu\n",
                 everleaf::kMaxKeyBytes);
    return nullptr;
  }
  return options.key_size == sizeof(std::uint64_t) ? open<std::uint64_t>(options, spec)
                                                   : open<Bytes>(options, spec);
}
