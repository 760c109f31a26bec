// Shapes, levels and tensor views: what layers say about tensors at load time and what kernels get
// at run time.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_TENSOR_TENSOR_H_
#define ULFD_ENGINE_TENSOR_TENSOR_H_

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace ulfd::engine {

enum class DType : uint8_t { kFloat32, kInt32, kInt64 };

// Bytes per element.
size_t SizeOf(DType dtype);
// "float32", "int32", "int64".
absl::string_view Name(DType dtype);

// float32 has all integers of a magnitude up to the first, double up to the second.
inline constexpr int64_t kFloatIntegers = int64_t{1} << 24, kDoubleIntegers = int64_t{1} << 53;

// To whom the rows (the leading dimension) of a tensor belong.  A lattice, in this order: what is
// computed from tensors of several levels has at least the highest of them.
enum class Level : uint8_t {
  kConstant,  // No rows that depend on the request.
  kUser,      // One row per user.
  kAd,        // One row per candidate ad.
  kUnknown,   // Not proved; such a tensor is computed for one whole request at a time.
};

absl::string_view Name(Level level);  // "constant", "user", "ad", "unknown".
inline Level Join(Level a, Level b) { return a < b ? b : a; }

// a * b and a + b of numbers that are not negative; the greatest number where that is too large.
int64_t SaturatingMultiply(int64_t a, int64_t b);
int64_t SaturatingAdd(int64_t a, int64_t b);

// No tensor has more elements, so that products and sums of a few dimensions never overflow.
inline constexpr int64_t kMaxElements = int64_t{1} << 40;
// No tensor has more dimensions, as in numpy 2.
inline constexpr int kMaxRank = 64;

// The product of those dimensions that are not 0: what a loop over an empty tensor may still run
// over.  The greatest number where that is too large.  REQUIRES: none is negative.
int64_t Volume(absl::Span<const int64_t> dims);

// INVALID_ARGUMENT ("shape [1, -2] is not possible: ...") for more than kMaxRank dimensions, a
// negative one, or a volume above kMaxElements.  Every shape that comes from outside goes through
// this before it is used.
absl::Status CheckDims(absl::Span<const int64_t> dims);

// One dimension at load time: a number, a multiple of the number of users or of ads, or unknown. At
// run time every dimension is a number, and the same Infer functions work on those.
class Dim {
 public:
  constexpr Dim() = default;  // Unknown.
  static constexpr Dim Of(int64_t value) { return Dim(Kind::kConst, value); }
  static constexpr Dim Users(int64_t factor = 1) { return Dim(Kind::kUsers, factor); }
  static constexpr Dim Ads(int64_t factor = 1) { return Dim(Kind::kAds, factor); }
  static constexpr Dim Unknown() { return Dim(); }

  constexpr bool IsConst() const { return kind_ == Kind::kConst; }
  constexpr bool IsUnknown() const { return kind_ == Kind::kUnknown; }
  constexpr bool IsUsers() const { return kind_ == Kind::kUsers; }
  constexpr bool IsAds() const { return kind_ == Kind::kAds; }
  // Const: the number.  Users, Ads: the factor.
  constexpr int64_t value() const { return value_; }

  // Same kind and value; two unknown dimensions are equal in this sense.
  friend constexpr bool operator==(const Dim& a, const Dim& b) = default;

  // "12", "users", "ads", "3*ads", "?".
  std::string ToString() const;

 private:
  enum class Kind : uint8_t { kConst, kUsers, kAds, kUnknown };
  constexpr Dim(Kind kind, int64_t value) : kind_(kind), value_(value) {}
  Kind kind_ = Kind::kUnknown;
  int64_t value_ = 0;
};

// The product, saturating; unknown where it has no form (users * ads) unless a factor is the
// constant 0.
Dim Multiply(Dim a, Dim b);
// The sum, saturating; unknown where it has no form.
Dim Sum(Dim a, Dim b);
// a / b if that is exact and has a form.  nullopt: provably not divisible.  Unknown: cannot be told
// at load.
std::optional<Dim> Divide(Dim a, Dim b);
// False only if the two provably differ on every request (two numbers that differ).
bool CouldBeEqual(Dim a, Dim b);
// numpy broadcasting of one dimension: a number 1 gives way, users give way to ads.  nullopt:
// provably incompatible.
std::optional<Dim> Broadcast(Dim a, Dim b);

// Dimensions of a tensor, or "any rank" where even the rank is unknown at load.
class Shape {
 public:
  using Dims = absl::InlinedVector<Dim, 4>;
  Shape() = default;  // Any rank.
  explicit Shape(Dims dims) : ranked_(true), dims_(std::move(dims)) {}
  Shape(std::initializer_list<Dim> dims) : ranked_(true), dims_(dims) {}
  static Shape AnyRank() { return Shape(); }
  static Shape Of(absl::Span<const int64_t> dims);

  bool ranked() const { return ranked_; }
  // REQUIRES: ranked().
  int rank() const { return static_cast<int>(dims_.size()); }
  const Dim& operator[](int i) const { return dims_[i]; }
  Dim& operator[](int i) { return dims_[i]; }
  const Dims& dims() const { return dims_; }
  Dims& dims() { return dims_; }
  // True if every dimension is a number.
  bool IsConcrete() const;
  // Product of the dimensions; unknown for any rank.
  Dim Elements() const;
  // The same without the leading dimension: what a row has.  Unknown for any rank and for a scalar.
  Dim RowElements() const;
  // "[ads, 100, 36]", "[...]" for any rank.
  std::string ToString() const;
  friend bool operator==(const Shape& a, const Shape& b) = default;

 private:
  bool ranked_ = false;
  Dims dims_;
};

// numpy broadcasting of two shapes.  Error text names both shapes ("shapes [2, 3] and [2, 2] do not
// broadcast").
absl::StatusOr<Shape> BroadcastShapes(const Shape& a, const Shape& b);

// What is known of a tensor without its values.
struct TensorSpec {
  DType dtype = DType::kFloat32;
  Shape shape;
  Level level = Level::kUnknown;
};
using TensorSpecs = absl::InlinedVector<TensorSpec, 2>;

// The level of a tensor of shape `shape` computed from `inputs`: user or ad only if the rows are
// still the leading dimension and nowhere else; constant only if every input is; unknown if rows
// were merged, moved or summed away.
Level LevelOf(const Shape& shape, absl::Span<const TensorSpec> inputs);

// As the other CheckDims, for what is known of a shape at load: the numbers in it, and the factors
// of users and ads.
absl::Status CheckDims(const Shape& shape);

// A tensor at run time: borrowed memory, row-major without gaps, of dimensions that pass CheckDims.
// 64-byte aligned if it was made by the executor, of any alignment if it is an input of the
// request.
using TensorDims = absl::InlinedVector<int64_t, 4>;
struct Tensor {
  DType dtype = DType::kFloat32;
  TensorDims dims;
  void* data = nullptr;

  int rank() const { return static_cast<int>(dims.size()); }
  int64_t elements() const;
  size_t bytes() const { return static_cast<size_t>(elements()) * SizeOf(dtype); }
  const float* f32() const { return static_cast<const float*>(data); }
  float* f32() { return static_cast<float*>(data); }
  const int32_t* i32() const { return static_cast<const int32_t*>(data); }
  const int64_t* i64() const { return static_cast<const int64_t*>(data); }
};

std::string ToString(absl::Span<const int64_t> dims);  // "[7, 100, 36]"

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_TENSOR_TENSOR_H_
