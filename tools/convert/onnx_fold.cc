// Operators computed while converting, on constants.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "tools/convert/onnx_constant.h"
#include "tools/convert/onnx_reference.h"
#include "tools/convert/onnx_types.h"

namespace ulfd::convert {
namespace {

using engine::Dim;
using Inputs = absl::Span<const Constant* const>;

struct FoldContext {
  const onnx::NodeProto& node;
  int64_t opset;
  Inputs in;
};

// The same values under another shape.
Constant WithSizes(const Constant& c, const std::vector<int64_t>& sizes) {
  Constant out = c;
  out.dims.clear();
  for (const int64_t d : sizes) out.dims.push_back(Dim::Of(d));
  return out;
}

// A constant of the type of `like` whose element i is element from[i] of it.
Constant Picked(const Constant& like, const std::vector<int64_t>& sizes,
                const std::vector<int64_t>& from) {
  if (like.is_float) {
    std::vector<float> values;
    values.reserve(from.size());
    for (const int64_t i : from) values.push_back(like.f32(i));
    return FloatConstant(sizes, std::move(values));
  }
  std::vector<Dim> values;
  values.reserve(from.size());
  for (const int64_t i : from) values.push_back(like.dim(i));
  return IntConstant(sizes, std::move(values));
}

// REQUIRES: at least one element, and not uniform.
bool AllEqual(const Constant& c) {
  if (c.is_float) {
    return std::all_of(c.floats->begin(), c.floats->end(),
                       [&](float v) { return v == c.floats->front(); });
  }
  return std::all_of(c.ints.begin(), c.ints.end(), [&](const Dim& v) { return v == c.ints[0]; });
}

// Element offsets of `sizes`, walked in order, under `strides`.
std::vector<int64_t> Walk(const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides,
                          int64_t start = 0) {
  std::vector<int64_t> offsets = {start};
  for (size_t d = 0; d < sizes.size(); ++d) {
    std::vector<int64_t> next;
    next.reserve(offsets.size() * static_cast<size_t>(sizes[d]));
    for (const int64_t offset : offsets) {
      for (int64_t i = 0; i < sizes[d]; ++i) next.push_back(offset + i * strides[d]);
    }
    offsets = std::move(next);
  }
  return offsets;
}

std::vector<int64_t> RowMajor(const std::vector<int64_t>& sizes) {
  std::vector<int64_t> strides(sizes.size(), 1);
  for (size_t d = sizes.size(); d-- > 1;) strides[d - 1] = strides[d] * sizes[d];
  return strides;
}

// ---------------------------------------------------------------------------------- sources

absl::StatusOr<Constant> FoldConstant(const FoldContext& ctx) {
  for (const onnx::AttributeProto& attribute : ctx.node.attribute()) {
    if (attribute.name() == "value") return ReadTensor(attribute.t());
    if (attribute.name() == "value_float") return FloatConstant({}, {attribute.f()});
    if (attribute.name() == "value_int") return IntConstant({}, {Dim::Of(attribute.i())});
    if (attribute.name() == "value_floats") {
      return FloatConstant({attribute.floats_size()},
                           {attribute.floats().begin(), attribute.floats().end()});
    }
    if (attribute.name() == "value_ints") {
      std::vector<Dim> values;
      for (const int64_t value : attribute.ints()) values.push_back(Dim::Of(value));
      return IntConstant({attribute.ints_size()}, std::move(values));
    }
  }
  return absl::InvalidArgumentError("has no value of a kind that a tensor of numbers has");
}

absl::StatusOr<Constant> FoldConstantOfShape(const FoldContext& ctx) {
  Constant out = FloatConstant({}, {0.0f});
  for (const onnx::AttributeProto& attribute : ctx.node.attribute()) {
    if (attribute.name() != "value") continue;
    ASSIGN_OR_RETURN(out, ReadTensor(attribute.t()));
    if (out.elements() != 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("value of shape ", DimsText(out.dims), ", want one element"));
    }
  }
  out.uniform = true;
  out.dims.clear();
  ASSIGN_OR_RETURN(out.dims, ctx.in[0]->ToDims());
  return out;
}

// ---------------------------------------------------------------------------------- shape

absl::StatusOr<std::vector<int64_t>> Axes(const FoldContext& ctx) {
  if (ctx.in.size() > 1 && ctx.in[1] != nullptr) return ctx.in[1]->ToInts();
  return IntsAttribute(ctx.node, "axes");
}

absl::StatusOr<Constant> FoldShapeOf(const FoldContext& ctx) {
  const Dims& dims = ctx.in[0]->dims;
  const auto rank = static_cast<int64_t>(dims.size());
  const auto place = [&](const char* name, int64_t otherwise) {
    const int64_t at = IntAttribute(ctx.node, name, otherwise);
    return std::clamp<int64_t>(at < 0 ? at + rank : at, 0, rank);
  };
  const int64_t start = place("start", 0), end = std::max(start, place("end", rank));
  return IntConstant({end - start}, std::vector<Dim>(dims.begin() + start, dims.begin() + end));
}

absl::StatusOr<Constant> FoldSizeOf(const FoldContext& ctx) {
  Dim size = Dim::Of(1);
  for (const Dim& d : ctx.in[0]->dims) size = engine::Multiply(size, d);
  return IntConstant({}, {size});
}

absl::StatusOr<Constant> FoldSame(const FoldContext& ctx) { return *ctx.in[0]; }

absl::StatusOr<Constant> FoldDropout(const FoldContext& ctx) {
  if (ctx.in.size() > 2 && ctx.in[2] != nullptr) {
    ASSIGN_OR_RETURN(const std::vector<int64_t> training, ctx.in[2]->ToInts());
    if (training != std::vector<int64_t>{0}) {
      return absl::UnimplementedError(
          "training_mode, whose result is random; export the model with eval()");
    }
  }
  return *ctx.in[0];
}

absl::StatusOr<Constant> FoldCast(const FoldContext& ctx) {
  const int64_t to = IntAttribute(ctx.node, "to", 0);
  const Constant& x = *ctx.in[0];
  const bool to_float = to == onnx::TensorProto::FLOAT || to == onnx::TensorProto::DOUBLE ||
                        to == onnx::TensorProto::FLOAT16;
  if (to_float == x.is_float && to != onnx::TensorProto::BOOL) return x;
  if (x.uniform) {  // Of any shape.
    Constant one = x;
    one.dims.clear();
    one.uniform = false;
    const Constant* const inputs[] = {&one};
    ASSIGN_OR_RETURN(Constant out, FoldCast({ctx.node, ctx.opset, inputs}));
    out.dims = x.dims;
    out.uniform = true;
    return out;
  }
  RETURN_IF_ERROR(WantNumbers(x));
  if (to_float) {
    ASSIGN_OR_RETURN(std::vector<float> values, x.ToFloats());
    return FloatConstant(x.sizes(), std::move(values));
  }
  std::vector<Dim> values;
  for (int64_t i = 0; i < x.elements(); ++i) {
    const bool zero = x.is_float ? x.f32(i) == 0 : x.dim(i) == Dim::Of(0);
    values.push_back(to == onnx::TensorProto::BOOL ? Dim::Of(zero ? 0 : 1)
                     : x.is_float                  ? Dim::Of(static_cast<int64_t>(x.f32(i)))
                                                   : x.dim(i));
  }
  return IntConstant(x.sizes(), std::move(values));
}

// For FoldReshape and FoldFlatten: 0 keeps a size if `keep_zero`, -1 is what is left.
absl::StatusOr<Constant> Reshaped(const Constant& x, std::vector<int64_t> sizes, bool keep_zero) {
  RETURN_IF_ERROR(WantNumbers(x));
  int64_t known = 1;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == 0 && keep_zero && i < x.dims.size()) sizes[i] = x.dims[i].value();
    if (sizes[i] < -1 || sizes[i] > kMaxElements || known > kMaxElements) {
      return absl::InvalidArgumentError(absl::StrCat("shape asks for a dimension of ", sizes[i]));
    }
    if (sizes[i] >= 0) known *= sizes[i];
  }
  if (std::count(sizes.begin(), sizes.end(), -1) > 1) {
    return absl::InvalidArgumentError("shape leaves two dimensions open");
  }
  const int64_t count = x.elements();
  for (int64_t& size : sizes) {
    if (size == -1) size = known == 0 ? 0 : count / known;
  }
  Constant out = WithSizes(x, sizes);
  if (out.elements() != count) return absl::InvalidArgumentError("Reshape of another size");
  return out;
}

