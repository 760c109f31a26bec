// ulf make-demo: writes a model repository with one model in it, and requests to try it with.
// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/errors.h"
#include "base/status_macros.h"
#include "base/text_file.h"
#include "tools/cli/commands.h"
#include "tools/cli/print.h"
#include "tools/demo/demo_model.h"

namespace ulfd::tools {
namespace {

namespace fs = std::filesystem;

constexpr char kDescription[] =
    R"(Writes DIR/NAME/1, a Deep Interest Network over a made-up shop, and example requests into
DIR/NAME/requests.  DIR is then a model repository: `ulfd --model_repository=DIR` serves it.
The preferences are planted: an ad scores high if the user's history holds its category, if
the user's profile likes the category, and if the ad itself is good.  Same flags, same bytes.)";

// Names and texts of the files that are the same for all.
constexpr std::pair<const char*, const char*> kFiles[] = {
#include "tools/demo/demo_files.inc"
};

absl::Status CheckName(const std::string& name) {
  if (name.empty() || name[0] == '.' || name.find_first_of("/\"\\\n") != std::string::npos) {
    return UsageError("--name: \"", name, "\" is no name for a model's directory");
  }
  return absl::OkStatus();
}

absl::Status Rename(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::rename(from, to, error);
  if (!error || error == std::errc::no_such_file_or_directory) return absl::OkStatus();
  return Unavailable("cannot rename ", from.string(), ": ", error.message());
}

using RowOf = DemoVector (DemoWorld::*)(int64_t) const;

absl::Status WriteTable(const DemoWorld& world, int64_t rows, int64_t first_id, RowOf row_of,
                        const fs::path& file) {
  std::string text;
  for (int64_t i = 0; i < rows; ++i) {
    absl::StrAppend(&text, first_id + i);
    for (const double x : (world.*row_of)(i)) absl::StrAppendFormat(&text, ",%.6f", x);
    text += '\n';
  }
  return WriteTextFile(file, text);
}

absl::Status WriteModel(const DemoWorld& world, uint64_t seed, const fs::path& directory) {
  RETURN_IF_ERROR(WriteTable(world, world.items(), DemoWorld::ItemId(0), &DemoWorld::ItemRow,
                             directory / "item_table"));
  RETURN_IF_ERROR(WriteTable(world, world.users(), DemoWorld::UserId(0), &DemoWorld::UserRow,
                             directory / "user_table"));
  RETURN_IF_ERROR(WriteTable(world, kDemoCategories, DemoWorld::CategoryId(0),
                             &DemoWorld::CategoryRow, directory / "category_table"));
  for (const auto& [name, text] : kFiles) RETURN_IF_ERROR(WriteTextFile(directory / name, text));
  RETURN_IF_ERROR(
      WriteTextFile(directory / "weights.pb", DemoWeights(world, seed).SerializeAsString()));
  return WriteTextFile(directory / "_SUCCESS", "");  // Last: says that the rest is complete.
}

}  // namespace

absl::Status RunMakeDemo(Args args) {
  int64_t ids = 100'000, seed = 1;
  std::string name = "demo";
  bool force = false;
  FlagSet flags("ulf make-demo DIR [flags]", kDescription);
  flags.Add("ids", "How many ids the three embedding tables hold together.", &ids, 1000,
            100'000'000);
  flags.Add("seed", "Another seed, another shop.", &seed, 0);
  flags.Add("name", "The model's name.", &name);
  flags.Add("force", "Replaces the model if it exists.", &force);
  ASSIGN_OR_RETURN(const std::vector<std::string> positional, flags.Parse(args, 1, 1));
  RETURN_IF_ERROR(CheckName(name));

  const fs::path model = fs::path(positional[0]) / name;
  const fs::path version = model / "1";
  std::error_code error;
  if (fs::exists(version, error) && !force) {
    return AlreadyExists(version.string(), " exists; --force replaces it");
  }
  const DemoWorld world(ids, static_cast<uint64_t>(seed));
  // Written aside under a name that no server takes for a version, then renamed.
  const fs::path aside = model / ".writing";
  fs::remove_all(aside, error);  // Of one that was ended.
  for (const char* part : {"requests", "1"}) {
    if (!error) fs::create_directories(aside / part, error);
  }
  if (error) {
    return Unavailable("cannot create ", aside.string(), ": ", error.message());
  }
  RETURN_IF_ERROR(WriteModel(world, static_cast<uint64_t>(seed), aside / "1"));
  RETURN_IF_ERROR(WriteDemoRequests(world, name, aside / "requests"));
  for (const std::string part : {"requests", "1"}) {
    RETURN_IF_ERROR(Rename(model / part, aside / (part + ".old")));
    RETURN_IF_ERROR(Rename(aside / part, model / part));
  }
  fs::remove_all(aside, error);
  Print(stdout, absl::StrCat(version.string(), ": ", world.items(), " items, ", world.users(),
                             " users, ", kDemoCategories, " categories; requests in ",
                             (model / "requests").string(), "\n"));
  return absl::OkStatus();
}

}  // namespace ulfd::tools
