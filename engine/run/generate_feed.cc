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

std::optional<Sequence> GenerateFeed::next() {
  signals_.hold();  // from now on there is work to finish
  const std::span<const JobLine> lines = input_.lines();
  while (next_line_ < lines.size() && lines[next_line_].finished()) ++next_line_;
  if (next_line_ == lines.size()) return std::nullopt;
  const JobLine& line = lines[next_line_++];
  Active active{.request = input_.read(line),
                .decoder = nullptr,
                .stops = StopMatcher({}),
                .text = {},
                .logprobs = {}};
  Request& request = active.request;
  active.stops = StopMatcher(request.stop);
  if (loaded_.tokenizer)
    active.decoder = std::make_unique<IncrementalDecoder>(*loaded_.tokenizer,
                                                          IncrementalDecoder::Place::kContinuation);
  Sequence sequence;
  sequence.request = line.number;
  sequence.tokens.reserve(request.prompt.size() + static_cast<size_t>(request.sampling.max_tokens));
  sequence.tokens = request.prompt;
  sequence.prompt_tokens = static_cast<int64_t>(request.prompt.size());
  sequence.max_new_tokens = request.sampling.max_tokens;
  sequence.sampling = request.sampling;
  sequence.sampled.top.reserve(
      static_cast<size_t>(std::max<int64_t>(request.sampling.logprobs, 0)));
  sequence.stream = request.stream;
  if (!request.sampling.ignore_eos) sequence.end_tokens = loaded_.end_tokens;
  sequence.end_tokens.insert(sequence.end_tokens.end(), request.stop_tokens.begin(),
                             request.stop_tokens.end());
  active_.emplace(sequence.request, std::move(active));
  return sequence;
}

// Whether the newest token ends the sequence by itself; such a token is no text.
bool GenerateFeed::ends(const Active& active, const Sequence& sequence) const {
  const int32_t token = sequence.tokens.back();
  if (contains(active.request.stop_tokens, token)) return true;
  return !active.request.sampling.ignore_eos && contains(loaded_.end_tokens, token);
}

// Before min_tokens a stop string is text like any other.
void GenerateFeed::add_text(Active& active, const Sequence& sequence, const std::string& piece) {
  if (sequence.generated() <= active.request.sampling.min_tokens) {
    active.text += piece;
  } else {
    active.text += active.stops.add(piece);
  }
}

bool GenerateFeed::advance(Sequence& sequence) {
  Active& active = active_.at(sequence.request);
  if (!sequence.error.empty()) {
    output_.write(LineError{active.request.line, active.request.id_json, "internal",
                            sequence.error + "; the weights or the prompt give no numbers"});
    ++failed_;
    progress_.finished_request();
    active_.erase(sequence.request);
    return false;
  }
  ++new_tokens_;
  progress_.new_tokens(1);
  if (active.request.sampling.logprobs >= 0) active.logprobs.push_back(sequence.sampled);
  const bool full = sequence.generated() >= sequence.max_new_tokens;
  if (ends(active, sequence)) {
    finish(active, sequence, "stop");
    return false;
  }
  if (active.decoder) add_text(active, sequence, active.decoder->add(sequence.tokens.back()));
  if (!active.stops.stopped() && !full) return true;
  finish(active, sequence, active.stops.stopped() ? "stop" : "length");
  return false;
}

void GenerateFeed::finish(Active& active, const Sequence& sequence, const std::string& reason) {
  Completion completion;
  completion.has_text = active.decoder != nullptr;
  if (active.decoder && !active.stops.stopped()) {
    add_text(active, sequence, active.decoder->finish());
    active.text += active.stops.finish();
  }
  completion.text = std::move(active.text);
  completion.tokens.assign(sequence.tokens.begin() + sequence.prompt_tokens, sequence.tokens.end());
  completion.finish_reason = active.stops.stopped() ? "stop" : reason;
  completion.prompt_tokens = sequence.prompt_tokens;
  completion.logprobs = std::move(active.logprobs);
  output_.write(active.request, completion);
  ++finished_;
  progress_.finished_request();
  active_.erase(sequence.request);
}

void GenerateFeed::tick(int64_t sweep, int64_t /*prompt_tokens*/, int64_t decode_rows) {
  progress_.tick(sweep, decode_rows);
}

}  // namespace transload::engine
