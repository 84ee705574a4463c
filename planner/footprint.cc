#include "planner/footprint.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/error.h"
#include "base/units.h"
#include "layout/kernel_scratch.h"
#include "layout/kv_table.h"

namespace transload::planner {
namespace {

using layout::Model;
using layout::Piece;
using layout::Role;
using layout::Tier;
using layout::Weight;

constexpr int64_t kAlign = 64;
constexpr int64_t kFloat = sizeof(float);
constexpr int64_t kLargestLoad = 8 * kMiB;

// Lays places behind one another in a region.
class Packer {
 public:
  Place take(int64_t bytes, int64_t align = kAlign) {
    const Place place{round_up(end_, align), bytes};
    if (bytes == 0) return {end_, 0};
    end_ = place.end();
    return place;
  }
  int64_t end() const { return round_up(end_, kPageBytes); }

 private:
  int64_t end_ = 0;
};

const Weight& weight_of(const Model& model, const Piece& piece) {
  return model.weights[static_cast<size_t>(piece.weight)];
}

// Homes of resident slices. Where the disk reads straight into the home, slices that are neighbours
// in the file form a run of whole pages; device homes behind staging are packed.
class ResidentPacker {
 public:
  ResidentPacker(const Model& model, const Plan& plan, Footprint& out)
      : model_(model), plan_(plan), out_(out) {}

  void run() {
    for (const Piece& piece : out_.slices.resident) {
      if (piece.home == Tier::kDevice && !plan_.single_tier) {
        add_staged(piece);
      } else {
        add_direct(piece);
      }
    }
    finish_run();
  }
  int64_t bytes(Tier tier) const { return end_[static_cast<size_t>(tier)]; }

 private:
  int64_t& end(Tier tier) { return end_[static_cast<size_t>(tier)]; }

  void add_staged(const Piece& piece) {
    const int64_t home = round_up(end(Tier::kDevice), kAlign);
    out_.resident_offsets.push_back(home);
    for (int64_t done = 0; done < piece.bytes;) {
      const int64_t from = piece.file_offset + done;
      const int64_t begin = round_down(from, kPageBytes);
      const int64_t bytes = std::min(piece.bytes - done, plan_.piece_bytes);
      out_.loads.push_back({.file = weight_of(model_, piece).extent.file,
                            .file_offset = begin,
                            .bytes = round_up(from + bytes, kPageBytes) - begin,
                            .home = Tier::kDevice,
                            .target = home + done,
                            .staged = true,
                            .skip = from - begin,
                            .copy_bytes = bytes});
      done += bytes;
    }
    end(Tier::kDevice) = home + piece.bytes;
  }

  void add_direct(const Piece& piece) {
    const int32_t file = weight_of(model_, piece).extent.file;
    const int64_t last = piece.file_offset + piece.bytes;
    const bool joins = open_ && piece.home == home_ && file == file_ &&
                       piece.file_offset >= run_begin_ &&
                       piece.file_offset <= round_up(run_end_, kPageBytes);
    if (!joins) {
      finish_run();
      open_ = true;
      home_ = piece.home;
      file_ = file;
      run_begin_ = round_down(piece.file_offset, kPageBytes);
      run_end_ = run_begin_;
    }
    out_.resident_offsets.push_back(end(home_) + piece.file_offset - run_begin_);
    run_end_ = std::max(run_end_, last);
  }

  void finish_run() {
    if (!open_) return;
    open_ = false;
    const int64_t run = round_up(run_end_, kPageBytes) - run_begin_;
    for (int64_t done = 0; done < run;) {
      const int64_t bytes = std::min(run - done, kLargestLoad);
      out_.loads.push_back({.file = file_,
                            .file_offset = run_begin_ + done,
                            .bytes = bytes,
                            .home = home_,
                            .target = end(home_) + done});
      done += bytes;
    }
    end(home_) += run;
  }

