// Layers that move or rename elements: reshape, concat, slice, broadcast_to.  They keep the type of
// their input.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/errors.h"
#include "base/status_macros.h"
#include "engine/layers/checks.h"
#include "engine/layers/common/broadcast.h"
#include "engine/layers/common/function_kernel.h"
#include "engine/layers/common/strided_copy.h"
#include "engine/layers/types/building_blocks.h"
#include "engine/layers/types/families.h"

namespace ulfd::engine {
namespace {

using Sizes = std::vector<int64_t>;

// Dimensions as a layer's parameter states them: 0, -1 or more.
absl::StatusOr<Sizes> ReadSizes(absl::string_view field,
                                const google::protobuf::RepeatedField<int32_t>& values) {
  Sizes sizes(values.begin(), values.end());
  for (int64_t size : sizes) {
    if (size >= -1) continue;
    return InvalidArgument(field, ": ", ToString(sizes), ", want -1 or more");
  }
  return sizes;
}

// ---------------------------------------------------------------------------------------- reshape

// reshape_layer (the guide also spells it rehshape_layer).  The level is that of x if its rows
// still lead.  A leading 1 on a user's tensor means "per user".
class Reshape final : public Layer {
 public:
  explicit Reshape(Sizes sizes) : sizes_(std::move(sizes)) {}

  static absl::StatusOr<std::unique_ptr<Layer>> Parse(const ParseContext& ctx) {
    ASSIGN_OR_RETURN(Sizes sizes,
                     ReadSizes("reshape_param.shape", ctx.param.reshape_param().shape()));
    if (std::count(sizes.begin(), sizes.end(), -1) > 1) {
      return InvalidArgument("reshape_param.shape: ", ToString(sizes), ", want at most one -1");
    }
    return std::unique_ptr<Layer>(new Reshape(std::move(sizes)));
  }
  absl::StatusOr<TensorSpecs> Infer(absl::Span<const TensorSpec> in) const override {
    // Dimensions kept by 0 cancel; what is left on both sides has to have the same number of
    // elements.
    Shape::Dims left = in[0].shape.dims();
    Shape::Dims dims(sizes_.size());
    Dim known = Dim::Of(1);
    int inferred = -1;
    for (int i = 0; i < static_cast<int>(sizes_.size()); ++i) {
      const bool user_rows = i == 0 && sizes_[0] == 1 && !left.empty() && left[0] == Dim::Users() &&
                             in[0].level == Level::kUser;
      if (sizes_[i] == 0 || user_rows) {
        if (i >= static_cast<int>(left.size())) {
          return Mismatch(in[0], "a dimension at place ", i);
        }
        dims[i] = std::exchange(left[i], Dim::Of(1));
      } else if (sizes_[i] == -1) {
        inferred = i;
      } else {
        dims[i] = Dim::Of(sizes_[i]);
        known = Multiply(known, dims[i]);
      }
    }
    const Dim elements = Shape(left).Elements();
    if (inferred >= 0) {
      const std::optional<Dim> rest = Divide(elements, known);
      if (!rest.has_value()) return Mismatch(in[0], "a multiple of ", known.value(), " elements");
      dims[inferred] = *rest;
    } else if (!CouldHaveSize(elements, known)) {
      return Mismatch(in[0], known.ToString(), " elements rather than ", elements.ToString());
    }
    TensorSpec out{in[0].dtype, Shape(std::move(dims)), Level::kUnknown};
    return OnlyOutput(std::move(out), in);
  }
  void SuggestInputs(absl::Span<TensorSpec> in) const override {
    if (sizes_.size() < 2 || sizes_[0] != 1) return;
    Dim product = Dim::Of(1);
    for (int64_t size : sizes_) {
      if (size == 0) return;
      product = size < 0 ? Dim::Unknown() : Multiply(product, Dim::Of(size));
    }
    Suggest(in[0], Shape({Dim::Users(), product}), Level::kUser);
  }
  Semantics semantics() const override { return {.op = Semantics::Op::kReshape}; }
  absl::StatusOr<std::unique_ptr<Kernel>> Prepare(absl::Span<const TensorSpec>) const override {
    return MakeView();
  }
  std::string Describe() const override { return absl::StrCat("shape=", ToString(sizes_)); }

