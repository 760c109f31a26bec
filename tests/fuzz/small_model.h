// The model that request fuzzers run on.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TESTS_FUZZ_SMALL_MODEL_H_
#define ULFD_TESTS_FUZZ_SMALL_MODEL_H_

#include <memory>
#include <string>
#include <vector>

#include "engine/runtime/model.h"

namespace ulfd::fuzz {

// The tests' tiny model with three dense inputs more, of which nothing states a shape: `free` is
// summed over its first axis, and `left` is multiplied by `right`.  Stays until the end.
const engine::Model& SmallModel();
// Names that requests to it may hold.
const std::vector<std::string>& SmallModelNames();

}  // namespace ulfd::fuzz

#endif  // ULFD_TESTS_FUZZ_SMALL_MODEL_H_
