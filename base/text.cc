// SPDX-License-Identifier: Apache-2.0
#include "base/text.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace ulfd {
namespace {

absl::Status WithText(const absl::Status& status, absl::string_view text) {
  absl::Status other(status.code(), text);
  status.ForEachPayload(
      [&](absl::string_view type, const absl::Cord& payload) { other.SetPayload(type, payload); });
  return other;
}

// Control characters, ends of lines, and what changes the direction of text: a name must not make
// others look like something else.
constexpr std::pair<uint32_t, uint32_t> kControls[] = {
    {0x0, 0x1f}, {0x7f, 0x9f}, {0x61c, 0x61c}, {0x200e, 0x200f}, {0x2028, 0x202e}, {0x2066, 0x2069},
};

// The first character of UTF-8 text, and its bytes.
std::pair<uint32_t, size_t> FirstCharacter(absl::string_view text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  if (lead < 0x80) return {lead, 1};
  const size_t size = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  uint32_t character = lead & (0x7fU >> size);
  for (const char byte : text.substr(1, size - 1)) {
    character = character << 6 | (static_cast<unsigned char>(byte) & 0x3fU);
  }
  return {character, size};
}

// `text` without bytes that are not UTF-8 and controls, but for those of `left`.
std::string Escaped(absl::string_view text, absl::string_view left) {
  const bool utf8 = IsUtf8(text);
  std::string printable;
  printable.reserve(text.size());
  while (!text.empty()) {
    const auto [character, size] =
        utf8 ? FirstCharacter(text) : std::pair(uint32_t{static_cast<unsigned char>(text[0])}, 1UL);
    const absl::string_view bytes = text.substr(0, size);
    const bool control =
        (!utf8 && character >= 0x80) ||
        std::any_of(std::begin(kControls), std::end(kControls), [c = character](const auto& range) {
          return range.first <= c && c <= range.second;
        });
    const bool escape = control && !absl::StrContains(left, bytes);
    absl::StrAppend(&printable, escape ? absl::CHexEscape(bytes) : std::string(bytes));
    text.remove_prefix(size);
  }
  return printable;
}

}  // namespace

absl::Status Annotate(const absl::Status& status, absl::string_view prefix) {
  if (status.ok()) return status;
  return WithText(status, absl::StrCat(prefix, ": ", status.message()));
}

absl::string_view Beginning(absl::string_view text, size_t max_bytes) {
  if (text.size() <= max_bytes) return text;
  size_t end = max_bytes;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  return text.substr(0, end);
}

std::string Printable(absl::string_view text, size_t max_bytes) {
  std::string printable = Escaped(Beginning(text, max_bytes), "");
  if (text.size() > max_bytes) absl::StrAppend(&printable, "... (", text.size(), " bytes)");
  return printable;
}

std::string PrintableLines(absl::string_view text) { return Escaped(text, "\n\t"); }

absl::Status Clip(const absl::Status& status, size_t max_bytes) {
  if (status.ok()) return status;
  return WithText(status, Printable(status.message(), max_bytes));
}

void ClipNotices(std::vector<std::string>& notices) {
  constexpr size_t kMaxNotices = 100;
  const size_t count = notices.size();
  if (count > kMaxNotices) {
    notices.resize(kMaxNotices);
    notices.push_back(absl::StrCat("and ", count - kMaxNotices, " more notices"));
  }
  for (std::string& notice : notices) notice = Printable(notice, kMaxKeptErrorBytes);
}

std::string Quote(absl::string_view text) {
  constexpr size_t kMax = 40;
  const bool cut = text.size() > kMax;
  return absl::StrCat("\"", absl::CHexEscape(text.substr(0, kMax)), cut ? "...\"" : "\"");
}

bool IsUtf8(absl::string_view text) { return Utf8Bytes(text) == text.size(); }

size_t Utf8Bytes(absl::string_view text) {
  // Per lead byte: how many bytes follow and the range of the first of them (RFC 3629, section 4).
  for (size_t i = 0; i < text.size();) {
    const size_t start = i;
    const auto lead = static_cast<unsigned char>(text[i++]);
    if (lead < 0x80) continue;
    if (lead < 0xc2 || lead > 0xf4) return start;
    const size_t more = lead < 0xe0 ? 1 : lead < 0xf0 ? 2 : 3;
    if (text.size() - i < more) return start;
    const auto next = static_cast<unsigned char>(text[i]);
    if ((lead == 0xe0 && next < 0xa0) || (lead == 0xed && next > 0x9f) ||
        (lead == 0xf0 && next < 0x90) || (lead == 0xf4 && next > 0x8f)) {
      return start;
    }
    for (size_t k = 0; k < more; ++k, ++i) {
      if ((static_cast<unsigned char>(text[i]) & 0xc0) != 0x80) return start;
    }
  }
  return text.size();
}

}  // namespace ulfd
