// By nlohmann's SAX parser, which keeps nothing of the document and does not recur.
// SPDX-License-Identifier: Apache-2.0
#include "server/scoring/inference_json.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/errors.h"
#include "base/load_scope.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "engine/tensor/numbers.h"
#include "server/observe/logging.h"
#include "server/scoring/kserve_tensors.h"

namespace ulfd::server {
namespace {

using engine::NumberType;
using inference::InferParameter;
using inference::InferTensorContents;
using Input = inference::ModelInferRequest::InferInputTensor;
using Json = nlohmann::json;

constexpr size_t kMaxErrorText = 300;
// Arrays in the data of a tensor, one in the other.
constexpr size_t kMaxNesting = 8;

// The numbers of one tensor: whole ones stay exact as long as all are whole.
class Numbers {
 public:
  // `most`: of all tensors together.  Space for so many, of which none is touched before it is
  // used: a vector that grows has twice as much, and copies it.
  explicit Numbers(size_t most) { values_.reserve(most); }
  void Clear() {
    values_.clear();
    all_whole_ = true;
  }
  void Add(int64_t value) {
    values_.push_back(all_whole_ ? value : BitsOf(static_cast<double>(value)));
  }
  void Add(double value) {
    if (std::exchange(all_whole_, false)) {
      for (int64_t& earlier : values_) earlier = BitsOf(static_cast<double>(earlier));
    }
    values_.push_back(BitsOf(value));
  }
  // As the elements of the input, whose datatype becomes the widest of its kind.  An error names
  // the element.
  absl::Status Store(Input& input) const {
    const std::optional<NumberType> type = engine::TypeOfKserve(input.datatype());
    if (!type.has_value()) return absl::OkStatus();  // Refused when it is decoded.
    return engine::IsFloat(*type) ? StoreFloats(*type, input) : StoreWhole(*type, input);
  }

 private:
  absl::Status StoreFloats(NumberType type, Input& input) const {
    const bool wide = type == NumberType::kFloat64;
    InferTensorContents& contents = *input.mutable_contents();
    const auto store = [&](auto& field) -> absl::Status {
      using T = typename std::decay_t<decltype(field)>::value_type;
      field.Reserve(static_cast<int>(values_.size()));
      for (size_t i = 0; i < values_.size(); ++i) {
        const double value =
            all_whole_ ? static_cast<double>(values_[i]) : std::bit_cast<double>(values_[i]);
        if (std::abs(value) > std::numeric_limits<T>::max()) {
          return InvalidArgument("data[", i, "] is ", value, ", which is no ", input.datatype());
        }
        field.Add(static_cast<T>(value));
      }
      return absl::OkStatus();
    };
    if (wide) return store(*contents.mutable_fp64_contents());
    RETURN_IF_ERROR(store(*contents.mutable_fp32_contents()));
    input.set_datatype("FP32");
    return absl::OkStatus();
  }
  absl::Status StoreWhole(NumberType type, Input& input) const {
    if (!all_whole_)
      return InvalidArgument("data: a fraction, or a number beyond 64 bits; want whole numbers");
    InferTensorContents& contents = *input.mutable_contents();
    for (size_t i = 0; i < values_.size(); ++i) {
      if (engine::HasInteger(type, values_[i])) continue;
      return InvalidArgument("data[", i, "] is ", values_[i], ", which is no ", input.datatype());
    }
    if (type == NumberType::kInt32) {
      contents.mutable_int_contents()->Add(values_.begin(), values_.end());
    } else {
      contents.mutable_int64_contents()->Add(values_.begin(), values_.end());
      input.set_datatype("INT64");
    }
    return absl::OkStatus();
  }
  static int64_t BitsOf(double value) { return std::bit_cast<int64_t>(value); }

