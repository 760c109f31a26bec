// Quarantine: content that was refused, known by its hash, so that copying or touching the files
// does not make the server try it again.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_MODELS_QUARANTINE_H_
#define ULFD_SERVER_MODELS_QUARANTINE_H_

#include <chrono>
#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/directory/directory_tree.h"

namespace ulfd::server {

// Content that is not tried again until it changes or an operator asks for it.
struct QuarantinedContent {
  std::string content_hash;  // Of HashVersionDirectory.
  int64_t version = 0;       // Where it was found.
  absl::Status error;        // Why it was refused; a content error.
  std::chrono::system_clock::time_point since;
  // Good content that a roll-back took out of service: others may have the same, lower versions,
  // such as the one that it went back to, and those that are named.
  bool by_operator = false;
};

// Why content that an operator rolled back from is refused.
absl::Status RolledBack();

// What of one model is in quarantine, by content hash.  Bounded: the oldest goes when a 65th comes.
class Quarantine {
 public:
  static constexpr size_t kMaxContents = 64;

  void Add(QuarantinedContent content);
  // Null if that content is not in quarantine.
  const QuarantinedContent* Find(const std::string& content_hash) const;
  // Ends the quarantine of everything that was found in that version.
  void Release(int64_t version);
  bool empty() const { return contents_.empty(); }
  const std::map<std::string, QuarantinedContent>& contents() const { return contents_; }

 private:
  std::map<std::string, QuarantinedContent> contents_;
};

// A hash of names and contents of all files in the directory and below, symbolic links followed as
// far as `rules` allow, except the file _SUCCESS: 32 hexadecimal digits.  Reads every file;
// RESOURCE_EXHAUSTED, and nothing is read, if a load under way could not hold so much: a file may
// claim a petabyte.
absl::StatusOr<std::string> HashVersionDirectory(const std::string& directory,
                                                 const engine::DirectoryRules& rules);

}  // namespace ulfd::server

#endif  // ULFD_SERVER_MODELS_QUARANTINE_H_
