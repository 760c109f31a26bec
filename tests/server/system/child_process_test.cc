// Programs run aside: how they end, what they say, and that they end when they must.
// SPDX-License-Identifier: Apache-2.0
#include "server/system/child_process.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <string>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ulfd::server {
namespace {

using ::testing::HasSubstr;

absl::StatusOr<ChildResult> Shell(const std::string& script, const ChildBounds& bounds = {}) {
  return RunChild({"/bin/sh", "-c", script}, bounds);
}

TEST(ChildProcessTest, SaysHowItEndedAndWhy) {
  const auto done = Shell("echo out; echo why >&2; exit 3");
  ASSERT_TRUE(done.ok()) << done.status();
  EXPECT_EQ(done->exit_code, 3);
  EXPECT_EQ(done->signal, 0);
  EXPECT_EQ(done->errors, "why\n");
  const auto killed = Shell("kill -SEGV $$");
  ASSERT_TRUE(killed.ok()) << killed.status();
  EXPECT_EQ(killed->signal, SIGSEGV);
  const absl::Status missing = RunChild({"/nowhere/program"}, {}).status();
  EXPECT_TRUE(absl::IsUnavailable(missing)) << missing;
  EXPECT_THAT(missing.message(), HasSubstr("/nowhere/program: cannot be run: No such file"));
}

TEST(ChildProcessTest, KeepsTheFirstOfManyErrors) {
  const auto done = Shell("head -c 1000000 /dev/zero >&2; exit 1");
  ASSERT_TRUE(done.ok()) << done.status();
  EXPECT_EQ(done->exit_code, 1);
  EXPECT_EQ(done->errors.size(), 16u << 10);
}

TEST(ChildProcessTest, RunsAloneInASessionAtTheLowestPriority) {
  const int open_here = open("/dev/null", O_RDONLY);  // Without O_CLOEXEC.
  const auto done = Shell(
      "exec >&2; set -- $(cat /proc/$$/stat); echo session $6 pid $$; sleep 0.2;"
      "set -- $(cat /proc/$$/stat); echo nice ${19}; ls /proc/$$/fd; true");
  close(open_here);
  ASSERT_TRUE(done.ok()) << done.status();
  const std::string pid = done->errors.substr(done->errors.find("pid ") + 4);
  EXPECT_THAT(done->errors, HasSubstr("session " + pid.substr(0, pid.find('\n')) + " pid"));
  EXPECT_THAT(done->errors, ::testing::EndsWith("nice 19\n0\n1\n2\n"));
}

TEST(ChildProcessTest, EndsWithWhatItStartedWhenItMust) {
  const auto begin = std::chrono::steady_clock::now();
  const auto stopped =
      Shell("sleep 100 & sleep 100", {.stop = [&] {
              return std::chrono::steady_clock::now() - begin > std::chrono::milliseconds(200);
            }});
  EXPECT_TRUE(absl::IsCancelled(stopped.status())) << stopped.status();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(50));
}

#ifndef ULFD_SANITIZED
TEST(ChildProcessTest, HasNoMoreMemoryThanItMay) {
  const auto bounded = Shell("sleep 0.2; ulimit -v >&2", {.max_memory_bytes = 100 << 20});
  ASSERT_TRUE(bounded.ok()) << bounded.status();
  EXPECT_EQ(bounded->errors, "102400\n");
}
#endif

}  // namespace
}  // namespace ulfd::server
