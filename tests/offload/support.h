// What the offload tests share: a directory that goes away, files of known bytes, a child process.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <new>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/units.h"

namespace transload::offload {

class TempDir {
 public:
  TempDir() : path_(testing::TempDir() + "transload-XXXXXX") {
    if (mkdtemp(path_.data()) == nullptr) std::abort();
  }
  ~TempDir() { std::filesystem::remove_all(path_); }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

inline std::vector<std::byte> random_bytes(int64_t bytes, unsigned seed) {
  std::vector<std::byte> data(static_cast<size_t>(bytes));
  std::mt19937 generator(seed);
  for (std::byte& one : data) one = static_cast<std::byte>(generator());
  return data;
}

inline void write_file(const std::string& path, const std::vector<std::byte>& data) {
  std::ofstream out(path, std::ios::binary);
  out.write(reinterpret_cast<const char*>(data.data()), static_cast<std::streamsize>(data.size()));
}

// Memory aligned for direct I/O.
class Pages {
 public:
  explicit Pages(int64_t bytes)
      : bytes_(round_up(bytes, kPageBytes)),
        data_(static_cast<std::byte*>(
            ::operator new (static_cast<size_t>(bytes_), std::align_val_t{kPageBytes}))) {
    for (int64_t i = 0; i < bytes_; ++i) data_[i] = std::byte{0xEE};
  }
  ~Pages() { ::operator delete (data_, std::align_val_t{kPageBytes}); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

 private:
  int64_t bytes_;
  std::byte* data_;
};

// Makes a descriptor one without O_DIRECT.
inline void make_buffered(int descriptor) {
  if (fcntl(descriptor, F_SETFL, fcntl(descriptor, F_GETFL) & ~O_DIRECT) != 0) std::abort();
}

// What `body` returns when run in a forked child: for limits that cannot be taken back.
inline std::string in_child(const std::function<std::string()>& body) {
  int ends[2] = {-1, -1};
  if (pipe(ends) != 0) return "no pipe";
  const pid_t child = fork();
  if (child == 0) {
    std::string text;
    try {
      text = body();
    } catch (const std::exception& error) {
      text = error.what();
    }
    const bool written =
        write(ends[1], text.data(), text.size()) == static_cast<ssize_t>(text.size());
    _exit(written ? 0 : 1);
  }
  close(ends[1]);
  std::string text;
  char buffer[4096];
  for (ssize_t got = 0; (got = read(ends[0], buffer, sizeof buffer)) > 0;) {
    text.append(buffer, static_cast<size_t>(got));
  }
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) text += " [child died]";
  return text;
}

// Gives up root in a child, so that permissions and limits hold; another user has none to lose.
inline void become_nobody() {
  constexpr uid_t kNobody = 65534;
  if (geteuid() == 0 && setresuid(kNobody, kNobody, kNobody) != 0) std::abort();
}

// The text of the Error of `kind` that `body` throws; else what happened.
template <class Body>
std::string error_text(Kind kind, Body body) {
  try {
    body();
  } catch (const Error& error) {
    if (error.kind() != kind) return std::string("another kind: ") + error.what();
    return error.what();
  }
  return "no error";
}

}  // namespace transload::offload