  bool all_whole_ = true;
  std::vector<int64_t> values_;  // Or the bits of doubles, as soon as one is a fraction.
};

// The form of nested arrays: the lengths at each depth, which must be the same everywhere.
class Nesting {
 public:
  void Clear() {
    lengths_.clear();
    open_.clear();
    number_depth_ = 0;
    regular_ = true;
  }
  size_t depth() const { return open_.size(); }
  void Begin() {
    if (!open_.empty()) ++open_.back();
    open_.push_back(0);
    if (lengths_.size() < open_.size()) lengths_.push_back(-1);
  }
  void End() {
    int64_t& length = lengths_[open_.size() - 1];
    regular_ &= length < 0 || length == open_.back();
    length = open_.back();
    open_.pop_back();
  }
  void CountNumber() {
    ++open_.back();
    regular_ &= number_depth_ == 0 || number_depth_ == open_.size();
    number_depth_ = open_.size();
  }
  // Flat, or nested as the shape says.
  bool Fits(const google::protobuf::RepeatedField<int64_t>& shape) const {
    if (lengths_.size() < 2) return true;
    return regular_ && std::equal(lengths_.begin(), lengths_.end(), shape.begin(), shape.end());
  }

 private:
  std::vector<int64_t> lengths_, open_;
  size_t number_depth_ = 0;
  bool regular_ = true;
};

class BodyReader final : public nlohmann::json_sax<Json> {
 public:
  BodyReader(size_t json_bytes, const JsonLimits& limits, inference::ModelInferRequest& request,
             BinaryOutputs& binary)
      // A number takes two bytes: "1,".
      : limits_(limits), request_(request), binary_(binary), numbers_(json_bytes / 2 + 1) {}

  const absl::Status& status() const { return status_; }
  // Of each input: the bytes behind the JSON, if it has them there.
  const std::vector<std::optional<uint64_t>>& binary_sizes() const { return binary_sizes_; }

  bool null() override { return Fail("null"); }
  bool binary(binary_t&) override { return Fail("binary"); }
  bool boolean(bool value) override {
    if (place_.back() == Place::kData) {
      has_truths_ = true;
      return Whole(value ? 1 : 0);
    }
    if (place_.back() != Place::kParameters) return Fail("a truth value");
    if (key_ == "binary_data_output" && place() == Place::kRequest) {
      binary_.all = value;
    } else if (key_ == "binary_data" && place() == Place::kOutput) {
      if (value) binary_output_ = true;
    } else {
      Parameter().set_bool_param(value);
    }
    return true;
  }
  bool number_integer(number_integer_t value) override { return Whole(value); }
  bool number_unsigned(number_unsigned_t value) override {
    if (value <= static_cast<uint64_t>(INT64_MAX)) return Whole(static_cast<int64_t>(value));
    return Fail("a number beyond 64 bits");
  }
  bool number_float(number_float_t value, const string_t&) override {
    if (place_.back() == Place::kParameters) {
      Parameter().set_double_param(value);
      return true;
    }
    if (place_.back() != Place::kData) return Fail("a fraction");
    numbers_.Add(value);
    nesting_.CountNumber();
    return true;
  }
  bool string(string_t& value) override {
    if (!Count()) return false;
    const Place at = place_.back();
    if (at == Place::kParameters) {
      Parameter().set_string_param(value);
    } else if (at == Place::kRequest && key_ == "id") {
      request_.set_id(value);
    } else if (at == Place::kInput && key_ == "name") {
      input().set_name(value);
    } else if (at == Place::kInput && key_ == "datatype") {
      input().set_datatype(value);
    } else if (at == Place::kOutput && key_ == "name") {
      request_.mutable_outputs()->rbegin()->set_name(value);
    } else {
      return Fail("a text");
    }
    return true;
  }
  bool key(string_t& value) override {
    key_ = std::move(value);
    // Readers differ in which of two counts; what checked the body before may have taken the other.
    if (!members_.back().insert(key_).second) return Fail("a second value");
    return Count();
  }
  bool start_object(std::size_t) override;
  bool end_object() override;
  bool start_array(std::size_t) override;
  bool end_array() override;
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception& e) override {
    absl::string_view text = e.what();
    text.remove_prefix(std::min(text.size(), text.find("] ") + 2));  // "[json.exception...] "
    status_ = InvalidArgument("JSON: ", Printable(text, kMaxErrorText));
    return false;
  }

