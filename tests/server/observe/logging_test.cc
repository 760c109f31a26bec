// What becomes of text in log lines.
// SPDX-License-Identifier: Apache-2.0
#include "server/observe/logging.h"

#include <gtest/gtest.h>

namespace ulfd::server {
namespace {

TEST(JsonEscape, KeepsCharactersAndEscapesTheRest) {
  EXPECT_EQ(JsonEscape(""), "");
  EXPECT_EQ(JsonEscape("a \"b\" \\ \n\t\x01\x7f"), R"(a \"b\" \\ \n\t\u0001\u007f)");
  EXPECT_EQ(JsonEscape("\xc3\xa9\xe6\xbc\xa2"), "\xc3\xa9\xe6\xbc\xa2");
  EXPECT_EQ(JsonEscape("a\xff\xc3"), "a??");
  EXPECT_EQ(JsonEscape("\xed\xa0\x80"), "???");  // A surrogate is no character.
}

}  // namespace
}  // namespace ulfd::server
