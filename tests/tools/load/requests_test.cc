// Flags of `ulf load`, what the metadata says about inputs, and requests made up from it.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <set>

#include "google/protobuf/text_format.h"
#include "tools/load/load_options.h"
#include "tools/load/model_inputs.h"
#include "tools/load/random_requests.h"

namespace ulfd::tools {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

template <typename Message>
Message FromText(const char* text) {
  Message message;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &message));
  return message;
}

ulfd::v1::GetModelMetadataResponse Shop() {
  return FromText<ulfd::v1::GetModelMetadataResponse>(R"pb(
    inputs { name: "user.ids" data_type: DATA_TYPE_INT64 shape: -1 }
    inputs { name: "user.values" data_type: DATA_TYPE_FLOAT32 shape: -1 }
    inputs { name: "user.segments" data_type: DATA_TYPE_INT32 shape: 1 }
    inputs { name: "ad.ids" data_type: DATA_TYPE_INT64 shape: -1 }
    inputs { name: "ad.values" data_type: DATA_TYPE_FLOAT32 shape: -1 }
    inputs { name: "ad.segments" data_type: DATA_TYPE_INT32 shape: -1 }
    inputs {
      name: "mask"
      data_type: DATA_TYPE_INT32
      shape: [ 1, 5 ]
      level: TENSOR_LEVEL_USER
    }
    inputs {
      name: "ctx"
      data_type: DATA_TYPE_FLOAT32
      shape: [ -1, 3 ]
      level: TENSOR_LEVEL_AD
    }
    sparse_features { name: "user" level: TENSOR_LEVEL_USER }
    sparse_features { name: "ad" level: TENSOR_LEVEL_AD max_ids_per_row: 2 }
  )pb");
}

RandomRequests Maker(RandomRequestOptions options = {}) {
  const auto inputs = InputsOf(Shop(), {});
  EXPECT_TRUE(inputs.ok()) << inputs.status();
  return RandomRequests(*inputs, std::move(options));
}

TEST(ModelInputs, native_metadata) {
  const auto inputs = InputsOf(Shop(), {});
  ASSERT_TRUE(inputs.ok()) << inputs.status();
  ASSERT_EQ(inputs->sparse.size(), 2u);
  EXPECT_TRUE(inputs->sparse[0].of_user);
  EXPECT_FALSE(inputs->sparse[1].of_user);
  ASSERT_EQ(inputs->dense.size(), 2u);
  EXPECT_TRUE(inputs->dense[0].of_user);
  EXPECT_THAT(inputs->dense[0].dims, ElementsAre(5));
  EXPECT_FALSE(inputs->dense[1].of_user);
  EXPECT_THAT(inputs->dense[1].dims, ElementsAre(3));
}

TEST(ModelInputs, metadata_of_a_foreign_server) {
  const auto metadata = FromText<inference::ModelMetadataResponse>(R"pb(
    inputs { name: "f.ids" datatype: "INT64" shape: -1 }
    inputs { name: "f.values" datatype: "FP32" shape: -1 }
    inputs { name: "f.segments" datatype: "INT32" shape: 1 }
    inputs {
      name: "lonely.ids"
      datatype: "INT64"
      shape: [ -1, 4 ]
    }
    inputs {
      name: "image"
      datatype: "UINT8"
      shape: [ 2, 8, 8 ]
    }
    inputs { name: "flag" datatype: "BOOL" shape: -1 }
  )pb");
  const auto inputs = InputsOf(metadata, {});
  ASSERT_TRUE(inputs.ok()) << inputs.status();
  ASSERT_EQ(inputs->sparse.size(), 1u);
  EXPECT_EQ(inputs->sparse[0].name, "f");
  EXPECT_TRUE(inputs->sparse[0].of_user);
  ASSERT_EQ(inputs->dense.size(), 3u);
  EXPECT_FALSE(inputs->dense[0].of_user);
  EXPECT_EQ(inputs->dense[1].user_rows, 2);
  EXPECT_THAT(inputs->dense[1].dims, ElementsAre(8, 8));

  RandomRequests maker(*inputs, {.first_int = 0, .last_int = 255});
  inference::ModelInferRequest request;
  maker.Fill({.user = 1, .ads = 7, .number = 0}, request);
  ASSERT_EQ(request.inputs_size(), 4);
  ASSERT_EQ(request.raw_input_contents_size(), 4);
  const std::map<std::string, size_t> bytes = {
      {"f.ids", 20 * 8}, {"lonely.ids", 7 * 4 * 8}, {"image", 2 * 8 * 8}, {"flag", 7}};
  for (int i = 0; i < 4; ++i) {
    const auto& tensor = request.inputs(i);
    EXPECT_EQ(request.raw_input_contents(i).size(), bytes.at(tensor.name())) << tensor.name();
    if (tensor.name() == "image") {
      EXPECT_THAT(tensor.shape(), ElementsAre(2, 8, 8));
    } else if (tensor.name() == "lonely.ids") {
      EXPECT_THAT(tensor.shape(), ElementsAre(7, 4));
    }
  }
}

