// What rewrites of an ONNX graph share: they go through its nodes and write some by others.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TOOLS_CONVERT_ONNX_REWRITES_REWRITER_H_
#define ULFD_TOOLS_CONVERT_ONNX_REWRITES_REWRITER_H_

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "onnx/onnx_pb.h"
#include "tools/convert/graph_builder.h"
#include "tools/convert/onnx/model/graph.h"

namespace ulfd::convert {

// Axes of Squeeze and Unsqueeze are an input from this operator set on.
inline constexpr int64_t kAxesAreInputs = 13;

class Rewriter {
 public:
  Rewriter(onnx::GraphProto& graph, int64_t opset);
  virtual ~Rewriter() = default;
  Rewriter(const Rewriter&) = delete;
  Rewriter& operator=(const Rewriter&) = delete;

  // Whether anything was rewritten; then nodes that nothing reads are dropped.
  bool Run();

 protected:
  // Adds what says the same as the node; false: nothing does, and what was added is dropped.
  virtual bool Replace(const onnx::NodeProto& node) = 0;
  // After all nodes: whether what was written takes their place.
  virtual bool Fits() const { return true; }
  // Whether the node stays beside what says the same.
  virtual bool Stays(const onnx::NodeProto& /*node*/) const { return false; }

  // Null: no constant of the file.
  const onnx::TensorProto* FindTensor(const std::string& name) const;
  std::optional<std::vector<int64_t>> Ints(const std::string& name) const;
  // The only integer of input i.
  std::optional<int64_t> Int(const onnx::NodeProto& node, int i) const;

  // The labels of every input of Einsum, then those of its output; empty: it does not say them, or
  // is another node.
  static std::vector<std::string> EinsumTerms(const onnx::NodeProto& node);

  std::string Fresh(const std::string& base);
  // New constants, named after `base`: vectors of integers and floats, and one number.
  std::string Integers(const std::string& base, absl::Span<const int64_t> values);
  std::string Floats(const std::string& base, absl::Span<const float> values);
  // Integers of another constant's shape.
  std::string IntegersLike(const onnx::TensorProto& like, absl::Span<const int64_t> values);
  std::string Number(const std::string& base, float value);

  // What stays and what was added, up to now.
  const google::protobuf::RepeatedPtrField<onnx::NodeProto>& written() const { return nodes_; }

  void Add(const onnx::NodeProto& node) { *nodes_.Add() = node; }
  // New nodes, named after `of`.
  onnx::NodeProto& Add(const onnx::NodeProto& of, const char* op,
                       const std::vector<std::string>& inputs, const std::string& output);
  // The same with an output of its own, which is returned.
  std::string Make(const onnx::NodeProto& of, const char* op,
                   const std::vector<std::string>& inputs);
  // Squeeze or Unsqueeze.
  void AddOnAxis(const onnx::NodeProto& of, const char* op, const std::string& input, int64_t axis,
                 const std::string& output);
  void AddSlice(const onnx::NodeProto& of, const std::string& input, int64_t axis, int64_t begin,
                int64_t end, const std::string& output);
  std::string Scalar(const onnx::NodeProto& of, int64_t value);
  // 0, 1, .. below the count [1].
  std::string NumbersBelow(const onnx::NodeProto& of, const std::string& count);
  // Values of equal shapes [rows, ...] as [rows * values, ...], those of a row side by side.
  void AddBesideRows(const onnx::NodeProto& of, const std::vector<std::string>& values,
                     const std::string& output);

  const int64_t opset_;
  GraphBuilder builder_{"types"};
  OnnxGraph types_;  // Of the values before anything is rewritten.

 private:
  onnx::TensorProto& NewTensor(const std::string& base, int type);

  onnx::GraphProto& graph_;
  std::map<std::string, const onnx::TensorProto*> constants_;
  std::set<std::string> names_;
  std::deque<onnx::TensorProto> added_;
  google::protobuf::RepeatedPtrField<onnx::NodeProto> nodes_;
  int count_ = 0;
};

}  // namespace ulfd::convert

#endif  // ULFD_TOOLS_CONVERT_ONNX_REWRITES_REWRITER_H_
