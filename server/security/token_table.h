// Bearer tokens and the names of the clients that have them.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_SECURITY_TOKEN_TABLE_H_
#define ULFD_SERVER_SECURITY_TOKEN_TABLE_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ulfd::server {

// Immutable.  Keeps digests only, so that no core dump and no mistake can show a token.
class TokenTable {
 public:
  static constexpr size_t kMinTokenBytes = 16;

  // Lines "NAME TOKEN"; empty lines and lines that begin with "#" are skipped.  A name may have
  // several tokens, so that they can be changed one after the other.  TOKEN is at least 16
  // printable characters, or "sha256:" and the 64 hexadecimal digits of its digest.
  // INVALID_ARGUMENT: "SOURCE:LINE: ...", never with a token in it; also for a token that two names
  // share, and for a file without tokens.
  static absl::StatusOr<TokenTable> Parse(absl::string_view text, absl::string_view source);

  // The client's name, or null.  The time that it takes tells nothing about the tokens.
  const std::string* Find(absl::string_view token) const;

  // Whether a client of that name has a token.
  bool Knows(absl::string_view client) const;

  size_t size() const { return entries_.size(); }
  bool operator==(const TokenTable& other) const { return entries_ == other.entries_; }

 private:
  using Digest = std::array<uint8_t, 32>;
  struct Entry {
    std::string name;
    Digest digest;
    bool operator==(const Entry&) const = default;
  };
  static Digest DigestOf(absl::string_view token);
  std::vector<Entry> entries_;
};

}  // namespace ulfd::server

#endif  // ULFD_SERVER_SECURITY_TOKEN_TABLE_H_
