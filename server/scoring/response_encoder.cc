// SPDX-License-Identifier: Apache-2.0
#include "server/scoring/response_encoder.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "base/errors.h"
#include "base/status_macros.h"

namespace ulfd::server {
namespace {

using engine::DType;
using engine::Tensor;

// Elements per row; 1 for a tensor without further dimensions.
int64_t RowSize(const Tensor& tensor) {
  int64_t size = 1;
  for (int i = 1; i < tensor.rank(); ++i) size *= tensor.dims[i];
  return size;
}

// Appends elements [begin, begin + n), as floats.
void Append(const Tensor& tensor, int64_t begin, int64_t n,
            google::protobuf::RepeatedField<float>& out) {
  switch (tensor.dtype) {
    case DType::kFloat32:
      out.Add(tensor.f32() + begin, tensor.f32() + begin + n);
      return;
    case DType::kInt32:
      out.Add(tensor.i32() + begin, tensor.i32() + begin + n);
      return;
    case DType::kInt64:
      out.Add(tensor.i64() + begin, tensor.i64() + begin + n);
      return;
  }
}

// What the graph does not tell, the shape does.
bool HasRowPerAd(const Tensor& tensor, const engine::OutputInfo& info, int64_t ads) {
  const bool may = info.level == engine::Level::kAd || info.level == engine::Level::kUnknown;
  const bool fixed = info.shape.rank() > 0 && info.shape[0].IsConst();
  return may && !fixed && tensor.rank() > 0 && tensor.dims[0] == ads;
}

void EncodeOutput(const Tensor& tensor, const engine::OutputInfo& info,
                  const std::optional<Ranking>& ranking, int64_t ads, ulfd::v1::OutputTensor& out) {
  out.set_name(info.name);
  out.mutable_shape()->Add(tensor.dims.begin(), tensor.dims.end());
  if (!ranking || !HasRowPerAd(tensor, info, ads)) {
    out.mutable_values()->Reserve(static_cast<int>(tensor.elements()));
    Append(tensor, 0, tensor.elements(), *out.mutable_values());
    return;
  }
  const int64_t row = RowSize(tensor);
  out.set_shape(0, static_cast<int64_t>(ranking->indices.size()));
  out.mutable_values()->Reserve(static_cast<int>(row * ranking->indices.size()));
  for (int32_t ad : ranking->indices) Append(tensor, ad * row, row, *out.mutable_values());
}

}  // namespace

int64_t ReplyBytes(const DecodedRequest& decoded, const engine::ModelInfo& info,
                   absl::Span<const Tensor> outputs) {
  const int64_t k = std::min(decoded.top_k.k, decoded.ads);
  int64_t bytes = 0;
  for (const int output : decoded.outputs) {
    const Tensor& tensor = outputs[output];
    const auto all = static_cast<int64_t>(tensor.bytes());
    const bool picked = k > 0 && HasRowPerAd(tensor, info.outputs[output], decoded.ads);
    bytes += picked ? all / decoded.ads * k : all;
  }
  return bytes;
}

absl::StatusOr<Ranking> RankAds(const Tensor& tensor, const engine::OutputInfo& info,
                                const TopKChoice& choice, int64_t ads) {
  const auto bad = [&](const auto&... text) {
    return InvalidArgument("top_k: output \"", info.name, "\" ", text...);
  };
  if (tensor.dtype != DType::kFloat32)
    return bad("is ", engine::Name(tensor.dtype), ", want float32");
  if (!HasRowPerAd(tensor, info, ads)) {
    return bad("of shape ", engine::ToString(tensor.dims), " has no row for each of the ", ads,
               " ads, want one that has");
  }
  const int64_t columns = RowSize(tensor);
  const int64_t column = choice.column < 0 ? columns + choice.column : choice.column;
  if (column < 0 || column >= columns) {
    return bad("has ", columns, " columns, want column ", choice.column);
  }
  const float* scores = tensor.f32() + column;
  // Strictly before: NaN after every number, then higher first, then the request's order.
  const auto before = [&](int32_t a, int32_t b) {
    const float x = scores[a * columns], y = scores[b * columns];
    if (std::isnan(x) != std::isnan(y)) return std::isnan(y);
    if (x != y && !std::isnan(x)) return x > y;
    return a < b;
  };
  Ranking ranking;
  ranking.indices.resize(ads);
  std::iota(ranking.indices.begin(), ranking.indices.end(), 0);
  const int64_t k = std::min(choice.k, ads);
  std::partial_sort(ranking.indices.begin(), ranking.indices.begin() + k, ranking.indices.end(),
                    before);
  ranking.indices.resize(k);
  for (int32_t ad : ranking.indices) ranking.scores.push_back(scores[ad * columns]);
  return ranking;
}

absl::Status EncodeResponse(const ulfd::v1::PredictRequest& request, const DecodedRequest& decoded,
                            const engine::ModelInfo& info, const engine::RunResult& result,
                            ulfd::v1::PredictResponse& response) {
  response.mutable_model()->set_name(info.name);
  response.mutable_model()->set_version(info.version);
  response.set_request_id(request.request_id());
  response.set_missing_ids(std::accumulate(result.stats.missing_ids.begin(),
                                           result.stats.missing_ids.end(), int64_t{0}));
  response.set_late_ids(decoded.late_ids);
  std::optional<Ranking> ranking;
  if (decoded.top_k.k > 0) {
    const int output = decoded.top_k.output;
    ASSIGN_OR_RETURN(
        ranking, RankAds(result.outputs[output], info.outputs[output], decoded.top_k, decoded.ads));
    response.mutable_indices()->Add(ranking->indices.begin(), ranking->indices.end());
    response.mutable_scores()->Add(ranking->scores.begin(), ranking->scores.end());
  }
  for (int output : decoded.outputs) {
    EncodeOutput(result.outputs[output], info.outputs[output], ranking, decoded.ads,
                 *response.add_outputs());
  }
  return absl::OkStatus();
}

int64_t CountNonFinite(const engine::RunResult& result, const DecodedRequest& decoded) {
  int64_t count = 0;
  const auto add = [&](int output) {
    const Tensor& tensor = result.outputs[output];
    if (tensor.dtype != DType::kFloat32) return;
    const float* data = tensor.f32();
    for (int64_t i = 0, n = tensor.elements(); i < n; ++i) count += std::isfinite(data[i]) ? 0 : 1;
  };
  const std::vector<int>& wanted = decoded.outputs;
  for (int output : wanted) add(output);
  const TopKChoice& top = decoded.top_k;
  if (top.k > 0 && std::find(wanted.begin(), wanted.end(), top.output) == wanted.end()) {
    add(top.output);
  }
  return count;
}

void FillTimings(const CallTimes& times, ulfd::v1::Timings& out) {
  constexpr int64_t kNsPerUs = 1000;
  out.set_queue_us(times.queue_ns / kNsPerUs);
  out.set_fetch_us(times.fetch_ns / kNsPerUs);
  out.set_decode_us(times.decode_ns / kNsPerUs);
  out.set_embed_us(times.embed_ns / kNsPerUs);
  out.set_user_us(times.user_ns / kNsPerUs);
  out.set_dense_us(times.dense_ns / kNsPerUs);
  out.set_encode_us(times.encode_ns / kNsPerUs);
  out.set_total_us(times.total_ns / kNsPerUs);
}

}  // namespace ulfd::server
