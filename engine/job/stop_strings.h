// Ends a text at a stop string, however the text arrives.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace transload::engine {

// Takes text piece by piece and gives back what cannot belong to a stop string any more. The text
// ends before the stop string that is complete first (of two that end at the same byte, the longer
// one), so that the result does not depend on where the pieces were cut. With whole characters in
// the pieces and in the stop strings, it never cuts inside a character.
// Threads: single-threaded.
class StopMatcher {
 public:
  // Requires: no stop string is empty.
  explicit StopMatcher(std::vector<std::string> stops);

  // The text that is certain now; empty after a stop.
  std::string add(std::string_view piece);
  // What was held back, when the sequence ended without a stop; empty after a stop.
  std::string finish();
  bool stopped() const { return stopped_; }

 private:
  size_t matched_bytes(size_t end) const;
  size_t held_bytes() const;

  std::vector<std::string> stops_;
  std::string pending_;
  bool stopped_ = false;
};

}  // namespace transload::engine
