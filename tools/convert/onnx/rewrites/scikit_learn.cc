// Operators of scikit-learn's exporters: linear models, trees, and what prepares their inputs.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
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

// x times the transposed matrix of so many rows.
std::string TimesRows(CompositeWriter& w, const Node& node, const std::string& x,
                      const std::vector<float>& matrix, int64_t rows) {
  const auto count = static_cast<int64_t>(matrix.size());
  const std::string of_rows =
      w.Make(node, "Reshape", {w.Floats(x, matrix), w.Integers(x, {rows, count / rows})});
  return w.Make(node, "MatMul", {x, w.Transposed(node, of_rows, {1, 0})});
}

std::string SideBySide(CompositeWriter& w, const Node& node, const std::string& first,
                       const std::string& second) {
  std::string both = w.Fresh(node.output(0));
  SetInt(w.Add(node, "Concat", {first, second}, both), "axis", 1);
  return both;
}

// The node's first output is the label of the best score; without labels it is none.
void AddLabels(CompositeWriter& w, const Node& node, const std::string& scores,
               const std::vector<int64_t>& labels) {
  if (labels.empty()) return;
  const std::string best = w.Fresh(node.output(0));
  Node& most = w.Add(node, "ArgMax", {scores}, best);
  SetInt(most, "axis", 1);
  SetInt(most, "keepdims", 0);
  w.Add(node, "Gather", {w.Integers(best, labels), best}, node.output(0));
}

// The node's output is the scores.  False: of a post_transform, on which runtimes disagree.
bool AddRegression(CompositeWriter& w, const Node& node, const std::string& scores) {
  if (scores.empty() || StringAttribute(node, "post_transform", "NONE") != "NONE") return false;
  w.Add(node, "Identity", {scores}, node.output(0));
  return true;
}

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
  w.AddNormal(node, x, w.Reduce(node, op, x, {-1}));
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
  const std::vector<int64_t> sizes = IntsAttribute(node, "inputdimensions");
  if (!sizes.empty() && static_cast<int>(sizes.size()) != node.input_size()) return false;
  for (const std::string& input : node.input()) {
    const std::string x = w.Float(node, input);
    // What does not fit would be cut, or filled up.
    columns.push_back(
        sizes.empty() ? x
                      : w.Make(node, "Reshape", {x, w.Integers(x, {0, sizes[columns.size()]})}));
  }
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
  values.reserve(whole.size());
  for (const int64_t value : whole) values.push_back(engine::Dim::Of(value));
  return IntConstant({static_cast<int64_t>(whole.size())}, values);
}

// A number for each key, and one for what is no key.  Keys that are there twice are refused, as
// runtimes disagree on which one counts.
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

constexpr int64_t kMostIds = 1 << 20;

// Integers that are looked up in a list from the least key to the largest, with the default where
// there is no key, and on either side.
bool EncodeIntegers(CompositeWriter& w, const Node& node, const Labels& labels,
                    const std::string& x, int64_t room) {
  const absl::StatusOr<std::vector<int64_t>> keys = labels.keys.ToInts();
  if (!keys.ok()) return false;
  const auto range = std::minmax_element(keys->begin(), keys->end());
  const int64_t least = *range.first, most = *range.second;
  if (least < -kMostIds || most > kMostIds || most - least >= room) return false;
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
  std::string at = w.Make(node, "Sub", {x, w.Integers(out, {least - 1})});
  at = w.Make(node, "Max", {at, w.Integers(out, {0})});
  at = w.Make(node, "Min", {at, w.Integers(out, {static_cast<int64_t>(places) - 1})});
  w.Add(node, "Gather", {list, at}, out);
  return true;
}

// Floats whose keys are integers: what is none takes the place before the least key.
bool EncodeWholeFloats(CompositeWriter& w, const Node& node, const Labels& labels) {
  constexpr int64_t kMostComputed = 4000;  // Places that are computed, not ids.
  constexpr float kExact = 1 << 24;
  const absl::StatusOr<std::vector<float>> keys = labels.keys.ToFloats(),
                                           values = labels.values.ToFloats();
  const auto none = [](const auto& list, auto is) {
    return !list.ok() || std::any_of(list->begin(), list->end(), [&](float v) { return !is(v); });
  };
  const auto is_key = [](float key) {
    return std::abs(key) <= float{kMostIds} && std::trunc(key) == key;
  };
  if (none(keys, is_key) || none(values, [](float value) { return std::abs(value) <= kExact; })) {
    return false;
  }
  const std::string& x = node.input(0);
  const std::string whole = w.Make(node, "Equal", {w.Make(node, "Round", {x}), x});
  const float before = *std::min_element(keys->begin(), keys->end()) - 1;
  const std::string some = w.Make(node, "Where", {whole, x, w.Number(x, before)});
  const std::string ids = w.Fresh(some);
  SetInt(w.Add(node, "Cast", {some}, ids), "to", onnx::TensorProto::INT64);
  return EncodeIntegers(w, node, labels, ids, kMostComputed);
}

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
  if (!labels.keys.is_float) {
    return EncodeIntegers(w, node, labels, node.input(0), kMostIds);
  }
  return EncodeWholeFloats(w, node, labels) || EncodeFloats(w, node, labels);
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
  const std::string product = TimesRows(w, node, x, weights, outputs);
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

