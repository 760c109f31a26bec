// SPDX-License-Identifier: Apache-2.0
#include "server/security/authenticator.h"

#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace ulfd::server {

absl::Status Authenticator::FindToken(const CallFacts& call, std::string& name) const {
  constexpr absl::string_view kScheme = "bearer ";
  if (call.authorization.size() != 1) {
    return absl::UnauthenticatedError(absl::StrCat(call.authorization.size(),
                                                   " authorization headers, want one: "
                                                   "\"authorization: Bearer TOKEN\""));
  }
  absl::string_view value = call.authorization[0];
  if (!absl::StartsWithIgnoreCase(value, kScheme)) {
    return absl::UnauthenticatedError(
        "authorization: another scheme, want \"authorization: Bearer TOKEN\"");
  }
  value.remove_prefix(kScheme.size());
  const std::shared_ptr<const TokenTable> tokens = tokens_->Get();
  const std::string* found = tokens->Find(value);
  if (found == nullptr) return absl::UnauthenticatedError("authorization: unknown token");
  name = *found;
  return absl::OkStatus();
}

absl::Status Authenticator::Check(const CallFacts& call) const {
  for (const std::string& prefix : open_paths_) {
    if (absl::StartsWith(call.path, prefix)) return absl::OkStatus();
  }
  std::vector<std::string> names = call.certificate_names;
  if (tokens_ != nullptr) {
    names.assign(1, "");
    absl::Status status = FindToken(call, names[0]);
    if (!status.ok()) {
      unauthenticated_.fetch_add(1, std::memory_order_relaxed);
      return status;
    }
  }
  if (!clients_.has_value() || clients_->Has(names)) return absl::OkStatus();
  denied_.fetch_add(1, std::memory_order_relaxed);
  return absl::PermissionDeniedError(
      absl::StrCat("client \"", absl::StrJoin(names, "\", \""), "\" may not call this port"));
}

std::vector<std::string> Authenticator::NamesOf(const CallFacts& call) const {
  if (tokens_ == nullptr) return call.certificate_names;
  std::string name;
  if (!FindToken(call, name).ok()) return {};
  return {name};
}

}  // namespace ulfd::server
