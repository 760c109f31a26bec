// Bodies of REST requests: what is read, what is refused and how.
// SPDX-License-Identifier: Apache-2.0
#include "server/scoring/inference_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace ulfd::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class InferenceJsonTest : public ::testing::Test {
 protected:
  absl::Status Parse(absl::string_view json, absl::string_view behind = "") {
    request_.Clear();
    binary_ = {};
    return ParseInferBody(absl::StrCat(json, behind), json.size(), limits_, request_, binary_);
  }
  std::string Error(absl::string_view json, absl::string_view behind = "") {
    const absl::Status status = Parse(json, behind);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    return std::string(status.message());
  }
  // One input.
  static std::string With(absl::string_view datatype, absl::string_view shape,
                          absl::string_view data) {
    return absl::StrCat(R"({"inputs":[{"name":"x","shape":)", shape, R"(,"datatype":")", datatype,
                        R"(","data":)", data, "}]}");
  }
  const inference::InferTensorContents& contents() const { return request_.inputs(0).contents(); }

  JsonLimits limits_;
  inference::ModelInferRequest request_;
  BinaryOutputs binary_;
};

TEST_F(InferenceJsonTest, ReadsWhatTheProtocolHas) {
  ASSERT_TRUE(Parse(R"({"id":"r7","inputs":[
      {"name":"ids","datatype":"INT64","shape":[2,2],"data":[[9007199254740993,-1],[2,3]]},
      {"data":[1,2.5,-3e-2],"shape":[3],"name":"f","datatype":"FP32"},
      {"name":"n","shape":[1],"datatype":"INT32","data":[-2147483648]}],
      "outputs":[{"name":"score"},{"name":"v","parameters":{"binary_data":true}}]})")
                  .ok());
  EXPECT_EQ(request_.id(), "r7");
  EXPECT_THAT(contents().int64_contents(), ElementsAre(9007199254740993, -1, 2, 3));
  EXPECT_THAT(request_.inputs(0).shape(), ElementsAre(2, 2));
  EXPECT_THAT(request_.inputs(1).contents().fp32_contents(), ElementsAre(1, 2.5f, -3e-2f));
  EXPECT_THAT(request_.inputs(2).contents().int_contents(), ElementsAre(INT32_MIN));
  ASSERT_EQ(request_.outputs_size(), 2);
  EXPECT_FALSE(binary_.Has("score"));
  EXPECT_TRUE(binary_.Has("v"));
}

TEST_F(InferenceJsonTest, BytesBehindTheJson) {
  const std::string json = R"({"parameters":{"binary_data_output":true},"inputs":[
      {"name":"a","datatype":"INT64","shape":[1],"parameters":{"binary_data_size":8}},
      {"name":"b","datatype":"INT32","shape":[1],"data":[7]}]})";
  const std::string nine("\x09\0\0\0\0\0\0\0", 8);
  ASSERT_TRUE(Parse(json, nine).ok());
  ASSERT_EQ(request_.raw_input_contents_size(), 2);
  EXPECT_EQ(request_.raw_input_contents(0), nine);
  EXPECT_EQ(request_.raw_input_contents(1), std::string("\x07\0\0\0", 4));
  EXPECT_TRUE(binary_.Has("anything"));
  EXPECT_TRUE(request_.parameters().empty());
  EXPECT_THAT(Error(json, nine.substr(1)), HasSubstr("7 bytes behind the JSON, but"));
  EXPECT_THAT(Error(json, nine + "x"), HasSubstr("9 bytes behind the JSON, but"));
  EXPECT_THAT(
      Error(R"({"inputs":[{"name":"a","parameters":{"binary_data_size":18446744073709551615}}]})"),
      HasSubstr("a number beyond 64 bits"));
  EXPECT_THAT(Error(R"({"inputs":[{"data":[1],"parameters":{"binary_data_size":8}}]})", nine),
              HasSubstr("inputs[0].data: beside binary_data_size"));
  EXPECT_EQ(ParseInferBody("{}", 3, limits_, request_, binary_).message(),
            "Inference-Header-Content-Length: 3, but the body has 2 bytes");
}

TEST_F(InferenceJsonTest, ParametersGoToTheDecoderWhichRefusesThem) {
  ASSERT_TRUE(Parse(R"({"parameters":{"sequence_id":7},"inputs":[]})").ok());
  EXPECT_EQ(request_.parameters().at("sequence_id").int64_param(), 7);
}

