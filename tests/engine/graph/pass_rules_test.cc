// When each generic pass does something and when it must not: one small graph per rule.
// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/pass_rules.h"

#include <tuple>

namespace ulfd::engine {
namespace {

using ulfd::testing::Constant;
using ulfd::testing::Layer;
using ulfd::testing::PassRules;

// -------------------------------------------------------------------------------- constant_folding

TEST_F(PassRules, ConstantsAreComputedAtLoad) {
  const std::string graph = Constant("c", {4}, {"1", "2", "-3", "0.5"}) +
                            Constant("d", {1}, {"3"}) + Layer("div", {"c", "d"}, "e") +
                            Layer("sigmoid", {"e"}, "f") + Layer("add", {"a", "f"}, "y");
  EXPECT_EQ(Rewrites(graph, {"constant_folding"}), 4);
  EXPECT_EQ(steps_, std::vector<std::string>{"add_layer"});
}

TEST_F(PassRules, AConstantMayBeAnOutput) {
  EXPECT_EQ(Rewrites(Constant("c", {2, 2}, {"1", "2", "3", "4"}) + Layer("tanh", {"c"}, "y") +
                         Layer("relu", {"a"}, "z"),
                     {"constant_folding"}),
            2);
  EXPECT_EQ(steps_, std::vector<std::string>{"relu_layer"});
}

TEST_F(PassRules, ABroadcastThatWouldFillTheMemoryIsNotFolded) {
  const std::string graph =
      Constant("c", {1, 1}, {"2"}) +
      Layer("broadcast_to", {"c"}, "b", "broadcast_to_param { shape: 4096 shape: 256 }") +
      Layer("sum", {"b"}, "s", "sum_param { dim: 1 }") +
      Layer("sum", {"s"}, "t", "sum_param { dim: 0 }") + Layer("add", {"a", "t"}, "y");
  EXPECT_EQ(Rewrites(graph, {"constant_folding"}), 1);  // c alone.
  EXPECT_EQ(Count("broadcast_to"), 1);
}

// -------------------------------------------------------------------------------------------- sums

// `k` [users, 2, 2], `v` [ads, 2, 2], `q` [ads, 1, 2], `w` [ads, 2, 1].
std::string Steps() {
  return Layer("reshape", {"u"}, "k", "reshape_param { shape: 1 shape: 2 shape: 2 }") +
         Layer("reshape", {"a"}, "v", "reshape_param { shape: -1 shape: 2 shape: 2 }") +
         Layer("sum", {"v"}, "s", "sum_param { dim: 1 }") +
         Layer("reshape", {"s"}, "q", "reshape_param { shape: -1 shape: 1 shape: 2 }") +
         Layer("reshape", {"s"}, "w", "reshape_param { shape: -1 shape: 2 shape: 1 }");
}

TEST_F(PassRules, SumsOfProductsAreProductsOfMatrices) {
  for (const auto& [a, b, dim] : std::vector<std::tuple<std::string, std::string, int>>{
           {"k", "w", 1},
           {"w", "k", 1},
           {"v", "w", 1},  // Weighted sums over steps,
           {"k", "q", 2},
           {"q", "v", 2},  // dot products with each step,
           {"k", "v", 2},
           {"a", "u", 1},
           {"s", "s", 1}}) {  // row by row.
    const std::string graph =
        Steps() + Layer("multiply", {a, b}, "p") +
        Layer("sum", {"p"}, "y", absl::StrCat("sum_param { dim: ", dim, " }"));
    EXPECT_EQ(Rewrites(graph, {"sums"}, 1e-6), 1) << graph;
    EXPECT_EQ(Count("batchdot"), 1) << graph;
    EXPECT_EQ(Rewrites(graph, {"sums"}, 0, /*exact=*/true), 0);
  }
}

// -------------------------------------------------------------------------- dot_product_attention

// `q`, `k`, `v` [ads, 2, 4, 1]: what each of two heads has of four positions; their scores `s`.
std::string Heads() {
  std::string graph;
  for (const char* x : {"q", "k", "v"}) {
    graph += Layer("multiply", {"a", "a"}, absl::StrCat(x, "0")) +
             Layer("concat", {absl::StrCat(x, "0"), "a"}, absl::StrCat(x, "1"),
                   "concat_param { dim: 1 }") +
             Layer("reshape", {absl::StrCat(x, "1")}, x,
                   "reshape_param { shape: -1 shape: 2 shape: 4 shape: 1 }");
  }
  return graph;
}
const char kPositions[] = "batch_dot_param { transpose_a: false transpose_b: true }";
const char kWeighted[] = "batch_dot_param { transpose_a: false transpose_b: false }";
const char kTurn[] = "transpose_param { perm: [ 0, 2, 1, 3 ] }";

std::string Choice(const std::string& mask, const std::string& yes, const std::string& no) {
  return Layer("expression", {mask, yes, no}, "t",
               "expression_param { expression: 'where(@0, @1, @2)' }");
}

TEST_F(PassRules, AttentionIsOneStep) {
  const std::string half = Constant("half", {1}, {"0.5"});
  const std::string before = Heads() + half,
                    scores = Layer("batchdot", {"q", "k"}, "s", kPositions);
  const std::string behind = Layer("softmax", {"t"}, "p", "softmax_param { dim: 3 }") +
                             Layer("batchdot", {"p", "v"}, "y", kWeighted);
  const std::string mask = Constant("mask", {1, 1, 1, 4}, {"0", "-1", "-10000", "1"});
  for (const std::string& between :
       {Layer("multiply", {"s", "half"}, "t"), mask + Layer("add", {"s", "mask"}, "t"),
        mask + Layer("multiply", {"half", "s"}, "r") + Layer("add", {"mask", "r"}, "t"),
        Layer("reshape", {"u"}, "w", "reshape_param { shape: 1 shape: 1 shape: 1 shape: 4 }") +
            Layer("add", {"s", "w"}, "t"),
        Layer("add", {"s", "s2"}, "t"), mask + Choice("mask", "s", "half"),
        mask + Choice("mask", "half", "s"),
        mask + Layer("multiply", {"half", "s"}, "r") + Choice("mask", "r", "half"),
        // Masks that are scaled or subtracted, and some of them.
        mask + Layer("add", {"s", "mask"}, "r") + Layer("multiply", {"r", "half"}, "t"),
        mask + Layer("sub", {"s", "mask"}, "r") + Layer("multiply", {"half", "r"}, "t"),
        mask + Layer("add", {"s", "s2"}, "r0") + Layer("multiply", {"r0", "half"}, "r1") +
            Layer("add", {"mask", "r1"}, "r") + Choice("mask", "half", "r"),
        mask + Layer("add", {"s", "mask"}, "r0") + Layer("sub", {"r0", "s2"}, "r1") +
            Layer("add", {"s2", "r1"}, "r") + Layer("add", {"r", "mask"}, "t")}) {
    const std::string other =
        Layer("multiply", {"q", "k"}, "qk") + Layer("batchdot", {"qk", "k"}, "s2", kPositions);
    EXPECT_EQ(Rewrites(before + other + scores + between + behind,
                       {"constant_folding", "dot_product_attention"}, 1e-6) > 0,
              true)
        << between;
    EXPECT_EQ(Count("softmax"), 0) << between;
    EXPECT_EQ(std::count(steps_.begin(), steps_.end(), "dot_product_attention"), 1) << between;
  }
}

TEST_F(PassRules, AttentionReadsAndWritesTransposed) {
  const std::string graph =
      Heads() + Layer("transpose", {"q"}, "qt", kTurn) + Layer("transpose", {"k"}, "kt0", kTurn) +
      Layer("transpose", {"kt0"}, "kt", "transpose_param { perm: [ 0, 1, 3, 2 ] }") +
      Layer("transpose", {"v"}, "vt", kTurn);
  // [ads, 4, 2, 1] are four heads of two positions: too few.
  EXPECT_EQ(Rewrites(graph + Layer("batchdot", {"qt", "kt"}, "s", kWeighted) +
                         Layer("softmax", {"s"}, "p", "softmax_param { dim: 3 }") +
                         Layer("batchdot", {"p", "vt"}, "y", kWeighted),
                     {"dot_product_attention"}),
            0);
  const std::string turned =
      Layer("reshape", {"q1"}, "q2", "reshape_param { shape: -1 shape: 4 shape: 2 shape: 1 }") +
      Layer("reshape", {"k1"}, "k2", "reshape_param { shape: -1 shape: 4 shape: 2 shape: 1 }") +
      Layer("reshape", {"v1"}, "v2", "reshape_param { shape: -1 shape: 4 shape: 2 shape: 1 }") +
      Layer("transpose", {"q2"}, "q3", kTurn) +
      Layer("transpose", {"k2"}, "k3", "transpose_param { perm: [ 0, 2, 3, 1 ] }") +
      Layer("transpose", {"v2"}, "v3", kTurn) + Layer("batchdot", {"q3", "k3"}, "s", kWeighted) +
      Layer("softmax", {"s"}, "p", "softmax_param { dim: 3 }") +
      Layer("batchdot", {"p", "v3"}, "o", kWeighted) + Layer("transpose", {"o"}, "y", kTurn);
  EXPECT_EQ(Rewrites(Heads() + turned, {"dot_product_attention"}, 1e-6), 1);
  EXPECT_EQ(Count("transpose"), 0);
  EXPECT_EQ(Count("batchdot"), 0);
  EXPECT_EQ(Rewrites(Heads() + turned, {"dot_product_attention"}, 0, /*exact=*/true), 0);
}

TEST_F(PassRules, WhatIsNoAttentionStaysAsItIs) {
  const std::string scores = Layer("batchdot", {"q", "k"}, "s", kPositions);
  const std::string softmax = Layer("softmax", {"t"}, "p", "softmax_param { dim: 3 }");
  const std::string product = Layer("batchdot", {"p", "v"}, "y", kWeighted);
  const std::string half = Constant("half", {1}, {"0.5"});
  const std::string mask = Constant("mask", {1, 1, 1, 4}, {"0", "-1", "-10000", "1"});
  for (const std::string& graph :
       {// The scores are subtracted; read elsewhere; another axis; more masks than a step has.
        mask + scores + Layer("sub", {"mask", "s"}, "t") + softmax + product,
        mask + scores + Layer("add", {"s", "mask"}, "r0") + Layer("add", {"r0", "mask"}, "r1") +
            Layer("add", {"r1", "mask"}, "r2") + Layer("add", {"r2", "mask"}, "r3") +
            Layer("add", {"r3", "mask"}, "t") + softmax + product,
        half + scores + Layer("multiply", {"s", "half"}, "t") + softmax + product +
            Layer("relu", {"t"}, "z"),
        half + scores + Layer("multiply", {"s", "half"}, "t") +
            Layer("softmax", {"t"}, "p", "softmax_param { dim: 2 }") + product,
        // The weights are the right operand, or transposed.
        scores + Layer("softmax", {"s"}, "p", "softmax_param { dim: 3 }") +
            Layer("batchdot", {"p", "v"}, "y",
                  "batch_dot_param { transpose_a: true transpose_b: false }"),
        scores + Layer("softmax", {"s"}, "p", "softmax_param { dim: 3 }") +
            Layer("batchdot", {"p", "p"}, "y", kWeighted),
        // No product.
        Layer("add", {"q", "k"}, "s") + Layer("softmax", {"s"}, "p", "softmax_param { dim: 3 }") +
            Layer("batchdot", {"p", "k"}, "y", kPositions)}) {
    EXPECT_EQ(Rewrites(Heads() + graph, {"dot_product_attention"}), 0) << graph;
  }
}

TEST_F(PassRules, AttentionLooksBackABoundedNumberOfLayers) {
  const auto chain = [](const std::string& x, int length, const std::string& y,
                        const std::function<std::string(std::string, std::string)>& layer) {
    std::string text, last = x;
    for (int i = 1; i <= length; ++i) {
      const std::string next = i == length ? y : absl::StrCat(y, "_", i);
      text += layer(last, next);
      last = next;
    }
    return text;
  };
  const auto halve = [](const std::string& from, const std::string& to) {
    return Layer("multiply", {from, "half"}, to);
  };
  const auto turn = [](const std::string& from, const std::string& to) {
    return Layer("transpose", {from}, to, "transpose_param { perm: [ 0, 1, 3, 2 ] }");
  };
  const std::string behind = Layer("softmax", {"t"}, "p", "softmax_param { dim: 3 }") +
                             Layer("batchdot", {"p", "v"}, "y", kWeighted);
  const std::string before = Heads() + Constant("half", {1}, {"0.5"});
  for (const int length : {8, 100}) {
    Rewrites(before + Layer("batchdot", {"q", "k"}, "s", kPositions) +
                 chain("s", length, "t", halve) + behind,
             {"constant_folding", "dot_product_attention"}, 1e-6);
    EXPECT_EQ(Count("softmax"), length == 100) << length;
    // Of an operand those before stay.
    EXPECT_EQ(Rewrites(before + chain("q", length, "q9", turn) +
                           Layer("batchdot", {"q9", "k"}, "t", kPositions) + behind,
                       {"dot_product_attention"}, 1e-6),
              1)
        << length;
    EXPECT_EQ(Count("transpose") > 0, length == 100) << length;
  }
}

TEST_F(PassRules, AxesOfOneOperandAreRowsOfOneProduct) {
  const auto view = [](const std::string& of, const std::string& to, const std::string& shape) {
    return Layer("reshape", {of}, to, absl::StrCat("reshape_param { shape: [-1, ", shape, "] }"));
  };
  for (const auto& [of, left, right, dim] :
       std::vector<std::tuple<std::string, std::string, std::string, int>>{
           {"a", "2, 1, 2", "1, 2, 2", 3},           // [M, K] [N, K]^T,
           {"a", "2, 2, 1", "1, 2, 2", 2},           // [M, K] [K, N],
           {"u", "2, 2, 1", "1, 2, 2", 2},           // of the user and of the ads,
           {"a", "2, 1, 1, 2", "2, 1, 1, 2", 4}}) {  // no axis of one alone.
    for (const bool flipped : {false, true}) {
      const std::string graph =
          view(of, "l", left) + view("a", "r", right) +
          Layer("multiply", {flipped ? "r" : "l", flipped ? "l" : "r"}, "p") +
          Layer("sum", {"p"}, "y", absl::StrCat("sum_param { dim: ", dim, " }"));
      EXPECT_EQ(Rewrites(graph, {"sums"}, 1e-6), 1) << graph;
      EXPECT_EQ(Count("batchdot"), 1) << graph;
      // Views without the axis of 1 are read.
      EXPECT_EQ(Count("reshape"), dim == 4 ? 3 : 5) << graph;
    }
  }
}

TEST_F(PassRules, WhatIsNoProductOfMatricesIsSummedAsItIs) {
  for (const auto& [a, b, dim] : std::vector<std::tuple<std::string, std::string, int>>{
           {"k", "v", 1},     // Both have columns.
           {"q", "w", 1},     // Only one has steps,
           {"k", "w", 2}}) {  // only one has columns.
    const std::string graph =
        Steps() + Layer("multiply", {a, b}, "p") +
        Layer("sum", {"p"}, "y", absl::StrCat("sum_param { dim: ", dim, " }"));
    EXPECT_EQ(Rewrites(graph, {"sums"}), 0) << graph;
  }
  // Something else needs the product.
  EXPECT_EQ(Rewrites(Steps() + Layer("multiply", {"k", "w"}, "p") + Layer("relu", {"p"}, "z") +
                         Layer("sum", {"p"}, "y", "sum_param { dim: 1 }"),
                     {"sums"}),
            0);
}

TEST_F(PassRules, SumsAlongTwoAxesAreOne) {
  const std::string cube = Layer("reshape", {"a"}, "v", "reshape_param { shape: [-1, 2, 2, 1] }");
  const auto sums = [&](int first, int second) {
    return cube + Layer("sum", {"v"}, "s", absl::StrCat("sum_param { dim: ", first, " }")) +
           Layer("sum", {"s"}, "y", absl::StrCat("sum_param { dim: ", second, " }"));
  };
  for (const auto& [first, second] : {std::pair(2, 1), std::pair(1, 1), std::pair(3, 2)}) {
    EXPECT_EQ(Rewrites(sums(first, second), {"sums"}, 1e-6), 1) << first << second;
    EXPECT_EQ(Count("sum"), 1);
  }
  EXPECT_EQ(Rewrites(sums(3, 1), {"sums"}), 0);                              // Not side by side,
  EXPECT_EQ(Rewrites(sums(2, 1) + Layer("relu", {"s"}, "z"), {"sums"}), 0);  // read by another.
}

TEST_F(PassRules, ASumWithWeightsIsAFullyConnectedLayer) {
  const auto weighted = [](const std::string& by) {
    return Layer("reshape", {"a"}, "x", "reshape_param { shape: [-1, 2, 2] }") +
           Constant("two", {2}, {"3", "-5"}) + Constant("four", {2, 2}, {"1", "2", "3", "-0.5"}) +
           Constant("one", {1}, {"3"}) + Layer("multiply", {"x", by}, "p") +
           Layer("sum", {"p"}, "s", "sum_param { dim: 2 }");
  };
  const std::vector<std::string> passes = {"constant_folding", "sums"};
  const std::string relu = Layer("relu", {"s"}, "y");
  EXPECT_EQ(Rewrites(weighted("two") + relu, passes, 1e-6), 1);
  EXPECT_EQ(Count("multiply"), 0);
  EXPECT_EQ(
      Rewrites(weighted("four") + Layer("sum", {"s"}, "y", "sum_param { dim: 1 }"), passes, 1e-6),
      2);
  EXPECT_EQ(Count("sum") + Count("multiply"), 0);
  EXPECT_EQ(Rewrites(weighted("four") + relu, passes), 0);  // Each step has its own weights.
  EXPECT_EQ(Rewrites(weighted("one") + relu, passes), 0);
  EXPECT_EQ(Rewrites(weighted("two") + relu + Layer("relu", {"p"}, "z"), passes), 0);
}

TEST_F(PassRules, PartsOfAConcatAreSummedAlone) {
  const std::string graph = Steps() + Layer("multiply", {"k", "w"}, "p") +
                            Layer("concat", {"v", "p"}, "c", "concat_param { dim: 2 }") +
                            Layer("sum", {"c"}, "y", "sum_param { dim: 1 }");
  EXPECT_EQ(Rewrites(graph, {"sums"}, 1e-6), 2);
  EXPECT_EQ(Count("multiply"), 0);
  // Along what is summed.
  EXPECT_EQ(Rewrites(Steps() + Layer("concat", {"v", "q"}, "c", "concat_param { dim: 1 }") +
                         Layer("sum", {"c"}, "y", "sum_param { dim: 1 }"),
                     {"sums"}),
            0);
}

// --------------------------------------------------------------------------------------- user_rows

const char kRepeated[] =
    "layer_params { name: \"f\" type: \"fuse_layer\" bottom: \"u\" bottom: \"a\" top: \"f\" "
    "fuse_param { common_input_index: 0 } }\n"
    "layer_params { name: \"r\" type: \"slice_layer\" bottom: \"f\" top: \"r\" "
    "slice_param { concat_dim: 0 slices { offset: 0 shape: 4 } } }\n";

TEST_F(PassRules, RepeatedRowsOfTheUserAreComputedOnce) {
  const std::string graph = kRepeated + Layer("tanh", {"r"}, "t") +
                            Layer("concat", {"t", "r"}, "c", "concat_param { dim: 1 }") +
                            Layer("sum", {"c"}, "s", "sum_param { dim: 1 }") +
                            Layer("reshape", {"s"}, "v", "reshape_param { shape: -1 shape: 1 }") +
                            Layer("add", {"a", "v"}, "y");
  // The slice, four layers once per user, and the last one reads the user's row.
  EXPECT_EQ(Rewrites(graph, {"user_rows"}), 6);
}

TEST_F(PassRules, WhatCannotRepeatRowsReadsThemRepeated) {
  // Along axis 1 an unrepeated row does not go with the ads', however many there are of each.
  const std::string graph = kRepeated +
                            Layer("concat", {"r", "r", "a", "a"}, "c", "concat_param { dim: 1 }") +
                            Layer("relu", {"c"}, "y");
  EXPECT_EQ(Rewrites(graph, {"user_rows"}), 1);
}

// --------------------------------------------------------------------------- common_subexpressions

TEST_F(PassRules, EqualChainsMergeStepByStep) {
  const auto chain = [](const std::string& n) {
    return Layer("slice", {"a"}, "s" + n,
                 "slice_param { concat_dim: 0 slices { offset: 1 shape: 3 shape: 1 } }") +
           Layer("sum", {"s" + n}, "t" + n, "sum_param { dim: 1 }") +
           Constant("c" + n, {1}, {"3"}) + Layer("div", {"t" + n, "c" + n}, "d" + n);
  };
  const std::string graph = chain("1") + chain("2") + Layer("add", {"d1", "d2"}, "y");
  EXPECT_EQ(Rewrites(graph, {"common_subexpressions"}), 4);
  EXPECT_EQ(Rewrites(graph, {"constant_folding", "common_subexpressions"}), 3);
  EXPECT_EQ(Count("slice") + Count("sum") + Count("div"), 3);
}

TEST_F(PassRules, OnlyAddAndMultiplyCommute) {
  for (const auto& [type, merged] : std::vector<std::pair<std::string, int>>{
           {"add", 1}, {"multiply", 1}, {"sub", 0}, {"div", 0}}) {
    const std::string graph = Layer(type, {"a", "u"}, "b") + Layer(type, {"u", "a"}, "c") +
                              Layer("concat", {"b", "c"}, "y", "concat_param { dim: 1 }");
    EXPECT_EQ(Rewrites(graph, {"common_subexpressions"}), merged) << type;
  }
}

TEST_F(PassRules, OtherParametersOrWeightsAreAnotherFunction) {
  Weights("f", {{4, 2}, {2}});
  Weights("g", {{4, 2}, {2}});
  EXPECT_EQ(Rewrites(Layer("inner_product", {"a"}, "f") + Layer("inner_product", {"a"}, "g") +
                         Layer("add", {"f", "g"}, "y"),
                     {"common_subexpressions"}),
            0);
  case_.weights_text.clear();
  EXPECT_EQ(Rewrites(Layer("reshape", {"a"}, "x", "reshape_param { shape: -1 shape: 2 shape: 2 }") +
                         Layer("softmax", {"x"}, "b", "softmax_param { dim: 1 }") +
                         Layer("softmax", {"x"}, "c", "softmax_param { dim: 2 }") +
                         Layer("add", {"b", "c"}, "y"),
                     {"common_subexpressions"}),
            0);
}

TEST_F(PassRules, LayersOfOneNameShareWeightsAndMerge) {
  Weights("f", {{4, 2}, {2}});
  std::string again = Layer("inner_product", {"a"}, "g");
  again.replace(again.find("name: \"g\""), 9, "name: \"f\"");
  EXPECT_EQ(Rewrites(Layer("inner_product", {"a"}, "f") + again + Layer("add", {"f", "g"}, "y"),
                     {"common_subexpressions"}),
            1);
  EXPECT_EQ(Count("inner_product"), 1);
}

TEST_F(PassRules, EmbeddingsOfTheSameFeaturesMerge) {
  const std::string again = R"(
      layer_params { name: "ad2" type: "embedding_layer" bottom: "a.ids" bottom: "a.values"
                     bottom: "a.segments" top: "a2"
                     embedding_param { embedding_conf_path: "ad.conf" level: 0 } })";
  EXPECT_EQ(Rewrites(again + Layer("multiply", {"a", "a2"}, "y"), {"common_subexpressions"}), 1);
}

TEST_F(PassRules, OutputsStayOutputs) {
  const std::string both = Layer("relu", {"a"}, "b") + Layer("relu", {"a"}, "c");
  // Two outputs: both stay, but what follows them merges.
  EXPECT_EQ(Rewrites(both, {"common_subexpressions"}), 0);
  const std::string inputs = case_.manifest;
  case_.manifest = inputs + "outputs: \"b\" outputs: \"c\" outputs: \"y\"\n";
  EXPECT_EQ(Rewrites(both + Layer("tanh", {"b"}, "d") + Layer("tanh", {"c"}, "e") +
                         Layer("add", {"d", "e"}, "y"),
                     {"common_subexpressions"}),
            1);
  EXPECT_EQ(Count("relu"), 2);
  EXPECT_EQ(Count("tanh"), 1);
  // The second is an output, the first is not: the first goes.
  case_.manifest = inputs + "outputs: \"c\" outputs: \"y\"\n";
  EXPECT_GT(
      Rewrites(Layer("relu", {"a"}, "b") + Layer("tanh", {"b"}, "y") + Layer("relu", {"a"}, "c"),
               {"common_subexpressions"}),
      0);
  EXPECT_EQ(Count("relu"), 1);
}

// --------------------------------------------------------------------------------------- dead_code

TEST_F(PassRules, WhatNoOutputNeedsIsDropped) {
  case_.manifest += "outputs: \"y\"\n";
  EXPECT_EQ(
      Rewrites(Layer("relu", {"a"}, "y") + Layer("relu", {"u"}, "b") + Layer("tanh", {"b"}, "c"),
               {"dead_code"}),
      3);  // With the user's embedding.
  EXPECT_EQ(Rewrites(Layer("relu", {"a"}, "b") + Layer("add", {"b", "u"}, "y"), {"dead_code"}), 0);
}

// ----------------------------------------------------------------------------------- affine_chains

TEST_F(PassRules, ArithmeticWithConstantsIsOneLayer) {
  const std::string graph = Constant("m", {4}, {"0.5", "-1", "2", "3"}) +
                            Constant("s", {1}, {"4"}) +
                            Constant("t", {1, 4}, {"1", "2", "3", "4"}) +
                            Layer("sub", {"a", "m"}, "b") + Layer("div", {"b", "s"}, "c") +
                            Layer("multiply", {"t", "c"}, "d") + Layer("sub", {"t", "d"}, "y");
  EXPECT_EQ(Rewrites(graph, {"constant_folding", "affine_chains"}, 1e-6), 1);
  EXPECT_EQ(steps_, std::vector<std::string>{"bn_layer"});
  EXPECT_EQ(Rewrites(graph, {"constant_folding", "affine_chains"}, 0, /*exact=*/true), 0);
}

TEST_F(PassRules, ASubtractedMeanIsNotMultipliedOut) {
  case_.tables["t"] = "1,500001,500002,500003,500000.5\n2,500000,500000,500000,500000\n";
  const std::string graph = Constant("m", {1}, {"500000"}) + Constant("s", {1}, {"8"}) +
                            Layer("sub", {"a", "m"}, "b") + Layer("multiply", {"b", "s"}, "y");
  EXPECT_EQ(Rewrites(graph, {"constant_folding", "affine_chains"}, 1e-7), 1);
}

TEST_F(PassRules, AffineChainsEndWhereTheyMust) {
  const std::vector<std::string> passes = {"constant_folding", "affine_chains"};
  const std::string c = Constant("c", {1}, {"2"});
  // One layer alone.
  EXPECT_EQ(Rewrites(c + Layer("multiply", {"a", "c"}, "y"), passes), 0);
  // The value between is read twice, or an output.
  EXPECT_EQ(Rewrites(c + Layer("multiply", {"a", "c"}, "b") + Layer("add", {"b", "c"}, "d") +
                         Layer("multiply", {"b", "d"}, "y"),
                     passes),
            0);
  const std::string inputs = case_.manifest;
  case_.manifest = inputs + "outputs: \"b\" outputs: \"y\"\n";
  EXPECT_EQ(
      Rewrites(c + Layer("multiply", {"a", "c"}, "b") + Layer("add", {"b", "c"}, "y"), passes), 0);
  case_.manifest = inputs;
  // A division by x, by zero, and a product that leaves a float's range.
  EXPECT_EQ(
      Rewrites(c + Layer("multiply", {"a", "c"}, "b") + Layer("div", {"c", "b"}, "y"), passes), 0);
  EXPECT_EQ(Rewrites(c + Constant("z", {1}, {"0"}) + Layer("add", {"a", "c"}, "b") +
                         Layer("div", {"b", "z"}, "y"),
                     passes),
            0);
  EXPECT_EQ(Rewrites(Constant("h", {1}, {"1e20"}) + Layer("multiply", {"a", "h"}, "b") +
                         Layer("multiply", {"b", "h"}, "y"),
                     passes),
            0);
  // What is before the layer that leaves it is one all the same, and so is the rest.
  EXPECT_EQ(Rewrites(c + Constant("h", {1}, {"1e20"}) + Constant("l", {1}, {"1e-20"}) +
                         Layer("multiply", {"a", "c"}, "b") + Layer("multiply", {"b", "l"}, "d") +
                         Layer("multiply", {"d", "l"}, "e") + Layer("multiply", {"e", "h"}, "y"),
                     passes, 1e-6),
            2);
  // The constant makes the tensor larger.
  EXPECT_EQ(
      Rewrites(Layer("reshape", {"a"}, "x", "reshape_param { shape: -1 shape: 1 shape: 4 }") +
                   Constant("w", {2, 1}, {"1", "2"}) + c + Layer("multiply", {"x", "w"}, "b") +
                   Layer("reshape", {"b"}, "d", "reshape_param { shape: -1 shape: 8 }") +
                   Layer("add", {"d", "c"}, "y"),
               passes),
      0);
}

// -------------------------------------------------------------------------------------------- dice

// p = sigmoid(bn(a)) and gamma, of four columns; `rest` ends in y.
std::string Gated(const std::string& rest) {
  return Constant("gamma", {4}, {"0.25", "-0.5", "0", "2"}) + Constant("one", {1}, {"1"}) +
         Constant("mean", {4}, {"0.5", "-1", "0", "3"}) +
         Constant("scale", {4}, {"2", "0.5", "1", "0.25"}) + Layer("sub", {"a", "mean"}, "b") +
         Layer("multiply", {"b", "scale"}, "c") + Layer("sigmoid", {"c"}, "p") + rest;
}

TEST_F(PassRules, WhatChoosesBetweenXAndAMultipleIsDice) {
  const std::vector<std::string> passes = {"constant_folding", "affine_chains", "dice"};
  for (const std::string& rest : std::vector<std::string>{
           // gamma * (1 - p) * x + p * x,
           Layer("sub", {"one", "p"}, "q") + Layer("multiply", {"gamma", "q"}, "r") +
               Layer("multiply", {"r", "a"}, "s") + Layer("multiply", {"p", "a"}, "t") +
               Layer("add", {"s", "t"}, "y"),
           // (1 - p) * (gamma * x) + x * p,
           Layer("sub", {"one", "p"}, "q") + Layer("multiply", {"gamma", "a"}, "r") +
               Layer("multiply", {"q", "r"}, "s") + Layer("multiply", {"a", "p"}, "t") +
               Layer("add", {"t", "s"}, "y"),
           // x * (p + gamma * (1 - p)),
           Layer("sub", {"one", "p"}, "q") + Layer("multiply", {"gamma", "q"}, "r") +
               Layer("add", {"p", "r"}, "s") + Layer("multiply", {"a", "s"}, "y"),
           // gamma * x + p * (x - gamma * x),
           Layer("multiply", {"gamma", "a"}, "r") + Layer("sub", {"a", "r"}, "s") +
               Layer("multiply", {"p", "s"}, "t") + Layer("add", {"r", "t"}, "y"),
           // and p * x, where gamma is 0.
           Layer("multiply", {"p", "a"}, "y")}) {
    EXPECT_GE(Rewrites(Gated(rest), passes, 1e-6), 1) << rest;
    EXPECT_EQ(Count("dice"), 1) << rest;
    EXPECT_EQ(Count("sigmoid"), 0) << rest;
    Rewrites(Gated(rest), passes, 0, /*exact=*/true);
    EXPECT_EQ(Count("dice"), 0) << rest;
  }
  // Of x itself.
  EXPECT_EQ(
      Rewrites(Layer("sigmoid", {"a"}, "p") + Layer("multiply", {"p", "a"}, "y"), passes, 1e-6), 1);
  EXPECT_EQ(steps_, std::vector<std::string>{"dice_layer"});
}

TEST_F(PassRules, GatesOfOtherThingsAreNoDice) {
  const std::vector<std::string> passes = {"constant_folding", "affine_chains", "dice"};
  const std::string q = Layer("sub", {"one", "p"}, "q"), px = Layer("multiply", {"p", "a"}, "t");
  for (const std::string& rest : std::vector<std::string>{
           // Another tensor, p squared, something added, 1 - p, and a gate that is read elsewhere.
           Layer("multiply", {"p", "u"}, "y"), px + Layer("multiply", {"t", "p"}, "y"),
           Layer("add", {"b", "one"}, "r") + Layer("multiply", {"p", "r"}, "y"),
           q + Layer("multiply", {"q", "a"}, "y"), px + Layer("add", {"t", "p"}, "y"),
           px + Layer("tanh", {"p"}, "r") + Layer("add", {"t", "r"}, "y")}) {
    Rewrites(Gated(rest), passes, 1e-6);
    EXPECT_EQ(Count("dice"), 0) << rest;
  }
  const std::string inputs = case_.manifest;
  case_.manifest = inputs + "outputs: \"p\" outputs: \"y\"\n";
  Rewrites(Gated(Layer("multiply", {"p", "a"}, "y")), passes, 1e-6);
  EXPECT_EQ(Count("dice"), 0);
  case_.manifest = inputs;
  // A gate that falls.
  Rewrites(Constant("n", {1}, {"-1"}) + Layer("multiply", {"a", "n"}, "c") +
               Layer("sigmoid", {"c"}, "p") + Layer("multiply", {"p", "a"}, "y"),
           passes, 1e-6);
  EXPECT_EQ(Count("dice"), 0);
}

TEST_F(PassRules, ReshapesToTheSameShapeAreDropped) {
  EXPECT_EQ(Rewrites(Layer("reshape", {"a"}, "b", "reshape_param { shape: -1 shape: 4 }") +
                         Layer("tanh", {"b"}, "y"),
                     {"common_subexpressions"}),
            1);
  EXPECT_EQ(steps_, std::vector<std::string>{"tanh_layer"});
}

// ------------------------------------------------------------------------- fully connected layers

constexpr char kFuse[] = "fuse_param { common_input_index: 0 }";

TEST_F(PassRules, TheUsersColumnsAreMultipliedOncePerUser) {
  Weights("fc", {{8, 6}, {6}});
  const std::string graph =
      Layer("fuse", {"u", "a"}, "x", kFuse) + Layer("inner_product", {"x"}, "fc");
  EXPECT_EQ(Rewrites(graph, {"fully_connected", "column_blocks"}, 1e-6), 1);
  EXPECT_EQ(Count("fuse"), 0);
  EXPECT_EQ(Rewrites(graph, {"fully_connected", "column_blocks", "user_split"}, 1e-6), 1);
  EXPECT_EQ(Count("inner_product_layer_ex") + Count("fuse"), 0);
  EXPECT_EQ(steps_, (std::vector<std::string>{"inner_product_layer_ex", "inner_product_layer_ex"}));
  // Under `exact` the sum is computed as it is written.
  EXPECT_EQ(Rewrites(graph, {"fully_connected", "column_blocks", "user_split"}, 1e-6, true), 0);
}

TEST_F(PassRules, WithoutUserColumnsNothingIsSplit) {
  Weights("fc", {{8, 6}, {6}});
  EXPECT_EQ(Rewrites(Layer("concat", {"a", "a"}, "x") + Layer("inner_product", {"x"}, "fc"),
                     {"fully_connected", "column_blocks", "user_split"}, 1e-6),
            0);
}

TEST_F(PassRules, NormalisationIsFoldedWhereNoDigitsAreLost) {
  Weights("fc", {{4, 6}, {6}});
  Weights("before", {{4}, {4}, {4}, {4}});
  Weights("after", {{6}, {6}, {6}, {6}});
  const std::string bn = "bn_param { eps: 2 }";  // The made-up variances may be negative.
  const std::string graph = Layer("bn", {"a"}, "before", bn) +
                            Layer("inner_product", {"before"}, "fc") +
                            Layer("bn", {"fc"}, "after", bn);
  EXPECT_EQ(Rewrites(graph, {"fully_connected", "batch_norm"}, 1e-5), 2);
  EXPECT_EQ(Count("bn"), 0);
  // A mean of a thousand deviations.
  const std::string huge =
      "layer_weights_params { name: \"before\" blob_datas { shape: 1 data: 0 } "
      "blob_datas { shape: 1 data: 1 } blob_datas { shape: 1 data: 1000 } "
      "blob_datas { shape: 1 data: 1 } }";
  case_.weights_text.clear();
  Weights("fc", {{4, 6}, {6}});
  Weights("after", {{6}, {6}, {6}, {6}});
  case_.weights_text += huge;
  EXPECT_EQ(Rewrites(graph, {"fully_connected", "batch_norm"}, 1e-5), 1);
  EXPECT_EQ(Count("bn"), 1);
}

TEST_F(PassRules, WhatFollowsJoinsTheLayerOnce) {
  Weights("fc", {{4, 6}, {6}});
  Weights("bn", {{6}, {6}, {6}, {6}});
  Weights("act", {{6}});
  const std::string graph = Layer("inner_product", {"a"}, "fc") +
                            Layer("bn", {"fc"}, "bn", "bn_param { eps: 2 }") +
                            Layer("prelu", {"bn"}, "act") + Layer("sigmoid", {"act"}, "y");
  EXPECT_EQ(Rewrites(graph, {"fully_connected", "epilogue"}, 1e-6), 2);
  EXPECT_EQ(Count("sigmoid"), 1);  // A second activation has no place.
  // What somebody else reads stays.
  EXPECT_EQ(Rewrites(graph + Layer("relu", {"fc"}, "z"), {"fully_connected", "epilogue"}, 1e-6), 0);
}

TEST_F(PassRules, WhatFollowsJoinsTheLayerBeforeItsView) {
  Weights("fc", {{2, 3}, {3}});
  const auto behind = [&](const std::string& shape, const std::string& more = "") {
    const std::string graph = Layer("reshape", {"a"}, "x", "reshape_param { shape: [-1, 2, 2] }") +
                              Layer("inner_product", {"x"}, "fc") +
                              Layer("reshape", {"fc"}, "view", "reshape_param { " + shape + " }") +
                              Layer("prelu", {"view"}, "y") + more;
    return Rewrites(graph, {"fully_connected", "epilogue"}, 1e-6);
  };
  Weights("y", {{3}});
  EXPECT_EQ(behind("shape: [-1, 2, 1, 3]"), 1);
  EXPECT_EQ(Count("prelu"), 0);
  EXPECT_EQ(behind("shape: [-1, 6]"), 0);  // Its columns are others.
  EXPECT_EQ(behind("shape: [-1, 2, 1, 3]", Layer("relu", {"view"}, "z")), 0);
  EXPECT_EQ(behind("shape: [-1, 2, 1, 3]", Layer("relu", {"fc"}, "z")), 0);
}

}  // namespace
}  // namespace ulfd::engine
