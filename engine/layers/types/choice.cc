// Layers that choose entries along an axis, or put them there: top_k, take, scatter.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <limits>
#include <memory>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/errors.h"
#include "base/status_macros.h"
#include "engine/kernels/table.h"
#include "engine/layers/checks.h"
#include "engine/layers/common/function_kernel.h"
#include "engine/layers/common/lanes.h"
#include "engine/layers/common/multiversion.h"
#include "engine/layers/types/building_blocks.h"
#include "engine/layers/types/families.h"

namespace ulfd::engine {
namespace {

// ----------------------------------------------------------------------------------------- top_k

// What decides how good an entry is: NaN as if it were the worst of numbers.
[[gnu::always_inline]] inline float Merit(float value, float sign) {
  return value == value ? sign * value : -std::numeric_limits<float>::infinity();
}

// Puts entries [first, end) of up to 8 columns, which begin at `x + begin[lane]`, among the best
// of those before, the best in front; of equal ones the first in x is in front.  An entry goes
// before all that it beats, of which each moves on by one.  `merits` and `places` have room for
// k * 8.
ULFD_MULTIVERSION void BestOf(const float* x, const int64_t* begin, int lanes, int64_t first,
                              int64_t end, int64_t stride, float sign, int64_t k, float* merits,
                              float* places) {
  constexpr float kNone = std::numeric_limits<float>::quiet_NaN();  // Everything beats it.
  if (first == 0) std::fill_n(merits, k * kLanes, kNone);
  for (int64_t i = first; i < end; ++i) {
    float values[kLanes] = {};
    for (int l = 0; l < lanes; ++l) values[l] = Merit(x[begin[l] + i * stride], sign);
    Lanes merit, own, own_place;
    Load(values, merit);
    const Lanes place = Lanes{} + static_cast<float>(i);
    Load(merits + (k - 1) * kLanes, own);
    Load(places + (k - 1) * kLanes, own_place);
    auto beats = ~(merit <= own);
    for (int64_t j = k - 1; j >= 0; --j) {
      Lanes before = merit, before_place = place;
      if (j > 0) {
        Load(merits + (j - 1) * kLanes, before);
        Load(places + (j - 1) * kLanes, before_place);
      }
      const auto beats_before = j > 0 ? ~(merit <= before) : beats & 0;
      const Lanes next = beats ? (beats_before ? before : merit) : own;
      const Lanes next_place = beats ? (beats_before ? before_place : place) : own_place;
      Store(next, merits + j * kLanes);
      Store(next_place, places + j * kLanes);
      own = before;
      own_place = before_place;
      beats = beats_before;
    }
  }
}

// The better an entry the smaller its rank: by merit, then by place.
uint64_t RankOf(float merit, int64_t place) {
  const auto bits = std::bit_cast<uint32_t>(merit + 0.0f);  // -0 is 0.
  const uint32_t order = bits >> 31 != 0 ? bits : ~bits & 0x7fffffff;
  return uint64_t{order} << 32 | static_cast<uint64_t>(place);
}

class TopKKernel final : public Kernel {
 public:
  TopKKernel(int axis, int64_t k, bool smallest) : axis_(axis), k_(k), sign_(smallest ? -1 : 1) {}
  size_t ScratchBytes(absl::Span<const Tensor> in) const override {
    const int64_t many = std::min(in[0].dims[axis_], k_ + AtOnce()) * int64_t{sizeof(uint64_t)};
    const int64_t few = 2 * k_ * kLanes * int64_t{sizeof(float)};
    return static_cast<size_t>(k_ <= kFew ? std::max(few, many) : many);
  }
  absl::Status Run(RunContext& ctx) const override {
    const int64_t n = ctx.in[0].dims[axis_];
    const Around around(ctx.in[0], axis_);
    if (n < k_ && around.outer * around.inner > 0) {
      return InvalidArgument("input 0: ", n, " entries along axis ", axis_, ", want ", k_,
                             " or more");
    }
    if (k_ == 1) {
      ChooseOne(ctx, n, around);
    } else if (k_ <= kFew && around.outer * around.inner >= kLanes) {
      ChooseFew(ctx, n, around);
    } else {  // Of few columns, most lanes would have none.
      ChooseMany(ctx, n, around);
    }
    return absl::OkStatus();
  }

