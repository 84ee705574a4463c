#include "planner/trace.h"

#include <fmt/format.h>

#include <cerrno>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace transload::planner {

TraceWriter::TraceWriter(const std::string& path, const std::string& title)
    : path_(path), file_(std::fopen(path.c_str(), "wb")) {
  if (!file_) throw_errno(errno, "cannot create the trace '" + path + "'");
  write("[\n");
  const nlohmann::json process = {
      {"name", "process_name"}, {"ph", "M"}, {"pid", 1}, {"args", {{"name", title}}}};
  write(process.dump());
  for (size_t lane = 0; lane < kLanes; ++lane)
    write(
        fmt::format(",\n{{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":1,\"tid\":{},"
                    "\"args\":{{\"name\":\"{}\"}}}}",
                    lane + 1, name(static_cast<Lane>(lane))));
}

TraceWriter::~TraceWriter() = default;

void TraceWriter::write(const std::string& text) {
  if (std::fwrite(text.data(), 1, text.size(), file_.get()) != text.size())
    throw_errno(errno, "cannot write the trace '" + path_ + "'");
}

void TraceWriter::add(const Task& task, double start_s, double end_s) {
  line_.clear();
  fmt::format_to(std::back_inserter(line_),
                 ",\n{{\"name\":\"{}\",\"ph\":\"X\",\"pid\":1,\"tid\":{},\"ts\":{:.3f},"
                 "\"dur\":{:.3f},\"args\":{{\"id\":{},\"sweep\":{},\"layer\":{},\"batch\":{},"
                 "\"index\":{},\"bytes\":{},\"flops\":{}}}}}",
                 name(task.kind), static_cast<int>(task.lane) + 1, 1e6 * start_s,
                 1e6 * (end_s - start_s), task.id, task.sweep, task.layer, task.batch, task.index,
                 task.bytes, task.flops);
  write(line_);
}

void TraceWriter::finish() {
  write("\n]\n");
  if (std::fflush(file_.get()) != 0) throw_errno(errno, "cannot write the trace '" + path_ + "'");
}

}  // namespace transload::planner
