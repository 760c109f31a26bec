// Recordings as the tools take them: a file of the daemon's recorder, or a folder of them.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TOOLS_LOAD_RECORDINGS_H_
#define ULFD_TOOLS_LOAD_RECORDINGS_H_

#include <functional>
#include <initializer_list>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/recording/recording_reader.h"

namespace ulfd::tools {

// The file itself, or the files in a folder and the folders below it whose names end in one of
// these (".npz"), in the order of their names.  UNAVAILABLE if a folder cannot be listed.
absl::StatusOr<std::vector<std::string>> FilesIn(const std::string& path,
                                                 std::initializer_list<absl::string_view> endings);

// The file itself, or the recordings in a folder and the folders below it, in the order of their
// names.  NOT_FOUND if there are none.
absl::StatusOr<std::vector<std::string>> RecordingFiles(const std::string& path);

// Calls `visit` with every record of these files until it returns an error.  `damage` sums up what
// could not be read.
absl::Status ForEachRecording(const std::vector<std::string>& files,
                              const std::function<absl::Status(recording::Recording&)>& visit,
                              recording::Damage* damage);

// "2 damaged records and 37 bytes of a torn one were passed over"; "" if there was no damage.
std::string DescribeDamage(const recording::Damage& damage);

}  // namespace ulfd::tools

#endif  // ULFD_TOOLS_LOAD_RECORDINGS_H_
