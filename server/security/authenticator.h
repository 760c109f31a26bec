// Authenticator: who calls, and whether a call may come in at all.  Free of gRPC.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_SECURITY_AUTHENTICATOR_H_
#define ULFD_SERVER_SECURITY_AUTHENTICATOR_H_

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "server/security/access_rules.h"
#include "server/security/reloaded.h"
#include "server/security/token_table.h"

namespace ulfd::server {

// What a call shows.  Borrows.
struct CallFacts {
  absl::string_view path;  // "/ulfd.v1.PredictionService/Predict"
  // Values of the header "authorization".
  std::vector<absl::string_view> authorization;
  std::vector<std::string> certificate_names;
};

// Of one port.  Thread-safe, never blocks.
class Authenticator {
 public:
  // `tokens`: borrowed; null: calls need none.  `open_paths`: prefixes of paths that need none
  // either.  `clients`: who may call at all.
  Authenticator(const Reloaded<TokenTable>* tokens, std::vector<std::string> open_paths,
                std::optional<ClientList> clients)
      : tokens_(tokens), open_paths_(std::move(open_paths)), clients_(std::move(clients)) {}

  // UNAUTHENTICATED without a token that is known, PERMISSION_DENIED if the client is none of those
  // who may call.  The texts never hold what the caller sent.
  absl::Status Check(const CallFacts& call) const;

  // The names of the caller of a call that Check let in: that of its token, or else those of its
  // certificate; none without either.
  std::vector<std::string> NamesOf(const CallFacts& call) const;

  // Whether calls have to be looked at.
  bool needed() const { return tokens_ != nullptr || clients_.has_value(); }
  int64_t unauthenticated() const { return unauthenticated_.load(std::memory_order_relaxed); }
  int64_t denied() const { return denied_.load(std::memory_order_relaxed); }

 private:
  absl::Status FindToken(const CallFacts& call, std::string& name) const;
  const Reloaded<TokenTable>* const tokens_;
  const std::vector<std::string> open_paths_;
  const std::optional<ClientList> clients_;
  mutable std::atomic<int64_t> unauthenticated_{0}, denied_{0};
};

}  // namespace ulfd::server

#endif  // ULFD_SERVER_SECURITY_AUTHENTICATOR_H_
