// ONNX's matrix products and the GRU.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cctype>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "tools/convert/onnx_graph.h"
#include "tools/convert/recipes.h"

namespace ulfd::convert {
namespace {

using engine::Dim;

// A weight matrix and its bias.
struct Dense {
  std::vector<float> weight;
  std::vector<int64_t> sizes;  // [k, n], or [n, k] if transposed.
  bool transposed = false;
  std::vector<float> bias;  // Empty: none.

  int64_t k() const { return sizes[transposed ? 1 : 0]; }
  int64_t n() const { return sizes[transposed ? 0 : 1]; }
};

// x [.., k] * weight + bias; x of any rank above 1.
absl::Status AddDense(OnnxNode& node, const OnnxValue& x, const Dense& dense) {
  const int last = x.rank() - 1;
  if (x.rank() < 2) return absl::UnimplementedError("a product with a vector");
  if (x.dims[last] != Dim::Of(dense.k())) {
    return absl::InvalidArgumentError(absl::StrCat("input of shape ", DimsText(x.dims), ", want ",
                                                   dense.k(), " columns for the weight"));
  }
  ASSIGN_OR_RETURN(std::string in, node.graph.PlainAlong(x, {last}));
  GraphBuilder& builder = node.builder();
  Dims dims = x.dims;
  dims[last] = Dim::Of(dense.n());
  std::vector<int64_t> back;
  if (x.rank() > 3) {  // inner_product_layer reads rank 2 and 3.
    const engine::Shape& shape = builder.Find(in)->shape;
    ASSIGN_OR_RETURN(back, ReshapeSizes(shape, Dims(shape.dims().begin(), shape.dims().end())));
    back[last] = dense.n();
    const std::string flat = node.Scratch("flat");
    RETURN_IF_ERROR(
        AddReshape(builder, absl::StrCat(node.name, "/flat"), in, {0, -1, dense.k()}, flat));
    in = flat;
  }
  const std::string out = back.empty() ? node.Top() : node.Scratch("product");
  ulf::LayerParameter layer = MakeLayer("inner_product_layer", node.name, {in}, out);
  layer.mutable_inner_product_param()->set_transpose(dense.transposed);
  layer.mutable_inner_product_param()->set_bias_term(!dense.bias.empty());
  std::vector<ulf::BlobData> weights = {MakeBlob(dense.sizes, dense.weight)};
  if (!dense.bias.empty()) weights.push_back(MakeBlob({dense.n()}, dense.bias));
  RETURN_IF_ERROR(builder.AddLayer(std::move(layer), std::move(weights)));
  if (back.empty()) {
    node.Set(out, dims);
    return absl::OkStatus();
  }
  const std::string shaped = node.Top();
  RETURN_IF_ERROR(AddReshape(builder, absl::StrCat(node.name, "/shape"), out, back, shaped));
  node.Set(shaped, dims);
  return absl::OkStatus();
}

// A constant as a bias of n values: one value, [n], or that with 1s in front.
absl::StatusOr<std::vector<float>> ReadBias(const Constant& constant, int64_t n) {
  ASSIGN_OR_RETURN(std::vector<float> bias, constant.ToFloats());
  if (bias.size() == 1) bias.assign(static_cast<size_t>(n), bias[0]);
  const bool vector =
      constant.dims.empty() || constant.elements() == 1 || constant.dims.back() == Dim::Of(n);
  if (static_cast<int64_t>(bias.size()) != n || !vector) {
    return absl::UnimplementedError(
        absl::StrCat("a bias of shape ", DimsText(constant.dims), ", want [", n, "] for all rows"));
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

// [rows, k] x [1 user, k]^T: a dot product per row.
absl::Status RowDot(OnnxNode& node, const OnnxValue& a, const OnnxValue& b) {
  GraphBuilder& builder = node.builder();
  ASSIGN_OR_RETURN(const std::string plain_a, node.graph.Plain(a));
  OnnxValue swapped = b;
  std::swap(swapped.dims[0], swapped.dims[1]);
  std::swap(swapped.axes[0], swapped.axes[1]);
  ASSIGN_OR_RETURN(const std::string plain_b, node.graph.Plain(swapped));
  const std::string product = node.Scratch("product"), out = node.Top();
  std::vector<std::string> lifted;
  for (const std::string& in : {plain_a, plain_b}) {
    const Dim k = builder.Find(in)->shape[1];
    lifted.push_back(node.Scratch("rows"));
    RETURN_IF_ERROR(AddReshape(builder, lifted.back(), in, {0, 1, k.value()}, lifted.back()));
  }
  ulf::LayerParameter layer = MakeLayer("batchdot_layer", node.name, lifted, product);
  layer.mutable_batch_dot_param()->set_transpose_a(false);
  layer.mutable_batch_dot_param()->set_transpose_b(true);
  RETURN_IF_ERROR(builder.AddLayer(std::move(layer)));
  RETURN_IF_ERROR(AddReshape(builder, absl::StrCat(node.name, "/shape"), product, {0, 1}, out));
  node.Set(out, {a.dims[0], Dim::Of(1)});
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

absl::Status BatchDot(OnnxNode& node, const OnnxValue& a, const OnnxValue& b) {
  GraphBuilder& builder = node.builder();
  if (a.rank() == 2 && b.rank() == 2) {
    const bool one_user = b.dims[1].IsUsers() || b.dims[1] == Dim::Of(1);
    if (one_user && !a.dims[1].IsUsers() && !a.dims[1].IsAds() && a.dims[1].IsConst()) {
      return RowDot(node, a, b);
    }
    return absl::UnimplementedError("a product of two computed matrices, every row with every row");
  }
  if (a.rank() < 3 || b.rank() < 3) {
    return absl::UnimplementedError(absl::StrCat("a product of computed tensors of shapes ",
                                                 DimsText(a.dims), " and ", DimsText(b.dims)));
  }
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
    return absl::InvalidArgumentError(
        absl::StrCat("shapes ", DimsText(a.dims), " and ", DimsText(b.dims), " have no product"));
  }
  const std::string out = node.Top();
  ulf::LayerParameter layer = MakeLayer("batchdot_layer", node.name, operands, out);
  layer.mutable_batch_dot_param()->set_transpose_a(transposed[0]);
  layer.mutable_batch_dot_param()->set_transpose_b(transposed[1]);
  RETURN_IF_ERROR(builder.AddLayer(std::move(layer)));
  node.Set(out, dims);
  return absl::OkStatus();
}

absl::Status MatMul(OnnxNode& node) {
  const Constant* weight = node.constant(1);
  ASSIGN_OR_RETURN(const OnnxValue a, node.value(0));
  if (weight != nullptr && weight->dims.size() == 2) {
    Dense dense{.sizes = weight->sizes()};
    ASSIGN_OR_RETURN(dense.weight, weight->ToFloats());
    RETURN_IF_ERROR(TakeBias(node, dense));
    return AddDense(node, a, dense);
  }
  ASSIGN_OR_RETURN(const OnnxValue b, node.value(1));
  return BatchDot(node, a, b);
}

// alpha * A * B + beta * C.
absl::Status Gemm(OnnxNode& node) {
  ASSIGN_OR_RETURN(OnnxValue a, node.value(0));
  const Constant* weight = node.constant(1);
  if (weight == nullptr || weight->dims.size() != 2) {
    return absl::UnimplementedError("a weight that is computed");
  }
  if (IntAttribute(node.node, "transA", 0) != 0) {
    std::swap(a.dims[0], a.dims[1]);
    std::swap(a.axes[0], a.axes[1]);
  }
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
    if (bias == nullptr) return absl::UnimplementedError("a bias that is computed");
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
    return absl::UnimplementedError(absl::StrCat("equation \"", text, "\": ", why));
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
      if (std::isalpha(static_cast<unsigned char>(label)) == 0) return refuse("want two terms");
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

// A product of matrices where one label is summed and the output ends with one of each term; all
// others are broadcast and summed.
absl::Status Einsum(OnnxNode& node) {
  if (node.node.input_size() != 2) {
    return absl::UnimplementedError(absl::StrCat(node.node.input_size(), " inputs, want 2"));
  }
  ASSIGN_OR_RETURN(const Equation equation, ReadEquation(node));
  OnnxValue x[2];
  for (int i = 0; i < 2; ++i) {
    ASSIGN_OR_RETURN(x[i], node.value(i));
    if (x[i].rank() != static_cast<int>(equation.terms[i].size())) {
      return absl::InvalidArgumentError(
          absl::StrCat("term \"", equation.terms[i], "\" for shape ", DimsText(x[i].dims)));
    }
  }
  const auto has = [&](int term, char label) {
    return equation.terms[term].find(label) != std::string::npos;
  };
  const std::string& out = equation.out;
  // x [.., k] with a matrix of constants.
  const Constant* weight = node.constant(1);
  if (weight != nullptr && weight->dims.size() == 2 && equation.summed.size() == 1 &&
      !out.empty() && x[0].rank() >= 2) {
    const char k = equation.summed[0], n = out.back();
    const std::string rest = out.substr(0, out.size() - 1);
    std::string others = equation.terms[0];
    others.erase(std::remove(others.begin(), others.end(), k), others.end());
    if (has(0, k) && has(1, k) && has(1, n) && !has(0, n) && rest.size() == others.size() &&
        std::all_of(rest.begin(), rest.end(), [&](char label) { return has(0, label); })) {
      Dense dense{.sizes = weight->sizes(), .transposed = equation.terms[1][0] == n};
      ASSIGN_OR_RETURN(dense.weight, weight->ToFloats());
      return AddDense(node, ByLabels(x[0], equation.terms[0], rest + k), dense);
    }
  }
  if (equation.summed.size() == 1 && out.size() >= 3) {
    const char k = equation.summed[0], m = out[out.size() - 2], n = out.back();
    const int first = has(0, m) ? 0 : 1, second = 1 - first;
    if (has(0, k) && has(1, k) && !has(second, m) && !has(first, n)) {
      const std::string batch = out.substr(0, out.size() - 2);
      return BatchDot(node, ByLabels(x[first], equation.terms[first], batch + m + k),
                      ByLabels(x[second], equation.terms[second], batch + k + n));
    }
  }
  const std::string labels = out + equation.summed;
  std::vector<std::string> operands;
  Dims dims(labels.size(), Dim::Of(1));
  for (int i = 0; i < 2; ++i) {
    const OnnxValue view = ByLabels(x[i], equation.terms[i], labels);
    ASSIGN_OR_RETURN(dims, BroadcastDims(dims, view.dims));
    ASSIGN_OR_RETURN(std::string tensor, node.graph.Full(view));
    operands.push_back(std::move(tensor));
  }
  for (size_t d = out.size(); d < labels.size(); ++d) {
    if (!dims[d].IsConst()) return absl::UnimplementedError("sums across rows of the request");
  }
  std::string tensor = equation.summed.empty() ? node.Top() : node.Scratch("product");
  RETURN_IF_ERROR(AddPlain(node.builder(), "multiply_layer",
                           equation.summed.empty() ? node.name : tensor, operands, tensor));
  for (size_t d = labels.size(); d-- > out.size();) {
    const bool last = d == out.size();
    const std::string top = last ? node.Top() : node.Scratch("sum");
    ulf::LayerParameter layer = MakeLayer("sum_layer", last ? node.name : top, {tensor}, top);
    layer.mutable_sum_param()->add_dim(static_cast<int32_t>(d));
    RETURN_IF_ERROR(node.builder().AddLayer(std::move(layer)));
    tensor = top;
    dims.pop_back();
  }
  node.Set(tensor, dims);
  return absl::OkStatus();
}

// ---------------------------------------------------------------------------------- GRU

absl::Status CheckGru(const OnnxNode& node) {
  if (StringAttribute(node.node, "direction", "forward") != "forward") {
    return absl::UnimplementedError(
        absl::StrCat("direction ", StringAttribute(node.node, "direction", ""), ", want forward"));
  }
  if (IntAttribute(node.node, "linear_before_reset", 0) != 1) {
    return absl::UnimplementedError("linear_before_reset 0, want 1 (as PyTorch exports)");
  }
  if (IntAttribute(node.node, "layout", 0) != 0) return absl::UnimplementedError("layout 1");
  for (const char* attribute : {"activations", "clip"}) {
    if (HasAttribute(node.node, attribute)) {
      return absl::UnimplementedError(absl::StrCat("attribute ", attribute));
    }
  }
  if (node.Has(4)) return absl::UnimplementedError("sequence_lens");
  if (!node.Has(5)) return absl::OkStatus();
  const Constant* start = node.constant(5);
  if (start != nullptr && (!start->is_float || !(start->uniform || IsNumbers(start->dims)))) {
    start = nullptr;
  }
  for (int64_t i = 0; start != nullptr && i < (start->uniform ? 1 : start->elements()); ++i) {
    if (start->f32(i) != 0) start = nullptr;
  }
  return start == nullptr ? absl::UnimplementedError("initial_h other than zeros")
                          : absl::OkStatus();
}

// ONNX: gates update, reset, candidate, one row per gate value; ULF: reset, update, candidate, one
// column per gate value.
std::vector<float> GateColumns(const std::vector<float>& rows, int64_t n, int64_t k) {
  std::vector<float> columns(rows.size());
  const int64_t from[] = {1, 0, 2};
  for (int64_t gate = 0; gate < 3; ++gate) {
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = 0; j < k; ++j) {
        columns[static_cast<size_t>(j * 3 * n + gate * n + i)] =
            rows[static_cast<size_t>((from[gate] * n + i) * k + j)];
      }
    }
  }
  return columns;
}

struct GruWeights {
  int64_t n = 0, k = 0;
  std::vector<ulf::BlobData> blobs;
};

absl::StatusOr<GruWeights> ReadGru(const OnnxNode& node) {
  const Constant *w = node.constant(1), *r = node.constant(2);
  if (w == nullptr || r == nullptr || (node.Has(3) && node.constant(3) == nullptr)) {
    return absl::UnimplementedError("weights that are computed");
  }
  if (w->dims.size() != 3 || r->dims.size() != 3 || w->uniform || r->uniform) {
    return absl::InvalidArgumentError(absl::StrCat("weights of shapes ", DimsText(w->dims), " and ",
                                                   DimsText(r->dims), ", want 3 dimensions"));
  }
  GruWeights gru{.n = r->dims[2].value(), .k = w->dims[2].value()};
  const int64_t n = gru.n;
  if (w->sizes() != std::vector<int64_t>{1, 3 * n, gru.k} ||
      r->sizes() != std::vector<int64_t>{1, 3 * n, n}) {
    return absl::InvalidArgumentError(absl::StrCat("weights of shapes ", DimsText(w->dims), " and ",
                                                   DimsText(r->dims),
                                                   ", want [1, 3*n, k] and [1, "
                                                   "3*n, n]"));
  }
  ASSIGN_OR_RETURN(const std::vector<float> w_rows, w->ToFloats());
  ASSIGN_OR_RETURN(const std::vector<float> r_rows, r->ToFloats());
  std::vector<float> bias(static_cast<size_t>(6 * n), 0.0f);
  if (node.Has(3)) {
    ASSIGN_OR_RETURN(bias, node.constant(3)->ToFloats());
  }
  if (static_cast<int64_t>(bias.size()) != 6 * n) {
    return absl::InvalidArgumentError(
        absl::StrCat("bias of ", bias.size(), " values, want ", 6 * n));
  }
  const std::vector<float> w_bias(bias.begin(), bias.begin() + 3 * n);
  const std::vector<float> r_bias(bias.begin() + 3 * n, bias.end());
  gru.blobs = {MakeBlob({n, 3 * n}, GateColumns(r_rows, n, n)),
               MakeBlob({gru.k, 3 * n}, GateColumns(w_rows, n, gru.k)),
               MakeBlob({3 * n}, GateColumns(r_bias, n, 1)),
               MakeBlob({3 * n}, GateColumns(w_bias, n, 1))};
  return gru;
}

absl::Status Gru(OnnxNode& node) {
  RETURN_IF_ERROR(CheckGru(node));
  ASSIGN_OR_RETURN(GruWeights gru, ReadGru(node));
  ASSIGN_OR_RETURN(OnnxValue x, node.value(0));  // [steps, rows, k]
  std::swap(x.dims[0], x.dims[1]);
  std::swap(x.axes[0], x.axes[1]);
  ASSIGN_OR_RETURN(const std::string in, node.graph.PlainAlong(x, {1, 2}));
  GraphBuilder& builder = node.builder();
  const std::string steps = node.Scratch("steps");
  ulf::LayerParameter layer = MakeLayer("gru_layer", node.name, {in}, steps);
  layer.mutable_gru_param()->set_leading_zeros(ulf::GruParameter::STEPS);
  RETURN_IF_ERROR(builder.AddLayer(std::move(layer), std::move(gru.blobs)));
  const Dim n = Dim::Of(gru.n), one = Dim::Of(1);
  if (!node.node.output(0).empty()) {  // [steps, 1, rows, n]
    node.Set(
        OnnxValue{.tensor = steps, .dims = {x.dims[1], one, x.dims[0], n}, .axes = {1, -1, 0, 2}});
  }
  if (node.node.output_size() < 2 || node.uses.find(node.node.output(1)) == node.uses.end()) {
    return absl::OkStatus();
  }
  if (!x.dims[1].IsConst()) {
    return absl::InvalidArgumentError("the number of steps is not known; --dims can state it");
  }
  const std::string last = node.graph.Top(node.node.output(1));  // [1, rows, n]
  RETURN_IF_ERROR(AddSlice(builder, absl::StrCat(node.name, "/last"), steps, 1,
                           x.dims[1].value() - 1, 1, last));
  node.Set(OnnxValue{.tensor = last, .dims = {one, x.dims[0], n}, .axes = {1, 0, 2}}, 1);
  return absl::OkStatus();
}

constexpr OnnxType kTypes[] = {
    {"MatMul", &MatMul}, {"Gemm", &Gemm}, {"Einsum", &Einsum}, {"GRU", &Gru}};

}  // namespace

absl::Span<const OnnxType> MatrixOnnxTypes() { return kTypes; }

}  // namespace ulfd::convert
