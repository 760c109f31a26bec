// SPDX-License-Identifier: Apache-2.0
#include "engine/layers/common/expression.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <map>
#include <tuple>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/errors.h"
#include "base/status_macros.h"

namespace ulfd::engine {

namespace {

using Op = ExpressionOp;

struct Function {
  // `f` takes operands in either precision.
  template <class F>
  constexpr Function(absl::string_view name, Op op, int operands, F f,
                     absl::string_view symbol = "")
      : name(name), op(op), operands(operands), value(f), in_double(f), symbol(symbol) {}

  absl::string_view name;
  Op op;
  int operands;
  float (*value)(const float* v);
  DoubleOperation in_double;
  absl::string_view symbol;  // Of the infix form.
};

// 1 or 0, in the precision of the operands.
template <class T>
constexpr T Truth(const T* /*operands*/, bool is) {
  return is ? T{1} : T{0};
}

constexpr Function kFunctions[] = {
    {"add", Op::kAdd, 2, [](const auto* v) { return v[0] + v[1]; }, "+"},
    {"sub", Op::kSub, 2, [](const auto* v) { return v[0] - v[1]; }, "-"},
    {"mul", Op::kMul, 2, [](const auto* v) { return v[0] * v[1]; }, "*"},
    {"div", Op::kDiv, 2, [](const auto* v) { return v[0] / v[1]; }, "/"},
    {"pow", Op::kPow, 2, [](const auto* v) { return std::pow(v[0], v[1]); }, "^"},
    {"min", Op::kMin, 2, [](const auto* v) { return v[0] < v[1] || v[0] != v[0] ? v[0] : v[1]; }},
    {"max", Op::kMax, 2, [](const auto* v) { return v[0] > v[1] || v[0] != v[0] ? v[0] : v[1]; }},
    {"lt", Op::kLess, 2, [](const auto* v) { return Truth(v, v[0] < v[1]); }, "<"},
    {"le", Op::kLessEqual, 2, [](const auto* v) { return Truth(v, v[0] <= v[1]); }, "<="},
    {"gt", Op::kGreater, 2, [](const auto* v) { return Truth(v, v[0] > v[1]); }, ">"},
    {"ge", Op::kGreaterEqual, 2, [](const auto* v) { return Truth(v, v[0] >= v[1]); }, ">="},
    {"eq", Op::kEqual, 2, [](const auto* v) { return Truth(v, v[0] == v[1]); }, "=="},
    {"ne", Op::kNotEqual, 2, [](const auto* v) { return Truth(v, v[0] != v[1]); }, "!="},
    {"neg", Op::kNeg, 1, [](const auto* v) { return -v[0]; }},
    {"abs", Op::kAbs, 1, [](const auto* v) { return std::abs(v[0]); }},
    {"exp", Op::kExp, 1, [](const auto* v) { return std::exp(v[0]); }},
    {"log", Op::kLog, 1, [](const auto* v) { return std::log(v[0]); }},
    {"sqrt", Op::kSqrt, 1, [](const auto* v) { return std::sqrt(v[0]); }},
    {"sigmoid", Op::kSigmoid, 1, [](const auto* v) { return 1 / (1 + std::exp(-v[0])); }},
    {"tanh", Op::kTanh, 1, [](const auto* v) { return std::tanh(v[0]); }},
    {"sin", Op::kSin, 1, [](const auto* v) { return std::sin(v[0]); }},
    {"cos", Op::kCos, 1, [](const auto* v) { return std::cos(v[0]); }},
    {"erf", Op::kErf, 1, [](const auto* v) { return std::erf(v[0]); }},
    {"floor", Op::kFloor, 1, [](const auto* v) { return std::floor(v[0]); }},
    {"trunc", Op::kTrunc, 1, [](const auto* v) { return std::trunc(v[0]); }},
    {"round", Op::kRound, 1, [](const auto* v) { return std::nearbyint(v[0]); }},
    {"relu", Op::kRelu, 1, [](const auto* v) { return v[0] < 0 ? Truth(v, false) : v[0]; }},
    {"where", Op::kWhere, 3, [](const auto* v) { return v[0] > 0 ? v[1] : v[2]; }},
};

const Function* FunctionOf(Op op) {
  for (const Function& function : kFunctions) {
    if (function.op == op) return &function;
  }
  return nullptr;
}

// An error at byte `at`: the column (from 1), the line and a caret below the place.
absl::Status ErrorAt(absl::string_view text, size_t at, absl::string_view what) {
  constexpr size_t kBefore = 60, kAfter = 20;  // Of a long line, what stands around the place.
  const size_t begin = at > kBefore ? at - kBefore : 0;
  std::string line(text.substr(begin, at - begin + kAfter));
  for (char& c : line) c = absl::ascii_isprint(static_cast<unsigned char>(c)) ? c : ' ';
  return InvalidArgument("column ", at + 1, ": ", what, "\n  ", line, "\n  ",
                         std::string(at - begin, ' '), "^");
}

// ------------------------------------------------------------------------------------------ tokens

enum class TokenType : uint8_t { kNumber, kInput, kName, kSymbol, kEnd };

struct Token {
  TokenType type = TokenType::kEnd;
  size_t start = 0, end = 0;  // [start, end)
  double number = 0;          // Also the index of an input.
};

size_t EndOfNumber(absl::string_view text, size_t at) {
  const auto digits = [&] {
    while (at < text.size() && absl::ascii_isdigit(static_cast<unsigned char>(text[at]))) ++at;
  };
  digits();
  if (at < text.size() && text[at] == '.') {
    ++at;
    digits();
  }
  if (at < text.size() && (text[at] == 'e' || text[at] == 'E')) {
    size_t exponent = at + 1;
    if (exponent < text.size() && (text[exponent] == '+' || text[exponent] == '-')) ++exponent;
    if (exponent < text.size() && absl::ascii_isdigit(static_cast<unsigned char>(text[exponent]))) {
      at = exponent;
      digits();
    }
  }
  return at;
}

absl::StatusOr<Token> NextToken(absl::string_view text, size_t at) {
  const auto is = [&](size_t i, auto predicate) {
    return i < text.size() && predicate(static_cast<unsigned char>(text[i]));
  };
  Token token{TokenType::kSymbol, at, at + 1};
  const char c = text[at];
  if (is(at, absl::ascii_isdigit) || (c == '.' && is(at + 1, absl::ascii_isdigit))) {
    token.type = TokenType::kNumber;
    token.end = EndOfNumber(text, at);
    if (!absl::SimpleAtod(text.substr(at, token.end - at), &token.number) ||
        !std::isfinite(static_cast<float>(token.number))) {
      return ErrorAt(text, at, "this number is beyond the range of float32");
    }
  } else if (c == '@') {
    token.type = TokenType::kInput;
    while (is(token.end, absl::ascii_isdigit)) ++token.end;
    int index = 0;
    if (!absl::SimpleAtoi(text.substr(at + 1, token.end - at - 1), &index)) {
      return ErrorAt(text, at, "want the number of an input after \"@\"");
    }
    token.number = index;
  } else if (is(at, absl::ascii_isalpha) || c == '_') {
    token.type = TokenType::kName;
    while (is(token.end, absl::ascii_isalnum) ||
           (token.end < text.size() && text[token.end] == '_')) {
      ++token.end;
    }
  } else if (absl::string_view("<>=!").find(c) != absl::string_view::npos) {
    if (at + 1 < text.size() && text[at + 1] == '=') ++token.end;
    if ((c == '=' || c == '!') && token.end == at + 1) {
      return ErrorAt(text, at, absl::StrCat("want \"", text.substr(at, 1), "=\""));
    }
  } else if (absl::string_view("+-*/^(),").find(c) == absl::string_view::npos) {
    return ErrorAt(text, at, "unexpected character");
  }
  return token;
}

absl::StatusOr<std::vector<Token>> Tokenize(absl::string_view text) {
  std::vector<Token> tokens;
  for (size_t at = 0; at < text.size();) {
    if (absl::ascii_isspace(static_cast<unsigned char>(text[at]))) {
      ++at;
      continue;
    }
    ASSIGN_OR_RETURN(const Token token, NextToken(text, at));
    at = token.end;
    tokens.push_back(token);
  }
  tokens.push_back({TokenType::kEnd, text.size(), text.size()});
  return tokens;
}

// ------------------------------------------------------------------------------------- syntax tree

struct TreeNode {
  Instruction instruction;
  std::array<int, 3> children = {-1, -1, -1};
};

// Recursive descent.  Nodes are numbers, so that a deep tree costs no stack when it goes.
class Parser {
 public:
  Parser(absl::string_view text, std::vector<Token> tokens, int inputs)
      : text_(text), tokens_(std::move(tokens)), inputs_(inputs) {}

