#include "engine/job/progress.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <utility>

#include "engine/job/file.h"

namespace transload::engine {
namespace {

constexpr double kTerminalEveryS = 0.1;
constexpr double kPlainEveryS = 2;
constexpr int64_t kBarCells = 24;

std::string one_decimal(double value) {
  std::array<char, 64> text;
  std::snprintf(text.data(), text.size(), "%.1f", value);
  return text.data();
}

// "1:02:03" or "2:03".
std::string clock_text(double seconds) {
  const int64_t whole = std::lround(std::min(seconds, 359999.0));
  std::array<char, 64> text;
  const auto hours = static_cast<int>(whole / 3600);
  const auto minutes = static_cast<int>(whole / 60 % 60);
  const auto rest = static_cast<int>(whole % 60);
  if (hours > 0) {
    std::snprintf(text.data(), text.size(), "%d:%02d:%02d", hours, minutes, rest);
  } else {
    std::snprintf(text.data(), text.size(), "%d:%02d", minutes, rest);
  }
  return text.data();
}

double steady_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

Progress::Progress(int fd, bool terminal, Clock now_s)
    : fd_(fd), terminal_(terminal), now_s_(std::move(now_s)) {}

Progress Progress::on(int fd) { return Progress(fd, ::isatty(fd) == 1, steady_s); }

void Progress::begin(std::string_view phase, std::string_view unit, int64_t total) {
  end();
  active_ = true;
  phase_ = phase;
  unit_ = unit;
  total_ = total;
  done_ = tokens_ = 0;
  begun_s_ = now_s_();
  report(begun_s_, false);
}

void Progress::update(int64_t done, int64_t tokens) {
  done_ = done;
  tokens_ = tokens;
  tick();
}

void Progress::tick() {
  if (!active_) return;
  const double now_s = now_s_();
  if (now_s - reported_s_ >= (terminal_ ? kTerminalEveryS : kPlainEveryS)) report(now_s, false);
}

void Progress::end() {
  if (active_) report(now_s_(), true);
  active_ = false;
}

void Progress::report(double now_s, bool last) {
  reported_s_ = now_s;
  const double seconds = now_s - begun_s_;
  std::string line = terminal_ ? "\r" + bar_line(seconds) + "\x1b[K" : plain_line(seconds);
  if (last && !terminal_) line += ", took " + clock_text(seconds);
  if (last || !terminal_) line += '\n';
  write_whole(fd_, line);  // a run does not end for want of its progress
}

// "decode: 45 of 101 requests (44 %), 12.3 tokens/s, ETA 1:23"
std::string Progress::plain_line(double seconds) const {
  std::string line = phase_ + ": " + std::to_string(done_);
  if (total_ > 0) line += " of " + std::to_string(total_);
  line += " " + unit_;
  if (total_ > 0) {
    line += " (" + std::to_string(done_ * 100 / total_) + " %)";
  }
  if (tokens_ > 0 && seconds > 0) {
    line += ", " + one_decimal(static_cast<double>(tokens_) / seconds) + " tokens/s";
  }
  if (done_ > 0 && done_ < total_ && seconds > 0) {
    const double rest = static_cast<double>(total_ - done_) / static_cast<double>(done_);
    line += ", ETA " + clock_text(seconds * rest);
  }
  return line;
}

std::string Progress::bar_line(double seconds) const {
  if (total_ <= 0) return plain_line(seconds);
  const int64_t cells = std::clamp(done_ * kBarCells / total_, int64_t{0}, kBarCells);
  return "[" + std::string(static_cast<size_t>(cells), '#') +
         std::string(static_cast<size_t>(kBarCells - cells), '.') + "] " + plain_line(seconds);
}

}  // namespace transload::engine
