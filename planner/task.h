// Tasks: what a lane does. The simulator times them, the executor performs them.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>

namespace transload::planner {

enum class Lane : uint8_t {
  kDiskRead,
  kDiskWrite,
  kHostToDevice,
  kDeviceToHost,
  kDeviceCompute,
  kHostCompute
};
inline constexpr size_t kLanes = 6;
std::string_view name(Lane lane);

// Position of a task on its lane: 1, 2, 3 ... in the order of emission. A lane runs its tasks in
// this order.
using TaskId = int64_t;

// What must be finished before a task may start: the last such task of each lane (0: none). As a
// lane runs in order, one number a lane says it all.
struct Dependencies {
  std::array<TaskId, kLanes> last{};

  void add(Lane lane, TaskId id) {
    TaskId& there = last[static_cast<size_t>(lane)];
    there = std::max(there, id);
  }
  void add(const Dependencies& other) {
    for (size_t i = 0; i < kLanes; ++i) last[i] = std::max(last[i], other.last[i]);
  }
  bool operator==(const Dependencies&) const = default;
};

enum class TaskKind : uint8_t {
  kReadResident,  // disk_read: a resident slice into its home, or into staging
  kCopyResident,  // host_to_device: from staging into its device home
  kReadPiece,     // disk_read: a streamed piece into staging, or into the weight ring
  kCopyPiece,     // host_to_device: from staging or its host home into the weight ring
  kGatherRead,    // disk_read: embedding rows of tokens
  kGatherCopy,    // host_to_device: embedding rows
  kEmbed,         // device_compute: embedding rows (and positions) into hidden rows
  kLoadHidden,    // host_to_device
  kStoreHidden,   // device_to_host
  kAttentionIn,   // device_compute: norm, q, k, v, rotary
  kReadKv,        // disk_read: KV blocks of a group
  kLoadKv,        // host_to_device: KV blocks of a group into the device's KV ring
  kAttend,        // device_compute: decode rows of a group
  kSendQuery,     // device_to_host: query rows of a group
  kHostAttend,    // host_compute: decode rows of a group
  kReturnOutput,  // host_to_device: attention output of a group
  kStoreKv,       // device_to_host: new K and V of a group
  kWriteKv,       // disk_write: changed KV blocks of a group
  kAttendPrompt,  // device_compute: prompts over themselves; fills their device KV blocks
  kPackPrompt,    // device_compute: KV blocks of a prompt into the device's KV ring
  kAttentionOut,  // device_compute: output projection and MLP
  kFinal,         // device_compute: final norm of the rows that the head needs
  kLogits,        // device_compute: head rows of a piece, or of all device slices
  kSample,        // device_compute: next tokens, or scores
};
inline constexpr size_t kTaskKinds = static_cast<size_t>(TaskKind::kSample) + 1;
std::string_view name(TaskKind kind);

struct Task {
  Lane lane{};
  TaskKind kind{};
  TaskId id = 0;
  int64_t sweep = 0;   // 0: the start; weight loads carry the sweep that uses them
  int32_t layer = -1;  // or the stage of the weight stream
  int32_t batch = -1;
  int32_t index = -1;        // piece of the stage, group of the sweep, or resident slice
  int32_t visit_buffer = 0;  // of queries, keys and values
  int32_t work = 0;          // working copy of hidden rows that live on the host
  int64_t bytes = 0;         // moved by the lane; compute lanes: weights and KV read
  int64_t flops = 0;
  int64_t source = 0;  // offset in the buffer read (staging)
  int64_t target = 0;  // offset in the buffer written (staging, weight ring)
  Dependencies needs;
};

// What a task touches: part of a named buffer. Two uses of the same bytes, one of them a write, are
// always ordered by dependencies and lanes (the schedule's central invariant, checked in tests).
enum class Buffer : uint8_t {
  kResidentDevice,
  kResidentHost,
  kWeightRing,
  kStaging,
  kGatherDevice,
  kGatherHost,
  kHidden,
  kHiddenHost,
  kHiddenWork,
  kVisit,
  kQueryHost,
  kKvDevice,
  kKvHost,
  kKvDisk,
  kKvRingDevice,
  kKvRingHost,
  kHeadInput,
  kLogits,
  kChunk
};
struct Use {
  Buffer buffer{};
  bool writes = false;
  int64_t begin = 0;
  int64_t end = 0;  // bytes, or rows/slots where the buffer counts in those
};

}  // namespace transload::planner
