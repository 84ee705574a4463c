// The lines of a file, in bounded chunks, and single lines again by their offset.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/job/file.h"

namespace transload::engine {

// Two passes: open() hashes and counts, next() gives the lines. Holds a 64 KiB chunk and, for a
// line that crosses chunks, the line. Threads: single-threaded.
class LineSource {
 public:
  struct RawLine {
    int64_t number = 0;  // 1-based, blank lines counted
    int64_t offset = 0;
    std::string_view text;  // without BOM and line end; valid until the next call
    bool too_long = false;  // text is empty then
  };

  // "-" is standard input; it, and what cannot seek, is copied to spool_path first (unlinked at
  // once). Errors: kIo; kUsage for a directory or a spool file that is already there.
  static LineSource open(const std::string& path, const std::string& spool_path,
                         const std::function<void(int64_t, int64_t)>& progress);
  // A file that is open already, of `size_bytes`, not hashed.
  LineSource(File file, std::string path, int64_t size_bytes, int64_t limit_bytes);

  // The next line that is not blank; false at the end. Errors: kIo, kBadInput when the file got
  // shorter.
  bool next(RawLine& line);
  void rewind();
  // The bytes of a line again. Errors: kIo, kBadInput when the file got shorter.
  void read(int64_t offset, int64_t bytes, std::string& text) const;

  const std::string& path() const { return path_; }
  int64_t size_bytes() const { return size_bytes_; }
  int64_t position_bytes() const { return chunk_offset_ + static_cast<int64_t>(begin_); }
  int64_t line_count() const { return line_count_; }  // blank ones too; an upper bound
  uint64_t content_hash() const { return content_hash_; }

 private:
  bool fill();
  bool next_with_blanks(RawLine& line);
  void scan(const std::function<void(int64_t, int64_t)>& progress);

  File file_;
  std::string path_;
  int64_t size_bytes_ = 0;
  int64_t limit_bytes_ = 0;
  int64_t line_count_ = 0;
  uint64_t content_hash_ = 0;

  std::vector<char> chunk_;
  size_t begin_ = 0;  // of what is not yet given out, in chunk_
  size_t end_ = 0;
  int64_t chunk_offset_ = 0;
  int64_t number_ = 0;
  std::string carry_;
};

}  // namespace transload::engine
