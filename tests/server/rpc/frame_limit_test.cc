// How many frames a connection may bring.
// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/frame_limit.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"

namespace ulfd::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

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

class FrameCountTest : public ::testing::Test {
 protected:
  bool Add(const std::string& bytes, FrameCount::TimePoint::duration later = {}) {
    now_ += later;
    return count_.Add(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size(), now_);
  }
  FrameCount count_;
  FrameCount::TimePoint now_{seconds(1)};
};

TEST_F(FrameCountTest, OfNothing) {
  EXPECT_TRUE(Add(kPreface + Frames(kMost, 0)));
  EXPECT_FALSE(Add(Frames(1, 0)));
}

TEST_F(FrameCountTest, OfAServerWithoutPreface) {
  EXPECT_TRUE(Add(Frames(kMost, 0)));
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
    bool held = true;
    const auto add = [&](const std::string& bytes) {
      for (size_t at = 0; at < bytes.size(); at += piece) {
        held = count.Add(reinterpret_cast<const uint8_t*>(&bytes[at]),
                         std::min(piece, bytes.size() - at), now_);
      }
    };
    add(all);
    EXPECT_TRUE(held) << "pieces of " << piece;
    add(Frames(3 * (kMost - 1) / 64 + 2, 0));
    EXPECT_FALSE(held) << "pieces of " << piece;
  }
}

}  // namespace
}  // namespace ulfd::server
