// SPDX-License-Identifier: Apache-2.0
#include "server/models/operator_state.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace ulfd::server {

std::string ConfiguredVersions(const ModelConfig& config) {
  const VersionPolicy& policy = config.policy;
  return absl::StrCat(config.base_path, ": ",
                      policy.specific.empty()
                          ? absl::StrCat("latest ", policy.latest)
                          : absl::StrCat("versions ", absl::StrJoin(policy.specific, ",")),
                      config.labels.empty() ? "" : "; ",
                      absl::StrJoin(config.labels, ",", absl::PairFormatter("=")));
}

}  // namespace ulfd::server
