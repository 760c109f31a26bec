// What several operators amount to, and what only looks like that.  patterns_idioms.py compares
// values.
// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "onnx/onnx_pb.h"
#include "tools/convert/onnx/rewrites/rewrites.h"

namespace ulfd::convert {
namespace {

using ::testing::ElementsAreArray;

struct Case {
  std::string nodes;  // "e = Exp x; y = Div e s axis=1"; x and z are inputs, y is the output.
  std::string ops;    // What is left.
};

onnx::GraphProto Graph(const std::string& nodes) {
  onnx::GraphProto graph;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
      R"(input { name: 'x' type { tensor_type { elem_type: 1 } } }
         input { name: 'z' type { tensor_type { elem_type: 1 } } }
         input { name: 'n' type { tensor_type { elem_type: 7 } } }
         output { name: 'y' }
         initializer { name: 'zero' data_type: 1 float_data: 0 }
         initializer { name: 'zeros' data_type: 1 dims: [ 1, 1, 1 ] float_data: 0 }
         initializer { name: 'one' data_type: 1 dims: 1 float_data: 1 }
         initializer { name: 'half' data_type: 1 float_data: 0.5 }
         initializer { name: 'slopes' data_type: 1 dims: 2 float_data: [ 0.25, 0.75 ] }
         initializer { name: 'column' data_type: 1 dims: [ 2, 1 ] float_data: [ 1, 2 ] }
         initializer { name: 'none' data_type: 1 float_data: -1 }
         initializer { name: 'three' data_type: 1 float_data: 3 }
         initializer { name: 'root2' data_type: 1 float_data: 1.41421354 }
         initializer { name: 'inverse2' data_type: 1 float_data: 0.707106769 }
         initializer { name: 'root' data_type: 1 float_data: 0.797884583 }
         initializer { name: 'cubic' data_type: 1 float_data: 0.0447149985 }
         initializer { name: 'count' data_type: 7 int64_data: 0 }
         initializer { name: 'first' data_type: 7 dims: 1 int64_data: 1 }
         initializer { name: 'last' data_type: 7 dims: 1 int64_data: -1 }
         initializer { name: 'two' data_type: 1 float_data: 2 }
         initializer { name: 'both' data_type: 7 dims: 2 int64_data: [ 1, 2 ] }
         initializer { name: 'w' data_type: 1 dims: [ 2, 2 ] float_data: [ 1, 2, 3, 4 ] })",
      &graph));
  for (const absl::string_view line : absl::StrSplit(nodes, "; ")) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ');
    onnx::NodeProto& node = *graph.add_node();
    node.add_output(words[0]);
    node.set_op_type(words[2]);
    for (size_t i = 3; i < words.size(); ++i) {
      const std::vector<std::string> sides = absl::StrSplit(words[i], absl::MaxSplits('=', 1));
      if (sides.size() == 1) {
        node.add_input(words[i]);
        continue;
      }
      onnx::AttributeProto& attribute = *node.add_attribute();
      attribute.set_name(sides[0]);
      if (sides[0] == "equation") {
        attribute.set_s(sides[1]);
      } else if (sides[0] == "perm") {
        for (const char digit : sides[1]) attribute.add_ints(digit - '0');
      } else {
        attribute.set_i(std::stoi(sides[1]));
      }
    }
  }
  return graph;
}

std::vector<std::string> OpsAfter(const std::string& nodes, int64_t opset) {
  onnx::GraphProto graph = Graph(nodes);
  ReadIdioms(graph, opset);
  std::vector<std::string> ops;
  for (const onnx::NodeProto& node : graph.node()) ops.push_back(node.op_type());
  return ops;
}

void Expect(const std::vector<Case>& cases, int64_t opset = 14) {
  for (const Case& c : cases) {
    const std::vector<std::string> ops = absl::StrSplit(c.ops, ' ');
    EXPECT_THAT(OpsAfter(c.nodes, opset), ElementsAreArray(ops)) << c.nodes;
  }
}

