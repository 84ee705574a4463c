#include "planner/clock.h"

#include <gmock/gmock.h>

#include "base/error.h"

namespace transload::planner {
namespace {

Task make(Lane lane, TaskId id) {
  Task task;
  task.lane = lane;
  task.id = id;
  return task;
}

TaskId need(const Task& task, Lane lane) { return task.needs.last[static_cast<size_t>(lane)]; }

TEST(BufferClock, AReaderNeedsTheWriteAndAWriterAllReaders) {
  BufferClock clock;
  Task write = make(Lane::kDiskRead, 3);
  clock.written_by(write);
  Task first = make(Lane::kDeviceCompute, 5);
  Task second = make(Lane::kHostToDevice, 7);
  clock.read_by(first);
  clock.read_by(second);
  EXPECT_EQ(need(first, Lane::kDiskRead), 3);
  EXPECT_EQ(need(first, Lane::kHostToDevice), 0);
  Task again = make(Lane::kDiskRead, 4);
  clock.written_by(again);
  EXPECT_EQ(need(again, Lane::kDeviceCompute), 5);
  EXPECT_EQ(need(again, Lane::kHostToDevice), 7);
  Task third = make(Lane::kDeviceCompute, 6);
  clock.read_by(third);
  EXPECT_EQ(need(third, Lane::kDiskRead), 4);
}

TEST(BufferClock, APartialWriteLeavesTheOtherPartsWriters) {
  BufferClock clock;
  Task first = make(Lane::kDiskRead, 1);
  Task second = make(Lane::kHostToDevice, 1);
  clock.partly_written_by(first);
  clock.partly_written_by(second);
  EXPECT_EQ(need(second, Lane::kDiskRead), 0);
  Task reader = make(Lane::kDeviceCompute, 1);
  clock.read_by(reader);
  EXPECT_EQ(need(reader, Lane::kDiskRead), 1);
  EXPECT_EQ(need(reader, Lane::kHostToDevice), 1);
}

TEST(Ring, HandsOutOneBehindTheOtherAndJumpsAtTheEnd) {
  Ring ring(100, 8);
  const auto a = ring.allocate(40);
  const auto b = ring.allocate(40);
  ASSERT_TRUE(a && b);
  EXPECT_EQ(ring.at(*a).offset, 0);
  EXPECT_EQ(ring.at(*b).offset, 40);
  EXPECT_FALSE(ring.allocate(30)) << "20 are left, and the first span is open";
  ring.close(*a);
  const auto c = ring.allocate(30);
  ASSERT_TRUE(c);
  EXPECT_EQ(ring.at(*c).offset, 0);
  EXPECT_FALSE(ring.allocate(20)) << "the second span is open";
  ring.close(*b);
  const auto d = ring.allocate(70);
  ASSERT_TRUE(d);
  EXPECT_EQ(ring.at(*d).offset, 30);
}

TEST(Ring, NewSpansWaitForTheUsersOfWhatTheyReplace) {
  Ring ring(100, 8);
  Task reader = make(Lane::kDeviceCompute, 9);
  const int64_t a = *ring.allocate(60);
  ring.at(a).clock.read_by(reader);
  ring.close(a);
  const int64_t b = *ring.allocate(40);
  ring.close(b);
  Task writer = make(Lane::kDiskRead, 1);
  ring.at(b).clock.written_by(writer);
  EXPECT_EQ(need(writer, Lane::kDeviceCompute), 0) << "that span is still there";
  // 20 of the 60, then 30 more: both are where the reader was.
  for (const int64_t bytes : {20, 30}) {
    const int64_t span = *ring.allocate(bytes);
    ring.close(span);
    Task next = make(Lane::kDiskWrite, 1);
    ring.at(span).clock.written_by(next);
    EXPECT_EQ(need(next, Lane::kDeviceCompute), 9) << bytes;
  }
}

TEST(Ring, HoldsNoMoreSpansThanItHasRoomFor) {
  Ring ring(100, 2);
  const int64_t a = *ring.allocate(1);
  ASSERT_TRUE(ring.allocate(1));
  EXPECT_FALSE(ring.allocate(1));
  ring.close(a);
  EXPECT_TRUE(ring.allocate(1));
}

TEST(Ring, ASpanLargerThanTheRingIsABug) {
  Ring ring(100, 2);
  EXPECT_THROW(ring.allocate(101), Error);
}

}  // namespace
}  // namespace transload::planner
