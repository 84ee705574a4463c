#include "engine/executor/performer.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/check.h"
#include "base/error.h"
#include "base/units.h"

namespace transload::engine {

using layout::Role;
using layout::Tier;
using planner::Buffer;
using planner::Lane;
using planner::Task;
using planner::TaskKind;

namespace {

kernels::CpuOptions cpu_options(const layout::Model& model, const planner::Plan& plan,
                                const PerformerOptions& options) {
  kernels::CpuOptions cpu;
  cpu.threads = plan.threads;
  cpu.instructions = options.instructions;
  cpu.compute = options.compute;
  cpu.max_cols = model.spec.head_dim;
  cpu.max_head_dim = model.spec.head_dim;
  for (const layout::Weight& weight : model.weights)
    cpu.max_cols = std::max(cpu.max_cols, weight.cols);
  return cpu;
}

std::unique_ptr<offload::RateLimiter> limiter(double bytes_per_s) {
  return bytes_per_s > 0 ? std::make_unique<offload::RateLimiter>(bytes_per_s) : nullptr;
}

offload::DiskOptions disk_options(const PerformerOptions& options, offload::RateLimiter* limiter) {
  offload::DiskOptions disk;
  disk.engine = options.disk_engine;
  disk.limiter = limiter;
  return disk;
}

}  // namespace

std::string arithmetic(const kernels::Backend& backend, const layout::Model& model) {
  std::vector<std::string> parts;
  for (const layout::Weight& weight : model.weights) {
    if (!layout::is_matrix(weight.role)) continue;
    std::string part =
        fmt::format("{} in {}", quant::name(weight.format), backend.product(weight.format).numbers);
    if (std::find(parts.begin(), parts.end(), part) == parts.end()) parts.push_back(part);
  }
  return fmt::format("{} ({})", backend.description(), fmt::join(parts, ", "));
}

Performer::Performer(const layout::Model& model, const planner::Plan& plan,
                     const planner::Footprint& needs, const PerformerOptions& options)
    : model_(model),
      plan_(plan),
      needs_(needs),
      activations_(options.activations),
      memory_(model, plan, needs, options.tiers),
      device_(kernels::make_cpu_backend(cpu_options(model, plan, options))),
      sequences_(static_cast<size_t>(plan.row_slots())),
      by_role_(static_cast<size_t>(model.spec.layers) + 1),
      resident_at_(model.weights.size(), {-1, -1}) {
  const auto host_at = [&](const planner::Place& place) {
    return plan.single_tier ? nullptr : memory_.host(place);
  };
  kv_blocks_ = {memory_.device(needs.device.kv),
                plan.kv_ring_device_blocks > 0 ? memory_.device(needs.device.kv_ring) : nullptr,
                host_at(needs.host.kv), host_at(needs.host.kv_ring), needs.kv_block_bytes};
  if (plan.attention == planner::AttentionSite::kHost)
    host_ = kernels::make_cpu_backend(cpu_options(model, plan, options));
  disk_limiter_ = limiter(plan.disk_bytes_per_s);
  link_limiters_ = {limiter(plan.link_bytes_per_s), limiter(plan.link_bytes_per_s)};
  copiers_ = {offload::PacedCopier(link_limiters_[0].get()),
              offload::PacedCopier(link_limiters_[1].get())};
  const offload::DiskOptions disk = disk_options(options, disk_limiter_.get());
  read_lane_ = offload::make_disk_lane(disk, options.faults);
  write_lane_ = offload::make_disk_lane(disk, options.faults);
  register_lanes();
  for (const layout::Weight& weight : model.weights)
    by_role_[weight.layer < 0
                 ? static_cast<size_t>(model.spec.layers)
                 : static_cast<size_t>(weight.layer)][static_cast<size_t>(weight.role)] = &weight;
  for (size_t i = 0; i < needs.slices.resident.size(); ++i) {
    const layout::Piece& piece = needs.slices.resident[i];
    resident_at_[static_cast<size_t>(piece.weight)][static_cast<size_t>(piece.home)] =
        needs.resident_offsets[i];
  }
  for (auto& sweep : piece_at_)
    for (const layout::Stage& stage : needs.slices.stages) sweep.emplace_back(stage.pieces.size());
  reserve_scratch();
  load_vectors();
}

// Tells the disk lanes of their files and of the memory that they read into and write from.
void Performer::register_lanes() {
  for (const offload::File& file : memory_.model_files())
    read_lane_->add_file(file.descriptor(), file.bytes(), file.name(), file.direct());
  if (const offload::File* spill = memory_.spill()) {
    spill_read_file_ =
        read_lane_->add_file(spill->descriptor(), spill->bytes(), spill->name(), spill->direct());
    spill_write_file_ =
        write_lane_->add_file(spill->descriptor(), spill->bytes(), spill->name(), spill->direct());
  }
  const offload::Region& target =
      plan_.single_tier ? memory_.device_region() : memory_.host_region();
  read_lane_->register_memory(target.data(), target.bytes());
  write_lane_->register_memory(target.data(), target.bytes());
}

// So that tasks allocate nothing.
void Performer::reserve_scratch() {
  const auto batch = static_cast<size_t>(plan_.batch_size);
  const auto rows = static_cast<size_t>(plan_.batch_rows());
  const auto blocks = batch * static_cast<size_t>(needs_.max_kv_blocks);
  read_requests_.reserve(std::max<size_t>(blocks, planner::kGatherRows) + 1);
  write_requests_.reserve(blocks + 1);
  slices_.reserve(64);
  row_pointers_.reserve(std::max<size_t>(rows, planner::kGatherRows));
  positions_.reserve(rows);
  for (AttendScratch& scratch : attend_) {
    scratch.rows.reserve(batch);
    scratch.blocks.reserve(blocks);
    scratch.writes.reserve(std::max<size_t>(batch, layout::kKvBlockSlots));
  }
  if (plan_.keeps_kv()) {
    for (int i = 0; i <= plan_.threads; ++i) sampling_.emplace_back(model_.spec.vocab);
  } else {
    stats_.resize(static_cast<size_t>(needs_.head_rows));
  }
}

std::string Performer::compute_description() const {
  return fmt::format("{}, {} thread{}", arithmetic(*device_, model_), plan_.threads,
                     plan_.threads == 1 ? "" : "s");
}

Performer::~Performer() = default;

// Norms and biases are few bytes: read at once and kept in float32.
void Performer::load_vectors() {
  std::vector<std::byte> raw;
  for (size_t i = 0; i < model_.weights.size(); ++i) {
    const layout::Weight& weight = model_.weights[i];
    if (layout::is_matrix(weight.role)) continue;
    const offload::File file =
        offload::File::open_read(model_.files[static_cast<size_t>(weight.extent.file)], false);
    raw.resize(static_cast<size_t>(weight.extent.bytes));
    for (size_t done = 0; done < raw.size();) {
      const ssize_t got = pread(file.descriptor(), raw.data() + done, raw.size() - done,
                                weight.extent.offset + static_cast<int64_t>(done));
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0)
        throw Error(Kind::kIo, file.name() + ": reading " + weight.name + " failed at offset " +
                                   std::to_string(weight.extent.offset));
      done += static_cast<size_t>(got);
    }
    std::byte* to = memory_.device(needs_.device.vectors) + needs_.vector_offsets[i];
    quant::decode(weight.format, raw,
                  {reinterpret_cast<float*>(to), static_cast<size_t>(weight.cols)});
  }
}

