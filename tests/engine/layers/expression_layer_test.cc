// Random formulas over operands of all shapes against the same formula on one element at a time.
// (Values of single operators: tests/data/layers/expression_layer.textproto.)
// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/layers/common/expression.h"
#include "engine/layers/registry.h"
#include "gtest/gtest.h"
#include "tests/testing/no_files.h"

namespace ulfd::engine {
namespace {

using Dims = std::vector<int64_t>;

std::string Formula(std::mt19937& random, int depth, bool slow) {
  const auto any = [&](int n) { return static_cast<int>(random() % static_cast<uint32_t>(n)); };
  if (depth == 0 || any(6) == 0)
    return any(4) == 0 ? absl::StrCat(any(5), ".5") : absl::StrCat("@", any(3));
  const auto sub = [&] { return Formula(random, depth - 1, slow); };
  const char* const binary[] = {"+", "-",  "*", "+",  "-",  "*", "/",
                                "<", "<=", ">", ">=", "==", "!="};
  const char* const unary[] = {"neg", "abs",  "relu", "sigmoid", "tanh",
                               "log", "sqrt", "sin",  "cos"};
  switch (any(8)) {
    case 0:
      return absl::StrCat(any(2) == 0 ? "min(" : "max(", sub(), ",", sub(), ")");
    case 1:
      return absl::StrCat("where(", sub(), ",", sub(), ",", sub(), ")");
    case 2:
      return absl::StrCat(unary[any(slow ? 7 : 5)], "(", sub(), ")");
    case 3: {
      const std::string x = sub();
      return any(2) == 0 ? absl::StrCat("(", x, ")^2") : absl::StrCat("(", x, ")*(", x, ")");
    }
    case 4:
      // Of inputs alone: powers of what differs by a rounding differ by more.
      if (slow) return absl::StrCat("pow(@", any(3), any(2) == 0 ? ",@" : ",1.", any(3), ")");
      [[fallthrough]];
    default:
      return absl::StrCat("(", sub(), ")", binary[any(13)], "(", sub(), ")");
  }
}

float Apply(ExpressionOp op, const float* operands) { return Evaluate(op, operands); }
double Apply(ExpressionOp op, const double* operands) { return InDouble(op)(operands); }

// The formula on one element, in the precision of the inputs.
template <class T>
T At(const Expression& expression, const std::vector<T>& inputs) {
  std::vector<T> stack, kept(static_cast<size_t>(expression.stored));
  for (const Instruction& i : expression.program) {
    switch (i.op) {
      case ExpressionOp::kNumber:
        stack.push_back(static_cast<T>(i.number));
        break;
      case ExpressionOp::kInput:
        stack.push_back(inputs[static_cast<size_t>(i.input)]);
        break;
      case ExpressionOp::kStore:
        kept[static_cast<size_t>(i.input)] = stack.back();
        break;
      case ExpressionOp::kLoad:
        stack.push_back(kept[static_cast<size_t>(i.input)]);
        break;
      default: {
        const int operands = OperandCount(i.op);
        const T value = Apply(i.op, &stack[stack.size() - static_cast<size_t>(operands)]);
        stack.resize(stack.size() - static_cast<size_t>(operands));
        stack.push_back(value);
      }
    }
  }
  return stack.at(0);
}

struct Shapes {
  std::vector<Dims> in;
  Dims out;
};

class ExpressionLayerTest : public ::testing::Test {
 protected:
  // Input 1 is of that type, the others are float32.
  void Check(const std::string& formula, const Shapes& shapes, DType middle) {
    SCOPED_TRACE(absl::StrCat(formula, ", @1 ", Name(middle)));
    ulf::LayerParameter param;
    param.set_type("expression_layer");
    // Every input is used.
    param.mutable_expression_param()->set_expression(absl::StrCat("(", formula, ")+0*(@0+@1+@2)"));
    std::vector<std::vector<double>> data;
    std::vector<std::vector<float>> floats(shapes.in.size());
    std::vector<int32_t> ints;
    std::vector<int64_t> longs;
    std::vector<Tensor> in;
    TensorSpecs specs;
    for (size_t i = 0; i < shapes.in.size(); ++i) {
      param.add_bottom(absl::StrCat("x", i));
      int64_t elements = 1;
      for (int64_t d : shapes.in[i]) elements *= d;
      const DType type = i == 1 ? middle : DType::kFloat32;
      data.emplace_back();
      for (int64_t e = 0; e < elements; ++e) {
        double value = static_cast<double>(random_() % 9) - 4;
        if (type == DType::kFloat32) value *= 0.375;
        if (type == DType::kInt64 && e % 2 == 0) value += 0x1p40;
        data.back().push_back(value);
      }
      Tensor x{type, {shapes.in[i].begin(), shapes.in[i].end()}};
      if (type == DType::kFloat32) {
        floats[i].assign(data[i].begin(), data[i].end());
        x.data = floats[i].data();
      } else if (type == DType::kInt32) {
        ints.assign(data[i].begin(), data[i].end());
        x.data = ints.data();
      } else {
        longs.assign(data[i].begin(), data[i].end());
        x.data = longs.data();
      }
      specs.push_back({x.dtype, Shape::Of(x.dims)});
      in.push_back(x);
    }
    param.add_top("y");
    Notices notices;
    auto layer = ParseLayer({.param = param, .resources = files_, .notices = notices});
    ASSERT_TRUE(layer.ok()) << layer.status();
    auto kernel = (*layer)->Prepare(specs);
    ASSERT_TRUE(kernel.ok()) << kernel.status();
    int64_t elements = 1;
    for (int64_t d : shapes.out) elements *= d;
    std::vector<float> y(static_cast<size_t>(elements) + 16, 77.0f);
    std::vector<Tensor> out = {{DType::kFloat32, {shapes.out.begin(), shapes.out.end()}, y.data()}};
    std::vector<char> memory((*kernel)->ScratchBytes(in) + 128);
    auto* scratch =
        reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(memory.data()) + 63) / 64 * 64);
    RunCounters counters;
    RunContext ctx{in, absl::MakeSpan(out), scratch, &counters};
    ASSERT_TRUE((*kernel)->Run(ctx).ok());
    if (middle == DType::kInt64) {
      Compare<double>(param.expression_param().expression(), shapes, data, 0, y);
    } else {
      Compare<float>(param.expression_param().expression(), shapes, data, 2e-6f, y);
    }
    for (int64_t e = elements; e < elements + 16; ++e) ASSERT_EQ(y[e], 77.0f) << "behind the end";
  }