  // The number of the root.
  absl::StatusOr<int> Parse() {
    ASSIGN_OR_RETURN(const int root, Comparison());
    if (Is(")")) return Error("\")\" without its \"(\"");
    if (Now().type != TokenType::kEnd) return Error("want an operator or the end here");
    return root;
  }
  const std::vector<TreeNode>& nodes() const { return nodes_; }

 private:
  // One level of nesting as long as it lives.
  class Level {
   public:
    explicit Level(int& depth) : depth_(depth) { ++depth_; }
    ~Level() { --depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    int& depth_;
  };

  const Token& Now() const { return tokens_[at_]; }
  absl::string_view Text(const Token& token) const {
    return text_.substr(token.start, token.end - token.start);
  }
  bool Is(absl::string_view symbol) const {
    return Now().type == TokenType::kSymbol && Text(Now()) == symbol;
  }
  bool Take(absl::string_view symbol) {
    const bool is = Is(symbol);
    at_ += is ? 1 : 0;
    return is;
  }
  absl::Status Error(absl::string_view what) const { return ErrorAt(text_, Now().start, what); }

  // The node of that operation on those children: the one that is there already, if there is one.
  int Add(const Instruction& instruction, int a = -1, int b = -1, int c = -1) {
    const auto [it, is_new] = known_.try_emplace(
        {instruction.op, std::bit_cast<uint64_t>(instruction.number), instruction.input, a, b, c},
        static_cast<int>(nodes_.size()));
    if (is_new) nodes_.push_back({instruction, {a, b, c}});
    return it->second;
  }

