// The model manager with its threads on: calls go on while models are replaced, with a loader that
// reads nothing and with real models that are run.  Runs under ThreadSanitizer.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/tensor/onednn.h"
#include "server/models/model_change.h"
#include "server/models/model_manager.h"
#include "server/models/model_manager_options.h"
#include "server/models/model_types.h"
#include "tests/testing/model_repository.h"
#include "tests/testing/thread_use.h"

namespace ulfd::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int kReplacements = 50;
constexpr int kCallers = 2;

// Closed until opened.  (absl::Notification is not instrumented for ThreadSanitizer.)
class Gate {
 public:
  void Open() {
    MutexLock lock(mu_);
    open_ = true;
    cv_.NotifyAll();
  }
  void Wait() {
    MutexLock lock(mu_);
    while (!open_) cv_.Wait(mu_);
  }

 private:
  Mutex mu_;
  CondVar cv_;
  bool open_ ABSL_GUARDED_BY(mu_) = false;
};

class ModelReloadTest : public ::testing::Test {
 protected:
  ModelReloadTest() {
    options_.repository = repository_.path();
    // Only PollNow makes it look.
    options_.poll_interval = std::chrono::hours(1);
    options_.settle_time = std::chrono::seconds(2);
    options_.retry_backoff = std::chrono::seconds(1);
  }
  void Start() {
    auto manager = ModelManager::Create(options_, &observer_);
    ASSERT_TRUE(manager.ok()) << manager.status();
    manager_ = *std::move(manager);
    manager_->Start();
  }
  // A load of version 2 opens `loading` and waits for `go`.
  void HoldVersion2(Gate& loading, Gate& go) {
    options_.load = [&loading,
                     &go](const engine::LoadOptions& load) -> std::unique_ptr<const engine::Model> {
      if (load.version == 2) {
        loading.Open();
        go.Wait();
      }
      return LoadAnyModel();
    };
  }
  absl::Status PollNow() { return manager_->PollNow(steady_clock::now() + seconds(300)); }

  ModelRepository repository_;
  RecordingObserver observer_;
  ModelManagerOptions options_;
  std::unique_ptr<ModelManager> manager_;
};

TEST_F(ModelReloadTest, FindNeverWaitsForALoadAndPollNowSaysWhatItWaitedFor) {
  Gate loading, go;
  HoldVersion2(loading, go);
  repository_.Publish("m", 1, "a");
  Start();
  ASSERT_TRUE(PollNow().ok());
  repository_.Publish("m", 2, "b");
  EXPECT_EQ(manager_->PollNow(steady_clock::now() + milliseconds(50)).code(),
            absl::StatusCode::kDeadlineExceeded);
  loading.Wait();
  // The load is held up, calls are not.
  for (int i = 0; i < 1000; ++i) EXPECT_EQ((*manager_->Find({"m"}))->version, 1);
  EXPECT_EQ(manager_->List()[0].versions[1].state, VersionState::kLoading);
  // Long enough for the poll thread to look at the repository on a busy machine; the load is still
  // held up.
  EXPECT_EQ(manager_->PollNow(steady_clock::now() + milliseconds(1000)).ToString(),
            "DEADLINE_EXCEEDED: not loaded in time: model \"m\" v2");
  go.Open();
  EXPECT_TRUE(PollNow().ok());
  EXPECT_EQ((*manager_->Find({"m"}))->version, 2);
}

// Takes its time to hear of a failure.
class SlowObserver : public RecordingObserver {
 public:
  void OnLoadFailed(const std::string& name, int64_t version, absl::string_view reason,
                    const absl::Status& error) override {
    hearing_.Open();
    std::this_thread::sleep_for(milliseconds(200));
    RecordingObserver::OnLoadFailed(name, version, reason, error);
  }
  void WaitUntilItHears() { hearing_.Wait(); }

 private:
  Gate hearing_;
};