TEST(IdiomsTest, Sigmoids) {
  Expect({
      {"a = Neg x; b = Exp a; c = Add b one; y = Reciprocal c", "Sigmoid"},
      {"a = Mul none x; b = Exp a; c = Add one b; y = Div one c", "Sigmoid"},
      {"a = Sub zero x; b = Exp a; c = Add one b; y = Pow c none", "Sigmoid"},
      {"b = Exp x; c = Add one b; y = Div b c", "Sigmoid"},
      {"b = Exp x; c = Add one b; y = Div one c", "Neg Sigmoid"},
      {"b = Exp x; c = Add one b; y = Reciprocal c", "Neg Sigmoid"},
      {"b = Exp x; c = Add one b; y = Log c", "Softplus"},
      // Not of the same x, or another number.
      {"b = Exp x; c = Exp z; d = Add one c; y = Div b d", "Exp Exp Add Div"},
      {"a = Neg x; b = Exp a; c = Add none b; y = Reciprocal c", "Neg Exp Add Reciprocal"},
      // Read elsewhere.
      {"a = Neg x; b = Exp a; c = Add b one; d = Reciprocal c; y = Add d b", "Neg Exp Sigmoid Add"},
  });
}

TEST(IdiomsTest, Gelus) {
  const std::string gate = "a = Div x root2; b = Erf a; g = Add b one; ";
  const std::string tanh =
      "c = Pow x three; t = Mul c cubic; s = Add x t; a = Mul s root; "
      "b = Tanh a; g = Add b one; ";
  Expect({
      {gate + "p = Mul x g; y = Mul p half", "Gelu"},
      {gate + "h = Mul half x; y = Mul h g", "Gelu"},
      {gate + "h = Mul g half; y = Mul x h", "Gelu"},
      {gate + "p = Mul g x; y = Div p two", "Gelu"},
      {"a = Mul x inverse2; b = Erf a; g = Add one b; p = Mul x g; y = Mul half p", "Gelu"},
      {tanh + "h = Mul half x; y = Mul h g", "Gelu"},
      {"q = Mul x x; c = Mul x q; t = Mul cubic c; s = Add t x; a = Mul root s; b = Tanh a; "
       "g = Add b one; p = Mul x g; y = Mul half p",
       "Gelu"},
      // Of another x, or other numbers.
      {gate + "p = Mul z g; y = Mul p half", "Div Erf Add Mul Mul"},
      {gate + "p = Mul x g; y = Mul p two", "Div Erf Add Mul Mul"},
      {"a = Div x two; b = Erf a; g = Add b one; p = Mul x g; y = Mul p half",
       "Div Erf Add Mul Mul"},
      {"c = Pow z three; t = Mul c cubic; s = Add x t; a = Mul s root; b = Tanh a; "
       "g = Add b one; h = Mul half x; y = Mul h g",
       "Pow Mul Add Mul Tanh Add Mul Mul"},
  });
}

TEST(IdiomsTest, LayerNorms) {
  const std::string centred = "m = ReduceMean x last; c = Sub x m; ";
  const std::string root = "q = Pow c two; v = ReduceMean q last; s = Add v half; r = Sqrt s; ";
  const std::string kept = "ReduceMean Sub Pow ReduceMean Add Sqrt ";
  Expect({
      {centred + root + "y = Div c r", "LayerNormalization"},
      {centred + root + "i = Reciprocal r; y = Mul i c", "LayerNormalization"},
      {centred + root + "d = Div c r; y = Mul slopes d", "LayerNormalization"},
      {centred + root + "d = Div c r; p = Mul d slopes; y = Add p slopes", "LayerNormalization"},
      {centred + "q = Mul c c; v = ReduceMean q last; s = Add half v; r = Sqrt s; d = Sub x m; "
                 "y = Div d r",
       "LayerNormalization"},
      {centred + root + "d = Div c r; p = Mul d slopes; y = Add p x", "LayerNormalization Add"},
      // Of a mean of 0.
      {"q = Mul x x; v = ReduceMean q last; s = Add v half; r = Sqrt s; y = Div x r",
       "RMSNormalization"},
      {"q = Pow x two; v = ReduceMean q last; s = Add v half; r = Sqrt s; i = Reciprocal r; "
       "p = Mul x i; y = Mul slopes p",
       "RMSNormalization"},
      {"q = Mul x x; v = ReduceMean q last; s = Add v half; r = Sqrt s; y = Div z r",
       "Mul ReduceMean Add Sqrt Div"},
      // As TensorFlow has it.
      {centred + root +
           "i = Reciprocal r; f = Mul i slopes; a = Mul x f; b = Mul m f; "
           "o = Sub slopes b; y = Add a o",
       "LayerNormalization"},
      {centred + root +
           "i = Reciprocal r; f = Mul i slopes; a = Mul z f; b = Mul m f; "
           "o = Sub slopes b; y = Add a o",
       kept + "Div Mul Mul Sub Add"},
      // Of another x, another axis, or another power.
      {centred + root + "d = Sub z m; y = Div d r", kept + "Sub Div"},
      {centred + root + "y = Div x r", kept + "Div"},
      {"m = ReduceMean x first; c = Sub x m; " + root + "y = Div c r",
       "ReduceMean Sub RMSNormalization"},
      {"m = ReduceMean x last keepdims=0; c = Sub x m; " + root + "y = Div c r",
       "ReduceMean Sub RMSNormalization"},
      {centred + "q = Mul c x; v = ReduceMean q last; s = Add v half; r = Sqrt s; y = Div c r",
       "ReduceMean Sub Mul ReduceMean Add Sqrt Div"},
      {centred + "q = Pow c half; v = ReduceMean q last; s = Add v half; r = Sqrt s; y = Div c r",
       kept + "Div"},
      {centred + "q = Pow c two; v = ReduceMean q last; s = Add v z; r = Sqrt s; y = Div c r",
       kept + "Div"},
  });
}

