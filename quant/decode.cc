// The reference decoders: ggml's dequantize_row_* as plain loops. No product is fused with a sum.
#include <cstring>

#include "base/check.h"
#include "quant/format.h"

namespace transload::quant {
namespace {

uint16_t load16(const uint8_t* bytes) {
  uint16_t value = 0;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

void decode_f32(const uint8_t* in, float* out) { std::memcpy(out, in, sizeof *out); }
void decode_f16(const uint8_t* in, float* out) { *out = half_to_float(load16(in)); }
void decode_bf16(const uint8_t* in, float* out) { *out = bfloat16_to_float(load16(in)); }

void decode_q4_0(const uint8_t* in, float* out) {
  const float d = half_to_float(load16(in));
  const uint8_t* codes = in + 2;
  for (int j = 0; j < 16; ++j) {
    out[j] = static_cast<float>((codes[j] & 0xF) - 8) * d;
    out[j + 16] = static_cast<float>((codes[j] >> 4) - 8) * d;
  }
}

void decode_q4_1(const uint8_t* in, float* out) {
  const float d = half_to_float(load16(in));
  const float m = half_to_float(load16(in + 2));
  const uint8_t* codes = in + 4;
  for (int j = 0; j < 16; ++j) {
    const float low = static_cast<float>(codes[j] & 0xF) * d;
    const float high = static_cast<float>(codes[j] >> 4) * d;
    out[j] = low + m;
    out[j + 16] = high + m;
  }
}

void decode_q8_0(const uint8_t* in, float* out) {
  const float d = half_to_float(load16(in));
  for (int j = 0; j < 32; ++j) out[j] = static_cast<float>(static_cast<int8_t>(in[2 + j])) * d;
}

struct ScaleMinimum {
  float scale;
  float minimum;
};

// The six-bit scale and minimum of sub-block j of a Q4_K or Q5_K block, times the block's own.
ScaleMinimum scale_minimum(const uint8_t* block, int j) {
  const float d = half_to_float(load16(block));
  const float dmin = half_to_float(load16(block + 2));
  const uint8_t* packed = block + 4;
  int scale = 0;
  int minimum = 0;
  if (j < 4) {
    scale = packed[j] & 63;
    minimum = packed[j + 4] & 63;
  } else {
    scale = (packed[j + 4] & 0xF) | ((packed[j - 4] >> 6) << 4);
    minimum = (packed[j + 4] >> 4) | ((packed[j] >> 6) << 4);
  }
  return {d * static_cast<float>(scale), dmin * static_cast<float>(minimum)};
}

void decode_q4_k(const uint8_t* in, float* out) {
  const uint8_t* codes = in + 16;
  for (int j = 0; j < 8; ++j) {
    const ScaleMinimum of = scale_minimum(in, j);
    const int shift = j % 2 * 4;
    for (int l = 0; l < 32; ++l) {
      const int code = (codes[j / 2 * 32 + l] >> shift) & 0xF;
      const float product = of.scale * static_cast<float>(code);
      out[j * 32 + l] = product - of.minimum;
    }
  }
}

void decode_q5_k(const uint8_t* in, float* out) {
  const uint8_t* high = in + 16;
  const uint8_t* codes = in + 48;
  for (int j = 0; j < 8; ++j) {
    const ScaleMinimum of = scale_minimum(in, j);
    const int shift = j % 2 * 4;
    for (int l = 0; l < 32; ++l) {
      const int code = ((codes[j / 2 * 32 + l] >> shift) & 0xF) | (((high[l] >> j) & 1) << 4);
      const float product = of.scale * static_cast<float>(code);
      out[j * 32 + l] = product - of.minimum;
    }
  }
}

void decode_q6_k(const uint8_t* in, float* out) {
  const float d = half_to_float(load16(in + 208));
  for (int i = 0; i < 256; ++i) {
    const int half = i / 128;
    const int quarter = i % 128 / 32;
    const int l = i % 32;
    const uint8_t low = in[half * 64 + quarter % 2 * 32 + l];
    const uint8_t high = in[128 + half * 32 + l];
    const int code = ((low >> (quarter / 2 * 4)) & 0xF) | (((high >> (quarter * 2)) & 3) << 4);
    const auto scale = static_cast<int8_t>(in[192 + i / 16]);
    const float scaled = d * static_cast<float>(scale);
    out[i] = scaled * static_cast<float>(code - 32);
  }
}

using DecodeBlock = void (*)(const uint8_t*, float*);

DecodeBlock decode_block(Format format) {
  switch (format) {
    case Format::kF32:
      return decode_f32;
    case Format::kF16:
      return decode_f16;
    case Format::kBF16:
      return decode_bf16;
    case Format::kQ4_0:
      return decode_q4_0;
    case Format::kQ4_1:
      return decode_q4_1;
    case Format::kQ8_0:
      return decode_q8_0;
    case Format::kQ4_K:
      return decode_q4_k;
    case Format::kQ5_K:
      return decode_q5_k;
    case Format::kQ6_K:
      return decode_q6_k;
  }
  check(false, "no such storage format");
  return nullptr;
}

}  // namespace

void decode(Format format, std::span<const std::byte> bytes, std::span<float> values) {
  const auto count = static_cast<int64_t>(values.size());
  check(static_cast<int64_t>(bytes.size()) == row_bytes(format, count),
        "bytes and values of a row disagree");
  const DecodeBlock block = decode_block(format);
  const int64_t step_bytes = block_bytes(format);
  const int64_t step_values = block_values(format);
  const auto* in = reinterpret_cast<const uint8_t*>(bytes.data());
  for (int64_t i = 0; i < count / step_values; ++i) {
    block(in + i * step_bytes, values.data() + i * step_values);
  }
}

}  // namespace transload::quant
