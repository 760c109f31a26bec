// A model repository on disk, an observer that records, and a clock that stands still: for tests of
// the model manager.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TESTS_TESTING_MODEL_REPOSITORY_H_
#define ULFD_TESTS_TESTING_MODEL_REPOSITORY_H_

#include <chrono>
#include <filesystem>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "engine/runtime/model.h"
#include "server/models/model_observer.h"
#include "server/models/model_types.h"
#include "tests/testing/temp_dir.h"

namespace ulfd {

// A model that is loaded, for tests that do not mind which.  On a thread of its own: the LoadScope
// of a loader that calls this allows files of its repository alone.
inline std::unique_ptr<const engine::Model> LoadAnyModel() {
  return std::async(std::launch::async,
                    [] {
                      const TempDir dir;
                      dir.Write("graph_ulf.txt",
                                "layer_params { type: \"input_layer\" top: \"x\" } "
                                "layer_params { type: \"relu_layer\" bottom: \"x\" top: \"y\" }");
                      return *engine::Model::Load({.directory = dir.path()});
                    })
      .get();
}

class ModelRepository {
 public:
  const std::string& path() const { return dir_.path(); }
  std::string Path(absl::string_view model, int64_t version) const {
    return absl::StrCat(path(), "/", model, "/", version);
  }
  // A graph without weights.  `tag` makes the content different.
  static std::string Graph(absl::string_view tag) {
    return absl::StrCat("name: \"", tag, "\" layer_params { type: \"input_layer\" top: \"x\" }");
  }
  // A complete version in a directory of its own, not yet at its place.
  std::string Stage(absl::string_view tag, bool success) {
    const std::string name = absl::StrCat(".staged", ++staged_);
    std::filesystem::create_directories(dir_.File(name));
    dir_.Write(name + "/graph_ulf.txt", Graph(tag));
    if (success) dir_.Write(name + "/_SUCCESS", "");
    return dir_.File(name);
  }
  // Puts a complete version in place by renaming; what was there goes away.
  void Publish(absl::string_view model, int64_t version, absl::string_view tag,
               bool success = true) {
    Swap(model, version, Stage(tag, success));
  }
  void Swap(absl::string_view model, int64_t version, const std::string& staged) {
    const std::string place = Path(model, version);
    std::filesystem::create_directories(absl::StrCat(path(), "/", model));
    const std::string old = dir_.File(absl::StrCat(".old", ++staged_));
    if (std::filesystem::exists(place)) std::filesystem::rename(place, old);
    std::filesystem::rename(staged, place);
    std::filesystem::remove_all(old);
  }
  // Writes one file of a version in place.
  void Write(absl::string_view model, int64_t version, absl::string_view file,
             absl::string_view content) {
    std::filesystem::create_directories(Path(model, version));
    dir_.Write(absl::StrCat(model, "/", version, "/", file), content);
  }
  void Remove(absl::string_view model, int64_t version) {
    std::filesystem::remove_all(Path(model, version));
  }
  void RemoveModel(absl::string_view model) {
    std::filesystem::remove_all(absl::StrCat(path(), "/", model));
  }

 private:
  TempDir dir_;
  int staged_ = 0;
};

namespace server {

class RecordingObserver : public ModelObserver {
 public:
  void OnPublished(const ServedModel& model, std::chrono::nanoseconds load_time) override {
    EXPECT_GE(load_time.count(), 0);
    if (when_published) when_published();
    MutexLock lock(mu_);
    events_.push_back(absl::StrCat("published ", model.name, " v", model.version));
  }
  void OnLoadFailed(const std::string& name, int64_t version, absl::string_view reason,
                    const absl::Status& error) override {
    EXPECT_FALSE(error.ok());
    MutexLock lock(mu_);
    events_.push_back(absl::StrCat("failed ", name, " v", version, " ", reason));
    errors_.emplace_back(error.message());
  }
  void OnUnloaded(const std::string& name, int64_t version, int64_t generation) override {
    MutexLock lock(mu_);
    unloaded_.insert(generation);
    freeing_threads_.insert(std::this_thread::get_id());
  }
  void OnReadinessChanged() override {
    MutexLock lock(mu_);
    ++readiness_changes_;
  }
  void OnShapePlan(const std::string& name, int64_t version,
                   const engine::ShapePlanInfo& plan) override {
    MutexLock lock(mu_);
    events_.push_back(absl::StrCat("plan ", engine::Name(plan.state), " ", name, " v", version));
  }
  void OnNotice(const std::string& name, int64_t version, const std::string& notice) override {
    MutexLock lock(mu_);
    notices_.push_back(notice);
  }

  std::function<void()> when_published;

  // What happened since the last call, without unloading.
  std::vector<std::string> TakeEvents() {
    MutexLock lock(mu_);
    return std::exchange(events_, {});
  }
  std::vector<std::string> errors() {
    MutexLock lock(mu_);
    return errors_;
  }
  std::vector<std::string> notices() {
    MutexLock lock(mu_);
    return notices_;
  }
  std::set<int64_t> unloaded() {
    MutexLock lock(mu_);
    return unloaded_;
  }
  std::set<std::thread::id> freeing_threads() {
    MutexLock lock(mu_);
    return freeing_threads_;
  }
  int readiness_changes() {
    MutexLock lock(mu_);
    return readiness_changes_;
  }

 private:
  Mutex mu_;
  std::vector<std::string> events_ ABSL_GUARDED_BY(mu_);
  std::vector<std::string> errors_ ABSL_GUARDED_BY(mu_), notices_ ABSL_GUARDED_BY(mu_);
  std::set<int64_t> unloaded_ ABSL_GUARDED_BY(mu_);
  std::set<std::thread::id> freeing_threads_ ABSL_GUARDED_BY(mu_);
  int readiness_changes_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace server
}  // namespace ulfd

#endif  // ULFD_TESTS_TESTING_MODEL_REPOSITORY_H_
