// Deltas on top of a model: what it scores, what it shares, and every delta that is refused.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "engine/embedding/table_overlay.h"
#include "engine/runtime/model.h"
#include "engine/tensor/onednn.h"
#include "engine/weights/digest.h"
#include "tests/testing/delta_files.h"
#include "tests/testing/rocksdb_table.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/tiny_model.h"

namespace ulfd::engine {
namespace {

using testing::DeltaHead;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::WriteDelta;
using ModelPtr = std::unique_ptr<const Model>;

constexpr char kPutMid[] = "tables { name: \"mid_table\" put: \"mid\" }\n";

class ModelDeltaTest : public ::testing::Test {
 protected:
  ModelDeltaTest() : version_(dir_.File("m/1")) {
    UseOneThread();
    testing::WriteTinyModel(version_);
  }
  ModelPtr Load() {
    auto model = Model::Load({.directory = version_});
    EXPECT_TRUE(model.ok()) << model.status();
    return *std::move(model);
  }
  std::vector<DeltaSource> Sources(const std::vector<int64_t>& epochs) const {
    std::vector<DeltaSource> sources;
    for (const int64_t epoch : epochs) sources.push_back({epoch, EpochDirectory(version_, epoch)});
    return sources;
  }
  ModelPtr Apply(const Model& model, const std::vector<int64_t>& epochs) {
    DeltasResult result = model.WithDeltas(Sources(epochs));
    for (const absl::Status& status : result.statuses) EXPECT_TRUE(status.ok()) << status;
    return std::move(result.model);
  }
  // Why the only delta is refused.
  std::string Refusal(const Model& model, int64_t epoch) {
    const DeltasResult result = model.WithDeltas(Sources({epoch}));
    EXPECT_EQ(result.model, nullptr);
    EXPECT_EQ(result.statuses.size(), 1u);
    return std::string(result.statuses[0].message());
  }
  // Score 0 of ads with these mids and price 0, for user 1.
  std::vector<float> Scores(const Model& model, std::vector<int64_t> mids) {
    std::vector<int64_t> uid = {1};
    std::vector<float> price(mids.size(), 0);
    std::vector<int32_t> mask = {1, 1};
    const auto n = static_cast<int64_t>(mids.size());
    const std::vector<NamedTensor> inputs = {
        {"uid.ids", {.dtype = DType::kInt64, .dims = {1}, .data = uid.data()}},
        {"mid.ids", {.dtype = DType::kInt64, .dims = {n}, .data = mids.data()}},
        {"price", {.dtype = DType::kFloat32, .dims = {n, 1}, .data = price.data()}},
        {"mask", {.dtype = DType::kInt32, .dims = {1, 2}, .data = mask.data()}}};
    RunResult result;
    const absl::Status status = model.Run(inputs, {}, workspace_, result);
    EXPECT_TRUE(status.ok()) << status;
    unproved_ = result.stats.unproved;
    std::vector<float> scores;
    const Tensor& score = result.outputs[static_cast<size_t>(model.FindOutput("score"))];
    for (int64_t i = 0; i < n; ++i) scores.push_back(score.f32()[2 * i]);
    return scores;
  }

