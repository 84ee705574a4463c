#include "engine/chat/helper_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>

extern char** environ;

namespace transload::engine {
namespace {

// A rendering has at most 64 MiB (chat_helper.py), and JSON writes a byte of it as six at most.
constexpr size_t kAnswerLimitBytes = size_t{6 * 64 + 1} * 1024 * 1024;

// posix_spawn with `socket` as standard input and output. Null where it fails.
std::optional<pid_t> spawn(const std::vector<std::string>& arguments, int socket) {
  std::vector<char*> argv;
  argv.reserve(arguments.size() + 1);
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, socket, STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, socket, STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  posix_spawnattr_setpgroup(&attributes, 0);
  pid_t process = 0;
  const int failed = posix_spawnp(&process, argv[0], &actions, &attributes, argv.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  return failed == 0 ? std::optional<pid_t>(process) : std::nullopt;
}

}  // namespace

bool HelperProcess::start(const std::vector<std::string>& arguments) {
  stop();
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) return false;
  const std::optional<pid_t> process = spawn(arguments, ends[1]);
  ::close(ends[1]);
  socket_ = ends[0];
  process_ = process.value_or(0);
  if (!process) stop();
  return process.has_value();
}

void HelperProcess::stop() {
  if (socket_ >= 0) ::close(socket_);
  socket_ = -1;
  if (process_ > 0) {
    ::kill(process_, SIGKILL);
    while (::waitpid(process_, nullptr, 0) < 0 && errno == EINTR) continue;
  }
  process_ = 0;
  received_.clear();
}

bool HelperProcess::send(std::string_view text) {
  while (!text.empty()) {
    const ssize_t sent = ::send(socket_, text.data(), text.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    text.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

std::optional<std::string> HelperProcess::ask(std::string_view line, int limit_s) {
  if (!running()) return std::nullopt;
  if (send(line) && send("\n")) return listen(limit_s);
  stop();
  return std::nullopt;
}

std::optional<std::string> HelperProcess::listen(int limit_s) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point end = Clock::now() + std::chrono::seconds(limit_s);
  timed_out_ = false;
  std::array<char, 64 * 1024> chunk;
  for (size_t seen = 0; running();) {
    const size_t newline = received_.find('\n', seen);
    if (newline != std::string::npos) {
      std::string line = received_.substr(0, newline);
      received_.erase(0, newline + 1);
      return line;
    }
    seen = received_.size();
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now());
    pollfd wait{socket_, POLLIN, 0};
    const int ready = ::poll(&wait, 1, static_cast<int>(std::max<int64_t>(left.count(), 0)));
    if (ready < 0 && errno == EINTR) continue;
    timed_out_ = ready == 0;
    const ssize_t got = ready > 0 ? ::read(socket_, chunk.data(), chunk.size()) : 0;
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0 || seen > kAnswerLimitBytes) break;
    received_.append(chunk.data(), static_cast<size_t>(got));
  }
  stop();
  return std::nullopt;
}

}  // namespace transload::engine
