// SPDX-License-Identifier: Apache-2.0
#include "base/recording/recording_reader.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "base/bounded_parse.h"
#include "base/errors.h"
#include "base/recording/recording_file.h"
#include "base/status_macros.h"
#include "base/text.h"

namespace ulfd::recording {
namespace {

uint64_t LittleEndian(absl::string_view bytes) {
  uint64_t value = 0;
  for (size_t i = bytes.size(); i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return value;
}

}  // namespace

absl::StatusOr<RecordingReader> RecordingReader::Open(const std::string& path) {
  ASSIGN_OR_RETURN(InputFile file, InputFile::Open(path));
  RecordingReader reader(std::move(file));
  std::string magic;
  ASSIGN_OR_RETURN(const bool whole, reader.Fill(kFileMagic.size(), magic));
  if (absl::StartsWith(kFileMagic, magic)) return reader;  // Whole, or just being created.
  // The last byte is the version of the format.
  if (whole && magic.compare(0, magic.size() - 1, kFileMagic.data(), kFileMagic.size() - 1) == 0) {
    return InvalidArgument(path, ": format version ", static_cast<int>(magic.back()), ", want ",
                           static_cast<int>(kFileMagic.back()));
  }
  return InvalidArgument(path, ": begins with ", Quote(magic), ": no file of the recorder");
}

absl::StatusOr<bool> RecordingReader::Fill(size_t size, std::string& to) {
  // A damaged size must not cost memory: what is asked for grows with what is there.
  constexpr size_t kPiece = size_t{1} << 20;
  to.clear();
  while (to.size() < size) {
    const size_t begin = to.size();
    const size_t wanted = std::min(kPiece, size - begin);
    to.resize(begin + wanted);
    size_t got = 0;
    while (got < wanted) {
      ASSIGN_OR_RETURN(const size_t n, file_.Read(to.data() + begin + got, wanted - got));
      if (n == 0) break;
      got += n;
    }
    to.resize(begin + got);
    position_ += static_cast<int64_t>(got);
    if (got < wanted) {
      ended_ = true;
      damage_.tail_bytes += static_cast<int64_t>(to.size());
      return false;
    }
  }
  return true;
}

absl::StatusOr<bool> RecordingReader::Next(Recording* record) {
  while (!ended_) {
    ASSIGN_OR_RETURN(const bool more, Fill(kRecordHeaderBytes, header_));
    if (!more) break;
    const absl::string_view header = header_;
    const uint64_t size = LittleEndian(header.substr(4, 4));
    if (header.substr(0, 4) != kRecordMagic || size > static_cast<uint64_t>(kMaxPayloadBytes)) {
      ended_ = true;  // Where the next record begins is anyone's guess.
      // A hole of terabytes may follow.
      damage_.tail_bytes += kRecordHeaderBytes + std::max<int64_t>(0, file_.size() - position_);
      break;
    }
    const uint64_t checksum = LittleEndian(header.substr(8, 8));
    ASSIGN_OR_RETURN(const bool whole, Fill(size, payload_));
    if (!whole) {
      damage_.tail_bytes += kRecordHeaderBytes;
      break;
    }
    if (PayloadChecksum(payload_) == checksum && ParseBounded(payload_, *record)) return true;
    ++damage_.records;
  }
  return false;
}

}  // namespace ulfd::recording
