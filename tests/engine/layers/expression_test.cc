// Formulas of expression_layer: what they become in reverse Polish form.
// SPDX-License-Identifier: Apache-2.0
#include "engine/layers/common/expression.h"

#include <string>

#include "gtest/gtest.h"

namespace ulfd::engine {
namespace {

std::string Polish(const std::string& text, int inputs = 3) {
  const auto expression = Expression::Parse(text, inputs);
  return expression.ok() ? expression->ToString() : std::string(expression.status().message());
}

TEST(Expression, OperandsStandBeforeTheirOperator) {
  EXPECT_EQ(Polish("add(@0,mul(@1,@2))"), "@0 @1 @2 mul add");
  EXPECT_EQ(Polish("@0+@1*@2"), "@0 @1 @2 mul add");
  EXPECT_EQ(Polish("(@0+@1)*@2"), "@0 @1 add @2 mul");
  EXPECT_EQ(Polish("@0-@1-@2"), "@0 @1 sub @2 sub");
  EXPECT_EQ(Polish("@0^@1^@2"), "@0 @1 @2 pow pow");
  EXPECT_EQ(Polish("-@0^2"), "@0 2 pow neg");
  EXPECT_EQ(Polish("where(@0>=@1,sigmoid(@2),-1)"), "@0 @1 ge @2 sigmoid -1 where");
}

TEST(Expression, NumbersAreComputedAtOnce) {
  EXPECT_EQ(Polish("@0*(2*3+1)"), "@0 7 mul");
  EXPECT_EQ(Polish("min(2,3)+relu(-1)"), "2");
  EXPECT_EQ(Polish("sqrt(16)^2/@0"), "16 @0 div");
}

TEST(Expression, WhatOccursAgainIsComputedOnce) {
  EXPECT_EQ(Polish("(@0-@1)*(@0-@1)"), "@0 @1 sub =$0 $0 mul");
  EXPECT_EQ(Polish("exp(@0+@1)/(1+exp(@0+@1))+(@0+@1)"),
            "@0 @1 add =$0 exp =$1 1 $1 add div $0 add");
  EXPECT_EQ(Polish("@0*@0"), "@0 @0 mul");
}

TEST(Expression, KnowsHowMuchItNeeds) {
  const auto chain = Expression::Parse("@0+@0+@1+@2+@1", 3);
  ASSERT_TRUE(chain.ok()) << chain.status();
  EXPECT_EQ(chain->stack, 2);
  const auto nested = Expression::Parse("@0+(@0*(@1-(@2/(@1^@0))))", 3);
  ASSERT_TRUE(nested.ok()) << nested.status();
  EXPECT_EQ(nested->stack, 6);
  EXPECT_EQ(nested->stored, 0);
}

// The stack of the parser is bounded, whatever nests; a long text is no deep one.
TEST(Expression, NestingIsBounded) {
  const auto nested = [](int levels) {
    return std::string(levels, '(') + "@0" + std::string(levels, ')');
  };
  EXPECT_EQ(Polish(nested(Expression::kMaxDepth - 1)), "@0");
  EXPECT_EQ(Polish(nested(Expression::kMaxDepth)).substr(0, 38),
            "column 257: nested more than 256 deep\n");
  EXPECT_EQ(Polish(nested(10000)).substr(0, 38), "column 257: nested more than 256 deep\n");
  std::string chain = "@0";
  for (int i = 0; i < 10000; ++i) chain += i % 2 == 0 ? "+@1" : "*@2";
  EXPECT_EQ(Polish(chain).substr(0, 10), "@0 @1 @2 m");
}

TEST(Expression, ErrorsPointAtTheirPlace) {
  EXPECT_EQ(Polish("@0 + @7", 2),
            "column 6: there is no input @7, the layer has @0 to @1\n"
            "  @0 + @7\n"
            "       ^");
  EXPECT_EQ(Polish("add(@0, @1", 2),
            "column 4: \"(\" without its \")\"\n"
            "  add(@0, @1\n"
            "     ^");
}

}  // namespace
}  // namespace ulfd::engine
