// The rewrite that lets the rows of an export's example be those of a request (example_rows.h).
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TOOLS_CONVERT_ONNX_ROWS_ROWS_FOLLOWER_H_
#define ULFD_TOOLS_CONVERT_ONNX_ROWS_ROWS_FOLLOWER_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "onnx/onnx_pb.h"
#include "tools/convert/onnx/model/functions.h"
#include "tools/convert/onnx/proof/interpreter.h"
#include "tools/convert/onnx/rewrites/rewriter.h"
#include "tools/convert/onnx/rows/row_values.h"

namespace ulfd::convert {

// An axis of a value along which it has rows.
struct RowsAxis {
  std::string name;
  size_t axis = 0;
  int64_t each = 1;  // Entries per row.
};

// Runs the example's graph beside the one that it writes, with more rows, node by node.
class RowsFollower : public Rewriter {
 public:
  // choices: of rows that may be either of several sizes of 1, one after the other, whether they
  // are the last of them; the first, where it does not say.  range: of kRanges, for inputs.
  RowsFollower(onnx::GraphProto& graph, int64_t opset, int64_t rows,
               const std::vector<std::string>& inputs, bool certain, std::vector<bool> choices,
               size_t range, std::chrono::steady_clock::time_point deadline);

  // After Run: whether what was guessed fits, and every row has the score that it had alone.
  bool Fits() const override;
  // What the example decides: the graph wants these taken before it is followed.
  const Branches& branches() const { return branches_; }
  // Whether made-up values are none that the model takes, and others may be.
  bool misses() const { return misses_ && range_ + 1 < std::size(kRanges); }
  // The choices that were made up to the first that did not fit.
  const std::vector<bool>& choices() const { return choices_; }

 private:
  using Node = onnx::NodeProto;
  using Array = reference::Array;
  using Sizes = reference::Sizes;

  // With the example's rows, and with more.
  struct Value {
    Array few, many;
    bool computed = false;  // From what has rows.
  };

  bool Replace(const Node& node) override;
  const Value* Find(const std::string& name);
  std::optional<int64_t> DecisionOf(const Node& node);
  bool Compute(const Node& node, Array Value::*side);
  std::optional<RowsAxis> RowsOf(const std::string& name);

  bool Follow(const Node& node);
  bool Resize(const Node& node);
  bool FollowSizes(const Node& node);
  bool Choose();
  bool HasSame(const Value& value, int64_t row) const;
  int64_t BehindRows(const RowsAxis& rows);
  bool IsAcross(const std::string& name);
  bool MayCountRows(const Node& node, const Array& constant) const;
  bool CountsRows(const Node& node);
  size_t PlaceOfRows(const RowsAxis& rows, const Sizes& from, const Sizes& to, const Sizes& given);
  bool FollowOthers(const Node& node, bool aligned);
  bool FollowScattered(const Node& node);
  bool FollowStates(const Node& node);
  bool FollowCount(const Node& node);
  bool FollowParts(const Node& node);
  bool FollowEach(const Node& node);
  bool FollowPart(const Node& node);
  bool FollowPlaces(const Node& node);
  std::optional<std::string> PlacesOfRows(const Node& node, const std::string& input,
                                          const RowsAxis& like);
  bool KeepRows(const Node& node);
  // The input with as many rows along the axis as `like` has; one, if that is enough.
  std::optional<std::string> WithRows(const Node& node, const std::string& input, size_t axis,
                                      const RowsAxis& like, bool one_is_enough);
  std::string Continue(const Node& node, const Progression& found, const Sizes& dims, size_t axis,
                       const RowsAxis& like);
  // Along the axis, and of these the rows alone.
  std::string SizeOf(const Node& node, const RowsAxis& like);
  std::string RowCount(const Node& node, const RowsAxis& like);
  std::string Around(const Node& node, const Sizes& sizes, size_t at, const std::string& middle);

  const int64_t rows_, more_;
  // Of more rows, the example's first: an only row is between others, for a place that is the first
  // or the last to be another's.
  const int64_t first_;
  const size_t range_;
  const bool certain_;
  std::vector<bool> choices_;
  const google::protobuf::RepeatedPtrField<onnx::ValueInfoProto> outputs_;
  reference::RunOptions options_;
  std::map<std::string, Value> values_;
  std::map<std::string, const Node*> makers_;
  Branches branches_;
  int64_t elements_ = 0;  // Of all values.
  size_t chosen_ = 0;
  bool guessed_, failed_ = false, misses_ = false;
};

}  // namespace ulfd::convert

#endif  // ULFD_TOOLS_CONVERT_ONNX_ROWS_ROWS_FOLLOWER_H_
