// transload score: log-probabilities of texts and continuations.
#include "engine/run/score.h"

#include <memory>

#include "tools/command.h"
#include "tools/run_flags.h"

namespace transload::tools {
namespace {

struct Options {
  RunFlags run;
  int64_t window = 0;
  int64_t stride = 0;
  bool token_logprobs = false;
};

}  // namespace

void add_score(CLI::App& app, int& status) {
  CLI::App* command = app.add_subcommand(
      "score",
      "Scores JSON lines {\"id\", \"prompt\", \"continuation\"}, {\"id\", \"prompt_token_ids\", "
      "\"continuation_token_ids\"}, {\"id\", \"text\"} or {\"id\", \"token_ids\"}; the summary has "
      "the mean NLL and the perplexity.");
  const auto options = std::make_shared<Options>();
  add_run_flags(*command, options->run);
  command
      ->add_option("--window", options->window,
                   "Tokens of a text seen at once; left out: the context")
      ->check(at_least_one());
  command->add_option("--stride", options->stride, "Tokens between windows; left out: the window")
      ->check(at_least_one());
  command->add_flag("--token-logprobs", options->token_logprobs,
                    "Write each token's log-probability");
  command->callback([options, &status] {
    status = status_of(engine::score(
        {read_run_flags(options->run), options->window, options->stride, options->token_logprobs}));
  });
}

}  // namespace transload::tools
