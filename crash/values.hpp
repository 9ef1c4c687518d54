// An index as the checker sees it: by numbers. Where its values are payloads, a number is either
// the payload that the library makes of it or a long one, of several lines, that begins with it;
// one that is not whole is no number.
#pragma once

#include <algorithm>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <everleaf/index.hpp>

namespace everleaf::crash {

[[nodiscard]] inline std::string payload_of(std::uint64_t number) {
  std::string payload(sizeof number, '\0');
  std::memcpy(payload.data(), &number, sizeof number);
  if (number % 3 == 0) {
    payload.resize(payload.find_last_not_of('\0') + 1);
    return payload;
  }
  // Lines of a slab's block, or several blocks in one piece.
  const std::size_t more = number % 1000 == 998 ? 20'000 : 60 + number % 90;
  for (std::size_t i = 0; i < more; ++i) payload += static_cast<char>(number * 31 + i * 7);
  return payload;
}

// Short ones that payload_of() would not make are what bulk loads make.
[[nodiscard]] inline std::optional<std::uint64_t> number_of(const std::string& payload) {
  std::uint64_t number = 0;
  std::memcpy(&number, payload.data(), std::min(payload.size(), sizeof number));
  const bool is_short = payload.size() <= sizeof number;
  if (is_short ? payload.ends_with('\0') : payload != payload_of(number)) return {};
  return number;
}

template <class K>
class Values : public Index<K> {
 public:
  explicit Values(Index<K> index) : Index<K>(std::move(index)) {
    if (auto payloads = Index<K>::payloads()) payloads_.emplace(std::move(*payloads));
  }

  Outcome insert(K key, std::uint64_t value) {
    return payloads_ ? payloads_->insert(key, payload_of(value)) : Index<K>::insert(key, value);
  }
  Outcome update(K key, std::uint64_t value) {
    return payloads_ ? payloads_->update(key, payload_of(value)) : Index<K>::update(key, value);
  }
  Outcome upsert(K key, std::uint64_t value) {
    return payloads_ ? payloads_->upsert(key, payload_of(value)) : Index<K>::upsert(key, value);
  }
  [[nodiscard]] Lookup find(K key) const {
    if (!payloads_) return Index<K>::find(key);
    std::string payload;
    const Outcome outcome = payloads_->find(key, payload);
    if (outcome != Outcome::done) return {outcome, 0};
    const auto number = number_of(payload);
    return number ? Lookup{Outcome::done, *number} : Lookup{Outcome::corrupt, 0};
  }
  void find_many(std::span<const K> keys, std::vector<Lookup>& answers) const {
    Index<K>::find_many(keys, answers);
    for (std::size_t i = 0; payloads_ && i < keys.size(); ++i) {
      if (answers[i].outcome == Outcome::value_too_long) answers[i] = find(keys[i]);
    }
  }
  Outcome scan(K from, std::size_t limit, std::vector<Entry<K>>& out) const {
    if (!payloads_) return Index<K>::scan(from, limit, out);
    std::vector<PayloadEntry<K>> all;
    return numbers(payloads_->scan(from, limit, all), all, out);
  }
  Outcome scan_back(std::optional<K> from, std::size_t limit, std::vector<Entry<K>>& out) const {
    if (!payloads_) return Index<K>::scan_back(from, limit, out);
    std::vector<PayloadEntry<K>> all;
    return numbers(payloads_->scan_back(from, limit, all), all, out);
  }

 private:
  static Outcome numbers(Outcome scanned, const std::vector<PayloadEntry<K>>& from,
                         std::vector<Entry<K>>& to) {
    to.clear();
    for (const auto& entry : from) {
      const auto number = number_of(entry.payload);
      if (!number) return Outcome::corrupt;
      to.push_back({entry.key, *number});
    }
    return scanned;
  }

  std::optional<Payloads<K>> payloads_;
};

template <class K>
[[nodiscard]] Result<Values<K>> values_in(Pool& pool, std::string_view name,
                                          std::string_view spec) {
  auto index = pool.index<K>(name, spec);
  if (!index) return std::unexpected(index.error());
  return Values<K>(std::move(*index));
}

}  // namespace everleaf::crash
