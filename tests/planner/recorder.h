// What a schedule's tasks mean, followed task by task: what is finished before each (the closure of
// its needs and its lane), and who wrote the bytes that it reads.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "planner/schedule.h"

namespace transload::tests {

std::string describe(const planner::Task& task);

// Keeps every task in order of emission. Throws std::logic_error at a need of a task that is not
// emitted yet and at a task number out of order; fails the running test at a use that no dependency
// orders after the uses before it of the same bytes.
class Recorder : public planner::TaskSink {
 public:
  struct Use {
    planner::Use use;
    std::vector<planner::Task> writers;  // of the bytes read, in order of place
    bool filled = true;                  // every byte read was written before
  };

  void emit(const planner::Task& task, std::span<const planner::Use> uses) override;

  const std::vector<planner::Task>& tasks() const { return tasks_; }
  // By task, in order of emission.
  const std::vector<std::vector<Use>>& uses() const { return uses_; }
  bool ordered(const planner::Dependencies& before, const planner::Task& task) const;
  int64_t hazards() const { return hazards_; }

 private:
  struct Segment {  // of a buffer, from its key on
    int64_t end = 0;
    bool written = false;
    planner::Task writer;
    planner::Dependencies readers;
  };
  using Segments = std::map<int64_t, Segment>;

  Segments::iterator split(Segments& segments, int64_t at);
  void cover(Segments& segments, int64_t begin, int64_t end);
  void follow(const planner::Task& task, const planner::Use& use);
  void complain(const planner::Task& task, const planner::Use& use, const std::string& what);
  const planner::Dependencies& before(planner::Lane lane, planner::TaskId id) const;

  std::vector<planner::Task> tasks_;
  std::vector<std::vector<Use>> uses_;
  // By lane and task: what is finished when the task is, itself included.
  std::array<std::vector<planner::Dependencies>, planner::kLanes> finished_;
  std::map<planner::Buffer, Segments> buffers_;
  int64_t hazards_ = 0;
};

}  // namespace transload::tests
