// Made-up requests of one user, like a given one but of another size, and several of them put
// together as the request of a batch of users.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TESTS_TESTING_USER_BATCH_H_
#define ULFD_TESTS_TESTING_USER_BATCH_H_

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "engine/runtime/model.h"

namespace ulfd::testing {

// Owns the data of a request's inputs.
class OwnedRequest {
 public:
  // Values drawn from those of `sample` and changed a little; rows of features have up to
  // `ids_per_row` ids.
  static OwnedRequest Make(const engine::ModelInfo& info,
                           absl::Span<const engine::NamedTensor> sample, int64_t ads,
                           int ids_per_row, std::mt19937& random);
  // REQUIRES: all of one model.
  static OwnedRequest Join(absl::Span<const OwnedRequest> users);

  const std::vector<engine::NamedTensor>& tensors() const { return tensors_; }

 private:
  struct Input {
    std::string name;
    engine::DType dtype;
    engine::TensorDims dims;
    std::vector<char> data;
  };
  void Point();

  std::vector<Input> inputs_;
  std::vector<engine::NamedTensor> tensors_;
};

// A result that outlives the workspace's next run.
struct OwnedOutput {
  engine::TensorDims dims;
  std::vector<float> values;
};
std::vector<OwnedOutput> Keep(const engine::RunResult& result);

// The rows of several results below one another, except those of constant outputs.
std::vector<OwnedOutput> Join(const engine::ModelInfo& info,
                              absl::Span<const std::vector<OwnedOutput>> users);

// The largest |a - b| / max(1, largest |b|) of all outputs; infinity where shapes differ, or one
// value is finite and the other is not.
double Difference(absl::Span<const OwnedOutput> a, absl::Span<const OwnedOutput> b);

}  // namespace ulfd::testing

#endif  // ULFD_TESTS_TESTING_USER_BATCH_H_
