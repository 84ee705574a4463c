// A child process that is spoken to in lines.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace transload::engine {

// Its standard input and output are one socket, its standard error is dropped. It has a process
// group of its own, so that a terminal's Ctrl-C does not reach it, and ends with the socket.
// Threads: single-threaded.
class HelperProcess {
 public:
  HelperProcess() = default;
  ~HelperProcess() { stop(); }
  HelperProcess(const HelperProcess&) = delete;
  HelperProcess& operator=(const HelperProcess&) = delete;

  // arguments[0] is a path, or a name looked for in PATH. False where there is no such program.
  bool start(const std::vector<std::string>& arguments);
  // Sends a line (without its end) and returns the next one that comes back; nothing when the
  // process ended, said more than 64 MiB or nothing for `limit_s` (it is stopped then).
  std::optional<std::string> ask(std::string_view line, int limit_s);
  // The next line without asking.
  std::optional<std::string> listen(int limit_s);
  bool running() const { return process_ > 0; }
  bool timed_out() const { return timed_out_; }
  void stop();

 private:
  bool send(std::string_view text);

  pid_t process_ = 0;
  int socket_ = -1;
  bool timed_out_ = false;
  std::string received_;
};

}  // namespace transload::engine
