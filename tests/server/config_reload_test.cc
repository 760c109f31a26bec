// What of the configuration can change while the daemon runs, and the settings of canary and
// shadow.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "server/config/options.h"
#include "tests/testing/temp_dir.h"

namespace ulfd::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class ConfigReloadTest : public ::testing::Test {
 protected:
  // Starts with the text, flags included.
  Options Start(const std::string& text) {
    Flags flags;
    flags.config = dir_.Write("server.textproto", text);
    flags.settings.set_model_repository(dir_.path());
    const auto options = LoadOptions(flags);
    EXPECT_TRUE(options.ok()) << options.status();
    return options.ok() ? *options : Options();
  }
  std::string Errors(const std::string& text) {
    return std::string(ReadConfig(text, "f").status().message());
  }

  TempDir dir_;
};

TEST_F(ConfigReloadTest, ModelsAndPolicyChange) {
  const Options options = Start("workers: 3 models { name: \"a\" }");
  dir_.Write("server.textproto",
             "workers: 3 models { name: \"b\" base_path: \"/x\" canary { label: \"c\" share: 0.5 "
             "sticky_metadata: \"x-user\" } shadow { label: \"s\" share: 1 max_queued: 2 } } "
             "default_version_policy { latest { count: 2 } } models { name: \"a\" }");
  const auto change = ReadConfigure(options);
  ASSERT_TRUE(change.ok()) << change.status();
  EXPECT_EQ(change->kind, ModelChange::Kind::kConfigure);
  ASSERT_EQ(change->models.size(), 2u);
  const ModelConfig& b = change->models[0];
  EXPECT_EQ(b.base_path, "/x");
  EXPECT_EQ(b.canary, (CanaryConfig{.label = "c", .share = 0.5, .metadata = "x-user"}));
  EXPECT_EQ(b.shadow, (ShadowConfig{.label = "s", .share = 1, .max_queued = 2}));
  // The repository of the command line goes on.
  EXPECT_EQ(change->models[1].base_path, dir_.path() + "/a");
  EXPECT_EQ(change->default_policy.latest, 2);
}

TEST_F(ConfigReloadTest, WhatTakesARestartIsRefusedByName) {
  const Options options = Start("workers: 3 limits { max_ads: 10 }");
  dir_.Write("server.textproto", "workers: 4 limits { max_ads: 10 }");
  EXPECT_EQ(
      ReadConfigure(options).status().ToString(),
      absl::StrCat("FAILED_PRECONDITION: ", dir_.path(),
                   "/server.textproto: only models and default_version_policy can change while "
                   "the daemon runs: modified: workers: 3 -> 4"));
  dir_.Write("server.textproto", "wrokers: 4");
  EXPECT_THAT(ReadConfigure(options).status().ToString(), HasSubstr("INVALID_ARGUMENT"));
  EXPECT_THAT(ReadConfigure(Options()).status().ToString(), HasSubstr("without --config"));
}

// They cannot change, and an operator may be in a hurry.
TEST_F(ConfigReloadTest, PlacesThatWentAwayDoNotVetoAChange) {
  for (const char* setting : {"hot_ids_directory: \"$\"", "deltas { fold_directory: \"$\" }",
                              "state_file: \"$/state\"", "admin_address: \"unix:$/socket\""}) {
    const std::string place = dir_.File("place");
    std::filesystem::create_directory(place);
    const std::string text = absl::StrReplaceAll(setting, {{"$", place}});
    const Options options = Start(text);
    std::filesystem::remove(place);
    dir_.Write("server.textproto", absl::StrCat(text, " models { name: \"a\" }"));
    EXPECT_TRUE(ReadConfigure(options).ok()) << ReadConfigure(options).status();
  }
}

TEST_F(ConfigReloadTest, WhatIsNoFileIsRefusedAtOnce) {
  const Options options = Start("workers: 3");
  const std::string path = dir_.File("server.textproto");
  const auto error = [&] {
    Flags flags;
    flags.config = path;
    EXPECT_EQ(LoadOptions(flags).status(), ReadConfigure(options).status());
    return ReadConfigure(options).status();
  };
  // A pipe that nobody writes to, and what never ends.
  std::filesystem::remove(path);
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  EXPECT_EQ(error(), absl::NotFoundError(path + ": is not a regular file"));
  std::filesystem::remove(path);
  std::filesystem::create_symlink("/dev/zero", path);
  EXPECT_EQ(error(), absl::NotFoundError(path + ": is not a regular file"));
  std::filesystem::remove(path);
  EXPECT_EQ(error(), absl::NotFoundError(path + ": No such file or directory"));
  dir_.Write("server.textproto", std::string((size_t{1} << 20) + 1, ' '));
  EXPECT_EQ(error(), absl::InvalidArgumentError(path + ": larger than 1048576 bytes"));
}