absl::StatusOr<Constant> FoldReshape(const FoldContext& ctx) {
  if (ctx.in[0]->uniform && !IsNumbers(ctx.in[0]->dims)) {  // Rows of the request among them.
    Constant out = *ctx.in[0];
    ASSIGN_OR_RETURN(out.dims, ctx.in[1]->ToDims());
    Dim count = Dim::Of(1), wanted = Dim::Of(1);
    for (const Dim& d : ctx.in[0]->dims) count = engine::Multiply(count, d);
    for (const Dim& d : out.dims) wanted = engine::Multiply(wanted, d);
    if (wanted == count && !wanted.IsUnknown()) return out;
    return absl::UnimplementedError("a constant per row in another shape");
  }
  ASSIGN_OR_RETURN(std::vector<int64_t> sizes, ctx.in[1]->ToInts());
  return Reshaped(*ctx.in[0], std::move(sizes), IntAttribute(ctx.node, "allowzero", 0) == 0);
}

absl::StatusOr<Constant> FoldFlatten(const FoldContext& ctx) {
  RETURN_IF_ERROR(WantNumbers(*ctx.in[0]));
  const std::vector<int64_t> sizes = ctx.in[0]->sizes();
  const auto rank = static_cast<int64_t>(sizes.size());
  const int64_t stated = IntAttribute(ctx.node, "axis", 1);  // Up to the rank, which is no axis.
  ASSIGN_OR_RETURN(const int axis, WantAxis(stated < 0 ? stated + rank : stated, rank + 1));
  int64_t front = 1;
  for (int d = 0; d < axis; ++d) front *= sizes[static_cast<size_t>(d)];
  return Reshaped(*ctx.in[0], {front, -1}, false);
}

