// Formats of codes, a group of a vector of rows at a time: see code_dot_inl.h.
#pragma once

#include "kernels/cpu/code_dot_inl.h"

namespace transload::kernels::cpu {

// at: the vector's first row;  g: the group.  kRun: so many vectors of pairs of products, added,
// fit 16 bits.  Codes are 2^kOffsetBits too large where kOffsetBits is not 0.
struct Q4_0 {
  static constexpr int64_t kValues = 32, kBytes = 18;
  static constexpr bool kMinimum = false, kSigned = false;
  static constexpr int kScales = 1, kOffsetBits = 3, kRun = 8;
  template <class Isa>
  static void unpack(const std::byte* at, int64_t stride, int64_t g, CodeGroup<Isa>& out) {
    at += g * kBytes;
    out.scale[0] = Isa::low_halves(Isa::first_words(at, stride));
    Isa::unpack_nibbles(at + 2, stride, out.codes);
  }
};

struct Q4_1 {
  static constexpr int64_t kValues = 32, kBytes = 20;
  static constexpr bool kMinimum = true, kSigned = false;
  static constexpr int kScales = 1, kOffsetBits = 0, kRun = 8;
  template <class Isa>
  static void unpack(const std::byte* at, int64_t stride, int64_t g, CodeGroup<Isa>& out) {
    at += g * kBytes;
    const auto words = Isa::first_words(at, stride);
    out.scale[0] = Isa::low_halves(words);
    out.minimum = Isa::high_halves(words);
    Isa::unpack_nibbles(at + 4, stride, out.codes);
  }
};

struct Q8_0 {
  static constexpr int64_t kValues = 32, kBytes = 34;
  static constexpr bool kMinimum = false, kSigned = true;
  static constexpr int kScales = 1, kOffsetBits = 7, kRun = 1;
  template <class Isa>
  static void unpack(const std::byte* at, int64_t stride, int64_t g, CodeGroup<Isa>& out) {
    at += g * kBytes;
    out.scale[0] = Isa::low_halves(Isa::first_words(at, stride));
    Isa::unpack_bytes(at + 2, stride, out.codes);
    Isa::unpack_bytes(at + 18, stride, out.codes + 4);
  }
};

// The scale and minimum of group `sub` of a block of Q4_K or Q5_K: six bits each, times the block's
// own. words: the first 16 bytes of a block. See quant::decode.
template <class Isa>
[[gnu::always_inline]] inline void unpack_scales(const typename Isa::Codes* words, int sub,
                                                 CodeGroup<Isa>& out) {
  const int shift = 8 * (sub % 4);
  auto scale = Isa::bits(words[1], shift, 63);
  auto minimum = Isa::bits(words[2], shift, 63);
  if (sub >= 4) {
    scale = Isa::join(Isa::bits(words[3], shift, 15), Isa::bits(words[1], shift + 6, 3), 4);
    minimum = Isa::join(Isa::bits(words[3], shift + 4, 15), Isa::bits(words[2], shift + 6, 3), 4);
  }
  out.scale[0] = Isa::multiply(Isa::low_halves(words[0]), Isa::to_floats(scale));
  const auto above = Isa::multiply(Isa::high_halves(words[0]), Isa::to_floats(minimum));
  out.minimum = Isa::multiply(above, Isa::set(-1));
}

// Q4_K, and Q5_K where the fifth bits lie before the codes.
template <bool kFive>
struct Q45_K {
  static constexpr int64_t kValues = 256, kBytes = kFive ? 176 : 144;
  static constexpr bool kMinimum = true, kSigned = false;
  static constexpr int kScales = 1, kOffsetBits = 0, kRun = kFive ? 4 : 8;
  template <class Isa>
  static void unpack(const std::byte* at, int64_t stride, int64_t g, CodeGroup<Isa>& out) {
    at += g / 8 * kBytes;
    const auto sub = static_cast<int>(g % 8);
    typename Isa::Codes words[4];
    Isa::transpose(at, stride, words);
    unpack_scales<Isa>(words, sub, out);
    const std::byte* codes = at + (kFive ? 48 : 16) + sub / 2 * 32;
    for (int half = 0; half < 2; ++half) {
      auto* to = out.codes + 4 * half;
      Isa::transpose(codes + 16 * half, stride, to);
      for (int j = 0; j < 4; ++j) to[j] = Isa::byte_bits(to[j], sub % 2 * 4, 15);
      if constexpr (kFive) {
        Isa::transpose(at + 16 + 16 * half, stride, words);
        for (int j = 0; j < 4; ++j) {
          to[j] = Isa::join(to[j], Isa::byte_bits(words[j], sub, 1), 4);
        }
      }
    }
  }
};

struct Q6_K {
  static constexpr int64_t kValues = 256, kBytes = 210;
  static constexpr bool kMinimum = false, kSigned = false;
  static constexpr int kScales = 2, kOffsetBits = 5, kRun = 2;
  template <class Isa>
  static void unpack(const std::byte* at, int64_t stride, int64_t g, CodeGroup<Isa>& out) {
    at += g / 8 * kBytes;
    const auto sub = static_cast<int>(g % 8);
    const int quarter = sub % 4;
    const std::byte* low = at + sub / 4 * 64 + quarter % 2 * 32;
    const std::byte* high = at + 128 + sub / 4 * 32;
    typename Isa::Codes words[4];
    for (int half = 0; half < 2; ++half) {
      auto* to = out.codes + 4 * half;
      Isa::transpose(low + 16 * half, stride, to);
      Isa::transpose(high + 16 * half, stride, words);
      for (int j = 0; j < 4; ++j) {
        to[j] = Isa::join(Isa::byte_bits(to[j], quarter / 2 * 4, 15),
                          Isa::byte_bits(words[j], 2 * quarter, 3), 4);
      }
    }
    // A block ends with 16 scales of its parts and its own: halves are read from the last word.
    Isa::transpose(at + 194, stride, words);
    const auto own = Isa::high_halves(words[3]);
    Isa::transpose(at + 192, stride, words);
    for (int half = 0; half < 2; ++half) {
      const auto scale = Isa::signed_byte(words[sub / 2], sub % 2 * 16 + 8 * half);
      out.scale[half] = Isa::multiply(own, Isa::to_floats(scale));
    }
  }
};

}  // namespace transload::kernels::cpu
