// Reads a binary header forward through a small buffer, never past the end of the source.
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "engine/checkpoint/input_file.h"

namespace transload::engine {

// Little-endian numbers and length-prefixed strings. Threads: one. Lengths are checked against
// what is left of the source before anything is allocated.
class HeaderReader {
 public:
  explicit HeaderReader(const ByteSource& source) : source_(&source) {}

  int64_t position() const { return buffer_offset_ + static_cast<int64_t>(next_); }
  int64_t left() const { return source_->bytes() - position(); }

  // Errors (all): kBadInput naming file and position where the source ends first.
  template <class T>
  T number() {
    static_assert(std::is_arithmetic_v<T>);
    T value{};
    copy(std::as_writable_bytes(std::span(&value, 1)));
    return value;
  }
  // A string with a 64-bit length. `what` names it. Errors: also kBadInput above `limit` bytes.
  std::string text(int64_t limit, const std::string& what);

  [[noreturn]] void refuse(const std::string& what) const;

 private:
  void copy(std::span<std::byte> out);

  const ByteSource* source_;
  std::vector<std::byte> buffer_;
  int64_t buffer_offset_ = 0;
  size_t next_ = 0;
};

}  // namespace transload::engine
