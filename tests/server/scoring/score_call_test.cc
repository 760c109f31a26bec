// ScoreCall on real workers with a real model: calls that are merged or cut get what they get
// alone, errors stay with their call, and what nobody waits for is not computed.
// SPDX-License-Identifier: Apache-2.0
#include "server/scoring/score_call.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <functional>
#include <latch>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "base/text.h"
#include "engine/tensor/onednn.h"
#include "server/models/model_manager.h"
#include "server/scheduler/worker_pool.h"
#include "server/scoring/request_decoder.h"
#include "server/scoring/response_encoder.h"
#include "tests/testing/fakes.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/tiny_model.h"

namespace ulfd::server {
namespace {

namespace v1 = ulfd::v1;
using std::chrono::milliseconds;
using ::testing::HasSubstr;

// The native API's call without gRPC.  The test owns it.
class TestCall final : public ScoreCall {
 public:
  TestCall(const ServingContext& context, v1::PredictRequest request, CallTerms terms = {})
      : ScoreCall(context, std::move(terms)), request_(std::move(request)) {}

  void Cancel() { cancelled_.store(true); }
  bool cancelled() const override { return cancelled_.load(); }

  std::function<void()> on_decode, on_count, on_times;  // The first and the last on the worker.
  absl::Status status;
  v1::PredictResponse response;
  int finished = 0;
  bool decoded = false;
  CallTimes times;

 protected:
  int64_t CountRows(const engine::Model& model, const RequestLimits& limits) const override {
    if (on_count) on_count();
    return server::CountRows(request_, model, limits);
  }
  absl::Status Decode(const engine::Model& model, const RequestLimits& limits,
                      DecodedRequest& out) override {
    decoded = true;
    if (on_decode) on_decode();
    return DecodeRequest(request_, model, limits, out);
  }
  absl::Status Encode(const DecodedRequest& in, const engine::ModelInfo& info,
                      const engine::RunResult& result) override {
    return EncodeResponse(request_, in, info, result, response);
  }
  void Complete(const engine::ModelInfo&, int64_t, const CallTimes& all) override {
    if (on_times) on_times();
    times = all;
  }
  const std::string& request_id() const override { return request_.request_id(); }
  std::string peer() const override { return "ipv4:10.0.0.1:4242"; }
  void Finish(const absl::Status& how) override {
    status = how;
    ++finished;
  }

