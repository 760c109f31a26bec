// Where the nodes and edges of a graph are drawn.
// SPDX-License-Identifier: Apache-2.0
#include "tools/explain/graph_layout.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <numeric>
#include <utility>

namespace ulfd::tools {
namespace {

constexpr int kOrderSweeps = 24, kPlaceSweeps = 30;
constexpr double kEdgeWeight = 4;   // Bends of long edges are worse than slanted short ones.
constexpr double kPortShare = 0.8;  // Of a node's width, for the ends of its edges.

// A node, or the place where a long edge passes a rank.
struct Item {
  int node = -1;  // -1: an edge passes.
  int rank = 0;
  double x = 0;  // Centre.
  std::vector<int> up, down;
};

class Sugiyama {
 public:
  Sugiyama(const std::vector<bool>& below_cut, const std::vector<LayoutEdge>& edges,
           const LayoutOptions& options)
      : below_(below_cut), edges_(edges), options_(options) {}

  GraphLayout Run() {
    if (below_.empty()) return {};
    Rank();
    SplitWideRanks();
    AddPasses();
    Order();
    Place();
    return Finish();
  }

 private:
  int size() const { return static_cast<int>(below_.size()); }

  void Rank() {
    rank_.assign(size(), 0);
    for (const bool below : {false, true}) {
      const int first = below ? cut_rank_ : 0;
      for (int i = 0; i < size(); ++i) {
        if (below_[i] == below) rank_[i] = first;
      }
      std::vector<std::vector<int>> in(size());
      for (const LayoutEdge& edge : edges_) in[edge.to].push_back(edge.from);
      for (int i = 0; i < size(); ++i) {
        if (below_[i] != below) continue;
        for (int from : in[i]) rank_[i] = std::max(rank_[i], rank_[from] + 1);
      }
      PullSources(below);
      if (below) continue;
      for (int i = 0; i < size(); ++i) {
        if (!below_[i]) cut_rank_ = std::max(cut_rank_, rank_[i] + 1);
      }
    }
  }

  // What needs nothing stands just above its first reader.
  void PullSources(bool below) {
    std::vector<int> first_reader(size(), -1);
    std::vector<bool> source(size(), true);
    for (const LayoutEdge& edge : edges_) {
      source[edge.to] = false;
      // A reader across the cut sets no limit: above it, everything is above.
      if (below_[edge.to] != below) continue;
      int& reader = first_reader[edge.from];
      reader = reader < 0 ? rank_[edge.to] : std::min(reader, rank_[edge.to]);
    }
    for (int i = 0; i < size(); ++i) {
      if (source[i] && below_[i] == below && first_reader[i] > 0) rank_[i] = first_reader[i] - 1;
    }
  }

  void SplitWideRanks() {
    const int ranks = 1 + *std::max_element(rank_.begin(), rank_.end());
    std::vector<std::vector<int>> members(ranks);
    for (int i = 0; i < size(); ++i) members[rank_[i]].push_back(i);
    int next = 0, cut = -1;
    for (int r = 0; r < ranks; ++r) {
      if (r == cut_rank_) cut = next;
      const int count = static_cast<int>(members[r].size());
      const int rows = std::max(1, (count + options_.nodes_per_rank - 1) / options_.nodes_per_rank);
      const int per_row = (count + rows - 1) / std::max(1, rows);
      for (int k = 0; k < count; ++k) rank_[members[r][k]] = next + k / per_row;
      if (count > 0) next += rows;
    }
    cut_rank_ = cut < 0 ? next : cut;
    ranks_ = next;
  }

  // Long edges pass the ranks between, those of one node together.
  void AddPasses() {
    for (int i = 0; i < size(); ++i) items_.push_back({.node = i, .rank = rank_[i]});
    std::map<std::pair<int, int>, int> passes;
    std::map<std::pair<int, int>, bool> linked;
    for (const LayoutEdge& edge : edges_) {
      std::vector<int>& path = paths_.emplace_back(1, edge.from);
      for (int r = rank_[edge.from] + 1; r < rank_[edge.to]; ++r) {
        const auto [it, added] =
            passes.try_emplace({edge.from, r}, static_cast<int>(items_.size()));
        if (added) items_.push_back({.rank = r});
        path.push_back(it->second);
      }
      path.push_back(edge.to);
      for (size_t k = 0; k + 1 < path.size(); ++k) {
        if (!linked.emplace(std::pair(path[k], path[k + 1]), true).second) continue;
        items_[path[k]].down.push_back(path[k + 1]);
        items_[path[k + 1]].up.push_back(path[k]);
      }
    }
    rows_.resize(ranks_);
    for (size_t i = 0; i < items_.size(); ++i) {
      rows_[items_[i].rank].push_back(static_cast<int>(i));
    }
  }