 private:
  // Of more, going through the best for each entry takes longer than sorting.
  static constexpr int64_t kFew = 64;

  void ChooseOne(RunContext& ctx, int64_t n, const Around& around) const {
    const int64_t inner = around.inner, at_once = Pace::RowsAtOnce(n * inner, 1);
    if (inner == 0) return;
    for (int64_t row = 0; row < around.outer; row += at_once) {
      const int64_t now = std::min(at_once, around.outer - row);
      if (ctx.pace.Stops(now * n * inner)) return;
      const float* const x = ctx.in[0].f32() + row * n * inner;
      float* const best = ctx.out[0].f32() + row * inner;
      float* const places = ctx.out[1].f32() + row * inner;
      Kernels().best_places(sign_ < 0, x, places, now, n, inner);
      for (int64_t i = 0; i < now * inner; ++i) {
        best[i] = x[(i / inner * n + static_cast<int64_t>(places[i])) * inner + i % inner];
      }
    }
  }

  // Columns side by side.
  void ChooseFew(RunContext& ctx, int64_t n, const Around& around) const {
    float* const merits = static_cast<float*>(ctx.scratch);
    float* const places = merits + k_ * kLanes;
    const int64_t columns = around.outer * around.inner;
    for (int64_t first = 0; first < columns; first += kLanes) {
      const int lanes = static_cast<int>(std::min<int64_t>(kLanes, columns - first));
      int64_t begin[kLanes];
      for (int l = 0; l < lanes; ++l) {
        begin[l] = (first + l) / around.inner * n * around.inner + (first + l) % around.inner;
      }
      const int64_t at_once = Pace::RowsAtOnce(k_ * kLanes, 1);
      for (int64_t i = 0; i < n; i += at_once) {
        const int64_t end = std::min(n, i + at_once);
        if (ctx.pace.Stops((end - i) * k_ * kLanes)) return;
        BestOf(ctx.in[0].f32(), begin, lanes, i, end, around.inner, sign_, k_, merits, places);
      }
      for (int l = 0; l < lanes; ++l) {
        for (int64_t j = 0; j < k_; ++j) {
          Put(ctx, around, n, first + l, j, static_cast<int64_t>(places[j * kLanes + l]));
        }
      }
    }
  }

  void ChooseMany(RunContext& ctx, int64_t n, const Around& around) const {
    constexpr int64_t kWork = 128;  // Of ranking an entry and choosing.
    auto* const best = static_cast<uint64_t*>(ctx.scratch);
    for (int64_t column = 0; column < around.outer * around.inner; ++column) {
      const float* const x =
          ctx.in[0].f32() + column / around.inner * n * around.inner + column % around.inner;
      int64_t held = 0;
      for (int64_t i = 0; i < n;) {
        const int64_t end = std::min(n, i + AtOnce());
        if (ctx.pace.Stops((held + end - i) * kWork)) return;
        for (; i < end; ++i) best[held++] = RankOf(Merit(x[i * around.inner], sign_), i);
        std::nth_element(best, best + std::min(held, k_) - 1, best + held);
        held = std::min(held, k_);
      }
      std::sort(best, best + k_);
      for (int64_t j = 0; j < k_; ++j) {
        Put(ctx, around, n, column, j, static_cast<uint32_t>(best[j]));
      }
    }
  }
  // Entries that are ranked before the best are chosen of them.
  int64_t AtOnce() const { return std::max<int64_t>(k_, 1 << 14); }

  // The j-th best of a column.
  void Put(RunContext& ctx, const Around& around, int64_t n, int64_t column, int64_t j,
           int64_t place) const {
    const int64_t outer = column / around.inner, inner = column % around.inner;
    const int64_t at = (outer * k_ + j) * around.inner + inner;
    ctx.out[0].f32()[at] = ctx.in[0].f32()[(outer * n + place) * around.inner + inner];
    ctx.out[1].f32()[at] = static_cast<float>(place);
  }