absl::StatusOr<Constant> FoldUnsqueeze(const FoldContext& ctx) {
  ASSIGN_OR_RETURN(std::vector<int64_t> axes, Axes(ctx));
  Constant out = *ctx.in[0];
  const auto rank = static_cast<int64_t>(out.dims.size() + axes.size());
  for (int64_t& axis : axes) {
    ASSIGN_OR_RETURN(axis, WantAxis(axis, rank));
  }
  std::sort(axes.begin(), axes.end());
  for (const int64_t axis : axes) out.dims.insert(out.dims.begin() + axis, Dim::Of(1));
  return out;
}

absl::StatusOr<Constant> FoldSqueeze(const FoldContext& ctx) {
  ASSIGN_OR_RETURN(std::vector<int64_t> axes, Axes(ctx));
  Constant out = *ctx.in[0];
  std::vector<bool> drop(out.dims.size(), axes.empty());
  for (const int64_t axis : axes) {
    ASSIGN_OR_RETURN(const int index, WantAxis(axis, static_cast<int64_t>(out.dims.size())));
    drop[index] = true;
  }
  Dims kept;
  for (size_t d = 0; d < drop.size(); ++d) {
    if (!drop[d] || out.dims[d] != Dim::Of(1)) kept.push_back(out.dims[d]);
  }
  out.dims = kept;
  return out;
}

absl::StatusOr<Constant> FoldTranspose(const FoldContext& ctx) {
  RETURN_IF_ERROR(WantNumbers(*ctx.in[0]));
  const std::vector<int64_t> sizes = ctx.in[0]->sizes(), strides = RowMajor(sizes);
  std::vector<int64_t> perm = IntsAttribute(ctx.node, "perm"), to, steps;
  for (size_t d = sizes.size(); perm.size() < sizes.size(); --d) {
    perm.push_back(static_cast<int64_t>(d) - 1);
  }
  for (const int64_t stated : perm) {
    ASSIGN_OR_RETURN(const int axis, WantAxis(stated, static_cast<int64_t>(sizes.size())));
    to.push_back(sizes[static_cast<size_t>(axis)]);
    steps.push_back(strides[static_cast<size_t>(axis)]);
  }
  return Picked(*ctx.in[0], to, Walk(to, steps));
}

absl::StatusOr<Constant> FoldConcat(const FoldContext& ctx) {
  std::vector<int64_t> sizes;
  for (const Constant* c : ctx.in) {
    RETURN_IF_ERROR(WantNumbers(*c));
    if (c->is_float != ctx.in[0]->is_float) return absl::InvalidArgumentError("types differ");
  }
  sizes = ctx.in[0]->sizes();
  ASSIGN_OR_RETURN(const int axis,
                   WantAxis(IntAttribute(ctx.node, "axis", 0), static_cast<int64_t>(sizes.size())));
  int64_t outer = 1, total = 0;
  for (int d = 0; d < axis; ++d) outer *= sizes[d];
  for (const Constant* c : ctx.in) {
    std::vector<int64_t> own = c->sizes();
    if (own.size() == sizes.size()) {
      total += own[axis];
      own[axis] = sizes[axis];
    }
    if (own != sizes) {
      return absl::InvalidArgumentError(absl::StrCat("shapes ", DimsText(ctx.in[0]->dims), " and ",
                                                     DimsText(c->dims), " cannot be joined"));
    }
  }
  if (outer == 0) return absl::UnimplementedError("joins constants without elements");
  sizes[axis] = total;
  std::vector<float> floats;
  std::vector<Dim> ints;
  for (int64_t o = 0; o < outer; ++o) {
    for (const Constant* c : ctx.in) {
      const int64_t piece = c->elements() / outer;
      for (int64_t i = o * piece; i < (o + 1) * piece; ++i) {
        if (c->is_float) {
          floats.push_back(c->f32(i));
        } else {
          ints.push_back(c->dim(i));
        }
      }
    }
  }
  return ctx.in[0]->is_float ? FloatConstant(sizes, std::move(floats))
                             : IntConstant(sizes, std::move(ints));
}

