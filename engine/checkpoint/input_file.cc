#include "engine/checkpoint/input_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace transload::engine {

void ByteSource::read(int64_t offset, std::span<std::byte> out) const {
  const int64_t bytes = static_cast<int64_t>(out.size());
  if (offset < 0 || bytes > bytes_ || offset > bytes_ - bytes)
    throw Error(Kind::kBadInput,
                fmt::format("{}: truncated: bytes {} to {} are needed but the file has {} bytes; "
                            "copy or download it again",
                            name_, offset, offset + bytes, bytes_));
  read_at(offset, out);
}

InputFile::InputFile(const std::string& path)
    : ByteSource(path, 0), descriptor_(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  if (descriptor_ < 0) throw_errno(errno, path + ": cannot be opened");
  struct stat status {};
  const bool known = fstat(descriptor_, &status) == 0;
  const int error_number = errno;
  if (known && S_ISREG(status.st_mode)) {
    set_bytes(status.st_size);
    // Headers are read in small pieces: what the system read ahead would be weights.
    posix_fadvise(descriptor_, 0, 0, POSIX_FADV_RANDOM);
    return;
  }
  close(descriptor_);
  if (!known) throw_errno(error_number, path + ": fstat");
  throw Error(Kind::kBadInput, path + ": is no regular file; pass a file of a checkpoint");
}

InputFile::~InputFile() { close(descriptor_); }

void InputFile::read_at(int64_t offset, std::span<std::byte> out) const {
  while (!out.empty()) {
    const ssize_t got = pread(descriptor_, out.data(), out.size(), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw_errno(errno, fmt::format("{}: read of {} bytes", name(), out.size()));
    if (got == 0)
      throw Error(Kind::kIo,
                  fmt::format("{}: ended at byte {} while it was read; do not change it meanwhile",
                              name(), offset));
    out = out.subspan(static_cast<size_t>(got));
    offset += got;
  }
}

void MemorySource::read_at(int64_t offset, std::span<std::byte> out) const {
  const size_t begin = static_cast<size_t>(offset);
  if (begin > head_.size() || out.size() > head_.size() - begin)
    throw Error(Kind::kBadInput, fmt::format("{}: truncated: the header goes on past byte {}",
                                             name(), head_.size()));
  if (!out.empty()) std::memcpy(out.data(), head_.data() + begin, out.size());
}

std::string read_text(const std::string& path, int64_t limit_bytes) {
  const InputFile file(path);
  if (file.bytes() > limit_bytes)
    throw Error(Kind::kBadInput, fmt::format("{}: has {} bytes where at most {} are expected", path,
                                             file.bytes(), limit_bytes));
  std::string text(static_cast<size_t>(file.bytes()), '\0');
  file.read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

}  // namespace transload::engine