  // `next { symbol next }` for the symbols of these operations.
  template <size_t kCount>
  absl::StatusOr<int> LeftToRight(const Op (&ops)[kCount], absl::StatusOr<int> (Parser::*next)()) {
    ASSIGN_OR_RETURN(int left, (this->*next)());
    for (;;) {
      const Op* op = std::find_if(std::begin(ops), std::end(ops),
                                  [this](Op o) { return Is(FunctionOf(o)->symbol); });
      if (op == std::end(ops)) return left;
      ++at_;
      ASSIGN_OR_RETURN(const int right, (this->*next)());
      left = Add({.op = *op}, left, right);
    }
  }
  absl::StatusOr<int> Comparison() {
    return LeftToRight(
        {Op::kLess, Op::kLessEqual, Op::kGreater, Op::kGreaterEqual, Op::kEqual, Op::kNotEqual},
        &Parser::Sum);
  }
  absl::StatusOr<int> Sum() { return LeftToRight({Op::kAdd, Op::kSub}, &Parser::Product); }
  absl::StatusOr<int> Product() { return LeftToRight({Op::kMul, Op::kDiv}, &Parser::UnaryTerm); }

  // Everything that recurses passes here.
  absl::StatusOr<int> UnaryTerm() {
    if (depth_ >= Expression::kMaxDepth) {
      return Error(absl::StrCat("nested more than ", Expression::kMaxDepth, " deep"));
    }
    const Level level(depth_);
    if (Take("+")) return UnaryTerm();
    if (Take("-")) {
      ASSIGN_OR_RETURN(const int operand, UnaryTerm());
      return Add({.op = Op::kNeg}, operand);
    }
    ASSIGN_OR_RETURN(const int base, Primary());
    if (!Take("^")) return base;
    ASSIGN_OR_RETURN(const int exponent, UnaryTerm());
    return Add({.op = Op::kPow}, base, exponent);
  }

