// Recorded requests before publication, and the same requests as shadow traffic.
// SPDX-License-Identifier: Apache-2.0
#include "server/scoring/golden_check.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/load_scope.h"
#include "base/recording/recording_file.h"
#include "engine/tensor/onednn.h"
#include "proto/predict.pb.h"
#include "proto/recording.pb.h"
#include "server/models/model_change.h"
#include "server/scoring/shadow.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/tiny_model.h"

namespace ulfd::server {
namespace {

using recording::v1::Recording;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// Three ads; see tiny_model.h for the scores.
Recording Good() {
  ulfd::v1::PredictRequest request;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(ulfd::testing::kTinyRequest, &request));
  Recording record;
  record.set_api(recording::v1::API_NATIVE);
  record.set_request(request.SerializeAsString());
  recording::v1::RecordedOutput& score = *record.add_outputs();
  score.set_name("score");
  for (const int64_t d : {3, 2}) score.add_shape(d);
  for (const float v : {3.25f, 1.f, 1.5f, 1.f, 6.f, 1.f}) score.add_values(v);
  return record;
}

class GoldenCheckTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { engine::UseOneThread(); }
  GoldenCheckTest() {
    ulfd::testing::WriteTinyModel(dir_.File("tiny/3"));
    std::filesystem::create_directories(dir_.File("tiny/3/warmup"));
    auto model = engine::Model::Load({.directory = dir_.File("tiny/3")});
    EXPECT_TRUE(model.ok()) << model.status();
    model_ = *std::move(model);
  }
  void WriteRecord(const std::string& name, const Recording& record) {
    dir_.Write("tiny/3/warmup/" + name, record.SerializeAsString());
  }
  absl::Status Check() {
    notices_.clear();
    return CheckRecordings(*model_, dir_.File("tiny/3"), {}, {}, notices_);
  }
  std::string Path(const std::string& name) const { return dir_.File("tiny/3/warmup/" + name); }

  TempDir dir_;
  std::unique_ptr<const engine::Model> model_;
  std::vector<std::string> notices_;
};

TEST_F(GoldenCheckTest, NothingRecordedIsFine) {
  EXPECT_TRUE(Check().ok());
  std::filesystem::remove_all(dir_.File("tiny/3/warmup"));
  EXPECT_TRUE(Check().ok());
}

TEST_F(GoldenCheckTest, AFolderBehindALinkOutOfTheRepositoryIsNotListed) {
  const TempDir outside;
  outside.Write("secret.pb", "x");
  std::filesystem::remove_all(dir_.File("tiny/3/warmup"));
  std::filesystem::create_directory_symlink(outside.path(), dir_.File("tiny/3/warmup"));
  const LoadScope scope({.roots = {dir_.path()}});
  const std::string refused(Check().message());
  EXPECT_THAT(refused, HasSubstr("tiny/3/warmup: leads out of "));
  EXPECT_THAT(refused, Not(HasSubstr("secret")));
}

// An exception within a listing must not end the process, wherever it falls.
TEST_F(GoldenCheckTest, ALoadThatMayNotListTheFolderIsRefused) {
  for (int i = 0; i < 500; ++i) {
    dir_.Write(absl::StrCat("tiny/3/warmup/", std::string(200, 'x'), i, ".none"), "");
  }
  int refused = 0;
  absl::Status status = absl::UnknownError("");
  for (int64_t bytes = 0; !status.ok(); bytes += 2000) {
    ASSERT_LT(bytes, 4 << 20) << status;
    const LoadScope scope({.max_memory_bytes = bytes});
    status = WithinMemory([this] { return Check(); });
    refused += absl::IsResourceExhausted(status);
  }
  EXPECT_GT(refused, 50);
}

