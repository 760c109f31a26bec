// LoadScope: memory, time and place of a load; InputFile within one.
// SPDX-License-Identifier: Apache-2.0
#include "base/load_scope.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/hash_map.h"
#include "base/text.h"
#include "engine/embedding/page_buffer.h"
#include "engine/weights/digest.h"
#include "engine/weights/npz.h"
#include "engine/weights/weights.h"
#include "tests/testing/temp_dir.h"

namespace ulfd::engine {
namespace {

namespace fs = std::filesystem;
using std::chrono::steady_clock;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr int64_t kMegabyte = 1 << 20;

TEST(LoadScopeTest, WithoutOneEverythingGoes) {
  EXPECT_EQ(LoadScope::Current(), nullptr);
  EXPECT_TRUE(LoadScope::Check().ok());
  EXPECT_TRUE(LoadScope::Charge(int64_t{1} << 60).ok());
}

TEST(LoadScopeTest, RefusesWhatIsTooMuchAndSaysSo) {
  const LoadScope scope({.max_memory_bytes = kMegabyte});
  { const std::vector<char> fits(kMegabyte / 2); }
  { const std::vector<char> again(kMegabyte / 2); }  // What was freed may be had again.
  EXPECT_TRUE(LoadScope::Check().ok());
  const auto fill = [](size_t bytes) {
    return WithinMemory([bytes] {
      const std::vector<char> filled(bytes);
      return absl::Status(absl::StatusCode::kUnknown, absl::StrCat(filled.size()));
    });
  };
  EXPECT_EQ(fill(kMegabyte / 2).code(), absl::StatusCode::kUnknown);
  const absl::Status status = fill(2 * kMegabyte);
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("wants 2097152 more, it may hold 1048576"));
  // The load cannot go on as if nothing had happened.
  EXPECT_EQ(LoadScope::Check(), status);
  EXPECT_GE(scope.peak_bytes(), kMegabyte / 2);
  EXPECT_LT(scope.peak_bytes(), kMegabyte);
}

// What std::stable_sort takes its buffer from; under AddressSanitizer a form of its own.
TEST(LoadScopeTest, CountsMemoryThatMayBeRefused) {
  const LoadScope scope({.max_memory_bytes = kMegabyte});
  void* const fits = operator new(kMegabyte / 2, std::nothrow);
  ASSERT_NE(fits, nullptr);
  EXPECT_GE(scope.peak_bytes(), kMegabyte / 2);
  operator delete(fits);
  EXPECT_EQ(operator new(2 * kMegabyte, std::nothrow), nullptr);
  EXPECT_TRUE(absl::IsResourceExhausted(LoadScope::Check()));
}

TEST(LoadScopeTest, ImpossibleSizesAreErrorsWithoutAScopeToo) {
  const auto fill = [](size_t bytes) {
    return WithinMemory([bytes] { return absl::UnknownError(std::string(bytes, 'x')); });
  };
  EXPECT_TRUE(absl::IsResourceExhausted(fill(size_t{1} << 62)));
  EXPECT_TRUE(absl::IsResourceExhausted(fill(~size_t{0})));
}

// Wherever it is refused something.
TEST(LoadScopeTest, AHashTableThatGrowsOutlivesTheLimit) {
  int refused = 0;
  absl::Status filled = absl::UnknownError("");
  for (int64_t bytes = 0; !filled.ok(); bytes += 64) {
    ASSERT_LT(bytes, kMegabyte);
    const LoadScope scope({.max_memory_bytes = bytes});
    HashMap<int64_t, std::string> map;
    HashSet<std::string> set;
    filled = WithinMemory([&] {
      for (int64_t i = 0; i < 200; ++i) map[i] = *set.insert(std::string(40, 'x')).first;
      return absl::OkStatus();
    });
    refused += !filled.ok();
    // What it has stays good.
    for (const auto& [id, text] : map) EXPECT_LT(id, 200);
  }
  EXPECT_GT(refused, 100);
}

TEST(LoadScopeTest, CountsAlignedMemoryAndTables) {
  const LoadScope scope({.max_memory_bytes = 64 * kMegabyte});
  struct alignas(128) Block {
    char bytes[kMegabyte];
  };
  auto block = std::make_unique<Block>();
  EXPECT_GE(scope.peak_bytes(), kMegabyte);
  block.reset();
  PageBuffer buffer;
  ASSERT_TRUE(buffer.Resize(60 * kMegabyte).ok());
  EXPECT_TRUE(buffer.Resize(30 * kMegabyte).ok());
  EXPECT_TRUE(buffer.Resize(60 * kMegabyte).ok());
  EXPECT_GE(scope.peak_bytes(), 60 * kMegabyte);
  EXPECT_LT(scope.peak_bytes(), 62 * kMegabyte);
  EXPECT_TRUE(absl::IsResourceExhausted(buffer.Resize(70 * kMegabyte)));
  EXPECT_EQ(buffer.bytes(), size_t{60 * kMegabyte});
}

TEST(LoadScopeTest, HoldsForItsThreadAlone) {
  const LoadScope scope({.max_memory_bytes = 1000});
  std::unique_ptr<LoadScope::WithoutRefusals> threads_are_made_of_memory =
      std::make_unique<LoadScope::WithoutRefusals>();
  std::thread([] {
    EXPECT_EQ(LoadScope::Current(), nullptr);
    const std::vector<char> free_of_limits(kMegabyte);
  }).join();
  EXPECT_TRUE(LoadScope::Check().ok());
}

TEST(LoadScopeTest, EndsAtItsDeadlineOrWhenCancelled) {
  {
    const LoadScope scope({.deadline = steady_clock::now() - std::chrono::seconds(1)});
    const absl::Status checked = LoadScope::Check();
    const LoadScope::WithoutRefusals for_the_messages;
    EXPECT_TRUE(absl::IsFailedPrecondition(checked)) << checked;
    EXPECT_THAT(std::string(checked.message()), HasSubstr("load.max_time_ms"));
  }
  const TempDir dir;
  const std::string file = dir.Write("a", "x");
  std::atomic<bool> cancelled = false;
  const LoadScope scope({.cancelled = &cancelled});
  EXPECT_TRUE(LoadScope::Check().ok());
  cancelled = true;  // From now on any allocation may fail.
  const absl::Status checked = LoadScope::Check();
  absl::Status read;
  for (int i = 0; i < 1000; ++i) {  // One allocation in 64 is refused: each has its turn.
    read = WithinMemory([&] { return ReadFile(file).status(); });
    if (!absl::IsCancelled(read)) break;
    WithinMemory([] { return std::make_unique<int>(0), absl::OkStatus(); }).IgnoreError();
  }
  const LoadScope::WithoutRefusals for_the_messages;
  EXPECT_TRUE(absl::IsCancelled(checked)) << checked;
  EXPECT_TRUE(absl::IsCancelled(read)) << read;
}

// Whatever a load does, it allocates: no step needs to look at the time by itself.
TEST(LoadScopeTest, AStepThatNeverAsksEndsAtTheDeadlineToo) {
  const LoadScope scope({.deadline = steady_clock::now()});
  std::vector<std::unique_ptr<int>> made;
  const auto make = [&made] {
    while (made.size() < 1000) made.push_back(std::make_unique<int>(0));
    return absl::OkStatus();
  };
  const absl::Status status = WithinMemory(make);
  const LoadScope::WithoutRefusals for_the_messages;
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("load.max_time_ms"));
  EXPECT_LT(made.size(), 100);
  EXPECT_TRUE(make().ok());
}

