// Tree ensembles of ai.onnx.ml as matrices.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TOOLS_CONVERT_ONNX_MODEL_TREES_H_
#define ULFD_TOOLS_CONVERT_ONNX_MODEL_TREES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "onnx/onnx_pb.h"

namespace ulfd::convert {

// All trees, each with as many decisions and leaves as the largest has.  A decision is
// value <= threshold; a leaf is reached if the sum of its path over the decisions that hold is what
// it wants.
struct Trees {
  int64_t trees = 0, decisions = 0, leaves = 0, outputs = 0;
  std::vector<int64_t> features;           // [trees * decisions]
  std::vector<float> thresholds, missing;  // The same; 1: holds of what is no number.
  std::vector<float> paths;    // [trees, decisions, leaves]; 1: it has to hold, -1: it must not.
  std::vector<float> wanted;   // [trees, 1, leaves]
  std::vector<float> weights;  // [trees * leaves, outputs]
};

// `kind`: "target" or "class", which the attributes of weights begin with.  nullopt, and why: trees
// that are none, decisions of other kinds, or more products per row than pay.
std::optional<Trees> ReadTrees(const onnx::NodeProto& node, const std::string& kind,
                               int64_t outputs, std::string& why);

}  // namespace ulfd::convert

#endif  // ULFD_TOOLS_CONVERT_ONNX_MODEL_TREES_H_
