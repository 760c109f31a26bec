// What can be said of Redis without one; the rest is tests/e2e/test_redis.py.
// SPDX-License-Identifier: Apache-2.0
#include "engine/stores/redis_cluster.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/stores/redis_connection.h"
#include "engine/stores/redis_names.h"
#include "engine/stores/redis_store.h"
#include "engine/stores/stored_table.h"
#include "tests/testing/redis_listener.h"

// Where the names moving.test and two.test are: a resolver of the test's own stands before the
// system's.
static std::atomic<const char*> moving_test = "127.0.0.1";
static constexpr const char* kTwoTest[] = {"127.0.0.2", "127.0.0.1"};
extern "C" int getaddrinfo(const char* name, const char* service, const addrinfo* hints,
                           addrinfo** found) {
  static const auto resolve =
      reinterpret_cast<decltype(&getaddrinfo)>(dlsym(RTLD_NEXT, "getaddrinfo"));
  const bool asks = (hints->ai_flags & AI_NUMERICHOST) == 0;
  if (asks && std::string(name) == "two.test") {
    const int error = resolve(kTwoTest[0], service, hints, found);
    return error != 0 ? error : resolve(kTwoTest[1], service, hints, &(*found)->ai_next);
  }
  return resolve(asks && std::string(name) == "moving.test" ? moving_test.load() : name, service,
                 hints, found);
}

namespace ulfd::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

RedisReply Parse(const std::string& bytes) {
  redisReader* const reader = redisReaderCreate();
  redisReaderFeed(reader, bytes.data(), bytes.size());
  void* reply = nullptr;
  EXPECT_EQ(redisReaderGetReply(reader, &reply), REDIS_OK);
  redisReaderFree(reader);
  return RedisReply(static_cast<redisReply*>(reply));
}

std::string Node(const std::string& host, int port) {
  return "*4\r\n" +
         (host.empty() ? "$-1\r\n" : "$" + std::to_string(host.size()) + "\r\n" + host + "\r\n") +
         ":" + std::to_string(port) + "\r\n$1\r\na\r\n*0\r\n";
}

TEST(RedisSlotTest, IsThatOfThePublishedExamples) {
  EXPECT_EQ(RedisSlotOf("123456789"), 0x31c3);  // The check value of CRC-16/XMODEM.
  EXPECT_EQ(RedisSlotOf("foo"), 12182);
  EXPECT_EQ(RedisSlotOf(""), 0);
}

TEST(RedisCommandTest, IsAnArrayOfStrings) {
  std::string bytes;
  AppendCommand({"GET", absl::string_view("a\r\0", 3)}, bytes);
  EXPECT_EQ(bytes, std::string("*2\r\n$3\r\nGET\r\n$3\r\na\r\0\r\n", 22));
}

TEST(RedisTopologyTest, IsThatOfTheReply) {
  const auto topology = ParseSlots(*Parse("*2\r\n*4\r\n:0\r\n:5\r\n" + Node("10.0.0.1", 7) +
                                          Node("::1", 8) + "*3\r\n:7\r\n:16383\r\n" + Node("", 9)),
                                   "10.0.0.9:6379");
  ASSERT_TRUE(topology.ok()) << topology.status();
  ASSERT_EQ(topology->shards.size(), 2u);
  EXPECT_THAT(topology->shards[0].nodes, ElementsAre("10.0.0.1:7", "[::1]:8"));
  EXPECT_THAT(topology->shards[1].nodes, ElementsAre("10.0.0.9:9"));
  EXPECT_EQ(topology->shard_of[5], 0);
  EXPECT_EQ(topology->shard_of[6], -1);
  EXPECT_EQ(topology->shard_of[16383], 1);
}

