// Recordings that nobody recorded.
// SPDX-License-Identifier: Apache-2.0
#include "tools/load/recording_arrays.h"

#include <cstdint>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/open_inference.pb.h"
#include "proto/predict.pb.h"

namespace ulfd::tools {
namespace {

using recording::v1::Recording;
using ::testing::HasSubstr;

// Four values do not have any of these.
std::vector<std::vector<int64_t>> WrongShapes() {
  constexpr int64_t kHuge = int64_t{1} << 62;
  return {{1, 2}, {2, 3}, {-2, -2}, {kHuge, 4}, {0, kHuge}, {1000, 1000}};
}

Recording Native(const std::vector<int64_t>& shape, int32_t ads = 2) {
  ulfd::v1::PredictRequest request;
  ulfd::v1::Feature& feature = *request.add_ad_features();
  feature.set_name("x");
  feature.mutable_dense()->mutable_shape()->Add(shape.begin(), shape.end());
  for (int i = 0; i < 4; ++i) feature.mutable_dense()->add_int64s(i);
  Recording record;
  record.set_api(recording::v1::API_NATIVE);
  record.set_ads(ads);
  record.set_request(request.SerializeAsString());
  return record;
}

Recording Kserve(const std::vector<int64_t>& shape) {
  inference::ModelInferRequest request;
  auto& input = *request.add_inputs();
  input.set_name("x");
  input.set_datatype("FP32");
  input.mutable_shape()->Add(shape.begin(), shape.end());
  for (int i = 0; i < 4; ++i) {
    input.mutable_contents()->add_fp32_contents(static_cast<float>(i));
  }
  Recording record;
  record.set_api(recording::v1::API_KSERVE);
  record.set_request(request.SerializeAsString());
  return record;
}

TEST(RecordingArrays, HaveTheTypesOfTheRequest) {
  inference::ModelInferRequest request;
  auto& input = *request.add_inputs();
  input.set_name("x");
  input.add_shape(2);
  Recording record;
  record.set_api(recording::v1::API_KSERVE);
  const auto x = [&] {
    record.set_request(request.SerializeAsString());
    return InputsOfRecording(record)->at("x");
  };
  input.set_datatype("INT8");
  for (const int value : {-1, 2}) input.mutable_contents()->add_int_contents(value);
  EXPECT_EQ(x().ToInt64(), (std::vector<int64_t>{-1, 2}));
  input.clear_contents();
  request.add_raw_input_contents("\xff\x02");
  EXPECT_EQ(x().ToInt64(), (std::vector<int64_t>{-1, 2}));
  input.set_datatype("FP64");
  request.clear_raw_input_contents();
  for (const double value : {0.5, 2.0}) input.mutable_contents()->add_fp64_contents(value);
  EXPECT_EQ(x().ToFloat32(), (std::vector<float>{0.5, 2}));
  input.set_datatype("BYTES");
  record.set_request(request.SerializeAsString());
  EXPECT_THAT(std::string(InputsOfRecording(record).status().message()),
              HasSubstr("input \"x\" has datatype \"BYTES\", want one of numbers"));
}

TEST(RecordingArrays, HaveTheValuesOfTheirShapes) {
  for (const Recording& good : {Native({2, 2}), Native({}), Kserve({2, 2})}) {
    const auto arrays = InputsOfRecording(good);
    ASSERT_TRUE(arrays.ok()) << arrays.status();
    EXPECT_EQ(arrays->at("x").dims, (std::vector<int64_t>{2, 2}));
    EXPECT_EQ(arrays->at("x").elements(), 4);
  }
  for (const auto& shape : WrongShapes()) {
    for (const Recording& bad : {Native(shape), Kserve(shape)}) {
      EXPECT_THAT(InputsOfRecording(bad).status().ToString(),
                  HasSubstr("INVALID_ARGUMENT: \"x\": "));
    }
  }
  for (const int32_t ads : {3, 5, -1, INT32_MAX}) {
    EXPECT_THAT(InputsOfRecording(Native({}, ads)).status().ToString(), HasSubstr("\"x\": "))
        << ads;
  }
}

TEST(RecordingArrays, SoHaveScores) {
  Recording record;
  recording::v1::RecordedOutput& output = *record.add_outputs();
  output.set_name("y");
  for (int i = 0; i < 4; ++i) output.add_values(0.5f);
  for (const auto& shape : WrongShapes()) {
    output.clear_shape();
    output.mutable_shape()->Add(shape.begin(), shape.end());
    EXPECT_THAT(OutputsOfRecording(record).status().ToString(),
                HasSubstr("INVALID_ARGUMENT: \"y\": "));
  }
  output.clear_shape();
  output.add_shape(4);
  const auto arrays = OutputsOfRecording(record);
  ASSERT_TRUE(arrays.ok()) << arrays.status();
  EXPECT_EQ(arrays->at("y").elements(), 4);
}

}  // namespace
}  // namespace ulfd::tools
