// Requests of the native API: what is accepted, and the exact text of what is refused.
// SPDX-License-Identifier: Apache-2.0
#include "server/scoring/request_decoder.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "absl/strings/str_replace.h"
#include "base/text_file.h"
#include "server/scoring/response_encoder.h"
#include "tests/testing/codec_fixture.h"

namespace ulfd::server {
namespace {

using ulfd::v1::PredictRequest;
using ulfd::v1::PredictResponse;

class RequestDecoderTest : public CodecFixture<PredictRequest, PredictResponse> {
 protected:
  static PredictRequest Parse(const std::string& text) {
    PredictRequest request;
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &request)) << text;
    return request;
  }
  // A good request of three ads, with `more` merged in.
  static PredictRequest Good(const std::string& more = "") {
    return Parse(ulfd::testing::kTinyRequest + more);
  }

  const engine::Tensor* Find(const std::string& name) const {
    for (const engine::NamedTensor& input : decoded_.inputs) {
      if (input.name == name) return &input.tensor;
    }
    return nullptr;
  }
};

TEST_F(RequestDecoderTest, PointsIntoTheRequest) {
  const PredictRequest request = Good();
  ASSERT_TRUE(Decode(request).ok()) << Decode(request);
  EXPECT_EQ(decoded_.ads, 3);
  ASSERT_NE(Find("mid.ids"), nullptr);
  EXPECT_EQ(Find("mid.ids")->data, request.ad_features(0).sparse().ids().data());
  EXPECT_EQ(Find("mid.ids")->dims, (engine::TensorDims{3}));
  EXPECT_EQ(Find("price")->data, request.ad_features(1).dense().floats().data());
  EXPECT_EQ(Find("price")->dims, (engine::TensorDims{3, 1}));
  EXPECT_EQ(Find("mask")->dims, (engine::TensorDims{1, 2}));
  EXPECT_EQ(Find("mid.values"), nullptr);
  EXPECT_EQ(Find("mid.segments"), nullptr);
  EXPECT_THAT(decoded_.outputs, ::testing::ElementsAre(0, 1));
}

TEST_F(RequestDecoderTest, OneNumberForEachRowNeedsNoSecondDimension) {
  PredictRequest request = Good();
  request.mutable_ad_features(1)->mutable_dense()->add_shape(3);
  ASSERT_TRUE(Decode(request).ok()) << Decode(request);
  EXPECT_EQ(Find("price")->dims, (engine::TensorDims{3, 1}));
}

TEST_F(RequestDecoderTest, ScoresAreThoseOfTheModel) {
  const auto response = Answer(Good("request_id: 'r1'"));
  ASSERT_TRUE(response.ok()) << response.status();
  ASSERT_EQ(response->outputs_size(), 2);
  EXPECT_EQ(response->outputs(0).name(), "score");
  EXPECT_THAT(response->outputs(0).shape(), ::testing::ElementsAre(3, 2));
  EXPECT_THAT(response->outputs(0).values(), ::testing::ElementsAre(3.25, 1, 1.5, 1, 6, 1));
  EXPECT_EQ(response->outputs(1).name(), "user_vec");
  EXPECT_THAT(response->outputs(1).values(), ::testing::ElementsAre(0.5, 0));
  EXPECT_EQ(response->request_id(), "r1");
  EXPECT_EQ(response->model().version(), 3);
  EXPECT_EQ(response->indices_size(), 0);
}

TEST_F(RequestDecoderTest, ValuesAndCounts) {
  PredictRequest request = Good();
  auto& mid = *request.mutable_ad_features(0)->mutable_sparse();
  mid.clear_ids();
  for (int id : {10, 11, 12, 99}) mid.add_ids(id);
  for (float v : {1.f, 2.f, 1.f, 5.f}) mid.add_values(v);
  for (int n : {2, 0, 2}) mid.add_counts(n);
  const auto response = Answer(request);
  ASSERT_TRUE(response.ok()) << response.status();
  // 1*1 + 2*2 + 0.25; nothing + 0.5; 3 + an unknown id + 4.
  EXPECT_THAT(response->outputs(0).values(), ::testing::ElementsAre(5.25, 1, 0.5, 1, 7, 1));
  EXPECT_EQ(response->missing_ids(), 1);
}

