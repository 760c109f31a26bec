// expression_layer beside the same formula as a chain of arithmetic layers, in turns.
// SPDX-License-Identifier: Apache-2.0
//
//   expression_bench [pairs [name]]     default 15, formulas whose name contains `name`
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "engine/layers/registry.h"
#include "engine/tensor/onednn.h"
#include "tests/bench/turns.h"
#include "tests/testing/no_files.h"

namespace ulfd::bench {
namespace {

constexpr int64_t kRows = 128, kHistoryRows = 16, kSteps = 50, kWidth = 200;

// What stands in the chain: type, bottoms, top.
struct Link {
  const char *type, *a, *b, *top;
};
struct Case {
  const char* name;
  const char* formula;
  std::vector<Link> chain;
  int64_t dim;  // The ads' [16, 1, dim] and the user's [1, 50, dim]; 0: [128, 200] twice.
};

std::vector<Case> Cases() {
  const std::vector<Link> one = {{"multiply_layer", "p", "q", "y"}};
  const std::vector<Link> two = {{"sub_layer", "p", "q", "d"}, {"multiply_layer", "d", "p", "y"}};
  const std::vector<Link> five = {{"sub_layer", "p", "q", "d"},
                                  {"multiply_layer", "p", "q", "m"},
                                  {"multiply_layer", "d", "d", "s"},
                                  {"add_layer", "s", "m", "t"},
                                  {"sub_layer", "t", "p", "y"}};
  const std::vector<Link> swish = {{"sub_layer", "p", "q", "d"},
                                   {"sigmoid_layer", "d", "", "g"},
                                   {"multiply_layer", "d", "g", "h"},
                                   {"add_layer", "h", "p", "t"},
                                   {"multiply_layer", "t", "q", "y"}};
  std::vector<Case> cases;
  for (int64_t dim : {0, 32, 36}) {
    cases.push_back({"1 operator", "@0*@1", one, dim});
    cases.push_back({"2 operators", "(@0-@1)*@0", two, dim});
    cases.push_back({"5 operators", "(@0-@1)*(@0-@1)+@0*@1-@0", five, dim});
    cases.push_back({"5 with a sigmoid", "((@0-@1)*sigmoid(@0-@1)+@0)*@1", swish, dim});
  }
  return cases;
}

[[noreturn]] void Fail(const absl::Status& status) {
  std::fprintf(stderr, "expression_bench: %s\n", status.ToString().c_str());
  std::exit(1);
}

// Layers run one after the other on the rows of one tile, as the executor would, without what a
// request costs beside them.
class Program {
 public:
  explicit Program(const Case& c) {
    const auto floats = [this](std::vector<int64_t> dims) {
      int64_t elements = 1;
      for (int64_t d : dims) elements *= d;
      float* data = Floats(static_cast<size_t>(elements));
      std::fill_n(data, elements, 0.5f);
      return engine::Tensor{engine::DType::kFloat32, {dims.begin(), dims.end()}, data};
    };
    if (c.dim > 0) {
      values_ = {{"p", floats({kHistoryRows, 1, c.dim})}, {"q", floats({1, kSteps, c.dim})}};
    } else {
      values_ = {{"p", floats({kRows, kWidth})}, {"q", floats({kRows, kWidth})}};
    }
  }

  // Adds a layer that makes `top`, its output as large as the operands broadcast.
  void Add(const std::string& type, const std::vector<std::string>& bottoms, const std::string& top,
           const std::string& expression = "") {
    ulf::LayerParameter param;
    param.set_type(type);
    param.add_top(top);
    std::vector<engine::TensorSpec> specs;
    Call call;
    for (const std::string& bottom : bottoms) {
      param.add_bottom(bottom);
      call.in.push_back(values_.at(bottom));
      specs.push_back({engine::DType::kFloat32, engine::Shape::Of(call.in.back().dims)});
    }
    if (!expression.empty()) param.mutable_expression_param()->set_expression(expression);
    engine::Notices notices;
    auto layer = engine::ParseLayer({.param = param, .resources = no_files_, .notices = notices});
    if (!layer.ok()) Fail(layer.status());
    auto out = (*layer)->Infer(specs);
    auto kernel = (*layer)->Prepare(specs);
    if (!out.ok() || !kernel.ok()) Fail(out.ok() ? kernel.status() : out.status());
    engine::Tensor& made = values_[top];
    int64_t elements = 1;
    for (engine::Dim d : (*out)[0].shape.dims()) {
      made.dims.push_back(d.value());
      elements *= d.value();
    }
    made.data = Floats(static_cast<size_t>(elements));
    call.out.push_back(made);
    scratch_ = std::max(scratch_, (*kernel)->ScratchBytes(call.in));
    call.kernel = *std::move(kernel);
    calls_.push_back(std::move(call));
  }

  absl::Status Run() {
    if (scratch_data_ == nullptr) scratch_data_ = Floats(scratch_ / sizeof(float));
    for (Call& call : calls_) {
      engine::RunContext ctx{call.in, absl::MakeSpan(call.out), scratch_data_, &counters_};
      RETURN_IF_ERROR(call.kernel->Run(ctx));
    }
    return absl::OkStatus();
  }

 private:
  struct Call {
    std::vector<engine::Tensor> in, out;
    std::unique_ptr<engine::Kernel> kernel;
  };

  testing::NoFiles no_files_;
  // Aligned as the executor's arena is.
  float* Floats(size_t count) {
    memory_.emplace_back(std::aligned_alloc(64, (count * sizeof(float) / 64 + 1) * 64), &std::free);
    return static_cast<float*>(memory_.back().get());
  }

  std::vector<std::unique_ptr<void, decltype(&std::free)>> memory_;
  std::map<std::string, engine::Tensor> values_;
  std::vector<Call> calls_;
  size_t scratch_ = 0;  // Bytes.
  float* scratch_data_ = nullptr;
  engine::RunCounters counters_;
};

int Main(int pairs, const std::string& name) {
  engine::UseOneThread();
  std::printf("%-18s %-28s %14s %18s\n", "formula", "operands", "expression us",
              "chain/expression");
  for (const Case& c : Cases()) {
    if (std::string(c.name).find(name) == std::string::npos) continue;
    const std::string operands = c.dim == 0
                                     ? "[128, 200], [128, 200]"
                                     : absl::StrCat("[16, 1, ", c.dim, "], [1, 50, ", c.dim, "]");
    Program expression(c), chain(c);
    expression.Add("expression_layer", {"p", "q"}, "y", c.formula);
    for (const Link& link : c.chain) {
      std::vector<std::string> bottoms = {link.a};
      if (*link.b != 0) bottoms.push_back(link.b);
      chain.Add(link.type, bottoms, link.top);
    }
    const auto turns = RunInTurns(
        {{"expression", [&] { return expression.Run(); }}, {"chain", [&] { return chain.Run(); }}},
        {.turns = pairs, .seconds = 1e-3, .peak = false});
    if (!turns.ok()) Fail(turns.status());
    const std::vector<double>&times = turns->seconds[0], &chains = turns->seconds[1];
    std::printf("%-18s %-28s %14.1f %18.2f\n", c.name, operands.c_str(),
                SpreadOf(times).median * 1e6, SpreadOf(Ratios(chains, times)).median);
  }
  return 0;
}

}  // namespace
}  // namespace ulfd::bench

int main(int argc, char** argv) {
  return ulfd::bench::Main(argc > 1 ? std::atoi(argv[1]) : 15, argc > 2 ? argv[2] : "");
}
