// SPDX-License-Identifier: Apache-2.0
#include "engine/runtime/score_tolerance.h"

#include <algorithm>
#include <cmath>

#include "base/errors.h"

namespace ulfd::engine {

absl::StatusOr<double> ToleranceOf(const ulfd::model::v1::ModelManifest& manifest) {
  constexpr double kDefault = 1e-4;
  if (!manifest.has_golden_tolerance()) return kDefault;
  const double tolerance = manifest.golden_tolerance();
  if (std::isfinite(tolerance) && tolerance >= 0) return tolerance;
  return InvalidArgument("manifest: golden_tolerance: ", tolerance,
                         ", want a finite number, at least 0");
}

bool IsNear(double found, double wanted, double tolerance) {
  if (std::isnan(wanted)) return std::isnan(found);
  if (std::isinf(wanted)) return found == wanted;
  return std::abs(found - wanted) <= tolerance * std::max(1.0, std::abs(wanted));
}

}  // namespace ulfd::engine
