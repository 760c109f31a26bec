// The layer's convolution beside bare oneDNN primitives, in turns, at the shapes of a ResNet.
// SPDX-License-Identifier: Apache-2.0
//
//   convolution_bench [pairs]     default 15
//
// NCHW: a primitive that is given its input and output as the layer has them and picks the layout
// of the weights: what the layer would be without laying images out itself.  BLOCKED: the fastest
// that oneDNN has, on images that are already in its own layout, conversions not counted: what a
// chain of convolutions could reach.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <unordered_map>
#include <vector>

#include "engine/tensor/onednn.h"
#include "engine/tensor/onednn_convolution.h"
#include "oneapi/dnnl/dnnl.hpp"
#include "tests/bench/turns.h"

namespace ulfd::bench {
namespace {

using Tag = dnnl::memory::format_tag;

struct Case {
  const char* name;
  int64_t rows, in, out, size, kernel, stride;
};
constexpr Case kCases[] = {
    {"conv1 7x7/2 3->64 at 224", 1, 3, 64, 224, 7, 2},
    {"3x3 64->64 at 56", 1, 64, 64, 56, 3, 1},
    {"1x1 64->256 at 56", 1, 64, 256, 56, 1, 1},
    {"3x3/2 128->128 at 56", 1, 128, 128, 56, 3, 2},
    {"3x3 128->128 at 28", 1, 128, 128, 28, 3, 1},
    {"1x1 512->128 at 28", 1, 512, 128, 28, 1, 1},
    {"3x3 256->256 at 14", 1, 256, 256, 14, 3, 1},
    {"1x1 1024->256 at 14", 4, 1024, 256, 14, 1, 1},
    {"3x3 512->512 at 7", 8, 512, 512, 7, 3, 1},
    {"1x1 512->2048 at 7", 8, 512, 2048, 7, 1, 1},
};

// One primitive with memory of its own.
class Bare {
 public:
  Bare(const Case& c, Tag images) : engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {
    const int64_t pad = c.kernel / 2, out = (c.size + 2 * pad - c.kernel) / c.stride + 1;
    const auto f32 = dnnl::memory::data_type::f32;
    const dnnl::convolution_forward::desc op(
        dnnl::prop_kind::forward_inference, dnnl::algorithm::convolution_direct,
        {{c.rows, c.in, c.size, c.size}, f32, images},
        {{c.out, c.in, c.kernel, c.kernel}, f32, Tag::any}, {{c.out}, f32, Tag::a},
        {{c.rows, c.out, out, out}, f32, images}, {c.stride, c.stride}, {pad, pad}, {pad, pad});
    const dnnl::convolution_forward::primitive_desc described(op, engine_);
    primitive_ = dnnl::convolution_forward(described);
    arguments_ = {{DNNL_ARG_SRC, Filled(described.src_desc())},
                  {DNNL_ARG_WEIGHTS, Filled(described.weights_desc())},
                  {DNNL_ARG_BIAS, Filled(described.bias_desc())},
                  {DNNL_ARG_DST, Filled(described.dst_desc())}};
  }
  absl::Status Run() {
    primitive_.execute(stream_, arguments_);
    return absl::OkStatus();
  }

 private:
  dnnl::memory Filled(const dnnl::memory::desc& desc) {
    dnnl::memory memory(desc, engine_);
    float* data = static_cast<float*>(memory.get_data_handle());
    for (size_t i = 0; i < desc.get_size() / sizeof(float); ++i) {
      data[i] = 0.01f * static_cast<float>(i % 17);
    }
    return memory;
  }
  dnnl::engine engine_;
  dnnl::stream stream_;
  dnnl::convolution_forward primitive_;
  std::unordered_map<int, dnnl::memory> arguments_;
};

class Ours {
 public:
  explicit Ours(const Case& c)
      : case_(c),
        weights_(static_cast<size_t>(c.out * c.in * c.kernel * c.kernel), 0.01f),
        bias_(static_cast<size_t>(c.out), 0.01f),
        x_(static_cast<size_t>(c.rows * c.in * c.size * c.size), 0.01f) {
    engine::ConvolutionGeometry g{.in_channels = c.in, .out_channels = c.out};
    g.kernel = {c.kernel, c.kernel};
    g.stride = {c.stride, c.stride};
    g.pad.fill(c.kernel / 2);
    y_.resize(
        static_cast<size_t>(c.rows * c.out * g.OutputSize(0, c.size) * g.OutputSize(1, c.size)));
    auto made = engine::Convolution::Create(g, weights_, bias_, c.size, c.size);
    if (!made.ok()) std::abort();
    convolution_ = *std::move(made);
    scratch_ = std::aligned_alloc(64, convolution_->ScratchBytes(c.rows, c.size, c.size) + 64);
  }
  ~Ours() { std::free(scratch_); }
  Ours(const Ours&) = delete;
  Ours& operator=(const Ours&) = delete;
  absl::Status Run() {
    engine::Pace pace;
    return convolution_->Run(x_.data(), case_.rows, case_.size, case_.size, y_.data(), scratch_,
                             pace);
  }

 private:
  const Case case_;
  std::vector<float> weights_, bias_, x_, y_;
  std::unique_ptr<const engine::Convolution> convolution_;
  void* scratch_ = nullptr;
};

int Main(int pairs) {
  engine::UseOneThread();
  std::printf("%-26s %5s %10s %12s %12s\n", "shape", "rows", "ours ms", "NCHW/ours",
              "BLOCKED/ours");
  for (const Case& c : kCases) {
    Ours ours(c);
    Bare nchw(c, Tag::nchw), blocked(c, Tag::any);
    const auto turns = RunInTurns({{"ours", [&] { return ours.Run(); }},
                                   {"NCHW", [&] { return nchw.Run(); }},
                                   {"BLOCKED", [&] { return blocked.Run(); }}},
                                  {.turns = pairs, .seconds = 1e-3, .peak = false});
    if (!turns.ok()) {
      std::fprintf(stderr, "convolution_bench: %s\n", turns.status().ToString().c_str());
      return 1;
    }
    const std::vector<std::vector<double>>& seconds = turns->seconds;
    std::printf("%-26s %5d %10.3f %12.2f %12.2f\n", c.name, static_cast<int>(c.rows),
                SpreadOf(seconds[0]).median * 1e3, SpreadOf(Ratios(seconds[1], seconds[0])).median,
                SpreadOf(Ratios(seconds[2], seconds[0])).median);
  }
  return 0;
}

}  // namespace
}  // namespace ulfd::bench

int main(int argc, char** argv) { return ulfd::bench::Main(argc > 1 ? std::atoi(argv[1]) : 15); }
