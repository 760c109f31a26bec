// CPU quotas, on fake cgroup trees.
// SPDX-License-Identifier: Apache-2.0
#include "server/scheduler/cpu_count.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

namespace ulfd::server {
namespace {

class CpuCountTest : public testing::Test {
 protected:
  void SetUp() override {
    root_ = testing::TempDir() + "/cpu_count_" +
            testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(root_);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void Write(const std::string& path, const std::string& text) {
    const std::filesystem::path full = root_ + path;
    std::filesystem::create_directories(full.parent_path());
    std::ofstream(full) << text;
  }
  std::string root_;
};

TEST_F(CpuCountTest, CoresComeBeforeTheirSecondThreads) {
  for (int cpu = 0; cpu < 6; ++cpu) {
    // Four hyper-threads of two cores as servers number them, and two CPUs of which nothing is
    // known.
    if (cpu < 4) {
      Write("/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list",
            cpu % 2 == 0 ? "0,2\n" : "1,3\n");
    }
  }
  EXPECT_EQ(SpreadOverCores(root_, {0, 1, 2, 3, 4, 5}), (std::vector<int>{0, 1, 4, 5, 2, 3}));
  EXPECT_EQ(SpreadOverCores(root_, {0, 2, 3}), (std::vector<int>{0, 3, 2}));
  EXPECT_EQ(SpreadOverCores(root_, {}), std::vector<int>());
}

TEST_F(CpuCountTest, AffinityIsThatOfTheThread) {
  const std::vector<int> all = AffinityCpus();
  ASSERT_FALSE(all.empty());
  EXPECT_EQ(AffinityCpuCount(), static_cast<int>(all.size()));
  std::thread([&] {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(all.back(), &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
    EXPECT_EQ(AffinityCpus(), std::vector<int>{all.back()});
  }).join();
}

TEST_F(CpuCountTest, NoCgroupsNoQuota) { EXPECT_EQ(CgroupCpuQuota(root_), std::nullopt); }

TEST_F(CpuCountTest, V2QuotaIsRoundedDown) {
  Write("/proc/self/cgroup", "0::/pod/container\n");
  Write("/sys/fs/cgroup/pod/container/cpu.max", "350000 100000\n");
  EXPECT_EQ(CgroupCpuQuota(root_), 3);
}

TEST_F(CpuCountTest, V2LessThanOneCpuIsOne) {
  Write("/proc/self/cgroup", "0::/\n");
  Write("/sys/fs/cgroup/cpu.max", "50000 100000\n");
  EXPECT_EQ(CgroupCpuQuota(root_), 1);
}

TEST_F(CpuCountTest, V2MaxIsNoQuota) {
  Write("/proc/self/cgroup", "0::/a\n");
  Write("/sys/fs/cgroup/a/cpu.max", "max 100000\n");
  EXPECT_EQ(CgroupCpuQuota(root_), std::nullopt);
}

TEST_F(CpuCountTest, V2TheTightestAncestorCounts) {
  Write("/proc/self/cgroup", "0::/a/b/c\n");
  Write("/sys/fs/cgroup/a/cpu.max", "200000 100000\n");
  Write("/sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
  Write("/sys/fs/cgroup/a/b/c/cpu.max", "800000 100000\n");
  EXPECT_EQ(CgroupCpuQuota(root_), 2);
}

TEST_F(CpuCountTest, V2AHostPathThatIsNotMountedMeansTheMountItself) {
  Write("/proc/self/cgroup", "0::/../../kubepods/pod1\n");
  Write("/sys/fs/cgroup/cpu.max", "400000 100000\n");
  EXPECT_EQ(CgroupCpuQuota(root_), 4);
}

TEST_F(CpuCountTest, V1Quota) {
  Write("/proc/self/cgroup", "5:memory:/x\n4:cpu,cpuacct:/docker/1\n1:cpuset:/\n");
  Write("/sys/fs/cgroup/cpu,cpuacct/docker/1/cpu.cfs_quota_us", "250000\n");
  Write("/sys/fs/cgroup/cpu,cpuacct/docker/1/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(CgroupCpuQuota(root_), 2);
}

TEST_F(CpuCountTest, V1MinusOneIsNoQuota) {
  Write("/proc/self/cgroup", "4:cpu:/\n");
  Write("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  Write("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(CgroupCpuQuota(root_), std::nullopt);
}

TEST_F(CpuCountTest, NonsenseIsNoQuota) {
  Write("/proc/self/cgroup", "hello\n0::/\n");
  Write("/sys/fs/cgroup/cpu.max", "many 100000\n");
  EXPECT_EQ(CgroupCpuQuota(root_), std::nullopt);
}

TEST(AffinityCpuCount, FollowsTheMask) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  EXPECT_EQ(AffinityCpuCount(), CPU_COUNT(&before));
  int first = 0;
  while (!CPU_ISSET(first, &before)) ++first;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(first, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  EXPECT_EQ(AffinityCpuCount(), 1);
  EXPECT_EQ(UsableCpuCount(), 1);
  sched_setaffinity(0, sizeof(before), &before);
}

}  // namespace
}  // namespace ulfd::server