  TempDir dir_;
  const std::string version_;
  Workspace workspace_;
  bool unproved_ = false;  // Whether the last Scores came by numpy's rules.
};

TEST_F(ModelDeltaTest, EachEpochHasItsOwnScoresAndSharesTheRest) {
  WriteDelta(version_, 1,
             DeltaHead(0, 100) + "tables { name: \"mid_table\" put: \"mid\" drop: \"gone\" }",
             {{"mid", {{11, {20, 0}}, {13, {4, 0}}}}}, {{"gone", "10\n"}});
  WriteDelta(version_, 5, DeltaHead(1, 100) + kPutMid, {{"mid", {{10, {7, 0}}}}});
  const ModelPtr base = Load();
  const ModelPtr first = Apply(*base, {1}), both = Apply(*base, {1, 5}),
                 second = Apply(*first, {5});
  const std::vector<int64_t> mids = {10, 11, 12, 13};
  EXPECT_THAT(Scores(*base, mids), ElementsAre(1, 2, 3, 0));
  EXPECT_THAT(Scores(*first, mids), ElementsAre(0, 20, 3, 4));
  EXPECT_THAT(Scores(*second, mids), ElementsAre(7, 20, 3, 4));
  EXPECT_THAT(Scores(*both, mids), ElementsAre(7, 20, 3, 4));
  EXPECT_THAT(Scores(*base, mids), ElementsAre(1, 2, 3, 0));
  EXPECT_EQ(first->info().epoch, 1);
  EXPECT_EQ(second->info().epoch, 5);
  EXPECT_EQ(std::chrono::system_clock::to_time_t(second->info().event_time), 100);
  EXPECT_NE(first->info().content_hash, base->info().content_hash);
  EXPECT_EQ(second->info().content_hash, both->info().content_hash);
  ASSERT_EQ(base->tables().size(), 2u);
  for (size_t t = 0; t < 2; ++t) {
    EXPECT_EQ(base->tables()[t]->base(), second->tables()[t]->base());
  }
  // What the models hold together is little more than what one holds.
  std::map<const void*, int64_t> pieces;
  for (const Model* model : {base.get(), first.get(), second.get()}) {
    for (const auto& [piece, bytes] : model->MemoryPieces()) pieces[piece] = bytes;
  }
  int64_t together = 0;
  for (const auto& [piece, bytes] : pieces) together += bytes;
  int64_t overlays = 0;
  for (const Model* model : {first.get(), second.get()}) {
    for (const TableInfo& table : model->info().tables) overlays += table.overlay_bytes;
  }
  EXPECT_EQ(together, base->info().memory_bytes + overlays);
}

TEST_F(ModelDeltaTest, KeepsThePrecision) {
  std::ofstream(version_ + "/model.textproto", std::ios::app) << "precision: PRECISION_BF16\n";
  WriteDelta(version_, 1, DeltaHead(0, 100) + kPutMid, {{"mid", {{11, {20, 0}}}}});
  WriteDelta(version_, 2, DeltaHead(1, 100) + "weights: \"w\"", {}, {{"w", testing::kTinyWeights}});
  const ModelPtr base = Load(), first = Apply(*base, {1}), second = Apply(*first, {2});
  for (const Model* model : {base.get(), first.get(), second.get()}) {
    int in_bf16 = 0;
    const PlanInfo plan = *model->OptimisedPlan();
    for (const PlanStep& step : plan.steps) in_bf16 += step.precision == "bf16";
    EXPECT_EQ(in_bf16 > 0, Has(Precision::kBf16));
  }
  // These numbers have few digits.
  EXPECT_THAT(Scores(*first, {10, 11}), ElementsAre(1, 20));
  EXPECT_THAT(Scores(*second, {10, 11}), ElementsAre(1, 20));
}

TEST_F(ModelDeltaTest, RowsOfDeltasGoBeforeThoseOfAStore) {
  const absl::Status stored =
      testing::MoveIntoRocksdb(version_, "mid_table", {{10, {1, 0}}, {11, {2, 0}}, {12, {3, 0}}},
                               "missing_keys: MISSING_KEY_POLICY_DEFAULT_ROW default_id: 12");
  if (absl::IsUnimplemented(stored)) GTEST_SKIP() << stored;
  ASSERT_TRUE(stored.ok()) << stored;
  WriteDelta(version_, 1,
             DeltaHead(0, 1) + "tables { name: \"mid_table\" put: \"mid\" drop: \"gone\" }",
             {{"mid", {{11, {20, 0}}, {13, {4, 0}}}}}, {{"gone", "10\n"}});
  WriteDelta(version_, 2, DeltaHead(1, 1) + kPutMid, {{"mid", {{10, {7, 0}}, {12, {9, 0}}}}});
  const ModelPtr base = Load(), first = Apply(*base, {1}), second = Apply(*first, {2});
  const std::vector<int64_t> mids = {10, 11, 12, 13, 14};
  EXPECT_THAT(Scores(*base, mids), ElementsAre(1, 2, 3, 3, 3));
  EXPECT_THAT(Scores(*first, mids), ElementsAre(3, 20, 3, 4, 3));
  EXPECT_THAT(Scores(*second, mids), ElementsAre(7, 20, 9, 4, 9));
  EXPECT_THAT(Scores(*base, mids), ElementsAre(1, 2, 3, 3, 3));
  for (const Model* model : {base.get(), second.get()}) {
    const auto& tables = model->info().tables;
    const auto table = std::find_if(tables.begin(), tables.end(),
                                    [](const TableInfo& t) { return t.name == "mid_table"; });
    EXPECT_TRUE(table->stored);
    EXPECT_EQ(table->overlay_rows, model == base.get() ? 0 : 5);
  }
  // What deltas brought is not asked of the store.
  std::vector<int64_t> brought = {10, 11, 13};
  const NamedTensor ids = {"mid.ids",
                           {.dtype = DType::kInt64, .dims = {3}, .data = brought.data()}};
  FetchedRows rows;
  ASSERT_TRUE(second->FindRows({&ids, 1}, 0, rows).ok());
  EXPECT_EQ(rows.CountLate(), 0);

  for (const auto& [id, why] : {std::pair("99", "gone: id 99 has no row to drop"),
                                std::pair("12", "gone: id 12 is the default id")}) {
    WriteDelta(version_, 3, DeltaHead(2, 1) + "tables { name: \"mid_table\" drop: \"gone\" }", {},
               {{"gone", id}});
    EXPECT_THAT(Refusal(*second, 3), HasSubstr(why));
  }
  WriteDelta(version_, 3, DeltaHead(2, 1) + kPutMid, {{"mid", {{10, {7, 0, 0}}}}});
  EXPECT_THAT(Refusal(*second, 3), HasSubstr("rows of 3 values, want 2"));
}

TEST_F(ModelDeltaTest, ATableFileThatWasCutIsNoFaultOfTheDelta) {
  const std::string table = version_ + "/mid_table";
  std::filesystem::remove(table);
  testing::WriteTableFile(table, {{10, {1, 0}}, {11, {2, 0}}});
  const ModelPtr base = Load();
  std::filesystem::resize_file(table, 4096);
  WriteDelta(version_, 1, DeltaHead(0, 1) + "tables { name: \"mid_table\" drop: \"gone\" }", {},
             {{"gone", "10\n"}});
  EXPECT_THAT(Refusal(*base, 1), HasSubstr("mid_table: byte 4096 cannot be read"));
}

TEST_F(ModelDeltaTest, FoldingChangesNoScore) {
  WriteDelta(version_, 1, DeltaHead(0, 1) + kPutMid, {{"mid", {{11, {20, 0}}}}});
  WriteDelta(version_, 2, DeltaHead(1, 1) + kPutMid, {{"mid", {{12, {30, 0}}}}});
  const ModelPtr base = Load(), first = Apply(*base, {1}), second = Apply(*first, {2});
  const auto changed = *std::find_if(first->tables().begin(), first->tables().end(),
                                     [](const auto& table) { return table->overlay() != nullptr; });
  const auto rows = FoldTable(*changed, dir_.path(), int64_t{16} << 20);
  ASSERT_TRUE(rows.ok()) << rows.status();
  const ModelPtr folded = second->WithFolded(*changed, *rows);
  ASSERT_NE(folded, nullptr);
  EXPECT_THAT(Scores(*folded, {10, 11, 12}), ElementsAre(1, 20, 30));
  EXPECT_EQ(folded->info().epoch, 2);
  EXPECT_EQ(folded->info().folds, 1);
  EXPECT_EQ(folded->info().content_hash, second->info().content_hash);
  // It is of no use to a model that it was not made of.
  EXPECT_EQ(folded->WithFolded(*changed, *rows), nullptr);
  EXPECT_EQ(base->WithFolded(*changed, *rows), nullptr);
}

TEST_F(ModelDeltaTest, PlansForShapesOutlastDeltasAndFolds) {
  std::ofstream(version_ + "/model.textproto");  // No shape is stated.
  WriteDelta(version_, 1, DeltaHead(0, 1) + kPutMid, {{"mid", {{11, {20, 0}}}}});
  const std::vector<int64_t> mids = {10, 11, 12};
  ModelPtr model = Load();
  EXPECT_THAT(Scores(*model, mids), ElementsAre(1, 2, 3));
  EXPECT_TRUE(unproved_);
  ASSERT_EQ(model->MakePlans({}, INT64_MAX).size(), 1u);
  const int64_t plans_bytes = model->memory_bytes() - model->info().memory_bytes;
  const ModelPtr base = std::move(model);
  model = Apply(*base, {1});
  EXPECT_THAT(Scores(*model, mids), ElementsAre(1, 20, 3));
  EXPECT_FALSE(unproved_);
  EXPECT_FALSE(model->WantsPlans());
  EXPECT_EQ(model->memory_bytes() - model->info().memory_bytes, plans_bytes);
  EXPECT_THAT(Scores(*base, mids), ElementsAre(1, 2, 3));

  const auto changed = *std::find_if(model->tables().begin(), model->tables().end(),
                                     [](const auto& table) { return table->overlay() != nullptr; });
  const auto rows = FoldTable(*changed, dir_.path(), int64_t{16} << 20);
  ASSERT_TRUE(rows.ok()) << rows.status();
  model = model->WithFolded(*changed, *rows);
  ASSERT_NE(model, nullptr);
  EXPECT_THAT(Scores(*model, mids), ElementsAre(1, 20, 3));
  EXPECT_FALSE(unproved_);
  EXPECT_EQ(model->shape_plans()[0].runs, 1);  // Of this model.
}

TEST_F(ModelDeltaTest, WhatShapesWantPlansOutlastsTheModelThatTheyWereShownTo) {
  std::ofstream(version_ + "/model.textproto");
  WriteDelta(version_, 1, DeltaHead(0, 1) + kPutMid, {{"mid", {{11, {20, 0}}}}});
  ModelPtr model = Load();
  Scores(*model, {10, 11});
  model = Apply(*model, {1});
  const std::vector<ShapePlanInfo> plans = model->MakePlans({}, INT64_MAX);
  ASSERT_EQ(plans.size(), 1u);
  EXPECT_EQ(plans[0].state, ShapePlanInfo::State::kServing) << plans[0].why_refused;
  EXPECT_THAT(Scores(*model, {10, 11}), ElementsAre(1, 20));
  EXPECT_FALSE(unproved_);
}

TEST_F(ModelDeltaTest, WeightsChangeWithTheTablesAndStay) {
  const std::string twice =
      absl::StrReplaceAll(testing::kTinyWeights, {{"1, 0,  1, 0", "2, 0,  1, 0"}});
  WriteDelta(version_, 1, DeltaHead(0, 1) + kPutMid + "weights: \"w\"", {{"mid", {{11, {5, 0}}}}},
             {{"w", twice}});
  WriteDelta(version_, 2, DeltaHead(1, 1) + kPutMid, {{"mid", {{12, {6, 0}}}}});
  const ModelPtr base = Load(), second = Apply(*base, {1, 2});
  EXPECT_THAT(Scores(*base, {10, 11, 12}), ElementsAre(1, 2, 3));
  EXPECT_THAT(Scores(*second, {10, 11, 12}), ElementsAre(2, 10, 12));
  EXPECT_EQ(second->info().name, base->info().name);

  // Bad weights cost their own delta and what follows it.
  WriteDelta(version_, 3, DeltaHead(2, 1) + "weights: \"w\"", {},
             {{"w", "layer_weights_params {}"}});
  WriteDelta(version_, 4, DeltaHead(3, 1) + kPutMid, {{"mid", {{12, {9, 0}}}}});
  const DeltasResult result = base->WithDeltas(Sources({1, 2, 3, 4}));
  ASSERT_EQ(result.statuses.size(), 4u);
  EXPECT_TRUE(result.statuses[1].ok());
  EXPECT_THAT(result.statuses[2].message(), HasSubstr("/deltas/3"));
  EXPECT_THAT(result.statuses[3].message(), HasSubstr("follows epoch 3, and 2 is the last one"));
  ASSERT_NE(result.model, nullptr);
  EXPECT_EQ(result.model->info().epoch, 2);
  EXPECT_THAT(Scores(*result.model, {10, 11, 12}), ElementsAre(2, 10, 12));
}

TEST_F(ModelDeltaTest, CountersOfCachesGoOnAndWhatTheyHoldGoes) {
  std::ofstream(version_ + "/model.textproto", std::ios::app)
      << "user_cache_bytes: 1000000 ad_cache_bytes: 1000000\n";
  WriteDelta(version_, 1, DeltaHead(0, 1) + kPutMid, {{"mid", {{11, {5, 0}}}}});
  const std::string twice =
      absl::StrReplaceAll(testing::kTinyWeights, {{"1, 0,  1, 0", "2, 0,  1, 0"}});
  WriteDelta(version_, 2, DeltaHead(1, 1) + "weights: \"w\"", {}, {{"w", twice}});
  const auto loaded =
      Model::Load({.directory = version_, .passes = {.item_columns = 1}, .always_keep_ads = true});
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_THAT((*loaded)->info().notices, IsEmpty());
  const ModelPtr first = Apply(**loaded, {1}), second = Apply(*first, {2});
  int64_t calls = 0;
  for (const Model* model : {loaded->get(), first.get(), second.get()}) {
    for (int i = 0; i < 2; ++i) {
      Scores(*model, {10, 11});
      ++calls;
      const AdCacheStats ads = model->ad_cache();
      EXPECT_EQ(ads.hits + ads.misses, 2 * calls);
      EXPECT_EQ(ads.misses, 2 * ((calls + 1) / 2));
      const CacheStats users = model->user_cache();
      EXPECT_EQ(users.hits + users.misses, calls);
    }
  }
  EXPECT_THAT(Scores(*second, {10, 11, 12}), ElementsAre(2, 10, 6));
}

TEST_F(ModelDeltaTest, OneBadTableRefusesTheWholeDelta) {
  WriteDelta(version_, 1,
             DeltaHead(0, 1) + kPutMid + "tables { name: \"uid_table\" drop: \"gone\" }",
             {{"mid", {{11, {5, 0}}}}}, {{"gone", "1\n2\n"}});
  const ModelPtr base = Load();
  EXPECT_THAT(Refusal(*base, 1), HasSubstr("deltas/1/delta.textproto: table \"uid_table\": "));
  EXPECT_THAT(Refusal(*base, 1), HasSubstr("deltas/1/gone: id 2 has no row to drop"));
  EXPECT_THAT(Scores(*base, {11}), ElementsAre(2));
}

TEST_F(ModelDeltaTest, BadManifestsNameTheField) {
  const std::string ok_head = DeltaHead(0, 1);
  const std::pair<std::string, std::string> cases[] = {
      {"base_epoch: ", "delta.textproto:1:"},
      {"nonsense: 1", "nonsense"},
      {"base_epoch: -1 event_time {} weights: \"w\"", "base_epoch is -1, want 0 to 2"},
      {"base_epoch: 3 event_time {} weights: \"w\"", "base_epoch is 3, want 0 to 2"},
      {kPutMid, "event_time is missing"},
      {"event_time { seconds: 9000000001 }", "event_time is 9000000001 s"},
      {"event_time { seconds: 9000000000 }", "want at most an hour after now"},
      {"event_time { nanos: -1 }", "event_time is 0 s -1 ns"},
      {ok_head, "names neither tables nor weights"},
      {ok_head + "tables { name: \"mid_table\" }", "tables \"mid_table\": neither put nor drop"},
      {ok_head + kPutMid + kPutMid, "tables \"mid_table\": given twice"},
      {ok_head + "tables { name: \"mid_table\" put: \"../../mid_table\" }", "leaves"},
      {ok_head + "tables { name: \"mid_table\" drop: \"/etc/passwd\" }", "absolute path"},
      {ok_head + "tables { name: \"other\" put: \"mid\" }",
       "table \"other\": the model has no such table"},
      {ok_head + "tables { name: \"mid_table\" put: \"wide\" }", "rows of 3 values, want 2"},
      {ok_head + "tables { name: \"mid_table\" put: \"none\" }", "deltas/3/none"},
      {ok_head + "tables { name: \"mid_table\" put: \"text\" }", "text: no table file"},
      {ok_head + "tables { name: \"mid_table\" drop: \"text\" }", "text:1: \"1,2,3\" is not a"},
      {ok_head + "tables { name: \"mid_table\" drop: \"twice\" }", "id 10 is dropped twice"},
      {ok_head + "tables { name: \"mid_table\" put: \"mid\" drop: \"both\" }",
       "id 11 is put and dropped"},
      {ok_head + kPutMid + "sums { path: \"mid\" sha256: \"00\" }", "delta.textproto says 00"},
      {"base_epoch: 1 event_time { seconds: 1 }" + std::string(kPutMid),
       "follows epoch 1, and 0 is the last one"},
  };
  const ModelPtr base = Load();
  for (const auto& [manifest, wanted] : cases) {
    WriteDelta(version_, 3, manifest, {{"mid", {{11, {5, 0}}}}, {"wide", {{1, {1, 2, 3}}}}},
               {{"text", "1,2,3\n"}, {"twice", "10\n10\n"}, {"both", "11\r\n"}});
    const std::string found = Refusal(*base, 3);
    EXPECT_THAT(found, HasSubstr("model \"m\" v1: ")) << manifest;
    EXPECT_THAT(found, HasSubstr(wanted)) << manifest;
  }
}

TEST_F(ModelDeltaTest, EpochsFollowEachOtherAndTimeGoesOn) {
  for (int64_t epoch = 1; epoch <= 3; ++epoch) {
    WriteDelta(version_, epoch, DeltaHead(epoch - 1, 100 - (epoch == 3 ? 1 : 0)) + kPutMid,
               {{"mid", {{11, {5, 0}}}}});
  }
  WriteDelta(version_, 4, DeltaHead(3, 100) + kPutMid, {{"mid", {{11, {5, 0}}}}});
  const ModelPtr second = Apply(*Load(), {1, 2});
  EXPECT_THAT(Refusal(*second, 3),
              HasSubstr("event_time is 1970-01-01T00:01:39+00:00, before that of epoch 2, "
                        "1970-01-01T00:01:40+00:00"));
  EXPECT_THAT(Refusal(*second, 4), HasSubstr("follows epoch 3, and 2 is the last one"));
  EXPECT_THAT(Refusal(*second, 1),
              HasSubstr("epoch 2 is applied already, this one comes too late"));
  EXPECT_THAT(Refusal(*second, 2), HasSubstr("epoch 2 is applied already, and does not change"));
}

TEST_F(ModelDeltaTest, EveryDamagedByteOfATableIsFound) {
  WriteDelta(version_, 1, DeltaHead(0, 1) + kPutMid, {{"mid", {{11, {5, 0}}, {12, {6, 0}}}}});
  const std::string path = EpochDirectory(version_, 1) + "/mid";
  std::ifstream file(path, std::ios::binary);
  const std::string good{std::istreambuf_iterator<char>(file), {}};
  const ModelPtr base = Load();
  for (size_t at = 0; at < good.size(); at += at < 5000 ? 7 : 611) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 4);
    std::ofstream(path, std::ios::binary) << bad;
    if (at >= 96 && at < 4096) continue;  // Between header and sections.
    EXPECT_THAT(Refusal(*base, 1), HasSubstr(path)) << at;
  }
  std::ofstream(path, std::ios::binary) << good.substr(0, good.size() - 1);
  EXPECT_THAT(Refusal(*base, 1), HasSubstr("the header says"));
}