 private:
  enum class Place {
    kBody,
    kRequest,
    kInputs,
    kInput,
    kOutputs,
    kOutput,
    kShape,
    kData,
    kParameters
  };

  // Where the innermost object of parameters stands.
  Place place() const { return place_[place_.size() - 2]; }
  Input& input() { return *request_.mutable_inputs()->rbegin(); }
  InferParameter& Parameter() {
    switch (place()) {
      case Place::kInput:
        return (*input().mutable_parameters())[key_];
      case Place::kOutput:
        return (*request_.mutable_outputs()->rbegin()->mutable_parameters())[key_];
      default:
        return (*request_.mutable_parameters())[key_];
    }
  }
  bool Count() {
    if (++fields_ <= limits_.max_fields) return true;
    status_ = ResourceExhausted("JSON: more than ", limits_.max_fields,
                                " members (limits.max_request_fields)");
    return false;
  }
  bool Enter(Place place) {
    place_.push_back(place);
    return Count();
  }
  std::string Where() const;
  bool Fail(absl::string_view found) {
    status_ = InvalidArgument("JSON: ", found, " at ", Where());
    return false;
  }
  bool Complain(const absl::Status& why) {
    status_ = absl::Status(
        why.code(), absl::StrCat("inputs[", request_.inputs_size() - 1, "].", why.message()));
    return false;
  }
  bool Whole(int64_t value) {
    switch (place_.back()) {
      case Place::kShape:
        input().add_shape(value);
        return true;
      case Place::kData:
        numbers_.Add(value);
        nesting_.CountNumber();
        return true;
      case Place::kParameters:
        if (key_ == "binary_data_size" && place() == Place::kInput && value >= 0) {
          binary_sizes_.back() = static_cast<uint64_t>(value);
        } else {
          Parameter().set_int64_param(value);
        }
        return true;
      default:
        return Fail("a number");
    }
  }
  bool EndInput();

