// Rotary scaling as GGUF metadata says it.
#pragma once

#include <string>

#include "engine/checkpoint/checkpoint.h"
#include "engine/families/rotary.h"

namespace transload::engine {

// The tensor by which converters hand over a scaling: a divisor for each frequency.
inline constexpr const char* kRopeFactors = "rope_freqs.weight";

// Reads <prefix>rope.*. Requires: spec.max_positions is set. Errors: kUnsupported naming a scaling
// that is not implemented, kBadInput naming a damaged key.
Rotary read_gguf_rotary(ConfigReader& config, const std::string& prefix,
                        const layout::DecoderSpec& spec);

// Divides the inverse frequencies by the checkpoint's tensor kRopeFactors, if it has one.
// Reads a few values of the file. Errors: kBadInput for a wrong shape or a divisor not above 0.
void divide_by_rope_factors(const Checkpoint& checkpoint, layout::DecoderSpec& spec);

}  // namespace transload::engine
