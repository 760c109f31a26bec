// Reads of rows from a node that answers what no Redis would.
// SPDX-License-Identifier: Apache-2.0
#include "engine/stores/redis_read.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "engine/stores/redis_cluster.h"
#include "engine/stores/redis_store.h"
#include "tests/testing/redis_listener.h"

namespace ulfd::engine {
namespace {

using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// A node on loopback that has all slots, and answers every GET and MGET with the same bytes.
class FakeNode {
 public:
  // `pause`: between the bytes of an answer.
  explicit FakeNode(const std::function<std::string(const std::string& node)>& answer,
                    milliseconds pause = {})
      : pause_(pause),
        answer_(answer(name())),
        slots_(absl::StrCat(
            "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:", listener_.port(), "\r\n")) {
    acceptor_ = std::thread([this] { Accept(); });
  }
  ~FakeNode() {
    stopping_ = true;
    acceptor_.join();
    for (std::thread& talk : talks_) talk.join();
  }
  std::string name() const { return listener_.name(); }
  int reads() const { return reads_; }
  int connections() const { return connections_; }
  // What it says of the cluster from now on, instead of that it has all slots.
  void SetSlots(const std::string& slots) {
    MutexLock lock(mu_);
    slots_ = slots;
  }
  // From now on it has rows of 4 bytes, but 400 MB under this key.
  void SetHuge(const std::string& key) {
    MutexLock lock(mu_);
    huge_ = key;
  }

 private:
  bool Readable(int fd) const {
    pollfd waited = {.fd = fd, .events = POLLIN, .revents = 0};
    while (!stopping_) {
      if (poll(&waited, 1, 10) > 0) return true;
    }
    return false;
  }
  void Accept() {
    while (Readable(listener_.fd())) {
      ++connections_;
      talks_.emplace_back([this, fd = accept(listener_.fd(), nullptr, nullptr)] {
        Talk(fd);
        close(fd);
      });
    }
  }
  void Talk(int fd) {
    std::string asked;
    char bytes[4096];
    while (Readable(fd)) {
      const ssize_t got = recv(fd, bytes, sizeof bytes, 0);
      if (got <= 0) return;
      asked.append(bytes, static_cast<size_t>(got));
      // Commands come whole: they are short.
      while (!asked.empty()) {
        const size_t next = asked.find("\r\n*", 1);
        if (!Answer(fd, asked.substr(0, next))) return;
        asked.erase(0, next == std::string::npos ? next : next + 2);
      }
    }
  }
  bool AnswerRows(int fd, const std::string& command, const std::string& huge) {
    std::string reply = command.substr(0, 2) + "\r\n";
    reply[1] -= 1;  // "MGET" and at most 8 keys.
    const bool is_huge = absl::StrContains(command, huge);
    for (char i = '0'; i < reply[1]; ++i) {
      reply += is_huge ? "$400000000\r\n" + std::string(1 << 20, 'x') : "$4\r\nabcd\r\n";
    }
    ssize_t sent = 1;
    for (size_t at = 0; at < reply.size() && sent > 0; at += static_cast<size_t>(sent)) {
      sent = send(fd, reply.data() + at, reply.size() - at, MSG_NOSIGNAL);
    }
    for (int i = 0; i < 400 && is_huge && sent > 0; ++i) {
      sent = send(fd, reply.data() + 16, 1 << 20, MSG_NOSIGNAL);
    }
    return sent > 0;
  }
  bool Answer(int fd, const std::string& command) {
    std::string reply = "+OK\r\n", huge;
    if (absl::StrContains(command, "SLOTS")) {
      MutexLock lock(mu_);
      reply = slots_;
    }
    {
      MutexLock lock(mu_);
      huge = huge_;
    }
    const bool read = absl::StrContains(command, "GET");
    if (!read) return send(fd, reply.data(), reply.size(), MSG_NOSIGNAL) > 0;
    ++reads_;
    if (!huge.empty()) return AnswerRows(fd, command, huge);
    if (pause_.count() == 0) return send(fd, answer_.data(), answer_.size(), MSG_NOSIGNAL) > 0;
    for (const char byte : answer_) {
      std::this_thread::sleep_for(pause_);
      if (stopping_ || send(fd, &byte, 1, MSG_NOSIGNAL) <= 0) return false;
    }
    return true;
  }

