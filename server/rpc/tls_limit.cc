// Functions of OpenSSL that the libraries call through the dynamic linker, which takes the
// program's first (decision 0089).
// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/tls_limit.h"

#include <openssl/buffer.h>
#include <openssl/ssl.h>

#include <atomic>

#include "server/rpc/of_library.h"

// A library's functions have no object to keep anything in.
// NOLINTBEGIN(cppcoreguidelines-avoid-non-const-global-variables)
namespace ulfd::server {
namespace {

std::atomic<int64_t> ended{0};
// Others than OpenSSL's handshakes keep what they like in its buffers.
thread_local bool in_handshake = false;

}  // namespace

int64_t EndedForHandshakes() { return ended.load(std::memory_order_relaxed); }

}  // namespace ulfd::server

SSL_CTX* SSL_CTX_new(const SSL_METHOD* method) {
  static auto* const make = ulfd::server::OfLibrary<SSL_CTX*(const SSL_METHOD*)>("SSL_CTX_new");
  SSL_CTX* const context = make(method);
  // An idle connection needs no buffers.
  if (context != nullptr) SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS);
  return context;
}

int SSL_do_handshake(SSL* ssl) {
  static auto* const handshake = ulfd::server::OfLibrary<int(SSL*)>("SSL_do_handshake");
  ulfd::server::in_handshake = true;
  const int result = handshake(ssl);
  ulfd::server::in_handshake = false;
  return result;
}

// Makes room for a message that is announced.
size_t BUF_MEM_grow_clean(BUF_MEM* buffer, size_t size) {
  static auto* const grow = ulfd::server::OfLibrary<size_t(BUF_MEM*, size_t)>("BUF_MEM_grow_clean");
  constexpr size_t kMost = ulfd::server::kMaxHandshakeMessageBytes + SSL3_HM_HEADER_LENGTH;
  if (!ulfd::server::in_handshake || size <= kMost) return grow(buffer, size);
  ulfd::server::ended.fetch_add(1, std::memory_order_relaxed);
  return 0;
}

// NOLINTEND(cppcoreguidelines-avoid-non-const-global-variables)
