// ulf make-demo: writes a model repository with one model in it, and requests to try it with.
// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "tools/cli/commands.h"
#include "tools/demo/demo_model.h"

namespace ulfd::tools {
namespace {

namespace fs = std::filesystem;

constexpr char kDescription[] =
    "Writes DIR/NAME/1, a Deep Interest Network over a made-up shop, and example requests into\n"
    "DIR/NAME/requests.  DIR is then a model repository: `ulfd --model_repository=DIR` serves it.\n"
    "The preferences are planted: an ad scores high if the user's history holds its category, if\n"
    "the user's profile likes the category, and if the ad itself is good.  Same flags, same bytes.";

absl::Status CheckName(const std::string& name) {
  if (name.empty() || name[0] == '.' || name.find_first_of("/\"\\\n") != std::string::npos) {
    return UsageError(absl::StrCat("--name: \"", name, "\" is no name for a model's directory"));
  }
  return absl::OkStatus();
}

absl::Status IoError(absl::string_view what, const fs::path& path, const std::error_code& error) {
  return absl::UnavailableError(absl::StrCat(what, " ", path.string(), ": ", error.message()));
}

absl::Status MakeDirectory(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  return error ? IoError("cannot create", path, error) : absl::OkStatus();
}

// Puts the finished directory in place of what stands there.
absl::Status Replace(const fs::path& finished, const fs::path& target) {
  std::error_code error;
  const fs::path old = target.string() + ".old";
  fs::remove_all(old, error);
  if (fs::exists(target)) {
    fs::rename(target, old, error);
    if (error) return IoError("cannot rename", target, error);
  }
  fs::rename(finished, target, error);
  if (error) return IoError("cannot rename", finished, error);
  fs::remove_all(old, error);
  return error ? IoError("cannot remove", old, error) : absl::OkStatus();
}

}  // namespace

absl::Status RunMakeDemo(Args args) {
  int64_t ids = 100'000, seed = 1;
  std::string name = "demo";
  bool force = false, help = false;
  FlagSet flags("make-demo DIR [flags]", kDescription);
  flags.Add("ids", "How many ids the three embedding tables hold together; 1000 to 100 million.",
            &ids);
  flags.Add("seed", "Another seed, another shop; 0 or more.", &seed);
  flags.Add("name", "The model's name.", &name);
  flags.Add("force", "Replaces the model if it exists.", &force);
  std::vector<std::string> positional;
  RETURN_IF_ERROR(flags.Parse(args, 1, 1, &positional, &help));
  if (help) return absl::OkStatus();
  if (ids < 1000 || ids > 100'000'000) {
    return UsageError(absl::StrCat("--ids: ", ids, " is not within 1000 and 100000000"));
  }
  if (seed < 0) return UsageError(absl::StrCat("--seed: ", seed, " is negative"));
  RETURN_IF_ERROR(CheckName(name));

  const fs::path model = fs::path(positional[0]) / name;
  const fs::path version = model / "1";
  if (fs::exists(version) && !force) {
    return absl::AlreadyExistsError(absl::StrCat(version.string(), " exists; --force replaces it"));
  }
  const DemoWorld world(ids, static_cast<uint64_t>(seed));
  // Written aside under a name that no server takes for a version, then renamed.
  const fs::path aside = model / absl::StrCat(".writing-", getpid());
  RETURN_IF_ERROR(MakeDirectory(aside / "1"));
  RETURN_IF_ERROR(MakeDirectory(aside / "requests"));
  RETURN_IF_ERROR(WriteDemoModel(world, static_cast<uint64_t>(seed), (aside / "1").string()));
  RETURN_IF_ERROR(WriteDemoRequests(world, name, (aside / "requests").string()));
  RETURN_IF_ERROR(Replace(aside / "requests", model / "requests"));
  RETURN_IF_ERROR(Replace(aside / "1", version));
  std::error_code error;
  fs::remove_all(aside, error);
  std::printf("%s: %lld items, %lld users, %d categories; requests in %s\n",
              version.string().c_str(), static_cast<long long>(world.items()),
              static_cast<long long>(world.users()), kDemoCategories,
              (model / "requests").string().c_str());
  return absl::OkStatus();
}

}  // namespace ulfd::tools
