#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>

#include "offload/disk.h"
#include "tests/offload/support.h"

namespace transload::offload {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string spill_error(const std::string& directory, int64_t bytes) {
  return error_text(Kind::kIo, [&] { File::create_spill(directory, bytes); });
}

TEST(File, SpillIsAllocatedAndHasNoName) {
  const TempDir directory;
  const File spill = File::create_spill(directory.path(), 10'000);
  EXPECT_EQ(spill.bytes(), 3 * kPageBytes);
  struct stat status {};
  ASSERT_EQ(fstat(spill.descriptor(), &status), 0);
  EXPECT_EQ(status.st_size, 3 * kPageBytes);
  EXPECT_GE(status.st_blocks * 512, 3 * kPageBytes);
  EXPECT_EQ(status.st_nlink, 0U);
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
  EXPECT_EQ((fcntl(spill.descriptor(), F_GETFL) & O_DIRECT) != 0, spill.direct());
}

TEST(File, SpillMakesMissingDirectories) {
  const TempDir directory;
  const File spill = File::create_spill(directory.file("a/b/c"), kPageBytes);
  EXPECT_TRUE(std::filesystem::is_directory(directory.file("a/b/c")));
  EXPECT_THAT(spill.name(), HasSubstr(directory.file("a/b/c")));
}

TEST(File, SpillRefusesAFileInPlaceOfTheDirectory) {
  const TempDir directory;
  write_file(directory.file("plain"), {});
  EXPECT_THAT(spill_error(directory.file("plain"), 1),
              AllOf(HasSubstr("'" + directory.file("plain") + "'"), HasSubstr("not a directory"),
                    HasSubstr("pass a directory as --disk-dir")));
  EXPECT_THAT(spill_error(directory.file("plain/below"), 1),
              AllOf(HasSubstr("cannot be made"), HasSubstr("Not a directory")));
}

TEST(File, SpillRefusesADirectoryItMayNotWrite) {
  const TempDir directory;
  std::filesystem::create_directory(directory.file("closed"));
  chmod(directory.path().c_str(), 0755);
  chmod(directory.file("closed").c_str(), 0555);
  const std::string text = in_child([&] {
    become_nobody();
    return spill_error(directory.file("closed"), 1) + "|" +
           spill_error(directory.file("closed/below"), 1);
  });
  EXPECT_THAT(text, AllOf(HasSubstr("cannot be written (Permission denied); make it writable"),
                          HasSubstr("cannot be made (Permission denied)"),
                          HasSubstr("another --disk-dir")));
}

TEST(File, SpillRefusesADiskThatIsTooSmall) {
  const TempDir directory;
  EXPECT_THAT(spill_error(directory.path(), int64_t{1} << 60),
              AllOf(HasSubstr("needed"), HasSubstr("free space or pass a --disk-dir")));
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
}

TEST(File, SpillNamesASizeLimit) {
  const TempDir directory;
  const std::string text = in_child([&] {
    const rlimit limit{kPageBytes, kPageBytes};
    std::signal(SIGXFSZ, SIG_IGN);
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) return std::string("no limit set");
    return spill_error(directory.path(), 2 * kPageBytes);
  });
  EXPECT_THAT(text,
              AllOf(HasSubstr("cannot be allocated (File too large)"), HasSubstr("ulimit -f")));
}

TEST(File, OpensForReadingAndMoves) {
  const TempDir directory;
  write_file(directory.file("data"), random_bytes(5000, 1));
  File first = File::open_read(directory.file("data"), true);
  EXPECT_EQ(first.bytes(), 5000);
  EXPECT_EQ((fcntl(first.descriptor(), F_GETFL) & O_DIRECT) != 0, first.direct());
  const int descriptor = first.descriptor();
  File second(std::move(first));
  EXPECT_EQ(second.descriptor(), descriptor);
  second = File();
  const File buffered = File::open_read(directory.file("data"), false);
  EXPECT_FALSE(buffered.direct());
}

TEST(File, NoticesThatItWasChanged) {
  const TempDir directory;
  const std::string path = directory.file("data");
  write_file(path, random_bytes(5000, 1));
  File file = File::open_read(path, true);
  file.check_unchanged();
  const File moved(std::move(file));
  moved.check_unchanged();
  const auto changed = [&] { return error_text(Kind::kIo, [&] { moved.check_unchanged(); }); };
  const timespec times[2] = {{0, UTIME_OMIT}, {1000, 7}};
  ASSERT_EQ(utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
  EXPECT_THAT(changed(), AllOf(HasSubstr(path), HasSubstr("was changed while")));
}

TEST(File, GoesWithoutDirectWhereTheFileSystemRefuses) {
  const std::string path = "/sys/kernel/mm/transparent_hugepage/enabled";
  if (access(path.c_str(), R_OK) != 0) GTEST_SKIP() << "no " << path;
  const File file = File::open_read(path, true);
  EXPECT_FALSE(file.direct());
  EXPECT_EQ(fcntl(file.descriptor(), F_GETFL) & O_DIRECT, 0);
}

TEST(File, NamesAFileThatCannotBeOpened) {
  const TempDir directory;
  EXPECT_THAT(error_text(Kind::kIo, [&] { File::open_read(directory.file("none"), true); }),
              AllOf(HasSubstr(directory.file("none")), HasSubstr("check the path"),
                    HasSubstr("No such file")));
  EXPECT_THAT(error_text(Kind::kIo, [&] { File::open_read(directory.path(), true); }),
              HasSubstr("is not a file"));
}

TEST(File, RefusesASpillWithoutSense) {
  EXPECT_THAT(error_text(Kind::kInternal, [] { File::create_spill("", 1); }), HasSubstr("spill"));
  EXPECT_THAT(error_text(Kind::kInternal, [] { File::create_spill("x", -1); }), HasSubstr("spill"));
}

}  // namespace
}  // namespace transload::offload