TEST_F(GoldenCheckTest, SameScoresPassAndOthersNameThePlace) {
  WriteRecord("a.pb", Good());
  EXPECT_TRUE(Check().ok()) << Check();
  Recording other = Good();
  other.mutable_outputs(0)->set_values(4, 6.5f);
  WriteRecord("b.pb", other);
  EXPECT_EQ(Check().ToString(),
            absl::StrCat("FAILED_PRECONDITION: golden scores: ", Path("b.pb"),
                         " record 1: output \"score\" row 2 column 0: found 6, recorded 6.5, "
                         "tolerance 0.0001"));
  // The tolerance is relative above 1: 0.1 * 6.5.
  const std::string manifest = dir_.File("tiny/3/model.textproto");
  std::ofstream(manifest, std::ios::app) << "\ngolden_tolerance: 0.1\n";
  EXPECT_TRUE(Check().ok()) << Check();
}

TEST_F(GoldenCheckTest, BadToleranceIsRefusedEvenWithoutRecordings) {
  std::ofstream(dir_.File("tiny/3/model.textproto"), std::ios::app) << "\ngolden_tolerance: -1\n";
  EXPECT_EQ(Check().ToString(),
            "INVALID_ARGUMENT: manifest: golden_tolerance: -1, want a finite number, at least 0");
}

TEST_F(GoldenCheckTest, RankedRepliesCompareTheirRows) {
  Recording record = Good();
  recording::v1::RecordedOutput& score = *record.mutable_outputs(0);
  score.clear_values();
  score.set_shape(0, 2);
  for (const float v : {6.f, 1.f, 3.25f, 1.f}) score.add_values(v);
  record.add_indices(2);
  record.add_indices(0);
  WriteRecord("a.pb", record);
  EXPECT_TRUE(Check().ok()) << Check();
  record.set_indices(1, 7);
  WriteRecord("a.pb", record);
  EXPECT_THAT(Check().message(), HasSubstr("recorded row 7, the request has 3"));
}

TEST_F(GoldenCheckTest, RequestsThatDoNotFitTheModelAreRefused) {
  Recording record = Good();
  record.mutable_outputs(0)->set_name("ctr");
  WriteRecord("a.pb", record);
  EXPECT_THAT(Check().message(), HasSubstr("recorded output \"ctr\" is no output of the model"));
  record = Good();
  ulfd::v1::PredictRequest request;
  ASSERT_TRUE(request.ParseFromString(record.request()));
  request.mutable_ad_features(0)->set_name("shop");
  record.set_request(request.SerializeAsString());
  WriteRecord("a.pb", record);
  EXPECT_THAT(Check().message(), HasSubstr("a.pb record 1: feature \"shop\""));
  record.mutable_outputs(0)->clear_shape();
  dir_.Write("tiny/3/warmup/a.pb", "no record");
  EXPECT_THAT(Check().message(), HasSubstr("neither a file of the recorder nor"));
}

// Two bytes each, a hundred in memory.
TEST_F(GoldenCheckTest, RecordsOfManySmallThingsAreRefused) {
  constexpr int kMany = 4000000;
  std::string features, outputs;
  for (int i = 0; i < kMany; ++i) {
    features.append("\x1a\0", 2);  // PredictRequest.ad_features
    outputs.append("\x52\0", 2);   // Recording.outputs
  }
  Recording record = Good();
  record.set_request(record.request() + features);
  WriteRecord("a.pb", record);
  const LoadScope scope({});
  EXPECT_THAT(Check().message(), HasSubstr("a.pb record 1: the request in the record cannot be"));
  dir_.Write("tiny/3/warmup/a.pb", Good().SerializeAsString() + outputs);
  EXPECT_THAT(Check().message(), HasSubstr("neither a file of the recorder nor"));
  EXPECT_LT(scope.peak_bytes(), int64_t{200} << 20);
  record.set_request(std::string((16 << 20) + 1, 'x'));
  WriteRecord("a.pb", record);
  EXPECT_THAT(Check().message(), HasSubstr("16777217 bytes, want at most 16777216"));
}