TEST(LoadScopeTest, AnInnerScopeCountsForTheOuterOne) {
  const LoadScope outer({.max_memory_bytes = 10 * kMegabyte});
  std::vector<char> kept;
  {
    const LoadScope inner({.max_memory_bytes = 3 * kMegabyte});
    kept.resize(2 * kMegabyte);
    EXPECT_EQ(LoadScope::Current(), &inner);
  }
  EXPECT_EQ(LoadScope::Current(), &outer);
  EXPECT_GE(outer.peak_bytes(), 2 * kMegabyte);
}

TEST(LoadScopeTest, AnInnerScopeEndsWithTheOuterOne) {
  std::atomic<bool> cancelled = true;
  const LoadScope late({.deadline = steady_clock::now() - std::chrono::seconds(1)});
  {
    const LoadScope inner({.max_memory_bytes = kMegabyte});
    EXPECT_TRUE(absl::IsFailedPrecondition(LoadScope::Check()));
  }
  const LoadScope outer({.cancelled = &cancelled});
  const LoadScope inner({.max_memory_bytes = kMegabyte});
  EXPECT_TRUE(absl::IsCancelled(LoadScope::Check()));
}

class InputFileTest : public ::testing::Test {
 protected:
  InputFileTest() {
    fs::create_directories(dir_.File("models/m/1"));
    fs::create_directories(dir_.File("models2"));
    dir_.Write("secret", "root:x:0");
    dir_.Write("models2/secret", "root:x:0");
    dir_.Write("models/shared", "inside");
  }
  // Of models/m/1/NAME, within models/.
  std::string Read(const std::string& name) {
    const LoadScope scope({.roots = {dir_.File("models")}});
    const auto content = ReadFile(dir_.File("models/m/1/" + name));
    return content.ok() ? *content : content.status().ToString();
  }
  void Link(const std::string& to, const std::string& name) {
    fs::create_symlink(to, dir_.File("models/m/1/" + name));
  }
  TempDir dir_;
};