TEST_F(ModelReloadTest, PollNowWaitsUntilTheObserverHasHeard) {
  SlowObserver slow;
  repository_.Publish("m", 1, "a");
  repository_.Write("m", 1, "graph_ulf.txt", "layer_params { typo: 1 }");
  auto manager = ModelManager::Create(options_, &slow);
  ASSERT_TRUE(manager.ok()) << manager.status();
  (*manager)->Start();
  slow.WaitUntilItHears();
  ASSERT_TRUE((*manager)->PollNow(steady_clock::now() + seconds(300)).ok());
  EXPECT_THAT(slow.TakeEvents(), ElementsAre("failed m v1 parse"));
}

TEST_F(ModelReloadTest, ManyWhoAskForOneVersionLoadItOnce) {
  std::atomic<int> loads = 0;
  options_.load = [&](const engine::LoadOptions&) -> std::unique_ptr<const engine::Model> {
    ++loads;
    return LoadAnyModel();
  };
  repository_.Publish("m", 1, "a");
  Start();
  std::vector<std::thread> askers;
  for (int i = 0; i < 8; ++i) askers.emplace_back([&] { EXPECT_TRUE(PollNow().ok()); });
  for (std::thread& asker : askers) asker.join();
  EXPECT_EQ(loads, 1);
  EXPECT_EQ(manager_->generation(), 1);
}

TEST_F(ModelReloadTest, WhatIsToChangeIsReadByTheLoaderInItsTurn) {
  Gate loading, go, changed;
  options_.load = [&](const engine::LoadOptions&) -> std::unique_ptr<const engine::Model> {
    loading.Open();
    go.Wait();
    return LoadAnyModel();
  };
  repository_.Publish("m", 1, "a");
  Start();
  loading.Wait();
  std::atomic<int64_t> generation = -1;
  absl::Status status;
  manager_->Apply(
      [&]() -> absl::StatusOr<ModelChange> {
        generation = manager_->generation();
        return absl::NotFoundError("no configuration");
      },
      [&](const ModelChangeResult& result) {
        status = result.status;
        changed.Open();
      });
  EXPECT_EQ(generation, -1);  // Here nothing is read, however busy the loader is.
  go.Open();
  changed.Wait();
  EXPECT_EQ(generation, 1);
  EXPECT_EQ(status, absl::NotFoundError("no configuration"));
}

TEST_F(ModelReloadTest, AVersionIsFoundByItself) {
  options_.poll_interval = milliseconds(1);
  options_.load = [](const engine::LoadOptions&) { return LoadAnyModel(); };
  std::filesystem::create_directory(repository_.path() + "/m");
  Start();
  ASSERT_TRUE(PollNow().ok());
  repository_.Publish("m", 1, "a");
  const auto give_up = steady_clock::now() + seconds(60);
  while (manager_->generation() == 0 && steady_clock::now() < give_up) std::this_thread::yield();
  EXPECT_EQ(manager_->generation(), 1);
}

TEST_F(ModelReloadTest, SettledContentIsLoadedWithoutAnotherLook) {
  options_.settle_time = milliseconds(50);
  options_.load = [](const engine::LoadOptions&) { return LoadAnyModel(); };
  repository_.Publish("m", 1, "a", /*success=*/false);
  Start();
  const auto give_up = steady_clock::now() + seconds(60);
  while (manager_->generation() == 0 && steady_clock::now() < give_up) std::this_thread::yield();
  EXPECT_EQ(manager_->generation(), 1);
}

TEST_F(ModelReloadTest, DestructionWaitsForTheLoadAndKeepsHandles) {
  Gate loading, go;
  HoldVersion2(loading, go);
  repository_.Publish("m", 1, "a");
  Start();
  ASSERT_TRUE(PollNow().ok());
  const ModelHandle handle = *manager_->Find({"m"});
  repository_.Publish("m", 2, "b");
  EXPECT_FALSE(manager_->PollNow(steady_clock::now()).ok());  // Asks for a look, waits for nothing.
  loading.Wait();
  std::thread opener([&] { go.Open(); });
  manager_.reset();  // Somewhere in the load of version 2.
  opener.join();
  EXPECT_EQ(handle->version, 1);
}

