// Values that are payloads (values=bytes; paper, 4.1): short ones lie behind the key, long ones in
// blocks that the operations of P2 to P4 allocate and free.
#include "trees/bztree/tree.hpp"

namespace everleaf::tree::bztree {

template <class Keys>
Outcome BzTree<Keys>::write_payload(Key key, Bytes payload, Write what) {
  if (what == Write::remove) return change(key, {}, what);
  if (const Outcome admitted = c_.admit(); admitted != Outcome::done) return admitted;
  if (payload.size() > kMaxPayloadBytes) return Outcome::value_too_long;
  return change(key, {0, payload}, what);
}

template <class Keys>
Outcome BzTree<Keys>::find_payload(Key key, std::string& payload) const {
  const alloc::Grace::Pin pin(c_.grace);
  Outcome outcome = pin.ok() ? Outcome::done : Outcome::too_many_threads;
  if (keys_.too_long(key)) outcome = Outcome::absent;
  if (outcome == Outcome::done) {
    const Probe probe = Keys::probe(key);
    Offset at = 0;
    const Lookup found = locate(probe, at) ? look(probe, at) : Lookup{Outcome::corrupt, 0};
    const std::optional<Bytes> bytes = found ? payload_of(*found) : std::nullopt;
    outcome = found && !bytes ? Outcome::corrupt : found.outcome;
    if (bytes) payload.assign(*bytes);
  }
  if (outcome != Outcome::done) payload.clear();  // not before: the key may lie in it
  return outcome;
}

// One that is damaged lies nowhere.
template <class Keys>
Word BzTree<Keys>::locate_payload(LeafOf leaf, Meta m, PayloadAt payload) const {
  if (payload.at == 0 && payload.bytes != 0) {
    const std::byte* const at = leaf.payload(m, payload.bytes);
    if (at != nullptr) payload.at = c_.medium.offset_of(at);
  }
  return payload.word();
}

// Valid while the caller is pinned. None: it lies nowhere.
template <class Keys>
std::optional<Bytes> BzTree<Keys>::payload_of(Word value) const {
  const PayloadAt payload = PayloadAt::of(value);
  if (payload.bytes == 0) return Bytes{};
  if (payload.at < pmem::kHeapAt || payload.bytes > kMaxPayloadBytes ||
      !c_.medium.contains(payload.at, payload.bytes)) {
    return {};
  }
  return Bytes(reinterpret_cast<const char*>(c_.medium.at(payload.at)), payload.bytes);
}

template <class Keys>
Lookup BzTree<Keys>::number_in(Word value) const {
  const std::optional<Bytes> bytes = payload_of(value);
  if (!bytes) return {Outcome::corrupt, 0};
  std::uint64_t number = 0;
  if (bytes->size() > sizeof number) return {Outcome::value_too_long, 0};
  if (!bytes->empty()) std::memcpy(&number, bytes->data(), bytes->size());
  return {Outcome::done, number};
}

// Of a scan's entries from the first on; those behind one that is no number go.
template <class Keys>
Outcome BzTree<Keys>::to_numbers(Out& out, std::size_t first) const {
  if (!options_.payloads) return Outcome::done;
  for (std::size_t i = first; i < out.size(); ++i) {
    const Lookup number = number_in(out[i].value);
    if (!number) {
      out.resize(i);
      return number.outcome;
    }
    out[i].value = *number;
  }
  return Outcome::done;
}

// The same, without their keys. `left`: bytes that may still be copied; forged words may all name
// the same ones.
template <class Keys>
Outcome BzTree<Keys>::copy_payloads(const Out& from, std::size_t first, PayloadsOut& to,
                                    std::uint64_t& left) const {
  for (std::size_t i = first; i < from.size(); ++i) {
    const std::optional<Bytes> bytes = payload_of(from[i].value);
    if (!bytes || bytes->size() > left) return Outcome::corrupt;
    left -= bytes->size();
    to.push_back({{}, std::string(*bytes)});
  }
  return Outcome::done;
}

EVERLEAF_INSTANTIATE(BzTree<U64Keys>);
EVERLEAF_INSTANTIATE(BzTree<BytesKeys>);

}  // namespace everleaf::tree::bztree
