// The interpreter's operators that choose entries by value or place.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "tools/convert/onnx/model/constant.h"
#include "tools/convert/onnx/proof/interpreter.h"

namespace ulfd::convert::reference {
namespace {

// The more, the better.  ONNX does not say what NaN is: as in top_k_layer, the worst of numbers.
double Merit(double value, bool largest) {
  return std::isnan(value) ? -INFINITY : largest ? value : -value;
}

// The places of a line, the best first; of equal ones the first.
std::vector<int64_t> Ranked(const Array& x, int64_t first, int64_t step, int64_t size,
                            bool largest) {
  std::vector<int64_t> places(static_cast<size_t>(size));
  std::iota(places.begin(), places.end(), 0);
  std::stable_sort(places.begin(), places.end(), [&](int64_t a, int64_t b) {
    const double x_a = Merit(x.at(first + a * step), largest);
    return x_a > Merit(x.at(first + b * step), largest);
  });
  return places;
}

template <bool largest>
Results ArgBest(const Call& c) {
  const Array& x = *c.in[0];
  ASSIGN_OR_RETURN(const size_t axis, AxisOf(IntAttribute(c.node, "axis", 0), x.rank()));
  if (x.dims[axis] < 1) return Misfit(c, "an axis without entries");
  const bool last = IntAttribute(c.node, "select_last_index", 0) != 0;
  std::vector<int64_t> out;
  Lines(x.dims, axis, [&](int64_t first, int64_t step) {
    int64_t best = 0;
    for (int64_t i = 1; i < x.dims[axis]; ++i) {
      const double now = Merit(x.at(first + i * step), largest);
      const double before = Merit(x.at(first + best * step), largest);
      if (now > before || (last && now == before)) best = i;
    }
    out.push_back(best);
  });
  Sizes dims = x.dims;
  dims[axis] = 1;
  if (IntAttribute(c.node, "keepdims", 1) == 0) {
    dims.erase(dims.begin() + static_cast<int64_t>(axis));
  }
  return One(Ints(onnx::TensorProto::INT64, dims, std::move(out)));
}

Results TopK(const Call& c) {
  const Array& x = *c.in[0];
  ASSIGN_OR_RETURN(const size_t axis, AxisOf(IntAttribute(c.node, "axis", -1), x.rank()));
  ASSIGN_OR_RETURN(Sizes counts, ListOf(c, 1, "k"));
  if (counts.empty()) counts = {IntAttribute(c.node, "k", 0)};
  const int64_t k = counts[0];
  if (k < 0 || k > x.dims[axis]) return Misfit(c, "more than there are");
  Sizes dims = x.dims;
  dims[axis] = k;
  ASSIGN_OR_RETURN(const int64_t count, CountOf(c, dims));
  std::vector<int64_t> from(static_cast<size_t>(count)), places(static_cast<size_t>(count));
  const bool largest = IntAttribute(c.node, "largest", 1) != 0;
  const int64_t step = StridesOf(dims)[axis];
  int64_t line = 0;
  Lines(x.dims, axis, [&](int64_t first, int64_t own_step) {
    const std::vector<int64_t> ranked = Ranked(x, first, own_step, x.dims[axis], largest);
    const int64_t start = line / step * step * k + line % step;
    for (int64_t i = 0; i < k; ++i) {
      const auto to = static_cast<size_t>(start + i * step);
      places[to] = ranked[static_cast<size_t>(i)];
      from[to] = first + places[to] * own_step;
    }
    ++line;
  });
  return std::vector<Array>{Pick(x, dims, from),
                            Ints(onnx::TensorProto::INT64, dims, std::move(places))};
}

Results OneHot(const Call& c) {
  const Array &x = *c.in[0], &values = *c.in[2];
  if (c.in[1]->elements() != 1 || values.elements() != 2)
    return Misfit(c, "want a depth, two values");
  const auto depth = static_cast<int64_t>(c.in[1]->at(0));
  ASSIGN_OR_RETURN(const size_t axis, AxisOf(IntAttribute(c.node, "axis", -1), x.rank() + 1));
  Sizes dims = x.dims;
  dims.insert(dims.begin() + static_cast<int64_t>(axis), depth);
  ASSIGN_OR_RETURN(const int64_t count, CountOf(c, dims));
  std::vector<int64_t> from;
  const int64_t inner = StridesOf(dims)[axis];
  for (int64_t i = 0; i < count; ++i) {
    const int64_t place = i / inner % depth;
    const double index = x.at(i / inner / depth * inner + i % inner);
    from.push_back(
        (index < 0 ? index + static_cast<double>(depth) : index) == static_cast<double>(place) ? 1
                                                                                               : 0);
  }
  return One(Pick(values, dims, from));
}

Results NonZero(const Call& c) {
  const Array& x = *c.in[0];
  const Sizes strides = StridesOf(x.dims);
  std::vector<int64_t> set;
  for (int64_t i = 0; i < x.elements(); ++i) {
    if (x.at(i) != 0) set.push_back(i);
  }
  std::vector<int64_t> out;
  for (size_t d = 0; d < x.dims.size(); ++d) {
    for (const int64_t i : set) out.push_back(i / strides[d] % x.dims[d]);
  }
  return One(
      Ints(onnx::TensorProto::INT64, {x.rank(), static_cast<int64_t>(set.size())}, std::move(out)));
}

Results GatherNd(const Call& c) {
  const Array &x = *c.in[0], &indices = *c.in[1];
  const int64_t batch = IntAttribute(c.node, "batch_dims", 0);
  if (indices.ints == nullptr || indices.rank() < 1 || batch < 0 || batch >= indices.rank() ||
      batch + indices.dims.back() > x.rank()) {
    return Misfit(c, "indices that do not fit");
  }
  const int64_t depth = indices.dims.back();
  Sizes dims(indices.dims.begin(), indices.dims.end() - 1),
      inner(x.dims.begin() + batch + depth, x.dims.end());
  const Sizes strides = StridesOf(x.dims), own = StridesOf(dims);
  const auto tuples = static_cast<int64_t>(indices.elements() / std::max<int64_t>(1, depth));
  dims.insert(dims.end(), inner.begin(), inner.end());
  RETURN_IF_ERROR(CountOf(c, dims).status());
  ASSIGN_OR_RETURN(const int64_t size, CountOf(c, inner));
  std::vector<int64_t> from;
  for (int64_t t = 0; t < tuples; ++t) {
    int64_t start = 0;
    for (int64_t d = 0; d < batch; ++d) {
      const auto axis = static_cast<size_t>(d);
      start += t / own[axis] % indices.dims[axis] * strides[axis];
    }
    for (int64_t d = 0; d < depth; ++d) {
      const auto axis = static_cast<size_t>(batch + d);
      int64_t index = (*indices.ints)[static_cast<size_t>(t * depth + d)];
      if (index < 0) index += x.dims[axis];
      if (index < 0 || index >= x.dims[axis]) {
        return OutOfRange("an index that the axis does not have");
      }
      start += index * strides[axis];
    }
    for (int64_t i = 0; i < size; ++i) from.push_back(start + i);
  }
  return One(Pick(x, dims, from));
}

Results EyeLike(const Call& c) {
  const Array& x = *c.in[0];
  if (x.rank() != 2) return Misfit(c, "want a matrix");
  const int type = static_cast<int>(IntAttribute(c.node, "dtype", x.type));
  const int64_t k = IntAttribute(c.node, "k", 0);
  std::vector<int64_t> values;
  for (int64_t i = 0; i < x.elements(); ++i) {
    values.push_back(i % x.dims[1] - i / x.dims[1] == k ? 1 : 0);
  }
  if (IsFloatType(type)) return One(Floats(type, x.dims, {values.begin(), values.end()}));
  return One(Ints(type, x.dims, std::move(values)));
}

Results CumSum(const Call& c) {
  const Array& x = *c.in[0];
  if (c.in[1]->elements() != 1) return Misfit(c, "want an axis");
  ASSIGN_OR_RETURN(const size_t axis, AxisOf(static_cast<int64_t>(c.in[1]->at(0)), x.rank()));
  const bool exclusive = IntAttribute(c.node, "exclusive", 0) != 0;
  const bool reverse = IntAttribute(c.node, "reverse", 0) != 0;
  std::vector<double> values = ValuesOf(x), out = values;
  Lines(x.dims, axis, [&](int64_t first, int64_t step) {
    double sum = 0;
    for (int64_t i = 0; i < x.dims[axis]; ++i) {
      const auto k = static_cast<size_t>(first + (reverse ? x.dims[axis] - 1 - i : i) * step);
      if (exclusive) out[k] = c.Round(x.type, sum);
      sum += values[k];
      if (!exclusive) out[k] = c.Round(x.type, sum);
    }
  });
  if (x.is_float()) return One(Floats(x.type, x.dims, std::move(out)));
  return One(Ints(x.type, x.dims, {out.begin(), out.end()}));
}

// Rows of the input replaced by those of the updates, or added to, at tuples of places.
Results ScatterNd(const Call& c) {
  const Array &x = *c.in[0], &indices = *c.in[1], &updates = *c.in[2];
  const std::string reduction = StringAttribute(c.node, "reduction", "none");
  const bool adds = reduction == "add";
  if (!adds && reduction != "none") return Unimplemented("a reduction");
  const int64_t k = indices.rank() < 1 ? 0 : indices.dims.back();
  if (indices.ints == nullptr || k < 1 || k > x.rank()) return Misfit(c, "want tuples of places");
  Sizes wanted(indices.dims.begin(), indices.dims.end() - 1);
  wanted.insert(wanted.end(), x.dims.begin() + k, x.dims.end());
  if (updates.dims != wanted || (updates.ints == nullptr) != (x.ints == nullptr)) {
    return Misfit(c, "updates of another shape or type");
  }
  const Sizes strides = StridesOf(x.dims);
  const int64_t slice = strides[static_cast<size_t>(k) - 1], tuples = indices.elements() / k;
  std::vector<double> floats = x.ints == nullptr ? ValuesOf(x) : std::vector<double>();
  std::vector<int64_t> ints = x.ints == nullptr ? std::vector<int64_t>() : *x.ints;
  for (int64_t tuple = 0; tuple < tuples; ++tuple) {
    int64_t to = 0;
    for (int64_t i = 0; i < k; ++i) {
      const auto axis = static_cast<size_t>(i);
      int64_t place = (*indices.ints)[static_cast<size_t>(tuple * k + i)];
      if (place < 0) place += x.dims[axis];
      if (place < 0 || place >= x.dims[axis])
        return OutOfRange("a place that the axis does not have");
      to += place * strides[axis];
    }
    for (int64_t i = 0; i < slice; ++i) {
      const auto at = static_cast<size_t>(to + i);
      if (x.ints == nullptr) {
        floats[at] = updates.at(tuple * slice + i) + (adds ? floats[at] : 0);
      } else {
        const int64_t update = (*updates.ints)[static_cast<size_t>(tuple * slice + i)];
        ints[at] = Wrap(x.type, update + (adds ? ints[at] : 0));
      }
    }
  }
  return One(x.ints == nullptr ? Floats(x.type, x.dims, std::move(floats))
                               : Ints(x.type, x.dims, std::move(ints)));
}

// Entries replaced along an axis, or added to.
Results ScatterElements(const Call& c) {
  const Array &x = *c.in[0], &indices = *c.in[1], &updates = *c.in[2];
  const std::string reduction = StringAttribute(c.node, "reduction", "none");
  const bool adds = reduction == "add";
  if (!adds && reduction != "none") return Unimplemented("a reduction");
  ASSIGN_OR_RETURN(const size_t axis, AxisOf(IntAttribute(c.node, "axis", 0), x.rank()));
  if (indices.ints == nullptr || indices.dims != updates.dims || indices.rank() != x.rank() ||
      (updates.ints == nullptr) != (x.ints == nullptr)) {
    return Misfit(c, "indices and updates that do not fit");
  }
  for (size_t d = 0; d < x.dims.size(); ++d) {
    if (d != axis && indices.dims[d] > x.dims[d]) return Misfit(c, "more indices than places");
  }
  const Sizes strides = StridesOf(x.dims), own = StridesOf(indices.dims);
  std::vector<double> floats = x.ints == nullptr ? ValuesOf(x) : std::vector<double>();
  std::vector<int64_t> ints = x.ints == nullptr ? std::vector<int64_t>() : *x.ints;
  for (int64_t i = 0; i < indices.elements(); ++i) {
    int64_t place = (*indices.ints)[static_cast<size_t>(i)], to = 0;
    if (place < 0) place += x.dims[axis];
    if (place < 0 || place >= x.dims[axis])
      return OutOfRange("a place that the axis does not have");
    for (size_t d = 0; d < x.dims.size(); ++d) {
      to += (d == axis ? place : i / own[d] % indices.dims[d]) * strides[d];
    }
    const auto at = static_cast<size_t>(to);
    if (x.ints == nullptr) {
      floats[at] = updates.at(i) + (adds ? floats[at] : 0);
    } else {
      ints[at] = Wrap(x.type, (*updates.ints)[static_cast<size_t>(i)] + (adds ? ints[at] : 0));
    }
  }
  return One(x.ints == nullptr ? Floats(x.type, x.dims, std::move(floats))
                               : Ints(x.type, x.dims, std::move(ints)));
}

constexpr Operator kOperators[] = {
    {"Scatter", 3, &ScatterElements},
    {"ScatterElements", 3, &ScatterElements},
    {"ArgMax", 1, &ArgBest</*largest=*/true>},
    {"ArgMin", 1, &ArgBest</*largest=*/false>},
    {"TopK", 1, &TopK},
    {"OneHot", 3, &OneHot},
    {"NonZero", 1, &NonZero},
    {"EyeLike", 1, &EyeLike},
    {"GatherND", 2, &GatherNd},
    {"ScatterND", 3, &ScatterNd},
    {"CumSum", 2, &CumSum},
};

}  // namespace

absl::Span<const Operator> SelectOperators() { return kOperators; }

}  // namespace ulfd::convert::reference