TEST_F(ConfigReloadTest, EverythingOfAModelChanges) {
  const std::string tokens = "authentication { token_file: \"/t\" } ";
  const Options options = Start(tokens + "models { name: \"a\" allowed_clients: \"shop\" }");
  EXPECT_THAT(ManagerOptions(options).models[0].allowed_clients, ElementsAre("shop"));
  dir_.Write("server.textproto",
             tokens +
                 "models { name: \"a\" allowed_clients: \"lab\" record_share: 0.5 weight: 2 "
                 "max_queued_rows: 7 } models { name: \"b\" }");
  const auto change = ReadConfigure(options);
  ASSERT_TRUE(change.ok()) << change.status();
  EXPECT_THAT(change->models[0].allowed_clients, ElementsAre("lab"));
  EXPECT_EQ(change->models[0].limits, (Lane::Limits{.max_queued_rows = 7, .weight = 2}));
  EXPECT_EQ(RecordShares(change->models), (std::map<std::string, double>{{"a", 0.5}}));
  EXPECT_THAT(change->models[1].allowed_clients, IsEmpty());
  // Not what holds for all models, nor names where clients have none.
  dir_.Write(
      "server.textproto",
      "authentication { token_file: \"/t\" allowed_clients: \"lab\" } models { name: \"a\" }");
  EXPECT_THAT(ReadConfigure(options).status().ToString(),
              HasSubstr("added: authentication.allowed_clients[0]"));
  const Options open = Start("models { name: \"a\" }");
  dir_.Write("server.textproto", "models { name: \"a\" allowed_clients: \"lab\" }");
  EXPECT_THAT(ReadConfigure(open).status().ToString(),
              HasSubstr("model \"a\": allowed_clients, but clients have no names"));
}

TEST_F(ConfigReloadTest, AddressesOfTheCommandLineGoOn) {
  Flags flags;
  flags.settings.set_model_repository(dir_.path());
  flags.settings.set_admin_address("127.0.0.1:0");
  flags.config =
      dir_.Write("server.textproto", "admin_tls { certificate_file: \"c\" key_file: \"k\" }");
  const auto options = LoadOptions(flags);
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_TRUE(ReadConfigure(*options).ok()) << ReadConfigure(*options).status();
}

TEST_F(ConfigReloadTest, SharesAndLabelsAreChecked) {
  const auto model = [](const std::string& text) {
    return absl::StrCat("models { name: \"m\" ", text, " }");
  };
  EXPECT_THAT(Errors(model("canary { label: \"c\" share: 1.5 }")),
              HasSubstr("share: 1.5, want 0..1"));
  EXPECT_THAT(Errors(model("canary { label: \"c\" }")), HasSubstr("share: missing, want 0..1"));
  EXPECT_THAT(Errors(model("canary { share: 1 }")), HasSubstr("label: missing, want"));
  EXPECT_THAT(Errors(model("canary { label: \"stable\" share: 1 }")),
              HasSubstr("label: \"stable\" is the version that the others get"));
  EXPECT_THAT(Errors(model("canary { label: \"c\" share: 1 sticky_metadata: \"a\" sticky_feature: "
                           "\"b\" }")),
              HasSubstr("sticky_feature: sticky_metadata is set, too"));
  EXPECT_THAT(Errors(model("canary { label: \"c\" share: 1 sticky_metadata: \"User\" }")),
              HasSubstr("want lower case"));
  EXPECT_THAT(Errors(model("shadow { label: \"s\" share: -1 }")), HasSubstr("share: -1"));
  EXPECT_THAT(Errors(model("shadow { label: \"s\" share: 1 max_queued: 0 }")),
              HasSubstr("max_queued: 0, want 1..10000"));
  EXPECT_THAT(Errors("memory_budget_bytes: 5"),
              HasSubstr("memory_budget_bytes: 5, want 0 or 1048576.."));
}

}  // namespace
}  // namespace ulfd::server
