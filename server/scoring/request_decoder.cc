// SPDX-License-Identifier: Apache-2.0
#include "server/scoring/request_decoder.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "base/errors.h"
#include "base/status_macros.h"
#include "engine/runtime/request_rows.h"

namespace ulfd::server {
namespace {

namespace v1 = ulfd::v1;
using engine::DType;
using engine::FeatureInfo;
using engine::InputInfo;
using engine::Level;
using engine::Model;
using engine::ModelInfo;
using engine::Tensor;

template <typename... Parts>
absl::Status Bad(absl::string_view name, const Parts&... what) {
  return InvalidArgument("feature \"", name, "\": ", what...);
}

// Inputs of Run are not written to, whatever Tensor::data says.
template <typename T>
Tensor Borrow(DType dtype, const T* data, engine::TensorDims dims) {
  return {dtype, std::move(dims), const_cast<T*>(data)};
}

// Values of one row, where the number of ads may be told by it; else 0.
int64_t StatedWidth(const InputInfo& input) { return input.stated ? input.RowWidth() : 0; }

class Decoder {
 public:
  Decoder(const v1::PredictRequest& request, const Model& model, const RequestLimits& limits,
          DecodedRequest& decoded)
      : request_(request), model_(model), info_(model.info()), limits_(limits), decoded_(decoded) {}

  absl::Status Decode() {
    input_given_.resize(info_.inputs.size());
    decoded_.inputs.reserve(info_.inputs.size());
    for (const v1::Feature& feature : request_.user_features()) {
      RETURN_IF_ERROR(AddFeature(feature, /*of_ads=*/false));
    }
    for (const v1::Feature& feature : request_.ad_features()) {
      RETURN_IF_ERROR(AddFeature(feature, /*of_ads=*/true));
    }
    RETURN_IF_ERROR(FindMissing());
    RETURN_IF_ERROR(SettleAds());
    for (const auto& [feature, input] : shapeless_) RETURN_IF_ERROR(AddShapeless(*feature, input));
    for (const Stated& stated : stated_) {
      RETURN_IF_ERROR(CheckStatedShape(info_.inputs[stated.input], stated.dims, decoded_.ads,
                                       absl::StrCat("feature \"", stated.name, "\"")));
    }
    std::vector<absl::string_view> names(request_.outputs().begin(), request_.outputs().end());
    RETURN_IF_ERROR(ChooseOutputs(model_, names, decoded_.outputs));
    return AddTopK();
  }

 private:
  struct Stated {
    absl::string_view name;
    int input;
    engine::TensorDims dims;
  };

  absl::Status AddFeature(const v1::Feature& feature, bool of_ads) {
    switch (feature.kind_case()) {
      case v1::Feature::kSparse:
        return AddSparse(feature.name(), feature.sparse(), of_ads);
      case v1::Feature::kDense:
        return AddDense(feature, of_ads);
      case v1::Feature::KIND_NOT_SET:
        return Bad(feature.name(), "neither sparse nor dense");
    }
    return Bad(feature.name(), "neither sparse nor dense");
  }

  absl::Status Unknown(absl::string_view name) const {
    std::vector<absl::string_view> known;
    for (const FeatureInfo& feature : info_.features) known.push_back(feature.name);
    for (const InputInfo& input : info_.inputs) {
      if (input.feature < 0) known.push_back(input.name);
    }
    return Bad(name, "unknown", SuggestNames(name, known));
  }

  absl::Status CheckLevel(absl::string_view name, Level level, bool of_ads) const {
    if (level == Level::kUser && of_ads) {
      return Bad(name, "given as an ad feature, but it belongs to the user");
    }
    if (level == Level::kAd && !of_ads) {
      return Bad(name, "given as a user feature, but it belongs to the ads");
    }
    return absl::OkStatus();
  }

  absl::Status AgreeOnAds(absl::string_view name, int64_t rows) {
    return engine::AgreeOnAds("feature", name, rows, ads_from_, decoded_.ads);
  }

  absl::Status Claim(absl::string_view name, int input) {
    if (input_given_[input]) return Bad(name, "given twice");
    input_given_[input] = true;
    return absl::OkStatus();
  }