const layout::Weight* Performer::layer_weight(int64_t layer, Role role) const {
  const auto index = layer < 0 ? by_role_.size() - 1 : static_cast<size_t>(layer);
  return by_role_[index][static_cast<size_t>(role)];
}

const float* Performer::vector(int64_t layer, Role role) const {
  const layout::Weight* weight = layer_weight(layer, role);
  if (weight == nullptr || layout::is_matrix(role)) return nullptr;
  return reinterpret_cast<const float*>(
      memory_.device(needs_.device.vectors) +
      needs_.vector_offsets[static_cast<size_t>(index_of(weight))]);
}

const std::byte* Performer::resident(int64_t weight_index, Tier tier) const {
  const int64_t offset = resident_at_[static_cast<size_t>(weight_index)][static_cast<size_t>(tier)];
  check(offset >= 0, "weight slice is not resident");
  return (tier == Tier::kDevice ? memory_.device(needs_.device.resident)
                                : memory_.host(needs_.host.resident)) +
         offset;
}

// A thread that computes for the first time registers with the workers, which takes memory.
void Performer::prepare(Lane lane) {
  kernels::Backend* backend = lane == Lane::kDeviceCompute ? device_.get()
                              : lane == Lane::kHostCompute ? host_.get()
                                                           : nullptr;
  if (backend != nullptr)
    backend->for_each(
        2 * plan_.threads, [](void*, int64_t) {}, nullptr);
}

