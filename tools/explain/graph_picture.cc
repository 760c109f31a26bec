// The pictures of `ulf explain --html`.
// SPDX-License-Identifier: Apache-2.0
#include "tools/explain/graph_picture.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "tools/cli/text_table.h"
#include "tools/explain/graph_layout.h"

namespace ulfd::tools {
namespace {

using engine::Level;
using engine::ModelInfo;
using engine::PlanInfo;
using engine::PlanStep;
using engine::PlanValue;

constexpr int kNameColumns = 21, kTypeColumns = 30, kShapeColumns = 28;
constexpr size_t kNamesInTip = 12;

struct PictureNode {
  std::string name, type, shape, tip, link, style;  // Not escaped.
  bool ad_part = false;
  double share = 0;  // Of a request's time.
};

struct Picture {
  std::string label;
  std::vector<PictureNode> nodes;
  std::vector<LayoutEdge> edges;
};

// Bytes of the UTF-8 character at text[at]; 0: none that may stand in XML.
size_t CharacterBytes(absl::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(at);
  if (first < 0x80) return first >= 0x20 || first == '\t' || first == '\n' ? 1 : 0;
  const size_t bytes = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || at + bytes > text.size()) return 0;
  uint32_t code = first & (0x7fu >> bytes);
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(at + i) & 0xc0) != 0x80) return 0;
    code = code << 6 | (byte(at + i) & 0x3fu);
  }
  const bool shortest = code >= (bytes == 4 ? 0x10000u : bytes == 3 ? 0x800u : 0x80u);
  const bool character = code <= 0x10ffff && (code < 0xd800 || code > 0xdfff) && code >= 0xa0 &&
                         code != 0xfffe && code != 0xffff;
  return shortest && character ? bytes : 0;
}

// At most that many columns (wide characters count twice), with "..." for the rest.
std::string Clip(absl::string_view text, int columns) {
  int width = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t bytes = std::max<size_t>(1, CharacterBytes(text, at));
    width += bytes > 2 ? 2 : 1;
    if (width > columns) {
      std::string clipped(text.substr(0, at));
      while (width > columns - 3 && !clipped.empty()) {
        size_t last = clipped.size() - 1;
        while (last > 0 && (static_cast<unsigned char>(clipped[last]) & 0xc0) == 0x80) --last;
        width -= clipped.size() - last > 2 ? 2 : 1;
        clipped.resize(last);
      }
      return clipped + "...";
    }
    at += bytes;
  }
  return std::string(text);
}

std::string StyleOf(Level level, bool ad_part) {
  if (level == Level::kUnknown) return "unknown";
  return ad_part ? "ad" : "user";
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
  InputNodes(const ModelInfo& info, Picture& picture) : info_(info), picture_(picture) {
    for (size_t i = 0; i < info.inputs.size(); ++i) {
      index_.emplace(info.inputs[i].name, static_cast<int>(i));
    }
  }

  // Nodes for the inputs among `names`, which one layer or step reads.
  std::vector<int> For(const std::vector<std::string>& names) {
    std::vector<int> nodes;
    std::vector<std::string> features;
    bool ad_part = false;
    for (const std::string& name : names) {
      const auto at = index_.find(name);
      if (at == index_.end()) continue;
      const engine::InputInfo& input = info_.inputs[at->second];
      if (input.feature < 0) {
        nodes.push_back(Dense(at->second));
        continue;
      }
      ad_part |= input.level == Level::kAd || input.level == Level::kUnknown;
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
                              .style = absl::StrCat("input ", ad_part ? "ad" : "user"),
                              .ad_part = ad_part});
    nodes.push_back(static_cast<int>(picture_.nodes.size()) - 1);
    return nodes;
  }

 private:
  int Dense(int index) {
    const auto known = dense_.find(index);
    if (known != dense_.end()) return known->second;
    const engine::InputInfo& input = info_.inputs[index];
    const bool ad_part = input.level == Level::kAd || input.level == Level::kUnknown;
    picture_.nodes.push_back(
        {.name = input.name,
         .type = absl::StrCat("input, ", std::string(engine::Name(input.dtype))),
         .shape = input.shape.ToString(),
         .tip = absl::StrCat("Input ", input.name, " ", input.shape.ToString(), ", level ",
                             std::string(engine::Name(input.level)), " (",
                             std::string(KnownFrom(input)), ")"),
         .style = absl::StrCat("input ", StyleOf(input.level, ad_part)),
         .ad_part = ad_part});
    return dense_[index] = static_cast<int>(picture_.nodes.size()) - 1;
  }

  const ModelInfo& info_;
  Picture& picture_;
  std::map<std::string, int> index_;
  std::map<int, int> dense_;
};

