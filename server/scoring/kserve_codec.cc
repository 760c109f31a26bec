// KServe v2: requests decoded, answers encoded.
// SPDX-License-Identifier: Apache-2.0
#include "server/scoring/kserve_codec.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/errors.h"
#include "base/model_version.h"
#include "base/status_macros.h"
#include "engine/runtime/request_rows.h"
#include "server/scoring/kserve_rows.h"
#include "server/scoring/kserve_tensors.h"

namespace ulfd::server {
namespace {

using engine::DType;
using engine::FeatureInfo;
using engine::InputInfo;
using engine::MatrixInfo;
using engine::Model;
using engine::ModelInfo;
using engine::NumberArray;
using engine::NumberType;
using engine::Tensor;
using Input = inference::ModelInferRequest::InferInputTensor;

template <typename... Parts>
absl::Status Bad(absl::string_view name, const Parts&... what) {
  return InvalidArgument("input \"", name, "\": ", what...);
}

template <typename Map>
absl::Status WantNoParameters(absl::string_view where, const Map& parameters) {
  if (parameters.empty()) return absl::OkStatus();
  return InvalidArgument(where, "parameter \"", parameters.begin()->first,
                         "\": unknown, want none");
}

class Decoder {
 public:
  Decoder(const inference::ModelInferRequest& request, const Model& model,
          const RequestLimits& limits, DecodedRequest& decoded)
      : request_(request), model_(model), info_(model.info()), limits_(limits), decoded_(decoded) {}

  absl::Status Decode() {
    RETURN_IF_ERROR(CheckEnvelope());
    given_.resize(info_.inputs.size(), -1);
    forms_.resize(info_.inputs.size());
    decoded_.inputs.reserve(info_.inputs.size());
    for (int i = 0; i < request_.inputs_size(); ++i) RETURN_IF_ERROR(AddInput(i));
    for (const FeatureInfo& feature : info_.features) RETURN_IF_ERROR(CheckFeature(feature));
    for (size_t i = 0; i < info_.inputs.size(); ++i) {
      if (info_.inputs[i].feature < 0) RETURN_IF_ERROR(WantGiven(static_cast<int>(i)));
    }
    std::vector<Tensor*> given(info_.inputs.size(), nullptr);
    for (size_t i = 0; i < given.size(); ++i) {
      if (given_[i] >= 0) given[i] = &decoded_.inputs[given_[i]].tensor;
    }
    ASSIGN_OR_RETURN(const engine::RequestRows rows, engine::SettleRows(info_, given));
    decoded_.ads = rows.ads;
    decoded_.tiled_inputs = rows.tiled_inputs;
    RETURN_IF_ERROR(CheckAds(decoded_.ads, limits_));
    for (size_t i = 0; i < info_.inputs.size(); ++i) {
      if (given_[i] < 0 || info_.inputs[i].feature >= 0) continue;
      RETURN_IF_ERROR(
          CheckLeadingRows(info_.inputs[i].name, Given(static_cast<int>(i)).dims[0], limits_));
      RETURN_IF_ERROR(CheckStatedShape(info_.inputs[i], Given(static_cast<int>(i)).dims,
                                       decoded_.ads,
                                       absl::StrCat("input \"", info_.inputs[i].name, "\"")));
    }
    return AddOutputs();
  }

 private:
  absl::Status CheckEnvelope() const {
    RETURN_IF_ERROR(WantNoParameters("", request_.parameters()));
    if (request_.id().size() > kMaxRequestIdBytes) {
      return InvalidArgument("id: ", request_.id().size(), " bytes, want at most ",
                             kMaxRequestIdBytes);
    }
    const int raw = request_.raw_input_contents_size();
    if (raw != 0 && raw != request_.inputs_size()) {
      return InvalidArgument("raw_input_contents: ", raw, " entries for ", request_.inputs_size(),
                             " inputs, want one for each");
    }
    return absl::OkStatus();
  }

  absl::Status AddInput(int position) {
    const Input& input = request_.inputs(position);
    const int index = model_.FindInput(input.name());
    if (index < 0) {
      const int matrix = model_.FindMatrix(input.name());
      if (matrix >= 0) return AddMatrix(position, info_.matrices[matrix]);
      return UnknownInput(input.name(), info_);
    }
    RETURN_IF_ERROR(WantAbsent(index, input.name()));
    const InputInfo& info = info_.inputs[index];
    ASSIGN_OR_RETURN(NumberArray array, NumbersOf(position, info.dtype));
    if (info.feature >= 0 && array.dims.size() != 1) {
      return Bad(input.name(), "shape ", engine::ToString(input.shape()), ", want one dimension");
    }
    if (info.feature < 0) info.FitRows(array.dims);
    ASSIGN_OR_RETURN(void* const data, As(info.dtype, array, {}, input.name()));
    Give(index, {info.dtype, std::move(array.dims), data}, input.name());
    return absl::OkStatus();
  }

