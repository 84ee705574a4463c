// The good lines of an input file: what JobInput and ScoreInput have in common.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <variant>

#include "engine/job/field_reader.h"
#include "engine/job/job.h"
#include "engine/job/line_source.h"

namespace transload::engine {

// Keeps 32 bytes a line, and 6 more while it looks for ids. Threads: single-threaded.
class LineIndex {
 public:
  struct Facts {
    std::string id_json;
    int32_t prompt_tokens = 0;
    int32_t max_tokens = 0;
    int32_t samples = 1;
    int64_t record_bytes = 0;  // see JobMemory
    int64_t slot_bytes = 0;
  };
  using Reader = std::function<std::variant<Facts, LineError>(std::string_view, int64_t line)>;

  // What does not stay in memory goes to files without a name in `directory`.
  LineIndex(LineSource source, std::string directory, JobFormat format = JobFormat::kLines)
      : source_(std::move(source)),
        directory_(std::move(directory)),
        format_(format),
        lines_(directory_) {}

  // Reads every line; adds "duplicate_id" to the errors of `read`.
  void build(const Reader& read, const std::function<void(const LineError&)>& on_error,
             const ReadProgress& progress);
  int64_t mark_finished(const JobOutput& output);
  const JobLines& lines() const { return lines_; }
  int64_t pending() const;
  const JobMemory& memory() const { return memory_; }
  // The text of a line again. Valid until the next call.
  std::string_view text(const JobLine& line);
  [[noreturn]] void throw_changed(const JobLine& line) const;
  const LineSource& source() const { return source_; }
  JobFormat format() const { return format_; }

 private:
  // Open addressing over places in lines_, from 1: 4 bytes for each 2/3 line.
  using IdSet = SpilledArray<uint32_t>;
  static constexpr uint32_t kFree = 0;
  static size_t id_slots(int64_t lines) { return static_cast<size_t>(lines + lines / 2 + 1); }
  static size_t first_slot(const IdSet& ids, uint64_t key);
  // The slot of the line with this id, or the free one where it belongs.
  size_t find(const IdSet& ids, const std::string& id_json);
  std::string read_id(const JobLine& line);
  void add(const LineSource::RawLine& raw, const Facts& facts);

  LineSource source_;
  std::string directory_;
  JobFormat format_;
  JobLines lines_;
  JobMemory memory_;
  FieldReader id_reader_;
  std::string text_;
};

}  // namespace transload::engine
