// Formulas over the inputs of expression_layer: text -> tokens -> syntax tree -> reverse Polish
// form.
//
//   comparison := sum { ("<" | "<=" | ">" | ">=" | "==" | "!=") sum }
//   sum        := product { ("+" | "-") product }
//   product    := unary { ("*" | "/") unary }
//   unary      := ("-" | "+") unary | power
//   power      := primary [ "^" unary ]
//   primary    := number | "@" digits | name "(" comparison { "," comparison } ")"
//               | "(" comparison ")"
//
// Operators of one line associate to the left, "^" to the right; "-2^2" is -(2^2).
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_LAYERS_COMMON_EXPRESSION_H_
#define ULFD_ENGINE_LAYERS_COMMON_EXPRESSION_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ulfd::engine {

enum class ExpressionOp : uint8_t {
  kNumber,  // Pushes Instruction::number.
  kInput,   // Pushes input Instruction::input.
  kStore,   // Keeps the value on top as number Instruction::input; it stays on the stack.
  kLoad,    // Pushes what kStore kept.
  // Two operands.
  kAdd,
  kSub,
  kMul,
  kDiv,
  kPow,
  kMin,  // NaN if an operand is, like kMax.
  kMax,
  kLess,  // Comparisons give 1 or 0.
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kEqual,
  kNotEqual,
  // One operand.
  kNeg,
  kAbs,
  kExp,
  kLog,
  kSqrt,
  kSigmoid,
  kTanh,
  kSin,
  kCos,
  kErf,
  kFloor,
  kTrunc,
  kRound,
  kRelu,
  // Three operands: the first > 0 ? the second : the third.
  kWhere,
};

// How many operands an instruction takes off the stack.
int OperandCount(ExpressionOp op);
// "add", "where", ...: the name of the call form.
absl::string_view Name(ExpressionOp op);

struct Instruction {
  ExpressionOp op = ExpressionOp::kNumber;
  double number = 0;
  int input = 0;
};

// A formula in reverse Polish form.  Subexpressions of numbers alone are already computed, in
// float32; those that occur more than once are computed once.
struct Expression {
  static constexpr int kMaxDepth = 256;           // Nested brackets, calls, signs.
  static constexpr size_t kMaxLength = 64 << 10;  // Bytes of text.

  std::vector<Instruction> program;
  int stack = 0;   // Values that are on the stack at once, at most.
  int stored = 0;  // Values that kStore keeps.

  // Parses `text` over inputs @0 to @(inputs - 1).  Errors are InvalidArgument of the form
  //   "column 7: unknown function \"mull\" (...)\n  add(@0,mull(@1,@2))\n         ^"
  static absl::StatusOr<Expression> Parse(absl::string_view text, int inputs);

  // "@0 @1 @2 mul add"; a value that is kept is followed by "=$0" and comes back as "$0".
  std::string ToString() const;
};

// The value of an operation on scalars, in float, as the kernels compute it but for the last bit of
// the transcendental functions.
float Evaluate(ExpressionOp op, const float* operands);

// The operation on scalars in double; null for those that push or keep a value.
using DoubleOperation = double (*)(const double* operands);
DoubleOperation InDouble(ExpressionOp op);

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_LAYERS_COMMON_EXPRESSION_H_
