#include "layout/slices.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "base/check.h"
#include "base/units.h"

namespace transload::layout {
namespace {

constexpr int64_t kGranuleRows = 8;
constexpr int64_t kHeadGranuleRows = 64;  // a vocabulary tile of the head's running log-sum-exp

bool always_on_device(Role role) {
  return role == Role::kPositions || role == Role::kProjectIn || role == Role::kProjectOut;
}

bool is_vocab_matrix(Role role) { return role == Role::kEmbedding || role == Role::kHead; }

int64_t granule(Role role) { return is_vocab_matrix(role) ? kHeadGranuleRows : kGranuleRows; }

// Hands out rows of one matrix after the other so that the totals follow the shares.
class Cutter {
 public:
  explicit Cutter(const Shares& shares) : shares_(shares) {}

  MatrixCut cut(const Weight& weight) {
    const double bytes = static_cast<double>(weight.rows * weight.row_bytes());
    wanted_device_ += shares_.device * bytes;
    wanted_host_ += shares_.host * bytes;
    MatrixCut result;
    result.begin[1] = take(weight, weight.rows, shares_.host + shares_.disk, wanted_device_);
    const int64_t left = weight.rows - result.begin[1];
    result.begin[2] = result.begin[1] + take(weight, left, shares_.disk, wanted_host_);
    result.begin[3] = weight.rows;
    return result;
  }

 private:
  static int64_t take(const Weight& weight, int64_t rows, double rest, double& wanted_bytes) {
    if (rest <= 0) {
      wanted_bytes -= static_cast<double>(rows * weight.row_bytes());
      return rows;
    }
    const int64_t unit = granule(weight.role);
    const auto units = std::llround(wanted_bytes / static_cast<double>(unit * weight.row_bytes()));
    const int64_t taken = std::clamp<int64_t>(units * unit, 0, rows);
    wanted_bytes -= static_cast<double>(taken * weight.row_bytes());
    return taken;
  }

  Shares shares_;
  double wanted_device_ = 0;  // bytes still owed to the tier
  double wanted_host_ = 0;
};

Piece make_piece(const Model& model, int32_t index, Tier home, int64_t first_row, int64_t rows) {
  const Weight& weight = model.weights[static_cast<size_t>(index)];
  return {.weight = index,
          .home = home,
          .first_row = first_row,
          .rows = rows,
          .file_offset = weight.extent.offset + first_row * weight.row_bytes(),
          .bytes = rows * weight.row_bytes()};
}

void add_streamed(const Model& model, int32_t index, const MatrixCut& cut, int64_t piece_bytes,
                  Stage& stage) {
  const Weight& weight = model.weights[static_cast<size_t>(index)];
  const int64_t unit = granule(weight.role);
  const int64_t step = std::max<int64_t>(unit, round_down(piece_bytes / weight.row_bytes(), unit));
  for (const Tier home : {Tier::kHost, Tier::kDisk}) {
    const auto t = static_cast<size_t>(home);
    for (int64_t row = cut.begin[t]; row < cut.begin[t + 1]; row += step) {
      const int64_t rows = std::min(step, cut.begin[t + 1] - row);
      stage.pieces.push_back(make_piece(model, index, home, row, rows));
      stage.bytes += stage.pieces.back().bytes;
    }
  }
}

}  // namespace

const Weight& head_weight(const Model& model) {
  const Weight* weight = model.find(model.spec.tied_head ? Role::kEmbedding : Role::kHead);
  check(weight != nullptr, "model without a head");
  return *weight;
}

WeightSlices cut_weights(const Model& model, const Shares& shares, int64_t piece_bytes) {
  WeightSlices slices;
  slices.cuts.resize(model.weights.size());
  slices.stages.resize(static_cast<size_t>(model.spec.layers) + 1);
  Cutter cutter(shares);
  const Weight* head = &head_weight(model);
  for (size_t i = 0; i < model.weights.size(); ++i) {
    const Weight& weight = model.weights[i];
    if (!is_matrix(weight.role)) continue;
    MatrixCut cut;
    if (always_on_device(weight.role)) {
      cut.begin = {0, weight.rows, weight.rows, weight.rows};
    } else {
      cut = cutter.cut(weight);
    }
    slices.cuts[i] = cut;
    const auto index = static_cast<int32_t>(i);
    for (const Tier home : {Tier::kDevice, Tier::kHost}) {
      const auto t = static_cast<size_t>(home);
      if (cut.rows(home) > 0)
        slices.resident.push_back(make_piece(model, index, home, cut.begin[t], cut.rows(home)));
    }
    for (int t = 0; t < kTiers; ++t)
      slices.bytes[static_cast<size_t>(t)] += cut.rows(static_cast<Tier>(t)) * weight.row_bytes();
    if (weight.layer >= 0)
      add_streamed(model, index, cut, piece_bytes,
                   slices.stages[static_cast<size_t>(weight.layer)]);
    if (&weight == head) add_streamed(model, index, cut, piece_bytes, slices.stages.back());
  }
  std::sort(slices.resident.begin(), slices.resident.end(), [&](const Piece& a, const Piece& b) {
    const auto file = [&](const Piece& p) {
      return model.weights[static_cast<size_t>(p.weight)].extent.file;
    };
    return std::make_tuple(a.home, file(a), a.file_offset) <
           std::make_tuple(b.home, file(b), b.file_offset);
  });
  return slices;
}

}  // namespace transload::layout