// NOLINTNEXTLINE(readability-function-size): one case a kind of task
void Performer::perform(const Task& task) {
  if (task.lane == Lane::kDeviceCompute) sweep_number_ = task.sweep;
  switch (task.kind) {
    case TaskKind::kCopyResident:
      return copy_resident(task);
    case TaskKind::kCopyPiece:
      return copy_piece(task);
    case TaskKind::kGatherCopy:
      return gather_copy(task);
    case TaskKind::kEmbed:
      return embed(task);
    case TaskKind::kLoadHidden:
      return copy_hidden(task, true);
    case TaskKind::kStoreHidden:
      return copy_hidden(task, false);
    case TaskKind::kAttentionIn:
      return attention_in(task);
    case TaskKind::kLoadKv:
      return load_kv(task);
    case TaskKind::kAttend:
      return attend(task, false);
    case TaskKind::kSendQuery:
      return copy_query(task, false);
    case TaskKind::kHostAttend:
      return attend(task, true);
    case TaskKind::kReturnOutput:
      return copy_query(task, true);
    case TaskKind::kStoreKv:
      return store_kv(task);
    case TaskKind::kAttendPrompt:
      return attend_prompts(task);
    case TaskKind::kPackPrompt:
      return pack_prompt(task);
    case TaskKind::kAttentionOut:
      return attention_out(task);
    case TaskKind::kFinal:
      return final_rows(task);
    case TaskKind::kLogits:
      return logits(task);
    case TaskKind::kSample:
      return sample_rows(task);
    default:
      check(false, "task of a disk lane on another lane");
  }
}

void Performer::start(const Task& task) {
  switch (task.kind) {
    case TaskKind::kReadResident:
      return start_read_resident(task);
    case TaskKind::kReadPiece:
      return start_read_piece(task);
    case TaskKind::kGatherRead:
      return start_gather_read(task);
    case TaskKind::kReadKv:
      return start_read_kv(task);
    case TaskKind::kWriteKv:
      return start_write_kv(task);
    default:
      check(false, "task of another lane on a disk lane");
  }
}

void Performer::finish(const Task& task) {
  offload::DiskLane& lane = task.lane == Lane::kDiskRead ? *read_lane_ : *write_lane_;
  const uint64_t token = lane.finish();
  check(token == static_cast<uint64_t>(task.id), "disk transfers out of order");
  if (task.kind == TaskKind::kReadKv) finish_read_kv(task);
}

std::span<std::byte> Performer::bytes_of(Buffer buffer, int64_t begin, int64_t end) {
  const auto part = [&](std::byte* base, int64_t unit) {
    return std::span<std::byte>(base + begin * unit, static_cast<size_t>((end - begin) * unit));
  };
  const planner::DevicePlaces& d = needs_.device;
  const planner::HostPlaces& h = needs_.host;
  const int64_t block = needs_.kv_block_bytes;
  switch (buffer) {
    case Buffer::kWeightRing:
      return part(memory_.device(d.weight_ring), 1);
    case Buffer::kStaging:
      return part(memory_.host(h.staging), 1);
    case Buffer::kGatherDevice:
      return part(memory_.device(d.gather), 1);
    case Buffer::kGatherHost:
      return part(memory_.host(h.gather), 1);
    case Buffer::kHidden:
      return part(memory_.device(d.hidden), 1);
    case Buffer::kHiddenHost:
      return part(memory_.host(h.hidden), 1);
    case Buffer::kHiddenWork:
      return part(memory_.device(d.hidden_work), 1);
    case Buffer::kKvRingDevice:
      return part(memory_.device(d.kv_ring), block);
    case Buffer::kKvRingHost:
      return part(memory_.host(h.kv_ring), block);
    case Buffer::kQueryHost:
      return part(memory_.host(h.query),
                  model_.spec.q_width() * static_cast<int64_t>(sizeof(float)));
    default:
      return {};
  }
}

}  // namespace transload::engine
