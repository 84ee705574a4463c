// How many times as fast one kind of benchmark is as another, and whether that is enough.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace transload::bench {

// Compares benchmarks whose names begin with `below` and `above` and end alike. With `fixed` the
// one that begins with `below` is compared with every one of `above`.
struct Ratio {
  const char* title = nullptr;
  const char* below = nullptr;
  const char* above = nullptr;
  bool fixed = false;
  std::optional<double> gate = std::nullopt;  // what above / below must reach
};

class Ratios {
 public:
  // `counter`: the rate that is compared; `unit`: what it is 1e9 of, as printed.
  Ratios(std::string counter, std::string unit, std::vector<Ratio> ratios)
      : counter_(std::move(counter)), unit_(std::move(unit)), ratios_(std::move(ratios)) {}

  const std::string& counter() const { return counter_; }
  // Of repetitions the best counts.
  void add(const std::string& name, double rate) {
    double& best = rates_[name];
    best = std::max(best, rate);
  }

  // A line a pair under the titles; a gate without a pair is not measured.
  std::string text() const {
    std::string text;
    for (const Ratio& ratio : ratios_) {
      const std::vector<Pair> found = pairs(ratio);
      if (found.empty() && !ratio.gate) continue;
      text += std::string("\n") + ratio.title + "\n";
      if (found.empty()) text += "  not measured\n";
      for (const Pair& pair : found) text += line(ratio, pair);
    }
    return text;
  }

  // Whether each gate was measured and no pair misses it.
  bool held() const {
    return std::all_of(ratios_.begin(), ratios_.end(), [&](const Ratio& ratio) {
      const std::vector<Pair> found = pairs(ratio);
      return !ratio.gate ||
             (!found.empty() && std::all_of(found.begin(), found.end(), [&](const Pair& pair) {
               return pair.times() >= *ratio.gate;
             }));
    });
  }

 private:
  struct Pair {
    std::string shape;
    double below = 0;
    double above = 0;
    double times() const { return above / below; }
  };

  std::vector<Pair> pairs(const Ratio& ratio) const {
    std::vector<Pair> found;
    for (const auto& [name, rate] : rates_) {
      if (!name.starts_with(ratio.above)) continue;
      const std::string shape = name.substr(std::string(ratio.above).size());
      const auto below =
          ratio.fixed ? rates_.lower_bound(ratio.below) : rates_.find(ratio.below + shape);
      if (below == rates_.end() || !below->first.starts_with(ratio.below)) continue;
      found.push_back({shape, below->second, rate});
    }
    return found;
  }

  std::string line(const Ratio& ratio, const Pair& pair) const {
    char text[200];
    std::snprintf(text, sizeof text, "  %-22s %8.1f : %8.1f %s   %5.2f x", pair.shape.c_str(),
                  pair.below / 1e9, pair.above / 1e9, unit_.c_str(), pair.times());
    std::string whole = text;
    if (ratio.gate) {
      std::snprintf(text, sizeof text, "  (at least %.2f: %s)", *ratio.gate,
                    pair.times() >= *ratio.gate ? "held" : "missed");
      whole += text;
    }
    return whole + "\n";
  }

  std::string counter_;
  std::string unit_;
  std::vector<Ratio> ratios_;
  std::map<std::string, double> rates_;
};

}  // namespace transload::bench
