// ONNX models converted and scored against PyTorch's values, and models that cannot be.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "base/file.h"
#include "base/load_scope.h"
#include "engine/runtime/model.h"
#include "engine/tensor/onednn.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "onnx/defs/schema.h"
#include "onnx/onnx_pb.h"
#include "tests/testing/convert_case.h"
#include "tests/testing/temp_dir.h"
#include "tools/convert/convert.h"
#include "tools/convert/onnx/model/graph.h"
#include "tools/convert/onnx/proof/proof.h"

namespace ulfd::convert {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::FloatNear;
using ::testing::HasSubstr;
using ::testing::IsNan;
using ::testing::Not;
using ::testing::Pointwise;
using ::testing::StartsWith;

class OnnxTest : public ::testing::Test {
 protected:
  // A model of operator set 13 from the text of its graph.
  static onnx::ModelProto Model(const std::string& graph) {
    onnx::ModelProto model;
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
        absl::StrCat("ir_version: 8 opset_import { version: 13 } graph { name: 'g' ", graph, " }"),
        &model));
    return model;
  }
  static std::string Tensor(const std::string& name, const std::string& type,
                            const std::vector<std::string>& dims) {
    std::string text =
        absl::StrCat("{ name: '", name, "' type { tensor_type { elem_type: ", type, " shape { ");
    for (const std::string& d : dims) {
      const bool number = d.find_first_not_of("-0123456789") == std::string::npos;
      absl::StrAppend(&text, "dim { dim_", number ? "value: " : "param: '", d, number ? "" : "'",
                      " } ");
    }
    return absl::StrCat(text, "} } } }");
  }
  static std::string X(const std::vector<std::string>& dims) {
    return absl::StrCat("input ", Tensor("x", "1", dims), " ");
  }
  static std::string Out(const std::vector<std::string>& dims) {
    return absl::StrCat("output ", Tensor("y", "1", dims), " ");
  }

  absl::StatusOr<Report> Convert(const onnx::ModelProto& model, const ConvertOptions& options = {},
                                 const std::string& out = "ok/1") {
    return ConvertOnnx(dir_.Write("m.onnx", model.SerializeAsString()), dir_.File(out), options);
  }
  // Converts; the error without the scratch directory's name.
  std::string Error(const onnx::ModelProto& model, const ConvertOptions& options = {}) {
    const auto report = Convert(model, options, "out/1");
    EXPECT_FALSE(!report.ok() && std::filesystem::exists(dir_.File("out")));
    return absl::StrReplaceAll(report.status().message(), {{dir_.path() + "/", ""}});
  }
  void ExpectCase(const std::string& name, const ConvertOptions& options = {}) {
    const std::string out = dir_.File(name + "/1");
    const auto report = ConvertOnnx(CaseModel(name), out, options);
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_TRUE(std::filesystem::exists(out + "/_SUCCESS"));
    EXPECT_EQ(*ReadFile(out + "/conversion_report.txt"), report->ToString());
    ulfd::testing::ExpectConvertCase(name, out);
  }

  static std::string CaseModel(const std::string& name) {
    return ulfd::testing::ConvertCaseDir(name) + "/model.onnx";
  }
  static std::vector<std::string> Cases() {
    std::vector<std::string> names;
    for (const auto& entry :
         std::filesystem::directory_iterator(ulfd::testing::ConvertCaseDir(""))) {
      const std::string name = entry.path().filename().string();
      if (absl::StartsWith(name, "onnx_")) names.push_back(name);
    }
    return names;
  }
  // PyTorch's attention (repeated queries, Concat, Linear, Where, Softmax, bmm) is one step of the
  // case's converted model.
  void ExpectAttention(const std::string& name) {
    engine::UseOneThread();
    const auto model = engine::Model::Load({.directory = dir_.File(name + "/1")});
    ASSERT_TRUE(model.ok()) << model.status();
    EXPECT_THAT((*model)->info().rewrites,
                Contains(Field(&engine::Rewrite::pass, std::string("attention"))));
    EXPECT_TRUE((*model)->info().row_separable);
  }

  TempDir dir_;
};

TEST_F(OnnxTest, DinGivesPyTorchsScores) {
  ExpectCase("onnx_din");
  ExpectAttention("onnx_din");
}
// A history of 14 items, without the 6 zeros that PyTorch was given to fill its 20 places; the
// mask, computed from the ids, knows.
TEST_F(OnnxTest, PaddingNeedNotBeSent) {
  const std::string folder = ulfd::testing::ConvertCaseDir("onnx_din"), out = dir_.File("din/1");
  const auto report = ConvertOnnx(CaseModel("onnx_din"), out, {});
  ASSERT_TRUE(report.ok()) << report.status();
  auto inputs = engine::ReadNpz(folder + "/inputs.npz");
  const auto expected = engine::ReadNpz(folder + "/expected.npz");
  ASSERT_TRUE(inputs.ok() && expected.ok());
  for (const char* name : {"hist_item.ids", "hist_category.ids"}) {
    engine::NpyArray& ids = inputs->at(name);
    const std::vector<int64_t> values = ids.ToInt64();
    const auto items =
        std::count_if(values.begin(), values.end(), [](int64_t v) { return v != 0; });
    ASSERT_LT(items, 20);
    ASSERT_THAT(std::vector<int64_t>(values.begin() + items, values.end()), Each(0));
    ids.dims[0] = items;
    ids.bytes.resize(static_cast<size_t>(items) * sizeof(int64_t));
  }
  const auto found = ulfd::testing::ScoreModel(out, *inputs);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_THAT(found->at("ctr").ToFloat32(),
              Pointwise(FloatNear(1e-5f), expected->at("ctr").ToFloat32()));
  EXPECT_THAT(report->user_inputs, Contains("hist_item: 20 ids of the user, looked up in "
                                            "hist_item_values.ulft, item.weight.ulft"));
  EXPECT_THAT(report->ad_inputs, Contains("item: one id per ad, looked up in item.weight.ulft"));
}
TEST_F(OnnxTest, DinExportedInBatchesIsSplitByFlags) {
  ExpectCase("onnx_din_batch", {.user_inputs = {"user", "hist_item", "hist_category"}});
  ExpectAttention("onnx_din_batch");
}
TEST_F(OnnxTest, TwoTowersGivePyTorchsScores) { ExpectCase("onnx_two_towers"); }
TEST_F(OnnxTest, BatchOfOneUserIsSplitByFlags) {
  ExpectCase("onnx_wide_deep", {.user_inputs = {"profile"}});
}

TEST_F(OnnxTest, GruCountsStepsOfZeros) { ExpectCase("onnx_sequence"); }
TEST_F(OnnxTest, ViewsCutsAndProducts) { ExpectCase("onnx_shapes"); }
TEST_F(OnnxTest, Formulas) { ExpectCase("onnx_formulas"); }
TEST_F(OnnxTest, OperatorsThatPyTorchDoesNotWrite) { ExpectCase("onnx_operators"); }
TEST_F(OnnxTest, OperatorSetsOldAndNew) {
  for (const char* name : {"onnx_set_9", "onnx_set_13", "onnx_set_17"}) ExpectCase(name);
}

TEST_F(OnnxTest, EveryOperatorHasACase) {
  std::set<std::string> used;
  for (const std::string& name : Cases()) {
    onnx::ModelProto model;
    ASSERT_TRUE(model.ParseFromString(*ReadFile(CaseModel(name))));
    for (const onnx::NodeProto& node : model.graph().node()) used.insert(node.op_type());
  }
  // random_onnx.py or ONNX's own node tests have these.
  constexpr absl::string_view kElsewhere =
      "Mod Sign Floor Ceil Selu Celu HardSwish Mish Erf Gelu Sin Cos Round Shrink IsNaN "
      "Sinh Cosh Asinh Acosh Atanh ThresholdedRelu ReduceMax ReduceMin ReduceProd LogSoftmax "
      "ReduceLogSumExp Einsum Tile CumSum Pad ArgMax ArgMin TopK OneHot GatherElements NonZero "
      "GatherND LSTM RNN IsInf Atan Asin Acos Tan Resize Upsample ConvTranspose "
      "NegativeLogLikelihoodLoss SoftmaxCrossEntropyLoss ScatterElements TreeEnsembleRegressor "
      "WhereRows RMSNormalization DFT";
  for (const absl::string_view op : absl::StrSplit(kElsewhere, ' ')) {
    used.emplace(op);
  }
  for (const auto table : {ElementwiseOnnxTypes(), MatrixOnnxTypes(), ShapeOnnxTypes(),
                           NormOnnxTypes(), LossOnnxTypes(), ImageOnnxTypes(), ResizeOnnxTypes(),
                           SelectOnnxTypes(), RecurrentOnnxTypes()}) {
    for (const OnnxType& type : table) EXPECT_TRUE(used.contains(type.op)) << type.op;
  }
}

// The only output that is no tensor.
TEST_F(OnnxTest, MapsOfLabelsAreTheMatrixOfTheirScores) {
  const auto report =
      Convert(Model(X({"ads", "2"}) +
                    "node { op_type: 'ZipMap' domain: 'ai.onnx.ml' input: 'x' output: 'y'"
                    "  attribute { name: 'classlabels_int64s' type: INTS ints: [0, 1] } }"
                    "output { name: 'y' type { sequence_type { elem_type { map_type { key_type: 7"
                    "  value_type { tensor_type { elem_type: 1 shape { } } } } } } } }"),
              {}, "maps/1");
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_THAT(report->outputs, ElementsAre("y [ads, 2]"));
}

// Labels of scikit-learn's classifiers; the labels are a list in the file or in the node.
TEST_F(OnnxTest, StringsBesideScoresAreLeftOut) {
  const std::string classes =
      "initializer { name: 'names' data_type: 8 dims: 2 string_data: ['no', 'yes'] }"
      "node { op_type: 'ArgMax' input: 'x' output: 'best'"
      "  attribute { name: 'axis' type: INT i: 1 } }"
      "node { op_type: 'ArrayFeatureExtractor' domain: 'ai.onnx.ml' input: ['names', 'best']"
      "  output: 'label' }";
  const std::string label =
      "output { name: 'label' type { tensor_type { elem_type: 8 shape { dim { } } } } }";
  const auto report = ConvertOnnx(
      dir_.Write("names.onnx", Model(X({"ads", "2"}) + label + Out({"ads", "2"}) + classes +
                                     "node { op_type: 'Relu' input: 'x' output: 'y' }")
                                   .SerializeAsString()),
      dir_.File("names/1"), {});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_THAT(report->outputs, ElementsAre("y [ads, 2]"));
  EXPECT_THAT(report->notes,
              Contains("output \"label\" is left out: it is strings, which ULF lacks"));
  EXPECT_THAT(Error(Model(X({"ads", "2"}) + label + classes)), HasSubstr("STRING"));
}

