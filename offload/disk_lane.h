// The one DiskLane: cuts transfers into requests, keeps the engine busy, hands out completions in
// order.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "offload/disk.h"
#include "offload/disk_engine.h"
#include "offload/faults.h"

namespace transload::offload {

// Open transfers form a ring in order of submission, their requests another; `cutting_` is the
// first transfer with bytes not yet handed out. A piece is one request to the engine and owns a
// slot until all its bytes have arrived. The three counters only grow; positions are modulo size.
class RingDiskLane : public DiskLane {
 public:
  // `note` ends the description, empty if there is nothing to say.
  RingDiskLane(const DiskOptions& options, std::unique_ptr<DiskEngine> engine, std::string note,
               DiskFaults* faults);
  ~RingDiskLane() override;
  RingDiskLane(const RingDiskLane&) = delete;
  RingDiskLane& operator=(const RingDiskLane&) = delete;

  int32_t add_file(int descriptor, int64_t file_bytes, std::string name, bool direct) override;
  void register_memory(std::byte* memory, int64_t bytes) override;
  void submit(std::span<const DiskRequest> requests, bool write, uint64_t token) override;
  uint64_t finish() override;
  bool try_finish(uint64_t* token) override;
  int open_transfers() const override { return static_cast<int>(end_ - oldest_); }
  std::string description() const override;

 private:
  struct OpenFile {
    int descriptor = -1;
    int64_t bytes = 0;
    std::string name;
    bool direct = false;
  };
  struct Transfer {
    uint64_t token = 0;
    bool write = false;
    int64_t next_request = 0;  // of requests_, the first with bytes not handed out
    int64_t end_request = 0;
    int64_t next_byte = 0;  // of that request
    int pieces = 0;         // under way
    bool failed = false;
    int error = 0;  // errno, or 0: the file ended early or nothing moves
    int32_t error_file = 0;
    int64_t error_offset = 0;
    int64_t error_bytes = 0;
    RateLimiter::Clock::time_point booked{};
  };
  struct Piece {
    int64_t transfer = 0;
    int32_t file = 0;
    int64_t offset = 0;
    int64_t bytes = 0;   // to ask for
    int64_t needed = 0;  // of those, inside the file
    int64_t done = 0;
    std::byte* memory = nullptr;
    int idle_tries = 0;     // answers in a row that moved nothing
    int64_t shortened = 0;  // bytes a fault adds to the answer: claimed, not transferred
  };

  Transfer& transfer(int64_t index) {
    return transfers_[static_cast<size_t>(index) % transfers_.size()];
  }
  DiskRequest& request(int64_t index) {
    return requests_[static_cast<size_t>(index) % requests_.size()];
  }
  const OpenFile& file(int32_t index) const { return files_[static_cast<size_t>(index)]; }

  void check_request(const DiskRequest& request, bool write) const;
  // Hands out pieces while slots are free.
  void pump();
  bool cut_piece(Piece* piece);
  // Starts what is left of a piece, answers of faults included.
  void run(int32_t slot);
  // Asks the engine; or returns the answer of a fault.
  std::optional<int64_t> ask(int32_t slot);
  // Takes an answer in; true when the piece has more to do.
  bool absorb(Piece& piece, int64_t result);
  void fail(Piece& piece, int error);
  void release(int32_t slot);
  // Takes all completions that are there, waiting for one if `wait`.
  void collect(bool wait);
  // Requires: pump() came last.
  bool oldest_done();
  // Removes the oldest, throws if it failed.
  uint64_t take_oldest();
  [[noreturn]] void throw_failure(const Transfer& failed) const;

  DiskOptions options_;
  std::string note_;
  DiskFaults* faults_;
  std::vector<OpenFile> files_;
  std::vector<Transfer> transfers_;
  std::vector<DiskRequest> requests_;
  std::vector<Piece> pieces_;  // a slot each
  std::vector<int32_t> free_slots_;
  int64_t oldest_ = 0, cutting_ = 0, end_ = 0;  // transfers
  int64_t first_request_ = 0, end_request_ = 0;
  bool closing_ = false;
  std::unique_ptr<DiskEngine> engine_;  // last: destroyed first
};

}  // namespace transload::offload
