#include "engine/tokenizer/merges.h"

#include <bit>

namespace transload::engine {

MergeTable::MergeTable(int64_t count)
    : places_(std::bit_ceil(static_cast<size_t>(count + count / 3 + 1))) {}

size_t MergeTable::place(int32_t left, int32_t right) const {
  const size_t mask = places_.size() - 1;
  const uint64_t key =
      (static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32) | static_cast<uint32_t>(right);
  size_t at = static_cast<size_t>((key * 0x9E3779B97F4A7C15u) >> 32) & mask;
  while (places_[at].merge.token != kNoToken &&
         (places_[at].left != left || places_[at].right != right)) {
    at = (at + 1) & mask;
  }
  return at;
}

void MergeTable::insert(int32_t left, int32_t right, Merge merge) {
  places_[place(left, right)] = {left, right, merge};
}

Merge MergeTable::find(int32_t left, int32_t right) const {
  return places_[place(left, right)].merge;
}

}  // namespace transload::engine
