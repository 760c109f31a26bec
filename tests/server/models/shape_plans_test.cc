// Plans for shapes that requests show: the manager makes them between loads, counts what they take,
// and makes them for the next version before that is published.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/tensor/onednn.h"
#include "server/models/merged_request.h"
#include "tests/testing/stepped_manager.h"

namespace ulfd::server {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using State = engine::ShapePlanInfo::State;

// A sum of two inputs of any width.
class ShapePlansTest : public SteppedManagerTest {
 protected:
  ShapePlansTest() {
    engine::UseOneThread();
    options_.load = nullptr;
  }
  void Publish(int64_t version) {
    repository_.Write("m", version, "graph_ulf.txt", absl::StrCat("name: \"v", version, R"("
                        layer_params { type: "input_layer" top: "x" top: "y" }
                        layer_params { name: "sum" type: "add_layer" bottom: "x" bottom: "y"
                                       top: "sum" })"));
    repository_.Write("m", version, "_SUCCESS", "");
  }
  // One user's x beside the ads' y, so wide.
  engine::RunStats Run(const engine::Model& model, int64_t width, int64_t ads) {
    std::vector<float> x(width, 1), y(width * ads, 2);
    const std::vector<engine::NamedTensor> inputs = {
        {"x", {engine::DType::kFloat32, {1, width}, x.data()}},
        {"y", {engine::DType::kFloat32, {ads, width}, y.data()}}};
    const absl::Status status = model.Run(inputs, {}, workspace_, result_);
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(result_.outputs[0].f32()[width * ads - 1], 3);
    return result_.stats;
  }
  ModelHandle Model() { return manager_->Find({"m"}).value(); }

  engine::Workspace workspace_;
  engine::RunResult result_;
};

TEST_F(ShapePlansTest, AreMadeForWhatServesAndForTheNextVersionBeforeItIsPublished) {
  Publish(1);
  EXPECT_THAT(Poll(), ElementsAre("published m v1"));
  {
    const ModelHandle v1 = Model();
    EXPECT_FALSE(CanMerge(*v1->model));
    EXPECT_FALSE(v1->lane->merges());
    EXPECT_TRUE(Run(*v1->model, 3, 5).unproved);
    EXPECT_THAT(Poll(), ElementsAre("plan serving m v1"));
    EXPECT_FALSE(Run(*v1->model, 3, 7).unproved);
    EXPECT_TRUE(CanMerge(*v1->model));
    EXPECT_TRUE(v1->lane->merges());
    EXPECT_THAT(Poll(), ElementsAre());
  }
  Publish(2);
  EXPECT_THAT(Poll(), ElementsAre("plan serving m v2", "published m v2"));
  const ModelHandle v2 = Model();
  EXPECT_EQ(v2->version, 2);
  EXPECT_FALSE(Run(*v2->model, 3, 9).unproved);
  EXPECT_TRUE(v2->lane->merges());
}

TEST_F(ShapePlansTest, AreRefusedWhereTheBudgetLeavesNothing) {
  Publish(1);
  // Enough for the model, which has no weights, but not for the copy of a request.
  options_.memory_budget_bytes = 1000;
  EXPECT_THAT(Poll(), Contains("published m v1"));
  const ModelHandle v1 = Model();
  Run(*v1->model, 30, 50);
  EXPECT_THAT(Poll(), ElementsAre("plan refused m v1"));
  EXPECT_TRUE(Run(*v1->model, 30, 50).unproved);
  EXPECT_EQ(v1->model->memory_bytes(), v1->model->info().memory_bytes);
}

TEST_F(ShapePlansTest, TheLoaderMakesThemWhenItIsTold) {
  Publish(1);
  options_.poll_interval = std::chrono::hours(1);
  Create();
  manager_->Start();
  ASSERT_TRUE(manager_->PollNow(std::chrono::steady_clock::now() + std::chrono::minutes(5)).ok());
  const ModelHandle v1 = Model();
  EXPECT_TRUE(Run(*v1->model, 3, 5).wants_plan);
  manager_->PlansWanted();
  while (v1->model->WantsPlans()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(v1->model->shape_plans()[0].state, State::kServing);
  EXPECT_FALSE(Run(*v1->model, 3, 5).unproved);
}

}  // namespace
}  // namespace ulfd::server
