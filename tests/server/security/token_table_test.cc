// Tokens: the file, the texts of its errors, and what they must not hold.
// SPDX-License-Identifier: Apache-2.0
#include "server/security/token_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace ulfd::server {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string Error(const std::string& text) {
  return std::string(TokenTable::Parse(text, "tokens").status().message());
}

TEST(TokenTable, FindsNames) {
  const auto table = TokenTable::Parse(
      "# clients\n\nshop  0123456789abcdef\n  lab\tfedcba9876543210  \r\n"
      "shop another-token-of-the-shop\n"
      // printf '%s' digest-of-this-token | sha256sum
      "hidden "
      "sha256:0fb34ee0d23ec34a7b2649c7d9f5edb4241654256969a6c54369d30380b8ef4a\n",
      "tokens");
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ(table->size(), 4u);
  ASSERT_NE(table->Find("0123456789abcdef"), nullptr);
  EXPECT_EQ(*table->Find("0123456789abcdef"), "shop");
  EXPECT_EQ(*table->Find("another-token-of-the-shop"), "shop");
  EXPECT_EQ(*table->Find("fedcba9876543210"), "lab");
  for (const char* wrong :
       {"", "0123456789abcde", "0123456789abcdef ", "0123456789ABCDEF", "shop",
        "sha256:0fb34ee0d23ec34a7b2649c7d9f5edb4241654256969a6c54369d30380b8ef4a"}) {
    EXPECT_EQ(table->Find(wrong), nullptr) << wrong;
  }
}

TEST(TokenTable, KnowsTheDigestOfAToken) {
  // SHA-256 of "abcdefghijklmnop".
  const auto table = TokenTable::Parse(
      "a sha256:f39dac6cbaba535e2c207cd0cd8f154974223c848f727f98b3564cea569b41cf", "tokens");
  ASSERT_TRUE(table.ok()) << table.status();
  ASSERT_NE(table->Find("abcdefghijklmnop"), nullptr);
  EXPECT_EQ(*table->Find("abcdefghijklmnop"), "a");
}

TEST(TokenTable, ErrorsNameTheLine) {
  EXPECT_EQ(Error(""), "tokens: holds no token");
  EXPECT_EQ(Error("# nothing\n"), "tokens: holds no token");
  EXPECT_EQ(Error("\nshop\n"), "tokens:2: 1 words, want NAME TOKEN");
  EXPECT_EQ(Error("shop one two"), "tokens:1: 3 words, want NAME TOKEN");
  EXPECT_EQ(Error("shop sixteen-letters."), "");
  EXPECT_EQ(Error("shop fifteen-letters"), "tokens:1: a token of 15 characters, want at least 16");
  EXPECT_EQ(Error("* 0123456789abcdef"), "tokens:1: \"*\" is no name of a client");
  EXPECT_EQ(Error("shop 0123456789abcd\xC3\xA4"), "tokens:1: characters beyond ASCII");
  EXPECT_EQ(Error("a sha256:12"), "tokens:1: want 64 hexadecimal digits after \"sha256:\"");
  EXPECT_EQ(Error("a 0123456789abcdef\nb 0123456789abcdef\n"),
            "tokens:2: the token of \"b\" is that of \"a\" as well");
}

TEST(TokenTable, ErrorsHoldNoToken) {
  for (const char* text : {"shop s3cret-s3cret-s3cret more", "s3cret-s3cret-s3cret", "a s3cret",
                           "a s3cret-s3cret-s3cret\nb s3cret-s3cret-s3cret", "a sha256:s3cret"}) {
    EXPECT_THAT(Error(text), Not(HasSubstr("s3cret"))) << text;
  }
}

}  // namespace
}  // namespace ulfd::server