TEST_F(OnnxTest, EveryNodeWithoutConverterIsListed) {
  EXPECT_EQ(Error(Model(X({"ads", "4"}) + Out({"ads", "4"}) +
                        "node { name: 'n1' op_type: 'Bernoulli' input: 'x' output: 'a' }"
                        "node { name: 'n2' op_type: 'Relu' input: 'a' output: 'b' }"
                        "node { op_type: 'Bernoulli' input: 'x' output: 'c' }"
                        "node { name: 'n4' op_type: 'Add' input: 'b' input: 'c' output: 'y' }")),
            "m.onnx: 2 nodes cannot be converted; nothing was written\n"
            "  node \"n1\" (Bernoulli): no converter for this type\n"
            "  node \"c\" (Bernoulli): no converter for this type");
}

// A weight that is another in the converter's eyes than in the file's would be found here.
TEST_F(OnnxTest, WhatDiffersIsNotWritten) {
  const auto model = Model(X({"ads", "4"}) + Out({"ads", "4"}) +
                           "node { name: 'n' op_type: 'Tanh' input: 'x' output: 'y' }");
  const auto report = Convert(model, {}, "tanh/1");
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_THAT(report->notes, Contains(StartsWith("proved: ")));
  const auto loaded = engine::Model::Load({.directory = dir_.File("tanh/1")});
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  OnnxModel other{.proto = model, .opset = 13};
  const Translation translation{
      .inputs = {{.name = "x", .type = 1, .rows = "ads", .row_shape = {4}}},
      .bindings = {{.input = "x", .name = "x", .columns = {0, 1, 2, 3}}}};
  EXPECT_TRUE(Prove(other, translation, **loaded).ok());
  other.proto.mutable_graph()->mutable_node(0)->set_op_type("Sigmoid");
  const auto proof = Prove(other, translation, **loaded);
  EXPECT_EQ(proof.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(proof.status().message()),
              AllOf(StartsWith("output \"y\" with 3 ads differs by "),
                    HasSubstr("; the first node that differs is \"n\" (Sigmoid)")));
  // Columns that change places are another model, too.
  other = {.proto = model, .opset = 13};
  Translation swapped = translation;
  swapped.bindings[0].columns = {1, 0, 2, 3};
  EXPECT_EQ(Prove(other, swapped, **loaded).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(OnnxTest, WhatTheProofDoesNotKnowIsWrittenOnDemandOnly) {
  OnnxModel model{.proto = Model(X({"ads", "4"}) + Out({"ads", "4"}) +
                                 "node { name: 'n' op_type: 'Det' input: 'x' output: 'y' }"),
                  .opset = 13};
  const auto report =
      ConvertOnnx(dir_.Write("m.onnx", Model(X({"ads", "4"}) + Out({"ads", "4"}) +
                                             "node { op_type: 'Relu' input: 'x' output: 'y' }")
                                           .SerializeAsString()),
                  dir_.File("relu/1"), {.verify = false});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_THAT(report->notes, Contains("not proved: --no_verify"));
  const auto loaded = engine::Model::Load({.directory = dir_.File("relu/1")});
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  const auto proof = Prove(model,
                           {.inputs = {{.name = "x", .type = 1, .rows = "ads", .row_shape = {4}}},
                            .bindings = {{.input = "x", .name = "x", .columns = {0, 1, 2, 3}}}},
                           **loaded);
  EXPECT_EQ(proof.status(),
            absl::UnimplementedError("node \"n\" (Det): operator Det is not known to the proof"));
}

// What would take gigabytes or hours ends with an error that says so.
TEST_F(OnnxTest, ProofsAreBounded) {
  const std::string relu = "node { op_type: 'Relu' input: 'x' output: 'y' }";
  EXPECT_EQ(Error(Model(X({"ads", "200000000"}) + Out({"ads", "200000000"}) + relu)),
            "m.onnx: cannot be proved, and was not written: input \"x\" is more than the proof may "
            "hold; --no_verify writes it without a proof");
  const std::string pool =
      "node { name: 'p' op_type: 'AveragePool' input: 'x' output: 'y' attribute { name: "
      "'kernel_shape' type: INTS ints: [100000, 100000] } attribute { name: 'pads' type: INTS "
      "ints: [50000, 50000, 50000, 50000] } attribute { name: 'strides' type: INTS ints: [100000, "
      "100000] } }";
  EXPECT_NE(Error(Model(X({"ads", "1", "2", "2"}) + Out({"ads", "1", "1", "1"}) + pool)), "");
}

// Newer than ONNX's library here: operator set 21, format 10, a function of the exporter's.
// Loops in loops double the nodes, functions in functions repeat a constant, and a shape of some
// bytes asks for as large a constant as it says.
TEST_F(OnnxTest, WhatAModelMakesIsBounded) {
  std::string loop = "node { op_type: 'Identity' input: 's9' output: 't9' } ";
  for (int depth = 9; depth-- > 0;) {
    const std::string d = absl::StrCat(depth + 1), outer = absl::StrCat(depth);
    loop =
        absl::StrCat("node { op_type: 'Loop' input: ['many', 'on', 's", outer, "'] output: 't",
                     outer, "' attribute { name: 'body' type: GRAPH g { name: 'b' ", loop,
                     "node { op_type: 'Identity' input: 'c", d, "' output: 'e", d,
                     "' } input { name: 'p", d, "' } input { name: 'c", d, "' } input { name: 's",
                     d, "' } output { name: 'e", d, "' } output { name: 't", d, "' } } } } ");
  }
  const std::string constants =
      "initializer { name: 'many' data_type: 7 int64_data: 6 } "
      "initializer { name: 'on' data_type: 9 int32_data: 1 } "
      "initializer { name: 'size' dims: 2 data_type: 7 int64_data: [8192, 8192] } "
      "node { op_type: 'Identity' input: 'x' output: 's0' } ";
  const std::string ends = absl::StrCat(X({"ads", "4"}), Out({"ads", "4"}));
  const LoadScope scope({});
  EXPECT_THAT(Error(Model(absl::StrCat(constants, loop,
                                       "node { op_type: 'Relu' input: 't0' output: 'y' } ", ends))),
              AllOf(HasSubstr("node \"t0/"), HasSubstr("(Loop): the nodes and constants")));
  EXPECT_THAT(
      Error(Model(absl::StrCat(constants,
                               "node { op_type: 'ConstantOfShape' input: 'size' output: 'zeros' } "
                               "node { op_type: 'EyeLike' input: 'zeros' output: 'eye' } "
                               "node { op_type: 'ReduceSum' input: 'eye' output: 'sum' } "
                               "node { op_type: 'Add' input: ['s0', 'sum'] output: 'y' } ",
                               ends))),
      HasSubstr("node \"eye\" (EyeLike): the nodes and constants"));
  onnx::ModelProto nested =
      Model(absl::StrCat("node { op_type: 'f5' domain: 'f' input: 'x' output: 'y' } ", ends));
  for (int depth = 0; depth < 6; ++depth) {
    std::string body =
        "node { op_type: 'Constant' output: 'c' attribute { name: 'value' type: "
        "TENSOR t { dims: 100000 data_type: 1 } } } "
        "node { op_type: 'Relu' input: 'a' output: 'b9' } ";
    for (int call = 0; call < 10 && depth > 0; ++call) {
      if (call == 0) body.clear();
      absl::StrAppend(&body, "node { op_type: 'f", depth - 1, "' domain: 'f' input: '",
                      call == 0 ? "a" : absl::StrCat("b", call - 1), "' output: 'b", call, "' } ");
    }
    ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(
        absl::StrCat("name: 'f", depth, "' domain: 'f' input: 'a' output: 'b9' ", body),
        nested.add_functions()));
  }
  nested.mutable_functions(0)->mutable_node(0)->mutable_attribute(0)->mutable_t()->set_raw_data(
      std::string(400000, '\0'));
  EXPECT_THAT(Error(nested), HasSubstr("function \"f0\": the nodes and constants"));
  EXPECT_LT(scope.peak_bytes(), int64_t{400} << 20);
}

// x and -x summed: what is left is what rounding made of sums in some order.
TEST_F(OnnxTest, SumsThatCancelAreProved) {
  const auto report = Convert(
      Model(absl::StrCat(X({"ads", "100"}), Out({"ads", "1"}),
                         "initializer { name: 'ten' data_type: 1 float_data: 10 } "
                         "initializer { name: 'one' data_type: 7 dims: 1 int64_data: 1 } "
                         "node { op_type: 'Mul' input: ['x', 'ten'] output: 'a' } "
                         "node { op_type: 'Neg' input: 'a' output: 'b' } "
                         "node { op_type: 'Concat' input: ['a', 'b'] output: 'c' attribute { name: "
                         "'axis' type: INT i: 1 } } "
                         "node { op_type: 'ReduceSum' input: ['c', 'one'] output: 'y' }")));
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_THAT(report->notes, Contains(StartsWith("proved: ")));
}

TEST_F(OnnxTest, UsersPlaceChoosesAmongWhatAdsHave) {
  const auto report =
      Convert(Model(absl::StrCat(X({"batch", "3"}), "input ", Tensor("d", "7", {"batch", "1"}),
                                 Out({"batch", "1"}),
                                 "node { op_type: 'GatherElements' input: ['x', 'd'] output: 'y' "
                                 "attribute { name: 'axis' type: INT i: 1 } }")),
              {.user_inputs = {"d"}});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_THAT(report->notes, Contains(StartsWith("proved: ")));
}

TEST_F(OnnxTest, NewerModels) {
  const std::string function =
      "functions { name: 'twice' domain: 'pkg.onnxscript' input: 'a' output: 'b' "
      "opset_import { version: 21 } node { op_type: 'Add' input: 'a' input: 'a' output: 't' } "
      "node { op_type: 'Identity' input: 't' output: 'b' } }";
  const auto model = [&](const std::string& nodes, const std::string& functions) {
    onnx::ModelProto proto;
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
        absl::StrCat("ir_version: 10 opset_import { version: 21 } "
                     "opset_import { domain: 'pkg.onnxscript' version: 1 } ",
                     functions, " graph { name: 'g' ", X({"ads", "5"}), Out({"ads", "1"}),
                     "initializer { name: 'axes' data_type: 7 dims: 1 int64_data: 1 } ", nodes,
                     " }"),
        &proto));
    return proto;
  };
  const std::string call =
      "node { name: 'f' op_type: 'twice' domain: 'pkg.onnxscript' input: 'x' output: 'd' } ";
  const std::string mean = "node { op_type: 'ReduceMean' input: 'd' input: 'axes' output: 'y' }";
  const std::string unknown =
      "m.onnx: 1 node cannot be converted; nothing was written\n"
      "  node \"f\" (twice): no converter for domain pkg.onnxscript";
  EXPECT_EQ(Error(model(call + mean, "")), unknown);
  EXPECT_EQ(Error(model(mean, "")),
            "m.onnx: node \"y\" (ReduceMean): reads \"d\", which nothing before it makes");
  EXPECT_EQ(Error(model(call + "node { op_type: 'Add' input: 'd' output: 'y' }", function)),
            "m.onnx: node \"y\" (Add): 1 inputs and 1 outputs, want at least 2 and 1");
  EXPECT_EQ(Error(model("node { op_type: 'TopK' input: 'x' input: 'axes' output: 'y' }", "")),
            "m.onnx: node \"y\" (TopK): 2 inputs and 1 outputs, want at least 2 and 2");
  const std::string endless =
      absl::StrReplaceAll(function, {{"op_type: 'Add' input: 'a' input: 'a'",
                                      "op_type: 'twice' domain: 'pkg.onnxscript' input: 'a'"}});
  EXPECT_THAT(Error(model(call + mean, endless)), HasSubstr("calls itself, or is nested too deep"));
  EXPECT_EQ(
      Error(model(call + "node { op_type: 'Constant' output: 'ones' attribute { name: "
                         "'value_ints' type: INTS ints: [1, 1] } } node { op_type: 'Unsqueeze' "
                         "input: 'd' input: 'ones' output: 'y' }",
                  function)),
      "m.onnx: 1 node cannot be converted; nothing was written\n"
      "  node \"y\" (Unsqueeze): an axis is there twice");
  auto newest = model(call + mean, function);
  newest.set_ir_version(15);
  EXPECT_EQ(Error(newest), "m.onnx: format version 15, want at most 14");
  EXPECT_EQ(Error(model(call + mean, function)), "");
}

