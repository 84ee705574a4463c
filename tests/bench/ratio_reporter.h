// Prints results as usual, and at the end how many times as many products/s one kind of benchmark
// reaches as another with the same last arguments. Of repetitions the best counts.
#pragma once

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

namespace transload::bench {

struct Ratio {
  const char* title = nullptr;
  const char* below = nullptr;  // how names begin
  const char* above = nullptr;
};

class RatioReporter : public benchmark::ConsoleReporter {
 public:
  explicit RatioReporter(std::vector<Ratio> ratios) : ratios_(std::move(ratios)) {}

  void ReportRuns(const std::vector<Run>& runs) override {
    ConsoleReporter::ReportRuns(runs);
    for (const Run& run : runs) {
      const auto products = run.counters.find("products");
      if (run.run_type != Run::RT_Iteration || products == run.counters.end()) continue;
      double& best = rates_[run.run_name.str()];
      best = std::max(best, products->second.value);
    }
  }

  void Finalize() override {
    ConsoleReporter::Finalize();
    for (const Ratio& ratio : ratios_) {
      bool titled = false;
      for (const auto& [name, rate] : rates_) {
        if (name.rfind(ratio.below, 0) != 0) continue;
        const std::string shape = name.substr(std::string(ratio.below).size());
        const auto other = rates_.find(ratio.above + shape);
        if (other == rates_.end()) continue;
        if (!titled) GetOutputStream() << "\n" << ratio.title << "\n";
        titled = true;
        print(shape, rate, other->second);
      }
    }
  }

 private:
  void print(const std::string& shape, double below, double above) {
    char line[160];
    std::snprintf(line, sizeof line, "  %-22s %8.1f : %8.1f G products/s   %5.2f x\n",
                  shape.c_str(), below / 1e9, above / 1e9, above / below);
    GetOutputStream() << line;
  }

  std::vector<Ratio> ratios_;
  std::map<std::string, double> rates_;
};

}  // namespace transload::bench
