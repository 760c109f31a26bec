// SPDX-License-Identifier: Apache-2.0
#include "server/scoring/tf_serving_codec.h"

#include <bit>
#include <cmath>
#include <cstring>
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
#include "engine/weights/npy.h"
#include "server/scoring/kserve_codec.h"

namespace ulfd::server {
namespace {

namespace tfs = tensorflow::serving;
using engine::DType;
using tfs::TensorProto;

constexpr char kSignature[] = "serving_default";
// Values that a request may leave out: a message of some bytes must not become one of megabytes.
constexpr int64_t kMaxLeftOut = 4096;

std::string NameOf(tfs::DataType dtype) {
  const std::string& name = tfs::DataType_Name(dtype);
  return name.empty() ? absl::StrCat("dtype ", static_cast<int>(dtype)) : name;
}

tfs::DataType TypeOf(absl::string_view datatype) {
  return datatype == "INT64" ? tfs::DT_INT64 : datatype == "INT32" ? tfs::DT_INT32 : tfs::DT_FLOAT;
}

// Elements of a tensor as they lie in tensor_content; lists have them as numbers.
struct Half {
  uint16_t bits;
};
struct Bfloat16 {
  uint16_t bits;
};

float NumberOf(Half half) { return engine::HalfToFloat(half.bits); }
float NumberOf(Bfloat16 value) { return std::bit_cast<float>(uint32_t{value.bits} << 16); }
template <typename T>
T NumberOf(T value) {
  return value;
}

// Whether the value of a list is one of the tensor's type.
template <typename Element, typename Value>
bool FromList(Value value, Element& element) {
  if constexpr (std::is_class_v<Element>) {
    element = {static_cast<uint16_t>(value)};
    return std::in_range<uint16_t>(value);
  } else if constexpr (std::is_integral_v<Element>) {
    element = static_cast<Element>(value);
    return std::in_range<Element>(value);
  } else {
    element = value;
    return true;
  }
}

// Whether `to` has the value of `from`: floats are rounded, integers stay as they are.
template <typename From, typename To>
bool Convert(From from, To& to) {
  if constexpr (std::is_floating_point_v<From> && !std::is_floating_point_v<To>) {
    return false;
  } else if constexpr (std::is_floating_point_v<From>) {
    to = static_cast<To>(from);
    return std::isfinite(to) || !std::isfinite(from);
  } else if constexpr (std::is_floating_point_v<To>) {
    to = static_cast<To>(from);
    return std::cmp_less_equal(from, kExactFloat) && std::cmp_greater_equal(from, -kExactFloat);
  } else {
    to = static_cast<To>(from);  // NOLINT(bugprone-signed-char-misuse): numbers, no characters.
    return std::in_range<To>(from);
  }
}

// What the inputs of a request take as KServe's.
struct Budget {
  const int64_t max_bytes;
  int64_t bytes = 0;
};

// One input of a request on its way.
class Input {
 public:
  Input(const std::string& name, TensorProto& from, Budget& budget)
      : name_(name), from_(from), budget_(budget) {}

  // Gives `input`, which has name and shape already, its type; its values are added to `to`.
  absl::Status Fill(DType want, inference::ModelInferRequest::InferInputTensor& input,
                    inference::ModelInferRequest& to) {
    if (from_.tensor_shape().unknown_rank()) return Bad("a shape of unknown rank");
    ASSIGN_OR_RETURN(elements_,
                     CountElements(input.shape(), absl::StrCat("input \"", name_, "\"")));
    shape_ = input.shape();
    input.set_datatype(std::string(DatatypeName(want)));
    ASSIGN_OR_RETURN(*to.add_raw_input_contents(), Raw(want));
    return absl::OkStatus();
  }

 private:
  template <typename... Parts>
  absl::Status Bad(const Parts&... what) const {
    return InvalidArgument("input \"", name_, "\": ", what...);
  }

  absl::StatusOr<std::string> Raw(DType want) {
    switch (from_.dtype()) {
      case tfs::DT_FLOAT:
        return As<float>("float_val", from_.float_val(), want);
      case tfs::DT_DOUBLE:
        return As<double>("double_val", from_.double_val(), want);
      case tfs::DT_HALF:
        return As<Half>("half_val", from_.half_val(), want);
      case tfs::DT_BFLOAT16:
        return As<Bfloat16>("half_val", from_.half_val(), want);
      case tfs::DT_INT8:
        return As<int8_t>("int_val", from_.int_val(), want);
      case tfs::DT_UINT8:
        return As<uint8_t>("int_val", from_.int_val(), want);
      case tfs::DT_INT16:
        return As<int16_t>("int_val", from_.int_val(), want);
      case tfs::DT_UINT16:
        return As<uint16_t>("int_val", from_.int_val(), want);
      case tfs::DT_INT32:
        return As<int32_t>("int_val", from_.int_val(), want);
      case tfs::DT_INT64:
        return As<int64_t>("int64_val", from_.int64_val(), want);
      case tfs::DT_UINT32:
        return As<uint32_t>("uint32_val", from_.uint32_val(), want);
      case tfs::DT_UINT64:
        return As<uint64_t>("uint64_val", from_.uint64_val(), want);
      default:
        return WrongType(want);
    }
  }

  absl::Status WrongType(DType want) const {
    return Bad(NameOf(from_.dtype()), ", want ", NameOf(TypeOf(DatatypeName(want))),
               from_.dtype() == tfs::DT_STRING ? ": ids are numbers here" : "");
  }

  // `list`: the name of `values`, the only list that may have any.
  template <typename Element, typename Values>
  absl::StatusOr<std::string> As(absl::string_view list, const Values& values, DType want) {
    RETURN_IF_ERROR(CheckLists(list));
    if (want == DType::kInt32) return To<int32_t, Element>(values, want);
    if (want == DType::kInt64) return To<int64_t, Element>(values, want);
    return To<float, Element>(values, want);
  }

