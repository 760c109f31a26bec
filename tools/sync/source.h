// Where `ulf sync` copies from: a tree of directories and files that somebody else keeps.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TOOLS_SYNC_SOURCE_H_
#define ULFD_TOOLS_SYNC_SOURCE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tools/cli/url_client.h"

namespace ulfd::tools {

// The most entries that one listing may have.
inline constexpr size_t kMaxListed = 100000;

struct RemoteEntry {
  enum class Kind { kFile, kDirectory, kOther };  // kOther: a link, a device.
  std::string name;                               // One component of a path, not checked.
  Kind kind = Kind::kFile;
  int64_t bytes = -1;  // Of a file; -1: Describe tells.
  std::string tag;     // Of a file: another one for another content; empty: not known.
};

// Paths have no slash at either end; "" is the root.  Errors name what was asked for.  UNAVAILABLE
// may pass.
class Source {
 public:
  virtual ~Source() = default;
  // NOT_FOUND if there is no such directory; an object store says that of one without entries.
  virtual absl::StatusOr<std::vector<RemoteEntry>> List(const std::string& directory) = 0;
  // Fills in `bytes` and `tag` of a file that List left open.
  virtual absl::Status Describe(const std::string& path, RemoteEntry& file) = 0;
  // Gives the bytes of a file from `offset` on to `sink`.  FAILED_PRECONDITION if its tag is
  // another one by now.
  virtual absl::Status Read(const std::string& path, const RemoteEntry& file, int64_t offset,
                            ByteSink sink) = 0;
};

struct SourceOptions {
  std::string endpoint;         // Of an object store; empty: Amazon's of the region.
  std::string region;           // Of an object store.
  std::string ca_file;          // PEM; empty: the system's.
  std::string token_file;       // Holds a bearer token for http(s) URLs.
  bool (*stopped)() = nullptr;  // Ends transfers with CANCELLED.
};

// `from`: a directory, http://..., https://... or s3://BUCKET[/PREFIX], whose keys are in
// AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN of the environment (without them
// nothing is signed).  INVALID_ARGUMENT: no such source.
absl::StatusOr<std::unique_ptr<Source>> OpenSource(const std::string& from,
                                                   const SourceOptions& options);

// The kinds of it.
std::unique_ptr<Source> MakeDirectorySource(const std::string& root);
// Directories are index pages; files are described by HEAD.
std::unique_ptr<Source> MakeWebSource(absl::string_view url, UrlOptions options);
// "BUCKET[/PREFIX]" by ListObjectsV2, the bucket in the path; keys from the environment.
// INVALID_ARGUMENT: no such bucket, half of the keys.
absl::StatusOr<std::unique_ptr<Source>> MakeObjectSource(absl::string_view bucket_and_prefix,
                                                         const SourceOptions& from,
                                                         UrlOptions options);

}  // namespace ulfd::tools

#endif  // ULFD_TOOLS_SYNC_SOURCE_H_
