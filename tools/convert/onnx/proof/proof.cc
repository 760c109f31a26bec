// SPDX-License-Identifier: Apache-2.0
#include "tools/convert/onnx/proof/proof.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <optional>
#include <random>
#include <set>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/errors.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "tools/convert/onnx/proof/interpreter.h"

namespace ulfd::convert {
namespace {

using engine::DType;
using engine::Level;
using reference::Array;
using reference::Evaluator;
using reference::Sizes;

constexpr double kTolerance = 1e-5;
// A value that rounding alone moves further than this says nothing.
constexpr double kMostNoise = 1e-3;
constexpr int64_t kMaxEngineBytes = int64_t{1} << 32;
constexpr auto kTime = std::chrono::seconds(60);
// No further run is begun after this.
constexpr auto kEnough = std::chrono::seconds(20);

struct Trial {
  uint32_t seed;
  int64_t ads;
};
constexpr Trial kTrials[] = {{1, 3}, {2, 1}, {3, 7}, {4, 2}, {5, 5}, {6, 19}};
// The first row of all floats is zeros in it, as of ads and users of which nothing is known.
constexpr uint32_t kUnknown = 4;

// Values as requests might have them: both signs, small and large, whole and not, some zeros.
double MadeUpNumber(std::mt19937& random, uint32_t seed, bool whole, int64_t below) {
  std::normal_distribution<double> normal;
  const uint32_t kind = random() % 8;
  if (whole) {
    // Most integers beyond float32 are seconds since 1970.
    constexpr int64_t kNow = 1'700'000'000;
    if (below > kNow && kind > 3) return static_cast<double>(kNow - random() % (kNow / 10));
    if (kind == 0 && seed % 2 == 0) {
      const double value = std::round(normal(random) * 1e6);
      return below == 0 ? value : std::fmod(value, static_cast<double>(below));
    }
    if (kind == 1 && seed % 3 == 0) {
      const auto past = static_cast<double>(random() % 1000);
      return below == 0 ? 4e9 + past : static_cast<double>(below) - 1 - past;
    }
    return static_cast<double>(static_cast<int>(random() % 12) - (kind < 2 ? 6 : 0));
  }
  if (kind == 0) return 0;
  if (kind == 1) return static_cast<double>(static_cast<int>(random() % 7) - 3);
  // Logarithms and roots want positive ones, in some runs at least.
  const double value = seed % 3 == 2 ? 0.05 + std::fabs(normal(random)) : normal(random);
  return static_cast<double>(static_cast<float>(kind == 2 ? 4 * value : value));
}

// Mostly one that is no padding.
double MadeUpId(std::mt19937& random, const IdRange& range) {
  const auto below = static_cast<uint64_t>(-range.first);
  if (below > 0 && random() % 8 == 0) {
    constexpr uint64_t kFar = 1 << 20;
    const uint64_t last = random() % 2 == 0 ? 1 : range.all_below ? kFar : below;
    return -static_cast<double>(1 + random() % last);
  }
  return static_cast<double>(random() % static_cast<uint64_t>(std::max<int64_t>(1, range.end)));
}

constexpr int64_t kAnyPlace = 64;
// What a model refuses among made-up inputs, as it turns out.
struct Limits {
  bool zeros = true;            // Among integers, by which it may divide.
  bool positive = false;        // Only such: a logarithm may become an integer.
  bool below = true;            // Ids below 0, which may be places, too.
  int64_t most = kAnyPlace;     // Integers are below if they are places, and numbers smaller then,
                                // which may become such.
  std::set<std::string> masks;  // Inputs of 0 and 1, of which no row is all 0.
};

// Inputs whose sums tell places, as mask.sum(1) - 1 tells the last step: anything but a mask would
// tell some that a row does not have.
std::set<std::string> MasksOf(const onnx::GraphProto& graph) {
  // Per value that tells places: whether its sums do.
  std::map<std::string, bool> telling;
  std::set<std::string> masks;
  for (int i = graph.node_size(); i-- > 0;) {
    const onnx::NodeProto& node = graph.node(i);
    const std::string& op = node.op_type();
    if (absl::StartsWith(op, "Gather") && node.input_size() > 1) {
      telling.try_emplace(node.input(1), false);
    }
    const auto found = node.output_size() > 0 ? telling.find(node.output(0)) : telling.end();
    static constexpr const char* kOps[] = {"Add",     "Sub",     "Cast",      "Clip",   "Max",
                                           "Reshape", "Squeeze", "Unsqueeze", "Concat", "Expand"};
    const bool sum = op == "ReduceSum";
    if (found == telling.end() || !(sum || absl::c_linear_search(kOps, op))) continue;
    for (const std::string& input : node.input()) telling[input] |= sum || found->second;
  }
  for (const onnx::ValueInfoProto& input : graph.input()) {
    const auto found = telling.find(input.name());
    if (found != telling.end() && found->second) masks.insert(input.name());
  }
  return masks;
}

Array MadeUp(const SourceInput& input, int64_t rows, const Trial& trial, const Limits& limits,
             std::mt19937& random) {
  int64_t most = limits.most;
  const bool zeros = limits.zeros;
  Sizes dims = {rows};
  dims.insert(dims.end(), input.row_shape.begin(), input.row_shape.end());
  int64_t width = 1;
  for (const int64_t d : input.row_shape) width *= d;
  if (input.places > 0) most = std::min(most, input.places);
  std::vector<double> values;
  const bool is_bool = input.type == onnx::TensorProto::BOOL,
             is_float = reference::IsFloatType(input.type);
  for (int64_t i = 0; i < rows * width; ++i) {
    const auto ids = input.ids.find(i % width);
    double value = 0;
    if (ids != input.ids.end()) {
      value = MadeUpId(random, ids->second);
      // Of places below 0 ONNX takes the row before where PyTorch counts from the end.
      if (!limits.below || input.places > 0) value = std::max(0.0, value);
      if (value == 0 && !zeros && ids->second.end > 1) value = 1;
      // A float that becomes an id is cut.
      if (is_float && trial.seed % 2 == 0) {
        value += (value < 0 ? -0.25 : 0.25) * static_cast<double>(random() % 4);
      }
    } else {
      value = MadeUpNumber(random, trial.seed, !is_float, input.integers_below);
      if (is_float && trial.seed == kUnknown && i < width) value = 0;
      if (limits.positive) value = std::fabs(value) + (is_float ? 0.125 : 1);
      if (value == 0 && !is_float && !zeros) value = 1;
      if (is_float) {
        value *= static_cast<double>(most) / kAnyPlace;
      } else if (most < kAnyPlace) {
        value = static_cast<double>(random() % static_cast<uint64_t>(most));
        // Lengths, less 1, are places, too.
        if (input.places > 1 && value == 0) value = 1;
      }
    }
    if (limits.masks.contains(input.name) && width > 1 && ids == input.ids.end()) {
      value = i % input.row_shape.back() == 0 ? 1 : static_cast<double>(random() % 2);
    }
    // Unsigned ones start over below 0.
    if (input.integers_below > 0 && input.type != onnx::TensorProto::INT64)
      value = std::fabs(value);
    values.push_back(is_bool ? static_cast<double>(random() % 2) : value);
  }
  for (const int64_t column : input.user_columns) {
    for (int64_t row = 1; row < rows; ++row) {
      values[static_cast<size_t>(row * width + column)] = values[static_cast<size_t>(column)];
    }
  }
  if (is_float) return reference::Floats(input.type, dims, std::move(values));
  std::vector<int64_t> ints;
  ints.reserve(values.size());
  for (const double value : values)
    ints.push_back(reference::Wrap(input.type, static_cast<int64_t>(value)));
  return reference::Ints(input.type, dims, std::move(ints));
}

// A request for the converted model, with the memory that it points to.
struct EngineRequest {
  std::vector<engine::NamedTensor> tensors;
  std::vector<std::string> names;
  std::vector<std::vector<float>> floats;
  std::vector<std::vector<int64_t>> longs;
  std::vector<std::vector<int32_t>> ints;

