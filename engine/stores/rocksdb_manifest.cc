// SPDX-License-Identifier: Apache-2.0
#include "engine/stores/rocksdb_manifest.h"

#include <google/protobuf/io/coded_stream.h>

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "base/errors.h"
#include "base/status_macros.h"

namespace ulfd::engine {
namespace {

// A file is blocks of records, each of which has a sum, its size and its type before it: 1 whole,
// 2 the first part of one, 3 and 4 others; with 5 to 8, the same, goes the number of the log.
constexpr size_t kBlock = 32768, kHeader = 7, kNumberedHeader = 11;

bool BeginsEdit(uint8_t type) { return type == 1 || type == 2 || type == 5 || type == 6; }

// The sequence number that an edit sets.  Its numbers and texts come before its files.
std::optional<uint64_t> SequenceOf(absl::string_view edit) {
  constexpr uint32_t kComparator = 1, kLog = 2, kNextFile = 3, kSequence = 4, kPreviousLog = 9,
                     kOldestLog = 10, kFamilies = 203, kDatabase = 8193;
  google::protobuf::io::CodedInputStream in(reinterpret_cast<const uint8_t*>(edit.data()),
                                            static_cast<int>(edit.size()));
  std::optional<uint64_t> sequence;
  uint32_t tag = 0;
  uint64_t value = 0;
  while (in.ReadVarint32(&tag) && in.ReadVarint64(&value)) {
    switch (tag) {
      case kSequence:
        sequence = value;
        break;
      case kComparator:
      case kDatabase:
        if (value > edit.size() || !in.Skip(static_cast<int>(value))) return sequence;
        break;
      case kLog:
      case kNextFile:
      case kPreviousLog:
      case kOldestLog:
      case kFamilies:
        break;
      default:
        return sequence;
    }
  }
  return sequence;
}

}  // namespace

absl::Status CheckManifest(const InputFile& file) {
  std::string content(static_cast<size_t>(file.size()), '\0');
  ASSIGN_OR_RETURN(const size_t got, file.ReadAt(0, content.data(), content.size()));
  const absl::string_view all(content.data(), got);
  const auto byte = [all](size_t at) { return static_cast<uint8_t>(all[at]); };
  uint64_t last = 0;
  for (size_t at = 0; at + kHeader <= all.size();) {
    const size_t left = kBlock - at % kBlock;
    const uint8_t type = byte(at + 6);
    if (left < kHeader || type == 0) {  // The rest of a block.
      at += left;
      continue;
    }
    const size_t begin = at + (type < 5 ? kHeader : kNumberedHeader);
    const size_t size = byte(at + 4) + (size_t{byte(at + 5)} << 8);
    at = begin + size;
    if (!BeginsEdit(type) || begin > all.size()) continue;
    const std::optional<uint64_t> sequence = SequenceOf(all.substr(begin, size));
    if (!sequence.has_value()) continue;
    if (*sequence < last) {
      return InvalidArgument(file.path(), ": goes back from sequence ", last, " to ", *sequence,
                             ", as two lists in one file do");
    }
    last = *sequence;
  }
  return absl::OkStatus();
}

}  // namespace ulfd::engine
