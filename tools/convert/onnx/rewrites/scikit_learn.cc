// Operators of scikit-learn's exporters: linear models, trees, and what prepares their inputs.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tools/convert/onnx/model/constant.h"
#include "tools/convert/onnx/model/functions.h"
#include "tools/convert/onnx/model/types.h"
#include "tools/convert/onnx/rewrites/composite_writer.h"

namespace ulfd::convert {
namespace {

using Node = onnx::NodeProto;

// Labels of a tree ensemble.
int64_t ClassesOf(const Node& node) {
  const onnx::AttributeProto* const names = FindAttribute(node, "classlabels_strings");
  return names != nullptr && names->strings_size() > 0
             ? names->strings_size()
             : static_cast<int64_t>(IntsAttribute(node, "classlabels_int64s").size());
}

bool Scale(CompositeWriter& w, const Node& node) {
  const std::vector<float> offset = FloatsAttribute(node, "offset"),
                           scale = FloatsAttribute(node, "scale");
  std::string x = w.Float(node, node.input(0));
  if (!offset.empty()) x = w.Make(node, "Sub", {x, w.Floats(x, offset)});
  if (!scale.empty()) x = w.Make(node, "Mul", {x, w.Floats(x, scale)});
  w.Add(node, "Identity", {x}, node.output(0));
  return true;
}

bool Normal(CompositeWriter& w, const Node& node) {
  const std::string norm = StringAttribute(node, "norm", "MAX"), x = w.Float(node, node.input(0));
  const char* const op = norm == "L1" ? "ReduceL1" : norm == "L2" ? "ReduceL2" : "ReduceMax";
  w.AddNormal(node, x, w.Reduce(node, op, x, -1));
  return true;
}

bool Impute(CompositeWriter& w, const Node& node) {
  const std::vector<float> values = FloatsAttribute(node, "imputed_value_floats");
  const std::string& x = node.input(0);
  if (values.empty() || !IsPlainFloat(w.TypeOf(x))) return false;
  const float missing = FloatAttribute(node, "replaced_value_float", 0);
  const std::string is = std::isnan(missing) ? w.Make(node, "IsNaN", {x})
                                             : w.Make(node, "Equal", {x, w.Number(x, missing)});
  w.Add(node, "Where", {is, w.Floats(x, values), x}, node.output(0));
  return true;
}

bool Binarize(CompositeWriter& w, const Node& node) {
  const float threshold = FloatAttribute(node, "threshold", 0);
  const std::string& x = node.input(0);
  w.Add(node, "Identity", {w.Float(node, w.Make(node, "Greater", {x, w.Number(x, threshold)}))},
        node.output(0));
  return true;
}

bool JoinFeatures(CompositeWriter& w, const Node& node) {
  std::vector<std::string> columns;
  for (const std::string& input : node.input()) columns.push_back(w.Float(node, input));
  SetInt(w.Add(node, "Concat", columns, node.output(0)), "axis", 1);
  return true;
}

// Entries of a list, one for each row, as one row: labels of the best classes.
bool PickLabels(CompositeWriter& w, const Node& node) {
  const onnx::TensorProto& labels = *w.FindTensor(node.input(0));
  if (labels.dims_size() != 1) return false;
  const std::string places =
      w.Make(node, "Reshape", {node.input(1), w.Integers(node.output(0), {-1})});
  w.AddOnAxis(node, "Unsqueeze", w.Make(node, "Gather", {node.input(0), places}), 0,
              node.output(0));
  return true;
}

bool PickFeatures(CompositeWriter& w, const Node& node) {
  if (w.FindTensor(node.input(0)) != nullptr) return PickLabels(w, node);
  SetInt(w.Add(node, "Gather", {node.input(0), node.input(1)}, node.output(0)), "axis", -1);
  return w.FindTensor(node.input(1)) != nullptr;
}

bool OneHotOf(CompositeWriter& w, const Node& node) {
  const std::vector<int64_t> categories = IntsAttribute(node, "cats_int64s");
  if (categories.empty() || IntAttribute(node, "zeros", 1) == 0) return false;
  // Runtimes take floats without their fractions.
  const std::string wide = w.Fresh(node.output(0)), x = w.Fresh(wide);
  SetInt(w.Add(node, "Cast", {node.input(0)}, x), "to", onnx::TensorProto::INT64);
  w.AddOnAxis(node, "Unsqueeze", x, -1, wide);
  const std::string same = w.Make(node, "Equal", {wide, w.Integers(wide, categories)});
  w.Add(node, "Identity", {w.Float(node, same)}, node.output(0));
  return true;
}

// A list of integers or floats, which newer operator sets have as a tensor.
std::optional<Constant> ListOf(const Node& node, const std::string& name) {
  const onnx::AttributeProto* const tensor = FindAttribute(node, absl::StrCat(name, "_tensor"));
  if (tensor != nullptr) {
    absl::StatusOr<Constant> list = ReadTensor(tensor->t());
    return list.ok() ? std::optional(*std::move(list)) : std::nullopt;
  }
  const std::vector<int64_t> whole = IntsAttribute(node, absl::StrCat(name, "_int64s").c_str());
  const std::vector<float> floats = FloatsAttribute(node, absl::StrCat(name, "_floats").c_str());
  if (whole.empty() && floats.empty()) return std::nullopt;
  if (whole.empty()) return FloatConstant({static_cast<int64_t>(floats.size())}, floats);
  std::vector<engine::Dim> values;
  for (const int64_t value : whole) values.push_back(engine::Dim::Of(value));
  return IntConstant({static_cast<int64_t>(whole.size())}, values);
}

// A number for each key, and one for what is no key.
struct Labels {
  Constant keys, values;
  std::optional<Constant> otherwise;