absl::StatusOr<Constant> FoldGather(const FoldContext& ctx) {
  const Constant &data = *ctx.in[0], &indices = *ctx.in[1];
  RETURN_IF_ERROR(WantNumbers(data));
  const std::vector<int64_t> sizes = data.sizes();
  ASSIGN_OR_RETURN(const int axis,
                   WantAxis(IntAttribute(ctx.node, "axis", 0), static_cast<int64_t>(sizes.size())));
  ASSIGN_OR_RETURN(const std::vector<int64_t> picks, indices.ToInts());
  int64_t outer = 1, inner = 1;
  for (int d = 0; d < axis; ++d) outer *= sizes[d];
  for (size_t d = static_cast<size_t>(axis) + 1; d < sizes.size(); ++d) inner *= sizes[d];
  std::vector<int64_t> to(sizes.begin(), sizes.begin() + axis), from;
  for (const int64_t d : indices.sizes()) to.push_back(d);
  to.insert(to.end(), sizes.begin() + axis + 1, sizes.end());
  Constant result;
  for (const int64_t d : to) result.dims.push_back(Dim::Of(d));
  RETURN_IF_ERROR(WantNumbers(result));
  for (int64_t o = 0; o < outer; ++o) {
    for (const int64_t pick : picks) {
      ASSIGN_OR_RETURN(const int row, WantAxis(pick, sizes[axis]));
      for (int64_t i = 0; i < inner; ++i) from.push_back((o * sizes[axis] + row) * inner + i);
    }
  }
  return Picked(data, to, from);
}

absl::StatusOr<Constant> FoldSlice(const FoldContext& ctx) {
  const Constant& x = *ctx.in[0];
  if (!x.uniform) RETURN_IF_ERROR(WantNumbers(x));
  const auto rank = static_cast<int64_t>(x.dims.size());
  const bool by_input = ctx.in.size() > 1;
  const auto list = [&](size_t input,
                        const char* attribute) -> absl::StatusOr<std::vector<int64_t>> {
    if (!by_input) return IntsAttribute(ctx.node, attribute);
    if (ctx.in.size() <= input || ctx.in[input] == nullptr) return std::vector<int64_t>();
    return ctx.in[input]->ToInts();
  };
  ASSIGN_OR_RETURN(const std::vector<int64_t> starts, list(1, "starts"));
  ASSIGN_OR_RETURN(const std::vector<int64_t> ends, list(2, "ends"));
  ASSIGN_OR_RETURN(const std::vector<int64_t> axes, list(3, "axes"));
  ASSIGN_OR_RETURN(const std::vector<int64_t> steps, list(4, "steps"));
  for (const auto* list : {&ends, &axes, &steps}) {
    if (list->size() == starts.size() || (list != &ends && list->empty())) continue;
    return absl::InvalidArgumentError("starts, ends, axes and steps have different lengths");
  }
  Constant out = x;
  std::vector<int64_t> strides = x.uniform ? std::vector<int64_t>() : RowMajor(x.sizes());
  int64_t start = 0;
  for (size_t i = 0; i < starts.size(); ++i) {
    ASSIGN_OR_RETURN(const int axis,
                     WantAxis(axes.empty() ? static_cast<int64_t>(i) : axes[i], rank));
    if (!out.dims[axis].IsConst()) {
      return absl::UnimplementedError("cuts rows of the request out of a constant");
    }
    ASSIGN_OR_RETURN(
        const SliceRange range,
        RangeOf(starts[i], ends[i], steps.empty() ? 1 : steps[i], out.dims[axis].value()));
    out.dims[axis] = Dim::Of(range.count);
    if (x.uniform) continue;
    start += range.begin * strides[static_cast<size_t>(axis)];
    strides[static_cast<size_t>(axis)] *= range.step;
  }
  if (x.uniform) return out;
  return Picked(x, out.sizes(), Walk(out.sizes(), strides, start));
}

absl::StatusOr<std::vector<Constant>> FoldSplit(const FoldContext& ctx) {
  const Constant& x = *ctx.in[0];
  RETURN_IF_ERROR(WantNumbers(x));
  ASSIGN_OR_RETURN(const int axis, WantAxis(IntAttribute(ctx.node, "axis", 0),
                                            static_cast<int64_t>(x.dims.size())));
  std::vector<int64_t> parts = IntsAttribute(ctx.node, "split"), sizes = x.sizes();
  if (ctx.in.size() > 1) {
    ASSIGN_OR_RETURN(parts, ctx.in[1]->ToInts());
  }
  ASSIGN_OR_RETURN(parts, SplitSizes(std::move(parts), ctx.node.output_size(), sizes[axis]));
  const std::vector<int64_t> strides = RowMajor(sizes);
  std::vector<Constant> outputs;
  int64_t begin = 0;
  for (const int64_t part : parts) {
    sizes[axis] = part;
    outputs.push_back(Picked(x, sizes, Walk(sizes, strides, begin * strides[axis])));
    begin += part;
  }
  return outputs;
}

