// Writes example requests for the demo model: users whose preferences a reader can see, and two ads
// of every category.
// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/substitute.h"
#include "base/status_macros.h"
#include "base/text_file.h"
#include "engine/weights/npz.h"
#include "tools/demo/demo_model.h"

namespace ulfd::tools {
namespace {

struct Persona {
  absl::string_view file, story;
  int64_t user_id;
  std::vector<std::pair<int, int>> history;  // A category, and how many items of it.
};

// Categories: 0 sports, 1 books, 4 cooking, 5 gaming, 7 electronics, 8 garden.
std::vector<Persona> Personas() {
  return {
      {"sports_fan",
       "looked at 14 sports items and 2 books",
       DemoWorld::UserId(0),
       {{0, 14}, {1, 2}}},
      {"cook",
       "looked at 8 cooking items and 3 garden items",
       DemoWorld::UserId(4),
       {{4, 8}, {8, 3}}},
      {"gamer",
       "looked at 20 games and 10 pieces of electronics",
       DemoWorld::UserId(5),
       {{5, 20}, {7, 10}}},
      // An id that the table lacks.
      {"newcomer",
       "nobody knows this user: no profile, no history, so only the ads themselves count",
       999,
       {}},
  };
}

struct Columns {
  std::vector<int64_t> history, history_category, ads, ad_categories;
  std::vector<float> ad_stats;  // [ads, 2]
  std::string ad_names;         // A line each.
};

// The history goes to items that nobody named, so that no ad is in it.
Columns MakeColumns(const DemoWorld& world, const Persona& persona) {
  Columns columns;
  for (const auto& [category, items] : persona.history) {
    for (int64_t i = 0; i < items; ++i) {
      const int64_t row = (13 + 7 * i) % (world.items() / kDemoCategories);
      columns.history.push_back(DemoWorld::ItemId(row * kDemoCategories + category));
      columns.history_category.push_back(DemoWorld::CategoryId(category));
    }
  }
  for (int item = 0; item < kDemoAds; ++item) {
    const DemoItem what = world.Item(item);
    columns.ads.push_back(DemoWorld::ItemId(item));
    columns.ad_categories.push_back(DemoWorld::CategoryId(what.category));
    columns.ad_stats.push_back(static_cast<float>((item * 5 + 3) % 8) / 8);
    columns.ad_stats.push_back(static_cast<float>((item * 3 + 1) % 4) / 4);
    absl::StrAppend(&columns.ad_names, what.name, " (", DemoWorld::CategoryName(what.category));
    if (what.related >= 0) {
      absl::StrAppend(&columns.ad_names, ", ", DemoWorld::CategoryName(what.related));
    }
    columns.ad_names += ")\n";
  }
  return columns;
}

std::string RequestText(const Persona& persona, const Columns& columns, const std::string& model) {
  const auto join = [](const auto& values) { return absl::StrJoin(values, ", "); };
  return absl::Substitute(R"(# proto-file: proto/predict.proto
# proto-message: ulfd.v1.PredictRequest
# A user who $0.
# ulf predict HOST:PORT --request=$1.textproto --row_names=$1.ads
model { name: "$2" }
user_features { name: "user" sparse { ids: $3 } }
# Latest last; item ids and their categories, one to one.
user_features { name: "history" sparse { ids: [$4] } }
user_features { name: "history_category" sparse { ids: [$5] } }
# 24 ads; their names are in $1.ads, line by line.
ad_features { name: "ad" sparse { ids: [$6] } }
ad_features { name: "ad_category" sparse { ids: [$7] } }
# Freshness and discount of each ad.
ad_features { name: "ad_stats" dense { shape: [24, 2] floats: [$8] } }
top_k { k: 10 output: "ctr" }
request_id: "$1"
)",
                          persona.story, persona.file, model, persona.user_id,
                          join(columns.history), join(columns.history_category), join(columns.ads),
                          join(columns.ad_categories), join(columns.ad_stats));
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
  add_sparse("user", {persona.user_id}, true);
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
    RETURN_IF_ERROR(WriteTextFile(base + ".ads", columns.ad_names));
    RETURN_IF_ERROR(engine::WriteNpz(base + ".npz", RequestArrays(persona, columns)));
  }
  return absl::OkStatus();
}

}  // namespace ulfd::tools
