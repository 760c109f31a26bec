// SPDX-License-Identifier: Apache-2.0
#include "tools/explain/graph_picture.h"

#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "base/errors.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "base/text_file.h"
#include "tools/cli/text_table.h"

namespace ulfd::tools {
namespace {

using engine::Level;
using engine::ModelInfo;
using engine::PlanInfo;
using engine::PlanPart;
using engine::PlanStep;
using engine::PlanValue;

constexpr int kNameCharacters = 40;
constexpr size_t kNamesInTip = 12;
constexpr double kShareWidth = 120;  // Points that a step has which takes all the time.

struct PictureNode {
  std::string name, type, shape, tip, link, style;  // Not escaped.
  PlanPart part = PlanPart::kUser;
  double share = 0;  // Of a request's time.
};

struct Picture {
  std::vector<PictureNode> nodes;
  std::set<std::pair<int, int>> edges;  // From, to; from < to.
  // What stands over the parts.
  std::array<std::string, engine::kPlanParts.size()> titles;
};

// At most kNameCharacters of UTF-8, with "..." for the rest.
std::string Clip(absl::string_view text) {
  int characters = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    if ((static_cast<unsigned char>(text[at]) & 0xc0) == 0x80) continue;
    if (++characters > kNameCharacters) return absl::StrCat(text.substr(0, at), "...");
  }
  return std::string(text);
}

std::string StyleOf(Level level, PlanPart part) {
  return level == Level::kUnknown ? "unknown" : std::string(engine::Name(part));
}

// Of an input.
PlanPart PartOf(Level level) {
  if (level == Level::kUnknown) return PlanPart::kJoint;
  return level == Level::kAd ? PlanPart::kAd : PlanPart::kUser;
}

void SetTitles(const PlanInfo& plan, int64_t ads, Picture& picture) {
  for (const PlanPart part : engine::kPlanParts) {
    picture.titles[static_cast<size_t>(part)] =
        absl::StrCat(engine::Describe(part), ", ",
                     HumanNumber(plan.CostOf(part).flops.At(static_cast<double>(ads))), " FLOPs");
  }
}

std::string CostText(const engine::Cost& cost, int64_t ads) {
  const double n = static_cast<double>(ads);
  return absl::StrCat(HumanNumber(cost.flops.At(n)), " FLOPs, ",
                      HumanBytes(static_cast<int64_t>(cost.bytes.At(n))), " at ", ads, " ads");
}

// "mid, cat and 3 more".
std::string Names(const std::vector<std::string>& names) {
  std::vector<std::string> shown(
      names.begin(), names.begin() + static_cast<int64_t>(std::min(names.size(), kNamesInTip)));
  std::string text = absl::StrJoin(shown, ", ");
  if (names.size() > shown.size()) {
    absl::StrAppend(&text, " and ", names.size() - shown.size(), " more");
  }
  return text;
}

// Inputs of the graph as nodes: a dense one each, the sparse ones of a reader together.
class InputNodes {
 public:
  InputNodes(const Explanation& all, Picture& picture)
      : all_(all), info_(*all.info), picture_(picture) {
    for (size_t i = 0; i < info_.inputs.size(); ++i) {
      index_.emplace(info_.inputs[i].name, static_cast<int>(i));
    }
  }

  // Nodes for the inputs among `names`, which one layer or step reads.
  std::vector<int> For(const std::vector<std::string>& names) {
    std::vector<int> nodes;
    std::vector<std::string> features;
    PlanPart part = PlanPart::kUser;
    for (const std::string& name : names) {
      const auto at = index_.find(name);
      if (at == index_.end()) continue;
      const engine::InputInfo& input = info_.inputs[at->second];
      if (input.feature < 0) {
        nodes.push_back(Dense(at->second));
        continue;
      }
      part = std::max(part, PartOf(input.level));
      const std::string& feature = info_.features[input.feature].name;
      if (std::find(features.begin(), features.end(), feature) == features.end()) {
        features.push_back(feature);
      }
    }
    if (features.empty()) return nodes;
    picture_.nodes.push_back({.name = features.size() == 1
                                          ? features[0]
                                          : absl::StrCat(features.size(), " sparse features"),
                              .type = features.size() == 1 ? "sparse feature" : Names(features),
                              .tip = absl::StrCat("Sparse features: ", Names(features)),
                              .style = absl::StrCat("input ", engine::Name(part)),
                              .part = part});
    nodes.push_back(static_cast<int>(picture_.nodes.size()) - 1);
    return nodes;
  }

