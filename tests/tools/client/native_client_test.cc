// Arrays of a file become a request by what the daemon says of the model.
// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/client/clients.h"

namespace ulfd::tools {
namespace {

using engine::NpyArray;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A feature "mid" of the ads whose matrix "items" is filled up with 0.
absl::StatusOr<ulfd::v1::PredictRequest> RequestOf(const std::vector<int64_t>& items) {
  ulfd::v1::GetModelMetadataResponse metadata;
  ulfd::v1::SparseFeatureMetadata& feature = *metadata.add_sparse_features();
  feature.set_name("mid");
  feature.set_level(ulfd::v1::TENSOR_LEVEL_AD);
  feature.set_matrix("items");
  feature.set_padding_id(0);
  const std::pair<const char*, ulfd::v1::DataType> parts[] = {
      {"mid.ids", ulfd::v1::DATA_TYPE_INT64}, {"mid.segments", ulfd::v1::DATA_TYPE_INT32}};
  for (const auto& [name, type] : parts) {
    ulfd::v1::TensorMetadata& input = *metadata.add_inputs();
    input.set_name(name);
    input.set_data_type(type);
    input.set_level(ulfd::v1::TENSOR_LEVEL_AD);
  }
  const engine::NpzArrays arrays = {
      {"items", NpyArray::FromInt64({static_cast<int64_t>(items.size()) / 3, 3}, items.data())}};
  EXPECT_EQ(AdsOfRequest(arrays, metadata), static_cast<int64_t>(items.size()) / 3);
  return RequestFromArrays(arrays, metadata);
}

TEST(RequestFromArraysTest, LeavesThePaddingOfAMatrixOut) {
  const auto request = RequestOf({7, 8, 0, 0, 0, 9, 0, 0, 0});
  ASSERT_TRUE(request.ok()) << request.status();
  ASSERT_EQ(request->ad_features_size(), 1);
  EXPECT_EQ(request->ad_features(0).name(), "mid");
  EXPECT_THAT(request->ad_features(0).sparse().ids(), ElementsAre(7, 8, 9));
  EXPECT_THAT(request->ad_features(0).sparse().counts(), ElementsAre(2, 1, 0));
}

TEST(RequestFromArraysTest, RefusesPaddingBetweenIds) {
  EXPECT_THAT(RequestOf({7, 8, 0, 7, 0, 9}).status().message(),
              HasSubstr("input \"items\": row 1: the padding id 0 between ids"));
}

}  // namespace
}  // namespace ulfd::tools