bool LinearRegressor(CompositeWriter& w, const Node& node) {
  return AddRegression(w, node, Linear(w, node, IntAttribute(node, "targets", 1)));
}

// Of two classes a row of coefficients tells the second, where it is above 0; the first has what
// is left of 1.
bool OneRowOfTwo(CompositeWriter& w, const Node& node, const std::vector<int64_t>& labels) {
  const std::string score = Linear(w, node, 1);
  const std::string how = StringAttribute(node, "post_transform", "NONE");
  if (score.empty() || (how != "NONE" && how != "LOGISTIC")) return false;
  AddLabels(w, node, SideBySide(w, node, w.Make(node, "Neg", {score}), score), labels);
  if (node.output_size() < 2) return true;
  const std::string second = how == "NONE" ? score : w.Make(node, "Sigmoid", {score});
  const std::string first = w.Make(node, "Sub", {w.Number(score, 1), second});
  w.Add(node, "Identity", {SideBySide(w, node, first, second)}, node.output(1));
  return true;
}

bool LinearClassifier(CompositeWriter& w, const Node& node) {
  const std::vector<int64_t> labels = IntsAttribute(node, "classlabels_ints");
  const onnx::AttributeProto* const names = FindAttribute(node, "classlabels_strings");
  const int64_t classes = names != nullptr && labels.empty() ? names->strings_size()
                                                             : static_cast<int64_t>(labels.size());
  if (labels.empty() && w.IsRead(node.output(0))) return false;
  if (classes == 2 && FloatsAttribute(node, "intercepts").size() == 1) {
    return OneRowOfTwo(w, node, labels);
  }
  const std::string scores = Linear(w, node, classes);
  if (scores.empty()) return false;
  AddLabels(w, node, scores, labels);
  return node.output_size() < 2 || AddTransformed(w, node, scores, node.output(1));
}

