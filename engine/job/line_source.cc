#include "engine/job/line_source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <memory>

#include "base/error.h"
#include "engine/job/line.h"

namespace transload::engine {
namespace {

constexpr size_t kChunkBytes = 64 * 1024;
constexpr size_t kKeptBytes = 1024 * 1024;  // of a buffer between lines
constexpr std::string_view kBom = "\xEF\xBB\xBF";

[[noreturn]] void throw_changed(const std::string& path) {
  throw Error(Kind::kBadInput,
              path + ": got shorter while it was read; leave it alone while the job runs");
}

bool is_blank(std::string_view text) {
  return text.find_first_not_of(" \t\r") == std::string_view::npos;
}

// Copies what `from` still gives into a new file without a name.
File spool(int from, const std::string& path, const std::string& spool_path) {
  const int fd = ::open(spool_path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0 && errno == EEXIST) {
    throw Error(Kind::kUsage, spool_path + ": is there already and would hold the copy of " + path +
                                  "; remove it or choose another --output");
  }
  if (fd < 0) throw_errno(errno, "create " + spool_path);
  File file(fd);
  ::unlink(spool_path.c_str());
  std::vector<char> chunk(kChunkBytes);
  for (;;) {
    const ssize_t got = ::read(from, chunk.data(), chunk.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw_errno(errno, "read " + path);
    if (got == 0) return file;
    const int failed = write_whole(fd, {chunk.data(), static_cast<size_t>(got)});
    if (failed != 0) throw_errno(failed, "write " + spool_path);
  }
}

struct stat stat_of(const File& file, const std::string& path) {
  struct stat facts = {};
  if (::fstat(file.fd(), &facts) != 0) throw_errno(errno, "stat " + path);
  return facts;
}

}  // namespace

LineSource LineSource::open(const std::string& path, const std::string& spool_path,
                            const std::function<void(int64_t, int64_t)>& progress) {
  const bool standard = path == "-";
  const std::string name = standard ? "standard input" : path;
  File file;
  if (standard) {
    file = spool(STDIN_FILENO, name, spool_path);
  } else {
    file = open_file(path, O_RDONLY);
    const mode_t mode = stat_of(file, name).st_mode;
    if (S_ISDIR(mode)) {
      throw Error(Kind::kUsage, path + ": is a directory; give a file of JSON lines");
    }
    if (!S_ISREG(mode)) file = spool(file.fd(), name, spool_path);
  }
  const int64_t size_bytes = stat_of(file, name).st_size;
  LineSource source(std::move(file), name, size_bytes, kLineLimitBytes);
  source.scan(progress);
  return source;
}

LineSource::LineSource(File file, std::string path, int64_t size_bytes, int64_t limit_bytes)
    : file_(std::move(file)),
      path_(std::move(path)),
      size_bytes_(size_bytes),
      limit_bytes_(limit_bytes),
      chunk_(kChunkBytes) {}

void LineSource::scan(const std::function<void(int64_t, int64_t)>& progress) {
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(),
                                                                       &XXH3_freeState);
  XXH3_64bits_reset(state.get());
  while (fill()) {
    XXH3_64bits_update(state.get(), chunk_.data(), end_);
    const auto end = chunk_.begin() + static_cast<std::ptrdiff_t>(end_);
    line_count_ += std::count(chunk_.begin(), end, '\n');
    begin_ = end_;
    progress(position_bytes(), size_bytes_);
  }
  ++line_count_;  // one without a final newline
  if (line_count_ > std::numeric_limits<uint32_t>::max()) {
    throw Error(Kind::kBadInput, path_ + ": more than 4294967295 lines; split it");
  }
  content_hash_ = XXH3_64bits_digest(state.get());
  rewind();
}

void LineSource::rewind() {
  begin_ = end_ = 0;
  chunk_offset_ = 0;
  number_ = 0;
}

// Replaces the chunk by the next one; false at the end.
bool LineSource::fill() {
  chunk_offset_ += static_cast<int64_t>(end_);
  begin_ = end_ = 0;
  const auto wanted =
      static_cast<size_t>(std::min(static_cast<int64_t>(kChunkBytes), size_bytes_ - chunk_offset_));
  if (wanted == 0) return false;
  end_ = read_at(file_, chunk_.data(), wanted, chunk_offset_);
  if (end_ < wanted) throw_changed(path_);
  return true;
}

bool LineSource::next_with_blanks(RawLine& line) {
  if (carry_.capacity() > kKeptBytes) std::string().swap(carry_);
  carry_.clear();
  line = {};
  line.offset = position_bytes();
  bool ended = false;
  bool whole = false;  // lies in one chunk: no copy
  while (!ended && (begin_ < end_ || fill())) {
    const char* const start = chunk_.data() + begin_;
    const auto* const newline = static_cast<const char*>(std::memchr(start, '\n', end_ - begin_));
    ended = newline != nullptr;
    const size_t bytes = ended ? static_cast<size_t>(newline - start) : end_ - begin_;
    whole = ended && line.offset == position_bytes();
    line.text = {start, bytes};
    begin_ += bytes + (ended ? 1 : 0);
    if (whole) break;
    line.too_long = line.too_long ||
                    static_cast<int64_t>(carry_.size() + bytes) > limit_bytes_ + 8;  // BOM, CRLF
    if (!line.too_long) carry_.append(line.text);
  }
  if (!whole) line.text = line.too_long ? std::string_view() : std::string_view(carry_);
  ++number_;
  line.number = number_;
  return position_bytes() > line.offset;
}

bool LineSource::next(RawLine& line) {
  while (next_with_blanks(line)) {
    if (line.offset == 0 && line.text.starts_with(kBom)) {
      line.text.remove_prefix(kBom.size());
      line.offset += static_cast<int64_t>(kBom.size());
    }
    if (line.text.ends_with('\r')) line.text.remove_suffix(1);
    if (static_cast<int64_t>(line.text.size()) > limit_bytes_) {
      line.too_long = true;
      line.text = {};
    }
    if (line.too_long || !is_blank(line.text)) return true;
  }
  return false;
}

void LineSource::read(int64_t offset, int64_t bytes, std::string& text) const {
  text.resize(static_cast<size_t>(bytes));
  if (read_at(file_, text.data(), text.size(), offset) < text.size()) throw_changed(path_);
}

}  // namespace transload::engine
