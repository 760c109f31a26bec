// Recurrent layers: gru, lstm, rnn.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "engine/kernels/fc.h"
#include "engine/kernels/product.h"
#include "engine/kernels/table.h"
#include "engine/layers/checks.h"
#include "engine/layers/common/packed_weights.h"
#include "engine/layers/types/building_blocks.h"
#include "engine/layers/types/families.h"

namespace ulfd::engine {
namespace {

struct RecurrentSpec {
  Weight h2h, i2h;
  absl::Span<const float> h_bias, i_bias;
  int outputs = 1;
  bool padding = false;  // Leading steps of zeros are none.
  bool backwards = false;
  bool lengths = false;  // The last input says how many steps a row has.
  bool reset_first = false;
  UnaryOp activation = UnaryOp::kTanh;
};

// What tells one cell from another.  `x` and `g` are what a row's step and its h give to the gates,
// `bias` those of x's biases that are not in g.

// r = sig(x_r + g_r);  z = sig(x_z + g_z);  c = tanh(x_c + bias + r * g_c);  h = c + z * (h - c)
struct GruStep {
  static constexpr int64_t kGates = 3, kStates = 1;
  static constexpr int64_t kSummed = 2;  // Gates of which both biases are summed.
  static constexpr int kLeastRank = 2;   // Rank 2: the steps of one row.
  static constexpr absl::string_view kH2h = "[n, 3*n] (h2h: reset, update, candidate)";
  static constexpr auto kParam = &ulf::LayerParameter::gru_param;
  static void Run(const float* x, const float* g, const float* bias, UnaryOp, float* h, float*,
                  int64_t n) {
    Kernels().gru_cell(x, g, bias, h, n);
  }
};

// i, f, o = sig(x + g);  c = f * c + i * tanh(x_g + g_g);  h = o * tanh(c)
struct LstmStep {
  static constexpr int64_t kGates = 4, kStates = 2, kSummed = 4;
  static constexpr int kLeastRank = 3;
  static constexpr absl::string_view kH2h = "[n, 4*n] (h2h: input, forget, candidate, output)";
  static constexpr auto kParam = &ulf::LayerParameter::lstm_param;
  static void Run(const float* x, const float* g, const float*, UnaryOp, float* h, float* c,
                  int64_t n) {
    Kernels().lstm_cell(x, g, c, h, n);
  }
};

// h = activation(x + g)
struct RnnStep {
  static constexpr int64_t kGates = 1, kStates = 1, kSummed = 1;
  static constexpr int kLeastRank = 3;
  static constexpr absl::string_view kH2h = "[n, n] (h2h)";
  static constexpr auto kParam = &ulf::LayerParameter::rnn_param;
  static void Run(const float* x, const float* g, const float*, UnaryOp activation, float* h,
                  float*, int64_t n) {
    for (int64_t j = 0; j < n; ++j) h[j] = x[j] + g[j];
    Kernels().unary(activation, h, h, n);
  }
};

template <class Cell>
constexpr bool kIsGru = std::is_same_v<Cell, GruStep>;

// -------------------------------------------------------------------------------------- recurrence

template <class Cell>
class RecurrenceKernel final : public Kernel {
 public:
  explicit RecurrenceKernel(const RecurrentSpec& spec)
      : n_(spec.h2h.dims[0]),
        padding_(spec.padding),
        backwards_(spec.backwards),
        lengths_(spec.lengths),
        activation_(spec.activation),
        h2h_(PackWeight(spec.h2h, false)),
        start_(spec.h_bias.begin(), spec.h_bias.end()),
        bias_(spec.i_bias.begin() + Cell::kSummed * n_, spec.i_bias.end()) {
    for (int64_t j = 0; j < Cell::kSummed * n_; ++j) start_[j] += spec.i_bias[j];
    if (!spec.reset_first) return;
    std::vector<float> columns(static_cast<size_t>(n_ * n_));
    for (int64_t i = 0; i < n_; ++i) {
      std::copy_n(spec.h2h.data.data() + (i * kWidth + kWidth - 1) * n_, n_,
                  columns.data() + i * n_);
    }
    candidate_.emplace(PackWeight({.dims = {n_, n_}, .data = columns}, false));
  }