TEST_F(ModelReloadTest, FiftyReplacementsUnderCallersWhoHoldHandles) {
  options_.load = [](const engine::LoadOptions&) { return LoadAnyModel(); };
  repository_.Publish("m", 1, "0");
  Start();
  ASSERT_TRUE(PollNow().ok());
  std::atomic<bool> stop = false;
  std::atomic<int64_t> calls = 0;
  std::vector<std::thread::id> callers(kCallers);
  std::vector<std::thread> threads;
  for (int t = 0; t < kCallers; ++t) {
    threads.emplace_back([&, t] {
      callers[t] = std::this_thread::get_id();
      std::vector<ModelHandle> held(7);  // So that generations outlive their replacement.
      int64_t last = 0;
      for (size_t i = 0; !stop; ++i) {
        auto handle = manager_->Find({"m"});
        ASSERT_TRUE(handle.ok()) << handle.status();
        EXPECT_EQ((*handle)->name, "m");
        EXPECT_GE((*handle)->generation, last);  // Never back to an older one.
        last = (*handle)->generation;
        held[i % held.size()] = *std::move(handle);
        ++calls;
      }
    });
  }
  for (int i = 1; i <= kReplacements; ++i) {
    repository_.Publish("m", 1 + i / 10, absl::StrCat(i));
    ASSERT_TRUE(PollNow().ok());
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(manager_->generation(), kReplacements + 1);
  EXPECT_GT(calls, 0);
  manager_.reset();
  EXPECT_EQ(observer_.unloaded().size(), kReplacements + 1u);
  // One thread freed them all, and it is none of those that called.
  EXPECT_EQ(observer_.freeing_threads().size(), 1u);
  for (const std::thread::id caller : callers) {
    EXPECT_FALSE(observer_.freeing_threads().contains(caller));
  }
}

// score = 10 * x0 + version-dependent bias.
std::string BiasGraph() {
  return "layer_params { type: \"input_layer\" top: \"x\" } layer_params { name: \"fc\" type: "
         "\"inner_product_layer\" bottom: \"x\" top: \"score\" }";
}
std::string BiasWeights(int bias) {
  return absl::StrCat(
      "layer_weights_params { name: \"fc\" blob_datas { shape: 2 shape: 1 data: [10, 0] } "
      "blob_datas { shape: 1 data: ",
      bias, " } }");
}

class RealReloadTest : public ModelReloadTest {
 protected:
  void PublishBias(int64_t version, int bias) {
    const std::string staged = repository_.Stage("x", true);
    std::ofstream(staged + "/graph_ulf.txt") << BiasGraph();
    std::ofstream(staged + "/weights.pb") << BiasWeights(bias);
    repository_.Swap("m", version, staged);
  }
  // The score of one ad, x = (1, 0); the bias is that minus 10.
  static absl::StatusOr<float> Score(const engine::Model& model, engine::Workspace& workspace,
                                     engine::RunResult& result) {
    float x[] = {1, 0};
    const engine::NamedTensor input = {
        "x", {.dtype = engine::DType::kFloat32, .dims = {1, 2}, .data = x}};
    const absl::Status status = model.Run({&input, 1}, {}, workspace, result);
    if (!status.ok()) return status;
    if (result.outputs.size() != 1 || result.outputs[0].elements() != 1) {
      return absl::InternalError("not one score");
    }
    return *result.outputs[0].f32();
  }
};

// How often this thread gives up the CPU while it asks `stop` for 5 ms of CPU time.
int64_t SleepsOf(const std::function<bool()>& stop) {
  return ThreadUse::Of(milliseconds(5), [&] { EXPECT_FALSE(stop()); }).sleeps;
}

TEST_F(RealReloadTest, RunsBeforePublicationGiveWayOnceCallsAreServed) {
  std::vector<int64_t> sleeps;
  options_.check = [&](const engine::Model&, const std::string&, const engine::RunOptions& run,
                       std::vector<std::string>&) {
    sleeps.push_back(SleepsOf(*run.stop));
    return absl::OkStatus();
  };
  PublishBias(1, 1);
  Start();
  ASSERT_TRUE(PollNow().ok());
  PublishBias(2, 2);
  ASSERT_TRUE(PollNow().ok());
  ASSERT_EQ(sleeps.size(), 2u);
  EXPECT_EQ(sleeps[0], 0);
  EXPECT_GT(sleeps[1], 0);
}

TEST_F(RealReloadTest, EveryScoreIsOneVersionsScoreWhileFiftyReplaceEachOther) {
  PublishBias(1, 0);
  Start();
  ASSERT_TRUE(PollNow().ok());
  ASSERT_TRUE(manager_->Find({"m"}).ok()) << manager_->Find({"m"}).status();
  // What may be seen: everything from the newest that was published before a call to the newest
  // that was put in place after it.
  std::atomic<int> published = 0, placed = 0;
  std::atomic<bool> stop = false;
  std::atomic<int64_t> calls = 0, failures = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < kCallers; ++t) {
    threads.emplace_back([&] {
      engine::UseOneThread();
      engine::Workspace workspace;
      engine::RunResult result;
      while (!stop) {
        const int from = published;
        auto handle = manager_->Find({"m"});
        const auto score = handle.ok() ? Score(*(*handle)->model, workspace, result)
                                       : absl::StatusOr<float>(handle.status());
        const int to = placed;
        ++calls;
        const int bias = score.ok() ? static_cast<int>(*score) - 10 : -1;
        if (!score.ok() || *score != static_cast<int>(*score) || bias < from || bias > to) {
          ++failures;
          ADD_FAILURE() << (score.ok() ? absl::StrCat(*score) : score.status().ToString())
                        << ", want a bias from " << from << " to " << to;
        }
      }
    });
  }
  for (int i = 1; i <= kReplacements; ++i) {
    placed = i;
    PublishBias(1, i);
    ASSERT_TRUE(PollNow().ok());
    published = i;
    const int64_t seen = calls;
    while (calls == seen) std::this_thread::yield();  // Each one is called at least once or twice.
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures, 0);
  EXPECT_GE(calls, kReplacements);
  EXPECT_EQ(manager_->generation(), kReplacements + 1);
  manager_.reset();
  EXPECT_EQ(observer_.unloaded().size(), kReplacements + 1u);
  EXPECT_EQ(observer_.freeing_threads().size(), 1u);
}