 private:
  // A request has one user, so that a user's row counts as 1.
  static bool CouldHaveSize(Dim elements, Dim size) {
    if (elements.IsUsers()) return elements.value() == size.value();
    return CouldBeEqual(elements, size);
  }
  template <typename... Parts>
  absl::Status Mismatch(const TensorSpec& in, const Parts&... wanted) const {
    return BadInput(0, in, wanted..., " for reshape_param.shape ", ToString(sizes_));
  }

  const Sizes sizes_;
};

// ---------------------------------------------------------------------------------------- concat

// Pieces of so few bytes that a call for each takes longer than the copy.
constexpr size_t kSmallPiece = 32;
void CopySmallPieces(const int32_t* from, int64_t pieces, int64_t elements, int64_t row,
                     int32_t* to) {
  if (elements == 1) {
    for (int64_t p = 0; p < pieces; ++p) to[p * row] = from[p];
    return;
  }
  for (int64_t p = 0; p < pieces; ++p, from += elements, to += row) {
    for (int64_t i = 0; i < elements; ++i) to[i] = from[i];
  }
}

// concat_layer.  The level is that of the higher input if the rows still lead.
class Concat final : public Layer {
 public:
  explicit Concat(int axis) : axis_(axis) {}

  static absl::StatusOr<std::unique_ptr<Layer>> Parse(const ParseContext& ctx) {
    const int axis = ctx.param.concat_param().dim();
    RETURN_IF_ERROR(WantBetween("concat_param.dim", axis, 0));
    return std::unique_ptr<Layer>(new Concat(axis));
  }
  absl::StatusOr<TensorSpecs> Infer(absl::Span<const TensorSpec> in) const override {
    RETURN_IF_ERROR(WantOneType(in));
    RETURN_IF_ERROR(WantAxis("concat_param.dim", axis_, in[0]));
    TensorSpec out = in[0];
    bool mixed_rows = false;  // Users' beside ads': the same only where there is one ad.
    for (int i = 1; i < static_cast<int>(in.size()); ++i) {
      const Shape& shape = in[i].shape;
      mixed_rows |= axis_ > 0 && shape.rank() > 0 &&
                    ((shape[0].IsUsers() && in[0].shape[0].IsAds()) ||
                     (shape[0].IsAds() && in[0].shape[0].IsUsers()));
      bool fits = shape.rank() == out.shape.rank();
      for (int d = 0; fits && d < shape.rank(); ++d) {
        if (d == axis_) {
          out.shape[d] = Sum(out.shape[d], shape[d]);
          continue;
        }
        const std::optional<Dim> same = Same(out.shape[d], shape[d]);
        fits = same.has_value();
        if (fits) out.shape[d] = *same;
      }
      if (!fits) {
        return BadInput(i, in[i], "input 0's shape ", in[0].shape.ToString(), " except along axis ",
                        axis_);
      }
    }
    if (mixed_rows) out.shape[0] = Dim::Unknown();
    return OnlyOutput(std::move(out), in);
  }
  // What stands beside a tensor has its rows, unless the rows are what is joined.
  void SuggestInputs(absl::Span<TensorSpec> in) const override {
    const auto known = std::find_if(in.begin(), in.end(), [&](const TensorSpec& spec) {
      return spec.shape.ranked() && spec.shape.rank() > axis_;
    });
    if (known == in.end() || axis_ == 0) return;
    Shape shape = known->shape;
    shape[axis_] = Dim::Unknown();
    const Level level = known->level;
    for (TensorSpec& spec : in) Suggest(spec, shape, level);
  }
  Semantics semantics() const override { return {.op = Semantics::Op::kConcat, .axis = axis_}; }
  absl::StatusOr<std::unique_ptr<Kernel>> Prepare(absl::Span<const TensorSpec>) const override {
    return MakeKernel([axis = axis_](RunContext& ctx) {
      const Tensor& out = ctx.out[0];
      const int64_t outer = Around(out, axis).outer;
      if (out.elements() == 0) return;
      const size_t row = out.bytes() / outer;
      char* to = static_cast<char*>(ctx.out[0].data);
      for (const Tensor& x : ctx.in) {
        const size_t piece = x.bytes() / outer;
        if (piece > 0 && piece <= kSmallPiece) {
          constexpr size_t kWord = sizeof(int32_t);
          CopySmallPieces(x.i32(), outer, piece / kWord, row / kWord,
                          reinterpret_cast<int32_t*>(to));
        } else {
          const char* from = static_cast<const char*>(x.data);
          for (int64_t o = 0; o < outer && piece > 0; ++o) {
            std::memcpy(to + o * row, from + o * piece, piece);
          }
        }
        to += piece;
      }
    });
  }
  std::string Describe() const override { return absl::StrCat("dim=", axis_); }