TEST_F(RequestDecoderTest, TopKKeepsOrderAndWholeUserOutputs) {
  const auto response = Answer(Good("top_k { k: 2 }"));
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_THAT(response->indices(), ::testing::ElementsAre(2, 0));
  EXPECT_THAT(response->scores(), ::testing::ElementsAre(6, 3.25));
  EXPECT_THAT(response->outputs(0).shape(), ::testing::ElementsAre(2, 2));
  EXPECT_THAT(response->outputs(0).values(), ::testing::ElementsAre(6, 1, 3.25, 1));
  EXPECT_THAT(response->outputs(1).shape(), ::testing::ElementsAre(1, 2));

  const auto user_first = Answer(Good("top_k { k: 2 } outputs: 'user_vec' outputs: 'score'"));
  ASSERT_TRUE(user_first.ok()) << user_first.status();
  EXPECT_THAT(user_first->scores(), ::testing::ElementsAre(6, 3.25));

  const auto ties = Answer(Good("top_k { k: 9 column: -1 output: 'score' } outputs: 'user_vec'"));
  ASSERT_TRUE(ties.ok()) << ties.status();
  EXPECT_THAT(ties->indices(), ::testing::ElementsAre(0, 1, 2));
  ASSERT_EQ(ties->outputs_size(), 1);
}

TEST_F(RequestDecoderTest, TopKErrors) {
  EXPECT_EQ(Error(Good("top_k { k: 0 }")), "top_k.k: 0, want at least 1");
  EXPECT_EQ(Error(Good("top_k { k: 1 } outputs: 'user_vec'")),
            "top_k: no output that is asked for has a row per ad");
  EXPECT_EQ(Error(Good("top_k { k: 1 output: 'scores' }")),
            "output \"scores\": unknown; did you mean \"score\"?");
  EXPECT_EQ(Answer(Good("top_k { k: 1 column: 2 }")).status().message(),
            "top_k: output \"score\" has 2 columns, want column 2");
  EXPECT_EQ(Answer(Good("top_k { k: 1 column: -3 }")).status().message(),
            "top_k: output \"score\" has 2 columns, want column -3");
  EXPECT_EQ(Answer(Good("top_k { k: 1 output: 'user_vec' }")).status().message(),
            "top_k: output \"user_vec\" of shape [1, 2] has no row for each of the 3 ads, want one "
            "that has");
}

TEST_F(RequestDecoderTest, Names) {
  EXPECT_EQ(Error(Good("ad_features { name: 'mjd' sparse { } }")),
            "feature \"mjd\": unknown; did you mean \"mid\" or \"uid\"?");
  EXPECT_EQ(Error(Good("ad_features { name: 'zzzzzzzz' dense { } }")),
            "feature \"zzzzzzzz\": unknown; the model has \"uid\", \"mid\", \"price\", \"mask\"");
  EXPECT_EQ(Error(Good("ad_features { name: 'mid' sparse { } }")), "feature \"mid\": given twice");
  EXPECT_EQ(Error(Good("user_features { name: 'price' dense { } }")).substr(0, 16),
            "feature \"price\":");
  EXPECT_EQ(Error(Good("ad_features { name: 'mid.ids' dense { } }")),
            "feature \"mid.ids\": is a part of the sparse feature \"mid\"");
  EXPECT_EQ(Error(Good("ad_features { name: 'mid' }")),
            "feature \"mid\": neither sparse nor dense");
  EXPECT_EQ(Error(Good("outputs: 'scor'")), "output \"scor\": unknown; did you mean \"score\"?");
  EXPECT_EQ(Error(Good("outputs: ['score', 'score']")), "output \"score\": asked for twice");
}

TEST_F(RequestDecoderTest, Kinds) {
  PredictRequest request = Good();
  request.mutable_ad_features(0)->mutable_dense();
  EXPECT_EQ(Error(request), "feature \"mid\": given as dense, want a sparse feature");
  request = Good();
  request.mutable_ad_features(1)->mutable_sparse();
  EXPECT_EQ(Error(request), "feature \"price\": given as sparse, want a dense tensor of float32");
}

TEST_F(RequestDecoderTest, Missing) {
  PredictRequest request = Good();
  request.mutable_ad_features()->DeleteSubrange(0, 1);
  EXPECT_EQ(Error(request),
            "feature \"mid\": missing; the model wants this sparse feature of each ad");
  request = Good();
  request.mutable_user_features()->DeleteSubrange(0, 1);
  EXPECT_EQ(Error(request),
            "feature \"uid\": missing; the model wants this sparse feature of the user");
  request = Good();
  request.mutable_user_features()->RemoveLast();
  EXPECT_THAT(Error(request),
              ::testing::StartsWith("feature \"mask\": missing; the model wants this "
                                    "dense int32 tensor"));
}

