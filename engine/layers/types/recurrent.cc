// Recurrent layers: gru, lstm.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <memory>
#include <string>
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

struct RecurrentWeights {
  Weight h2h, i2h;
  absl::Span<const float> h_bias, i_bias;
  bool padding = false;  // Leading steps of zeros are none.
};

// What tells one cell from another.  `x` and `g` are what a row's step and its h give to the gates,
// `bias` those of x's biases that are not in g.

// r = sig(x_r + g_r);  z = sig(x_z + g_z);  c = tanh(x_c + bias + r * g_c);  h = c + z * (h - c)
struct GruStep {
  static constexpr int64_t kGates = 3, kStates = 1;
  static constexpr int64_t kSummed = 2;  // Gates of which both biases are summed.
  static constexpr int kLeastRank = 2;   // Rank 2: the steps of one row.
  static constexpr bool kOfOwnWidth = true, kSkipsZeros = true;
  static constexpr absl::string_view kH2h = "[n, 3*n] (h2h: reset, update, candidate)";
  static void Run(const float* x, const float* g, const float* bias, float* h, float*, int64_t n) {
    Kernels().gru_cell(x, g, bias, h, n);
  }
};

// i, f, o = sig(x + g);  c = f * c + i * tanh(x_g + g_g);  h = o * tanh(c)
struct LstmStep {
  static constexpr int64_t kGates = 4, kStates = 2;
  static constexpr int64_t kSummed = 4;
  static constexpr int kLeastRank = 3;
  static constexpr bool kOfOwnWidth = false, kSkipsZeros = false;
  static constexpr absl::string_view kH2h = "[n, 4*n] (h2h: input, forget, candidate, output)";
  static void Run(const float* x, const float* g, const float*, float* h, float* c, int64_t n) {
    Kernels().lstm_cell(x, g, c, h, n);
  }
};

// -------------------------------------------------------------------------------------- recurrence

template <class Cell>
class RecurrenceKernel final : public Kernel {
 public:
  explicit RecurrenceKernel(const RecurrentWeights& w)
      : n_(w.h2h.dims[0]),
        padding_(w.padding),
        h2h_(PackWeight(w.h2h, false)),
        start_(w.h_bias.begin(), w.h_bias.end()),
        bias_(w.i_bias.begin() + Cell::kSummed * n_, w.i_bias.end()) {
    for (int64_t j = 0; j < Cell::kSummed * n_; ++j) start_[j] += w.i_bias[j];
  }

