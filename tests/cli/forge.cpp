// Makes the checksums of a pool's header copies right again after a test has changed them, so that
// the test meets what stands behind the checksum. The layout is that of docs/pool-format.md.
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>

#define XXH_INLINE_ALL
#include <xxhash.h>

int main(int argc, char** argv) {
  constexpr std::size_t kMagicBytes = 8;
  constexpr std::size_t kChecksumAt = 248;
  if (argc != 2) return 2;
  std::fstream file(argv[1], std::ios::in | std::ios::out | std::ios::binary);
  for (const int copy : {0, 4096}) {
    std::array<char, 256> header{};
    file.seekg(copy).read(header.data(), header.size());
    const std::uint64_t sum = XXH3_64bits(header.data() + kMagicBytes, kChecksumAt - kMagicBytes);
    std::memcpy(header.data() + kChecksumAt, &sum, sizeof sum);
    file.seekp(copy).write(header.data(), header.size());
  }
  file.flush();
  return file ? 0 : 1;
}
