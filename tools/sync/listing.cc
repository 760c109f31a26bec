// SPDX-License-Identifier: Apache-2.0
#include "tools/sync/listing.h"

#include <optional>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "base/errors.h"
#include "base/percent_encoding.h"
#include "base/status_macros.h"
#include "base/text.h"

namespace ulfd::tools {
namespace {

constexpr size_t kMaxNameBytes = 255;
// Of a link: more than a name takes however it is written.  Each is looked for that far only, so
// that many without an end take no time of the square of their number.
constexpr size_t kMaxLinkBytes = 4096;

std::string Encode(absl::string_view text, bool slashes) {
  std::string out;
  for (const char c : text) {
    const bool plain = absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
                       absl::StrContains("-._~", c) || (c == '/' && !slashes);
    if (plain) {
      out.push_back(c);
    } else {
      absl::StrAppendFormat(&out, "%%%02X", static_cast<unsigned char>(c));
    }
  }
  return out;
}

// &amp; and its kin, of XML and HTML; numbers below 128 only, others stay.
std::string DecodeEntities(absl::string_view text) {
  constexpr std::pair<absl::string_view, char> kNamed[] = {
      {"&amp;", '&'}, {"&lt;", '<'}, {"&gt;", '>'}, {"&quot;", '"'}, {"&apos;", '\''}};
  std::string out;
  while (!text.empty()) {
    bool found = false;
    for (const auto& [name, c] : kNamed) {
      if (!absl::ConsumePrefix(&text, name)) continue;
      out.push_back(c);
      found = true;
      break;
    }
    if (found) continue;
    if (absl::StartsWith(text, "&#")) {
      const size_t end = text.substr(0, 8).find(';');
      int number = 0;
      if (end != absl::string_view::npos && absl::SimpleAtoi(text.substr(2, end - 2), &number) &&
          number > 0 && number < 128) {
        out.push_back(static_cast<char>(number));
        text.remove_prefix(end + 1);
        continue;
      }
    }
    out.push_back(text.front());
    text.remove_prefix(1);
  }
  return out;
}

// The value that follows the name of an attribute: between quotes of either kind, or without any.
std::optional<absl::string_view> ValueBehind(absl::string_view html) {
  html = absl::StripLeadingAsciiWhitespace(html);
  if (!absl::ConsumePrefix(&html, "=")) return std::nullopt;
  html = absl::StripLeadingAsciiWhitespace(html);
  html = html.substr(0, kMaxLinkBytes);
  const bool quoted = absl::StartsWith(html, "\"") || absl::StartsWith(html, "'");
  const size_t end = quoted ? html.find(html[0], 1) : html.find_first_of("> \t\r\n");
  if (end == absl::string_view::npos) return std::nullopt;
  return html.substr(quoted, end - quoted);
}

// A link of an index page.
absl::StatusOr<std::optional<RemoteEntry>> EntryOf(absl::string_view href) {
  href = href.substr(0, href.find('#'));
  // Up, to sort, to an anchor, to another place.
  if (href.empty() || absl::StrContains("/?", href.front()) || absl::StartsWith(href, "../") ||
      href == ".." || href == "." || href == "./" || absl::StrContains(href, ':')) {
    return std::nullopt;
  }
  absl::ConsumePrefix(&href, "./");
  RemoteEntry entry;
  if (absl::ConsumeSuffix(&href, "/")) entry.kind = RemoteEntry::Kind::kDirectory;
  entry.name = DecodePercent(href);
  RETURN_IF_ERROR(CheckName(entry.name));
  return entry;
}

// The text between <TAG> and </TAG>; moves `xml` behind it.
std::optional<absl::string_view> NextElement(absl::string_view& xml, absl::string_view tag) {
  const std::string open = absl::StrCat("<", tag, ">"), close = absl::StrCat("</", tag, ">");
  const size_t begin = xml.find(open);
  if (begin == absl::string_view::npos) return std::nullopt;
  const size_t end = xml.find(close, begin + open.size());
  if (end == absl::string_view::npos) return std::nullopt;
  const absl::string_view found = xml.substr(begin + open.size(), end - begin - open.size());
  xml.remove_prefix(end + close.size());
  return found;
}

std::string Element(absl::string_view xml, absl::string_view tag) {
  return DecodeEntities(NextElement(xml, tag).value_or(""));
}

absl::StatusOr<std::string> NameBehind(absl::string_view key, absl::string_view prefix) {
  if (!absl::ConsumePrefix(&key, prefix)) {
    return InvalidArgument("key ", Quote(key), " does not begin with ", Quote(prefix));
  }
  return std::string(key);
}

}  // namespace

absl::Status CheckName(absl::string_view name) {
  absl::string_view fault;
  if (name.empty()) fault = "is empty";
  if (name == "." || name == "..") fault = "leads out of its directory";
  if (absl::StrContains(name, '/')) fault = "holds a slash";
  if (name.size() > kMaxNameBytes) fault = "has more than 255 bytes";
  if (!IsUtf8(name)) fault = "is not UTF-8";
  for (const char c : name) {
    if (absl::ascii_iscntrl(static_cast<unsigned char>(c))) fault = "holds a control character";
  }
  if (fault.empty()) return absl::OkStatus();
  return InvalidArgument("name ", Quote(name), " ", fault);
}

absl::StatusOr<std::vector<RemoteEntry>> ParseIndexPage(absl::string_view html) {
  std::vector<RemoteEntry> entries;
  std::set<std::pair<std::string, RemoteEntry::Kind>> known;  // Pages link from icons, too.
  constexpr char kHref[] = "href";
  const std::string lower = absl::AsciiStrToLower(html);
  for (size_t at = lower.find(kHref); at != std::string::npos; at = lower.find(kHref, at)) {
    at += sizeof kHref - 1;
    const std::optional<absl::string_view> href = ValueBehind(html.substr(at));
    if (!href.has_value()) continue;
    ASSIGN_OR_RETURN(std::optional<RemoteEntry> entry, EntryOf(DecodeEntities(*href)));
    if (!entry.has_value() || !known.emplace(entry->name, entry->kind).second) continue;
    if (entries.size() == kMaxListed) {
      return OutOfRange("more than ", kMaxListed, " entries");
    }
    entries.push_back(*std::move(entry));
  }
  return entries;
}

absl::StatusOr<ObjectPage> ParseObjectPage(absl::string_view xml, absl::string_view prefix) {
  if (!absl::StrContains(xml, "<ListBucketResult")) {
    return InvalidArgument("no listing of an object store: ", Quote(xml));
  }
  ObjectPage page;
  absl::string_view rest = xml;
  while (const auto content = NextElement(rest, "Contents")) {
    RemoteEntry file{.tag = Element(*content, "ETag")};
    ASSIGN_OR_RETURN(file.name, NameBehind(Element(*content, "Key"), prefix));
    if (file.name.empty()) continue;  // The mark of the directory itself.
    RETURN_IF_ERROR(CheckName(file.name));
    const std::string size = Element(*content, "Size");
    if (!absl::SimpleAtoi(size, &file.bytes) || file.bytes < 0) {
      return InvalidArgument("key ", Quote(file.name), ": size ", Quote(size),
                             ", want a number of bytes");
    }
    page.entries.push_back(std::move(file));
  }
  rest = xml;
  while (const auto common = NextElement(rest, "CommonPrefixes")) {
    RemoteEntry directory{.kind = RemoteEntry::Kind::kDirectory};
    ASSIGN_OR_RETURN(directory.name, NameBehind(Element(*common, "Prefix"), prefix));
    if (!directory.name.empty() && directory.name.back() == '/') directory.name.pop_back();
    RETURN_IF_ERROR(CheckName(directory.name));
    page.entries.push_back(std::move(directory));
  }
  if (Element(xml, "IsTruncated") == "true") {
    page.next = Element(xml, "NextContinuationToken");
    if (page.next.empty()) {
      return FailedPrecondition("the listing goes on, but has no NextContinuationToken");
    }
  }
  return page;
}

std::string EncodePath(absl::string_view path) { return Encode(path, /*slashes=*/false); }
std::string EncodeQuery(absl::string_view text) { return Encode(text, /*slashes=*/true); }

}  // namespace ulfd::tools
