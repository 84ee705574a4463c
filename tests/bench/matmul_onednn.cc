// oneDNN's products beside ours: weights reordered once into the layout that it likes best, one
// thread, float32 out. Its rows of x come as it wants them; ours are rounded within the time.
#include <benchmark/benchmark.h>
#include <omp.h>

#include <oneapi/dnnl/dnnl.hpp>
#include <unordered_map>
#include <vector>

#include "tests/bench/matmul_bench.h"

namespace transload::bench {
namespace {

using Memory = dnnl::memory;
using Type = Memory::data_type;

// A matrix of ones, reordered from row-major float32.
Memory ones(const Memory::desc& as, const dnnl::engine& engine, dnnl::stream& stream) {
  std::vector<float> values(static_cast<size_t>(as.dims()[0] * as.dims()[1]), 1.0F);
  const Memory::desc plain(as.dims(), Type::f32, Memory::format_tag::ab);
  Memory from(plain, engine, values.data());
  Memory to(as, engine);
  dnnl::reorder(from, to).execute(stream, from, to);
  stream.wait();
  return to;
}

// Arguments: threads, m, rows, cols.
void BM_MatmulOneDnn(benchmark::State& state, Type type) {
  omp_set_num_threads(static_cast<int>(state.range(0)));
  const Memory::dim m = state.range(1);
  const Memory::dim n = state.range(2);
  const Memory::dim k = state.range(3);
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  dnnl::stream stream(engine);
  const auto tag = Memory::format_tag::ab;
  const dnnl::matmul::desc product(Memory::desc({m, k}, type, tag),
                                   Memory::desc({k, n}, type, Memory::format_tag::any),
                                   Memory::desc({m, n}, Type::f32, tag));
  const dnnl::matmul::primitive_desc chosen(product, engine);
  const dnnl::matmul multiply(chosen);
  const int64_t bytes = n * k * (type == Type::f32 ? 4 : 2);
  std::vector<Memory> weights;
  for (int64_t i = 0; i < weight_copies(bytes); ++i) {
    weights.push_back(ones(chosen.weights_desc(), engine, stream));
  }
  const Memory x = ones(chosen.src_desc(), engine, stream);
  const Memory y(chosen.dst_desc(), engine);
  size_t turn = 0;
  for (auto _ : state) {
    multiply.execute(stream, {{DNNL_ARG_SRC, x},
                              {DNNL_ARG_WEIGHTS, weights[turn++ % weights.size()]},
                              {DNNL_ARG_DST, y}});
    stream.wait();
  }
  count_products(state, m * n * k, bytes);
  state.SetLabel(chosen.impl_info_str());
}

void shapes(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"threads", "m", "n", "k"});
  for (const MatmulShape& of : kMatmulShapes) bench->Args({1, of.m, of.n, of.k});
}
BENCHMARK_CAPTURE(BM_MatmulOneDnn, f32, Type::f32)->Apply(shapes);
BENCHMARK_CAPTURE(BM_MatmulOneDnn, bf16, Type::bf16)->Apply(shapes);

}  // namespace
}  // namespace transload::bench