  int64_t bytes() const override {
    int64_t bytes = 0;
    for (const Product* product : {&h2h_, candidate_.has_value() ? &*candidate_ : nullptr}) {
      if (product == nullptr) continue;
      bytes += product->reads_matrix() ? PackedMatrix::PackedFloats(product->k(), product->n()) *
                                             static_cast<int64_t>(sizeof(float))
                                       : product->bytes();
    }
    return bytes;
  }
  std::vector<Product*> products() override {
    std::vector<Product*> products = {&h2h_};
    if (candidate_.has_value()) products.push_back(&*candidate_);
    return products;
  }
  // For the products; and per row of a block: the states, h * h2h, what a candidate needs, and two
  // flags.
  size_t ScratchBytes(absl::Span<const Tensor> in) const override {
    const int64_t rows = std::min(kBlockRows, RowsOf(in));
    const int64_t of_candidate = candidate_.has_value() ? 2 : 0;
    return ProductBytes(rows) +
           static_cast<size_t>(rows) *
               ((Cell::kStates + kWidth + of_candidate) * n_ * sizeof(float) + 2);
  }
  absl::Status Run(RunContext& ctx) const override {
    const int64_t rows = RowsOf(ctx.in);
    for (int64_t row = 0; row < rows; row += kBlockRows) {
      RETURN_IF_ERROR(RunBlock(ctx, row, std::min(kBlockRows, rows - row)));
    }
    return absl::OkStatus();
  }

 private:
  static constexpr int64_t kWidth = Cell::kGates;  // Of what a step reads, over n.
  static constexpr int64_t kBlockRows = 48;        // What they need stays in the first-level cache.
  static constexpr int64_t kStepWork = 2048;       // Multiplications that any step is worth.

  static int64_t RowsOf(const Tensor& in) { return in.rank() == 3 ? in.dims[0] : 1; }
  // One row may stand for those of the others.
  static int64_t RowsOf(absl::Span<const Tensor> in) {
    int64_t rows = RowsOf(in[0]);
    for (size_t i = 1; i < in.size(); ++i) rows = rows == 1 ? in[i].dims[0] : rows;
    return rows;
  }
  size_t ProductBytes(int64_t rows) const {
    const size_t bytes = h2h_.ScratchBytes(rows);
    return candidate_.has_value() ? std::max(bytes, candidate_->ScratchBytes(rows)) : bytes;
  }

  // The states before the first step: those of further inputs, or zeros.
  void Start(absl::Span<const Tensor> in, int64_t row, int64_t rows, float* states) const {
    std::fill_n(states, Cell::kStates * rows * n_, 0.0f);
    for (size_t i = 1; i < in.size() - (lengths_ ? 1 : 0); ++i) {
      float* const to = states + static_cast<int64_t>(i - 1) * rows * n_;
      for (int64_t b = 0; b < rows; ++b) {
        std::copy_n(in[i].f32() + (in[i].dims[0] == 1 ? 0 : row + b) * n_, n_, to + b * n_);
      }
    }
  }

  // y = init + x * matrix, for rows of n values.
  static absl::Status Multiply(const Product& product, const float* x, int64_t rows,
                               const float* init, float* y, void* scratch) {
    const FcBlock block{x, product.k(), product.k()};
    FcCall fc;
    fc.blocks = absl::MakeConstSpan(&block, 1);
    fc.rows = rows;
    fc.init = init;
    fc.y = y;
    fc.y_stride = product.n();
    return product.Run(fc, scratch);
  }

  // The candidate's part of g, from an h that its reset gate has scaled: the cell's is then 1.
  absl::Status ResetFirst(const float* x, int64_t next_row, int64_t rows, const float* h, float* g,
                          float* scaled, void* scratch) const {
    for (int64_t b = 0; b < rows; ++b) {
      float* const row = scaled + b * n_;
      for (int64_t j = 0; j < n_; ++j) row[j] = x[b * next_row + j] + g[b * kWidth * n_ + j];
      Kernels().unary(UnaryOp::kSigmoid, row, row, n_);
      for (int64_t j = 0; j < n_; ++j) row[j] *= h[b * n_ + j];
    }
    float* const made = scaled + rows * n_;
    RETURN_IF_ERROR(
        Multiply(*candidate_, scaled, rows, start_.data() + (kWidth - 1) * n_, made, scratch));
    for (int64_t b = 0; b < rows; ++b) {
      float* const row = g + b * kWidth * n_;
      std::fill_n(row, n_, std::numeric_limits<float>::infinity());
      std::copy_n(made + b * n_, n_, row + (kWidth - 1) * n_);
    }
    return absl::OkStatus();
  }

