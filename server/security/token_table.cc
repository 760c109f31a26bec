// SPDX-License-Identifier: Apache-2.0
#include "server/security/token_table.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/errors.h"

namespace ulfd::server {
namespace {

bool IsPrintable(absl::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return absl::ascii_isgraph(c); });
}

bool IsHex(absl::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return absl::ascii_isxdigit(c); });
}

}  // namespace

TokenTable::Digest TokenTable::DigestOf(absl::string_view token) {
  Digest digest;
  SHA256(reinterpret_cast<const unsigned char*>(token.data()), token.size(), digest.data());
  return digest;
}

absl::StatusOr<TokenTable> TokenTable::Parse(absl::string_view text, absl::string_view source) {
  TokenTable table;
  int number = 0;
  const auto bad = [&](absl::string_view what) {
    return InvalidArgument(source, ":", number, ": ", what);
  };
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    line = absl::StripAsciiWhitespace(line);
    if (line.empty() || line[0] == '#') continue;
    const std::vector<absl::string_view> words =
        absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
    // A word is not shown: it may be the token.
    if (words.size() != 2) return bad(absl::StrCat(words.size(), " words, want NAME TOKEN"));
    Entry entry{.name = std::string(words[0]), .digest = {}};
    absl::string_view token = words[1];
    if (entry.name == "*") return bad("\"*\" is no name of a client");
    if (!IsPrintable(words[0]) || !IsPrintable(token)) return bad("characters beyond ASCII");
    if (absl::ConsumePrefix(&token, "sha256:")) {
      if (token.size() != 2 * entry.digest.size() || !IsHex(token)) {
        return bad("want 64 hexadecimal digits after \"sha256:\"");
      }
      const std::string bytes = absl::HexStringToBytes(token);
      std::copy(bytes.begin(), bytes.end(), entry.digest.begin());
    } else if (token.size() < kMinTokenBytes) {
      return bad(
          absl::StrCat("a token of ", token.size(), " characters, want at least ", kMinTokenBytes));
    } else {
      entry.digest = DigestOf(token);
    }
    for (const Entry& other : table.entries_) {
      if (other.digest == entry.digest && other.name != entry.name) {
        return bad(absl::StrCat("the token of \"", entry.name, "\" is that of \"", other.name,
                                "\" as well"));
      }
    }
    table.entries_.push_back(std::move(entry));
  }
  if (table.entries_.empty()) {
    return InvalidArgument(source, ": holds no token");
  }
  return table;
}

bool TokenTable::Knows(absl::string_view client) const {
  return std::any_of(entries_.begin(), entries_.end(),
                     [client](const Entry& entry) { return entry.name == client; });
}

const std::string* TokenTable::Find(absl::string_view token) const {
  // Digests of what a stranger sends are compared: their timing would not help to guess a token
  // even if it differed.  It does not: every entry is looked at, in constant time.
  const Digest digest = DigestOf(token);
  const std::string* found = nullptr;
  for (const Entry& entry : entries_) {
    if (CRYPTO_memcmp(entry.digest.data(), digest.data(), digest.size()) == 0) found = &entry.name;
  }
  return found;
}

}  // namespace ulfd::server