TEST_F(ModelDeltaTest, TheMemoryLimitOfTheManifestHolds) {
  std::ofstream(version_ + "/model.textproto", std::ios::app)
      << "memory_limit_bytes: " << Load()->info().memory_bytes + 100000 << "\n";
  testing::TableContent many;
  for (int64_t id = 0; id < 5000; ++id) many[id] = {1, 1};
  WriteDelta(version_, 1, DeltaHead(0, 1) + kPutMid, {{"mid", {{11, {5, 0}}}}});
  WriteDelta(version_, 2, DeltaHead(1, 1) + kPutMid, {{"mid", many}});
  const ModelPtr first = Apply(*Load(), {1});
  EXPECT_THAT(Refusal(*first, 2), HasSubstr("memory_limit_bytes"));
}

TEST_F(ModelDeltaTest, ListEpochsTakesCompleteOnesAlone) {
  WriteDelta(version_, 2, "", {});
  WriteDelta(version_, 10, "", {});
  WriteDelta(version_, 7, "", {});
  std::filesystem::remove(EpochDirectory(version_, 7) + "/_SUCCESS");
  for (const char* name : {"0", "-1", "03", ".4.1", "x"}) {
    std::filesystem::create_directories(absl::StrCat(version_, "/deltas/", name));
    std::ofstream(absl::StrCat(version_, "/deltas/", name, "/_SUCCESS"));
  }
  const auto epochs = ListEpochs(version_, 100);
  ASSERT_TRUE(epochs.ok()) << epochs.status();
  ASSERT_EQ(epochs->size(), 2u);
  EXPECT_EQ((*epochs)[0].epoch, 2);
  EXPECT_EQ((*epochs)[1].epoch, 10);
  EXPECT_EQ(ListEpochs(version_, 3).status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_TRUE(ListEpochs(dir_.path(), 3)->empty());
}

}  // namespace
}  // namespace ulfd::engine
