// Embedding tables of an ONNX model: which Gathers look ids up, and what else is computed from ids.
//
// A graph input of ids that Gather looks up becomes a sparse feature (NAME.ids, NAME.values,
// NAME.segments) and the table a file of the model.  What elementwise operators compute from ids
// (masks such as ids != 0) becomes a table of its own with one column.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TOOLS_CONVERT_ONNX_FEATURES_H_
#define ULFD_TOOLS_CONVERT_ONNX_FEATURES_H_

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "engine/tensor/tensor.h"
#include "onnx/onnx_pb.h"
#include "tools/convert/onnx_graph.h"
#include "tools/convert/report.h"

namespace ulfd::convert {

// An input of the graph.
struct OnnxInput {
  std::string name;
  engine::Level level = engine::Level::kAd;
  Dims dims;  // The first is users or ads.
  int element_type = 0;
};

// Finds everything that is computed from ids before the other nodes are converted.
class OnnxFeatures {
 public:
  // `inputs` by name.
  OnnxFeatures(const onnx::GraphProto& proto, const std::map<std::string, OnnxInput>& inputs,
               OnnxGraph& graph)
      : proto_(proto), inputs_(inputs), graph_(graph) {}

  // Walks the nodes in order.  Folds constants, too (into the graph).
  void Scan(Problems& problems);
  // Adds the features, tables and embedding layers, and the values that they are in the graph.
  absl::Status Emit(Report& report);

  // Whether Scan took care of the node.
  bool Handles(const onnx::NodeProto* node) const { return handled_.contains(node); }
  // Whether the input became a feature.
  bool IsFeature(const std::string& input) const { return id_inputs_.contains(input); }

 private:
  // A tensor of ids, or one computed from each id alone.
  struct Ids {
    std::string input;
    int64_t first = 0, count = 1;  // Columns of the input.
    Dims dims;                     // As ONNX sees it; the first are the rows.
    bool is_bool = false;
    // Value per id; null: the id itself.
    std::shared_ptr<const std::vector<double>> function;
  };
  // One look-up to emit.
  struct Lookup {
    const onnx::NodeProto* node = nullptr;
    std::string output, feature, table;
    engine::Level level = engine::Level::kAd;
    int64_t count = 1, width = 1;
    Dims dims;         // Of the output.
    float offset = 0;  // Added to what the table gives.
  };
  // Look-ups of one embedding layer.
  struct Group {
    engine::Level level = engine::Level::kAd;
    std::vector<Lookup> lookups;
    std::map<std::string, std::string> tables;  // By feature: a layer reads one table per feature.
  };

  void FindIdInputs();
  bool TraceToInput(const std::string& name, std::string* input) const;
  void ScanNode(const onnx::NodeProto& node, Problems& problems);
  void FoldConstant(const onnx::NodeProto& node);
  absl::Status ScanIds(const onnx::NodeProto& node, const Ids& ids);
  absl::StatusOr<Ids> Apply(const onnx::NodeProto& node, const Ids& ids) const;
  absl::StatusOr<Ids> ApplyFunction(const onnx::NodeProto& node, const Ids& ids) const;
  absl::StatusOr<Ids> Reshaped(const onnx::NodeProto& node, Ids ids) const;
  absl::StatusOr<Ids> Columns(const onnx::NodeProto& node, Ids ids) const;
  absl::Status LookUp(const onnx::NodeProto& node, const Ids& ids);
  absl::Status Materialize(const std::string& name, const Ids& ids);
  absl::Status EmitGroup(const Group& group, int index, Report& report);
  absl::Status EmitValue(const Lookup& lookup, const std::string& rows);
  void Describe(Report& report) const;
  std::string FeatureOf(const Ids& ids) const;
  std::string AddTable(const std::string& wanted, TableSource source);

  const onnx::GraphProto& proto_;
  const std::map<std::string, OnnxInput>& inputs_;
  OnnxGraph& graph_;
  std::map<std::string, int64_t> id_inputs_;  // Input -> most rows of a table that it looks up.
  std::map<std::string, Ids> ids_;            // By tensor.
  std::set<std::string> materialized_;
  std::set<const onnx::NodeProto*> handled_;
  std::map<std::string, std::string> table_of_;  // Initializer -> table.
  std::map<std::string, TableSource> tables_;
  std::vector<Lookup> lookups_;
};

}  // namespace ulfd::convert

#endif  // ULFD_TOOLS_CONVERT_ONNX_FEATURES_H_