  const int axis_;
  const int64_t k_;
  const float sign_;
};

// top_k_layer.  Of equal entries the first is in front; NaN counts as the worst of numbers.  Along
// axis 0 the level is unknown.
class TopK final : public Layer {
 public:
  static absl::StatusOr<std::unique_ptr<Layer>> Parse(const ParseContext& ctx) {
    const auto& param = ctx.param.top_k_param();
    if (param.k() < 1) {
      return InvalidArgument("top_k_param.k: ", param.k(), ", want 1 or more");
    }
    if (param.axis() < 0) {
      return InvalidArgument("top_k_param.axis: ", param.axis(), ", want 0 or more");
    }
    return std::unique_ptr<Layer>(new TopK(param.axis(), param.k(), param.smallest()));
  }
  absl::StatusOr<TensorSpecs> Infer(absl::Span<const TensorSpec> in) const override {
    RETURN_IF_ERROR(WantFloat32(in));
    RETURN_IF_ERROR(WantAxis("top_k_param.axis", axis_, in[0]));
    const Dim size = in[0].shape[axis_];
    if (size.IsConst() && size.value() < k_) {
      return BadInput(0, in[0], "at least ", k_, " entries along axis ", axis_);
    }
    TensorSpec out = in[0];
    out.shape[axis_] = Dim::Of(k_);
    out.level = LevelOf(out.shape, in);
    if (axis_ == 0 && out.level != Level::kConstant) out.level = Level::kUnknown;
    return TensorSpecs{out, out};
  }
  double Flops(absl::Span<const TensorSpec> in, absl::Span<const TensorSpec>) const override {
    return static_cast<double>(in[0].shape.Elements().value()) * static_cast<double>(k_);
  }
  absl::StatusOr<std::unique_ptr<Kernel>> Prepare(absl::Span<const TensorSpec>) const override {
    return std::unique_ptr<Kernel>(new TopKKernel(axis_, k_, smallest_));
  }
  std::string Describe() const override {
    return absl::StrCat("axis=", axis_, " k=", k_, smallest_ ? " smallest" : "");
  }
  int axis() const { return axis_; }
  std::unique_ptr<Layer> Along(int axis) const {
    return std::unique_ptr<Layer>(new TopK(axis, k_, smallest_));
  }

