// Weight matrices that passes put together.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_GRAPH_PASSES_WEIGHTS_H_
#define ULFD_ENGINE_GRAPH_PASSES_WEIGHTS_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "engine/graph/passes/columns.h"
#include "engine/layers/fused/fused_fc.h"
#include "engine/layers/semantics.h"

namespace ulfd::engine {

// Appends rows [first, first + count) of `w`, row-major.
template <typename T>
void AppendRows(const MatrixRef& w, int64_t first, int64_t count, std::vector<T>& rows) {
  rows.reserve(rows.size() + count * w.n);
  for (int64_t i = first; i < first + count; ++i) {
    for (int64_t j = 0; j < w.n; ++j) rows.push_back(w.at(i, j));
  }
}

// Appends rows [first, first + count) of `w`, which is shared, without a copy.
inline void AppendShared(const MatrixRef& w, int64_t first, int64_t count, MatrixRef& to) {
  to.k += count;
  to.n = w.n;
  for (const MatrixRef::Rows& part : w.rows) {
    const int64_t skipped = std::min(first, part.count);
    const int64_t taken = std::min(count, part.count - skipped);
    first -= skipped;
    count -= taken;
    if (taken == 0) continue;
    const int64_t begin = part.first + skipped;
    if (!to.rows.empty() && to.rows.back().matrix == part.matrix &&
        to.rows.back().first + to.rows.back().count == begin) {
      to.rows.back().count += taken;
    } else {
      to.rows.push_back({part.matrix, begin, taken});
    }
  }
}

// The whole of `w`, row-major.
inline std::vector<float> CopyOf(const MatrixRef& w) {
  std::vector<float> rows;
  AppendRows(w, 0, w.k, rows);
  return rows;
}

// Makes `rows` [options.k(), n] the weights of the layer, which keeps them.
inline void SetWeight(std::vector<float> rows, int64_t n, FusedFcOptions& options) {
  auto owned = std::make_shared<const std::vector<float>>(std::move(rows));
  options.weight = {owned->data(), options.k(), n, n, 1};
  options.owner = std::move(owned);
}

// The layer over some of the blocks, with their rows of the weights: those of the file stay where
// they are.
struct FcPart {
  FusedFcOptions options;
  std::vector<ValueId> inputs;
  std::vector<float> rows;  // Unless they are shared.

  void Add(const FusedFcOptions& whole, const FusedFcOptions::Block& block, ValueId value,
           int64_t first_row) {
    options.blocks.push_back({PlaceInput(value, inputs), block.offset, block.k});
    if (whole.weight.shared()) {
      AppendShared(whole.weight, first_row, block.k, options.weight);
    } else {
      AppendRows(whole.weight, first_row, block.k, rows);
    }
  }
  std::shared_ptr<const Layer> Make(int64_t n) {
    if (!options.weight.shared()) SetWeight(std::move(rows), n, options);
    return std::make_shared<FusedFc>(std::move(options));
  }
};

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_GRAPH_PASSES_WEIGHTS_H_
