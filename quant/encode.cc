#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "base/check.h"
#include "base/error.h"
#include "quant/format.h"

namespace transload::quant {
namespace {

void store16(uint16_t value, uint8_t* bytes) { std::memcpy(bytes, &value, sizeof value); }

void encode_f32(const float* in, uint8_t* out) { std::memcpy(out, in, sizeof *in); }
void encode_f16(const float* in, uint8_t* out) { store16(float_to_half(*in), out); }
void encode_bf16(const float* in, uint8_t* out) { store16(float_to_bfloat16(*in), out); }

float inverse(float d) { return d != 0 ? 1.0F / d : 0.0F; }

// Truncates to a 4-bit code; `shifted` is the scaled value plus the half that rounds it.
uint8_t nibble(float shifted) {
  return static_cast<uint8_t>(std::min(15, static_cast<int>(shifted)));
}

void encode_q4_0(const float* in, uint8_t* out) {
  float extreme = 0;
  for (int j = 0; j < 32; ++j) {
    if (std::fabs(in[j]) > std::fabs(extreme)) extreme = in[j];
  }
  const float d = extreme / -8;
  const float id = inverse(d);
  store16(float_to_half(d), out);
  for (int j = 0; j < 16; ++j) {
    const int low = nibble(in[j] * id + 8.5F);
    const int high = nibble(in[j + 16] * id + 8.5F);
    out[2 + j] = static_cast<uint8_t>(low | (high << 4));
  }
}

void encode_q4_1(const float* in, uint8_t* out) {
  const float minimum = *std::min_element(in, in + 32);
  const float maximum = *std::max_element(in, in + 32);
  const float d = (maximum - minimum) / 15;
  const float id = inverse(d);
  store16(float_to_half(d), out);
  store16(float_to_half(minimum), out + 2);
  for (int j = 0; j < 16; ++j) {
    const int low = nibble((in[j] - minimum) * id + 0.5F);
    const int high = nibble((in[j + 16] - minimum) * id + 0.5F);
    out[4 + j] = static_cast<uint8_t>(low | (high << 4));
  }
}

void encode_q8_0(const float* in, uint8_t* out) {
  float largest = 0;
  for (int j = 0; j < 32; ++j) largest = std::max(largest, std::fabs(in[j]));
  const float d = largest / 127;
  const float id = inverse(d);
  store16(float_to_half(d), out);
  for (int j = 0; j < 32; ++j) {
    out[2 + j] = static_cast<uint8_t>(static_cast<int8_t>(std::round(in[j] * id)));
  }
}

using EncodeBlock = void (*)(const float*, uint8_t*);

EncodeBlock encode_block(Format format) {
  switch (format) {
    case Format::kF32:
      return encode_f32;
    case Format::kF16:
      return encode_f16;
    case Format::kBF16:
      return encode_bf16;
    case Format::kQ4_0:
      return encode_q4_0;
    case Format::kQ4_1:
      return encode_q4_1;
    case Format::kQ8_0:
      return encode_q8_0;
    default:
      break;
  }
  throw Error(Kind::kUnsupported, "encoding to " + std::string(name(format)) +
                                      " is not supported: use F32, F16, BF16, Q4_0, Q4_1 or Q8_0");
}

// A group with a scale has no code for infinity, and none for a value whose scale leaves F16.
void refuse_unencodable(Format format, std::span<const float> values) {
  if (block_values(format) == 1) return;
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::fabs(values[i]) <= 65504.0F) continue;  // false for a NaN too
    throw Error(Kind::kBadInput, "value " + std::to_string(i) + " is " + std::to_string(values[i]) +
                                     ", which " + std::string(name(format)) +
                                     " cannot hold: keep this tensor in F32");
  }
}

}  // namespace

void encode(Format format, std::span<const float> values, std::span<std::byte> bytes) {
  const auto count = static_cast<int64_t>(values.size());
  const EncodeBlock block = encode_block(format);
  check(static_cast<int64_t>(bytes.size()) == row_bytes(format, count),
        "bytes and values of a row disagree");
  refuse_unencodable(format, values);
  const int64_t step_bytes = block_bytes(format);
  const int64_t step_values = block_values(format);
  auto* out = reinterpret_cast<uint8_t*>(bytes.data());
  for (int64_t i = 0; i < count / step_values; ++i) {
    block(values.data() + i * step_values, out + i * step_bytes);
  }
}

}  // namespace transload::quant
