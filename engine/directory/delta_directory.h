// The deltas of a version directory on disk: which epochs are there, and what one of them holds.
// docs/table-file.md has the rules.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_DIRECTORY_DELTA_DIRECTORY_H_
#define ULFD_ENGINE_DIRECTORY_DELTA_DIRECTORY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/directory/model_directory.h"
#include "proto/delta.pb.h"

namespace ulfd::engine {

inline constexpr char kDeltaFile[] = "delta.textproto";

// The complete epochs of a version directory, ascending.  Names that are no number and directories
// without _SUCCESS are left out.  Errors of ListNames.
absl::StatusOr<std::vector<EpochMark>> ListEpochs(const std::string& version_directory,
                                                  int64_t most, int64_t* names_left = nullptr);

// The directory of an epoch.
std::string EpochDirectory(const std::string& version_directory, int64_t epoch);

// delta.textproto of `directory`, checked as far as it can be without a model: fields, paths, and
// sums of files unless somebody has checked them before.  Errors name file, and field or table.
enum class FileSums : uint8_t { kChecked, kIgnored };
absl::StatusOr<ulfd::model::v1::DeltaManifest> ReadDeltaManifest(
    const std::string& directory, int64_t epoch, FileSums sums = FileSums::kChecked);

// Ids of a text file, one per line, ended by LF or CRLF.  INVALID_ARGUMENT "PATH:LINE: ...".
absl::StatusOr<std::vector<int64_t>> ReadIds(const std::string& path);
// The same of its content; `path` is for messages.
absl::StatusOr<std::vector<int64_t>> ParseIds(absl::string_view text, absl::string_view path);

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_DIRECTORY_DELTA_DIRECTORY_H_