  explicit EngineRequest(size_t bindings) {
    // Pointers into these stay.
    names.reserve(3 * bindings);
    floats.reserve(bindings);
    longs.reserve(bindings);
    ints.reserve(2 * bindings);
  }
  void Add(std::string name, DType type, const Sizes& dims, const void* data) {
    engine::Tensor tensor{.dtype = type};
    tensor.dims.assign(dims.begin(), dims.end());
    tensor.data = const_cast<void*>(data);
    names.push_back(std::move(name));
    tensors.push_back({.name = names.back(), .tensor = tensor});
  }
};

void Bind(const Binding& binding, const Array& whole, int64_t rows, const engine::Model& converted,
          EngineRequest& request) {
  const int64_t width = whole.dims[0] == 0 ? 0 : whole.elements() / whole.dims[0];
  const auto count = binding.columns.empty() ? width : static_cast<int64_t>(binding.columns.size());
  std::vector<double> values;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t i = 0; binding.columns.empty() && i < width; ++i) {
      values.push_back(whole.at(row * width + i));
    }
    for (const int64_t column : binding.columns) values.push_back(whole.at(row * width + column));
  }
  if (binding.sparse) {
    request.longs.emplace_back(values.begin(), values.end());
    request.floats.emplace_back(values.size(), 1.0f);
    request.ints.emplace_back(static_cast<size_t>(rows), static_cast<int32_t>(count));
    const auto total = static_cast<int64_t>(values.size());
    request.Add(binding.name + ".ids", DType::kInt64, {total}, request.longs.back().data());
    request.Add(binding.name + ".values", DType::kFloat32, {total}, request.floats.back().data());
    request.Add(binding.name + ".segments", DType::kInt32, {rows}, request.ints.back().data());
    return;
  }
  const int index = converted.FindInput(binding.name);
  if (index < 0) return;  // Nothing reads it.
  const engine::InputInfo& info = converted.info().inputs[static_cast<size_t>(index)];
  Sizes dims = {rows};
  int64_t row_size = 1;
  for (int d = 1; info.shape.ranked() && d < info.shape.rank(); ++d) {
    dims.push_back(info.shape[d].value());
    row_size *= info.shape[d].value();
  }
  if (row_size != count) dims = {rows, count};
  if (info.dtype == DType::kInt64) {
    request.longs.emplace_back(values.begin(), values.end());
    request.Add(binding.name, DType::kInt64, dims, request.longs.back().data());
  } else if (info.dtype == DType::kInt32) {
    request.ints.emplace_back(values.begin(), values.end());
    request.Add(binding.name, DType::kInt32, dims, request.ints.back().data());
  } else {
    request.floats.emplace_back(values.begin(), values.end());
    request.Add(binding.name, DType::kFloat32, dims, request.floats.back().data());
  }
}