TEST_F(InferenceJsonTest, WhatIsNoJson) {
  EXPECT_THAT(Error(""), StartsWith("JSON: "));
  EXPECT_THAT(Error("{\"inputs\":["), HasSubstr("column 12"));
  EXPECT_THAT(Error(With("FP32", "[1]", "[NaN]")), HasSubstr("invalid literal"));
  EXPECT_THAT(Error(With("FP32", "[1]", "[1e999]")), HasSubstr("number overflow"));
  EXPECT_THAT(Error("{} {}"), HasSubstr("column 4"));
  EXPECT_THAT(Error("{\"id\":\"\xff\"}"), HasSubstr("ill-formed UTF-8"));
}

TEST_F(InferenceJsonTest, WhatIsNoRequest) {
  EXPECT_EQ(Error("[]"), "JSON: an array at the top, want one object");
  EXPECT_EQ(Error("{\"inputs\":{}}"),
            "JSON: an object at \"inputs\", want id (a text), inputs, outputs, parameters");
  EXPECT_EQ(Error("{\"inputs\":[3]}"), "JSON: a number at inputs, want objects");
  EXPECT_EQ(Error(R"({"id":null})"),
            "JSON: null at \"id\", want id (a text), inputs, outputs, parameters");
  EXPECT_EQ(Error(R"({"inputs":[{"name":"x","nme":"y"}]})"),
            "JSON: a text at inputs[0].nme, want name, datatype (texts), shape, data, parameters");
  EXPECT_EQ(Error(R"({"inputs":[{"shape":[1.5]}]})"),
            "JSON: a fraction at inputs[0].shape, want whole numbers");
  EXPECT_EQ(Error(R"({"inputs":[{"name":"x"}]})"),
            "inputs[0].data: missing, and no number of at least 0 as parameters.binary_data_size");
}

// Which of two counts, readers do not agree on.
TEST_F(InferenceJsonTest, MembersGivenTwice) {
  EXPECT_EQ(Error(R"({"inputs":[{"data":[1],"data":[2]}]})"),
            "JSON: a second value at inputs[0].data, want name, datatype (texts), shape, data, "
            "parameters");
  for (const char* twice :
       {R"({"id":"a","inputs":[],"id":"b"})", R"({"inputs":[],"inputs":[]})",
        R"({"outputs":[{"name":"a"}],"outputs":[]})", R"({"parameters":{},"parameters":{}})",
        R"({"parameters":{"a":1,"\u0061":2}})", R"({"inputs":[{"name":"x","name":"y"}]})",
        R"({"inputs":[{"shape":[1],"shape":[2]}]})",
        R"({"inputs":[{"datatype":"FP32","datatype":"INT64"}]})",
        R"({"inputs":[{"parameters":{"binary_data_size":1,"binary_data_size":2}}]})",
        R"({"outputs":[{"name":"x","name":"y"}]})",
        R"({"outputs":[{"parameters":{"binary_data":true,"binary_data":false}}]})"}) {
    EXPECT_THAT(Error(twice), StartsWith("JSON: a second value at ")) << twice;
  }
}

TEST_F(InferenceJsonTest, NumbersHaveTheWidestTypeOfTheirKind) {
  ASSERT_TRUE(Parse(R"({"inputs":[
      {"name":"t","shape":[2],"data":[true,0],"datatype":"BOOL"},
      {"name":"u","datatype":"UINT8","shape":[2],"data":[0,255]},
      {"name":"h","datatype":"FP16","shape":[1],"data":[0.5]},
      {"name":"d","datatype":"FP64","shape":[2],"data":[0.1,2]},
      {"name":"x","datatype":"INT8","shape":[1],"data":[-1]}]})")
                  .ok());
  const auto datatype = [this](int i) { return request_.inputs(i).datatype(); };
  EXPECT_EQ(datatype(0), "INT64");
  EXPECT_THAT(request_.inputs(0).contents().int64_contents(), ElementsAre(1, 0));
  EXPECT_THAT(request_.inputs(1).contents().int64_contents(), ElementsAre(0, 255));
  EXPECT_EQ(datatype(2), "FP32");
  EXPECT_THAT(request_.inputs(2).contents().fp32_contents(), ElementsAre(0.5f));
  EXPECT_EQ(datatype(3), "FP64");
  EXPECT_THAT(request_.inputs(3).contents().fp64_contents(), ElementsAre(0.1, 2));
  EXPECT_THAT(request_.inputs(4).contents().int64_contents(), ElementsAre(-1));
}