  absl::Status WantAbsent(int index, absl::string_view name) const {
    const absl::string_view form = forms_[index];
    if (form.empty()) return absl::OkStatus();
    if (form == name) return Bad(name, "given twice");
    return Bad(name, "given beside \"", form, "\", want one form of it");
  }

  // `form`: what the request calls it, or the matrix that it is of.
  void Give(int index, Tensor tensor, absl::string_view form) {
    given_[index] = static_cast<int>(decoded_.inputs.size());
    forms_[index] = form;
    decoded_.inputs.push_back({info_.inputs[index].name, std::move(tensor)});
  }

  // The input at `position`, whose parameters, datatype and size are checked: floats become
  // no integers, but for those of a matrix, which have columns of both.
  absl::StatusOr<NumberArray> NumbersOf(int position, DType want) const {
    const Input& input = request_.inputs(position);
    const std::string what = absl::StrCat("input \"", input.name(), "\"");
    RETURN_IF_ERROR(WantNoParameters(absl::StrCat(what, ": "), input.parameters()));
    const std::optional<NumberType> type = engine::TypeOfKserve(input.datatype());
    if (!type.has_value() || (engine::IsFloat(*type) && want != DType::kFloat32)) {
      return Bad(input.name(), "datatype \"", input.datatype(), "\", want \"", DatatypeName(want),
                 "\"");
    }
    ASSIGN_OR_RETURN(const int64_t elements, CountElements(input.shape(), what));
    NumberArray array{*type, {input.shape().begin(), input.shape().end()}, nullptr};
    if (request_.raw_input_contents_size() != 0) {
      ASSIGN_OR_RETURN(array.data, RawData(position, *type, elements));
      return array;
    }
    array.type = ContentsOf(*type).type;
    ASSIGN_OR_RETURN(array.data, TypedData(position, *type, elements));
    return array;
  }

  // The columns of the array, or all of it; borrowed where they are of that type already.
  absl::StatusOr<void*> As(DType want, const NumberArray& array, absl::Span<const int64_t> columns,
                           absl::string_view name) {
    if (columns.empty() && array.type == engine::TypeOf(want)) {
      return const_cast<void*>(array.data);  // Inputs of Run are not written to.
    }
    return MakeNumbers(array, columns, want, limits_, absl::StrCat("input \"", name, "\""),
                       decoded_);
  }

  template <typename T>
  static Tensor Borrow(DType dtype, const std::vector<T>& row) {
    return {dtype, {static_cast<int64_t>(row.size())}, const_cast<T*>(row.data())};
  }

  absl::Status AddMatrix(int position, const MatrixInfo& matrix) {
    const Input& input = request_.inputs(position);
    ASSIGN_OR_RETURN(NumberArray array, NumbersOf(position, DType::kFloat32));
    const bool whole = matrix.columns == 0;  // All of one feature, whose rows have any length.
    if (!whole) engine::FitMatrix(matrix.columns, array.dims);
    const size_t rank = array.dims.size();
    if (whole && rank != 1 && rank != 2) {
      return Bad(input.name(), "shape ", engine::ToString(input.shape()),
                 ", want [rows] or [rows, ids of a row]");
    }
    const int64_t rows = rank == 0 ? 0 : array.dims[0];
    RETURN_IF_ERROR(CheckLeadingRows(input.name(), rows, limits_));
    if (!whole && (rank == 0 || array.elements() != rows * matrix.columns)) {
      return Bad(input.name(), "shape ", engine::ToString(input.shape()), ", want ", matrix.columns,
                 " values in each row");
    }
    for (const MatrixInfo::Part& part : matrix.parts) {
      RETURN_IF_ERROR(part.feature >= 0 ? AddIds(matrix, part, array)
                                        : AddNumbers(matrix, part, array));
    }
    return absl::OkStatus();
  }

  // Of a row of the part.
  static int64_t WidthOf(const MatrixInfo::Part& part, const NumberArray& array) {
    if (!part.columns.empty()) return static_cast<int64_t>(part.columns.size());
    return array.dims[0] == 0 ? 0 : array.elements() / array.dims[0];
  }

