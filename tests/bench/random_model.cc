// Random ranking graphs.
// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/random_model.h"

#include <algorithm>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace ulfd::bench {
namespace {

constexpr int32_t kMaxColumns = 4096;  // Of a row of any tensor.

// A tensor of the graph; dims without the rows, one or two.
struct RandomTensor {
  std::string name;
  std::vector<int32_t> dims;
  bool user = false;
  bool input = false;

  bool flat() const { return dims.size() == 1; }
  int32_t columns() const { return flat() ? dims[0] : dims[0] * dims[1]; }
};

// What std::shuffle takes.
struct Bits {
  using result_type = uint32_t;
  static constexpr uint32_t min() { return 0; }
  static constexpr uint32_t max() { return UINT32_MAX; }
  uint32_t operator()() const { return choose(); }
  std::function<uint32_t()> choose;
};

class Builder {
 public:
  Builder(ScratchModel& m, std::function<uint32_t()> choose) : m_(m), random_{std::move(choose)} {}

  void Build() {
    AddInputs();
    if (Chance(3)) Attention();
    const int steps = Between(4, 20);
    for (int i = 0; i < steps; ++i) AddLayer();
    // Something to score, whatever came before.
    const RandomTensor head =
        Pick(Where([](const RandomTensor& t) { return t.flat() && !t.user; }));
    FullyConnected(head, 2);
  }

 private:
  int32_t Between(int32_t low, int32_t high) {
    return low + static_cast<int32_t>(random_() % static_cast<uint32_t>(high - low + 1));
  }
  bool Chance(int one_in) { return Between(1, one_in) == 1; }
  int32_t Width() {
    constexpr int32_t kWidths[] = {1, 2, 8, 18, 32, 36, 40, 64, 80, 128, 200, 256};
    return kWidths[Between(0, std::size(kWidths) - 1)];
  }
  std::vector<RandomTensor> Where(const std::function<bool(const RandomTensor&)>& fits) const {
    std::vector<RandomTensor> result;
    std::copy_if(tensors_.begin(), tensors_.end(), std::back_inserter(result), fits);
    return result;
  }
  // REQUIRES: not empty.
  RandomTensor Pick(const std::vector<RandomTensor>& from) {
    return from[Between(0, static_cast<int32_t>(from.size()) - 1)];
  }
  std::string Name() { return absl::StrCat("t", next_++); }
  void Keep(std::string name, std::vector<int32_t> dims, bool user, bool input = false) {
    tensors_.push_back({std::move(name), std::move(dims), user, input});
  }
  // A layer whose top has `dims`.
  void Add(absl::string_view type, std::initializer_list<absl::string_view> bottoms,
           std::vector<int32_t> dims, bool user, absl::string_view param = "",
           std::initializer_list<std::vector<int32_t>> weights = {}) {
    const std::string name = Name();
    m_.Layer(type, bottoms, name, param, weights);
    Keep(name, std::move(dims), user);
  }

  void AddInputs();
  void AddLayer();
  void FullyConnected(const RandomTensor& x, int32_t n);
  void Activation(const RandomTensor& x);
  void Binary(const RandomTensor& x);
  void Concat(const RandomTensor& x);
  void Fuse();
  void FullyConnectedEx();
  void Slice(const RandomTensor& x);
  void Reshape(const RandomTensor& x);
  void Sum();
  void BatchDot();
  void Formula(const RandomTensor& x);
  void Normalise(const RandomTensor& x);
  void Turn();
  void Accumulate();
  void Recur();
  void Image();
  void TakeBest();
  void Attention();