// The largest difference that is none of rounding.
struct Difference {
  double worst = 0;  // Relative to max(1, |wanted|).
  double found = 0, wanted = 0;
  int64_t compared = 0, undecided = 0;
};

class Proof {
 public:
  Proof(const OnnxModel& model, const Translation& translation, const engine::Model& converted)
      : model_(model), translation_(translation), converted_(converted) {
    budget_.deadline = std::chrono::steady_clock::now() + kTime;
  }
  absl::StatusOr<std::string> Run();

 private:
  absl::Status RunTrial(const Evaluator& evaluator, const Trial& trial);
  absl::Status RunReference(const Evaluator& evaluator, const Trial& trial);
  absl::Status RunEngine(const Trial& trial, bool keep_all, engine::RunResult& result);
  absl::Status Compare(const Evaluator& evaluator, const Trial& trial,
                       const engine::RunResult& result);
  std::string FirstDifferent(const Evaluator& evaluator, const Trial& trial);
  absl::StatusOr<Difference> DifferenceOf(const engine::Tensor& found, const Array& wanted,
                                          const Array* in_double) const;
  int64_t RowsOf(const SourceInput& input, int64_t ads) const;
  reference::RunOptions Options(bool single, bool keep_all) const {
    return {.single = single, .keep_all = keep_all, .budget = budget_};
  }