  // A sparse feature: its columns as ids and segments.
  absl::Status AddIds(const MatrixInfo& matrix, const MatrixInfo::Part& part,
                      const NumberArray& array) {
    const FeatureInfo& feature = info_.features[part.feature];
    for (const int input : {feature.ids, feature.values, feature.segments}) {
      RETURN_IF_ERROR(WantAbsent(input, matrix.name));
    }
    const int64_t rows = array.dims[0], width = WidthOf(part, array);
    const std::string what = absl::StrCat("input \"", matrix.name, "\"");
    RETURN_IF_ERROR(CheckIds(rows * width, rows * width, limits_, what));
    RETURN_IF_ERROR(CountMade(rows * width, DType::kInt64, limits_, what, decoded_));
    ASSIGN_OR_RETURN(engine::IdRows taken,
                     engine::IdRowsOf(array, part.columns, feature.padding_id, what));
    const auto& ids = decoded_.made_ids.emplace_back(std::move(taken.ids));
    const auto& counts = decoded_.made.emplace_back(std::move(taken.counts));
    Give(feature.ids, Borrow(DType::kInt64, ids), matrix.name);
    Give(feature.segments, Borrow(DType::kInt32, counts), matrix.name);
    forms_[feature.values] = matrix.name;
    return absl::OkStatus();
  }

  // A dense input, whose values stand in those columns.
  absl::Status AddNumbers(const MatrixInfo& matrix, const MatrixInfo::Part& part,
                          const NumberArray& array) {
    RETURN_IF_ERROR(WantAbsent(part.input, matrix.name));
    const InputInfo& info = info_.inputs[part.input];
    ASSIGN_OR_RETURN(void* const data, As(info.dtype, array, part.columns, matrix.name));
    Give(part.input, {info.dtype, info.DimsOf(array.dims[0], WidthOf(part, array)), data},
         matrix.name);
    return absl::OkStatus();
  }

  absl::StatusOr<const void*> RawData(int position, NumberType type, int64_t elements) const {
    const Input& input = request_.inputs(position);
    if (input.has_contents() && input.contents().ByteSizeLong() != 0) {
      return Bad(input.name(), "contents beside raw_input_contents, want one of the two");
    }
    const std::string& raw = request_.raw_input_contents(position);
    const int64_t want = elements * static_cast<int64_t>(engine::SizeOf(type));
    if (static_cast<int64_t>(raw.size()) == want) return raw.data();
    return Bad(input.name(), raw.size(), " raw bytes, want ", want, " for ", input.datatype(), " ",
               engine::ToString(input.shape()));
  }

  absl::StatusOr<const void*> TypedData(int position, NumberType type, int64_t elements) const {
    const Input& input = request_.inputs(position);
    const inference::InferTensorContents& contents = input.contents();
    const auto [stored, want] = ContentsOf(type);
    std::vector<const google::protobuf::FieldDescriptor*> fields;
    contents.GetReflection()->ListFields(contents, &fields);
    for (const auto* field : fields) {
      if (want == field->name()) continue;
      return Bad(input.name(), "values in ", field->name(), ", want ",
                 want.empty() ? "raw_input_contents" : want, " for ", input.datatype());
    }
    const NumberArray row = NumbersIn(contents);
    if (row.elements() != elements) {
      return Bad(input.name(), row.elements(), " values, want ", elements, " for shape ",
                 engine::ToString(input.shape()));
    }
    if (stored == type) return row.data;
    const auto check = [&](const auto& numbers) -> absl::Status {
      for (const int64_t number : numbers) {
        if (engine::HasInteger(type, number)) continue;
        return Bad(input.name(), "value ", number, ", which no ", input.datatype(), " has");
      }
      return absl::OkStatus();
    };
    RETURN_IF_ERROR(check(contents.int_contents()));
    RETURN_IF_ERROR(check(contents.uint_contents()));
    return row.data;
  }

  bool IsGiven(int index) const { return given_[index] >= 0; }
  const Tensor& Given(int index) const { return decoded_.inputs[given_[index]].tensor; }
  bool IsUsed(int index) const { return info_.inputs[index].used; }

  absl::Status CheckFeature(const FeatureInfo& feature) {
    const InputInfo& ids_info = info_.inputs[feature.ids];
    if (!IsGiven(feature.ids)) {
      for (int other : {feature.values, feature.segments}) {
        if (IsGiven(other)) {
          return Bad(info_.inputs[other].name, "given without \"", ids_info.name, "\"");
        }
      }
      if (!IsUsed(feature.ids) && !IsUsed(feature.values) && !IsUsed(feature.segments)) {
        return absl::OkStatus();
      }
      return Bad(ids_info.name, "missing, want INT64 [n]");
    }
    const int64_t ids = Given(feature.ids).dims[0];
    total_ids_ += ids;
    return CheckIds(ids, total_ids_, limits_, absl::StrCat("input \"", ids_info.name, "\""));
  }

