#include "engine/job/spilled_array.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "base/error.h"

namespace transload::engine {
namespace {

File open_unnamed(const std::string& directory) {
  const int fd = ::open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (fd >= 0) return File(fd);
  std::string path = directory + "/transload.lines.XXXXXX";  // not every file system has O_TMPFILE
  File file(::mkostemp(path.data(), O_CLOEXEC));
  if (file.fd() < 0) throw_errno(errno, "create a file for the lines of the job in " + directory);
  ::unlink(path.c_str());
  return file;
}

}  // namespace

void SpilledBytes::resize(int64_t bytes) {
  if (file_.fd() >= 0) return;  // behind its end are zeros
  if (bytes > kKeptBytes) {
    move_to_file();
  } else if (bytes > static_cast<int64_t>(memory_.size())) {
    memory_.resize(static_cast<size_t>(bytes));
  }
}

void SpilledBytes::move_to_file() {
  constexpr auto kKept = static_cast<size_t>(kKeptBytes);
  File file = open_unnamed(directory_);
  memory_.resize(kKept);
  pages_.resize(static_cast<size_t>(kPlaces));
  for (size_t i = 0; i < pages_.size(); ++i) pages_[i] = static_cast<int64_t>(i);
  changed_.assign(pages_.size(), true);
  file_ = std::move(file);
}

std::byte* SpilledBytes::page_at(int64_t offset) const {
  const int64_t page = offset / kPageBytes;
  const auto place = static_cast<size_t>(page % kPlaces);
  std::byte* const bytes = memory_.data() + place * static_cast<size_t>(kPageBytes);
  if (pages_[place] == page) return bytes;
  put(place);
  pages_[place] = -1;
  const size_t got = read_at(file_, reinterpret_cast<char*>(bytes), static_cast<size_t>(kPageBytes),
                             page * kPageBytes);
  std::memset(bytes + got, 0, static_cast<size_t>(kPageBytes) - got);
  pages_[place] = page;
  return bytes;
}

void SpilledBytes::put(size_t place) const {
  if (!changed_[place]) return;
  const std::byte* const bytes = memory_.data() + place * static_cast<size_t>(kPageBytes);
  const int failed = write_at(file_, {reinterpret_cast<const char*>(bytes), kPageBytes},
                              pages_[place] * kPageBytes);
  if (failed != 0) throw_errno(failed, "keep the lines of the job in a file in " + directory_);
  changed_[place] = false;
}

void SpilledBytes::write(int64_t offset, const void* from, size_t bytes) {
  if (file_.fd() < 0) {
    std::memcpy(memory_.data() + offset, from, bytes);
    return;
  }
  std::memcpy(page_at(offset) + offset % kPageBytes, from, bytes);
  changed_[static_cast<size_t>(offset / kPageBytes % kPlaces)] = true;
}

}  // namespace transload::engine