TEST_F(OnnxTest, AttributesOfOtherTypesAreRefused) {
  const auto error = [&](const char* node) {
    return Error(Model(absl::StrCat(X({"ads", "4"}), Out({"ads", "4"}), node)));
  };
  EXPECT_EQ(error("node { op_type: 'LeakyRelu' input: 'x' output: 'y' "
                  "attribute { name: 'alpha' type: INT i: 1 } }"),
            "m.onnx: node \"y\" (LeakyRelu): attribute alpha is of type INT, want FLOAT");
  EXPECT_EQ(error("node { op_type: 'ReduceMean' input: 'x' output: 'y' "
                  "attribute { name: 'axes' type: INT i: 1 } }"),
            "m.onnx: node \"y\" (ReduceMean): attribute axes is of type INT, want INTS");
  EXPECT_EQ(error("node { op_type: 'Scaler' domain: 'ai.onnx.ml' input: 'x' output: 'y' "
                  "attribute { name: 'offset' type: INTS ints: [1, 2, 3, 4] } }"),
            "m.onnx: node \"y\" (Scaler): attribute offset is of type INTS, want FLOATS");
  // Of operators that ONNX's library does not know.
  EXPECT_EQ(error("node { op_type: 'Gelu' input: 'x' output: 'y' "
                  "attribute { name: 'approximate' type: INT i: 1 } }"),
            "m.onnx: node \"y\" (Gelu): attribute approximate is of type INT, want STRING");
  EXPECT_EQ(error("node { op_type: 'QuickGelu' domain: 'com.microsoft' input: 'x' output: 'y' "
                  "attribute { name: 'alpha' type: INT i: 1 } }"),
            "m.onnx: node \"y\" (QuickGelu): attribute alpha is of type INT, want FLOAT");
}

// As exporters write them: branches that call functions, attributes that a call leaves out or that
// have a default, inputs that are given back, and equal names in several branches.
TEST_F(OnnxTest, FunctionsWithBranches) {
  const auto branch = [](const char* name, const char* input, const char* op, const char* domain) {
    return absl::StrCat("attribute { name: '", name, "' type: GRAPH g { name: '", name,
                        "' node { op_type: '", op, "' domain: '", domain, "' input: '", input,
                        "' output: 'own' } output { name: 'own' } } } ");
  };
  onnx::ModelProto model;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(
      absl::StrCat(
          "ir_version: 8 opset_import { version: 18 } opset_import { domain: 'f' version: 1 } "
          "functions { name: 'scaled' domain: 'f' input: 'own' output: 'out' opset_import { "
          "version: 18 } attribute: 'alpha' "
          "node { op_type: 'LeakyRelu' input: 'own' output: 'out' attribute { name: 'alpha' type: "
          "FLOAT ref_attr_name: 'alpha' } } } "
          "functions { name: 'guarded' domain: 'f' input: 'a' output: 'b' output: 'a' "
          "opset_import { version: 18 } opset_import { domain: 'f' version: 1 } attribute: 'axis' "
          "node { op_type: 'Constant' output: 'c' attribute { name: 'value' type: TENSOR t { "
          "data_type: 9 int32_data: 1 } } } "
          "node { op_type: 'If' input: 'c' output: 'first' ",
          branch("then_branch", "a", "scaled", "f"), branch("else_branch", "a", "Neg", ""),
          "} node { op_type: 'If' input: 'c' output: 'second' ",
          branch("then_branch", "first", "Abs", ""), branch("else_branch", "a", "Neg", ""),
          "} node { op_type: 'Softmax' input: 'second' output: 'b' attribute { name: 'axis' type: "
          "INT ref_attr_name: 'axis' } } } graph { name: 'g' ",
          X({"ads", "2"}), Out({"ads", "2"}),
          "node { op_type: 'guarded' domain: 'f' input: 'x' output: 's' output: 'same' } "
          "node { op_type: 'Add' input: 's' input: 'same' output: 'y' } }"),
      &model));
  onnx::AttributeProto alpha;
  alpha.set_name("alpha");
  alpha.set_type(onnx::AttributeProto::FLOAT);
  alpha.set_f(0.5f);
  model.mutable_functions(0)->mutable_unknown_fields()->AddLengthDelimited(
      11, alpha.SerializeAsString());
  const auto report = Convert(model);
  ASSERT_TRUE(report.ok()) << report.status();
  const std::vector<float> x = {-2, 3};
  const auto found = ulfd::testing::ScoreModel(
      dir_.File("ok/1"), {{"x", engine::NpyArray::FromFloat32({1, 2}, x.data())}});
  ASSERT_TRUE(found.ok()) << found.status();
  const float e = std::exp(-2.0f);  // |0.5 * -2| is 1, beside 3.
  EXPECT_THAT(found->at("y").ToFloat32(),
              ElementsAre(FloatNear(e / (1 + e) - 2, 1e-6), FloatNear(1 / (1 + e) + 3, 1e-6)));
}

TEST_F(OnnxTest, WhatAcrossRowsCannotBe) {
  EXPECT_EQ(
      Error(Model(X({"ads", "4"}) + Out({"ads", "4"}) +
                  "node { name: 'n' op_type: 'ArgMax' input: 'x' output: 'y'"
                  " attribute { name: 'axis' type: INT i: 0 } }")),
      "m.onnx: 1 node cannot be converted; nothing was written\n"
      "  node \"n\" (ArgMax): runs along axis 0 of shape [ads, 4], across rows of the request");
}

TEST_F(OnnxTest, ConvolutionsWithoutWeightsAreRefused) {
  for (const char* dims : {"dims: 0 dims: 3 dims: 2", "dims: 2 dims: 0 dims: 2"}) {
    for (const int stride : {1, 2}) {
      EXPECT_THAT(
          Error(Model(absl::StrCat(
              X({"ads", "3", "4"}), Out({"ads", "2", "2"}), "initializer { name: 'w' data_type: 1 ",
              dims, " } ", "node { op_type: 'Conv' input: ['x', 'w'] output: 'y' ",
              "attribute { name: 'strides' type: INTS ints: ", stride, " } }"))),
          AllOf(HasSubstr("(Conv): a weight of shape ["), HasSubstr("for an input of shape")));
    }
  }
}

TEST_F(OnnxTest, TheScoresOfTheExampleAreNone) {
  EXPECT_EQ(Error(Model(X({"ads", "4"}) + Out({"3", "2"}) +
                        "initializer { name: 'm' data_type: 1 dims: 3 dims: 2"
                        " float_data: [1, 2, 3, 4, 5, 6] }"
                        "node { op_type: 'Relu' input: 'm' output: 'y' }")),
            "m.onnx: output \"y\" is a constant, as all outputs are: what the example of the "
            "export gave");
  EXPECT_EQ(Error(Model(Out({"ads"}) +
                        "initializer { name: 'm' data_type: 1 dims: 3 float_data: [1, 2, 3] }"
                        "node { op_type: 'Relu' input: 'm' output: 'y' }")),
            "m.onnx: output \"y\" is a constant, as all outputs are: what the example of the "
            "export gave");
}

// Each ad less the mean of all: a request may not be cut.
TEST_F(OnnxTest, SumsAcrossRowsScoreRequestsWhole) {
  const auto report =
      Convert(Model(X({"ads", "2"}) + Out({"ads", "2"}) +
                    "node { op_type: 'ReduceMean' input: 'x' output: 'm' attribute { name: "
                    "'axes' type: INTS ints: 0 } } "
                    "node { op_type: 'Sub' input: ['x', 'm'] output: 'y' }"));
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->rows[0].note, "across rows: requests are scored whole");
  const auto model = engine::Model::Load({.directory = dir_.File("ok/1")});
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_FALSE((*model)->info().row_separable);
  const std::vector<float> x = {1, 2, 3, 4, 8, 0};
  const auto found = ulfd::testing::ScoreModel(
      dir_.File("ok/1"), {{"x", engine::NpyArray::FromFloat32({3, 2}, x.data())}});
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_THAT(found->at("y").ToFloat32(), ElementsAre(-3, 0, -1, 2, 4, -2));
}

