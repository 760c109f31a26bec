// `ulf explain` for a terminal.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "tools/cli/text_table.h"
#include "tools/explain/explanation.h"

namespace ulfd::tools {
namespace {

using engine::ModelInfo;
using engine::PlanInfo;
using engine::PlanStep;

constexpr size_t kMaxCell = 56, kMaxShapes = 4;

std::string Bytes(double bytes) { return HumanBytes(static_cast<int64_t>(bytes)); }

// "1-4, 7".
std::string Ranges(const std::vector<int>& numbers) {
  std::string text;
  for (size_t i = 0; i < numbers.size();) {
    size_t end = i + 1;
    while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1) ++end;
    absl::StrAppend(&text, text.empty() ? "" : ", ", numbers[i]);
    if (end - i > 1) absl::StrAppend(&text, end - i > 2 ? "-" : ", ", numbers[end - 1]);
    i = end;
  }
  return text;
}

std::string Header(const Explanation& all) {
  const ModelInfo& info = *all.info;
  const PlanInfo& plan = all.plan();
  const int64_t kernels =
      all.written.kernel_bytes + (all.optimised ? all.optimised->kernel_bytes : 0);
  std::string text = absl::StrCat(
      "model ", info.name, ", version ", info.version, "\n  graph    ", info.graph_file,
      "\n  weights  ", info.weights_file.empty() ? "none" : info.weights_file, " (",
      info.weights_format, ")\n  memory   ", HumanBytes(info.memory_bytes), ": weights ",
      HumanBytes(info.weight_bytes), ", tables ", HumanBytes(info.table_bytes), ", kernels ",
      HumanBytes(kernels), "\n  ads      ", info.row_separable ? "" : "not ",
      "proved independent of each other", "\n  plan     ",
      all.optimised
          ? absl::StrCat("optimised, ", info.rewrites.size(), " rewrites")
          : absl::StrCat("as written: ", all.shapes.as_written.empty() ? info.not_optimised
                                                                       : all.shapes.as_written));
  if (plan.separable) absl::StrAppend(&text, ", tiles of ", plan.tile_rows, " ads");
  if (!all.shapes.inputs.empty()) {
    absl::StrAppend(&text, "\n  shapes   of --inputs: ", engine::ShapesText(all.shapes.inputs));
  }
  absl::StrAppend(&text, "\n  figures  for one user and ", all.ads, " ads\n");
  return text;
}

void AppendInterface(const Explanation& all, std::string& text) {
  const ModelInfo& info = *all.info;
  TextTable inputs({"name", "type", "shape", "level", "known", "read"});
  for (const engine::InputInfo& input : info.inputs) {
    // A sparse feature is one line: its ids stand for values and segments.
    if (input.feature >= 0) continue;
    inputs.AddRow({input.name, std::string(engine::Name(input.dtype)), input.shape.ToString(),
                   std::string(engine::Name(input.level)), std::string(KnownFrom(all, input)),
                   input.used ? "yes" : "no"});
  }
  AppendSection("Dense inputs", inputs, text);
  TextTable features({"name", "level", "known", "tables"});
  for (const engine::FeatureInfo& feature : info.features) {
    const auto name = [&](std::string* out, int table) { *out += info.tables[table].name; };
    features.AddRow({feature.name, std::string(engine::Name(feature.level)),
                     std::string(KnownFrom(all, info.inputs[feature.segments])),
                     Clipped(absl::StrJoin(feature.tables, ", ", name), kMaxCell)});
  }
  AppendSection("Sparse features", features, text);
  TextTable tables({"name", "rows>", "dim>", "memory>"});
  for (const engine::TableInfo& table : info.tables) {
    tables.AddRow(
        {table.name, WithCommas(table.rows), absl::StrCat(table.dim), HumanBytes(table.bytes)});
  }
  AppendSection("Tables", tables, text);
}

// One line per layer: its first top stands for all.
void AppendLayers(const Explanation& all, std::string& text) {
  TextTable table(
      {"#>", "name", "type", "level", "shape", "FLOPs>", "bytes>", "fate", "rewrites", "steps"});
  for (size_t i = 0; i < all.layers.size(); ++i) {
    const engine::LayerInfo& layer = all.info->layers[i];
    const LayerExplanation& about = all.layers[i];
    const bool declared = about.fate == Fate::kDeclared;
    std::string shape;
    if (!declared && !layer.top_shapes.empty()) shape = layer.top_shapes[0].ToString();
    if (!declared && layer.tops.size() > 1) {
      absl::StrAppend(&shape, " and ", layer.tops.size() - 1, " more");
    }
    std::vector<int> rewrites = about.rewrites;
    for (int& rewrite : rewrites) ++rewrite;
    table.AddRow({absl::StrCat(i), layer.name, layer.type,
                  declared ? "" : std::string(engine::Name(about.level)), shape,
                  declared ? "" : HumanNumber(about.cost.flops.At(static_cast<double>(all.ads))),
                  declared ? "" : Bytes(about.cost.bytes.At(static_cast<double>(all.ads))),
                  std::string(Name(about.fate)), Ranges(rewrites), Ranges(about.steps)});
  }
  AppendSection("Layers, as written", table, text);
}

void AppendRewrites(const Explanation& all, std::string& text) {
  TextTable table({"#>", "pass", "layers", "FLOPs saved>", "bytes saved>", "what"});
  const double ads = static_cast<double>(all.ads);
  for (size_t r = 0; r < all.info->rewrites.size(); ++r) {
    const engine::Rewrite& rewrite = all.info->rewrites[r];
    table.AddRow({absl::StrCat(r + 1), rewrite.pass, Ranges(rewrite.layers),
                  HumanNumber(rewrite.saved.flops.At(ads)), Bytes(rewrite.saved.bytes.At(ads)),
                  rewrite.text});
  }
  AppendSection("Rewrites, in order", table, text);
}

std::vector<std::string> StepRow(const Explanation& all, const PlanInfo& plan, size_t s) {
  const PlanStep& step = plan.steps[s];
  const double ads = static_cast<double>(all.ads);
  const auto shape = [&](std::string* out, int id) { *out += plan.values[id].shape.ToString(); };
  const auto shapes = [&](const std::vector<int>& ids, absl::string_view what) {
    if (ids.size() > kMaxShapes) return absl::StrCat(ids.size(), " ", what);
    return absl::StrJoin(ids, " ", shape);
  };
  return {absl::StrCat(s),
          step.name,
          step.type,
          std::string(engine::Name(step.part)),
          Ranges(step.layers),
          absl::StrCat(shapes(step.inputs, "inputs"), step.inputs.empty() ? "-> " : " -> ",
                       shapes(step.outputs, "outputs")),
          step.view ? "view" : HumanNumber(step.cost.flops.At(ads)),
          step.view ? "" : Bytes(step.cost.bytes.At(ads)),
          step.kernel_bytes == 0 ? "" : HumanBytes(step.kernel_bytes),
          step.backend,
          step.precision};
}

// The cut stands between the lines of the user part and the others, which share their columns.
void AppendSteps(const Explanation& all, absl::string_view title, const PlanInfo& plan,
                 std::string& text) {
  TextTable table({"#>", "name", "type", "part", "layers", "shapes", "FLOPs>", "bytes>", "kernel>",
                   "backend", "precision"});
  for (size_t s = 0; s < plan.steps.size(); ++s) table.AddRow(StepRow(all, plan, s));
  const std::string lines = table.ToString();
  size_t at = lines.find('\n') + 1;
  for (int s = 0; s < plan.user_steps; ++s) at = lines.find('\n', at) + 1;
  const auto name = [&](std::string* out, int id) {
    absl::StrAppend(out, plan.values[id].name, " ", plan.values[id].shape.ToString());
  };
  const std::string crossing = absl::StrJoin(plan.crossing, ", ", name);
  const size_t head = lines.find('\n') + 1;
  absl::StrAppend(&text, "\n", title, "\n", lines.substr(0, head),
                  "  -- user part: once per request ", "--\n", lines.substr(head, at - head),
                  "  -- cut: ", crossing.empty() ? "nothing" : crossing,
                  " --\n  -- ad and joint part: ",
                  plan.separable ? absl::StrCat("once per tile of ", plan.tile_rows, " ads")
                                 : "once per request",
                  " --\n", lines.substr(at));
}

void AppendTotals(const Explanation& all, std::string& text) {
  const double ads = static_cast<double>(all.ads);
  TextTable table({"", "user part>", "ad part>", "joint part>", "per ad>", "FLOPs>", "bytes>"});
  const auto add = [&](absl::string_view name, const PlanInfo& plan) {
    std::vector<std::string> row = {std::string(name)};
    for (const engine::PlanPart part : engine::kPlanParts) {
      row.push_back(HumanNumber(plan.CostOf(part).flops.At(ads)));
    }
    row.push_back(HumanNumber(plan.cost.flops.per_ad));
    row.push_back(HumanNumber(plan.cost.flops.At(ads)));
    row.push_back(Bytes(plan.cost.bytes.At(ads)));
    table.AddRow(row);
  };
  add("as written", all.written);
  if (all.optimised) add("optimised", *all.optimised);
  AppendSection(
      absl::StrCat("Totals for ", all.ads, " ads (FLOPs; bytes of tensors read and written)"),
      table, text);
  if (all.optimised && all.optimised->cost.flops.At(ads) > 0) {
    absl::StrAppend(&text, absl::StrFormat("  ratio: %.2f of the FLOPs, %.2f of the bytes\n",
                                           all.optimised->cost.flops.At(ads) /
                                               std::max(1.0, all.written.cost.flops.At(ads)),
                                           all.optimised->cost.bytes.At(ads) /
                                               std::max(1.0, all.written.cost.bytes.At(ads))));
  }
}

// Microseconds with three digits.
std::string Us(double us) { return absl::StrFormat("%.*f", us < 10 ? 2 : us < 100 ? 1 : 0, us); }

void AppendProfile(const Explanation& all, const Profile& profile, std::string& text) {
  const PlanInfo& plan = profile.optimised ? *all.optimised : all.written;
  TextTable table({"#>", "name", "type", "part", "us>", "GFLOP/s>", "of peak>", "of request>",
                   "backend", "precision"});
  const auto percent = [](double share) { return absl::StrFormat("%.1f %%", 100 * share); };
  for (size_t s = 0; s < profile.steps.size(); ++s) {
    const PlanStep& step = plan.steps[s];
    const Profile::Step& measured = profile.steps[s];
    if (step.view) continue;
    table.AddRow({absl::StrCat(s), step.name, step.type, std::string(engine::Name(step.part)),
                  Us(measured.us), absl::StrFormat("%.1f", measured.gflops),
                  percent(measured.share_of_peak), percent(measured.share_of_request), step.backend,
                  step.precision});
  }
  const double rest = profile.request_us - profile.steps_us;
  table.AddRow({"", "everything else", "", "", Us(std::max(0.0, rest)), "", "",
                percent(std::max(0.0, rest) / std::max(profile.request_us, 1e-9)), "", ""});
  AppendSection(
      absl::StrFormat("Profile, %s: %d ads, one thread, median of %d runs: %s us per request; "
                      "peak %.1f GFLOP/s",
                      profile.optimised ? "optimised" : "as written", profile.ads, profile.runs,
                      Us(profile.request_us), profile.peak_gflops),
      table, text);
}

}  // namespace

std::string ExplainText(const Explanation& all) {
  std::string text = Header(all);
  AppendInterface(all, text);
  AppendLayers(all, text);
  AppendRewrites(all, text);
  AppendSteps(all, all.optimised ? "Steps, optimised" : "Steps, as written", all.plan(), text);
  AppendTotals(all, text);
  for (const Profile& profile : all.profiles) AppendProfile(all, profile, text);
  AppendSection("Warnings", all.warnings, text);
  AppendSection("Notices", all.info->notices, text);
  return text;
}

}  // namespace ulfd::tools
