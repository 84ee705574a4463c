// A file descriptor that closes itself, and whole reads and writes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace transload::engine {

class File {
 public:
  File() = default;
  explicit File(int fd) : fd_(fd) {}
  File(File&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  File& operator=(File&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~File();

  int fd() const { return fd_; }

 private:
  int fd_ = -1;
};

// open(2) with O_CLOEXEC. Errors: kIo naming the path.
File open_file(const std::string& path, int flags);

// Reads up to `bytes` at an offset, fewer only at the end of the file. Errors: kIo.
size_t read_at(const File& file, char* to, size_t bytes, int64_t offset);

// Writes all of `text` at an offset. Returns 0, or errno when it could not.
int write_at(const File& file, std::string_view text, int64_t offset);

// The folder that holds the file of this path.
std::string folder_of(const std::string& path);

// Writes all of `text` to a descriptor. Returns 0, or errno when it could not.
int write_whole(int fd, std::string_view text);

}  // namespace transload::engine