  absl::Status AddSparse(absl::string_view name, const v1::SparseFeature& sparse, bool of_ads) {
    const int index = model_.FindFeature(name);
    if (index < 0) {
      const int input = model_.FindInput(name);
      if (input < 0) return Unknown(name);
      return Bad(name, "given as sparse, want a dense tensor of ", Name(info_.inputs[input].dtype));
    }
    const FeatureInfo& feature = info_.features[index];
    RETURN_IF_ERROR(Claim(name, feature.ids));
    RETURN_IF_ERROR(CheckLevel(name, feature.level, of_ads));
    const int64_t ids = sparse.ids_size();
    total_ids_ += ids;
    RETURN_IF_ERROR(CheckIds(ids, total_ids_, limits_, absl::StrCat("feature \"", name, "\"")));
    if (sparse.values_size() != 0 && sparse.values_size() != ids) {
      return Bad(name, sparse.values_size(), " values for ", ids, " ids");
    }
    const bool counted = sparse.counts_size() != 0;
    if (counted) {
      RETURN_IF_ERROR(engine::CheckCounts(sparse.counts(), ids,
                                          absl::StrCat("feature \"", name, "\": counts")));
    }
    const int64_t rows = counted ? sparse.counts_size() : of_ads ? ids : 1;
    if (of_ads) {
      RETURN_IF_ERROR(AgreeOnAds(name, rows));
    } else if (rows != 1) {
      return Bad(name, rows, " rows, want 1: it is a user feature");
    }
    EmitSparse(feature, sparse, of_ads);
    return absl::OkStatus();
  }

  void EmitSparse(const FeatureInfo& feature, const v1::SparseFeature& sparse, bool of_ads) {
    const int64_t ids = sparse.ids_size();
    decoded_.inputs.push_back(
        {info_.inputs[feature.ids].name, Borrow(DType::kInt64, sparse.ids().data(), {ids})});
    if (sparse.values_size() != 0) {
      decoded_.inputs.push_back({info_.inputs[feature.values].name,
                                 Borrow(DType::kFloat32, sparse.values().data(), {ids})});
    }
    absl::Span<const int32_t> counts = sparse.counts();
    if (counts.empty() && feature.level != Level::kUser && feature.level != Level::kAd) {
      // The engine knows what a feature without counts means only where the level is known.
      counts =
          decoded_.made.emplace_back(of_ads ? std::vector<int32_t>(ids, 1)
                                            : std::vector<int32_t>(1, static_cast<int32_t>(ids)));
    }
    if (counts.empty()) return;
    decoded_.inputs.push_back(
        {info_.inputs[feature.segments].name,
         Borrow(DType::kInt32, counts.data(), {static_cast<int64_t>(counts.size())})});
  }

  // The values of a dense feature, seen as one long row; INVALID_ARGUMENT for floats where `want`
  // is integers.
  absl::StatusOr<Tensor> DenseValues(absl::string_view name, const v1::DenseTensor& dense,
                                     DType want) const {
    const int64_t floats = dense.floats_size(), int32s = dense.int32s_size(),
                  int64s = dense.int64s_size();
    if ((floats != 0) + (int32s != 0) + (int64s != 0) > 1) {
      return Bad(name, "values of several types, want one");
    }
    const DType found = int32s != 0   ? DType::kInt32
                        : int64s != 0 ? DType::kInt64
                        : floats != 0 ? DType::kFloat32
                                      : want;
    if (found == DType::kFloat32 && want != found) {
      return Bad(name, engine::Name(found), " values, want ", engine::Name(want));
    }
    switch (found) {
      case DType::kInt32:
        return Borrow(found, dense.int32s().data(), {int32s});
      case DType::kInt64:
        return Borrow(found, dense.int64s().data(), {int64s});
      case DType::kFloat32:
        break;
    }
    return Borrow(found, dense.floats().data(), {floats});
  }

  absl::Status EmitDense(absl::string_view name, int index, Tensor tensor) {
    const InputInfo& input = info_.inputs[index];
    if (tensor.dtype != input.dtype) {
      ASSIGN_OR_RETURN(
          tensor.data,
          MakeNumbers({engine::TypeOf(tensor.dtype), tensor.dims, tensor.data}, {}, input.dtype,
                      limits_, absl::StrCat("feature \"", name, "\""), decoded_));
      tensor.dtype = input.dtype;
    }
    stated_.push_back({name, index, tensor.dims});
    decoded_.inputs.push_back({input.name, std::move(tensor)});
    return absl::OkStatus();
  }