  // With the formula computed in T.
  template <class T>
  void Compare(const std::string& formula, const Shapes& shapes,
               const std::vector<std::vector<double>>& data, float tolerance,
               const std::vector<float>& y) {
    const auto expression = Expression::Parse(formula, 3);
    ASSERT_TRUE(expression.ok()) << expression.status();
    int64_t elements = 1;
    for (int64_t d : shapes.out) elements *= d;
    for (int64_t e = 0; e < elements; ++e) {
      std::vector<T> inputs;
      for (size_t i = 0; i < data.size(); ++i) {
        inputs.push_back(static_cast<T>(data[i][Offset(shapes, i, e)]));
      }
      const auto want = static_cast<float>(At(*expression, inputs));
      const float got = y[static_cast<size_t>(e)];
      if (std::isnan(want) && std::isnan(got)) continue;
      if (want == got) continue;
      ASSERT_LE(std::abs(want - got), tolerance * std::max(1.0f, std::abs(want)))
          << "element " << e;
    }
  }

  // The element of input i that belongs to element e of the output.
  static size_t Offset(const Shapes& shapes, size_t i, int64_t e) {
    const Dims& in = shapes.in[i];
    int64_t offset = 0, step = 1;
    for (size_t d = shapes.out.size(); d-- > 0; e /= shapes.out[d]) {
      const int64_t own = static_cast<int64_t>(d) + static_cast<int64_t>(in.size()) -
                          static_cast<int64_t>(shapes.out.size());
      if (own < 0) continue;
      if (in[static_cast<size_t>(own)] != 1) offset += e % shapes.out[d] * step;
      step *= in[static_cast<size_t>(own)];
    }
    return static_cast<size_t>(offset);
  }

