// What is checked of a copy before it appears.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TOOLS_SYNC_CHECKS_H_
#define ULFD_TOOLS_SYNC_CHECKS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tools/sync/syncer.h"

namespace ulfd::tools {

// A version: graph, weights and manifest are found, each of the manifest's sums is right, table
// files are.  Errors name the file.
absl::Status CheckVersion(const std::string& directory);
// A delta: its manifest, sums, table files.
absl::Status CheckDelta(const std::string& directory, int64_t epoch);

// Names a listing: paths, lengths, tags.  16 hexadecimal digits.
std::string ListingDigest(const std::vector<SyncFile>& files);

}  // namespace ulfd::tools

#endif  // ULFD_TOOLS_SYNC_CHECKS_H_
