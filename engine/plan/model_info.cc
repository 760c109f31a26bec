// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/model_info.h"

#include <functional>
#include <numeric>

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

namespace {

int64_t ElementsOf(const TensorDims& dims) {
  return std::accumulate(dims.begin(), dims.end(), int64_t{1}, std::multiplies<>());
}

}  // namespace

void InputInfo::FitRows(TensorDims& dims) const {
  if (!shape_stated || RowWidth() == 0) return;
  const bool column = shape.rank() == 2 && RowWidth() == 1;
  const auto rank = static_cast<size_t>(shape.rank()), least = column ? 1 : rank;
  if (level == Level::kUser && dims.size() + 1 == least && ElementsOf(dims) == RowWidth()) {
    dims.insert(dims.begin(), 1);
  } else if (level == Level::kAd && dims.size() > least && dims.size() <= rank + 1 &&
             dims[0] == 1) {
    dims.erase(dims.begin());
  }
  if (column && dims.size() == 1) dims.push_back(1);
}

void FitMatrix(int64_t columns, TensorDims& dims) {
  const int64_t elements = ElementsOf(dims);
  const bool behind = dims.size() > 1 && dims[0] == 1 && dims[1] == elements / columns;
  if (elements % columns == 0 && (behind || elements == columns)) {
    dims = {elements / columns, columns};
  }
}

}  // namespace ulfd::engine
