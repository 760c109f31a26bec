// Digests of files: SHA-256 to check a release, XXH3 to tell contents apart.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_WEIGHTS_DIGEST_H_
#define ULFD_ENGINE_WEIGHTS_DIGEST_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ulfd::engine {

// SHA-256 of the file's content, 64 lower-case hexadecimal characters.  Streams; any size.
absl::StatusOr<std::string> Sha256OfFile(const std::string& path);

// A 128-bit XXH3 over names and contents.  Fast, not proof against forgery.  Not thread-safe.
class ContentHasher {
 public:
  ContentHasher();
  ~ContentHasher();
  ContentHasher(const ContentHasher&) = delete;
  ContentHasher& operator=(const ContentHasher&) = delete;

  // Adds a piece; pieces are delimited, so that ("ab", "c") and ("a", "bc") differ.
  void Add(absl::string_view piece);
  // Adds the content of a file as one piece.  Streams.
  absl::Status AddFile(const std::string& path);
  // 32 lower-case hexadecimal characters for everything added so far.
  std::string Hex() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_WEIGHTS_DIGEST_H_
