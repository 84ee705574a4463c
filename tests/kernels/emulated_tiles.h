// The tiles of AMX in plain loops, as Intel's manual defines the instructions (volume 2: LDTILECFG,
// TILELOADD, TILESTORED, TDPBSUD, TDPBF16PS). A use that would fault there throws here.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <stdexcept>

#include "kernels/cpu/tile_brain_inl.h"
#include "kernels/cpu/tile_codes_inl.h"

namespace transload::kernels {

struct EmulatedTile {
  int64_t rows = 0;
  int64_t bytes = 0;
  unsigned char at[16][64] = {};
};

struct EmulatedTiles {
  using Tile = EmulatedTile;
  static inline Tile tiles[8];  // no test computes on two threads

  static void require(bool holds, const char* what) {
    if (!holds) throw std::logic_error(what);
  }
  static Tile& used(int tile) {
    require(tiles[tile].rows > 0 && tiles[tile].bytes > 0, "a tile that is not configured");
    return tiles[tile];
  }

  static void configure(const cpu::TileShapes& shapes) {
    require(shapes.palette == 1, "palette 1 is the one that there is");
    for (const uint8_t byte : shapes.unused) require(byte == 0, "reserved bytes are zeros");
    for (int i = 0; i < 16; ++i) {
      require(shapes.rows[i] <= 16 && shapes.row_bytes[i] <= 64, "a tile is 16 rows of 64 bytes");
      require((shapes.rows[i] == 0) == (shapes.row_bytes[i] == 0), "rows without bytes");
      require(i < 8 || shapes.rows[i] == 0, "there are 8 tiles");
      if (i < 8) tiles[i] = {shapes.rows[i], shapes.row_bytes[i], {}};
    }
  }
  static void release() {
    for (Tile& tile : tiles) tile = {};
  }
  template <int kTile>
  static void zero() {
    std::memset(used(kTile).at, 0, sizeof tiles[kTile].at);
  }
  template <int kTile>
  static void load(const void* from, int64_t stride) {
    Tile& tile = used(kTile);
    for (int64_t r = 0; r < tile.rows; ++r) {
      std::memcpy(tile.at[r], static_cast<const char*>(from) + r * stride,
                  static_cast<size_t>(tile.bytes));
    }
  }
  template <int kTile>
  static void store(void* to, int64_t stride) {
    const Tile& tile = used(kTile);
    for (int64_t r = 0; r < tile.rows; ++r) {
      std::memcpy(static_cast<char*>(to) + r * stride, tile.at[r], static_cast<size_t>(tile.bytes));
    }
  }

  // Calls add(word of C, m, n) for each result of C += A B.
  template <class Number, class Add>
  static void each_result(Tile& c, const Tile& a, const Tile& b, const Add& add) {
    require(&c != &a && &c != &b && &a != &b, "three different tiles");
    require(a.rows == c.rows && b.bytes == c.bytes, "shapes of results");
    require(a.bytes % 4 == 0 && a.bytes == 4 * b.rows, "shapes of factors");
    for (int64_t m = 0; m < c.rows; ++m) {
      for (int64_t n = 0; n < c.bytes / 4; ++n) {
        Number sum;
        std::memcpy(&sum, c.at[m] + 4 * n, sizeof sum);
        add(sum, m, n);
        std::memcpy(c.at[m] + 4 * n, &sum, sizeof sum);
      }
    }
  }
  template <int kC, int kA, int kB>
  static void dot_codes() {
    const Tile& a = used(kA);
    const Tile& b = used(kB);
    each_result<int32_t>(used(kC), a, b, [&](int32_t& sum, int64_t m, int64_t n) {
      for (int64_t k = 0; k < a.bytes; ++k) {
        sum += static_cast<signed char>(a.at[m][k]) * b.at[k / 4][4 * n + k % 4];
      }
    });
  }

  static float flushed(float x) { return std::fpclassify(x) == FP_SUBNORMAL ? 0 * x : x; }
  static float brain(const unsigned char* at) {
    uint16_t bits;
    std::memcpy(&bits, at, sizeof bits);
    return flushed(quant::bfloat16_to_float(bits));
  }
  // Even and odd columns are summed apart within an instruction, fused, then added.
  template <int kC, int kA, int kB>
  static void dot_pairs() {
    const Tile& a = used(kA);
    const Tile& b = used(kB);
    each_result<float>(used(kC), a, b, [&](float& sum, int64_t m, int64_t n) {
      float parts[2] = {};
      for (int64_t k = 0; k < a.bytes / 2; ++k) {
        const float w = brain(b.at[k / 2] + 4 * n + 2 * (k % 2));
        parts[k % 2] = flushed(std::fma(brain(a.at[m] + 2 * k), w, parts[k % 2]));
      }
      sum = flushed(flushed(sum) + flushed(parts[0] + parts[1]));
    });
  }
};

}  // namespace transload::kernels
