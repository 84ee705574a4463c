// transload generate: answers for a job of JSON lines.
#include "engine/run/generate.h"

#include <cmath>
#include <limits>
#include <memory>

#include "base/error.h"
#include "tools/command.h"
#include "tools/run_flags.h"

namespace transload::tools {
namespace {

struct Options {
  RunFlags run;
  engine::SamplingOptions defaults;
  std::string chat_now;
};

constexpr double kLeastPenalty = 1e-300;  // as in a line

// The bounds of a line's fields.
void check_defaults(const engine::SamplingOptions& d) {
  const auto need = [](bool holds, const char* text) {
    if (!holds) throw Error(Kind::kUsage, text);
  };
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  const auto penalty = [](double value) { return value >= -2 && value <= 2; };
  need(d.temperature >= 0 && std::isfinite(d.temperature),
       "--temperature: must be a number from 0 up");
  need(d.top_p > 0 && d.top_p <= 1, "--top-p: must be above 0 and at most 1");
  need(d.top_k >= 0 && d.top_k <= kMost, "--top-k: must be from 0 (all) to 2147483647");
  need(d.min_p >= 0 && d.min_p <= 1, "--min-p: must be from 0 to 1");
  need(d.repetition_penalty >= kLeastPenalty && std::isfinite(d.repetition_penalty),
       "--repetition-penalty: must be a number above 0");
  need(penalty(d.presence_penalty), "--presence-penalty: must be from -2 to 2");
  need(penalty(d.frequency_penalty), "--frequency-penalty: must be from -2 to 2");
  need(d.max_tokens >= 1 && d.max_tokens <= kMost, "--max-tokens: must be from 1 to 2147483647");
}

void add_sampling(CLI::App& command, engine::SamplingOptions& d) {
  const std::string sampling = "Sampling, where a line says nothing";
  command.add_option("--max-tokens", d.max_tokens, "New tokens at most")
      ->capture_default_str()
      ->group(sampling);
  command.add_option("--temperature", d.temperature, "0 takes the best token")
      ->capture_default_str()
      ->group(sampling);
  command.add_option("--top-p", d.top_p, "Least probability of the tokens drawn from")
      ->capture_default_str()
      ->group(sampling);
  command.add_option("--top-k", d.top_k, "Tokens drawn from; 0: all")
      ->capture_default_str()
      ->group(sampling);
  command.add_option("--min-p", d.min_p, "Least part of the best token's probability")
      ->capture_default_str()
      ->group(sampling);
  command.add_option("--repetition-penalty", d.repetition_penalty, "1: none")
      ->capture_default_str()
      ->group(sampling);
  command.add_option("--presence-penalty", d.presence_penalty, "0: none")
      ->capture_default_str()
      ->group(sampling);
  command.add_option("--frequency-penalty", d.frequency_penalty, "0: none")
      ->capture_default_str()
      ->group(sampling);
  command.add_option("--seed", d.seed, "Of lines without one")
      ->check(seed())
      ->capture_default_str()
      ->group(sampling);
}

}  // namespace

void add_generate(CLI::App& app, int& status) {
  CLI::App* command = app.add_subcommand(
      "generate",
      "Answers JSON lines {\"id\", \"prompt\"}, {\"id\", \"messages\"} or {\"id\", "
      "\"prompt_token_ids\"}, each with optional "
      "max_tokens, temperature, top_p, top_k, min_p, repetition_penalty, presence_penalty, "
      "frequency_penalty, seed, stop, stop_token_ids, min_tokens, ignore_eos, logprobs, n. A file "
      "whose first line has a custom_id is an OpenAI batch file: {\"custom_id\", \"method\", "
      "\"url\", \"body\"} in, its output objects out.");
  const auto options = std::make_shared<Options>();
  add_run_flags(*command, options->run);
  command->add_flag("--dry-run", options->run.options.dry_run, "Print the plan and stop");
  add_sampling(*command, options->defaults);
  command->add_option(
      "--chat-now", options->chat_now,
      "What chat templates take for now, as 2024-07-26 or 2024-07-26T10:00:00; left "
      "out: when the job began");
  command->callback([options, &status] {
    check_defaults(options->defaults);
    if (!options->chat_now.empty() && !engine::is_chat_moment(options->chat_now))
      throw Error(Kind::kUsage, "--chat-now: '" + options->chat_now +
                                    "' is no moment; write 2024-07-26 or 2024-07-26T10:00:00");
    status = status_of(
        engine::generate({read_run_flags(options->run), options->defaults, options->chat_now}));
  });
}

}  // namespace transload::tools