 private:
  const int axis_;
};

// ---------------------------------------------------------------------------------------- slice

// Returns what is behind the copy.
char* CopyPiece(const char* from, size_t bytes, char* to) {
  if (bytes == sizeof(float)) {  // One number, as columns are: no call.
    std::memcpy(to, from, sizeof(float));
  } else {
    std::memcpy(to, from, bytes);
  }
  return to + bytes;
}

// A piece of each row as slice_layer's parameters state it.
struct Piece {
  int64_t offset = 0;
  Sizes shape;
  int64_t elements = 1;
};

// slice_layer.  x is seen as [d0, rest].
class SliceRows final : public Layer {
 public:
  SliceRows(std::vector<Piece> pieces, int concat_dim, Sizes shape)
      : pieces_(std::move(pieces)), concat_dim_(concat_dim), shape_(std::move(shape)) {}

  static absl::StatusOr<std::unique_ptr<Layer>> Parse(const ParseContext& ctx) {
    const ulf::SliceParameter& p = ctx.param.slice_param();
    if (p.slices().empty()) {
      return InvalidArgument("slice_param.slices: none, want at least one");
    }
    std::vector<Piece> pieces;
    for (const ulf::Slice& slice : p.slices()) {
      Piece piece{slice.offset(), Sizes(slice.shape().begin(), slice.shape().end())};
      const std::string field = absl::StrCat("slice_param.slices[", pieces.size(), "]");
      for (int64_t size : piece.shape) {
        if (size < 1) {
          return InvalidArgument(field, ".shape: ", ToString(piece.shape),
                                 ", want sizes of 1 or more");
        }
        if (size > kMaxElements / piece.elements) {
          return InvalidArgument(field, ".shape: ", ToString(piece.shape),
                                 ", want at most 2^31 elements");
        }
        piece.elements *= size;
      }
      RETURN_IF_ERROR(WantBetween(absl::StrCat(field, ".offset"), piece.offset, 0));
      pieces.push_back(std::move(piece));
    }
    int concat_dim = p.concat_dim();
    if (concat_dim > 0 && concat_dim == static_cast<int>(pieces[0].shape.size())) {
      // The layer guide's own example counts the rows, too; no other reading of it has a meaning.
      --concat_dim;
      ctx.notices.push_back(absl::StrCat("slice_param.concat_dim ", p.concat_dim(),
                                         " is beyond a piece's dimensions; read as axis ",
                                         p.concat_dim(),
                                         " of the result, like the guide's example"));
    }
    return Join(std::move(pieces), concat_dim);
  }
  absl::StatusOr<TensorSpecs> Infer(absl::Span<const TensorSpec> in) const override {
    if (in[0].shape.rank() == 0) return BadInput(0, in[0], "rank 1 or more");
    const Dim row = in[0].shape.RowElements();
    for (size_t i = 0; i < pieces_.size(); ++i) {
      const int64_t end = pieces_[i].offset + pieces_[i].elements;
      if (row.IsConst() && end > row.value()) {
        return BadInput(0, in[0], "at least ", end, " elements per row for slice_param.slices[", i,
                        "] (offset ", pieces_[i].offset, ", shape ", ToString(pieces_[i].shape),
                        ")");
      }
    }
    TensorSpec out{in[0].dtype, Shape({in[0].shape[0]}), Level::kUnknown};
    for (int64_t size : shape_) out.shape.dims().push_back(Dim::Of(size));
    return OnlyOutput(std::move(out), in);
  }
  Semantics semantics() const override {
    Semantics semantics{.op = Semantics::Op::kSlice, .axis = concat_dim_ + 1, .contiguous = true};
    for (int i = 0; i < concat_dim_; ++i) semantics.contiguous &= pieces_[0].shape[i] == 1;
    semantics.contiguous |= pieces_.size() == 1;
    for (const Piece& piece : pieces_) semantics.pieces.push_back({piece.offset, piece.elements});
    return semantics;
  }
  absl::StatusOr<std::unique_ptr<Kernel>> Prepare(absl::Span<const TensorSpec>) const override {
    struct Copy {
      int64_t offset;    // In the row.
      int64_t elements;  // Per index of the dimensions before the axis of concatenation.
    };
    int64_t outer = 1;
    for (int i = 0; i < concat_dim_; ++i) outer *= pieces_[0].shape[i];
    std::vector<Copy> copies;
    for (const Piece& piece : pieces_) {
      copies.push_back({piece.offset, piece.elements / std::max<int64_t>(1, outer)});
    }
    // Pieces of one size that lie a step apart, as x[..., ::2] or the windows of a sequence.
    const int64_t step = copies.size() > 1 ? copies[1].offset - copies[0].offset : 0;
    bool regular = true;
    for (size_t i = 0; i < copies.size(); ++i) {
      regular &= copies[i].elements == copies[0].elements &&
                 copies[i].offset == copies[0].offset + static_cast<int64_t>(i) * step;
    }
    return MakeKernel([outer, copies, step, regular](RunContext& ctx) {
      const Tensor& x = ctx.in[0];
      if (ctx.out[0].elements() == 0) return;
      const int64_t row = x.elements() / x.dims[0];
      if (regular) {
        StridedCopy all;
        all.start = copies[0].offset;
        all.Add(x.dims[0], row);
        all.Add(outer, copies[0].elements);
        all.Add(static_cast<int64_t>(copies.size()), step);
        all.Add(copies[0].elements, 1);
        return all.Run(x, ctx.out[0]);
      }
      const size_t element = SizeOf(x.dtype);
      const char* from = static_cast<const char*>(x.data);
      char* to = static_cast<char*>(ctx.out[0].data);
      for (int64_t r = 0; r < x.dims[0]; ++r, from += row * element) {
        for (int64_t o = 0; o < outer; ++o) {
          for (const Copy& copy : copies) {
            const size_t bytes = copy.elements * element;
            const char* const piece = from + (copy.offset + o * copy.elements) * element;
            to = CopyPiece(piece, bytes, to);
          }
        }
      }
    });
  }
  std::string Describe() const override {
    return absl::StrCat("concat_dim=", concat_dim_, " slices=",
                        absl::StrJoin(pieces_, ",", [](std::string* out, const Piece& piece) {
                          absl::StrAppend(out, piece.offset, "+", ToString(piece.shape));
                        }));
  }

