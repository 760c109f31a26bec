// SPDX-License-Identifier: Apache-2.0
#include "tools/convert/onnx/model/constant.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/errors.h"
#include "base/status_macros.h"
#include "engine/weights/npy.h"

namespace ulfd::convert {
namespace {

using engine::Dim;
using engine::NumberType;

constexpr std::pair<int, NumberType> kTypes[] = {
    {onnx::TensorProto::FLOAT, NumberType::kFloat32},
    {onnx::TensorProto::DOUBLE, NumberType::kFloat64},
    {onnx::TensorProto::FLOAT16, NumberType::kFloat16},
    {onnx::TensorProto::BFLOAT16, NumberType::kBfloat16},
    {onnx::TensorProto::INT64, NumberType::kInt64},
    {onnx::TensorProto::INT32, NumberType::kInt32},
    {onnx::TensorProto::INT16, NumberType::kInt16},
    {onnx::TensorProto::INT8, NumberType::kInt8},
    {onnx::TensorProto::UINT64, NumberType::kUint64},
    {onnx::TensorProto::UINT32, NumberType::kUint32},
    {onnx::TensorProto::UINT16, NumberType::kUint16},
    {onnx::TensorProto::UINT8, NumberType::kUint8},
    {onnx::TensorProto::BOOL, NumberType::kBool},
};

absl::StatusOr<NumberType> TypeOf(const onnx::TensorProto& tensor) {
  for (const auto& [onnx, type] : kTypes) {
    if (onnx == tensor.data_type()) return type;
  }
  return InvalidArgument("element type ",
                         onnx::TensorProto::DataType_Name(
                             static_cast<onnx::TensorProto::DataType>(tensor.data_type())),
                         ", want a float, an integer or bool");
}

// The elements where the file has them in a typed field instead of raw bytes.
template <typename T>
std::vector<T> TypedElements(const onnx::TensorProto& tensor) {
  if (tensor.float_data_size() > 0) return {tensor.float_data().begin(), tensor.float_data().end()};
  if (tensor.double_data_size() > 0) {
    return {tensor.double_data().begin(), tensor.double_data().end()};
  }
  if (tensor.int64_data_size() > 0) return {tensor.int64_data().begin(), tensor.int64_data().end()};
  if (tensor.uint64_data_size() > 0) {
    return {tensor.uint64_data().begin(), tensor.uint64_data().end()};
  }
  return {tensor.int32_data().begin(), tensor.int32_data().end()};
}

}  // namespace

std::vector<int64_t> Constant::sizes() const {
  std::vector<int64_t> sizes;
  for (const Dim& d : dims) sizes.push_back(d.value());
  return sizes;
}

int64_t Constant::elements() const {
  int64_t n = 1;
  for (const Dim& d : dims) n *= d.value();
  return n;
}

absl::StatusOr<std::vector<float>> Constant::ToFloats() const {
  std::vector<float> values;
  if (!is_float) {
    ASSIGN_OR_RETURN(const std::vector<int64_t> numbers, ToInts());
    values.assign(numbers.begin(), numbers.end());
    return values;
  }
  if (!uniform) return *floats;
  RETURN_IF_ERROR(WantNumbers(*this));
  values.assign(static_cast<size_t>(elements()), f32(0));
  return values;
}

absl::StatusOr<std::vector<int64_t>> Constant::ToInts() const {
  RETURN_IF_ERROR(WantNumbers(*this));
  std::vector<int64_t> values;
  const int64_t count = elements();
  for (int64_t i = 0; i < count; ++i) {
    if (is_float) {
      values.push_back(static_cast<int64_t>(f32(i)));
      continue;
    }
    if (!dim(i).IsConst()) {
      return InvalidArgument("a value depends on the request (", dim(i).ToString(),
                             "), want a number");
    }
    values.push_back(dim(i).value());
  }
  return values;
}

absl::StatusOr<Dims> Constant::ToDims() const {
  if (is_float || dims.size() != 1 || !dims[0].IsConst() || dims[0].value() < 0 ||
      dims[0].value() > engine::kMaxRank) {
    return InvalidArgument("a shape of shape ", DimsText(dims), ", want 0 to ", engine::kMaxRank,
                           " integers");
  }
  Dims values;
  int64_t elements = 1;
  for (int64_t i = 0; i < dims[0].value(); ++i) {
    const int64_t factor = dim(i).value();
    if (factor < -1 || factor > kMaxRowElements ||
        (factor > 0 && elements > kMaxRowElements / factor)) {
      return InvalidArgument("a shape with a dimension of ", dim(i).ToString(), ", want at most ",
                             kMaxRowElements, " elements");
    }
    if (factor > 0) elements *= factor;
    values.push_back(dim(i));
  }
  return values;
}

bool IsNumbers(const Dims& dims) {
  return std::all_of(dims.begin(), dims.end(), [](const Dim& d) { return d.IsConst(); });
}

Constant EmptyConstant(Dims dims) {
  return {.is_float = true,
          .dims = std::move(dims),
          .uniform = true,
          .ints = {Dim::Of(0)},
          .floats = std::make_shared<const std::vector<float>>(1, 0.0f)};
}

bool IsEmpty(const Constant& c) {
  return std::any_of(c.dims.begin(), c.dims.end(), [](const Dim& d) { return d == Dim::Of(0); });
}

// Dimensions of known size, and not too many elements to hold.
absl::Status WantNumbers(const Constant& c) {
  if (!IsNumbers(c.dims)) {
    return InvalidArgument("a constant of shape ", DimsText(c.dims), ", want numbers");
  }
  const std::vector<int64_t> sizes = c.sizes();
  if (engine::CheckDims(sizes).ok() && engine::Volume(sizes) <= kMaxElements) {
    return absl::OkStatus();
  }
  return InvalidArgument("a constant of shape ", DimsText(c.dims), ", want 0 to ", kMaxElements,
                         " elements");
}

absl::Status WantTable(const Constant& c) {
  constexpr int64_t kExact = 1 << 24;
  const bool exact = std::all_of(c.ints.begin(), c.ints.end(), [&](const Dim& value) {
    return value.IsConst() && std::abs(value.value()) < kExact;
  });
  if (!c.dims.empty() && IsNumbers(c.dims) && c.elements() > 0 && (c.is_float || exact)) {
    return absl::OkStatus();
  }
  return Unimplemented("a table of shape ", DimsText(c.dims),
                       c.is_float || exact ? "" : " with integers of 2^24 or more",
                       ", want [ids, ...]");
}

Constant FloatConstant(const std::vector<int64_t>& sizes, std::vector<float> values) {
  Constant constant{.is_float = true};
  for (const int64_t d : sizes) constant.dims.push_back(Dim::Of(d));
  constant.floats = std::make_shared<const std::vector<float>>(std::move(values));
  return constant;
}

Constant IntConstant(const std::vector<int64_t>& sizes, std::vector<Dim> values) {
  Constant constant;
  for (const int64_t d : sizes) constant.dims.push_back(Dim::Of(d));
  constant.ints = std::move(values);
  return constant;
}

absl::StatusOr<int64_t> TensorBytes(const onnx::TensorProto& tensor) {
  ASSIGN_OR_RETURN(const NumberType type, TypeOf(tensor));
  return engine::ArrayBytes(std::vector<int64_t>(tensor.dims().begin(), tensor.dims().end()), type);
}

absl::Status CheckRawData(const onnx::TensorProto& tensor) {
  ASSIGN_OR_RETURN(const int64_t bytes, TensorBytes(tensor));
  if (static_cast<int64_t>(tensor.raw_data().size()) == bytes) return absl::OkStatus();
  const std::vector<int64_t> sizes(tensor.dims().begin(), tensor.dims().end());
  return InvalidArgument(tensor.raw_data().size(), " bytes, want ", bytes, " for shape ",
                         engine::ToString(sizes));
}

absl::StatusOr<Constant> ReadTensor(const onnx::TensorProto& tensor) {
  ASSIGN_OR_RETURN(const NumberType type, TypeOf(tensor));
  ASSIGN_OR_RETURN(const int64_t bytes, TensorBytes(tensor));
  const std::vector<int64_t> sizes(tensor.dims().begin(), tensor.dims().end());
  const int64_t count = bytes / static_cast<int64_t>(engine::SizeOf(type));
  const bool raw = tensor.has_raw_data(), is_float = engine::IsFloat(type);
  if (raw) RETURN_IF_ERROR(CheckRawData(tensor));
  std::vector<float> floats;
  std::vector<Dim> ints;
  if (is_float && raw) {
    floats = engine::ToFloat32(type, tensor.raw_data().data(), static_cast<size_t>(count));
  } else if (is_float && engine::SizeOf(type) == 2) {
    std::string halves;  // Of typed ones the bits, one in each int32.
    for (const int32_t half : tensor.int32_data()) {
      halves += static_cast<char>(half & 0xff);
      halves += static_cast<char>((half >> 8) & 0xff);
    }
    floats = engine::ToFloat32(type, halves.data(), halves.size() / 2);
  } else if (is_float) {
    floats = TypedElements<float>(tensor);
  } else if (raw) {
    for (const int64_t value :
         engine::ToInt64(type, tensor.raw_data().data(), static_cast<size_t>(count))) {
      ints.push_back(Dim::Of(value));
    }
  } else {
    for (const int64_t value : TypedElements<int64_t>(tensor)) ints.push_back(Dim::Of(value));
  }
  const auto wraps = [&](const Dim& value) { return value.value() < 0; };
  if (type == NumberType::kUint64 && std::any_of(ints.begin(), ints.end(), wraps)) {
    return InvalidArgument("an integer of 2^63 or more, want less");
  }
  const size_t found = is_float ? floats.size() : ints.size();
  if (static_cast<int64_t>(found) != count) {
    return InvalidArgument(found, " values, want ", count, " for shape ", engine::ToString(sizes));
  }
  return is_float ? FloatConstant(sizes, std::move(floats)) : IntConstant(sizes, std::move(ints));
}

const onnx::AttributeProto* FindAttribute(const onnx::NodeProto& node, absl::string_view name) {
  for (const onnx::AttributeProto& attribute : node.attribute()) {
    if (attribute.name() == name) return &attribute;
  }
  return nullptr;
}
int64_t IntAttribute(const onnx::NodeProto& node, const char* name, int64_t otherwise) {
  const onnx::AttributeProto* attribute = FindAttribute(node, name);
  return attribute == nullptr ? otherwise : attribute->i();
}
float FloatAttribute(const onnx::NodeProto& node, const char* name, float otherwise) {
  const onnx::AttributeProto* attribute = FindAttribute(node, name);
  return attribute == nullptr ? otherwise : attribute->f();
}
std::string StringAttribute(const onnx::NodeProto& node, const char* name, const char* otherwise) {
  const onnx::AttributeProto* attribute = FindAttribute(node, name);
  return attribute == nullptr ? otherwise : attribute->s();
}
std::vector<int64_t> IntsAttribute(const onnx::NodeProto& node, const char* name) {
  const onnx::AttributeProto* attribute = FindAttribute(node, name);
  if (attribute == nullptr) return {};
  return {attribute->ints().begin(), attribute->ints().end()};
}
std::vector<float> FloatsAttribute(const onnx::NodeProto& node, const char* name) {
  const onnx::AttributeProto* attribute = FindAttribute(node, name);
  if (attribute == nullptr) return {};
  return {attribute->floats().begin(), attribute->floats().end()};
}

absl::StatusOr<int> WantAxis(int64_t axis, int64_t rank) {
  const int64_t index = axis < 0 ? axis + rank : axis;
  if (index < 0 || index >= rank) {
    return InvalidArgument("axis ", axis, ", want ", -rank, " to ", rank - 1);
  }
  return static_cast<int>(index);
}

absl::StatusOr<std::vector<int>> WantAxes(const std::vector<int64_t>& axes, int64_t rank) {
  std::vector<int> indices;
  for (const int64_t axis : axes) {
    ASSIGN_OR_RETURN(const int index, WantAxis(axis, rank));
    indices.push_back(index);
  }
  std::sort(indices.begin(), indices.end());
  if (std::adjacent_find(indices.begin(), indices.end()) != indices.end()) {
    return InvalidArgument("an axis is there twice");
  }
  return indices;
}

absl::StatusOr<std::vector<int64_t>> SplitSizes(std::vector<int64_t> stated, int64_t outputs,
                                                int64_t size) {
  int64_t left = size;
  if (stated.empty() && outputs > 0) {
    const int64_t each = (size + outputs - 1) / outputs;
    for (int64_t i = 0; i < outputs; ++i) {
      stated.push_back(std::clamp<int64_t>(size - i * each, 0, each));
    }
  }
  bool fits = static_cast<int64_t>(stated.size()) == outputs;
  for (const int64_t part : stated) {
    fits &= part >= 0 && part <= left;
    left -= fits ? part : 0;
  }
  if (fits && left == 0) return stated;
  return InvalidArgument(outputs, " parts do not fill a dimension of ", size);
}

absl::StatusOr<SliceRange> RangeOf(int64_t start, int64_t end, int64_t step, int64_t size) {
  if (step == 0) return InvalidArgument("a step of 0");
  step = std::clamp(step, -size - 1, size + 1);
  const auto clamp = [&](int64_t at, int64_t least, int64_t most) {
    return std::clamp(at < 0 ? at + size : at, least, most);
  };
  SliceRange range{.step = step};
  range.begin = step > 0 ? clamp(start, 0, size) : clamp(start, 0, std::max<int64_t>(0, size - 1));
  const int64_t stop = step > 0 ? clamp(end, 0, size) : clamp(end, -1, size - 1);
  const int64_t length = step > 0 ? stop - range.begin : range.begin - stop;
  range.count = std::max<int64_t>(0, (length + std::abs(step) - 1) / std::abs(step));
  return range;
}

absl::Status ExampleRows(absl::string_view what) {
  return Unimplemented(
      what, ": the rows of the export's example are a number in the model; there, take them from ",
      "the input (x.size(0), torch.zeros_like), not by len(), int() or numpy");
}

Dims OneUserBesideAds(Dims dims) {
  const bool ads = std::any_of(dims.begin(), dims.end(), [](const Dim& d) { return d.IsAds(); });
  if (ads) std::replace(dims.begin(), dims.end(), Dim::Users(), Dim::Of(1));
  return dims;
}

absl::StatusOr<Dims> BroadcastDims(const Dims& a, const Dims& b) {
  Dims out(std::max(a.size(), b.size()), Dim::Of(1));
  for (size_t back = 1; back <= out.size(); ++back) {
    const Dim x = back <= a.size() ? a[a.size() - back] : Dim::Of(1);
    const Dim y = back <= b.size() ? b[b.size() - back] : Dim::Of(1);
    const auto is_number = [](const Dim& d) { return d.IsConst() && d != Dim::Of(1); };
    if ((x.IsAds() && is_number(y)) || (y.IsAds() && is_number(x))) {
      return ExampleRows(absl::StrCat("shapes ", DimsText(a), " and ", DimsText(b)));
    }
    // The user has one row, so that it is repeated as any dimension of 1 is.
    const std::optional<Dim> both = x == Dim::Users() && is_number(y)   ? y
                                    : y == Dim::Users() && is_number(x) ? x
                                                                        : engine::Broadcast(x, y);
    if (!both.has_value()) {
      return InvalidArgument("shapes ", DimsText(a), " and ", DimsText(b), " do not broadcast");
    }
    out[out.size() - back] = *both;
  }
  return OneUserBesideAds(std::move(out));
}

std::string DimsText(const Dims& dims) {
  return engine::Shape(engine::Shape::Dims(dims.begin(), dims.end())).ToString();
}

}  // namespace ulfd::convert
