// Loads the adapter as the harness does, with each tree of the registry, and looks at the answers
// of every function. Usage: everleaf-pibench-driver LIBRARY
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <tree_api.hpp>

#include <everleaf/index.hpp>

#include <dlfcn.h>
#include <stdlib.h>

namespace {

int failures = 0;

void expect(bool holds, const char* what, std::size_t key_size) {
  if (holds) return;
  std::printf("failed, keys of %zu bytes: %s\n", key_size, what);
  ++failures;
}

// Ascending in `n`, for numbers of the machine's order and for bytes alike.
std::string key_of(std::uint64_t n, std::size_t bytes) {
  std::string key(bytes, 'k');
  if (bytes == sizeof n) {
    std::memcpy(key.data(), &n, sizeof n);
  } else {
    for (std::size_t i = 0; i < 4; ++i) key[bytes - 1 - i] = static_cast<char>(n >> (8 * i) & 0xFF);
  }
  return key;
}

void play(tree_api& tree, std::size_t key_size) {
  constexpr std::uint64_t kKeys = 2000;
  const auto value = [](const std::uint64_t& n) { return reinterpret_cast<const char*>(&n); };
  const auto put = [&](std::uint64_t n, std::uint64_t v, bool fresh) {
    const std::string key = key_of(n, key_size);
    return fresh ? tree.insert(key.data(), key_size, value(v), sizeof v)
                 : tree.update(key.data(), key_size, value(v), sizeof v);
  };
  for (std::uint64_t n = 0; n < kKeys; ++n) expect(put(n, n, true), "insert", key_size);
  expect(!put(7, 8, true), "an insertion of what is there", key_size);
  expect(put(7, 77, false), "update", key_size);
  expect(!put(kKeys, 1, false), "an update of what is not there", key_size);
  std::uint64_t found = 0;
  expect(tree.find(key_of(7, key_size).data(), key_size, reinterpret_cast<char*>(&found)) &&
             found == 77,
         "find", key_size);
  expect(!tree.find(key_of(kKeys, key_size).data(), key_size, reinterpret_cast<char*>(&found)),
         "a look-up of what is not there", key_size);
  expect(tree.remove(key_of(9, key_size).data(), key_size), "remove", key_size);
  expect(!tree.remove(key_of(9, key_size).data(), key_size), "a removal of what is not there",
         key_size);
  char* records = nullptr;
  const int count = tree.scan(key_of(7, key_size).data(), key_size, 3, records);
  std::string expected;
  for (const std::uint64_t n : {std::uint64_t{7}, std::uint64_t{8}, std::uint64_t{10}}) {
    const std::uint64_t v = n == 7 ? 77 : n;
    expected += key_of(n, key_size) + std::string(value(v), sizeof v);
  }
  expect(count == 3 && std::string(records, expected.size()) == expected, "scan", key_size);
  expect(tree.scan(key_of(kKeys - 1, key_size).data(), key_size, 9, records) == 1,
         "a scan at the end", key_size);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: everleaf-pibench-driver LIBRARY\n");
    return 2;
  }
  void* const library = ::dlopen(argv[1], RTLD_NOW);
  if (library == nullptr) {
    std::fprintf(stderr, "%s\n", ::dlerror());
    return 1;
  }
  using Create = tree_api* (*)(const tree_options_t&);
  const auto create = reinterpret_cast<Create>(::dlsym(library, "create_tree"));
  if (create == nullptr) {
    std::fprintf(stderr, "%s\n", ::dlerror());
    return 1;
  }
  // mkdtemp() fills the X in.
  std::string folder = std::filesystem::temp_directory_path() / "everleaf-pibench-XXXXXX";
  if (::mkdtemp(folder.data()) == nullptr) return 1;
  for (const auto& info : everleaf::trees()) {
    const std::string spec(info.name);
    std::printf("%s\n", spec.c_str());
    ::setenv("EVERLEAF_INDEX", spec.c_str(), 1);
    for (const std::size_t key_size : {std::size_t{8}, std::size_t{24}}) {
      const std::string pool = folder + "/" + spec + std::to_string(key_size) + ".pool";
      for (const std::string& path : {std::string(), pool}) {
        tree_options_t options;
        options.key_size = key_size;
        options.pool_path = path;
        const std::unique_ptr<tree_api> tree(create(options));
        expect(tree != nullptr, "create_tree", key_size);
        if (tree != nullptr) play(*tree, key_size);
      }
    }
  }
  tree_options_t too_long;
  too_long.value_size = 9;
  expect(create(too_long) == nullptr, "values of 9 bytes", 8);
  ::setenv("EVERLEAF_INDEX", "no-such-tree", 1);
  expect(create({}) == nullptr, "a tree that is not there", 8);
  std::filesystem::remove_all(folder);
  std::printf(failures == 0 ? "every answer is right\n" : "%d failed\n", failures);
  return failures == 0 ? 0 : 1;
}