  std::vector<int> Positions() const {
    std::vector<int> position(items_.size());
    for (const std::vector<int>& row : rows_) {
      for (size_t k = 0; k < row.size(); ++k) position[row[k]] = static_cast<int>(k);
    }
    return position;
  }

  int64_t Crossings() const {
    const std::vector<int> position = Positions();
    int64_t crossings = 0;
    for (const std::vector<int>& row : rows_) {
      std::vector<int> ends;  // Of the edges down, ordered by where they begin.
      for (int i : row) {
        std::vector<int> down;
        for (int to : items_[i].down) down.push_back(position[to]);
        std::sort(down.begin(), down.end());
        ends.insert(ends.end(), down.begin(), down.end());
      }
      for (size_t a = 0; a < ends.size(); ++a) {
        for (size_t b = a + 1; b < ends.size(); ++b) crossings += ends[a] > ends[b] ? 1 : 0;
      }
    }
    return crossings;
  }

  void Order() {
    std::vector<std::vector<int>> best = rows_;
    int64_t fewest = Crossings();
    for (int sweep = 0; sweep < kOrderSweeps && fewest > 0; ++sweep) {
      const bool down = sweep % 2 == 0;
      for (int k = 1; k < ranks_; ++k) SortRow(rows_[down ? k : ranks_ - 1 - k], down);
      const int64_t crossings = Crossings();
      if (crossings < fewest) {
        fewest = crossings;
        best = rows_;
      }
    }
    rows_ = best;
  }

