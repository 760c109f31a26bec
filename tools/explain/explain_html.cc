// `ulf explain --html`: a page for a browser.
// SPDX-License-Identifier: Apache-2.0
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "tools/cli/text_table.h"
#include "tools/explain/explanation.h"
#include "tools/explain/graph_picture.h"

namespace ulfd::tools {
namespace {

using engine::ModelInfo;
using engine::PlanInfo;
using engine::PlanStep;

constexpr char kStyle[] = R"(
:root { color-scheme: light dark; --page: #ffffff; --text: #1c2430; --muted: #5c6877; --line: #d5dbe3;
  --user: #dbe9fb; --user-line: #2f6fc4; --ad: #fbe6d3; --ad-line: #b9651b; --joint: #e8e0f7;
  --joint-line: #7350b8; --unknown: #f6dce2; --unknown-line: #b3304f; --gone: #eef0f3; --gone-line: #9aa4b1; --edge: #8793a3; --cut: #17835b; }
@media (prefers-color-scheme: dark) { :root { --page: #14181e; --text: #e4e9f0; --muted: #98a4b3;
  --line: #333c48; --user: #1c3554; --user-line: #6ea6ee; --ad: #4a3018; --ad-line: #e09a58;
  --joint: #33274d; --joint-line: #b596f0; --unknown: #4d1f2c; --unknown-line: #ef7f9b; --gone: #20262e; --gone-line: #5f6b7a; --edge: #6f7c8d;
  --cut: #46c795; } }
body { background: var(--page); color: var(--text); font: 14px/1.45 system-ui, sans-serif; margin: 1.5rem; }
h1 { font-size: 1.4rem; margin: 0 0 .3rem; } h2 { font-size: 1.1rem; margin: 1.8rem 0 .5rem; }
p, ul { margin: .3rem 0; } .muted { color: var(--muted); } .warn { border-left: 3px solid var(--ad-line); padding-left: .7rem; }
.pictures { display: flex; flex-wrap: wrap; gap: 1.5rem; align-items: flex-start; }
figure { margin: 0; max-width: 100%; } figcaption { font-weight: 600; margin-bottom: .4rem; }
.scroll { overflow-x: auto; border: 1px solid var(--line); border-radius: 8px; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; } td, th { text-align: left; padding: .2rem .7rem .2rem 0;
  vertical-align: top; border-bottom: 1px solid var(--line); } th { color: var(--muted); font-weight: 600; }
td.number, th.number { text-align: right; } tr:target { background: var(--user); } tr.gone { color: var(--muted); }
tr.cut td { color: var(--cut); border-bottom: 2px dashed var(--cut); font-weight: 600; }
a { color: inherit; } code { font: 13px ui-monospace, monospace; }
svg { display: block; } svg text { fill: var(--text); } svg .edge * { stroke: var(--edge); }
svg .crossing * { stroke: var(--cut); stroke-width: 1.8; } svg .edge polygon { fill: var(--edge); } svg .cluster text { fill: var(--cut); }
svg .cluster polygon { stroke: var(--cut); stroke-dasharray: 8 5; }
.node polygon:first-of-type { stroke-width: 1.2; } .user polygon:first-of-type { fill: var(--user); stroke: var(--user-line); }
.ad polygon:first-of-type { fill: var(--ad); stroke: var(--ad-line); } .joint polygon:first-of-type { fill: var(--joint); stroke: var(--joint-line); }
.unknown polygon:first-of-type { fill: var(--unknown); stroke: var(--unknown-line); }
.input polygon:first-of-type { fill: var(--page); } .rewritten polygon:first-of-type, .removed polygon:first-of-type { fill: var(--gone); }
.removed polygon:first-of-type { stroke: var(--gone-line); stroke-dasharray: 4 3; } .removed text { text-decoration: line-through; fill: var(--muted); }
.view polygon:first-of-type { stroke-dasharray: 2 3; } .node a:hover polygon:first-of-type { stroke-width: 2.4; }
.key span { display: inline-block; padding: 0 .6rem; margin-right: .5rem; border-radius: 5px; border: 1px solid var(--line); }
.key .u { background: var(--user); } .key .a { background: var(--ad); } .key .j { background: var(--joint); } .key .n { background: var(--unknown); } .key .g { background: var(--gone); }
)";

// A table whose cells are HTML already.  A heading that ends in ">" is that of numbers.
class HtmlTable {
 public:
  explicit HtmlTable(const std::vector<std::string>& headings) {
    text_ = "<div class=\"scroll\"><table>\n<tr>";
    for (std::string heading : headings) {
      numbers_.push_back(!heading.empty() && heading.back() == '>');
      if (numbers_.back()) heading.pop_back();
      absl::StrAppend(&text_, numbers_.back() ? "<th class=\"number\">" : "<th>", heading, "</th>");
    }
    text_ += "</tr>\n";
  }
  void AddRow(absl::string_view attributes, const std::vector<std::string>& cells) {
    absl::StrAppend(&text_, "<tr", attributes.empty() ? "" : " ", attributes, ">");
    for (size_t i = 0; i < cells.size(); ++i) {
      absl::StrAppend(&text_, numbers_[i] ? "<td class=\"number\">" : "<td>", cells[i], "</td>");
    }
    text_ += "</tr>\n";
  }
  // One cell over all columns.
  void AddWide(absl::string_view attributes, absl::string_view cell) {
    absl::StrAppend(&text_, "<tr ", attributes, "><td colspan=\"", numbers_.size(), "\">", cell,
                    "</td></tr>\n");
  }
  std::string ToString() const { return absl::StrCat(text_, "</table></div>\n"); }

 private:
  std::vector<bool> numbers_;
  std::string text_;
};

std::string Bytes(double bytes) { return HumanBytes(static_cast<int64_t>(bytes)); }

std::string Links(absl::string_view prefix, const std::vector<int>& numbers, int shown_from) {
  return absl::StrJoin(numbers, " ", [&](std::string* out, int number) {
    absl::StrAppend(out, "<a href=\"#", prefix, number, "\">", number + shown_from, "</a>");
  });
}

std::string Head(const Explanation& all) {
  const ModelInfo& info = *all.info;
  const double ads = static_cast<double>(all.ads);
  std::string text = absl::StrCat(
      "<h1>", EscapeHtml(info.name), ", version ", info.version, "</h1>\n<p class=\"muted\">",
      EscapeHtml(info.graph_file), "; memory ", HumanBytes(info.memory_bytes), ": weights ",
      HumanBytes(info.weight_bytes), ", tables ", HumanBytes(info.table_bytes), "</p>\n<p>",
      all.optimised ? absl::StrCat("Optimised by ", info.rewrites.size(), " rewrites: ")
                    : absl::StrCat("Executed as written (", EscapeHtml(info.not_optimised), "): "),
      HumanNumber(all.written.cost.flops.At(ads)), " FLOPs as written",
      all.optimised
          ? absl::StrCat(", ", HumanNumber(all.optimised->cost.flops.At(ads)), " as executed")
          : "",
      ", for one user and ", all.ads, " ads",
      all.plan().separable ? absl::StrCat(", in tiles of ", all.plan().tile_rows, " ads") : "",
      ".</p>\n");
  for (const std::string& warning : all.warnings) {
    absl::StrAppend(&text, "<p class=\"warn\">", EscapeHtml(warning), "</p>\n");
  }
  return text;
}

std::string Pictures(const Explanation& all) {
  const Profile* profile = nullptr;
  for (const Profile& measured : all.profiles) {
    if (measured.optimised == all.optimised.has_value()) profile = &measured;
  }
  std::string text =
      "<p class=\"key\"><span class=\"u\">user part</span><span class=\"a\">ad part</span>"
      "<span class=\"j\">joint part</span><span "
      "class=\"n\">level not proved</span><span class=\"g\">rewritten or removed</span>hover over "
      "a "
      "node for more, click it for its row below</p>\n<div class=\"pictures\">\n";
  if (all.optimised) {
    absl::StrAppend(&text,
                    "<figure><figcaption>The graph as written</figcaption><div "
                    "class=\"scroll\">\n",
                    WrittenPicture(all), "</div></figure>\n");
  }
  absl::StrAppend(&text, "<figure><figcaption>",
                  all.optimised ? "The steps that run, optimised" : "The steps that run",
                  profile == nullptr ? "" : " (red: share of a request's time)",
                  "</figcaption><div class=\"scroll\">\n", PlanPicture(all, all.plan(), profile),
                  "</div></figure>\n</div>\n");
  return text;
}

std::string Layers(const Explanation& all) {
  const double ads = static_cast<double>(all.ads);
  HtmlTable table(
      {"#>", "name", "type", "level", "tops", "FLOPs>", "bytes>", "fate", "rewrites", "steps"});
  for (size_t i = 0; i < all.layers.size(); ++i) {
    const engine::LayerInfo& layer = all.info->layers[i];
    const LayerExplanation& about = all.layers[i];
    const bool declared = about.fate == Fate::kDeclared;
    std::string tops;
    for (size_t t = 0; t < layer.tops.size() && !declared; ++t) {
      absl::StrAppend(&tops, t == 0 ? "" : "<br/>", EscapeHtml(layer.tops[t]), " ",
                      layer.top_shapes[t].ToString());
    }
    if (declared) tops = absl::StrCat(layer.tops.size(), " inputs");
    table.AddRow(
        absl::StrCat("id=\"layer-", i, "\"", about.fate == Fate::kRemoved ? " class=\"gone\"" : ""),
        {absl::StrCat(i), EscapeHtml(layer.name), EscapeHtml(layer.type),
         declared ? "" : std::string(engine::Name(about.level)), tops,
         declared ? "" : HumanNumber(about.cost.flops.At(ads)),
         declared ? "" : Bytes(about.cost.bytes.At(ads)), std::string(Name(about.fate)),
         Links("rewrite-", about.rewrites, 1), Links("step-", about.steps, 0)});
  }
  return absl::StrCat("<h2>Layers, as written</h2>\n", table.ToString());
}

std::string Rewrites(const Explanation& all) {
  if (all.info->rewrites.empty()) return "";
  const double ads = static_cast<double>(all.ads);
  HtmlTable table({"#>", "pass", "layers", "FLOPs saved>", "bytes saved>", "what"});
  for (size_t r = 0; r < all.info->rewrites.size(); ++r) {
    const engine::Rewrite& rewrite = all.info->rewrites[r];
    table.AddRow(absl::StrCat("id=\"rewrite-", r, "\""),
                 {absl::StrCat(r + 1), EscapeHtml(rewrite.pass), Links("layer-", rewrite.layers, 0),
                  HumanNumber(rewrite.saved.flops.At(ads)), Bytes(rewrite.saved.bytes.At(ads)),
                  EscapeHtml(rewrite.text)});
  }
  return absl::StrCat("<h2>Rewrites, in order</h2>\n", table.ToString());
}

std::string ValueList(const PlanInfo& plan, const std::vector<int>& ids) {
  return absl::StrJoin(ids, "<br/>", [&](std::string* out, int id) {
    absl::StrAppend(out, EscapeHtml(plan.values[id].name), " ", plan.values[id].shape.ToString());
  });
}

std::string Steps(const Explanation& all) {
  const PlanInfo& plan = all.plan();
  const double ads = static_cast<double>(all.ads);
  HtmlTable table({"#>", "name", "type", "part", "layers", "makes", "FLOPs>", "bytes>", "kernel>",
                   "backend", "precision"});
  for (size_t s = 0; s < plan.steps.size(); ++s) {
    const PlanStep& step = plan.steps[s];
    if (static_cast<int>(s) == plan.user_steps) {
      table.AddWide("class=\"cut\"", absl::StrCat("cut: ", plan.crossing.size(),
                                                  " tensors are kept for the ad and joint parts"));
    }
    table.AddRow(
        absl::StrCat("id=\"step-", s, "\""),
        {absl::StrCat(s), EscapeHtml(step.name), EscapeHtml(step.type),
         std::string(engine::Name(step.part)), Links("layer-", step.layers, 0),
         ValueList(plan, step.outputs), step.view ? "view" : HumanNumber(step.cost.flops.At(ads)),
         step.view ? "" : Bytes(step.cost.bytes.At(ads)),
         step.kernel_bytes == 0 ? "" : HumanBytes(step.kernel_bytes), step.backend,
         step.precision});
  }
  return absl::StrCat("<h2>Steps, in order</h2>\n", table.ToString());
}

std::string Measured(const Explanation& all, const Profile& profile) {
  const PlanInfo& plan = profile.optimised ? *all.optimised : all.written;
  HtmlTable table(
      {"#>", "name", "type", "us>", "GFLOP/s>", "of peak>", "of request>", "backend", "precision"});
  const auto percent = [](double share) { return absl::StrFormat("%.1f %%", 100 * share); };
  for (size_t s = 0; s < profile.steps.size(); ++s) {
    const Profile::Step& step = profile.steps[s];
    if (plan.steps[s].view) continue;
    table.AddRow(
        "", {absl::StrCat(s), EscapeHtml(plan.steps[s].name), EscapeHtml(plan.steps[s].type),
             absl::StrFormat("%.2f", step.us), absl::StrFormat("%.1f", step.gflops),
             percent(step.share_of_peak), percent(step.share_of_request), plan.steps[s].backend,
             plan.steps[s].precision});
  }
  return absl::StrCat(
      "<h2>Profile, ", profile.optimised ? "optimised" : "as written", "</h2>\n<p>",
      absl::StrFormat(
          "%d ads, one thread, median of %d runs: %.0f us per request, of which %.0f us "
          "in steps; peak of the machine %.1f GFLOP/s.",
          profile.ads, profile.runs, profile.request_us, profile.steps_us, profile.peak_gflops),
      "</p>\n", table.ToString());
}

}  // namespace

std::string ExplainHtml(const Explanation& all) {
  std::string html = absl::StrCat(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/>\n<meta name=\"viewport\" "
      "content=\"width=device-width, initial-scale=1\"/>\n<title>",
      EscapeHtml(all.info->name), " v", all.info->version, ", explained</title>\n<style>", kStyle,
      "</style></head><body>\n", Head(all), Pictures(all), Layers(all), Rewrites(all), Steps(all));
  for (const Profile& profile : all.profiles) absl::StrAppend(&html, Measured(all, profile));
  if (!all.info->notices.empty()) absl::StrAppend(&html, "<h2>Notices</h2>\n<ul>\n");
  for (const std::string& notice : all.info->notices) {
    absl::StrAppend(&html, "<li>", EscapeHtml(notice), "</li>\n");
  }
  if (!all.info->notices.empty()) absl::StrAppend(&html, "</ul>\n");
  return absl::StrCat(html, "</body></html>\n");
}

}  // namespace ulfd::tools
