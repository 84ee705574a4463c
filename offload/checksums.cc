#include "offload/checksums.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <utility>

#include "base/check.h"
#include "base/error.h"

namespace transload::offload {
namespace {

uint64_t hash_of(const std::byte* data, int64_t bytes) {
  return XXH3_64bits(data, static_cast<size_t>(bytes));
}

}  // namespace

BlockChecksums::BlockChecksums(std::string file, int64_t blocks, int64_t block_bytes)
    : file_(std::move(file)), block_bytes_(block_bytes), sums_(static_cast<size_t>(blocks)) {
  check(blocks >= 0 && block_bytes > 0, "checksums of no blocks");
}

void BlockChecksums::set(int64_t block, const std::byte* data, int64_t bytes) {
  check(block >= 0 && block < blocks(), "checksum of a block outside the file");
  check(bytes >= 0 && bytes <= block_bytes_, "checksum of more than a block");
  sums_[static_cast<size_t>(block)] = Sum{hash_of(data, bytes), bytes};
}

void BlockChecksums::verify(int64_t block, const std::byte* data, int64_t bytes) const {
  check(block >= 0 && block < blocks(), "checksum of a block outside the file");
  const Sum& sum = sums_[static_cast<size_t>(block)];
  check(sum.bytes == bytes, "block verified with another size than it was written with, or never");
  if (hash_of(data, bytes) == sum.hash) return;
  throw Error(Kind::kIo,
              fmt::format("disk: block {} of '{}' (offset {}, {} bytes) came back changed; "
                          "check the disk or choose another --disk-dir",
                          block, file_, block * block_bytes_, bytes));
}

}  // namespace transload::offload
