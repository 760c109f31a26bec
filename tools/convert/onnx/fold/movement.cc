// Sources, and operators that move elements, computed while converting.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "tools/convert/onnx/fold/fold.h"

namespace ulfd::convert {

using engine::Dim;

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

std::vector<int64_t> Walk(const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides,
                          int64_t start) {
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

namespace {

// The same values under another shape.
Constant WithSizes(const Constant& c, const std::vector<int64_t>& sizes) {
  Constant out = c;
  out.dims.clear();
  for (const int64_t d : sizes) out.dims.push_back(Dim::Of(d));
  return out;
}

// REQUIRES: at least one element, and not uniform.
bool AllEqual(const Constant& c) {
  if (c.is_float) {
    return std::all_of(c.floats->begin(), c.floats->end(),
                       [&](float v) { return v == c.floats->front(); });
  }
  return std::all_of(c.ints.begin(), c.ints.end(), [&](const Dim& v) { return v == c.ints[0]; });
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

constexpr Fold kFolds[] = {
    {"Constant", &FoldConstant}, {"ConstantOfShape", &FoldConstantOfShape},
    {"Shape", &FoldShapeOf},     {"Size", &FoldSizeOf},
    {"Identity", &FoldSame},     {"Dropout", &FoldDropout},
    {"Cast", &FoldCast},         {"Reshape", &FoldReshape},
    {"Flatten", &FoldFlatten},   {"Unsqueeze", &FoldUnsqueeze},
    {"Squeeze", &FoldSqueeze},   {"Transpose", &FoldTranspose},
    {"Concat", &FoldConcat},     {"Gather", &FoldGather},
    {"Slice", &FoldSlice},       {"Expand", &FoldExpand},
};

}  // namespace

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

absl::Span<const Fold> MovementFolds() { return kFolds; }

}  // namespace ulfd::convert
