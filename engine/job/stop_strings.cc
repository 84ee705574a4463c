#include "engine/job/stop_strings.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace transload::engine {

StopMatcher::StopMatcher(std::vector<std::string> stops) : stops_(std::move(stops)) {
  for (const std::string& stop : stops_) check(!stop.empty(), "empty stop string");
}

// Length of the longest stop string that ends at `end` of the pending text, or 0.
size_t StopMatcher::matched_bytes(size_t end) const {
  const std::string_view before = std::string_view(pending_).substr(0, end);
  size_t longest = 0;
  for (const std::string& stop : stops_) {
    if (before.ends_with(stop)) longest = std::max(longest, stop.size());
  }
  return longest;
}

// Length of the longest end of the pending text that begins a stop string.
size_t StopMatcher::held_bytes() const {
  const std::string_view text = pending_;
  size_t longest = 0;
  for (const std::string& stop : stops_) {
    for (size_t n = std::min(stop.size() - 1, text.size()); n > longest; --n) {
      if (text.ends_with(std::string_view(stop).substr(0, n))) longest = n;
    }
  }
  return longest;
}

std::string StopMatcher::add(std::string_view piece) {
  if (stopped_) return {};
  const size_t known = pending_.size();
  pending_ += piece;
  for (size_t end = known + 1; end <= pending_.size(); ++end) {
    const size_t bytes = matched_bytes(end);
    if (bytes == 0) continue;
    stopped_ = true;
    pending_.resize(end - bytes);
    return std::exchange(pending_, {});
  }
  const size_t certain = pending_.size() - held_bytes();
  std::string text = pending_.substr(0, certain);
  pending_.erase(0, certain);
  return text;
}

std::string StopMatcher::finish() { return std::exchange(pending_, {}); }

}  // namespace transload::engine
