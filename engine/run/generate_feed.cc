#include "engine/run/generate_feed.h"

#include <algorithm>

namespace transload::engine {
namespace {

bool contains(const std::vector<int32_t>& tokens, int32_t token) {
  return std::find(tokens.begin(), tokens.end(), token) != tokens.end();
}

}  // namespace

GenerateFeed::GenerateFeed(const LoadedModel& loaded, const JobInput& input, JobOutput& output,
                           RunProgress& progress, StopSignals& signals)
    : loaded_(loaded), input_(input), output_(output), progress_(progress), signals_(signals) {}

// Reads the next line that is not finished and can run. False when there is none.
bool GenerateFeed::begin_line() {
  const JobLines& lines = input_.lines();
  while (next_line_ < lines.size()) {
    const JobLine line = lines[next_line_++];
    if (line.finished()) continue;
    auto read = input_.read(line);
    if (const auto* const error = std::get_if<LineError>(&read)) {
      write_error(*error);
      continue;
    }
    current_ = &lines_[line.number];
    current_->request = std::move(std::get<Request>(read));
    current_->open = current_->request.samples;
    current_->completions.resize(static_cast<size_t>(current_->open));
    return true;
  }
  return false;
}

void GenerateFeed::write_error(const LineError& error) {
  output_.write(error);
  ++failed_;
  progress_.finished_request();
}

std::optional<Sequence> GenerateFeed::next() {
  signals_.hold();  // from now on there is work to finish
  if (current_ == nullptr && !begin_line()) return std::nullopt;
  Sequence sequence = begin_sample(*current_);
  if (current_->started == current_->request.samples) current_ = nullptr;
  return sequence;
}

Sequence GenerateFeed::begin_sample(Line& line) {
  const Request& request = line.request;
  Sample sample{.line = &line,
                .number = line.started++,
                .decoder = nullptr,
                .stops = StopMatcher(request.stop),
                .text = {},
                .logprobs = {}};
  if (loaded_.tokenizer)
    sample.decoder = std::make_unique<IncrementalDecoder>(*loaded_.tokenizer,
                                                          IncrementalDecoder::Place::kContinuation);
  Sequence sequence;
  sequence.request = request.line + (int64_t{sample.number} << 32);
  sequence.tokens.reserve(request.prompt.size() + static_cast<size_t>(request.sampling.max_tokens));
  sequence.tokens = request.prompt;
  sequence.prompt_tokens = static_cast<int64_t>(request.prompt.size());
  sequence.max_new_tokens = request.sampling.max_tokens;
  sequence.sampling = request.sampling;
  sequence.sampled.top.reserve(
      static_cast<size_t>(std::max<int64_t>(request.sampling.logprobs, 0)));
  sequence.stream = sample_stream(request.id_json, sample.number);
  if (!request.sampling.ignore_eos) sequence.end_tokens = loaded_.end_tokens;
  sequence.end_tokens.insert(sequence.end_tokens.end(), request.stop_tokens.begin(),
                             request.stop_tokens.end());
  samples_.emplace(sequence.request, std::move(sample));
  return sequence;
}

// Whether the newest token ends the sequence by itself; such a token is no text.
bool GenerateFeed::ends(const Sample& sample, const Sequence& sequence) const {
  const Request& request = sample.line->request;
  const int32_t token = sequence.tokens.back();
  if (contains(request.stop_tokens, token)) return true;
  return !request.sampling.ignore_eos && contains(loaded_.end_tokens, token);
}

// Before min_tokens a stop string is text like any other.
void GenerateFeed::add_text(Sample& sample, const Sequence& sequence, const std::string& piece) {
  if (sequence.generated() <= sample.line->request.sampling.min_tokens) {
    sample.text += piece;
  } else {
    sample.text += sample.stops.add(piece);
  }
}

bool GenerateFeed::advance(Sequence& sequence) {
  Sample& sample = samples_.at(sequence.request);
  if (!sequence.error.empty() || !sample.line->error.empty()) {
    fail(sample, sequence);
    return false;
  }
  ++new_tokens_;
  progress_.new_tokens(1);
  if (sequence.sampling.logprobs >= 0) sample.logprobs.push_back(sequence.sampled);
  const bool full = sequence.generated() >= sequence.max_new_tokens;
  if (ends(sample, sequence)) {
    finish(sample, sequence, "stop");
    return false;
  }
  if (sample.decoder) add_text(sample, sequence, sample.decoder->add(sequence.tokens.back()));
  if (!sample.stops.stopped() && !full) return true;
  finish(sample, sequence, sample.stops.stopped() ? "stop" : "length");
  return false;
}

void GenerateFeed::finish(Sample& sample, const Sequence& sequence, const std::string& reason) {
  Completion& completion = sample.line->completions[static_cast<size_t>(sample.number)];
  completion.has_text = sample.decoder != nullptr;
  if (sample.decoder && !sample.stops.stopped()) {
    add_text(sample, sequence, sample.decoder->finish());
    sample.text += sample.stops.finish();
  }
  completion.text = std::move(sample.text);
  completion.tokens.assign(sequence.tokens.begin() + sequence.prompt_tokens, sequence.tokens.end());
  completion.finish_reason = sample.stops.stopped() ? "stop" : reason;
  completion.prompt_tokens = sequence.prompt_tokens;
  completion.logprobs = std::move(sample.logprobs);
  end(sample, sequence);
}

// The other samples of the line end with their next token, or are not begun.
void GenerateFeed::fail(Sample& sample, const Sequence& sequence) {
  Line& line = *sample.line;
  if (line.error.empty()) {
    line.error = sequence.error + "; the weights or the prompt give no numbers";
    line.open -= line.request.samples - line.started;
    if (current_ == &line) current_ = nullptr;
  }
  end(sample, sequence);
}

void GenerateFeed::end(Sample& sample, const Sequence& sequence) {
  Line& line = *sample.line;
  samples_.erase(sequence.request);
  if (--line.open > 0) return;
  const Request& request = line.request;
  if (line.error.empty()) {
    output_.write(request, line.completions);
    ++finished_;
    progress_.finished_request();
  } else {
    write_error({request.line, request.id_json, "internal", line.error, request.format});
  }
  lines_.erase(request.line);
}

void GenerateFeed::tick(int64_t sweep, int64_t /*prompt_tokens*/, int64_t decode_rows) {
  progress_.tick(sweep, decode_rows);
}

}  // namespace transload::engine
