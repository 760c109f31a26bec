// The interpreter's operators that move, cut, join or count elements.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_join.h"
#include "base/errors.h"
#include "base/status_macros.h"
#include "tools/convert/onnx/model/constant.h"
#include "tools/convert/onnx/proof/interpreter.h"

namespace ulfd::convert::reference {
namespace {

absl::Status Misfit(const Array& x, absl::string_view what) {
  return InvalidArgument("input of shape [", absl::StrJoin(x.dims, ", "), "]: ", what);
}

// The same elements under another shape.
Results Shaped(const Array& x, Sizes dims) {
  Array out = x;
  out.dims = std::move(dims);
  if (out.elements() != x.elements()) return Misfit(x, "another number of elements is wanted");
  return One(std::move(out));
}

Results Reshape(const Call& c) {
  const Array& x = *c.in[0];
  ASSIGN_OR_RETURN(Sizes dims, ListOf(c, 1, "shape"));
  const bool keep_zero = IntAttribute(c.node, "allowzero", 0) == 0;
  int64_t known = 1;
  int64_t* open = nullptr;
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] == 0 && keep_zero) {
      if (i >= x.dims.size()) return Misfit(x, "has no such dimension to keep");
      dims[i] = x.dims[i];
    }
    if (dims[i] == -1) {
      if (open != nullptr) return Misfit(x, "two dimensions are open");
      open = &dims[i];
    } else if (dims[i] < 0 || (dims[i] > 0 && known > c.options.budget.max_elements / dims[i])) {
      return Misfit(x, "a dimension that cannot be");
    } else {
      known *= dims[i];
    }
  }
  if (open != nullptr) *open = known == 0 ? 0 : x.elements() / known;
  return Shaped(x, std::move(dims));
}

Results Flatten(const Call& c) {
  const Array& x = *c.in[0];
  const int64_t stated = IntAttribute(c.node, "axis", 1);  // Up to the rank, which is no axis.
  ASSIGN_OR_RETURN(const size_t axis,
                   AxisOf(stated < 0 ? stated + x.rank() : stated, x.rank() + 1));
  return Shaped(x, {ProductOf(x.dims, 0, axis), ProductOf(x.dims, axis)});
}

Results Squeeze(const Call& c) {
  const Array& x = *c.in[0];
  ASSIGN_OR_RETURN(const Sizes axes, ListOf(c, 1, "axes"));
  std::vector<bool> drop(x.dims.size(), false);
  for (size_t d = 0; axes.empty() && d < drop.size(); ++d) drop[d] = x.dims[d] == 1;
  for (const int64_t axis : axes) {
    ASSIGN_OR_RETURN(const size_t d, AxisOf(axis, x.rank()));
    if (x.dims[d] != 1) return Misfit(x, "a dimension to drop is not 1");
    drop[d] = true;
  }
  Sizes dims;
  for (size_t d = 0; d < drop.size(); ++d) {
    if (!drop[d]) dims.push_back(x.dims[d]);
  }
  return Shaped(x, std::move(dims));
}

Results Unsqueeze(const Call& c) {
  const Array& x = *c.in[0];
  ASSIGN_OR_RETURN(const Sizes axes, ListOf(c, 1, "axes"));
  std::vector<bool> added(x.dims.size() + axes.size(), false);
  for (const int64_t axis : axes) {
    ASSIGN_OR_RETURN(const size_t d, AxisOf(axis, static_cast<int64_t>(added.size())));
    if (added[d]) return Misfit(x, "an axis is there twice");
    added[d] = true;
  }
  Sizes dims;
  size_t next = 0;
  for (const bool one : added) dims.push_back(one ? 1 : x.dims[next++]);
  return Shaped(x, std::move(dims));
}

// What a walk over `dims` by `strides` from `start` reads.
Results Strided(const Call& c, const Array& x, const Sizes& dims, const Sizes& strides,
                int64_t start = 0) {
  ASSIGN_OR_RETURN(const int64_t count, CountOf(c, dims));
  std::vector<int64_t> from;
  from.reserve(static_cast<size_t>(count));
  const Sizes all[] = {strides};
  Walk(dims, all, [&](const int64_t* at) { from.push_back(start + at[0]); });
  return One(Pick(x, dims, from));
}