  const JsonLimits& limits_;
  inference::ModelInferRequest& request_;
  BinaryOutputs& binary_;
  absl::Status status_;
  int64_t fields_ = 0;
  std::vector<Place> place_ = {Place::kBody};
  std::vector<std::set<std::string>> members_;  // Of the objects that are open, read so far.
  std::string key_;
  Numbers numbers_;  // Of the input that is being read.
  Nesting nesting_;
  bool has_data_ = false;
  bool has_truths_ = false;     // In its data.
  bool binary_output_ = false;  // Of the output that is being read.
  std::vector<std::optional<uint64_t>> binary_sizes_;
};

std::string BodyReader::Where() const {
  const std::string key = Printable(key_, kMaxErrorText);
  const std::string in = absl::StrCat("inputs[", request_.inputs_size() - 1, "].");
  switch (place_.back()) {
    case Place::kBody:
      return "the top, want one object";
    case Place::kRequest:
      return absl::StrCat("\"", key, "\", want id (a text), inputs, outputs, parameters");
    case Place::kInputs:
      return "inputs, want objects";
    case Place::kOutputs:
      return "outputs, want objects";
    case Place::kInput:
      return absl::StrCat(in, key, ", want name, datatype (texts), shape, data, parameters");
    case Place::kOutput:
      return absl::StrCat("outputs[", request_.outputs_size() - 1, "].", key,
                          ", want name (a text), parameters");
    case Place::kShape:
      return absl::StrCat(in, "shape, want whole numbers");
    case Place::kData:
      return absl::StrCat(in, "data, want numbers");
    case Place::kParameters:
      return absl::StrCat("parameters.", key, ", want texts, numbers and truth values");
  }
  return "";
}

bool BodyReader::start_object(std::size_t) {
  members_.emplace_back();
  switch (place_.back()) {
    case Place::kBody:
      return Enter(Place::kRequest);
    case Place::kInputs:
      request_.add_inputs();
      binary_sizes_.emplace_back();
      numbers_.Clear();
      nesting_.Clear();
      has_data_ = has_truths_ = false;
      return Enter(Place::kInput);
    case Place::kOutputs:
      request_.add_outputs();
      binary_output_ = false;
      return Enter(Place::kOutput);
    case Place::kRequest:
    case Place::kInput:
    case Place::kOutput:
      if (key_ == "parameters") return Enter(Place::kParameters);
      return Fail("an object");
    default:
      return Fail("an object");
  }
}

bool BodyReader::end_object() {
  const Place ended = place_.back();
  place_.pop_back();
  members_.pop_back();
  if (ended == Place::kInput) return EndInput();
  if (ended == Place::kOutput && binary_output_) {
    binary_.names.insert(request_.outputs().rbegin()->name());
  }
  return true;
}

bool BodyReader::start_array(std::size_t) {
  const Place at = place_.back();
  if (at == Place::kRequest && key_ == "inputs") return Enter(Place::kInputs);
  if (at == Place::kRequest && key_ == "outputs") return Enter(Place::kOutputs);
  if (at == Place::kInput && key_ == "shape") return Enter(Place::kShape);
  if (at == Place::kInput && key_ == "data") {
    has_data_ = true;
  } else if (at != Place::kData) {
    return Fail("an array");
  }
  if (nesting_.depth() == kMaxNesting) {
    return Fail(absl::StrCat("arrays in arrays more than ", kMaxNesting, " deep"));
  }
  nesting_.Begin();
  return Enter(Place::kData);
}

bool BodyReader::end_array() {
  if (place_.back() == Place::kData) nesting_.End();
  place_.pop_back();
  return true;
}

bool BodyReader::EndInput() {
  Input& read = input();
  const bool binary = binary_sizes_.back().has_value();
  if (binary && has_data_) {
    return Complain(InvalidArgument("data: beside binary_data_size, want one of the two"));
  }
  if (binary) return true;
  if (!has_data_) {
    return Complain(InvalidArgument(
        "data: missing, and no number of at least 0 as parameters.binary_data_size"));
  }
  if (!nesting_.Fits(read.shape())) {
    return Complain(InvalidArgument("data: arrays in arrays that are not as the shape"));
  }
  if (has_truths_ && read.datatype() != "BOOL") {
    return Complain(InvalidArgument("data: a truth value, want numbers"));
  }
  const absl::Status stored = numbers_.Store(read);
  return stored.ok() || Complain(stored);
}

absl::string_view BytesOf(const InferTensorContents& contents) {
  const engine::NumberArray row = NumbersIn(contents);
  return {static_cast<const char*>(row.data), row.dims[0] * engine::SizeOf(row.type)};
}

// Inputs whose bytes are behind the JSON; the others become bytes, too, as the protocol has it.
absl::Status TakeBinary(absl::string_view bytes, const std::vector<std::optional<uint64_t>>& sizes,
                        inference::ModelInferRequest& request) {
  uint64_t wanted = 0;
  bool any = false;
  for (const std::optional<uint64_t>& size : sizes) {
    any |= size.has_value();
    wanted += std::min<uint64_t>(size.value_or(0), bytes.size() + 1);
  }
  if (wanted != bytes.size()) {
    return InvalidArgument(bytes.size(),
                           " bytes behind the JSON, but binary_data_size "
                           "of the inputs sums to something else");
  }
  if (!any) return absl::OkStatus();
  for (size_t i = 0; i < sizes.size(); ++i) {
    Input& input = *request.mutable_inputs(static_cast<int>(i));
    if (sizes[i].has_value()) {
      request.add_raw_input_contents(bytes.data(), *sizes[i]);
      bytes.remove_prefix(*sizes[i]);
    } else {
      request.add_raw_input_contents(std::string(BytesOf(input.contents())));
      input.clear_contents();
    }
  }
  return absl::OkStatus();
}

template <typename T>
void AppendNumber(T value, std::string& out) {
  char buffer[32];
  const std::to_chars_result end = std::to_chars(buffer, buffer + sizeof(buffer), value);
  out.append(buffer, end.ptr);
}

// False: a value that JSON cannot say.
template <typename T>
bool AppendNumbers(absl::string_view bytes, std::string& out) {
  for (size_t at = 0; at + sizeof(T) <= bytes.size(); at += sizeof(T)) {
    T value;
    std::memcpy(&value, bytes.data() + at, sizeof(T));
    if constexpr (std::is_same_v<T, float>) {
      if (!std::isfinite(value)) return false;
    }
    if (at > 0) out += ',';
    AppendNumber(value, out);
  }
  return true;
}

bool AppendValues(const std::string& datatype, absl::string_view bytes, std::string& out) {
  if (datatype == "INT64") return AppendNumbers<int64_t>(bytes, out);
  if (datatype == "INT32") return AppendNumbers<int32_t>(bytes, out);
  return AppendNumbers<float>(bytes, out);
}

}  // namespace