TEST(RedisTopologyTest, RefusesWhatIsNone) {
  for (const char* bytes :
       {"+OK\r\n", "*1\r\n:1\r\n", "*1\r\n*2\r\n:0\r\n:1\r\n",
        "*1\r\n*3\r\n:0\r\n:16384\r\n*2\r\n$1\r\na\r\n:1\r\n",
        "*1\r\n*3\r\n:5\r\n:4\r\n*2\r\n$1\r\na\r\n:1\r\n",
        "*1\r\n*3\r\n:0\r\n:1\r\n*1\r\n$1\r\na\r\n", "*0\r\n", "-ERR This instance\r\n",
        // A slot in two ranges, hosts and ports that are none.
        "*2\r\n*3\r\n:0\r\n:5\r\n*2\r\n$1\r\na\r\n:1\r\n*3\r\n:5\r\n:5\r\n*2\r\n$1\r\na\r\n:1\r\n",
        "*1\r\n*3\r\n:0\r\n:1\r\n*2\r\n$1\r\n\xff\r\n:1\r\n",
        "*1\r\n*3\r\n:0\r\n:1\r\n*2\r\n$1\r\n \r\n:1\r\n",
        "*1\r\n*3\r\n:0\r\n:1\r\n*2\r\n$1\r\na\r\n:65536\r\n"}) {
    const auto topology = ParseSlots(*Parse(bytes), "n:1");
    ASSERT_FALSE(topology.ok()) << bytes;
    EXPECT_THAT(std::string(topology.status().message()), HasSubstr("Redis node n:1: ")) << bytes;
  }
}

TEST(RedisTopologyTest, HasAThousandNodesAtMost) {
  const auto of = [](int nodes) {
    std::string bytes = absl::StrCat("*", nodes, "\r\n");
    for (int i = 0; i < nodes; ++i) {
      absl::StrAppend(&bytes, "*3\r\n:", i, "\r\n:", i, "\r\n", Node("10.0.0.1", i + 1));
    }
    return ParseSlots(*Parse(bytes), "n:1").status();
  };
  EXPECT_TRUE(of(1000).ok());
  EXPECT_EQ(of(1001).message(),
            "Redis node n:1: more than 1000 nodes, it says, are in the cluster");
}

TEST(RedisRedirectionTest, IsThatOfTheReply) {
  const auto to = [](const std::string& text) -> std::string {
    const auto found = RedirectionOf(*Parse("-" + text + "\r\n"), "10.0.0.9:6379");
    return found.has_value() ? absl::StrCat(found->ask ? "ask " : "", found->node) : "none";
  };
  EXPECT_EQ(to("MOVED 3999 10.0.0.1:7"), "10.0.0.1:7");
  EXPECT_EQ(to("ASK 3999 ::1:7"), "ask [::1]:7");
  EXPECT_EQ(to("MOVED 3999 :7"), "10.0.0.9:7");  // Of a node that does not know its address.
  for (const char* text : {"MOVED 3999", "MOVED 3999 a:7 b", "MOVED 3999 a", "MOVED 3999 a:x",
                           "MOVED 3999 a:-1", "MOVED 3999 \xff:7", "moved 3999 a:7", "ERR 1 a:7"}) {
    EXPECT_EQ(to(text), "none") << text;
  }
  EXPECT_FALSE(RedirectionOf(*Parse("+MOVED 3999 10.0.0.1:7\r\n"), "a:1").has_value());
}

TEST(RedisClustersTest, NamesWhatIsNotThere) {
  const RedisClusters clusters(std::vector<RedisOptions>{{.name = "a", .nodes = {"127.0.0.1:1"}}});
  EXPECT_THAT(std::string(clusters.Get("b").status().message()), HasSubstr("cluster \"b\""));
  EXPECT_THAT(std::string(clusters.Get("a").status().message()),
              HasSubstr("cluster \"a\": Redis node 127.0.0.1:1: "));
  const RedisClusters bad(
      std::vector<RedisOptions>{{.name = "a", .nodes = {"127.0.0.1:1"}, .ca_file = "/none.crt"}});
  EXPECT_THAT(std::string(bad.Get("a").status().message()), HasSubstr("/none.crt: "));
}

TEST(RedisNamesTest, AsksForNamesOnlyWhenTold) {
  RedisNames names;
  EXPECT_EQ(names.Find("127.0.0.1:7")->address.ss_family, AF_INET);
  EXPECT_EQ(names.Find("[::1]:7")->address.ss_family, AF_INET6);
  EXPECT_EQ(std::string(names.Find("localhost:7").status().message()),
            "Redis node localhost:7: the address of that name is not known yet");
  ASSERT_TRUE(names.Resolve("localhost:7").ok());
  EXPECT_TRUE(names.Find("localhost:7").ok());
  EXPECT_FALSE(names.Find("localhost:8").ok());
}

