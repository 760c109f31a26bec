// A limit for the headers that gRPC reads, and for those of all calls that are open.
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
// than so much needs, the connection ends; so does one whose headers no longer fit beside those of
// all calls that are open.  Of that room one address may take some times what is left; headers of
// usual size, and those of answers to our own calls, take none.
void LimitHeaders(int64_t max_header_bytes, int64_t all_header_bytes);

// Connections that ended for it so far.
int64_t EndedForHeaders();

}  // namespace ulfd::server

#endif  // ULFD_SERVER_RPC_HEADER_LIMIT_H_