 private:
  TopK(int axis, int64_t k, bool smallest) : axis_(axis), k_(k), smallest_(smallest) {}
  const int axis_;
  const int64_t k_;
  const bool smallest_;
};

// ------------------------------------------------------------------------------------------ take

// A place that counts from the end where it is below 0; -1: there is none.
int64_t PlaceOf(float index, int64_t n) {
  if (!(index >= -static_cast<float>(n) && index < static_cast<float>(n))) return -1;
  const auto place = static_cast<int64_t>(index);
  return place < 0 ? place + n : place;
}

absl::StatusOr<int> TakeAxis(const ParseContext& ctx) {
  const int axis = ctx.param.take_param().axis();
  if (axis >= 1) return axis;
  return InvalidArgument("take_param.axis: ", axis, ", want 1 or more");
}

// Of one row: x [outer, n, inner], index [outer, k, inner or 1] -> y [outer, k, inner].
void TakeRow(const float* x, const float* index, int64_t outer, int64_t n, int64_t k, int64_t inner,
             int64_t index_inner, float* y) {
  if (inner == 1) {  // The next loop would be one of single turns.
    for (int64_t o = 0; o < outer; ++o, x += n, index += k, y += k) {
      for (int64_t j = 0; j < k; ++j) {
        const int64_t place = PlaceOf(index[j], n);
        y[j] = place < 0 ? 0.0f : x[place];
      }
    }
    return;
  }
  for (int64_t o = 0; o < outer; ++o, x += n * inner) {
    for (int64_t j = 0; j < k; ++j, index += index_inner, y += inner) {
      if (index_inner == inner) {
        for (int64_t i = 0; i < inner; ++i) {
          const int64_t place = PlaceOf(index[i], n);
          y[i] = place < 0 ? 0.0f : x[place * inner + i];
        }
      } else if (const int64_t place = PlaceOf(*index, n); place < 0) {
        std::fill_n(y, inner, 0.0f);
      } else {
        std::copy_n(x + place * inner, inner, y);
      }
    }
  }
}

// take_layer.  Ranks and axes before the given one are the same, but that one of x and the index
// may have a single row (axis 0) for all; behind it the index has the axes of x, or 1 for each:
// then it stands for all of them.  Zero where there is no such place.  Rows are not taken from
// other rows.
class Take final : public Layer {
 public:
  static absl::StatusOr<std::unique_ptr<Layer>> Parse(const ParseContext& ctx) {
    ASSIGN_OR_RETURN(const int axis, TakeAxis(ctx));
    return std::unique_ptr<Layer>(new Take(axis));
  }
  absl::StatusOr<TensorSpecs> Infer(absl::Span<const TensorSpec> in) const override {
    RETURN_IF_ERROR(WantFloat32(in));
    RETURN_IF_ERROR(WantAxis("take_param.axis", axis_, in[0]));
    const Shape &x = in[0].shape, &index = in[1].shape;
    RETURN_IF_ERROR(WantRank(in, 1, x.rank(), x.rank()));
    TensorSpec out = in[0];
    bool fits = true, same = true, single = true;
    for (int d = 0; d < x.rank(); ++d) {
      const bool one_row = d == 0 && (x[0] == Dim::Users() || x[0] == Dim::Of(1));
      const bool one_index = d == 0 && (index[0] == Dim::Users() || index[0] == Dim::Of(1));
      if (d == axis_ || one_row) {
        out.shape[d] = index[d];
      } else if (d < axis_) {
        const std::optional<Dim> both = one_index ? x[d] : Same(x[d], index[d]);
        fits &= both.has_value();
        out.shape[d] =
            d > 0 || one_index || x[d] == index[d] ? both.value_or(x[d]) : Dim::Unknown();
      } else {
        same &= Same(x[d], index[d]).has_value();
        single &= index[d] == Dim::Of(1);
      }
    }
    if (!fits || !(same || single)) {
      return BadInput(1, in[1], "one that fits input 0: shape ", x.ToString());
    }
    out.level = out.shape[0].IsUnknown() ? Level::kUnknown : LevelOf(out.shape, in);
    return TensorSpecs{out};
  }
  absl::StatusOr<std::unique_ptr<Kernel>> Prepare(absl::Span<const TensorSpec>) const override {
    return MakeKernel([axis = axis_](RunContext& ctx) {
      const Tensor &x = ctx.in[0], &index = ctx.in[1], &y = ctx.out[0];
      const Around all(x, axis), of_index(index, axis);
      const int64_t n = x.dims[axis], k = index.dims[axis], rows = y.dims[0];
      if (y.elements() == 0) return;
      const int64_t outer = all.outer / x.dims[0];
      for (int64_t row = 0; row < rows; ++row) {
        TakeRow(x.f32() + (x.dims[0] == 1 ? 0 : row) * outer * n * all.inner,
                index.f32() + (index.dims[0] == 1 ? 0 : row) * outer * k * of_index.inner, outer, n,
                k, all.inner, of_index.inner, ctx.out[0].f32() + row * outer * k * all.inner);
      }
    });
  }
  std::string Describe() const override { return absl::StrCat("axis=", axis_); }
  int axis() const { return axis_; }

