// Memory limits on fake cgroup trees, estimates from files, and the sum that a refusal names.
// SPDX-License-Identifier: Apache-2.0
#include "server/models/memory_budget.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "base/memory_limit.h"
#include "tests/testing/temp_dir.h"

namespace ulfd::server {
namespace {

class MemoryBudgetTest : public ::testing::Test {
 protected:
  void Write(const std::string& path, const std::string& text) {
    const std::filesystem::path full = dir_.path() + "/" + path;
    std::filesystem::create_directories(full.parent_path());
    std::ofstream(full) << text;
  }
  std::optional<int64_t> Limit() const { return CgroupMemoryLimit(dir_.path()); }

  TempDir dir_;
};

TEST_F(MemoryBudgetTest, NoCgroupNoLimit) { EXPECT_EQ(Limit(), std::nullopt); }

TEST_F(MemoryBudgetTest, V2TheTightestAncestorCounts) {
  Write("proc/self/cgroup", "0::/a/b\n");
  Write("sys/fs/cgroup/a/memory.max", "4000000\n");
  Write("sys/fs/cgroup/a/b/memory.max", "max\n");
  EXPECT_EQ(Limit(), 4000000);
  Write("sys/fs/cgroup/a/b/memory.max", "3000000\n");
  EXPECT_EQ(Limit(), 3000000);
}

TEST_F(MemoryBudgetTest, V2HostPathThatIsNotMountedMeansTheMountItself) {
  Write("proc/self/cgroup", "0::/kubepods/pod1\n");
  Write("sys/fs/cgroup/memory.max", "5000000\n");
  EXPECT_EQ(Limit(), 5000000);
}

TEST_F(MemoryBudgetTest, V1) {
  Write("proc/self/cgroup", "3:cpu:/x\n9:memory:/docker/1\n");
  Write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(Limit(), std::nullopt);
  Write("sys/fs/cgroup/memory/docker/1/memory.limit_in_bytes", "6000000\n");
  EXPECT_EQ(Limit(), 6000000);
}

TEST_F(MemoryBudgetTest, DefaultIsPartOfTheMachine) { EXPECT_GT(DefaultMemoryBudget(), 1 << 20); }

TEST_F(MemoryBudgetTest, EstimateCountsFilesAndWeightsTwice) {
  Write("m/graph_ulf.txt", std::string(100, '#'));
  Write("m/weights.pb", std::string(1000, 'w'));
  Write("m/table", std::string(5000, 't'));
  Write("m/mapped.ulft", "ULFT\r\n\x1a\n" + std::string(90000, 't'));
  Write("m/warmup/a.pb", std::string(70000, 'r'));
  const auto first = EstimateMemory(dir_.File("m"), {}, std::nullopt);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(first->file_bytes, 6100);
  EXPECT_EQ(first->bytes, 7100);
  // What an earlier version needed tells better.
  EXPECT_EQ(EstimateMemory(dir_.File("m"), {}, 0.5)->bytes, 3050);
  EXPECT_TRUE(absl::IsNotFound(EstimateMemory(dir_.File("none"), {}, std::nullopt).status()));
}

TEST_F(MemoryBudgetTest, RefusalNamesTheSum) {
  constexpr int64_t kMiB = 1 << 20;
  EXPECT_TRUE(CheckMemory(4 * kMiB, true, 6 * kMiB, 10 * kMiB).ok());
  EXPECT_EQ(CheckMemory(5 * kMiB, true, 6 * kMiB, 10 * kMiB).ToString(),
            "RESOURCE_EXHAUSTED: needs about 5 MiB beside the 6 MiB that models hold now: 11 MiB "
            "together, memory_budget_bytes allows 10 MiB");
  EXPECT_EQ(CheckMemory(5 * kMiB, false, 6 * kMiB, 10 * kMiB).message().substr(0, 11),
            "needs 5 MiB");
}

}  // namespace
}  // namespace ulfd::server
