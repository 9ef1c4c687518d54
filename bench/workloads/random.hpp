// Random numbers and permutations: the same on every machine, unlike std::uniform_int_distribution.
#pragma once

#include <bit>
#include <cstdint>

namespace everleaf::bench {

inline constexpr std::uint64_t kGolden = 0x9e3779b97f4a7c15;
inline constexpr std::uint64_t kMix1 = 0xbf58476d1ce4e5b9;
inline constexpr std::uint64_t kMix2 = 0x94d049bb133111eb;

// Inverse of an odd number modulo 2^64: Newton's step doubles the bits that are right.
constexpr std::uint64_t inverse_of_odd(std::uint64_t odd) {
  std::uint64_t inverse = odd;  // 3 bits are right
  for (int step = 0; step < 5; ++step) inverse *= 2 - odd * inverse;
  return inverse;
}

// A bijection of the 64-bit numbers: the finalizer of splitmix64.
constexpr std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * kMix1;
  x = (x ^ (x >> 27)) * kMix2;
  return x ^ (x >> 31);
}

constexpr std::uint64_t unmix(std::uint64_t x) {
  x = (x ^ (x >> 31) ^ (x >> 62)) * inverse_of_odd(kMix2);
  x = (x ^ (x >> 27) ^ (x >> 54)) * inverse_of_odd(kMix1);
  return x ^ (x >> 30) ^ (x >> 60);
}

// splitmix64.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next() { return mix(state_ += kGolden); }

  // Uniform in [0, bound), bound > 0; off by at most bound / 2^64.
  std::uint64_t below(std::uint64_t bound) {
    __extension__ using Wide = unsigned __int128;
    return static_cast<std::uint64_t>((static_cast<Wide>(next()) * bound) >> 64);
  }

  // Uniform in [0, 1).
  double unit() { return static_cast<double>(next() >> 11) * 0x1p-53; }

 private:
  std::uint64_t state_;
};

// A pseudo-random bijection of 0..size-1 without a table: three multiply-xorshift rounds on the
// next power of two, walked along until the number falls below `size` (two rounds on average at
// most).
class Shuffle {
 public:
  Shuffle(std::uint64_t size, std::uint64_t seed)
      : size_(size),
        bits_(size <= 2 ? 1 : static_cast<unsigned>(std::bit_width(size - 1))),
        mask_(~std::uint64_t{0} >> (64 - bits_)),
        shift_((bits_ + 1) / 2),
        offset_(mix(seed + kGolden)) {}

  std::uint64_t operator()(std::uint64_t position) const {
    std::uint64_t x = position;
    do {
      x = round(x);
    } while (x >= size_);
    return x;
  }

 private:
  std::uint64_t round(std::uint64_t x) const {
    for (const std::uint64_t factor : {kMix1, kMix2, kGolden}) {
      x = ((x + offset_) * factor) & mask_;
      x ^= x >> shift_;
    }
    return x;
  }

  std::uint64_t size_;
  unsigned bits_;
  std::uint64_t mask_;
  unsigned shift_;
  std::uint64_t offset_;
};

}  // namespace everleaf::bench
