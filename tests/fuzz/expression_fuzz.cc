// Formulas of expression_layer.  The first byte says how many inputs there are.
// SPDX-License-Identifier: Apache-2.0
#include "engine/layers/common/expression.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using ulfd::engine::Expression;
  using ulfd::engine::ExpressionOp;
  if (size == 0) return 0;
  const int inputs = data[0] % 8;
  const auto parsed = Expression::Parse(ulfd::fuzz::AsText(data + 1, size - 1), inputs);
  if (!parsed.ok()) {
    ulfd::fuzz::CheckMessage(parsed.status());
    return 0;
  }
  // The kernels trust the program: it must keep within its stack, its stores and its inputs.
  int stack = 0, stored = 0;
  for (const auto& instruction : parsed->program) {
    switch (instruction.op) {
      case ExpressionOp::kInput:
        if (instruction.input < 0 || instruction.input >= inputs) ulfd::fuzz::Fail("no such input");
        ++stack;
        break;
      case ExpressionOp::kNumber:
        ++stack;
        break;
      case ExpressionOp::kStore:
        if (stack < 1 || instruction.input != stored++) ulfd::fuzz::Fail("a store out of turn");
        break;
      case ExpressionOp::kLoad:
        if (instruction.input < 0 || instruction.input >= stored) ulfd::fuzz::Fail("no such store");
        ++stack;
        break;
      default:
        stack -= ulfd::engine::OperandCount(instruction.op);
        if (stack < 0) ulfd::fuzz::Fail("the stack runs dry");
        ++stack;
    }
    if (stack > parsed->stack) ulfd::fuzz::Fail("the stack grows beyond what was told");
  }
  if (stack != 1 || stored != parsed->stored) ulfd::fuzz::Fail("not one value at the end");
  parsed->ToString();
  return 0;
}
