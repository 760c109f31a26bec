// When fully connected layers are put together and when they must not be.
// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/pass_rules.h"

namespace ulfd::engine {
namespace {

using ulfd::testing::Constant;
using ulfd::testing::Layer;
using ulfd::testing::PassRules;

constexpr double kTolerance = 1e-5;
const std::vector<std::string> kFcFc = {"fully_connected", "column_blocks", "fc_fc"};
const std::vector<std::string> kParallel = {"fully_connected", "column_blocks", "user_split",
                                            "epilogue", "parallel_fc"};

std::string Fc(const std::string& bottom, const std::string& top, bool bias = true) {
  return Layer("inner_product", {bottom}, top,
               bias ? "" : "inner_product_param { bias_term: false }");
}

// ------------------------------------------------------------------------------------------ fc_fc

TEST_F(PassRules, TwoLayersInARowAreOneIfThatIsLessWork) {
  Weights("f", {{4, 9}, {9}});
  Weights("y", {{9, 2}, {2}});
  EXPECT_EQ(Rewrites(Fc("a", "f") + Fc("f", "y"), kFcFc, kTolerance), 1);
  EXPECT_EQ(steps_.size(), 1u);
  EXPECT_EQ(Rewrites(Fc("a", "f") + Fc("f", "y"), kFcFc, kTolerance, /*exact=*/true), 0);
}

TEST_F(PassRules, ThreeLayersInARowAreOne) {
  Weights("f", {{4, 9}, {9}});
  Weights("g", {{9, 8}});
  Weights("y", {{8, 2}, {2}});
  EXPECT_EQ(Rewrites(Fc("a", "f") + Fc("f", "g", false) + Fc("g", "y"), kFcFc, kTolerance), 2);
  EXPECT_EQ(steps_.size(), 1u);
}

TEST_F(PassRules, ALowRankPairStaysAPair) {
  Weights("f", {{4, 1}, {1}});
  Weights("y", {{1, 64}, {64}});
  EXPECT_EQ(Rewrites(Fc("a", "f") + Fc("f", "y"), kFcFc, kTolerance), 0);
  EXPECT_EQ(steps_.size(), 2u);
}

TEST_F(PassRules, OneOfSeveralColumnBlocksIsMultipliedOut) {
  Weights("f", {{4, 9}, {9}});
  Weights("y", {{17, 2}, {2}});
  const std::string graph = Fc("a", "f") +
                            Layer("concat", {"a", "f", "a"}, "c", "concat_param { dim: 1 }") +
                            Fc("c", "y");
  EXPECT_EQ(Rewrites(graph, kFcFc, kTolerance), 1);
  EXPECT_EQ(steps_.size(), 1u);
}

TEST_F(PassRules, NothingIsMergedAcrossWhatIsNotLinearOrReadElsewhere) {
  Weights("f", {{4, 9}, {9}});
  Weights("y", {{9, 2}, {2}});
  EXPECT_EQ(Rewrites(Fc("a", "f") + Layer("relu", {"f"}, "r") + Fc("r", "y"), kFcFc, kTolerance),
            0);
  EXPECT_EQ(Rewrites(Fc("a", "f") + Fc("f", "y") + Layer("relu", {"f"}, "z"), kFcFc, kTolerance),
            0);
  case_.manifest = "outputs: \"f\" outputs: \"y\"\n";
  EXPECT_EQ(Rewrites(Fc("a", "f") + Fc("f", "y"), kFcFc, kTolerance), 0);
}

TEST_F(PassRules, TheUsersLayerIsNotMultipliedOutForEachAd) {
  Weights("f", {{4, 9}, {9}});
  Weights("y", {{13, 2}, {2}});
  const std::string graph = Fc("u", "f") +
                            Layer("fuse", {"f", "a"}, "c", "fuse_param { common_input_index: 0 }") +
                            Fc("c", "y");
  EXPECT_EQ(Rewrites(graph, kFcFc, kTolerance), 0);
}

// ------------------------------------------------------------------------------------ parallel_fc

// Two towers of two layers each on `x`.
std::string Towers(const std::string& x, const std::string& act1, const std::string& act2) {
  return Fc(x, "f1") + Layer(act1, {"f1"}, "r1") + Fc("r1", "g1") + Fc(x, "f2") +
         Layer(act2, {"f2"}, "r2") + Fc("r2", "g2") + Layer("add", {"g1", "g2"}, "y");
}

TEST_F(PassRules, TowersOnOneTensorShareAWideLayer) {
  for (const char* layer : {"f1", "f2"}) Weights(layer, {{4, 8}, {8}});
  for (const char* layer : {"g1", "g2"}) Weights(layer, {{8, 2}, {2}});
  EXPECT_GT(Rewrites(Towers("a", "sigmoid", "sigmoid"), kParallel, kTolerance), 0);
  EXPECT_EQ(steps_.size(), 4u);  // The wide layer, the two behind it, the sum.
  EXPECT_EQ(Rewrites(Towers("a", "sigmoid", "sigmoid"), kParallel, kTolerance, /*exact=*/true), 0);
}

TEST_F(PassRules, OtherActivationsAreOtherLayers) {
  for (const char* layer : {"f1", "f2"}) Weights(layer, {{4, 8}, {8}});
  for (const char* layer : {"g1", "g2"}) Weights(layer, {{8, 2}, {2}});
  EXPECT_EQ(Rewrites(Towers("a", "sigmoid", "tanh"), kParallel, kTolerance), 0);
}

TEST_F(PassRules, SlicesMustPayForThemselves) {
  // What reads the layers needs tensors: two copies, and only 16 bytes per row are read once less.
  for (const char* layer : {"f", "g"}) Weights(layer, {{4, 8}, {8}});
  const std::string graph = Fc("a", "f") + Fc("a", "g") + Layer("multiply", {"f", "g"}, "y");
  EXPECT_EQ(Rewrites(graph, kParallel, kTolerance), 0);
}

TEST_F(PassRules, FewColumnsAreNotCutOutAgain) {
  // 480 bytes per row would be read once less.
  Weights("w", {{4, 120}, {120}});
  Weights("f", {{120, 1}, {1}});
  Weights("g", {{120, 2}, {2}});
  const std::string wide = Fc("a", "w") + Layer("relu", {"w"}, "r");
  EXPECT_EQ(Rewrites(wide + Fc("r", "f") + Fc("r", "g"), kParallel, kTolerance), 0);
}

TEST_F(PassRules, ManyColumnsAre) {
  Weights("w", {{4, 120}, {120}});
  for (const char* layer : {"f", "g"}) Weights(layer, {{120, 8}, {8}});
  const std::string wide = Fc("a", "w") + Layer("relu", {"w"}, "r");
  EXPECT_GT(Rewrites(wide + Fc("r", "f") + Fc("r", "g"), kParallel, kTolerance), 0);
}

TEST_F(PassRules, ParametersPerColumnAndBiasesStandSideBySide) {
  Weights("f1", {{4, 5}, {5}});
  Weights("f2", {{4, 3}});
  Weights("r1", {{5}});
  Weights("r2", {{3}});
  Weights("g1", {{5, 2}, {2}});
  Weights("g2", {{3, 2}, {2}});
  const std::string graph = Fc("a", "f1") + Layer("prelu", {"f1"}, "r1") + Fc("a", "f2", false) +
                            Layer("prelu", {"f2"}, "r2") + Fc("r1", "g1") + Fc("r2", "g2") +
                            Layer("add", {"g1", "g2"}, "y");
  EXPECT_GT(Rewrites(graph, kParallel, kTolerance), 0);
}

TEST_F(PassRules, TheUsersPartsOfTowersMergeToo) {
  for (const char* layer : {"f1", "f2"}) Weights(layer, {{8, 8}, {8}});
  for (const char* layer : {"g1", "g2"}) Weights(layer, {{8, 2}, {2}});
  const std::string graph = Layer("fuse", {"u", "a"}, "c", "fuse_param { common_input_index: 0 }") +
                            Towers("c", "relu", "relu");
  EXPECT_GT(Rewrites(graph, kParallel, kTolerance), 0);
  EXPECT_EQ(steps_.size(), 5u) << "the user's part, the ads' part, two layers, the sum";
}

// -------------------------------------------------------------------------------------- attention

// A layer over blocks of q [ads, 1, 2] and k [ads, steps, 2].
std::string OverSteps(const std::vector<std::string>& blocks, int steps) {
  const std::vector<std::string> pieces(steps / 2, "a");
  return Layer("concat", pieces, "c", "concat_param { dim: 1 }") +
         Layer("reshape", {"c"}, "k",
               absl::StrCat("reshape_param { shape: -1 shape: ", steps, " shape: 2 }")) +
         Layer("slice", {"a"}, "s", "slice_param { concat_dim: 0 slices { offset: 1 shape: 2 } }") +
         Layer("reshape", {"s"}, "q", "reshape_param { shape: -1 shape: 1 shape: 2 }") +
         Layer("multiply", {"q", "k"}, "product") + Layer("sub", {"q", "k"}, "difference") +
         Layer("concat", blocks, "x", "concat_param { dim: 2 }") + Fc("x", "y");
}

TEST_F(PassRules, AMatrixForEachAdNeedsBlocksAndSteps) {
  const std::vector<std::string> passes = {"fully_connected", "column_blocks", "attention"};
  const auto units = [&](const std::vector<std::string>& blocks, int steps) {
    const int width = 2 * static_cast<int>(blocks.size());
    case_.weights_text.clear();
    Weights("y", {{width, 3}, {3}});
    return Rewrites(OverSteps(blocks, steps), passes, kTolerance);
  };
  EXPECT_EQ(units({"k", "product", "difference"}, 6), 1);
  EXPECT_EQ(units({"k", "product", "difference"}, 4), 0);
  EXPECT_EQ(units({"k", "product"}, 12), 1);
  EXPECT_EQ(units({"k", "product"}, 8), 0);
  EXPECT_EQ(units({"product"}, 64), 0);
  // Without a product there is no such matrix.
  EXPECT_EQ(units({"k", "difference"}, 2), 1);
}

}  // namespace
}  // namespace ulfd::engine
