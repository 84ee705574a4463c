// The `transload` command.
#include <cstdio>
#include <exception>
#include <string>

#include "base/error.h"
#include "tools/command.h"

namespace {

int report(std::string_view code, const char* what, int status) {
  std::fprintf(stderr, "transload: error [%.*s]: %s\n", static_cast<int>(code.size()), code.data(),
               what);
  return status;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace transload;
  int status = 0;
  try {
    CLI::App app("Generates text in large offline batches on devices too small for the model.",
                 "transload");
    app.require_subcommand(1);
    app.set_version_flag("--version", std::string("transload ") + tools::kVersion);
    tools::add_generate(app, status);
    tools::add_score(app, status);
    tools::add_inspect(app, status);
    tools::add_synth(app, status);
    tools::add_tokenize(app, status);
    tools::add_doctor(app, status);
    try {
      app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
      if (error.get_exit_code() == 0) return app.exit(error);
      return report(code(Kind::kUsage), (std::string(error.what()) + "; see --help").c_str(),
                    exit_status(Kind::kUsage));
    }
    return status;
  } catch (const Error& error) {
    return report(code(error.kind()), error.what(), exit_status(error.kind()));
  } catch (const std::bad_alloc&) {
    return report(code(Kind::kDoesNotFit), "out of process memory", exit_status(Kind::kDoesNotFit));
  } catch (const std::exception& error) {
    return report(code(Kind::kInternal), error.what(), exit_status(Kind::kInternal));
  }
}
