// What rewrites that look for patterns of several nodes share.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TOOLS_CONVERT_ONNX_REWRITES_PATTERN_READER_H_
#define ULFD_TOOLS_CONVERT_ONNX_REWRITES_PATTERN_READER_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "tools/convert/onnx/rewrites/rewriter.h"

namespace ulfd::convert {

class PatternReader : public Rewriter {
 protected:
  PatternReader(onnx::GraphProto& graph, int64_t opset);

  // Null: another operator, or with fewer inputs.
  const onnx::NodeProto* MakerOf(const std::string& name, absl::string_view op, int inputs) const;
  // Whether nothing else reads the value.
  bool HasOneReader(const std::string& name) const;
  // Whether it is this constant, which makes nothing larger that it meets.
  bool IsNumber(const std::string& name, float number) const;
  static bool IsNumber(const onnx::TensorProto& tensor, float number);
  // The number of such a constant.
  std::optional<float> NumberOf(const std::string& name) const;
  // The other input of a node that has two, one of which is the number; empty: it is not.
  std::string Beside(const onnx::NodeProto& node, float number) const;
  // x of -x, written in any way; empty: it is none.
  std::string Negated(const std::string& name) const;
  // x of 1 / x.
  std::string Inverted(const std::string& name) const;
  // The axes of a reduction; empty: all, or not known.
  std::vector<int64_t> AxesOf(const onnx::NodeProto& node) const;
  // The inputs are of one type, of which that of some may not be known.
  bool OfFloats(const onnx::NodeProto& node) const;

  // Adds an operator of these inputs in the place of the node.
  bool Be(const onnx::NodeProto& node, const char* op, const std::vector<std::string>& inputs);

 private:
  std::map<std::string, const onnx::NodeProto*> makers_;
  std::map<std::string, int> readers_;
};

}  // namespace ulfd::convert

#endif  // ULFD_TOOLS_CONVERT_ONNX_REWRITES_PATTERN_READER_H_
