// Spellings to token ids, in little memory: the strings in one piece, a table of ids over them.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "engine/checkpoint/checkpoint.h"

namespace transload::engine {

inline constexpr int32_t kNoToken = -1;

void append(StringTable& table, std::string_view text);

// Invariant: at most three quarters of the table's places are taken (open addressing, 4 bytes
// each). Threads: find is const and may run on several threads.
class Vocabulary {
 public:
  // The strings by id. None can be found before it is inserted.
  explicit Vocabulary(StringTable strings);

  // Returns false where an equal string is there already. Requires: 0 <= id < size().
  bool insert(int32_t id);
  // The id of a string, or kNoToken.
  int32_t find(std::string_view text) const;

  std::string_view operator[](int32_t id) const { return strings_[id]; }
  int64_t size() const { return strings_.size(); }
  int64_t longest_bytes() const { return longest_bytes_; }  // of the inserted strings

 private:
  size_t place(std::string_view text) const;

  StringTable strings_;
  std::vector<int32_t> places_;
  int64_t longest_bytes_ = 0;
};

}  // namespace transload::engine