  // All steps of some rows.  A row that has not started, or has ended, keeps its state.
  absl::Status RunBlock(RunContext& ctx, int64_t row, int64_t rows) const {
    const int64_t steps = ctx.in[0].dims[ctx.in[0].rank() - 2];
    const int64_t next_row = RowsOf(ctx.in[0]) == 1 ? 0 : steps * kWidth * n_;
    const float* const pre = ctx.in[0].f32() + row * next_row;
    float* const y = ctx.out[0].f32() + row * steps * n_;
    // What the products need comes first, aligned.
    float* h = reinterpret_cast<float*>(static_cast<char*>(ctx.scratch) + ProductBytes(rows));
    float* c = h + (Cell::kStates - 1) * rows * n_;
    float* g = h + Cell::kStates * rows * n_;
    float* scaled = g + rows * kWidth * n_;
    char* started = reinterpret_cast<char*>(scaled + (candidate_.has_value() ? 2 * rows * n_ : 0));
    char* within = started + rows;
    Start(ctx.in, row, rows, h);
    std::fill_n(started, rows, padding_ ? 0 : 1);
    std::fill_n(within, rows, 1);
    for (int64_t i = 0; i < steps && !ctx.pace.Stops(kStepWork + rows * kWidth * n_ * n_); ++i) {
      const int64_t t = backwards_ ? steps - 1 - i : i;
      const float* const x = pre + t * kWidth * n_;
      if (lengths_) FindWithin(ctx.in.back(), row, rows, t, within);
      bool any = false;
      for (int64_t b = 0; b < rows; ++b) {
        const float* first = x + b * next_row;
        // NaN starts a row, too.
        started[b] = started[b] || std::any_of(first, first + n_, [](float v) { return v != 0; });
        any = any || (started[b] && within[b]);
      }
      if (any) RETURN_IF_ERROR(Multiply(h2h_, h, rows, start_.data(), g, ctx.scratch));
      if (any && candidate_.has_value()) {
        RETURN_IF_ERROR(ResetFirst(x, next_row, rows, h, g, scaled, ctx.scratch));
      }
      for (int64_t b = 0; b < rows; ++b) {
        float* const state = h + b * n_;
        float* const out = y + (b * steps + t) * n_;
        if (started[b] && within[b]) {
          Cell::Run(x + b * next_row, g + b * kWidth * n_, bias_.data(), activation_, state,
                    c + b * n_, n_);
        }
        if (within[b]) {
          std::copy_n(state, n_, out);
        } else {
          std::fill_n(out, n_, 0.0f);
        }
      }
    }
    for (size_t i = 1; i < ctx.out.size(); ++i) {
      std::copy_n(i == 1 ? h : c, rows * n_, ctx.out[i].f32() + row * n_);
    }
    return absl::OkStatus();
  }

  // Which rows have step t.
  static void FindWithin(const Tensor& lengths, int64_t row, int64_t rows, int64_t t,
                         char* within) {
    for (int64_t b = 0; b < rows; ++b) {
      within[b] = static_cast<float>(t) < lengths.f32()[lengths.dims[0] == 1 ? 0 : row + b] ? 1 : 0;
    }
  }

