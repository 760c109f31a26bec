// Remainders of integers that are multiplied before, as hashed ids are: single precision has the
// integers, but not their products.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "tools/convert/onnx/model/constant.h"
#include "tools/convert/onnx/model/functions.h"
#include "tools/convert/onnx/model/types.h"
#include "tools/convert/onnx/rewrites/pattern_reader.h"
#include "tools/convert/onnx/rewrites/rewrites.h"

namespace ulfd::convert {
namespace {

using Node = onnx::NodeProto;

constexpr int64_t kExact = int64_t{1} << 24;        // What single precision holds.
constexpr int64_t kMostDivisor = int64_t{1} << 21;  // Leaves two bits for a digit.
constexpr double kWhole = 9e18;                     // What 64 bits hold.

class RemainderReader : public PatternReader {
 public:
  RemainderReader(onnx::GraphProto& graph, int64_t opset) : PatternReader(graph, opset) {}

 private:
  // What has the same remainder.
  struct Term {
    std::string name;
    int64_t most = 0;              // Its magnitude is not larger.
    double before = 0;             // That of what the model has, of integers below kExact.
    std::vector<int64_t> numbers;  // Of a constant.
  };

  bool Replace(const Node& node) override {
    const std::optional<int64_t> divisor =
        node.op_type() == "Mod" && node.input_size() == 2 ? Int(node, 1) : std::nullopt;
    if (!divisor.has_value() || *divisor < 2 || *divisor > kMostDivisor ||
        FindTensor(node.input(1))->data_type() != onnx::TensorProto::INT64 ||
        IntAttribute(node, "fmod", 0) != 0) {
      return false;
    }
    divisor_ = *divisor;
    multiplied_ = false;
    const Term same = Reduce(node, node.input(0), 0);
    if (!multiplied_ || same.most > kExact || same.before >= kWhole) return false;
    // Beyond, the model's own products start over.
    SetInt(Add(node, "Mod", {same.name, node.input(1)}, node.output(0)), kIntegersBelow,
           static_cast<int64_t>(kWhole / same.before) * kExact);
    return true;
  }

  Term Reduce(const Node& node, const std::string& name, int depth) {
    constexpr int kDeepest = 6;
    if (std::optional<Term> constant = ReduceConstant(name)) return *constant;
    for (const char* op : {"Add", "Sub", "Mul"}) {
      const Node* const maker = depth < kDeepest ? MakerOf(name, op, 2) : nullptr;
      if (maker == nullptr) continue;
      Term a = Reduce(node, maker->input(0), depth + 1);
      Term b = Reduce(node, maker->input(1), depth + 1);
      if (maker->op_type() != "Mul") {
        for (Term* term : {&a, &b}) {
          if (a.most + b.most > kExact) *term = BelowDivisor(node, *term);
        }
        return {Make(node, op, {a.name, b.name}), a.most + b.most, a.before + b.before, {}};
      }
      if (!b.numbers.empty()) return Multiply(node, a, b);
      if (!a.numbers.empty()) return Multiply(node, b, a);
    }
    return {Make(node, "Mod", {name, node.input(1)}), divisor_ - 1, kExact, {}};
  }

  std::optional<Term> ReduceConstant(const std::string& name) {
    const onnx::TensorProto* const tensor = FindTensor(name);
    const std::optional<std::vector<int64_t>> numbers = Ints(name);
    if (tensor == nullptr || !numbers.has_value() || numbers->empty()) return std::nullopt;
    Term term;
    for (const int64_t number : *numbers) {
      term.before = std::max(term.before, std::fabs(static_cast<double>(number)));
      term.numbers.push_back((number % divisor_ + divisor_) % divisor_);
      term.most = std::max(term.most, term.numbers.back());
    }
    term.name = IntegersLike(*tensor, term.numbers);
    return term;
  }

  Term BelowDivisor(const Node& node, const Term& x) {
    if (x.most < divisor_) return x;
    return {Make(node, "Mod", {x.name, node.input(1)}), divisor_ - 1, x.before, {}};
  }

  // x times numbers below the divisor: by their digits, so that no product is too large.
  Term Multiply(const Node& node, const Term& x, const Term& by) {
    multiplied_ = true;
    const onnx::TensorProto shape = *FindTensor(by.name);
    const std::string& divisor = node.input(1);
    const std::string small = BelowDivisor(node, x).name;
    int64_t base = 2;
    while (4 * base * divisor_ <= kExact) base *= 2;
    int64_t place = 1;
    while (by.most / place >= base) place *= base;
    std::string sum;
    for (; place > 0; place /= base) {
      std::vector<int64_t> digits;
      for (const int64_t number : by.numbers) digits.push_back(number / place % base);
      const std::string product = Make(node, "Mul", {small, IntegersLike(shape, digits)});
      if (sum.empty()) {
        sum = product;
        continue;
      }
      const std::string higher =
          Make(node, "Mul", {Make(node, "Mod", {sum, divisor}), Integers(sum, {base})});
      sum = Make(node, "Add", {higher, product});
    }
    return {sum, 2 * base * divisor_, x.before * by.before, {}};
  }

  int64_t divisor_ = 0;
  bool multiplied_ = false;
};

}  // namespace

void ReadRemainders(onnx::GraphProto& graph, int64_t opset) { RemainderReader(graph, opset).Run(); }

}  // namespace ulfd::convert