absl::StatusOr<Constant> FoldExpand(const FoldContext& ctx) {
  ASSIGN_OR_RETURN(const Dims wanted, ctx.in[1]->ToDims());
  ASSIGN_OR_RETURN(const Dims dims, BroadcastDims(ctx.in[0]->dims, wanted));
  Constant out = *ctx.in[0];
  // Equal values (a GRU's first state) may be repeated per user or ad.
  if (!out.uniform && !IsNumbers(dims)) out.uniform = AllEqual(out);
  if (out.uniform || out.dims == dims) {
    out.dims = dims;
    return out;
  }
  out.dims = dims;
  RETURN_IF_ERROR(WantNumbers(out));
  const std::vector<int64_t> from = ctx.in[0]->sizes(), to = out.sizes();
  std::vector<int64_t> strides(to.size(), 0), own = RowMajor(from);
  for (size_t back = 1; back <= from.size(); ++back) {
    if (from[from.size() - back] != 1) strides[to.size() - back] = own[from.size() - back];
  }
  return Picked(*ctx.in[0], to, Walk(to, strides));
}

// ---------------------------------------------------------------------------------- arithmetic

template <typename Number>
bool Compared(const std::string& op, Number a, Number b) {
  if (op == "Equal") return a == b;
  if (op == "Greater") return a > b;
  if (op == "Less") return a < b;
  return op == "GreaterOrEqual" ? a >= b : a <= b;
}

absl::StatusOr<Dim> IntResult(const std::string& op, Dim a, Dim b) {
  const bool numbers = a.IsConst() && b.IsConst();
  // Sizes; what is larger is none, and its product might not fit.
  const bool arithmetic = op == "Mul" || op == "Div" || op == "Add" || op == "Sub" || op == "Mod";
  for (const Dim& d : {a, b}) {
    if (!arithmetic) break;
    if (std::abs(static_cast<double>(d.value())) <= static_cast<double>(kMaxRowElements)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(op, " of ", a.ToString(), " and ", b.ToString(), ", want sizes"));
  }
  if (op == "Mul") return engine::Multiply(a, b);
  if (op == "Div" && !(numbers && b.value() == 0)) {
    if (numbers) return Dim::Of(a.value() / b.value());
    const std::optional<Dim> quotient = engine::Divide(a, b);
    if (quotient.has_value() && !quotient->IsUnknown()) return *quotient;
  }
  if (op == "Add" && numbers) return Dim::Of(a.value() + b.value());
  if (op == "Sub" && numbers) return Dim::Of(a.value() - b.value());
  // The sign is the divisor's.
  if (op == "Mod" && numbers && b.value() > 0) {
    const int64_t rest = a.value() % b.value();
    return Dim::Of(rest < 0 ? rest + b.value() : rest);
  }
  if (op == "Equal") {
    if (a == b && !a.IsUnknown()) return Dim::Of(1);
    if (numbers) return Dim::Of(0);
    // A number of rows is at least 0, so that it is no marker such as -1.
    if ((a.IsConst() && a.value() < 0) || (b.IsConst() && b.value() < 0)) return Dim::Of(0);
  }
  if (numbers && IsComparison(op)) return Dim::Of(Compared(op, a.value(), b.value()));
  if (numbers && op == "Min") return Dim::Of(std::min(a.value(), b.value()));
  if (numbers && op == "Max") return Dim::Of(std::max(a.value(), b.value()));
  if (numbers && op == "Xor") return Dim::Of((a.value() != 0) != (b.value() != 0));
  if (numbers && op == "And") return Dim::Of(a.value() != 0 && b.value() != 0);
  if (numbers && op == "Or") return Dim::Of(a.value() != 0 || b.value() != 0);
  return absl::InvalidArgumentError(
      absl::StrCat(op, " of ", a.ToString(), " and ", b.ToString(), " depends on the request"));
}

absl::StatusOr<float> FloatResult(const std::string& op, float a, float b) {
  if (op == "Add") return a + b;
  if (op == "Sub") return a - b;
  if (op == "Mul") return a * b;
  if (op == "Div") return a / b;
  if (op == "Pow") return std::pow(a, b);
  if (op == "Min") return std::min(a, b);
  if (op == "Max") return std::max(a, b);
  return absl::UnimplementedError(absl::StrCat(op, " of float constants"));
}

