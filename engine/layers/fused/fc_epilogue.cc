// What follows a fully connected layer column by column.
// SPDX-License-Identifier: Apache-2.0
#include "engine/layers/fused/fc_epilogue.h"

#include "absl/strings/str_cat.h"

namespace ulfd::engine {

Epilogue ViewOf(const FcEpilogue& owned) {
  Epilogue epilogue;
  if (owned.affine) {
    epilogue.affine = {owned.affine_mean.data(), owned.affine_scale.data(),
                       owned.affine_beta.data()};
  }
  epilogue.activation = {.kind = owned.activation,
                         .slope = owned.slope.data(),
                         .mean = owned.mean.data(),
                         .scale = owned.scale.data(),
                         .gamma = owned.gamma.data()};
  return epilogue;
}

absl::Status CheckEpilogue(absl::string_view where, const FcEpilogue& epilogue, int64_t n) {
  struct Parameter {
    absl::string_view name;
    const std::vector<float>& values;
    bool needed;
  };
  const bool affine = epilogue.affine, dice = epilogue.activation == Activation::Kind::kDice;
  const Parameter parameters[] = {
      {"mean", epilogue.affine_mean, affine},
      {"scale", epilogue.affine_scale, affine},
      {"beta", epilogue.affine_beta, affine},
      {"slope", epilogue.slope, epilogue.activation == Activation::Kind::kPrelu},
      {"dice_mean", epilogue.mean, dice},
      {"dice_scale", epilogue.scale, dice},
      {"dice_gamma", epilogue.gamma, dice}};
  for (const Parameter& p : parameters) {
    if (p.needed && p.values.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(where, ".", p.name, " is missing"));
    }
    if (!p.values.empty() && static_cast<int64_t>(p.values.size()) != n) {
      return absl::InvalidArgumentError(
          absl::StrCat(where, ".", p.name, ": ", p.values.size(), " values, want ", n));
    }
  }
  return absl::OkStatus();
}

}  // namespace ulfd::engine
