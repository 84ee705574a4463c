// Storage formats of weights: plain floats and GGUF block types.
//
// A row of a matrix is a whole number of blocks; a block of `block_values` numbers takes
// `block_bytes` bytes. Layouts are those of the GGUF specification (ggml block_q4_0 ...
// block_q6_K), little endian.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace transload::quant {

enum class Format : uint8_t { kF32, kF16, kBF16, kQ4_0, kQ4_1, kQ8_0, kQ4_K, kQ5_K, kQ6_K };
inline constexpr int kFormats = 9;

int64_t block_values(Format format);
int64_t block_bytes(Format format);
std::string_view name(Format format);  // "F32", "Q4_1", ...

// Bytes of a row of `values` numbers. Requires: values is a multiple of block_values.
int64_t row_bytes(Format format, int64_t values);

// Decodes `values.size()` numbers from `bytes`. Reference implementation, plain loops: every
// faster path is tested against it bit for bit.
// Requires: values.size() is a multiple of block_values, bytes.size() == row_bytes.
void decode(Format format, std::span<const std::byte> bytes, std::span<float> values);

// Encodes by rounding to nearest (plain formats; kQ4_0, kQ4_1, kQ8_0 as ggml's reference
// quantisers do). Errors: kUnsupported for K formats.
void encode(Format format, std::span<const float> values, std::span<std::byte> bytes);

float half_to_float(uint16_t half);
uint16_t float_to_half(float value);  // to nearest even, overflow to infinity
float bfloat16_to_float(uint16_t value);
uint16_t float_to_bfloat16(float value);  // to nearest even

}  // namespace transload::quant
