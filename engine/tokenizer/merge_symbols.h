// Byte-pair merging of one word.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "engine/tokenizer/merges.h"

namespace transload::engine {

// A run of the text that is one token so far (or, in SentencePiece's kind, none yet).
struct Symbol {
  int32_t token = kNoToken;
  uint32_t begin = 0, end = 0;  // bytes of the text
};

// Working memory of merge_symbols, kept from word to word.
struct MergeScratch {
  struct Candidate {
    uint64_t order = 0;  // rank, then position: the smallest goes first
    uint32_t end = 0;    // of the right symbol: tells whether the pair is still the same
    int32_t token = kNoToken;
  };
  struct Link {
    int32_t previous = -1, next = -1;
  };
  std::vector<Merge> merges;
  std::vector<Candidate> heap;
  std::vector<Link> links;
};

// Up to this many symbols a scan for the best pair beats the heap.
inline constexpr size_t kScannedSymbols = 24;

// Merges neighbours, lowest rank first and among equals leftmost first, until none merge.
//
//   lookup(const Symbol& left, const Symbol& right) -> Merge
//
// Time: n log n. Source: Sennrich et al. (arXiv:1508.07909), as Hugging Face's tokenizers and
// SentencePiece order it. The scan and the heap give the same tokens.
template <class Lookup>
void merge_by_scan(std::vector<Symbol>& symbols, MergeScratch& scratch, const Lookup& lookup) {
  std::vector<Merge>& merges = scratch.merges;  // merges[i]: of symbols i and i + 1
  merges.clear();
  for (size_t i = 0; i + 1 < symbols.size(); ++i) {
    merges.push_back(lookup(symbols[i], symbols[i + 1]));
  }
  while (!merges.empty()) {
    size_t best = merges.size();
    for (size_t i = 0; i < merges.size(); ++i) {
      if (merges[i].token == kNoToken) continue;
      if (best == merges.size() || merges[i].rank < merges[best].rank) best = i;
    }
    if (best == merges.size()) return;
    const auto at = static_cast<std::ptrdiff_t>(best);
    symbols[best] = {merges[best].token, symbols[best].begin, symbols[best + 1].end};
    symbols.erase(symbols.begin() + at + 1);
    merges.erase(merges.begin() + at);
    if (best > 0) merges[best - 1] = lookup(symbols[best - 1], symbols[best]);
    if (best < merges.size()) merges[best] = lookup(symbols[best], symbols[best + 1]);
  }
}

// The heap's half of merge_symbols: symbols in a linked list, candidates that went stale skipped.
template <class Lookup>
class HeapMerging {
 public:
  HeapMerging(std::vector<Symbol>& symbols, MergeScratch& scratch, const Lookup& lookup)
      : symbols_(symbols), heap_(scratch.heap), links_(scratch.links), lookup_(lookup) {}

  void run() {
    const auto count = static_cast<int32_t>(symbols_.size());
    heap_.clear();
    links_.resize(symbols_.size());
    for (int32_t i = 0; i < count; ++i) links_[index(i)] = {i - 1, i + 1 < count ? i + 1 : -1};
    for (int32_t i = 0; i + 1 < count; ++i) add(i, /*sift=*/false);
    std::make_heap(heap_.begin(), heap_.end(), later);
    while (!heap_.empty()) {
      std::pop_heap(heap_.begin(), heap_.end(), later);
      const Candidate best = heap_.back();
      heap_.pop_back();
      merge(best);
    }
    std::erase_if(symbols_, [](const Symbol& symbol) { return symbol.begin == symbol.end; });
  }

 private:
  using Candidate = MergeScratch::Candidate;

  static size_t index(int32_t position) { return static_cast<size_t>(position); }
  static bool later(const Candidate& a, const Candidate& b) { return a.order > b.order; }

  void add(int32_t left, bool sift) {
    const Symbol& right = symbols_[index(links_[index(left)].next)];
    const Merge merge = lookup_(symbols_[index(left)], right);
    if (merge.token == kNoToken) return;
    const uint64_t order = (static_cast<uint64_t>(merge.rank) << 32) | static_cast<uint32_t>(left);
    heap_.push_back({order, right.end, merge.token});
    if (sift) std::push_heap(heap_.begin(), heap_.end(), later);
  }

  void merge(const Candidate& best) {
    const auto left = static_cast<int32_t>(static_cast<uint32_t>(best.order));
    Symbol& symbol = symbols_[index(left)];
    const int32_t right = links_[index(left)].next;
    // Symbols only grow, so the same outer ends mean the same two symbols.
    if (symbol.begin == symbol.end || right < 0 || symbols_[index(right)].end != best.end) return;
    symbol = {best.token, symbol.begin, best.end};
    symbols_[index(right)].begin = best.end;  // empty: gone
    const int32_t next = links_[index(right)].next;
    links_[index(left)].next = next;
    if (next >= 0) links_[index(next)].previous = left;
    const int32_t previous = links_[index(left)].previous;
    if (previous >= 0) add(previous, /*sift=*/true);
    if (next >= 0) add(left, /*sift=*/true);
  }

  std::vector<Symbol>& symbols_;
  std::vector<Candidate>& heap_;
  std::vector<MergeScratch::Link>& links_;
  const Lookup& lookup_;
};

template <class Lookup>
void merge_symbols(std::vector<Symbol>& symbols, MergeScratch& scratch, const Lookup& lookup) {
  if (symbols.size() <= kScannedSymbols) return merge_by_scan(symbols, scratch, lookup);
  HeapMerging<Lookup>(symbols, scratch, lookup).run();
}

}  // namespace transload::engine