  std::mt19937 random_{5};
  testing::NoFiles files_;
};

TEST_F(ExpressionLayerTest, RandomFormulas) {
  const Shapes shapes[] = {
      {{{5, 40}, {5, 40}, {5, 40}}, {5, 40}},                // One long run.
      {{{1, 2500}, {1, 2500}, {1}}, {1, 2500}},              // Several tiles.
      {{{4, 1, 32}, {1, 6, 32}, {4, 6, 32}}, {4, 6, 32}},    // Rows that fill places.
      {{{4, 1, 18}, {1, 6, 18}, {1, 1, 18}}, {4, 6, 18}},    // Rows that do not.
      {{{3, 1, 36}, {1, 50, 36}, {36}}, {3, 50, 36}},        // Several tiles of such rows.
      {{{4, 1, 32}, {1, 6, 32}, {4, 6, 1}}, {4, 6, 32}},     // One value per row.
      {{{3, 1, 200}, {1, 4, 200}, {3, 4, 1}}, {3, 4, 200}},  // Long rows.
      {{{7, 5, 3}, {7, 1, 3}, {1, 5, 1}}, {7, 5, 3}},        // Short ones.
      {{{3}, {3}, {3}}, {3}},
      {{{1}, {1}, {1}}, {1}}};
  for (int round = 0; round < 60; ++round) {
    const std::string formula = Formula(random_, 1 + round % 4, round % 3 == 0);
    for (const Shapes& s : shapes) {
      Check(formula, s, DType::kFloat32);
      if (HasFatalFailure()) return;
    }
    for (const DType whole : {DType::kInt32, DType::kInt64}) {
      Check(formula, shapes[round % 8], whole);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(ExpressionLayerTest, IntegersOf64BitsAreRoundedOnce) {
  const auto value = [](const std::string& formula, int64_t a, int64_t b) {
    ulf::LayerParameter param;
    param.set_type("expression_layer");
    param.mutable_expression_param()->set_expression(formula);
    param.add_bottom("a");
    param.add_bottom("b");
    param.add_top("y");
    testing::NoFiles files;
    Notices notices;
    auto layer = ParseLayer({.param = param, .resources = files, .notices = notices});
    EXPECT_TRUE(layer.ok()) << layer.status();
    const std::vector<Tensor> in = {{DType::kInt64, {1}, &a}, {DType::kInt64, {1}, &b}};
    const TensorSpecs specs(2, {DType::kInt64, Shape::Of({1})});
    const auto kernel = (*layer)->Prepare(specs);
    float y = 0;
    std::vector<Tensor> out = {{DType::kFloat32, {1}, &y}};
    std::vector<double> scratch((*kernel)->ScratchBytes(in) / sizeof(double) + 1);
    RunCounters counters;
    RunContext ctx{in, absl::MakeSpan(out), scratch.data(), &counters};
    EXPECT_TRUE((*kernel)->Run(ctx).ok());
    return y;
  };
  constexpr int64_t kNow = 1'700'000'123, kThen = 1'699'999'999;
  EXPECT_EQ(value("@0 - @1", kNow, kThen), 124);
  EXPECT_EQ(value("@0 - 1700000001 + 0 * @1", kNow, 0), 122);
  EXPECT_EQ(value("where(@0 == @1, 1, 0)", kNow, kNow + 1), 0);
  EXPECT_EQ(value("@0 - @1 * floor(@0 / @1)", -(int64_t{1} << 53) + 1, 101), 9);
  EXPECT_EQ(value("trunc(@0 / @1)", (int64_t{1} << 53) - 1, 4), 2251799813685247.0f);
}

}  // namespace
}  // namespace ulfd::engine
