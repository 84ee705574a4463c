#include "engine/job/file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "base/error.h"

namespace transload::engine {

File::~File() {
  if (fd_ >= 0) ::close(fd_);
}

File open_file(const std::string& path, int flags) {
  const int fd = ::open(path.c_str(), flags | O_CLOEXEC, 0666);
  if (fd < 0) throw_errno(errno, "open " + path);
  return File(fd);
}

size_t read_at(const File& file, char* to, size_t bytes, int64_t offset) {
  size_t done = 0;
  while (done < bytes) {
    const ssize_t got =
        ::pread(file.fd(), to + done, bytes - done, offset + static_cast<int64_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw_errno(errno, "read of a job file");
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  return done;
}

int write_at(const File& file, std::string_view text, int64_t offset) {
  while (!text.empty()) {
    const ssize_t put = ::pwrite(file.fd(), text.data(), text.size(), offset);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return errno;
    text.remove_prefix(static_cast<size_t>(put));
    offset += put;
  }
  return 0;
}

std::string folder_of(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

int write_whole(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t put = ::write(fd, text.data(), text.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return errno;
    text.remove_prefix(static_cast<size_t>(put));
  }
  return 0;
}

}  // namespace transload::engine