TEST_F(GoldenCheckTest, FilesOfTheRecorder) {
  auto writer = recording::RecordingWriter::Create(Path("1.ulfrec"));
  ASSERT_TRUE(writer.ok()) << writer.status();
  Recording warm_only = Good();
  warm_only.clear_outputs();
  Recording wrong = Good();
  wrong.mutable_outputs(0)->set_values(0, 9);
  ASSERT_TRUE(writer->Append(warm_only.SerializeAsString()).ok());
  ASSERT_TRUE(writer->Append(Good().SerializeAsString()).ok());
  EXPECT_TRUE(Check().ok()) << Check();
  ASSERT_TRUE(writer->Append(wrong.SerializeAsString()).ok());
  EXPECT_THAT(Check().message(), HasSubstr("1.ulfrec record 3: output \"score\" row 0"));
  // A copy that was cut in the last record serves, with a notice.
  std::filesystem::resize_file(Path("1.ulfrec"), std::filesystem::file_size(Path("1.ulfrec")) - 5);
  EXPECT_TRUE(Check().ok()) << Check();
  EXPECT_THAT(notices_, ElementsAre(HasSubstr("the last record is incomplete")));
  std::filesystem::resize_file(Path("1.ulfrec"), 40);
  EXPECT_EQ(Check().message(), absl::StrCat(Path("1.ulfrec"), ": holds no whole record"));
}

TEST_F(GoldenCheckTest, ScoresOfOtherContentAreToldApart) {
  Recording other = Good();
  other.set_version(2);
  other.set_content_hash("another");
  other.mutable_outputs(0)->set_values(0, 9);
  WriteRecord("a.pb", other);
  EXPECT_THAT(Check().message(),
              HasSubstr("a.pb record 1, of other content, version 2 (`ulf recordings "
                        "--requests=OUT` keeps requests without scores): output \"score\" row 0"));
  other.set_content_hash(model_->info().content_hash);
  WriteRecord("a.pb", other);
  EXPECT_THAT(Check().message(), HasSubstr("a.pb record 1: output \"score\" row 0"));
  other.clear_outputs();
  WriteRecord("a.pb", other);
  EXPECT_TRUE(Check().ok()) << Check();
}

// Knows nothing but where to shadow.
class ShadowOnly final : public ModelLookup {
 public:
  std::optional<ShadowTarget> target;
  absl::StatusOr<ModelHandle> Find(const ModelChoice&) const override {
    return absl::NotFoundError("");
  }
  std::optional<ShadowTarget> FindShadow(const std::string&) const override { return target; }
  absl::Status CheckAccess(const ModelChoice&) const override { return {}; }
  std::vector<ModelStatus> List(const std::string&) const override { return {}; }
  std::vector<int64_t> VersionsOf(const std::string&) const override { return {}; }
  std::vector<std::string> LabelsOf(const std::string&, int64_t) const override { return {}; }
  bool Ready() const override { return true; }
  void PlansWanted() const override {}
  int64_t generation() const override { return 0; }
  int64_t changes() const override { return 0; }
};

class ShadowTest : public GoldenCheckTest {
 protected:
  ShadowTest() {
    auto served = std::make_shared<ServedModel>();
    served->model = std::move(model_);
    served->name = "tiny";
    served->version = 2;
    manager_.target = ShadowTarget{served, /*share=*/1, /*max_queued=*/2};
  }
  std::string Metrics() const {
    MetricPage page;
    shadow_.Collect(page);
    return page.Text();
  }

  ShadowOnly manager_;
  int64_t answered_ = 1;  // The version that did.
  Logger logger_{LogLevel::kError, LogFormat::kText};
  Shadow shadow_{manager_, RequestLimits{}, logger_, Shadow::WithoutThread{}};
};