// Offsets of an operand of shape `from` for each element of `to`.
std::vector<int64_t> BroadcastWalk(const Constant& c, const std::vector<int64_t>& to) {
  const std::vector<int64_t> from = c.sizes(), own = RowMajor(from);
  std::vector<int64_t> strides(to.size(), 0);
  for (size_t back = 1; back <= from.size(); ++back) {
    if (from[from.size() - back] != 1) strides[to.size() - back] = own[from.size() - back];
  }
  return Walk(to, strides);
}

absl::StatusOr<Constant> FoldBinary(const FoldContext& ctx) {
  const Constant &a = *ctx.in[0], &b = *ctx.in[1];
  const std::string& op = ctx.node.op_type();
  if (IntAttribute(ctx.node, "fmod", 0) != 0) return absl::UnimplementedError("fmod of constants");
  ASSIGN_OR_RETURN(const Dims dims, BroadcastDims(a.dims, b.dims));
  const bool compares = IsComparison(op);
  Constant out{.is_float = a.is_float && !compares, .dims = dims};
  if (a.is_float != b.is_float) return absl::InvalidArgumentError("types differ");
  out.uniform = a.uniform && b.uniform;
  std::vector<int64_t> from_a = {0}, from_b = {0};
  if (!out.uniform) {
    RETURN_IF_ERROR(WantNumbers(out));
    from_a = BroadcastWalk(a, out.sizes());
    from_b = BroadcastWalk(b, out.sizes());
  }
  std::vector<float> floats;
  for (size_t i = 0; i < from_a.size(); ++i) {
    if (a.is_float && compares) {
      out.ints.push_back(Dim::Of(Compared(op, a.f32(from_a[i]), b.f32(from_b[i]))));
    } else if (a.is_float) {
      ASSIGN_OR_RETURN(const float value, FloatResult(op, a.f32(from_a[i]), b.f32(from_b[i])));
      floats.push_back(value);
    } else {
      ASSIGN_OR_RETURN(const Dim value, IntResult(op, a.dim(from_a[i]), b.dim(from_b[i])));
      out.ints.push_back(value);
    }
  }
  out.floats = std::make_shared<const std::vector<float>>(std::move(floats));
  return out;
}

absl::StatusOr<Constant> FoldWhere(const FoldContext& ctx) {
  const Constant& cond = *ctx.in[0];
  ASSIGN_OR_RETURN(Dims dims, BroadcastDims(cond.dims, ctx.in[1]->dims));
  ASSIGN_OR_RETURN(dims, BroadcastDims(dims, ctx.in[2]->dims));
  Constant shape{.dims = dims};
  RETURN_IF_ERROR(WantNumbers(shape));
  const std::vector<int64_t> sizes = shape.sizes();
  const auto at_cond = BroadcastWalk(cond, sizes), at_a = BroadcastWalk(*ctx.in[1], sizes),
             at_b = BroadcastWalk(*ctx.in[2], sizes);
  std::vector<float> floats;
  std::vector<Dim> ints;
  for (size_t i = 0; i < at_cond.size(); ++i) {
    const bool first = cond.dim(at_cond[i]) != Dim::Of(0);
    const Constant& from = *ctx.in[first ? 1 : 2];
    const int64_t at = first ? at_a[i] : at_b[i];
    if (from.is_float) {
      floats.push_back(from.f32(at));
    } else {
      ints.push_back(from.dim(at));
    }
  }
  return ctx.in[1]->is_float ? FloatConstant(sizes, std::move(floats))
                             : IntConstant(sizes, std::move(ints));
}

absl::StatusOr<Constant> FoldUnary(const FoldContext& ctx) {
  const std::string& op = ctx.node.op_type();
  Constant out = *ctx.in[0];
  if (!out.is_float) {
    for (Dim& value : out.ints) {
      if (op == "Not" && value.IsConst()) {
        value = Dim::Of(value.value() == 0);
      } else if (op == "Neg" && value.IsConst()) {
        value = Dim::Of(-value.value());
      } else if (op != "Floor" && op != "Ceil") {
        return absl::InvalidArgumentError(absl::StrCat(op, " of integers"));
      }
    }
    return out;
  }
  std::vector<float> values = *out.floats;
  for (float& v : values) {
    v = op == "Sqrt"    ? std::sqrt(v)
        : op == "Neg"   ? -v
        : op == "Exp"   ? std::exp(v)
        : op == "Log"   ? std::log(v)
        : op == "Abs"   ? std::abs(v)
        : op == "Floor" ? std::floor(v)
                        : std::ceil(v);
  }
  out.floats = std::make_shared<const std::vector<float>>(std::move(values));
  return out;
}