TEST(IdiomsTest, Softmaxes) {
  Expect({
      {"e = Exp x; s = ReduceSum e first; y = Div e s", "Softmax"},
      {"e = Exp x; s = ReduceSum e first; r = Reciprocal s; y = Mul r e", "Softmax"},
      {"e = Exp x; s = ReduceSum e both; y = Div e s", "Exp ReduceSum Div"},
      {"e = Exp x; s = ReduceSum e first keepdims=0; y = Div e s", "Exp ReduceSum Div"},
      {"e = Exp x; f = Exp z; s = ReduceSum f first; y = Div e s", "Exp Exp ReduceSum Div"},
  });
  // Of all axes behind it, then.
  Expect({{"e = Exp x; s = ReduceSum e first; y = Div e s", "Exp ReduceSum Div"}}, 12);
}

TEST(IdiomsTest, PositiveParts) {
  Expect({
      {"y = Max x zero", "Relu"},
      {"y = Max zero x", "Relu"},
      {"y = Max n count", "Max"},
      {"y = Max x one", "Max"},
      {"y = Max x zeros", "Max"},  // May have more dimensions than x.
      {"y = Max x zero z", "Max"},
      {"p = Greater x zero; y = Where p x zero", "Relu"},
      {"p = LessOrEqual zero x; y = Where p x zero", "Relu"},
      {"p = LessOrEqual x zero; y = Where p x zero", "LessOrEqual Where"},  // The negative part.
      {"p = Greater x zero; y = Where p z zero", "Greater Where"},
      {"p = Greater x zero; c = Cast p to=1; y = Mul c x", "Relu"},
      {"p = Greater x zero; c = Cast p to=1; y = Mul c z", "Greater Cast Mul"},
      {"p = Greater x z; q = Not p; y = Where q x z", "Greater Where"},
  });
}

