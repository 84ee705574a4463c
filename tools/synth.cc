// transload synth: a checkpoint of random weights.
#include <fmt/format.h>

#include <array>
#include <charconv>
#include <memory>

#include "base/error.h"
#include "base/units.h"
#include "engine/families/synthetic.h"
#include "tools/command.h"

namespace transload::tools {
namespace {

struct Options {
  engine::SyntheticModel model;
  std::string shape;
  std::string dtype = "float16";
  std::string output;
};

// hidden,layers,heads,ffn,vocab
std::array<int64_t, 5> parse_shape(std::string_view text) {
  std::array<int64_t, 5> sizes{};
  const char* next = text.data();
  const char* const end = text.data() + text.size();
  bool sound = true;
  for (size_t i = 0; i < sizes.size() && sound; ++i) {
    if (i > 0) sound = next != end && *next++ == ',';
    const auto [after, status] = std::from_chars(next, end, sizes[i]);
    sound = sound && status == std::errc() && after != next;
    next = after;
  }
  if (!sound || next != end)
    throw Error(Kind::kUsage, fmt::format("--shape: '{}' is no list of five sizes; write "
                                          "hidden,layers,heads,ffn,vocab",
                                          text));
  return sizes;
}

quant::Format parse_dtype(const std::string& text) {
  if (text == "float32") return quant::Format::kF32;
  if (text == "float16") return quant::Format::kF16;
  if (text == "bfloat16") return quant::Format::kBF16;
  throw Error(Kind::kUsage, fmt::format("--dtype: '{}' is not supported; float32, float16 and "
                                        "bfloat16 are",
                                        text));
}

void run(Options& options) {
  const auto sizes = parse_shape(options.shape);
  engine::SyntheticModel& model = options.model;
  model.hidden = sizes[0];
  model.layers = sizes[1];
  model.heads = sizes[2];
  model.ffn = sizes[3];
  model.vocab = sizes[4];
  model.format = parse_dtype(options.dtype);
  const int64_t bytes = engine::write_synthetic(model, options.output);
  fmt::print("{}: {} with random weights, {} in {} file{}\n", options.output, model.family,
             format_bytes(bytes), model.shards, model.shards == 1 ? "" : "s");
}

}  // namespace

void add_synth(CLI::App& app, int& status) {
  CLI::App* command = app.add_subcommand(
      "synth", "Writes a checkpoint of random weights, for tests and benchmarks.");
  const auto options = std::make_shared<Options>();
  engine::SyntheticModel& model = options->model;
  command->add_option("--family", model.family, "opt, llama or gpt_neox")->required();
  command->add_option("--shape", options->shape, "hidden,layers,heads,ffn,vocab")->required();
  command->add_option("--kv-heads", model.kv_heads, "KV heads (llama; left out: as many as heads)")
      ->check(at_least_one());
  command->add_option("--max-positions", model.max_positions, "Longest context")
      ->check(at_least_one())
      ->capture_default_str();
  command->add_option("--shards", model.shards, "Files to spread the weights over")
      ->check(at_least_one())
      ->capture_default_str();
  command->add_option("--seed", model.seed, "Of the random weights")
      ->check(seed())
      ->capture_default_str();
  command->add_option("--dtype", options->dtype, "float32, float16 or bfloat16")
      ->capture_default_str();
  command->add_option("-o,--output", options->output, "A new or empty folder")->required();
  command->callback([options, &status] {
    run(*options);
    status = 0;
  });
}

}  // namespace transload::tools