  absl::Status CheckLists(absl::string_view want) const {
    std::vector<const google::protobuf::FieldDescriptor*> fields;
    from_.GetReflection()->ListFields(from_, &fields);
    for (const auto* field : fields) {
      if (!field->is_repeated() || want == field->name()) continue;
      return Bad("values in ", field->name(), ", want ", want, " for ", NameOf(from_.dtype()));
    }
    // Lists of types that no input has.
    const auto& unknown = from_.GetReflection()->GetUnknownFields(from_);
    if (unknown.empty()) return absl::OkStatus();
    return Bad("values in field ", unknown.field(0).number(), ", want ", want, " for ",
               NameOf(from_.dtype()));
  }

  template <typename Target, typename Element, typename Values>
  absl::StatusOr<std::string> To(const Values& values, DType want) {
    using Number = decltype(NumberOf(Element()));
    if (std::is_floating_point_v<Number> && !std::is_floating_point_v<Target>) {
      return WrongType(want);
    }
    const std::string& content = from_.tensor_content();
    const bool packed = !content.empty();
    if (packed && !values.empty()) return Bad("tensor_content beside a list, want one of the two");
    if (packed && static_cast<int64_t>(content.size()) != elements_ * int64_t{sizeof(Element)}) {
      return Bad(content.size(), " bytes of tensor_content, want ",
                 elements_ * int64_t{sizeof(Element)}, " for ", NameOf(from_.dtype()), " ",
                 engine::ToString(shape_));
    }
    if (packed && std::is_same_v<Element, Target>)
      return std::move(*from_.mutable_tensor_content());
    const int64_t given = packed ? elements_ : values.size();
    RETURN_IF_ERROR(Spend(given, sizeof(Target)));
    std::string raw(static_cast<size_t>(elements_) * sizeof(Target), '\0');
    for (int64_t i = 0; i < elements_ && given > 0; ++i) {
      Element element;
      if (packed) {
        std::memcpy(&element, content.data() + i * sizeof(Element), sizeof(Element));
      } else if (const auto value = values[static_cast<int>(std::min(i, given - 1))];
                 !FromList(value, element)) {
        return Bad("value ", value, ", which no ", NameOf(from_.dtype()), " has");
      }
      Target target{};
      if (!Convert(NumberOf(element), target)) {
        return Bad("value ", NumberOf(element), " of ", NameOf(from_.dtype()), ", which no ",
                   NameOf(TypeOf(DatatypeName(want))), " has");
      }
      std::memcpy(raw.data() + i * sizeof(Target), &target, sizeof(Target));
    }
    return raw;
  }

  absl::Status Spend(int64_t given, int64_t target_bytes) {
    if (given > elements_) {
      return Bad(given, " values, want at most ", elements_, " for shape ",
                 engine::ToString(shape_));
    }
    budget_.bytes += elements_ * target_bytes;
    if (budget_.bytes <= budget_.max_bytes) return absl::OkStatus();
    return ResourceExhausted(
        "input \"", name_, "\": in the types that the model wants, the inputs up to this one take ",
        budget_.bytes, " bytes, more than ", budget_.max_bytes, " (limits.max_message_bytes)");
  }

  const std::string& name_;
  TensorProto& from_;
  Budget& budget_;
  absl::Span<const int64_t> shape_;
  int64_t elements_ = 0;
};

bool IsFloating(tfs::DataType dtype) {
  return dtype == tfs::DT_FLOAT || dtype == tfs::DT_DOUBLE || dtype == tfs::DT_HALF ||
         dtype == tfs::DT_BFLOAT16;
}

// The model has an input or a matrix of that name; a matrix may have numbers of any type.
DType WantedBy(const engine::Model& model, const std::string& name, tfs::DataType given) {
  const int index = model.FindInput(name);
  if (index >= 0) return model.info().inputs[index].dtype;
  return IsFloating(given) ? DType::kFloat32 : DType::kInt64;
}

// How many values a tensor holds, at most.
int64_t ValuesOf(const TensorProto& tensor) {
  return static_cast<int64_t>(tensor.tensor_content().size()) + tensor.float_val_size() +
         tensor.double_val_size() + tensor.half_val_size() + tensor.int_val_size() +
         tensor.int64_val_size() + tensor.uint32_val_size() + tensor.uint64_val_size();
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
  Budget budget{.max_bytes = limits.max_message_bytes};
  for (auto& input : *to.mutable_inputs()) {
    TensorProto& tensor = (*from.mutable_inputs())[input.name()];
    RETURN_IF_ERROR(Input(input.name(), tensor, budget)
                        .Fill(WantedBy(model, input.name(), tensor.dtype()), input, to));
  }
  from.clear_inputs();  // One copy of the values is enough.
  return absl::OkStatus();
}

std::optional<inference::ModelInferRequest> InputAlone(const tfs::PredictRequest& from,
                                                       const std::string& name) {
  constexpr int64_t kMaxBytes = int64_t{1} << 20;  // What a user is told by is short.
  const auto input = from.inputs().find(name);
  if (input == from.inputs().end()) return std::nullopt;
  tfs::PredictRequest alone;
  TensorProto& tensor = (*alone.mutable_inputs())[name];
  tensor = input->second;
  inference::ModelInferRequest to;
  if (!DescribeInputs(alone, to).ok()) return std::nullopt;
  Budget budget{.max_bytes = kMaxBytes};
  const DType want = IsFloating(tensor.dtype()) ? DType::kFloat32 : DType::kInt64;
  if (!Input(name, tensor, budget).Fill(want, *to.mutable_inputs(0), to).ok()) return std::nullopt;
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