  const OnnxModel& model_;
  const Translation& translation_;
  const engine::Model& converted_;
  reference::Budget budget_;
  std::map<std::string, Array> inputs_, wanted_;
  // What the users' inputs have in the ONNX model: rows by the name of their dimension, as many as
  // there are ads, or one.
  enum class UserRows : uint8_t { kByName, kAsAds, kOne };
  UserRows user_rows_ = UserRows::kByName;
  Limits limits_;
  engine::Workspace workspace_;
  std::optional<EngineRequest> request_;  // Of the last run, whose results may be views of it.
  double worst_ = 0;
  int64_t compared_ = 0, undecided_ = 0;
  bool no_single_ad_ = false;
};

// What a model exported with one name for all rows wants repeated is: the users' inputs beside ads.
int64_t Proof::RowsOf(const SourceInput& input, int64_t ads) const {
  if (input.level == Level::kAd) return ads;
  if (input.rows.empty() || user_rows_ == UserRows::kOne) return 1;
  if (user_rows_ == UserRows::kAsAds) return ads;
  const bool shared = std::any_of(translation_.inputs.begin(), translation_.inputs.end(),
                                  [&](const SourceInput& other) {
                                    return other.level == Level::kAd && other.rows == input.rows;
                                  });
  return shared ? ads : 1;
}

absl::Status Proof::RunReference(const Evaluator& evaluator, const Trial& trial) {
  std::mt19937 random(trial.seed);
  inputs_.clear();
  for (const SourceInput& input : translation_.inputs) {
    const int64_t rows = RowsOf(input, trial.ads);
    int64_t room = budget_.max_elements / std::max<int64_t>(1, rows);
    for (const int64_t d : input.row_shape) room /= std::max<int64_t>(1, d);
    if (room < 1) {
      return ResourceExhausted("input \"", input.name, "\" is more than the proof may hold");
    }
    Array array = MadeUp(input, input.level == Level::kUser ? 1 : rows, trial, limits_, random);
    if (input.level == Level::kUser && rows > 1) {
      std::vector<int64_t> from;
      const int64_t size = array.elements();
      for (int64_t i = 0; i < rows * size; ++i) from.push_back(i % size);
      Sizes dims = array.dims;
      dims[0] = rows;
      array = reference::Pick(array, dims, from);
    }
    inputs_[input.name] = std::move(array);
  }
  absl::StatusOr<std::map<std::string, Array>> wanted =
      evaluator.Run(inputs_, Options(true, false));
  const absl::string_view message = wanted.status().message();
  if (absl::StrContains(message, reference::kDividedByZero) && limits_.zeros) {
    limits_.zeros = false;
    return RunReference(evaluator, trial);
  }
  if (absl::StrContains(message, reference::kNoInteger) && !limits_.positive) {
    limits_.positive = true;
    return RunReference(evaluator, trial);
  }
  if (absl::IsOutOfRange(wanted.status()) && (limits_.most > 1 || limits_.below)) {
    limits_.below &= limits_.most > 1;
    limits_.most = limits_.most > 1 ? limits_.most / 2 : kAnyPlace;
    return RunReference(evaluator, trial);
  }
  if (absl::IsInvalidArgument(wanted.status()) && user_rows_ == UserRows::kByName) {
    // The name is the ads' and the model repeats one row, or it has a name of its own and as many.
    for (const UserRows rows : {UserRows::kAsAds, UserRows::kOne}) {
      user_rows_ = rows;
      if (RunReference(evaluator, trial).ok()) return absl::OkStatus();
    }
    user_rows_ = UserRows::kByName;
  }
  RETURN_IF_ERROR(wanted.status());
  wanted_ = *std::move(wanted);
  return absl::OkStatus();
}

absl::Status Proof::RunEngine(const Trial& trial, bool keep_all, engine::RunResult& result) {
  EngineRequest& request = request_.emplace(translation_.bindings.size());
  for (const Binding& binding : translation_.bindings) {
    const int64_t rows = binding.level == Level::kUser ? 1 : trial.ads;
    Bind(binding, inputs_.at(binding.input), rows, converted_, request);
  }
  const std::function<bool()> stop = [this] { return !budget_.Check().ok(); };
  return converted_.Run(request.tensors,
                        {.keep_all = keep_all, .max_memory_bytes = kMaxEngineBytes, .stop = &stop},
                        workspace_, result);
}

