// Brings the versions of a source into a model repository.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TOOLS_SYNC_SYNCER_H_
#define ULFD_TOOLS_SYNC_SYNCER_H_

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/file_descriptor.h"
#include "tools/sync/source.h"

namespace ulfd::tools {

struct SyncOptions {
  std::string to;      // The repository; made if it is not there.
  int keep = 0;        // Versions of each model, the highest ones; older ones are deleted.  0: all.
  int tries = 5;       // Of a transfer that breaks; each goes on where the one before ended.
  int list_tries = 5;  // Of listings and lengths; 1 where another pass follows anyway.
  bool (*stopped)() = nullptr;
  std::function<void(const std::string& line)> report;  // Of what was copied or deleted.
};

// What is copied as one: MODEL/VERSION, or MODEL/VERSION/deltas/EPOCH.
struct SyncFile {
  std::string path;  // Relative to the unit.
  RemoteEntry entry;
};

// A unit comes to be in TO/.sync under a name made of its listing, so that what was copied before
// an end of any kind counts, and nothing of another content does.  Once every file has the length
// that was listed, sums and table files are right and _SUCCESS is written, it is renamed to its
// place: whoever reads the repository sees it whole or not at all.  What is in place is not copied
// again.
class Syncer {
 public:
  // `source` outlives the syncer.
  Syncer(Source& source, SyncOptions options);
  Syncer(const Syncer&) = delete;
  Syncer& operator=(const Syncer&) = delete;

  // Looks once.  The errors of all units that were not copied though they are complete; what is
  // without _SUCCESS is no error.  FAILED_PRECONDITION alone: another one writes to TO.
  std::vector<absl::Status> Pass();

 private:
  absl::Status Lock();
  // `once` until its error is none that may pass, or often enough.
  absl::Status Try(int tries, absl::FunctionRef<absl::Status()> once) const;
  absl::StatusOr<std::vector<RemoteEntry>> List(const std::string& directory);
  void SyncModel(const std::string& model);
  // Whether the version is in place now.
  absl::StatusOr<bool> SyncVersion(const std::string& model, const std::string& version);
  absl::Status SyncDeltas(const std::string& version);
  // Files of the unit but its deltas.  NOT_FOUND: no _SUCCESS.
  absl::StatusOr<std::vector<SyncFile>> Collect(const std::string& unit);
  absl::Status CollectFrom(const std::string& unit, const std::string& directory, int depth,
                           std::vector<SyncFile>& files);
  absl::Status Copy(const std::string& unit, std::vector<SyncFile> files,
                    const std::function<absl::Status(const std::string&)>& check);
  absl::Status CopyFile(const std::string& unit, const SyncFile& file, const std::string& staged);
  absl::Status CopyRest(const std::string& unit, const SyncFile& file, const std::string& to);
  absl::Status DeleteOld(const std::string& model, const std::vector<int64_t>& kept);
  void DeleteStaged();
  bool Stopped() const { return options_.stopped != nullptr && options_.stopped(); }
  std::string Place(absl::string_view unit) const;

  Source& source_;
  const SyncOptions options_;
  const std::string staging_;
  FileDescriptor lock_;
  int64_t listed_ = 0;  // Files and directories of the unit that is collected.
  std::vector<absl::Status> errors_;
  std::set<std::string> staged_;  // Names in staging_ that this pass began with.
  int64_t complete_ = 0;          // Versions of the source that are in DST now.
};

}  // namespace ulfd::tools

#endif  // ULFD_TOOLS_SYNC_SYNCER_H_
