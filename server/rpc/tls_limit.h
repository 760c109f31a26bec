// A limit for the messages of TLS handshakes, those of connections to others, too.
//
// OpenSSL makes room for as much as a peer announces: 128 KiB of a hello, and again of a second
// one, 100 KiB of certificates, which it keeps and reads into several times as much.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_RPC_TLS_LIMIT_H_
#define ULFD_SERVER_RPC_TLS_LIMIT_H_

#include <cstddef>
#include <cstdint>

namespace ulfd::server {

// A hello has 2 KB, three certificates with RSA keys of 4096 bits have 6.
constexpr size_t kMaxHandshakeMessageBytes = 16384;

// What a connection with TLS takes, idle or in its handshake: 65 to 80 KB, and 140 with as many
// certificates as it may bring.
constexpr int64_t kTlsConnectionBytes = 96 << 10;

// Handshakes that ended for their messages so far.
int64_t EndedForHandshakes();

}  // namespace ulfd::server

#endif  // ULFD_SERVER_RPC_TLS_LIMIT_H_
