#include <algorithm>
#include <optional>

#include "base/check.h"
#include "engine/job/job.h"
#include "engine/job/line_index.h"
#include "engine/job/request_reader.h"

namespace transload::engine {

namespace {

// That of the first line which is an object.
JobFormat find_format(LineSource& source) {
  FieldReader fields;
  JobFormat format = JobFormat::kLines;
  for (LineSource::RawLine raw; source.next(raw);) {
    if (raw.too_long || !fields.parse_object(raw.text)) continue;
    if (fields.has_field("custom_id") || fields.has_field("body")) format = JobFormat::kBatch;
    break;
  }
  source.rewind();
  return format;
}

bool is_of_chat(const LineError& error) {
  return error.code == "chat_template" || error.code == kChatUnavailable;
}

// Upper bounds of what the answers to a line take until they are written, and of their record.
void count_answer(const Request& request, LineIndex::Facts& facts) {
  constexpr int64_t kTokenBytes = 16;  // id and text, of samples that wait for the others
  constexpr int64_t kTokenText = 24;
  const int64_t entry_text = request.format == JobFormat::kBatch ? 256 : 64;
  const int64_t tokens = request.samples * request.sampling.max_tokens;
  const int64_t top = request.sampling.logprobs;
  facts.slot_bytes = (tokens - request.sampling.max_tokens) * kTokenBytes;
  facts.record_bytes = tokens * kTokenText;
  if (top < 0) return;
  const auto list = static_cast<int64_t>(sizeof(Sampled));
  const auto entry = static_cast<int64_t>(sizeof(decltype(Sampled::top)::value_type));
  facts.slot_bytes += tokens * (2 * list + (top + 4) * entry);
  facts.record_bytes += tokens * (top + 1) * entry_text;
}

}  // namespace

struct JobInput::Impl {
  Impl(LineSource source, std::string directory, JobFormat format)
      : index(std::move(source), std::move(directory), format) {}

  LineIndex index;
  std::optional<RequestReader> reader;  // once index() was called
};

JobInput JobInput::open(const std::string& path, const std::string& spool_path,
                        const ReadProgress& progress) {
  JobInput input;
  LineSource source = LineSource::open(path, spool_path, progress);
  const JobFormat format = find_format(source);
  input.impl_ = std::make_shared<Impl>(std::move(source), folder_of(spool_path), format);
  return input;
}

uint64_t JobInput::content_hash() const { return impl_->index.source().content_hash(); }

void JobInput::index(const JobReading& reading,
                     const std::function<void(const LineError&)>& on_error,
                     const ReadProgress& progress) {
  impl_->reader.emplace(reading, format());
  const auto read = [&](std::string_view text,
                        int64_t line) -> std::variant<LineIndex::Facts, LineError> {
    auto result = impl_->reader->read(text, line);
    if (auto* error = std::get_if<LineError>(&result)) return std::move(*error);
    auto& request = std::get<Request>(result);
    LineIndex::Facts facts;
    count_answer(request, facts);
    facts.id_json = std::move(request.id_json);
    facts.prompt_tokens = static_cast<int32_t>(request.prompt.size());
    facts.max_tokens = static_cast<int32_t>(request.sampling.max_tokens);
    facts.samples = request.samples;
    return facts;
  };
  impl_->index.build(read, on_error, progress);
}

int64_t JobInput::mark_finished(const JobOutput& output) {
  return impl_->index.mark_finished(output);
}

const JobLines& JobInput::lines() const { return impl_->index.lines(); }

int64_t JobInput::pending() const { return impl_->index.pending(); }

const JobMemory& JobInput::memory() const { return impl_->index.memory(); }

int64_t JobInput::max_prompt_tokens() const {
  int32_t longest = 0;
  for (const JobLine& line : lines()) longest = std::max(longest, line.prompt_tokens);
  return longest;
}

JobFormat JobInput::format() const { return impl_->index.format(); }

std::vector<std::string> JobInput::without_effect() const {
  if (!impl_->reader) return {};
  return {impl_->reader->without_effect().begin(), impl_->reader->without_effect().end()};
}

std::variant<Request, LineError> JobInput::read(const JobLine& line) const {
  check(impl_->reader.has_value(), "read() before index()");
  auto result = impl_->reader->read(impl_->index.text(line), line.number);
  const auto* const error = std::get_if<LineError>(&result);
  const std::string& id_json = error ? error->id_json : std::get<Request>(result).id_json;
  const bool is_same = (id_hash(id_json) & ~uint64_t{1}) == line.id_key();
  if (is_same && error && is_of_chat(*error)) return result;
  if (!is_same || error ||
      static_cast<int32_t>(std::get<Request>(result).prompt.size()) != line.prompt_tokens) {
    impl_->index.throw_changed(line);
  }
  return result;
}

}  // namespace transload::engine
