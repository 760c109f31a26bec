// Where the nodes and edges of a graph are drawn: top to bottom, in ranks, with a cut across.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TOOLS_EXPLAIN_GRAPH_LAYOUT_H_
#define ULFD_TOOLS_EXPLAIN_GRAPH_LAYOUT_H_

#include <vector>

namespace ulfd::tools {

struct LayoutEdge {
  int from = 0, to = 0;  // from < to.
};

struct LayoutOptions {
  double node_width = 172, node_height = 42;
  double column_gap = 16, edge_gap = 12;  // Beside nodes; beside edges that pass a rank.
  double rank_gap = 46, cut_gap = 96;
  int nodes_per_rank = 9;  // More become several ranks.
};

struct LayoutPoint {
  double x = 0, y = 0;
};

struct GraphLayout {
  double width = 0, height = 0;
  double cut_y = -1;                            // -1: everything is on one side.
  std::vector<LayoutPoint> nodes;               // Upper left corners.
  std::vector<std::vector<LayoutPoint>> edges;  // Points from the lower side of one node to the
                                                // upper side of the other.
};

// Nodes 0 .. below_cut.size() - 1, in an order in which edges lead forward; those marked in
// `below_cut` are drawn below the cut.  REQUIRES: no edge leads from below the cut to above it.
// The method is Sugiyama's: ranks by longest path, an order within ranks by barycentres, then
// places that are as straight above each other as the gaps allow.
GraphLayout LayOutGraph(const std::vector<bool>& below_cut, const std::vector<LayoutEdge>& edges,
                        const LayoutOptions& options);

}  // namespace ulfd::tools

#endif  // ULFD_TOOLS_EXPLAIN_GRAPH_LAYOUT_H_