Results Transpose(const Call& c) {
  const Array& x = *c.in[0];
  Sizes perm = IntsAttribute(c.node, "perm");
  if (FindAttribute(c.node, "perm") == nullptr) {
    for (int64_t d = x.rank(); d-- > 0;) perm.push_back(d);
  }
  Sizes sorted = perm, dims, strides;
  std::sort(sorted.begin(), sorted.end());
  for (size_t d = 0; d < std::max(sorted.size(), x.dims.size()); ++d) {
    if (d >= sorted.size() || d >= x.dims.size() || sorted[d] != static_cast<int64_t>(d)) {
      return Misfit(x, "perm is no order of its axes");
    }
  }
  const Sizes own = StridesOf(x.dims);
  for (const int64_t axis : perm) {
    dims.push_back(x.dims[static_cast<size_t>(axis)]);
    strides.push_back(own[static_cast<size_t>(axis)]);
  }
  return Strided(c, x, dims, strides);
}

Results Expand(const Call& c) {
  ASSIGN_OR_RETURN(const Sizes wanted, ListOf(c, 1, "shape"));
  ASSIGN_OR_RETURN(const Sizes dims, BroadcastSizes(c.in[0]->dims, wanted));
  return Strided(c, *c.in[0], dims, BroadcastStrides(c.in[0]->dims, dims));
}

Results Tile(const Call& c) {
  const Array& x = *c.in[0];
  ASSIGN_OR_RETURN(const Sizes repeats, ListOf(c, 1, "repeats"));
  if (repeats.size() != x.dims.size()) return Misfit(x, "repeats of another rank");
  // Seen as [r0, d0, r1, d1, ...], of which the r are repeated.
  Sizes dims, strides, out;
  const Sizes own = StridesOf(x.dims);
  for (size_t d = 0; d < repeats.size(); ++d) {
    dims.insert(dims.end(), {repeats[d], x.dims[d]});
    strides.insert(strides.end(), {0, own[d]});
    RETURN_IF_ERROR(CountOf(c, {repeats[d], x.dims[d]}).status());
    out.push_back(repeats[d] * x.dims[d]);
  }
  ASSIGN_OR_RETURN(const std::vector<Array> tiled, Strided(c, x, dims, strides));
  return Shaped(tiled[0], out);
}

Results Concat(const Call& c) {
  const Array& first = *c.in[0];
  ASSIGN_OR_RETURN(const size_t axis, AxisOf(IntAttribute(c.node, "axis", 0), first.rank()));
  Sizes dims = first.dims;
  dims[axis] = 0;
  for (const Array* x : c.in) {
    if (x == nullptr || x->type != first.type || x->rank() != first.rank()) {
      return Misfit(first, "cannot be joined with the others");
    }
    for (size_t d = 0; d < dims.size(); ++d) {
      if (d != axis && x->dims[d] != dims[d]) return Misfit(*x, "cannot be joined with the others");
    }
    dims[axis] += x->dims[axis];
  }
  ASSIGN_OR_RETURN(const int64_t count, CountOf(c, dims));
  const int64_t outer = ProductOf(dims, 0, axis), inner = ProductOf(dims, axis + 1);
  Elements out(first.type, count);
  for (int64_t o = 0; o < outer; ++o) {
    for (const Array* x : c.in) {
      const int64_t piece = x->dims[axis] * inner;
      for (int64_t i = o * piece; i < (o + 1) * piece; ++i) out.Add(*x, i);
    }
  }
  return One(out.Take(std::move(dims)));
}