// With limits that are inputs, which exporters write for integers.
absl::StatusOr<Constant> FoldClip(const FoldContext& ctx) {
  Constant out = *ctx.in[0];
  for (size_t i = 1; i < 3 && i < ctx.in.size(); ++i) {
    if (ctx.in[i] == nullptr) continue;
    onnx::NodeProto limit;
    limit.set_op_type(i == 1 ? "Max" : "Min");
    const Constant* const both[] = {&out, ctx.in[i]};
    ASSIGN_OR_RETURN(out, FoldBinary({limit, ctx.opset, both}));
  }
  if (HasAttribute(ctx.node, "min") || HasAttribute(ctx.node, "max")) {
    return absl::UnimplementedError("Clip of constants by attributes");
  }
  return out;
}

absl::StatusOr<Constant> FoldTrilu(const FoldContext& ctx) {
  const Constant& x = *ctx.in[0];
  RETURN_IF_ERROR(WantNumbers(x));
  const std::vector<int64_t> sizes = x.sizes();
  int64_t k = 0;
  if (ctx.in.size() > 1 && ctx.in[1] != nullptr) {
    ASSIGN_OR_RETURN(const std::vector<int64_t> shift, ctx.in[1]->ToInts());
    if (shift.size() != 1) return absl::InvalidArgumentError("want one diagonal");
    k = shift[0];
  }
  if (sizes.size() < 2) return absl::InvalidArgumentError("want a matrix");
  const bool upper = IntAttribute(ctx.node, "upper", 1) != 0;
  const int64_t columns = sizes.back(), rows = sizes[sizes.size() - 2];
  Constant out = x.is_float ? FloatConstant(sizes, {}) : IntConstant(sizes, {});
  std::vector<float> floats;
  for (int64_t i = 0; i < x.elements(); ++i) {
    const int64_t column = i % columns, row = i / columns % rows;
    const bool kept = upper ? column - row >= k : column - row <= k;
    if (x.is_float) {
      floats.push_back(kept ? x.f32(i) : 0);
    } else {
      out.ints.push_back(kept ? x.dim(i) : Dim::Of(0));
    }
  }
  if (x.is_float) out.floats = std::make_shared<const std::vector<float>>(std::move(floats));
  return out;
}

absl::StatusOr<Constant> FoldEyeLike(const FoldContext& ctx) {
  const Constant& x = *ctx.in[0];
  RETURN_IF_ERROR(WantNumbers(x));
  if (x.dims.size() != 2) return absl::InvalidArgumentError("want a matrix");
  const std::vector<int64_t> sizes = x.sizes();
  const int64_t k = IntAttribute(ctx.node, "k", 0);
  std::vector<float> floats;
  std::vector<Dim> ints;
  const auto dtype = static_cast<int>(IntAttribute(ctx.node, "dtype", 0));
  const bool is_float = dtype == 0 ? x.is_float
                                   : dtype == onnx::TensorProto::FLOAT ||
                                         dtype == onnx::TensorProto::DOUBLE ||
                                         dtype == onnx::TensorProto::FLOAT16;
  for (int64_t i = 0; i < x.elements(); ++i) {
    const bool one = i % sizes[1] - i / sizes[1] == k;
    if (is_float) {
      floats.push_back(one ? 1.0f : 0.0f);
    } else {
      ints.push_back(Dim::Of(one ? 1 : 0));
    }
  }
  return is_float ? FloatConstant(sizes, std::move(floats)) : IntConstant(sizes, std::move(ints));
}

absl::StatusOr<Constant> FoldRange(const FoldContext& ctx) {
  ASSIGN_OR_RETURN(const std::vector<int64_t> start, ctx.in[0]->ToInts());
  ASSIGN_OR_RETURN(const std::vector<int64_t> limit, ctx.in[1]->ToInts());
  ASSIGN_OR_RETURN(const std::vector<int64_t> delta, ctx.in[2]->ToInts());
  if (start.size() != 1 || limit.size() != 1 || delta.size() != 1 || ctx.in[0]->is_float ||
      delta[0] < 1 || delta[0] > kMaxElements || start[0] < 0 || limit[0] > kMaxElements) {
    return absl::UnimplementedError("Range other than of rising integers");
  }
  std::vector<Dim> values;
  for (int64_t i = start[0]; i < limit[0]; i += delta[0]) values.push_back(Dim::Of(i));
  const auto size = static_cast<int64_t>(values.size());
  return IntConstant({size}, std::move(values));
}

