// Traces of key-value caches, as text: one request a line, fields between commas.
//
// A header names the fields if there is one (its line begins with `#`, or its first field is no
// number): `object`, `obj`, `obj_id`, `id` or `key` is the key, `op` or `operation` the operation.
// Without it a line has the seven fields of the traces that Twitter published: time, key, sizes of
// key and value, client, operation, time to live. Other fields are not used.
//
//   get, gets                                        find
//   set, add, replace, cas, append, prepend, incr, decr  upsert
//   delete                                           remove
//
// A file without operations: the first request for a key upserts it, as a cache does that missed,
// and later ones find it.
#pragma once

#include <cstdint>
#include <istream>
#include <string>
#include <vector>

#include "plan.hpp"

namespace everleaf::bench {

struct Trace {
  std::string name;  // of the file, without its folder
  std::uint64_t distinct = 0;
  std::vector<std::uint32_t> keys;  // of each request: numbers in [0, distinct), by first request
  std::vector<Phase::Kind> kinds;   // find, upsert or remove
};

// The first `most` requests. Throws Failure: kExitIo if the file cannot be read, kExitUsage with
// the number of the line that is malformed, or if there is no request at all.
Trace read_trace(const std::string& path, std::uint64_t most);
Trace read_trace(std::istream& in, const std::string& name, std::uint64_t most);

}  // namespace everleaf::bench
