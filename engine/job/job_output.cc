#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <limits>
#include <optional>

#include "base/error.h"
#include "engine/job/field_reader.h"
#include "engine/job/job.h"
#include "engine/job/line_source.h"
#include "engine/job/records.h"
#include "engine/job/run_state.h"

namespace transload::engine {
namespace {

constexpr int64_t kRecordLimitBytes = int64_t{1} << 31;

// What a line of an output file is; empty where it is none of ours.
struct Record {
  std::string id_json;
  int64_t error_line = 0;  // 0: a completion or score
};

// A record of a batch file: whether it is an error tells its status, the line its "id".
std::optional<Record> read_batch_record(FieldReader& fields) {
  constexpr std::array<std::string_view, 4> kNames{"id", "custom_id", "response", "error"};
  int64_t line = 0, status = 0;
  fields.for_each_field(kNames, [&](size_t field, FieldReader::Element value) {
    if (field == 0) line = batch_line(fields.string("id", value));
    if (field == 2 && value["status_code"].get(status) != simdjson::SUCCESS) status = 0;
  });
  if (fields.failed() || status == 0 || line < 1 || line > std::numeric_limits<uint32_t>::max()) {
    return std::nullopt;
  }
  if (status != 200) return Record{"null", line};
  if (!fields.read_id("custom_id")) return std::nullopt;
  return Record{fields.id_json(), 0};
}

std::optional<Record> read_record(FieldReader& fields, std::string_view text) {
  constexpr std::array<std::string_view, 13> kNames{
      "id",    "text",        "token_ids", "finish_reason", "usage",          "logprobs", "line",
      "error", "logprob_sum", "count",     "is_greedy",     "token_logprobs", "choices"};
  if (!fields.parse_object(text)) return std::nullopt;
  if (fields.has_field("custom_id")) return read_batch_record(fields);
  const bool is_error = fields.has_field("error") && fields.has_field("line");
  const bool is_result = fields.has_field("finish_reason") || fields.has_field("choices") ||
                         fields.has_field("logprob_sum");
  // The id of an error record may be null.
  if (is_error == is_result || (is_result && !fields.read_id())) return std::nullopt;
  Record record{fields.id_json(), 0};
  fields.for_each_field(kNames, [&](size_t field, FieldReader::Element value) {
    constexpr size_t kLine = 6;
    constexpr FieldReader::Range kLines{1, std::numeric_limits<uint32_t>::max(), ""};
    if (field == kLine) record.error_line = fields.integer("line", value, kLines);
  });
  if (fields.failed()) return std::nullopt;
  return record;
}

// Bytes up to and with the last newline.
int64_t whole_lines_bytes(const File& file, int64_t size_bytes) {
  std::string chunk(64 * 1024, '\0');
  for (int64_t end = size_bytes; end > 0;) {
    const int64_t begin = std::max(int64_t{0}, end - static_cast<int64_t>(chunk.size()));
    const size_t got = read_at(file, chunk.data(), static_cast<size_t>(end - begin), begin);
    const size_t newline = std::string_view(chunk.data(), got).rfind('\n');
    if (newline != std::string_view::npos) return begin + static_cast<int64_t>(newline) + 1;
    end = begin;
  }
  return 0;
}

}  // namespace

struct JobOutput::Impl {
  explicit Impl(const std::string& output) : path(output), error_lines(folder_of(output)) {}

  std::string path;
  File file;  // none for standard output
  bool resumable = false;
  bool is_new = false;         // open() made the file
  bool has_new_state = false;  // and its state
  bool is_answered = false;    // has a completion or a score
  int64_t resumed_bytes = 0;   // what open() found, after the repair
  int64_t written_bytes = 0;
  SpilledArray<uint64_t> error_lines;  // a bit a line
  std::string line;                    // reused