TEST_F(RequestDecoderTest, Levels) {
  PredictRequest request = Good();
  request.mutable_user_features()->Add()->Swap(request.mutable_ad_features(0));
  request.mutable_ad_features()->DeleteSubrange(0, 1);
  EXPECT_EQ(Error(request), "feature \"mid\": given as a user feature, but it belongs to the ads");
  request = Good();
  request.mutable_ad_features()->Add()->Swap(request.mutable_user_features(0));
  request.mutable_user_features()->DeleteSubrange(0, 1);
  EXPECT_EQ(Error(request), "feature \"uid\": given as an ad feature, but it belongs to the user");
}

TEST_F(RequestDecoderTest, AFeatureWithoutANameHasRowsToo) {
  const TempDir dir;
  const std::string path = dir.File("nameless/1");
  ulfd::testing::WriteTinyModel(path);
  const std::string graph = absl::StrReplaceAll(ulfd::testing::kTinyGraph, {{"\"mid.", "\"."}});
  const std::string conf =
      absl::StrReplaceAll(ulfd::testing::TinyConf("mid"), {{"\"mid\"", "\"\""}});
  ASSERT_TRUE(WriteTextFile(path + "/graph_ulf.txt", graph).ok());
  ASSERT_TRUE(WriteTextFile(path + "/ad.conf", conf).ok());
  std::filesystem::remove(path + "/model.textproto");
  const auto model = engine::Model::Load({.directory = path});
  ASSERT_TRUE(model.ok()) << model.status();
  const PredictRequest request = Parse(R"(
      model { name: "nameless" }
      ad_features { name: "" sparse { ids: [12, 10, 11] } }
      ad_features { name: "price" dense { floats: [0.25, 0.5] shape: [2, 1] } })");
  EXPECT_EQ(
      DecodeRequest(request, **model, limits_, decoded_).message(),
      "feature \"price\": 2 rows, but feature \"\" has 3: every ad feature has one row per ad");
}

TEST_F(RequestDecoderTest, RowCounts) {
  PredictRequest request = Good();
  request.mutable_ad_features(0)->mutable_sparse()->add_ids(10);
  request.mutable_ad_features(1)->mutable_dense()->add_shape(3);
  request.mutable_ad_features(1)->mutable_dense()->add_shape(1);
  EXPECT_EQ(Error(request),
            "feature \"price\": 3 rows, but feature \"mid\" has 4: every ad feature has one row "
            "per ad");
  request = Good();
  request.mutable_ad_features(1)->mutable_dense()->add_floats(1);
  EXPECT_EQ(Error(request), "feature \"price\": 4 values for 3 ads: not as many for each ad");
  request = Good();
  request.mutable_user_features(0)->mutable_sparse()->add_counts(1);
  request.mutable_user_features(0)->mutable_sparse()->add_counts(0);
  EXPECT_EQ(Error(request), "feature \"uid\": 2 rows, want 1: it is a user feature");
  request = Good();
  request.mutable_user_features(1)->mutable_dense()->add_shape(2);
  request.mutable_user_features(1)->mutable_dense()->add_shape(1);
  EXPECT_EQ(Error(request), "feature \"mask\": 2 rows, want 1: it is a user feature");
}

TEST_F(RequestDecoderTest, NumbersOfAds) {
  PredictRequest request = Good();
  request.mutable_ad_features(0)->mutable_sparse()->clear_ids();
  request.mutable_ad_features(1)->mutable_dense()->clear_floats();
  EXPECT_EQ(Error(request), "0 ads, want 1..2000");
  limits_.max_ads = 2;
  EXPECT_EQ(Error(Good()), "3 ads, want 1..2");
  limits_.max_ads = 2000;
  limits_.max_ids = 3;
  EXPECT_EQ(Error(Good()),
            "feature \"mid\": brings the request to 4 ids, want at most 3 "
            "(limits.max_ids_per_request)");
  limits_.max_ids_per_feature = 2;
  EXPECT_EQ(Error(Good()), "feature \"mid\": 3 ids, want at most 2 (limits.max_ids_per_feature)");
}

