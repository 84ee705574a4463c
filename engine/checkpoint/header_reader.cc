#include "engine/checkpoint/header_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/units.h"

namespace transload::engine {
namespace {

constexpr int64_t kBufferBytes = 64 * kKiB;

}  // namespace

void HeaderReader::refuse(const std::string& what) const {
  throw Error(Kind::kBadInput,
              fmt::format("{}: at byte {}: {}", source_->name(), position(), what));
}

std::string HeaderReader::text(int64_t limit, const std::string& what) {
  const uint64_t length = number<uint64_t>();
  if (length > static_cast<uint64_t>(left()))
    refuse(fmt::format("truncated or damaged: {} of {} bytes where the file has {} bytes", what,
                       length, source_->bytes()));
  if (length > static_cast<uint64_t>(limit))
    refuse(
        fmt::format("damaged: {} of {} bytes where at most {} are expected", what, length, limit));
  std::string value(static_cast<size_t>(length), '\0');
  copy(std::as_writable_bytes(std::span(value)));
  return value;
}

void HeaderReader::copy(std::span<std::byte> out) {
  if (static_cast<int64_t>(out.size()) > left())
    refuse(fmt::format("truncated in its header: the file has {} bytes; copy or download it again",
                       source_->bytes()));
  while (!out.empty()) {
    if (next_ == buffer_.size()) {
      buffer_offset_ += static_cast<int64_t>(buffer_.size());
      next_ = 0;
      buffer_.resize(
          static_cast<size_t>(std::min(kBufferBytes, source_->bytes() - buffer_offset_)));
      source_->read(buffer_offset_, buffer_);
    }
    const size_t bytes = std::min(out.size(), buffer_.size() - next_);
    std::memcpy(out.data(), buffer_.data() + next_, bytes);
    next_ += bytes;
    out = out.subspan(bytes);
  }
}

}  // namespace transload::engine
