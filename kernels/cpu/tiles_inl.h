// Products by matrix tiles (AMX), over an interface that the instructions implement and, in tests,
// an emulation. A tile has 16 rows of 64 bytes at most.
//
//   configure(shapes), release()    sets the shapes and clears all tiles; gives them back
//   zero<T>()
//   load<T>(at, stride)             the rows of T lie `stride` bytes apart; store<T> alike
//   dot_codes<C, A, B>()            C[m, n] += sum_k A[m, k] B[k / 4, 4 n + k % 4]
//   dot_pairs<C, A, B>()            C[m, n] += sum_k A[m, k] B[k / 2, 2 n + k % 2]
//
// Codes are bytes, A's with a sign and B's without, and sums whole numbers; pairs are bfloat16, and
// sums float32. A row of results depends on one row of x: on no company.
#pragma once

#include <cstdint>

namespace transload::kernels::cpu {

inline constexpr int64_t kTileRowCount = 16;
inline constexpr int64_t kTileRowBytes = 64;
inline constexpr int64_t kTileFloats = 256;

// As the instruction LDTILECFG reads it.
struct TileShapes {
  uint8_t palette = 1;
  uint8_t unused[15] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
  void set(int tile, int64_t row_count, int64_t bytes) {
    rows[tile] = static_cast<uint8_t>(row_count);
    row_bytes[tile] = static_cast<uint16_t>(bytes);
  }
};
static_assert(sizeof(TileShapes) == 64);

// Calls multiply(first_x, m) for 16 rows of x at a time, tiles 0 and 1 for results, 2 for x and 3
// and 4 for W; w_rows and x_bytes are the shape of W's tiles and the width of x's.
template <class Tiles, class Multiply>
void for_each_tile(int64_t rows_of_x, int64_t w_rows, int64_t x_bytes, const Multiply& multiply) {
  int64_t configured = 0;
  for (int64_t i = 0; i < rows_of_x; i += kTileRowCount) {
    const int64_t m = rows_of_x - i < kTileRowCount ? rows_of_x - i : kTileRowCount;
    if (m != configured) {
      TileShapes shapes;
      for (const int tile : {0, 1}) shapes.set(tile, m, kTileRowBytes);
      shapes.set(2, m, x_bytes);
      for (const int tile : {3, 4}) shapes.set(tile, w_rows, kTileRowBytes);
      Tiles::configure(shapes);
      configured = m;
    }
    multiply(i, m);
  }
  Tiles::release();
}

}  // namespace transload::kernels::cpu
