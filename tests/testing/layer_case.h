// Runs a layer case (tests/testing/layer_case.proto) through the registry: parse, infer, lower or
// prepare, run.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TESTS_TESTING_LAYER_CASE_H_
#define ULFD_TESTS_TESTING_LAYER_CASE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/layers/layer.h"
#include "tests/testing/layer_case.pb.h"

namespace ulfd::testing {

// An output with its memory.
struct OwnedTensor {
  engine::TensorSpec spec;
  engine::Tensor tensor;
  std::vector<char> memory;
};

struct LayerOutcome {
  std::vector<OwnedTensor> outputs;
  engine::Notices notices;
};

// Reads a text-proto file of LayerCases.
absl::StatusOr<LayerCases> ReadLayerCases(const std::string& path);

// How a case's inputs lie in memory.
enum class Placement { kAligned, kOddAddress };

// Whether a layer runs by its own kernel or, if its type is decomposable, by what it lowers to.
enum class Route { kOwn, kDecomposed };

// Runs the case.  Memory is as hostile as the contract allows: exactly as large as needed, outputs
// and scratch full of NaN, inputs at odd multiples of their element's size if asked for.
absl::StatusOr<LayerOutcome> RunLayerCase(const LayerCase& layer_case, Placement placement,
                                          Route route = Route::kOwn);

// Empty if `found` is what the case wants of output `index`; else what differs.
std::string Difference(const LayerCase& layer_case, int index, const engine::Tensor& found);

}  // namespace ulfd::testing

#endif  // ULFD_TESTS_TESTING_LAYER_CASE_H_
