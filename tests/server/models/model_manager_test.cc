// The model manager stepped by hand: what is loaded when, what stays, what is said.
// SPDX-License-Identifier: Apache-2.0
#include "server/models/model_manager.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/load_scope.h"
#include "server/models/model_manager_options.h"
#include "server/models/model_types.h"
#include "tests/testing/stepped_manager.h"

namespace ulfd::server {
namespace {

namespace fs = std::filesystem;
using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::minutes;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

class ModelManagerTest : public SteppedManagerTest {
 protected:
  // Drops of the last handle only queue; waiting for the reaper is destroying the manager.
  std::set<int64_t> UnloadedAtEnd() {
    manager_.reset();
    return observer_.unloaded();
  }
};

TEST_F(ModelManagerTest, CommittedVersionLoadsAtOnce) {
  repository_.Publish("m", 3, "a");
  during_load_ = [&](const engine::LoadOptions& load) {
    EXPECT_EQ(load.directory, repository_.Path("m", 3));
    EXPECT_EQ(load.name, "m");
    EXPECT_EQ(load.version, 3);
    EXPECT_EQ(Version(3).state, VersionState::kLoading);
    EXPECT_TRUE(absl::IsUnavailable(manager_->Find({"m"}).status()));
  };
  EXPECT_THAT(Poll(), ElementsAre("published m v3"));
  EXPECT_EQ(Serving(), "v3 generation 1");
  EXPECT_EQ(Version(3).state, VersionState::kServing);
  EXPECT_EQ(Version(3).error, "");
  EXPECT_NE(Version(3).serving, nullptr);
  EXPECT_EQ(manager_->generation(), 1);
  EXPECT_THAT(Poll(), IsEmpty());
  EXPECT_EQ(loads_, 1);
}

TEST_F(ModelManagerTest, CommittedVersionsWaitForTheirTurn) {
  repository_.Publish("m", 1, "a");
  repository_.Publish("n", 1, "a");
  std::vector<std::string> waiting;
  during_load_ = [&](const engine::LoadOptions& load) {
    const std::string other = load.name == "m" ? "n" : "m";
    if (Version(1, other).serving == nullptr) waiting.push_back(Version(1, other).error);
  };
  Poll();
  EXPECT_THAT(waiting, ElementsAre("new content, waiting for its turn to be loaded"));
}

TEST_F(ModelManagerTest, WithoutMarkerAVersionMustSettle) {
  repository_.Publish("m", 1, "a", /*success=*/false);
  EXPECT_THAT(Poll(), IsEmpty());
  EXPECT_EQ(Version(1).state, VersionState::kWaiting);
  EXPECT_EQ(Version(1).error,
            "new content, loaded once nothing has changed for 3600000 ms or _SUCCESS exists");
  EXPECT_THAT(Serving(), HasSubstr("UNAVAILABLE: model \"m\" is known, but no version of it is "
                                   "published yet: version 1: new content, loaded once"));
  // Each change starts the time anew.
  repository_.Write("m", 1, "more", "x");
  EXPECT_THAT(PollAfter(minutes(59)), IsEmpty());
  EXPECT_THAT(PollAfter(minutes(59)), IsEmpty());
  EXPECT_THAT(PollAfter(minutes(1)), ElementsAre("published m v1"));
}

TEST_F(ModelManagerTest, MarkerThatAppearsEndsTheWait) {
  repository_.Publish("m", 1, "a", /*success=*/false);
  EXPECT_THAT(Poll(), IsEmpty());
  repository_.Write("m", 1, "_SUCCESS", "");
  EXPECT_THAT(Poll(), ElementsAre("published m v1"));
}

TEST_F(ModelManagerTest, WhatHasLainThereForLongNeedNotWait) {
  options_.settle_time = milliseconds(0);
  repository_.Publish("m", 1, "a", /*success=*/false);
  EXPECT_THAT(Poll(), ElementsAre("published m v1"));
}

TEST_F(ModelManagerTest, ChangedContentReplacesUnderTheSameVersion) {
  repository_.Publish("m", 1, "a");
  Poll();
  ModelHandle old = *manager_->Find({"m"});
  // In place, beside the old marker: it must settle, and the old content serves meanwhile.
  repository_.Write("m", 1, "graph_ulf.txt", ModelRepository::Graph("other"));
  EXPECT_THAT(Poll(), IsEmpty());
  EXPECT_EQ(Serving(), "v1 generation 1");
  EXPECT_EQ(Version(1).state, VersionState::kServing);
  EXPECT_EQ(Version(1).error, "changed content, loaded once nothing has changed for 3600000 ms");
  EXPECT_THAT(PollAfter(hours(1)), ElementsAre("published m v1"));
  EXPECT_EQ(Serving(), "v1 generation 2");
  // The request that started with the old content still has it.
  EXPECT_EQ(old->generation, 1);
  EXPECT_THAT(observer_.unloaded(), IsEmpty());
  old.reset();
  EXPECT_THAT(UnloadedAtEnd(), ElementsAre(1, 2));
  EXPECT_FALSE(observer_.freeing_threads().contains(std::this_thread::get_id()));
}

TEST_F(ModelManagerTest, SwappedDirectoryWithMarkerLoadsAtOnce) {
  repository_.Publish("m", 1, "a");
  Poll();
  repository_.Publish("m", 1, "b");
  EXPECT_THAT(Poll(), ElementsAre("published m v1"));
  repository_.Publish("m", 1, "c", /*success=*/false);
  EXPECT_THAT(Poll(), IsEmpty());
  EXPECT_THAT(PollAfter(hours(1)), ElementsAre("published m v1"));
  EXPECT_EQ(Serving(), "v1 generation 3");
}

TEST_F(ModelManagerTest, SymbolicLinkAsVersion) {
  const std::string a = repository_.Stage("a", true), b = repository_.Stage("b", true);
  fs::create_directories(repository_.path() + "/m");
  fs::create_directory_symlink(a, repository_.Path("m", 1));
  EXPECT_THAT(Poll(), ElementsAre("published m v1"));
  fs::create_directory_symlink(b, repository_.path() + "/.next");
  fs::rename(repository_.path() + "/.next", repository_.Path("m", 1));
  EXPECT_THAT(Poll(), ElementsAre("published m v1"));
  EXPECT_EQ(Serving(), "v1 generation 2");
}

TEST_F(ModelManagerTest, BrokenContentLeavesTheOldOneServing) {
  repository_.Publish("m", 1, "a");
  Poll();
  failures_[{"m", 1}] = absl::InvalidArgumentError("layer 3: weight missing");
  repository_.Publish("m", 1, "broken");
  EXPECT_THAT(Poll(), ElementsAre("failed m v1 content"));
  EXPECT_EQ(Serving(), "v1 generation 1");
  EXPECT_EQ(Version(1).state, VersionState::kFailed);
  EXPECT_EQ(Version(1).error, "layer 3: weight missing");
  EXPECT_EQ(Version(1).serving->generation, 1);
  // Not tried again, however long it takes, until it changes.
  for (int i = 0; i < 5; ++i) EXPECT_THAT(PollAfter(hours(24)), IsEmpty());
  EXPECT_EQ(loads_, 2);
  failures_.clear();
  repository_.Publish("m", 1, "mended");
  EXPECT_THAT(Poll(), ElementsAre("published m v1"));
  EXPECT_EQ(Version(1).state, VersionState::kServing);
  EXPECT_EQ(Version(1).error, "");
}

TEST_F(ModelManagerTest, HalfCopiedVersionWaitsThenSaysWhatIsMissing) {
  repository_.Write("m", 1, "graph_ulf.txt",
                    "layer_params { type: \"input_layer\" top: \"x\" } layer_params { name: \"fc\" "
                    "type: \"inner_product_layer\" bottom: \"x\" top: \"y\" }");
  EXPECT_THAT(Poll(), IsEmpty());
  EXPECT_THAT(PollAfter(hours(1)), ElementsAre("failed m v1 incomplete"));
  EXPECT_EQ(loads_, 0);
  EXPECT_EQ(Version(1).state, VersionState::kFailed);
  EXPECT_EQ(Version(1).error,
            absl::StrCat("model \"m\" v1: not complete, and no _SUCCESS: weights: none of "
                         "weights.pb, dnn-model-dat, dense.npz, dense.txt exists in ",
                         repository_.Path("m", 1)));
  EXPECT_THAT(PollAfter(hours(10)), IsEmpty());
  repository_.Write("m", 1, "weights.pb", "");
  EXPECT_THAT(Poll(), IsEmpty());
  EXPECT_THAT(PollAfter(hours(1)), ElementsAre("published m v1"));
}

TEST_F(ModelManagerTest, ContentThatChangesUnderTheLoadIsThrownAway) {
  repository_.Publish("m", 1, "a");
  int writes = 0;
  during_load_ = [&](const engine::LoadOptions&) {
    if (writes++ < 2) repository_.Write("m", 1, "graph_ulf.txt", absl::StrCat("half ", writes));
  };
  EXPECT_THAT(Poll(), ElementsAre("failed m v1 changed"));
  EXPECT_THAT(observer_.errors()[0], HasSubstr("the files changed while they were loaded"));
  EXPECT_EQ(manager_->generation(), 0);
  EXPECT_THAT(Poll(), IsEmpty());  // Settling, in spite of the marker.
  EXPECT_THAT(PollAfter(hours(1)), ElementsAre("failed m v1 changed"));
  EXPECT_THAT(PollAfter(hours(1)), ElementsAre("published m v1"));
  EXPECT_EQ(loads_, 3);
}

TEST_F(ModelManagerTest, FailureOfContentThatChangedIsNotHeldAgainstIt) {
  repository_.Publish("m", 1, "a");
  failures_[{"m", 1}] = absl::InvalidArgumentError("truncated");
  during_load_ = [&](const engine::LoadOptions&) {
    if (loads_ == 1) repository_.Publish("m", 1, "b");
  };
  // The directory was swapped, with a marker: it is tried again at once, and only that failure
  // counts.
  EXPECT_THAT(Poll(), ElementsAre("failed m v1 changed", "failed m v1 content"));
}

TEST_F(ModelManagerTest, DirectoryThatVanishesUnderTheLoad) {
  repository_.Publish("m", 1, "a");
  during_load_ = [&](const engine::LoadOptions&) { repository_.Remove("m", 1); };
  EXPECT_THAT(Poll(), ElementsAre("failed m v1 changed"));
  EXPECT_THAT(Poll(), IsEmpty());
  during_load_ = nullptr;
  repository_.Publish("m", 1, "a");
  EXPECT_THAT(Poll(), ElementsAre("published m v1"));
}

TEST_F(ModelManagerTest, NewestVersionReplacesOlder) {
  repository_.Publish("m", 1, "a");
  repository_.Publish("m", 2, "b");
  EXPECT_THAT(Poll(), ElementsAre("published m v2"));  // latest(1): nothing below is touched.
  EXPECT_EQ(Version(1).error, "not wanted by the version policy");
  const ModelHandle held = *manager_->Find({"m"});
  repository_.Publish("m", 10, "c");
  EXPECT_THAT(Poll(), ElementsAre("published m v10"));
  EXPECT_EQ(Serving(), "v10 generation 2");
  EXPECT_EQ(Version(2).state, VersionState::kUnloading);
  EXPECT_EQ(Version(2).error, "unloaded; requests still hold it");
  EXPECT_EQ(Serving({"m", 2}), "NOT_FOUND: model \"m\" has no version 2; published: 10");
}

TEST_F(ModelManagerTest, FallsBackToTheVersionBelow) {
  repository_.Publish("m", 1, "a");
  repository_.Publish("m", 2, "b");
  repository_.Publish("m", 3, "c");
  failures_[{"m", 3}] = absl::InvalidArgumentError("broken");
  failures_[{"m", 2}] = absl::DataLossError("broken too");
  EXPECT_THAT(Poll(), ElementsAre("failed m v3 content", "failed m v2 content", "published m v1"));
  EXPECT_EQ(Serving(), "v1 generation 1");
  EXPECT_THAT(PollAfter(hours(1)), IsEmpty());
  // Something serves, so 2 is not wanted even when mended; 3 is.
  failures_.clear();
  repository_.Publish("m", 2, "mended");
  EXPECT_THAT(Poll(), IsEmpty());
  // The version that stands in is reloaded when it changes.
  repository_.Publish("m", 1, "changed");
  EXPECT_THAT(Poll(), ElementsAre("published m v1"));
  repository_.Publish("m", 3, "mended");
  EXPECT_THAT(Poll(), ElementsAre("published m v3"));
  EXPECT_EQ(Serving(), "v3 generation 3");
  EXPECT_THAT(UnloadedAtEnd(), ElementsAre(1, 2, 3));
}

TEST_F(ModelManagerTest, BrokenNewVersionLeavesTheOldVersion) {
  repository_.Publish("m", 1, "a");
  Poll();
  failures_[{"m", 2}] = absl::InvalidArgumentError("broken");
  repository_.Publish("m", 2, "b");
  EXPECT_THAT(Poll(), ElementsAre("failed m v2 content"));
  EXPECT_EQ(Serving(), "v1 generation 1");
  EXPECT_EQ(Version(2).state, VersionState::kFailed);
  EXPECT_EQ(Version(2).serving, nullptr);
  EXPECT_TRUE(manager_->Ready());
}

TEST_F(ModelManagerTest, ServesTheVersionBelowWhileTheNewestSettles) {
  repository_.Publish("m", 1, "a");
  repository_.Publish("m", 2, "b", /*success=*/false);
  EXPECT_THAT(Poll(), ElementsAre("published m v1"));
  EXPECT_THAT(PollAfter(hours(1)), ElementsAre("published m v2"));
}

TEST_F(ModelManagerTest, LatestTwo) {
  options_.default_policy.latest = 2;
  for (const int version : {1, 2, 3}) repository_.Publish("m", version, "a");
  EXPECT_THAT(Poll(), ElementsAre("published m v3", "published m v2"));
  EXPECT_EQ(Serving(), "v3 generation 1");
  EXPECT_EQ(Serving({"m", 2}), "v2 generation 2");
  repository_.Publish("m", 4, "a");
  EXPECT_THAT(Poll(), ElementsAre("published m v4"));
  EXPECT_EQ(Serving({"m", 2}), "NOT_FOUND: model \"m\" has no version 2; published: 3, 4");
  // A broken newest does not push the older two out.
  failures_[{"m", 5}] = absl::InvalidArgumentError("broken");
  repository_.Publish("m", 5, "a");
  EXPECT_THAT(Poll(), ElementsAre("failed m v5 content"));
  EXPECT_EQ(Serving({"m", 3}), "v3 generation 1");
  EXPECT_EQ(Serving({"m", 4}), "v4 generation 3");
}

TEST_F(ModelManagerTest, SaysWhichOfTheSpecificVersionsIsNotThere) {
  options_.models = {{.name = "m", .policy = {.specific = {7}}}};
  repository_.Publish("m", 1, "a");
  EXPECT_THAT(Poll(), IsEmpty());
  EXPECT_THAT(Serving(), HasSubstr("published yet: version 7: its directory does not exist"));
}

TEST_F(ModelManagerTest, SpecificVersions) {
  options_.models = {{.name = "m", .policy = {.specific = {1, 3, 7}}}};
  for (const int version : {1, 2, 3, 4}) repository_.Publish("m", version, "a");
  EXPECT_THAT(Poll(), ElementsAre("published m v3", "published m v1"));
  EXPECT_EQ(Serving(), "v3 generation 1");
  EXPECT_EQ(Version(7).state, VersionState::kWaiting);
  EXPECT_EQ(Version(7).error, "its directory does not exist");
  // Neither a deletion nor a failure makes another version wanted.
  repository_.Remove("m", 3);
  EXPECT_THAT(Poll(), IsEmpty());
  EXPECT_THAT(PollAfter(hours(2)), IsEmpty());
  EXPECT_EQ(Serving(), "v3 generation 1");
}

TEST_F(ModelManagerTest, LabelsPinVersions) {
  options_.models = {{.name = "m", .labels = {{"stable", 2}, {"canary", 4}, {"next", 9}}}};
  for (const int version : {1, 2, 3, 4}) repository_.Publish("m", version, "a");
  EXPECT_THAT(Poll(), ElementsAre("published m v4", "published m v2"));
  EXPECT_EQ(Serving(), "v2 generation 2");
  EXPECT_EQ(Serving({.name = "m", .label = "canary"}), "v4 generation 1");
  EXPECT_EQ(Serving({.name = "m", .label = "next"}),
            "UNAVAILABLE: model \"m\": label \"next\" names version 9, which is not published; "
            "published: 2, 4");
  EXPECT_EQ(Serving({.name = "m", .label = "best"}),
            "NOT_FOUND: model \"m\" has no label \"best\"; labels: \"canary\", \"next\", "
            "\"stable\"");
  EXPECT_EQ(Serving({.name = "m", .version = 2, .label = "stable"}),
            "INVALID_ARGUMENT: model \"m\": version 2 and label \"stable\" are both set, want at "
            "most one");
  EXPECT_THAT(manager_->LabelsOf("m", 4), ElementsAre("canary"));
  EXPECT_THAT(manager_->LabelsOf("m", 1), IsEmpty());
  EXPECT_THAT(manager_->LabelsOf("other", 4), IsEmpty());
  EXPECT_THAT(Version(2).labels, ElementsAre("stable"));
  EXPECT_THAT(Version(9).labels, ElementsAre("next"));
  // The pinned version outlives newer ones.
  repository_.Publish("m", 5, "a");
  EXPECT_THAT(Poll(), ElementsAre("published m v5"));
  EXPECT_EQ(Serving(), "v2 generation 2");
}

TEST_F(ModelManagerTest, StableThatIsNotPublishedIsNoDefault) {
  options_.models = {{.name = "m", .labels = {{"stable", 2}}}};
  repository_.Publish("m", 3, "a");
  Poll();
  EXPECT_EQ(Serving(),
            "UNAVAILABLE: model \"m\": label \"stable\" names version 2, which is not published; "
            "published: 3");
  EXPECT_FALSE(manager_->Ready());
  repository_.Publish("m", 2, "a");
  Poll();
  EXPECT_TRUE(manager_->Ready());
}

TEST_F(ModelManagerTest, DeletedVersionServesUntilReplaced) {
  repository_.Publish("m", 1, "a");
  Poll();
  repository_.Remove("m", 1);
  EXPECT_THAT(Poll(), IsEmpty());
  EXPECT_THAT(PollAfter(hours(100)), IsEmpty());
  EXPECT_EQ(Serving(), "v1 generation 1");
  EXPECT_EQ(Version(1).state, VersionState::kServing);
  EXPECT_EQ(Version(1).error, "its directory is gone; it serves until another version replaces it");
  // It comes back unchanged in content but as new files.
  repository_.Publish("m", 2, "b");
  EXPECT_THAT(Poll(), ElementsAre("published m v2"));
  EXPECT_EQ(Serving(), "v2 generation 2");
  EXPECT_EQ(Serving({"m", 1}), "NOT_FOUND: model \"m\" has no version 1; published: 2");
}

TEST_F(ModelManagerTest, DeletingTheNewestRollsBack) {
  repository_.Publish("m", 1, "a");
  repository_.Publish("m", 2, "b");
  Poll();
  repository_.Remove("m", 2);
  // It may be half of a replacement.
  EXPECT_THAT(Poll(), IsEmpty());
  EXPECT_THAT(PollAfter(minutes(59)), IsEmpty());
  EXPECT_EQ(Serving(), "v2 generation 1");
  EXPECT_THAT(PollAfter(minutes(1)), ElementsAre("published m v1"));
  EXPECT_EQ(Serving(), "v1 generation 2");
}

TEST_F(ModelManagerTest, DeletedModelIsUnloadedAfterAWhile) {
  repository_.Publish("m", 1, "a");
  repository_.Publish("n", 1, "a");
  Poll();
  const int changes = observer_.readiness_changes();
  repository_.RemoveModel("m");
  EXPECT_THAT(Poll(), IsEmpty());
  EXPECT_EQ(Serving(), "v1 generation 1");
  EXPECT_THAT(Status().error, HasSubstr("does not exist"));
  PollAfter(hours(1));
  EXPECT_EQ(Serving(), "NOT_FOUND: model \"m\" is unknown; models: \"n\"");
  EXPECT_EQ(observer_.readiness_changes(), changes + 1);
  EXPECT_TRUE(manager_->Ready());
  repository_.Publish("m", 1, "b");
  EXPECT_THAT(Poll(), ElementsAre("published m v1"));
}

TEST_F(ModelManagerTest, SwappedModelDirectoryServesOn) {
  repository_.Publish("m", 1, "a");
  Poll();
  repository_.Publish("next", 1, "b");
  repository_.RemoveModel("m");
  Poll();
  fs::rename(repository_.path() + "/next", repository_.path() + "/m");
  EXPECT_THAT(Poll(), ElementsAre("published m v1"));
  EXPECT_EQ(observer_.unloaded().count(2), 0u);
}

TEST_F(ModelManagerTest, RepositoryOutOfReachUnloadsNothing) {
  options_.models = {{.name = "c"}};
  repository_.Publish("m", 1, "a");
  repository_.Publish("c", 1, "a");
  Poll();
  fs::rename(repository_.path(), repository_.path() + "_away");
  EXPECT_THAT(Poll(), ElementsAre("failed c v0 io", "failed m v0 io"));
  EXPECT_TRUE(Status().unreadable);
  EXPECT_THAT(PollAfter(hours(100)), IsEmpty());
  EXPECT_EQ(Serving().substr(0, 2), "v1");
  EXPECT_EQ(Serving({"c"}).substr(0, 2), "v1");
  EXPECT_THAT(Status().error, HasSubstr("does not exist"));
  fs::rename(repository_.path() + "_away", repository_.path());
  EXPECT_THAT(Poll(), IsEmpty());
  EXPECT_EQ(Status().error, "");
}

TEST_F(ModelManagerTest, AVersionThatCannotBeLookedAtFailsAndIsSaidOnce) {
  repository_.Publish("m", 1, "a");
  repository_.Publish("m", 2, "b");
  const std::string deltas = absl::StrCat(repository_.path(), "/m/2/deltas");
  std::ofstream(deltas) << "no directory";
  EXPECT_THAT(Poll(), UnorderedElementsAre("published m v1", "failed m v2 content"));
  EXPECT_THAT(PollAfter(hours(100)), IsEmpty());
  EXPECT_EQ(Version(2).state, VersionState::kFailed);
  EXPECT_THAT(Version(2).error, HasSubstr("deltas: Not a directory"));
  EXPECT_FALSE(Status().unreadable);
  fs::remove(deltas);
  EXPECT_THAT(Poll(), ElementsAre("published m v2"));
  // What serves goes on.
  std::ofstream(deltas) << "no directory";
  EXPECT_THAT(Poll(), ElementsAre("failed m v2 content"));
  EXPECT_EQ(Serving().substr(0, 2), "v2");
}

TEST_F(ModelManagerTest, ALookThatLacksMemoryChangesNothing) {
  repository_.Publish("m", 1, "a");
  Poll();
  for (int i = 0; i < 100; ++i) {
    fs::create_directories(absl::StrCat(repository_.path(), "/empty", i));
  }
  int lacking = 0;
  for (int64_t bytes = 100; manager_->List().size() < 101; bytes += bytes / 4) {
    ASSERT_LT(bytes, 10 << 20);
    {
      const LoadScope scope({.max_memory_bytes = bytes});
      manager_->Poll();
    }
    EXPECT_EQ(Serving(), "v1 generation 1");
    ++lacking;
  }
  EXPECT_GT(lacking, 10);
  repository_.Publish("m", 1, "b");
  EXPECT_THAT(Poll(), ElementsAre("published m v1"));
}

TEST_F(ModelManagerTest, IoErrorsAreRetriedWithGrowingPauses) {
  options_.retry_backoff = milliseconds(1000);
  repository_.Publish("m", 1, "a");
  failures_[{"m", 1}] = absl::UnavailableError("stale file handle");
  EXPECT_THAT(Poll(), ElementsAre("failed m v1 io"));
  EXPECT_EQ(Version(1).state, VersionState::kFailed);
  EXPECT_EQ(Version(1).error, "stale file handle");
  for (const int seconds : {1, 2, 4, 8, 16, 32, 60, 60}) {
    EXPECT_THAT(PollAfter(std::chrono::seconds(seconds) - milliseconds(1)), IsEmpty()) << seconds;
    EXPECT_THAT(PollAfter(milliseconds(1)), ElementsAre("failed m v1 io")) << seconds;
  }
  failures_.clear();
  EXPECT_THAT(PollAfter(minutes(1)), ElementsAre("published m v1"));
  EXPECT_EQ(Version(1).error, "");
}

TEST_F(ModelManagerTest, ChangeEndsTheBackoff) {
  repository_.Publish("m", 1, "a");
  failures_[{"m", 1}] = absl::ResourceExhaustedError("no memory");
  EXPECT_THAT(Poll(), ElementsAre("failed m v1 memory"));
  repository_.Publish("m", 1, "smaller");
  failures_.clear();
  EXPECT_THAT(Poll(), ElementsAre("published m v1"));
}

TEST_F(ModelManagerTest, NamesThatAreNoVersionsAreIgnored) {
  for (const char* name : {"01", "+1", "0", "-3", "1.0", "tmp", "99999999999999999999"}) {
    fs::create_directories(absl::StrCat(repository_.path(), "/m/", name));
  }
  fs::create_directories(repository_.path() + "/.git/1");
  Poll();
  EXPECT_EQ(manager_->List().size(), 1u);
  EXPECT_EQ(Status().error,
            absl::StrCat("no version directory (a positive whole number) in ", repository_.path(),
                         "/m; ignored: +1, -3, 0, 01, 1.0, 99999999999999999999, tmp"));
  repository_.Publish("m", 5, "a");
  EXPECT_THAT(Poll(), ElementsAre("published m v5"));
  EXPECT_EQ(Status().error, "");
}

TEST_F(ModelManagerTest, UnknownModel) {
  Poll();
  EXPECT_EQ(Serving(), "NOT_FOUND: model \"m\" is unknown; there are no models");
  for (int i = 10; i < 33; ++i) fs::create_directories(absl::StrCat(repository_.path(), "/x", i));
  Poll();
  EXPECT_THAT(Serving(), HasSubstr("model \"m\" is unknown; models: \"x10\", \"x11\""));
  EXPECT_THAT(Serving(), HasSubstr("\"x29\" and 3 more"));
  EXPECT_THAT(Serving({.name = "x10", .label = "b"}),
              HasSubstr("has no label \"b\"; it has no labels"));
  EXPECT_EQ(manager_->List().size(), 23u);
  ASSERT_EQ(manager_->List("x20").size(), 1u);
  EXPECT_EQ(manager_->List("x20")[0].name, "x20");
  EXPECT_TRUE(manager_->List("x2").empty());
}

TEST_F(ModelManagerTest, ReadyOnceEveryRequiredModelServesAndFromThenOn) {
  Create();
  EXPECT_FALSE(manager_->Ready());
  Poll();
  EXPECT_FALSE(manager_->Ready()) << "no model at all";
  EXPECT_EQ(observer_.readiness_changes(), 1);
  fs::create_directories(repository_.path() + "/not_a_model");
  repository_.Publish("m", 1, "a");
  repository_.Publish("n", 1, "a", /*success=*/false);
  Poll();
  EXPECT_FALSE(manager_->Ready()) << "n waits";
  PollAfter(hours(1));
  EXPECT_TRUE(manager_->Ready());
  failures_[{"m", 2}] = absl::InvalidArgumentError("broken");
  repository_.Publish("m", 2, "a");
  repository_.Publish("o", 2, "a");
  Poll();
  EXPECT_TRUE(manager_->Ready()) << "a model that comes later takes nothing back";
}

TEST_F(ModelManagerTest, OptionalModelsDoNotHoldReadinessUp) {
  options_.models = {{.name = "m", .required = false}, {.name = "n"}};
  repository_.Publish("n", 1, "a");
  fs::create_directories(repository_.path() + "/m");
  Poll();
  EXPECT_TRUE(manager_->Ready());
  EXPECT_FALSE(Status("m").required);
}

TEST_F(ModelManagerTest, FoundModelsAreTriedBeforeReadinessButMayFail) {
  failures_[{"broken", 1}] = absl::InvalidArgumentError("truncated");
  repository_.Publish("broken", 1, "a");
  Poll();
  EXPECT_FALSE(manager_->Ready()) << "nothing can be called";
  repository_.Publish("m", 1, "a");
  EXPECT_THAT(Poll(), ElementsAre("published m v1"));
  EXPECT_TRUE(manager_->Ready());
  fs::remove_all(repository_.path() + "/m");
  Poll();
  PollAfter(hours(1));
  EXPECT_FALSE(manager_->Ready()) << "the only one that could be called is gone";
  repository_.Publish("m", 1, "b");
  Poll();
  EXPECT_TRUE(manager_->Ready());
}

TEST_F(ModelManagerTest, ContentThatStillChangesIsNotWaitedFor) {
  repository_.Publish("m", 1, "a");
  repository_.Publish("copied", 1, "a", /*success=*/false);
  Poll();
  EXPECT_FALSE(manager_->Ready()) << "it may have settled soon";
  repository_.Publish("copied", 1, "ab", /*success=*/false);
  PollAfter(std::chrono::seconds(1));
  EXPECT_TRUE(manager_->Ready());
}

TEST_F(ModelManagerTest, VersionsThatNobodyWantsAreNotWaitedFor) {
  options_.models = {{.name = "m", .policy = {.specific = {2}}, .required = false}};
  failures_[{"m", 2}] = absl::InvalidArgumentError("truncated");
  for (const int version : {1, 2}) repository_.Publish("m", version, "a");
  repository_.Publish("n", 1, "a");
  Poll();
  EXPECT_TRUE(manager_->Ready());
}

TEST_F(ModelManagerTest, FoundModelsCanBeRequired) {
  options_.found_required = true;
  failures_[{"broken", 1}] = absl::InvalidArgumentError("truncated");
  repository_.Publish("broken", 1, "a");
  repository_.Publish("m", 1, "a");
  Poll();
  EXPECT_FALSE(manager_->Ready());
  EXPECT_TRUE(Status("broken").required);
}

TEST_F(ModelManagerTest, ModelsThatServeNothingLoadFirst) {
  repository_.Publish("a", 1, "a");
  Poll();
  repository_.Publish("a", 2, "a");
  repository_.Publish("b", 1, "a");
  EXPECT_THAT(Poll(), ElementsAre("published b v1", "published a v2"));
}

TEST_F(ModelManagerTest, HandlesOutliveTheManager) {
  repository_.Publish("m", 1, "a");
  Poll();
  ModelHandle handle = *manager_->Find({"m"});
  manager_.reset();
  EXPECT_EQ(handle->name, "m");
  EXPECT_THAT(observer_.unloaded(), IsEmpty());
  handle.reset();
  EXPECT_THAT(observer_.unloaded(), IsEmpty()) << "the observer may be gone by then";
}

TEST_F(ModelManagerTest, PollNowWithoutThreadsIsAStep) {
  repository_.Publish("m", 1, "a");
  Create();
  EXPECT_TRUE(manager_->PollNow(std::chrono::steady_clock::now()).ok());
  EXPECT_EQ(Serving(), "v1 generation 1");
}

TEST_F(ModelManagerTest, CreateRefusesBadOptions) {
  const auto error = [](const ModelManagerOptions& options) {
    return ModelManager::Create(options, nullptr).status().ToString();
  };
  const std::string& path = repository_.path();
  EXPECT_EQ(error({}), "INVALID_ARGUMENT: neither a model repository nor a model is given");
  EXPECT_EQ(error({.repository = path + "/none"}),
            absl::StrCat("NOT_FOUND: model repository: directory ", path, "/none does not exist"));
  EXPECT_EQ(error({.models = {{.name = "m"}}}),
            "INVALID_ARGUMENT: model \"m\" has no base_path, and there is no model repository");
  EXPECT_EQ(error({.models = {{.name = "m",
                               .base_path = path,
                               .policy = {.specific = {1, 2}},
                               .labels = {{"stable", 3}}}}}),
            "INVALID_ARGUMENT: model \"m\": label \"stable\" names version 3, which is not among "
            "the specific versions 1, 2");
}

TEST_F(ModelManagerTest, BasePathOutsideTheRepositoryOverridesIt) {
  ModelRepository other;
  other.Publish("elsewhere", 4, "a");
  repository_.Publish("m", 9, "a");
  options_.models = {{.name = "m", .base_path = other.path() + "/elsewhere/"}};
  EXPECT_THAT(Poll(), ElementsAre("published m v4"));
}

}  // namespace
}  // namespace ulfd::server