// The sums of the leaves that a row reaches, as a regression (without a domain) that transforms
// nothing; empty: of other sums.
std::string Leaves(CompositeWriter& w, const Node& node, const std::string& kind, int64_t outputs) {
  const std::string how = StringAttribute(node, "aggregate_function", "SUM");
  if (how != "SUM" && how != "AVERAGE") return "";
  std::string x = w.Float(node, node.input(0)), sums = w.Fresh(node.output(0));
  Node& plain = w.Add(node, "TreeEnsembleRegressor", {x}, sums);
  for (const onnx::AttributeProto& attribute : node.attribute()) {
    const std::string& name = attribute.name();
    if (absl::EndsWith(name, "_as_tensor")) return "";  // In double precision.
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
  const std::string both = SideBySide(w, node, other, score);
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

std::vector<float> TensorOf(const Node& node, const char* name, int type) {
  const onnx::AttributeProto* const list = FindAttribute(node, name);
  if (list == nullptr || list->t().data_type() != type) return {};
  const absl::StatusOr<Constant> constant = ReadTensor(list->t());
  if (!constant.ok()) return {};
  return constant->ToFloats().value_or(std::vector<float>());
}

// Trees of set 5 as the operator before it has them: one for each root, of nodes that no other tree
// has, with leaves that are numbered behind all nodes.
class OlderTrees {
 public:
  explicit OlderTrees(const Node& node)
      : roots_(IntsAttribute(node, "tree_roots")),
        features_(IntsAttribute(node, "nodes_featureids")),
        tracks_(IntsAttribute(node, "nodes_missing_value_tracks_true")),
        targets_(IntsAttribute(node, "leaf_targetids")),
        next_{IntsAttribute(node, "nodes_truenodeids"), IntsAttribute(node, "nodes_falsenodeids")},
        ends_{IntsAttribute(node, "nodes_trueleafs"), IntsAttribute(node, "nodes_falseleafs")},
        modes_(TensorOf(node, "nodes_modes", onnx::TensorProto::UINT8)),
        splits_(TensorOf(node, "nodes_splits", onnx::TensorProto::FLOAT)),
        weights_(TensorOf(node, "leaf_weights", onnx::TensorProto::FLOAT)),
        seen_(features_.size(), false),
        tree_of_(targets_.size(), -1) {}

  // False: the lists do not fit.
  bool Write(Node& older);

 private:
  bool AddNode(int64_t tree, int64_t at);
  void AddRow(int64_t tree, int64_t id, const char* mode, float value,
              const std::array<int64_t, 4>& rest);
  int64_t count() const { return static_cast<int64_t>(features_.size()); }

  const std::vector<int64_t> roots_, features_, tracks_, targets_;
  const std::vector<int64_t> next_[2], ends_[2];  // Where the decision holds, and where not.
  const std::vector<float> modes_, splits_, weights_;
  std::vector<bool> seen_;
  std::vector<int64_t> tree_of_, open_;  // The last tree of each leaf; nodes to come.
  std::map<std::string, std::vector<int64_t>> lists_;
  onnx::AttributeProto mode_names_, values_, leaves_;
};

void OlderTrees::AddRow(int64_t tree, int64_t id, const char* mode, float value,
                        const std::array<int64_t, 4>& rest) {
  lists_["nodes_treeids"].push_back(tree);
  lists_["nodes_nodeids"].push_back(id);
  lists_["nodes_featureids"].push_back(rest[0]);
  lists_["nodes_truenodeids"].push_back(rest[1]);
  lists_["nodes_falsenodeids"].push_back(rest[2]);
  lists_["nodes_missing_value_tracks_true"].push_back(rest[3]);
  mode_names_.add_strings(mode);
  values_.add_floats(value);
}

bool OlderTrees::AddNode(int64_t tree, int64_t at) {
  constexpr const char* kModes[] = {"BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE",
                                    "BRANCH_GT",  "BRANCH_EQ", "BRANCH_NEQ"};
  const auto place = static_cast<size_t>(at);
  if (at < 0 || at >= count() || seen_[place] || modes_[place] >= std::size(kModes)) return false;
  seen_[place] = true;
  std::array<int64_t, 4> row = {features_[place], 0, 0, tracks_.empty() ? 0 : tracks_[place]};
  for (const size_t side : {0, 1}) {
    const bool ends = ends_[side][place] != 0;
    const int64_t to = next_[side][place];
    if (to < 0 || to >= (ends ? static_cast<int64_t>(targets_.size()) : count())) return false;
    row[1 + side] = to + (ends ? count() : 0);
  }
  AddRow(tree, at, kModes[static_cast<size_t>(modes_[place])], splits_[place], row);
  for (const size_t side : {0, 1}) {
    const int64_t to = next_[side][place];
    if (ends_[side][place] == 0) {
      open_.push_back(to);
      continue;
    }
    const auto leaf = static_cast<size_t>(to);
    if (tree_of_[leaf] == tree) continue;
    tree_of_[leaf] = tree;
    AddRow(tree, count() + to, "LEAF", 0, {0, 0, 0, 0});
    lists_["target_treeids"].push_back(tree);
    lists_["target_nodeids"].push_back(count() + to);
    lists_["target_ids"].push_back(targets_[leaf]);
    leaves_.add_floats(weights_[leaf]);
  }
  return true;
}

bool OlderTrees::Write(Node& older) {
  bool fits = modes_.size() == features_.size() && splits_.size() == features_.size() &&
              weights_.size() == targets_.size() &&
              (tracks_.empty() || tracks_.size() == features_.size());
  for (const auto* const lists : {next_, ends_}) {
    fits = fits && lists[0].size() == features_.size() && lists[1].size() == features_.size();
  }
  for (size_t tree = 0; fits && tree < roots_.size(); ++tree) {
    open_ = {roots_[tree]};
    while (fits && !open_.empty()) {
      const int64_t at = open_.back();
      open_.pop_back();
      fits = AddNode(static_cast<int64_t>(tree), at);
    }
  }
  if (!fits || roots_.empty()) return false;
  for (const auto& [name, list] : lists_) SetInts(older, name.c_str(), list);
  const auto add = [&](onnx::AttributeProto list, const char* name, auto type) {
    list.set_name(name);
    list.set_type(type);
    *older.add_attribute() = std::move(list);
  };
  add(mode_names_, "nodes_modes", onnx::AttributeProto::STRINGS);
  add(values_, "nodes_values", onnx::AttributeProto::FLOATS);
  add(leaves_, "target_weights", onnx::AttributeProto::FLOATS);
  return true;
}

// Sums and averages that nothing transforms.
bool TreesOfSet5(CompositeWriter& w, const Node& node) {
  const int64_t how = IntAttribute(node, "aggregate_function", 1);
  if ((how != 0 && how != 1) || IntAttribute(node, "post_transform", 0) != 0) return false;
  Node& older = w.Add(node, "TreeEnsembleRegressor", {node.input(0)}, node.output(0));
  SetInt(older, "n_targets", IntAttribute(node, "n_targets", 1));
  SetString(older, "aggregate_function", how == 0 ? "AVERAGE" : "SUM");
  return OlderTrees(node).Write(older);
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
    {kMl, "TreeEnsemble", 1, TreesOfSet5},
    {kMl, "ZipMap", 1, MapsOf},
};

}  // namespace

absl::Span<const Composite> ScikitLearnComposites() { return kRows; }

}  // namespace ulfd::convert
