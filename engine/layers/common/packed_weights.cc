// SPDX-License-Identifier: Apache-2.0
#include "engine/layers/common/packed_weights.h"

namespace ulfd::engine {

std::shared_ptr<const PackedMatrix> PackWeight(const Weight& weight, bool transposed) {
  const int64_t rows = weight.dims[0], columns = weight.dims[1];
  return std::make_shared<const PackedMatrix>(
      transposed ? PackedMatrix::Pack(weight.data.data(), columns, rows, 1, columns)
                 : PackedMatrix::Pack(weight.data.data(), rows, columns, columns, 1));
}

std::shared_ptr<const PackedMatrix> PackedWeights::Get(const Weight& weight, bool transposed) {
  ++uses_[weight.data.data()];
  std::shared_ptr<const PackedMatrix>& matrix = matrices_[{weight.data.data(), transposed}];
  if (matrix == nullptr) {
    matrix = PackWeight(weight, transposed);
    bytes_ += matrix->bytes();
  }
  return matrix;
}

int64_t PackedWeights::uses(const float* array) const {
  const auto found = uses_.find(array);
  return found == uses_.end() ? 0 : found->second;
}

}  // namespace ulfd::engine
