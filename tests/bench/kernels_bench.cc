// Our kernels beside oneDNN's, by turns in one process.
// SPDX-License-Identifier: Apache-2.0
//
// Each benchmark times the two in turns (A B A B ...) and reports the median of the ratios, so that
// a machine whose speed drifts favours neither.  peak_% is the share of the FMA peak that is
// measured in the same turn.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/kernels/attention.h"
#include "engine/kernels/fc.h"
#include "engine/kernels/isa.h"
#include "engine/kernels/product.h"
#include "engine/kernels/table.h"
#include "engine/tensor/fma_peak.h"
#include "engine/tensor/onednn.h"
#include "oneapi/dnnl/dnnl.hpp"
#include "tests/bench/turns.h"

namespace ulfd::bench {
namespace {

using engine::Activation;
using engine::Fc;
using engine::FcBlock;
using engine::FcCall;
using engine::PackedMatrix;

std::vector<float> MadeUp(int64_t size, float scale = 1) {
  static std::mt19937 random(1);
  std::uniform_real_distribution<float> value(-scale, scale);
  std::vector<float> values(size);
  for (float& v : values) v = value(random);
  return values;
}

// CPU time, which does not pass while others have the core.
double Seconds(const std::function<void()>& run, int64_t times) {
  const double begin = Now(/*wall=*/false);
  for (int64_t i = 0; i < times; ++i) run();
  return (Now(/*wall=*/false) - begin) / static_cast<double>(times);
}

// Times `ours` and `theirs` (may be empty) in turns.  One iteration is one run of ours.
void Compare(benchmark::State& state, double flops, double items, const std::function<void()>& ours,
             const std::function<void()>& theirs, const char* against = "x_onednn") {
  ours();
  if (theirs) theirs();
  // Turns of about 0.2 ms.
  const int64_t times = std::max<int64_t>(1, static_cast<int64_t>(2e-4 / Seconds(ours, 3)));
  std::vector<double> ratios, seconds, peaks;
  for (auto _ : state) {
    const double took = Seconds(ours, times);
    state.SetIterationTime(took * static_cast<double>(times));
    seconds.push_back(took);
    if (theirs) ratios.push_back(Seconds(theirs, times) / took);
    if (flops > 0) peaks.push_back(100 * flops / took / 1e9 / engine::ProbeFmaPeakGflops());
  }
  state.counters["us"] = SpreadOf(seconds).median * 1e6;
  if (theirs) state.counters[against] = SpreadOf(ratios).median;
  if (items > 0) state.counters["ns_each"] = SpreadOf(seconds).median * 1e9 / items;
  if (flops > 0) state.counters["peak_%"] = SpreadOf(peaks).median;
}

void Register(const std::string& name, std::function<void(benchmark::State&)> bench) {
  constexpr int64_t kTurns = 25;
  benchmark::RegisterBenchmark(name.c_str(), std::move(bench))->UseManualTime()->Iterations(kTurns);
}

// ------------------------------------------------------------------------------------------- fc

struct Shape {
  int64_t rows, k, n;
};

// An elementwise function of oneDNN over n values.
class OneDnnFunction {
 public:
  OneDnnFunction(dnnl::algorithm algorithm, int64_t n)
      : desc_({n}, dnnl::memory::data_type::f32, dnnl::memory::format_tag::a),
        primitive_(dnnl::eltwise_forward::primitive_desc(
            dnnl::eltwise_forward::desc(dnnl::prop_kind::forward_inference, algorithm, desc_, 0, 0),
            engine_)) {}
  void Run(float* x, float* y) {
    dnnl::stream stream(engine_);
    primitive_.execute(stream, {{DNNL_ARG_SRC, dnnl::memory(desc_, engine_, x)},
                                {DNNL_ARG_DST, dnnl::memory(desc_, engine_, y)}});
    stream.wait();
  }