 private:
  explicit Take(int axis) : axis_(axis) {}
  const int axis_;
};

// --------------------------------------------------------------------------------------- scatter

// Of one row: update [outer, k, inner] to the places in index [outer, k, inner or 1] of
// y [outer, n, inner], one after the other.
template <bool add>
void ScatterRow(const float* index, const float* update, int64_t outer, int64_t n, int64_t k,
                int64_t inner, int64_t index_inner, float* y, Pace& pace) {
  constexpr int64_t kWork = 64;  // Of an entry.
  const int64_t width = index_inner == 1 ? inner : 1;
  const int64_t at_once = Pace::RowsAtOnce(index_inner * kWork, 1);
  for (int64_t o = 0; o < outer; ++o, y += n * inner) {
    for (int64_t j = 0; j < k;) {
      const int64_t end = std::min(k, j + at_once);
      if (pace.Stops((end - j) * index_inner * kWork)) return;
      for (; j < end; ++j, index += index_inner, update += inner) {
        for (int64_t i = 0; i < index_inner; ++i) {
          const int64_t place = PlaceOf(index[i], n);
          if (place < 0) continue;
          float* const to = y + place * inner + i;
          for (int64_t w = 0; w < width; ++w) to[w] = add ? to[w] + update[i + w] : update[i + w];
        }
      }
    }
  }
}

// The rows of several inputs, of which some may have a single one for all; nullopt: they differ.
std::optional<Dim> RowsOfAll(absl::Span<const TensorSpec> in) {
  Dim rows = in[0].shape[0];
  for (const TensorSpec& other : in.subspan(1)) {
    const Dim these = other.shape[0];
    if (rows == Dim::Users() || rows == Dim::Of(1)) {
      if (these != Dim::Of(1)) rows = these;
    } else if (these != Dim::Users() && these != Dim::Of(1) && these != rows) {
      if (!Same(rows, these).has_value()) return std::nullopt;
      rows = Dim::Unknown();
    }
  }
  return rows;
}

// scatter_layer, scatter_add_layer.  Ranks and axes are the same, but for the given one, along
// which index and update have as many entries as they like; each input may have a single row for
// all; behind the axis the index may have 1 for each.  Of several entries that replace one the last
// stays.  Entries for places that x lacks are left out.
template <bool add>
class Scatter final : public Layer {
 public:
  static absl::StatusOr<std::unique_ptr<Layer>> Parse(const ParseContext& ctx) {
    ASSIGN_OR_RETURN(const int axis, TakeAxis(ctx));
    return std::unique_ptr<Layer>(new Scatter(axis));
  }
  absl::StatusOr<TensorSpecs> Infer(absl::Span<const TensorSpec> in) const override {
    RETURN_IF_ERROR(WantFloat32(in));
    RETURN_IF_ERROR(WantAxis("take_param.axis", axis_, in[0]));
    const int rank = in[0].shape.rank();
    for (const int i : {1, 2}) RETURN_IF_ERROR(WantRank(in, i, rank, rank));
    const std::optional<Dim> rows = RowsOfAll(in);
    for (const int i : {1, 2}) {
      const Shape& other = in[i].shape;
      bool fits = rows.has_value(), single = i == 1;
      for (int d = axis_ + 1; d < rank; ++d) single &= other[d] == Dim::Of(1);
      for (int d = 1; d < rank; ++d) {
        const Dim want = d == axis_ ? in[1].shape[d] : in[0].shape[d];
        fits &= (d > axis_ && single) || Same(want, other[d]).has_value();
      }
      if (!fits) {
        std::string wanted = absl::StrCat("one that fits input 0: shape ", in[0].shape.ToString());
        if (i == 2) absl::StrAppend(&wanted, ", and input 1: shape ", in[1].shape.ToString());
        return BadInput(i, in[i], wanted);
      }
    }
    TensorSpec out = in[0];
    out.shape[0] = *rows;
    out.level = rows->IsUnknown() ? Level::kUnknown : LevelOf(out.shape, in);
    return TensorSpecs{out};
  }
  absl::StatusOr<std::unique_ptr<Kernel>> Prepare(absl::Span<const TensorSpec>) const override {
    return MakeKernel([axis = axis_](RunContext& ctx) {
      const Tensor &x = ctx.in[0], &index = ctx.in[1], &update = ctx.in[2];
      if (ctx.out[0].elements() == 0) return;
      const Around all(x, axis), of_index(index, axis);
      const int64_t n = x.dims[axis], k = index.dims[axis], outer = all.outer / x.dims[0];
      const int64_t width = outer * n * all.inner, entries = outer * k;
      for (int64_t row = 0; row < ctx.out[0].dims[0]; ++row) {
        const auto of = [row](const Tensor& t, int64_t size) {
          return t.f32() + (t.dims[0] == 1 ? 0 : row) * size;
        };
        if (ctx.pace.Stops(width)) return;
        float* const y = ctx.out[0].f32() + row * width;
        std::copy_n(of(x, width), width, y);
        ScatterRow<add>(of(index, entries * of_index.inner), of(update, entries * all.inner), outer,
                        n, k, all.inner, of_index.inner, y, ctx.pace);
      }
    });
  }
  std::string Describe() const override { return absl::StrCat("axis=", axis_); }

