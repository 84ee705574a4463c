// Checksums of the blocks of a spill file: what comes back from a disk is what went there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace transload::offload {

// One XXH3 64-bit sum a block of `block_bytes`; block i lies at offset i * block_bytes. Sized once.
// Threads: one for the same block; different blocks may be used by different threads.
class BlockChecksums {
 public:
  // `file` is the name used in errors.
  BlockChecksums(std::string file, int64_t blocks, int64_t block_bytes);
  // Notes the content of a block about to be written. bytes <= block_bytes.
  void set(int64_t block, const std::byte* data, int64_t bytes);
  // Errors: kIo naming file, block and offset where the content differs from that of the last set;
  // kInternal for a block never set.
  void verify(int64_t block, const std::byte* data, int64_t bytes) const;
  int64_t blocks() const { return static_cast<int64_t>(sums_.size()); }

 private:
  struct Sum {
    uint64_t hash = 0;
    int64_t bytes = -1;  // -1: never set
  };
  std::string file_;
  int64_t block_bytes_;
  std::vector<Sum> sums_;
};

}  // namespace transload::offload