  const Model& model_;
  const Plan& plan_;
  Footprint& out_;
  std::array<int64_t, layout::kTiers> end_{};
  bool open_ = false;
  Tier home_{};
  int32_t file_ = 0;
  int64_t run_begin_ = 0;
  int64_t run_end_ = 0;
};

void size_gather(const Model& model, const Plan& plan, Footprint& out) {
  const Weight& embedding = *model.find(Role::kEmbedding);
  const auto index = static_cast<size_t>(&embedding - model.weights.data());
  const layout::MatrixCut& cut = out.slices.cuts[index];
  if (cut.rows(Tier::kDevice) == embedding.rows) return;
  const int64_t paged = round_up(embedding.row_bytes(), kPageBytes) + kPageBytes;
  const int64_t packed = round_up(embedding.row_bytes(), kAlign);
  out.gather_device_slot = plan.single_tier ? paged : packed;
  out.gather_host_slot = !plan.single_tier && cut.rows(Tier::kDisk) > 0 ? paged : 0;
}

int64_t chunk_floats(const layout::DecoderSpec& spec) {
  const int64_t mlp = spec.gated ? 2 * spec.ffn : spec.ffn;
  return 2 * spec.hidden + std::max({mlp, spec.qkv_width(), spec.embed_dim});
}

int64_t pack_vectors(const Model& model, Footprint& out) {
  int64_t bytes = 0;
  out.vector_offsets.assign(model.weights.size(), -1);
  for (size_t i = 0; i < model.weights.size(); ++i) {
    if (is_matrix(model.weights[i].role)) continue;
    out.vector_offsets[i] = bytes;
    bytes += round_up(model.weights[i].cols * kFloat, kAlign);
  }
  return bytes;
}

void size_rows(const Model& model, const Plan& plan, Footprint& out) {
  const layout::DecoderSpec& spec = model.spec;
  out.kv_block_bytes = layout::kv_block_bytes(spec.kv_heads, spec.head_dim, plan.kv_bits);
  out.max_kv_blocks = plan.keeps_kv() ? ceil_div(plan.max_tokens, layout::kKvBlockSlots) : 0;
  out.device_rows = std::min<int64_t>(
      plan.batch_rows(),
      std::llround(plan.activations.device * static_cast<double>(plan.batch_rows())));
  out.host_rows = plan.batch_rows() - out.device_rows;
  out.head_rows = plan.keeps_kv() ? plan.row_slots() : plan.num_batches * plan.batch_rows();
  for (const layout::Stage& stage : out.slices.stages) {
    int64_t bytes = 0;
    for (const Piece& piece : stage.pieces) bytes += ring_bytes(piece, plan.single_tier);
    if (&stage != &out.slices.stages.back())
      out.largest_stage_bytes = std::max(out.largest_stage_bytes, bytes);
  }
}

void place_device(const Model& model, const Plan& plan, const ResidentPacker& residents,
                  Footprint& out) {
  const layout::DecoderSpec& spec = model.spec;
  Packer packer;
  DevicePlaces& d = out.device;
  d.vectors = packer.take(pack_vectors(model, out));
  d.resident = packer.take(residents.bytes(Tier::kDevice), kPageBytes);
  d.weight_ring = packer.take(plan.weight_ring_bytes, kPageBytes);
  d.kv = packer.take(plan.kv_blocks[0] * out.kv_block_bytes, kPageBytes);
  d.kv_ring = packer.take(plan.kv_ring_device_blocks * out.kv_block_bytes, kPageBytes);
  d.hidden = packer.take(plan.num_batches * out.device_rows * spec.hidden * kFloat);
  d.hidden_work = packer.take(2 * out.host_rows * spec.hidden * kFloat);
  d.visit = packer.take(plan.visit_buffers * plan.batch_rows() *
                        (spec.q_width() + 2 * spec.kv_width()) * kFloat);
  d.chunk = packer.take(plan.chunk_tokens * chunk_floats(spec) * kFloat);
  d.head_input = packer.take(out.head_rows * spec.embed_dim * kFloat);
  d.logits = packer.take((plan.keeps_kv() ? out.head_rows * spec.vocab
                                          : kScoreTileRows * std::min(spec.vocab, kScoreTileCols)) *
                         kFloat);
  d.gather = packer.take(2 * kGatherRows * out.gather_device_slot, kPageBytes);
  out.bytes[0] = packer.end();
}

void place_host(const Model& model, const Plan& plan, const ResidentPacker& residents,
                Footprint& out) {
  if (plan.single_tier) return;
  const layout::DecoderSpec& spec = model.spec;
  Packer packer;
  HostPlaces& h = out.host;
  h.staging = packer.take(plan.staging_bytes, kPageBytes);
  h.kv_ring = packer.take(plan.kv_ring_host_blocks * out.kv_block_bytes, kPageBytes);
  h.gather = packer.take(2 * kGatherRows * out.gather_host_slot, kPageBytes);
  h.resident = packer.take(residents.bytes(Tier::kHost), kPageBytes);
  h.kv = packer.take(plan.kv_blocks[1] * out.kv_block_bytes, kPageBytes);
  h.hidden = packer.take(plan.num_batches * out.host_rows * spec.hidden * kFloat);
  const bool attends = plan.attention == AttentionSite::kHost;
  h.query =
      packer.take(attends ? plan.visit_buffers * plan.batch_size * spec.q_width() * kFloat : 0);
  out.bytes[1] = packer.end();
}

// Most tasks of a sweep: a read and a copy a piece, some twenty a visit, and where the KV cache is
// off the device a group of KV blocks a row at worst.
int64_t tasks_of_sweep(const Model& model, const Plan& plan, int64_t pieces) {
  const bool moves_kv = plan.kv_blocks[1] + plan.kv_blocks[2] > 0;
  const int64_t visits = plan.num_batches * model.spec.layers;
  return 2 * pieces + 20 * visits + (moves_kv ? 6 * plan.batch_size * visits : 0);
}

// What is on no tier, an upper bound. The parts that depend on the plan are counted from the sizes
// of their records; the others are measured (VmHWM less the tiers, x86-64, Debian 12), with room.
int64_t size_process(const Model& model, const Plan& plan, const Footprint& out) {
  constexpr int64_t kFixed = 14 * kMiB;    // code, libraries, stacks, disk queues: 8.6 MiB
  constexpr int64_t kTokenByte = 256;      // of a vocabulary's tokenizer, built and read: 150
  constexpr int64_t kTaskBytes = 4 * 128;  // in growing queues: up to twice as long, twice there
  constexpr int64_t kPieceBytes = 384;     // its slice, its spans in two rings, its places
  constexpr int64_t kWeightBytes = 512;    // its name and shape, in the header and in the model
  constexpr int64_t kBlockBytes = 64;      // in the tables, two sweeps' places, the checksums
  constexpr int64_t kRowTokenBytes = 16;   // token and text, of a sequence that runs or waits
  int64_t pieces = static_cast<int64_t>(out.loads.size());
  for (const layout::Stage& stage : out.slices.stages)
    pieces += static_cast<int64_t>(stage.pieces.size());
  int64_t cols = model.spec.head_dim;
  for (const Weight& weight : model.weights) cols = std::max(cols, weight.cols);
  const int64_t backends = plan.attention == AttentionSite::kHost ? 2 : 1;
  const int64_t fixed =
      kFixed + model.spec.vocab * (kTokenByte + (plan.threads + 1) * 12) +
      backends * layout::kernel_scratch_bytes(plan.threads, cols, model.spec.head_dim);
  const int64_t records = pieces * kPieceBytes +
                          static_cast<int64_t>(model.weights.size()) * kWeightBytes +
                          tasks_of_sweep(model, plan, pieces) * kTaskBytes;
  const int64_t sequences =
      plan.row_slots() *
      (model.spec.layers * out.max_kv_blocks * kBlockBytes + 2 * plan.max_tokens * kRowTokenBytes);
  // The machine is measured before the tiers are there.
  return fixed + records + sequences +
         std::max<int64_t>(kProbeBytes - out.bytes[0] - out.bytes[1], 0);
}

}  // namespace

int64_t paged_bytes(const Piece& piece) {
  return round_up(piece.file_offset + piece.bytes, kPageBytes) -
         round_down(piece.file_offset, kPageBytes);
}

int64_t ring_bytes(const Piece& piece, bool single_tier) {
  return single_tier ? paged_bytes(piece) : round_up(piece.bytes, kAlign);
}

Footprint footprint(const Model& model, const Plan& plan) {
  Footprint out;
  out.slices = layout::cut_weights(model, plan.weights, plan.piece_bytes);
  ResidentPacker residents(model, plan, out);
  residents.run();
  size_gather(model, plan, out);
  size_rows(model, plan, out);
  place_device(model, plan, residents, out);
  place_host(model, plan, residents, out);
  out.bytes[2] = plan.kv_blocks[2] * out.kv_block_bytes;
  out.process_bytes = size_process(model, plan, out);
  return out;
}

std::vector<Line> Footprint::lines() const {
  std::vector<Line> lines;
  const auto add = [&](std::string_view tier, std::string_view name, int64_t size) {
    if (size > 0) lines.push_back({tier, name, size});
  };
  add("device", "norms and biases", device.vectors.bytes);
  add("device", "weights", device.resident.bytes);
  add("device", "weight ring", device.weight_ring.bytes);
  add("device", "KV cache", device.kv.bytes);
  add("device", "KV ring", device.kv_ring.bytes);
  add("device", "activations", device.hidden.bytes + device.hidden_work.bytes + device.visit.bytes);
  add("device", "workspace", device.chunk.bytes + device.head_input.bytes + device.gather.bytes);
  add("device", "logits", device.logits.bytes);
  add("host", "weights", host.resident.bytes);
  add("host", "staging", host.staging.bytes);
  add("host", "KV cache", host.kv.bytes);
  add("host", "KV ring", host.kv_ring.bytes);
  add("host", "activations", host.hidden.bytes + host.query.bytes + host.gather.bytes);
  add("disk", "KV cache", bytes[2]);
  return lines;
}

}  // namespace transload::planner