  absl::StatusOr<int> Primary() {
    const Token token = Now();
    switch (token.type) {
      case TokenType::kNumber:
        ++at_;
        return Add({.op = Op::kNumber, .number = token.number});
      case TokenType::kInput:
        if (token.number >= inputs_) {
          return Error(
              absl::StrCat("there is no input ", Text(token), ", the layer has ",
                           inputs_ == 1 ? "only @0" : absl::StrCat("@0 to @", inputs_ - 1)));
        }
        ++at_;
        return Add({.op = Op::kInput, .input = static_cast<int>(token.number)});
      case TokenType::kName:
        return Call();
      case TokenType::kEnd:
        return Error("the expression ends where an operand should be");
      case TokenType::kSymbol:
        break;
    }
    const size_t open = token.start;
    if (!Take("(")) return Error("want an operand here");
    ASSIGN_OR_RETURN(const int inner, Comparison());
    RETURN_IF_ERROR(Close(open));
    return inner;
  }

  absl::Status Close(size_t open) {
    if (Take(")")) return absl::OkStatus();
    if (Now().type == TokenType::kEnd) return ErrorAt(text_, open, "\"(\" without its \")\"");
    return Error("want \")\" or an operator here");
  }

  absl::StatusOr<int> Call() {
    const Token name = Now();
    const auto* function = std::find_if(std::begin(kFunctions), std::end(kFunctions),
                                        [&](const Function& f) { return f.name == Text(name); });
    if (function == std::end(kFunctions)) {
      return Error(absl::StrCat(
          "unknown function \"", Text(name), "\" (known are ",
          absl::StrJoin(kFunctions, ", ",
                        [](std::string* out, const Function& f) { absl::StrAppend(out, f.name); }),
          ")"));
    }
    ++at_;
    const size_t open = Now().start;
    if (!Take("(")) return Error(absl::StrCat("want \"(\" after \"", Text(name), "\""));
    std::vector<int> operands;
    if (!Is(")")) {
      do {
        ASSIGN_OR_RETURN(const int operand, Comparison());
        operands.push_back(operand);
      } while (Take(","));
    }
    RETURN_IF_ERROR(Close(open));
    if (static_cast<int>(operands.size()) != function->operands) {
      return ErrorAt(text_, name.start,
                     absl::StrCat(function->name, " has ", operands.size(), " operand",
                                  operands.size() == 1 ? "" : "s", ", want ", function->operands));
    }
    operands.resize(3, -1);
    return Add({.op = function->op}, operands[0], operands[1], operands[2]);
  }

  const absl::string_view text_;
  const std::vector<Token> tokens_;
  const int inputs_;
  size_t at_ = 0;
  int depth_ = 0;
  std::vector<TreeNode> nodes_;
  std::map<std::tuple<Op, uint64_t, int, int, int, int>, int> known_;
};

// ---------------------------------------------------------------------------------- reverse Polish

// Appends an instruction; one whose operands are all numbers becomes a number.
void Append(const Instruction& instruction, std::vector<Instruction>& program) {
  const size_t operands = static_cast<size_t>(OperandCount(instruction.op));
  float values[3] = {};
  bool numbers = operands > 0 && program.size() >= operands;
  for (size_t i = 0; numbers && i < operands; ++i) {
    const Instruction& operand = program[program.size() - operands + i];
    numbers = operand.op == Op::kNumber;
    values[i] = static_cast<float>(operand.number);
  }
  if (!numbers) {
    program.push_back(instruction);
    return;
  }
  program.resize(program.size() - operands);
  program.push_back({.op = Op::kNumber, .number = Evaluate(instruction.op, values)});
}

// Writes children first, from left to right; with a stack of its own, because chains of "+" are
// deep trees.  A node that several others use is computed once and kept.
class PostOrder {
 public:
  explicit PostOrder(const std::vector<TreeNode>& nodes) : nodes_(nodes), users_(nodes.size(), 0) {
    for (const TreeNode& node : nodes) {
      for (int child : node.children) {
        if (child >= 0) ++users_[child];
      }
    }
  }

