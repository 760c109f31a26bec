// Writes example requests for the demo model: users whose preferences a reader can see, and two ads
// of every category.
// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "engine/weights/npz.h"
#include "tools/cli/text_file.h"
#include "tools/demo/demo_model.h"

namespace ulfd::tools {
namespace {

// So many items of a category are in the user's history.
struct Liking {
  int category;
  int items;
};
struct Persona {
  absl::string_view file;
  absl::string_view story;
  int64_t user;  // Index in the world; negative: an id that the table lacks.
  std::vector<Liking> history;
};

// Categories: 0 sports, 1 books, 2 music, 3 travel, 4 cooking, 5 gaming, 6 fashion, 7 electronics,
// ...
std::vector<Persona> Personas() {
  return {
      {"sports_fan", "looked at 14 sports items and 2 books", 0, {{0, 14}, {1, 2}}},
      {"cook", "looked at 8 cooking items and 3 garden items", 4, {{4, 8}, {8, 3}}},
      {"gamer", "looked at 20 games and 10 pieces of electronics", 5, {{5, 20}, {7, 10}}},
      {"newcomer",
       "nobody knows this user: no profile, no history, so only the ads themselves count",
       -1,
       {}},
  };
}

struct Columns {
  std::vector<int64_t> history, history_category, ads, ad_categories;
  std::vector<float> ad_stats;  // [ads, 2]
  std::vector<std::string> ad_names;
};

// The history goes to items that nobody named, so that no ad is in it.
Columns MakeColumns(const DemoWorld& world, const Persona& persona) {
  Columns columns;
  for (const Liking& liking : persona.history) {
    for (int i = 0; i < liking.items; ++i) {
      const int64_t row = world.named_items() / kDemoCategories + 5 + 7 * i;
      columns.history.push_back(DemoWorld::ItemId(
          row % (world.items() / kDemoCategories) * kDemoCategories + liking.category));
      columns.history_category.push_back(DemoWorld::CategoryId(liking.category));
    }
  }
  for (int rank = 0; rank < 2; ++rank) {  // The best and the third best of each category.
    for (int category = 0; category < kDemoCategories; ++category) {
      const int64_t item = int64_t{rank} * kDemoCategories + category;
      const DemoItem what = world.Item(item);
      columns.ads.push_back(DemoWorld::ItemId(item));
      columns.ad_categories.push_back(DemoWorld::CategoryId(category));
      columns.ad_stats.push_back(static_cast<float>((item * 5 + 3) % 8) / 8);
      columns.ad_stats.push_back(static_cast<float>((item * 3 + 1) % 4) / 4);
      columns.ad_names.push_back(absl::StrCat(
          what.name, " (", DemoWorld::CategoryName(category), what.related < 0 ? "" : ", ",
          what.related < 0 ? "" : DemoWorld::CategoryName(what.related), ")"));
    }
  }
  return columns;
}

int64_t UserIdOf(const Persona& persona) {
  return persona.user < 0 ? 999 : DemoWorld::UserId(persona.user);
}

std::string RequestText(const Persona& persona, const Columns& columns, const std::string& model) {
  const auto join = [](const auto& values) { return absl::StrJoin(values, ", "); };
  std::string text = absl::StrCat(
      "# proto-file: proto/predict.proto\n# proto-message: ulfd.v1.PredictRequest\n",
      "# A user who ", persona.story, ".\n", "# ulf predict HOST:PORT --request=", persona.file,
      ".textproto --row_names=", persona.file, ".ads\n", "model { name: \"", model, "\" }\n",
      "user_features { name: \"user\" sparse { ids: ", UserIdOf(persona), " } }\n",
      "# Latest last; item ids and their categories, one to one.\n");
  absl::StrAppend(&text, "user_features { name: \"history\" sparse { ids: [", join(columns.history),
                  "] } }\n", "user_features { name: \"history_category\" sparse { ids: [",
                  join(columns.history_category), "] } }\n");
  absl::StrAppend(&text, "# ", columns.ads.size(), " ads; their names are in ", persona.file,
                  ".ads, line by line.\n", "ad_features { name: \"ad\" sparse { ids: [",
                  join(columns.ads), "] } }\n",
                  "ad_features { name: \"ad_category\" sparse { ids: [",
                  join(columns.ad_categories), "] } }\n", "# Freshness and discount of each ad.\n",
                  "ad_features { name: \"ad_stats\" dense { shape: [", columns.ads.size(),
                  ", 2] floats: [", join(columns.ad_stats), "] } }\n",
                  "top_k { k: 10 output: \"ctr\" }\n", "request_id: \"", persona.file, "\"\n");
  return text;
}

// The same request as arrays under the graph's input names, for `ulf score` and `ulf predict
// --inputs`.
engine::NpzArrays RequestArrays(const Persona& persona, const Columns& columns) {
  engine::NpzArrays arrays;
  const auto add_sparse = [&](const std::string& name, const std::vector<int64_t>& ids, bool user) {
    const int64_t count = static_cast<int64_t>(ids.size());
    const std::vector<float> values(ids.size(), 1.0f);
    const std::vector<int32_t> segments = user ? std::vector<int32_t>{static_cast<int32_t>(count)}
                                               : std::vector<int32_t>(ids.size(), 1);
    arrays[name + ".ids"] = engine::NpyArray::FromInt64({count}, ids.data());
    arrays[name + ".values"] = engine::NpyArray::FromFloat32({count}, values.data());
    arrays[name + ".segments"] =
        engine::NpyArray::FromInt32({static_cast<int64_t>(segments.size())}, segments.data());
  };
  add_sparse("user", {UserIdOf(persona)}, true);
  add_sparse("history", columns.history, true);
  add_sparse("history_category", columns.history_category, true);
  add_sparse("ad", columns.ads, false);
  add_sparse("ad_category", columns.ad_categories, false);
  arrays["ad_stats"] = engine::NpyArray::FromFloat32({static_cast<int64_t>(columns.ads.size()), 2},
                                                     columns.ad_stats.data());
  return arrays;
}

}  // namespace

absl::Status WriteDemoRequests(const DemoWorld& world, const std::string& model,
                               const std::string& directory) {
  for (const Persona& persona : Personas()) {
    const Columns columns = MakeColumns(world, persona);
    const std::string base = absl::StrCat(directory, "/", persona.file);
    RETURN_IF_ERROR(WriteTextFile(base + ".textproto", RequestText(persona, columns, model)));
    RETURN_IF_ERROR(WriteTextFile(base + ".ads", absl::StrJoin(columns.ad_names, "\n") + "\n"));
    RETURN_IF_ERROR(engine::WriteNpz(base + ".npz", RequestArrays(persona, columns)));
  }
  return absl::OkStatus();
}

}  // namespace ulfd::tools
