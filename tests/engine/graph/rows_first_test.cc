// Models that keep steps or heads before their ads: computed with the rows in front, and proved.
// SPDX-License-Identifier: Apache-2.0
#include "engine/graph/rows_first.h"

#include "tests/testing/pass_rules.h"

namespace ulfd::engine {
namespace {

using ulfd::testing::CaseInputs;
using ulfd::testing::Constant;
using ulfd::testing::Layer;
using ulfd::testing::PlanRunner;

std::string Reshape(const std::string& in, const std::string& out, const std::string& shape) {
  return Layer("reshape", {in}, out, absl::StrCat("reshape_param { shape: [", shape, "] }"));
}
std::string Transpose(const std::string& in, const std::string& out, const std::string& perm) {
  return Layer("transpose", {in}, out, absl::StrCat("transpose_param { perm: [", perm, "] }"));
}
std::string Dot(const std::string& a, const std::string& b, const std::string& out,
                const std::string& transpose_b) {
  return Layer(
      "batchdot", {a, b}, out,
      absl::StrCat("batch_dot_param { transpose_a: false transpose_b: ", transpose_b, " }"));
}
std::string Along(const std::string& type, const std::string& in, const std::string& out, int dim) {
  return Layer(type, {in}, out, absl::StrCat(type, "_param { dim: ", dim, " }"));
}

// A graph that computes `y` and `z`, which must be the same, with its rows proved.
class RowsFirst : public ulfd::testing::PassRules {
 protected:
  void ExpectSame(const std::string& layers, bool separable = true) {
    case_.graph = ulfd::testing::kTwoFeatures + layers;
    const LoadOptions options{.directory = WriteModelDirectory(case_, base_)};
    auto loaded = LoadModel(options);
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    EXPECT_EQ((*loaded)->info.row_separable, separable) << (*loaded)->info.proof_failure;
    const bool optimised = (*loaded)->executable.optimised != nullptr;
    PlanRunner runner(*std::move(loaded), optimised);
    const CaseInputs inputs(case_.inputs);
    for (const int64_t tile : {0, 2}) {
      RunResult result;
      ASSERT_TRUE(runner.Run(inputs.tensors(), {.tile_rows = tile}, result).ok());
      const auto output = [&](absl::string_view name) -> const Tensor& {
        const std::vector<OutputInfo>& outputs = runner.info().outputs;
        const auto is = [name](const OutputInfo& info) { return info.name == name; };
        return result.outputs[std::find_if(outputs.begin(), outputs.end(), is) - outputs.begin()];
      };
      const Tensor &y = output("y"), &z = output("z");
      ASSERT_EQ(y.dims, z.dims);
      for (int64_t i = 0; i < y.elements(); ++i) {
        EXPECT_NEAR(y.f32()[i], z.f32()[i], 1e-6 * (1 + std::abs(z.f32()[i]))) << i;
      }
    }
  }
};

// `x` [ads, 2, 2]; fully connected layers of equal weights.
const char kSteps[] = "-1, 2, 2";

TEST_F(RowsFirst, HeadsBesideTheAds) {
  Weights("f", {{2, 2}, {2}});
  Weights("g", {{2, 2}, {2}});
  std::string graph = Reshape("a", "x", kSteps);
  // As nn.MultiheadAttention: [steps, ads, E], then [ads * heads, steps, E / heads].
  graph +=
      Transpose("x", "t", "1, 0, 2") + Layer("inner_product", {"t"}, "f") +
      Reshape("f", "h", "2, -1, 1") + Transpose("h", "q", "1, 0, 2") +
      Transpose("h", "k", "1, 2, 0") + Dot("q", "k", "p", "false") + Along("softmax", "p", "s", 2) +
      Dot("s", "q", "m", "false") + Transpose("m", "b", "1, 0, 2") + Reshape("b", "r", "2, -1, 2") +
      Layer("add", {"r", "t"}, "d") + Transpose("d", "o", "1, 0, 2") + Reshape("o", "y", "-1, 4");
  graph += Layer("inner_product", {"x"}, "g");
  for (const std::string n : {"0", "1"}) {  // Head by head.
    graph +=
        Layer("slice", {"g"}, "c" + n,
              absl::StrCat("slice_param { concat_dim: 0 slices { offset: ", n,
                           " shape: 1 } slices { offset: ", n == "0" ? 2 : 3, " shape: 1 } }"));
    graph += Reshape("c" + n, "q" + n, "-1, 2, 1") + Dot("q" + n, "q" + n, "p" + n, "true") +
             Along("softmax", "p" + n, "s" + n, 2) + Dot("s" + n, "q" + n, "m" + n, "false");
  }
  graph += Layer("concat", {"m0", "m1"}, "n", "concat_param { dim: 2 }") +
           Layer("add", {"n", "x"}, "e") + Reshape("e", "z", "-1, 4");
  ExpectSame(graph);
}

TEST_F(RowsFirst, SumsAndConstantsAlongOtherAxes) {
  std::string graph = Reshape("a", "x", kSteps) + Transpose("x", "t", "1, 0, 2");
  graph += Constant("c", {2, 1, 2}, {"1", "2", "-3", "0.5"}) + Layer("multiply", {"t", "c"}, "p") +
           Layer("tanh", {"p"}, "q") + Layer("concat", {"q", "t"}, "j", "concat_param { dim: 0 }") +
           Along("sum", "j", "s", 0) + Layer("relu", {"s"}, "y");
  graph += Constant("d", {1, 2, 2}, {"1", "2", "-3", "0.5"}) + Layer("multiply", {"x", "d"}, "m") +
           Layer("tanh", {"m"}, "n") + Layer("concat", {"n", "x"}, "k", "concat_param { dim: 1 }") +
           Along("sum", "k", "l", 1) + Layer("relu", {"l"}, "z");
  ExpectSame(graph);
}

TEST_F(RowsFirst, RowsLastAndMergedBehindSteps) {
  std::string graph = Reshape("a", "x", kSteps);
  graph += Transpose("x", "t", "1, 2, 0") + Reshape("t", "f", "4, -1") +
           Transpose("f", "b", "1, 0") + Layer("sigmoid", {"b"}, "y");
  graph += Reshape("x", "g", "-1, 4") + Layer("sigmoid", {"g"}, "z");
  ExpectSame(graph);
}

TEST_F(RowsFirst, PiecesOfMergedRows) {
  std::string graph = Reshape("a", "x", kSteps) + Reshape("x", "m", "-1, 2");
  const std::string piece = "slice_param { concat_dim: 0 slices { offset: 1 shape: 1 } ";
  graph += Layer("slice", {"m"}, "p", piece + "slices { offset: 0 shape: 1 } }") +
           Layer("tanh", {"p"}, "q") + Reshape("q", "y", "-1, 4");
  graph += Layer("slice", {"a"}, "r",
                 piece +
                     "slices { offset: 0 shape: 1 } slices { offset: 3 shape: 1 } "
                     "slices { offset: 2 shape: 1 } }") +
           Layer("tanh", {"r"}, "z");
  ExpectSame(graph);
}

TEST_F(RowsFirst, BestOfMergedRows) {
  std::string graph = Reshape("a", "x", kSteps) + Reshape("x", "m", "-1, 2");
  graph += Layer("top_k", {"m"}, "b", "top: 'i' top_k_param { k: 1 axis: 1 }") +
           Layer("add", {"b", "i"}, "s") + Reshape("s", "y", "-1, 2");
  graph += Layer("top_k", {"x"}, "c", "top: 'j' top_k_param { k: 1 axis: 2 }") +
           Layer("add", {"c", "j"}, "t") + Reshape("t", "z", "-1, 2");
  ExpectSame(graph);
}

TEST_F(RowsFirst, RowsOfATableThatMergedRowsName) {
  const char kPlaces[] = "expression_param { expression: 'where(@0, 1, 2)' }";
  std::string graph = Reshape("a", "x", kSteps) + Reshape("x", "m", "-1, 1") +
                      Constant("c", {1, 3, 2}, {"1", "2", "-3", "0.5", "4", "7"});
  graph += Layer("expression", {"m"}, "i", kPlaces) + Reshape("i", "j", "-1, 1, 1") +
           Layer("take", {"c", "j"}, "t", "take_param { axis: 1 }") + Reshape("t", "y", "-1, 8");
  graph += Layer("expression", {"a"}, "k", kPlaces) + Reshape("k", "l", "-1, 4, 1") +
           Layer("take", {"c", "l"}, "u", "take_param { axis: 1 }") + Reshape("u", "z", "-1, 8");
  ExpectSame(graph);
}

TEST_F(RowsFirst, HeadsThatShareWhatIsRepeatedForThem) {
  std::string graph = Reshape("a", "x", kSteps) + Transpose("x", "t", "1, 0, 2");
  const auto repeated = [](const std::string& sizes) {
    return absl::StrCat("broadcast_to_param { shape: [", sizes, "] }");
  };
  graph += Layer("slice", {"a"}, "f",
                 "slice_param { concat_dim: 0 slices { offset: 0 shape: [1, 2] } }") +
           Transpose("f", "g", "1, 0, 2") + Layer("broadcast_to", {"g"}, "h", repeated("2, 0, 2")) +
           Layer("add", {"h", "t"}, "s") + Transpose("s", "o", "1, 0, 2") +
           Reshape("o", "y", "-1, 4");
  graph += Layer("broadcast_to", {"f"}, "i", repeated("0, 2, 2")) + Layer("add", {"i", "x"}, "n") +
           Reshape("n", "z", "-1, 4");
  ExpectSame(graph);
}

TEST_F(RowsFirst, WhatMixesRowsStaysAsItIs) {
  std::string graph = Reshape("a", "x", kSteps) + Transpose("x", "t", "1, 0, 2");
  graph += Along("softmax", "t", "s", 1) + Transpose("s", "y", "1, 0, 2");
  graph += Along("softmax", "x", "z", 0);
  ExpectSame(graph, /*separable=*/false);
}

}  // namespace
}  // namespace ulfd::engine
