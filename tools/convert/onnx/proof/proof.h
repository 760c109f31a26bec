// The proof of a conversion: the ONNX model, run by the interpreter, beside the written model, run
// by the engine, on made-up inputs.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TOOLS_CONVERT_ONNX_PROOF_PROOF_H_
#define ULFD_TOOLS_CONVERT_ONNX_PROOF_PROOF_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/runtime/model.h"
#include "engine/tensor/tensor.h"
#include "tools/convert/onnx/model/onnx_model.h"

namespace ulfd::convert {

// Ids that all tables of a column have a row for: from `first` (not above 0) to before `end`.
struct IdRange {
  int64_t first = 0, end = 0;
  bool all_below = false;  // Ids below `first` are ids, too.
};

// An input of the ONNX model.
struct SourceInput {
  std::string name;
  int type = 0;  // onnx::TensorProto::DataType
  engine::Level level = engine::Level::kAd;
  std::string rows;                // The name of its leading dimension; empty: it is 1.
  std::vector<int64_t> row_shape;  // Unit: elements, of one row.
  // Its integers are of a magnitude below this; 0: of any.
  int64_t integers_below = 0;
  // They tell places among so many steps; 0: they do not.
  int64_t places = 0;
  // Elements of a row (flattened) that are ids.
  std::map<int64_t, IdRange> ids;
  // Elements of a row that are the user's: the same in all rows.
  std::set<int64_t> user_columns;
};

// An input or sparse feature of the converted model: which elements of a row of an ONNX input are
// its own.
struct Binding {
  std::string input, name;
  engine::Level level = engine::Level::kAd;
  bool sparse = false;
  std::vector<int64_t> columns;  // Empty: all of them, in order.
};

struct Translation {
  std::vector<SourceInput> inputs;
  std::vector<Binding> bindings;
};

// Runs both on inputs of several seeds with 1, 3 and more ads, users' inputs given once, and
// compares every output: within 1e-5 of max(1, |value|), and what single precision costs this model
// beyond that.  A line for the report.  FAILED_PRECONDITION names the output, the largest
// difference and, where it can be told, the first node whose value differs; UNIMPLEMENTED,
// INVALID_ARGUMENT or RESOURCE_EXHAUSTED why nothing was proved.  Takes a minute and 4 GiB at most,
// beside the model.
absl::StatusOr<std::string> Prove(const OnnxModel& model, const Translation& translation,
                                  const engine::Model& converted);

}  // namespace ulfd::convert

#endif  // ULFD_TOOLS_CONVERT_ONNX_PROOF_PROOF_H_
