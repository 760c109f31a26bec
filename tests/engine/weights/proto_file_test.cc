// Text and binary protobuf files: what is accepted, and where errors point.
// SPDX-License-Identifier: Apache-2.0
#include "engine/weights/proto_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <string>

#include "base/load_scope.h"
#include "proto/embedding.pb.h"
#include "proto/model_manifest.pb.h"
#include "proto/ulf.pb.h"
#include "tests/testing/temp_dir.h"

namespace ulfd::engine {
namespace {

using ::testing::HasSubstr;

std::string TextError(absl::string_view text) {
  ulf::NetParameter net;
  return std::string(ParseTextProto(text, "g.txt", net).message());
}

std::string BinaryError(absl::string_view bytes) {
  ulf::NetParameter net;
  return std::string(ParseBinaryProto(bytes, "g.ulf", net).message());
}

TEST(ParseTextProto, AcceptsWhatRealGraphsContain) {
  ulf::NetParameter net;
  const absl::Status status = ParseTextProto(
      "# exported\n"
      "layer_params : { type: 'bn_layer' bn_param : { eps: 1e-3 } }\r\n"
      "layer_params {\n"
      "  type: \"inner_product_layer\"\n"
      "  inner_product_param { transpose: True, bias_term: False }\n"
      "}\n"
      "layer_params { reshape_param { shape: [0, -1] shape: 18 } }\n",
      "g.txt", net);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_FLOAT_EQ(net.layer_params(0).bn_param().eps(), 1e-3f);
  EXPECT_TRUE(net.layer_params(1).inner_product_param().transpose());
  EXPECT_FALSE(net.layer_params(1).inner_product_param().bias_term());
  EXPECT_EQ(net.layer_params(2).reshape_param().shape_size(), 3);
}

TEST(ParseTextProto, SkipsAByteOrderMark) {
  EXPECT_EQ(TextError("\xef\xbb\xbflayer_params {}"), "");
}

TEST(ParseTextProto, EndsWithTheLoad) {
  const std::atomic<bool> cancelled = true;
  const LoadScope load({.cancelled = &cancelled});
  ulf::NetParameter net;
  const absl::Status read =
      ParseProto("layer_params { name: 'long' }", "g.txt", ProtoFormat::kText, net).status();
  const LoadScope::WithoutRefusals for_the_messages;
  EXPECT_TRUE(absl::IsCancelled(read)) << read;
}

TEST(ParseTextProto, ErrorsHaveLineAndColumn) {
  EXPECT_EQ(TextError("layer_params {\n  nmae: \"a\"\n}\n"),
            "g.txt:2:7: Message type \"ulf.LayerParameter\" has no field named \"nmae\"; did you "
            "mean \"name\"?");
  EXPECT_EQ(TextError("layer_params { name: 7 }"), "g.txt:1:22: Expected string, got: 7");
  EXPECT_EQ(TextError("layer_params {\n  bn_param { eps: 0.1 }\n"),
            "g.txt:3:1: Expected identifier, got: end of file");
  EXPECT_EQ(TextError("layer_params { name: \"a\" name: \"b\" }"),
            "g.txt:1:30: Non-repeated field \"name\" is specified multiple times.");
}

TEST(ParseTextProto, NamesMissingRequiredFieldsAndWhere) {
  EXPECT_EQ(TextError("layer_params { name: \"a\" }\n"
                      "layer_params {\n  concat_param { }\n}\n"),
            "g.txt:3:3: required field layer_params[1].concat_param.dim of ulf.NetParameter is "
            "missing");
}

TEST(ParseTextProto, RefusesUnknownEnumValues) {
  blaze::EmbeddingConfig config;
  const absl::Status status = ParseTextProto(
      "block_config { embedding_block_config_item { feature_group: 'f'\n trunc_direction: kLeft } "
      "}",
      "e.conf", config);
  EXPECT_EQ(
      std::string(status.message()),
      "e.conf:2:25: Unknown enumeration value of \"kLeft\" for field \"trunc_direction\"; want "
      "one of kInorder, kReverse");
  ulfd::model::v1::ModelManifest manifest;
  EXPECT_EQ(std::string(ParseTextProto("precision: BF16", "m", manifest).message()),
            "m:1:16: Unknown enumeration value of \"BF16\" for field \"precision\"; want one of "
            "PRECISION_FP32, PRECISION_BF16, PRECISION_AUTO, PRECISION_INT8");
}

TEST(ParseTextProto, SaysWhichFieldMayHaveBeenMeant) {
  ulfd::model::v1::ModelManifest manifest;
  EXPECT_THAT(std::string(ParseTextProto("doble_layers: \"a\"", "m", manifest).message()),
              ::testing::HasSubstr("; did you mean \"double_layers\"?"));
}

TEST(ParseTextProto, RefusesNumbersThatAnEnumLacks) {
  ulfd::model::v1::ModelManifest manifest;
  const auto error = [&manifest](const char* text) {
    return std::string(ParseTextProto(text, "m", manifest).message());
  };
  EXPECT_EQ(error("tables { missing_keys: 9 }"),
            "m: tables[0].missing_keys: 9 is no value of MissingKeyPolicy");
  EXPECT_EQ(error("backend: -1"), "m: backend: -1 is no value of Backend");
  EXPECT_EQ(error("backend: 1"), "");
}

TEST(ParseBinaryProto, SaysWhereATruncatedFileEnds) {
  ulf::NetParameter net;
  net.add_layer_params()->set_name("abc");
  net.add_layer_params()->set_name("defgh");
  const std::string bytes = net.SerializeAsString();
  EXPECT_EQ(BinaryError(bytes), "");
  EXPECT_EQ(BinaryError(bytes.substr(0, bytes.size() - 2)),
            "g.ulf: binary ulf.NetParameter: truncated or broken: layer_params[1] at byte 7 has 7 "
            "bytes, 5 are left");
}

TEST(ParseBinaryProto, RefusesUnknownFields) {
  ulf::NetParameter net;
  net.add_layer_params();
  auto* layer = net.add_layer_params();
  layer->GetReflection()->MutableUnknownFields(layer)->AddVarint(900, 1);
  EXPECT_EQ(BinaryError(net.SerializeAsString()),
            "g.ulf: binary ulf.NetParameter: layer_params[1].field 900 is unknown");
}

TEST(ParseProto, RefusesTextThatIsNotUtf8) {
  EXPECT_EQ(TextError("layer_params { name: \"caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x99\x82\" }"), "");
  for (const char* bad : {"\xff", "\xc3", "\xc0\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80",
                          "\xe2\x82x", "\x80", "\xe0\x80\x80", "\xf0\x80\x80\x80"}) {
    ulf::NetParameter net;
    net.add_layer_params()->add_bottom(bad);
    EXPECT_THAT(BinaryError(net.SerializeAsString()),
                HasSubstr("NetParameter: layer_params[0].bottom[0] \""))
        << bad;
  }
  EXPECT_EQ(TextError("layer_params { name: \"a\\377\" }"),
            "g.txt: layer_params[0].name \"a\\xff\" is not UTF-8");
}

// protobuf's parser quotes what it does not expect.
TEST(ParseTextProto, QuotesNeitherBrokenNorEndlessText) {
  EXPECT_EQ(TextError("'\xfah'"), "g.txt:1:1: Expected identifier, got: '\\xfah'");
  const std::string endless = TextError("layer_params { " + std::string(100000, 'x') + ": 1 }");
  EXPECT_THAT(endless, HasSubstr("has no field named \"xxx"));
  EXPECT_LT(endless.size(), 1100);
}

TEST(ParseBinaryProto, NamesMissingRequiredFields) {
  ulf::NetParameter net;
  net.add_layer_params()->mutable_embedding_param();
  EXPECT_EQ(BinaryError(net.SerializePartialAsString()),
            "g.ulf: binary ulf.NetParameter: required field "
            "layer_params[0].embedding_param.embedding_conf_path of ulf.NetParameter is missing");
}

TEST(DetectProtoFormat, TellsTextFromBinary) {
  ulf::NetParameter net;
  net.add_layer_params()->set_type("relu_layer");
  EXPECT_EQ(DetectProtoFormat(net.SerializeAsString()), ProtoFormat::kBinary);
  EXPECT_EQ(DetectProtoFormat(net.DebugString()), ProtoFormat::kText);
  EXPECT_EQ(DetectProtoFormat("\r\n\t# caf\xc3\xa9\n"), ProtoFormat::kText);
  EXPECT_EQ(DetectProtoFormat(""), ProtoFormat::kText);
}

TEST(ReadProtoFile, ReadsBothFormats) {
  const TempDir dir;
  ulf::NetParameter net, read;
  net.add_layer_params()->set_type("relu_layer");
  EXPECT_EQ(*ReadProtoFile(dir.Write("a", net.SerializeAsString()), ProtoFormat::kDetect, read),
            ProtoFormat::kBinary);
  EXPECT_EQ(read.DebugString(), net.DebugString());
  EXPECT_EQ(*ReadProtoFile(dir.Write("b", net.DebugString()), ProtoFormat::kDetect, read),
            ProtoFormat::kText);
  EXPECT_EQ(read.DebugString(), net.DebugString());
}

// Two bytes each, and a hundred in memory.
TEST(ParseProto, RefusesWhatGrowsOutOfProportion) {
  std::string empty_layers;
  for (int i = 0; i < 4 << 20; ++i) empty_layers += std::string("\x0a\0", 2);
  ulf::NetWeightsParameter weights;
  const absl::Status refused =
      ParseProto(empty_layers, "w.pb", ProtoFormat::kDetect, weights).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(refused.message(),
            "w.pb: 8388608 bytes of too many small things: parsed, a ulf.NetWeightsParameter of "
            "that size may take 134217728 bytes of memory");
  EXPECT_EQ(weights.layer_weights_params_size(), 0);

  std::string one_array = "layer_weights_params { blob_datas { ";
  for (int i = 0; i < 1 << 20; ++i) one_array += "data: 0 ";
  EXPECT_TRUE(ParseProto(one_array + "} }", "w.txt", ProtoFormat::kDetect, weights).ok());
}

TEST(ReadProtoFile, NamesAFileThatIsNotThere) {
  const TempDir dir;
  ulf::NetParameter net;
  const absl::Status missing = ReadProtoFile(dir.File("none"), ProtoFormat::kText, net).status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.message()), HasSubstr(dir.File("none")));
  EXPECT_EQ(ReadProtoFile(dir.path(), ProtoFormat::kText, net).status().message(),
            dir.path() + ": not a regular file");
}

}  // namespace
}  // namespace ulfd::engine
