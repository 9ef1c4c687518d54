#include "pmem/header.hpp"

#include <chrono>
#include <cstring>
#include <optional>
#include <random>
#include <string>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace everleaf::pmem {
namespace {

constexpr std::size_t kMagicBytes = sizeof(Header::magic);
// An update makes it one larger; no pool is opened so often, and a forged one must not wrap.
constexpr std::uint64_t kMaxSequence = std::uint64_t{1} << 62;

std::uint64_t checksum_of(const Header& header) {
  // The magic is left out: it is written last, in one word of its own.
  return XXH3_64bits(reinterpret_cast<const std::byte*>(&header) + kMagicBytes,
                     offsetof(Header, checksum) - kMagicBytes);
}

Header copy_at(const std::byte* base, Offset at) {
  Header header{};
  std::memcpy(&header, base + at, sizeof header);
  return header;
}

bool sound(const Header& header) {
  return header.magic == kMagic && header.checksum == checksum_of(header) &&
         header.sequence < kMaxSequence;
}

// Writes one copy so that a crash leaves it invalid or whole: magic away, body, magic. False: a
// write-back failed; the other copy is as it was.
bool write_copy(Medium& medium, Offset at, Header header) {
  header.checksum = checksum_of(header);
  auto* const target = medium.at<Header>(at);
  std::atomic_ref<std::uint64_t> magic(target->magic);
  if (magic.load(std::memory_order_relaxed) != 0) {
    magic.store(0, std::memory_order_relaxed);
    // The old magic must not vouch for a half-new body.
    // crash: flush stays: the checksum finds a torn body, too, but only all but surely
    // crash: fence stays: as the flush
    if (!medium.persist(target, sizeof(Word))) return false;
  }
  std::memcpy(reinterpret_cast<std::byte*>(target) + kMagicBytes,
              reinterpret_cast<const std::byte*>(&header) + kMagicBytes,
              sizeof header - kMagicBytes);
  // The body is durable before the magic says so.
  if (!medium.persist(target, sizeof header)) return false;
  magic.store(header.magic, std::memory_order_relaxed);
  return medium.persist(target, sizeof(Word));
}

Error unusable(const Header& a, const Header& b) {
  const auto either = [&](auto test) { return test(a) || test(b); };
  if (either([](const Header& h) { return h.magic == __builtin_bswap64(kMagic); })) {
    return {Code::other_endianness,
            "the pool was written on a machine of the other byte order: dump it there and load the "
            "dump here"};
  }
  if (either([](const Header& h) { return h.magic == kMagic; })) {
    return {Code::corrupt, "both header copies are damaged: restore the pool from a copy"};
  }
  return {Code::not_a_pool, "this is not an Everleaf pool"};
}

std::optional<Error> refuse(const Header& header, std::uint64_t file_bytes, bool read_only) {
  if (header.endian != kEndianMark) {
    return Error{Code::other_endianness, "the pool's byte order mark is not this machine's"};
  }
  if (header.version > kVersion) {
    return Error{Code::newer_version, "the pool has format version " +
                                          std::to_string(header.version) + ", this program reads " +
                                          std::to_string(kVersion) + ": use a newer release"};
  }
  if ((header.incompatible & ~kKnownIncompatible) != 0) {
    return Error{Code::newer_version,
                 "the pool uses features of a newer release: use that release"};
  }
  if (!read_only && (header.ro_compatible & ~kKnownReadOnlyCompatible) != 0) {
    return Error{Code::newer_version,
                 "the pool uses features of a newer release: this one can only open it read-only"};
  }
  if (file_bytes < header.file_bytes || file_bytes < kHeapAt) {
    return Error{Code::truncated, "the file has " + std::to_string(file_bytes) +
                                      " bytes, its header says " +
                                      std::to_string(header.file_bytes) +
                                      ": it was cut off, restore it from a copy"};
  }
  return std::nullopt;
}

}  // namespace

Result<HeaderReading> read_headers(const std::byte* base, std::uint64_t file_bytes,
                                   bool read_only) {
  const Header a = copy_at(base, kHeaderA);
  const Header b = copy_at(base, kHeaderB);
  const bool a_sound = sound(a);
  const bool b_sound = sound(b);
  if (!a_sound && !b_sound) return std::unexpected(unusable(a, b));
  const bool take_a = a_sound && (!b_sound || a.sequence >= b.sequence);
  HeaderReading reading{take_a ? a : b, !a_sound || !b_sound, take_a ? kHeaderB : kHeaderA};
  if (auto error = refuse(reading.header, file_bytes, read_only)) {
    return std::unexpected(std::move(*error));
  }
  return reading;
}

bool create_headers(Medium& medium) {
  Header header{};
  header.magic = kMagic;
  header.version = kVersion;
  header.endian = kEndianMark;
  header.ro_compatible = kImages;
  header.sequence = 1;
  header.file_bytes = medium.size();
  header.created_s =
      static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::seconds>(
                                     std::chrono::system_clock::now().time_since_epoch())
                                     .count());
  std::random_device random;
  for (std::size_t i = 0; i < header.uuid.size(); ++i) {
    header.uuid[i] = static_cast<std::byte>(random());
  }
  header.uuid[6] = (header.uuid[6] & std::byte{0x0F}) | std::byte{0x40};  // RFC 4122, version 4
  header.uuid[8] = (header.uuid[8] & std::byte{0x3F}) | std::byte{0x80};
  if (!write_copy(medium, kHeaderB, header)) return false;
  header.sequence = 2;
  return write_copy(medium, kHeaderA, header);
}

bool update_header(Medium& medium, Header header) {
  const Header a = copy_at(medium.base(), kHeaderA);
  const Header b = copy_at(medium.base(), kHeaderB);
  const bool a_is_current = sound(a) && (!sound(b) || a.sequence >= b.sequence);
  header.sequence = (a_is_current ? a.sequence : b.sequence) + 1;
  return write_copy(medium, a_is_current ? kHeaderB : kHeaderA, header);
}

}  // namespace everleaf::pmem