  absl::Status AddDense(const v1::Feature& feature, bool of_ads) {
    const std::string& name = feature.name();
    const int index = model_.FindInput(name);
    if (index < 0) {
      if (model_.FindFeature(name) < 0) return Unknown(name);
      return Bad(name, "given as dense, want a sparse feature");
    }
    const InputInfo& input = info_.inputs[index];
    if (input.feature >= 0) {
      return Bad(name, "is a part of the sparse feature \"", info_.features[input.feature].name,
                 "\"");
    }
    RETURN_IF_ERROR(Claim(name, index));
    RETURN_IF_ERROR(CheckLevel(name, engine::LevelOfDense(input, of_ads ? 0 : 1), of_ads));
    const v1::DenseTensor& dense = feature.dense();
    ASSIGN_OR_RETURN(Tensor tensor, DenseValues(name, dense, input.dtype));
    const int64_t n = tensor.dims[0];
    if (dense.shape_size() == 0) {
      if (of_ads) {
        shapeless_.emplace_back(&feature, index);
        return absl::OkStatus();
      }
      tensor.dims = input.DimsOf(1, n);
    } else {
      const std::string what = absl::StrCat("feature \"", name, "\"");
      ASSIGN_OR_RETURN(const int64_t want, CountElements(dense.shape(), what));
      if (want != n) {
        return Bad(name, n, " values, want ", want, " for shape ", engine::ToString(dense.shape()));
      }
      tensor.dims.assign(dense.shape().begin(), dense.shape().end());
      input.FitRows(tensor.dims);
    }
    if (of_ads) {
      RETURN_IF_ERROR(AgreeOnAds(name, tensor.dims[0]));
    } else if (tensor.dims[0] != 1) {
      return Bad(name, tensor.dims[0], " rows, want 1: it is a user feature");
    }
    return EmitDense(name, index, std::move(tensor));
  }

  // An ad feature whose shape follows from the number of ads.
  absl::Status AddShapeless(const v1::Feature& feature, int index) {
    const InputInfo& input = info_.inputs[index];
    ASSIGN_OR_RETURN(Tensor tensor, DenseValues(feature.name(), feature.dense(), input.dtype));
    const int64_t n = tensor.dims[0];
    if (n % decoded_.ads != 0) {
      return Bad(feature.name(), n, " values for ", decoded_.ads, " ads: not as many for each ad");
    }
    tensor.dims = input.DimsOf(decoded_.ads, n / decoded_.ads);
    return EmitDense(feature.name(), index, std::move(tensor));
  }

  // The number of ads, if no feature has told it yet.
  absl::Status SettleAds() {
    if (!ads_from_.has_value() && shapeless_.empty()) {
      decoded_.ads = 1;
      return absl::OkStatus();
    }
    if (!ads_from_.has_value()) {
      const auto& [feature, index] = shapeless_.front();
      const int64_t width = StatedWidth(info_.inputs[index]);
      if (width == 0) {
        return Bad(feature->name(), "no shape, and no other feature tells the number of ads");
      }
      ASSIGN_OR_RETURN(const Tensor tensor,
                       DenseValues(feature->name(), feature->dense(), info_.inputs[index].dtype));
      decoded_.ads = tensor.dims[0] / width;
    }
    return CheckAds(decoded_.ads, limits_);
  }

  absl::Status FindMissing() const {
    for (const FeatureInfo& feature : info_.features) {
      const auto used = [&](int i) { return i >= 0 && info_.inputs[i].used; };
      if (input_given_[feature.ids]) continue;
      if (!used(feature.ids) && !used(feature.values) && !used(feature.segments)) continue;
      return Bad(feature.name, "missing; the model wants this sparse feature",
                 ForWhom(feature.level));
    }
    for (size_t i = 0; i < info_.inputs.size(); ++i) {
      const InputInfo& input = info_.inputs[i];
      if (input.feature >= 0 || input_given_[i] || !input.used) continue;
      return Bad(input.name, "missing; the model wants this dense ", Name(input.dtype), " tensor",
                 ForWhom(input.level));
    }
    return absl::OkStatus();
  }

  static absl::string_view ForWhom(Level level) {
    return level == Level::kUser ? " of the user" : level == Level::kAd ? " of each ad" : "";
  }

