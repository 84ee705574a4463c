#include "engine/families/rotary.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace transload::engine {
namespace {

using layout::DecoderSpec;
using nlohmann::json;

constexpr int64_t kHeadDimLimit = 65536;

std::string read_kind(ConfigReader& scaling) {
  const std::string old_key = scaling.text_or("type", "");
  std::string kind = scaling.text_or("rope_type", old_key.empty() ? "default" : old_key);
  if (!old_key.empty() && old_key != kind)
    scaling.refuse("rope_type", fmt::format("is {} but 'type' is {}", kind, old_key));
  return kind;
}

void read_yarn(ConfigReader& scaling, Rotary& rotary) {
  const auto optional = [&](const char* key) {
    return scaling.has(key) ? std::optional(scaling.number(key)) : std::nullopt;
  };
  rotary.attention_factor = optional("attention_factor");
  rotary.mscale = optional("mscale");
  rotary.mscale_all_dim = optional("mscale_all_dim");
  rotary.beta_fast = scaling.positive_or("beta_fast", 32.0);
  rotary.beta_slow = scaling.positive_or("beta_slow", 1.0);
  rotary.truncate = scaling.flag_or("truncate", true);
}

double required_factor(ConfigReader& scaling, const char* key) {
  if (!scaling.has(key)) scaling.refuse(key, "is missing, which this rope_type needs");
  return scaling.positive_or(key, 1.0);
}

// The scaling in an object of either spelling; theta and fraction are read elsewhere.
void read_scaling(ConfigReader& scaling, const DecoderSpec& spec, Rotary& rotary) {
  const std::string kind = read_kind(scaling);
  if (kind == "default") return;
  if (kind == "linear") {
    rotary.scaling = RotaryScaling::kLinear;
    rotary.factor = required_factor(scaling, "factor");
    return;
  }
  if (kind != "llama3" && kind != "yarn")
    throw Error(Kind::kUnsupported,
                fmt::format("{}: rope_type '{}' is not supported; default, linear, llama3 and yarn "
                            "are",
                            scaling.where(), kind));
  rotary.original_positions = scaling.positive_or("original_max_position_embeddings",
                                                  static_cast<double>(spec.max_positions));
  rotary.scaling = kind == "yarn" ? RotaryScaling::kYarn : RotaryScaling::kLlama3;
  if (kind == "yarn") {
    const double ratio = static_cast<double>(spec.max_positions) / rotary.original_positions;
    rotary.factor = scaling.positive_or("factor", ratio);
    read_yarn(scaling, rotary);
    return;
  }
  rotary.factor = required_factor(scaling, "factor");
  rotary.low_freq_factor = required_factor(scaling, "low_freq_factor");
  rotary.high_freq_factor = required_factor(scaling, "high_freq_factor");
  if (rotary.high_freq_factor <= rotary.low_freq_factor)
    scaling.refuse("high_freq_factor", "is not above low_freq_factor");
}

// A number that either spelling may hold; they must not contradict each other.
double one_of(ConfigReader& config, const std::string& key, ConfigReader& parameters,
              const std::string& new_key, double absent) {
  const double inner = parameters.positive_or(new_key, absent);
  const double outer = config.positive_or(key, inner);
  if (parameters.has(new_key) && outer != inner)
    config.refuse(key, fmt::format("is {} but rope_parameters say {}", outer, inner));
  return outer;
}

std::vector<float> powers(double theta, int64_t rotary_dim) {
  std::vector<float> values;
  for (int64_t i = 0; i < rotary_dim; i += 2) {
    const float exponent = static_cast<float>(i) / static_cast<float>(rotary_dim);
    values.push_back(static_cast<float>(
        std::pow(static_cast<double>(static_cast<float>(theta)), static_cast<double>(exponent))));
  }
  return values;
}

float llama3_frequency(const Rotary& rotary, float f) {
  const auto factor = static_cast<float>(rotary.factor);
  const auto original = static_cast<float>(rotary.original_positions);
  const float wavelength = static_cast<float>(2 * std::numbers::pi) / f;
  if (wavelength > static_cast<float>(rotary.original_positions / rotary.low_freq_factor))
    return f / factor;
  if (wavelength < static_cast<float>(rotary.original_positions / rotary.high_freq_factor))
    return f;
  const float smooth = (original / wavelength - static_cast<float>(rotary.low_freq_factor)) /
                       static_cast<float>(rotary.high_freq_factor - rotary.low_freq_factor);
  return (1 - smooth) * f / factor + smooth * f;
}

// The pair that turns `turns` times within the original positions.
double yarn_pair(const Rotary& rotary, double turns, int64_t dim) {
  return static_cast<double>(dim) *
         std::log(rotary.original_positions / (turns * 2 * std::numbers::pi)) /
         (2 * std::log(rotary.theta));
}

std::vector<float> yarn_frequencies(const Rotary& rotary, int64_t dim) {
  double low = yarn_pair(rotary, rotary.beta_fast, dim);
  double high = yarn_pair(rotary, rotary.beta_slow, dim);
  if (rotary.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(dim - 1));
  if (low == high) high += 0.001;
  const auto low_pair = static_cast<float>(low);
  const auto pairs = static_cast<float>(high - low);
  const auto factor = static_cast<float>(rotary.factor);
  std::vector<float> frequencies;
  for (const float power : powers(rotary.theta, dim)) {
    const auto pair = static_cast<float>(frequencies.size());
    const float extrapolated = 1 - std::clamp((pair - low_pair) / pairs, 0.0F, 1.0F);
    frequencies.push_back(1.0F / (factor * power) * (1 - extrapolated) +
                          1.0F / power * extrapolated);
  }
  return frequencies;
}

double yarn_magnitude(const Rotary& rotary) {
  const auto magnitude = [&](double mscale) {
    return rotary.factor <= 1 ? 1.0 : 0.1 * mscale * std::log(rotary.factor) + 1.0;
  };
  if (rotary.attention_factor) return *rotary.attention_factor;
  const double mscale = rotary.mscale.value_or(0), all_dim = rotary.mscale_all_dim.value_or(0);
  if (mscale != 0 && all_dim != 0) return magnitude(mscale) / magnitude(all_dim);
  return magnitude(1.0);
}

std::vector<float> frequencies(const Rotary& rotary, int64_t dim) {
  std::vector<float> values;
  for (const float power : powers(rotary.theta, dim)) {
    float f = 1.0F / power;
    if (rotary.scaling == RotaryScaling::kLinear) f /= static_cast<float>(rotary.factor);
    if (rotary.scaling == RotaryScaling::kLlama3) f = llama3_frequency(rotary, f);
    values.push_back(f);
  }
  return values;
}

// Truncated, as transformers does.
void set_rotary_dim(const Rotary& rotary, DecoderSpec& spec) {
  const double share = std::min(rotary.fraction, 2.0);
  spec.rotary_dim = static_cast<int64_t>(static_cast<double>(spec.head_dim) * share);
  if (spec.head_dim > kHeadDimLimit)
    throw Error(Kind::kBadInput, fmt::format("a head of {} dimensions; at most {} are expected",
                                             spec.head_dim, kHeadDimLimit));
  if (spec.rotary_dim < 2 || spec.rotary_dim % 2 != 0 || spec.rotary_dim > spec.head_dim)
    throw Error(Kind::kUnsupported,
                fmt::format("rotary embedding of {} of {} dimensions of a head is not supported; "
                            "an even number up to all is",
                            spec.rotary_dim, spec.head_dim));
}

}  // namespace