TEST_F(ShadowTest, ScoresAndCountsTheDifference) {
  const auto target = shadow_.Choose("tiny", answered_);
  ASSERT_TRUE(target.has_value());
  Recording call = Good();
  call.mutable_outputs(0)->set_values(0, 3.2f);  // 0.05 apart.
  shadow_.Add(*target, call);
  shadow_.ScoreQueued();
  const std::string metrics = Metrics();
  const auto sample = [](const std::string& name, const std::string& more, double value) {
    return HasSubstr(absl::StrCat(name, "{model=\"tiny\",version=\"2\"", more, "} ", value, "\n"));
  };
  EXPECT_THAT(metrics, sample("ulfd_shadow_requests_total", ",result=\"scored\"", 1));
  EXPECT_THAT(metrics, sample("ulfd_shadow_score_difference_count", "", 6));
  EXPECT_THAT(metrics, sample("ulfd_shadow_score_difference_bucket", ",le=\"1e-08\"", 5));
  EXPECT_THAT(metrics, sample("ulfd_shadow_score_difference_bucket", ",le=\"0.1\"", 6));
}

TEST_F(ShadowTest, QueueIsBoundedAndDropsAreCounted) {
  for (int i = 0; i < 5; ++i) shadow_.Add(*shadow_.Choose("tiny", answered_), Good());
  EXPECT_THAT(Metrics(), HasSubstr("result=\"dropped\"} 3\n"));
  shadow_.ScoreQueued();
  Recording garbled = Good();
  garbled.set_request("\xff");
  shadow_.Add(*shadow_.Choose("tiny", answered_), garbled);
  shadow_.ScoreQueued();
  EXPECT_THAT(Metrics(), HasSubstr("result=\"scored\"} 2\n"));
  EXPECT_THAT(Metrics(), HasSubstr("result=\"failed\"} 1\n"));
}

// Requests of 16 MB are allowed, and each model may shadow some thousand.
TEST_F(ShadowTest, WhatWaitsHasBoundedBytes) {
  manager_.target->max_queued = 1000;
  Recording large = Good();
  large.set_request(std::string(kMaxShadowBytes / 2 + 1, 'x'));
  for (int i = 0; i < 3; ++i) shadow_.Add(*shadow_.Choose("tiny", answered_), large);
  shadow_.Add(*shadow_.Choose("tiny", answered_), Good());
  EXPECT_THAT(Metrics(), HasSubstr("result=\"dropped\"} 2\n"));
  shadow_.ScoreQueued();
  EXPECT_THAT(Metrics(), HasSubstr("result=\"scored\"} 1\n"));
  // One that is larger than all that may wait is scored where nothing waits.
  large.set_request(std::string(2 * kMaxShadowBytes, 'x'));
  for (int i = 0; i < 2; ++i) shadow_.Add(*shadow_.Choose("tiny", answered_), large);
  EXPECT_THAT(Metrics(), HasSubstr("result=\"dropped\"} 3\n"));
}

TEST_F(ShadowTest, ForgetsVersionsThatShadowNoLonger) {
  shadow_.Add(*shadow_.Choose("tiny", answered_), Good());
  auto next = std::make_shared<ServedModel>();
  next->name = "tiny";
  next->version = 3;
  manager_.target->handle = next;
  shadow_.Add(*shadow_.Choose("tiny", answered_), Good());
  EXPECT_THAT(Metrics(), HasSubstr("version=\"3\""));
  EXPECT_THAT(Metrics(), Not(HasSubstr("version=\"2\"")));
}

TEST_F(ShadowTest, ChoosesTheShareAndNeverItsOwnVersion) {
  manager_.target->share = 0.25;
  int chosen = 0;
  for (int i = 0; i < 10000; ++i) chosen += shadow_.Choose("tiny", answered_).has_value();
  EXPECT_NEAR(chosen, 2500, 200);
  answered_ = 2;
  manager_.target->share = 1;
  EXPECT_FALSE(shadow_.Choose("tiny", answered_).has_value());
  manager_.target.reset();
  answered_ = 1;
  EXPECT_FALSE(shadow_.Choose("tiny", answered_).has_value());
}

}  // namespace
}  // namespace ulfd::server