  absl::Status AddTopK() {
    if (!request_.has_top_k()) return absl::OkStatus();
    const v1::TopK& top_k = request_.top_k();
    if (top_k.k() < 1) {
      return InvalidArgument("top_k.k: ", top_k.k(), ", want at least 1");
    }
    decoded_.top_k.k = top_k.k();
    decoded_.top_k.column = top_k.column();
    if (!top_k.output().empty()) {
      ASSIGN_OR_RETURN(decoded_.top_k.output, FindOutputNamed(model_, top_k.output()));
      return absl::OkStatus();
    }
    // A user's vector may come before the scores.
    const auto found =
        std::find_if(decoded_.outputs.begin(), decoded_.outputs.end(),
                     [this](int output) { return info_.outputs[output].level != Level::kUser; });
    if (found == decoded_.outputs.end()) {
      return InvalidArgument("top_k: no output that is asked for has a row per ad");
    }
    decoded_.top_k.output = *found;
    return absl::OkStatus();
  }

  const v1::PredictRequest& request_;
  const Model& model_;
  const ModelInfo& info_;
  const RequestLimits& limits_;
  DecodedRequest& decoded_;
  std::vector<bool> input_given_;  // By input; a sparse feature's is that of its ids.
  int64_t total_ids_ = 0;
  std::optional<absl::string_view> ads_from_;  // The feature that told the number of ads.
  std::vector<std::pair<const v1::Feature*, int>> shapeless_;
  std::vector<Stated> stated_;
};

}  // namespace

absl::StatusOr<ModelChoice> ChoiceOf(const v1::ModelSpec& spec) {
  if (spec.name().empty()) return InvalidArgument("model.name: empty");
  ModelChoice choice{.name = spec.name()};
  if (spec.has_version()) {
    if (spec.version() < 1) {
      return InvalidArgument("model.version: ", spec.version(), ", want a positive number");
    }
    choice.version = spec.version();
  }
  if (spec.has_label()) {
    if (spec.label().empty()) return InvalidArgument("model.label: empty");
    choice.label = spec.label();
  }
  return choice;
}

namespace {

// What the ad features say of the number of ads.
int64_t StatedAds(const v1::PredictRequest& request, const Model& model) {
  int64_t ads = 1;
  for (const v1::Feature& feature : request.ad_features()) {
    if (feature.has_sparse()) {
      const v1::SparseFeature& sparse = feature.sparse();
      return sparse.counts_size() != 0 ? sparse.counts_size() : sparse.ids_size();
    }
    const v1::DenseTensor& dense = feature.dense();
    if (dense.shape_size() != 0) return dense.shape(0);
    const int index = model.FindInput(feature.name());
    if (index < 0) continue;
    const int64_t width = StatedWidth(model.info().inputs[index]);
    if (width > 0) ads = (dense.floats_size() + dense.int32s_size() + dense.int64s_size()) / width;
  }
  return ads;
}

}  // namespace

int64_t CountRows(const v1::PredictRequest& request, const Model& model,
                  const RequestLimits& limits) {
  int64_t rows = std::clamp<int64_t>(StatedAds(request, model), 1, limits.max_ads);
  int64_t ids = 0;
  for (const auto* features : {&request.user_features(), &request.ad_features()}) {
    for (const v1::Feature& feature : *features) {
      ids += feature.sparse().ids_size();
      if (!feature.has_dense()) continue;
      const int index = model.FindInput(feature.name());
      if (index < 0) continue;
      const v1::DenseTensor& dense = feature.dense();
      const int64_t values =
          int64_t{dense.floats_size()} + dense.int32s_size() + dense.int64s_size();
      rows =
          std::max(rows, RowsOfValues(model.info().inputs[index], dense.shape(), values, limits));
    }
  }
  return std::max(rows, RowsOfIds(ids));
}

absl::Status DecodeRequest(const v1::PredictRequest& request, const Model& model,
                           const RequestLimits& limits, DecodedRequest& decoded) {
  if (request.request_id().size() > kMaxRequestIdBytes) {
    return InvalidArgument("request_id: ", request.request_id().size(), " bytes, want at most ",
                           kMaxRequestIdBytes);
  }
  return Decoder(request, model, limits, decoded).Decode();
}

}  // namespace ulfd::server