 private:
  std::atomic<bool> cancelled_{false};
  const v1::PredictRequest request_;
};

// Ads with ids 10, 11, 12 (known) and 13 (unknown) in turn, from `first` on.
v1::PredictRequest Request(int ads, int first = 0, const std::string& model = "tiny") {
  v1::PredictRequest request;
  request.mutable_model()->set_name(model);
  auto& uid = *request.add_user_features();
  uid.set_name("uid");
  uid.mutable_sparse()->add_ids(1);
  auto& mask = *request.add_user_features();
  mask.set_name("mask");
  for (int i = 0; i < 2; ++i) mask.mutable_dense()->add_int32s((first + i) % 2);
  auto& mid = *request.add_ad_features();
  mid.set_name("mid");
  auto& price = *request.add_ad_features();
  price.set_name("price");
  for (int i = 0; i < ads; ++i) {
    mid.mutable_sparse()->add_ids(10 + (first + i) % 4);
    price.mutable_dense()->add_floats(0.25f * static_cast<float>(first + i));
  }
  return request;
}

class ScoreCallTest : public ::testing::Test {
 protected:
  ScoreCallTest() {
    ulfd::testing::WriteTinyModel(dir_.File("tiny/1"));
    // A model that refuses ids that it lacks, which shows only when it runs.
    ulfd::testing::WriteTinyModel(dir_.File("strict/1"));
    std::ofstream(dir_.File("strict/1/model.textproto"), std::ios::app)
        << "tables { name: \"mid_table\" missing_keys: MISSING_KEY_POLICY_ERROR }\n";
    auto models = ModelManager::Create({.repository = dir_.path(),
                                        .poll_interval = milliseconds(-1),
                                        .settle_time = milliseconds(0)},
                                       &nobody_);
    EXPECT_TRUE(models.ok()) << models.status();
    models_ = *std::move(models);
    models_->Poll();
    EXPECT_TRUE(Find("tiny") != nullptr && Find("strict") != nullptr);
  }
  ModelHandle Find(const std::string& name) const {
    const auto handle = models_->Find({.name = name});
    EXPECT_TRUE(handle.ok()) << handle.status();
    return handle.ok() ? *handle : nullptr;
  }
  void MakePool(int workers) {
    auto pool = WorkerPool::Create({.queue = {.workers = workers},
                                    .on_batch =
                                        [this](int, int64_t jobs, int64_t rows) {
                                          batches_.fetch_add(1);
                                          largest_batch_ = std::max(jobs, +largest_batch_);
                                          rows_.fetch_add(rows);
                                          if (on_batch_) on_batch_();
                                        }},
                                   clock_);
    ASSERT_TRUE(pool.ok()) << pool.status();
    pool_ = *std::move(pool);
    context_ = std::unique_ptr<ServingContext>(new ServingContext{
        *models_, *pool_, metrics_, logger_, clock_, {}, abandon_, client_quota_.get(), ""});
  }
  TestCall& Make(v1::PredictRequest request, CallTerms terms = {}) {
    return *calls_.emplace_back(
        std::make_unique<TestCall>(*context_, std::move(request), std::move(terms)));
  }
  TestCall& Start(TestCall& call, const std::string& model = "tiny") {
    call.Start(ModelChoice{.name = model});
    return call;
  }
  // Holds one worker until Release.
  void Occupy() {
    TestCall& call = Make(Request(1));
    call.on_decode = [this] {
      occupied_.count_down();
      release_.wait();
    };
    Start(call);
    occupied_.wait();
  }
  void Release() { release_.count_down(); }

  // What the request gets from the model itself.
  v1::PredictResponse Alone(const v1::PredictRequest& request) const {
    engine::UseOneThread();
    const engine::Model& model = *Find(request.model().name())->model;
    DecodedRequest decoded;
    engine::Workspace workspace;
    engine::RunResult result;
    v1::PredictResponse response;
    EXPECT_TRUE(DecodeRequest(request, model, {}, decoded).ok());
    EXPECT_TRUE(model.Run(decoded.inputs, {}, workspace, result).ok());
    EXPECT_TRUE(EncodeResponse(request, decoded, model.info(), result, response).ok());
    return response;
  }
  void ExpectLikeAlone(const TestCall& call, const v1::PredictRequest& request) const {
    ASSERT_TRUE(call.status.ok()) << call.status;
    EXPECT_EQ(call.finished, 1);
    const v1::PredictResponse wanted = Alone(request);
    EXPECT_EQ(call.response.missing_ids(), wanted.missing_ids());
    ASSERT_EQ(call.response.outputs_size(), wanted.outputs_size());
    for (int o = 0; o < wanted.outputs_size(); ++o) {
      const v1::OutputTensor &found = call.response.outputs(o), &want = wanted.outputs(o);
      EXPECT_EQ(found.name(), want.name());
      ASSERT_EQ(found.values_size(), want.values_size()) << found.name();
      for (int i = 0; i < want.values_size(); ++i) {
        ASSERT_NEAR(found.values(i), want.values(i), 1e-6) << found.name() << " " << i;
      }
    }
  }
  // Rows cost 100 us from now on: more than 16 are cut.
  void MakeExpensive(const std::string& model = "tiny") {
    for (int i = 0; i < 400; ++i) {
      const int64_t rows = 1 + i * 7 % 300;
      Find(model)->lane->cost().Observe(1 + i % 3, rows, std::chrono::microseconds(100 * rows));
    }
  }