// nn.MultiheadAttention's padding mask, of the user's history.
TEST_F(OnnxTest, UsersValuesAreMergedWithHeadsPerAd) {
  const std::string h = absl::StrCat("input ", Tensor("h", "1", {"batch", "2", "3"}), " ");
  const auto report = Convert(
      Model(X({"batch", "2", "3"}) + h + Out({"rows", "3"}) +
            "initializer { name: 'zero' data_type: 7 int64_data: 0 } "
            "initializer { name: 'two' data_type: 7 dims: 1 int64_data: 2 } "
            "initializer { name: 'three' data_type: 7 dims: 1 int64_data: 3 } "
            "node { op_type: 'Shape' input: 'x' output: 's' } "
            "node { op_type: 'Gather' input: ['s', 'zero'] output: 'n' } "
            "node { op_type: 'Mul' input: ['n', 'two'] output: 'rows' } "
            "node { op_type: 'Concat' input: ['rows', 'three'] output: 'to' attribute { name: "
            "'axis' type: INT i: 0 } } "
            "node { op_type: 'Reshape' input: ['x', 'to'] output: 'a' } "
            "node { op_type: 'Reshape' input: ['h', 'to'] output: 'b' } "
            "node { op_type: 'Mul' input: ['a', 'b'] output: 'y' }"),
      {.user_inputs = {"h"}});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_THAT(report->user_inputs, ElementsAre("h [users, 2, 3] float32"));
  EXPECT_THAT(report->notes, Contains(StartsWith("proved: ")));
}

// A history that is merged with its items by -1, as wide as the ads' items are.
TEST_F(OnnxTest, UsersMergedRowsAreRepeatedPerAd) {
  const std::string h = absl::StrCat("input ", Tensor("h", "1", {"batch", "2", "3"}), " ");
  const auto report =
      Convert(Model(X({"batch", "2", "3"}) + h + Out({"rows", "3"}) +
                    "initializer { name: 'to' data_type: 7 dims: 2 int64_data: -1 int64_data: 3 } "
                    "node { op_type: 'Reshape' input: ['x', 'to'] output: 'a' } "
                    "node { op_type: 'Reshape' input: ['h', 'to'] output: 'b' } "
                    "node { op_type: 'Mul' input: ['a', 'b'] output: 'y' }"),
              {.user_inputs = {"h"}});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_THAT(report->user_inputs, ElementsAre("h [users, 2, 3] float32"));
  EXPECT_THAT(report->notes, Contains(StartsWith("proved: ")));
}

// x.unfold(1, ..): windows of steps, each turned and then all turned back.
TEST_F(OnnxTest, TurnedPartsAreJoinedAsTheyLie) {
  const std::string turned =
      "attribute { name: 'perm' type: INTS ints: [0, 2, 1] } } node { op_type: 'Unsqueeze' ";
  const auto report = Convert(
      Model(X({"batch", "2", "3"}) + Out({"batch", "2", "2", "3"}) +
            "initializer { name: 'one' data_type: 7 dims: 1 int64_data: 1 } "
            "node { op_type: 'Sigmoid' input: 'x' output: 's' } "
            "node { op_type: 'Transpose' input: 'x' output: 'a' " +
            turned +
            "input: ['a', 'one'] output: 'b' } "
            "node { op_type: 'Transpose' input: 's' output: 'c' " +
            turned +
            "input: ['c', 'one'] output: 'd' } "
            "node { op_type: 'Concat' input: ['b', 'd'] output: 'e' attribute { name: 'axis' type: "
            "INT i: 1 } } "
            "node { op_type: 'Transpose' input: 'e' output: 'y' attribute { name: 'perm' type: "
            "INTS ints: [0, 1, 3, 2] } }"));
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_THAT(report->notes, Contains(StartsWith("proved: ")));
  EXPECT_THAT(report->ToString(), Not(HasSubstr("transpose_layer")));
}

// nn.MultiheadAttention: rows and heads are one dimension, as many as the query has, behind the
// steps; the keys are the user's, beside a step of zeros per ad.
TEST_F(OnnxTest, UsersKeysMeetAdsMergedWithHeads) {
  const std::string h = absl::StrCat("input ", Tensor("h", "1", {"batch", "5", "6"}), " ");
  const std::string sizes =
      "initializer { name: 'front' data_type: 7 dims: 1 int64_data: 0 } "
      "initializer { name: 'one' data_type: 7 dims: 1 int64_data: 1 } "
      "initializer { name: 'two' data_type: 7 dims: 1 int64_data: 2 } "
      "initializer { name: 'three' data_type: 7 dims: 1 int64_data: 3 } "
      "initializer { name: 'five' data_type: 7 dims: 1 int64_data: 5 } "
      "node { op_type: 'Shape' input: 'x' output: 's' } "
      "node { op_type: 'Gather' input: ['s', 'front'] output: 'rows' } "
      "node { op_type: 'Mul' input: ['rows', 'two'] output: 'both' } ";
  const auto concat = [](const char* inputs, const char* output, int axis) {
    return absl::StrCat("node { op_type: 'Concat' input: [", inputs, "] output: '", output,
                        "' attribute { name: 'axis' type: INT i: ", axis, " } } ");
  };
  const auto turn = [](const char* input, const char* output, const char* perm) {
    return absl::StrCat("node { op_type: 'Transpose' input: '", input, "' output: '", output,
                        "' attribute { name: 'perm' type: INTS ints: [", perm, "] } } ");
  };
  const std::string nodes = absl::StrCat(
      turn("x", "q0", "1, 0, 2"), turn("h", "k0", "1, 0, 2"),
      concat("'one', 'both', 'three'", "q1", 0), concat("'five', 'both', 'three'", "k1", 0),
      concat("'both', 'one', 'three'", "z1", 0),
      "node { op_type: 'Reshape' input: ['q0', 'q1'] output: 'q2' } "
      "node { op_type: 'Reshape' input: ['k0', 'k1'] output: 'k2' } "
      "node { op_type: 'ConstantOfShape' input: 'z1' output: 'z' } ",
      turn("q2", "q", "1, 0, 2"), turn("k2", "v", "1, 0, 2"), turn("v", "k", "0, 2, 1"),
      "node { op_type: 'MatMul' input: ['q', 'k'] output: 'scores' } ",
      concat("'v', 'z'", "values", 1), concat("'scores', 'scores'", "twice", 2),
      concat("'values', 'v'", "more", 1),
      "node { op_type: 'Slice' input: ['twice', 'front', 'five', 'two'] output: 'five_scores' } "
      "node { op_type: 'MatMul' input: ['five_scores', 'v'] output: 'y0' } "
      "node { op_type: 'ReduceSum' input: ['more', 'one'] output: 'sum' } "
      "node { op_type: 'Add' input: ['y0', 'sum'] output: 'y' } ");
  const auto report =
      Convert(Model(X({"batch", "1", "6"}) + h + Out({"n", "1", "3"}) + sizes + nodes),
              {.user_inputs = {"h"}});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_THAT(report->user_inputs, ElementsAre("h [users, 5, 6] float32"));
  EXPECT_THAT(report->notes, Contains(StartsWith("proved: ")));
}

// Integers may be ids or times; to tell, each node looks at some of those before it, not at all.
TEST_F(OnnxTest, LongChainsOfIntegers) {
  constexpr int kNodes = 8000;
  for (const char* op : {"Neg", "Abs"}) {
    std::string nodes;
    for (int i = 0; i < kNodes; ++i) {
      absl::StrAppend(&nodes, "node { op_type: '", op, "' input: 'v", i, "' output: 'v", i + 1,
                      "' } ");
    }
    const auto report = Convert(
        Model(absl::StrCat("input ", Tensor("v0", "7", {"ads", "3"}), " ", Out({"ads", "3"}),
                           "initializer { name: 'day' data_type: 7 dims: 1 int64_data: 24 } ",
                           nodes, "node { op_type: 'Mod' input: ['v", kNodes,
                           "', 'day'] output: 'm' } node { op_type: 'Cast' input: 'm' output: 'y' "
                           "attribute { name: 'to' type: INT i: 1 } }")),
        {}, absl::StrCat(op, "/1"));
    EXPECT_TRUE(report.ok()) << op << ": " << report.status();
  }
}

TEST_F(OnnxTest, IntegersOfAnyWidth) {
  const auto remainder = [](const char* type) {
    return Model(absl::StrCat(
        "input ", Tensor("x", type, {"ads", "3"}), " ", Out({"ads", "3"}),
        "initializer { name: 'seven' data_type: 7 dims: 1 int64_data: 7 } "
        "node { op_type: 'Cast' input: 'x' output: 'i' attribute { name: 'to' type: INT i: 7 } } "
        "node { op_type: 'Mod' input: 'i' input: 'seven' output: 'm' } "
        "node { op_type: 'Cast' input: 'm' output: 'y' attribute { name: 'to' type: INT i: 1 } }"));
  };
  for (const char* type : {"2", "3", "4", "5"}) {  // 8 and 16 bits.
    const auto report = Convert(remainder(type), {}, absl::StrCat(type, "/1"));
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_THAT(report->ad_inputs, ElementsAre("x [ads, 3] float32; whole numbers"));
  }
  EXPECT_THAT(Error(Model("input " + Tensor("x", "2", {"ads", "3"}) + " output " +
                          Tensor("y", "2", {"ads", "3"}) +
                          " node { op_type: 'Add' input: 'x' input: 'x' output: 'y' }")),
              HasSubstr("which start over"));
  for (const char* type : {"6", "7"}) {  // INT32, INT64.
    const auto report = Convert(remainder(type), {}, absl::StrCat(type, "/1"));
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_THAT(report->ad_inputs, ElementsAre("x [ads, 3] int64"));
  }
  for (const char* type : {"12", "13"}) {
    const auto report = Convert(remainder(type), {}, absl::StrCat(type, "/1"));
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_THAT(report->notes, Contains(HasSubstr("\"x\" has integers of 16777216 or more")));
    const auto model = engine::Model::Load({.directory = dir_.File(absl::StrCat(type, "/1"))});
    ASSERT_TRUE(model.ok()) << model.status();
    engine::Workspace workspace;
    engine::RunResult result;
    for (float value : {16777215.0f, 16777216.0f, -16777216.0f, 0.5f, NAN}) {
      std::vector<float> x = {0, 1, value};
      const engine::NamedTensor input = {"x", {.dims = {1, 3}, .data = x.data()}};
      const absl::Status status = (*model)->Run({input}, {}, workspace, result);
      if (value == 16777215.0f) {
        ASSERT_TRUE(status.ok()) << status;
        EXPECT_EQ(result.outputs[0].f32()[2], 16777215 % 7);
      } else {
        EXPECT_THAT(status.message(), HasSubstr("element 2 is"));
      }
    }
  }
}

TEST_F(OnnxTest, NumbersOfRowsAreValues) {
  const auto report = Convert(Model(X({"ads", "2"}) + "output " + Tensor("y", "7", {"2"}) +
                                    "node { op_type: 'Shape' input: 'x' output: 'y' }"));
  ASSERT_TRUE(report.ok()) << report.status();
  const std::vector<float> x = {1, NAN, 3, 4, INFINITY, 0};
  const auto found = ulfd::testing::ScoreModel(
      dir_.File("ok/1"), {{"x", engine::NpyArray::FromFloat32({3, 2}, x.data())}});
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_THAT(found->at("y").ToFloat32(), ElementsAre(3, 2));
}

