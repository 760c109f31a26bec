// Conversions that outlast their load, by the real converter beside the tests.
// SPDX-License-Identifier: Apache-2.0
#include "server/models/onnx_conversion.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>

#include <chrono>
#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/file_descriptor.h"
#include "base/load_scope.h"
#include "tests/testing/paths.h"
#include "tests/testing/temp_dir.h"

namespace ulfd::server {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

// Wherever the end of the load falls: the clean-up allocates, and what refuses that would end the
// process.
TEST(OnnxConversion, LeavesNothingHalfDoneWhenItsLoadEnds) {
  const TempDir dir;
  const fs::path kept = fs::path(dir.path()) / "kept", source = fs::path(dir.path()) / "1";
  fs::create_directories(kept);
  fs::create_directories(source);
  fs::copy(testing::TestData() + "/convert/onnx_two_towers/model.onnx", source);
  const auto conversion = OnnxConversion::Create(kept);
  ASSERT_TRUE(conversion.ok()) << conversion.status();
  int ended = 0;
  for (int ms = 5; ms <= 200; ms += 15) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(ms);
    const LoadScope scope({.owner = "m", .deadline = deadline});
    const auto made = WithinMemory([&] { return (*conversion)->Convert(source, {}); });
    const LoadScope::WithoutRefusals for_the_test;
    EXPECT_FALSE(fs::exists(kept / "unfinished")) << ms << " ms: " << made.status();
    ended += made.ok() ? 0 : 1;
    if (made.ok()) fs::remove_all(*made);
  }
  EXPECT_GT(ended, 0);
}

// A folder whose name has a line end must not be two roots, of which its owner chose the second.
TEST(OnnxConversion, KeepsToTheRootsWhateverTheirNames) {
  const TempDir dir;
  const fs::path kept = fs::path(dir.path()) / "kept", outside = fs::path(dir.path()) / "outside";
  fs::create_directories(kept);
  fs::create_directories(outside);
  fs::copy(testing::TestData() + "/convert/onnx_two_towers/model.onnx", outside);
  const auto conversion = OnnxConversion::Create(kept);
  ASSERT_TRUE(conversion.ok()) << conversion.status();
  const fs::path source = absl::StrCat(dir.path(), "/\\h\n", outside.string());
  fs::create_directories(source);
  fs::create_symlink(outside / "model.onnx", source / "model.onnx");
  const engine::DirectoryRules rules{.roots = {source, kept}};
  const absl::Status refused = (*conversion)->Convert(source, rules).status();
  EXPECT_THAT(std::string(refused.message()), HasSubstr("model.onnx: leads out of"));
  fs::remove(source / "model.onnx");
  fs::copy(outside / "model.onnx", source);
  const auto made = (*conversion)->Convert(source, rules);
  EXPECT_TRUE(made.ok()) << made.status();
}

// As of another daemon with the same directory.
TEST(OnnxConversion, LeavesAloneWhatAnotherProcessMakes) {
  const TempDir dir;
  const fs::path kept = fs::path(dir.path()) / "kept", source = fs::path(dir.path()) / "1";
  fs::create_directories(kept / "unfinished" / "model");
  fs::create_directories(source);
  fs::copy(testing::TestData() + "/convert/onnx_two_towers/model.onnx", source);
  FileDescriptor other(open(kept.c_str(), O_RDONLY | O_DIRECTORY));
  ASSERT_EQ(flock(other.get(), LOCK_EX), 0);
  const auto conversion = OnnxConversion::Create(kept);
  ASSERT_TRUE(conversion.ok()) << conversion.status();
  const absl::Status refused = (*conversion)->Convert(source, {}).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable);  // Tried again later.
  EXPECT_EQ(refused.message(), absl::StrCat("converted_directory: ", kept.string(),
                                            ": another process converts there"));
  EXPECT_TRUE(fs::exists(kept / "unfinished" / "model"));
  other = FileDescriptor();
  const auto made = (*conversion)->Convert(source, {});
  EXPECT_TRUE(made.ok()) << made.status();
}

}  // namespace
}  // namespace ulfd::server
