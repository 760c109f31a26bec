// The model manager and deltas of real models: what is applied, refused, undone and folded, step by
// step.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/directory/delta_directory.h"
#include "engine/tensor/onednn.h"
#include "server/models/model_change.h"
#include "tests/testing/delta_files.h"
#include "tests/testing/stepped_manager.h"
#include "tests/testing/tiny_model.h"

namespace ulfd::server {
namespace {

using testing::DeltaHead;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::TableContent;

class ManagerDeltaTest : public SteppedManagerTest {
 protected:
  ManagerDeltaTest() {
    options_.load = nullptr;
    testing::WriteTinyModel(repository_.Path("m", 1));
  }
  void Push(int64_t epoch, int64_t base_epoch, const TableContent& rows) {
    testing::WriteDelta(
        repository_.Path("m", 1), epoch,
        DeltaHead(base_epoch, epoch) + "tables { name: \"mid_table\" put: \"mid\" }",
        {{"mid", rows}});
  }
  void Push(int64_t epoch, int64_t base_epoch) {
    Push(epoch, base_epoch, {{10, {static_cast<float>(epoch), 0}}});
  }
  // Score 0 of mid 10.
  float Score() {
    engine::UseOneThread();
    int64_t uid = 1, mid = 10;
    float price = 0;
    int32_t mask[2] = {1, 1};
    const std::vector<engine::NamedTensor> inputs = {
        {"uid.ids", {.dtype = engine::DType::kInt64, .dims = {1}, .data = &uid}},
        {"mid.ids", {.dtype = engine::DType::kInt64, .dims = {1}, .data = &mid}},
        {"price", {.dtype = engine::DType::kFloat32, .dims = {1, 1}, .data = &price}},
        {"mask", {.dtype = engine::DType::kInt32, .dims = {1, 2}, .data = mask}}};
    const auto handle = manager_->Find({"m"});
    EXPECT_TRUE(handle.ok()) << handle.status();
    engine::Workspace workspace;
    engine::RunResult result;
    const auto& model = *(*handle)->model;
    EXPECT_TRUE(model.Run(inputs, {}, workspace, result).ok());
    return result.outputs[static_cast<size_t>(model.FindOutput("score"))].f32()[0];
  }
  const engine::ModelInfo& Info() { return (*manager_->Find({"m"}))->model->info(); }
  ModelChangeResult Change(ModelChange change) {
    ModelChangeResult result;
    change.name = "m";
    manager_->Apply([&] { return change; }, [&](ModelChangeResult made) { result = made; });
    observer_.TakeEvents();
    return result;
  }
};

TEST_F(ManagerDeltaTest, DeltasAreAppliedAtOnceAndAgainAfterARestart) {
  EXPECT_THAT(Poll(), ElementsAre("published m v1"));
  const int64_t loaded = Info().weight_bytes;
  Push(1, 0);
  Push(2, 1);
  EXPECT_THAT(Poll(), ElementsAre("published m v1"));
  EXPECT_EQ(Score(), 2);
  EXPECT_EQ(Info().epoch, 2);
  EXPECT_EQ(Info().weight_bytes, loaded);
  EXPECT_EQ(Serving(), "v1 generation 2");
  EXPECT_THAT(Poll(), IsEmpty());
  Push(7, 2);
  EXPECT_THAT(Poll(), ElementsAre("published m v1"));
  manager_.reset();
  EXPECT_THAT(Poll(), ElementsAre("published m v1"));
  EXPECT_EQ(Score(), 7);
  EXPECT_EQ(Serving(), "v1 generation 1");
}

TEST_F(ManagerDeltaTest, ARefusedDeltaIsNotTriedAgainUntilSomethingChanges) {
  Poll();
  Push(1, 0);
  Poll();
  Push(3, 2);  // Its base is not there yet.
  EXPECT_THAT(Poll(), ElementsAre("failed m v1 content"));
  EXPECT_THAT(Version(1).error, HasSubstr("follows epoch 2, and 1 is the last one"));
  EXPECT_EQ(Version(1).state, VersionState::kServing);
  EXPECT_THAT(Poll(), IsEmpty());
  EXPECT_EQ(Score(), 1);
  Push(2, 1);
  EXPECT_THAT(Poll(), ElementsAre("published m v1", "published m v1"));
  EXPECT_EQ(Score(), 3);
  EXPECT_EQ(Version(1).error, "");

  Push(4, 3, {{10, {1, 2, 3}}});
  EXPECT_THAT(Poll(), ElementsAre("failed m v1 table"));
  EXPECT_THAT(Version(1).error, HasSubstr("rows of 3 values, want 2"));
  Push(5, 4);
  EXPECT_THAT(Poll(), ElementsAre("failed m v1 content"));
  EXPECT_THAT(Version(1).error, HasSubstr("rows of 3 values, want 2"))
      << "why none of those after it is served, either";
  std::filesystem::remove_all(engine::EpochDirectory(repository_.Path("m", 1), 5));
  Push(4, 3);
  EXPECT_THAT(Poll(), ElementsAre("published m v1"));
  EXPECT_EQ(Score(), 4);
}

// The clock may be wrong, and put right.
TEST_F(ManagerDeltaTest, ADeltaFromTheFutureIsTriedAgain) {
  Poll();
  testing::WriteDelta(repository_.Path("m", 1), 1,
                      DeltaHead(0, 8'000'000'000) + "tables { name: \"mid_table\" put: \"mid\" }",
                      {{"mid", {{10, {1, 0}}}}});
  EXPECT_THAT(Poll(), ElementsAre("failed m v1 io"));
  EXPECT_THAT(Version(1).error, HasSubstr("want at most an hour after now"));
  EXPECT_THAT(Poll(), IsEmpty());
  EXPECT_THAT(PollAfter(std::chrono::minutes(1)), ElementsAre("failed m v1 io"));
}

TEST_F(ManagerDeltaTest, ABadDeltaAtTheStartCostsNothingButItself) {
  Push(1, 0);
  Push(2, 1, {{10, {1, 2, 3}}});
  EXPECT_THAT(Poll(), ElementsAre("published m v1", "failed m v1 table"));
  EXPECT_EQ(Score(), 1);
  EXPECT_THAT(Poll(), IsEmpty());
}

TEST_F(ManagerDeltaTest, ManyBadDeltasAreOneFailureAndEachTouchOneMore) {
  Poll();
  for (int touch = 0; touch < 3; ++touch) {
    for (int epoch = 1; epoch <= 3; ++epoch) {
      std::filesystem::remove_all(engine::EpochDirectory(repository_.Path("m", 1), epoch));
      Push(epoch, epoch - 1, {{10, {1, 2, 3}}});
    }
    EXPECT_THAT(Poll(), ElementsAre("failed m v1 table"));
    EXPECT_THAT(Version(1).error, HasSubstr("rows of 3 values, want 2"));
    EXPECT_THAT(Poll(), IsEmpty());
  }
}

TEST_F(ManagerDeltaTest, AnotherContentOfTheVersionTakesItsDeltasAlong) {
  Push(1, 0);
  Poll();
  std::ofstream(repository_.Path("m", 1) + "/mid_table") << "10,1,0\n11,50,0\n";
  EXPECT_THAT(Poll(), IsEmpty());
  EXPECT_THAT(PollAfter(options_.settle_time), ElementsAre("published m v1"));
  EXPECT_EQ(Score(), 1);
  EXPECT_EQ(Info().epoch, 1);
}

TEST_F(ManagerDeltaTest, RollbackGoesToAnyEpochThatIsKept) {
  for (int64_t epoch = 1; epoch <= 4; ++epoch) Push(epoch, epoch - 1);
  Poll();
  EXPECT_EQ(Score(), 4);
  for (const int64_t epoch : {2, 3, 0, 4, 1}) {
    const ModelChangeResult result = Change({.kind = ModelChange::Kind::kRollback, .epoch = epoch});
    EXPECT_TRUE(result.applied) << result.status;
    EXPECT_EQ(Info().epoch, epoch);
    EXPECT_EQ(Score(), epoch == 0 ? 1 : static_cast<float>(epoch));
    EXPECT_THAT(Poll(), IsEmpty());
  }
  Push(5, 4);
  EXPECT_THAT(Poll(), IsEmpty());
  EXPECT_EQ(manager_->List()[0].versions[0].error, "epochs above 1 stay out since a roll-back");
  EXPECT_FALSE(manager_->List()[0].versions[0].delta_refused);
  std::filesystem::remove_all(engine::EpochDirectory(repository_.Path("m", 1), 2));
  ModelChangeResult result = Change({.kind = ModelChange::Kind::kRollback, .epoch = 2});
  EXPECT_EQ(result.status.code(), absl::StatusCode::kNotFound);
  result = Change({.kind = ModelChange::Kind::kRollback, .epoch = 3});
  EXPECT_THAT(result.status.message(), HasSubstr("follows epoch 2, and 1 is the last one"));
  EXPECT_EQ(Info().epoch, 1);
  Push(2, 1);
  result = Change({.kind = ModelChange::Kind::kLoad, .version = 1});
  EXPECT_TRUE(result.applied) << result.status;
  EXPECT_EQ(Score(), 5);
}

TEST_F(ManagerDeltaTest, RollbackToAnEpochOutlastsARestart) {
  OperatorStates kept;
  options_.keep = [&](const OperatorStates& states) {
    kept = states;
    return absl::OkStatus();
  };
  for (int64_t epoch = 1; epoch <= 2; ++epoch) Push(epoch, epoch - 1);
  Poll();
  EXPECT_TRUE(Change({.kind = ModelChange::Kind::kRollback, .epoch = 1}).applied);
  options_.operator_states = kept;
  manager_.reset();
  Poll();
  EXPECT_EQ(Score(), 1);
  Push(3, 2);
  Poll();
  EXPECT_EQ(Score(), 1);
  EXPECT_TRUE(Change({.kind = ModelChange::Kind::kLoad}).applied);
  EXPECT_EQ(Score(), 3);
  EXPECT_TRUE(kept.empty());
}

TEST_F(ManagerDeltaTest, RollbackToAnEpochEndsWithTheContentOfTheVersion) {
  OperatorStates kept;
  options_.keep = [&](const OperatorStates& states) {
    kept = states;
    return absl::OkStatus();
  };
  const std::string table = repository_.Path("m", 1) + "/mid_table";
  for (int64_t epoch = 1; epoch <= 2; ++epoch) Push(epoch, epoch - 1);
  Poll();
  EXPECT_TRUE(Change({.kind = ModelChange::Kind::kRollback, .epoch = 1}).applied);
  // Touched, it is the same content.
  std::filesystem::last_write_time(table, std::filesystem::file_time_type::clock::now());
  Poll();
  EXPECT_THAT(PollAfter(options_.settle_time), ElementsAre("published m v1"));
  EXPECT_EQ(Score(), 1);

  std::ofstream(table) << "10,1,0\n11,50,0\n";
  Poll();
  PollAfter(options_.settle_time);
  EXPECT_EQ(Score(), 2);
  EXPECT_EQ(Version(1).error, "");

  options_.operator_states = kept;
  manager_.reset();
  Poll();
  EXPECT_EQ(Score(), 2) << "nor does another content take over what was kept for a restart";
}

TEST_F(ManagerDeltaTest, OverlaysAreFolded) {
  options_.fold.share = 0.5;
  Poll();
  TableContent many;
  for (int64_t id = 100; id < 12000; ++id) many[id] = {1, 1};
  many[10] = {6, 0};
  Push(1, 0, many);
  EXPECT_THAT(Poll(), ElementsAre("published m v1", "published m v1"));
  EXPECT_EQ(Score(), 6);
  EXPECT_EQ(Info().folds, 1);
  int64_t rows = 0, overlay = 0;
  for (const engine::TableInfo& table : Info().tables) {
    rows += table.rows;
    overlay += table.overlay_rows;
  }
  EXPECT_EQ(overlay, 0);
  EXPECT_EQ(rows, 11900 + 3 + 1);
  Push(2, 1);
  EXPECT_THAT(Poll(), ElementsAre("published m v1"));
  EXPECT_EQ(Score(), 2);
}

TEST_F(ManagerDeltaTest, WhatCannotBeFoldedServesOnAndSaysWhy) {
  options_.fold = {.share = 0.5, .directory = "/proc/nowhere"};
  Poll();
  TableContent many;
  for (int64_t id = 10; id < 12000; ++id) many[id] = {3, 0};
  Push(1, 0, many);
  EXPECT_THAT(Poll(), ElementsAre("published m v1"));
  EXPECT_EQ(Score(), 3);
  EXPECT_EQ(Info().folds, 0);
  ASSERT_EQ(observer_.notices().size(), 1u);
  EXPECT_THAT(observer_.notices()[0], HasSubstr("table \"mid_table\" is not folded: "));
  EXPECT_THAT(observer_.notices()[0], HasSubstr("/proc/nowhere"));
  // It is tried again each time that as much has come as makes a fold due, and not before.
  Push(2, 1);
  Poll();
  EXPECT_EQ(observer_.notices().size(), 1u);
  for (int64_t epoch = 3; epoch <= 5; ++epoch) {
    Push(epoch, epoch - 1, many);
    Poll();
    EXPECT_EQ(observer_.notices().size(), static_cast<size_t>(epoch - 1));
  }
  int64_t overlay = 0;
  for (const engine::TableInfo& table : Info().tables) overlay += table.overlay_rows;
  EXPECT_LE(overlay, 2 * static_cast<int64_t>(many.size() + 1)) << "replaced rows are given back";
}

TEST_F(ManagerDeltaTest, EqualTextTablesAreHeldOnce) {
  const std::string first = repository_.Path("m", 1), second = repository_.Path("m", 2);
  std::filesystem::copy(first, second, std::filesystem::copy_options::recursive);
  std::ofstream(second + "/weights.pb", std::ios::app) << "# Only the weights are others.\n";
  options_.default_policy.latest = 2;
  EXPECT_EQ(Poll().size(), 2u);
  const auto one = manager_->Find({.name = "m", .version = 1});
  const auto two = manager_->Find({.name = "m", .version = 2});
  ASSERT_TRUE(one.ok() && two.ok());
  for (size_t t = 0; t < 2; ++t) {
    EXPECT_EQ((*one)->model->tables()[t]->base(), (*two)->model->tables()[t]->base());
  }
}

}  // namespace
}  // namespace ulfd::server
