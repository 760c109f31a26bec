// SPDX-License-Identifier: Apache-2.0
#include "engine/tensor/tensor.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/errors.h"
#include "base/status_macros.h"

namespace ulfd::engine {

size_t SizeOf(DType dtype) { return dtype == DType::kInt64 ? 8 : 4; }

absl::string_view Name(DType dtype) {
  static constexpr absl::string_view kNames[] = {"float32", "int32", "int64"};
  return kNames[static_cast<size_t>(dtype)];
}

absl::string_view Name(Level level) {
  static constexpr absl::string_view kNames[] = {"constant", "user", "ad", "unknown"};
  return kNames[static_cast<size_t>(level)];
}

std::string Dim::ToString() const {
  switch (kind_) {
    case Kind::kConst:
      return absl::StrCat(value_);
    case Kind::kUsers:
      return value_ == 1 ? "users" : absl::StrCat(value_, "*users");
    case Kind::kAds:
      return value_ == 1 ? "ads" : absl::StrCat(value_, "*ads");
    case Kind::kUnknown:
      break;
  }
  return "?";
}

namespace {

// `a` with another factor; the kind stays.
Dim WithFactor(Dim a, int64_t factor) {
  if (a.IsUsers()) return Dim::Users(factor);
  if (a.IsAds()) return Dim::Ads(factor);
  return Dim::Of(factor);
}

bool IsZero(Dim a) { return a.IsConst() && a.value() == 0; }
bool IsOne(Dim a) { return a.IsConst() && a.value() == 1; }

}  // namespace

int64_t SaturatingMultiply(int64_t a, int64_t b) {
  int64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? std::numeric_limits<int64_t>::max() : product;
}

int64_t SaturatingAdd(int64_t a, int64_t b) {
  int64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? std::numeric_limits<int64_t>::max() : sum;
}

int64_t Volume(absl::Span<const int64_t> dims) {
  int64_t product = 1;
  for (int64_t d : dims) product = SaturatingMultiply(product, std::max<int64_t>(1, d));
  return product;
}

namespace {

// "" if they can be those of a tensor.
std::string WhyImpossible(absl::Span<const int64_t> dims) {
  if (std::any_of(dims.begin(), dims.end(), [](int64_t d) { return d < 0; })) {
    return "negative dimension";
  }
  return Volume(dims) <= kMaxElements ? "" : absl::StrCat("more than ", kMaxElements, " elements");
}

absl::Status CheckRank(size_t rank) {
  if (rank <= kMaxRank) return absl::OkStatus();
  return InvalidArgument("a shape of ", rank, " dimensions is not possible: want at most ",
                         kMaxRank);
}

absl::Status Impossible(const std::string& shape, const std::string& why) {
  return InvalidArgument("shape ", shape, " is not possible: ", why);
}

}  // namespace

absl::Status CheckDims(absl::Span<const int64_t> dims) {
  RETURN_IF_ERROR(CheckRank(dims.size()));
  const std::string why = WhyImpossible(dims);
  return why.empty() ? absl::OkStatus() : Impossible(ToString(dims), why);
}

absl::Status CheckDims(const Shape& shape) {
  if (!shape.ranked()) return absl::OkStatus();
  RETURN_IF_ERROR(CheckRank(shape.dims().size()));
  TensorDims numbers;
  for (const Dim& d : shape.dims()) numbers.push_back(d.IsUnknown() ? 1 : d.value());
  const std::string why = WhyImpossible(numbers);
  return why.empty() ? absl::OkStatus() : Impossible(shape.ToString(), why);
}

Dim Multiply(Dim a, Dim b) {
  if (IsZero(a) || IsZero(b)) return Dim::Of(0);
  if (a.IsUnknown() || b.IsUnknown()) return Dim::Unknown();
  if (b.IsConst()) return WithFactor(a, SaturatingMultiply(a.value(), b.value()));
  if (a.IsConst()) return WithFactor(b, SaturatingMultiply(a.value(), b.value()));
  return Dim::Unknown();
}

Dim Sum(Dim a, Dim b) {
  if (IsZero(a)) return b;
  if (IsZero(b)) return a;
  const bool alike =
      (a.IsConst() && b.IsConst()) || (a.IsUsers() && b.IsUsers()) || (a.IsAds() && b.IsAds());
  return alike ? WithFactor(a, SaturatingAdd(a.value(), b.value())) : Dim::Unknown();
}

std::optional<Dim> Divide(Dim a, Dim b) {
  if (a.IsUnknown() || b.IsUnknown()) return Dim::Unknown();
  if (b.IsConst()) {
    if (b.value() == 0) return std::nullopt;
    if (a.value() % b.value() == 0) return WithFactor(a, a.value() / b.value());
    if (a.IsConst()) return std::nullopt;
    return Dim::Unknown();  // 3*ads / 2 divides for some requests.
  }
  // users / users, ads / ads.
  if ((a.IsUsers() && b.IsUsers()) || (a.IsAds() && b.IsAds())) {
    if (b.value() != 0 && a.value() % b.value() == 0) return Dim::Of(a.value() / b.value());
  }
  return Dim::Unknown();
}

bool CouldBeEqual(Dim a, Dim b) { return !a.IsConst() || !b.IsConst() || a.value() == b.value(); }

std::optional<Dim> Broadcast(Dim a, Dim b) {
  if (a == b) return a;
  if (IsOne(a)) return b;
  if (IsOne(b)) return a;
  if (a.IsConst() && b.IsConst()) return std::nullopt;
  // One row per user next to one per ad: each ad reads its own user's row.
  if (a.IsUsers() && a.value() == 1 && b.IsAds()) return b;
  if (b.IsUsers() && b.value() == 1 && a.IsAds()) return a;
  return Dim::Unknown();
}

Shape Shape::Of(absl::Span<const int64_t> dims) {
  Dims result;
  for (int64_t d : dims) result.push_back(Dim::Of(d));
  return Shape(std::move(result));
}

bool Shape::IsConcrete() const {
  return ranked_ && std::all_of(dims_.begin(), dims_.end(), [](Dim d) { return d.IsConst(); });
}

Dim Shape::Elements() const {
  if (!ranked_) return Dim::Unknown();
  Dim product = Dim::Of(1);
  for (Dim d : dims_) product = Multiply(product, d);
  return product;
}

Dim Shape::RowElements() const {
  if (!ranked_ || dims_.empty()) return Dim::Unknown();
  Dim product = Dim::Of(1);
  for (int i = 1; i < rank(); ++i) product = Multiply(product, dims_[i]);
  return product;
}

std::string Shape::ToString() const {
  if (!ranked_) return "[...]";
  return absl::StrCat(
      "[",
      absl::StrJoin(dims_, ", ",
                    [](std::string* out, Dim d) { absl::StrAppend(out, d.ToString()); }),
      "]");
}

absl::StatusOr<Shape> BroadcastShapes(const Shape& a, const Shape& b) {
  if (!a.ranked() || !b.ranked()) return Shape::AnyRank();
  const int rank = std::max(a.rank(), b.rank());
  Shape::Dims dims(rank);
  for (int i = 0; i < rank; ++i) {
    const int ia = i - (rank - a.rank());
    const int ib = i - (rank - b.rank());
    const std::optional<Dim> d =
        Broadcast(ia < 0 ? Dim::Of(1) : a[ia], ib < 0 ? Dim::Of(1) : b[ib]);
    if (!d.has_value()) {
      return InvalidArgument("shapes ", a.ToString(), " and ", b.ToString(), " do not broadcast");
    }
    dims[i] = *d;
  }
  return Shape(std::move(dims));
}

Level LevelOf(const Shape& shape, absl::Span<const TensorSpec> inputs) {
  Level joined = Level::kConstant;
  for (const TensorSpec& in : inputs) joined = Join(joined, in.level);
  if (joined == Level::kConstant || joined == Level::kUnknown) return joined;
  if (!shape.ranked() || shape.rank() == 0) return Level::kUnknown;
  for (int i = 1; i < shape.rank(); ++i) {
    if (shape[i].IsUsers() || shape[i].IsAds()) return Level::kUnknown;
  }
  const Dim rows = joined == Level::kUser ? Dim::Users() : Dim::Ads();
  return shape[0] == rows ? joined : Level::kUnknown;
}

int64_t Tensor::elements() const {
  int64_t product = 1;
  for (int64_t d : dims) product *= d;
  return product;
}

std::string ToString(absl::Span<const int64_t> dims) {
  return absl::StrCat("[", absl::StrJoin(dims, ", "), "]");
}

}  // namespace ulfd::engine
