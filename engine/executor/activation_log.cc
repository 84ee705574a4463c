#include "engine/executor/activation_log.h"

#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cmath>

#include "base/error.h"

namespace transload::engine {

ActivationLog::ActivationLog(const std::string& path) : file_(std::fopen(path.c_str(), "w")) {
  if (file_ == nullptr) throw_errno(errno, "--dump-activations: opening " + path);
}

ActivationLog::~ActivationLog() { std::fclose(file_); }

void ActivationLog::write(const Row& row, const float* values, int64_t count) {
  double sum = 0;
  double squares = 0;
  for (int64_t i = 0; i < count; ++i) {
    sum += values[i];
    squares += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  }
  const uint64_t hash = XXH3_64bits(values, static_cast<size_t>(count) * sizeof(float));
  std::fprintf(file_,
               "{\"sweep\":%" PRId64 ",\"layer\":%" PRId64 ",\"request\":%" PRId64
               ",\"position\":%" PRId64 ",\"norm\":%.9g,\"mean\":%.9g,\"first\":[",
               row.sweep, row.layer, row.request, row.position, std::sqrt(squares),
               sum / static_cast<double>(count));
  for (int64_t i = 0; i < std::min<int64_t>(count, 4); ++i)
    std::fprintf(file_, "%s%.9g", i == 0 ? "" : ",", static_cast<double>(values[i]));
  std::fprintf(file_, "],\"hash\":\"%016" PRIx64 "\"}\n", hash);
}

}  // namespace transload::engine
