#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/units.h"
#include "offload/disk.h"

namespace transload::offload {
namespace {

struct alignas(kPageBytes) Page {
  std::byte bytes[kPageBytes] = {};
};

// Turns O_DIRECT on if the file system takes it and `try_page` works under it.
template <class TryPage>
bool turn_on_direct(int descriptor, TryPage try_page) {
  const int flags = fcntl(descriptor, F_GETFL);
  if (flags < 0 || fcntl(descriptor, F_SETFL, flags | O_DIRECT) < 0) return false;
  if (try_page()) return true;
  fcntl(descriptor, F_SETFL, flags);
  return false;
}

[[noreturn]] void throw_spill(const std::string& directory, const std::string& cause) {
  throw Error(Kind::kIo,
              fmt::format("disk: cannot keep spill files in '{}': {}", directory, cause));
}

void make_directory(const std::string& directory) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  struct stat status {};
  if (stat(directory.c_str(), &status) == 0) {
    if (S_ISDIR(status.st_mode)) return;
    throw_spill(directory, "it is not a directory; pass a directory as --disk-dir");
  }
  const int cause = error ? error.value() : errno;
  throw_spill(directory, fmt::format("it cannot be made ({}); make it or pass another --disk-dir",
                                     std::strerror(cause)));
}

// A file without a name in `directory`; -1 and errno.
int open_unlinked(const std::string& directory) {
  const int descriptor = open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (descriptor >= 0) return descriptor;
  if (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL && errno != ENOENT) return -1;
  std::string path = directory + "/transload-spill-XXXXXX";
  const int named = mkostemp(path.data(), O_CLOEXEC);
  if (named >= 0) unlink(path.c_str());
  return named;
}

[[noreturn]] void throw_no_space(const std::string& directory, int64_t bytes, int64_t free_bytes) {
  throw_spill(directory, fmt::format("{} needed, {} free; free space or pass a --disk-dir on a "
                                     "larger disk",
                                     format_bytes(bytes), format_bytes(free_bytes)));
}

int64_t free_bytes_of(int descriptor) {
  struct statvfs status {};
  if (fstatvfs(descriptor, &status) != 0) return 0;
  return static_cast<int64_t>(status.f_bavail * status.f_frsize);
}

// Takes `bytes` of the disk now.
void allocate(int descriptor, const std::string& directory, int64_t bytes) {
  if (bytes == 0) return;
  const int64_t free_bytes = free_bytes_of(descriptor);
  if (free_bytes < bytes) throw_no_space(directory, bytes, free_bytes);
  int result = 0;
  do {
    result = fallocate(descriptor, 0, 0, bytes);
  } while (result != 0 && errno == EINTR);
  // A file system that cannot allocate ahead: its free space, checked above, has to do.
  if (result != 0 && errno == EOPNOTSUPP) result = ftruncate(descriptor, bytes);
  if (result == 0) return;
  if (errno == ENOSPC) throw_no_space(directory, bytes, free_bytes_of(descriptor));
  throw_spill(directory, fmt::format("{} cannot be allocated ({}); raise the limit (ulimit -f) or "
                                     "pass another --disk-dir",
                                     format_bytes(bytes), std::strerror(errno)));
}

}  // namespace

File::~File() {
  if (descriptor_ >= 0) close(descriptor_);
}

File::File(File&& other) noexcept { *this = std::move(other); }

File& File::operator=(File&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(bytes_, other.bytes_);
  std::swap(direct_, other.direct_);
  std::swap(changed_, other.changed_);
  std::swap(name_, other.name_);
  return *this;
}

File File::open_read(const std::string& path, bool direct) {
  File file;
  file.name_ = path;
  file.descriptor_ = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file.descriptor_ < 0) {
    throw_errno(errno,
                fmt::format("disk: cannot open '{}' (check the path and its permissions)", path));
  }
  struct stat status {};
  if (fstat(file.descriptor_, &status) != 0) {
    throw_errno(errno, fmt::format("disk: cannot ask for the size of '{}' (check the disk)", path));
  }
  if (!S_ISREG(status.st_mode)) {
    throw Error(Kind::kIo, fmt::format("disk: '{}' is not a file; pass the path of a file", path));
  }
  file.bytes_ = status.st_size;
  file.changed_ = status.st_mtim;
  const int descriptor = file.descriptor_;
  file.direct_ = direct && turn_on_direct(descriptor, [descriptor] {
                   Page page;
                   return pread(descriptor, page.bytes, sizeof page.bytes, 0) >= 0;
                 });
  return file;
}

void File::check_unchanged() const {
  struct stat now {};
  if (fstat(descriptor_, &now) != 0) {
    throw_errno(errno,
                fmt::format("disk: cannot ask for the size of '{}' (check the disk)", name_));
  }
  if (now.st_size == bytes_ && now.st_mtim.tv_sec == changed_.tv_sec &&
      now.st_mtim.tv_nsec == changed_.tv_nsec)
    return;
  throw Error(Kind::kIo,
              fmt::format("disk: '{}' was changed while the job reads it; what is written "
                          "so far is of the file as it was: give a new --output",
                          name_));
}

File File::create_spill(const std::string& directory, int64_t bytes) {
  check(bytes >= 0 && !directory.empty(), "spill file without size or directory");
  make_directory(directory);
  File file;
  file.name_ = directory + "/spill";
  file.bytes_ = round_up(bytes, kPageBytes);
  file.descriptor_ = open_unlinked(directory);
  if (file.descriptor_ < 0) {
    throw_spill(directory,
                fmt::format("it cannot be written ({}); make it writable or pass another "
                            "--disk-dir",
                            std::strerror(errno)));
  }
  allocate(file.descriptor_, directory, file.bytes_);
  const int descriptor = file.descriptor_;
  file.direct_ = file.bytes_ > 0 && turn_on_direct(descriptor, [descriptor] {
                   const Page page;
                   return pwrite(descriptor, page.bytes, sizeof page.bytes, 0) == kPageBytes;
                 });
  return file;
}

}  // namespace transload::offload