struct Fold {
  const char* op;
  absl::StatusOr<Constant> (*run)(const FoldContext&);
};
constexpr Fold kFolds[] = {
    {"Constant", &FoldConstant},  {"ConstantOfShape", &FoldConstantOfShape},
    {"Shape", &FoldShapeOf},      {"Size", &FoldSizeOf},
    {"Identity", &FoldSame},      {"Dropout", &FoldDropout},
    {"Cast", &FoldCast},          {"Reshape", &FoldReshape},
    {"Flatten", &FoldFlatten},    {"Unsqueeze", &FoldUnsqueeze},
    {"Squeeze", &FoldSqueeze},    {"Transpose", &FoldTranspose},
    {"Concat", &FoldConcat},      {"Gather", &FoldGather},
    {"Slice", &FoldSlice},        {"Expand", &FoldExpand},
    {"Add", &FoldBinary},         {"Sub", &FoldBinary},
    {"Mul", &FoldBinary},         {"Div", &FoldBinary},
    {"Pow", &FoldBinary},         {"Min", &FoldBinary},
    {"Max", &FoldBinary},         {"Mod", &FoldBinary},
    {"Equal", &FoldBinary},       {"Greater", &FoldBinary},
    {"Less", &FoldBinary},        {"GreaterOrEqual", &FoldBinary},
    {"LessOrEqual", &FoldBinary}, {"And", &FoldBinary},
    {"Or", &FoldBinary},          {"Xor", &FoldBinary},
    {"Clip", &FoldClip},          {"Where", &FoldWhere},
    {"Not", &FoldUnary},          {"Neg", &FoldUnary},
    {"Sqrt", &FoldUnary},         {"Exp", &FoldUnary},
    {"Log", &FoldUnary},          {"Abs", &FoldUnary},
    {"Floor", &FoldUnary},        {"Ceil", &FoldUnary},
    {"Range", &FoldRange},        {"Trilu", &FoldTrilu},
    {"EyeLike", &FoldEyeLike},
};

// Any other operator on numbers, as the interpreter defines it.
absl::StatusOr<std::vector<Constant>> FoldByDefinition(const onnx::NodeProto& node, int64_t opset,
                                                       Inputs inputs) {
  constexpr int64_t kMostElements = int64_t{1} << 22;
  constexpr auto kTime = std::chrono::seconds(5);
  std::vector<reference::Array> arrays(inputs.size());
  std::vector<const reference::Array*> given;
  for (size_t i = 0; i < inputs.size(); ++i) {
    given.push_back(inputs[i] == nullptr ? nullptr : &arrays[i]);
    if (inputs[i] == nullptr) continue;
    const Constant& c = *inputs[i];
    RETURN_IF_ERROR(WantNumbers(c));
    if (c.elements() > kMostElements) return absl::UnimplementedError("constants that are large");
    if (c.is_float) {
      ASSIGN_OR_RETURN(const std::vector<float> values, c.ToFloats());
      arrays[i] =
          reference::Floats(onnx::TensorProto::FLOAT, c.sizes(), {values.begin(), values.end()});
    } else {
      ASSIGN_OR_RETURN(std::vector<int64_t> values, c.ToInts());
      arrays[i] = reference::Ints(onnx::TensorProto::INT64, c.sizes(), std::move(values));
    }
  }
  reference::RunOptions options;
  options.budget.deadline = std::chrono::steady_clock::now() + kTime;
  options.budget.max_elements = kMostElements;
  ASSIGN_OR_RETURN(const std::vector<reference::Array> results,
                   reference::Compute(node, opset, options, std::move(given)));
  std::vector<Constant> constants;
  for (const reference::Array& result : results) {
    std::vector<float> floats;
    std::vector<Dim> ints;
    for (int64_t i = 0; i < result.elements(); ++i) {
      if (result.is_float()) {
        floats.push_back(static_cast<float>(result.at(i)));
      } else {
        ints.push_back(Dim::Of((*result.ints)[static_cast<size_t>(i)]));
      }
    }
    constants.push_back(result.is_float() ? FloatConstant(result.dims, std::move(floats))
                                          : IntConstant(result.dims, std::move(ints)));
  }
  return constants;
}

}  // namespace

bool CanFold(const onnx::NodeProto& node) {
  return node.op_type() == "Split" || reference::IsKnown(node) ||
         std::any_of(std::begin(kFolds), std::end(kFolds),
                     [&](const Fold& fold) { return node.op_type() == fold.op; });
}

absl::StatusOr<std::vector<Constant>> FoldNode(const onnx::NodeProto& node, int64_t opset,
                                               absl::Span<const Constant* const> inputs) {
  const std::string& op = node.op_type();
  const bool optional = op == "Slice" || op == "Dropout" || op == "Trilu" || op == "Clip";
  const auto row = std::find_if(std::begin(kFolds), std::end(kFolds),
                                [&](const Fold& fold) { return op == fold.op; });
  if (op != "Split" && row == std::end(kFolds)) return FoldByDefinition(node, opset, inputs);
  for (size_t i = 0; !optional && i < inputs.size(); ++i) {
    if (inputs[i] != nullptr) continue;
    return absl::InvalidArgumentError(absl::StrCat("input ", i, " is missing"));
  }
  if (op == "Split") return FoldSplit({node, opset, inputs});
  ASSIGN_OR_RETURN(Constant constant, row->run({node, opset, inputs}));
  return std::vector<Constant>{std::move(constant)};
}

}  // namespace ulfd::convert
