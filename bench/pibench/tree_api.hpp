// What PiBench (a harness for persistent indexes that loads them as shared libraries) calls: its
// layout of objects and virtual functions, declared again. Its newer versions have a bulk_load()
// before find(): build with -DEVERLEAF_PIBENCH_INCLUDE=DIR, the folder of the harness's own
// tree_api.hpp.
#pragma once

#include <cstddef>
#include <string>

struct tree_options_t {
  std::size_t key_size = 8;
  std::size_t value_size = 8;
  std::string pool_path;
  std::size_t pool_size = 0;
  std::size_t num_threads = 1;
};

class tree_api {
 public:
  virtual ~tree_api() = default;
  virtual bool find(const char* key, std::size_t key_size, char* value_out) = 0;
  virtual bool insert(const char* key, std::size_t key_size, const char* value,
                      std::size_t value_size) = 0;
  virtual bool update(const char* key, std::size_t key_size, const char* value,
                      std::size_t value_size) = 0;
  virtual bool remove(const char* key, std::size_t key_size) = 0;
  // Records <key><value>, ascending, one behind the other; valid until the thread's next call.
  virtual int scan(const char* key, std::size_t key_size, int count, char*& records) = 0;
};

extern "C" tree_api* create_tree(const tree_options_t& options);