  int64_t bytes() const override {
    if (!h2h_.reads_matrix()) return h2h_.bytes();
    return PackedMatrix::PackedFloats(n_, kWidth * n_) * static_cast<int64_t>(sizeof(float));
  }
  std::vector<Product*> products() override { return {&h2h_}; }
  // For the product; and per row of a block: the states, h * h2h, and a flag.
  size_t ScratchBytes(absl::Span<const Tensor> in) const override {
    const int64_t rows = std::min(kBlockRows, RowsOf(in));
    return h2h_.ScratchBytes(rows) +
           static_cast<size_t>(rows) * ((Cell::kStates + kWidth) * n_ * sizeof(float) + 1);
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

  // The states before the first step: those of further inputs, or zeros.
  void Start(absl::Span<const Tensor> in, int64_t row, int64_t rows, float* states) const {
    std::fill_n(states, Cell::kStates * rows * n_, 0.0f);
    for (size_t i = 1; i < in.size(); ++i) {
      float* const to = states + static_cast<int64_t>(i - 1) * rows * n_;
      for (int64_t b = 0; b < rows; ++b) {
        std::copy_n(in[i].f32() + (in[i].dims[0] == 1 ? 0 : row + b) * n_, n_, to + b * n_);
      }
    }
  }

  // All steps of some rows.  A row that has not started keeps its first state.
  absl::Status RunBlock(RunContext& ctx, int64_t row, int64_t rows) const {
    const int64_t steps = ctx.in[0].dims[ctx.in[0].rank() - 2];
    const int64_t next_row = RowsOf(ctx.in[0]) == 1 ? 0 : steps * kWidth * n_;
    const float* const pre = ctx.in[0].f32() + row * next_row;
    float* const y = ctx.out[0].f32() + row * steps * n_;
    // What the product needs comes first, aligned.
    float* h = reinterpret_cast<float*>(static_cast<char*>(ctx.scratch) + h2h_.ScratchBytes(rows));
    float* c = h + (Cell::kStates - 1) * rows * n_;
    float* recurrent = h + Cell::kStates * rows * n_;
    char* started = reinterpret_cast<char*>(recurrent + rows * kWidth * n_);
    Start(ctx.in, row, rows, h);
    std::fill_n(started, rows, padding_ ? 0 : 1);
    const FcBlock block{h, n_, n_};
    FcCall fc;
    fc.blocks = absl::MakeConstSpan(&block, 1);
    fc.rows = rows;
    fc.init = start_.data();
    fc.y = recurrent;
    fc.y_stride = kWidth * n_;
    bool any = false;
    for (int64_t t = 0; t < steps && !ctx.pace.Stops(kStepWork + rows * kWidth * n_ * n_); ++t) {
      for (int64_t b = 0; b < rows; ++b) {
        const float* first = pre + b * next_row + t * kWidth * n_;
        // NaN starts a row, too.
        started[b] = started[b] || std::any_of(first, first + n_, [](float v) { return v != 0; });
        any = any || started[b];
      }
      if (any) RETURN_IF_ERROR(h2h_.Run(fc, ctx.scratch));
      for (int64_t b = 0; b < rows; ++b) {
        if (started[b]) {
          Cell::Run(pre + b * next_row + t * kWidth * n_, recurrent + b * kWidth * n_, bias_.data(),
                    h + b * n_, c + b * n_, n_);
        }
        std::copy_n(h + b * n_, n_, y + (b * steps + t) * n_);
      }
    }
    return absl::OkStatus();
  }

  const int64_t n_;
  const bool padding_;
  Product h2h_;                    // [n, gates * n].
  std::vector<float> start_;       // h's biases, and those of x that are summed with them.
  const std::vector<float> bias_;  // The others of x.
};

// The rows of states [rows, n], the inputs behind the first, are those of `out` [rows, steps, n].
absl::Status JoinStates(absl::Span<const TensorSpec> in, Shape& out) {
  for (int i = 1; i < static_cast<int>(in.size()); ++i) {
    RETURN_IF_ERROR(WantRank(in, i, 2, 2));
    if (!CouldBeEqual(in[i].shape[1], out[2])) {
      return BadInput(i, in[i], "last dimension ", out[2].ToString(), " (the hidden width)");
    }
    const absl::StatusOr<Shape> rows = BroadcastShapes({out[0]}, {in[i].shape[0]});
    if (!rows.ok()) return BadInput(i, in[i], "the rows of x, ", out[0].ToString());
    out[0] = (*rows)[0];
  }
  return absl::OkStatus();
}

// gru_recurrence, lstm_recurrence (primitives, not types of the format): the steps of a cell over
// x * i2h, with h (and c) = 0 at first, or what inputs 1 and 2 say.  Padding: leading steps whose
// product has only zeros in its first n values leave h alone.
// oneDNN's lbr_gru has GRU's cell, but not this rule: how many leading steps are padding differs
// from row to row, each row then starts from h = 0 as if it were shorter, and its primitive has
// neither lengths per row nor sizes known only at run time (a primitive per pair of row and step
// counts would have to be made).  The GEMM per step covers all rows.
// Input 0: x * i2h [batch, steps, gates * n], or [steps, gates * n], f32.  Inputs 1, 2: h and c
// [batch, n].  Output 0: h [batch, steps, n] (batch 1 for rank 2), every step.
template <class Cell>
class Recurrence final : public Layer {
 public:
  explicit Recurrence(const RecurrentWeights& w) : w_(w) {}

  absl::StatusOr<TensorSpecs> Infer(absl::Span<const TensorSpec> in) const override {
    RETURN_IF_ERROR(WantFloat32(in));
    RETURN_IF_ERROR(WantRank(in, 0, Cell::kLeastRank, 3));
    TensorSpec out = in[0];
    if (out.shape.rank() == 2) out.shape.dims().insert(out.shape.dims().begin(), Dim::Of(1));
    const int64_t width = Cell::kGates * w_.h2h.dims[0];
    if (!CouldBeEqual(out.shape[2], Dim::Of(width))) {
      return BadInput(0, in[0], "last dimension ", width);
    }
    out.shape[2] = Dim::Of(w_.h2h.dims[0]);
    RETURN_IF_ERROR(JoinStates(in, out.shape));
    return OnlyOutput(std::move(out), in);
  }
  double Flops(absl::Span<const TensorSpec>, absl::Span<const TensorSpec> out) const override {
    return (2.0 * static_cast<double>(w_.h2h.dims[0]) + 6.0) * Cell::kGates *
           static_cast<double>(out[0].shape.Elements().value());
  }
  absl::StatusOr<std::unique_ptr<Kernel>> Prepare(absl::Span<const TensorSpec>) const override {
    return std::unique_ptr<Kernel>(new RecurrenceKernel<Cell>(w_));
  }

