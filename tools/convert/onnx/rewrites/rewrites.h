// Rewrites of an ONNX graph before it is converted: what exporters and optimisers write in ways of
// their own, said by other operators.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TOOLS_CONVERT_ONNX_REWRITES_REWRITES_H_
#define ULFD_TOOLS_CONVERT_ONNX_REWRITES_REWRITES_H_

#include <cstdint>
#include <string>

#include "onnx/onnx_pb.h"

namespace ulfd::convert {

// Replaces what models compute by hand though ONNX has an operator for it, so that it is optimised
// as that: sigmoids, softmaxes and softplus made of exponentials; GELUs; layer norms; rectifiers;
// sums and products with what is negated or inverted; Where of Not; Concat of Concat; Einsum that
// is a sum or a product with a matrix; products that are transposed.  Parts that are read elsewhere
// stay.
void ReadIdioms(onnx::GraphProto& graph, int64_t opset);
// Of these Relu, LeakyRelu and PRelu made of whatever is linear on either side of 0, and Elu.
void ReadRectifiers(onnx::GraphProto& graph, int64_t opset);
// Of x * number % divisor, with integers, the same of x % divisor and numbers below it, so that no
// product is beyond what single precision holds.
void ReadRemainders(onnx::GraphProto& graph, int64_t opset);
// LayerNormalization and RMSNormalization.
void ReadNorms(onnx::GraphProto& graph, int64_t opset);

// Replaces what exporters write for split(), unbind() and stack() by sequences of tensors
// (SplitToSequence, SequenceConstruct, SequenceAt, ConcatFromSequence, ...) by Slice, Squeeze,
// Unsqueeze and Concat, and CastLike by Cast.  A Softmax of x - max(x) becomes one of x: the
// maximum may be of all rows.  States that are zeros, repeated for each row, are left out, and
// parts of which only the shape is read.  What depends on values, or on sizes that the nodes do not
// say, stays as it is.
void WritePlainly(onnx::GraphProto& graph, int64_t opset);

// Replaces what ONNX itself defines by other operators (norms, some reductions), what it knows of
// ai.onnx.ml (linear models and what prepares their inputs), quantised weights and activations (as
// whole numbers in single precision), and others; in branches, too.  What has inputs or attributes
// that are not known stays as it is.
void WriteComposites(onnx::GraphProto& graph, int64_t opset);
// Why such an operator is not converted, and what to do.
std::string WhyNot(const onnx::NodeProto& node);

bool HasLoops(const onnx::GraphProto& graph);
// Replaces every Loop that gathers rows of a table by a slice of flattened ids [rows, n], and
// reduces them, by a Gather of the ids as they were and a reduction of axis 1: a bag for each row.
// Ids [rows] are looked up, one for each row.  That the slices are the rows is for the proof to
// see.  False: there is none.
bool UnrollBags(onnx::GraphProto& graph, int64_t opset);
// What an export without dynamic axes has of them: bags of one size that begin where constants say,
// a Reshape of the ids to rows, and the same of it; and sums of rows that a mask chooses.
void UnrollFixedBags(onnx::GraphProto& graph, int64_t opset);

// Whether the graph computes the size of equal parts of something, as chunk() does, or splits rows
// in equal parts.
bool CutsParts(const onnx::GraphProto& graph);
// Rewrites cat(x.chunk(h, -1), dim=0), as models ported from TensorFlow split x into heads of
// attention, what is repeated (y.repeat(h, 1, 1)) for them, and cat(z.chunk(h, dim=0), -1), which
// puts them back: row r of head i becomes row r * h + i instead of i * rows + r.  What is between
// gives the same where rows do not meet; whether they do is left to the proof.  False: nothing was
// rewritten.
bool StackBesideRows(onnx::GraphProto& graph, int64_t opset);

// What puts rows back that a mask of the model chose, of one axis (rows) or more (steps): (mask, x,
// y) gives entries of x where the mask is set, and of y where not.
inline constexpr char kWhereRows[] = "WhereRows";
// Whether KeepAllRows may have something to do.
bool ChoosesRows(const onnx::GraphProto& graph);
// y[mask] = f(x[mask]), where the steps of a mask are merged with the rows, and rows that are
// sorted and sorted back, as exporters write them for packed sequences: f of all rows in their
// places, and kWhereRows.  That is the same as long as f computes each row alone.  False, and
// nothing changed, where the graph has no such rows, or they meet others before they are back.
bool KeepAllRows(onnx::GraphProto& graph, int64_t opset);

}  // namespace ulfd::convert

#endif  // ULFD_TOOLS_CONVERT_ONNX_REWRITES_REWRITES_H_
