// Parsing messages that strangers wrote.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_BASE_RECORDING_BOUNDED_PARSE_H_
#define ULFD_BASE_RECORDING_BOUNDED_PARSE_H_

#include <google/protobuf/message_lite.h>

#include <cstdint>
#include <new>
#include <string>

#include "base/load_scope.h"

namespace ulfd::recording {

// message.ParseFromString(bytes), but for what would take more than 64 MiB and 8 times its bytes:
// two bytes can be an empty message of a hundred.  False, and empty: it does not parse.
inline bool ParseBounded(const std::string& bytes, google::protobuf::MessageLite& message) {
  LoadLimits limits;
  limits.max_memory_bytes = (int64_t{64} << 20) + 8 * static_cast<int64_t>(bytes.size());
  try {
    const LoadScope scope(limits);
    if (message.ParseFromString(bytes)) return true;
  } catch (const std::bad_alloc&) {
  }
  message.Clear();
  return false;
}

}  // namespace ulfd::recording

#endif  // ULFD_BASE_RECORDING_BOUNDED_PARSE_H_
