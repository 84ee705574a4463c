// Decoding of a row from its storage format. Products and sums are rounded apart, as in
// quant::decode, so that the bits are the same.
#include <cstdint>
#include <cstring>

#include "kernels/cpu/ops.h"
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/decode_row.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h: once for each target.
#include "kernels/cpu/half_inl.h"

HWY_BEFORE_NAMESPACE();
namespace transload::kernels::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;
using Bits = hn::Rebind<uint32_t, D>;
using Signed = hn::Rebind<int32_t, D>;
using Halves = hn::Rebind<uint16_t, D>;
using Bytes = hn::Rebind<uint8_t, D>;
using SignedBytes = hn::Rebind<int8_t, D>;

float scalar_half(const uint8_t* in) {
  uint16_t half = 0;
  memcpy(&half, in, sizeof half);
  return hn::GetLane(half_to_float(D(), hn::Set(Bits(), half)));
}

HWY_INLINE hn::Vec<Bits> load_halves(const uint8_t* in) {
  HWY_ALIGN uint16_t lanes[HWY_LANES(float)];
  memcpy(lanes, in, sizeof lanes);
  return hn::PromoteTo(Bits(), hn::Load(Halves(), lanes));
}

// Decodes 16-bit floats; the last ones go through a vector of zeros.
template <bool kBrain>
void decode_plain16(const uint8_t* in, int64_t values, float* out) {
  const D d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t c = 0; c < values; c += lanes) {
    const int64_t left = values - c;
    uint8_t tail[2 * HWY_LANES(float)] = {};
    const uint8_t* from = in + 2 * c;
    if (left < lanes) {
      memcpy(tail, from, static_cast<size_t>(2 * left));
      from = tail;
    }
    const auto bits = load_halves(from);
    const V v = kBrain ? hn::BitCast(d, hn::ShiftLeft<16>(bits)) : half_to_float(d, bits);
    if (left >= lanes) {
      hn::StoreU(v, d, out + c);
    } else {
      HWY_ALIGN float last[HWY_LANES(float)];
      hn::Store(v, d, last);
      memcpy(out + c, last, static_cast<size_t>(left) * sizeof(float));
    }
  }
}

HWY_INLINE V to_float(hn::Vec<Bytes> codes) {
  return hn::ConvertTo(D(), hn::PromoteTo(Signed(), codes));
}
HWY_INLINE hn::Vec<Bytes> low_codes(hn::Vec<Bytes> bytes) {
  return hn::And(bytes, hn::Set(Bytes(), uint8_t{0xF}));
}
HWY_INLINE hn::Vec<Bytes> high_codes(hn::Vec<Bytes> bytes) { return hn::ShiftRight<4>(bytes); }

void decode_q4_0(const uint8_t* in, int64_t values, float* out) {
  const D d;
  const V eight = hn::Set(d, 8.0F);
  for (int64_t i = 0; i < values; i += 32, in += 18, out += 32) {
    const V scale = hn::Set(d, scalar_half(in));
    for (size_t j = 0; j < 16; j += hn::Lanes(d)) {
      const auto bytes = hn::LoadU(Bytes(), in + 2 + j);
      hn::StoreU(hn::Mul(hn::Sub(to_float(low_codes(bytes)), eight), scale), d, out + j);
      hn::StoreU(hn::Mul(hn::Sub(to_float(high_codes(bytes)), eight), scale), d, out + 16 + j);
    }
  }
}

void decode_q4_1(const uint8_t* in, int64_t values, float* out) {
  const D d;
  for (int64_t i = 0; i < values; i += 32, in += 20, out += 32) {
    const V scale = hn::Set(d, scalar_half(in));
    const V minimum = hn::Set(d, scalar_half(in + 2));
    for (size_t j = 0; j < 16; j += hn::Lanes(d)) {
      const auto bytes = hn::LoadU(Bytes(), in + 4 + j);
      hn::StoreU(hn::Add(hn::Mul(to_float(low_codes(bytes)), scale), minimum), d, out + j);
      hn::StoreU(hn::Add(hn::Mul(to_float(high_codes(bytes)), scale), minimum), d, out + 16 + j);
    }
  }
}

void decode_q8_0(const uint8_t* in, int64_t values, float* out) {
  const D d;
  for (int64_t i = 0; i < values; i += 32, in += 34, out += 32) {
    const V scale = hn::Set(d, scalar_half(in));
    for (size_t j = 0; j < 32; j += hn::Lanes(d)) {
      const auto* codes = reinterpret_cast<const int8_t*>(in + 2 + j);
      const auto wide = hn::PromoteTo(Signed(), hn::LoadU(SignedBytes(), codes));
      hn::StoreU(hn::Mul(hn::ConvertTo(d, wide), scale), d, out + j);
    }
  }
}

struct ScaleMinimum {
  float scale;
  float minimum;
};