  int fd() const { return file.fd() >= 0 ? file.fd() : STDOUT_FILENO; }
  bool open_file_or_pipe();
  void resume(const RunIdentity& identity);
  void for_each_record(const std::function<void(const Record&)>& visit) const;
  void note_error(int64_t line_number);
  bool error_noted(int64_t line_number) const;
  void put();
};

// False where there is nothing to resume: standard output, a pipe or a device.
bool JobOutput::Impl::open_file_or_pipe() {
  if (path == "-") return false;
  is_new = ::access(path.c_str(), F_OK) != 0;
  file = open_file(path, O_RDWR | O_CREAT | O_APPEND);
  struct stat facts = {};
  if (::fstat(file.fd(), &facts) != 0) throw_errno(errno, "stat " + path);
  if (!S_ISREG(facts.st_mode)) return false;
  if (::flock(file.fd(), LOCK_EX | LOCK_NB) != 0) {
    throw Error(Kind::kUsage,
                path + ": another run is writing it; wait for it or choose another --output");
  }
  resumed_bytes = facts.st_size;
  return true;
}

void JobOutput::Impl::resume(const RunIdentity& identity) {
  const std::string state_path = path + ".state";
  const std::optional<RunIdentity> before = read_state(state_path);
  if (resumed_bytes > 0 && !before) {
    throw Error(Kind::kUsage, path + ": is not empty and has no " + state_path +
                                  ", so it would be overwritten; choose another --output or "
                                  "remove it");
  }
  if (resumed_bytes > 0) check_same_run(path, *before, identity);
  const int64_t whole = whole_lines_bytes(file, resumed_bytes);
  if (whole < resumed_bytes && ::ftruncate(file.fd(), whole) != 0) {
    throw_errno(errno, "truncate " + path);
  }
  resumed_bytes = whole;
  for_each_record([&](const Record& record) {
    if (record.error_line > 0) {
      note_error(record.error_line);
    } else {
      is_answered = true;
    }
  });
  if (before && resumed_bytes > 0) return;
  has_new_state = !before;
  write_state(state_path, identity);
}

void JobOutput::Impl::for_each_record(const std::function<void(const Record&)>& visit) const {
  if (resumed_bytes == 0) return;
  LineSource source(open_file(path, O_RDONLY), path, resumed_bytes, kRecordLimitBytes);
  FieldReader fields;
  for (LineSource::RawLine raw; source.next(raw);) {
    const std::optional<Record> record = read_record(fields, raw.text);
    if (!record) {
      throw Error(Kind::kBadInput,
                  path + ": line " + std::to_string(raw.number) +
                      " is not a record of this program; choose another --output, or remove it "
                      "and its .state to start anew");
    }
    visit(*record);
  }
}

void JobOutput::Impl::note_error(int64_t line_number) {
  const auto word = static_cast<size_t>(line_number / 64);
  if (word >= error_lines.size()) error_lines.resize(word + 1);
  error_lines.set(word, error_lines[word] | uint64_t{1} << (line_number % 64));
}

bool JobOutput::Impl::error_noted(int64_t line_number) const {
  const auto word = static_cast<size_t>(line_number / 64);
  return word < error_lines.size() && (error_lines[word] >> (line_number % 64) & 1) != 0;
}

// Writes `line` whole, or nothing of it.
void JobOutput::Impl::put() {
  line += '\n';
  const int failed = write_whole(fd(), line);
  if (failed != 0) {
    if (resumable && ::ftruncate(fd(), resumed_bytes + written_bytes) != 0) {
      throw_errno(errno, "truncate " + path + " after a failed write");
    }
    throw_errno(failed, "write " + path + " (make room and run the same command to resume)");
  }
  written_bytes += static_cast<int64_t>(line.size());
}

JobOutput JobOutput::open(const std::string& path, const RunIdentity& identity) {
  JobOutput output;
  output.impl_ = std::make_shared<Impl>(path);
  output.impl_->resumable = output.impl_->open_file_or_pipe();
  if (output.impl_->resumable) output.impl_->resume(identity);
  return output;
}

void JobOutput::for_each_finished(
    const std::function<void(const std::string& id_json)>& visit) const {
  impl_->for_each_record([&](const Record& record) {
    if (record.error_line == 0) visit(record.id_json);
  });
}

bool JobOutput::error_written(int64_t line) const { return impl_->error_noted(line); }

bool JobOutput::has_answers() const { return impl_->is_answered; }

void JobOutput::write(const Request& request, std::span<const Completion> samples) {
  impl_->line.clear();
  append_record(impl_->line, request, samples);
  impl_->put();
  impl_->is_answered = true;
}

void JobOutput::write(const std::string& id_json, const Score& score) {
  impl_->line.clear();
  append_record(impl_->line, id_json, score);
  impl_->put();
  impl_->is_answered = true;
}

void JobOutput::write(const LineError& error) {
  if (impl_->error_noted(error.line)) return;
  impl_->line.clear();
  append_record(impl_->line, error);
  impl_->put();
  impl_->note_error(error.line);
}

void JobOutput::flush() {
  if (impl_->resumable && ::fsync(impl_->fd()) != 0) throw_errno(errno, "fsync " + impl_->path);
}

void JobOutput::take_back() {
  if (!impl_->resumable || impl_->is_answered || !impl_->has_new_state) return;
  // The state goes last: a file with lines and without a state would be refused.
  if (impl_->is_new ? ::unlink(impl_->path.c_str()) != 0
                    : ::ftruncate(impl_->fd(), impl_->resumed_bytes) != 0) {
    return;
  }
  ::unlink((impl_->path + ".state").c_str());
}

int64_t JobOutput::bytes_written() const { return impl_->written_bytes; }

}  // namespace transload::engine