  absl::Status WantGiven(int index) const {
    const InputInfo& info = info_.inputs[index];
    if (IsGiven(index) || !info.used) return absl::OkStatus();
    return Bad(info.name, "missing, want ", DatatypeName(info.dtype), " ", info.shape.ToString());
  }

  absl::Status AddOutputs() {
    std::vector<absl::string_view> names;
    for (const auto& output : request_.outputs()) {
      RETURN_IF_ERROR(
          WantNoParameters(absl::StrCat("output \"", output.name(), "\": "), output.parameters()));
      names.push_back(output.name());
    }
    return ChooseOutputs(model_, names, decoded_.outputs);
  }

  const inference::ModelInferRequest& request_;
  const Model& model_;
  const ModelInfo& info_;
  const RequestLimits& limits_;
  DecodedRequest& decoded_;
  // By input: its place in decoded_.inputs, -1 without one; and what it came as, "": not at all.
  std::vector<int> given_;
  std::vector<absl::string_view> forms_;
  int64_t total_ids_ = 0;
};

}  // namespace

absl::StatusOr<ModelChoice> ChoiceOf(const std::string& name, const std::string& version) {
  if (name.empty()) return InvalidArgument("model name: empty");
  if (version.empty()) return ModelChoice{.name = name};
  const std::optional<int64_t> number = ParseVersion(version);
  if (number.has_value()) return ModelChoice{.name = name, .version = *number};
  return InvalidArgument("model version: \"", version, "\", want a positive number or nothing");
}

absl::Status DecodeRequest(const inference::ModelInferRequest& request, const Model& model,
                           const RequestLimits& limits, DecodedRequest& decoded) {
  return Decoder(request, model, limits, decoded).Decode();
}

absl::Status EncodeResponse(const inference::ModelInferRequest& request,
                            const DecodedRequest& decoded, const ModelInfo& info,
                            const engine::RunResult& result,
                            inference::ModelInferResponse& response) {
  response.set_model_name(info.name);
  response.set_model_version(absl::StrCat(info.version));
  response.set_id(request.id());
  if (decoded.late_ids > 0) {
    (*response.mutable_parameters())["late_ids"].set_int64_param(decoded.late_ids);
  }
  const bool raw = request.raw_input_contents_size() != 0;
  for (int output : decoded.outputs) {
    const Tensor& tensor = result.outputs[output];
    const int64_t n = tensor.elements();
    auto& out = *response.add_outputs();
    out.set_name(info.outputs[output].name);
    out.set_datatype(std::string(DatatypeName(tensor.dtype)));
    out.mutable_shape()->Add(tensor.dims.begin(), tensor.dims.end());
    if (raw) {
      response.add_raw_output_contents(tensor.data, tensor.bytes());
    } else if (tensor.dtype == DType::kInt32) {
      out.mutable_contents()->mutable_int_contents()->Add(tensor.i32(), tensor.i32() + n);
    } else if (tensor.dtype == DType::kInt64) {
      out.mutable_contents()->mutable_int64_contents()->Add(tensor.i64(), tensor.i64() + n);
    } else {
      out.mutable_contents()->mutable_fp32_contents()->Add(tensor.f32(), tensor.f32() + n);
    }
  }
  return absl::OkStatus();
}

namespace {

void Describe(absl::string_view name, DType dtype, const engine::Shape& shape,
              inference::ModelMetadataResponse::TensorMetadata& out) {
  out.set_name(std::string(name));
  out.set_datatype(std::string(DatatypeName(dtype)));
  if (!shape.ranked()) {
    out.add_shape(-1);
    return;
  }
  for (const engine::Dim& dim : shape.dims()) {
    // One user per request; everything else that is not a number depends on the request.
    const bool fixed = dim.IsConst() || dim.IsUsers();
    out.add_shape(fixed ? dim.value() : -1);
  }
}

}  // namespace

void DescribeModel(const ModelInfo& info, inference::ModelMetadataResponse& response) {
  response.set_name(info.name);
  response.set_platform("ulf");
  for (const InputInfo& input : info.inputs) {
    Describe(input.name, input.dtype, input.shape, *response.add_inputs());
  }
  for (const engine::OutputInfo& output : info.outputs) {
    Describe(output.name, DType::kFloat32, output.shape, *response.add_outputs());
  }
  (*response.mutable_properties())["version"] = absl::StrCat(info.version);
}

}  // namespace ulfd::server
