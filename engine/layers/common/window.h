// Windows that slide over an image: the parameters that convolution and pooling share.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_LAYERS_COMMON_WINDOW_H_
#define ULFD_ENGINE_LAYERS_COMMON_WINDOW_H_

#include <array>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/tensor/tensor.h"
#include "google/protobuf/repeated_field.h"

namespace ulfd::engine {

using UIntField = google::protobuf::RepeatedField<uint32_t>;

// Pairs are (height, width), pad is (top, left, bottom, right).
struct Window {
  std::array<int64_t, 2> size{1, 1}, stride{1, 1}, dilation{1, 1};
  std::array<int64_t, 4> pad{};
  bool ceil = false;  // A last window may hang over the padded image, if it starts within it.

  // From the first to behind the last element along `axis`.
  int64_t Extent(int axis) const { return dilation[axis] * (size[axis] - 1) + 1; }
  // How much of a window may lie behind the padded image.
  int64_t Overhang(int axis) const { return ceil ? stride[axis] - 1 : 0; }
  // Windows along `axis` of an image that is `input` wide there; 0: none fits.
  int64_t Count(int axis, int64_t input) const;
  // [rows, `channels`, windows down, windows across] for input 0: [rows, ?, height, width].
  // Error: no window fits, "input 0: shape [1, 3, 2, 2], want a height of at least 5".
  absl::StatusOr<Shape> Output(const TensorSpec& in, Dim channels) const;
  // "kernel_size=3x3 stride=2x2 pad=1,1,1,1"
  std::string ToString() const;
};

// One value for both, or two.  `otherwise` if there is none.  Errors: three and more, a value below
// `min` or above 4096.
absl::StatusOr<std::array<int64_t, 2>> ReadPair(absl::string_view field, const UIntField& values,
                                                int64_t otherwise, int64_t min);
// One value for all sides, two (height, width) or four.  None: zeros.
absl::StatusOr<std::array<int64_t, 4>> ReadPad(absl::string_view field, const UIntField& values);

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_LAYERS_COMMON_WINDOW_H_