TEST(IdiomsTest, Rectifiers) {
  Expect({
      {"h = MatMul x w; a = Abs h; b = Sub h a; c = Mul b half; d = Mul c slopes; r = Relu h; y = "
       "Add r d",
       "MatMul PRelu"},
      {"h = MatMul x w; a = Neg h; b = Relu a; c = Mul b slopes; r = Relu h; y = Sub r c",
       "MatMul PRelu"},
      {"h = Add x slopes; m = Min h zero; c = Mul slopes m; r = Max h zero; y = Add c r",
       "Add PRelu"},
      {"h = MatMul x w; p = Greater h zero; c = Mul slopes h; y = Where p h c", "MatMul PRelu"},
      {"g = MatMul x w; h = Add g slopes; p = Greater h zero; q = Not p; c = Mul slopes h; y = "
       "Where q c h",
       "MatMul Add PRelu"},
      // x may be one column, which the slopes repeat.
      {"p = Greater x zero; c = Mul slopes x; y = Where p x c", "Greater Mul Where"},
      {"h = MatMul x column; p = Greater h zero; c = Mul slopes h; y = Where p h c",
       "MatMul Greater Mul Where"},
      {"c = Mul x half; y = Max x c", "LeakyRelu"},
      {"a = Abs x; b = Add x a; y = Mul b half", "Relu"},
      {"p = Less x zero; y = Where p zero x", "Relu"},
      {"s = Shape x; z0 = ConstantOfShape s; y = Max x z0", "Relu"},
      {"p = Greater x zero; e = Exp x; f = Sub e one; y = Where p x f", "Elu"},
      // Zeros of another shape, another x, another slope above 0.
      {"s = Shape z; z0 = ConstantOfShape s; y = Max x z0", "Shape ConstantOfShape Max"},
      {"p = Greater z zero; c = Mul x half; y = Where p x c", "Greater Mul Where"},
      {"m = Min z zero; c = Mul half m; r = Relu x; y = Add c r", "Min Mul Relu Add"},
      {"c = Mul x half; r = Relu c; y = Add x r", "Mul Relu Add"},
      {"y = Abs x", "Abs"},
      {"y = Add x zero", "Add"},
  });
}

TEST(IdiomsTest, SumsAndProducts) {
  Expect({
      {"a = Neg x; y = Add z a", "Sub"},
      {"a = Mul x none; y = Add a z", "Sub"},
      {"a = Neg x; y = Sub z a", "Add"},
      {"a = Neg x; y = Sub a z", "Neg Sub"},
      {"a = Neg n; y = Add n a", "Neg Add"},
      {"a = Reciprocal x; y = Mul z a", "Div"},
      {"y = Sum x z", "Add"},
      {"y = Sum x z x", "Sum"},
  });
}

TEST(IdiomsTest, Movement) {
  Expect({
      {"a = Concat x z axis=1; y = Concat a x axis=1", "Concat"},
      {"a = Concat x z axis=1; y = Concat a x axis=0", "Concat Concat"},
      {"a = Concat x z axis=1; y = Concat a a axis=1", "Concat Concat"},
      {"t = Transpose x perm=10; p = MatMul w t; y = Transpose p perm=10", "Transpose MatMul"},
      {"t = Transpose x perm=10; p = MatMul w t; q = Transpose p perm=10; y = MatMul q p",
       "Transpose MatMul Transpose MatMul"},
      {"t = Transpose x perm=10; p = MatMul w t; y = Transpose p perm=01",
       "Transpose MatMul Transpose"},
  });
}

// No file is checked before it is read this way.
TEST(IdiomsTest, WhateverTheFileSaysItEnds) {
  const auto chain = [](const std::string& op, const std::string& more, int length) {
    onnx::GraphProto graph = Graph("a0 = Greater x zero");
    for (int i = 0; i < length; ++i) {
      onnx::NodeProto& node = *graph.add_node();
      node.set_op_type(op);
      node.add_input(absl::StrCat("a", i));
      if (!more.empty()) node.add_input(more);
      node.add_output(absl::StrCat("a", i + 1));
    }
    graph.mutable_output(0)->set_name(absl::StrCat("a", length));
    ReadIdioms(graph, 14);
    return graph.node_size();
  };
  constexpr int kLong = 50000;
  EXPECT_EQ(chain("Not", "", kLong), kLong + 1);
  EXPECT_EQ(chain("Mul", "slopes", kLong), kLong + 1);
  EXPECT_LE(chain("Concat", "z", kLong), kLong + 1);
  for (const std::string op : {"Not", "Cast", "Neg", "Identity", "Exp"}) {
    onnx::GraphProto graph = Graph(absl::StrCat("a = ", op, " y; y = ", op, " a"));
    ReadIdioms(graph, 14);
  }
}

