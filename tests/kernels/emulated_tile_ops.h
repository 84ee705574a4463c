// Products by emulated tiles, with the vector instructions of AVX-512.
#pragma once

#include "kernels/cpu/storage_ops.h"

namespace transload::kernels {

void multiply_codes_by_emulated_tiles(const cpu::StoragePanelArgs& args);
void multiply_brain_by_emulated_tiles(const cpu::StoragePanelArgs& args);

}  // namespace transload::kernels
