// Users as a canary tells them apart.
// SPDX-License-Identifier: Apache-2.0
#include "server/scoring/canary_hash.h"

#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace ulfd::server {
namespace {

template <typename Request>
std::optional<int64_t> Hash(const std::string& text, const std::string& feature = "uid") {
  Request request;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &request)) << text;
  return HashFeature(request, feature);
}

constexpr auto Native = &Hash<ulfd::v1::PredictRequest>;
constexpr auto Kserve = &Hash<inference::ModelInferRequest>;
constexpr auto Tensorflow = &Hash<tensorflow::serving::PredictRequest>;

TEST(CallersTest, NativeFeature) {
  const auto one = Native("user_features { name: 'uid' sparse { ids: 7 } }", "uid");
  ASSERT_TRUE(one.has_value());
  // Whatever else the request holds.
  EXPECT_EQ(Native("user_features { name: 'age' sparse { ids: 3 } }"
                   "user_features { name: 'uid' sparse { ids: 7 } }"
                   "ad_features { name: 'mid' sparse { ids: 9 } }",
                   "uid"),
            one);
  EXPECT_NE(Native("user_features { name: 'uid' sparse { ids: 8 } }", "uid"), one);
  EXPECT_NE(Native("user_features { name: 'uid' sparse { ids: [7, 7] } }", "uid"), one);
  EXPECT_TRUE(Native("user_features { name: 'uid' dense { int64s: 7 } }", "uid").has_value());
}

TEST(CallersTest, UnknownUser) {
  EXPECT_EQ(Native("user_features { name: 'uid' sparse {} }", "uid"), std::nullopt);
  EXPECT_EQ(Native("user_features { name: 'uid' dense {} }", "uid"), std::nullopt);
  // A feature of the ads tells nothing of the user.
  EXPECT_EQ(Native("ad_features { name: 'uid' sparse { ids: 7 } }", "uid"), std::nullopt);
  EXPECT_EQ(Kserve("inputs { name: 'mid.ids' contents { int64_contents: 7 } }", "uid"),
            std::nullopt);
  EXPECT_EQ(Kserve("inputs { name: 'uid.ids' } raw_input_contents: ''", "uid"), std::nullopt);
}

TEST(CallersTest, SameUserInAllApisAndForms) {
  const auto native = Native("user_features { name: 'uid' sparse { ids: 7 } }", "uid");
  EXPECT_EQ(Kserve("inputs { name: 'x' contents { fp32_contents: 1 } }"
                   "inputs { name: 'uid.ids' contents { int64_contents: 7 } }",
                   "uid"),
            native);
  EXPECT_EQ(Kserve("inputs { name: 'uid.ids' }"
                   "raw_input_contents: '\\007\\000\\000\\000\\000\\000\\000\\000'",
                   "uid"),
            native);
  for (const char* values :
       {"dtype: DT_INT64 tensor_shape { dim { size: 1 } } int64_val: 7",
        "dtype: DT_INT32 tensor_shape { dim { size: 1 } } int_val: 7",
        "dtype: DT_UINT8 tensor_shape { dim { size: 1 } } tensor_content: '\\007'",
        "dtype: DT_INT64 tensor_shape { dim { size: 3 } } int64_val: [7, 7, 7]",
        "dtype: DT_INT64 tensor_shape { dim { size: 2 } } int64_val: 7",
        "dtype: DT_INT64 tensor_shape { dim { size: 1 } } "
        "tensor_content: '\\007\\000\\000\\000\\000\\000\\000\\000'"}) {
    const bool one_id = absl::StrContains(values, "size: 1");
    for (const char* name : {"uid", "uid.ids"}) {
      if (name == absl::string_view("uid.ids") && !one_id) continue;  // One row of many ids.
      EXPECT_EQ(
          Tensorflow(absl::StrCat("inputs { key: '", name, "' value { ", values, " } }"), "uid"),
          native)
          << name << ": " << values;
    }
  }
  // A value that stands for two rows; its own bytes are two equal halves.
  EXPECT_EQ(Tensorflow("inputs { key: 'uid' value { dtype: DT_INT64 int64_val: 0 "
                       "tensor_shape { dim { size: 2 } } } }",
                       "uid"),
            Native("user_features { name: 'uid' sparse { ids: 0 } }", "uid"));
  EXPECT_EQ(Tensorflow("inputs { key: 'uid' value { dtype: DT_STRING } }", "uid"), std::nullopt);
}

TEST(CallersTest, SameUserHoweverManyAds) {
  const auto one = Native("user_features { name: 'uid' sparse { ids: [7, 8] } }", "uid");
  for (const char* rows : {"shape: [1, 2] contents { int64_contents: [7, 8] }",
                           "shape: [3, 2] contents { int64_contents: [7, 8, 7, 8, 7, 8] }"}) {
    EXPECT_EQ(Kserve(absl::StrCat("inputs { name: 'uid' ", rows, " }"), "uid"), one) << rows;
  }
  EXPECT_NE(Kserve("inputs { name: 'uid' shape: [3, 2] "
                   "contents { int64_contents: [7, 8, 7, 8, 7, 9] } }",
                   "uid"),
            one);
  const auto csr = [](const char* ids, const char* segments) {
    return Kserve(absl::StrCat("inputs { name: 'uid.ids' ", ids,
                               " } inputs { name: 'uid.segments' ", segments, " }"),
                  "uid");
  };
  EXPECT_EQ(csr("shape: 4 contents { int64_contents: [7, 8, 7, 8] }",
                "shape: 2 contents { int_contents: [2, 2] }"),
            one);
  EXPECT_NE(csr("shape: 4 contents { int64_contents: [7, 8, 7, 8] }",
                "shape: 2 contents { int_contents: [1, 3] }"),
            one);
  // Without segments the ids are of one row, however alike they are.
  EXPECT_EQ(
      Kserve("inputs { name: 'uid.ids' shape: 2 contents { int64_contents: [7, 7] } }", "uid"),
      Native("user_features { name: 'uid' sparse { ids: [7, 7] } }", "uid"));
  EXPECT_EQ(Tensorflow("inputs { key: 'uid.ids' value { dtype: DT_INT64 int64_val: [7, 8, 7, 8] "
                       "tensor_shape { dim { size: 4 } } } }"
                       "inputs { key: 'uid.segments' value { dtype: DT_INT32 int_val: 2 "
                       "tensor_shape { dim { size: 2 } } } }",
                       "uid"),
            one);
  // A shape that the values do not fit, which the decoder refuses.
  EXPECT_TRUE(Kserve("inputs { name: 'uid' shape: 9223372036854775807 "
                     "contents { int64_contents: [7, 8] } }",
                     "uid")
                  .has_value());
}

TEST(CallersTest, HashIsWrittenDown) {
  // FNV-1a of the eight bytes of 1, for whoever assigns users outside of the server.
  const auto hash = Native("user_features { name: 'uid' sparse { ids: 1 } }", "uid");
  uint64_t want = 0xcbf29ce484222325;
  for (const uint8_t byte : {1, 0, 0, 0, 0, 0, 0, 0}) want = (want ^ byte) * 0x100000001b3;
  EXPECT_EQ(static_cast<uint64_t>(*hash), want);
}

}  // namespace
}  // namespace ulfd::server
