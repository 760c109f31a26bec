// What becomes of text in log lines.
// SPDX-License-Identifier: Apache-2.0
#include "server/observe/logging.h"

#include <gmock/gmock.h>
#include <grpc/support/log.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <sstream>
#include <utility>

#include "server/observe/call_log.h"
#include "server/observe/log_sink.h"
#include "server/rpc/grpc_log.h"

namespace ulfd::server {
namespace {

TEST(JsonEscape, KeepsCharactersAndEscapesTheRest) {
  EXPECT_EQ(JsonEscape(""), "");
  EXPECT_EQ(JsonEscape("a \"b\" \\ \n\t\x01\x7f"), R"(a \"b\" \\ \n\t\u0001\u007f)");
  EXPECT_EQ(JsonEscape("\xc3\xa9\xe6\xbc\xa2"), "\xc3\xa9\xe6\xbc\xa2");
  EXPECT_EQ(JsonEscape("a\xff\xc3"), "a??");
  EXPECT_EQ(JsonEscape("\xed\xa0\x80"), "???");  // A surrogate is no character.
  EXPECT_EQ(JsonEscape("\xc2\x9b"
                       "2J\xc2\xa0"),
            "\\u009b2J\xc2\xa0");  // A command of a terminal.
}

// Whoever reads the log of what callers sent reads words, one line for each event.
TEST(Logger, TextOfCallersIsNoCommand) {
  std::ostringstream lines;
  Logger logger(LogLevel::kInfo, LogFormat::kText,
                std::make_shared<spdlog::sinks::ostream_sink_mt>(lines));
  logger.Info("call", {{"a", "plain-1.5/x"},
                       {"b", "\x1b[2J"},
                       {"c", "x\rfaked"},
                       {"d", "\x0bx"},
                       {"e",
                        "\xc2\x9b"
                        "2J"}});
  EXPECT_THAT(lines.str(),
              ::testing::EndsWith("call a=plain-1.5/x b=\"\\u001b[2J\" c=\"x\\u000dfaked\" "
                                  "d=\"\\u000bx\" e=\"\\u009b2J\"\n"));
}

class PipeTest : public ::testing::Test {
 protected:
  PipeTest() { EXPECT_EQ(pipe(ends_), 0); }
  ~PipeTest() override {
    for (const int end : ends_) close(end);
  }
  std::string Read() {
    std::string text(1 << 20, '\0');
    text.resize(static_cast<size_t>(read(ends_[0], text.data(), text.size())));
    return text;
  }
  int ends_[2];
};

TEST_F(PipeTest, AReaderWhoStallsLosesLines) {
  const auto sink = std::make_shared<LogSink>(ends_[1]);
  Logger logger(LogLevel::kInfo, LogFormat::kJson, sink);
  const std::string text(10000, 'x');  // In several pieces.
  for (int i = 0; i < 20; ++i) logger.Info(text);
  EXPECT_GT(logger.dropped(), 10);
  const std::string whole = Read();
  EXPECT_GE(std::count(whole.begin(), whole.end(), '\n'), 4);

  // What had begun ends before the next line.
  const int64_t dropped = logger.dropped();
  logger.Info("again");
  EXPECT_EQ(logger.dropped(), dropped);
  EXPECT_THAT(Read(), ::testing::MatchesRegex("\n[{]\"time\":[^\n]*\"again\"[}]\n"));
}

class LinesTest : public ::testing::Test {
 protected:
  std::string Lines() {
    logger_.Info("end");
    return std::exchange(lines_, std::ostringstream()).str();
  }
  std::ostringstream lines_;
  Logger logger_{LogLevel::kInfo, LogFormat::kJson,
                 std::make_shared<spdlog::sinks::ostream_sink_mt>(lines_)};
};

TEST_F(LinesTest, GrpcSpeaksByOurLog) {
  gpr_log_verbosity_init();
  const GrpcLog log(logger_);
  gpr_log("/a/b/tcp.cc", 7, GPR_LOG_SEVERITY_ERROR, "%s", "no \"peer\" ipv4:10.0.0.1:4242: reset");
  gpr_log("x.cc", 1, GPR_LOG_SEVERITY_ERROR, "text\nof two lines");
  const std::string lines = Lines();
  EXPECT_THAT(lines,
              ::testing::HasSubstr(R"("level":"warning","message":"gRPC","text":"no \"peer\" )"
                                   R"(ipv4:10.0.0.1:4242: reset","peer":"ipv4:10.0.0.1:4242",)"
                                   R"("source":"tcp.cc:7","left_out":0})"));
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 3);
  for (int i = 0; i < 1000; ++i) gpr_log("x.cc", 1, GPR_LOG_SEVERITY_ERROR, "again");
  const std::string many = Lines();
  EXPECT_LE(std::count(many.begin(), many.end(), '\n'), 61);  // In three seconds at most.
}

TEST_F(LinesTest, AShareOfTheCallsAndThoseThatSomebodyLooksFor) {
  CallLog log(logger_, {.share = 0.25, .max_per_second = 1000});
  int wanted = 0;
  for (int i = 0; i < 1000; ++i) wanted += log.Wants(false) ? 1 : 0;
  EXPECT_EQ(wanted, 250);
  CallLog off(logger_, {});
  EXPECT_FALSE(off.Wants(false));
  EXPECT_TRUE(off.Wants(true));
}

TEST(LineLimitTest, SaysOnceHowManyWereLeftOut) {
  LineLimit limit(2);
  using Time = std::chrono::steady_clock::time_point;
  const auto at = [](int seconds) { return Time(std::chrono::seconds(seconds)); };
  int64_t left_out = 0;
  EXPECT_TRUE(limit.Take(at(5), left_out));
  EXPECT_TRUE(limit.Take(at(5), left_out));
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(limit.Take(at(5), left_out));
  EXPECT_TRUE(limit.Take(at(6), left_out));
  EXPECT_EQ(left_out, 3);
  EXPECT_TRUE(limit.Take(at(6), left_out));
  EXPECT_EQ(left_out, 0);
}

}  // namespace
}  // namespace ulfd::server