Results Slice(const Call& c) {
  const Array& x = *c.in[0];
  ASSIGN_OR_RETURN(const Sizes starts, ListOf(c, 1, "starts"));
  ASSIGN_OR_RETURN(const Sizes ends, ListOf(c, 2, "ends"));
  ASSIGN_OR_RETURN(Sizes axes, ListOf(c, 3, "axes"));
  ASSIGN_OR_RETURN(Sizes steps, ListOf(c, 4, "steps"));
  for (size_t i = 0; i < starts.size() && axes.size() < starts.size(); ++i) {
    axes.push_back(static_cast<int64_t>(i));
  }
  if (steps.empty()) steps.assign(starts.size(), 1);
  if (ends.size() != starts.size() || axes.size() != starts.size() ||
      steps.size() != starts.size()) {
    return Misfit(x, "starts, ends, axes and steps differ in length");
  }
  Sizes dims = x.dims, strides = StridesOf(x.dims);
  int64_t begin = 0;
  for (size_t i = 0; i < starts.size(); ++i) {
    ASSIGN_OR_RETURN(const size_t axis, AxisOf(axes[i], x.rank()));
    const int64_t size = dims[axis];
    if (size > (int64_t{1} << 40)) return Misfit(x, "too large");
    const int64_t far = int64_t{1} << 41;
    const int64_t step = std::clamp(steps[i], -far, far);
    if (step == 0) return Misfit(x, "a step of 0");
    const auto bound = [&](int64_t at) {
      at = std::clamp(at, -far, far);
      if (at < 0) at += size;
      return step > 0 ? std::clamp<int64_t>(at, 0, size) : std::clamp<int64_t>(at, -1, size - 1);
    };
    const int64_t from = bound(starts[i]), to = bound(ends[i]);
    const int64_t span = step > 0 ? to - from : from - to;
    const int64_t stride = step > 0 ? step : -step;
    dims[axis] = span <= 0 ? 0 : (span + stride - 1) / stride;
    begin += dims[axis] == 0 ? 0 : from * strides[axis];
    // A single element has no next one, which might lie far.
    strides[axis] = dims[axis] <= 1 ? 0 : strides[axis] * step;
  }
  return Strided(c, x, dims, strides, begin);
}

Results Split(const Call& c) {
  const Array& x = *c.in[0];
  ASSIGN_OR_RETURN(const size_t axis, AxisOf(IntAttribute(c.node, "axis", 0), x.rank()));
  ASSIGN_OR_RETURN(Sizes parts, ListOf(c, 1, "split"));
  const int64_t outputs = c.node.output_size();
  if (parts.empty()) {
    // The last one is smaller where they cannot be equal.
    const int64_t each = (x.dims[axis] + outputs - 1) / outputs;
    int64_t left = x.dims[axis];
    for (int64_t i = 0; i < outputs; ++i) {
      parts.push_back(std::min(each, left));
      left -= parts.back();
    }
  }
  const Sizes strides = StridesOf(x.dims);
  std::vector<Array> results;
  int64_t begin = 0;
  for (const int64_t part : parts) {
    if (part < 0 || part > x.dims[axis] - begin) return Misfit(x, "parts that do not fit");
    Sizes dims = x.dims;
    dims[axis] = part;
    ASSIGN_OR_RETURN(std::vector<Array> cut, Strided(c, x, dims, strides, begin * strides[axis]));
    results.push_back(std::move(cut[0]));
    begin += part;
  }
  if (begin != x.dims[axis] || static_cast<int64_t>(results.size()) != outputs) {
    return Misfit(x, "parts that do not fit");
  }
  return results;
}