TEST(ModelInputs, shapes_that_no_request_can_have_are_refused) {
  v1::GetModelMetadataResponse metadata = Shop();
  auto& shape = *metadata.mutable_inputs(metadata.inputs_size() - 1)->mutable_shape();
  for (const int64_t dim : {int64_t{1} << 29, int64_t{1} << 40, INT64_MAX}) {
    shape.Clear();
    for (const int64_t d : {int64_t{-1}, dim, dim}) shape.Add(d);
    EXPECT_THAT(std::string(InputsOf(metadata, {}).status().message()),
                AllOf(HasSubstr("input \"ctx\" of shape [-1, "), HasSubstr("at most 268435456")));
  }
  shape.Clear();
  for (const int64_t d : {-1, 1 << 20}) shape.Add(d);
  // What is said of the ids is no number of them.
  metadata.mutable_sparse_features(1)->set_max_ids_per_row(-5);
  const auto inputs = InputsOf(metadata, {});
  ASSERT_TRUE(inputs.ok()) << inputs.status();
  const auto of_ads = [&](const char* ads) {
    return RandomRequests(*inputs, {.ads = *AdCounts::Parse(ads)});
  };
  EXPECT_EQ(
      of_ads("1000").CheckSize().message(),
      "input \"ctx\": 1000 ads with 1048576 values each, want at most 268435456 in a request");
  EXPECT_TRUE(of_ads("2").CheckSize().ok());
  v1::PredictRequest request;
  of_ads("2").Fill({.user = 1, .ads = 2, .number = 0}, request);
  EXPECT_GT(request.ByteSizeLong(), 8u << 20);
}

TEST(ModelInputs, open_shapes_are_to_be_stated) {
  const auto metadata = FromText<inference::ModelMetadataResponse>(R"pb(
    inputs {
      name: "x"
      datatype: "FP32"
      shape: [ -1, -1 ]
    }
    inputs { name: "y" datatype: "FP32" }
  )pb");
  EXPECT_THAT(
      std::string(InputsOf(metadata, {}).status().message()),
      HasSubstr("input \"x\" is not known but for its rank: state it with --shape=x:-1x10"));
  EXPECT_THAT(std::string(InputsOf(metadata, {{"x", {-1, 6}}}).status().message()),
              HasSubstr("the shape of input \"y\" is not known"));
  const auto inputs = InputsOf(metadata, {{"x", {-1, 6}}, {"y", {1, 4}}});
  ASSERT_TRUE(inputs.ok()) << inputs.status();
  EXPECT_THAT(inputs->dense[0].dims, ElementsAre(6));
  EXPECT_TRUE(inputs->dense[1].of_user);
  EXPECT_EQ(InputsOf(metadata, {{"x", {-1, 6}}, {"y", {1, 4}}, {"z", {1}}}).status().message(),
            "--shape: the model has no dense input \"z\"; it has x, y");
  const auto strings = FromText<inference::ModelMetadataResponse>(
      R"pb(inputs { name: "s" datatype: "BYTES" shape: -1 })pb");
  EXPECT_THAT(std::string(InputsOf(strings, {}).status().message()),
              HasSubstr("input \"s\" has elements of type BYTES"));
}

