// The main of a benchmark that prints ratios after its results.
#pragma once

#include <benchmark/benchmark.h>

#include <utility>
#include <vector>

#include "tests/bench/ratios/ratios.h"

namespace transload::bench {

class RatioReporter : public benchmark::ConsoleReporter {
 public:
  explicit RatioReporter(Ratios ratios) : ratios_(std::move(ratios)) {}

  void ReportRuns(const std::vector<Run>& runs) override {
    ConsoleReporter::ReportRuns(runs);
    for (const Run& run : runs) {
      const auto rate = run.counters.find(ratios_.counter());
      if (run.run_type != Run::RT_Iteration || rate == run.counters.end()) continue;
      ratios_.add(run.run_name.str(), rate->second.value);
    }
  }

  void Finalize() override {
    ConsoleReporter::Finalize();
    GetOutputStream() << ratios_.text();
  }

  bool held() const { return ratios_.held(); }

 private:
  Ratios ratios_;
};

// Exit status 1 where an argument is unknown or a gate is missed.
inline int run_benchmarks(int argc, char** argv, Ratios ratios) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  RatioReporter reporter(std::move(ratios));
  benchmark::RunSpecifiedBenchmarks(&reporter);
  return reporter.held() ? 0 : 1;
}

}  // namespace transload::bench
