// SPDX-License-Identifier: Apache-2.0
#include "engine/layers/common/window.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/errors.h"
#include "base/status_macros.h"
#include "engine/layers/checks.h"

namespace ulfd::engine {

namespace {

constexpr int64_t kMaxValue = 4096;  // Keeps every product below far from an overflow.

absl::Status CheckValues(absl::string_view field, const UIntField& values, int64_t min) {
  for (uint32_t value : values) RETURN_IF_ERROR(WantBetween(field, value, min, kMaxValue));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::array<int64_t, 2>> ReadPair(absl::string_view field, const UIntField& values,
                                                int64_t otherwise, int64_t min) {
  RETURN_IF_ERROR(CheckValues(field, values, min));
  if (values.empty()) return std::array<int64_t, 2>{otherwise, otherwise};
  if (values.size() <= 2) return std::array<int64_t, 2>{values[0], values[values.size() - 1]};
  return InvalidArgument(field, ": ", values.size(), " values, want one, or height and width");
}

absl::StatusOr<std::array<int64_t, 4>> ReadPad(absl::string_view field, const UIntField& values) {
  RETURN_IF_ERROR(CheckValues(field, values, 0));
  switch (values.size()) {
    case 0:
      return std::array<int64_t, 4>{};
    case 1:
      return std::array<int64_t, 4>{values[0], values[0], values[0], values[0]};
    case 2:
      return std::array<int64_t, 4>{values[0], values[1], values[0], values[1]};
    case 4:
      return std::array<int64_t, 4>{values[0], values[1], values[2], values[3]};
  }
  return InvalidArgument(
      field, ": ", values.size(),
      " values, want one, two (height, width) or four (top, left, bottom, right)");
}

int64_t Window::Count(int axis, int64_t input) const {
  const int64_t room = input + pad[axis] + pad[axis + 2] - Extent(axis) + Overhang(axis);
  if (room < 0) return 0;
  const int64_t count = room / stride[axis] + 1;
  // The last one has to start within the image or the padding before it.
  return ceil && (count - 1) * stride[axis] >= input + pad[axis] ? count - 1 : count;
}

absl::StatusOr<Shape> Window::Output(const TensorSpec& in, Dim channels) const {
  Shape shape({in.shape[0], channels, Dim::Unknown(), Dim::Unknown()});
  for (int axis = 0; axis < 2; ++axis) {
    const Dim input = in.shape[axis + 2];
    if (!input.IsConst()) continue;
    const int64_t count = input.value() == 0 ? 0 : Count(axis, input.value());
    if (count < 1) {
      const int64_t need = Extent(axis) - pad[axis] - pad[axis + 2] - Overhang(axis);
      return BadInput(0, in, "a ", axis == 0 ? "height" : "width", " of at least ",
                      need < 1 ? 1 : need, " for ", ToString());
    }
    shape[axis + 2] = Dim::Of(count);
  }
  return shape;
}

std::string Window::ToString() const {
  std::string text = absl::StrCat("kernel_size=", size[0], "x", size[1], " stride=", stride[0], "x",
                                  stride[1], " pad=", absl::StrJoin(pad, ","));
  if (dilation[0] != 1 || dilation[1] != 1) {
    absl::StrAppend(&text, " dilation=", dilation[0], "x", dilation[1]);
  }
  if (ceil) absl::StrAppend(&text, " round_mode=CEIL");
  return text;
}

}  // namespace ulfd::engine
