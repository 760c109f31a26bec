// Matrices of a model's weight file, laid out for kernels.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_LAYERS_COMMON_PACKED_WEIGHTS_H_
#define ULFD_ENGINE_LAYERS_COMMON_PACKED_WEIGHTS_H_

#include <cstdint>
#include <memory>
#include <utility>

#include "base/hash_map.h"
#include "engine/kernels/fc.h"
#include "engine/weights/weights.h"

namespace ulfd::engine {

// A matrix [k, n], stored as [n, k] if `transposed`, laid out for kernels.  REQUIRES: rank 2.
std::shared_ptr<const PackedMatrix> PackWeight(const Weight& weight, bool transposed);

// Lays each matrix out once, however many layers and plans read it, and knows which arrays of the
// file are needed no longer for that.  Not thread-safe.
class PackedWeights {
 public:
  // See PackWeight.  Who calls this keeps no view of the array.
  std::shared_ptr<const PackedMatrix> Get(const Weight& weight, bool transposed);
  // A layer holds the array in a form of its own, and keeps no view of it.
  void AddCopy(const Weight& weight) { ++uses_[weight.data.data()]; }
  // What layers hold in forms of their own.
  void AddBytes(int64_t bytes) { bytes_ += bytes; }
  // How often Get or AddCopy was called for the array.
  int64_t uses(const float* array) const;
  // Of all matrices and copies.
  int64_t bytes() const { return bytes_; }

 private:
  HashMap<std::pair<const float*, bool>, std::shared_ptr<const PackedMatrix>> matrices_;
  HashMap<const float*, int64_t> uses_;
  int64_t bytes_ = 0;
};

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_LAYERS_COMMON_PACKED_WEIGHTS_H_
