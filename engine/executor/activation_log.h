// Per-layer norms and hashes of hidden rows, to compare two engines layer by layer.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>

namespace transload::engine {

// Writes one JSON line for the last row of each prompt and each decode row after every layer:
// {"sweep", "layer", "request", "position", "norm", "mean", "first", "hash"}; layer -1 is the
// embedding. norm is the Euclidean norm, first the first four values, hash XXH3 of the float32 row.
// Threads: one (the compute lane).
class ActivationLog {
 public:
  // Errors: kIo naming the file.
  explicit ActivationLog(const std::string& path);
  ~ActivationLog();
  ActivationLog(const ActivationLog&) = delete;
  ActivationLog& operator=(const ActivationLog&) = delete;

  struct Row {
    int64_t sweep = 0;
    int64_t layer = 0;
    int64_t request = 0;
    int64_t position = 0;
  };
  void write(const Row& row, const float* values, int64_t count);

 private:
  std::FILE* file_;
};

}  // namespace transload::engine