// The six-bit scale and minimum of sub-block j, times the block's own. See quant::decode.
ScaleMinimum scale_minimum(const uint8_t* packed, int j, float scale, float minimum) {
  int s = packed[j] & 63;
  int m = packed[j + 4] & 63;
  if (j >= 4) {
    s = (packed[j + 4] & 0xF) | ((packed[j - 4] >> 6) << 4);
    m = (packed[j + 4] >> 4) | ((packed[j] >> 6) << 4);
  }
  return {scale * static_cast<float>(s), minimum * static_cast<float>(m)};
}

// Q4_K, and Q5_K where the fifth bits lie before the codes.
template <bool kFive>
void decode_q45_k(const uint8_t* in, int64_t values, float* out) {
  const D d;
  constexpr int64_t kBytes = kFive ? 176 : 144;
  for (int64_t i = 0; i < values; i += 256, in += kBytes, out += 256) {
    const float scale = scalar_half(in);
    const float minimum = scalar_half(in + 2);
    const uint8_t* codes = in + (kFive ? 48 : 16);
    for (int sub = 0; sub < 8; ++sub) {
      const ScaleMinimum of = scale_minimum(in + 4, sub, scale, minimum);
      const auto fifth = hn::Set(Bytes(), static_cast<uint8_t>(1U << sub));
      for (size_t j = 0; j < 32; j += hn::Lanes(d)) {
        const auto bytes = hn::LoadU(Bytes(), codes + sub / 2 * 32 + j);
        auto code = sub % 2 == 0 ? low_codes(bytes) : high_codes(bytes);
        if constexpr (kFive) {
          const auto high = hn::And(hn::LoadU(Bytes(), in + 16 + j), fifth);
          const auto sixteen = hn::Set(Bytes(), uint8_t{16});
          code = hn::Or(code, hn::IfThenElseZero(hn::Eq(high, fifth), sixteen));
        }
        const V product = hn::Mul(hn::Set(d, of.scale), to_float(code));
        hn::StoreU(hn::Sub(product, hn::Set(d, of.minimum)), d, out + sub * 32 + j);
      }
    }
  }
}

// The two bits `quarter` of each byte, as bits 4 and 5.
HWY_INLINE hn::Vec<Bytes> high_pair(hn::Vec<Bytes> bytes, int quarter) {
  const auto mask = hn::Set(Bytes(), uint8_t{0x30});
  switch (quarter) {
    case 0:
      return hn::And(hn::ShiftLeft<4>(bytes), mask);
    case 1:
      return hn::And(hn::ShiftLeft<2>(bytes), mask);
    case 2:
      return hn::And(bytes, mask);
    default:
      return hn::And(hn::ShiftRight<2>(bytes), mask);
  }
}

void decode_q6_k_part(const uint8_t* in, int part, float scale, float* out) {
  const D d;
  const int quarter = part % 4;
  const uint8_t* low = in + part / 4 * 64 + quarter % 2 * 32;
  const uint8_t* high = in + 128 + part / 4 * 32;
  for (size_t j = 0; j < 32; j += hn::Lanes(d)) {
    const auto bytes = hn::LoadU(Bytes(), low + j);
    const auto nibbles = quarter < 2 ? low_codes(bytes) : high_codes(bytes);
    const auto codes = hn::Or(nibbles, high_pair(hn::LoadU(Bytes(), high + j), quarter));
    const auto own = static_cast<int8_t>(in[192 + part * 2 + static_cast<int>(j / 16)]);
    const V of = hn::Set(d, scale * static_cast<float>(own));
    hn::StoreU(hn::Mul(of, hn::Sub(to_float(codes), hn::Set(d, 32.0F))), d, out + j);
  }
}

void decode_q6_k(const uint8_t* in, int64_t values, float* out) {
  for (int64_t i = 0; i < values; i += 256, in += 210, out += 256) {
    const float scale = scalar_half(in + 208);
    for (int part = 0; part < 8; ++part) decode_q6_k_part(in, part, scale, out + part * 32);
  }
}

void decode_row(quant::Format format, const std::byte* bytes, int64_t values, float* out) {
  const auto* in = reinterpret_cast<const uint8_t*>(bytes);
  switch (format) {
    case quant::Format::kF32:
      memcpy(out, in, static_cast<size_t>(values) * sizeof(float));
      return;
    case quant::Format::kF16:
      return decode_plain16<false>(in, values, out);
    case quant::Format::kBF16:
      return decode_plain16<true>(in, values, out);
    case quant::Format::kQ4_0:
      return decode_q4_0(in, values, out);
    case quant::Format::kQ4_1:
      return decode_q4_1(in, values, out);
    case quant::Format::kQ8_0:
      return decode_q8_0(in, values, out);
    case quant::Format::kQ4_K:
      return decode_q45_k<false>(in, values, out);
    case quant::Format::kQ5_K:
      return decode_q45_k<true>(in, values, out);
    case quant::Format::kQ6_K:
      return decode_q6_k(in, values, out);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace transload::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace transload::kernels::cpu {

void set_decode_ops(InstructionSet set, Ops* ops) {
  ops->decode_row = TRANSLOAD_CHOOSE(set, decode_row);
}

}  // namespace transload::kernels::cpu
#endif  // HWY_ONCE