  const int64_t n_;
  const bool padding_, backwards_, lengths_;
  const UnaryOp activation_;
  Product h2h_;                       // [n, gates * n].
  std::optional<Product> candidate_;  // [n, n], where the reset gate comes first.
  std::vector<float> start_;          // h's biases, and those of x that are summed with them.
  const std::vector<float> bias_;     // The others of x.
};

// The rows of the inputs behind the first, states [rows, n] and lengths [rows, 1], are those of
// `out` [rows, steps, n].
absl::Status JoinRows(const RecurrentSpec& spec, absl::Span<const TensorSpec> in, Shape& out) {
  for (int i = 1; i < static_cast<int>(in.size()); ++i) {
    const bool length = spec.lengths && i + 1 == static_cast<int>(in.size());
    RETURN_IF_ERROR(WantRank(in, i, 2, 2));
    if (!CouldBeEqual(in[i].shape[1], length ? Dim::Of(1) : out[2])) {
      return BadInput(i, in[i], "last dimension ", length ? "1" : out[2].ToString(),
                      length ? " (the steps of a row)" : " (the hidden width)");
    }
    const absl::StatusOr<Shape> rows = BroadcastShapes({out[0]}, {in[i].shape[0]});
    if (!rows.ok()) return BadInput(i, in[i], "the rows of x, ", out[0].ToString());
    out[0] = (*rows)[0];
  }
  return absl::OkStatus();
}

// x [rows, steps, width], or [steps, width] as one row, to the states of every step, and to the
// last ones.
absl::StatusOr<TensorSpecs> InferStates(const RecurrentSpec& spec,
                                        absl::Span<const TensorSpec> in) {
  TensorSpec every = in[0];
  if (every.shape.rank() == 2) every.shape.dims().insert(every.shape.dims().begin(), Dim::Of(1));
  every.shape[2] = Dim::Of(spec.h2h.dims[0]);
  RETURN_IF_ERROR(JoinRows(spec, in, every.shape));
  TensorSpec last = every;
  last.shape = Shape({every.shape[0], every.shape[2]});
  last.level = LevelOf(last.shape, in);
  TensorSpecs out = OnlyOutput(std::move(every), in);
  out.resize(static_cast<size_t>(spec.outputs), last);
  return out;
}

// gru_recurrence, lstm_recurrence, rnn_recurrence (primitives, not types of the format): the steps
// of a cell over x * i2h, with h (and c) = 0 at first, or what inputs 1 and 2 say.  Padding:
// leading steps whose product has only zeros in its first n values leave h alone.
// oneDNN's lbr_gru has GRU's cell, but not this rule: how many leading steps are padding differs
// from row to row, each row then starts from h = 0 as if it were shorter, and its primitive has
// neither lengths per row nor sizes known only at run time (a primitive per pair of row and step
// counts would have to be made).  The GEMM per step covers all rows.
// Input 0: x * i2h [batch, steps, gates * n], or [steps, gates * n], f32.  Then h and c [batch, n];
// then lengths [batch, 1].  Output 0: h [batch, steps, n] (batch 1 for rank 2), every step.  Then
// the last h and c [batch, n].
template <class Cell>
class Recurrence final : public Layer {
 public:
  explicit Recurrence(const RecurrentSpec& spec) : spec_(spec) {}

  absl::StatusOr<TensorSpecs> Infer(absl::Span<const TensorSpec> in) const override {
    RETURN_IF_ERROR(WantFloat32(in));
    RETURN_IF_ERROR(WantRank(in, 0, Cell::kLeastRank, 3));
    const int64_t width = Cell::kGates * spec_.h2h.dims[0];
    if (!CouldBeEqual(in[0].shape[in[0].shape.rank() - 1], Dim::Of(width))) {
      return BadInput(0, in[0], "last dimension ", width);
    }
    return InferStates(spec_, in);
  }
  double Flops(absl::Span<const TensorSpec>, absl::Span<const TensorSpec> out) const override {
    return (2.0 * static_cast<double>(spec_.h2h.dims[0]) + 6.0) * Cell::kGates *
           static_cast<double>(out[0].shape.Elements().value());
  }
  absl::StatusOr<std::unique_ptr<Kernel>> Prepare(absl::Span<const TensorSpec>) const override {
    return std::unique_ptr<Kernel>(new RecurrenceKernel<Cell>(spec_));
  }

