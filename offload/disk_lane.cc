#include "offload/disk_lane.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/units.h"

namespace transload::offload {
namespace {

constexpr int kMaxIdleTries = 100;
constexpr int64_t kLargestEnd = std::numeric_limits<int64_t>::max() - kPageBytes;

bool is_aligned(int64_t value) { return value % kPageBytes == 0; }

}  // namespace

RingDiskLane::RingDiskLane(const DiskOptions& options, std::unique_ptr<DiskEngine> engine,
                           std::string note, DiskFaults* faults)
    : options_(options),
      note_(std::move(note)),
      faults_(faults),
      transfers_(static_cast<size_t>(options.max_transfers)),
      requests_(static_cast<size_t>(options.max_requests)),
      pieces_(static_cast<size_t>(options.queue_depth)),
      engine_(std::move(engine)) {
  files_.reserve(static_cast<size_t>(options.max_files));
  free_slots_.reserve(pieces_.size());
  for (int32_t slot = 0; slot < options.queue_depth; ++slot) free_slots_.push_back(slot);
}

RingDiskLane::~RingDiskLane() {
  closing_ = true;
  try {
    while (free_slots_.size() < pieces_.size()) collect(true);
  } catch (const std::exception&) {
    // The engine has stopped answering: nothing more will arrive.
  }
}

int32_t RingDiskLane::add_file(int descriptor, int64_t file_bytes, std::string name, bool direct) {
  check(static_cast<int>(files_.size()) < options_.max_files, "more files than max_files");
  check(descriptor >= 0 && file_bytes >= 0, "no open file");
  files_.push_back({descriptor, file_bytes, std::move(name), direct});
  return static_cast<int32_t>(files_.size()) - 1;
}

void RingDiskLane::register_memory(std::byte* memory, int64_t bytes) {
  check(open_transfers() == 0, "memory registered while transfers are open");
  check(bytes >= 0, "memory of negative size");
  engine_->register_memory(memory, bytes);
}

void RingDiskLane::check_request(const DiskRequest& request, bool write) const {
  check(request.file >= 0 && request.file < static_cast<int32_t>(files_.size()),
        "disk request to an unknown file");
  check(request.offset >= 0 && request.bytes >= 0 && request.bytes <= kLargestEnd - request.offset,
        "disk request with a senseless range");
  check(request.memory != nullptr || request.bytes == 0, "disk request without memory");
  const OpenFile& target = file(request.file);
  if (write) check(request.offset + request.bytes <= target.bytes, "write outside its file");
  if (!target.direct) return;
  check(is_aligned(request.offset) && is_aligned(request.bytes) &&
            is_aligned(static_cast<int64_t>(reinterpret_cast<uintptr_t>(request.memory))),
        "direct disk request that is not aligned to pages");
}

void RingDiskLane::submit(std::span<const DiskRequest> requests, bool write, uint64_t token) {
  const auto count = static_cast<int64_t>(requests.size());
  check(open_transfers() < options_.max_transfers, "more open transfers than max_transfers");
  check(end_request_ - first_request_ + count <= options_.max_requests,
        "more open requests than max_requests");
  int64_t bytes = 0;
  for (const DiskRequest& one : requests) {
    check_request(one, write);
    bytes += one.bytes;
  }
  Transfer& added = transfer(end_);
  added = Transfer{};
  added.token = token;
  added.write = write;
  added.next_request = end_request_;
  for (const DiskRequest& one : requests) request(end_request_++) = one;
  added.end_request = end_request_;
  if (options_.limiter != nullptr) {
    added.booked = options_.limiter->book(bytes, options_.limiter->now());
  }
  ++end_;
  pump();
}

void RingDiskLane::pump() {
  Piece piece;
  while (!closing_ && !free_slots_.empty() && cut_piece(&piece)) {
    const int32_t slot = free_slots_.back();
    free_slots_.pop_back();
    pieces_[static_cast<size_t>(slot)] = piece;
    ++transfer(piece.transfer).pieces;
    run(slot);
  }
  engine_->flush();
}

bool RingDiskLane::cut_piece(Piece* piece) {
  for (; cutting_ < end_; ++cutting_) {
    Transfer& open = transfer(cutting_);
    while (!open.failed && open.next_request < open.end_request) {
      const DiskRequest& whole = request(open.next_request);
      const OpenFile& source = file(whole.file);
      const int64_t inside = std::clamp<int64_t>(source.bytes - whole.offset, 0, whole.bytes);
      const int64_t asked =
          source.direct ? std::min(round_up(inside, kPageBytes), whole.bytes) : inside;
      if (open.next_byte >= asked) {
        ++open.next_request;
        open.next_byte = 0;
        continue;
      }
      const int64_t at = open.next_byte;
      const int64_t bytes = std::min(options_.request_bytes, asked - at);
      *piece = Piece{};
      piece->transfer = cutting_;
      piece->file = whole.file;
      piece->offset = whole.offset + at;
      piece->bytes = bytes;
      piece->needed = std::min(bytes, inside - at);
      piece->memory = whole.memory + at;
      open.next_byte += bytes;
      return true;
    }
  }
  return false;
}

void RingDiskLane::run(int32_t slot) {
  Piece& piece = pieces_[static_cast<size_t>(slot)];
  while (true) {
    const std::optional<int64_t> answer = ask(slot);
    if (!answer) return;
    if (absorb(piece, *answer)) continue;
    release(slot);
    return;
  }
}

std::optional<int64_t> RingDiskLane::ask(int32_t slot) {
  Piece& piece = pieces_[static_cast<size_t>(slot)];
  const bool write = transfer(piece.transfer).write;
  const OpenFile& target = file(piece.file);
  DiskOperation operation{
      target.descriptor,        write, slot, piece.offset + piece.done, piece.bytes - piece.done,
      piece.memory + piece.done};
  piece.shortened = 0;
  if (faults_ != nullptr) {
    const int64_t answer = faults_->answer({piece.file, operation.offset, operation.bytes, write});
    if (answer <= 0) return answer;
    const int64_t claimed = std::min(answer, operation.bytes);
    const int64_t moved = target.direct ? round_down(claimed, kPageBytes) : claimed;
    if (moved == 0) return claimed;
    piece.shortened = claimed - moved;
    operation.bytes = moved;
  }
  engine_->start(operation);
  return std::nullopt;
}

bool RingDiskLane::absorb(Piece& piece, int64_t result) {
  if (result < 0 && result != -EINTR && result != -EAGAIN) {
    fail(piece, static_cast<int>(-result));
    return false;
  }
  const int64_t before = piece.done;
  if (result > 0) piece.done += result;
  if (piece.done >= piece.needed) return false;
  // A direct request goes on from a page; what came of a part of one is asked for again.
  if (file(piece.file).direct) piece.done = round_down(piece.done, kPageBytes);
  piece.idle_tries = piece.done > before ? 0 : piece.idle_tries + 1;
  if (piece.idle_tries < kMaxIdleTries) return !transfer(piece.transfer).failed && !closing_;
  fail(piece, result < 0 ? static_cast<int>(-result) : 0);
  return false;
}

void RingDiskLane::fail(Piece& piece, int error) {
  Transfer& open = transfer(piece.transfer);
  if (open.failed) return;
  open.failed = true;
  open.error = error;
  open.error_file = piece.file;
  open.error_offset = piece.offset + piece.done;
  open.error_bytes = piece.needed - piece.done;
}

void RingDiskLane::release(int32_t slot) {
  --transfer(pieces_[static_cast<size_t>(slot)].transfer).pieces;
  free_slots_.push_back(slot);
}

void RingDiskLane::collect(bool wait) {
  DiskCompletion completion;
  while (engine_->next(wait, &completion)) {
    wait = false;
    Piece& piece = pieces_[static_cast<size_t>(completion.slot)];
    const int64_t extra = completion.result > 0 ? piece.shortened : 0;
    if (absorb(piece, completion.result + extra)) {
      run(completion.slot);
    } else {
      release(completion.slot);
    }
  }
  pump();
}

bool RingDiskLane::oldest_done() {
  // pump() hands out in order and stops only when all slots are taken or nothing is left: a
  // transfer without pieces under way that is the oldest has nothing left either.
  return transfer(oldest_).pieces == 0;
}

uint64_t RingDiskLane::finish() {
  check(open_transfers() > 0, "finish without an open transfer");
  collect(false);
  while (!oldest_done()) collect(true);
  const Transfer& oldest = transfer(oldest_);
  if (options_.limiter != nullptr && !oldest.failed) options_.limiter->wait_until(oldest.booked);
  return take_oldest();
}

bool RingDiskLane::try_finish(uint64_t* token) {
  if (open_transfers() == 0) return false;
  collect(false);
  if (!oldest_done()) return false;
  const Transfer& oldest = transfer(oldest_);
  const RateLimiter* limiter = options_.limiter;
  if (limiter != nullptr && !oldest.failed && limiter->now() < oldest.booked) return false;
  *token = take_oldest();
  return true;
}

uint64_t RingDiskLane::take_oldest() {
  const Transfer taken = transfer(oldest_);
  first_request_ = taken.end_request;
  ++oldest_;
  if (taken.failed) throw_failure(taken);
  return taken.token;
}

void RingDiskLane::throw_failure(const Transfer& failed) const {
  const OpenFile& where = file(failed.error_file);
  const std::string what =
      fmt::format("disk: {} of {} bytes at offset {} of '{}'", failed.write ? "write" : "read",
                  failed.error_bytes, failed.error_offset, where.name);
  if (failed.error == 0 && !failed.write) {
    throw Error(Kind::kBadInput, fmt::format("{}: the file ends early, it had {} bytes when it was "
                                             "opened; restore it and run again",
                                             what, where.bytes));
  }
  if (failed.error == 0) {
    throw Error(Kind::kIo, what + ": the system takes no bytes and gives no error; check the disk");
  }
  throw_errno(failed.error,
              what + (failed.error == ENOSPC ? " failed (free space or choose another --disk-dir)"
                                             : " failed (check the disk and its kernel log)"));
}

std::string RingDiskLane::description() const {
  const auto direct = static_cast<size_t>(
      std::count_if(files_.begin(), files_.end(), [](const OpenFile& one) { return one.direct; }));
  std::string text = engine_->description();
  if (direct > 0) text += ", O_DIRECT";
  if (direct < files_.size()) {
    text += fmt::format(", buffered ({} of {} files)", files_.size() - direct, files_.size());
  }
  if (!note_.empty()) text += "; " + note_;
  return text;
}

}  // namespace transload::offload