  float OtherFloat(const Node& node) const {
    return otherwise.has_value() ? otherwise->f32(0) : FloatAttribute(node, "default_float", 0);
  }
  int64_t OtherInt(const Node& node) const {
    return otherwise.has_value() ? otherwise->dim(0).value()
                                 : IntAttribute(node, "default_int64", -1);
  }
};

// Floats: the number of the key that x equals.
bool EncodeFloats(CompositeWriter& w, const Node& node, const Labels& labels) {
  constexpr size_t kMost = 1 << 10;
  constexpr float kExact = 1 << 24;
  const bool whole = !labels.values.is_float;
  const absl::StatusOr<std::vector<float>> keys = labels.keys.ToFloats(),
                                           values = labels.values.ToFloats();
  if (!keys.ok() || !values.ok() || keys->size() > kMost) return false;
  for (size_t i = 0; i < keys->size(); ++i) {
    const float value = std::abs((*values)[i]);
    if (!std::isfinite((*keys)[i]) || !std::isfinite(value) || (whole && value > kExact)) {
      return false;
    }
  }
  if (std::set<float>(keys->begin(), keys->end()).size() != keys->size()) return false;
  const std::string wide = w.Fresh(node.output(0));
  w.AddOnAxis(node, "Unsqueeze", node.input(0), -1, wide);
  const std::string same = w.Float(node, w.Make(node, "Equal", {wide, w.Floats(wide, *keys)}));
  const std::string value = w.Make(node, "MatMul", {same, w.Floats(same, *values)});
  const std::vector<float> ones(keys->size(), 1.0f);
  const std::string keyed = w.Make(node, "MatMul", {same, w.Floats(same, ones)});
  const std::string known = w.Make(node, "Greater", {keyed, w.Number(keyed, 0.5f)});
  const float other = whole ? static_cast<float>(labels.OtherInt(node)) : labels.OtherFloat(node);
  const std::string all = w.Make(node, "Where", {known, value, w.Number(value, other)});
  SetInt(w.Add(node, "Cast", {all}, node.output(0)), "to",
         whole ? onnx::TensorProto::INT64 : onnx::TensorProto::FLOAT);
  return true;
}

// Integers that are looked up in a list from the least key to the largest, with the default where
// there is no key, and on either side.
bool EncodeIntegers(CompositeWriter& w, const Node& node, const Labels& labels) {
  constexpr int64_t kMost = 1 << 20;
  const absl::StatusOr<std::vector<int64_t>> keys = labels.keys.ToInts();
  if (!keys.ok()) return false;
  const auto range = std::minmax_element(keys->begin(), keys->end());
  const int64_t least = *range.first, most = *range.second;
  if (least < -kMost || most > kMost || most - least >= kMost) return false;
  const auto places = static_cast<size_t>(most - least + 3);
  if (std::set<int64_t>(keys->begin(), keys->end()).size() != keys->size()) return false;
  const auto spread = [&](auto none, auto value) {
    std::vector<decltype(none)> all(places, none);
    for (size_t i = 0; i < keys->size(); ++i) {
      all[static_cast<size_t>((*keys)[i] - least + 1)] = value(static_cast<int64_t>(i));
    }
    return all;
  };
  const Constant& values = labels.values;
  const std::string& out = node.output(0);
  const std::string list =
      values.is_float
          ? w.Floats(out, spread(labels.OtherFloat(node), [&](int64_t i) { return values.f32(i); }))
          : w.Integers(out, spread(labels.OtherInt(node),
                                   [&](int64_t i) { return values.dim(i).value(); }));
  std::string at = w.Make(node, "Sub", {node.input(0), w.Integers(out, {least - 1})});
  at = w.Make(node, "Max", {at, w.Integers(out, {0})});
  at = w.Make(node, "Min", {at, w.Integers(out, {static_cast<int64_t>(places) - 1})});
  w.Add(node, "Gather", {list, at}, out);
  return true;
}

// Of keys that are there twice runtimes disagree on which one counts.
bool EncodeLabels(CompositeWriter& w, const Node& node) {
  std::optional<Constant> keys = ListOf(node, "keys"), values = ListOf(node, "values");
  if (!keys.has_value() || !values.has_value() || keys->elements() == 0 ||
      keys->elements() != values->elements()) {
    return false;
  }
  const Labels labels{*std::move(keys), *std::move(values), ListOf(node, "default")};
  if (labels.otherwise.has_value() &&
      (labels.otherwise->elements() != 1 || labels.otherwise->is_float != labels.values.is_float)) {
    return false;
  }
  return labels.keys.is_float ? EncodeFloats(w, node, labels) : EncodeIntegers(w, node, labels);
}

// x * coefficients + intercepts; empty: they do not fit.
std::string Linear(CompositeWriter& w, const Node& node, int64_t outputs) {
  const std::vector<float> weights = FloatsAttribute(node, "coefficients");
  const std::vector<float> bias = FloatsAttribute(node, "intercepts");
  const auto count = static_cast<int64_t>(weights.size());
  if (outputs < 1 || count == 0 || count % outputs != 0 ||
      (!bias.empty() && static_cast<int64_t>(bias.size()) != outputs)) {
    return "";
  }
  const std::string x = w.Float(node, node.input(0));
  const std::string rows =
      w.Make(node, "Reshape", {w.Floats(x, weights), w.Integers(x, {outputs, count / outputs})});
  const std::string product = w.Make(node, "MatMul", {x, w.Transposed(node, rows, {1, 0})});
  return bias.empty() ? product : w.Make(node, "Add", {product, w.Floats(x, bias)});
}

bool AddTransformed(CompositeWriter& w, const Node& node, const std::string& scores,
                    const std::string& out) {
  const std::string how = StringAttribute(node, "post_transform", "NONE");
  if (how == "NONE") w.Add(node, "Identity", {scores}, out);
  if (how == "LOGISTIC") w.Add(node, "Sigmoid", {scores}, out);
  if (how == "SOFTMAX") SetInt(w.Add(node, "Softmax", {scores}, out), "axis", -1);
  return how == "NONE" || how == "LOGISTIC" || how == "SOFTMAX";
}

// Runtimes disagree on what else becomes of a regression's sums.
bool AddRegression(CompositeWriter& w, const Node& node, const std::string& scores) {
  if (scores.empty() || StringAttribute(node, "post_transform", "NONE") != "NONE") return false;
  w.Add(node, "Identity", {scores}, node.output(0));
  return true;
}

bool LinearRegressor(CompositeWriter& w, const Node& node) {
  return AddRegression(w, node, Linear(w, node, IntAttribute(node, "targets", 1)));
}

void AddLabels(CompositeWriter& w, const Node& node, const std::string& scores,
               const std::vector<int64_t>& labels) {
  if (labels.empty()) return;
  const std::string best = w.Fresh(node.output(0));
  Node& most = w.Add(node, "ArgMax", {scores}, best);
  SetInt(most, "axis", 1);
  SetInt(most, "keepdims", 0);
  w.Add(node, "Gather", {w.Integers(best, labels), best}, node.output(0));
}

bool LinearClassifier(CompositeWriter& w, const Node& node) {
  const std::vector<int64_t> labels = IntsAttribute(node, "classlabels_ints");
  const onnx::AttributeProto* const names = FindAttribute(node, "classlabels_strings");
  const int64_t classes = names != nullptr && labels.empty() ? names->strings_size()
                                                             : static_cast<int64_t>(labels.size());
  const std::string scores = Linear(w, node, classes);
  if (scores.empty() || (labels.empty() && w.IsRead(node.output(0)))) return false;
  AddLabels(w, node, scores, labels);
  return node.output_size() < 2 || AddTransformed(w, node, scores, node.output(1));
}

// The sums of the leaves that a row reaches, as a regression (without a domain) that transforms
// nothing; empty: of other sums.
std::string Leaves(CompositeWriter& w, const Node& node, const std::string& kind, int64_t outputs) {
  const std::string how = StringAttribute(node, "aggregate_function", "SUM");
  if (how != "SUM" && how != "AVERAGE") return "";
  const std::string x = w.Float(node, node.input(0)), sums = w.Fresh(node.output(0));
  Node& plain = w.Add(node, "TreeEnsembleRegressor", {x}, sums);
  for (const onnx::AttributeProto& attribute : node.attribute()) {
    const std::string& name = attribute.name();
    const bool of_leaves = absl::StartsWith(name, absl::StrCat(kind, "_"));
    if (!of_leaves && !absl::StartsWith(name, "nodes_") && name != "base_values" &&
        name != "aggregate_function") {
      continue;
    }
    onnx::AttributeProto& own = *plain.add_attribute() = attribute;
    if (of_leaves) own.set_name(absl::StrCat("target", name.substr(kind.size())));
  }
  SetInt(plain, "n_targets", outputs);
  return sums;
}

bool TreeRegressor(CompositeWriter& w, const Node& node) {
  return AddRegression(w, node, Leaves(w, node, "target", IntAttribute(node, "n_targets", 1)));
}

// Of two classes the leaves tell one: LightGBM's and XGBoost's logistic trees.
bool BinaryTrees(CompositeWriter& w, const Node& node, const std::vector<int64_t>& labels) {
  const std::string score = Leaves(w, node, "class", 1);
  const std::vector<float> weights = FloatsAttribute(node, "class_weights");
  if (score.empty()) return false;
  const std::string how = StringAttribute(node, "post_transform", "NONE");
  const bool positive =
      std::all_of(weights.begin(), weights.end(), [](float weight) { return weight >= 0; });
  // Probabilities are of leaves that hold shares of the examples.
  if (how != "LOGISTIC" && (how != "NONE" || !positive)) return false;
  if (how == "LOGISTIC" && positive) return false;
  const std::string other =
      positive ? w.Make(node, "Sub", {w.Number(score, 1), score}) : w.Make(node, "Neg", {score});
  const std::string both = w.Fresh(score);
  SetInt(w.Add(node, "Concat", {other, score}, both), "axis", 1);
  AddLabels(w, node, both, labels);
  return node.output_size() < 2 || AddTransformed(w, node, both, node.output(1));
}

bool TreeClassifier(CompositeWriter& w, const Node& node) {
  const std::vector<int64_t> labels = IntsAttribute(node, "classlabels_int64s");
  const std::vector<int64_t> ids = IntsAttribute(node, "class_ids");
  const int64_t classes = ClassesOf(node);
  const bool labelled = w.IsRead(node.output(0));
  if (ids.empty() || (labels.empty() && labelled)) return false;
  const bool binary = classes == 2;
  if (binary && std::all_of(ids.begin(), ids.end(), [](int64_t id) { return id == 0; })) {
    return BinaryTrees(w, node, labels);
  }
  // Of two classes runtimes disagree on the label.
  const std::string scores = binary && labelled ? "" : Leaves(w, node, "class", classes);
  if (scores.empty()) return false;
  AddLabels(w, node, scores, labels);
  return node.output_size() < 2 || AddTransformed(w, node, scores, node.output(1));
}

// A map from labels to scores for each row: the scores, in the order of the labels.
bool MapsOf(CompositeWriter& w, const Node& node) {
  w.Add(node, "Identity", {node.input(0)}, node.output(0));
  return true;
}

constexpr Composite kRows[] = {
    {kMl, "Scaler", 1, Scale},
    {kMl, "Normalizer", 1, Normal},
    {kMl, "Imputer", 1, Impute},
    {kMl, "Binarizer", 1, Binarize},
    {kMl, "FeatureVectorizer", 1, JoinFeatures},
    {kMl, "ArrayFeatureExtractor", 2, PickFeatures},
    {kMl, "OneHotEncoder", 1, OneHotOf},
    {kMl, "LabelEncoder", 1, EncodeLabels},
    {kMl, "LinearRegressor", 1, LinearRegressor},
    {kMl, "LinearClassifier", 1, LinearClassifier},
    {kMl, "TreeEnsembleRegressor", 1, TreeRegressor},
    {kMl, "TreeEnsembleClassifier", 1, TreeClassifier},
    {kMl, "ZipMap", 1, MapsOf},
};

}  // namespace

absl::Span<const Composite> ScikitLearnComposites() { return kRows; }

}  // namespace ulfd::convert
