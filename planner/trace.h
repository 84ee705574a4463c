// Writes what lanes did, predicted or real, as a trace for chrome://tracing or Perfetto.
#pragma once

#include <cstdio>
#include <memory>
#include <string>

#include "planner/task.h"

namespace transload::planner {

// A file in the Chrome trace format: one row a lane, an event a task with its bytes, flops, layer
// and batch. Each event is written as it comes, so memory does not grow. Threads: one.
class TraceWriter {
 public:
  // `title` names the process row ("predicted", "run"). Errors: kIo naming the path.
  TraceWriter(const std::string& path, const std::string& title);
  ~TraceWriter();
  TraceWriter(const TraceWriter&) = delete;
  TraceWriter& operator=(const TraceWriter&) = delete;

  // Times count from the start of the run. Errors: kIo naming the path.
  void add(const Task& task, double start_s, double end_s);
  // Ends the file. Without it (a run that was killed) viewers still read what is there.
  void finish();

 private:
  struct Closer {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };

  void write(const std::string& text);

  std::string path_;
  std::unique_ptr<std::FILE, Closer> file_;
  std::string line_;
};

}  // namespace transload::planner
