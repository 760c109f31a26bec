// Support vector machines of scikit-learn's exporters: products with the vectors, and kernels.
// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <vector>

#include "tools/convert/onnx/model/functions.h"
#include "tools/convert/onnx/rewrites/composite_writer.h"

namespace ulfd::convert {
namespace {

using Node = onnx::NodeProto;

// What the kernel gives for x and each of the support vectors, a column each; empty: they do not
// fit.
std::string KernelsOf(CompositeWriter& w, const Node& node, int64_t count) {
  std::vector<float> vectors = FloatsAttribute(node, "support_vectors");
  const std::vector<float> given = FloatsAttribute(node, "kernel_params");
  const std::string kind = StringAttribute(node, "kernel_type", "LINEAR");
  const auto rows = static_cast<size_t>(count);
  if (count < 1 || vectors.empty() || vectors.size() % rows != 0) return "";
  if (kind != "LINEAR" && given.size() != 3) return "";
  const size_t width = vectors.size() / rows;
  std::string x = w.Float(node, node.input(0));
  if (kind == "LINEAR") return TimesRows(w, node, x, vectors, count);
  const std::string gamma = w.Number(x, kind == "RBF" ? -given[0] : given[0]);
  if (kind == "POLY" || kind == "SIGMOID") {
    const std::string scaled = w.Make(node, "Mul", {TimesRows(w, node, x, vectors, count), gamma});
    const std::string base = w.Make(node, "Add", {scaled, w.Number(x, given[1])});
    return kind == "SIGMOID" ? w.Make(node, "Tanh", {base})
                             : w.Make(node, "Pow", {base, w.Number(x, given[2])});
  }
  if (kind != "RBF") return "";
  // |x - v|^2 by a product, around the vectors' mean: far from it the squares lose digits.
  std::vector<double> mean(width), squares(rows);
  for (size_t i = 0; i < vectors.size(); ++i)
    mean[i % width] += double{vectors[i]} / static_cast<double>(count);
  const std::vector<float> centre(mean.begin(), mean.end());
  for (size_t i = 0; i < vectors.size(); ++i) {
    vectors[i] -= centre[i % width];
    squares[i / width] += double{vectors[i]} * double{vectors[i]};
    vectors[i] *= -2;
  }
  x = w.Make(node, "Sub", {x, w.Floats(x, centre)});
  const std::string own = w.Reduce(node, "ReduceSumSquare", x, -1);
  const std::string theirs = w.Floats(x, std::vector<float>(squares.begin(), squares.end()));
  std::string far = w.Make(node, "Add", {TimesRows(w, node, x, vectors, count), theirs});
  far = w.Make(node, "Add", {far, own});
  return w.Make(node, "Exp", {w.Make(node, "Mul", {far, gamma})});
}

// Without support vectors the coefficients are those of x.
bool SvmRegressor(CompositeWriter& w, const Node& node) {
  const int64_t count = IntAttribute(node, "n_supports", 0);
  const std::vector<float> weights = FloatsAttribute(node, "coefficients");
  const std::vector<float> rho = FloatsAttribute(node, "rho");
  if (weights.empty() || rho.size() != 1 || count < 0 ||
      (count > 0 && static_cast<int64_t>(weights.size()) != count)) {
    return false;
  }
  const std::string x = count > 0 ? KernelsOf(w, node, count) : w.Float(node, node.input(0));
  if (x.empty()) return false;
  std::string y = w.Make(node, "Add", {TimesRows(w, node, x, weights, 1), w.Floats(x, rho)});
  if (IntAttribute(node, "one_class", 0) != 0) {
    const std::string inside = w.Make(node, "Greater", {y, w.Number(y, 0)});
    y = w.Make(node, "Where", {inside, w.Number(y, 1), w.Number(y, -1)});
  }
  return AddRegression(w, node, y);
}

// A score for each pair of classes, by the support vectors of both, above 0 for the first.  The
// label is the class with the most pairs.
struct Pairs {
  std::vector<float> weights;  // [pairs, support vectors]
  std::vector<float> votes;    // [classes, pairs]
  std::vector<float> second;   // Pairs whose second a class is.
};

Pairs PairsOf(const std::vector<int64_t>& vectors, const std::vector<float>& coefficients) {
  const size_t classes = vectors.size(), pairs = classes * (classes - 1) / 2;
  const size_t count = coefficients.size() / (classes - 1);
  Pairs of{.weights = std::vector<float>(pairs * count),
           .votes = std::vector<float>(classes * pairs),
           .second = std::vector<float>(classes)};
  std::vector<size_t> begin = {0};
  for (const int64_t size : vectors) begin.push_back(begin.back() + static_cast<size_t>(size));
  size_t pair = 0;
  for (size_t i = 0; i < classes; ++i) {
    for (size_t j = i + 1; j < classes; ++j, ++pair) {
      const auto take = [&](size_t own, size_t row) {
        for (size_t v = begin[own]; v < begin[own + 1]; ++v) {
          of.weights[pair * count + v] = coefficients[row * count + v];
        }
      };
      take(i, j - 1);
      take(j, i);
      of.votes[i * pairs + pair] = 1;
      of.votes[j * pairs + pair] = -1;
      of.second[j] += 1;
    }
  }
  return of;
}

// Runtimes find probabilities by iteration, each to another precision.
bool SvmClassifier(CompositeWriter& w, const Node& node) {
  constexpr size_t kMostClasses = 64;
  const std::vector<int64_t> vectors = IntsAttribute(node, "vectors_per_class"),
                             labels = IntsAttribute(node, "classlabels_ints");
  const std::vector<float> weights = FloatsAttribute(node, "coefficients"),
                           rho = FloatsAttribute(node, "rho");
  const size_t classes = vectors.size();
  if (classes < 2 || classes > kMostClasses || rho.size() != classes * (classes - 1) / 2 ||
      !FloatsAttribute(node, "prob_a").empty() || weights.size() % (classes - 1) != 0 ||
      StringAttribute(node, "post_transform", "NONE") != "NONE" ||
      (labels.empty() ? w.IsRead(node.output(0)) : labels.size() != classes)) {
    return false;
  }
  const auto count = static_cast<int64_t>(weights.size() / (classes - 1));
  int64_t left = count;
  for (const int64_t size : vectors) {
    if (size < 0 || size > left) return false;
    left -= size;
  }
  const std::string kernels = left == 0 ? KernelsOf(w, node, count) : "";
  if (kernels.empty()) return false;
  const Pairs pairs = PairsOf(vectors, weights);
  const std::string scores =
      w.Make(node, "Add",
             {TimesRows(w, node, kernels, pairs.weights, static_cast<int64_t>(rho.size())),
              w.Floats(kernels, rho)});
  const std::string first = w.Float(node, w.Make(node, "Greater", {scores, w.Number(scores, 0)}));
  const std::string votes =
      w.Make(node, "Add",
             {TimesRows(w, node, first, pairs.votes, static_cast<int64_t>(classes)),
              w.Floats(first, pairs.second)});
  AddLabels(w, node, votes, labels);
  if (node.output_size() < 2) return true;
  const std::string all =
      classes == 2 ? SideBySide(w, node, w.Make(node, "Neg", {scores}), scores) : scores;
  w.Add(node, "Identity", {all}, node.output(1));
  return true;
}

constexpr Composite kRows[] = {
    {kMl, "SVMRegressor", 1, SvmRegressor},
    {kMl, "SVMClassifier", 1, SvmClassifier},
};

}  // namespace

absl::Span<const Composite> SupportVectorComposites() { return kRows; }

}  // namespace ulfd::convert