TEST_F(RequestDecoderTest, IntegersAreFloatsWhereFloatsAreWanted) {
  PredictRequest request = Good();
  auto& price = *request.mutable_ad_features(1)->mutable_dense();
  price.clear_floats();
  for (const int64_t number : {0, -1, 16777216}) price.add_int64s(number);
  auto response = Answer(request);
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_THAT(response->outputs(0).values(), ::testing::ElementsAre(3, 1, 0, 1, 16777218, 1));
  price.clear_int64s();
  for (const int64_t size : {3, 1}) price.add_shape(size);
  for (const int32_t number : {7, 8, 9}) price.add_int32s(number);
  response = Answer(request);
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_THAT(response->outputs(0).values(), ::testing::ElementsAre(10, 1, 9, 1, 11, 1));
  limits_.max_message_bytes = 11;
  EXPECT_EQ(
      Error(request, absl::StatusCode::kResourceExhausted),
      "feature \"price\": in the types that the model wants, the inputs up to this one take 12 "
      "bytes, more than 11 (limits.max_message_bytes)");
}

TEST_F(RequestDecoderTest, SparseErrors) {
  PredictRequest request = Good();
  auto& mid = *request.mutable_ad_features(0)->mutable_sparse();
  mid.add_values(1);
  EXPECT_EQ(Error(request), "feature \"mid\": 1 values for 3 ids");
  mid.clear_values();
  for (int n : {1, 1, 2}) mid.add_counts(n);
  EXPECT_EQ(Error(request), "feature \"mid\": counts sum to 4, want 3, the number of ids");
  mid.set_counts(1, -1);
  EXPECT_EQ(Error(request), "feature \"mid\": counts[1] is -1, want 0 or more");
}

TEST_F(RequestDecoderTest, DenseErrors) {
  PredictRequest request = Good();
  auto& price = *request.mutable_ad_features(1)->mutable_dense();
  price.add_int64s(1);
  EXPECT_EQ(Error(request), "feature \"price\": values of several types, want one");
  price.clear_floats();
  for (const int64_t number : {4, -16777217}) price.add_int64s(number);
  EXPECT_EQ(Error(request), "feature \"price\": element 2 is -16777217, which is no float32");
  request = Good();
  request.mutable_user_features(1)->mutable_dense()->clear_int32s();
  request.mutable_user_features(1)->mutable_dense()->add_floats(1);
  EXPECT_EQ(Error(request), "feature \"mask\": float32 values, want int32");
  request = Good();
  auto& mask = *request.mutable_user_features(1)->mutable_dense();
  for (int dim : {1, 3}) mask.add_shape(dim);
  EXPECT_EQ(Error(request), "feature \"mask\": 2 values, want 3 for shape [1, 3]");
  mask.set_shape(1, -2);
  EXPECT_EQ(Error(request), "feature \"mask\": shape [1, -2] is not possible: negative dimension");
  mask.set_shape(0, int64_t{1} << 39);
  mask.set_shape(1, int64_t{1} << 39);
  EXPECT_EQ(Error(request),
            "feature \"mask\": shape [549755813888, 549755813888] is not possible: more than "
            "1099511627776 elements");
  mask.mutable_shape()->Resize(65, 1);
  EXPECT_EQ(Error(request),
            "feature \"mask\": a shape of 65 dimensions is not possible: want at most 64");
}

TEST_F(RequestDecoderTest, RequestIdIsBounded) {
  PredictRequest request = Good();
  request.set_request_id(std::string(129, 'x'));
  EXPECT_EQ(Error(request), "request_id: 129 bytes, want at most 128");
}

TEST_F(RequestDecoderTest, CountRowsIsTheNumberOfAds) {
  EXPECT_EQ(CountRows(Good(), *model_, limits_), 3);
  EXPECT_EQ(CountRows(PredictRequest(), *model_, limits_), 1);
  // Where nothing but a dense feature of known width tells.
  PredictRequest dense;
  auto& price = *dense.add_ad_features();
  price.set_name("price");
  for (float p : {1.f, 2.f, 3.f, 4.f}) price.mutable_dense()->add_floats(p);
  EXPECT_EQ(CountRows(dense, *model_, limits_), 4);
}