 private:
  int Dense(int index) {
    const auto known = dense_.find(index);
    if (known != dense_.end()) return known->second;
    const engine::InputInfo& input = info_.inputs[index];
    const PlanPart part = PartOf(input.level);
    picture_.nodes.push_back(
        {.name = input.name,
         .type = absl::StrCat("input, ", std::string(engine::Name(input.dtype))),
         .shape = input.shape.ToString(),
         .tip = absl::StrCat("Input ", input.name, " ", input.shape.ToString(), ", level ",
                             std::string(engine::Name(input.level)), " (",
                             std::string(KnownFrom(all_, input)), ")"),
         .style = absl::StrCat("input ", StyleOf(input.level, part)),
         .part = part});
    return dense_[index] = static_cast<int>(picture_.nodes.size()) - 1;
  }

  const Explanation& all_;
  const ModelInfo& info_;
  Picture& picture_;
  std::map<std::string, int> index_;
  std::map<int, int> dense_;
};

// Parts follow each other: an edge never leads back.
void SinkReaders(Picture& picture) {
  for (const auto& [from, to] : picture.edges) {
    picture.nodes[to].part = std::max(picture.nodes[to].part, picture.nodes[from].part);
  }
}

std::string Shapes(const std::vector<engine::Shape>& shapes) {
  if (shapes.empty()) return "";
  return absl::StrCat(shapes[0].ToString(),
                      shapes.size() > 1 ? absl::StrCat(" +", shapes.size() - 1) : "");
}

std::string LayerTip(const Explanation& all, int index) {
  const engine::LayerInfo& layer = all.info->layers[index];
  const LayerExplanation& about = all.layers[index];
  std::string tip = absl::StrCat("Layer ", index, " ", layer.name, " (", layer.type,
                                 "): ", std::string(Name(about.fate)));
  for (size_t t = 0; t < layer.tops.size(); ++t) {
    absl::StrAppend(&tip, "\n", layer.tops[t], " ", layer.top_shapes[t].ToString(), ", level ",
                    std::string(engine::Name(layer.top_levels[t])));
  }
  absl::StrAppend(&tip, "\n", CostText(about.cost, all.ads));
  if (!layer.parameters.empty()) absl::StrAppend(&tip, "\n", layer.parameters);
  for (int r : about.rewrites) {
    absl::StrAppend(&tip, "\n", all.info->rewrites[r].pass, ": ", all.info->rewrites[r].text);
  }
  return tip;
}

Picture DrawWritten(const Explanation& all) {
  Picture picture;
  InputNodes inputs(all, picture);
  std::map<std::string, int> makers;  // By the name of a tensor, as the file goes on.
  std::vector<PlanPart> parts(all.layers.size(), PlanPart::kJoint);
  for (const PlanStep& step : all.written.steps) {
    for (int layer : step.layers) parts[layer] = std::min(parts[layer], step.part);
  }
  for (size_t i = 0; i < all.layers.size(); ++i) {
    const engine::LayerInfo& layer = all.info->layers[i];
    const LayerExplanation& about = all.layers[i];
    if (about.fate == Fate::kDeclared) continue;
    std::vector<std::string> open;
    std::vector<int> from;
    for (const std::string& bottom : layer.bottoms) {
      const auto maker = makers.find(bottom);
      if (maker != makers.end()) {
        from.push_back(maker->second);
      } else {
        open.push_back(bottom);
      }
    }
    for (int node : inputs.For(open)) from.push_back(node);
    const int node = static_cast<int>(picture.nodes.size());
    PictureNode drawn{.name = layer.name.empty() ? absl::StrCat("layer ", i) : layer.name,
                      .type = std::string(absl::StripSuffix(layer.type, "_layer")),
                      .shape = Shapes(layer.top_shapes),
                      .tip = LayerTip(all, static_cast<int>(i)),
                      .link = absl::StrCat("layer-", i),
                      .style = StyleOf(about.level, parts[i]),
                      .part = parts[i]};
    if (about.fate == Fate::kRewritten) absl::StrAppend(&drawn.style, " rewritten");
    if (about.fate == Fate::kRemoved) absl::StrAppend(&drawn.style, " removed");
    picture.nodes.push_back(std::move(drawn));
    for (int source : from) picture.edges.emplace(source, node);
    for (const std::string& top : layer.tops) makers[top] = node;
  }
  SinkReaders(picture);
  SetTitles(all.written, all.ads, picture);
  return picture;
}

Picture DrawPlan(const Explanation& all, const PlanInfo& plan, const Profile* profile) {
  Picture picture;
  InputNodes inputs(all, picture);
  std::map<int, int> makers;  // By value.
  for (size_t s = 0; s < plan.steps.size(); ++s) {
    const PlanStep& step = plan.steps[s];
    std::vector<std::string> open;
    std::vector<int> from;
    for (int id : step.inputs) {
      const auto maker = makers.find(id);
      if (maker != makers.end()) {
        from.push_back(maker->second);
      } else if (plan.values[id].kind == PlanValue::Kind::kInput) {
        open.push_back(plan.values[id].name);
      }
    }
    for (int node : inputs.For(open)) from.push_back(node);
    const int node = static_cast<int>(picture.nodes.size());
    std::vector<engine::Shape> shapes;
    for (int id : step.outputs) shapes.push_back(plan.values[id].shape);
    PictureNode drawn{
        .name = step.name.empty() ? absl::StrCat("step ", s) : step.name,
        .type = std::string(absl::StripSuffix(step.type, "_layer")),
        .shape = Shapes(shapes),
        .tip = absl::StrCat("Step ", s, ", ", step.label, "\nstands for layers ",
                            absl::StrJoin(step.layers, ", "), "\n",
                            step.view ? "a view: nothing runs" : CostText(step.cost, all.ads)),
        .link = absl::StrCat("step-", s),
        .style = absl::StrCat(StyleOf(step.level, step.part), step.view ? " view" : ""),
        .part = step.part};
    if (!step.view) {
      absl::StrAppend(&drawn.type, ", ",
                      HumanNumber(step.cost.flops.At(static_cast<double>(all.ads))));
    }
    if (profile != nullptr && s < profile->steps.size()) {
      const Profile::Step& measured = profile->steps[s];
      drawn.share = measured.share_of_request;
      absl::StrAppend(&drawn.tip, absl::StrFormat("\n%.2f us, %.1f %% of the request, %.1f GFLOP/s",
                                                  measured.us, 100 * measured.share_of_request,
                                                  measured.gflops));
    }
    picture.nodes.push_back(std::move(drawn));
    for (int source : from) picture.edges.emplace(source, node);
    for (int id : step.outputs) makers[id] = node;
  }
  SinkReaders(picture);
  SetTitles(plan, all.ads, picture);
  return picture;
}

// In quotes DOT knows escapes that begin with a backslash, and none within the HTML of a label.
std::string NodeDot(const PictureNode& node, size_t index) {
  std::string dot = absl::StrCat("n", index, " [class=\"", node.style, "\" tooltip=\"",
                                 absl::StrReplaceAll(EscapeHtml(node.tip), {{"\\", "\\\\"}}), "\"");
  if (!node.link.empty()) absl::StrAppend(&dot, " href=\"#", node.link, "\"");
  absl::StrAppend(&dot,
                  " label=<<TABLE BORDER=\"0\" CELLBORDER=\"0\" CELLPADDING=\"0\"><TR><TD><B>",
                  EscapeHtml(Clip(node.name)), "</B></TD></TR>");
  for (const std::string& line : {node.type, node.shape}) {
    if (line.empty()) continue;
    absl::StrAppend(&dot, "<TR><TD><FONT POINT-SIZE=\"10\">", EscapeHtml(Clip(line)),
                    "</FONT></TD></TR>");
  }
  if (node.share > 0) {
    absl::StrAppend(
        &dot,
        "<TR><TD ALIGN=\"LEFT\"><TABLE BORDER=\"0\" CELLPADDING=\"0\" ALIGN=\"LEFT\"><TR><TD "
        "FIXEDSIZE=\"TRUE\" HEIGHT=\"4\" BGCOLOR=\"#c02a2a\" WIDTH=\"",
        std::max(1, static_cast<int>(kShareWidth * std::min(1.0, node.share))),
        "\"></TD></TR></TABLE></TD></TR>");
  }
  return absl::StrCat(dot, "</TABLE>>];\n");
}

bool OfUser(const PictureNode& node) { return node.part == PlanPart::kUser; }

// The nodes of each part in a frame.  "cut" stands between those of the user and the others, even
// where no edge does.
std::string Dot(const Picture& picture) {
  std::string dot =
      "digraph { bgcolor=transparent; newrank=true; nslimit=2; nslimit1=2; ranksep=0.35; "
      "nodesep=0.15;\n"
      "node [shape=box margin=\"0.08,0.03\" fontname=\"Helvetica\" fontsize=12];\n"
      "edge [arrowsize=0.6]; fontname=\"Helvetica\"; fontsize=12; labeljust=l; style=dashed;\n";
  std::set<size_t> reads, read;  // Within a part.
  for (const auto& [from, to] : picture.edges) {
    const bool crosses = OfUser(picture.nodes[from]) != OfUser(picture.nodes[to]);
    if (!crosses) {
      read.insert(from);
      reads.insert(to);
    }
    absl::StrAppend(&dot, "n", from, " -> n", to, crosses ? " [class=crossing]" : "", ";\n");
  }
  bool used[2] = {};  // By OfUser.
  std::array<std::string, engine::kPlanParts.size()> parts;
  for (size_t i = 0; i < picture.nodes.size(); ++i) {
    used[OfUser(picture.nodes[i])] = true;
    parts[static_cast<size_t>(picture.nodes[i].part)] += NodeDot(picture.nodes[i], i);
  }
  if (used[0] && used[1]) {
    dot += "cut [style=invis shape=point]; edge [style=invis];\n";
    for (size_t i = 0; i < picture.nodes.size(); ++i) {
      const bool above = OfUser(picture.nodes[i]);
      if (above && read.count(i) == 0) absl::StrAppend(&dot, "n", i, " -> cut;\n");
      if (!above && reads.count(i) == 0) absl::StrAppend(&dot, "cut -> n", i, ";\n");
    }
  }
  for (const PlanPart part : engine::kPlanParts) {
    const auto p = static_cast<size_t>(part);
    if (parts[p].empty()) continue;
    absl::StrAppend(&dot, "subgraph cluster_", engine::Name(part), " { label=\"", picture.titles[p],
                    "\";\n", parts[p], "}\n");
  }
  return absl::StrCat(dot, "}\n");
}

// One <svg> element.  A program of its own, as libgvc would bring cairo, pango and X into the
// image.
absl::StatusOr<std::string> RunDot(const std::string& dot) {
  const auto close = [](std::FILE* file) { std::fclose(file); };
  const std::unique_ptr<std::FILE, decltype(close)> input(std::tmpfile(), close);
  const std::unique_ptr<std::FILE, decltype(close)> output(std::tmpfile(), close);
  if (input == nullptr || output == nullptr) return absl::ErrnoToStatus(errno, "a temporary file");
  const std::string from = absl::StrCat("/dev/fd/", fileno(input.get()));
  const std::string to = absl::StrCat("/dev/fd/", fileno(output.get()));
  RETURN_IF_ERROR(WriteTextFile(from, dot));
  const int status = std::system(
      absl::StrCat("command -v dot >/dev/null || exit 127; dot -Tsvg -o ", to, " ", from).c_str());
  if (WIFEXITED(status) && WEXITSTATUS(status) == 127) {
    return NotFound("pictures need Graphviz's program dot (Debian: graphviz)");
  }
  if (status != 0) return Internal("Graphviz's program dot failed");
  ASSIGN_OR_RETURN(const std::string svg, ReadFile(to));
  return svg.substr(std::min(svg.size(), svg.find("<svg")));
}

// What `dot` makes of it; without that program the text itself, for a machine that has it.
std::string Draw(const Picture& picture) {
  const std::string dot = Dot(picture);
  const absl::StatusOr<std::string> svg = RunDot(dot);
  if (svg.ok()) return *svg;
  std::fprintf(stderr, "ulf: a picture stays text: %s\n",
               std::string(svg.status().message()).c_str());
  return absl::StrCat("<p class=\"warn\">", EscapeHtml(svg.status().message()),
                      "</p>\n<details><summary>The graph in DOT</summary><pre>", EscapeHtml(dot),
                      "</pre></details>\n");
}

}  // namespace

