#include "tests/planner/recorder.h"

#include <gtest/gtest.h>

#include <iterator>
#include <stdexcept>

namespace transload::tests {

using planner::Dependencies;
using planner::Lane;
using planner::Task;

std::string describe(const Task& task) {
  return std::string(name(task.lane)) + "#" + std::to_string(task.id) + " " +
         std::string(name(task.kind)) + " sweep " + std::to_string(task.sweep) + " layer " +
         std::to_string(task.layer) + " batch " + std::to_string(task.batch) + " index " +
         std::to_string(task.index);
}

const Dependencies& Recorder::before(Lane lane, planner::TaskId id) const {
  return finished_[static_cast<size_t>(lane)][static_cast<size_t>(id - 1)];
}

bool Recorder::ordered(const Dependencies& before, const Task& task) const {
  const Dependencies& done = this->before(task.lane, task.id);
  for (size_t lane = 0; lane < planner::kLanes; ++lane)
    if (before.last[lane] > done.last[lane]) return false;
  return true;
}

void Recorder::emit(const Task& task, std::span<const planner::Use> uses) {
  auto& lane = finished_[static_cast<size_t>(task.lane)];
  if (task.id != static_cast<int64_t>(lane.size()) + 1)
    throw std::logic_error("out of order: " + describe(task));
  Dependencies done = lane.empty() ? Dependencies{} : lane.back();
  for (size_t l = 0; l < planner::kLanes; ++l) {
    const planner::TaskId need = task.needs.last[l];
    if (need == 0) continue;
    if (need > static_cast<int64_t>(finished_[l].size()))
      throw std::logic_error(describe(task) + " needs a task that is emitted later");
    done.add(before(static_cast<Lane>(l), need));
  }
  done.add(task.lane, task.id);
  lane.push_back(done);
  tasks_.push_back(task);
  uses_.emplace_back();
  for (const planner::Use& use : uses)
    if (use.end > use.begin) follow(task, use);
}

Recorder::Segments::iterator Recorder::split(Segments& segments, int64_t at) {
  auto next = segments.lower_bound(at);
  if (next != segments.end() && next->first == at) return next;
  if (next == segments.begin()) return next;
  const auto previous = std::prev(next);
  if (previous->second.end <= at) return next;
  Segment tail = previous->second;
  previous->second.end = at;
  return segments.emplace(at, tail).first;
}

// Makes the segments lie within or outside of [begin, end), without gaps inside.
void Recorder::cover(Segments& segments, int64_t begin, int64_t end) {
  split(segments, begin);
  split(segments, end);
  int64_t at = begin;
  for (auto it = segments.lower_bound(begin); at < end; ++it) {
    const int64_t next = it == segments.end() ? end : std::min(end, it->first);
    if (next > at) {
      Segment gap;
      gap.end = next;
      it = segments.emplace(at, gap).first;
    }
    at = it->second.end;
  }
}

void Recorder::complain(const Task& task, const planner::Use& use, const std::string& what) {
  if (++hazards_ > 3) return;
  ADD_FAILURE() << describe(task) << (use.writes ? " writes" : " reads") << " buffer "
                << static_cast<int>(use.buffer) << " [" << use.begin << ", " << use.end
                << ") unordered after " << what;
}

void Recorder::follow(const Task& task, const planner::Use& use) {
  Segments& segments = buffers_[use.buffer];
  cover(segments, use.begin, use.end);
  Use seen{.use = use, .writers = {}, .filled = true};
  for (auto it = segments.lower_bound(use.begin); it != segments.end() && it->first < use.end;
       ++it) {
    Segment& segment = it->second;
    if (segment.written) {
      Dependencies write;
      write.add(segment.writer.lane, segment.writer.id);
      if (!ordered(write, task)) complain(task, use, describe(segment.writer));
    }
    if (!use.writes) {
      seen.filled = seen.filled && segment.written;
      const bool new_writer = seen.writers.empty() ||
                              seen.writers.back().lane != segment.writer.lane ||
                              seen.writers.back().id != segment.writer.id;
      if (segment.written && new_writer) seen.writers.push_back(segment.writer);
      segment.readers.add(task.lane, task.id);
      continue;
    }
    if (!ordered(segment.readers, task)) complain(task, use, "its readers");
    segment.written = true;
    segment.writer = task;
    segment.readers = {};
  }
  uses_.back().push_back(seen);
}

}  // namespace transload::tests