// What single precision does to half of the values or more, relative to max(1, |value|), of those
// that are decided.  The median: some values that lose all their digits say nothing of the others.
double NoiseOf(const Array& single, const Array& in_double) {
  std::vector<double> noises;
  for (int64_t i = 0; i < single.elements(); ++i) {
    const double b = single.at(i);
    const double noise = std::fabs(b - in_double.at(i)) / std::max(1.0, std::fabs(b));
    if (noise <= kMostNoise) noises.push_back(noise);
  }
  if (noises.empty()) return 0;
  const auto middle = noises.begin() + static_cast<int64_t>(noises.size() / 2);
  std::nth_element(noises.begin(), middle, noises.end());
  return *middle;
}

// PyTorch's squeeze() drops the rows, too, where there is one.
bool DropsAllOnes(const onnx::GraphProto& graph) {
  return std::any_of(graph.node().begin(), graph.node().end(), [](const onnx::NodeProto& node) {
    return node.op_type() == "Squeeze" && node.input_size() == 1 && node.attribute_size() == 0;
  });
}

absl::StatusOr<Difference> Proof::DifferenceOf(const engine::Tensor& found, const Array& wanted,
                                               const Array* in_double) const {
  Sizes dims(found.dims.begin(), found.dims.end());
  Sizes want = wanted.dims.empty() ? Sizes{1} : wanted.dims;
  const int64_t size =
      found.dims.empty() ? 1 : std::max<int64_t>(1, Array{.dims = dims}.elements());
  // What belongs to the user has one row here, and maybe as many as ads there.
  const bool repeated = dims.size() == want.size() && !dims.empty() && dims[0] == 1;
  if (repeated) dims[0] = want[0];
  // Ours keeps its row.
  if (dims.size() == want.size() + 1 && dims[0] == 1 && DropsAllOnes(model_.proto.graph())) {
    want.insert(want.begin(), 1);
  }
  if (dims != want) {
    return FailedPrecondition("has shape [", absl::StrJoin(dims, ", "), "], want [",
                              absl::StrJoin(want, ", "), "]");
  }
  Difference difference;
  const double usual = in_double == nullptr ? 0 : NoiseOf(wanted, *in_double);
  for (int64_t i = 0; i < wanted.elements(); ++i) {
    const double a = double{found.f32()[i % size]}, b = wanted.at(i);
    const double scale = std::max(1.0, std::fabs(b));
    if (std::isnan(a) && std::isnan(b)) continue;
    if (a == b || (std::fabs(b) > 3.4e38 && a == (b < 0 ? -INFINITY : INFINITY))) {
      ++difference.compared;
      continue;
    }
    double error = std::fabs(a - b) / scale;
    if (!std::isfinite(error)) error = INFINITY;
    if (error > kTolerance && in_double != nullptr) {
      const double noise = std::fabs(b - in_double->at(i)) / scale;
      if (!(noise <= kMostNoise)) {
        ++difference.undecided;
        continue;
      }
      constexpr double kTimes = 16;
      if (error <= kTolerance + kTimes * std::max(noise, usual)) error = kTolerance;
    }
    ++difference.compared;
    if (error <= difference.worst) continue;
    difference.worst = error;
    difference.found = a;
    difference.wanted = b;
  }
  return difference;
}

// The first node whose value the engine has under the same name, and another.
std::string Proof::FirstDifferent(const Evaluator& evaluator, const Trial& trial) {
  const auto all = evaluator.Run(inputs_, Options(true, true));
  engine::RunResult result;
  if (!all.ok() || !RunEngine(trial, true, result).ok()) return "";
  for (const onnx::NodeProto& node : model_.proto.graph().node()) {
    for (const std::string& output : node.output()) {
      const auto wanted = all->find(output);
      const auto found =
          std::find_if(result.tensors.begin(), result.tensors.end(),
                       [&](const engine::NamedTensor& t) { return t.name == output; });
      if (wanted == all->end() || found == result.tensors.end() ||
          found->tensor.dtype != DType::kFloat32) {
        continue;
      }
      const auto difference = DifferenceOf(found->tensor, wanted->second, nullptr);
      if (!difference.ok() || difference->worst <= kTolerance) continue;
      return absl::StrCat("; the first node that differs is \"",
                          node.name().empty() ? output : node.name(), "\" (", node.op_type(), ")");
    }
  }
  return "";
}