TEST_F(RealReloadTest, BrokenFilesAreRefusedWithTheirReason) {
  PublishBias(1, 5);
  Start();
  ASSERT_TRUE(PollNow().ok());
  observer_.TakeEvents();
  const std::pair<const char*, std::pair<std::string, std::string>> broken[] = {
      {"parse", {"graph_ulf.txt", "layer_params { typo: 1 }"}},
      {"weights",
       {"weights.pb",
        "layer_weights_params { name: \"fc\" blob_datas { shape: 3 data: [1, 2] } }"}},
      {"manifest", {"model.textproto", "grahp: \"x\""}},
  };
  engine::UseOneThread();
  engine::Workspace workspace;
  engine::RunResult result;
  for (const auto& [reason, file] : broken) {
    const std::string staged = repository_.Stage("x", true);
    std::ofstream(staged + "/graph_ulf.txt") << BiasGraph();
    std::ofstream(staged + "/weights.pb") << BiasWeights(7);
    std::ofstream(staged + "/" + file.first) << file.second;
    repository_.Swap("m", 1, staged);
    ASSERT_TRUE(PollNow().ok());
    EXPECT_THAT(observer_.TakeEvents(), ElementsAre(absl::StrCat("failed m v1 ", reason)));
    EXPECT_THAT(observer_.errors().back(), HasSubstr("model \"m\" v1: "));
    const auto score = Score(*(*manager_->Find({"m"}))->model, workspace, result);
    ASSERT_TRUE(score.ok()) << score.status();
    EXPECT_EQ(*score, 15);
  }
  EXPECT_THAT(observer_.unloaded(), IsEmpty());
}

}  // namespace
}  // namespace ulfd::server
