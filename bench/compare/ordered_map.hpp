// The volatile rivals behind the face of Index<K>: absl::btree_map and std::map. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <type_traits>
#include <vector>

#include <everleaf/index.hpp>

#include <absl/container/btree_map.h>
#include <absl/strings/string_view.h>

namespace everleaf::bench {

template <class K>
using AbslBtree = absl::btree_map<typename OwnedKey<K>::type, std::uint64_t>;
template <class K>
using StdMap = std::map<typename OwnedKey<K>::type, std::uint64_t, std::less<>>;

// Map is one of the two above.
template <class K, class Map>
class OrderedMap {
 public:
  Outcome insert(K key, std::uint64_t value) {
    return map_.emplace(key, value).second ? Outcome::done : Outcome::exists;
  }

  Outcome update(K key, std::uint64_t value) {
    const auto hit = map_.find(probe(key));
    if (hit == map_.end()) return Outcome::absent;
    hit->second = value;
    return Outcome::done;
  }

  Outcome upsert(K key, std::uint64_t value) {
    map_.insert_or_assign(typename OwnedKey<K>::type(key), value);
    return Outcome::done;
  }

  Outcome remove(K key) {
    const auto hit = map_.find(probe(key));
    if (hit == map_.end()) return Outcome::absent;
    map_.erase(hit);
    return Outcome::done;
  }

  [[nodiscard]] Lookup find(K key) const {
    const auto hit = map_.find(probe(key));
    if (hit == map_.end()) return {Outcome::absent, 0};
    return {Outcome::done, hit->second};
  }

  // Assigns to the entries that `out` has, so that strings keep their memory.
  Outcome scan(K from, std::size_t limit, std::vector<Entry<K>>& out) const {
    std::size_t count = 0;
    for (auto at = map_.lower_bound(probe(from)); at != map_.end() && count < limit;
         ++at, ++count) {
      if (count == out.size()) out.emplace_back();
      out[count].key = at->first;
      out[count].value = at->second;
    }
    out.resize(count);
    return Outcome::done;
  }

  Outcome sync() { return Outcome::done; }

 private:
  // absl's own string_view gives the map its three-way comparison of strings; Debian's is not
  // std's.
  static auto probe(K key) {
    if constexpr (std::is_same_v<Map, AbslBtree<Bytes>>) {
      return absl::string_view(key.data(), key.size());
    } else {
      return key;
    }
  }

  Map map_;
};

}  // namespace everleaf::bench
