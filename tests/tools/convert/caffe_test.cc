// Caffe models converted and scored against PyTorch's values, and nets that cannot be.
// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/file.h"
#include "base/load_scope.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/convert_case.h"
#include "tests/testing/temp_dir.h"
#include "tools/convert/caffe/caffe.pb.h"
#include "tools/convert/convert.h"

namespace ulfd::convert {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class CaffeTest : public ::testing::Test {
 protected:
  // Converts text (and weights) given in memory; the error without the scratch directory's name.
  std::string Error(const std::string& net, const caffe::NetWeights& weights = {},
                    const ConvertOptions& options = {}) {
    const std::string path = dir_.Write("net.prototxt", net);
    std::string weights_path;
    if (weights.layer_size() > 0) {
      weights_path = dir_.Write("net.caffemodel", weights.SerializeAsString());
    }
    const auto report = ConvertCaffe(path, weights_path, dir_.File("out/1"), options);
    EXPECT_FALSE(std::filesystem::exists(dir_.File("out/1")) && !report.ok());
    return absl::StrReplaceAll(report.status().message(), {{dir_.path() + "/", ""}});
  }
  static caffe::NetWeights OneLayer(const std::string& name,
                                    const std::vector<std::vector<int64_t>>& shapes) {
    caffe::NetWeights weights;
    auto& layer = *weights.add_layer();
    layer.set_name(name);
    for (const auto& shape : shapes) {
      auto& blob = *layer.add_blobs();
      int64_t elements = 1;
      for (const int64_t d : shape) {
        blob.mutable_shape()->add_dim(d);
        elements *= d;
      }
      for (int64_t i = 0; i < elements; ++i) blob.add_data(1);
    }
    return weights;
  }
  void ExpectCase(const std::string& name, const ConvertOptions& options = {}) {
    const std::string from = ulfd::testing::ConvertCaseDir(name);
    const std::string out = dir_.File(name + "/1");
    const auto report =
        ConvertCaffe(from + "/net.prototxt", from + "/net.caffemodel", out, options);
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_TRUE(std::filesystem::exists(out + "/_SUCCESS"));
    EXPECT_EQ(*ReadFile(out + "/conversion_report.txt"), report->ToString());
    ulfd::testing::ExpectConvertCase(name, out);
  }

