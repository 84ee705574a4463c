// Tells how far a run is.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace transload::engine {

// On a terminal one line that is redrawn at most ten times a second; otherwise a plain line at
// most every 2 s. Each phase (open, load, prefill, decode) says something when it begins and when
// it ends; in between a record follows whenever update() or tick() is called, so callers call one
// of them at least every 3 s to have a record every 5 s. What cannot be written is dropped.
// Threads: single-threaded.
class Progress {
 public:
  using Clock = std::function<double()>;  // seconds from any beginning, never going back

  Progress(int fd, bool terminal, Clock now_s);
  // For a descriptor as it is (isatty), by the machine's steady clock.
  static Progress on(int fd);

  // `unit` is what is counted: "requests", "bytes". total 0: not known.
  void begin(std::string_view phase, std::string_view unit, int64_t total);
  // Numbers since begin(): of units, and of tokens where there are any.
  void update(int64_t done, int64_t tokens = 0);
  void tick();  // still alive, nothing new
  void end();   // also begin() of the next phase ends one

 private:
  void report(double now_s, bool last);
  std::string plain_line(double seconds) const;
  std::string bar_line(double seconds) const;

  int fd_;
  bool terminal_;
  Clock now_s_;
  bool active_ = false;
  std::string phase_;
  std::string unit_;
  int64_t total_ = 0;
  int64_t done_ = 0;
  int64_t tokens_ = 0;
  double begun_s_ = 0;
  double reported_s_ = 0;
};

}  // namespace transload::engine