  TempDir dir_;
  FakeClock clock_;
  ModelObserver nobody_;
  Metrics metrics_{4};
  Logger logger_{LogLevel::kError, LogFormat::kText};
  std::atomic<bool> abandon_{false};
  std::unique_ptr<ClientQuota> client_quota_;
  std::unique_ptr<ModelManager> models_;
  std::unique_ptr<ServingContext> context_;
  std::latch occupied_{1}, release_{1};
  std::atomic<int64_t> batches_{0}, largest_batch_{0}, rows_{0};
  std::function<void()> on_batch_;
  std::vector<std::unique_ptr<TestCall>> calls_;
  std::unique_ptr<WorkerPool> pool_;  // Last: its threads use the rest.
};

TEST_F(ScoreCallTest, MergedCallsGetWhatTheyGetAlone) {
  MakePool(1);
  Occupy();
  std::vector<v1::PredictRequest> requests;
  for (int ads : {3, 1, 7, 2, 20, 5}) requests.push_back(Request(ads, ads));
  requests[2].mutable_top_k()->set_k(2);
  requests[3].add_outputs("user_vec");
  std::vector<TestCall*> calls;
  for (const v1::PredictRequest& request : requests) calls.push_back(&Start(Make(request)));
  Release();
  pool_->Drain();
  EXPECT_EQ(largest_batch_, 6);
  for (size_t i = 0; i < calls.size(); ++i) {
    SCOPED_TRACE(i);
    ExpectLikeAlone(*calls[i], requests[i]);
  }
}

TEST_F(ScoreCallTest, ABadRequestSpoilsNoOtherOfItsBatch) {
  MakePool(1);
  Occupy();
  v1::PredictRequest unknown = Request(3);
  unknown.mutable_ad_features(0)->set_name("nothing");
  v1::PredictRequest bad_top = Request(3);
  bad_top.mutable_top_k()->set_k(1);
  bad_top.mutable_top_k()->set_column(7);
  TestCall& first = Start(Make(Request(2)));
  TestCall& undecodable = Start(Make(unknown));
  TestCall& unrankable = Start(Make(bad_top));
  TestCall& last = Start(Make(Request(4, 1)));
  Release();
  pool_->Drain();
  EXPECT_EQ(largest_batch_, 4);
  ExpectLikeAlone(first, Request(2));
  ExpectLikeAlone(last, Request(4, 1));
  EXPECT_EQ(undecodable.status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(undecodable.status.message()), HasSubstr("\"nothing\": unknown"));
  EXPECT_THAT(std::string(unrankable.status.message()), HasSubstr("want column 7"));
}

TEST_F(ScoreCallTest, AReplyThatIsTooLargeIsRefusedBeforeItIsComputed) {
  MakePool(1);
  context_->limits.max_message_bytes = 200;
  v1::PredictRequest large = Request(60);  // Two scores each.
  v1::PredictRequest picked = large;
  picked.mutable_top_k()->set_k(2);
  v1::PredictRequest all_picked = large;
  all_picked.mutable_top_k()->set_k(60);
  for (v1::PredictRequest* request : {&large, &picked, &all_picked}) request->add_outputs("score");
  const auto calls = metrics_.For(*Find("tiny"))->calls;
  Occupy();
  TestCall& refused = Start(Make(large));
  TestCall& refused_too = Start(Make(all_picked));
  TestCall& good = Start(Make(picked));
  Release();
  pool_->Drain();
  EXPECT_GE(largest_batch_, 2);  // As many as take a tile together.
  for (const TestCall* call : {&refused, &refused_too}) {
    EXPECT_EQ(call->status.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_EQ(call->status.message(),
              "the reply would have 480 bytes of outputs, want at most 200 "
              "(limits.max_message_bytes)");
  }
  ExpectLikeAlone(good, picked);
  EXPECT_EQ(calls->runs.value(), 2);  // Of the good one, and of the one that occupied the worker.
}

TEST_F(ScoreCallTest, AnErrorOfTheModelStaysWithTheCallThatCausedIt) {
  MakePool(1);
  Occupy();
  TestCall& good = Start(Make(Request(3, 0, "strict")), "strict");
  TestCall& bad = Start(Make(Request(3, 1, "strict")), "strict");  // Ids 11, 12, 13.
  TestCall& also_good = Start(Make(Request(2, 0, "strict")), "strict");
  Release();
  pool_->Drain();
  EXPECT_EQ(largest_batch_, 3);
  ExpectLikeAlone(good, Request(3, 0, "strict"));
  ExpectLikeAlone(also_good, Request(2, 0, "strict"));
  EXPECT_EQ(bad.status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(bad.status.message()), HasSubstr("id 13 is not in table \"mid_table\""));
}

TEST_F(ScoreCallTest, CallsThatFailSayNothingAboutWhatAdsCost) {
  MakePool(1);
  const auto& cost = Find("strict")->lane->cost();
  Start(Make(Request(3, 0, "strict")), "strict");
  pool_->Drain();
  const auto learned = cost.Predict(1, 1000);
  MakePool(1);
  Start(Make(Request(3, 1, "strict")), "strict");  // Ids 11, 12, 13.
  pool_->Drain();
  EXPECT_EQ(calls_.back()->status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(cost.Predict(1, 1000), learned);
}

TEST_F(ScoreCallTest, CutCallsGetWhatTheyGetAlone) {
  MakeExpensive();
  MakePool(3);
  std::vector<TestCall*> calls;
  for (int i = 0; i < 4; ++i) calls.push_back(&Start(Make(Request(500 + i, i))));
  pool_->Drain();
  EXPECT_GE(batches_, 4 * 10);
  EXPECT_EQ(largest_batch_, 1);
  EXPECT_EQ(rows_, 2006);
  for (int i = 0; i < 4; ++i) {
    SCOPED_TRACE(i);
    ExpectLikeAlone(*calls[i], Request(500 + i, i));
  }
}

TEST_F(ScoreCallTest, StepsOfOneCallInASecondAreTimed) {
  const engine::Model& model = *Find("tiny")->model;
  const auto steps = metrics_.For(*Find("tiny"))->steps;
  EXPECT_EQ(steps->means().calls, 0);
  // However many workers a call is cut for.
  for (const bool cut : {false, true}) {
    SCOPED_TRACE(cut);
    if (cut) {
      MakeExpensive();
      clock_.Advance(milliseconds(1100));
    }
    MakePool(3);
    TestCall& call = Start(Make(Request(500)));
    Start(Make(Request(400)));
    pool_->Drain();
    ExpectLikeAlone(call, Request(500));
    const StepProfile::Means means = steps->means();
    EXPECT_EQ(means.calls, cut ? 2 : 1);
    const engine::PlanInfo plan = means.optimised ? *model.OptimisedPlan() : model.WrittenPlan();
    ASSERT_EQ(means.us.size(), plan.steps.size());
    for (size_t s = 0; s < plan.steps.size(); ++s) {
      EXPECT_TRUE(plan.steps[s].view || means.us[s] > 0) << plan.steps[s].label;
    }
  }
}

TEST_F(ScoreCallTest, AnErrorInATileEndsTheCallOnce) {
  MakeExpensive("strict");
  MakePool(3);
  v1::PredictRequest request = Request(500, 0, "strict");
  for (int i = 0; i < 500; ++i) {
    request.mutable_ad_features(0)->mutable_sparse()->set_ids(i, i == 321 ? 77 : 10);
  }
  TestCall& call = Start(Make(request), "strict");
  pool_->Drain();
  EXPECT_EQ(call.finished, 1);
  EXPECT_THAT(std::string(call.status.message()), HasSubstr("id 77 is not in table"));
}

TEST_F(ScoreCallTest, ALargeRequestThatIsBadEndsInBegin) {
  MakeExpensive();
  MakePool(2);
  v1::PredictRequest request = Request(500);
  request.mutable_ad_features(1)->mutable_dense()->mutable_floats()->RemoveLast();
  TestCall& call = Start(Make(request));
  pool_->Drain();
  EXPECT_EQ(call.finished, 1);
  EXPECT_EQ(call.status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(rows_, 0);
}

TEST_F(ScoreCallTest, WhatExpiredWhileItWaitedIsNotEvenDecoded) {
  MakePool(1);
  Occupy();
  TestCall& late = Start(Make(Request(5), {.deadline = clock_.Now() + milliseconds(10)}));
  TestCall& left = Start(Make(Request(6)));
  TestCall& stays = Start(Make(Request(7)));
  clock_.Advance(milliseconds(11));
  left.Cancel();
  Release();
  pool_->Drain();
  EXPECT_EQ(late.status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(left.status.code(), absl::StatusCode::kCancelled);
  EXPECT_FALSE(late.decoded || left.decoded);
  ExpectLikeAlone(stays, Request(7));
  EXPECT_EQ(rows_, 1 + 7);
  EXPECT_EQ(metrics_.For(*Find("tiny"))->model->candidates.value(), 1 + 7);
}

TEST_F(ScoreCallTest, WhatExpiresWhileItIsDecodedIsNotComputed) {
  MakePool(1);
  TestCall& call = Make(Request(5), {.deadline = clock_.Now() + milliseconds(10)});
  call.on_decode = [this] { clock_.Advance(milliseconds(10)); };
  Start(call);
  pool_->Drain();
  EXPECT_EQ(call.status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(metrics_.For(*Find("tiny"))->model->candidates.value(), 0);
}

TEST_F(ScoreCallTest, WhoseDecodingFindsNoMemoryIsRefusedAndMayTryAgain) {
  MakePool(1);
  TestCall& call = Make(Request(5));
  call.on_decode = [] { throw std::bad_alloc(); };
  TestCall& next = Make(Request(5));
  Start(call);
  Start(next);
  pool_->Drain();
  EXPECT_EQ(call.status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(call.status.message(), "memory: the system has no memory left for the request");
  EXPECT_EQ(RetryAfter(call.status), milliseconds(1000));
  ExpectLikeAlone(next, Request(5));
}

TEST_F(ScoreCallTest, WhoFindsNoMemoryBeforeOrAfterTheRunEndsAlone) {
  MakePool(1);
  const auto none = [] { throw std::bad_alloc(); };
  TestCall& before = Make(Request(5));
  before.on_count = none;
  TestCall& after = Make(Request(5));
  after.on_times = none;
  TestCall& next = Make(Request(5));
  for (TestCall* call : {&before, &after, &next}) Start(*call);
  pool_->Drain();
  for (const TestCall* call : {&before, &after}) {
    EXPECT_EQ(call->finished, 1);
    EXPECT_EQ(call->status.message(), "memory: the system has no memory left for the request");
  }
  EXPECT_EQ(metrics_.For(*Find("tiny"))
                ->model->shed.counts()[static_cast<int>(ShedReason::kMemory)]
                .value(),
            2);
  ExpectLikeAlone(next, Request(5));
}

TEST_F(ScoreCallTest, NoMoreTilesAreComputedOnceTheCallerLeft) {
  MakeExpensive();
  MakePool(1);
  TestCall& call = Make(Request(500));
  on_batch_ = [&call] { call.Cancel(); };  // After the first tile.
  Start(call);
  pool_->Drain();
  EXPECT_EQ(call.finished, 1);
  EXPECT_EQ(call.status, absl::CancelledError("the caller went away"));
  EXPECT_LE(rows_, 16);
}

TEST_F(ScoreCallTest, AHurriedShutdownEndsCallsBetweenTiles) {
  MakeExpensive();
  MakePool(1);
  TestCall& call = Make(Request(500));
  on_batch_ = [this] { abandon_ = true; };
  Start(call);
  pool_->Drain();
  EXPECT_EQ(call.status.code(), absl::StatusCode::kUnavailable);
}

TEST_F(ScoreCallTest, ABatchGoesOnForThoseWhoStay) {
  MakePool(1);
  Occupy();
  TestCall& leaves = Make(Request(5));
  leaves.on_decode = [&leaves] { leaves.Cancel(); };
  Start(leaves);
  TestCall& stays = Start(Make(Request(4)));
  Release();
  pool_->Drain();
  EXPECT_EQ(leaves.status.code(), absl::StatusCode::kCancelled);
  ExpectLikeAlone(stays, Request(4));
}

TEST_F(ScoreCallTest, ACallThatCannotMakeItIsRefusedBeforeItIsDecoded) {
  MakeExpensive();
  MakePool(1);
  Occupy();
  Start(Make(Request(100)));  // 10 ms.
  TestCall& call = Start(Make(Request(50), {.deadline = clock_.Now() + milliseconds(3)}));
  EXPECT_EQ(call.finished, 1);
  EXPECT_FALSE(call.decoded);
  EXPECT_EQ(ReasonOf(call.status), ShedReason::kDeadline) << call.status;
  EXPECT_TRUE(RetryAfter(call.status).has_value());
  Release();
}

TEST_F(ScoreCallTest, HighPriorityGoesFirst) {
  MakePool(1);
  Occupy();
  std::vector<int> order;
  for (int p : {2, 1, 0}) {
    TestCall& call = Make(Request(3), {.priority = static_cast<Priority>(p)});
    call.on_decode = [&order, p] { order.push_back(p); };
    Start(call);
  }
  Release();
  pool_->Drain();
  EXPECT_EQ(order, std::vector<int>({0, 1, 2}));
}

TEST_F(ScoreCallTest, WhatIsKeptOfACallDoesNotGrowWithTheNamesInIt) {
  MakePool(1);
  SlowCalls slow;
  context_->slow_calls = &slow;
  v1::PredictRequest request = Request(1);
  request.mutable_ad_features(0)->set_name(std::string(1 << 20, 'n'));
  const TestCall& call = Start(Make(request));
  pool_->Drain();
  EXPECT_FALSE(call.status.ok());
  const std::vector<CallSummary> kept = slow.Slowest(clock_.Now());
  ASSERT_EQ(kept.size(), 1);
  EXPECT_EQ(kept[0].status.code(), call.status.code());
  EXPECT_LT(kept[0].status.message().size(), 2 * kMaxKeptErrorBytes);
}

TEST_F(ScoreCallTest, AClientsQuotaIsFreeAgainWhenItsCallsHaveEnded) {
  client_quota_ = std::make_unique<ClientQuota>(10);
  MakePool(1);
  Occupy();
  TestCall& first = Start(Make(Request(8), {.client = "a"}));
  TestCall& refused = Start(Make(Request(3), {.client = "a"}));
  TestCall& other = Start(Make(Request(3), {.client = "b"}));
  EXPECT_EQ(ReasonOf(refused.status), ShedReason::kQuota);
  EXPECT_FALSE(refused.decoded);
  Release();
  pool_->Drain();
  EXPECT_TRUE(first.status.ok() && other.status.ok());
  EXPECT_EQ(client_quota_->clients(), 0);
}

TEST_F(ScoreCallTest, TheNextGenerationBeginsWithWhatTheLastOneLearned) {
  MakeExpensive();
  const ModelHandle before = Find("tiny");
  ulfd::testing::WriteTinyModel(dir_.File("tiny/2"));
  models_->Poll();
  const ModelHandle after = Find("tiny");
  EXPECT_EQ(after->version, 2);
  EXPECT_NE(before->lane, after->lane);
  EXPECT_EQ(before->lane->cost().Predict(1, 100), after->lane->cost().Predict(1, 100));
}

TEST(Priorities, AreNamed) {
  EXPECT_EQ(*ParsePriority("high"), Priority::kHigh);
  EXPECT_EQ(*ParsePriority("normal"), Priority::kNormal);
  EXPECT_EQ(*ParsePriority("low"), Priority::kLow);
  EXPECT_EQ(ParsePriority("urgent\n").status(),
            absl::InvalidArgumentError("priority \"urgent\\n\", want high, normal or low"));
}

}  // namespace
}  // namespace ulfd::server
