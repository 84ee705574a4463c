#include <cstring>

#include "kernels/backend.h"

namespace transload::kernels {
namespace {

// column[e] = key[e], numbers of kBytes that are kBlockSlots apart
template <size_t kBytes>
void put_key(const std::byte* key, int64_t count, std::byte* column) {
  for (int64_t e = 0; e < count; ++e) {
    std::memcpy(column + e * kBlockSlots * static_cast<int64_t>(kBytes),
                key + e * static_cast<int64_t>(kBytes), kBytes);
  }
}

}  // namespace

void write_slot(const KvSlotWrite& write, const KvShape& shape) {
  const int64_t vector = shape.vector_bytes();
  for (int64_t head = 0; head < shape.kv_heads; ++head) {
    std::byte* part = write.block + head * shape.head_bytes();
    const std::byte* key = write.k + head * vector;
    if (shape.bits == 32) {
      put_key<4>(key, shape.head_dim, part + write.slot * 4);
    } else {
      put_key<2>(key, shape.head_dim, part + write.slot * 2);
    }
    std::memcpy(part + shape.v_offset() + write.slot * vector, write.v + head * vector,
                static_cast<size_t>(vector));
  }
}

}  // namespace transload::kernels