 private:
  static constexpr int64_t kMaxElements = int64_t{1} << 31;

  static absl::StatusOr<std::unique_ptr<Layer>> Join(std::vector<Piece> pieces, int concat_dim) {
    Sizes shape = pieces[0].shape;
    if (concat_dim < 0 || concat_dim >= static_cast<int>(shape.size())) {
      return InvalidArgument("slice_param.concat_dim: ", concat_dim,
                             ", want a dimension of the pieces' shape ", ToString(shape));
    }
    shape[concat_dim] = 0;
    for (size_t i = 0; i < pieces.size(); ++i) {
      Sizes other = pieces[i].shape;
      if (other.size() == shape.size()) other[concat_dim] = shape[concat_dim];
      if (other != shape) {
        return InvalidArgument("slice_param.slices[", i, "].shape: ", ToString(pieces[i].shape),
                               ", want ", ToString(pieces[0].shape),
                               " like slices[0], except in dimension ", concat_dim);
      }
      shape[concat_dim] += pieces[i].shape[concat_dim];
    }
    return std::unique_ptr<Layer>(new SliceRows(std::move(pieces), concat_dim, std::move(shape)));
  }

  const std::vector<Piece> pieces_;
  const int concat_dim_;
  const Sizes shape_;  // Of a row of the output.
};

// ------------------------------------------------------------------------------------ broadcast_to

template <class T>
void Repeat(const BroadcastPlan& plan, const T* x, T* y) {
  plan.ForEachBlock([&](const BroadcastPlan::Offsets& at, int64_t out) {
    const int64_t step = plan.row_step(0), own = step == 0 ? 1 : plan.rows();
    T* const to = y + out;
    for (int64_t row = 0; row < own; ++row) {
      const T* const from = x + at[0] + row * step;
      if (plan.advances[0]) {
        std::copy_n(from, plan.run, to + row * plan.run);
      } else {
        std::fill_n(to + row * plan.run, plan.run, *from);
      }
    }
    // Rows that are the same: as many at once as are there.
    const int64_t all = plan.run * plan.rows();
    for (int64_t done = plan.run * own; done < all; done *= 2) {
      std::copy_n(to, std::min(done, all - done), to + done);
    }
  });
}

// broadcast_to_layer.  The level is that of the higher input if its rows lead.
class BroadcastTo final : public Layer {
 public:
  explicit BroadcastTo(Sizes sizes) : sizes_(std::move(sizes)) {}