void AddEdge(int from, int to, Picture& picture) {
  for (const LayoutEdge& edge : picture.edges) {
    if (edge.from == from && edge.to == to) return;
  }
  picture.edges.push_back({from, to});
}

// Below the cut is what anything below the cut is read by: an edge never leads back.
void SinkReaders(Picture& picture) {
  for (const LayoutEdge& edge : picture.edges) {
    if (picture.nodes[edge.from].ad_part) picture.nodes[edge.to].ad_part = true;
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
  Picture picture{.label = "The graph as written"};
  InputNodes inputs(*all.info, picture);
  std::map<std::string, int> makers;  // By the name of a tensor, as the file goes on.
  std::vector<bool> of_user(all.layers.size(), false);
  for (const PlanStep& step : all.written.steps) {
    for (int layer : step.layers) of_user[layer] = of_user[layer] || step.user_part;
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
                      .style = StyleOf(about.level, !of_user[i]),
                      .ad_part = !of_user[i]};
    if (about.fate == Fate::kRewritten) absl::StrAppend(&drawn.style, " rewritten");
    if (about.fate == Fate::kRemoved) absl::StrAppend(&drawn.style, " removed");
    picture.nodes.push_back(std::move(drawn));
    for (int source : from) AddEdge(source, node, picture);
    for (const std::string& top : layer.tops) makers[top] = node;
  }
  SinkReaders(picture);
  return picture;
}

Picture DrawPlan(const Explanation& all, const PlanInfo& plan, const Profile* profile) {
  Picture picture{.label = "The steps that run"};
  InputNodes inputs(*all.info, picture);
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
        .style = absl::StrCat(StyleOf(step.level, !step.user_part), step.view ? " view" : ""),
        .ad_part = !step.user_part};
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
    for (int source : from) AddEdge(source, node, picture);
    for (int id : step.outputs) makers[id] = node;
  }
  SinkReaders(picture);
  return picture;
}

std::string Path(const std::vector<LayoutPoint>& points) {
  std::string path = absl::StrFormat("M%.1f %.1f", points[0].x, points[0].y);
  for (size_t i = 1; i < points.size(); ++i) {
    const LayoutPoint &a = points[i - 1], &b = points[i];
    const double middle = (a.y + b.y) / 2;
    absl::StrAppendFormat(&path, "C%.1f %.1f %.1f %.1f %.1f %.1f", a.x, middle, b.x, middle, b.x,
                          b.y);
  }
  return path;
}

