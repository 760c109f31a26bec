// Formulas in reverse Polish form -> steps over blocks.
// SPDX-License-Identifier: Apache-2.0
#include "engine/layers/common/block_program.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "engine/kernels/elementwise.h"

namespace ulfd::engine {

namespace {

using Op = ExpressionOp;

// The step for `it op operand`, and the one for `operand op it`; they are the same where the order
// does not matter, and of functions of one operand.
struct Steps {
  Op op;
  BlockOp left, right;
};
constexpr Steps kSteps[] = {
    {Op::kAdd, BlockOp::kAdd, BlockOp::kAdd},
    {Op::kSub, BlockOp::kSub, BlockOp::kSubFrom},
    {Op::kMul, BlockOp::kMul, BlockOp::kMul},
    {Op::kDiv, BlockOp::kDiv, BlockOp::kDivInto},
    {Op::kMin, BlockOp::kMin, BlockOp::kMinOf},
    {Op::kMax, BlockOp::kMax, BlockOp::kMaxOf},
    {Op::kLess, BlockOp::kLess, BlockOp::kGreater},
    {Op::kLessEqual, BlockOp::kLessEqual, BlockOp::kGreaterEqual},
    {Op::kGreater, BlockOp::kGreater, BlockOp::kLess},
    {Op::kGreaterEqual, BlockOp::kGreaterEqual, BlockOp::kLessEqual},
    {Op::kEqual, BlockOp::kEqual, BlockOp::kEqual},
    {Op::kNotEqual, BlockOp::kNotEqual, BlockOp::kNotEqual},
    {Op::kPow, BlockOp::kPow, BlockOp::kPowOf},
    {Op::kNeg, BlockOp::kNeg, BlockOp::kNeg},
    {Op::kAbs, BlockOp::kAbs, BlockOp::kAbs},
    {Op::kSqrt, BlockOp::kSqrt, BlockOp::kSqrt},
    {Op::kRelu, BlockOp::kRelu, BlockOp::kRelu},
    {Op::kExp, BlockOp::kExp, BlockOp::kExp},
    {Op::kLog, BlockOp::kLog, BlockOp::kLog},
    {Op::kSigmoid, BlockOp::kSigmoid, BlockOp::kSigmoid},
    {Op::kTanh, BlockOp::kTanh, BlockOp::kTanh},
    {Op::kSin, BlockOp::kSin, BlockOp::kSin},
    {Op::kCos, BlockOp::kCos, BlockOp::kCos},
};
const Steps& StepsOf(Op op) {
  return *std::find_if(std::begin(kSteps), std::end(kSteps),
                       [op](const Steps& steps) { return steps.op == op; });
}

// Pairs of values that the step that needs them computes.
enum class Inner : uint8_t { kSum, kDifference, kProduct };
std::optional<Inner> InnerOf(Op op) {
  switch (op) {
    case Op::kAdd:
      return Inner::kSum;
    case Op::kSub:
      return Inner::kDifference;
    case Op::kMul:
      return Inner::kProduct;
    default:
      return std::nullopt;
  }
}

// kLoadSum for (kLoad, kSum), and so on; nullopt where there is no such step.
std::optional<BlockOp> WithInner(BlockOp outer, Inner inner) {
  static constexpr BlockOp kSums[][2] = {{BlockOp::kLoad, BlockOp::kLoadSum},
                                         {BlockOp::kAdd, BlockOp::kAddSum},
                                         {BlockOp::kSub, BlockOp::kSubSum},
                                         {BlockOp::kSubFrom, BlockOp::kSubFromSum},
                                         {BlockOp::kMul, BlockOp::kMulSum}};
  for (const auto& [alone, sum] : kSums) {
    if (alone == outer)
      return static_cast<BlockOp>(static_cast<int>(sum) + static_cast<int>(inner));
  }
  return std::nullopt;
}

}  // namespace

// Walks through the formula with its stack; the value in registers is at most one of its entries,
// the others lie in memory or are sums, differences or products of two values that do, which the
// step that needs them computes.
class BlockCompiler {
 public:
  explicit BlockCompiler(const Expression& expression)
      : expression_(expression), kept_(static_cast<size_t>(expression.stored)) {}

  BlockProgram Compile() {
    const std::vector<Instruction>& code = expression_.program;
    for (size_t i = 0; i < code.size(); ++i) {
      if (IsSquare(i)) {
        // Kept for this product alone: nothing has to be kept.
        if (Loads(code[i].input) > 1) Translate(code[i]);
        Load(stack_.back());
        Emit(BlockOp::kSquare);
        i += 2;
      } else {
        Translate(code[i]);
      }
    }
    Load(stack_[0]);
    Emit(BlockOp::kStore, {Source::Kind::kOutput});
    return std::move(program_);
  }