 private:
  const dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  const dnnl::memory::desc desc_;
  const dnnl::eltwise_forward primitive_;
};

// y = act(x W + b): ours in one call; oneDNN: fill with the bias, GEMM, activation.  The weights
// have the stride that the layer would give them.
void BenchFc(benchmark::State& state, const Shape& s, Activation::Kind kind) {
  const std::vector<float> x = MadeUp(s.rows * s.k), w = MadeUp(s.k * s.n), bias = MadeUp(s.n);
  const int64_t ld = s.n % 512 == 0 ? s.n + 16 : s.n;
  std::vector<float> padded(s.k * ld);
  for (int64_t i = 0; i < s.k; ++i) std::copy_n(&w[i * s.n], s.n, &padded[i * ld]);
  std::vector<float> y(s.rows * s.n), z(s.rows * s.n);
  const PackedMatrix packed = PackedMatrix::Pack(w.data(), s.k, s.n, s.n, 1);
  const FcBlock block{x.data(), s.k, s.k};
  FcCall call;
  call.blocks = absl::MakeConstSpan(&block, 1);
  call.rows = s.rows;
  call.w = packed.view();
  call.init = bias.data();
  call.epilogue.activation.kind = kind;
  call.y = y.data();
  call.y_stride = s.n;
  OneDnnFunction sigmoid(dnnl::algorithm::eltwise_logistic, s.rows * s.n);
  const auto theirs = [&] {
    for (int64_t r = 0; r < s.rows; ++r) std::copy_n(bias.data(), s.n, &z[r * s.n]);
    benchmark::DoNotOptimize(dnnl::sgemm('N', 'N', s.rows, s.n, s.k, 1.0f, x.data(), s.k,
                                         padded.data(), ld, 1.0f, z.data(), s.n));
    if (kind == Activation::Kind::kRelu) {
      for (float& v : z) v = v < 0 ? 0 : v;
    } else if (kind == Activation::Kind::kSigmoid) {
      sigmoid.Run(z.data(), z.data());
    }
  };
  Compare(
      state, 2.0 * static_cast<double>(s.rows * s.k * s.n), 0, [&] { Fc(call); }, theirs);
}

// A product in a low precision, what it reads rounded in each call, beside the same in fp32.
void BenchRounded(benchmark::State& state, engine::Precision precision, const Shape& s) {
  const std::vector<float> x = MadeUp(s.rows * s.k), w = MadeUp(s.k * s.n), bias = MadeUp(s.n);
  std::vector<float> y(s.rows * s.n);
  engine::Product fp32(
      std::make_shared<const PackedMatrix>(PackedMatrix::Pack(w.data(), s.k, s.n, s.n, 1)));
  engine::Product rounded(
      std::make_shared<const PackedMatrix>(PackedMatrix::Pack(w.data(), s.k, s.n, s.n, 1)));
  rounded.SetPrecision(precision, s.rows);
  const FcBlock block{x.data(), s.k, s.k};
  const FcCall call{.blocks = absl::MakeConstSpan(&block, 1),
                    .rows = s.rows,
                    .init = bias.data(),
                    .y = y.data(),
                    .y_stride = s.n};
  std::vector<char> memory(rounded.ScratchBytes(s.rows) + 64);
  void* scratch = memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64);
  const auto run = [&](const engine::Product& product) {
    benchmark::DoNotOptimize(product.Run(call, scratch).ok());
  };
  Compare(
      state, 2.0 * static_cast<double>(s.rows * s.k * s.n), 0, [&] { run(rounded); },
      [&] { run(fp32); }, "x_fp32");
}

void RegisterRounded() {
  const int64_t widths[][2] = {{36, 80}, {80, 2}, {80, 40}, {200, 80}, {306, 200}, {1024, 512}};
  for (const engine::Precision precision : {engine::Precision::kBf16, engine::Precision::kInt8}) {
    if (!engine::Has(precision)) continue;
    for (const auto& [k, n] : widths) {
      for (const int64_t rows : {1, 16, 200, 1000}) {
        const Shape shape{rows, k, n};
        Register(absl::StrCat(engine::Name(precision), "/", k, "x", n, "/", rows),
                 [=](benchmark::State& state) { BenchRounded(state, precision, shape); });
      }
    }
  }
}

void RegisterFc() {
  const std::pair<Activation::Kind, const char*> kinds[] = {
      {Activation::Kind::kNone, "none"},
      {Activation::Kind::kRelu, "relu"},
      {Activation::Kind::kSigmoid, "sigmoid"}};
  const int64_t widths[][2] = {{36, 80},    {80, 40},   {40, 1},     {24, 64},
                               {128, 128},  {306, 200}, {200, 80},   {80, 2},
                               {1038, 200}, {732, 512}, {1024, 512}, {512, 256}};
  for (const auto& [kind, name] : kinds) {
    for (const auto& [k, n] : widths) {
      for (const int64_t rows : {1, 10, 16, 50, 200, 1000, 20000}) {
        if (rows == 20000 && k > 80) continue;
        const Shape shape{rows, k, n};
        Register(absl::StrCat("fc_", name, "/", k, "x", n, "/", rows),
                 [shape, kind = kind](benchmark::State& state) { BenchFc(state, shape, kind); });
      }
    }
  }
}

// ----------------------------------------------------------------------------------- elementwise

void BenchUnary(benchmark::State& state, engine::UnaryOp op, dnnl::algorithm algorithm, int64_t n) {
  std::vector<float> x = MadeUp(n, 8);
  std::vector<float> y(n), z(n);
  OneDnnFunction theirs(algorithm, n);
  Compare(
      state, 0, static_cast<double>(n), [&] { engine::Kernels().unary(op, x.data(), y.data(), n); },
      [&] { theirs.Run(x.data(), z.data()); });
}

void BenchSoftmax(benchmark::State& state, int64_t outer, int64_t count, int64_t inner) {
  const int64_t n = outer * count * inner;
  const std::vector<float> x = MadeUp(n, 8);
  std::vector<float> y(n);
  Compare(
      state, 0, static_cast<double>(n),
      [&] { engine::Kernels().softmax(x.data(), y.data(), outer, count, inner, /*log=*/false); },
      nullptr);
}

// (ads, 1, E) - (1, T, E), one row at a time as a broadcast plan would walk it.
void BenchBroadcast(benchmark::State& state, int64_t ads, int64_t steps, int64_t width) {
  const std::vector<float> a = MadeUp(ads * width), b = MadeUp(steps * width);
  std::vector<float> y(ads * steps * width);
  Compare(
      state, 0, static_cast<double>(y.size()),
      [&] {
        for (int64_t i = 0; i < ads; ++i) {
          engine::Kernels().binary(engine::BinaryOp::kSub, {a.data() + i * width, 0, 1},
                                   {b.data(), width, 1}, y.data() + i * steps * width, width, steps,
                                   width);
        }
      },
      nullptr);
}

void BenchWeightedSum(benchmark::State& state, int64_t steps, int64_t width) {
  const std::vector<float> w = MadeUp(steps), v = MadeUp(steps * width);
  std::vector<float> y(width);
  Compare(
      state, 2.0 * static_cast<double>(steps * width), 0,
      [&] { engine::Kernels().weighted_sum(w.data(), v.data(), width, steps, width, y.data()); },
      nullptr);
}

void RegisterElementwise() {
  using engine::UnaryOp;
  const std::tuple<const char*, UnaryOp, dnnl::algorithm> functions[] = {
      {"sigmoid", UnaryOp::kSigmoid, dnnl::algorithm::eltwise_logistic},
      {"tanh", UnaryOp::kTanh, dnnl::algorithm::eltwise_tanh},
      {"exp", UnaryOp::kExp, dnnl::algorithm::eltwise_exp}};
  for (const auto& [name, op, function] : functions) {
    for (const int64_t n : {10, 100, 1000, 8000, 40000}) {
      Register(absl::StrCat(name, "/", n),
               [op = op, function = function, n](benchmark::State& state) {
                 BenchUnary(state, op, function, n);
               });
    }
  }
  Register("softmax/200x100", [](benchmark::State& state) { BenchSoftmax(state, 200, 100, 1); });
  Register("softmax/20x100x36", [](benchmark::State& state) { BenchSoftmax(state, 20, 100, 36); });
  Register("broadcast_sub/20x50x32",
           [](benchmark::State& state) { BenchBroadcast(state, 20, 50, 32); });
  Register("weighted_sum/100x36",
           [](benchmark::State& state) { BenchWeightedSum(state, 100, 36); });
}

// ------------------------------------------------------------------------------------- attention

// DIN: 100 steps of 36, layers 80-40-1 with sigmoids, `valid` steps left by the mask; `bf16`:
// beside fp32.
void BenchAttention(benchmark::State& state, int64_t ads, int64_t valid, bool bf16) {
  constexpr int64_t kSteps = 100, kWidth = 36, kFirst = 80, kSecond = 40;
  const std::vector<float> q = MadeUp(ads * kWidth), k = MadeUp(kSteps * kWidth);
  const std::vector<float> bias = MadeUp(kFirst);
  std::vector<int32_t> mask(kSteps, 0);
  std::fill_n(mask.begin(), valid, 1);
  std::vector<PackedMatrix> w;
  for (int i = 0; i < 3; ++i) {
    w.push_back(PackedMatrix::Pack(MadeUp(kWidth * kFirst).data(), kWidth, kFirst, kFirst, 1));
  }
  w.push_back(PackedMatrix::Pack(MadeUp(kFirst * kSecond).data(), kFirst, kSecond, kSecond, 1));
  w.push_back(PackedMatrix::Pack(MadeUp(kSecond).data(), kSecond, 1, 1, 1));
  engine::AttentionSpec spec;
  spec.width = kWidth;
  spec.hidden = kFirst;
  spec.q_weight = w[0].view();
  spec.k_weight = w[1].view();
  spec.product_weight = w[2].view();
  spec.bias = bias.data();
  spec.epilogue.activation.kind = Activation::Kind::kSigmoid;
  engine::AttentionStage stages[2] = {{kFirst, w[3].view(), bias.data(), spec.epilogue},
                                      {kSecond, w[4].view(), bias.data(), {}}};
  spec.stages = stages;
  spec.pad = -4294967295.0f;
  std::vector<float> y(ads * kWidth);
  engine::AttentionCall call;
  call.ads = ads;
  call.steps = kSteps;
  call.q = q.data();
  call.q_stride = kWidth;
  call.k = k.data();
  call.mask = mask.data();
  call.v = k.data();
  call.v_width = kWidth;
  call.y = y.data();
  std::vector<char> memory(engine::AttentionScratchBytes(spec, kSteps, kWidth) + 64);
  void* scratch = memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64);
  const double flops =
      2.0 *
      static_cast<double>(ads * valid * (kWidth * kFirst + kFirst * kSecond + kSecond + kWidth));
  const auto run = [&](const engine::AttentionSpec& unit) {
    engine::Attention(unit, call, scratch);
  };
  if (!bf16) {
    Compare(
        state, flops, 0, [&] { run(spec); }, nullptr);
    return;
  }
  const PackedMatrix second = PackedMatrix::PackRounded(
      engine::Precision::kBf16, MadeUp(kFirst * kSecond).data(), kFirst, kSecond, kSecond, 1);
  engine::AttentionSpec rounded = spec;
  engine::AttentionStage rounded_stages[2] = {stages[0], stages[1]};
  rounded_stages[0].w = second.view();
  rounded.stages = rounded_stages;
  rounded.bf16 = true;
  memory.resize(engine::AttentionScratchBytes(rounded, kSteps, kWidth) + 64);
  scratch = memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64);
  Compare(
      state, flops, 0, [&] { run(rounded); }, [&] { run(spec); }, "x_fp32");
}

void RegisterAttention() {
  for (const bool bf16 : {false, true}) {
    if (bf16 && !engine::Has(engine::Precision::kBf16)) continue;
    for (const int64_t valid : {100, 50, 10}) {
      for (const int64_t ads : {1, 10, 50, 200, 1000}) {
        Register(absl::StrCat("din_attention_", bf16 ? "bf16_" : "", valid, "_valid/", ads),
                 [ads, valid, bf16](benchmark::State& state) {
                   BenchAttention(state, ads, valid, bf16);
                 });
      }
    }
  }
}

int Main(int argc, char** argv) {
  engine::UseOneThread();
  if (!engine::IsaOfEnvironment().ok()) {
    std::fprintf(stderr, "kernels_bench: %s\n",
                 engine::IsaOfEnvironment().status().ToString().c_str());
    return 1;
  }
  RegisterFc();
  RegisterRounded();
  RegisterElementwise();
  RegisterAttention();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::AddCustomContext("isa", std::string(engine::Name(engine::ActiveIsa())));
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

}  // namespace
}  // namespace ulfd::bench

int main(int argc, char** argv) { return ulfd::bench::Main(argc, argv); }
