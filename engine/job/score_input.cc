#include "engine/job/score_input.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/check.h"
#include "engine/job/line_index.h"
#include "engine/job/score_reader.h"

namespace transload::engine {

struct ScoreInput::Impl {
  Impl(LineSource source, std::string directory) : index(std::move(source), std::move(directory)) {}

  LineIndex index;
  std::optional<ScoreReader> reader;  // once index() was called
};

ScoreInput ScoreInput::open(const std::string& path, const std::string& spool_path,
                            const ReadProgress& progress) {
  ScoreInput input;
  input.impl_ =
      std::make_shared<Impl>(LineSource::open(path, spool_path, progress), folder_of(spool_path));
  return input;
}

uint64_t ScoreInput::content_hash() const { return impl_->index.source().content_hash(); }

void ScoreInput::index(const ScoreReading& reading,
                       const std::function<void(const LineError&)>& on_error,
                       const ReadProgress& progress) {
  constexpr int64_t kTokenBytes = 32;  // id, score and log-probability of a token, and its text
  impl_->reader.emplace(reading);
  const auto read = [&](std::string_view text,
                        int64_t line) -> std::variant<LineIndex::Facts, LineError> {
    auto result = impl_->reader->read(text, line);
    if (auto* error = std::get_if<LineError>(&result)) return std::move(*error);
    auto& request = std::get<ScoreRequest>(result);
    LineIndex::Facts facts;
    int64_t scored = 0;
    for (const ScoreWindow& window : request.windows) {
      scored += window.end - window.first_scored;
      facts.slot_bytes = std::max(facts.slot_bytes, kTokenBytes * (window.end - window.begin));
    }
    // Windows go through the slots in order: at most two lines are there in part.
    facts.record_bytes = static_cast<int64_t>(request.tokens.size()) * kTokenBytes;
    facts.id_json = std::move(request.id_json);
    facts.prompt_tokens = static_cast<int32_t>(request.tokens.size());
    facts.max_tokens = static_cast<int32_t>(scored);
    return facts;
  };
  impl_->index.build(read, on_error, progress);
}

int64_t ScoreInput::mark_finished(const JobOutput& output) {
  return impl_->index.mark_finished(output);
}

const JobLines& ScoreInput::lines() const { return impl_->index.lines(); }

const JobMemory& ScoreInput::memory() const { return impl_->index.memory(); }

int64_t ScoreInput::pending() const { return impl_->index.pending(); }

ScoreRequest ScoreInput::read(const JobLine& line) const {
  check(impl_->reader.has_value(), "read() before index()");
  auto result = impl_->reader->read(impl_->index.text(line), line.number);
  auto* const request = std::get_if<ScoreRequest>(&result);
  if (request == nullptr || (id_hash(request->id_json) & ~uint64_t{1}) != line.id_key() ||
      static_cast<int32_t>(request->tokens.size()) != line.prompt_tokens) {
    impl_->index.throw_changed(line);
  }
  return std::move(*request);
}

}  // namespace transload::engine