TEST(RedisNamesTest, TakesTheAddressWhereSomebodyListens) {
  RedisNames names;
  const auto address_of = [&names](int port) {
    const std::string node = absl::StrCat("two.test:", port);
    EXPECT_TRUE(names.Resolve(node).ok());
    const absl::StatusOr<RedisAddress> address = names.Find(node);
    return inet_ntoa(reinterpret_cast<const sockaddr_in&>(address->address).sin_addr);
  };
  const testing::RedisListener second;
  EXPECT_STREQ(address_of(second.port()), kTwoTest[1]);
  EXPECT_STREQ(address_of(1), kTwoTest[0]);  // Nobody listens at either.
}

TEST(RedisNamesTest, ForgetsNamesThatNoNodeHas) {
  RedisNames names;
  for (const char* node : {"localhost:1", "localhost:2"}) ASSERT_TRUE(names.Resolve(node).ok());
  names.KeepOnly({"localhost:2", "localhost:3"});
  EXPECT_FALSE(names.Find("localhost:1").ok());
  EXPECT_TRUE(names.Find("localhost:2").ok());
}

// A node on loopback that talks to one connection.
class FakeNode {
 public:
  explicit FakeNode(std::function<void(int fd)> talk) {
    thread_ = std::thread([this, talk = std::move(talk)] {
      const int fd = accept(listener_.fd(), nullptr, nullptr);
      talk(fd);
      close(fd);
    });
  }
  ~FakeNode() { thread_.join(); }
  std::string name() const { return listener_.name(); }
  int port() const { return listener_.port(); }

 private:
  const testing::RedisListener listener_;
  std::thread thread_;
};

void Send(int fd, const std::string& bytes) {
  EXPECT_EQ(send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
}

// What becomes of a connection to a node that talks so.
absl::Status StatusAfter(std::function<void(int fd)> talk) {
  const FakeNode node(std::move(talk));
  const auto security = RedisSecurity::Create({});
  EXPECT_TRUE(security.ok()) << security.status();
  auto connection =
      RedisConnection::Start(node.name(), *RedisNames().Find(node.name()), **security);
  EXPECT_TRUE(connection.ok()) << connection.status();
  std::string command;
  AppendCommand({"GET", "a"}, command);
  (*connection)->Send(command, {.replies = 1, .bytes = 100000, .elements = 5});
  absl::Status status;
  while (status.ok()) {
    pollfd poll_fd = {.fd = (*connection)->fd(), .events = (*connection)->events(), .revents = 0};
    poll(&poll_fd, 1, -1);
    status = (*connection)->Advance();
    if (status.ok()) status = (*connection)->Next().status();
  }
  connection->reset();
  return status;
}

TEST(RedisConnectionTest, EndsWithANodeThatSendsMoreThanWasAskedFor) {
  const absl::Status status = StatusAfter([](int fd) {
    std::string bytes = "+OK\r\n$1000000000\r\n";
    while (send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL) > 0) bytes.assign(1 << 16, 'x');
  });
  EXPECT_THAT(std::string(status.message()), HasSubstr("more than the 104096 bytes"));
}

TEST(RedisConnectionTest, EndsWithANodeThatSaysMoreElementsThanItMaySend) {
  // hiredis would reserve 16 GB.
  for (const char* bytes : {"+OK\r\n*2147483647\r\n", "+OK\r\n*1\r\n*40000\r\n",
                            "+OK\r\n*3\r\n:1\r\n*2\r\n:1\r\n:2\r\n*1\r\n"}) {
    const absl::Status status = StatusAfter([bytes](int fd) {
      Send(fd, bytes);
      char end = 0;
      while (recv(fd, &end, 1, 0) > 0) continue;
    });
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("no reply of Redis: more elements than were asked for"));
  }
}

