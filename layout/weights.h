// The tensors of a model by role: shapes, formats and where their bytes lie.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "layout/decoder_spec.h"
#include "quant/format.h"

namespace transload::layout {

// Matrices are [rows = outputs, cols = inputs], row-major, and are placed by row slices. Vectors
// (norms and biases) are small and always lie on the device in float32.
enum class Role : uint8_t {
  kEmbedding,  // [vocab, embed_dim], gathered; also the head where tied_head
  kPositions,  // [positions, hidden], gathered (learned positions)
  kProjectIn,  // [hidden, embed_dim]
  kQ,
  kK,
  kV,
  kQkv,
  kO,
  kGate,
  kUp,
  kDown,        // of a layer
  kProjectOut,  // [embed_dim, hidden]
  kHead,        // [vocab, embed_dim]
  // vectors
  kNorm1,
  kNorm1Bias,
  kNorm2,
  kNorm2Bias,
  kQBias,
  kKBias,
  kVBias,
  kQkvBias,
  kOBias,
  kGateBias,
  kUpBias,
  kDownBias,
  kFinalNorm,
  kFinalNormBias,
  kHeadBias,
};
inline constexpr Role kLastMatrix = Role::kHead;
inline constexpr int kRoles = static_cast<int>(Role::kHeadBias) + 1;
inline bool is_matrix(Role role) { return role <= kLastMatrix; }
std::string_view name(Role role);

// Rows and columns of a role in a model; vectors have one row. (kPositions counts max_positions
// and the rows before position 0.)
struct Shape {
  int64_t rows = 1;
  int64_t cols = 0;
};
Shape shape_of(const DecoderSpec& spec, Role role);

struct Extent {
  int32_t file = 0;  // index into Model::files
  int64_t offset = 0;
  int64_t bytes = 0;
};

struct Weight {
  Role role{};
  int32_t layer = -1;  // -1: not of a layer
  std::string name;    // as the checkpoint spells it
  quant::Format format{};
  int64_t rows = 1;  // vectors: 1
  int64_t cols = 0;
  Extent extent;

  int64_t row_bytes() const { return quant::row_bytes(format, cols); }
};

// A model as the planner and the engine see it. `weights` is in execution order: embedding,
// positions, project-in, layers 0.. in Role order, project-out, final norm, head; no head where
// tied_head. Each role occurs at most once a layer.
struct Model {
  std::string name;
  DecoderSpec spec;
  std::vector<std::string> files;
  std::vector<Weight> weights;

  // The weight of a role, or null. layer -1 for those outside layers.
  const Weight* find(Role role, int32_t layer = -1) const;
  int64_t weight_bytes() const;  // all extents, each once
};

}  // namespace transload::layout