// PyTorch's squeeze() of [ads, 1, 2] drops the row of a single ad, which the product then lacks.
TEST_F(OnnxTest, ModelsThatFailWithOneAdAreProvedWithMore) {
  const std::string graph =
      "initializer { name: 'w' data_type: 1 dims: 2 dims: 1 float_data: [2, 3] }"
      "node { op_type: 'Squeeze' input: 'x' output: 's' }"
      "node { op_type: 'Gemm' input: 's' input: 'w' output: 'y' }";
  const auto report = Convert(Model(X({"ads", "1", "2"}) + Out({"ads", "1"}) + graph));
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_THAT(report->notes, Contains(AllOf(HasSubstr("(3, 7, 2, 5, 19 ads)"),
                                            HasSubstr("it fails with 1 ad itself"))));
  const std::vector<float> x = {1, 2};
  const auto found = ulfd::testing::ScoreModel(
      dir_.File("ok/1"), {{"x", engine::NpyArray::FromFloat32({1, 1, 2}, x.data())}});
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_THAT(found->at("y").ToFloat32(), ElementsAre(8));
  // With axes it does not fail.
  const std::string other =
      "initializer { name: 'w' data_type: 1 dims: 2 dims: 1 float_data: [2, 3] }"
      "initializer { name: 'n' data_type: 7 dims: 1 int64_data: [1] }"
      "node { op_type: 'Squeeze' input: 'x' input: 'n' output: 's' }"
      "node { op_type: 'Gemm' input: 's' input: 'w' output: 'y' }";
  const std::string plain = dir_.Write(
      "p.onnx", Model(X({"ads", "1", "2"}) + Out({"ads", "1"}) + other).SerializeAsString());
  const auto proved = ConvertOnnx(plain, dir_.File("plain/1"), {});
  ASSERT_TRUE(proved.ok()) << proved.status();
  EXPECT_THAT(proved->notes, Contains(HasSubstr("(3, 1, 7, 2, 5, 19 ads)")));
}

// x[arange(rows), argmax(s, 1)], as PyTorch exports it.
TEST_F(OnnxTest, EveryRowPicksAStep) {
  const std::string begin =
      X({"ads", "3", "2"}) + "input " + Tensor("s", "1", {"ads", "3"}) + Out({"ads", "2"}) +
      "initializer { name: '0' data_type: 7 int64_data: [0] }"
      "initializer { name: '1' data_type: 7 int64_data: [1] }"
      "initializer { name: '3' data_type: 7 int64_data: [3] }"
      "node { op_type: 'ArgMax' input: 's' output: 'p' attribute { name: 'axis' type: INT i: 1 } "
      "attribute { name: 'keepdims' type: INT i: 0 } }"
      "node { op_type: 'Shape' input: 'x' output: 'n' }"
      "node { op_type: 'Gather' input: 'n' input: '0' output: 'rows' }"
      "node { op_type: 'Range' input: '0' input: 'rows' input: '1' output: 'r' }";
  const std::string pick =
      "node { op_type: 'Add' input: 'p' input: 'm' output: 'a' }"
      "node { op_type: 'Flatten' input: 'x' output: 'f' attribute { name: 'axis' type: INT i: 2 } }"
      "node { op_type: 'Gather' input: 'f' input: 'a' output: 'y' }";
  const auto report =
      Convert(Model(begin + "node { op_type: 'Mul' input: 'r' input: '3' output: 'm' }" + pick));
  ASSERT_TRUE(report.ok()) << report.status();
  const std::vector<float> x = {1, 2, 3, 4, NAN, 6, 7, 8, 9, 10, 11, 12}, s = {0, 1, 0, 5, 1, 2};
  const auto found = ulfd::testing::ScoreModel(
      dir_.File("ok/1"), {{"x", engine::NpyArray::FromFloat32({2, 3, 2}, x.data())},
                          {"s", engine::NpyArray::FromFloat32({2, 3}, s.data())}});
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_THAT(found->at("y").ToFloat32(), ElementsAre(3, 4, 7, 8));
  // Where no step is the best, the row's first, as in numpy and PyTorch.
  const std::vector<float> none = {NAN, NAN, NAN, 5, 1, 2};
  const auto picked = ulfd::testing::ScoreModel(
      dir_.File("ok/1"), {{"x", engine::NpyArray::FromFloat32({2, 3, 2}, x.data())},
                          {"s", engine::NpyArray::FromFloat32({2, 3}, none.data())}});
  ASSERT_TRUE(picked.ok()) << picked.status();
  EXPECT_THAT(picked->at("y").ToFloat32(), ElementsAre(1, 2, 7, 8));
  // A place below 0 is one of the row from its end, as in PyTorch.
  const std::string before = dir_.Write(
      "b.onnx", Model(begin + "node { op_type: 'Sub' input: 'p' input: '1' output: 'q' }" +
                      "node { op_type: 'Mul' input: 'r' input: '3' output: 'm' }" +
                      absl::StrReplaceAll(pick, {{"input: 'p'", "input: 'q'"}}))
                    .SerializeAsString());
  ASSERT_TRUE(ConvertOnnx(before, dir_.File("before/1"), {.verify = false}).ok());
  const std::vector<float> best = {9, 0, 1, 5, 1, 2};
  const auto last = ulfd::testing::ScoreModel(
      dir_.File("before/1"), {{"x", engine::NpyArray::FromFloat32({2, 3, 2}, x.data())},
                              {"s", engine::NpyArray::FromFloat32({2, 3}, best.data())}});
  ASSERT_TRUE(last.ok()) << last.status();
  EXPECT_THAT(last->at("y").ToFloat32(), ElementsAre(IsNan(), 6, 11, 12));
  // The steps of other rows, and what is no place.
  EXPECT_THAT(
      Error(Model(begin + "node { op_type: 'Mul' input: 'r' input: '1' output: 'm' }" + pick)),
      HasSubstr("(Gather): numbers of rows, times 1, of shape [3*ads, 2]"));
  EXPECT_THAT(Error(Model(begin + "node { op_type: 'Neg' input: 'r' output: 'm' }" + pick)),
              HasSubstr("(Gather): indices that are computed"));
  EXPECT_THAT(Error(Model(begin +
                          "initializer { name: 'c' data_type: 9 dims: 1 int32_data: [1] }"
                          "node { op_type: 'Where' input: 'c' input: 'p' input: 'r' output: 'm' }" +
                          pick)),
              HasSubstr("(Where): computes with numbers of rows"));
}

// Rows sorted by length have an order as their second output, which need not be there.
TEST_F(OnnxTest, SortedRowsWithoutTheirOrder) {
  const std::string graph = absl::StrCat(
      X({"ads"}), Out({"ads"}), "node { input: 'x' output: 'n' op_type: 'Shape' }",
      "node { input: 'x' input: 'n' output: 'v' op_type: 'TopK' attribute { name: 'axis' type: INT "
      "i: 0 } } node { input: 'x' output: 'i' op_type: 'Cast' attribute { name: 'to' type: INT i: "
      "7 "
      "} } node { input: 'x' input: 'i' input: 'v' output: 'y' op_type: 'ScatterElements' }");
  auto model = Model(graph);
  model.set_ir_version(10);  // Not checked by libonnx.
  model.mutable_opset_import(0)->set_version(20);
  EXPECT_THAT(Error(model), HasSubstr("m.onnx: "));
}

TEST_F(OnnxTest, DiagonalsAreConstants) {
  const std::string graph =
      "initializer { name: 'm' data_type: 1 dims: 2 dims: 3 float_data: [5, 5, 5, 5, 5, 5] }"
      "node { op_type: 'EyeLike' input: 'm' output: 'e' attribute { name: 'k' type: INT i: 1 } }"
      "node { op_type: 'MatMul' input: 'x' input: 'e' output: 'y' }";
  const auto report = Convert(Model(X({"ads", "2"}) + Out({"ads", "3"}) + graph));
  ASSERT_TRUE(report.ok()) << report.status();
  const std::vector<float> x = {4, 7};
  const auto found = ulfd::testing::ScoreModel(
      dir_.File("ok/1"), {{"x", engine::NpyArray::FromFloat32({1, 2}, x.data())}});
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_THAT(found->at("y").ToFloat32(), ElementsAre(0, 4, 7));
}

// Shapes that exporters cut into sizes, as repeat_interleave's are.
TEST_F(OnnxTest, ConstantsAreSplit) {
  const std::string shape =
      "node { op_type: 'Constant' output: 's' attribute { name: 'value' type: TENSOR t { "
      "data_type: 7 dims: 4 int64_data: [9, 1, 1, 3] } } }"
      "node { op_type: 'Split' input: 's' output: 'a' output: 'b' }"
      "node { op_type: 'Expand' input: 'x' input: 'b' output: 'y' }";
  const auto report = Convert(Model(X({"ads", "1"}) + Out({"ads", "3"}) + shape));
  ASSERT_TRUE(report.ok()) << report.status();
  const std::vector<float> x = {1, 2};
  const auto found = ulfd::testing::ScoreModel(
      dir_.File("ok/1"), {{"x", engine::NpyArray::FromFloat32({2, 1}, x.data())}});
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_THAT(found->at("y").ToFloat32(), ElementsAre(1, 1, 1, 2, 2, 2));
}

// A number of every row, and the greatest of three constants.
TEST_F(OnnxTest, ConstantsAreComputed) {
  const std::string graph =
      "initializer { name: 'a' data_type: 1 dims: 2 float_data: [1, 5] }"
      "initializer { name: 'b' data_type: 1 dims: 2 float_data: [2, 4] }"
      "initializer { name: 'c' data_type: 1 dims: 2 float_data: [8, 3] }"
      "initializer { name: 'three' data_type: 1 float_data: 3 }"
      "node { op_type: 'Max' input: 'a' input: 'b' input: 'c' output: 'most' }"
      "node { op_type: 'Shape' input: 'x' output: 's' }"
      "node { op_type: 'ConstantOfShape' input: 's' output: 'ones' attribute { name: 'value' "
      "type: TENSOR t { data_type: 1 dims: 1 float_data: 1 } } }"
      "node { op_type: 'Mul' input: 'ones' input: 'three' output: 'threes' }"
      "node { op_type: 'Add' input: 'x' input: 'threes' output: 'more' }"
      "node { op_type: 'Mul' input: 'more' input: 'most' output: 'y' }";
  const auto report = Convert(Model(X({"ads", "2"}) + Out({"ads", "2"}) + graph));
  ASSERT_TRUE(report.ok()) << report.status();
  const std::vector<float> x = {1, 2};
  const auto found = ulfd::testing::ScoreModel(
      dir_.File("ok/1"), {{"x", engine::NpyArray::FromFloat32({1, 2}, x.data())}});
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_THAT(found->at("y").ToFloat32(), ElementsAre(32, 25));
}

