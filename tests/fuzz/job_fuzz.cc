// Any bytes as a line of a job: an error or a request within its bounds, never a crash.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <variant>

#include "engine/job/request_reader.h"
#include "engine/job/score_reader.h"
#include "tests/engine/job/byte_tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace transload;
  constexpr int64_t kPositions = 64;
  const tests::ByteTokenizer tokenizer;
  const std::string_view line(reinterpret_cast<const char*>(data), size);

  engine::RequestReader requests({&tokenizer, {}, {kPositions, 257}});
  const auto request = requests.read(line, 1);
  if (const auto* good = std::get_if<engine::Request>(&request)) {
    const auto tokens = static_cast<int64_t>(good->prompt.size());
    if (tokens < 1 || tokens + good->sampling.max_tokens > kPositions) std::abort();
  } else if (std::get<engine::LineError>(request).code.empty()) {
    std::abort();
  }

  engine::RequestReader batch({&tokenizer, {}, {kPositions, 257}}, engine::JobFormat::kBatch);
  const auto body = batch.read(line, 1);
  if (const auto* good = std::get_if<engine::Request>(&body)) {
    if (good->samples < 1 || good->samples > engine::kMaxSamples) std::abort();
  }

  engine::ScoreReader scores({&tokenizer, {kPositions, 257}, 8, 4});
  const auto score = scores.read(line, 1);
  if (const auto* good = std::get_if<engine::ScoreRequest>(&score)) {
    for (const engine::ScoreWindow& window : good->windows) {
      if (window.first_scored <= window.begin || window.first_scored >= window.end ||
          window.end > static_cast<int64_t>(good->tokens.size())) {
        std::abort();
      }
    }
  }
  return 0;
}