absl::Status ParseInferBody(absl::string_view body, size_t json_bytes, const JsonLimits& limits,
                            inference::ModelInferRequest& request, BinaryOutputs& binary) {
  if (json_bytes > body.size()) {
    return InvalidArgument("Inference-Header-Content-Length: ", json_bytes, ", but the body has ",
                           body.size(), " bytes");
  }
  return WithinMemory([&]() -> absl::Status {
    BodyReader reader(json_bytes, limits, request, binary);
    const absl::string_view json = body.substr(0, json_bytes);
    if (!Json::sax_parse(json.begin(), json.end(), &reader)) {
      return reader.status().ok() ? InvalidArgument("JSON: wrong") : reader.status();
    }
    return TakeBinary(body.substr(json_bytes), reader.binary_sizes(), request);
  });
}

absl::StatusOr<InferBody> WriteInferBody(const inference::ModelInferResponse& response,
                                         const BinaryOutputs& binary) {
  std::string json = absl::StrCat("{\"model_name\":\"", JsonEscape(response.model_name()),
                                  "\",\"model_version\":\"", response.model_version(), "\"");
  if (!response.id().empty()) absl::StrAppend(&json, ",\"id\":\"", JsonEscape(response.id()), "\"");
  json += ",\"outputs\":[";
  std::string behind;
  for (int i = 0; i < response.outputs_size(); ++i) {
    const auto& output = response.outputs(i);
    const absl::string_view bytes = i < response.raw_output_contents_size()
                                        ? response.raw_output_contents(i)
                                        : BytesOf(output.contents());
    absl::StrAppend(&json, i == 0 ? "" : ",", "{\"name\":\"", JsonEscape(output.name()),
                    "\",\"datatype\":\"", output.datatype(), "\",\"shape\":[",
                    absl::StrJoin(output.shape(), ","), "]");
    if (binary.Has(output.name())) {
      absl::StrAppend(&json, ",\"parameters\":{\"binary_data_size\":", bytes.size(), "}}");
      absl::StrAppend(&behind, bytes);
      continue;
    }
    json += ",\"data\":[";
    if (!AppendValues(output.datatype(), bytes, json)) {
      return FailedPrecondition(
          "output \"", output.name(),
          "\": NaN or infinite, which JSON cannot say; want it as binary_data");
    }
    json += "]}";
  }
  json += "]}";
  const size_t json_bytes = json.size();
  return InferBody{json + behind, json_bytes};
}

}  // namespace ulfd::server