TEST_F(OnnxTest, SumsOfExponentialsMayBeInfinite) {
  const auto report =
      Convert(Model(X({"ads", "2"}) + Out({"ads", "1"}) +
                    "node { op_type: 'ReduceLogSumExp' input: 'x' output: 'y' attribute { name: "
                    "'axes' type: INTS ints: 1 } }"));
  ASSERT_TRUE(report.ok()) << report.status();
  const std::vector<float> x = {INFINITY, 1, -INFINITY, -INFINITY};
  const auto found = ulfd::testing::ScoreModel(
      dir_.File("ok/1"), {{"x", engine::NpyArray::FromFloat32({2, 2}, x.data())}});
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_THAT(found->at("y").ToFloat32(), ElementsAre(INFINITY, -INFINITY));
}

// A part of the table file is more than the usual memory of its writer.
TEST_F(OnnxTest, TablesHaveRowsOfAnyLength) {
  constexpr int64_t kRows = 1100, kWidth = 16384;
  onnx::ModelProto model =
      Model(absl::StrCat("input ", Tensor("ids", "7", {"ads"}), " ", Out({"ads", "1"}),
                         "node { op_type: 'Gather' input: ['t', 'ids'] output: 'r' } "
                         "node { op_type: 'ReduceMax' input: 'r' output: 'y' attribute { name: "
                         "'axes' type: INTS ints: 1 } }"));
  onnx::TensorProto& table = *model.mutable_graph()->add_initializer();
  table.set_name("t");
  table.set_data_type(onnx::TensorProto::FLOAT);
  for (const int64_t dim : {kRows, kWidth}) table.add_dims(dim);
  table.set_raw_data(std::string(kRows * kWidth * sizeof(float), '\0'));
  const auto report =
      ConvertOnnx(dir_.Write("m.onnx", model.SerializeAsString()), dir_.File("ok/1"), {});
  EXPECT_TRUE(report.ok()) << report.status();
}

// The user's ids stay the user's, and a token behind them is a row of the table.
TEST_F(OnnxTest, IdsSideBySideAreLookedUpOneByOne) {
  const std::string path = dir_.Write(
      "m.onnx",
      Model(absl::StrCat("input ", Tensor("a", "7", {"one", "2"}), " input ",
                         Tensor("b", "7", {"ads", "1"}), " output ", Tensor("y", "1", {"ads", "8"}),
                         " initializer { name: 't' data_type: 1 dims: 4 dims: 2 float_data: "
                         "[1, 2, 3, 4, 5, 6, 7, 8] } "
                         "initializer { name: 'token' data_type: 7 dims: [1, 1] int64_data: 3 } "
                         "node { op_type: 'Shape' input: 'b' output: 's' } "
                         "node { op_type: 'Expand' input: ['token', 's'] output: 'm' } "
                         "node { op_type: 'Concat' input: ['a', 'b', 'm'] output: 'c' attribute { "
                         "name: 'axis' type: INT i: -1 } } "
                         "node { op_type: 'Gather' input: ['t', 'c'] output: 'r' } "
                         "node { op_type: 'Flatten' input: 'r' output: 'y' }"))
          .SerializeAsString());
  ConvertOptions options;
  options.user_inputs = {"a"};
  const auto report = ConvertOnnx(path, dir_.File("ok/1"), options);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_THAT(report->user_inputs, ElementsAre("a: 2 ids of the user, looked up in t.ulft"));
  EXPECT_THAT(report->ad_inputs, ElementsAre("b: one id per ad, looked up in t.ulft"));
}

TEST_F(OnnxTest, TablesWithWhatIsNotFiniteAreRefused) {
  EXPECT_THAT(
      Error(Model(absl::StrCat("input ", Tensor("ids", "7", {"ads"}), " ", Out({"ads", "2"}),
                               "initializer { name: 't' data_type: 1 dims: 1 dims: 2 "
                               "float_data: [1, inf] } "
                               "node { op_type: 'Gather' input: ['t', 'ids'] output: 'y' }"))),
      AllOf(HasSubstr("table \"t.ulft\": id "), HasSubstr("not finite")));
}

TEST_F(OnnxTest, TablesHaveNamesOfNoOtherFile) {
  for (const std::string& name : {std::string("deltas"), std::string(300, 'x')}) {
    const std::string path = dir_.Write(
        "m.onnx",
        Model(absl::StrCat("input ", Tensor("ids", "7", {"ads", "1"}), " output ",
                           Tensor("y", "1", {"ads", "1", "2"}), " initializer { name: '", name,
                           "' data_type: 1 dims: 3 dims: 2 float_data: [1, 2, 3, 4, 5, 6] } ",
                           "node { op_type: 'Gather' input: ['", name, "', 'ids'] output: 'y' }"))
            .SerializeAsString());
    const std::string out = dir_.File(absl::StrCat("ok", name.size(), "/1"));
    const auto report = ConvertOnnx(path, out, {});
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_TRUE(std::filesystem::exists(absl::StrCat(out, "/", name.substr(0, 200), ".ulft")));
  }
}

// ONNX's library reads the type that such a value does not have.
TEST_F(OnnxTest, ShapesOfWhatDoesNotFit) {
  onnx::ModelProto model =
      Model(X({"ads", "4"}) + Out({"ads", "4"}) +
            "initializer { name: 'w' data_type: 1 dims: 1 dims: 3 float_data: [1, 2, 3] }"
            "node { op_type: 'Concat' input: ['x', 'w'] output: 'both'"
            "       attribute { name: 'axis' i: 0 type: INT } }"
            "node { op_type: 'Shape' input: 'both' output: 'to' }"
            "node { op_type: 'Reshape' input: ['x', 'to'] output: 'y' }");
  model.mutable_opset_import(0)->set_version(15);
  EXPECT_THAT(Error(model), HasSubstr("node \"both\" (Concat): joins"));
}

TEST_F(OnnxTest, NumbersBelowOneAreAnySize) {
  const onnx::ModelProto model =
      Model(X({"-1", "0"}) + Out({"-1", "0"}) + "node { op_type: 'Relu' input: 'x' output: 'y' }");
  EXPECT_EQ(Error(model),
            "m.onnx: input \"x\": shape [ads, ?]: --dims=x:1=SIZE can state dimension 1");
  const auto report = ConvertOnnx(dir_.Write("m.onnx", model.SerializeAsString()),
                                  dir_.File("ok/1"), {.dims = {{"x:1", 4}}});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_THAT(report->outputs, ElementsAre("y [ads, 4]"));
}

// An export without dynamic axes has the example's rows as a number.
TEST_F(OnnxTest, StatedRowsOfAdsMayBeANumberInTheModel) {
  for (const std::string rows : {"1", "64"}) {
    const std::string relu = "node { op_type: 'Relu' input: 'x' output: 'y' }";
    const auto report = ConvertOnnx(
        dir_.Write("m.onnx", Model(X({rows, "4"}) + Out({rows, "4"}) + relu).SerializeAsString()),
        dir_.File(rows + "/1"), {.ad_inputs = {"x"}});
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_THAT(report->outputs, ElementsAre("y [ads, 4]"));
  }
}

TEST_F(OnnxTest, RowsOfAllInputsAndOutputsAreTheAds) {
  const auto report = ConvertOnnx(
      dir_.Write("m.onnx", Model(X({"8", "4"}) + Out({"8", "2", "2"}) +
                                 "initializer { name: 'to' data_type: 7 dims: 3"
                                 "  int64_data: [8, 2, 2] }"
                                 "node { op_type: 'Reshape' input: ['x', 'to'] output: 'y' }")
                               .SerializeAsString()),
      dir_.File("all/1"), {});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_THAT(report->outputs, ElementsAre("y [ads, 2, 2]"));
  EXPECT_THAT(report->notes,
              Contains("the 8 rows that inputs and outputs have are as many as a request has"));
  const auto named =
      ConvertOnnx(dir_.Write("n.onnx", Model(X({"64", "4"}) + Out({"ads", "4"}) +
                                             "node { op_type: 'Relu' input: 'x' output: 'y' }")
                                           .SerializeAsString()),
                  dir_.File("named/1"), {});
  ASSERT_TRUE(named.ok()) << named.status();
  EXPECT_THAT(named->outputs, ElementsAre("y [ads, 4]"));
}

TEST_F(OnnxTest, LevelsComeFromNamesAndFlags) {
  const std::string relu = "node { op_type: 'Relu' input: 'x' output: 'y' }";
  const auto taken = ConvertOnnx(
      dir_.Write("n.onnx", Model(X({"rows", "4"}) + Out({"rows", "4"}) + relu).SerializeAsString()),
      dir_.File("taken/1"), {});
  ASSERT_TRUE(taken.ok()) << taken.status();
  EXPECT_THAT(taken->outputs, ElementsAre("y [ads, 4]"));
  EXPECT_THAT(taken->notes, Contains("the leading dimension \"rows\" of input \"x\" is taken for "
                                     "the ads: --user_inputs says otherwise"));
  EXPECT_EQ(
      Error(Model(X({"64", "4"}) + Out({"32", "4"}) + relu)),
      "m.onnx: input \"x\": leading dimension 64, want one with a name (PyTorch: "
      "dynamic_axes) or 1 for the user; --ad_inputs takes it for the ads', --user_inputs for a "
      "list of the user's");
  EXPECT_EQ(Error(Model(X({"ads", "4"}) + Out({"ads", "4"}) + relu), {.user_inputs = {"z"}}),
            "m.onnx: --user_inputs names \"z\", which is no input of the model; its inputs: x");
  EXPECT_EQ(Error(Model(X({"ads", "t"}) + Out({"ads", "t"}) + relu)),
            "m.onnx: input \"x\": shape [ads, ?]: --dims=t=SIZE can state dimension 1");
  EXPECT_EQ(Error(Model(X({"ads", "t"}) + Out({"ads", "t"}) + relu), {.dims = {{"q", 3}}}),
            "m.onnx: --dims names \"q\", which is no dimension of an input");
  EXPECT_EQ(Error(Model(X({"batch", "t"}) + Out({"batch", "t"}) + relu), {.ad_inputs = {"x"}}),
            "m.onnx: input \"x\": shape [ads, ?]: --dims=t=SIZE can state dimension 1");
  const std::string path =
      dir_.Write("m.onnx", Model(X({"rows", "t"}) + Out({"rows", "t"}) + relu).SerializeAsString());
  const auto report =
      ConvertOnnx(path, dir_.File("ok/1"), {.user_inputs = {"x"}, .dims = {{"t", 3}}});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_THAT(report->outputs, ElementsAre("y [users, 3]"));
}