TEST_F(RequestDecoderTest, CountRowsSeesWhatTheCallerDoesNotState) {
  // A price of one column, but as many values as a hundred ads have.
  PredictRequest request = Good();
  auto& price = *request.mutable_ad_features(1)->mutable_dense();
  price.mutable_shape()->Add(1);
  price.mutable_floats()->Resize(100, 0);
  EXPECT_EQ(CountRows(request, *model_, limits_), 100);
  // Ids that all belong to one ad.
  request = Good();
  request.mutable_ad_features(0)->mutable_sparse()->mutable_ids()->Resize(128000, 1);
  request.mutable_ad_features(0)->mutable_sparse()->add_counts(128000);
  EXPECT_EQ(CountRows(request, *model_, limits_), 1000);
  // What is said, not sent, is worth at most a full request.
  request = Good();
  request.mutable_ad_features(0)->clear_sparse();
  request.mutable_ad_features(0)->mutable_dense()->add_shape(int64_t{1} << 50);
  EXPECT_EQ(CountRows(request, *model_, limits_), 2000);
  // What will be refused does not fill the queue until then.
  request = Good();
  auto& many = *request.mutable_ad_features(1)->mutable_dense();
  many.mutable_floats()->Resize(1000000, 0);
  many.add_shape(1000000);
  EXPECT_EQ(CountRows(request, *model_, limits_), 2000);
}

TEST(StatedShape, WithoutALevelBindsTheRowsAlone) {
  using engine::Dim;
  engine::InputInfo input{.name = "x", .shape = engine::Shape({Dim::Unknown(), Dim::Of(8)})};
  EXPECT_TRUE(CheckStatedShape(input, {1, 5, 8}, 5, "x").ok());  // Not stated at all.
  input.shape_stated = true;
  EXPECT_TRUE(CheckStatedShape(input, {5, 8}, 5, "x").ok());
  EXPECT_TRUE(CheckStatedShape(input, {1, 8}, 5, "x").ok());
  EXPECT_EQ(CheckStatedShape(input, {1, 150000, 8}, 1, "x").message(),
            "x: shape [1, 150000, 8], want [?, 8]");
  EXPECT_EQ(CheckStatedShape(input, {5, 7}, 5, "x").message(), "x: shape [5, 7], want [?, 8]");
}

TEST(ModelSpec, Choice) {
  ulfd::v1::ModelSpec spec;
  EXPECT_EQ(ChoiceOf(spec).status(), absl::InvalidArgumentError("model.name: empty"));
  spec.set_name("m");
  EXPECT_EQ(ChoiceOf(spec)->version, std::nullopt);
  spec.set_version(0);
  EXPECT_EQ(ChoiceOf(spec).status(),
            absl::InvalidArgumentError("model.version: 0, want a positive number"));
  spec.set_version(4);
  EXPECT_EQ(ChoiceOf(spec)->version, 4);
  spec.set_label("");
  EXPECT_EQ(ChoiceOf(spec).status(), absl::InvalidArgumentError("model.label: empty"));
  spec.set_label("canary");
  EXPECT_EQ(ChoiceOf(spec)->label, "canary");
}

TEST(RankAds, NanComesLastAndTiesKeepTheirOrder) {
  float data[] = {1, NAN, 3, 3, -INFINITY, 2};
  const engine::Tensor tensor{engine::DType::kFloat32, {6, 1}, data};
  const auto ranking = RankAds(tensor, {.name = "score"}, {.k = 10}, 6);
  ASSERT_TRUE(ranking.ok());
  EXPECT_THAT(ranking->indices, ::testing::ElementsAre(2, 3, 5, 0, 4, 1));
  EXPECT_TRUE(std::isnan(ranking->scores[5]));
}

TEST(RankAds, TheLevelDecidesNotTheNumberOfRows) {
  float data[] = {1, 2, 3};
  const engine::Tensor tensor{engine::DType::kFloat32, {3, 1}, data};
  engine::OutputInfo output{.name = "constant", .level = engine::Level::kConstant};
  EXPECT_EQ(RankAds(tensor, output, {.k = 1}, 3).status().message(),
            "top_k: output \"constant\" of shape [3, 1] has no row for each of the 3 ads, want one "
            "that has");
  ulfd::v1::PredictRequest request;
  engine::ModelInfo info;
  info.outputs = {{.name = "score", .level = engine::Level::kAd}, output};
  engine::RunResult result;
  result.outputs = {tensor, tensor};
  DecodedRequest decoded;
  decoded.ads = 3;
  decoded.outputs = {0, 1};
  decoded.top_k = {.k = 1, .output = 0};
  ulfd::v1::PredictResponse response;
  ASSERT_TRUE(EncodeResponse(request, decoded, info, result, response).ok());
  EXPECT_EQ(response.outputs(0).shape(0), 1);
  EXPECT_EQ(response.outputs(1).shape(0), 3);
}

}  // namespace
}  // namespace ulfd::server