void AppendNode(const PictureNode& node, const LayoutPoint& at, const LayoutOptions& options,
                std::string& svg) {
  const double middle = at.x + options.node_width / 2;
  if (!node.link.empty()) absl::StrAppend(&svg, "<a href=\"#", node.link, "\">");
  absl::StrAppend(&svg, "<g class=\"node ", node.style, "\"><title>", EscapeHtml(node.tip),
                  "</title>");
  absl::StrAppendFormat(
      &svg, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.0f\" height=\"%.0f\" rx=\"%d\"/>", at.x, at.y,
      options.node_width, options.node_height, node.link.empty() ? 20 : 6);
  if (node.share > 0) {
    absl::StrAppendFormat(
        &svg, "<rect class=\"share\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"4\"/>", at.x + 4,
        at.y + options.node_height - 6, std::min(1.0, node.share) * (options.node_width - 8));
  }
  absl::StrAppendFormat(&svg, "<text class=\"name\" x=\"%.1f\" y=\"%.1f\">%s</text>", middle,
                        at.y + 17, EscapeHtml(Clip(node.name, kNameColumns)));
  absl::StrAppendFormat(&svg, "<text class=\"type\" x=\"%.1f\" y=\"%.1f\">%s</text></g>", middle,
                        at.y + 32, EscapeHtml(Clip(node.type, kTypeColumns)));
  if (!node.link.empty()) absl::StrAppend(&svg, "</a>");
  absl::StrAppend(&svg, "\n");
}

std::string Draw(const Picture& picture) {
  std::vector<bool> below;
  for (const PictureNode& node : picture.nodes) below.push_back(node.ad_part);
  const LayoutOptions options;
  const GraphLayout layout = LayOutGraph(below, picture.edges, options);
  std::string svg = absl::StrFormat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" viewBox=\"0 0 %.0f "
      "%.0f\" role=\"img\" aria-label=\"%s\">\n",
      layout.width, layout.height, layout.width, layout.height, EscapeHtml(picture.label));
  if (layout.cut_y >= 0) {
    absl::StrAppendFormat(&svg,
                          "<line class=\"cut\" x1=\"0\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n",
                          layout.cut_y, layout.width, layout.cut_y);
  }
  for (size_t e = 0; e < picture.edges.size(); ++e) {
    const LayoutEdge& edge = picture.edges[e];
    const bool crosses = below[edge.from] != below[edge.to];
    absl::StrAppend(&svg, "<path class=\"edge", crosses ? " crossing" : "", "\" d=\"",
                    Path(layout.edges[e]), "\"/>\n");
  }
  for (size_t i = 0; i < picture.nodes.size(); ++i) {
    AppendNode(picture.nodes[i], layout.nodes[i], options, svg);
  }
  // Above the edges: the shape of what a node makes, where its edges begin.
  for (size_t i = 0; i < picture.nodes.size(); ++i) {
    if (picture.nodes[i].shape.empty()) continue;
    absl::StrAppendFormat(&svg, "<text class=\"shape\" x=\"%.1f\" y=\"%.1f\">%s</text>\n",
                          layout.nodes[i].x + options.node_width / 2,
                          layout.nodes[i].y + options.node_height + 13,
                          EscapeHtml(Clip(picture.nodes[i].shape, kShapeColumns)));
  }
  if (layout.cut_y >= 0) {
    absl::StrAppendFormat(
        &svg,
        "<text class=\"part\" x=\"8\" y=\"%.1f\">user part: once per request</text>"
        "<text class=\"part\" x=\"8\" y=\"%.1f\">ad part: for every ad</text>\n",
        layout.cut_y - 8, layout.cut_y + 18);
  }
  absl::StrAppend(&svg, "</svg>\n");
  return svg;
}

}  // namespace

std::string EscapeHtml(absl::string_view text) {
  std::string escaped;
  for (size_t at = 0; at < text.size();) {
    const size_t bytes = CharacterBytes(text, at);
    switch (text[at]) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      case '\'':
        escaped += "&#39;";
        break;
      default:
        absl::StrAppend(&escaped, bytes == 0 ? "\xef\xbf\xbd" : text.substr(at, bytes));
    }
    at += std::max<size_t>(1, bytes);
  }
  return escaped;
}

std::string WrittenPicture(const Explanation& all) { return Draw(DrawWritten(all)); }

std::string PlanPicture(const Explanation& all, const PlanInfo& plan, const Profile* profile) {
  return Draw(DrawPlan(all, plan, profile));
}

}  // namespace ulfd::tools
