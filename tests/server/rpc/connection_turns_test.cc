// How many frames a connection may bring.
// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/connection_turns.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace ulfd::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;

constexpr char kPreface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
constexpr int64_t kMost = FrameCount::kMostOwed;

// Frames of so many bytes.
std::string Frames(int64_t count, size_t bytes) {
  const char head[] = {static_cast<char>(bytes >> 16),
                       static_cast<char>(bytes >> 8),
                       static_cast<char>(bytes),
                       0,
                       0,
                       0,
                       0,
                       0,
                       1};
  std::string frames;
  for (int64_t i = 0; i < count; ++i) {
    frames.append(head, sizeof(head)).append(bytes, '\xff');
  }
  return frames;
}

constexpr FrameCount::Turn kEndless{.calls = 1 << 30, .bytes = 1 << 30};

class FrameCountTest : public ::testing::Test {
 protected:
  size_t AddTo(FrameCount& count, absl::string_view bytes, FrameCount::Turn& turn) {
    return count.Add(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size(), now_, turn);
  }
  bool Add(const std::string& bytes, FrameCount::TimePoint::duration later = {}) {
    now_ += later;
    FrameCount::Turn turn = kEndless;
    EXPECT_EQ(AddTo(count_, bytes, turn), bytes.size());
    return !count_.too_many();
  }
  FrameCount count_;
  FrameCount::TimePoint now_{seconds(1)};
};

TEST_F(FrameCountTest, OfNothing) {
  EXPECT_TRUE(Add(kPreface + Frames(kMost, 0)));
  EXPECT_TRUE(count_.of_client());
  EXPECT_FALSE(Add(Frames(1, 0)));
}

TEST_F(FrameCountTest, OfAServerWithoutPreface) {
  EXPECT_TRUE(Add(Frames(kMost, 0)));
  EXPECT_FALSE(count_.of_client());
  EXPECT_FALSE(Add(Frames(1, 0)));
}

TEST_F(FrameCountTest, PaidForByBytes) {
  EXPECT_TRUE(Add(kPreface + Frames(10 * kMost, FrameCount::kPaidBytes)));
  EXPECT_TRUE(Add(Frames(100, 16384)));
  // What was brought before saves nothing.
  EXPECT_FALSE(Add(Frames(kMost + 1, 0)));
}

TEST_F(FrameCountTest, HalfPaidFor) {
  EXPECT_TRUE(Add(Frames(2 * kMost, FrameCount::kPaidBytes / 2)));
  EXPECT_FALSE(Add(Frames(1, 0)));
}

TEST_F(FrameCountTest, PaidForByTime) {
  EXPECT_TRUE(Add(kPreface));
  for (int i = 0; i < 100; ++i) {
    EXPECT_TRUE(Add(Frames(FrameCount::kFreePerSecond / 20, 1), milliseconds(50)));
  }
  EXPECT_TRUE(Add(Frames(kMost, 0), seconds(3600)));
  EXPECT_FALSE(Add(Frames(1, 0)));
}

TEST_F(FrameCountTest, InPiecesOfAnySize) {
  const std::string all = kPreface + Frames(kMost - 1, 3) + Frames(1, 0);
  for (const size_t piece : {1, 2, 7, 9, 12, 4096}) {
    FrameCount count;
    FrameCount::Turn turn = kEndless;
    const auto add = [&](absl::string_view bytes) {
      for (size_t at = 0; at < bytes.size(); at += piece) {
        AddTo(count, bytes.substr(at, piece), turn);
      }
    };
    add(all);
    EXPECT_FALSE(count.too_many()) << "pieces of " << piece;
    add(Frames(3 * (kMost - 1) / 64 + 2, 0));
    EXPECT_TRUE(count.too_many()) << "pieces of " << piece;
  }
}

// The frame of a call's headers: 9 bytes of head, and 3.
std::string Call() { return Frames(1, 3).replace(3, 1, "\1"); }

TEST_F(FrameCountTest, ATurnEndsBeforeTheNextCall) {
  const std::string before = kPreface + Frames(5, 0);
  const std::string all = before + Call() + Frames(2, 7) + Call() + Frames(1, 1) + Call();
  for (const size_t piece : {size_t{1}, size_t{2}, size_t{13}, all.size()}) {
    FrameCount count;
    size_t read = 0;
    std::vector<size_t> ends;  // Of turns.
    while (read < all.size()) {
      FrameCount::Turn turn{.calls = 2};
      size_t taken = 0, offered = 0;
      do {
        const absl::string_view next = absl::string_view(all).substr(read, piece);
        offered = next.size();
        taken = AddTo(count, next, turn);
        read += taken;
      } while (taken == offered && taken > 0);
      ends.push_back(read);
    }
    constexpr size_t kType = 3;  // What comes before the type of a frame is read.
    EXPECT_THAT(ends, ElementsAre(all.size() - Call().size() + kType, all.size())) << piece;
  }
}

TEST_F(FrameCountTest, ATurnHasSoManyBytes) {
  FrameCount::Turn turn{.bytes = 100};
  FrameCount count;
  EXPECT_EQ(AddTo(count, kPreface + Frames(1, 300), turn), 100);
  EXPECT_EQ(AddTo(count, std::string(200, 'x'), turn), 0);
  turn = {.bytes = 100};
  EXPECT_EQ(AddTo(count, std::string(50, 'x'), turn), 50);
  EXPECT_EQ(AddTo(count, std::string(51, 'x'), turn), 50);
}

}  // namespace
}  // namespace ulfd::server
