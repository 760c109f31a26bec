// A limit for the headers of a call that gRPC is still reading.
//
// gRPC 1.51 bounds headers only for peers that acknowledge its SETTINGS, and within each HEADERS or
// CONTINUATION frame alone.  One byte on the wire may name a header that takes 64 in memory, and a
// header that goes on over frames is read again with each of them.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_RPC_HEADER_LIMIT_H_
#define ULFD_SERVER_RPC_HEADER_LIMIT_H_

#include <cstdint>

namespace ulfd::server {

// For all connections of the process, those to others too.  With more in one frame, or more frames
// than so much needs, the connection ends.
void LimitHeaders(int64_t max_header_bytes);

}  // namespace ulfd::server

#endif  // ULFD_SERVER_RPC_HEADER_LIMIT_H_