// Nor are inputs and outputs counted before.
TEST(RewritesTest, NodesMayHaveAnyNumberOfInputsAndOutputs) {
  const std::vector<std::pair<const char*, std::vector<const char*>>> ops = {
      {"",
       {"Add",
        "And",
        "ArgMax",
        "Attention",
        "Cast",
        "CastLike",
        "Compress",
        "Concat",
        "ConcatFromSequence",
        "ConstantOfShape",
        "DepthToSpace",
        "DequantizeLinear",
        "Div",
        "Einsum",
        "Equal",
        "Expand",
        "Gather",
        "Greater",
        "GroupNormalization",
        "GRU",
        "Hardmax",
        "If",
        "InstanceNormalization",
        "Log",
        "Loop",
        "LRN",
        "LSTM",
        "LpNormalization",
        "MatMul",
        "MatMulInteger",
        "MeanVarianceNormalization",
        "Mul",
        "Neg",
        "Not",
        "Pow",
        "QLinearConv",
        "QLinearMatMul",
        "QuantizeLinear",
        "Reciprocal",
        "ReduceL1",
        "ReduceL2",
        "ReduceLogSum",
        "ReduceMean",
        "ReduceSum",
        "ReduceSumSquare",
        "RMSNormalization",
        "RNN",
        "Scatter",
        "SequenceAt",
        "SequenceConstruct",
        "Shape",
        "Slice",
        "Softmax",
        "SpaceToDepth",
        "Split",
        "SplitToSequence",
        "Sqrt",
        "Squeeze",
        "Sub",
        "Sum",
        "Transpose",
        "Trilu",
        "Unsqueeze",
        "Where"}},
      {"com.microsoft", {"DequantizeLinear", "QuantizeLinear"}},
      {"ai.onnx.ml",
       {"ArrayFeatureExtractor", "Binarizer", "FeatureVectorizer", "Imputer", "LabelEncoder",
        "LinearClassifier", "LinearRegressor", "Normalizer", "OneHotEncoder", "Scaler",
        "TreeEnsemble", "TreeEnsembleClassifier", "TreeEnsembleRegressor", "ZipMap"}}};
  for (const auto& [domain, names] : ops) {
    for (const char* const op : names) {
      for (int i = 0; i < 10 * 3 * 3 * 2; ++i) {
        const int inputs = i % 10, outputs = i / 10 % 3,
                  opset = std::vector<int>{11, 14, 23}[i / 30 % 3];
        onnx::GraphProto graph = Graph("c = Cast x to=6");
        onnx::NodeProto& node = *graph.add_node();
        node.set_op_type(op);
        node.set_domain(domain);
        for (int k = 0; k < inputs; ++k) node.add_input(k % 2 != 0 && i >= 90 ? "w" : "x");
        for (int k = 0; k < outputs; ++k) node.add_output(k == 0 ? "y" : "z1");
        onnx::AttributeProto& heads = *node.add_attribute();
        heads.set_name("num_heads");
        heads.set_type(onnx::AttributeProto::INT);
        heads.set_i(2);
        SCOPED_TRACE(absl::StrCat(domain, " ", op, " ", inputs, " ", outputs));
        ReadIdioms(graph, opset);
        WriteComposites(graph, opset);
        WritePlainly(graph, opset);
        EXPECT_LT(graph.node_size(), 100);
      }
    }
  }
}

TEST(RewritesTest, CompositesAreWrittenInBranches) {
  onnx::GraphProto graph;
  onnx::NodeProto& node = *graph.add_node();
  node.set_op_type("If");
  node.add_input("c");
  node.add_output("y");
  onnx::AttributeProto& branch = *node.add_attribute();
  branch.set_name("then_branch");
  *branch.mutable_g() = Graph("y = ReduceL2 x");
  WriteComposites(graph, 14);
  std::vector<std::string> ops;
  for (const onnx::NodeProto& inner : node.attribute(0).g().node()) ops.push_back(inner.op_type());
  EXPECT_THAT(ops, ::testing::ElementsAre("Mul", "ReduceSum", "Sqrt"));
}

TEST(IdiomsTest, Einsums) {
  Expect({
      {"y = Einsum x equation=abc->ac", "ReduceSum"},
      {"y = Einsum x equation=abc->ca", "Einsum"},
      {"y = Einsum x equation=aab->ab", "Einsum"},
      {"y = Einsum x w equation=abi,io->abo", "MatMul"},
      {"y = Einsum w x equation=oi,...i->...o", "Transpose MatMul"},
      {"y = Einsum x w equation=abi,io->aob", "Einsum"},
      {"y = Einsum x w equation=abi,ib->ab", "Einsum"},
      {"y = Einsum x z equation=abi,io->abo", "Einsum"},
  });
}

}  // namespace
}  // namespace ulfd::convert
