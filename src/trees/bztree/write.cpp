// Changes of single keys (paper, 4.2): P1 to P4.
#include <new>

#include "trees/bztree/tree.hpp"

namespace everleaf::tree::bztree {

using pmwcas::Descriptor;
using pmwcas::Durability;

template <class Keys>
Outcome BzTree<Keys>::write(Key key, std::uint64_t value, Write what) {
  if (const Outcome admitted = c_.admit(what, keys_.too_long(key)); admitted != Outcome::done) {
    return admitted;
  }
  const Probe probe = Keys::probe(key);
  bool shrinks = false;
  const Outcome outcome = c_.with_space([&] {
    const alloc::Grace::Pin pin(c_.grace);
    if (!pin.ok()) return Outcome::too_many_threads;
    try {
      if (options_.reserve_entry) {
        if (const Outcome begun = begin_epoch(); begun != Outcome::done) return begun;
      }
      keep_spares();
      pmwcas::Retries retries(*words_);
      while (true) {
        base::reads_discarded();
        const Attempt tried = attempt(probe, value, what, shrinks);
        if (!tried.over && retries.again()) continue;
        if (!tried.over) return Outcome::corrupt;
        // What this thread has freed is in its grace period then, and with_space() waits it out.
        if (tried.outcome == Outcome::out_of_space) words_->settle();
        return tried.outcome;
      }
    } catch (const std::bad_alloc&) {
      return Outcome::out_of_space;  // whatever was frozen, the next one replaces
    }
  });
  if (outcome == Outcome::done && shrinks) shrink(key);
  return outcome;
}

template <class Keys>
typename BzTree<Keys>::Attempt BzTree<Keys>::attempt(const Probe& probe, std::uint64_t value,
                                                     Write what, bool& shrinks) {
  Path path;
  if (!descend(probe, Aim::at, path)) return answer(Outcome::corrupt);
  const LeafOf here = leaf(path.leaf);
  const Status s = status(here);
  if (s.frozen()) return retried(restructure(path, false));
  const auto hit = here.find(*words_, keys_, probe, s);
  if (hit.damaged) return answer(Outcome::corrupt);
  if (const Outcome refused = detail::refusal(what, hit.found); refused != Outcome::done) {
    return answer(refused);
  }
  if (here.is_asked_for()) return retried(restructure(path, false));
  // What a search knows of a sorted entry (I6) a writer changes, so it is there: each change of it
  // changes the status.
  if (hit.found && words_->read(here.meta(hit.position)) != hit.meta.word) {
    return status(here).word == s.word ? answer(Outcome::corrupt) : again();
  }
  if (what == Write::remove) return remove(here, s, hit, shrinks);
  return hit.found ? update(path, here, s, hit, value) : insert(path, here, s, probe, value);
}

// P3, A4: the visible bit goes, the offset stays.
template <class Keys>
typename BzTree<Keys>::Attempt BzTree<Keys>::remove(const LeafOf& leaf, Status s,
                                                    const typename LeafOf::Hit& hit,
                                                    bool& shrinks) {
  Descriptor change = words_->allocate();
  if (!change.ok()) return answer(Outcome::out_of_space);
  const std::uint32_t gone = hit.meta.total() + static_cast<std::uint32_t>(sizeof(Word));
  change.add_word(leaf.meta(hit.position), hit.meta.word, hit.meta.hidden());
  change.add_word(leaf.status(), s.word, s.remove(gone));
  if (hit.meta.is_long() && !change.frees(Keys::record_of(leaf.stored(hit.meta)))) {
    // Another one has removed it, or there never was one.
    const bool unchanged = words_->read(leaf.meta(hit.position)) == hit.meta.word;
    return unchanged ? answer(Outcome::corrupt) : again();
  }
  const Answer tried = change.execute();
  if (tried != Answer::succeeded) return retried(outcome_of(tried));
  const std::uint32_t used =
      s.block() + s.count() * static_cast<std::uint32_t>(sizeof(Word)) - s.deleted() - gone;
  shrinks = used < options_.merge || s.deleted() + gone > options_.dead;
  return answer(Outcome::done);
}

// P4: three words where the value's bit 63, which lies in the metadata, stays.
template <class Keys>
typename BzTree<Keys>::Attempt BzTree<Keys>::update(const Path& path, const LeafOf& leaf, Status s,
                                                    const typename LeafOf::Hit& hit,
                                                    std::uint64_t value) {
  const bool top = (value & pmwcas::kControl) != 0;
  if (!options_.in_place || top != hit.meta.top()) {
    return update_inline(path, leaf, s, hit, value);
  }
  Word* const word = leaf.value(hit.meta);
  Descriptor change = words_->allocate();
  if (!change.ok()) return answer(Outcome::out_of_space);
  change.add_word(word, words_->read(word), value & ~pmwcas::kControl);
  change.add_word(leaf.meta(hit.position), hit.meta.word, hit.meta.word);
  change.add_word(leaf.status(), s.word, s.next());
  const Answer tried = change.execute();
  return tried == Answer::succeeded ? answer(Outcome::done) : retried(outcome_of(tried));
}

// P4: a new record, to which the entry then points. Of the paper's two entries this makes one, so
// that a deletion never brings the old one back.
template <class Keys>
typename BzTree<Keys>::Attempt BzTree<Keys>::update_inline(const Path& path, const LeafOf& leaf,
                                                           Status s,
                                                           const typename LeafOf::Hit& hit,
                                                           std::uint64_t value) {
  const std::uint32_t total = hit.meta.total();
  if (!leaf.has_room(s, total, 0)) return retried(restructure(path, false));
  const Status reserved{s.reserve(0, total)};
  {
    Descriptor reserve = words_->allocate();
    if (!reserve.ok()) return answer(Outcome::out_of_space);
    reserve.add_word(leaf.status(), s.word, reserved.word);
    const Answer tried = reserve.execute(Durability::later);
    if (tried != Answer::succeeded) return retried(outcome_of(tried));
  }
  const std::uint32_t offset = leaf.header().bytes - reserved.block();
  const bool is_long = hit.meta.is_long();
  write_record(leaf, offset, total, value & ~pmwcas::kControl, leaf.key(keys_, hit.meta),
               is_long ? std::optional(leaf.stored(hit.meta)) : std::nullopt);
  const Word flags =
      (is_long ? Meta::kLong : 0) | ((value & pmwcas::kControl) != 0 ? Meta::kTop : 0);
  const Meta now = Meta::entry(offset, total, hit.meta.key_bytes(), hit.meta.tag(), flags);
  pmwcas::Retries retries(*words_);
  for (Status seen = reserved; !seen.frozen(); seen = status(leaf)) {
    if (words_->read(leaf.meta(hit.position)) != hit.meta.word) break;  // another one was first
    Descriptor change = words_->allocate();
    if (!change.ok()) return answer(Outcome::out_of_space);
    change.add_word(leaf.meta(hit.position), hit.meta.word, now.word);
    change.add_word(leaf.status(), seen.word, seen.remove(total));
    const Answer tried = change.execute();
    if (tried == Answer::succeeded) return answer(Outcome::done);
    if (tried != Answer::failed) return answer(outcome_of(tried));
    if (!retries.again()) return answer(Outcome::corrupt);
  }
  return again();
}

// Fills reserved space; durable with the next fence. `long_record`: of a key that lies there.
template <class Keys>
void BzTree<Keys>::write_record(const LeafOf& leaf, std::uint32_t offset, std::uint32_t total,
                                Word value, Key key, std::optional<Offset> long_record) {
  std::byte* const at = leaf.base() + offset;
  c_.medium.store(reinterpret_cast<Word*>(at), value, 0);
  if (long_record) {
    c_.medium.store(reinterpret_cast<Word*>(at + sizeof(Word)), *long_record, 0);
  } else {
    Keys::copy_to(at + sizeof(Word), key);
  }
  c_.medium.count_written(total);
  c_.medium.flush(at, total);
}

// A key's own record; durable with the next fence. False: out of space.
template <class Keys>
bool BzTree<Keys>::write_key(Reserved& record, Key key) {
  if constexpr (Keys::kRecords) {
    if (!record.get(Keys::record_bytes(key))) return false;
    keys_.store_record(record.block(), key);
    c_.medium.flush(c_.medium.at(record.block()), Keys::record_bytes(key));
  }
  return true;
}

// A1: whether a place behind the entries is as a fresh leaf has it. A crash that took a reservation
// back may have left it, or bytes of its record, which could look like anything once the place
// counts: a visible entry, a reference. They go with the leaf.
template <class Keys>
bool BzTree<Keys>::is_blank(const Word* meta) const {
  const base::Durable durable;  // what is not zero leads to a copy of the leaf, which is harmless
  return pmem::load(meta) == 0;
}

// P1, P2
template <class Keys>
typename BzTree<Keys>::Attempt BzTree<Keys>::insert(const Path& path, const LeafOf& leaf, Status s,
                                                    const Probe& probe, std::uint64_t value) {
  const bool is_long = this->is_long(probe.key);
  const std::uint32_t key_bytes = is_long ? std::uint32_t{sizeof(Word)} : Keys::bytes_of(probe.key);
  const std::uint32_t total = record_bytes(key_bytes, is_long);
  if (!leaf.has_room(s, total)) {
    // The largest key so far, in the last leaf.
    Items items;
    const bool append = !bound(path, true).has_value() && gather(leaf, items) && !items.empty() &&
                        items.back().key < probe.key;
    return retried(restructure(path, append));
  }
  Reserved record(c_.heap);
  if constexpr (Keys::kRecords) {
    if (is_long && !write_key(record, probe.key)) return answer(Outcome::out_of_space);
  }
  const std::uint32_t position = s.count();
  const Status now{s.reserve(1, total)};
  if (!is_blank(leaf.meta(position))) {
    base::reached("A1: a record's bytes");
    return status(leaf).word == s.word ? retried(restructure(path, false)) : again();
  }
  Meta reserved{0};
  {
    Descriptor reserve = words_->allocate();
    if (!reserve.ok()) return answer(Outcome::out_of_space);
    if (options_.reserve_entry) {
      const Meta mine = Meta::reservation(epoch_.load(std::memory_order_relaxed));
      reserve.add_word(leaf.meta(position), 0, mine.word);
      reserved = mine;
    }
    // Nobody else has reserved since the search: the place was nobody's, and is ours now.
    reserve.add_word(leaf.status(), s.word, now.word);
    const Answer tried = reserve.execute(Durability::later);
    if (tried != Answer::succeeded) return retried(outcome_of(tried));
  }
  leaf.set_fingerprint(c_.medium, position, probe.hash);
  const std::uint32_t offset = leaf.header().bytes - now.block();
  write_record(leaf, offset, total, value & ~pmwcas::kControl, probe.key,
               is_long ? std::optional(record.block()) : std::nullopt);
  const Word flags =
      (is_long ? Meta::kLong : 0) | ((value & pmwcas::kControl) != 0 ? Meta::kTop : 0);
  const Meta final = Meta::entry(offset, total, key_bytes, probe.hash, flags);
  return complete(leaf, probe, s, position, reserved, final, record);
}

// P2, A3: visible, unless another one was first. `seen`: the leaf's status when it had no such key.
template <class Keys>
typename BzTree<Keys>::Attempt BzTree<Keys>::complete(const LeafOf& leaf, const Probe& probe,
                                                      Status seen, std::uint32_t position,
                                                      Meta reserved, Meta final, Reserved& record) {
  pmwcas::Retries retries(*words_);
  while (true) {
    const Status s = status(leaf);
    if (s.frozen()) return again();  // its space goes with the node
    if (!s.has_version_of(seen)) {
      const auto hit = leaf.find(*words_, keys_, probe, s);
      if (hit.damaged) return answer(Outcome::corrupt);
      // The next attempt finds it.
      if (hit.found) return retried(give_up(leaf, position, reserved, final.total()));
      seen = s;
    }
    Descriptor change = words_->allocate();
    if (!change.ok()) return answer(Outcome::out_of_space);
    change.add_word(leaf.meta(position), reserved.word, final.word);
    change.add_word(leaf.status(), s.word, s.next());
    if (record.block() != 0) {
      if (!change.allocates(record.block())) return answer(Outcome::corrupt);
      record.keep();
    }
    const Answer tried = change.execute();
    if (tried == Answer::succeeded) return answer(Outcome::done);
    if (tried != Answer::failed) return answer(outcome_of(tried));
    if (words_->read(leaf.meta(position)) != reserved.word) return again();  // damaged
    if (!retries.again()) return answer(Outcome::corrupt);
    if constexpr (Keys::kRecords) {  // the record of a long key is lost with a failure
      if (!final.is_long()) continue;
      if (!write_key(record, probe.key)) return answer(Outcome::out_of_space);
      write_record(leaf, final.offset(), final.total(), pmem::load(leaf.value(final)), probe.key,
                   record.block());
    }
  }
}

// Our reservation counts for nothing any more.
template <class Keys>
Outcome BzTree<Keys>::give_up(const LeafOf& leaf, std::uint32_t position, Meta reserved,
                              std::uint32_t total) {
  for (pmwcas::Retries retries(*words_);;) {
    const Status s = status(leaf);
    if (s.frozen() || words_->read(leaf.meta(position)) != reserved.word) return Outcome::done;
    Descriptor change = words_->allocate();
    if (!change.ok()) return Outcome::done;
    if (reserved.word != 0) change.add_word(leaf.meta(position), reserved.word, 0);
    change.add_word(leaf.status(), s.word,
                    s.remove(total + static_cast<std::uint32_t>(sizeof(Word))));
    const Answer tried = change.execute(Durability::later);
    if (tried != Answer::failed) return outcome_of(tried);
    if (!retries.again()) return Outcome::corrupt;
  }
}

template class BzTree<U64Keys>;
template class BzTree<BytesKeys>;

}  // namespace everleaf::tree::bztree