TEST(RandomRequests, are_complete_and_within_their_ranges) {
  const RandomRequests maker = Maker({.first_id = 100,
                                      .last_id = 120,
                                      .user_ids = 4,
                                      .feature_ids = {{"ad", 3}},
                                      .first_int = 0,
                                      .last_int = 1});
  ulfd::v1::PredictRequest request;
  maker.Fill({.user = 5, .ads = 6, .number = 9}, request);
  ASSERT_EQ(request.user_features_size(), 2);
  ASSERT_EQ(request.ad_features_size(), 2);
  EXPECT_EQ(request.user_features(0).sparse().ids_size(), 4);
  EXPECT_EQ(request.user_features(0).sparse().counts_size(), 0);
  EXPECT_EQ(request.ad_features(0).sparse().ids_size(), 18);
  EXPECT_THAT(request.ad_features(0).sparse().counts(), ElementsAre(3, 3, 3, 3, 3, 3));
  for (const int64_t id : request.ad_features(0).sparse().ids()) {
    EXPECT_GE(id, 100);
    EXPECT_LE(id, 120);
  }
  const auto& mask = request.user_features(1).dense();
  EXPECT_THAT(mask.shape(), ElementsAre(1, 5));
  ASSERT_EQ(mask.int32s_size(), 5);
  for (const int32_t value : mask.int32s()) EXPECT_TRUE(value == 0 || value == 1);
  const auto& context = request.ad_features(1).dense();
  EXPECT_THAT(context.shape(), ElementsAre(6, 3));
  ASSERT_EQ(context.floats_size(), 18);
  std::set<float> distinct(context.floats().begin(), context.floats().end());
  EXPECT_GT(distinct.size(), 10u);
  EXPECT_GE(*distinct.begin(), -1);
  EXPECT_LE(*distinct.rbegin(), 1);
}

TEST(RandomRequests, one_ad_id_needs_no_counts) {
  ulfd::v1::PredictRequest request;
  Maker().Fill({.user = 5, .ads = 6, .number = 9}, request);
  EXPECT_EQ(request.ad_features(0).sparse().ids_size(), 6);
  EXPECT_EQ(request.ad_features(0).sparse().counts_size(), 0);
}

TEST(RandomRequests, rows_have_no_more_ids_than_the_model_takes) {
  ulfd::v1::PredictRequest request;
  Maker({.ad_ids = 5}).Fill({.user = 5, .ads = 3, .number = 9}, request);
  EXPECT_THAT(request.ad_features(0).sparse().counts(), ElementsAre(2, 2, 2));
}

TEST(RandomRequests, a_user_stays_the_same_and_ads_change) {
  const RandomRequests maker = Maker();
  ulfd::v1::PredictRequest a, b, other;
  maker.Fill({.user = 5, .ads = 6, .number = 1}, a);
  maker.Fill({.user = 5, .ads = 9, .number = 2}, b);
  maker.Fill({.user = 6, .ads = 6, .number = 1}, other);
  EXPECT_EQ(a.user_features(0).SerializeAsString(), b.user_features(0).SerializeAsString());
  EXPECT_NE(a.user_features(0).SerializeAsString(), other.user_features(0).SerializeAsString());
  EXPECT_NE(a.ad_features(0).SerializeAsString(), b.ad_features(0).SerializeAsString());
}

TEST(RandomRequests, are_those_of_their_seed) {
  const auto make = [](uint64_t seed, uint64_t number) {
    const RandomRequests maker = Maker({.ads = *AdCounts::Parse("uniform:1..50"), .seed = seed});
    ulfd::v1::PredictRequest request;
    maker.Fill(maker.Choose(number), request);
    return request.SerializeAsString();
  };
  EXPECT_EQ(make(1, 3), make(1, 3));
  EXPECT_NE(make(1, 3), make(2, 3));
  EXPECT_NE(make(1, 3), make(1, 4));
}

TEST(RandomRequests, frequent_users_come_often) {
  const RandomRequests maker = Maker({.users = 1000, .user_zipf = 1});
  std::map<int64_t, int> seen;
  for (uint64_t i = 0; i < 20000; ++i) ++seen[maker.Choose(i).user];
  // 1 / H(1000) = 0.1336.
  EXPECT_NEAR(seen[0], 2672, 250);
  EXPECT_GT(seen.size(), 700u);
}

TEST(RandomRequests, unknown_features_are_named) {
  EXPECT_EQ(Maker({.feature_ids = {{"adz", 3}}}).CheckFeatureNames().message(),
            "--feature_ids: the model has no sparse feature \"adz\"; it has user, ad");
  EXPECT_TRUE(Maker({.feature_ids = {{"ad", 3}}}).CheckFeatureNames().ok());
}

std::string OptionsError(std::vector<std::string> args) {
  const auto options = ParseLoadOptions(args);
  if (options.ok()) return "";
  EXPECT_TRUE(IsUsageError(options.status())) << options.status();
  return std::string(options.status().message());
}

