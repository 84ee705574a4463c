#include "planner/clock.h"

#include "base/check.h"

namespace transload::planner {

Ring::Ring(int64_t bytes, int64_t max_spans)
    : bytes_(bytes), spans_(static_cast<size_t>(max_spans)) {}

std::optional<int64_t> Ring::allocate(int64_t bytes) {
  check(bytes <= bytes_, "span larger than its ring");
  const int64_t begin = head_ + bytes <= bytes_ ? head_ : 0;
  const int64_t end = begin + bytes;
  // Spans are in ring order from the head on, so those in the way are the oldest. After a jump to
  // the start, everything between the head and the end of the ring is in the way too.
  const bool jumped = begin != head_;
  const auto in_the_way = [&](const Span& span) {
    if (jumped && span.offset >= head_) return true;
    return span.offset < end && begin < span.offset + span.bytes;
  };
  int64_t first_kept = oldest_;
  while (first_kept < next_ && in_the_way(at(first_kept))) {
    if (at(first_kept).open) return std::nullopt;
    ++first_kept;
  }
  if (next_ - first_kept >= count()) {
    if (at(first_kept).open) return std::nullopt;
    ++first_kept;
  }
  // Also the spans replaced earlier: this one may take what they left over, and its writer may be
  // on another lane than theirs.
  for (; oldest_ < first_kept; ++oldest_) replaced_.add(at(oldest_).clock.all());
  Span& span = at(next_);
  span = {.offset = begin, .bytes = bytes, .clock = BufferClock(replaced_), .open = true};
  head_ = end;
  return next_++;
}

}  // namespace transload::planner
