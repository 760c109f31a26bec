// Embedding tables of an ONNX model: which Gathers look ids up, and what else is computed from ids.
//
// Columns (elements of a row) of a graph input that Gather looks up become sparse features
// (NAME.ids, NAME.values, NAME.segments) and the tables files of the model.  What elementwise
// operators compute from ids (masks such as ids != 0) becomes a table of its own with one column.
// Columns of such an input that are used as numbers become dense inputs, one per run of neighbours.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TOOLS_CONVERT_ONNX_FEATURES_FEATURES_H_
#define ULFD_TOOLS_CONVERT_ONNX_FEATURES_FEATURES_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "engine/tensor/tensor.h"
#include "onnx/onnx_pb.h"
#include "tools/convert/onnx/features/ids.h"
#include "tools/convert/onnx/model/graph.h"
#include "tools/convert/onnx/proof/proof.h"
#include "tools/convert/report.h"

namespace ulfd::convert {

// Whether the operator works element by element, so that it makes a value of each id.
bool IsIdFunction(const std::string& op);

// Finds everything that is computed from ids before the other nodes are converted.
class OnnxFeatures {
 public:
  // `inputs` by name.
  OnnxFeatures(const onnx::GraphProto& proto, const std::map<std::string, OnnxInput>& inputs,
               OnnxGraph& graph)
      : proto_(proto), inputs_(inputs), graph_(graph) {}

  // Walks the nodes in order.  Folds constants, too (into the graph).
  absl::Status Scan(Problems& problems);
  // Adds the features, tables and embedding layers, and the values that they are in the graph.
  absl::Status Emit(Report& report);

  // Whether Scan took care of the node.
  bool Handles(const onnx::NodeProto* node) const { return handled_.contains(node); }
  // Whether the input is taken column by column.
  bool IsFeature(const std::string& input) const {
    return ids_of_.contains(input) || !inputs_.at(input).schema.empty();
  }
  // What the features and dense inputs that Emit added have, for the proof.
  const std::vector<Binding>& bindings() const { return bindings_; }
  // Columns of the input that are ids, with those that all of their tables have.
  std::map<int64_t, IdRange> IdRanges(const std::string& input) const;

 private:
  // Ids of a column that the tables which look it up have rows for.
  struct TableRows {
    IdRange all;       // That every one has.
    int64_t most = 0;  // That one has: the ids are below.
  };
  // One look-up to emit.
  struct Lookup {
    const onnx::NodeProto* node = nullptr;
    std::string output, feature, table;
    engine::Level level = engine::Level::kAd;
    int64_t count = 1, width = 1;
    Dims dims;         // Of the output.
    float offset = 0;  // Added to what the table gives.
    double most = 0;   // The magnitude of integers that are computed from ids; 0: not known.
  };
  // Look-ups side by side, one per formula.
  struct Join {
    std::string output;
    std::vector<std::string> parts;
    Dims dims;
  };
  // Columns of an input that are used as numbers.
  struct Numbers {
    std::string output;
    Ids ids;
  };
  using Evaluated = std::map<const onnx::NodeProto*, Constant>;
  // Neighbours among them: a dense input.
  struct Run {
    std::string name;
    int64_t first = 0, count = 0;
  };
  // Look-ups of one embedding layer.
  struct Group {
    engine::Level level = engine::Level::kAd;
    std::vector<Lookup> lookups;
    std::map<std::string, std::string> tables;  // By feature: a layer reads one table per feature.
  };

