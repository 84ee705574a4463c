#include "planner/task.h"

namespace transload::planner {

std::string_view name(Lane lane) {
  static constexpr std::array<std::string_view, kLanes> kNames = {
      "disk_read",      "disk_write",     "host_to_device",
      "device_to_host", "device_compute", "host_compute"};
  return kNames[static_cast<size_t>(lane)];
}

std::string_view name(TaskKind kind) {
  static constexpr std::array<std::string_view, kTaskKinds> kNames = {
      "read_resident", "copy_resident", "read_piece",  "copy_piece",    "gather_read",
      "gather_copy",   "embed",         "load_hidden", "store_hidden",  "attention_in",
      "read_kv",       "load_kv",       "attend",      "send_query",    "host_attend",
      "return_output", "store_kv",      "write_kv",    "attend_prompt", "pack_prompt",
      "attention_out", "final",         "logits",      "sample"};
  return kNames[static_cast<size_t>(kind)];
}

}  // namespace transload::planner
