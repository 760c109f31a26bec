// traceparent, sampling and the bounded queue of spans.
// SPDX-License-Identifier: Apache-2.0
#include "server/observe/tracer.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>

namespace ulfd::server {
namespace {

constexpr char kTrace[] = "0af7651916cd43dd8448eb211c80319c";
constexpr char kParent[] = "b7ad6b7169203331";

std::string Text(const std::string& version, const std::string& trace, const std::string& parent,
                 const std::string& flags) {
  return version + "-" + trace + "-" + parent + "-" + flags;
}

TEST(Traceparent, IsRead) {
  const auto context = ParseTraceparent(Text("00", kTrace, kParent, "01"));
  ASSERT_TRUE(context.has_value());
  EXPECT_EQ(TraceIdText(context->trace_id), kTrace);
  EXPECT_EQ(context->parent_id, (SpanId{0xb7, 0xad, 0x6b, 0x71, 0x69, 0x20, 0x33, 0x31}));
  EXPECT_TRUE(context->sampled);
  EXPECT_FALSE(ParseTraceparent(Text("00", kTrace, kParent, "00"))->sampled);
  EXPECT_TRUE(ParseTraceparent(Text("00", kTrace, kParent, "ff"))->sampled);
  // A version to come, which may say more.
  EXPECT_TRUE(ParseTraceparent(Text("cc", kTrace, kParent, "01-what-else")).has_value());
}

TEST(Traceparent, IsIgnoredWhereItIsNone) {
  for (const std::string& text :
       {std::string(), std::string("00"), Text("ff", kTrace, kParent, "01"),
        Text("00", kTrace, kParent, "01-more"), Text("00", kTrace, kParent, "1"),
        Text("0x", kTrace, kParent, "01"), Text("00", std::string(32, '0'), kParent, "01"),
        Text("00", kTrace, std::string(16, '0'), "01"),
        Text("00", std::string(32, 'F'), kParent, "01"),
        Text("00", std::string(32, 'g'), kParent, "01"), Text("00", kTrace, kParent, "0g"),
        Text("cc", kTrace, kParent, "01x"), std::string(55, '-')}) {
    EXPECT_FALSE(ParseTraceparent(text).has_value()) << text;
  }
}

TEST(TracerTest, TheCallerDecidesAndElseTheShare) {
  const Tracer none({.share = 0}), all({.share = 1}), half({.share = 0.5});
  EXPECT_TRUE(none.ContextOf(Text("00", kTrace, kParent, "01")).sampled);
  EXPECT_FALSE(all.ContextOf(Text("00", kTrace, kParent, "00")).sampled);
  EXPECT_FALSE(none.ContextOf("nonsense").sampled);
  int sampled = 0;
  for (int i = 0; i < 10000; ++i) {
    const TraceContext context = all.ContextOf("");
    ASSERT_TRUE(context.sampled);
    ASSERT_NE(context.trace_id, TraceId{});
    ASSERT_EQ(context.parent_id, SpanId{});
    sampled += half.ContextOf("").sampled ? 1 : 0;
  }
  // Five standard deviations.
  EXPECT_NEAR(sampled, 5000, 250);
}

TEST(TracerTest, WhatFindsNoPlaceIsCounted) {
  Tracer tracer({.share = 1, .max_queued_spans = 5});
  const auto now = std::chrono::steady_clock::now();
  tracer.Add(std::vector<Span>(3));
  tracer.Add(std::vector<Span>(3));
  EXPECT_EQ(tracer.dropped(), 3);
  tracer.Add(std::vector<Span>(2));
  EXPECT_EQ(tracer.Take(now).size(), 5u);
  EXPECT_EQ(tracer.Take(now).size(), 0u);
  tracer.Add(std::vector<Span>(3));
  tracer.Stop();
  EXPECT_EQ(tracer.Take(now + std::chrono::hours(1)).size(), 3u);
  EXPECT_TRUE(tracer.stopped());
}

TEST(TracerTest, BatchesAreBounded) {
  Tracer tracer({.share = 1, .max_queued_spans = 10000});
  tracer.Add(std::vector<Span>(Tracer::kBatch + 1));
  const auto later = std::chrono::steady_clock::now() + std::chrono::hours(1);
  EXPECT_EQ(tracer.Take(later).size(), Tracer::kBatch);
  tracer.Stop();
  EXPECT_EQ(tracer.Take(later).size(), 1u);
}

}  // namespace
}  // namespace ulfd::server