 private:
  using Source = BlockProgram::Source;
  struct Entry {
    bool it = false;             // In registers; else
    std::optional<Inner> inner;  // `source` op `second`, or else in `source`.
    Source source, second;
  };
  static Entry InMemory(Source source) { return {.source = source}; }
  static Entry InRegisters() { return {.it = true}; }

  // x =$0 $0 mul
  bool IsSquare(size_t i) const {
    const std::vector<Instruction>& code = expression_.program;
    return i + 2 < code.size() && code[i].op == Op::kStore && code[i + 1].op == Op::kLoad &&
           code[i + 1].input == code[i].input && code[i + 2].op == Op::kMul;
  }
  // How often a kept value comes back.
  int64_t Loads(int kept) const {
    return std::count_if(
        expression_.program.begin(), expression_.program.end(),
        [kept](const Instruction& i) { return i.op == Op::kLoad && i.input == kept; });
  }

  void Emit(BlockOp op, Source a = {}, Source b = {}) { program_.lines_.push_back({op, a, b}); }

  Source NewPlace() {
    if (!free_.empty()) {
      const int place = free_.back();
      free_.pop_back();
      return {Source::Kind::kPlace, place};
    }
    return {Source::Kind::kPlace, static_cast<int>(program_.places_++)};
  }

  // Frees the registers: what is in them goes to memory.
  void Spill() {
    for (Entry& entry : stack_) {
      if (!entry.it) continue;
      entry = InMemory(NewPlace());
      Emit(BlockOp::kStore, entry.source);
    }
  }
  void Load(Entry& entry) {
    if (entry.it) return;
    Spill();
    Combine(BlockOp::kLoad, entry);
    entry = InRegisters();
  }
  // it = it op entry.  An entry that a step cannot compute must be in memory.
  void Combine(BlockOp op, const Entry& entry) {
    if (entry.inner.has_value()) {
      Emit(*WithInner(op, *entry.inner), entry.source, entry.second);
      Release(entry.second);
    } else {
      Emit(op, entry.source);
    }
    Release(entry.source);
  }
  // Off the stack: its place is free, unless kStore keeps it.
  void Release(Source source) {
    if (source.kind != Source::Kind::kPlace) return;
    for (const Source& kept : kept_) {
      if (kept.kind == Source::Kind::kPlace && kept.index == source.index) return;
    }
    free_.push_back(source.index);
  }
  void Translate(const Instruction& i) {
    switch (i.op) {
      case Op::kNumber:
        stack_.push_back(
            InMemory({Source::Kind::kNumber, static_cast<int>(program_.numbers_.size())}));
        program_.numbers_.push_back(i.number);
        return;
      case Op::kInput:
        stack_.push_back(InMemory({Source::Kind::kInput, i.input}));
        return;
      case Op::kLoad:
        stack_.push_back(InMemory(kept_[static_cast<size_t>(i.input)]));
        return;
      case Op::kStore: {
        Source& kept = kept_[static_cast<size_t>(i.input)];
        if (stack_.back().inner.has_value()) Load(stack_.back());
        kept = stack_.back().source;
        if (!stack_.back().it) return;
        kept = NewPlace();
        Emit(BlockOp::kStore, kept);
        return;
      }
      case Op::kWhere:
        return Where();
      default:
        if (i.op == Op::kPow && Square()) return;
        if (OperandCount(i.op) == 2) return Operator(StepsOf(i.op));
        Load(stack_.back());
        return Emit(StepsOf(i.op).left);
    }
  }

  void Operator(const Steps& steps) {
    Entry& a = stack_[stack_.size() - 2];
    Entry& b = stack_.back();
    const std::optional<Inner> inner = InnerOf(steps.op);
    const auto in_memory = [](const Entry& e) { return !e.it && !e.inner.has_value(); };
    if (inner.has_value() && in_memory(a) && in_memory(b)) {
      a.inner = inner;
      a.second = b.source;
      stack_.pop_back();
      return;
    }
    // Whether a step can take the entry as its second operand.
    const auto fits = [](BlockOp step, const Entry& e) {
      return !e.it && (!e.inner.has_value() || WithInner(step, *e.inner).has_value());
    };
    if (!fits(steps.left, b) && !b.it) Load(b);
    if (!a.it && !(b.it && fits(steps.right, a))) Load(a);
    // Loading a may have put b into memory.
    if (a.it) {
      Combine(steps.left, b);
    } else {
      Combine(steps.right, a);
    }
    stack_.pop_back();
    stack_.back() = InRegisters();
  }

  // A square, as a power.
  bool Square() {
    const Entry power = stack_.back();
    if (power.it || power.inner.has_value() || power.source.kind != Source::Kind::kNumber ||
        program_.numbers_[static_cast<size_t>(power.source.index)] != 2) {
      return false;
    }
    stack_.pop_back();
    Load(stack_.back());
    Emit(BlockOp::kSquare);
    return true;
  }