 private:
  const RecurrentSpec spec_;
};

// ------------------------------------------------------------------------------------------ layers

// gru_layer, lstm_layer, rnn_layer: the state h after every step, from zeros or from the states of
// the inputs behind x, of which one row may stand for all; then the last h and c.  Composite:
// inner_product x * i2h over all steps at once, then the recurrence.  The level is unknown for rank
// 2: rows become steps.  With gru_param i2h may be [k, 3n] for x of width k; that of the others
// always may.
template <class Cell>
class Recurrent final : public Layer {
 public:
  static absl::StatusOr<std::unique_ptr<Layer>> Parse(const ParseContext& ctx) {
    RecurrentSpec spec;
    RETURN_IF_ERROR(ParseParam(ctx.param, spec));
    ASSIGN_OR_RETURN(spec.h2h, WantMatrix(ctx.weights, 0));
    const int64_t n = spec.h2h.dims[0], width = Cell::kGates * n;
    if (n == 0 || spec.h2h.dims[1] != width) return BadWeight(ctx.weights, 0, Cell::kH2h);
    ASSIGN_OR_RETURN(spec.i2h, WantMatrix(ctx.weights, 1));
    const Weight& i2h = spec.i2h;
    const bool of_own_width = kIsGru<Cell> && !ctx.param.has_gru_param();
    if (of_own_width && (i2h.dims[0] != n || i2h.dims[1] != width)) {
      return BadWeight(ctx.weights, 1, "[", n, ", ", width, "] (i2h) like weight 0");
    }
    if (i2h.dims[0] == 0 || i2h.dims[1] != width) {
      return BadWeight(ctx.weights, 1, "[k, ", width, "] (i2h) for x of width k");
    }
    for (int i = 2; i < 4; ++i) {
      if (static_cast<int64_t>(ctx.weights[i].data.size()) != width) {
        return BadWeight(ctx.weights, i, width, " values");
      }
    }
    spec.h_bias = ctx.weights[2].data;
    spec.i_bias = ctx.weights[3].data;
    return std::unique_ptr<Layer>(new Recurrent(std::move(spec)));
  }
  absl::StatusOr<TensorSpecs> Infer(absl::Span<const TensorSpec> in) const override {
    RETURN_IF_ERROR(WantFloat32(in));
    RETURN_IF_ERROR(WantRank(in, 0, Cell::kLeastRank, 3));
    const int64_t n = spec_.h2h.dims[0], k = spec_.i2h.dims[0];
    if (!CouldBeEqual(in[0].shape[in[0].shape.rank() - 1], Dim::Of(k))) {
      return BadInput(0, in[0], "last dimension ", k,
                      k == n ? " (the hidden width)" : " (the rows of i2h)");
    }
    return InferStates(spec_, in);
  }
  void SuggestInputs(absl::Span<TensorSpec> in) const override {
    Suggest(in[0], Shape({Dim::Unknown(), Dim::Unknown(), Dim::Of(spec_.i2h.dims[0])}),
            Level::kUnknown);
    for (size_t i = 1; i < in.size(); ++i) {
      const bool length = spec_.lengths && i + 1 == in.size();
      Suggest(in[i], Shape({Dim::Unknown(), Dim::Of(length ? 1 : spec_.h2h.dims[0])}),
              Level::kUnknown);
    }
  }
  absl::Status Lower(Lowering& lowering) const override {
    const auto pre = lowering.Add("i2h", MakeInnerProduct(spec_.i2h), {0});
    std::vector<Lowering::Value> inputs = {pre};
    for (int i = 1; i < lowering.inputs(); ++i) inputs.push_back(i);
    const auto steps = lowering.Add("recurrence", std::make_unique<Recurrence<Cell>>(spec_),
                                    std::move(inputs), spec_.outputs);
    for (int i = 0; i < spec_.outputs; ++i) lowering.SetOutput(i, steps + i);
    return absl::OkStatus();
  }
  std::string Describe() const override {
    return absl::StrCat("hidden=", spec_.h2h.dims[0],
                        kIsGru<Cell> && !spec_.padding ? " leading_zeros=STEPS" : "",
                        spec_.backwards ? " backwards" : "", spec_.lengths ? " lengths" : "",
                        spec_.reset_first ? " reset_first" : "",
                        spec_.activation == UnaryOp::kRelu ? " activation=RELU" : "");
  }

 private:
  explicit Recurrent(RecurrentSpec spec) : spec_(std::move(spec)) {}

