// A model manager without threads, stepped by hand over a repository on disk with a clock that
// stands still: the fixture of its tests.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TESTS_TESTING_STEPPED_MANAGER_H_
#define ULFD_TESTS_TESTING_STEPPED_MANAGER_H_

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/models/model_manager.h"
#include "server/models/model_manager_options.h"
#include "server/models/model_types.h"
#include "tests/testing/model_repository.h"

namespace ulfd::server {

class SteppedManagerTest : public ::testing::Test {
 protected:
  SteppedManagerTest() {
    options_.repository = repository_.path();
    options_.poll_interval = std::chrono::milliseconds(-1);
    // Far longer than the test: only the clock below makes it pass.
    options_.settle_time = std::chrono::hours(1);
    options_.retry_backoff = std::chrono::seconds(1);
    options_.now = [this] { return now_; };
    options_.load = [this](const engine::LoadOptions& load) -> Loaded {
      ++loads_;
      if (during_load_) during_load_(load);
      const auto failure = failures_.find({load.name, load.version});
      if (failure != failures_.end()) return failure->second;
      return LoadAnyModel();
    };
  }

  using Loaded = absl::StatusOr<std::unique_ptr<const engine::Model>>;

  void Create() {
    auto manager = ModelManager::Create(options_, &observer_);
    ASSERT_TRUE(manager.ok()) << manager.status();
    manager_ = *std::move(manager);
  }
  // One step; returns what the observer saw.
  std::vector<std::string> Poll() {
    if (manager_ == nullptr) Create();
    manager_->Poll();
    return observer_.TakeEvents();
  }
  std::vector<std::string> PollAfter(std::chrono::steady_clock::duration time) {
    now_ += time;
    return Poll();
  }
  // "v2 generation 3", or the error.
  std::string Serving(const ModelChoice& choice = {"m"}) {
    const auto handle = manager_->Find(choice);
    if (!handle.ok()) return handle.status().ToString();
    return absl::StrCat("v", (*handle)->version, " generation ", (*handle)->generation);
  }
  ModelStatus Status(const std::string& name = "m") {
    for (const ModelStatus& status : manager_->List()) {
      if (status.name == name) return status;
    }
    ADD_FAILURE() << "no model " << name;
    return {};
  }
  VersionStatus Version(int64_t version, const std::string& name = "m") {
    for (const VersionStatus& status : Status(name).versions) {
      if (status.version == version) return status;
    }
    ADD_FAILURE() << "no version " << version;
    return {};
  }

  ModelRepository repository_;
  RecordingObserver observer_;
  ModelManagerOptions options_;
  std::chrono::steady_clock::time_point now_{std::chrono::hours(1000)};
  std::map<std::pair<std::string, int64_t>, absl::Status> failures_;  // Of loads.
  std::function<void(const engine::LoadOptions&)> during_load_;
  int loads_ = 0;
  std::unique_ptr<ModelManager> manager_;
};

}  // namespace ulfd::server

#endif  // ULFD_TESTS_TESTING_STEPPED_MANAGER_H_