  void Where() {
    Entry* const entries = &stack_[stack_.size() - 3];  // Condition, a, b.
    for (int i : {1, 2}) {
      if (entries[i].inner.has_value()) Load(entries[i]);
    }
    Load(entries[0]);  // Puts the others into memory.
    Emit(BlockOp::kWhere, entries[1].source, entries[2].source);
    Release(entries[1].source);
    Release(entries[2].source);
    stack_.pop_back();
    stack_.pop_back();
  }

  const Expression& expression_;
  BlockProgram program_;
  std::vector<Entry> stack_;
  std::vector<Source> kept_;
  std::vector<int> free_;  // Places.
};

BlockProgram BlockProgram::Compile(const Expression& expression) {
  return BlockCompiler(expression).Compile();
}

BlockOperand BlockProgram::Bind(Source source, const Piece& piece, float* places) const {
  switch (source.kind) {
    case Source::Kind::kInput: {
      BlockOperand operand = piece.inputs[source.index];
      operand.data += piece.row * operand.row_stride;
      if (operand.kind == BlockOperand::Kind::kRows) operand.data += piece.column;
      return operand;
    }
    case Source::Kind::kPlace:
      return {places + source.index * BlockOperand::kPlaceFloats, 0, BlockOperand::Kind::kPlace};
    case Source::Kind::kNumber:
      return {const_cast<float*>(&numbers_[source.index]), 0, BlockOperand::Kind::kScalar};
    case Source::Kind::kOutput:
      return {piece.y + piece.row * piece.y_stride + piece.column, piece.y_stride,
              BlockOperand::Kind::kRows};
    case Source::Kind::kNone:
      break;
  }
  return {};
}

bool BlockProgram::RunArithmetic(absl::Span<const BlockStep> steps, int64_t n) {
  constexpr int64_t kPlace = BlockOperand::kPlaceFloats;
  const BlockStep& load = steps[0];
  BinaryOp op;
  switch (load.op) {
    case BlockOp::kLoadSum:
      op = BinaryOp::kAdd;
      break;
    case BlockOp::kLoadDifference:
      op = BinaryOp::kSub;
      break;
    case BlockOp::kLoadProduct:
      op = BinaryOp::kMultiply;
      break;
    default:
      return false;
  }
  if (steps.size() != 2) return false;  // Behind it: the store to the output.
  // A place is the same values again in every row of kPlace.
  const bool places =
      load.a.kind == BlockOperand::Kind::kPlace || load.b.kind == BlockOperand::Kind::kPlace;
  const int64_t width = places ? kPlace : n;
  if (n % width != 0) return false;
  const auto operand = [width](const BlockOperand& o) {
    return Strided{o.data, o.kind == BlockOperand::Kind::kRows ? width : 0,
                   o.kind == BlockOperand::Kind::kScalar ? 0 : 1};
  };
  BinaryRows(op, operand(load.a), operand(load.b), steps[1].a.data, width, n / width, width);
  return true;
}

void BlockProgram::Run(absl::Span<const BlockOperand> inputs, void* scratch, float* y, int64_t rows,
                       int64_t n, Pace& pace) const {
  constexpr int64_t kStepWork = 16;  // Of one value, in multiplications.
  const int64_t work = static_cast<int64_t>(lines_.size()) * kStepWork;
  const int64_t rows_at_once = std::min(rows, Pace::RowsAtOnce(n * work, 1));
  const int64_t at_once = rows_at_once > 1 ? n : Pace::RowsAtOnce(work, BlockOperand::kPlaceFloats);
  for (int64_t row = 0; row < rows; row += rows_at_once) {
    for (int64_t column = 0; column < n; column += at_once) {
      const Piece piece{inputs,
                        y,
                        n,
                        row,
                        column,
                        std::min(rows_at_once, rows - row),
                        std::min(at_once, n - column)};
      if (pace.Stops(piece.rows * piece.n * work)) return;
      RunPiece(piece, scratch);
    }
  }
}

void BlockProgram::RunPiece(const Piece& piece, void* scratch) const {
  auto* const steps = static_cast<BlockStep*>(scratch);
  auto* const places = reinterpret_cast<float*>(steps + lines_.size());
  for (size_t i = 0; i < lines_.size(); ++i) {
    const Line& l = lines_[i];
    new (steps + i) BlockStep{l.op, Bind(l.a, piece, places), Bind(l.b, piece, places)};
  }
  const absl::Span<BlockStep> program(steps, lines_.size());
  if (piece.rows == 1 && RunArithmetic(program, piece.n)) return;
  RunBlocks(program, piece.rows, piece.n);
}

}  // namespace ulfd::engine