  static absl::StatusOr<std::unique_ptr<Layer>> Parse(const ParseContext& ctx) {
    ASSIGN_OR_RETURN(Sizes sizes,
                     ReadSizes("broadcast_to_param.shape", ctx.param.broadcast_to_param().shape()));
    const bool given = ctx.param.bottom_size() == 1;
    if (given && sizes.empty()) {
      return InvalidArgument(
          "1 bottom and no broadcast_to_param.shape, want one of: a second bottom, a shape");
    }
    if (!given && !sizes.empty()) {
      ctx.notices.push_back(absl::StrCat("broadcast_to_param.shape ", ToString(sizes),
                                         " is ignored: the second bottom gives the shape"));
      sizes.clear();
    }
    return std::unique_ptr<Layer>(new BroadcastTo(std::move(sizes)));
  }
  absl::StatusOr<TensorSpecs> Infer(absl::Span<const TensorSpec> in) const override {
    ASSIGN_OR_RETURN(Shape target, Target(in));
    const Shape x = AlignUserRow(in[0], target.rank());
    bool fits = x.rank() <= target.rank();
    for (int i = 0; fits && i < x.rank(); ++i) {
      Dim& to = target[target.rank() - x.rank() + i];
      fits = x[i] == Dim::Of(1) || CouldBeEqual(x[i], to);
      if (to.IsUnknown() && x[i] != Dim::Of(1) && x[i].IsConst()) to = x[i];
    }
    if (!fits) {
      return BadInput(0, in[0], "a shape that broadcasts to ", target.ToString());
    }
    return TensorSpecs{TensorSpec{in[0].dtype, target, LevelOf(target, in)}};
  }
  Semantics semantics() const override { return {.op = Semantics::Op::kBroadcast}; }
  absl::StatusOr<std::unique_ptr<Kernel>> Prepare(absl::Span<const TensorSpec>) const override {
    return MakeKernel([](RunContext& ctx) {
      const Tensor& x = ctx.in[0];
      const BroadcastPlan plan = PlanBroadcast(ctx.out[0].dims, {x.dims});
      if (SizeOf(x.dtype) == sizeof(int64_t)) {
        Repeat(plan, x.i64(), static_cast<int64_t*>(ctx.out[0].data));
      } else {
        Repeat(plan, x.i32(), static_cast<int32_t*>(ctx.out[0].data));
      }
    });
  }
  std::string Describe() const override {
    return sizes_.empty() ? "" : absl::StrCat("shape=", ToString(sizes_));
  }

