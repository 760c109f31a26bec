// Files of the recorder: what is written is read, and damage costs no more than what it hit.
// SPDX-License-Identifier: Apache-2.0
#include "base/recording/recording_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "base/recording/recording_reader.h"
#include "tests/testing/temp_dir.h"

namespace ulfd::recording {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Recording Example(int64_t version, size_t request_bytes = 40) {
  Recording record;
  record.set_api(v1::API_NATIVE);
  record.set_model("rank");
  record.set_version(version);
  record.set_request(std::string(request_bytes, static_cast<char>('a' + version % 26)));
  v1::RecordedOutput* output = record.add_outputs();
  output->set_name("score");
  output->add_shape(2);
  output->add_values(0.25f);
  output->add_values(0.5f);
  return record;
}

std::string WriteFile(const TempDir& dir, const std::string& name, int64_t first, int64_t count) {
  const std::string path = dir.File(name);
  absl::StatusOr<RecordingWriter> writer = RecordingWriter::Create(path);
  EXPECT_TRUE(writer.ok()) << writer.status();
  for (int64_t i = 0; i < count; ++i) {
    EXPECT_TRUE(writer->Append(Example(first + i).SerializeAsString()).ok());
  }
  EXPECT_EQ(writer->bytes(), static_cast<int64_t>(std::filesystem::file_size(path)));
  return path;
}

struct Content {
  std::vector<int64_t> versions;
  Damage damage;
};

Content Read(const std::string& path) {
  Content content;
  absl::StatusOr<RecordingReader> reader = RecordingReader::Open(path);
  EXPECT_TRUE(reader.ok()) << reader.status();
  Recording record;
  while (true) {
    const absl::StatusOr<bool> more = reader->Next(&record);
    EXPECT_TRUE(more.ok()) << more.status();
    if (!more.ok() || !*more) break;
    content.versions.push_back(record.version());
    EXPECT_EQ(record.SerializeAsString(), Example(record.version()).SerializeAsString());
  }
  content.damage = reader->damage();
  return content;
}

std::string Bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

TEST(RecordingFile, what_is_written_is_read) {
  const TempDir dir;
  const Content content = Read(WriteFile(dir, "a.ulfrec", 1, 3));
  EXPECT_THAT(content.versions, ElementsAre(1, 2, 3));
  EXPECT_EQ(content.damage.records, 0);
  EXPECT_EQ(content.damage.tail_bytes, 0);
}

TEST(RecordingFile, has_the_documented_layout) {
  const TempDir dir;
  const std::string bytes = Bytes(WriteFile(dir, "a.ulfrec", 1, 1));
  const std::string payload = Example(1).SerializeAsString();
  ASSERT_EQ(bytes.size(), 8 + 16 + payload.size());
  EXPECT_EQ(bytes.substr(0, 8), std::string("ULFREC\0\1", 8));
  EXPECT_EQ(bytes.substr(8, 4), "UREC");
  EXPECT_EQ(static_cast<unsigned char>(bytes[12]), payload.size());
  EXPECT_EQ(bytes.substr(13, 3), std::string(3, '\0'));
  EXPECT_EQ(bytes.substr(24), payload);
}

TEST(RecordingFile, cut_anywhere_it_yields_every_whole_record) {
  const TempDir dir;
  const std::string path = WriteFile(dir, "a.ulfrec", 1, 3);
  const std::string whole = Bytes(path);
  const size_t record = 16 + Example(1).SerializeAsString().size();
  for (size_t size = 0; size < whole.size(); ++size) {
    SCOPED_TRACE(absl::StrCat(size, " bytes"));
    const Content content = Read(dir.Write("cut.ulfrec", whole.substr(0, size)));
    const size_t records = size < 8 ? 0 : (size - 8) / record;
    EXPECT_EQ(content.versions.size(), records);
    EXPECT_EQ(content.damage.records, 0);
    EXPECT_EQ(content.damage.tail_bytes,
              static_cast<int64_t>(size < 8 ? size : (size - 8) % record));
  }
}

TEST(RecordingFile, a_hole_behind_a_bad_header_is_not_read) {
  constexpr int64_t kTerabyte = int64_t{1} << 40;
  const TempDir dir;
  const std::string path = WriteFile(dir, "a.ulfrec", 1, 1);
  const auto whole = static_cast<int64_t>(std::filesystem::file_size(path));
  std::filesystem::resize_file(path, kTerabyte);  // Hours to read.
  const Content content = Read(path);
  EXPECT_THAT(content.versions, ElementsAre(1));
  EXPECT_EQ(content.damage.tail_bytes, kTerabyte - whole);
}

TEST(RecordingFile, a_changed_byte_costs_one_record_or_ends_the_file) {
  const TempDir dir;
  const std::string path = WriteFile(dir, "a.ulfrec", 1, 3);
  const std::string whole = Bytes(path);
  const size_t record = 16 + Example(1).SerializeAsString().size();
  for (size_t at = 8; at < whole.size(); ++at) {
    SCOPED_TRACE(absl::StrCat("byte ", at));
    std::string changed = whole;
    changed[at] = static_cast<char>(changed[at] ^ 0x55);
    const Content content = Read(dir.Write("changed.ulfrec", changed));
    const size_t hit = (at - 8) / record, within = (at - 8) % record;
    // Records before the damage are there whatever it hits.
    ASSERT_GE(content.versions.size(), hit);
    for (size_t i = 0; i < hit; ++i) EXPECT_EQ(content.versions[i], static_cast<int64_t>(i + 1));
    if (within >= 8) {  // Checksum or payload.
      EXPECT_EQ(content.versions.size(), 2u);
      EXPECT_EQ(content.damage.records, 1);
    } else {
      EXPECT_GT(content.damage.records + content.damage.tail_bytes, 0);
    }
  }
}

TEST(RecordingFile, foreign_files_are_named) {
  const TempDir dir;
  const auto error = [&](const std::string& content) {
    return std::string(RecordingReader::Open(dir.Write("x", content)).status().message());
  };
  EXPECT_EQ(error("PK\3\4 something"),
            dir.File("x") + ": begins with \"PK\\x03\\x04 som\": no file of the recorder");
  EXPECT_EQ(error(std::string("ULFREC\0\2", 8)), dir.File("x") + ": format version 2, want 1");
  EXPECT_TRUE(absl::IsNotFound(RecordingReader::Open(dir.File("absent")).status()));
}

TEST(RecordingFile, names_are_safe_and_in_order) {
  EXPECT_EQ(ModelFolder("/r", "rank-1.b"), "/r/rank-1.b");
  EXPECT_EQ(ModelFolder("/r", "../x y"), "/r/%2E.%2Fx%20y");
  EXPECT_EQ(FileName("/r/rank", 42), "/r/rank/0000000042.ulfrec");
  const TempDir dir;
  EXPECT_THAT(*ListFiles(ModelFolder(dir.path(), "rank")), IsEmpty());
  for (const int64_t number : {7, 10, 2}) {
    ASSERT_TRUE(RecordingWriter::Create(FileName(ModelFolder(dir.path(), "rank"), number)).ok());
  }
  dir.Write("rank/notes.txt", "");
  dir.Write("rank/abc.ulfrec", "");
  std::vector<int64_t> numbers;
  const auto files = ListFiles(ModelFolder(dir.path(), "rank"));
  ASSERT_TRUE(files.ok());
  for (const RecordingPath& file : *files) {
    numbers.push_back(file.number);
    EXPECT_EQ(file.bytes, 8);
  }
  EXPECT_THAT(numbers, ElementsAre(2, 7, 10));
}

TEST(RecordingFile, a_file_is_never_overwritten) {
  const TempDir dir;
  const std::string path = WriteFile(dir, "a.ulfrec", 1, 1);
  const absl::Status status = RecordingWriter::Create(path).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("File exists"));
  EXPECT_THAT(Read(path).versions, ElementsAre(1));
}

// The kernel itself ends the file: a limit on file sizes behaves like a full disk.
TEST(RecordingFile, a_full_disk_leaves_whole_records) {
  const TempDir dir;
  const std::string path = dir.File("a.ulfrec");
  absl::StatusOr<RecordingWriter> writer = RecordingWriter::Create(path);
  ASSERT_TRUE(writer.ok());
  rlimit before;
  getrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, SIG_IGN);
  const rlimit limit{1000, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &limit);
  absl::Status status;
  int64_t written = 0;
  while (status.ok() && written < 100) {
    status = writer->Append(Example(written + 1).SerializeAsString());
    if (status.ok()) ++written;
  }
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(path + ": cannot write: File too large"));
  EXPECT_GT(written, 3);
  EXPECT_EQ(static_cast<int64_t>(std::filesystem::file_size(path)), writer->bytes());
  // With room again the same file goes on.
  EXPECT_TRUE(writer->Append(Example(written + 1).SerializeAsString()).ok());
  const Content content = Read(path);
  EXPECT_EQ(static_cast<int64_t>(content.versions.size()), written + 1);
  EXPECT_EQ(content.damage.tail_bytes, 0);
}

}  // namespace
}  // namespace ulfd::recording