 private:
  explicit Scatter(int axis) : axis_(axis) {}
  const int axis_;
};

constexpr char kScattered[] =
    "x float32, any rank above the axis\nindex float32, whole numbers: below 0 they count from the "
    "end; axes behind may all be 1\nupdate float32; each of the three may have a single row";

constexpr LayerType kTypes[] = {
    {.name = "top_k_layer",
     .summary = "the k largest or smallest entries along an axis, and their places",
     .outputs = {2, 2},
     .param_field = ulf::LayerParameter::kTopKParamFieldNumber,
     .parse = &TopK::Parse,
     .doc = {.formula = "y0[.., j, ..] = the j-th best x[.., i, ..] along the axis; "
                        "y1[.., j, ..] = its i",
             .inputs = "x float32, any rank above the axis",
             .source = "ONNX TopK",
             .example_inputs = "x:5",
             .example_param = "top_k_param { axis: 1 k: 2 }"}},
    {.name = "take_layer",
     .summary = "entries along an axis, by their places",
     .inputs = {2, 2},
     .param_field = ulf::LayerParameter::kTakeParamFieldNumber,
     .parse = &Take::Parse,
     .doc = {.formula = "y[.., j, ..] = x[.., index[.., j, ..], ..] along the axis",
             .inputs = "x float32, any rank above the axis\nindex float32, whole numbers: below 0 "
                       "they count from the end; axes behind may all be 1, one of the two may have "
                       "a single row",
             .source = "ONNX GatherElements; numpy.take_along_axis",
             .example_inputs = "x:5,3;index:2,1",
             .example_param = "take_param { axis: 1 }"}},
    {.name = "scatter_layer",
     .summary = "a tensor with entries along an axis replaced, by their places",
     .inputs = {3, 3},
     .param_field = ulf::LayerParameter::kTakeParamFieldNumber,
     .parse = &Scatter</*add=*/false>::Parse,
     .doc = {.formula = "y = x; for j = 0, 1, ...: y[.., index[.., j, ..], ..] = "
                        "update[.., j, ..] along the axis",
             .inputs = kScattered,
             .source = "ONNX ScatterElements; numpy.put_along_axis",
             .example_inputs = "x:5,3;index:2,1;update:2,3",
             .example_param = "take_param { axis: 1 }"}},
    {.name = "scatter_add_layer",
     .summary = "a tensor with entries along an axis added to, by their places",
     .inputs = {3, 3},
     .param_field = ulf::LayerParameter::kTakeParamFieldNumber,
     .parse = &Scatter</*add=*/true>::Parse,
     .doc = {.formula = "y = x; for j = 0, 1, ...: y[.., index[.., j, ..], ..] += "
                        "update[.., j, ..] along the axis",
             .inputs = kScattered,
             .source = "ONNX ScatterElements; torch.scatter_add",
             .example_inputs = "x:5,3;index:2,1;update:2,3",
             .example_param = "take_param { axis: 1 }"}},
};

}  // namespace

int ChoiceAxisOf(const Layer& layer) {
  if (const auto* const top_k = dynamic_cast<const TopK*>(&layer)) return top_k->axis();
  if (const auto* const take = dynamic_cast<const Take*>(&layer)) return take->axis();
  return -1;
}
std::unique_ptr<Layer> TopKAlong(const Layer& layer, int axis) {
  const auto* const top_k = dynamic_cast<const TopK*>(&layer);
  return top_k == nullptr ? nullptr : top_k->Along(axis);
}

absl::Span<const LayerType> ChoiceLayers() { return kTypes; }

}  // namespace ulfd::engine
