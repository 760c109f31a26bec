// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/model_info.h"

namespace ulfd::engine {

int64_t InputInfo::RowWidth() const {
  if (!shape.ranked() || shape.rank() < 2) return 0;
  const Dim width = shape.RowElements();
  return width.IsConst() ? width.value() : 0;
}

TensorDims InputInfo::DimsOf(int64_t rows, int64_t width) const {
  TensorDims dims = {rows, width};
  if (width == 0 || width != RowWidth()) return dims;
  dims.pop_back();
  for (int i = 1; i < shape.rank(); ++i) dims.push_back(shape[i].value());
  return dims;
}

void InputInfo::FitColumn(TensorDims& dims) const {
  if (shape_stated && dims.size() == 1 && shape.rank() == 2 && RowWidth() == 1) dims.push_back(1);
}

}  // namespace ulfd::engine
