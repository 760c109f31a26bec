// What a protobuf message that strangers wrote may take.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_BASE_PARSE_BOUND_H_
#define ULFD_BASE_PARSE_BOUND_H_

#include <cstddef>
#include <cstdint>

namespace ulfd {

// Bytes that a message may take while it is parsed: 64 MiB and `times` its bytes.  Arrays of
// numbers take up to twice their bytes; but two bytes can be an empty message of a hundred.
constexpr int64_t ParseBound(size_t bytes, int64_t times = 8) {
  return (int64_t{64} << 20) + times * static_cast<int64_t>(bytes);
}

}  // namespace ulfd

#endif  // ULFD_BASE_PARSE_BOUND_H_
