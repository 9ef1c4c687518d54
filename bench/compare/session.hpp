// A thread's way to an index: what it calls while a phase runs.
//
// Trees and maps are called as they are. Rivals that keep something for each thread (a transaction,
// buffers) give a session, made and used by one thread, with the same face.
#pragma once

#include <memory>

namespace everleaf::bench {

// `may_meet`: insertions may meet keys that are there, removals keys that are not, and must say so.
template <class Store>
decltype(auto) session_of(Store& store, bool may_meet) {
  if constexpr (requires { store.session(may_meet); }) {
    return store.session(may_meet);
  } else {
    return *std::addressof(store);
  }
}

}  // namespace everleaf::bench