// Answers READONLY and CLUSTER SLOTS: this node has them all.
void AnswerSlots(int fd) {
  std::string asked;
  char bytes[64];
  while (asked.find("SLOTS") == std::string::npos) {
    const ssize_t got = recv(fd, bytes, sizeof bytes, 0);
    if (got <= 0) return;
    asked.append(bytes, static_cast<size_t>(got));
  }
  sockaddr_in self = {};
  socklen_t size = sizeof self;
  getsockname(fd, reinterpret_cast<sockaddr*>(&self), &size);
  Send(fd, "+OK\r\n*1\r\n*3\r\n:0\r\n:16383\r\n" + Node("", ntohs(self.sin_port)));
  while (recv(fd, bytes, sizeof bytes, 0) > 0) {
  }
}

// Connects to a node while the system refuses threads.
absl::Status ConnectWithoutThreads() {
  const FakeNode node(&AnswerSlots);
  const RedisClusters clusters(std::vector<RedisOptions>{{.name = "a", .nodes = {node.name()}}});
  // No address space has room for such a stack.
  pthread_attr_t before, huge;
  EXPECT_EQ(pthread_getattr_default_np(&before), 0);
  EXPECT_EQ(pthread_attr_init(&huge), 0);
  EXPECT_EQ(pthread_attr_setstacksize(&huge, size_t{1} << 46), 0);
  EXPECT_EQ(pthread_setattr_default_np(&huge), 0);
  const absl::Status status = clusters.Get("a").status();
  EXPECT_EQ(pthread_setattr_default_np(&before), 0);
  return status;
}

TEST(RedisClustersTest, SaysSoWhereTheSystemRefusesAThread) {
  absl::Status status;
  do {
    status = ConnectWithoutThreads();
  } while (absl::StrContains(status.message(), "no answer in time"));  // A busy machine.
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("Redis cluster \"a\": no thread for it: "));
}

// A name is asked for again where nobody answers any more, the only node's, too.
TEST(RedisClustersTest, FollowsANameToAnotherAddress) {
  std::shared_ptr<RedisCluster> cluster;
  int port = 0;
  {
    const FakeNode node([](int fd) { AnswerSlots(fd); });
    port = node.port();
    const auto made =
        RedisCluster::Create({.name = "a", .nodes = {absl::StrCat("moving.test:", node.port())}});
    ASSERT_TRUE(made.ok()) << made.status();
    cluster = *made;
    ASSERT_TRUE(cluster->Take(absl::StrCat("moving.test:", node.port())).ok());  // And closed.
  }
  const testing::RedisListener there(INADDR_LOOPBACK + 1, port);
  moving_test = "127.0.0.2";
  pollfd arrival = {.fd = there.fd(), .events = POLLIN, .revents = 0};
  for (int i = 0; i < 400 && poll(&arrival, 1, 50) == 0; ++i) cluster->AskTopology();
  EXPECT_EQ(arrival.revents, POLLIN) << "nobody came within 20 s";
}

TEST(StoredTableTest, RefusesWhatCannotBe) {
  ulfd::store::v1::StoredTable good;
  good.set_version(1);
  good.set_rows(3);
  good.set_dim(2);
  good.set_format("fp16");
  good.set_mean_row("abcd");
  EXPECT_TRUE(ParseStoredTable(good.SerializeAsString()).ok());
  const auto check = [&](void (*change)(ulfd::store::v1::StoredTable&), absl::string_view text) {
    auto bad = good;
    change(bad);
    EXPECT_THAT(std::string(ParseStoredTable(bad.SerializeAsString()).status().message()),
                HasSubstr(std::string(text)));
  };
  check([](auto& t) { t.set_version(2); }, "version 2, want 1");
  check([](auto& t) { t.set_version(0); }, "damaged");
  check([](auto& t) { t.set_format("fp64"); }, "rows of format \"fp64\"");
  check([](auto& t) { t.set_dim(0); }, "rows of 0 values");
  check([](auto& t) { t.set_dim(int64_t{1} << 40); }, "values, want 1 to 2^24");
  check([](auto& t) { t.set_rows(0); }, "0 rows");
  check([](auto& t) { t.set_mean_row("abc"); }, "a mean row of 3 bytes, want 4");
  EXPECT_FALSE(ParseStoredTable("garbage").ok());
}

}  // namespace
}  // namespace ulfd::engine