  // By the mean position of the neighbours; what has none keeps its place.
  void SortRow(std::vector<int>& row, bool down) const {
    const std::vector<int> position = Positions();
    std::vector<std::pair<double, int>> keys;
    for (size_t k = 0; k < row.size(); ++k) {
      const std::vector<int>& neighbours = down ? items_[row[k]].up : items_[row[k]].down;
      double sum = 0;
      for (int n : neighbours) sum += position[n];
      keys.emplace_back(neighbours.empty() ? static_cast<double>(k)
                                           : sum / static_cast<double>(neighbours.size()),
                        row[k]);
    }
    std::stable_sort(keys.begin(), keys.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    for (size_t k = 0; k < row.size(); ++k) row[k] = keys[k].second;
  }

  // Distance of the centres of two neighbours in a rank.
  double Separation(int a, int b) const {
    const double node = options_.node_width + options_.column_gap;
    const double pass = options_.edge_gap;
    return ((items_[a].node >= 0 ? node : pass) + (items_[b].node >= 0 ? node : pass)) / 2;
  }

  void Place() {
    for (const std::vector<int>& row : rows_) {
      for (size_t k = 1; k < row.size(); ++k) {
        items_[row[k]].x = items_[row[k - 1]].x + Separation(row[k - 1], row[k]);
      }
    }
    for (int sweep = 0; sweep < kPlaceSweeps; ++sweep) {
      const bool down = sweep % 2 == 0, both = sweep + 4 >= kPlaceSweeps;
      for (int k = 0; k < ranks_; ++k) {
        PlaceRow(rows_[down ? k : ranks_ - 1 - k], down || both, !down || both);
      }
    }
  }

  // Least squares to the neighbours' centres with the gaps kept: pool adjacent violators.
  void PlaceRow(const std::vector<int>& row, bool use_up, bool use_down) {
    struct Block {
      double weight, sum;
      size_t count;
    };
    std::vector<Block> blocks;
    std::vector<double> shift(row.size(), 0.0);
    for (size_t k = 0; k < row.size(); ++k) {
      const Item& item = items_[row[k]];
      if (k > 0) shift[k] = shift[k - 1] + Separation(row[k - 1], row[k]);
      double weight = 0, sum = 0;
      const auto add = [&](const std::vector<int>& neighbours) {
        for (int n : neighbours) {
          const bool straight = item.node < 0 || items_[n].node < 0;
          const double w = straight ? kEdgeWeight : 1;
          weight += w;
          sum += w * items_[n].x;
        }
      };
      if (use_up) add(item.up);
      if (use_down) add(item.down);
      if (weight == 0) {
        weight = 0.01;  // Stays about where it is.
        sum = weight * item.x;
      }
      blocks.push_back({weight, sum - weight * shift[k], 1});
      while (blocks.size() > 1) {
        Block& left = blocks[blocks.size() - 2];
        const Block& right = blocks.back();
        if (left.sum / left.weight <= right.sum / right.weight) break;
        left = {left.weight + right.weight, left.sum + right.sum, left.count + right.count};
        blocks.pop_back();
      }
    }
    size_t k = 0;
    for (const Block& block : blocks) {
      for (size_t end = k + block.count; k < end; ++k) {
        items_[row[k]].x = block.sum / block.weight + shift[k];
      }
    }
  }

  GraphLayout Finish() {
    double left = items_[0].x, right = items_[0].x;
    for (const Item& item : items_) {
      left = std::min(left, item.x);
      right = std::max(right, item.x);
    }
    const double margin = options_.node_width / 2 + options_.column_gap;
    for (Item& item : items_) item.x += margin - left;
    GraphLayout layout{.width = right - left + 2 * margin};
    std::vector<double> top(ranks_);
    double y = options_.column_gap;
    for (int r = 0; r < ranks_; ++r) {
      if (r > 0) y += r == cut_rank_ ? options_.cut_gap : options_.rank_gap;
      if (r > 0 && r == cut_rank_) layout.cut_y = y - options_.cut_gap / 2;
      top[r] = y;
      y += options_.node_height;
    }
    layout.height = y + options_.rank_gap;
    for (int i = 0; i < size(); ++i) {
      layout.nodes.push_back({items_[i].x - options_.node_width / 2, top[rank_[i]]});
    }
    const std::vector<double> ends = Ports();
    for (size_t e = 0; e < edges_.size(); ++e) {
      const std::vector<int>& path = paths_[e];
      std::vector<LayoutPoint>& points = layout.edges.emplace_back();
      points.push_back({items_[path.front()].x, top[rank_[edges_[e].from]] + options_.node_height});
      for (size_t k = 1; k + 1 < path.size(); ++k) {
        const Item& item = items_[path[k]];
        points.push_back({item.x, top[item.rank]});
        points.push_back({item.x, top[item.rank] + options_.node_height});
      }
      points.push_back({ends[e], top[rank_[edges_[e].to]]});
    }
    return layout;
  }

  // Where each edge ends on the upper side of its node: side by side, in the order in which they
  // come.
  std::vector<double> Ports() const {
    std::vector<std::vector<size_t>> in(size());
    for (size_t e = 0; e < edges_.size(); ++e) in[edges_[e].to].push_back(e);
    std::vector<double> ends(edges_.size());
    const auto before = [&](size_t e) { return items_[paths_[e][paths_[e].size() - 2]].x; };
    for (int i = 0; i < size(); ++i) {
      std::stable_sort(in[i].begin(), in[i].end(),
                       [&](size_t a, size_t b) { return before(a) < before(b); });
      const double count = static_cast<double>(in[i].size());
      for (size_t k = 0; k < in[i].size(); ++k) {
        const double place = (static_cast<double>(k) + 0.5) / count - 0.5;
        ends[in[i][k]] = items_[i].x + place * options_.node_width * kPortShare;
      }
    }
    return ends;
  }

  const std::vector<bool>& below_;
  const std::vector<LayoutEdge>& edges_;
  const LayoutOptions& options_;
  std::vector<int> rank_;  // Per node.
  int ranks_ = 0;
  int cut_rank_ = 0;  // The first rank below the cut.
  std::vector<Item> items_;
  std::vector<std::vector<int>> paths_;  // Per edge: items.
  std::vector<std::vector<int>> rows_;   // Per rank: items from left to right.
};

}  // namespace

GraphLayout LayOutGraph(const std::vector<bool>& below_cut, const std::vector<LayoutEdge>& edges,
                        const LayoutOptions& options) {
  return Sugiyama(below_cut, edges, options).Run();
}

}  // namespace ulfd::tools