 private:
  absl::StatusOr<Shape> Target(absl::Span<const TensorSpec> in) const {
    if (in.size() == 2) return in[1].shape;
    Shape target = in[0].shape;
    if (static_cast<size_t>(target.rank()) != sizes_.size()) {
      return BadInput(0, in[0], "the rank of broadcast_to_param.shape ", ToString(sizes_));
    }
    for (int i = 0; i < target.rank(); ++i) {
      // One user per request: a user's row under a literal 1 stays the user's row.
      const bool user_row = sizes_[i] == 1 && target[i] == Dim::Users();
      if (sizes_[i] > 0 && !user_row) target[i] = Dim::Of(sizes_[i]);
    }
    return target;
  }

  const Sizes sizes_;  // Empty: the second input gives the shape.
};

constexpr LayerType kTypes[] = {
    {.name = "reshape_layer",
     .summary = "the same elements under another shape",
     .param_field = ulf::LayerParameter::kReshapeParamFieldNumber,
     .parse = &Reshape::Parse,
     .doc = {.formula = "the same elements under reshape_param.shape: 0 keeps a dimension, one -1 "
                        "is inferred",
             .inputs = "x, any type and shape",
             .source = "ULF layer guide",
             .example_inputs = "x:6",
             .example_param = "reshape_param { shape: 0 shape: 2 shape: -1 }"}},
    {.name = "concat_layer",
     .summary = "inputs one after the other along an axis",
     .inputs = {1, Arity::kAny},
     .param_field = ulf::LayerParameter::kConcatParamFieldNumber,
     .parse = &Concat::Parse,
     .doc = {.formula = "inputs one after the other along concat_param.dim (1)",
             .inputs = "one or more of one type and rank, equal in all other dimensions",
             .source = "ULF layer guide",
             .example_inputs = "a:3;b:2",
             .example_param = "concat_param { dim: 1 }"}},
    {.name = "slice_layer",
     .summary = "pieces of each row, put side by side",
     .param_field = ulf::LayerParameter::kSliceParamFieldNumber,
     .parse = &SliceRows::Parse,
     .doc = {.formula = "elements [offset, offset + product(shape)) of each row, pieces joined "
                        "along concat_dim + 1",
             .inputs = "x [rows, ...], any type",
             .source = "ULF layer guide",
             .example_inputs = "x:6",
             .example_param = "slice_param { concat_dim: 0 slices { offset: 2 shape: 3 } }"}},
    {.name = "broadcast_to_layer",
     .summary = "x repeated to the shape of a second input, or to a given one",
     .inputs = {1, 2},
     .param_field = ulf::LayerParameter::kBroadcastToParamFieldNumber,
     .parse = &BroadcastTo::Parse,
     .doc = {.formula =
                 "x repeated to the shape of the second input, or to broadcast_to_param.shape",
             .inputs = "x; optionally a tensor whose shape counts",
             .source = "ULF layer guide",
             .example_inputs = "a@user:3;b:3"}},
};

}  // namespace

std::unique_ptr<Layer> MakeReshape(std::vector<int64_t> sizes) {
  return std::make_unique<Reshape>(std::move(sizes));
}

std::unique_ptr<Layer> MakeConcat(int axis) { return std::make_unique<Concat>(axis); }

std::unique_ptr<Layer> MakeSlice(absl::Span<const Semantics::Piece> pieces) {
  std::vector<Piece> parts;
  int64_t all = 0;
  for (const auto& [offset, elements] : pieces) {
    parts.push_back({offset, {elements}, elements});
    all += elements;
  }
  return std::make_unique<SliceRows>(std::move(parts), 0, Sizes{all});
}
std::unique_ptr<Layer> MakeBroadcast(std::vector<int64_t> sizes) {
  return std::make_unique<BroadcastTo>(std::move(sizes));
}

absl::Span<const LayerType> ShapeLayers() { return kTypes; }

}  // namespace ulfd::engine
