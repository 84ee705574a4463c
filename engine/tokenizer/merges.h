// The merges of byte-pair encoding: which two neighbouring tokens become which one, and how early.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/tokenizer/vocabulary.h"

namespace transload::engine {

// A merge that is possible at some place: lower ranks go first.
struct Merge {
  uint32_t rank = 0;
  int32_t token = kNoToken;  // none: the two do not merge
};

// Invariant: at most three quarters of the table's places are taken (open addressing, 16 bytes
// each). Threads: find is const and may run on several threads.
class MergeTable {
 public:
  explicit MergeTable(int64_t count);

  // A pair that is there already is given the new rank, as a file that repeats it means.
  void insert(int32_t left, int32_t right, Merge merge);
  // Requires nothing: ids below 0 (no token) merge with nothing.
  Merge find(int32_t left, int32_t right) const;

 private:
  struct Place {
    int32_t left = kNoToken, right = kNoToken;
    Merge merge;
  };
  size_t place(int32_t left, int32_t right) const;

  std::vector<Place> places_;
};

}  // namespace transload::engine
