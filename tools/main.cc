// The `transload` command.
#include <fcntl.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
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

// A file that is opened while one of the three standard descriptors is closed would take its place,
// and get what is meant for the terminal.
void hold_standard_descriptors() {
  for (int descriptor = 0; descriptor < 3; ++descriptor) {
    if (fcntl(descriptor, F_GETFD) < 0) open("/dev/null", O_RDWR);  // takes the lowest number
  }
}

// `status`, unless what was written to standard output is lost.
int flushed(int status) {
  using namespace transload;
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return status;
  return report(code(Kind::kIo), (std::string("standard output: ") + std::strerror(errno)).c_str(),
                exit_status(Kind::kIo));
}

}  // namespace

int main(int argc, char** argv) {
  using namespace transload;
  hold_standard_descriptors();
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
    return flushed(status);
  } catch (const Error& error) {
    return report(code(error.kind()), error.what(), exit_status(error.kind()));
  } catch (const std::bad_alloc&) {
    return report(code(Kind::kDoesNotFit), "out of process memory", exit_status(Kind::kDoesNotFit));
  } catch (const std::exception& error) {
    return report(code(Kind::kInternal), error.what(), exit_status(Kind::kInternal));
  }
}
