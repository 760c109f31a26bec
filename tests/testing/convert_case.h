// A case of the converter tests: a converted model, run on inputs, against values from elsewhere.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TESTS_TESTING_CONVERT_CASE_H_
#define ULFD_TESTS_TESTING_CONVERT_CASE_H_

#include <string>

#include "absl/status/statusor.h"
#include "engine/weights/npz.h"

namespace ulfd::testing {

// tests/data/convert/NAME
std::string ConvertCaseDir(const std::string& name);

// Loads the version directory and runs it on the arrays; the outputs by name.
absl::StatusOr<engine::NpzArrays> ScoreModel(const std::string& directory,
                                             const engine::NpzArrays& inputs);

// Expects the model in `directory` to give the case's expected.npz for its inputs.npz: the same
// outputs and shapes, every value within tolerance * max(1, |value|).  With `single_rows` also with
// each ad alone (features of ads then have one id per ad).
struct ConvertTolerance {
  double value = 1e-5;
  bool single_rows = true;
};
void ExpectConvertCase(const std::string& name, const std::string& directory,
                       const ConvertTolerance& tolerance = {});

}  // namespace ulfd::testing

#endif  // ULFD_TESTS_TESTING_CONVERT_CASE_H_
