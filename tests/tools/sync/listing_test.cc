// SPDX-License-Identifier: Apache-2.0
#include "tools/sync/listing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace ulfd::tools {
namespace {

using Kind = RemoteEntry::Kind;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<std::string> Names(const std::vector<RemoteEntry>& entries) {
  std::vector<std::string> names;
  for (const RemoteEntry& entry : entries) {
    names.push_back(absl::StrCat(entry.name, entry.kind == Kind::kDirectory ? "/" : ""));
  }
  return names;
}

std::string Link(absl::string_view href) { return absl::StrCat("<a href=\"", href, "\">x</a>\n"); }

std::string Object(absl::string_view key, absl::string_view size = "5") {
  return absl::StrCat("<Contents><Key>", key, "</Key><ETag>&quot;ab&quot;</ETag><Size>", size,
                      "</Size></Contents>");
}

std::string Listing(absl::string_view inside) {
  return absl::StrCat("<?xml version=\"1.0\"?><ListBucketResult xmlns=\"x\">", inside,
                      "</ListBucketResult>");
}

TEST(CheckNameTest, OneComponentOfAPath) {
  for (const absl::string_view good : {"a", "...", ".x", "a b", "\xC3\xA4", "a..b", "%2e%2e"}) {
    EXPECT_TRUE(CheckName(good).ok()) << good;
  }
  const std::string zero("a\0b", 3);
  for (const absl::string_view bad : {"", ".", "..", "a/b", "/", "a\nb", "\xFF"}) {
    EXPECT_FALSE(CheckName(bad).ok()) << bad;
  }
  EXPECT_FALSE(CheckName(zero).ok());
  EXPECT_TRUE(CheckName(std::string(255, 'x')).ok());
  EXPECT_FALSE(CheckName(std::string(256, 'x')).ok());
}

TEST(IndexPageTest, TakesWhatIsInTheDirectory) {
  const auto found = ParseIndexPage(
      Link("../") + Link("?C=N;O=D") + Link("/icons/") + Link("https://elsewhere/x") +
      Link("#top") + Link("1/") + Link("weights.pb") + Link("./graph%20ulf.txt") + Link("a&amp;b"));
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_THAT(Names(*found), ElementsAre("1/", "weights.pb", "graph ulf.txt", "a&b"));
}

TEST(IndexPageTest, TakesLinksHoweverTheyAreWritten) {
  const auto found = ParseIndexPage(
      "<A HREF='1/'><img></A> <a href=\"1/\">1/</a> <a class=x href = \"a%20b\" >x</a>"
      "<a href=c>c</a><a href=d\ntitle=d>d</a><a href=\"e#top\">e</a><a href>f</a><a href='cut");
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_THAT(Names(*found), ElementsAre("1/", "a b", "c", "d", "e"));
}

TEST(IndexPageTest, RefusesNamesThatLeadOut) {
  for (const absl::string_view href :
       {"%2e%2e/", "%2e%2e%2fetc", "a%2fb", "a/../../b", "a%00b", "a//"}) {
    const auto found = ParseIndexPage(Link("good") + Link(href));
    EXPECT_EQ(found.status().code(), absl::StatusCode::kInvalidArgument) << href;
  }
  EXPECT_THAT(Names(*ParseIndexPage("<a href=\"cut")), IsEmpty());
  EXPECT_THAT(Names(*ParseIndexPage("")), IsEmpty());
}

TEST(IndexPageTest, Ends) {
  std::string page;
  // As many as a page holds, each without an end: hours, if all were sought to the end of the page.
  for (const absl::string_view cut : {"href=", "href=\"x'", "href='x\" "}) {
    page.clear();
    while (page.size() < (16 << 20)) absl::StrAppend(&page, cut);
    ParseIndexPage(page).IgnoreError();
  }
  page.clear();
  for (size_t i = 0; i <= kMaxListed; ++i) absl::StrAppend(&page, "href=\"", i, "\"");
  EXPECT_EQ(ParseIndexPage(page).status().code(), absl::StatusCode::kOutOfRange);
}

TEST(ObjectPageTest, TakesFilesAndDirectories) {
  const auto page = ParseObjectPage(
      Listing(
          Object("p/") + Object("p/a&amp;b&#38;&lt;", "7") +
          "<CommonPrefixes><Prefix>p/1/</Prefix></CommonPrefixes><Prefix>p/</Prefix>"
          "<IsTruncated>true</IsTruncated><NextContinuationToken>t&amp;1</NextContinuationToken>"),
      "p/");
  ASSERT_TRUE(page.ok()) << page.status();
  EXPECT_THAT(Names(page->entries), ElementsAre("a&b&<", "1/"));
  EXPECT_EQ(page->entries[0].bytes, 7);
  EXPECT_EQ(page->entries[0].tag, "\"ab\"");
  EXPECT_EQ(page->next, "t&1");
}

TEST(ObjectPageTest, RefusesWhatIsNoListing) {
  const std::pair<std::string, absl::string_view> kBad[] = {
      {"<html>", "no listing"},
      {Listing(Object("other/a")), "does not begin with"},
      {Listing(Object("p/../../etc/passwd")), "slash"},
      {Listing(Object("p/..")), "leads out"},
      {Listing(Object("p/a", "-1")), "size"},
      {Listing(Object("p/a", "99999999999999999999")), "size"},
      {Listing(Object("p/a", "")), "size"},
      {Listing("<CommonPrefixes><Prefix>p/../</Prefix></CommonPrefixes>"), "leads out"},
      {Listing("<CommonPrefixes><Prefix>p//</Prefix></CommonPrefixes>"), "is empty"},
      {Listing("<IsTruncated>true</IsTruncated>"), "NextContinuationToken"},
  };
  for (const auto& [xml, why] : kBad) {
    const auto page = ParseObjectPage(xml, "p/");
    ASSERT_FALSE(page.ok()) << xml;
    EXPECT_THAT(page.status().message(), HasSubstr(std::string(why))) << xml;
  }
}

TEST(EncodeTest, LeavesWhatUrlsMayHave) {
  EXPECT_EQ(EncodePath("a-b_c.d~/e f%/\xC3\xA4"), "a-b_c.d~/e%20f%25/%C3%A4");
  EXPECT_EQ(EncodeQuery("a/b=c&"), "a%2Fb%3Dc%26");
}

}  // namespace
}  // namespace ulfd::tools
