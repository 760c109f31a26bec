// Text for messages: prefixes, quotes, what is cut and escaped.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_BASE_TEXT_H_
#define ULFD_BASE_TEXT_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace ulfd {

// `status` with "PREFIX: " before its text, payloads kept; OK stays OK.
absl::Status Annotate(const absl::Status& status, absl::string_view prefix);

// The first bytes of UTF-8 text, at most so many, and no part of a character.
absl::string_view Beginning(absl::string_view text, size_t max_bytes);

// `text` for messages, logs and replies: bytes that are not UTF-8 and control characters, line ends
// too, are escaped, and what is longer than about `max_bytes` is cut, and says how long it was.
std::string Printable(absl::string_view text, size_t max_bytes);
// The same for people to read at once: whole, and with its line ends and tabs.
std::string PrintableLines(absl::string_view text);
// `status` with its text made so, payloads kept.
absl::Status Clip(const absl::Status& status, size_t max_bytes);

// What a hostile model or caller may make others keep, log and send of an error or a notice.
inline constexpr size_t kMaxKeptErrorBytes = 4096;
// Each notice made printable and cut to that; of more than 100, how many were left out.
void ClipNotices(std::vector<std::string>& notices);

// At most 40 bytes of `text`, with anything unprintable escaped, in quotes: for quoting a file's
// content in a message.
std::string Quote(absl::string_view text);

// Whether `text` is valid UTF-8.  Names from files end up in messages and replies, which must be.
bool IsUtf8(absl::string_view text);
// How many bytes of it are, before the first character that is not.
size_t Utf8Bytes(absl::string_view text);

}  // namespace ulfd

#endif  // ULFD_BASE_TEXT_H_