Rotary read_rotary(ConfigReader& config, const RotaryNames& names, const DecoderSpec& spec) {
  static const json kEmpty = json::object();
  const json* old_spelling = config.find("rope_scaling");
  const json* parameters = config.find("rope_parameters");
  if (old_spelling != nullptr && parameters != nullptr && *old_spelling != *parameters)
    config.refuse("rope_scaling", "and 'rope_parameters' are both set and differ");
  if (parameters == nullptr) parameters = old_spelling;
  const std::string key = old_spelling == nullptr ? "rope_parameters" : "rope_scaling";
  ConfigReader scaling(parameters == nullptr ? kEmpty : *parameters, config.where() + ": " + key);
  Rotary rotary;
  read_scaling(scaling, spec, rotary);
  rotary.theta = one_of(config, names.theta, scaling, "rope_theta", 10000.0);
  rotary.fraction =
      one_of(config, names.fraction, scaling, "partial_rotary_factor", names.default_fraction);
  scaling.find("finetuned");  // says how the model came about, not what it computes
  scaling.refuse_unread_below("");
  return rotary;
}

void apply_rotary(const Rotary& rotary, DecoderSpec& spec) {
  set_rotary_dim(rotary, spec);
  if (rotary.scaling == RotaryScaling::kYarn) {
    spec.inverse_frequencies = yarn_frequencies(rotary, spec.rotary_dim);
    spec.rotary_magnitude = static_cast<float>(yarn_magnitude(rotary));
  } else {
    spec.inverse_frequencies = frequencies(rotary, spec.rotary_dim);
    spec.rotary_magnitude = 1.0F;
  }
  for (const float f : spec.inverse_frequencies)
    if (!std::isfinite(f) || f < 0)
      throw Error(Kind::kBadInput,
                  fmt::format("the rotary base {} with its scaling gives no finite frequencies; "
                              "correct the model's configuration",
                              rotary.theta));
}

}  // namespace transload::engine
