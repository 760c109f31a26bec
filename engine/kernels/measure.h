// What is faster on this machine.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_KERNELS_MEASURE_H_
#define ULFD_ENGINE_KERNELS_MEASURE_H_

#include <string>

#include "absl/functional/function_ref.h"

namespace ulfd::engine {

// What `find` finds out, once per `key` and process: times depend on shapes and not on weights, and
// a model that is loaded again gets the same.  Thread-safe.
bool FoundOnce(const std::string& key, absl::FunctionRef<bool()> find);

// Whether `run` takes less than 0.97 of the time that `usual` takes.
bool TakesLess(absl::FunctionRef<void()> run, absl::FunctionRef<void()> usual);

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_KERNELS_MEASURE_H_
