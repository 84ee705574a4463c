#include "tests/engine/executor/shuffled_executor.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "tests/engine/executor/support.h"

namespace transload::engine::testing {

using planner::Buffer;
using planner::Lane;
using planner::Task;
using planner::Use;

namespace {

constexpr size_t kBegunDiskTasks = 4;
constexpr int kPoison = 0xFF;  // as float32: NaN
constexpr int64_t kFloat = sizeof(float);

bool is_volatile(Buffer buffer) {
  switch (buffer) {
    case Buffer::kWeightRing:
    case Buffer::kStaging:
    case Buffer::kGatherDevice:
    case Buffer::kGatherHost:
    case Buffer::kHidden:
    case Buffer::kHiddenHost:
    case Buffer::kHiddenWork:
    case Buffer::kVisit:
    case Buffer::kQueryHost:
    case Buffer::kKvRingDevice:
    case Buffer::kKvRingHost:
      return true;
    default:
      return false;
  }
}

bool is_disk(size_t lane) {
  return lane == static_cast<size_t>(Lane::kDiskRead) ||
         lane == static_cast<size_t>(Lane::kDiskWrite);
}

}  // namespace

ShuffledExecutor::ShuffledExecutor(const layout::Model& model, const planner::Plan& plan,
                                   Performer& performer, const ShuffleOptions& options)
    : plan_(plan),
      q_width_(model.spec.q_width()),
      kv_width_(model.spec.kv_width()),
      needs_(planner::footprint(model, plan)),
      performer_(performer),
      options_(options),
      random_(options.seed) {
  // Some lanes run far ahead, others lag.
  static constexpr std::array<uint32_t, 4> kWeights = {1, 4, 32, 256};
  for (LaneQueue& lane : lanes_) lane.weight = kWeights[random_() % kWeights.size()];
  fill_all();
}

// Nothing that a run reads comes from before it.
void ShuffledExecutor::fill_all() {
  const TierMemory& memory = performer_.memory();
  const auto fill = [](std::byte* at, const planner::Place& place, int value) {
    std::memset(at, value, static_cast<size_t>(place.bytes));
  };
  const planner::DevicePlaces& d = needs_.device;
  for (const planner::Place* place : {&d.weight_ring, &d.kv_ring, &d.hidden, &d.hidden_work,
                                      &d.visit, &d.chunk, &d.head_input, &d.logits, &d.gather})
    fill(memory.device(*place), *place, kPoison);
  fill(memory.device(d.kv), d.kv, options_.kv_fill);
  if (plan_.single_tier) return;
  const planner::HostPlaces& h = needs_.host;
  for (const planner::Place* place : {&h.staging, &h.kv_ring, &h.gather, &h.hidden, &h.query})
    fill(memory.host(*place), *place, kPoison);
  fill(memory.host(h.kv), h.kv, options_.kv_fill);
}

void ShuffledExecutor::take(const Task& task, std::span<const Use> uses) {
  const int64_t number = taken_++;
  lanes_[static_cast<size_t>(task.lane)].waiting.push_back(
      {task, {uses.begin(), uses.end()}, number});
  for (const Use& use : uses)
    if (is_volatile(use.buffer)) pending_[use.buffer].push_back({number, use.begin, use.end});
}

void ShuffledExecutor::flush() {
  for (LaneQueue& lane : lanes_) lane.flushed = lane.waiting.size();
}

bool ShuffledExecutor::finished(const planner::Dependencies& needs) const {
  for (size_t i = 0; i < planner::kLanes; ++i)
    if (lanes_[i].done < needs.last[i]) return false;
  return true;
}

bool ShuffledExecutor::ready(const Task& task) const {
  planner::Dependencies needs = task.needs;
  if (options_.ignored) needs.last[static_cast<size_t>(*options_.ignored)] = 0;
  return finished(needs);
}

std::vector<ShuffledExecutor::Step> ShuffledExecutor::steps() const {
  std::vector<Step> found;
  for (size_t i = 0; i < planner::kLanes; ++i) {
    const LaneQueue& lane = lanes_[i];
    const bool room = !is_disk(i) || lane.begun.size() < kBegunDiskTasks;
    if (lane.flushed > 0 && room && ready(lane.waiting.front().task)) found.push_back({i, false});
    if (!lane.begun.empty()) found.push_back({i, true});
  }
  return found;
}

ShuffledExecutor::Step ShuffledExecutor::draw(const std::vector<Step>& steps) {
  if (options_.in_order) {
    const auto number = [&](const Step& step) {
      const LaneQueue& lane = lanes_[step.lane];
      return (step.ends ? lane.begun : lane.waiting).front().number;
    };
    return *std::min_element(steps.begin(), steps.end(),
                             [&](const Step& a, const Step& b) { return number(a) < number(b); });
  }
  uint64_t all = 0;
  for (const Step& step : steps) all += lanes_[step.lane].weight;
  uint64_t at = random_() % all;
  for (const Step& step : steps) {
    if (at < lanes_[step.lane].weight) return step;
    at -= lanes_[step.lane].weight;
  }
  return steps.back();
}

void ShuffledExecutor::step() {
  const std::vector<Step> possible = steps();
  check(!possible.empty(), "no task is ready");
  const Step next = draw(possible);
  LaneQueue& lane = lanes_[next.lane];
  if (next.ends) {
    const Taken taken = std::move(lane.begun.front());
    lane.begun.pop_front();
    performer_.finish(taken.task);
    ended(lane, taken);
    return;
  }
  Taken taken = std::move(lane.waiting.front());
  lane.waiting.pop_front();
  --lane.flushed;
  if (is_disk(next.lane)) {
    performer_.start(taken.task);
    lane.begun.push_back(std::move(taken));
    return;
  }
  performer_.perform(taken.task);
  ended(lane, taken);
}

void ShuffledExecutor::ended(LaneQueue& lane, const Taken& taken) {
  lane.done = taken.task.id;
  const auto index = static_cast<size_t>(taken.task.lane);
  times_.bytes[index] += taken.task.bytes;
  ++times_.tasks[index];
  for (const Use& use : taken.uses)
    if (is_volatile(use.buffer))
      std::erase_if(pending_[use.buffer],
                    [&](const Pending& pending) { return pending.number == taken.number; });
  for (const Use& use : taken.uses)
    if (!use.writes && is_volatile(use.buffer)) release(use);
}

// Poisons the parts of a use's bytes that no emitted task is going to use.
void ShuffledExecutor::release(const Use& use) {
  std::vector<Pending> users;
  for (const Pending& pending : pending_[use.buffer])
    if (pending.begin < use.end && pending.end > use.begin) users.push_back(pending);
  std::sort(users.begin(), users.end(),
            [](const Pending& a, const Pending& b) { return a.begin < b.begin; });
  int64_t at = use.begin;
  const auto poison = [&](int64_t end) {
    if (end <= at) return;
    const std::span<std::byte> bytes = bytes_of(use.buffer, at, end);
    std::memset(bytes.data(), kPoison, bytes.size());
    if (options_.poisoned_bytes != nullptr)
      *options_.poisoned_bytes += static_cast<int64_t>(bytes.size());
  };
  for (const Pending& user : users) {
    poison(user.begin);
    at = std::max(at, user.end);
  }
  poison(use.end);
}

std::span<std::byte> ShuffledExecutor::bytes_of(Buffer buffer, int64_t begin, int64_t end) {
  if (buffer != Buffer::kVisit) return performer_.bytes_of(buffer, begin, end);
  // Rows of parts: of each visit buffer the queries, then keys and values.
  const int64_t rows = plan_.batch_rows();
  const int64_t part = begin / rows;
  const int64_t width = part % 2 == 0 ? q_width_ : 2 * kv_width_;
  const int64_t before = (part / 2) * (q_width_ + 2 * kv_width_) + (part % 2) * q_width_;
  float* at = performer_.memory().device_floats(needs_.device.visit) + before * rows +
              (begin - part * rows) * width;
  return {reinterpret_cast<std::byte*>(at), static_cast<size_t>((end - begin) * width * kFloat)};
}

bool ShuffledExecutor::wait(const planner::Dependencies& needs, double /*seconds*/) {
  while (!finished(needs)) step();
  return true;
}

EngineOptions shuffled(const layout::Model& model, const planner::Plan& plan,
                       const std::string& spill_directory, const ShuffleOptions& options) {
  EngineOptions made = options_with_spill(spill_directory);
  made.make_executor = [&model, &plan, options](Performer& performer) {
    return std::make_unique<ShuffledExecutor>(model, plan, performer, options);
  };
  return made;
}

}  // namespace transload::engine::testing