absl::Status Proof::Compare(const Evaluator& evaluator, const Trial& trial,
                            const engine::RunResult& result) {
  std::optional<std::map<std::string, Array>> in_double;
  for (const onnx::ValueInfoProto& output : model_.proto.graph().output()) {
    const int index = converted_.FindOutput(output.name());
    if (index < 0) {
      return FailedPrecondition("output \"", output.name(), "\" is missing");
    }
    const engine::Tensor& found = result.outputs[static_cast<size_t>(index)];
    const Array& wanted = wanted_.at(output.name());
    const std::string text =
        absl::StrCat("output \"", output.name(), "\" with ", trial.ads, " ads ");
    absl::StatusOr<Difference> difference = DifferenceOf(found, wanted, nullptr);
    if (!difference.ok()) {
      return FailedPrecondition(text, difference.status().message());
    }
    if (difference->worst > kTolerance) {
      // What does rounding alone do?
      if (!in_double.has_value()) {
        ASSIGN_OR_RETURN(in_double, evaluator.Run(inputs_, Options(false, false)));
      }
      ASSIGN_OR_RETURN(difference, DifferenceOf(found, wanted, &in_double->at(output.name())));
    }
    compared_ += difference->compared;
    undecided_ += difference->undecided;
    worst_ = std::max(worst_, difference->worst);
    if (difference->worst <= kTolerance) continue;
    return FailedPrecondition(absl::StrFormat(
        "%sdiffers by %.3g: %.9g, but the ONNX model gives %.9g%s", text, difference->worst,
        difference->found, difference->wanted, FirstDifferent(evaluator, trial)));
  }
  return absl::OkStatus();
}

absl::Status Proof::RunTrial(const Evaluator& evaluator, const Trial& trial) {
  const absl::Status reference = RunReference(evaluator, trial);
  if (trial.ads == 1 && absl::IsInvalidArgument(reference) && DropsAllOnes(model_.proto.graph())) {
    no_single_ad_ = true;
    return absl::OkStatus();
  }
  if (absl::IsInvalidArgument(reference)) {
    return InvalidArgument(
        "the ONNX model itself fails with ", trial.ads, " ads: ", reference.message(),
        "; where the rows of the export's example are a number in it, the model has to take them ",
        "from its input (x.size(0), torch.zeros_like), not by len(), int() or numpy");
  }
  RETURN_IF_ERROR(reference);
  engine::RunResult result;
  RETURN_IF_ERROR(Annotate(RunEngine(trial, false, result), "the converted model"));
  return Compare(evaluator, trial, result);
}

absl::StatusOr<std::string> Proof::Run() {
  ASSIGN_OR_RETURN(const Evaluator evaluator, Evaluator::Make(model_));
  limits_.masks = MasksOf(model_.proto.graph());
  const auto enough = std::chrono::steady_clock::now() + kEnough;
  std::vector<int64_t> ads;
  for (bool decided = false; !decided;) {
    ads.clear();
    compared_ = undecided_ = 0;
    for (const Trial& trial : kTrials) {
      if (!ads.empty() && std::chrono::steady_clock::now() > enough) break;
      RETURN_IF_ERROR(RunTrial(evaluator, trial));
      if (trial.ads > 1 || !no_single_ad_) ads.push_back(trial.ads);
    }
    decided = compared_ > undecided_;
    if (!decided && limits_.most <= 2) {
      return Unimplemented(
          "on made-up inputs most values are no numbers or rounding alone decides them");
    }
    limits_.most = 2;  // Integers may be masks.
  }
  return absl::StrFormat(
      "proved: %d values of %d runs (%s ads) agree with the ONNX model, largest difference %.1e%s",
      compared_, ads.size(), absl::StrJoin(ads, ", "), worst_,
      no_single_ad_ ? "; it fails with 1 ad itself, whose row a Squeeze without axes drops" : "");
}

}  // namespace

absl::StatusOr<std::string> Prove(const OnnxModel& model, const Translation& translation,
                                  const engine::Model& converted) {
  return Proof(model, translation, converted).Run();
}

}  // namespace ulfd::convert