 private:
  const RecurrentWeights w_;
};

// ------------------------------------------------------------------------------------------ layers

// gru_layer, lstm_layer: the state h after every step, from zeros or from the states of inputs 1
// and 2, of which one row may stand for all.  Composite: inner_product x * i2h over all
// steps at once, then the recurrence.  The level is unknown for rank 2: rows become steps.  With
// gru_param i2h may be [k, 3n] for x of width k; lstm_layer's always may.
template <class Cell>
class Recurrent final : public Layer {
 public:
  static absl::StatusOr<std::unique_ptr<Layer>> Parse(const ParseContext& ctx) {
    ASSIGN_OR_RETURN(Weight h2h, WantMatrix(ctx.weights, 0));
    const int64_t n = h2h.dims[0], width = Cell::kGates * n;
    if (n == 0 || h2h.dims[1] != width) return BadWeight(ctx.weights, 0, Cell::kH2h);
    ASSIGN_OR_RETURN(Weight i2h, WantMatrix(ctx.weights, 1));
    const bool of_own_width = Cell::kOfOwnWidth && !ctx.param.has_gru_param();
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
    const bool padding =
        Cell::kSkipsZeros && ctx.param.gru_param().leading_zeros() == ulf::GruParameter::PADDING;
    return std::unique_ptr<Layer>(new Recurrent(
        {std::move(h2h), std::move(i2h), ctx.weights[2].data, ctx.weights[3].data, padding}));
  }
  absl::StatusOr<TensorSpecs> Infer(absl::Span<const TensorSpec> in) const override {
    RETURN_IF_ERROR(WantFloat32(in));
    RETURN_IF_ERROR(WantRank(in, 0, Cell::kLeastRank, 3));
    const int64_t n = w_.h2h.dims[0], k = w_.i2h.dims[0];
    TensorSpec out = in[0];
    if (!CouldBeEqual(out.shape[out.shape.rank() - 1], Dim::Of(k))) {
      return BadInput(0, in[0], "last dimension ", k,
                      k == n ? " (the hidden width)" : " (the rows of i2h)");
    }
    if (out.shape.rank() == 2) out.shape.dims().insert(out.shape.dims().begin(), Dim::Of(1));
    out.shape[2] = Dim::Of(n);
    RETURN_IF_ERROR(JoinStates(in, out.shape));
    return OnlyOutput(std::move(out), in);
  }
  void SuggestInputs(absl::Span<TensorSpec> in) const override {
    Suggest(in[0], Shape({Dim::Unknown(), Dim::Unknown(), Dim::Of(w_.i2h.dims[0])}),
            Level::kUnknown);
    for (TensorSpec& state : in.subspan(1)) {
      Suggest(state, Shape({Dim::Unknown(), Dim::Of(w_.h2h.dims[0])}), Level::kUnknown);
    }
  }
  absl::Status Lower(Lowering& lowering) const override {
    const auto pre = lowering.Add("i2h", MakeInnerProduct(w_.i2h), {0});
    std::vector<Lowering::Value> inputs = {pre};
    for (int i = 1; i < lowering.inputs(); ++i) inputs.push_back(i);
    const auto steps =
        lowering.Add("recurrence", std::make_unique<Recurrence<Cell>>(w_), std::move(inputs));
    lowering.SetOutput(0, steps);
    return absl::OkStatus();
  }
  std::string Describe() const override {
    return absl::StrCat("hidden=", w_.h2h.dims[0],
                        Cell::kSkipsZeros && !w_.padding ? " leading_zeros=STEPS" : "");
  }

 private:
  explicit Recurrent(RecurrentWeights w) : w_(std::move(w)) {}
  const RecurrentWeights w_;
};

constexpr LayerType kTypes[] = {
    {.name = "gru_layer",
     .summary = "gated recurrent unit over the steps of x",
     .inputs = {1, 2},
     .weights = {4, 4},
     .param_field = ulf::LayerParameter::kGruParamFieldNumber,
     .composite = true,
     .parse = &Recurrent<GruStep>::Parse,
     .doc = {.formula = "i = x i2h + bi, g = h h2h + bh; r = sig(i_r + g_r), z = sig(i_z + g_z), c "
                        "= tanh(i_c + r*g_c); h = c + z*(h - c)",
             .inputs = "x [rows, steps, n] float32\nh before the first step [rows, n] (may be left "
                       "out: zeros)",
             .weights =
                 "h2h [n, 3n]: reset, update, candidate\ni2h [n, 3n]\nh2h bias [3n]\ni2h bias [3n]",
             .source = "ULF layer guide",
             .example_inputs = "x:3,2",
             .example_weights = "2,6;2,6;6;6"}},
    {.name = "lstm_layer",
     .summary = "long short-term memory over the steps of x",
     .inputs = {1, 3},
     .weights = {4, 4},
     .composite = true,
     .parse = &Recurrent<LstmStep>::Parse,
     .doc = {.formula = "a = x i2h + bi + h h2h + bh; i, f, o = sig(a_i), sig(a_f), sig(a_o); c = "
                        "f*c + i*tanh(a_g); h = o*tanh(c)",
             .inputs = "x [rows, steps, k] float32\nh before the first step [rows, n] (may be left "
                       "out: zeros)\nc before the first step [rows, n] (may be left out: zeros)",
             .weights = "h2h [n, 4n]: input, forget, candidate, output\ni2h [k, 4n]\nh2h bias "
                        "[4n]\ni2h bias [4n]",
             .source = "ONNX LSTM; torch.nn.LSTM",
             .example_inputs = "x:3,5",
             .example_weights = "2,8;5,8;8;8"}},
};

}  // namespace

absl::Span<const LayerType> RecurrentLayers() { return kTypes; }

}  // namespace ulfd::engine