  void Write(int root, Expression& expression) {
    std::vector<std::pair<int, int>> stack = {{root, 0}};  // Node, children done.
    while (!stack.empty()) {
      auto& [node, done] = stack.back();
      const int child = done < 3 ? nodes_[node].children[done] : -1;
      if (child < 0) {
        Append(nodes_[node].instruction, expression.program);
        Keep(node, expression);
        stack.pop_back();
        continue;
      }
      ++done;
      const auto kept = kept_.find(child);
      if (kept == kept_.end()) {
        stack.push_back({child, 0});
      } else {
        expression.program.push_back(kept->second);
      }
    }
  }

 private:
  void Keep(int node, Expression& expression) {
    const bool leaf = nodes_[node].children[0] < 0;
    if (leaf || users_[node] < 2) return;
    if (expression.program.back().op == Op::kNumber) {
      kept_[node] = expression.program.back();
      return;
    }
    expression.program.push_back({.op = Op::kStore, .input = expression.stored});
    kept_[node] = {.op = Op::kLoad, .input = expression.stored++};
  }

  const std::vector<TreeNode>& nodes_;
  std::vector<int> users_;
  std::map<int, Instruction> kept_;  // What to write instead of the node from now on.
};

// Values that are on the stack at once, at most.
int StackOf(const std::vector<Instruction>& program) {
  int on_stack = 0, most = 0;
  for (const Instruction& instruction : program) {
    if (instruction.op != Op::kStore) on_stack += 1 - OperandCount(instruction.op);
    most = std::max(most, on_stack);
  }
  return most;
}

}  // namespace

int OperandCount(ExpressionOp op) {
  const Function* function = FunctionOf(op);
  return function == nullptr ? 0 : function->operands;
}

absl::string_view Name(ExpressionOp op) {
  const Function* function = FunctionOf(op);
  return function == nullptr ? "value" : function->name;
}

float Evaluate(ExpressionOp op, const float* operands) {
  const Function* function = FunctionOf(op);
  return function == nullptr ? operands[0] : function->value(operands);
}

DoubleOperation InDouble(ExpressionOp op) {
  const Function* function = FunctionOf(op);
  return function == nullptr ? nullptr : function->in_double;
}

absl::StatusOr<Expression> Expression::Parse(absl::string_view text, int inputs) {
  if (text.size() > kMaxLength) {
    return InvalidArgument(text.size(), " bytes, want at most ", kMaxLength);
  }
  ASSIGN_OR_RETURN(std::vector<Token> tokens, Tokenize(text));
  Parser parser(text, std::move(tokens), inputs);
  ASSIGN_OR_RETURN(const int root, parser.Parse());
  Expression expression;
  PostOrder(parser.nodes()).Write(root, expression);
  expression.stack = StackOf(expression.program);
  return expression;
}

std::string Expression::ToString() const {
  return absl::StrJoin(program, " ", [](std::string* out, const Instruction& i) {
    if (i.op == Op::kNumber) {
      absl::StrAppend(out, i.number);
    } else if (i.op == Op::kInput) {
      absl::StrAppend(out, "@", i.input);
    } else if (i.op == Op::kStore || i.op == Op::kLoad) {
      absl::StrAppend(out, i.op == Op::kStore ? "=" : "", "$", i.input);
    } else {
      absl::StrAppend(out, Name(i.op));
    }
  });
}

}  // namespace ulfd::engine