TEST(LoadOptions, errors_name_the_flag) {
  const auto with = [](std::vector<std::string> more) {
    more.insert(more.begin(), {"host:1", "--model=m"});
    return OptionsError(more);
  };
  EXPECT_THAT(OptionsError({}), HasSubstr("usage: ulf load HOST:PORT"));
  EXPECT_EQ(OptionsError({"host:1"}), "--model is needed");
  EXPECT_EQ(with({"--rat=3"}), "unknown flag --rat; did you mean \"rate\"?");
  EXPECT_EQ(with({"--rate=0"}), "--rate: 0, want 0.001 to 1e+06");
  EXPECT_EQ(with({"--rate=nan"}), "--rate: nan, want 0.001 to 1e+06");
  EXPECT_EQ(with({"--arrival=poison"}),
            "--arrival: \"poison\", want poisson, constant, bursts or recorded");
  EXPECT_EQ(with({"--arrival=recorded"}), "--arrival=recorded wants --replay");
  EXPECT_EQ(with({"--burst=factor=2,period=1s,length=0.1s"}), "--burst: only for --arrival=bursts");
  EXPECT_EQ(with({"--arrival=bursts", "--burst=length=2s"}),
            "--burst: the length must be shorter than the period");
  EXPECT_EQ(with({"--arrival=bursts", "--burst=lenth=2s"}),
            "--burst: \"lenth=2s\", want factor=5,period=1s,length=100ms");
  EXPECT_EQ(with({"--closed_loop=2", "--rate=5"}),
            "only one of --closed_loop and --rate can be given");
  EXPECT_EQ(with({"--ads=lots"}), "--ads: \"lots\", want a number in 1..1000000");
  EXPECT_EQ(with({"--inputs=a.npz", "--ads=3"}), "only one of --inputs and --ads can be given");
  EXPECT_EQ(with({"--ids=5"}), "--ids: \"5\", want LOW..HIGH");
  EXPECT_EQ(with({"--ids=9..5"}), "--ids: \"9..5\", want LOW..HIGH");
  EXPECT_EQ(with({"--feature_ids=ad"}), "--feature_ids: \"ad\", want NAME:N");
  EXPECT_EQ(with({"--shape=x:3x-1"}), "--shape: \"x:3x-1\", want NAME:-1x10 or NAME:1x10");
  EXPECT_EQ(with({"--metadata=key"}), "--metadata: \"key\", want KEY=VALUE");
  EXPECT_EQ(with({"--api=rest"}), "--api: \"rest\", want native or kserve");
  EXPECT_EQ(with({"--api=kserve", "--top_k=3"}), "--top_k: only for the native API");
  EXPECT_EQ(with({"--warmup=10s"}), "--warmup must be shorter than --duration");
  EXPECT_EQ(with({"--timeout=0"}), "--timeout: 0, want 1ms to 1h");
  EXPECT_EQ(with({"--speed=2"}), "--speed: only for --arrival=recorded");
}

TEST(LoadOptions, are_read) {
  const std::vector<std::string> args = {"a:1",
                                         "b:2",
                                         "--model=m",
                                         "--arrival=bursts",
                                         "--ids=-5..5",
                                         "--rate=250",
                                         "--burst=factor=3,length=20ms,period=200ms",
                                         "--shape=x:-1x4,y:1x2x3",
                                         "--feature_ids=a:b:7",
                                         "--metadata=k=v=w,l="};
  const auto options = ParseLoadOptions(args);
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_THAT(options->targets, ElementsAre("a:1", "b:2"));
  EXPECT_EQ(options->bursts.factor, 3);
  EXPECT_EQ(options->bursts.length_s, 0.02);
  EXPECT_EQ(options->random.first_id, -5);
  EXPECT_THAT(options->shapes.at("x"), ElementsAre(-1, 4));
  EXPECT_THAT(options->shapes.at("y"), ElementsAre(1, 2, 3));
  EXPECT_EQ(options->random.feature_ids.at("a:b"), 7);
  EXPECT_THAT(options->connection.metadata,
              ElementsAre(testing::Pair("k", "v=w"), testing::Pair("l", "")));
  EXPECT_EQ(DescribeArrivals(*options),
            "bursts of 3 times the rate for 0.02 s of every 0.2 s, 250/s on average");
}

TEST(LoadOptions, a_recording_is_replayed_as_it_came_unless_a_rate_is_given) {
  const auto recorded = ParseLoadOptions(std::vector<std::string>{"a:1", "--replay=f"});
  ASSERT_TRUE(recorded.ok()) << recorded.status();
  EXPECT_EQ(recorded->arrival, ArrivalKind::kRecorded);
  const auto rated = ParseLoadOptions(std::vector<std::string>{"a:1", "--replay=f", "--rate=5"});
  ASSERT_TRUE(rated.ok()) << rated.status();
  EXPECT_EQ(rated->arrival, ArrivalKind::kPoisson);
}

}  // namespace
}  // namespace ulfd::tools