  TempDir dir_;
};

constexpr char kInput[] =
    "layer { name: 'in' type: 'Input' top: 'x' input_param { shape { dim: 1 dim: 4 } } }\n";

TEST_F(CaffeTest, MlpGivesPyTorchsValues) { ExpectCase("caffe_mlp"); }
TEST_F(CaffeTest, V1NetGivesPyTorchsValues) { ExpectCase("caffe_v1"); }

TEST_F(CaffeTest, TowerReorgYoloGivesPyTorchsValues) { ExpectCase("caffe_yolo_head"); }
TEST_F(CaffeTest, NormalizePriorBoxUpsampleGivesPyTorchsValues) { ExpectCase("caffe_ssd_head"); }
TEST_F(CaffeTest, RegionsOfTheUsersImageGiveTorchvisionsValues) {
  ExpectCase("caffe_roi_head", {.user_inputs = {"image"}});
}
TEST_F(CaffeTest, ResponseNormalisationGivesPyTorchsValues) { ExpectCase("caffe_normed"); }
TEST_F(CaffeTest, TransposedConvolutionsGivePyTorchsValues) { ExpectCase("caffe_segments"); }
TEST_F(CaffeTest, SpatialTransformersGivePyTorchsValues) { ExpectCase("caffe_transformer"); }

TEST_F(CaffeTest, LongNamesLeaveRoomForTheReason) {
  const std::string error =
      Error(absl::StrCat(kInput, "layer { name: '", std::string(1'000'000, 'n'),
                         "' type: 'None' bottom: 'x' top: 'y' }"));
  EXPECT_THAT(error, HasSubstr("nnn... (1000000 bytes)\" (None): no converter for this type"));
}

TEST_F(CaffeTest, ReportTellsWhatEveryLayerBecame) {
  const std::string from = ulfd::testing::ConvertCaseDir("caffe_mlp");
  const auto report =
      ConvertCaffe(from + "/net.prototxt", from + "/net.caffemodel", dir_.File("mlp/1"), {});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_THAT(report->notes,
              ElementsAre("1 layers left out that are not part of the phase TEST",
                          "weights of layer \"loss\" are left out: the net has no layer of that "
                          "name"));
  EXPECT_THAT(report->ad_inputs, ElementsAre("data [ads, 12] (a row per ad by default)",
                                             "side [ads, 2, 3] (a row per ad by default)"));
  EXPECT_THAT(report->outputs, ElementsAre("prob [ads, 6]", "ctr [ads, 6]", "kept [ads, 6]"));
  ASSERT_GE(report->rows.size(), 4U);
  EXPECT_EQ(report->rows[2].node, "bn1");
  EXPECT_THAT(report->rows[2].layers, ElementsAre("bn_layer"));
  EXPECT_EQ(report->rows[2].note, "together with Scale \"scale1\"");
  EXPECT_EQ(report->rows[3].note, "part of the bn_layer of \"bn1\"");
}

TEST_F(CaffeTest, UserInputsHaveOneRow) {
  const std::string from = ulfd::testing::ConvertCaseDir("caffe_v1");
  const auto report = ConvertCaffe(from + "/net.prototxt", from + "/net.caffemodel",
                                   dir_.File("v1/1"), {.user_inputs = {"data"}});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_THAT(report->user_inputs, ElementsAre("data [users, 3, 2, 2]"));
  EXPECT_THAT(report->outputs, ElementsAre("prob [users, 4]"));
}

TEST_F(CaffeTest, EveryLayerWithoutConverterIsListed) {
  EXPECT_EQ(Error(absl::StrCat(kInput,
                               "layer { name: 'n1' type: 'BNLL' bottom: 'x' top: 'y' }\n"
                               "layer { name: 'r' type: 'ReLU' bottom: 'y' top: 'z' }\n"
                               "layer { name: 'd' type: 'Deconvolution' bottom: 'z' top: 'w' }\n"
                               "layer { name: 'm' type: 'MVN' bottom: 'x' top: 'v' }\n")),
            "net.prototxt: 2 nodes cannot be converted; nothing was written\n"
            "  node \"n1\" (BNLL): no converter for this type\n"
            "  node \"m\" (MVN): no converter for this type");
}

TEST_F(CaffeTest, BottomsMustBeMadeBefore) {
  EXPECT_EQ(Error(absl::StrCat(kInput,
                               "layer { name: 'a' type: 'ReLU' bottom: 'nowhere' top: 'p' }\n"
                               "layer { name: 'b' type: 'ReLU' bottom: 'q' top: 'r' }\n"
                               "layer { name: 'c' type: 'ReLU' bottom: 'r' top: 'q' }\n"
                               "layer { name: 'd' type: 'ReLU' bottom: 's' top: 's' }\n")),
            "net.prototxt: 3 nodes cannot be converted; nothing was written\n"
            "  node \"a\" (ReLU): reads \"nowhere\", which no layer makes and no input declares\n"
            "  node \"b\" (ReLU): reads \"q\", which only the later layer \"c\" makes (a cycle, or "
            "layers out of order)\n"
            "  node \"d\" (ReLU): reads \"s\", which only the layer itself makes (a cycle)");
}

TEST_F(CaffeTest, ATopIsMadeOnce) {
  EXPECT_EQ(Error(absl::StrCat(kInput, "layer { name: 'a' type: 'ReLU' bottom: 'x' top: 'y' }\n",
                               "layer { name: 'b' type: 'TanH' bottom: 'x' top: 'y' }\n")),
            "net.prototxt: 1 node cannot be converted; nothing was written\n"
            "  node \"b\" (TanH): makes \"y\", which is made already, without reading it");
}

TEST_F(CaffeTest, WeightsMustFit) {
  const std::string net =
      absl::StrCat(kInput,
                   "layer { name: 'fc' type: 'InnerProduct' bottom: 'x' top: 'y' "
                   "inner_product_param { num_output: 3 } }\n");
  const std::string head =
      "net.prototxt: 1 node cannot be converted; nothing was written\n"
      "  node \"fc\" (InnerProduct): ";
  EXPECT_EQ(Error(net), head + "has no weights in the caffemodel");
  EXPECT_EQ(Error(net, OneLayer("fc", {{3, 4}})),
            head + "has 1 blob in the caffemodel, want 2 (weight and bias)");
  EXPECT_EQ(Error(net, OneLayer("fc", {{3, 4}, {3}, {1}})), head + "3 blobs, want 1 to 2");
  EXPECT_EQ(Error(net, OneLayer("fc", {{3, 5}, {3}})),
            head + "blob 0: 15 values, want 12 (num_output 3 x 4 inputs)");
  EXPECT_EQ(Error(net, OneLayer("fc", {{3, 4}, {4}})),
            head + "blob 1: 4 values, want 3 (num_output)");
}

TEST_F(CaffeTest, TransposedConvolutionsSayWhatTheyMiss) {
  const auto net = [](const std::string& param) {
    return absl::StrCat(kInput,
                        "layer { name: 'd' type: 'Deconvolution' bottom: 'x' top: 'y' "
                        "convolution_param { num_output: 3 bias_term: false ",
                        param, " } }\n");
  };
  const std::string head =
      "net.prototxt: 1 node cannot be converted; nothing was written\n"
      "  node \"d\" (Deconvolution): ";
  EXPECT_EQ(Error(net("kernel_size: 2")), head + "has no weights in the caffemodel");
  EXPECT_EQ(Error(net(""), OneLayer("d", {{4, 3, 2, 2}})),
            head + "convolution_param has no kernel_size");
  EXPECT_EQ(Error(net("kernel_size: 2"), OneLayer("d", {{4, 12}})),
            head + "a weight of 2 dimensions, want 4");
  EXPECT_EQ(Error(net("kernel_size: 2"), OneLayer("d", {{4, 3, 2, 2}, {3}})),
            head + "has 2 blobs in the caffemodel, want 1 (weight; bias_term is false)");
  EXPECT_EQ(Error(net("kernel_size: 2 axis: 2"), OneLayer("d", {{4, 3, 2, 2}})),
            head + "convolution_param.axis: 2, want an axis of bottom 0: shape [ads, 4]");
}

TEST_F(CaffeTest, ShapesThatContradictEachOther) {
  EXPECT_EQ(Error(absl::StrCat(
                kInput,
                "layer { name: 'r' type: 'Reshape' bottom: 'x' top: 'y' "
                "reshape_param { shape { dim: 0 dim: 3 } } }\n"
                "layer { name: 's' type: 'Slice' bottom: 'x' top: 'a' top: 'b' top: 'c' }\n"
                "layer { name: 'm' type: 'Softmax' bottom: 'x' top: 'z' softmax_param { axis: 2 } "
                "}\n")),
            "net.prototxt: 3 nodes cannot be converted; nothing was written\n"
            "  node \"r\" (Reshape): input 0: shape [ads, 4], want 3 elements rather than 4 for "
            "reshape_param.shape [0, 3]\n"
            "  node \"s\" (Slice): 4 channels cannot be cut into 3 equal tops\n"
            "  node \"m\" (Softmax): softmax_param.axis: 2, want an axis of bottom 0: shape [ads, "
            "4]");
}

TEST_F(CaffeTest, FilesThatAreNoModel) {
  EXPECT_EQ(Error("layer { name: 'a' type: 'ReLU' bottm: 'x' }"),
            "net.prototxt:1:37: Message type \"ulfd.caffe.LayerParameter\" has no field named "
            "\"bottm\"; did you mean \"bottom\"?");
  EXPECT_EQ(Error("name: 'empty'"), "net.prototxt: has no layers");
  const std::string whole = OneLayer("fc", {{3, 4}, {3}}).SerializeAsString();
  const std::string net = dir_.Write("net.prototxt", kInput);
  for (size_t size = 1; size < whole.size(); ++size) {
    const std::string cut = dir_.Write("cut.caffemodel", whole.substr(0, size));
    const auto report = ConvertCaffe(net, cut, dir_.File("out/1"), {});
    ASSERT_FALSE(report.ok()) << size;
    ASSERT_EQ(
        report.status().message(),
        cut +
            ": truncated, or not a caffemodel (a binary NetParameter), or of too many small parts");
  }
  // Three bytes each, which become a hundred.
  std::string layers;
  while (layers.size() < (16 << 20)) layers.append("\xa2\x06\0", 3);
  const std::string many = dir_.Write("many.caffemodel", layers);
  {
    const LoadScope scope({.max_memory_bytes = int64_t{256} << 20});
    const auto report = ConvertCaffe(net, many, dir_.File("out/1"), {});
    EXPECT_THAT(report.status().message(), HasSubstr("or of too many small parts"));
  }
  auto weights = OneLayer("fc", {{3, 4}});
  for (int d : {0, 1}) {  // The product of both is beyond int64.
    weights.mutable_layer(0)->mutable_blobs(0)->mutable_shape()->set_dim(d, int64_t{1} << 60);
  }
  EXPECT_THAT(Error(kInput, weights), HasSubstr("net.caffemodel: layer \"fc\" blob 0: 12 values, "
                                                "want 9223372036854775807 for shape"));
  EXPECT_THAT(Error(kInput, OneLayer("fc", {}), {.user_inputs = {"q"}}),
              "--user_inputs names \"q\", which is no input of the net; its inputs: x");
  EXPECT_EQ(Error(kInput, OneLayer("fc", {}), {.schema = "s.csv"}),
            "--schema: inputs of a Caffe net have names");
}

TEST_F(CaffeTest, NamesMustBeUtf8) {
  EXPECT_EQ(Error("layer { name: 'a' type: 'ReLU' bottom: 'x\\377' top: 'y' }"),
            "net.prototxt: layer[0].bottom[0] \"x\\xff\" is not UTF-8");
  // The net in binary, and its weights.
  EXPECT_EQ(Error(OneLayer("fc\xff", {{3, 4}}).SerializeAsString()),
            "net.prototxt: layer[0].name \"fc\\xff\" is not UTF-8");
  EXPECT_EQ(Error(kInput, OneLayer("fc\xff", {{3, 4}})),
            "net.caffemodel: layer[0].name \"fc\\xff\" is not UTF-8");
}

TEST_F(CaffeTest, FieldsThatNothingHereReadsAreSkipped) {
  const std::string trained = absl::StrCat(
      kInput,
      "layer { name: 's' type: 'Softmax' bottom: 'x' top: 'y' phase: TEST loss_weight: [1, 0.5]\n"
      "  param { lr_mult: 1 } param < name: \"w\" > softmax_param { engine: CUDNN }\n"
      "  transform_param { mean_value: 104 mirror: true } loss_param { normalization: VALID } }\n");
  const std::string net = dir_.Write("trained.prototxt", trained);
  EXPECT_TRUE(ConvertCaffe(net, "", dir_.File("trained/1"), {}).ok());
  EXPECT_THAT(
      Error("layer { name: 'in' type: 'Input' top: 'x' input_param { shape { dim: [1, 4, 2, 2] } } "
            "}\n"
            "layer { name: 'n' type: 'LRN' bottom: 'x' top: 'y' lrn_param { engine: CAFFE } }\n"
            "layer { name: 'c' type: 'Clip' bottom: 'y' top: 'z' clip_param { min: 0 max: 1 } }"),
      HasSubstr("node \"c\" (Clip): no converter for this type"));
  EXPECT_THAT(Error("layer { softmax_param { engin: CUDNN } }"),
              HasSubstr("no field named \"engin\""));
}

TEST_F(CaffeTest, OtherNamesOfExtensionOperatorsAreTheSameLayers) {
  const std::string net = dir_.Write(
      "net.prototxt",
      "layer { name: 'in' type: 'Input' top: 'x' input_param { shape { dim: [1, 1, 4, 4] } } }\n"
      "layer { name: 'p' type: 'PassThrough' bottom: 'x' top: 'y' reorg_param { stride: 2 } }\n");
  const auto report = ConvertCaffe(net, "", dir_.File("out/1"), {});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_THAT(report->rows.back().layers, ElementsAre("reorg_layer"));
  EXPECT_THAT(report->outputs, ElementsAre("y [ads, 4, 2, 2]"));
}

TEST_F(CaffeTest, OldTypesWithoutConverterHaveTheNameOfTheFile) {
  EXPECT_THAT(Error("input: 'x' input_dim: 1 input_dim: 4 input_dim: 1 input_dim: 1\n"
                    "layers { name: 'l' type: HINGE_LOSS bottom: 'x' top: 'y' }"),
              HasSubstr("node \"l\" (HINGE_LOSS): no converter for this type"));
}

TEST_F(CaffeTest, OutputDirectoryMustBeNew) {
  const std::string net =
      dir_.Write("net.prototxt", absl::StrCat(kInput,
                                              "layer { name: 'a' type: 'ReLU' bottom: 'x' "
                                              "top: 'y' }"));
  std::filesystem::create_directories(dir_.File("out/1"));
  dir_.Write("out/1/something", "");
  EXPECT_EQ(ConvertCaffe(net, "", dir_.File("out/1"), {}).status().message(),
            dir_.File("out/1") + ": exists and is not empty; name a new version directory");
  EXPECT_TRUE(ConvertCaffe(net, "", dir_.File("out/2/"), {}).ok());
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir_.File("out")), {}), 2)
      << "a scratch directory was left behind";
}

}  // namespace
}  // namespace ulfd::convert
