// A load within limits, as the daemon does it.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TESTS_FUZZ_BOUNDED_LOAD_H_
#define ULFD_TESTS_FUZZ_BOUNDED_LOAD_H_

#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "base/load_scope.h"
#include "engine/runtime/model.h"
#include "tests/fuzz/fuzz.h"

namespace ulfd::fuzz {

// Loads the version directory and warms it up; null where that says why not.  Less than a finding
// takes in memory, and in time.
inline std::unique_ptr<const engine::Model> LoadBounded(const std::string& directory) {
  const LoadScope scope({.max_memory_bytes = int64_t{256} << 20,
                         .deadline = std::chrono::steady_clock::now() + std::chrono::seconds(3)});
  std::unique_ptr<const engine::Model> model;
  const absl::Status status = WithinMemory([&]() -> absl::Status {
    auto loaded = engine::Model::Load({.directory = directory});
    if (!loaded.ok()) return loaded.status();
    engine::Workspace workspace;
    engine::RunResult result;
    const absl::Status warm = (*loaded)->RunWarmup(3, {}, workspace, result);
    if (warm.ok()) model = *std::move(loaded);
    return warm;
  });
  const LoadScope::WithoutRefusals for_the_messages;
  CheckMessage(status);
  return model;
}

}  // namespace ulfd::fuzz

#endif  // ULFD_TESTS_FUZZ_BOUNDED_LOAD_H_
