// What writes a composite operator by others.  Each family of composites is a table in a file of
// its own: attention, quantised, scikit_learn.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TOOLS_CONVERT_ONNX_REWRITES_COMPOSITE_WRITER_H_
#define ULFD_TOOLS_CONVERT_ONNX_REWRITES_COMPOSITE_WRITER_H_

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "onnx/onnx_pb.h"
#include "tools/convert/onnx/rewrites/rewriter.h"

namespace ulfd::convert {

class CompositeWriter : public Rewriter {
 public:
  CompositeWriter(onnx::GraphProto& graph, int64_t opset);

  using Rewriter::Add;
  using Rewriter::AddOnAxis;
  using Rewriter::AddSlice;
  using Rewriter::FindTensor;
  using Rewriter::Floats;
  using Rewriter::Fresh;
  using Rewriter::Integers;
  using Rewriter::Ints;
  using Rewriter::Make;
  using Rewriter::Number;
  using Rewriter::NumbersBelow;

  int64_t opset() const { return opset_; }
  // Of onnx::TensorProto; 0: not known.
  int TypeOf(const std::string& name) const { return types_.TypeOf(name); }
  bool IsRead(const std::string& name) const { return read_.contains(name); }
  // Whether nothing reads the node's other outputs.
  bool OnlyFirst(const onnx::NodeProto& node) const;

  // Values of their own, named after an output of `of`.
  std::string Float(const onnx::NodeProto& of, const std::string& x);
  // The axes stay.
  std::string Reduce(const onnx::NodeProto& of, const char* op, const std::string& x,
                     const std::vector<int64_t>& axes);
  std::string Transposed(const onnx::NodeProto& of, const std::string& x,
                         const std::vector<int64_t>& order);
  std::string SizeOf(const onnx::NodeProto& of, const std::string& x, int64_t axis);
  // The node's output is x / size, but x, which is zeros, where its size is 0.
  void AddNormal(const onnx::NodeProto& node, const std::string& x, const std::string& size);

 private:
  bool Replace(const onnx::NodeProto& node) override;

  std::set<std::string> read_;
};

struct Composite {
  const char *domain, *op;
  int inputs;  // At least.
  // False: it stays as it is.
  bool (*write)(CompositeWriter& w, const onnx::NodeProto& node);
};
inline constexpr char kMicrosoft[] = "com.microsoft", kMl[] = "ai.onnx.ml";

// What ONNX itself defines so.
absl::Span<const Composite> DefinedComposites();
absl::Span<const Composite> AttentionComposites();
absl::Span<const Composite> QuantisedComposites();
// Of scikit-learn's exporters.
absl::Span<const Composite> ScikitLearnComposites();

// Whether input i is given.
bool Has(const onnx::NodeProto& node, int i);
// Whether nothing is given from input i on.
bool EndsBefore(const onnx::NodeProto& node, int i);

}  // namespace ulfd::convert

#endif  // ULFD_TOOLS_CONVERT_ONNX_REWRITES_COMPOSITE_WRITER_H_
