// The interpreter of the proof, where a model's own graphs could mislead it.
// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "tools/convert/onnx/proof/interpreter.h"
#include "tools/convert/onnx/reader.h"

namespace ulfd::convert::reference {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kGoesOn[] = "input: 'go' output: 'on' op_type: 'Identity'";

// A Loop over `n` passes with this body, whose first output is "y".
OnnxModel Loop(const std::string& nodes, const std::string& outputs) {
  OnnxModel model;
  model.opset = 13;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
      absl::StrCat(
          "graph { name: 'g' input { name: 'n' } input { name: 'x' } output { name: 'y' }",
          " node { op_type: 'Loop' input: 'n' input: '' output: 'y' attribute {",
          " name: 'body' type: GRAPH g { name: 'b' input { name: 'i' } input { name: 'go' }", nodes,
          outputs, " } } } }"),
      &model.proto));
  return model;
}

absl::StatusOr<std::map<std::string, Array>> RunModel(const OnnxModel& model, int64_t passes,
                                                      const RunOptions& options) {
  const absl::StatusOr<Evaluator> evaluator = Evaluator::Make(model);
  EXPECT_TRUE(evaluator.ok()) << evaluator.status();
  return evaluator->Run({{"n", Ints(onnx::TensorProto::INT64, {}, {passes})},
                         {"x", Floats(onnx::TensorProto::FLOAT, {1}, {2})}},
                        options);
}

RunOptions Options() {
  RunOptions options;
  options.budget.deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  options.budget.max_elements = 1 << 20;
  return options;
}

const std::string kStep = absl::StrCat(  // y = i * x
    "node { ", kGoesOn, " } node { input: 'i' output: 'f' op_type: 'Cast' attribute { name: 'to' ",
    "type: INT i: 1 } } node { input: 'f' input: 'x' output: 'v' op_type: 'Mul' }");

TEST(OnnxReferenceTest, LoopsStackWhatTheirPassesMake) {
  const auto found =
      RunModel(Loop(kStep, " output { name: 'on' } output { name: 'v' }"), 3, Options());
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_THAT(found->at("y").dims, ElementsAre(3, 1));
  EXPECT_THAT(ValuesOf(found->at("y")), ElementsAre(0, 2, 4));
}

TEST(OnnxReferenceTest, AValueMayBeTheLoopsOutputTwice) {
  OnnxModel model = Loop(kStep, " output { name: 'on' } output { name: 'v' } output { name: 'v' }");
  model.proto.mutable_graph()->mutable_node(0)->add_output("again");
  model.proto.mutable_graph()->add_output()->set_name("again");
  const auto found = RunModel(model, 2, Options());
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_THAT(ValuesOf(found->at("y")), ElementsAre(0, 2));
  EXPECT_THAT(ValuesOf(found->at("again")), ElementsAre(0, 2));
}

TEST(OnnxReferenceTest, LoopsWithoutOutputsOrConditionsAreRefused) {
  EXPECT_THAT(RunModel(Loop(kStep, ""), 2, Options()).status().message(),
              HasSubstr("a loop of another form"));
  const std::string none =
      absl::StrCat(kStep, " node { output: 'empty' op_type: 'Constant' attribute { name: 'value' ",
                   "type: TENSOR t { dims: 0 data_type: 9 } } }");
  EXPECT_THAT(RunModel(Loop(none, " output { name: 'empty' } output { name: 'v' }"), 2, Options())
                  .status()
                  .message(),
              HasSubstr("a loop that ends early"));
}

TEST(OnnxReferenceTest, LoopsEndWithTheBudget) {
  RunOptions options = Options();
  options.budget.deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(50);
  const auto found =
      RunModel(Loop(absl::StrCat("node { ", kGoesOn, " }"), " output { name: 'on' }"),
               int64_t{1} << 62, options);
  EXPECT_TRUE(absl::IsResourceExhausted(found.status())) << found.status();
}

}  // namespace
}  // namespace ulfd::convert::reference
