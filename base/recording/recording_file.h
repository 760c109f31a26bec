// The files of the recorder: their format, their names, and appending to one.
//
// A file is the 8 bytes "ULFREC\0\1" and records, one after another.  A record is
//   bytes 0..3    "UREC"
//   bytes 4..7    size of the payload, little-endian
//   bytes 8..15   XXH3-64 of the payload with the size as seed, little-endian
//   then          the payload: a ulfd.recording.v1.Recording, serialised
// A process that is killed leaves at most one record half written, at the end of a file; the next
// one begins a file of its own.
//
// A model's files are <directory>/<model>/<number>.ulfrec, the highest number being the newest;
// those of the slowest calls are <directory>/slowest/<model>/<number>.ulfrec.
// They are numbered rather than dated, so that their order does not depend on the wall clock.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_BASE_RECORDING_RECORDING_FILE_H_
#define ULFD_BASE_RECORDING_RECORDING_FILE_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/file_descriptor.h"

namespace ulfd::recording {

inline constexpr absl::string_view kFileMagic("ULFREC\0\1", 8);
inline constexpr absl::string_view kRecordMagic("UREC", 4);
inline constexpr int64_t kRecordHeaderBytes = 16;
// No payload is larger; a size above it is damage.
inline constexpr int64_t kMaxPayloadBytes = int64_t{1} << 30;

// The header of a record with that payload: kRecordHeaderBytes.
std::string RecordHeader(absl::string_view payload);
// XXH3-64 of the payload, seeded with its size.
uint64_t PayloadChecksum(absl::string_view payload);

// One file of a model's recordings.
struct RecordingPath {
  std::string path;
  int64_t number = 0;
  int64_t bytes = 0;
};

// The folder of the model's files.  Characters that a file name should not have are written %XX.
std::string ModelFolder(absl::string_view directory, absl::string_view model);
// <folder>/<number>.ulfrec
std::string FileName(absl::string_view folder, int64_t number);
// The folder's files, oldest first; none if there is no such folder.  Others are passed over.
absl::StatusOr<std::vector<RecordingPath>> ListFiles(const std::string& folder);

// A file that records are appended to.  Nothing is buffered: what Append has written survives the
// process.  Not thread-safe.
class RecordingWriter {
 public:
  // Creates the file, which must not exist yet, with the folders above it.  Errors: the kernel's,
  // as UNAVAILABLE, with the path; RESOURCE_EXHAUSTED for a full disk, quota or size limit.
  static absl::StatusOr<RecordingWriter> Create(const std::string& path);
  // Appends one record.  After an error, which is one of Create's, the file ends with the last
  // whole record, if the kernel lets us cut it.
  absl::Status Append(absl::string_view payload);
  // Whether the path still leads to what was written, all of it: nobody has removed, moved, cut or
  // covered the file.
  bool InPlace() const;
  int64_t bytes() const { return bytes_; }
  const std::string& path() const { return path_; }

 private:
  RecordingWriter(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}
  absl::Status Write(absl::string_view data);

  std::string path_;
  FileDescriptor fd_;
  int64_t bytes_ = 0;
};

}  // namespace ulfd::recording

#endif  // ULFD_BASE_RECORDING_RECORDING_FILE_H_