// DeepCTR's signature: one matrix of floats for all features.
class OnnxSchemaTest : public OnnxTest {
 protected:
  // Columns: an id of the user, a number of the user, an id of the ad, two numbers of the ad.
  static onnx::ModelProto Matrix() {
    return Model(
        X({"batch", "5"}) + Out({"batch", "1"}) +
        "initializer { name: 'users' data_type: 1 dims: [6, 2] float_data: [0, 1, 2, 3, 4, 5, 6, "
        "7, 8, 9, 1, 2] } "
        "initializer { name: 'items' data_type: 1 dims: [4, 2] float_data: [1, 4, 2, 8, 5, 7, 3, "
        "1] } "
        "initializer { name: 'w' data_type: 1 dims: [7, 1] float_data: [1, -1, 2, 1, -2, 1, 3] } "
        "initializer { name: 'c0' data_type: 7 int64_data: 0 } "
        "initializer { name: 'c2' data_type: 7 int64_data: 2 } "
        "initializer { name: 'numbers' data_type: 7 dims: 3 int64_data: [1, 3, 4] } "
        "node { op_type: 'Cast' input: 'x' output: 'ids' attribute { name: 'to' type: INT i: 7 } } "
        "node { op_type: 'Gather' input: ['ids', 'c0'] output: 'u' attribute { name: 'axis' type: "
        "INT i: 1 } } "
        "node { op_type: 'Gather' input: ['ids', 'c2'] output: 'i' attribute { name: 'axis' type: "
        "INT i: 1 } } "
        "node { op_type: 'Gather' input: ['x', 'numbers'] output: 'n' attribute { name: 'axis' "
        "type: INT i: 1 } } "
        "node { op_type: 'Gather' input: ['users', 'u'] output: 'ue' } "
        "node { op_type: 'Gather' input: ['items', 'i'] output: 'ie' } "
        "node { op_type: 'Concat' input: ['ue', 'n', 'ie'] output: 'all' attribute { name: 'axis' "
        "type: INT i: 1 } } "
        "node { op_type: 'MatMul' input: ['all', 'w'] output: 'y' }");
  }
  std::string SchemaError(const std::string& lines) {
    const ConvertOptions options{
        .schema = dir_.Write("s.csv", absl::StrCat("column,kind,side,vocabulary,length\n", lines))};
    return Error(Matrix(), options);
  }
};

TEST_F(OnnxSchemaTest, SplitsOneMatrix) {
  const std::string path = dir_.Write("m.onnx", Matrix().SerializeAsString());
  const std::string schema = dir_.Write("s.csv",
                                        "column,kind,side,vocabulary,length\n"
                                        "user,sparse,user,6\n"
                                        "age, dense, user\n"
                                        "item,sparse,ad,3,1\n"
                                        "prices,dense,ad,,2\n");
  const auto report = ConvertOnnx(path, dir_.File("ok/1"), {.schema = schema});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_THAT(report->user_inputs,
              ElementsAre("user: one id of the user, looked up in users.ulft, column 0 of \"x\"",
                          "age [users, 1] float32, column 1 of \"x\""));
  EXPECT_THAT(report->ad_inputs,
              ElementsAre("item: one id per ad, looked up in items_1_0_3.ulft, column 2 of \"x\"",
                          "prices [ads, 2] float32, columns 3 to 4 of \"x\""));
  EXPECT_THAT(report->notes, Contains(StartsWith("proved: ")));
  // User 2 of age 10, items 1 and 2, which cost [1, 2] and [3, 4].
  const auto longs = [](std::vector<int64_t> values) {
    return engine::NpyArray::FromInt64({static_cast<int64_t>(values.size())}, values.data());
  };
  const auto floats = [](std::vector<int64_t> dims, std::vector<float> values) {
    return engine::NpyArray::FromFloat32(dims, values.data());
  };
  const auto found =
      ulfd::testing::ScoreModel(dir_.File("ok/1"), {{"user.ids", longs({2})},
                                                    {"age", floats({1, 1}, {10})},
                                                    {"item.ids", longs({1, 2})},
                                                    {"prices", floats({2, 2}, {1, 2, 3, 4})}});
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_THAT(found->at("y").ToFloat32(),
              ElementsAre(4 - 5 + 20 + 1 - 4 + 2 + 24, 4 - 5 + 20 + 3 - 8 + 5 + 21));
}

TEST_F(OnnxSchemaTest, WhatDoesNotFitIsRefused) {
  const std::string three = "user,sparse,user\nage,dense,user\nitem,sparse,ad\n";
  EXPECT_EQ(SchemaError("user,sparse,user\nage,dense\n"),
            "m.onnx: s.csv:3: \"age,dense\", want column,kind,side,vocabulary,length");
  EXPECT_EQ(SchemaError("user,id,user\n"), "m.onnx: s.csv:2: kind \"id\", want sparse or dense");
  EXPECT_EQ(SchemaError("user,sparse,both\n"), "m.onnx: s.csv:2: side \"both\", want user or ad");
  EXPECT_EQ(SchemaError("user,sparse,ad,0\n"),
            "m.onnx: s.csv:2: vocabulary \"0\", want a number from 1 to 2147483648");
  EXPECT_EQ(SchemaError("user,dense,ad,3\n"), "m.onnx: s.csv:2: a vocabulary of a dense column");
  EXPECT_EQ(SchemaError("user,dense,ad\nuser,dense,ad\n"),
            "m.onnx: s.csv:3: column \"user\" is there twice");
  EXPECT_EQ(SchemaError(""), "m.onnx: s.csv: no columns");
  EXPECT_EQ(SchemaError(three), "m.onnx: s.csv: its 3 columns fit no input: x [ads, 5]");
  EXPECT_EQ(SchemaError("user,dense,user\nage,dense,user\nitem,sparse,ad\np,dense,ad,,2\n"),
            "m.onnx: the schema calls column \"user\" dense, but a table is looked up with it");
  EXPECT_EQ(SchemaError(three + "p,sparse,ad,,2\n"),
            "m.onnx: the schema calls column \"p\" sparse, but no table is looked up with it");
  EXPECT_EQ(SchemaError("user,sparse,user,7\nage,dense,user\nitem,sparse,ad\np,dense,ad,,2\n"),
            "m.onnx: the schema gives column \"user\" 7 ids, but its table has 6");
  const ConvertOptions options{.schema = dir_.Write("s.csv", "name;kind\n")};
  EXPECT_EQ(Error(Matrix(), options),
            "m.onnx: s.csv:1: \"name;kind\", want column,kind,side,vocabulary,length");
}

TEST_F(OnnxTest, SizesOfInputsMustFit) {
  EXPECT_EQ(
      Error(Model(X({"ads", "4294967296"}) + Out({"ads", "4294967296"}) +
                  "node { op_type: 'Relu' input: 'x' output: 'y' }")),
      "m.onnx: input \"x\": dimension 1 is 4294967296, want at least 1 and at most 2147483647 "
      "values per row");
}

TEST_F(OnnxTest, NamesAreMadeOnceAndBeforeTheyAreRead) {
  EXPECT_EQ(Error(Model(X({"ads", "4"}) + Out({"ads", "4"}) +
                        "node { name: 'a' op_type: 'Relu' input: 'b' output: 'y' }"
                        "node { name: 'b' op_type: 'Relu' input: 'y' output: 'b' }")),
            "m.onnx: node \"a\" (Relu): reads \"b\", which nothing before it makes");
  EXPECT_EQ(Error(Model(X({"ads", "4"}) + Out({"ads", "4"}) +
                        "node { name: 'a' op_type: 'Relu' input: 'x' output: 'y' }"
                        "node { name: 'b' op_type: 'Tanh' input: 'x' output: 'y' }")),
            "m.onnx: node \"b\" (Tanh): makes \"y\", which is there already");
  EXPECT_THAT(Error(Model(X({"ads", "4"}) + Out({"ads", "4"}) +
                          "node { name: 'a' op_type: 'NoSuchOperator' input: 'x' output: 'y' }")),
              HasSubstr("node \"a\" (NoSuchOperator): no converter for this type"));
}

// Every operator with every number of inputs up to what it wants, with and without attributes.
// An If, of which both branches are the node.
onnx::NodeProto Choice(const onnx::NodeProto& node) {
  onnx::NodeProto choice;
  choice.set_op_type("If");
  choice.add_input("x");
  choice.add_output("y");
  for (const char* const name : {"then_branch", "else_branch"}) {
    onnx::AttributeProto& branch = *choice.add_attribute();
    branch.set_name(name);
    branch.set_type(onnx::AttributeProto::GRAPH);
    *branch.mutable_g()->add_node() = node;
    branch.mutable_g()->add_output()->set_name(node.output(0));
  }
  return choice;
}

TEST_F(OnnxTest, NodesMayLackInputsAndAttributes) {
  onnx::ModelProto model;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(
      "ir_version: 8 opset_import { version: 17 } opset_import { domain: 'ai.onnx.ml' version: 3 } "
      "graph { name: 'g' input { name: 'x' type { tensor_type { elem_type: 1 shape { "
      "dim { dim_param: 'N' } dim { dim_value: 3 } } } } } "
      "output { name: 'y' type { tensor_type { elem_type: 1 } } } node { } }",
      &model));
  onnx::NodeProto attributes;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(
      "attribute { name: 'value' type: TENSOR t { data_type: 7 dims: 1 int64_data: 1 } } "
      "attribute { name: 'axis' type: INT i: 1 } attribute { name: 'axes' type: INTS ints: 1 }",
      &attributes));
  onnx::NodeProto& node = *model.mutable_graph()->mutable_node(0);
  for (const onnx::OpSchema& schema : onnx::OpSchemaRegistry::get_all_schemas()) {
    for (const onnx::NodeProto& with : {onnx::NodeProto(), attributes}) {
      for (int inputs = 0; inputs <= std::min(schema.max_input(), schema.min_input() + 1);
           ++inputs) {
        node = with;
        node.set_op_type(schema.Name());
        node.set_domain(schema.domain());
        for (int i = 0; i < inputs; ++i) node.add_input("x");
        node.add_output("y");
        for (int i = 1; i < schema.min_output(); ++i) node.add_output(absl::StrCat("y", i));
        onnx::ModelProto branch = model;
        *branch.mutable_graph()->mutable_node(0) = Choice(node);
        for (const onnx::ModelProto& tried : {model, branch}) {
          const std::string error = Error(tried);
          if (schema.domain().empty() && inputs < schema.min_input()) {
            EXPECT_THAT(error, HasSubstr(absl::StrCat("want at least ", schema.min_input())))
                << schema.Name();
          }
          std::filesystem::remove_all(dir_.File("out"));
        }
      }
    }
  }
}

