#include "engine/job/line_index.h"

#include <xxhash.h>

#include <algorithm>

#include "base/error.h"

namespace transload::engine {

uint64_t id_hash(const std::string& id_json) { return XXH3_64bits(id_json.data(), id_json.size()); }

uint64_t sample_stream(const std::string& id_json, int64_t sample) {
  return XXH3_64bits_withSeed(id_json.data(), id_json.size(), static_cast<uint64_t>(sample));
}

int64_t job_bytes(const JobMemory& job, int64_t row_slots) {
  constexpr int64_t kCopies = 4;  // of a text that is read or written: a buffer grows, parts of it
  const auto kept = [&](int64_t bytes) { return SpilledBytes::memory_bytes(bytes); };
  return kept(32 * job.lines) + kept(6 * job.lines + 4) + kept(job.lines / 8 + 8) +
         kCopies * (job.longest_line + job.longest_record) + row_slots * job.slot;
}

size_t LineIndex::first_slot(const IdSet& ids, uint64_t key) {
  __extension__ using Wide = unsigned __int128;
  return static_cast<size_t>((Wide{key} * ids.size()) >> 64);
}

size_t LineIndex::find(const IdSet& ids, const std::string& id_json) {
  const uint64_t key = id_hash(id_json) & ~uint64_t{1};
  for (size_t at = first_slot(ids, key);; at = (at + 1) % ids.size()) {
    if (ids[at] == kFree) return at;
    const JobLine line = lines_[ids[at] - 1];
    // Equal hashes are no proof.
    if (line.id_key() == key && read_id(line) == id_json) return at;
  }
}

std::string_view LineIndex::text(const JobLine& line) {
  source_.read(line.offset, line.bytes(), text_);
  return text_;
}

void LineIndex::throw_changed(const JobLine& line) const {
  throw Error(Kind::kBadInput, source_.path() + ": line " + std::to_string(line.number) +
                                   " changed while the job runs; start again with a file that "
                                   "nobody writes to");
}

std::string LineIndex::read_id(const JobLine& line) {
  const char* const name = format_ == JobFormat::kBatch ? "custom_id" : "id";
  if (!id_reader_.parse_object(text(line)) || !id_reader_.read_id(name)) throw_changed(line);
  return id_reader_.id_json();
}

void LineIndex::add(const LineSource::RawLine& raw, const Facts& facts) {
  JobLine line;
  line.offset = raw.offset;
  line.set_bytes_and_samples(static_cast<int64_t>(raw.text.size()), facts.samples);
  line.prompt_tokens = facts.prompt_tokens;
  line.max_tokens = facts.max_tokens;
  line.number = static_cast<uint32_t>(raw.number);
  line.id_hash_and_state = id_hash(facts.id_json) & ~uint64_t{1};
  lines_.push_back(line);
  memory_.lines = static_cast<int64_t>(lines_.size());
  memory_.longest_record = std::max(memory_.longest_record, facts.record_bytes);
  memory_.slot = std::max(memory_.slot, facts.slot_bytes);
}

void LineIndex::build(const Reader& read, const std::function<void(const LineError&)>& on_error,
                      const ReadProgress& progress) {
  lines_.resize(0);
  memory_ = {};
  lines_.reserve(static_cast<size_t>(source_.line_count()));
  IdSet ids(directory_);
  ids.resize(id_slots(source_.line_count()));
  source_.rewind();
  for (LineSource::RawLine raw; source_.next(raw);) {
    progress(source_.position_bytes(), source_.size_bytes());
    memory_.longest_line =
        std::max(memory_.longest_line,
                 raw.too_long ? kLineLimitBytes : static_cast<int64_t>(raw.text.size()));
    if (raw.too_long) {
      on_error({raw.number, "null", "line_too_long",
                "the line is longer than " + std::to_string(kLineLimitBytes) + " bytes; shorten it",
                format_});
      continue;
    }
    const std::variant<Facts, LineError> result = read(raw.text, raw.number);
    if (const auto* error = std::get_if<LineError>(&result)) {
      on_error(*error);
      continue;
    }
    const auto& facts = std::get<Facts>(result);
    const size_t slot = find(ids, facts.id_json);
    if (ids[slot] != kFree) {
      on_error({raw.number, facts.id_json, "duplicate_id",
                "line " + std::to_string(lines_[ids[slot] - 1].number) +
                    " has the same id; give each line an id of its own",
                format_});
      continue;
    }
    add(raw, facts);
    ids.set(slot, static_cast<uint32_t>(lines_.size()));
  }
}

int64_t LineIndex::mark_finished(const JobOutput& output) {
  IdSet ids(directory_);
  ids.resize(id_slots(static_cast<int64_t>(lines_.size())));
  for (uint32_t i = 0; i < lines_.size(); ++i) {
    // All differ: the first free slot after the hash's place is the right one.
    size_t at = first_slot(ids, lines_[i].id_key());
    while (ids[at] != kFree) at = (at + 1) % ids.size();
    ids.set(at, i + 1);
  }
  const auto finish = [&](size_t place) {
    JobLine line = lines_[place];
    line.id_hash_and_state |= 1;
    lines_.set(place, line);
  };
  output.for_each_finished([&](const std::string& id_json) {
    const uint32_t place = ids[find(ids, id_json)];
    if (place == kFree || lines_[place - 1].finished()) {
      throw Error(Kind::kBadInput,
                  "the output has a record for id " + id_json +
                      (place == kFree ? " that is not in the input" : " twice") +
                      "; choose another --output, or remove it and its .state to start anew");
    }
    finish(place - 1);
  });
  int64_t errors = 0;
  for (size_t i = 0; i < lines_.size(); ++i) {
    if (!output.error_written(lines_[i].number)) continue;
    finish(i);
    ++errors;
  }
  return errors;
}

int64_t LineIndex::pending() const {
  int64_t count = 0;
  for (const JobLine& line : lines_) count += line.finished() ? 0 : 1;
  return count;
}

}  // namespace transload::engine