TEST_F(InputFileTest, LinksStayWithinTheRoots) {
  dir_.Write("models/m/1/plain", "plain");
  EXPECT_EQ(Read("plain"), "plain");
  Link("plain", "beside");
  EXPECT_EQ(Read("beside"), "plain");
  Link("../../shared", "above");
  EXPECT_EQ(Read("above"), "inside");
  Link(dir_.File("models/shared"), "absolute");
  EXPECT_EQ(Read("absolute"), "inside");
  for (const std::string& target :
       {dir_.File("secret"), std::string("../../../secret"), dir_.File("models2/secret")}) {
    fs::remove(dir_.File("models/m/1/out"));
    Link(target, "out");
    const std::string error = Read("out");
    EXPECT_THAT(error, StartsWith("INVALID_ARGUMENT: "));
    EXPECT_THAT(error, HasSubstr("m/1/out: leads out of " + dir_.File("models")));
    EXPECT_THAT(error, Not(HasSubstr("root")));
  }
  // A directory on the way, too.
  Link(dir_.path(), "folder");
  EXPECT_THAT(Read("folder/secret"), HasSubstr("leads out of"));
  EXPECT_EQ(Read("folder/models/shared"), "inside");
  EXPECT_EQ(*ReadFile(dir_.File("models/m/1/out")), "root:x:0") << "anywhere without a scope";
  EXPECT_TRUE(LiesWithin("/a/b", {"/"}));
  EXPECT_FALSE(LiesWithin("/ab", {"/a"}));
}

TEST_F(InputFileTest, OtherThanRegularFilesAreRefusedAtOnce) {
  ASSERT_EQ(mkfifo(dir_.File("models/m/1/fifo").c_str(), 0600), 0);
  EXPECT_THAT(Read("fifo"), HasSubstr("fifo: not a regular file"));
  EXPECT_THAT(Read(""), HasSubstr("not a regular file"));
  Link("/dev/zero", "device");
  EXPECT_THAT(Read("device"), HasSubstr("leads out of"));
  for (const char* path : {"/dev/zero", "/dev/null"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ReadFile(path).status()));
    EXPECT_TRUE(absl::IsInvalidArgument(ReadNpz(path).status()));
    EXPECT_TRUE(absl::IsInvalidArgument(WeightFile::Read(path).status()));
    EXPECT_TRUE(absl::IsInvalidArgument(Sha256OfFile(path).status()));
  }
  EXPECT_TRUE(absl::IsNotFound(ReadFile(dir_.File("none")).status()));
  Link("circle", "circle");
  EXPECT_FALSE(ReadFile(dir_.File("models/m/1/circle")).ok());
}

TEST_F(InputFileTest, ClaimsOfASparseFileCostNothing) {
  const std::string path = dir_.Write("sparse", "x");
  ASSERT_EQ(truncate(path.c_str(), int64_t{1} << 40), 0);
  const LoadScope scope({.max_memory_bytes = 64 * kMegabyte});
  const absl::Status status = WithinMemory([&] { return ReadFile(path).status(); });
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_LT(scope.peak_bytes(), kMegabyte);
}

TEST(PrintableTest, LinesStay) {
  EXPECT_EQ(PrintableLines("a\tb\n\x1b[2J\r\xff\n"), "a\tb\n\\x1b[2J\\r\\xff\n");
}

TEST(PrintableTest, DirectionsAndEndsOfLinesAreEscaped) {
  EXPECT_EQ(Printable("a\u202eb", 10), "a\\xe2\\x80\\xaeb");
  EXPECT_EQ(Printable("\u061c\u200f\u2029\u2069", 20),
            "\\xd8\\x9c\\xe2\\x80\\x8f\\xe2\\x80\\xa9\\xe2\\x81\\xa9");
  const std::string others = "\u061b\u061d\u200d\u2010\u2027\u202f\u2065\u206a\u00a0\U0001f600";
  EXPECT_EQ(Printable(others, 100), others);
  EXPECT_EQ(PrintableLines("\u2028\n"), "\\xe2\\x80\\xa8\n");
}

TEST(PrintableTest, CutsAndEscapes) {
  EXPECT_EQ(Printable("short", 10), "short");
  EXPECT_EQ(Printable(std::string(100, 'x'), 3), "xxx... (100 bytes)");
  EXPECT_EQ(Printable("a\xc3\xa4\xc3\xa4", 4), "a\xc3\xa4... (5 bytes)");
  EXPECT_EQ(Printable("a\xff", 10), "a\\xff");
  EXPECT_EQ(Printable("a\n\x1b[2J\"", 10), "a\\n\\x1b[2J\"");
  EXPECT_EQ(Printable("a\xc2\x9b"
                      "2J\xc2\xa0",
                      10),
            "a\\xc2\\x9b2J\xc2\xa0");
  EXPECT_TRUE(IsUtf8(Printable(std::string(50, '\xbf'), 7)));
  EXPECT_EQ(Clip(absl::NotFoundError("abcdef"), 2).ToString(), "NOT_FOUND: ab... (6 bytes)");
}

}  // namespace
}  // namespace ulfd::engine
