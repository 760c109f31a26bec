// SPDX-License-Identifier: Apache-2.0
#include "server/scoring/tf_serving_codec.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/errors.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "engine/tensor/numbers.h"
#include "server/scoring/kserve_codec.h"
#include "server/scoring/kserve_rows.h"
#include "server/scoring/kserve_tensors.h"

namespace ulfd::server {
namespace {

namespace tfs = tensorflow::serving;
using engine::DType;
using engine::NumberType;
using tfs::TensorProto;

constexpr char kSignature[] = "serving_default";
// Values that a request may leave out: a message of some bytes must not become one of megabytes.
constexpr int64_t kMaxLeftOut = 4096;

std::string NameOf(tfs::DataType dtype) {
  const std::string& name = tfs::DataType_Name(dtype);
  return name.empty() ? absl::StrCat("dtype ", static_cast<int>(dtype)) : name;
}

struct Type {
  tfs::DataType dtype;
  NumberType type;
  absl::string_view list;  // The only one that may have values.
};
constexpr Type kTypes[] = {
    {tfs::DT_FLOAT, NumberType::kFloat32, "float_val"},
    {tfs::DT_DOUBLE, NumberType::kFloat64, "double_val"},
    {tfs::DT_HALF, NumberType::kFloat16, "half_val"},
    {tfs::DT_BFLOAT16, NumberType::kBfloat16, "half_val"},
    {tfs::DT_INT8, NumberType::kInt8, "int_val"},
    {tfs::DT_UINT8, NumberType::kUint8, "int_val"},
    {tfs::DT_INT16, NumberType::kInt16, "int_val"},
    {tfs::DT_UINT16, NumberType::kUint16, "int_val"},
    {tfs::DT_INT32, NumberType::kInt32, "int_val"},
    {tfs::DT_INT64, NumberType::kInt64, "int64_val"},
    {tfs::DT_UINT32, NumberType::kUint32, "uint32_val"},
    {tfs::DT_UINT64, NumberType::kUint64, "uint64_val"},
    {tfs::DT_BOOL, NumberType::kBool, "bool_val"},
};

const Type* FindType(tfs::DataType dtype) {
  const auto* const found =
      std::find_if(std::begin(kTypes), std::end(kTypes), [&](auto& t) { return t.dtype == dtype; });
  return found == std::end(kTypes) ? nullptr : found;
}

tfs::DataType TypeOf(absl::string_view datatype) {
  return datatype == "INT64" ? tfs::DT_INT64 : datatype == "INT32" ? tfs::DT_INT32 : tfs::DT_FLOAT;
}

template <typename... Parts>
absl::Status Bad(absl::string_view name, const Parts&... what) {
  return InvalidArgument("input \"", name, "\": ", what...);
}

absl::Status CheckLists(const std::string& name, const TensorProto& tensor,
                        absl::string_view want) {
  std::vector<const google::protobuf::FieldDescriptor*> fields;
  tensor.GetReflection()->ListFields(tensor, &fields);
  for (const auto* field : fields) {
    if (!field->is_repeated() || want == field->name()) continue;
    return Bad(name, "values in ", field->name(), ", want ", want, " for ", NameOf(tensor.dtype()));
  }
  // Lists of types that no input has.
  const auto& unknown = tensor.GetReflection()->GetUnknownFields(tensor);
  if (unknown.empty()) return absl::OkStatus();
  return Bad(name, "values in field ", unknown.field(0).number(), ", want ", want, " for ",
             NameOf(tensor.dtype()));
}

// The list as it lies in tensor_content.
template <typename Values>
absl::StatusOr<std::string> Packed(const std::string& name, const Type& type, const Values& values,
                                   int64_t elements) {
  if (values.size() > elements) {
    return Bad(name, values.size(), " values, want at most ", elements);
  }
  // Halves are bits in a list.
  const NumberType number = type.list == "half_val" ? NumberType::kUint16 : type.type;
  const size_t size = engine::SizeOf(type.type);
  std::string packed(static_cast<size_t>(elements) * size, '\0');
  for (int64_t i = 0; i < elements && !values.empty(); ++i) {
    const auto value = values[std::min(static_cast<int>(i), values.size() - 1)];
    if constexpr (std::is_same_v<decltype(value), const int32_t>) {
      if (!engine::HasInteger(number, value)) {
        return Bad(name, "value ", value, ", which no ", NameOf(type.dtype), " has");
      }
    }
    std::memcpy(packed.data() + i * size, &value, size);
  }
  return packed;
}

absl::StatusOr<std::string> Packed(const std::string& name, const Type& type,
                                   const TensorProto& tensor, int64_t elements) {
  switch (type.type) {
    case NumberType::kFloat32:
      return Packed(name, type, tensor.float_val(), elements);
    case NumberType::kFloat64:
      return Packed(name, type, tensor.double_val(), elements);
    case NumberType::kFloat16:
    case NumberType::kBfloat16:
      return Packed(name, type, tensor.half_val(), elements);
    case NumberType::kInt64:
      return Packed(name, type, tensor.int64_val(), elements);
    case NumberType::kUint32:
      return Packed(name, type, tensor.uint32_val(), elements);
    case NumberType::kUint64:
      return Packed(name, type, tensor.uint64_val(), elements);
    case NumberType::kBool:
      return Packed(name, type, tensor.bool_val(), elements);
    default:
      return Packed(name, type, tensor.int_val(), elements);
  }
}

// How many values a tensor holds, at most.
int64_t ValuesOf(const TensorProto& tensor) {
  return static_cast<int64_t>(tensor.tensor_content().size()) + tensor.float_val_size() +
         tensor.double_val_size() + tensor.half_val_size() + tensor.int_val_size() +
         tensor.int64_val_size() + tensor.uint32_val_size() + tensor.uint64_val_size() +
         tensor.bool_val_size();
}

// Gives `input`, which has name and shape already, its datatype; its values, which `tensor` loses,
// are added to `to`.  They can become `want`.
absl::Status FillInput(TensorProto& tensor, DType want,
                       inference::ModelInferRequest::InferInputTensor& input,
                       inference::ModelInferRequest& to) {
  const std::string& name = input.name();
  if (tensor.tensor_shape().unknown_rank()) return Bad(name, "a shape of unknown rank");
  const Type* const type = FindType(tensor.dtype());
  if (type == nullptr || (engine::IsFloat(type->type) && want != DType::kFloat32)) {
    return Bad(name, NameOf(tensor.dtype()), ", want ", NameOf(TypeOf(DatatypeName(want))));
  }
  RETURN_IF_ERROR(CheckLists(name, tensor, type->list));
  ASSIGN_OR_RETURN(const int64_t elements,
                   CountElements(input.shape(), absl::StrCat("input \"", name, "\"")));
  input.set_datatype(std::string(engine::KserveName(type->type)));
  const std::string& content = tensor.tensor_content();
  if (content.empty()) {
    ASSIGN_OR_RETURN(*to.add_raw_input_contents(), Packed(name, *type, tensor, elements));
    return absl::OkStatus();
  }
  if (ValuesOf(tensor) > static_cast<int64_t>(content.size())) {
    return Bad(name, "tensor_content beside a list, want one of the two");
  }
  to.add_raw_input_contents(std::move(*tensor.mutable_tensor_content()));
  return absl::OkStatus();
}

template <typename T, typename Values>
void AddAll(const std::string& raw, Values& values) {
  values.Resize(static_cast<int>(raw.size() / sizeof(T)), T());
  if (!raw.empty()) std::memcpy(values.mutable_data(), raw.data(), raw.size());
}

void Describe(const inference::ModelMetadataResponse::TensorMetadata& tensor,
              tfs::TensorInfo& out) {
  out.set_name(tensor.name());
  out.set_dtype(TypeOf(tensor.datatype()));
  for (const int64_t size : tensor.shape()) out.mutable_tensor_shape()->add_dim()->set_size(size);
}

}  // namespace

absl::StatusOr<ModelChoice> ChoiceOf(const tfs::ModelSpec& spec) {
  const std::string& signature = spec.signature_name();
  if (!signature.empty() && signature != kSignature) {
    return InvalidArgument("signature_name: \"", Printable(signature, 40), "\", want \"",
                           kSignature, "\" or nothing");
  }
  ASSIGN_OR_RETURN(ModelChoice choice,
                   ChoiceOf(spec.name(), spec.has_version() ? absl::StrCat(spec.version().value())
                                                            : std::string()));
  choice.label = spec.version_label();
  return choice;
}

absl::Status DescribeInputs(const tfs::PredictRequest& from, inference::ModelInferRequest& to) {
  const tfs::ModelSpec& spec = from.model_spec();
  to.set_model_name(spec.name());
  if (spec.has_version()) to.set_model_version(absl::StrCat(spec.version().value()));
  int64_t left_out = 0;
  for (const auto& [name, tensor] : from.inputs()) {
    auto& input = *to.add_inputs();
    input.set_name(name);
    for (const auto& dim : tensor.tensor_shape().dim()) input.add_shape(dim.size());
    ASSIGN_OR_RETURN(const int64_t elements,
                     CountElements(input.shape(), absl::StrCat("input \"", name, "\"")));
    left_out += std::max<int64_t>(elements - ValuesOf(tensor), 0);
    if (left_out > kMaxLeftOut) {
      return ResourceExhausted("input \"", name, "\": ", ValuesOf(tensor), " values for shape ",
                               engine::ToString(input.shape()),
                               ", want all of them: a request may leave out ", kMaxLeftOut);
    }
  }
  for (const std::string& output : from.output_filter()) to.add_outputs()->set_name(output);
  return absl::OkStatus();
}

absl::Status FillInputs(tfs::PredictRequest& from, const engine::Model& model,
                        const RequestLimits& limits, inference::ModelInferRequest& to) {
  // Values that nobody will read are not worth making.
  RETURN_IF_ERROR(CheckNamesAndRows(to, model, limits));
  for (auto& input : *to.mutable_inputs()) {
    const int index = model.FindInput(input.name());
    // A matrix has columns of any type.
    const DType want = index < 0 ? DType::kFloat32 : model.info().inputs[index].dtype;
    RETURN_IF_ERROR(FillInput((*from.mutable_inputs())[input.name()], want, input, to));
  }
  from.clear_inputs();  // One copy of the values is enough.
  return absl::OkStatus();
}

std::optional<inference::ModelInferRequest> InputAlone(const tfs::PredictRequest& from,
                                                       const std::string& name) {
  const auto input = from.inputs().find(name);
  if (input == from.inputs().end()) return std::nullopt;
  tfs::PredictRequest alone;
  TensorProto& tensor = (*alone.mutable_inputs())[name];
  tensor = input->second;
  inference::ModelInferRequest to;
  if (!DescribeInputs(alone, to).ok()) return std::nullopt;
  if (!FillInput(tensor, DType::kFloat32, *to.mutable_inputs(0), to).ok()) return std::nullopt;
  return to;
}

void MakePredictResponse(const inference::ModelInferResponse& from, tfs::PredictResponse& to) {
  tfs::ModelSpec& spec = *to.mutable_model_spec();
  spec.set_name(from.model_name());
  int64_t version = 0;
  if (absl::SimpleAtoi(from.model_version(), &version)) {
    spec.mutable_version()->set_value(version);
  }
  spec.set_signature_name(kSignature);
  for (int i = 0; i < from.outputs_size(); ++i) {
    const auto& output = from.outputs(i);
    TensorProto& tensor = (*to.mutable_outputs())[output.name()];
    tensor.set_dtype(TypeOf(output.datatype()));
    for (const int64_t size : output.shape())
      tensor.mutable_tensor_shape()->add_dim()->set_size(size);
    // Without inputs there are no raw ones whose form the outputs have.
    if (i >= from.raw_output_contents_size()) {
      *tensor.mutable_float_val() = output.contents().fp32_contents();
      *tensor.mutable_int_val() = output.contents().int_contents();
      *tensor.mutable_int64_val() = output.contents().int64_contents();
      continue;
    }
    const std::string& raw = from.raw_output_contents(i);
    if (tensor.dtype() == tfs::DT_INT32) {
      AddAll<int32_t>(raw, *tensor.mutable_int_val());
    } else if (tensor.dtype() == tfs::DT_INT64) {
      AddAll<int64_t>(raw, *tensor.mutable_int64_val());
    } else {
      AddAll<float>(raw, *tensor.mutable_float_val());
    }
  }
}

void DescribeModel(const inference::ModelMetadataResponse& model, tfs::SignatureDefMap& out) {
  tfs::SignatureDef& signature = (*out.mutable_signature_def())[kSignature];
  signature.set_method_name("tensorflow/serving/predict");
  for (const auto& input : model.inputs())
    Describe(input, (*signature.mutable_inputs())[input.name()]);
  for (const auto& output : model.outputs()) {
    Describe(output, (*signature.mutable_outputs())[output.name()]);
  }
}

}  // namespace ulfd::server
