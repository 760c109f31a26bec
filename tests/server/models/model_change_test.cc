// Changes that operators ask for, stepped by hand: what is loaded, what is published together, what
// a refusal leaves alone, and what stays in quarantine.
// SPDX-License-Identifier: Apache-2.0
#include "server/models/model_change.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <string>

#include "absl/strings/str_cat.h"
#include "server/models/model_types.h"
#include "tests/testing/stepped_manager.h"

namespace ulfd::server {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;
using Kind = ModelChange::Kind;
using Outcome = VersionChange::Outcome;

std::string Word(Outcome outcome) {
  switch (outcome) {
    case Outcome::kLoaded:
      return "loaded";
    case Outcome::kAlreadyServing:
      return "already";
    case Outcome::kUnloaded:
      return "unloaded";
    case Outcome::kDiscarded:
      return "discarded";
    case Outcome::kFailed:
      return "failed";
  }
  return "?";
}

class ModelChangeTest : public SteppedManagerTest {
 protected:
  ModelChangeResult Apply(const ModelChange& change) {
    ModelChangeResult result;
    bool done = false;
    manager_->Apply([&] { return change; },
                    [&](ModelChangeResult r) {
                      result = std::move(r);
                      done = true;
                    });
    EXPECT_TRUE(done);
    events_of_change_ = observer_.TakeEvents();
    return result;
  }
  ModelChangeResult Load(int64_t version) {
    return Apply({.kind = Kind::kLoad, .name = "m", .version = version});
  }
  void MakeEmpty(int64_t first, int64_t last) {
    for (int64_t v = first; v <= last; ++v) {
      std::filesystem::create_directories(repository_.Path("m", v));
    }
  }
  ModelChangeResult SetLabel(const std::string& label, std::optional<int64_t> version) {
    return Apply({.kind = Kind::kSetLabel, .name = "m", .version = version, .label = label});
  }
  ModelChangeResult Rollback(std::optional<int64_t> version = std::nullopt) {
    return Apply({.kind = Kind::kRollback, .name = "m", .version = version});
  }
  ModelChangeResult Configure(std::vector<ModelConfig> models, VersionPolicy policy = {}) {
    return Apply({.kind = Kind::kConfigure, .models = std::move(models), .default_policy = policy});
  }
  // "m v3 loaded", "m v2 unloaded", "m: <error>", "m removed".
  static std::vector<std::string> Outcomes(const ModelChangeResult& result) {
    std::vector<std::string> out;
    for (const ModelOutcome& model : result.models) {
      if (model.removed) out.push_back(model.name + " removed");
      if (!model.error.ok()) out.push_back(absl::StrCat(model.name, ": ", model.error.message()));
      for (const VersionChange& v : model.versions) {
        out.push_back(absl::StrCat(model.name, " v", v.version, " ", Word(v.outcome)));
      }
    }
    return out;
  }
  std::vector<std::string> events_of_change_;  // Of the last Apply.
};

TEST_F(ModelChangeTest, LoadServesWhatThePolicyDoesNotWant) {
  repository_.Publish("m", 1, "a");
  repository_.Publish("m", 2, "b");
  Poll();
  const ModelChangeResult result = Load(1);
  EXPECT_TRUE(result.status.ok()) << result.status;
  EXPECT_THAT(Outcomes(result), ElementsAre("m v1 loaded"));
  EXPECT_THAT(events_of_change_, ElementsAre("published m v1"));
  EXPECT_EQ(result.generation, 2);
  EXPECT_EQ(Serving({"m", 1}), "v1 generation 2");
  EXPECT_EQ(Serving(), "v2 generation 1");
  // And goes on serving it.
  repository_.Publish("m", 3, "c");
  EXPECT_THAT(Poll(), ElementsAre("published m v3"));
  EXPECT_EQ(Serving({"m", 1}), "v1 generation 2");
}

TEST_F(ModelChangeTest, LoadSeesWhatTheLastLookDidNot) {
  repository_.Publish("m", 1, "a");
  Poll();
  repository_.Publish("n", 4, "a");
  EXPECT_THAT(Outcomes(Apply({.kind = Kind::kLoad, .name = "n", .version = 4})),
              ElementsAre("n v4 loaded"));
  EXPECT_EQ(Serving({"n"}), "v4 generation 2");
}

TEST_F(ModelChangeTest, SecondLoadOfTheSameContentSaysSo) {
  repository_.Publish("m", 1, "a");
  Create();
  EXPECT_THAT(Outcomes(Load(1)), ElementsAre("m v1 loaded"));
  EXPECT_THAT(Outcomes(Load(1)), ElementsAre("m v1 already"));
  EXPECT_EQ(loads_, 1);
  repository_.Publish("m", 1, "b");
  EXPECT_THAT(Outcomes(Load(1)), ElementsAre("m v1 loaded"));
  EXPECT_EQ(loads_, 2);
}

TEST_F(ModelChangeTest, LoadOfWhatIsNotThere) {
  repository_.Publish("m", 1, "a");
  Poll();
  EXPECT_EQ(Load(7).status.ToString(), absl::StrCat("NOT_FOUND: model \"m\" has no version 7 in ",
                                                    repository_.path(), "/m; versions: 1"));
  EXPECT_EQ(Apply({.kind = Kind::kLoad, .name = "x"}).status.ToString(),
            "NOT_FOUND: model \"x\" is unknown; models: \"m\"");
  EXPECT_EQ(manager_->generation(), 1);
}

TEST_F(ModelChangeTest, NamesOfCallersAndRepositoriesAreBoundedInMessages) {
  for (int i = 0; i < 30; ++i) repository_.Publish(absl::StrCat("m", i), 1, "a");
  Poll();
  const std::string error(
      Apply({.kind = Kind::kUnload, .name = std::string(1 << 20, '\n')}).status.message());
  EXPECT_THAT(error, HasSubstr("\\n... (1048576 bytes)\" is unknown; models: \"m0\", \"m1\", "));
  EXPECT_THAT(error, EndsWith("\"m26\" and 10 more"));
}

TEST_F(ModelChangeTest, RefusedLoadChangesNothing) {
  repository_.Publish("m", 1, "a");
  repository_.Publish("m", 2, "b");
  Poll();
  failures_[{"m", 1}] = absl::InvalidArgumentError("layer 3: weight missing");
  const ModelChangeResult result = Load(1);
  EXPECT_EQ(result.status.ToString(), "INVALID_ARGUMENT: layer 3: weight missing");
  EXPECT_FALSE(result.applied);
  EXPECT_THAT(Outcomes(result), ElementsAre("m: layer 3: weight missing", "m v1 failed"));
  EXPECT_EQ(Serving(), "v2 generation 1");
  EXPECT_EQ(Version(1).state, VersionState::kFailed);
  ASSERT_TRUE(Version(1).quarantine.has_value());
  EXPECT_EQ(Version(1).quarantine->error.message(), "layer 3: weight missing");
}

TEST_F(ModelChangeTest, RefusalOfWhatNoLookHasSeenIsRemembered) {
  repository_.Publish("m", 1, "a");
  Poll();
  repository_.Publish("m", 2, "broken");
  failures_[{"m", 2}] = absl::InvalidArgumentError("bad");
  EXPECT_FALSE(Load(2).applied);
  EXPECT_TRUE(Version(2).quarantine.has_value());
  const int loads = loads_;
  EXPECT_THAT(PollAfter(hours(1)), IsEmpty());
  EXPECT_EQ(loads_, loads);
}

TEST_F(ModelChangeTest, QuarantineKnowsContentWhateverFilesHoldIt) {
  failures_[{"m", 1}] = absl::InvalidArgumentError("bad");
  repository_.Publish("m", 1, "broken");
  EXPECT_THAT(Poll(), ElementsAre("failed m v1 content"));
  const std::string hash = Version(1).quarantine->content_hash;
  EXPECT_EQ(hash.size(), 32u);
  // The same files again, newer: nothing is tried.
  repository_.Publish("m", 1, "broken");
  EXPECT_THAT(Poll(), ElementsAre("failed m v1 content"));
  EXPECT_EQ(loads_, 1);
  EXPECT_THAT(Version(1).error, HasSubstr("in quarantine, the same content was refused as v1 at"));
  EXPECT_EQ(Version(1).quarantine->content_hash, hash);
  // Under another number, too.
  repository_.Publish("m", 2, "broken");
  Poll();
  EXPECT_EQ(loads_, 1);
  // Other content ends it.
  failures_.clear();
  repository_.Publish("m", 2, "mended");
  EXPECT_THAT(Poll(), ElementsAre("published m v2"));
  EXPECT_FALSE(Version(2).quarantine.has_value());
  // And so does an operator.
  EXPECT_THAT(Outcomes(Load(1)), ElementsAre("m v1 loaded"));
  EXPECT_FALSE(Version(1).quarantine.has_value());
  EXPECT_EQ(Serving({"m", 1}), "v1 generation 2");
}

TEST_F(ModelChangeTest, UnloadOfAVersionKeepsItOut) {
  options_.default_policy.latest = 2;
  repository_.Publish("m", 1, "a");
  repository_.Publish("m", 2, "b");
  Poll();
  ModelHandle held = *manager_->Find({"m", 2});
  const ModelChangeResult result = Apply({.kind = Kind::kUnload, .name = "m", .version = 2});
  EXPECT_THAT(Outcomes(result), ElementsAre("m v2 unloaded"));
  EXPECT_EQ(Serving({"m", 2}), "NOT_FOUND: model \"m\" has no version 2; published: 1");
  EXPECT_EQ(held->version, 2);  // A call under way still has it.
  EXPECT_EQ(Version(2).error, "unloaded; requests still hold it");
  held.reset();
  EXPECT_THAT(Version(2).error, HasSubstr("unloaded by an operator"));
  repository_.Publish("m", 2, "new");
  EXPECT_THAT(PollAfter(hours(2)), IsEmpty());
  EXPECT_THAT(Outcomes(Load(2)), ElementsAre("m v2 loaded"));
}

TEST_F(ModelChangeTest, UnloadOfTheOnlyVersionIsRefused) {
  repository_.Publish("m", 1, "a");
  Poll();
  EXPECT_THAT(Apply({.kind = Kind::kUnload, .name = "m", .version = 1}).status.ToString(),
              HasSubstr("FAILED_PRECONDITION: model \"m\": version 1 is the only one that serves"));
  EXPECT_EQ(Serving(), "v1 generation 1");
  EXPECT_THAT(Outcomes(Apply({.kind = Kind::kUnload, .name = "m"})), ElementsAre("m v1 unloaded"));
  EXPECT_THAT(Serving(), HasSubstr("UNAVAILABLE: model \"m\" is known, but no version of it is "
                                   "published yet: unloaded by an operator"));
  repository_.Publish("m", 2, "b");
  EXPECT_THAT(PollAfter(hours(2)), IsEmpty());
  EXPECT_THAT(Outcomes(Apply({.kind = Kind::kLoad, .name = "m"})), ElementsAre("m v2 loaded"));
}

TEST_F(ModelChangeTest, LabelMovesOnlyWithItsVersionLoaded) {
  options_.models = {{.name = "m", .labels = {{"stable", 1}}}};
  repository_.Publish("m", 1, "a");
  repository_.Publish("m", 2, "b");
  Poll();
  EXPECT_EQ(Serving(), "v1 generation 2");
  during_load_ = [&](const engine::LoadOptions&) { EXPECT_EQ(Serving().substr(0, 2), "v1"); };
  repository_.Publish("m", 3, "c");
  ModelChangeResult result = SetLabel("stable", 3);
  EXPECT_THAT(Outcomes(result),
              UnorderedElementsAre("m v3 loaded", "m v1 unloaded", "m v2 unloaded"));
  EXPECT_EQ(result.from_version, 1);
  EXPECT_EQ(Serving(), "v3 generation 3");
  during_load_ = nullptr;
  failures_[{"m", 1}] = absl::DataLossError("broken");
  repository_.Publish("m", 1, "x");
  EXPECT_EQ(SetLabel("stable", 1).status.ToString(), "DATA_LOSS: broken");
  EXPECT_EQ(Serving(), "v3 generation 3");
  EXPECT_THAT(Outcomes(SetLabel("old", 3)), ElementsAre("m v3 already"));
  EXPECT_THAT(Version(3).labels, ElementsAre("old", "stable"));
  EXPECT_EQ(SetLabel("old", std::nullopt).from_version, 3);
  EXPECT_EQ(SetLabel("old", std::nullopt).status.ToString(),
            "NOT_FOUND: model \"m\" has no label \"old\"");
  EXPECT_THAT(Apply({.kind = Kind::kUnload, .name = "m", .version = 3}).status.ToString(),
              HasSubstr("label \"stable\" names version 3"));
}

TEST_F(ModelChangeTest, RollbackLoadsTheVersionBeforeAndQuarantinesTheNewOne) {
  repository_.Publish("m", 1, "a");
  Poll();
  repository_.Publish("m", 2, "b");
  Poll();
  EXPECT_EQ(Serving(), "v2 generation 2");
  during_load_ = [&](const engine::LoadOptions&) { EXPECT_EQ(Serving(), "v2 generation 2"); };
  const ModelChangeResult result = Rollback();
  EXPECT_TRUE(result.status.ok()) << result.status;
  EXPECT_THAT(Outcomes(result), ElementsAre("m v1 loaded", "m v2 unloaded"));
  EXPECT_EQ(result.from_version, 2);
  EXPECT_EQ(result.to_version, 1);
  EXPECT_EQ(Serving(), "v1 generation 3");
  EXPECT_EQ(Version(2).state, VersionState::kFailed);
  EXPECT_EQ(Version(2).quarantine->error.message(), "rolled back by an operator");
  // Not tried again: neither as it is, nor copied anew.
  EXPECT_THAT(PollAfter(hours(2)), IsEmpty());
  during_load_ = nullptr;
  const int loads = loads_;
  repository_.Publish("m", 2, "b");
  EXPECT_THAT(Poll(), ElementsAre("failed m v2 content"));
  EXPECT_EQ(loads_, loads);
  EXPECT_EQ(Serving(), "v1 generation 3");
  EXPECT_THAT(Rollback().status.ToString(), HasSubstr("no version to go back to from 1"));
  // Mended content serves.
  repository_.Publish("m", 2, "c");
  EXPECT_THAT(Poll(), ElementsAre("published m v2"));
  EXPECT_EQ(Serving(), "v2 generation 4");
}

// However long it takes to read all of the content that is never to serve again.
TEST_F(ModelChangeTest, RollbackServesTheVersionBeforeAndThenReadsTheNewOne) {
  repository_.Publish("m", 1, "a");
  Poll();
  repository_.Publish("m", 2, "b");
  Poll();
  observer_.when_published = [&] {
    EXPECT_EQ(Serving(), "v1 generation 3");
    EXPECT_FALSE(Version(2).quarantine.has_value());
  };
  EXPECT_TRUE(Rollback().status.ok());
  EXPECT_TRUE(Version(2).quarantine.has_value());
}

TEST_F(ModelChangeTest, RollbackThatFailsLeavesTheNewOne) {
  repository_.Publish("m", 1, "a");
  Poll();
  repository_.Publish("m", 2, "b");
  Poll();
  failures_[{"m", 1}] = absl::UnavailableError("stale file handle");
  EXPECT_EQ(Rollback().status.ToString(), "UNAVAILABLE: stale file handle");
  EXPECT_EQ(Serving(), "v2 generation 2");
  EXPECT_EQ(Version(2).state, VersionState::kServing);
  EXPECT_THAT(Rollback(3).status.ToString(), HasSubstr("version 3 is not below 2"));
}

TEST_F(ModelChangeTest, RollbackToWhatARollbackLeftEndsItsQuarantine) {
  for (const int version : {1, 2, 3}) {
    repository_.Publish("m", version, "a" + std::to_string(version));
    Poll();
  }
  ASSERT_TRUE(Rollback(2).status.ok());
  ASSERT_TRUE(Rollback(1).status.ok());
  ASSERT_TRUE(Version(2).quarantine.has_value());
  repository_.Publish("m", 4, "a4");
  Poll();
  EXPECT_EQ(Serving().substr(0, 2), "v4");
  const ModelChangeResult result = Rollback(2);
  EXPECT_TRUE(result.status.ok()) << result.status;
  EXPECT_EQ(Serving().substr(0, 2), "v2");
  EXPECT_FALSE(Version(2).quarantine.has_value());
  EXPECT_TRUE(Version(4).quarantine.has_value());
}

TEST_F(ModelChangeTest, RollbackMayGoToWhatHasTheSameFiles) {
  for (const int version : {1, 2, 3, 4}) {
    repository_.Publish("m", version, version == 1 ? "a" : "b");
    Poll();
  }
  ASSERT_TRUE(Rollback(2).status.ok());
  EXPECT_EQ(Serving().substr(0, 2), "v2");
  // As at the next start, which loads it again, and none of the others.
  for (const int version : {4, 2, 3, 5}) repository_.Publish("m", version, "b");
  EXPECT_THAT(Poll(), Contains("published m v2"));
  EXPECT_EQ(Serving().substr(0, 2), "v2");
  EXPECT_THAT(Version(5).error, HasSubstr("in quarantine, the same content was refused as v3"));
  ASSERT_TRUE(Load(5).status.ok());
  for (const int version : {4, 2, 3, 5}) repository_.Publish("m", version, "b");
  Poll();
  EXPECT_EQ(Serving().substr(0, 2), "v5");
}

TEST_F(ModelChangeTest, ReadyWhenNamedVersionsAreLoadedOrRefused) {
  options_.models = {{.name = "m", .policy = {.specific = {1, 2, 3}}, .labels = {{"old", 2}}}};
  for (const int version : {1, 2, 3}) repository_.Publish("m", version, absl::StrCat("a", version));
  failures_[{"m", 1}] = absl::InvalidArgumentError("bad");
  int loads = 0;
  during_load_ = [&](const engine::LoadOptions&) {
    ++loads;
    EXPECT_FALSE(manager_->Ready());
  };
  Poll();
  EXPECT_EQ(loads, 3);
  EXPECT_TRUE(manager_->Ready());
}

TEST_F(ModelChangeTest, RollbackMovesStable) {
  options_.models = {{.name = "m", .labels = {{"stable", 1}}}};
  for (const int version : {1, 2, 3})
    repository_.Publish("m", version, "a" + std::to_string(version));
  Poll();
  SetLabel("stable", 2);
  SetLabel("stable", 3);
  EXPECT_EQ(Rollback().to_version, 2);
  EXPECT_EQ(Rollback().to_version, 1);
  EXPECT_EQ(Serving().substr(0, 2), "v1");
  EXPECT_FALSE(Version(3).quarantine.has_value());
  EXPECT_EQ(Rollback(3).to_version, 3);
  EXPECT_EQ(Serving().substr(0, 2), "v3");
}

TEST_F(ModelChangeTest, ConfigureIsAllOrNothing) {
  options_.models = {{.name = "m", .policy = {.specific = {1}}}};
  for (const char* name : {"m", "n"}) {
    for (const int version : {1, 2}) {
      repository_.Publish(name, version, absl::StrCat(name, version));
    }
  }
  Poll();
  EXPECT_EQ(Serving(), "v1 generation 1");
  EXPECT_EQ(Serving({"n"}), "v2 generation 2");
  const std::vector<ModelConfig> next = {{.name = "m", .policy = {.specific = {2}}},
                                         {.name = "n", .policy = {.specific = {1}}}};
  failures_[{"n", 1}] = absl::InvalidArgumentError("bad n");
  ModelChangeResult result = Configure(next);
  EXPECT_TRUE(result.status.ok());
  EXPECT_FALSE(result.applied);
  EXPECT_THAT(Outcomes(result), ElementsAre("m v2 discarded", "n: bad n", "n v1 failed"));
  EXPECT_EQ(Serving(), "v1 generation 1");
  EXPECT_EQ(Serving({"n"}), "v2 generation 2");
  EXPECT_EQ(manager_->generation(), 2);
  // The failure is mended, but known: its content must change.
  failures_.clear();
  repository_.Publish("n", 1, "mended");
  // While it loads, nothing has changed yet; then everything at once.
  during_load_ = [&](const engine::LoadOptions&) {
    EXPECT_EQ(Serving(), "v1 generation 1");
    EXPECT_EQ(Serving({"n"}), "v2 generation 2");
  };
  result = Configure(next);
  EXPECT_TRUE(result.applied);
  EXPECT_THAT(Outcomes(result),
              ElementsAre("m v2 loaded", "m v1 unloaded", "n v1 loaded", "n v2 unloaded"));
  EXPECT_EQ(Serving(), "v2 generation 3");
  EXPECT_EQ(Serving({"n"}), "v1 generation 3");
  during_load_ = nullptr;
  EXPECT_THAT(Outcomes(Configure(next)), IsEmpty());
}

TEST_F(ModelChangeTest, WhatDidNotServeBeforeDoesNotVetoAChange) {
  ModelConfig model = {.name = "m",
                       .labels = {{"stable", 1}, {"canary", 2}},
                       .canary = CanaryConfig{.label = "canary", .share = 0.5}};
  options_.models = {model};
  for (const int version : {1, 2, 3}) repository_.Publish("m", version, absl::StrCat(version));
  // Tried again and again: the file may still come.
  failures_[{"m", 3}] = absl::UnavailableError("no weights yet");
  Poll();
  EXPECT_EQ(Serving(), "v1 generation 2");
  model.canary.reset();
  model.labels.erase("canary");
  EXPECT_TRUE(Configure({model}).applied);
  EXPECT_EQ(Serving({.name = "m", .label = "canary"}).substr(0, 9), "NOT_FOUND");
  // What the change itself asks for must serve.
  model.labels["next"] = 3;
  const ModelChangeResult result = Configure({model});
  EXPECT_FALSE(result.applied);
  EXPECT_THAT(Outcomes(result), ElementsAre("m: no weights yet", "m v1 already", "m v3 failed"));
}

TEST_F(ModelChangeTest, BadNewContentOfWhatServesDoesNotVetoAChange) {
  ModelConfig model = {.name = "m", .required = false};
  options_.models = {model};
  repository_.Publish("m", 1, "good");
  Poll();
  for (const absl::Status& error :
       {absl::InvalidArgumentError("truncated"), absl::UnavailableError("no weights yet")}) {
    failures_[{"m", 1}] = error;
    repository_.Publish("m", 1, error.ToString());
    Poll();
    model.required = !model.required;
    EXPECT_TRUE(Configure({model}).applied) << error;
    EXPECT_EQ(Serving(), "v1 generation 1");
  }
}

TEST_F(ModelChangeTest, DryRunLoadsAndPublishesNothing) {
  repository_.Publish("m", 1, "a");
  repository_.Publish("m", 2, "b");
  Poll();
  ModelChange change{.kind = Kind::kConfigure,
                     .models = {{.name = "m", .policy = {.specific = {1}}}},
                     .dry_run = true};
  const ModelChangeResult result = Apply(change);
  EXPECT_TRUE(result.applied);
  EXPECT_THAT(Outcomes(result), ElementsAre("m v1 discarded"));
  EXPECT_EQ(Serving(), "v2 generation 1");
  EXPECT_THAT(PollAfter(hours(2)), IsEmpty());
}

TEST_F(ModelChangeTest, ConfigureWithoutAModelLetsCallsEnd) {
  ModelRepository other;
  other.Publish("away", 1, "x");
  const ModelConfig away{.name = "away", .base_path = other.path() + "/away"};
  options_.models = {away};
  repository_.Publish("m", 1, "a");
  Poll();
  ModelHandle call = *manager_->Find({"away"});
  const ModelChangeResult result = Configure({});
  EXPECT_TRUE(result.applied);
  EXPECT_THAT(Outcomes(result), ElementsAre("away removed", "away v1 unloaded"));
  EXPECT_EQ(Serving({"away"}), "NOT_FOUND: model \"away\" is unknown; models: \"m\"");
  EXPECT_EQ(call->name, "away");
  EXPECT_THAT(observer_.unloaded(), IsEmpty());
  EXPECT_THAT(PollAfter(hours(2)), IsEmpty());
  // And back.
  EXPECT_THAT(Outcomes(Configure({away})), ElementsAre("away v1 loaded"));
  EXPECT_EQ(call->generation, 1);
}

TEST_F(ModelChangeTest, ConfigureSaysWhatIsMissing) {
  repository_.Publish("m", 1, "a");
  Poll();
  EXPECT_THAT(Outcomes(Configure({{.name = "m", .labels = {{"canary", 9}}}})),
              ElementsAre(absl::StrCat("m: model \"m\" has no version 9 in ", repository_.path(),
                                       "/m; versions: 1"),
                          "m v1 already"));
  EXPECT_THAT(
      Outcomes(Configure({{.name = "x"}})),
      ElementsAre(absl::StrCat("x: model \"x\" has no version in ", repository_.path(), "/x")));
  EXPECT_EQ(Serving(), "v1 generation 1");
}

TEST_F(ModelChangeTest, ConfigureMovesAModelIntoTheRepository) {
  repository_.Publish("m", 1, "elsewhere");
  repository_.Publish("m", 2, "b");
  repository_.Publish("elsewhere", 1, "a");
  Poll();
  const std::string elsewhere = repository_.path() + "/elsewhere";
  EXPECT_THAT(Outcomes(Configure({{.name = "m", .base_path = elsewhere}})),
              Contains("m v1 loaded"));
  EXPECT_THAT(Outcomes(Configure({})), Contains("m v2 loaded"));
}

// What does not serve stands in the way of nothing.
TEST_F(ModelChangeTest, ConfigureGoesOnWithoutADirectory) {
  repository_.Publish("m", 1, "a");
  repository_.Publish("other", 1, "a");
  Poll();
  repository_.RemoveModel("other");
  Poll();
  const ModelConfig late{.name = "late", .required = false};
  const ModelConfig other{.name = "other", .required = false};
  const ModelChangeResult result =
      Configure({{.name = "m", .labels = {{"stable", 1}}}, other, late});
  EXPECT_TRUE(result.status.ok()) << result.status;
  EXPECT_THAT(Outcomes(result), ElementsAre("m v1 already", "other v1 already"));
}

// A choice by the client of that name.
ModelChoice By(const std::string& client, const std::string& model = "m") {
  return {.name = model, .client = std::vector<std::string>{client}};
}

TEST_F(ModelChangeTest, AccessChangesTogetherWithWhatIsServed) {
  options_.default_clients = {"shop"};
  options_.models = {{.name = "m", .policy = {.specific = {1}}}};
  repository_.Publish("m", 1, "open");
  repository_.Publish("m", 2, "closed");
  repository_.Publish("n", 1, "a");
  Poll();
  EXPECT_EQ(Serving(By("shop")), "v1 generation 1");
  const std::string denied = "PERMISSION_DENIED: client \"shop\" may not use model \"m\"";
  const std::vector<ModelConfig> next = {
      {.name = "m", .policy = {.specific = {2}}, .allowed_clients = {"lab"}}};
  // Whatever ends before the publication leaves the rules alone.
  during_load_ = [&](const engine::LoadOptions&) {
    EXPECT_EQ(Serving(By("shop")), "v1 generation 1");
    EXPECT_TRUE(absl::IsPermissionDenied(manager_->Find(By("lab")).status()));
  };
  EXPECT_TRUE(Apply({.kind = Kind::kConfigure, .models = next, .dry_run = true}).applied);
  failures_[{"m", 2}] = absl::UnavailableError("no disk");
  EXPECT_FALSE(Configure(next).applied);
  EXPECT_EQ(Serving(By("shop")), "v1 generation 1");
  failures_.clear();
  EXPECT_THAT(Outcomes(Configure(next)), ElementsAre("m v2 loaded", "m v1 unloaded"));
  EXPECT_EQ(Serving(By("shop")), denied);
  EXPECT_EQ(manager_->CheckAccess(By("shop")).ToString(), denied);
  EXPECT_EQ(Serving(By("lab")).substr(0, 2), "v2");
  EXPECT_EQ(Serving().substr(0, 2), "v2");  // Nobody whose access has to be checked.
  // Nothing has to be loaded for new rules alone; those of the repository's models are the default.
  during_load_ = nullptr;
  EXPECT_EQ(Serving(By("lab", "n")).substr(0, 17), "PERMISSION_DENIED");
  EXPECT_THAT(Outcomes(Configure({{.name = "m", .policy = {.specific = {2}}}})),
              ElementsAre("m v2 already"));
  EXPECT_EQ(Serving(By("shop")).substr(0, 2), "v2");
  EXPECT_EQ(Serving(By("lab")).substr(0, 17), "PERMISSION_DENIED");
}

TEST_F(ModelChangeTest, NoModelIsNamedToWhomItIsClosed) {
  options_.models = {{.name = "secret", .allowed_clients = {"lab"}}};
  repository_.Publish("secret", 1, "a");
  repository_.Publish("m", 1, "a");
  Poll();
  EXPECT_EQ(Serving(By("shop", "x")), "NOT_FOUND: model \"x\" is unknown; models: \"m\"");
  EXPECT_EQ(Serving(By("lab", "x")),
            "NOT_FOUND: model \"x\" is unknown; models: \"m\", \"secret\"");
}

TEST_F(ModelChangeTest, LimitsApplyToVersionsThatServe) {
  options_.models = {{.name = "m", .limits = {.max_queued_rows = 100, .weight = 2}}};
  repository_.Publish("m", 1, "a");
  Poll();
  const Lane& lane = *(*manager_->Find({"m"}))->lane;
  EXPECT_EQ(lane.max_queued_rows(), 100);
  EXPECT_EQ(lane.weight(), 2);
  const std::vector<ModelConfig> next = {
      {.name = "m", .labels = {{"next", 7}}, .limits = {.max_queued_rows = 30, .weight = 5}}};
  EXPECT_FALSE(Configure(next).applied);  // There is no version 7.
  EXPECT_EQ(lane.max_queued_rows(), 100);
  repository_.Publish("m", 7, "b");
  EXPECT_THAT(Outcomes(Configure(next)), ElementsAre("m v7 loaded", "m v1 unloaded"));
  EXPECT_EQ((*manager_->Find({"m"}))->lane->weight(), 5);
  const Lane& now = *(*manager_->Find({"m"}))->lane;
  EXPECT_THAT(Outcomes(Configure({{.name = "m", .limits = {.weight = 0.5}}})),
              ElementsAre("m v7 already"));
  EXPECT_EQ(now.weight(), 0.5);
  EXPECT_EQ(now.max_queued_rows(), Lane::Limits().max_queued_rows);
}

TEST_F(ModelChangeTest, PublishedIsCalledForWhatIsInForceOnly) {
  repository_.Publish("m", 1, "a");
  repository_.Publish("m", 2, "b");
  Poll();
  std::vector<std::string> calls;
  ModelChange change{.kind = Kind::kConfigure,
                     .models = {{.name = "m", .policy = {.specific = {1}}, .record_share = 0.5}},
                     .dry_run = true};
  change.published = [&] { calls.push_back(Serving()); };
  EXPECT_TRUE(Apply(change).applied);
  change.dry_run = false;
  failures_[{"m", 1}] = absl::UnavailableError("no disk");
  EXPECT_FALSE(Apply(change).applied);
  EXPECT_THAT(calls, IsEmpty());
  failures_.clear();
  EXPECT_TRUE(Apply(change).applied);
  EXPECT_THAT(calls, ElementsAre("v1 generation 2"));
  change.models[0].record_share = 0.25;
  EXPECT_THAT(Outcomes(Apply(change)), ElementsAre("m v1 already"));
  EXPECT_EQ(calls.size(), 2u);
}

TEST_F(ModelChangeTest, ConfigureEndsWhatOperatorsSaid) {
  options_.models = {{.name = "m", .labels = {{"stable", 1}}}};
  repository_.Publish("m", 1, "a");
  repository_.Publish("m", 2, "b");
  Poll();
  SetLabel("stable", 2);
  EXPECT_EQ(Serving().substr(0, 2), "v2");
  EXPECT_TRUE(Configure(options_.models).applied);
  EXPECT_EQ(Serving().substr(0, 2), "v1");
}

TEST_F(ModelChangeTest, DefaultPolicyAppliesToModelsOfTheRepository) {
  for (const int version : {1, 2, 3})
    repository_.Publish("m", version, "a" + std::to_string(version));
  Poll();
  EXPECT_THAT(Outcomes(Configure({}, {.latest = 2})), ElementsAre("m v3 already", "m v2 loaded"));
  EXPECT_EQ(Serving({"m", 2}), "v2 generation 2");
  EXPECT_THAT(Outcomes(Configure({}, {.latest = 1})), ElementsAre("m v3 already", "m v2 unloaded"));
}

TEST_F(ModelChangeTest, VersionThatDoesNotFitIsNotLoaded) {
  options_.memory_budget_bytes = 1 << 20;
  repository_.Publish("m", 1, "a");
  Poll();
  repository_.Publish("n", 1, "b", /*success=*/false);
  repository_.Write("n", 1, "table", std::string(3 << 20, 'x'));
  repository_.Write("n", 1, "_SUCCESS", "");
  EXPECT_THAT(PollAfter(hours(1)), ElementsAre("failed n v1 memory"));
  EXPECT_EQ(loads_, 1);
  EXPECT_EQ(observer_.errors().back(),
            "model \"n\" v1: needs about 4 MiB beside the 0 MiB that models hold now: 4 MiB "
            "together, memory_budget_bytes allows 1 MiB");
  EXPECT_EQ(Serving(), "v1 generation 1");
  EXPECT_FALSE(Version(1, "n").quarantine.has_value());  // Tried again when there may be room.
}

UserHash HashOf(int64_t user) {
  return [user](const CanaryConfig&) { return user; };
}

TEST_F(ModelChangeTest, CanaryGetsItsShareOfUsersAndKeepsThem) {
  const auto config = [](double share) {
    return ModelConfig{.name = "m",
                       .policy = {.latest = 2},
                       .labels = {{"stable", 1}, {"canary", 2}},
                       .canary = CanaryConfig{.label = "canary", .share = share}};
  };
  options_.models = {config(0.1)};
  repository_.Publish("m", 1, "a");
  repository_.Publish("m", 2, "b");
  Poll();
  const auto canary_users = [&] {
    std::set<int64_t> users;
    for (int64_t user = 0; user < 10000; ++user) {
      const auto found = *manager_->Find({.name = "m", .user_hash = HashOf(user)});
      if (found->version == 2) users.insert(user);
    }
    return users;
  };
  const std::set<int64_t> few = canary_users();
  EXPECT_NEAR(static_cast<double>(few.size()), 1000, 150);
  EXPECT_EQ(few, canary_users());
  EXPECT_TRUE(Configure({config(0.3)}).applied);
  const std::set<int64_t> more = canary_users();
  EXPECT_NEAR(static_cast<double>(more.size()), 3000, 250);
  EXPECT_TRUE(std::includes(more.begin(), more.end(), few.begin(), few.end()));
  // Who names a version or a label gets it, and who has no user the default.
  const UserHash hash = HashOf(*few.begin());
  EXPECT_EQ((*manager_->Find({.name = "m", .version = 1, .user_hash = hash}))->version, 1);
  EXPECT_EQ((*manager_->Find({.name = "m", .label = "stable", .user_hash = hash}))->version, 1);
  EXPECT_EQ((*manager_->Find({"m"}))->version, 1);
  // Without a version behind the label there is no canary.
  SetLabel("canary", std::nullopt);
  EXPECT_THAT(canary_users(), IsEmpty());
}

// A trainer that publishes every minute, and nobody who deletes.
TEST_F(ModelChangeTest, OfAThousandVersionsTheNewestAndNamedOnesCount) {
  options_.models = {{.name = "m", .labels = {{"old", 5}}}};
  MakeEmpty(1, 1200);
  for (const int64_t version : {5, 7, 150, 1200}) repository_.Publish("m", version, "a");
  EXPECT_THAT(Poll(), ElementsAre("published m v1200", "published m v5"));
  const std::string note =
      "199 older versions are not looked at, only the newest 1000 and those that somebody names";
  EXPECT_EQ(Status().error, note);
  EXPECT_EQ(Status().versions.size(), 1001u);
  EXPECT_THAT(observer_.notices(), ElementsAre(note));
  // An operator may name one.
  EXPECT_THAT(Outcomes(Load(7)), ElementsAre("m v7 loaded"));
  EXPECT_EQ(Serving({"m", 7}), "v7 generation 3");
  EXPECT_THAT(Poll(), IsEmpty());
  EXPECT_EQ(Serving({"m", 7}), "v7 generation 3");
  // What serves stays when newer ones come, and what is newest serves.
  MakeEmpty(1201, 1300);
  repository_.Publish("m", 2500, "b");
  EXPECT_THAT(Poll(), ElementsAre("published m v2500"));
  EXPECT_EQ(Serving(), "v2500 generation 4");
  EXPECT_EQ(Serving({"m", 5}), "v5 generation 2");
  EXPECT_EQ(observer_.notices().size(), 1u);
}

}  // namespace
}  // namespace ulfd::server
