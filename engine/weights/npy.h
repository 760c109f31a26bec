// The .npy array format: headers parsed and written.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_WEIGHTS_NPY_H_
#define ULFD_ENGINE_WEIGHTS_NPY_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "engine/weights/npz.h"

namespace ulfd::engine {

// Bytes of an array of these dimensions.  INVALID_ARGUMENT for those that no tensor has, by
// CheckDims; where a dimension of 0 makes the product 0, also for more than 2^31 bytes of the
// others, so that loops over them end.
absl::StatusOr<int64_t> ArrayBytes(absl::Span<const int64_t> dims, NumberType type);

// What stands before the elements.
struct NpyHeader {
  NumberType type = NumberType::kFloat32;
  bool fortran_order = false;
  std::vector<int64_t> dims;
};

// Magic, version and length field; together with the text they make the header.
inline constexpr size_t kNpyPrefixBytes = 12;
// From the first kNpyPrefixBytes of a file (versions 1.0, 2.0 and 3.0): where the text begins and
// where it ends.
struct NpyTextRange {
  size_t begin = 0, end = 0;
};
absl::StatusOr<NpyTextRange> FindNpyText(absl::string_view prefix);

// Parses the text, a Python dict with the keys descr, fortran_order and shape.  Big-endian, object,
// structured and string arrays are refused by name.
absl::StatusOr<NpyHeader> ParseNpyText(absl::string_view text);

// A version 1.0 header, padded to a multiple of 64 bytes as numpy does.
std::string MakeNpyHeader(NumberType type, absl::Span<const int64_t> dims);

// Fortran order to row-major.
std::string TransposeFortran(const std::string& bytes, absl::Span<const int64_t> dims, size_t size);

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_WEIGHTS_NPY_H_
