// NumPy .npz files: zip archives of .npy arrays, read and written.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_WEIGHTS_NPZ_H_
#define ULFD_ENGINE_WEIGHTS_NPZ_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/tensor/numbers.h"

namespace ulfd::engine {

// One array, row-major (Fortran-ordered files are transposed while reading).
struct NpyArray {
  NumberType type = NumberType::kFloat32;
  std::vector<int64_t> dims;  // Empty: a scalar.
  std::string bytes;          // Little-endian elements.

  int64_t elements() const;
  std::vector<float> ToFloat32() const;
  // As engine::ToInt64.
  std::vector<int64_t> ToInt64() const;
  static NpyArray FromFloat32(std::vector<int64_t> dims, const float* data);
  static NpyArray FromInt32(std::vector<int64_t> dims, const int32_t* data);
  static NpyArray FromInt64(std::vector<int64_t> dims, const int64_t* data);
};

using NpzArrays = std::map<std::string, NpyArray>;

// Reads every array.  Archive members "NAME.npy" become "NAME"; "%2F" in a name becomes "/". Errors
// name file and array; sizes are checked against the archive before anything is allocated, and what
// unpacks to more than 256 MiB and 32 times the file is refused.
absl::StatusOr<NpzArrays> ReadNpz(const std::string& path);
// Writes a NewFile, whose errors it has.  "/" in a name becomes "%2F".
absl::Status WriteNpz(const std::string& path, const NpzArrays& arrays);

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_WEIGHTS_NPZ_H_