  absl::Status FindIdColumns();
  void FindIdColumnsOf(const onnx::NodeProto& node);
  void FindIds(const Ids& ids, const Constant& table);
  void StartFrom(const OnnxInput& input);
  const Constant* Known(const std::string& name) const;
  void ScanNode(const onnx::NodeProto& node, Problems& problems);
  bool FoldConstant(const onnx::NodeProto& node, bool searching);
  absl::Status ScanIds(const onnx::NodeProto& node, const Ids& ids);
  std::vector<IdArgument> ArgumentsOf(const onnx::NodeProto& node) const;
  absl::StatusOr<std::vector<Ids>> Rearrange(const onnx::NodeProto& node);
  absl::Status CheckSchema() const;
  std::vector<int64_t> RowsPerColumn(const Ids& ids, const Constant& table) const;
  std::vector<Ids> OnePerFeature(const Ids& ids) const;
  engine::Level LevelOf(const Ids& ids) const;
  std::string NameOf(const OnnxInput& input, const std::vector<int64_t>& columns) const;
  absl::Status LookUpPart(const onnx::NodeProto& node, const Ids& ids, int64_t rows,
                          const std::string& output, Dims dims);
  absl::StatusOr<std::string> TableOf(const std::string& name, const Ids& ids, int64_t rows);
  absl::Status MaterializePart(const std::string& output, const Ids& ids, Dims dims);
  absl::Status EmitJoin(const Join& join);
  absl::StatusOr<Ids> ApplyFunction(const onnx::NodeProto& node, bool searching) const;
  absl::StatusOr<Constant> Evaluate(const Ids& ids, const Constant& of, Evaluated& known) const;
  absl::StatusOr<std::vector<double>> ValuesOf(const Ids& ids, IdRange of) const;
  absl::StatusOr<IdRange> RangeInto(const Ids& ids, int64_t rows) const;
  bool TakesAllBelow(const Ids& ids) const;
  absl::Status KeepBelow(const Ids& ids, const std::string& table);
  bool CouldBeIds(const Ids& ids) const;
  bool AreIds(const Ids& ids) const;
  int64_t RowsOf(const Ids& ids) const;
  absl::Status LookUp(const onnx::NodeProto& node, const Ids& ids);
  absl::Status Materialize(const std::string& name, const Ids& ids);
  absl::Status EmitGroup(const Group& group, int index, Report& report);
  absl::Status EmitValue(const Lookup& lookup, const std::string& rows);
  absl::Status EmitInputs(const std::string& input, Report& report);
  absl::StatusOr<std::string> EmitColumns(const Numbers& numbers, size_t i, size_t end,
                                          const Run& run);
  absl::StatusOr<std::string> EmitFormula(const Numbers& numbers, const IdColumn& column,
                                          const std::string& part);
  absl::Status EmitNumbers(const Numbers& numbers);
  void Describe(Report& report) const;
  std::string FeatureOf(const Ids& ids);
  std::string FreeName(const std::string& wanted) const;
  std::string AddTable(const std::string& wanted, TableSource source);

  const onnx::GraphProto& proto_;
  const std::map<std::string, OnnxInput>& inputs_;
  OnnxGraph& graph_;
  std::map<std::string, std::map<int64_t, TableRows>> ids_of_;  // Input -> columns that are ids.
  std::map<std::string, Ids> ids_;                              // By tensor.
  std::map<std::string, Constant> shapes_;  // While columns are searched: what shapes give.
  int64_t columns_made_ = 0;
  std::set<std::string> materialized_;
  std::set<const onnx::NodeProto*> handled_;
  std::map<std::string, std::string> table_of_;  // Initializer -> table.
  std::map<std::string, TableSource> tables_;
  std::map<std::pair<std::string, std::vector<int64_t>>, std::string> features_;
  std::vector<Binding> bindings_;
  std::vector<Lookup> lookups_;
  std::vector<Join> joins_;
  std::vector<Numbers> numbers_;
  std::map<std::string, std::vector<Run>> runs_;  // By input.
};

// Gives the schema at `path` to the one input whose rows have as many columns.  INVALID_ARGUMENT
// for a schema that cannot be, or that fits no input or several.
absl::Status ApplySchema(const std::string& path, std::map<std::string, OnnxInput>& inputs);

}  // namespace ulfd::convert

#endif  // ULFD_TOOLS_CONVERT_ONNX_FEATURES_FEATURES_H_