  const milliseconds pause_;
  const testing::RedisListener listener_;
  const std::string answer_;
  std::atomic<bool> stopping_{false};
  std::atomic<int> reads_{0}, connections_{0};
  Mutex mu_;
  std::string slots_ ABSL_GUARDED_BY(mu_), huge_ ABSL_GUARDED_BY(mu_);
  std::vector<std::thread> talks_;  // Of the acceptor.
  std::thread acceptor_;
};

// Why all rows of 4 bytes, each in a slot of its own, are late.
std::string WhyLate(const FakeNode& node, milliseconds time = milliseconds(300), size_t count = 1) {
  const auto cluster = RedisCluster::Create({.name = "a", .nodes = {node.name()}});
  EXPECT_TRUE(cluster.ok()) << cluster.status();
  RowSet rows;
  rows.Reset(4);
  std::vector<int64_t> ids;
  for (size_t i = 0; i < count; ++i) ids.push_back(static_cast<int64_t>(i) + 7);
  rows.AddIds(ids);
  rows.Reserve();
  RowRead read{.rows = &rows, .wanted = {0}};
  std::vector<RedisKey> keys;
  for (size_t i = 0; i < count; ++i) {
    keys.push_back({.key = absl::StrCat("{t/", i, "}", ids[i]),
                    .slot = static_cast<uint16_t>(i + 1),
                    .read = &read,
                    .row = i});
  }
  const auto start = Clock::now();
  ReadRedis(**cluster, std::move(keys), start + time);
  EXPECT_LT(Clock::now() - start, time + std::chrono::seconds(2));
  for (size_t i = 0; i < count; ++i) EXPECT_EQ(rows.state(i), RowState::kLate) << i;
  return std::string(read.status.message());
}

TEST(RedisReadTest, EndsInTimeWhereNodesSendItInCircles) {
  const FakeNode node([](const std::string& name) { return "-MOVED 1 " + name + "\r\n"; });
  EXPECT_THAT(WhyLate(node), HasSubstr("key \"{t/0}7\": 16 tries ended elsewhere"));
  EXPECT_LE(node.reads(), 16 * 10);  // It pauses longer and longer.
}

TEST(RedisReadTest, EndsInTimeWhereANodeTrickles) {
  const FakeNode node([](const std::string&) { return "*1\r\n$4\r\nabcd\r\n"; }, milliseconds(50));
  EXPECT_THAT(WhyLate(node), HasSubstr("no answer in time"));
}

TEST(RedisReadTest, EndsWithANodeThatSendsMoreThanAllRowsAndOneError) {
  const std::string error = absl::StrCat("-ERR ", std::string(1'200'000, 'x'), "\r\n");
  const FakeNode node([&](const std::string&) { return error; });
  // 1 MiB for all, and 36 for each row that the connection was asked for, some of them twice.
  EXPECT_THAT(WhyLate(node, milliseconds(1000), 50),
              ::testing::ContainsRegex("more than the 10[45][0-9]{4} bytes"));
}

// A value that is longer than all rows is not asked for until the time is over, and the rows beside
// it are there.
TEST(RedisReadTest, AsksNotAgainForWhatIsFarTooLong) {
  FakeNode node([](const std::string&) { return std::string(); });
  node.SetHuge("{t/0}7");
  const auto cluster = RedisCluster::Create({.name = "a", .nodes = {node.name()}});
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  RowSet rows;
  rows.Reset(4);
  rows.AddIds(std::vector<int64_t>{7, 8, 9, 10});
  rows.Reserve();
  RowRead read{.rows = &rows, .wanted = {0}};
  std::vector<RedisKey> keys;
  for (size_t i = 0; i < 4; ++i) {
    const size_t partition = i / 2;  // Two of them come in one reply with it, or after it.
    keys.push_back({.key = absl::StrCat("{t/", partition, "}", 7 + i),
                    .slot = static_cast<uint16_t>(partition + 1),
                    .read = &read,
                    .row = i});
  }
  const auto start = Clock::now();
  ReadRedis(**cluster, std::move(keys), start + std::chrono::seconds(20));
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(10));
  EXPECT_LE(node.reads(), 8);
  EXPECT_EQ(rows.state(0), RowState::kLate);
  for (size_t i = 1; i < 4; ++i) EXPECT_EQ(rows.state(i), RowState::kPresent) << i;
  EXPECT_THAT(
      std::string(read.status.message()),
      ::testing::ContainsRegex("key \"\\{t/0\\}7\": .*more than the 10(48|52)[0-9]{3} bytes"));
}

TEST(RedisReadTest, NamesWhatIsNoRow) {
  const auto why = [](const std::string& answer) {
    const FakeNode node([&](const std::string&) { return answer; });
    const std::string late = WhyLate(node);
    EXPECT_THAT(late, HasSubstr(node.name()));
    return late;
  };
  EXPECT_THAT(why("*1\r\n:7\r\n"), HasSubstr("key \"{t/0}7\" holds 0 bytes, want a row of 4"));
  EXPECT_THAT(why("*1\r\n*0\r\n"), HasSubstr("holds 0 bytes"));
  EXPECT_THAT(why("*1\r\n$5\r\nabcde\r\n"), HasSubstr("holds 5 bytes"));
  EXPECT_THAT(why("*0\r\n"), HasSubstr("no answer to MGET of 1 keys"));
  for (const char* more : {"*2\r\n$4\r\nabcd\r\n$4\r\nabcd\r\n", "*1\r\n*1\r\n$4\r\nabcd\r\n"}) {
    EXPECT_THAT(why(more), HasSubstr("more elements than were asked for"));
  }
  EXPECT_THAT(why("?1\r\n"), HasSubstr("Protocol error"));
  EXPECT_THAT(why("$4\r\nabcd\r\n"), HasSubstr("no answer to MGET"));
  EXPECT_THAT(why("-WRONGTYPE no string\r\n"), HasSubstr("WRONGTYPE"));
}

// The reply to one key must not become the row of another.
TEST(RedisReadTest, EndsWithANodeThatSaysWhatNobodyAskedFor) {
  const std::string row = "*1\r\n$4\r\nabcd\r\n";
  const FakeNode node([&](const std::string&) { return absl::StrCat("+message\r\n", row); });
  EXPECT_THAT(WhyLate(node, milliseconds(300), 5), HasSubstr("no answer to MGET"));
}

TEST(RedisClusterTest, LearnsOfNodesThoughThoseItKnowsHang) {
  const testing::RedisListener hangs;  // Takes connections, and never answers.
  FakeNode node([](const std::string&) { return std::string("+OK\r\n"); });
  std::string slots = "*40\r\n";
  for (int i = 0; i < 40; ++i) {
    // Names of one address.
    const std::string host = absl::StrCat("0x", std::string(i, '0'), "7f000001");
    absl::StrAppend(&slots, "*3\r\n:", i, "\r\n:", i, "\r\n*2\r\n$", host.size(), "\r\n", host,
                    "\r\n:", hangs.port(), "\r\n");
  }
  node.SetSlots(slots);
  const auto cluster = RedisCluster::Create({.name = "a", .nodes = {node.name()}});
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  EXPECT_EQ((*cluster)->topology()->nodes.size(), 40);
  node.SetSlots(absl::StrCat("*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:7\r\n"));
  const auto start = Clock::now();
  (*cluster)->AskTopology();
  while ((*cluster)->topology()->nodes.size() > 1 &&
         Clock::now() < start + std::chrono::seconds(30)) {
    std::this_thread::sleep_for(milliseconds(20));
  }
  // One after the other they would take 20 s.
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(12));
}