Results Gather(const Call& c) {
  const Array &x = *c.in[0], &indices = *c.in[1];
  ASSIGN_OR_RETURN(const size_t axis, AxisOf(IntAttribute(c.node, "axis", 0), x.rank()));
  if (indices.ints == nullptr) return Misfit(indices, "indices that are no integers");
  Sizes dims(x.dims.begin(), x.dims.begin() + static_cast<int64_t>(axis));
  dims.insert(dims.end(), indices.dims.begin(), indices.dims.end());
  dims.insert(dims.end(), x.dims.begin() + static_cast<int64_t>(axis) + 1, x.dims.end());
  ASSIGN_OR_RETURN(const int64_t count, CountOf(c, dims));
  const int64_t outer = ProductOf(x.dims, 0, axis), inner = ProductOf(x.dims, axis + 1);
  std::vector<int64_t> from;
  from.reserve(static_cast<size_t>(count));
  for (int64_t o = 0; o < outer; ++o) {
    for (const int64_t index : *indices.ints) {
      const int64_t row = index < 0 ? index + x.dims[axis] : index;
      if (row < 0 || row >= x.dims[axis]) {
        return OutOfRange("index ", index, " of ", x.dims[axis], " entries");
      }
      for (int64_t i = 0; i < inner; ++i) from.push_back((o * x.dims[axis] + row) * inner + i);
    }
  }
  return One(Pick(x, dims, from));
}

Results GatherElements(const Call& c) {
  const Array &x = *c.in[0], &indices = *c.in[1];
  ASSIGN_OR_RETURN(const size_t axis, AxisOf(IntAttribute(c.node, "axis", 0), x.rank()));
  if (indices.ints == nullptr || indices.rank() != x.rank()) {
    return Misfit(indices, "indices of another rank or type");
  }
  for (size_t d = 0; d < x.dims.size(); ++d) {
    if (d != axis && indices.dims[d] > x.dims[d]) return Misfit(indices, "more indices than rows");
  }
  Sizes strides = StridesOf(x.dims);
  const int64_t along = strides[axis];
  strides[axis] = 0;
  std::vector<int64_t> from;
  size_t next = 0;
  bool fits = true;
  const Sizes all[] = {strides};
  Walk(indices.dims, all, [&](const int64_t* at) {
    int64_t index = (*indices.ints)[next++];
    if (index < 0) index += x.dims[axis];
    fits = fits && index >= 0 && index < x.dims[axis];
    from.push_back(at[0] + (fits ? index * along : 0));
  });
  if (!fits) return OutOfRange("an index that the axis does not have");
  return One(Pick(x, indices.dims, from));
}

Results ShapeOf(const Call& c) {
  const Array& x = *c.in[0];
  const auto clamp = [&](int64_t at) {
    return std::clamp<int64_t>(at < 0 ? at + x.rank() : at, 0, x.rank());
  };
  const int64_t start = clamp(IntAttribute(c.node, "start", 0));
  const int64_t end = std::max(start, clamp(IntAttribute(c.node, "end", x.rank())));
  return One(Ints(onnx::TensorProto::INT64, {end - start},
                  {x.dims.begin() + start, x.dims.begin() + end}));
}

Results SizeOf(const Call& c) {
  return One(Ints(onnx::TensorProto::INT64, {}, {c.in[0]->elements()}));
}

Results ConstantOfShape(const Call& c) {
  ASSIGN_OR_RETURN(const Sizes dims, ListOf(c, 0, "shape"));
  ASSIGN_OR_RETURN(const int64_t count, CountOf(c, dims));
  const onnx::AttributeProto* const filled = FindAttribute(c.node, "value");
  const auto size = static_cast<size_t>(count);
  if (filled == nullptr) {
    return One(Floats(onnx::TensorProto::FLOAT, dims, std::vector<double>(size, 0.0)));
  }
  ASSIGN_OR_RETURN(const Constant value, ReadTensor(filled->t()));
  if (value.elements() != 1) return InvalidArgument("a value of several elements");
  const int type = filled->t().data_type();
  if (value.is_float) return One(Floats(type, dims, std::vector<double>(size, value.f32(0))));
  return One(Ints(type, dims, std::vector<int64_t>(size, value.dim(0).value())));
}