TEST_F(OnnxTest, ShapesThatTheFileStatesWrongDoNotDecide) {
  EXPECT_EQ(Error(Model(X({"ads", "4"}) + Out({"ads", "5"}) +
                        "node { name: 'a' op_type: 'Relu' input: 'x' output: 'y' }")),
            "");
}

TEST_F(OnnxTest, StridesThatLibonnxWouldDivideBy) {
  const std::string pool =
      "node { name: 'p' op_type: 'MaxPool' input: 'x' output: 'y' "
      "attribute { name: 'kernel_shape' type: INTS ints: 2 } "
      "attribute { name: 'strides' type: INTS ints: 0 } }";
  const std::string error = "node \"p\": attribute strides: 0, want at least 1";
  EXPECT_EQ(Error(Model(X({"ads", "2", "8"}) + Out({"ads", "2", "4"}) + pool)), "m.onnx: " + error);
  // In a branch, too.
  EXPECT_THAT(Error(Model(X({"ads", "2", "8"}) + Out({"ads", "2", "4"}) +
                          "node { name: 'if' op_type: 'If' input: 'c' output: 'z' "
                          "attribute { name: 'then_branch' type: GRAPH g { " +
                          pool + " } } }")),
              HasSubstr(error));
}

TEST_F(OnnxTest, WeightsMustFit) {
  const auto gemm = [&](const std::string& dims, const std::string& bias) {
    return Model(X({"ads", "4"}) + Out({"ads", "2"}) +
                 absl::StrCat("initializer { name: 'w' data_type: 1 ", dims,
                              " float_data: [1, 2, 3, 4, 5, 6, 7, 8] } initializer { name: 'b' "
                              "data_type: 1 ",
                              bias,
                              " } node { name: 'fc' op_type: 'Gemm' input: 'x' input: 'w' "
                              "input: 'b' output: 'y' }"));
  };
  EXPECT_THAT(Error(gemm("dims: [2, 4]", "dims: 2 float_data: [1, 2]")),
              HasSubstr("node \"fc\" (Gemm): a bias of shape [2], want [4] for all rows"));
  EXPECT_EQ(Error(gemm("dims: [4, 2]", "dims: 3 float_data: [1, 2]")),
            "m.onnx: initializer \"b\": 2 values, want 3 for shape [3]");
}

TEST_F(OnnxTest, RawDataMustFitBeforeLibonnxReadsIt) {
  const std::string tensor = "data_type: 7 dims: 2 raw_data: '12345'";
  const std::string reshape =
      " node { name: 'r' op_type: 'Reshape' input: 'x' input: 's' output: 'y' }";
  const std::string values = X({"ads", "4"}) + Out({"ads", "4"});
  EXPECT_EQ(Error(Model(values + "initializer { name: 's' " + tensor + " }" + reshape)),
            "m.onnx: initializer \"s\": 5 bytes, want 16 for shape [2]");
  EXPECT_EQ(Error(Model(values +
                        "node { name: 'c' op_type: 'Constant' output: 's' attribute { name: "
                        "'value' type: TENSOR t { " +
                        tensor + " } } }" + reshape)),
            "m.onnx: node \"c\": 5 bytes, want 16 for shape [2]");
  EXPECT_EQ(Error(Model(values +
                        "node { name: 'i' op_type: 'If' input: 'x' output: 'y' attribute { name: "
                        "'then_branch' type: GRAPH g { initializer { name: 's' " +
                        tensor + " } } } }")),
            "m.onnx: node \"i\": initializer \"s\": 5 bytes, want 16 for shape [2]");
  auto model = Model(values + "node { name: 'a' op_type: 'Relu' input: 'x' output: 'y' }");
  auto& function = *model.add_functions();
  function.set_name("f");
  auto& node = *function.add_node();
  node.set_name("c");
  auto& constant = *node.add_attribute()->mutable_t();
  constant.set_data_type(7);
  constant.add_dims(2);
  constant.set_raw_data("12345");
  EXPECT_EQ(Error(model), "m.onnx: function \"f\": node \"c\": 5 bytes, want 16 for shape [2]");
}

TEST_F(OnnxTest, ExternalDataIsReadFromBesideTheModelOnly) {
  auto model = Model(X({"ads", "4"}) + Out({"ads", "4"}) +
                     "initializer { name: 'w' data_type: 1 dims: 4 data_location: EXTERNAL "
                     "external_data { key: 'location' value: 'w.bin' } "
                     "external_data { key: 'offset' value: '8' } }"
                     "node { op_type: 'Mul' input: 'x' input: 'w' output: 'y' }");
  const std::string head = "m.onnx: initializer \"w\": external data: ";
  EXPECT_EQ(Error(model), head + "there is no file w.bin beside the model");
  dir_.Write("w.bin", std::string(23, '\0'));
  EXPECT_EQ(Error(model), head + "w.bin has 23 bytes, want 16 from byte 8");
  model.mutable_graph()->mutable_initializer(0)->mutable_external_data(0)->set_value("../w.bin");
  EXPECT_THAT(Error(model), StartsWith("m.onnx: initializer \"w\": external data"));
  model.mutable_graph()->mutable_initializer(0)->mutable_external_data(0)->set_value("w.bin");
  model.mutable_graph()->mutable_initializer(0)->mutable_external_data(1)->set_value("-1");
  EXPECT_EQ(Error(model), head + "offset \"-1\", want a number of bytes");
  model.mutable_graph()->mutable_initializer(0)->mutable_external_data(1)->set_value("8");
  dir_.Write("w.bin", std::string(24, '\0'));
  EXPECT_EQ(Error(model), "");
}

TEST_F(OnnxTest, ExternalDataOfConstants) {
  auto model =
      Model(X({"ads", "4"}) + Out({"ads", "4"}) +
            "node { name: 'c' op_type: 'Constant' output: 'w' attribute { name: 'value' type: "
            "TENSOR t { data_type: 1 dims: 4 data_location: EXTERNAL external_data { key: "
            "'location' value: 'c.bin' } } } }"
            "node { op_type: 'Mul' input: 'x' input: 'w' output: 'y' }");
  EXPECT_EQ(Error(model),
            "m.onnx: node \"c\": external data: there is no file c.bin beside the model");
  const std::vector<float> w = {1, 2, 3, 4};
  dir_.Write("c.bin", std::string(reinterpret_cast<const char*>(w.data()), 16) + "more");
  auto huge = model;
  huge.mutable_graph()->mutable_node(0)->mutable_attribute(0)->mutable_t()->set_dims(
      0, int64_t{1} << 60);
  EXPECT_THAT(Error(huge), StartsWith("m.onnx: node \"c\": "));
  EXPECT_EQ(Error(model), "");
}

TEST_F(OnnxTest, FilesAboveProtobufsLimitAreRefused) {
  const std::string path = dir_.Write("huge.onnx", "");
  std::filesystem::resize_file(path, int64_t{1} << 31);  // A hole, which takes no room.
  const auto report = ConvertOnnx(path, dir_.File("huge/1"), {});
  EXPECT_EQ(report.status().code(), absl::StatusCode::kResourceExhausted) << report.status();
  EXPECT_TRUE(absl::StartsWith(report.status().message(), path)) << report.status();
}

// Whatever a damaged file says: an error that names it, or a model; never a crash.
TEST_F(OnnxTest, DamagedFilesAreHandled) {
  int refused = 0;
  for (const std::string& name : Cases()) {
    const auto whole = ReadFile(CaseModel(name));
    ASSERT_TRUE(whole.ok()) << whole.status();
    // Weights are most of a file; what comes before and after them is the graph.
    std::mt19937 random(whole->size());
    for (int trial = 0; trial < 60; ++trial) {
      std::string damaged = *whole;
      for (int k = 0; k < 1 + trial % 3; ++k) {
        damaged[random() % damaged.size()] = static_cast<char>(random());
      }
      const std::string path = dir_.Write("damaged.onnx", damaged);
      const auto report = ConvertOnnx(path, dir_.File("damaged/1"), {});
      if (report.ok()) {
        std::filesystem::remove_all(dir_.File("damaged"));
        continue;
      }
      ++refused;
      ASSERT_TRUE(absl::StrContains(report.status().message(), "damaged.onnx")) << report.status();
      ASSERT_FALSE(std::filesystem::exists(dir_.File("damaged"))) << report.status();
    }
  }
  EXPECT_GT(refused, 100);
}

TEST_F(OnnxTest, EveryTruncationIsAnError) {
  const auto whole = ReadFile(CaseModel("onnx_wide_deep"));
  ASSERT_TRUE(whole.ok()) << whole.status();
  for (size_t size = 0; size < whole->size(); size += 1 + size / 50) {
    const std::string path = dir_.Write("cut.onnx", whole->substr(0, size));
    const auto report = ConvertOnnx(path, dir_.File("cut/1"), {});
    ASSERT_FALSE(report.ok()) << size;
    ASSERT_TRUE(absl::StartsWith(report.status().message(), path + ": ")) << report.status();
    ASSERT_FALSE(std::filesystem::exists(dir_.File("cut")));
  }
  EXPECT_EQ(
      ConvertOnnx(dir_.Write("text.onnx", "no model"), dir_.File("o/1"), {}).status().message(),
      dir_.File("text.onnx") + ": truncated, or not an ONNX model, or of too many small parts");
}

// Two bytes of a file are an empty node, which takes a hundred.
TEST_F(OnnxTest, AFileOfEmptyNodesTakesBoundedMemory) {
  std::string bytes = "\x3a\x80\xa4\xe8\x03";  // A graph of 8 000 000 bytes.
  constexpr int kNodes = 4'000'000;
  for (int i = 0; i < kNodes; ++i) bytes.append("\x0a\x00", 2);
  const std::string path = dir_.Write("nodes.onnx", bytes);
  const LoadScope scope({});
  EXPECT_EQ(ConvertOnnx(path, dir_.File("n/1"), {}).status().message(),
            path + ": truncated, or not an ONNX model, or of too many small parts");
  EXPECT_LT(scope.peak_bytes(), 200'000'000);
}

}  // namespace
}  // namespace ulfd::convert
