// ONNX's matrix products.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/errors.h"
#include "base/status_macros.h"
#include "tools/convert/onnx/model/functions.h"
#include "tools/convert/onnx/model/graph.h"
#include "tools/convert/onnx/operators/layers.h"
#include "tools/convert/recipes.h"

namespace ulfd::convert {
namespace {

using engine::Dim;

// A constant as a bias of n values: one value, [n], or that with 1s in front.
absl::StatusOr<std::vector<float>> ReadBias(const Constant& constant, int64_t n) {
  ASSIGN_OR_RETURN(std::vector<float> bias, constant.ToFloats());
  if (bias.size() == 1) bias.assign(static_cast<size_t>(n), bias[0]);
  const bool vector =
      constant.dims.empty() || constant.elements() == 1 || constant.dims.back() == Dim::Of(n);
  if (static_cast<int64_t>(bias.size()) != n || !vector) {
    return Unimplemented("a bias of shape ", DimsText(constant.dims), ", want [", n,
                         "] for all rows");
  }
  return bias;
}

// The Add behind the product whose other input is a bias, if nothing else reads the product.
absl::Status TakeBias(OnnxNode& node, Dense& dense) {
  const auto reader = node.only_reader.find(node.node.output(0));
  if (reader == node.only_reader.end() || reader->second->op_type() != "Add") {
    return absl::OkStatus();
  }
  const onnx::NodeProto& add = *reader->second;
  const std::string& other = add.input(add.input(0) == node.node.output(0) ? 1 : 0);
  const Constant* constant = node.graph.FindConstant(other);
  if (constant == nullptr || !constant->is_float) return absl::OkStatus();
  absl::StatusOr<std::vector<float>> bias = ReadBias(*constant, dense.n());
  // A bias of more dimensions than the product would change its rank.
  if (!bias.ok() || constant->dims.size() > 1) return absl::OkStatus();
  dense.bias = *std::move(bias);
  node.absorbed = &add;
  return absl::OkStatus();
}

// Whether the last two axes of a view are those of its tensor, swapped, with no other change.
bool IsSwapped(const OnnxValue& x, const GraphBuilder& builder) {
  const int rank = x.rank();
  if (rank < 2 || builder.Find(x.tensor)->shape.rank() != rank) return false;
  for (int i = 0; i + 2 < rank; ++i) {
    if (x.axes[i] != i) return false;
  }
  return x.axes[rank - 2] == rank - 1 && x.axes[rank - 1] == rank - 2;
}

// a [.., m, k] x b [.., k, n], batched over what is in front.
absl::StatusOr<OnnxValue> ProductOf(OnnxNode& node, const OnnxValue& a, const OnnxValue& b,
                                    const std::string& out) {
  GraphBuilder& builder = node.builder();
  const int ka = a.rank() - 1, kb = b.rank() - 2;
  Dims batch_a(a.dims.begin(), a.dims.end() - 2), batch_b(b.dims.begin(), b.dims.end() - 2);
  ASSIGN_OR_RETURN(Dims dims, BroadcastDims(batch_a, batch_b));
  dims.push_back(a.dims[a.rank() - 2]);
  dims.push_back(b.dims[b.rank() - 1]);
  std::vector<std::string> operands;
  bool transposed[2] = {false, false};
  for (int i = 0; i < 2; ++i) {
    const OnnxValue& x = i == 0 ? a : b;
    transposed[i] = IsSwapped(x, builder) && !node.graph.IsRepeated(x, x.rank() - 1) &&
                    !node.graph.IsRepeated(x, x.rank() - 2);
    if (transposed[i]) {
      operands.push_back(x.tensor);
      continue;
    }
    ASSIGN_OR_RETURN(std::string plain, node.graph.PlainAlong(x, {x.rank() - 2, x.rank() - 1}));
    operands.push_back(std::move(plain));
  }
  if (a.dims[ka].IsConst() && b.dims[kb].IsConst() && a.dims[ka] != b.dims[kb]) {
    return InvalidArgument("shapes ", DimsText(a.dims), " and ", DimsText(b.dims),
                           " have no product");
  }
  ulf::LayerParameter layer = MakeLayer("batchdot_layer", node.name, operands, out);
  layer.mutable_batch_dot_param()->set_transpose_a(transposed[0]);
  layer.mutable_batch_dot_param()->set_transpose_b(transposed[1]);
  RETURN_IF_ERROR(builder.AddLayer(std::move(layer)));
  return node.graph.Whole(out, OneUserBesideAds(std::move(dims)));
}

// Whether ads and heads, say, are one dimension in one of the two, and the user and heads in the
// other.
bool AreMergedApart(const OnnxValue& a, const OnnxValue& b) {
  const Dim &p = a.dims[0], &q = b.dims[0];
  return a.rank() == b.rank() && p.value() > 1 && p.value() == q.value() &&
         ((p.IsAds() && q.IsUsers()) || (p.IsUsers() && q.IsAds()));
}

// a [.., m, k] x b [.., k, n].  Ads are rows of the product, not columns of a matrix: where m is
// the ads, each of them has a product of its own with what the user has, or what is the same for
// all.
absl::StatusOr<OnnxValue> ProductPerRow(OnnxNode& node, OnnxValue a, OnnxValue b,
                                        const std::string& out) {
  const auto has_ads = [](const OnnxValue& x) {
    return std::any_of(x.dims.begin(), x.dims.end(), [](const Dim& d) { return d.IsAds(); });
  };
  const auto is_one = [](const Dim& d) { return d == Dim::Of(1) || d == Dim::Users(); };
  const bool m_ads = a.dims[a.rank() - 2].IsAds() && !has_ads(b);
  const bool n_ads = b.dims[b.rank() - 1].IsAds() && !has_ads(a);
  const bool apart = m_ads || n_ads;
  const int stated = std::max(a.rank(), b.rank());
  const auto lift = [](OnnxValue& x, int rank) {
    while (x.rank() < rank) x = WithAxis(std::move(x), 0);
  };
  lift(a, std::max(stated, 3));
  lift(b, std::max(stated, 3));
  if (apart && !(is_one(a.dims[0]) && is_one(b.dims[0]))) {
    lift(a, stated + 1);
    lift(b, stated + 1);
  }
  const int m = a.rank() - 2, n = m + 1;
  const auto transpose = [&](OnnxValue x) { return MoveAxis(std::move(x), n, m); };
  const auto swap_rows = [&](OnnxValue& x) {
    std::swap(x.dims[0], x.dims[m]);
    std::swap(x.axes[0], x.axes[m]);
  };
  // With the ads last it is the product of both, transposed and the other way around.
  if (n_ads) {
    a = transpose(std::move(a));
    b = transpose(std::move(b));
    std::swap(a, b);
  }
  if (apart) swap_rows(a);
  ASSIGN_OR_RETURN(OnnxValue product, ProductOf(node, a, b, out));
  if (apart) swap_rows(product);
  if (n_ads) product = transpose(std::move(product));
  while (product.rank() > stated) product = WithoutAxis(std::move(product), 0);
  return product;
}

absl::Status BatchDot(OnnxNode& node, const OnnxValue& a, const OnnxValue& b) {
  if (a.rank() < 2 || b.rank() < 2) {
    return Unimplemented("a product of computed tensors of shapes ", DimsText(a.dims), " and ",
                         DimsText(b.dims));
  }
  const int m = a.rank() - 2, n = b.rank() - 1;
  NoteRows(node, a.dims, {m + 1});
  if (a.dims[m].IsAds()) NoteRows(node, b.dims, {n});
  if (!AreMergedApart(a, b)) {
    ASSIGN_OR_RETURN(OnnxValue product, ProductPerRow(node, a, b, node.Top()));
    node.Set(std::move(product));
    return absl::OkStatus();
  }
  // [ads, k, ..] broadcasts with [1 user, k, ..], which is not repeated.
  ASSIGN_OR_RETURN(const OnnxValue x, SplitMergedRows(node, a, 0));
  ASSIGN_OR_RETURN(const OnnxValue y, SplitMergedRows(node, b, 0));
  ASSIGN_OR_RETURN(OnnxValue product, ProductOf(node, x, y, node.Scratch("apart")));
  Dims dims = product.dims;
  dims.erase(dims.begin());
  dims[0] = a.dims[0].IsAds() ? a.dims[0] : b.dims[0];
  ASSIGN_OR_RETURN(product, Reshaped(node, product, std::move(dims)));
  node.Set(std::move(product));
  return absl::OkStatus();
}

// Whether each row is a matrix as it lies in memory, of enough columns to multiply it so: turning
// it around for a weight, and the product back, takes as long as the product.
bool LiesWide(const OnnxValue& x) {
  constexpr int64_t kWide = 16;
  bool lies = x.rank() == 3 && x.dims[0].IsAds() && x.dims[1].IsConst() && x.dims[2].IsConst() &&
              x.dims[2].value() >= kWide;
  for (int axis = 0; axis < x.rank(); ++axis) lies &= x.axes[axis] == axis;
  return lies;
}

// Of `a` of two axes or more.
absl::Status MatMulOf(OnnxNode& node, const OnnxValue& a) {
  const Constant* weight = node.constant(1);
  if (weight != nullptr && weight->dims.size() == 2) {
    Dense dense{.sizes = weight->sizes()};
    ASSIGN_OR_RETURN(dense.weight, weight->ToFloats());
    RETURN_IF_ERROR(TakeBias(node, dense));
    return AddDense(node, a, dense);
  }
  ASSIGN_OR_RETURN(OnnxValue b, node.value(1));
  if (b.rank() == 1) {
    // A vector that is the same for all rows: the sum of what it leaves of the last axis.
    const int last = a.rank() - 1;
    ASSIGN_OR_RETURN(const std::string x, node.graph.Plain(a));
    ASSIGN_OR_RETURN(const std::string y, node.graph.Plain(b));
    ASSIGN_OR_RETURN(const std::string each, Computed(node, "each", "@0 * @1", {x, y}));
    const std::string out = node.Top();
    RETURN_IF_ERROR(SumAlong(node, each, {last}, node.name, out).status());
    node.Set(out, Dims(a.dims.begin(), a.dims.end() - 1));
    return absl::OkStatus();
  }
  const Constant* left = node.constant(0);
  if (left != nullptr && left->dims.size() == 2 && b.rank() > 2 && !LiesWide(b)) {
    // [m, k] * [.., k, n]: the rows of the constant are columns of a weight.
    Dense dense{.sizes = left->sizes(), .transposed = true};
    ASSIGN_OR_RETURN(dense.weight, left->ToFloats());
    return AddDenseAlong(node, b, b.rank() - 2, dense);
  }
  return BatchDot(node, a, b);
}

absl::Status MatMul(OnnxNode& node) {
  ASSIGN_OR_RETURN(OnnxValue a, node.value(0));
  if (a.rank() != 1) return MatMulOf(node, a);
  // A vector is a row, whose axis the product lacks.
  RETURN_IF_ERROR(MatMulOf(node, WithAxis(std::move(a), 0)));
  OnnxValue product = *node.graph.FindValue(node.output());
  const int axis = std::max(product.rank() - 2, 0);
  node.Set(WithoutAxis(std::move(product), axis));
  return absl::OkStatus();
}

// The product and a bias that is computed, as Add converts it.
absl::Status AddComputedBias(OnnxNode& node, const std::string& scratch, OnnxValue product) {
  onnx::NodeProto add = node.node;
  add.set_op_type("Add");
  add.clear_input();
  add.add_input(scratch);
  add.add_input(node.node.input(2));
  node.graph.Define(scratch, std::move(product));
  OnnxNode step = node.With(add);
  return ConvertAdd(step);
}

// Of a weight that is computed: a product of two tensors.
absl::Status GemmOfTwo(OnnxNode& node, const OnnxValue& a) {
  const float alpha = FloatAttribute(node.node, "alpha", 1);
  const float beta = node.Has(2) ? FloatAttribute(node.node, "beta", 1) : 0;
  if (alpha != 1 || (beta != 0 && beta != 1)) {
    return Unimplemented("a weight that is computed, with alpha ", alpha, " and beta ", beta);
  }
  ASSIGN_OR_RETURN(OnnxValue b, node.value(1));
  if (a.rank() != 2 || b.rank() != 2) return InvalidArgument("want two matrices");
  if (IntAttribute(node.node, "transB", 0) != 0) b = MoveAxis(std::move(b), 1, 0);
  if (beta == 0) return BatchDot(node, a, b);
  const std::string scratch = node.Scratch("product");
  ASSIGN_OR_RETURN(OnnxValue product, ProductPerRow(node, a, b, scratch));
  return AddComputedBias(node, scratch, std::move(product));
}

// alpha * A * B + beta * C.
absl::Status Gemm(OnnxNode& node) {
  ASSIGN_OR_RETURN(OnnxValue a, node.value(0));
  const Constant* weight = node.constant(1);
  if (IntAttribute(node.node, "transA", 0) != 0 && a.rank() == 2) a = MoveAxis(std::move(a), 1, 0);
  if (weight == nullptr) return GemmOfTwo(node, a);
  if (weight->dims.size() != 2) return InvalidArgument("want two matrices");
  Dense dense{.sizes = weight->sizes(), .transposed = IntAttribute(node.node, "transB", 0) != 0};
  ASSIGN_OR_RETURN(dense.weight, weight->ToFloats());
  const float alpha = FloatAttribute(node.node, "alpha", 1);
  const float beta = FloatAttribute(node.node, "beta", 1);
  if (alpha != 1) {
    for (float& value : dense.weight) value *= alpha;
    node.note = absl::StrCat("alpha ", alpha, " is part of the weight");
  }
  if (node.Has(2)) {
    const Constant* bias = node.constant(2);
    if (bias == nullptr && beta != 1) {
      return Unimplemented("beta ", beta, " with a bias that is computed");
    }
    if (bias == nullptr) {
      const std::string scratch = node.Scratch("product");
      ASSIGN_OR_RETURN(OnnxValue product, DenseOf(node, a, dense, scratch, scratch));
      return AddComputedBias(node, scratch, std::move(product));
    }
    ASSIGN_OR_RETURN(dense.bias, ReadBias(*bias, dense.n()));
    for (float& value : dense.bias) value *= beta;
  }
  return AddDense(node, a, dense);
}

// ---------------------------------------------------------------------------------- Einsum

struct Equation {
  std::string terms[2], out;
  std::string summed;  // Labels that the output lacks, in order of appearance.
};

absl::StatusOr<Equation> ReadEquation(const OnnxNode& node) {
  std::string text = StringAttribute(node.node, "equation", "");
  text.erase(std::remove(text.begin(), text.end(), ' '), text.end());
  const auto refuse = [&](absl::string_view why) {
    return Unimplemented("equation \"", text, "\": ", why);
  };
  const size_t arrow = text.find("->"), comma = text.find(',');
  if (arrow == std::string::npos || comma == std::string::npos || comma > arrow) {
    return refuse("want two terms and ->");
  }
  Equation equation{.terms = {text.substr(0, comma), text.substr(comma + 1, arrow - comma - 1)},
                    .out = text.substr(arrow + 2)};
  for (const std::string* labels : {&equation.terms[0], &equation.terms[1], &equation.out}) {
    for (size_t i = 0; i < labels->size(); ++i) {
      const char label = (*labels)[i];
      if (!absl::ascii_isalnum(static_cast<unsigned char>(label))) return refuse("want two terms");
      if (labels->find(label, i + 1) != std::string::npos) return refuse("a label is there twice");
      const bool summed = equation.out.find(label) == std::string::npos;
      if (summed && equation.summed.find(label) == std::string::npos) equation.summed += label;
    }
  }
  for (const char label : equation.out) {
    if (equation.terms[0].find(label) != std::string::npos) continue;
    if (equation.terms[1].find(label) == std::string::npos) return refuse("a label of no term");
  }
  return equation;
}

// The view with one axis per label, of 1 where the term lacks it.
OnnxValue ByLabels(const OnnxValue& x, const std::string& term, const std::string& labels) {
  OnnxValue out{.tensor = x.tensor};
  for (const char label : labels) {
    const size_t at = term.find(label);
    out.dims.push_back(at == std::string::npos ? Dim::Of(1) : x.dims[at]);
    out.axes.push_back(at == std::string::npos ? -1 : x.axes[at]);
  }
  return out;
}

bool HasLabel(const std::string& term, char label) { return term.find(label) != std::string::npos; }

onnx::NodeProto EinsumNode(std::initializer_list<std::string> inputs, const std::string& output,
                           const std::string& text) {
  onnx::NodeProto node;
  node.set_op_type("Einsum");
  for (const std::string& input : inputs) node.add_input(input);
  node.add_output(output);
  SetString(node, "equation", text);
  return node;
}

// The constant with its axes in the order of `labels`.
absl::StatusOr<std::vector<float>> InOrder(const OnnxNode& node, const Constant& constant,
                                           const std::string& term, const std::string& labels) {
  ASSIGN_OR_RETURN(const std::vector<Constant> ordered,
                   FoldNode(EinsumNode({"x"}, "y", absl::StrCat(term, "->", labels)),
                            node.graph.opset(), {&constant}));
  return ordered[0].ToFloats();
}

// x [.., k] with constants [k, n], where k and n are any labels side by side; false: it is no such
// product.
absl::StatusOr<bool> EinsumDense(OnnxNode& node, const Equation& equation,
                                 const OnnxValue (&x)[2]) {
  const int of_constant = node.constant(1) != nullptr ? 1 : 0;
  const Constant* const weight = node.constant(of_constant);
  if (weight == nullptr) return false;
  const OnnxValue& value = x[1 - of_constant];
  const std::string &in = equation.terms[1 - of_constant], &matrix = equation.terms[of_constant];
  // Labels of the rows, of what is summed in both, and of the columns.
  std::string rest, k, n;
  Dense dense{.sizes = {1, 1}};
  Dims columns;
  for (const char label : equation.out + equation.summed) {
    const bool in_x = HasLabel(in, label), in_matrix = HasLabel(matrix, label);
    const int64_t size = in_matrix ? weight->sizes()[matrix.find(label)] : 0;
    if (!HasLabel(equation.out, label)) {
      if (!in_x) continue;  // InOrder sums it.
      if (!in_matrix || value.dims[in.find(label)] != Dim::Of(size)) return false;
      k += label;
      dense.sizes[0] *= size;
    } else if (in_x) {
      if (in_matrix || !n.empty()) return false;
      rest += label;
    } else {
      n += label;
      dense.sizes[1] *= size;
      columns.push_back(Dim::Of(size));
    }
  }
  if (rest.empty() || k.empty()) return false;
  ASSIGN_OR_RETURN(dense.weight, InOrder(node, *weight, matrix, k + n));
  OnnxValue rows = ByLabels(value, in, rest + k);
  Dims dims(rows.dims.begin(), rows.dims.begin() + static_cast<int>(rest.size()));
  if (k.size() > 1) {
    dims.push_back(Dim::Of(dense.k()));
    ASSIGN_OR_RETURN(rows, Reshaped(node, rows, dims));
    dims.pop_back();
  }
  if (n.size() == 1) {
    RETURN_IF_ERROR(AddDense(node, rows, dense));
    return true;
  }
  const std::string name = node.Scratch("product");
  ASSIGN_OR_RETURN(OnnxValue product, DenseOf(node, rows, dense, name, name));
  for (const Dim& column : columns) dims.push_back(column);
  ASSIGN_OR_RETURN(product, Reshaped(node, product, std::move(dims)));
  node.Set(std::move(product));
  return true;
}

// The labels of the output: rows of the request, those of both terms, the others.  In this order
// sums of products are products of matrices, which the engine finds.
std::string BatchFirst(const Equation& equation, const OnnxValue (&x)[2]) {
  const auto place = [&](char label) {
    int terms = 0;
    for (int i = 0; i < 2; ++i) {
      const size_t at = equation.terms[i].find(label);
      if (at == std::string::npos) continue;
      if (!x[i].dims[at].IsConst()) return 0;
      ++terms;
    }
    return terms == 2 ? 1 : 2;
  };
  std::string labels = equation.out;
  std::stable_sort(labels.begin(), labels.end(),
                   [&](char a, char b) { return place(a) < place(b); });
  return labels;
}

// Everything is broadcast and multiplied, then summed.
absl::Status EinsumBySums(OnnxNode& node, const Equation& equation, const OnnxValue (&x)[2]) {
  const size_t rank = equation.out.size();
  const std::string kept = equation.summed.empty() ? equation.out : BatchFirst(equation, x);
  const std::string labels = kept + equation.summed;
  std::vector<std::string> operands;
  Dims dims(labels.size(), Dim::Of(1));
  for (int i = 0; i < 2; ++i) {
    const OnnxValue view = ByLabels(x[i], equation.terms[i], labels);
    ASSIGN_OR_RETURN(dims, BroadcastDims(dims, view.dims));
    ASSIGN_OR_RETURN(std::string tensor, node.graph.Full(view));
    operands.push_back(std::move(tensor));
  }
  for (size_t d = rank; d < labels.size(); ++d) {
    if (!dims[d].IsConst()) return Unimplemented("sums across rows of the request");
  }
  std::vector<int> axes(equation.summed.size());
  std::iota(axes.begin(), axes.end(), static_cast<int>(rank));
  const std::string out = node.Top(), product = axes.empty() ? out : node.Scratch("product");
  RETURN_IF_ERROR(AddPlain(node.builder(), "multiply_layer", axes.empty() ? node.name : product,
                           operands, product));
  RETURN_IF_ERROR(SumAlong(node, product, axes, node.name, out).status());
  dims.resize(rank);
  node.Set(ByLabels(node.graph.Whole(out, std::move(dims)), kept, equation.out));
  return absl::OkStatus();
}

// Sums over the user's rows, of which there is one.
void DropUsers(Equation& equation, OnnxValue (&x)[2]) {
  std::string& summed = equation.summed;
  for (size_t l = summed.size(); l-- > 0;) {
    const char label = summed[l];
    const auto is_user = [&](int i) {
      const size_t at = equation.terms[i].find(label);
      return at == std::string::npos || x[i].dims[at] == Dim::Users();
    };
    if (!is_user(0) || !is_user(1)) continue;
    summed.erase(l, 1);
    for (int i = 0; i < 2; ++i) {
      const size_t at = equation.terms[i].find(label);
      if (at == std::string::npos) continue;
      x[i] = WithoutAxis(std::move(x[i]), static_cast<int>(at));
      equation.terms[i].erase(at, 1);
    }
  }
}

// A product of matrices where one label is summed and the output ends with one of each term; all
// others by sums.
absl::Status EinsumOfTwo(OnnxNode& node) {
  ASSIGN_OR_RETURN(Equation equation, ReadEquation(node));
  OnnxValue x[2];
  for (int i = 0; i < 2; ++i) {
    ASSIGN_OR_RETURN(x[i], node.value(i));
    if (x[i].rank() != static_cast<int>(equation.terms[i].size())) {
      return InvalidArgument("term \"", equation.terms[i], "\" for shape ", DimsText(x[i].dims));
    }
  }
  ASSIGN_OR_RETURN(const bool dense, EinsumDense(node, equation, x));
  if (dense) return absl::OkStatus();
  DropUsers(equation, x);
  const std::string& out = equation.out;
  if (equation.summed.size() == 1 && out.size() >= 2) {
    const char k = equation.summed[0], m = out[out.size() - 2], n = out.back();
    const int first = HasLabel(equation.terms[0], m) ? 0 : 1, second = 1 - first;
    const std::string &left = equation.terms[first], &right = equation.terms[second];
    if (HasLabel(left, k) && HasLabel(right, k) && !HasLabel(right, m) && !HasLabel(left, n)) {
      const std::string batch = out.substr(0, out.size() - 2);
      return BatchDot(node, ByLabels(x[first], left, batch + m + k),
                      ByLabels(x[second], right, batch + k + n));
    }
  }
  return EinsumBySums(node, equation, x);
}

// Where a label is there twice in a term of constants, they are replaced by their diagonal.
absl::Status TakeDiagonal(OnnxNode& node, std::string& term, std::string& input) {
  std::string labels;
  for (const char label : term) {
    if (labels.find(label) == std::string::npos) labels += label;
  }
  const Constant* const constant = node.graph.FindConstant(input);
  if (labels == term || constant == nullptr) return absl::OkStatus();
  const std::string out = node.Scratch("diagonal");
  ASSIGN_OR_RETURN(std::vector<Constant> diagonal,
                   FoldNode(EinsumNode({input}, out, absl::StrCat(term, "->", labels)),
                            node.graph.opset(), {constant}));
  node.graph.Define(out, std::move(diagonal[0]));
  term = labels;
  input = out;
  return absl::OkStatus();
}

// The diagonal of a value, by a further term: "bii" is "bij" and "ij", the identity.
absl::Status AddIdentity(OnnxNode& node, size_t at, std::vector<std::string>& terms,
                         std::vector<std::string>& inputs) {
  constexpr int64_t kMost = 1024;
  const OnnxValue* const value = node.graph.FindValue(inputs[at]);
  const std::string term = terms[at];
  for (size_t i = 0; value != nullptr && i < term.size(); ++i) {
    const size_t first = term.find(term[i]);
    if (first == i) continue;
    if (term.size() != value->dims.size() || !value->dims[i].IsConst() ||
        value->dims[i].value() > kMost) {
      return Unimplemented("a diagonal \"", term, "\" of shape ", DimsText(value->dims));
    }
    char fresh = 'A';
    while (absl::StrContains(absl::StrJoin(terms, ""), fresh)) ++fresh;
    const auto size = value->dims[i].value();
    std::vector<float> identity(static_cast<size_t>(size * size), 0);
    for (int64_t d = 0; d < size; ++d) identity[static_cast<size_t>(d * size + d)] = 1;
    inputs.push_back(node.Scratch("identity"));
    node.graph.Define(inputs.back(), FloatConstant({size, size}, std::move(identity)));
    terms[at][i] = fresh;
    terms.push_back({term[i], fresh});
  }
  return absl::OkStatus();
}

// Digits in place of the "..." of a term: the last of its `count` dimensions is 0.
void FillIn(std::string& term, int64_t count) {
  const size_t at = term.find("...");
  if (at == std::string::npos) return;
  std::string labels;
  for (int64_t i = std::min<int64_t>(count, 10); i-- > 0;) labels += static_cast<char>('0' + i);
  term.replace(at, 3, labels);
}

// Where no output is stated: the dimensions of "...", then what is there once, in order.
std::string ImpliedOutput(const std::vector<std::string>& terms) {
  std::string all = absl::StrJoin(terms, ""), out;
  std::sort(all.begin(), all.end());
  for (const char label : all) {
    const bool digit = absl::ascii_isdigit(static_cast<unsigned char>(label));
    if (digit ? !HasLabel(out, label) : std::count(all.begin(), all.end(), label) == 1) {
      out.insert(digit ? out.begin() : out.end(), label);
    }
  }
  return out;
}

// Of more terms: the first two, then their product with the third, and so on.  What neither a later
// term nor the output has is summed as soon as it can be.
absl::Status Einsum(OnnxNode& node) {
  int count = node.node.input_size();
  std::string text = StringAttribute(node.node, "equation", "");
  text.erase(std::remove(text.begin(), text.end(), ' '), text.end());
  std::pair<std::string, std::string> sides = absl::StrSplit(text, absl::MaxSplits("->", 1));
  std::vector<std::string> terms = absl::StrSplit(sides.first, ',');
  std::vector<std::string> inputs(node.node.input().begin(), node.node.input().end());
  if (count < 2 || static_cast<int>(terms.size()) != count) {
    return Unimplemented("equation \"", text, "\" of ", count, " inputs, want two or more");
  }
  int64_t most = 0;
  for (size_t i = 0; i < terms.size(); ++i) {
    const Constant* const constant = node.graph.FindConstant(inputs[i]);
    const OnnxValue* const value = node.graph.FindValue(inputs[i]);
    const auto rank = static_cast<int64_t>(constant != nullptr ? constant->dims.size()
                                           : value != nullptr  ? value->dims.size()
                                                               : 0);
    const int64_t more = rank + 3 - static_cast<int64_t>(terms[i].size());
    if (absl::StrContains(terms[i], "...")) most = std::max(most, more);
    FillIn(terms[i], more);
    RETURN_IF_ERROR(TakeDiagonal(node, terms[i], inputs[i]));
  }
  if (!absl::StrContains(text, "->")) sides.second = ImpliedOutput(terms);
  for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
    RETURN_IF_ERROR(AddIdentity(node, i, terms, inputs));
  }
  count = static_cast<int>(terms.size());
  FillIn(sides.second, most);
  std::string product = terms[0], name = inputs[0];
  for (int i = 1; i < count; ++i) {
    const bool last = i + 1 == count;
    std::string kept = last ? sides.second : "", later = sides.second;
    for (int k = i + 1; k < count; ++k) later += terms[static_cast<size_t>(k)];
    for (const char label : product + terms[static_cast<size_t>(i)]) {
      const bool is_new = kept.find(label) == std::string::npos;
      if (!last && is_new && later.find(label) != std::string::npos) kept += label;
    }
    const std::string left = name;
    name = last ? node.output() : node.Scratch("pair");
    const onnx::NodeProto pair =
        EinsumNode({left, inputs[static_cast<size_t>(i)]}, name,
                   absl::StrCat(product, ",", terms[static_cast<size_t>(i)], "->", kept));
    OnnxNode step = node.With(pair);
    if (!last) step.name = name;
    RETURN_IF_ERROR(EinsumOfTwo(step));
    product = kept;
  }
  return absl::OkStatus();
}

constexpr OnnxType kTypes[] = {
    {"MatMul", &MatMul}, {"Gemm", &Gemm}, {"Einsum", &Einsum}, {"DFT", &ConvertFourier}};

}  // namespace

absl::Span<const OnnxType> MatrixOnnxTypes() { return kTypes; }

}  // namespace ulfd::convert
