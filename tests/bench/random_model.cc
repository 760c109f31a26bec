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
  void Keep(std::string name, std::vector<int32_t> dims, bool user) {
    tensors_.push_back({std::move(name), std::move(dims), user});
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
      Keep(name, {width}, user);
    }
  }
  const int32_t items = Between(2, 50), columns = Between(1, 5) * 8;
  m_.Input("history", {items, columns}, /*user=*/true);
  Keep("history", {items, columns}, true);
  m_.Input("query", {columns});
  Keep("query", {columns}, false);
}

void Builder::AddLayer() {
  const RandomTensor any = Pick(tensors_);
  const RandomTensor flat = Pick(Where([](const RandomTensor& t) { return t.flat(); }));
  switch (Between(0, 12)) {
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
    default:
      return BatchDot();
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
