// SPDX-License-Identifier: Apache-2.0
#include "server/security/access_rules.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace ulfd::server {

absl::Status AccessRules::Check(absl::Span<const std::string> names,
                                const std::string& model) const {
  if (MayUse(names, model)) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat("client \"", absl::StrJoin(names, "\", \""),
                                                  "\" may not use model \"", model, "\""));
}

}  // namespace ulfd::server