std::string EscapeHtml(absl::string_view text) {
  constexpr char kReplacement[] = "\xef\xbf\xbd";
  std::string characters;
  for (size_t good = 0; !text.empty(); text.remove_prefix(std::min(good + 1, text.size()))) {
    good = Utf8Bytes(text);
    for (const char c : text.substr(0, good)) {
      const auto byte = static_cast<unsigned char>(c);
      absl::StrAppend(&characters, byte >= 0x20 || c == '\t' || c == '\n' ? absl::string_view(&c, 1)
                                                                          : kReplacement);
    }
    if (good < text.size()) characters += kReplacement;
  }
  // The last two are U+FFFE and U+FFFF, UTF-8 but no characters.
  return absl::StrReplaceAll(characters, {{"&", "&amp;"},
                                          {"<", "&lt;"},
                                          {">", "&gt;"},
                                          {"\"", "&quot;"},
                                          {"'", "&#39;"},
                                          {"\xef\xbf\xbe", kReplacement},
                                          {"\xef\xbf\xbf", kReplacement}});
}

std::string WrittenPicture(const Explanation& all) { return Draw(DrawWritten(all)); }

std::string PlanPicture(const Explanation& all, const PlanInfo& plan, const Profile* profile) {
  return Draw(DrawPlan(all, plan, profile));
}

}  // namespace ulfd::tools
