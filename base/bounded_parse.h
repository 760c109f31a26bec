// Parsing messages that strangers wrote.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_BASE_BOUNDED_PARSE_H_
#define ULFD_BASE_BOUNDED_PARSE_H_

#include <google/protobuf/message_lite.h>

#include <cstddef>
#include <cstdint>
#include <new>
#include <string>

#include "base/load_scope.h"

namespace ulfd {

// Bytes that a message may take while it is parsed: 64 MiB and `times` its bytes.  Arrays of
// numbers take up to twice their bytes; but two bytes can be an empty message of a hundred.
constexpr int64_t ParseBound(size_t bytes, int64_t times = 8) {
  return (int64_t{64} << 20) + times * static_cast<int64_t>(bytes);
}

// message.ParseFromString(bytes), but for what would take more than ParseBound.  False, and empty:
// it does not parse.
inline bool ParseBounded(const std::string& bytes, google::protobuf::MessageLite& message) {
  LoadLimits limits;
  limits.max_memory_bytes = ParseBound(bytes.size());
  try {
    const LoadScope scope(limits);
    if (message.ParseFromString(bytes)) return true;
  } catch (const std::bad_alloc&) {
  }
  message.Clear();
  return false;
}

}  // namespace ulfd

#endif  // ULFD_BASE_BOUNDED_PARSE_H_
