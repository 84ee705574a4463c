// Rotary position embeddings: how fast each pair of dimensions turns, with the context-extending
// scalings.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/families/config_reader.h"
#include "layout/decoder_spec.h"

namespace transload::engine {

enum class RotaryScaling { kDefault, kLinear, kLlama3, kYarn };

struct Rotary {
  RotaryScaling scaling = RotaryScaling::kDefault;
  double theta = 10000.0;
  double fraction = 1.0;  // of a head's dimensions
  double factor = 1.0;
  double low_freq_factor = 1.0;   // llama3
  double high_freq_factor = 4.0;  // llama3
  double original_positions = 0;  // llama3, yarn
  double beta_fast = 32.0;        // yarn, as all below
  double beta_slow = 1.0;
  bool truncate = true;
  std::optional<double> attention_factor, mscale, mscale_all_dim;
};

// Names under which a family's configuration may hold the base and the fraction outside of
// rope_parameters, and the fraction where neither says one.
struct RotaryNames {
  std::string theta = "rope_theta";
  std::string fraction = "partial_rotary_factor";
  double default_fraction = 1.0;
};

// Reads both spellings: rope_theta (rotary_emb_base, ...) with rope_scaling, and rope_parameters.
// Requires: spec.max_positions is set.
// Errors: kUnsupported naming a scaling or a key of it that is not implemented; kBadInput where the
// spellings contradict each other or a scaling lacks a key.
Rotary read_rotary(ConfigReader& config, const RotaryNames& names, const layout::DecoderSpec& spec);

// Sets rotary_dim, inverse_frequencies and rotary_magnitude. Requires: head_dim is set.
//
//   f_i = theta^(-2 i / rotary_dim), i in [0, rotary_dim / 2), float32; scaled as rotary says.
//
// Source: transformers, modeling_rope_utils.py (RoFormer arXiv:2104.09864; llama3: Llama 3.1; yarn:
// arXiv:2309.00071). Errors: kUnsupported where rotary_dim is odd or 0.
void apply_rotary(const Rotary& rotary, layout::DecoderSpec& spec);

}  // namespace transload::engine
