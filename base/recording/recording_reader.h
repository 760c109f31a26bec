// Reads the files of the recorder, also while they are being written, and whatever a crash left.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_BASE_RECORDING_RECORDING_READER_H_
#define ULFD_BASE_RECORDING_RECORDING_READER_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "base/file.h"
#include "proto/recording.pb.h"

namespace ulfd::recording {

using v1::Recording;

// What of a file could not be read.
struct Damage {
  // Records whose checksum or content is wrong; those after them were read.
  int64_t records = 0;
  // Bytes after the last record that begins as one should: a record that was half written, or
  // everything after damage to a header.
  int64_t tail_bytes = 0;
};

// Reads one file from start to end.  Not thread-safe.
class RecordingReader {
 public:
  // NOT_FOUND if there is no such file; INVALID_ARGUMENT if it is no file of the recorder, or of a
  // version that we do not know.  A file that ends within its first 8 bytes has no records.
  static absl::StatusOr<RecordingReader> Open(const std::string& path);

  // Fills `record` with the next record and returns true; false at the end.  Damaged records are
  // passed over and counted.  Errors: those of reading the file.
  absl::StatusOr<bool> Next(Recording* record);
  // So far.
  const Damage& damage() const { return damage_; }

 private:
  explicit RecordingReader(InputFile file) : file_(std::move(file)) {}
  // False: the file ends before that; the rest counts as torn.
  absl::StatusOr<bool> Fill(size_t size, std::string& to);

  InputFile file_;
  std::string header_, payload_;
  Damage damage_;
  int64_t position_ = 0;  // In the file.
  bool ended_ = false;
};

}  // namespace ulfd::recording

#endif  // ULFD_BASE_RECORDING_RECORDING_READER_H_