  static absl::Status ParseParam(const ulf::LayerParameter& layer, RecurrentSpec& spec) {
    const auto& param = (layer.*Cell::kParam)();
    spec.backwards = param.backwards();
    spec.lengths = param.lengths();
    if constexpr (kIsGru<Cell>) {
      spec.padding = param.leading_zeros() == ulf::GruParameter::PADDING;
      spec.reset_first = param.reset_first();
    }
    if constexpr (std::is_same_v<Cell, RnnStep>) {
      if (param.activation() == ulf::RnnParameter::RELU) spec.activation = UnaryOp::kRelu;
    }
    spec.outputs = layer.top_size();
    const int least = spec.lengths ? 2 : 1, most = least + static_cast<int>(Cell::kStates);
    if (layer.bottom_size() < least || layer.bottom_size() > most) {
      return InvalidArgument(layer.bottom_size(), layer.bottom_size() == 1 ? " bottom" : " bottoms",
                             ", want ", least, " to ", most,
                             spec.lengths ? ", the last of them lengths" : "");
    }
    return absl::OkStatus();
  }

  const RecurrentSpec spec_;
};

constexpr LayerType kTypes[] = {
    {.name = "gru_layer",
     .summary = "gated recurrent unit over the steps of x",
     .inputs = {1, 3},
     .outputs = {1, 2},
     .weights = {4, 4},
     .param_field = ulf::LayerParameter::kGruParamFieldNumber,
     .composite = true,
     .parse = &Recurrent<GruStep>::Parse,
     .doc = {.formula = "i = x i2h + bi, g = h h2h + bh; r = sig(i_r + g_r), z = sig(i_z + g_z), c "
                        "= tanh(i_c + r*g_c); h = c + z*(h - c)",
             .inputs = "x [rows, steps, n] float32\nh before the first step [rows, n] (may be left "
                       "out: zeros)\nlengths [rows, 1] (with gru_param.lengths)",
             .weights =
                 "h2h [n, 3n]: reset, update, candidate\ni2h [n, 3n]\nh2h bias [3n]\ni2h bias [3n]",
             .source = "ULF layer guide",
             .example_inputs = "x:3,2",
             .example_weights = "2,6;2,6;6;6"}},
    {.name = "lstm_layer",
     .summary = "long short-term memory over the steps of x",
     .inputs = {1, 4},
     .outputs = {1, 3},
     .weights = {4, 4},
     .param_field = ulf::LayerParameter::kLstmParamFieldNumber,
     .composite = true,
     .parse = &Recurrent<LstmStep>::Parse,
     .doc = {.formula = "a = x i2h + bi + h h2h + bh; i, f, o = sig(a_i), sig(a_f), sig(a_o); c = "
                        "f*c + i*tanh(a_g); h = o*tanh(c)",
             .inputs = "x [rows, steps, k] float32\nh before the first step [rows, n] (may be left "
                       "out: zeros)\nc before the first step [rows, n] (may be left out: zeros)\n"
                       "lengths [rows, 1] (with lstm_param.lengths)",
             .weights = "h2h [n, 4n]: input, forget, candidate, output\ni2h [k, 4n]\nh2h bias "
                        "[4n]\ni2h bias [4n]",
             .source = "ONNX LSTM; torch.nn.LSTM",
             .example_inputs = "x:3,5",
             .example_weights = "2,8;5,8;8;8"}},
    {.name = "rnn_layer",
     .summary = "simple recurrent unit over the steps of x",
     .inputs = {1, 3},
     .outputs = {1, 2},
     .weights = {4, 4},
     .param_field = ulf::LayerParameter::kRnnParamFieldNumber,
     .composite = true,
     .parse = &Recurrent<RnnStep>::Parse,
     .doc = {.formula = "h = tanh(x i2h + bi + h h2h + bh), or relu",
             .inputs = "x [rows, steps, k] float32\nh before the first step [rows, n] (may be left "
                       "out: zeros)\nlengths [rows, 1] (with rnn_param.lengths)",
             .weights = "h2h [n, n]\ni2h [k, n]\nh2h bias [n]\ni2h bias [n]",
             .source = "ONNX RNN; torch.nn.RNN",
             .example_inputs = "x:3,5",
             .example_weights = "2,2;5,2;2;2"}},
};

}  // namespace

absl::Span<const LayerType> RecurrentLayers() { return kTypes; }

}  // namespace ulfd::engine