Results Range(const Call& c) {
  for (size_t i = 0; i < 3; ++i) {
    if (c.in[i]->elements() != 1) return Misfit(*c.in[i], "want one number");
  }
  const double start = c.in[0]->at(0), limit = c.in[1]->at(0), delta = c.in[2]->at(0);
  const double steps = std::ceil((limit - start) / delta);
  if (delta == 0 || !(steps <= static_cast<double>(c.options.budget.max_elements))) {
    return InvalidArgument("a range without end");
  }
  const auto count = static_cast<int64_t>(std::max(0.0, steps));
  std::vector<double> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(start + static_cast<double>(i) * delta);
  const int type = c.in[0]->type;
  if (c.in[0]->is_float()) return One(Floats(type, {count}, std::move(values)));
  return One(Ints(type, {count}, {values.begin(), values.end()}));
}

Results Pad(const Call& c) {
  const Array& x = *c.in[0];
  ASSIGN_OR_RETURN(const Sizes pads, ListOf(c, 1, "pads"));
  Sizes axes;
  if (c.Has(3)) {
    ASSIGN_OR_RETURN(axes, ListOf(c, 3, "axes"));
  }
  for (int64_t d = 0; !c.Has(3) && d < x.rank(); ++d) axes.push_back(d);
  if (pads.size() != 2 * axes.size()) return Misfit(x, "pads of another length");
  const std::string mode = StringAttribute(c.node, "mode", "constant");
  if (mode != "constant" && mode != "edge" && mode != "reflect") {
    return Unimplemented("mode ", mode);
  }
  Sizes before(x.dims.size(), 0), dims = x.dims;
  for (size_t i = 0; i < axes.size(); ++i) {
    ASSIGN_OR_RETURN(const size_t axis, AxisOf(axes[i], x.rank()));
    before[axis] = pads[i];
    if (std::abs(pads[i]) > c.options.budget.max_elements ||
        std::abs(pads[i + axes.size()]) > c.options.budget.max_elements) {
      return Misfit(x, "pads that are too large");
    }
    dims[axis] += pads[i] + pads[i + axes.size()];
  }
  ASSIGN_OR_RETURN(const int64_t count, CountOf(c, dims));
  double fill = double{FloatAttribute(c.node, "value", 0)};
  if (c.Has(2)) {
    if (c.in[2]->elements() != 1) return Misfit(*c.in[2], "want one number");
    fill = c.in[2]->at(0);
  }
  const Array filling =
      x.is_float() ? Floats(x.type, {}, {fill}) : Ints(x.type, {}, {static_cast<int64_t>(fill)});
  const Sizes own = StridesOf(x.dims);
  Sizes at(dims.size(), 0);
  Elements out(x.type, count);
  for (int64_t k = 0; k < count; ++k, Step(dims, at)) {
    int64_t place = 0;
    bool inside = true;
    for (size_t d = 0; d < dims.size(); ++d) {
      int64_t i = at[d] - before[d];
      const int64_t end = x.dims[d] - 1;
      if (mode == "edge") i = std::clamp<int64_t>(i, 0, end);
      while (mode == "reflect" && end > 0 && (i < 0 || i > end)) i = i < 0 ? -i : 2 * end - i;
      inside = inside && i >= 0 && i < x.dims[d];
      place += i * own[d];
    }
    out.Add(inside ? x : filling, inside ? place : 0);
  }
  return One(out.Take(std::move(dims)));
}

constexpr Operator kOperators[] = {
    {"Reshape", 1, &Reshape},
    {"Flatten", 1, &Flatten},
    {"Squeeze", 1, &Squeeze},
    {"Unsqueeze", 1, &Unsqueeze},
    {"Transpose", 1, &Transpose},
    {"Expand", 2, &Expand},
    {"Tile", 2, &Tile},
    {"Concat", 1, &Concat},
    {"Slice", 1, &Slice},
    {"Split", 1, &Split},
    {"Gather", 2, &Gather},
    {"GatherElements", 2, &GatherElements},
    {"Shape", 1, &ShapeOf},
    {"Size", 1, &SizeOf},
    {"ConstantOfShape", 1, &ConstantOfShape},
    {"Range", 3, &Range},
    {"Pad", 1, &Pad},
};

}  // namespace

absl::Span<const Operator> MovementOperators() { return kOperators; }

}  // namespace ulfd::convert::reference
