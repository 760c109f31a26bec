// How far two ways of computing the same score may be apart.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_RUNTIME_SCORE_TOLERANCE_H_
#define ULFD_ENGINE_RUNTIME_SCORE_TOLERANCE_H_

#include "absl/status/statusor.h"
#include "proto/model_manifest.pb.h"

namespace ulfd::engine {

// The manifest's golden_tolerance, or its default.  INVALID_ARGUMENT if it is negative or not
// finite.
absl::StatusOr<double> ToleranceOf(const ulfd::model::v1::ModelManifest& manifest);

// Whether |found - wanted| <= tolerance * max(1, |wanted|), or both are NaN or the same infinity.
bool IsNear(double found, double wanted, double tolerance);

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_RUNTIME_SCORE_TOLERANCE_H_