// Redirections may lead to any number of them.
TEST(RedisClusterTest, KeepsNoConnectionToAStranger) {
  const auto ok = [](const std::string&) { return std::string("+OK\r\n"); };
  FakeNode member(ok), stranger(ok);
  const auto cluster = RedisCluster::Create({.name = "a", .nodes = {member.name()}});
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  const auto connections = [&](const FakeNode& node) {
    const int before = node.connections();
    for (int i = 0; i < 3; ++i) {
      const auto reply = (*cluster)->CallNode(node.name(), "*2\r\n$3\r\nGET\r\n$1\r\na\r\n", 1,
                                              Clock::now() + std::chrono::seconds(5));
      EXPECT_TRUE(reply.ok()) << reply.status();
    }
    return node.connections() - before;
  };
  EXPECT_EQ(connections(member), 1);
  EXPECT_EQ(connections(stranger), 3);
}

// The second reply would be taken for that to the next command.
TEST(RedisClusterTest, KeepsNoConnectionWithAReplyTooMany) {
  const FakeNode node([](const std::string&) { return std::string("+A\r\n+B\r\n"); });
  const auto cluster = RedisCluster::Create({.name = "a", .nodes = {node.name()}});
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  for (int i = 1; i <= 3; ++i) {
    const auto reply = (*cluster)->CallNode(node.name(), "*2\r\n$3\r\nGET\r\n$1\r\na\r\n", 1,
                                            Clock::now() + std::chrono::seconds(5));
    ASSERT_TRUE(reply.ok()) << reply.status();
    EXPECT_EQ(TextOf(*reply->front()), "A");
    EXPECT_EQ(node.connections(), i + 1);  // One asked who has which slot.
  }
}

// Versions are loaded again after UNAVAILABLE, and not after DATA_LOSS.
TEST(OpenRedisTest, TellsWhatPassesFromWhatStays) {
  const auto open = [](const std::string& answer) {
    const FakeNode node([&](const std::string&) { return answer; });
    const auto cluster = RedisCluster::Create({.name = "a", .nodes = {node.name()}});
    EXPECT_TRUE(cluster.ok()) << cluster.status();
    absl::Status status = OpenRedis(*cluster, "t").status();
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("cluster \"a\", table \"t\": key \"{t}\""));
    return status.code();
  };
  for (const char* passing : {"LOADING the dataset", "CLUSTERDOWN The cluster is down",
                              "NOPERM this user has no permissions", "BUSY a script"}) {
    EXPECT_EQ(open(absl::StrCat("-", passing, "\r\n")), absl::StatusCode::kUnavailable) << passing;
  }
  EXPECT_EQ(open("-WRONGTYPE no string\r\n"), absl::StatusCode::kDataLoss);
  EXPECT_EQ(open("$4\r\nabcd\r\n"), absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace ulfd::engine