TEST_F(InferenceJsonTest, DataThatDoesNotFit) {
  EXPECT_EQ(Error(With("INT32", "[1]", "[2147483648]")),
            "inputs[0].data[0] is 2147483648, which is no INT32");
  EXPECT_EQ(Error(With("INT64", "[1]", "[1.5]")),
            "inputs[0].data: a fraction, or a number beyond 64 bits; want whole numbers");
  EXPECT_EQ(Error(With("FP32", "[2]", "[0,1e39]")), "inputs[0].data[1] is 1e+39, which is no FP32");
  EXPECT_EQ(Error(With("BYTES", "[1]", "[\"a\"]")), "JSON: a text at inputs[0].data, want numbers");
  EXPECT_EQ(Error(With("INT64", "[1]", "[true]")), "inputs[0].data: a truth value, want numbers");
  EXPECT_EQ(Error(With("INT8", "[2]", "[1,128]")), "inputs[0].data[1] is 128, which is no INT8");
  EXPECT_EQ(Error(With("UINT64", "[1]", "[-1]")), "inputs[0].data[0] is -1, which is no UINT64");
  EXPECT_EQ(Error(With("BOOL", "[1]", "[2]")), "inputs[0].data[0] is 2, which is no BOOL");
  // Arrays in arrays say the shape once more.
  for (const char* data : {"[[1,2],[3]]", "[[1,2],3]", "[[1,2,3],[4,5,6]]", "[[[1,2],[3,4]]]"}) {
    EXPECT_EQ(Error(With("INT64", "[2,2]", data)),
              "inputs[0].data: arrays in arrays that are not as the shape")
        << data;
  }
  EXPECT_TRUE(Parse(With("INT64", "[2,2]", "[1,2,3,4]")).ok());
}

TEST_F(InferenceJsonTest, NothingGrowsBeyondItsLimits) {
  EXPECT_EQ(Error(With("INT64", "[1]", std::string(100000, '['))),
            "JSON: arrays in arrays more than 8 deep at inputs[0].data, want numbers");
  limits_.max_fields = 100;
  std::string many = R"({"inputs":[)";
  for (int i = 0; i < 200; ++i) absl::StrAppend(&many, i == 0 ? "" : ",", R"({"data":[]})");
  EXPECT_EQ(Parse(many + "]}").message(),
            "JSON: more than 100 members (limits.max_request_fields)");
  EXPECT_LT(request_.inputs_size(), 100);
}

TEST_F(InferenceJsonTest, Replies) {
  inference::ModelInferResponse response;
  response.set_model_name("rank");
  response.set_model_version("3");
  response.set_id("a\"b");
  auto& score = *response.add_outputs();
  score.set_name("score");
  score.set_datatype("FP32");
  score.add_shape(3);
  for (const float value : {0.1f, -2.f, 1e-20f}) score.mutable_contents()->add_fp32_contents(value);
  auto& best = *response.add_outputs();
  best.set_name("best");
  best.set_datatype("INT64");
  best.add_shape(1);
  best.mutable_contents()->add_int64_contents(int64_t{1} << 60);
  auto body = WriteInferBody(response, {});
  ASSERT_TRUE(body.ok()) << body.status();
  EXPECT_EQ(body->text,
            R"({"model_name":"rank","model_version":"3","id":"a\"b","outputs":[)"
            R"({"name":"score","datatype":"FP32","shape":[3],"data":[0.1,-2,1e-20]},)"
            R"({"name":"best","datatype":"INT64","shape":[1],"data":[1152921504606846976]}]})");
  EXPECT_EQ(body->json_bytes, body->text.size());

  score.mutable_contents()->set_fp32_contents(1, NAN);
  EXPECT_EQ(WriteInferBody(response, {}).status().message(),
            "output \"score\": NaN or infinite, which JSON cannot say; want it as binary_data");
  body = WriteInferBody(response, {.names = {"score"}});
  ASSERT_TRUE(body.ok()) << body.status();
  EXPECT_THAT(body->text, HasSubstr(R"("shape":[3],"parameters":{"binary_data_size":12}})"));
  EXPECT_EQ(body->text.size(), body->json_bytes + 12);
}

}  // namespace
}  // namespace ulfd::server
