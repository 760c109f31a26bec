// MergedRequest: a batch gives each request what it gets alone, and refuses what does not fit.
// SPDX-License-Identifier: Apache-2.0
#include "server/models/merged_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "engine/tensor/onednn.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/tiny_model.h"
#include "tests/testing/user_batch.h"

namespace ulfd::server {
namespace {

using engine::DType;
using engine::NamedTensor;
using engine::Tensor;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A request of the tiny model: uid, mask, mid and price.
struct TinyRequest {
  std::vector<int64_t> uid = {1}, mid;
  std::vector<float> uid_values, price;
  std::vector<int32_t> mask = {1, 1}, mid_segments;

  std::vector<NamedTensor> tensors() {
    const auto n = [](const auto& v) { return static_cast<int64_t>(v.size()); };
    const auto ads = n(price);
    std::vector<NamedTensor> all = {{"uid.ids", {DType::kInt64, {n(uid)}, uid.data()}},
                                    {"mid.ids", {DType::kInt64, {n(mid)}, mid.data()}},
                                    {"price", {DType::kFloat32, {ads, 1}, price.data()}},
                                    {"mask", {DType::kInt32, {1, n(mask)}, mask.data()}}};
    if (!uid_values.empty()) {
      all.push_back({"uid.values", {DType::kFloat32, {n(uid_values)}, uid_values.data()}});
    }
    if (!mid_segments.empty()) {
      all.push_back({"mid.segments", {DType::kInt32, {n(mid_segments)}, mid_segments.data()}});
    }
    return all;
  }
};

class MergedRequestTest : public ::testing::Test {
 protected:
  MergedRequestTest() {
    engine::UseOneThread();
    ulfd::testing::WriteTinyModel(dir_.File("tiny/1"));
    auto model = engine::Model::Load({.directory = dir_.File("tiny/1")});
    EXPECT_TRUE(model.ok()) << model.status();
    model_ = *std::move(model);
  }

  std::vector<MergedRequest::Part> Parts(std::vector<TinyRequest>& requests) {
    tensors_.clear();
    for (TinyRequest& request : requests) tensors_.push_back(request.tensors());
    std::vector<MergedRequest::Part> parts;
    for (size_t i = 0; i < requests.size(); ++i) {
      parts.push_back(
          {.inputs = tensors_[i], .ads = static_cast<int64_t>(requests[i].price.size())});
    }
    return parts;
  }

  TempDir dir_;
  std::unique_ptr<const engine::Model> model_;
  std::vector<std::vector<NamedTensor>> tensors_;
  engine::Workspace workspace_;
};

TEST_F(MergedRequestTest, EachPartGetsWhatItGetsAlone) {
  std::vector<TinyRequest> requests(4);
  requests[0] = {.mid = {10, 11, 12}, .price = {1, 2, 3}};
  // Two ids in the user's row, with values; an unknown id; rows of several ids.
  requests[1] = {.uid = {1, 1}, .mid = {12, 99}, .uid_values = {2, 0.5}, .price = {0.5, 0.25}};
  requests[2] = {.mid = {10, 11, 12}, .price = {7}, .mid_segments = {3}};
  requests[3] = {.uid = {}, .mid = {11, 98}, .price = {4, 5}, .mask = {0, 1}};
  const std::vector<MergedRequest::Part> parts = Parts(requests);

  std::vector<std::vector<ulfd::testing::OwnedOutput>> wanted;
  std::vector<std::vector<int64_t>> wanted_missing;
  engine::RunResult result;
  for (const MergedRequest::Part& part : parts) {
    const absl::Status status = model_->Run(part.inputs, {}, workspace_, result);
    ASSERT_TRUE(status.ok()) << status;
    wanted.push_back(ulfd::testing::Keep(result));
    wanted_missing.push_back(result.stats.missing_ids);
  }

  ASSERT_TRUE(CanMerge(*model_));
  MergedRequest merged;
  ASSERT_TRUE(merged.Join(*model_, parts).ok());
  EXPECT_THAT(merged.ads_per_user(), ElementsAre(3, 2, 1, 2));
  engine::RunOptions options;
  options.ads_per_user = merged.ads_per_user();
  const absl::Status status = model_->Run(merged.inputs(), options, workspace_, result);
  ASSERT_TRUE(status.ok()) << status;
  for (size_t i = 0; i < parts.size(); ++i) {
    engine::RunResult one;
    ASSERT_TRUE(merged.Cut(model_->info(), result, static_cast<int64_t>(i), one).ok());
    EXPECT_LE(ulfd::testing::Difference(ulfd::testing::Keep(one), wanted[i]), 1e-6) << i;
  }
  std::vector<std::vector<int64_t>> missing;
  ShareMissingIds(*model_, parts, merged.fetched(), result.stats.missing_ids, missing);
  EXPECT_EQ(missing, wanted_missing);
  EXPECT_EQ(wanted_missing[1], wanted_missing[3]);
}

TEST_F(MergedRequestTest, RowsOfSeveralShapesDoNotFit) {
  std::vector<TinyRequest> requests(2);
  requests[0] = {.mid = {10}, .price = {1}};
  requests[1] = {.mid = {10}, .price = {1}, .mask = {1, 1, 1}};
  MergedRequest merged;
  const absl::Status status = merged.Join(*model_, Parts(requests));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("\"mask\": rows of several shapes"));
}

TEST_F(MergedRequestTest, WhatOneGivesAndAnotherNotDoesNotFit) {
  std::vector<TinyRequest> requests(2, {.mid = {10}, .price = {1}});
  std::vector<MergedRequest::Part> parts = Parts(requests);
  parts[1].inputs = parts[1].inputs.subspan(0, 3);  // No mask.
  MergedRequest merged;
  EXPECT_THAT(std::string(merged.Join(*model_, parts).message()),
              HasSubstr("\"mask\": given by some requests, not by others"));
}

TEST_F(MergedRequestTest, IsReusable) {
  MergedRequest merged;
  for (const int64_t n : {3, 1, 2}) {
    std::vector<TinyRequest> requests(n, {.mid = {10}, .price = {1}});
    ASSERT_TRUE(merged.Join(*model_, Parts(requests)).ok());
    EXPECT_THAT(merged.ads_per_user(), ::testing::SizeIs(n));
    EXPECT_EQ(merged.inputs().size(), 5u);  // With uid.segments, which tells whose ids are whose.
  }
}

TEST_F(MergedRequestTest, AResultOfOtherRowsIsAnError) {
  std::vector<TinyRequest> requests(2, {.mid = {10}, .price = {1}});
  MergedRequest merged;
  ASSERT_TRUE(merged.Join(*model_, Parts(requests)).ok());
  engine::RunResult result, one;
  ASSERT_TRUE(model_->Run(Parts(requests)[0].inputs, {}, workspace_, result).ok());
  EXPECT_EQ(merged.Cut(model_->info(), result, 0, one).code(), absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace ulfd::server