  ScratchModel& m_;
  const Bits random_;
  std::vector<RandomTensor> tensors_;
  int next_ = 0;
};

void Builder::AddInputs() {
  for (const bool user : {true, false}) {
    for (int i = 0; i < 2; ++i) {
      const std::string name = Name();
      const int32_t width = Between(4, 300);
      m_.Input(name, {width}, user);
      Keep(name, {width}, user, /*input=*/true);
    }
  }
  const int32_t items = Between(2, 50), columns = Between(1, 5) * 8;
  m_.Input("history", {items, columns}, /*user=*/true);
  Keep("history", {items, columns}, true, /*input=*/true);
  m_.Input("query", {columns});
  Keep("query", {columns}, false, /*input=*/true);
}

void Builder::AddLayer() {
  const RandomTensor any = Pick(tensors_);
  const RandomTensor flat = Pick(Where([](const RandomTensor& t) { return t.flat(); }));
  switch (Between(0, 21)) {
    case 0:
    case 1:
      return FullyConnected(any, Width());
    case 2:
    case 3:
      return Activation(any);
    case 4:
      return Binary(any);
    case 5:
      return Concat(flat);
    case 6:
    case 7:
      return Fuse();
    case 8:
      return FullyConnectedEx();
    case 9:
      return Slice(flat);
    case 10:
      return Reshape(any);
    case 11:
      return Sum();
    case 12:
      return BatchDot();
    case 13:
    case 14:
      return Formula(any);
    case 15:
      return Normalise(any);
    case 16:
      return Turn();
    case 17:
      return Accumulate();
    case 18:
      return Recur();
    case 19:
    case 20:
      return Image();
    default:
      return TakeBest();
  }
}

void Builder::FullyConnected(const RandomTensor& x, int32_t n) {
  const int32_t k = x.dims.back();
  std::vector<int32_t> dims = x.dims;
  dims.back() = n;
  if (x.columns() / k * n > kMaxColumns) return;
  if (Chance(3)) {
    Add("inner_product_layer", {x.name}, dims, x.user,
        "inner_product_param { transpose: true bias_term: false }", {{n, k}});
  } else {
    Add("inner_product_layer", {x.name}, dims, x.user, "", {{k, n}, {n}});
  }
}

void Builder::Activation(const RandomTensor& x) {
  const std::vector<int32_t> v = {x.dims.back()};
  switch (Between(0, 6)) {
    case 0:
      return Add("relu_layer", {x.name}, x.dims, x.user);
    case 1:
      return Add("sigmoid_layer", {x.name}, x.dims, x.user);
    case 2:
      return Add("tanh_layer", {x.name}, x.dims, x.user);
    case 3:
      return Add("prelu_layer", {x.name}, x.dims, x.user, "", {v});
    case 4:
      return Add("bn_layer", {x.name}, x.dims, x.user, "bn_param { eps: 0.001 }", {v, v, v, v});
    case 5:
      return Add("dice_layer", {x.name}, x.dims, x.user, "dice_param { eps: 1e-8 }", {v, v, v});
    default:
      return Add("softmax_layer", {x.name}, x.dims, x.user, "softmax_param { dim: 1 }");
  }
}

void Builder::Binary(const RandomTensor& x) {
  constexpr const char* kTypes[] = {"add_layer", "sub_layer", "multiply_layer"};
  const RandomTensor y = Pick(Where([&](const RandomTensor& t) { return t.dims == x.dims; }));
  Add(kTypes[Between(0, 2)], {x.name, y.name}, x.dims, x.user && y.user);
}

void Builder::Concat(const RandomTensor& x) {
  const RandomTensor y =
      Pick(Where([&](const RandomTensor& t) { return t.flat() && t.user == x.user; }));
  if (x.columns() + y.columns() > kMaxColumns) return;
  Add("concat_layer", {x.name, y.name}, {x.dims[0] + y.dims[0]}, x.user, "concat_param { dim: 1 }");
}

void Builder::Fuse() {
  const RandomTensor u = Pick(Where([](const RandomTensor& t) { return t.flat() && t.user; }));
  const RandomTensor a = Pick(Where([](const RandomTensor& t) { return t.flat() && !t.user; }));
  if (u.columns() + a.columns() > kMaxColumns) return;
  if (Chance(2)) {
    Add("fuse_layer", {u.name, a.name}, {u.dims[0] + a.dims[0]}, false,
        "fuse_param { common_input_index: 0 }");
  } else {
    Add("fuse_layer", {a.name, u.name}, {u.dims[0] + a.dims[0]}, false,
        "fuse_param { common_input_index: 1 }");
  }
}

void Builder::FullyConnectedEx() {
  const RandomTensor u = Pick(Where([](const RandomTensor& t) { return t.flat() && t.user; }));
  const RandomTensor a = Pick(Where([](const RandomTensor& t) { return t.flat() && !t.user; }));
  const int32_t n = Width();
  Add("inner_product_layer_ex", {u.name, a.name}, {n}, false, "",
      {{u.dims[0], n}, {a.dims[0], n}, {n}});
}

void Builder::Slice(const RandomTensor& x) {
  if (x.dims[0] < 2) return;
  const int32_t cut = Between(1, x.dims[0] - 1);
  if (Chance(2)) {  // Two pieces change places; otherwise one is kept.
    return Add("slice_layer", {x.name}, x.dims, x.user,
               absl::StrCat("slice_param { concat_dim: 0 slices { offset: ", cut, " shape: ",
                            x.dims[0] - cut, " } slices { offset: 0 shape: ", cut, " } }"));
  }
  Add("slice_layer", {x.name}, {cut}, x.user,
      absl::StrCat("slice_param { concat_dim: 0 slices { offset: ", x.dims[0] - cut,
                   " shape: ", cut, " } }"));
}

void Builder::Reshape(const RandomTensor& x) {
  if (!x.flat()) {
    Add("reshape_layer", {x.name}, {x.columns()}, x.user,
        absl::StrCat("reshape_param { shape: -1 shape: ", x.columns(), " }"));
  } else if (x.dims[0] % 4 == 0) {
    Add("reshape_layer", {x.name}, {4, x.dims[0] / 4}, x.user,
        absl::StrCat("reshape_param { shape: ", x.user ? 1 : -1, " shape: 4 shape: ", x.dims[0] / 4,
                     " }"));
  }
}

void Builder::Sum() {
  const RandomTensor x = Pick(Where([](const RandomTensor& t) { return !t.flat(); }));
  const int32_t dim = Between(1, 2);
  Add("sum_layer", {x.name}, {x.dims[2 - dim]}, x.user,
      absl::StrCat("sum_param { dim: ", dim, " }"));
}

void Builder::BatchDot() {
  const RandomTensor x = Pick(Where([](const RandomTensor& t) { return !t.flat(); }));
  const RandomTensor y = Pick(Where([&](const RandomTensor& t) {
    return !t.flat() && t.dims[1] == x.dims[1];  // x itself at least.
  }));
  if (x.dims[0] * y.dims[0] > kMaxColumns) return;
  Add("batchdot_layer", {x.name, y.name}, {x.dims[0], y.dims[0]}, x.user && y.user,
      "batch_dot_param { transpose_a: false transpose_b: true }");
}

void Builder::Formula(const RandomTensor& x) {
  const auto fits = [&](const RandomTensor& t) { return t.dims == x.dims; };
  const RandomTensor y = Pick(Where(fits));
  // What decides is an input: of what is computed, rounding would.
  const std::vector<RandomTensor> inputs =
      Where([&](const RandomTensor& t) { return fits(t) && t.input; });
  if (!inputs.empty() && Chance(3)) {
    const RandomTensor test = Pick(inputs);
    return Add("expression_layer", {test.name, x.name, y.name}, x.dims,
               test.user && x.user && y.user,
               "expression_param { expression: 'where(gt(@0, 0), @1, @2)' }");
  }
  constexpr const char* kFormulas[] = {"@0 * sigmoid(@1)",    "max(@0, @1) - 0.5 * @0",
                                       "@0 / (1 + abs(@1))",  "exp(neg(@0 ^ 2)) + erf(@1)",
                                       "2 * @0 + 1 + 0 * @1", "log(1 + @0 ^ 2) * sin(@1)"};
  Add("expression_layer", {x.name, y.name}, x.dims, x.user && y.user,
      absl::StrCat("expression_param { expression: '",
                   kFormulas[Between(0, std::size(kFormulas) - 1)], "' }"));
}

void Builder::Normalise(const RandomTensor& x) {
  const std::vector<int32_t> v = {x.dims.back()};
  const std::string param =
      absl::StrCat("layer_norm_param { eps: 0.1 centred: ", Chance(2) ? "true" : "false", " }");
  if (Chance(2)) return Add("layer_norm_layer", {x.name}, x.dims, x.user, param);
  Add("layer_norm_layer", {x.name}, x.dims, x.user, param, {v, v});
}

void Builder::Turn() {
  const RandomTensor x = Pick(Where([](const RandomTensor& t) { return !t.flat(); }));
  Add("transpose_layer", {x.name}, {x.dims[1], x.dims[0]}, x.user,
      "transpose_param { perm: 0 perm: 2 perm: 1 }");
}

void Builder::Accumulate() {
  const RandomTensor x = Pick(Where([](const RandomTensor& t) { return !t.flat(); }));
  constexpr const char* kFunctions[] = {"MAX", "MIN", "PRODUCT", "CUMULATIVE_SUM"};
  const int32_t function = Between(0, 3), dim = Between(1, 2);
  const std::vector<int32_t> dims = function == 3 ? x.dims : std::vector{x.dims[2 - dim]};
  Add("sum_layer", {x.name}, dims, x.user,
      absl::StrCat("sum_param { dim: ", dim, " function: ", kFunctions[function], " }"));
}

void Builder::Recur() {
  const RandomTensor x = Pick(
      Where([](const RandomTensor& t) { return !t.flat() && t.columns() <= kMaxColumns / 2; }));
  const int32_t k = x.dims[1];
  if (k <= 40 && Chance(2)) {
    return Add("gru_layer", {x.name}, x.dims, x.user, "",
               {{k, 3 * k}, {k, 3 * k}, {3 * k}, {3 * k}});
  }
  const int32_t n = Between(1, 4) * 5;
  Add("lstm_layer", {x.name}, {x.dims[0], n}, x.user, "",
      {{n, 4 * n}, {k, 4 * n}, {4 * n}, {4 * n}});
}

// A convolution or a pool along the last axis, of channels in the one before.
void Builder::Image() {
  const RandomTensor x = Pick(Where([](const RandomTensor& t) { return !t.flat(); }));
  const int32_t channels = x.dims[0], size = x.dims[1], kernel = Between(1, std::min(size, 3)),
                pad = Between(0, kernel / 2), stride = Between(1, 2),
                places = (size + 2 * pad - kernel) / stride + 1;
  const auto shape = [&](std::initializer_list<int32_t> dims) {
    std::string text = absl::StrCat("reshape_param { shape: ", x.user ? 1 : -1);
    for (const int32_t d : dims) absl::StrAppend(&text, " shape: ", d);
    return text + " }";
  };
  const std::string window = absl::StrCat("kernel_size: ", kernel, " kernel_size: 1 pad: ", pad,
                                          " pad: 0 stride: ", stride, " stride: 1");
  const std::string image = Name(), result = Name();
  m_.Layer("reshape_layer", {x.name}, image, shape({channels, size, 1}));
  int32_t out = channels;
  if (Chance(3)) {
    m_.Layer("max_pooling_layer", {image}, result,
             absl::StrCat("pooling_param { ", window, " pool: ", Chance(2) ? "AVE" : "MAX", " }"));
  } else {
    const int32_t group = Chance(3) ? channels : 1;
    out = group * Between(1, group == 1 ? 20 : 2);
    m_.Layer("convolution_layer", {image}, result,
             absl::StrCat("convolution_param { ", window, " group: ", group, " }"),
             {{out, channels / group, kernel, 1}, {out}});
  }
  Add("reshape_layer", {result}, {out, places}, x.user, shape({out, places}));
}

// The best places of an input, and what lies there in another tensor.
void Builder::TakeBest() {
  const RandomTensor by = Pick(Where([](const RandomTensor& t) { return t.input && t.flat(); }));
  const RandomTensor x = Pick(Where([&](const RandomTensor& t) { return t.dims == by.dims; }));
  const int32_t k = Between(1, std::min(by.dims[0], 20));
  const std::string best = Name(), places = Name();
  m_.Layer("top_k_layer", {by.name}, best,
           absl::StrCat("top: '", places, "' top_k_param { k: ", k,
                        " smallest: ", Chance(2) ? "true" : "false", " }"));
  Keep(best, {k}, by.user);
  Add("take_layer", {x.name, places}, {k}, x.user && by.user, "take_param { axis: 1 }");
}

// The shape of DIN, with q, k, q-k and q*k in any order and perhaps without one of them.
void Builder::Attention() {
  const RandomTensor history =
      Pick(Where([](const RandomTensor& t) { return t.name == "history"; }));
  const int32_t columns = history.dims[1], hidden = Between(2, 10) * 8;
  const std::string q = Name(), d = Name(), p = Name(), bq = Name(), bk = Name(), in = Name(),
                    h = Name(), s = Name(), f = Name(), a = Name();
  std::vector<std::string> parts = {bq, bk, d, p};
  std::shuffle(parts.begin(), parts.end(), random_);
  parts.resize(Between(3, 4));
  const auto used = [&](const std::string& part) {
    return std::find(parts.begin(), parts.end(), part) != parts.end();
  };
  m_.Layer("reshape_layer", {"query"}, q,
           absl::StrCat("reshape_param { shape: -1 shape: 1 shape: ", columns, " }"));
  m_.Layer("sub_layer", {q, "history"}, d);
  if (used(p)) m_.Layer("multiply_layer", {q, "history"}, p);
  if (used(bq)) m_.Layer("broadcast_to_layer", {q, d}, bq);
  if (used(bk)) m_.Layer("broadcast_to_layer", {"history", d}, bk);
  if (parts.size() == 4) {
    m_.Layer("concat_layer", {parts[0], parts[1], parts[2], parts[3]}, in,
             "concat_param { dim: 2 }");
  } else {
    m_.Layer("concat_layer", {parts[0], parts[1], parts[2]}, in, "concat_param { dim: 2 }");
  }
  const int32_t width = static_cast<int32_t>(parts.size()) * columns;
  m_.Layer("inner_product_layer", {in}, h, "", {{width, hidden}, {hidden}});
  m_.Layer("sigmoid_layer", {h}, s);
  m_.Layer("inner_product_layer", {s}, f, "", {{hidden, 1}, {1}});
  m_.Layer("softmax_layer", {f}, a, "softmax_param { dim: 1 }");
  Add("batchdot_layer", {a, "history"}, {1, columns}, false,
      "batch_dot_param { transpose_a: true transpose_b: false }");
}

}  // namespace

void BuildRandomModel(ScratchModel& m, uint32_t seed) {
  std::mt19937 random(seed);
  Builder(m, [&random] { return static_cast<uint32_t>(random()); }).Build();
}

void BuildRandomModel(ScratchModel& m, std::function<uint32_t()> choose) {
  Builder(m, std::move(choose)).Build();
}

}  // namespace ulfd::bench
