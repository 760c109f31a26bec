// SPDX-License-Identifier: Apache-2.0
#include "server/scoring/kserve_rows.h"

#include <algorithm>
#include <string>
#include <vector>

#include "base/errors.h"
#include "engine/runtime/request_rows.h"
#include "server/scoring/kserve_tensors.h"

namespace ulfd::server {

using engine::FeatureInfo;
using engine::InputInfo;
using engine::Level;
using engine::MatrixInfo;
using engine::Model;
using engine::ModelInfo;
using Input = inference::ModelInferRequest::InferInputTensor;

absl::Status UnknownInput(absl::string_view name, const ModelInfo& info) {
  std::vector<absl::string_view> known;
  for (const InputInfo& input : info.inputs) known.push_back(input.name);
  for (const MatrixInfo& matrix : info.matrices) known.push_back(matrix.name);
  return InvalidArgument("input \"", name, "\": unknown", SuggestNames(name, known));
}

absl::Status CheckLeadingRows(absl::string_view name, int64_t rows, const RequestLimits& limits) {
  if (rows <= limits.max_ads) return absl::OkStatus();
  return ResourceExhausted("input \"", name, "\": ", rows, " rows, want at most ", limits.max_ads,
                           " (limits.max_ads)");
}

namespace {

// What the model knows of an input of a request.
struct Known {
  const InputInfo* info = nullptr;       // Of a matrix: null.
  const FeatureInfo* feature = nullptr;  // Null: no part of one.
  const MatrixInfo* matrix = nullptr;
  explicit operator bool() const { return info != nullptr || matrix != nullptr; }
  // Ids and values: a row may have any number of them.
  bool many_per_row(const ModelInfo& model) const {
    return feature != nullptr && info != &model.inputs[feature->segments];
  }
};

Known FindKnown(const Model& model, const std::string& name) {
  const ModelInfo& info = model.info();
  if (const int index = model.FindInput(name); index >= 0) {
    const InputInfo& input = info.inputs[index];
    return {.info = &input, .feature = input.feature < 0 ? nullptr : &info.features[input.feature]};
  }
  const int matrix = model.FindMatrix(name);
  return {.matrix = matrix < 0 ? nullptr : &info.matrices[matrix]};
}

// Of a known input with so many rows.
Level LevelOf(const Known& known, int64_t rows, const ModelInfo& info) {
  if (known.feature != nullptr) return known.feature->level;
  if (known.matrix == nullptr) return engine::LevelOfDense(*known.info, rows);
  Level level = Level::kUser;  // Of parts of both the rows are the ads'.
  for (const MatrixInfo::Part& part : known.matrix->parts) {
    const Level own = part.feature >= 0 ? info.features[part.feature].level
                                        : engine::LevelOfDense(info.inputs[part.input], rows);
    if (own != Level::kUser) level = own;
  }
  return level;
}

// What the inputs say of the number of ads.
int64_t StatedAds(const inference::ModelInferRequest& request, const Model& model) {
  int64_t rows = 1;
  for (const Input& input : request.inputs()) {
    const Known known = FindKnown(model, input.name());
    if (!known || input.shape_size() == 0) continue;
    const Level level = LevelOf(known, input.shape(0), model.info());
    if (level == Level::kUser) continue;
    if (level == Level::kAd && !known.many_per_row(model.info())) return input.shape(0);
    rows = std::max<int64_t>(rows, input.shape(0));
  }
  return rows;
}

// `values(input)`: how many an input has.
template <typename Values>
int64_t CountRowsBy(const inference::ModelInferRequest& request, const Model& model,
                    const RequestLimits& limits, Values values) {
  int64_t rows = std::clamp<int64_t>(StatedAds(request, model), 1, limits.max_ads);
  int64_t ids = 0;
  for (int i = 0; i < request.inputs_size(); ++i) {
    const Input& input = request.inputs(i);
    const Known known = FindKnown(model, input.name());
    if (!known) continue;
    const bool matrix = known.matrix != nullptr;
    const int64_t count = values(i);
    if (matrix && known.matrix->columns > 0) {
      rows = std::max(rows, std::min(count / known.matrix->columns, limits.max_ads));
    } else if (!matrix && known.feature == nullptr) {
      rows = std::max(rows, RowsOfValues(*known.info, input.shape(), count, limits));
    } else if (matrix || known.info == &model.info().inputs[known.feature->ids]) {
      ids += count;
    }
  }
  return std::max(rows, RowsOfIds(ids));
}

}  // namespace

int64_t CountRows(const inference::ModelInferRequest& request, const Model& model,
                  const RequestLimits& limits) {
  // What the message holds, whatever its shapes say.
  return CountRowsBy(request, model, limits,
                     [&](int input) { return NumbersIn(request, input).dims[0]; });
}

int64_t CountRowsByShapes(const inference::ModelInferRequest& request, const Model& model,
                          const RequestLimits& limits) {
  return CountRowsBy(request, model, limits, [&](int input) {
    const auto elements = CountElements(request.inputs(input).shape(), "");
    return elements.ok() ? *elements : 0;
  });
}

absl::Status CheckNamesAndRows(const inference::ModelInferRequest& request, const Model& model,
                               const RequestLimits& limits) {
  for (const Input& input : request.inputs()) {
    const Known known = FindKnown(model, input.name());
    if (!known) return UnknownInput(input.name(), model.info());
    const int64_t rows = input.shape_size() == 0 ? 0 : input.shape(0);
    if (known.many_per_row(model.info()) || rows <= limits.max_ads) continue;
    if (known.matrix != nullptr || LevelOf(known, rows, model.info()) == Level::kUser) {
      return CheckLeadingRows(input.name(), rows, limits);
    }
    return CheckAds(rows, limits);
  }
  return absl::OkStatus();
}

}  // namespace ulfd::server
