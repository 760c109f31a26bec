// The beginning of many small graphs: a user's feature "u" and an ad's feature "a", each through an
// embedding from table "t".
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TESTS_TESTING_TWO_FEATURES_H_
#define ULFD_TESTS_TESTING_TWO_FEATURES_H_

#include <map>
#include <string>

#include "absl/strings/str_cat.h"

namespace ulfd::testing {

inline constexpr char kTwoFeatures[] = R"(
layer_params { type: "input_layer" top: "u.ids" top: "u.values" top: "u.segments"
               top: "a.ids" top: "a.values" top: "a.segments" }
layer_params { name: "user" type: "embedding_layer" bottom: "u.ids" bottom: "u.values" bottom: "u.segments"
               top: "u" embedding_param { embedding_conf_path: "user.conf" level: 1 } }
layer_params { name: "ad" type: "embedding_layer" bottom: "a.ids" bottom: "a.values" bottom: "a.segments"
               top: "a" embedding_param { embedding_conf_path: "ad.conf" level: 0 } }
)";

// The files user.conf and ad.conf, for a table of so many columns.
inline std::map<std::string, std::string> TwoFeaturesConfs(int dim) {
  const auto conf = [&](const char* feature) {
    return absl::StrCat(
        "feature_group_config { feature_group: \"", feature, "\" table_name: \"t\" dim: ", dim,
        " } block_config { embedding_block_config_item { feature_group: \"", feature, "\" } }");
  };
  return {{"user.conf", conf("u")}, {"ad.conf", conf("a")}};
}

}  // namespace ulfd::testing

#endif  // ULFD_TESTS_TESTING_TWO_FEATURES_H_
