// SPDX-License-Identifier: Apache-2.0
#include "engine/weights/ndarray_list.h"

#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "base/errors.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "engine/weights/npy.h"

namespace ulfd::engine {
namespace {

constexpr uint64_t kListMagic = 0x112;
constexpr uint32_t kArrayMagic = 0xF993FAC9;
constexpr uint32_t kMaxDims = 32;
// Of an array: magic, storage, ndim, device (2), type.  Of a name: its length.
constexpr uint64_t kMinArrayBytes = 6 * sizeof(uint32_t);

class Cursor {
 public:
  explicit Cursor(absl::string_view content) : content_(content) {}

  template <typename T>
  absl::Status Get(absl::string_view what, T& value) {
    absl::string_view bytes;
    RETURN_IF_ERROR(Take(what, sizeof(T), bytes));
    std::memcpy(&value, bytes.data(), sizeof(T));
    return absl::OkStatus();
  }
  absl::Status Take(absl::string_view what, uint64_t size, absl::string_view& bytes) {
    if (size > left()) {
      return InvalidArgument(what, ": ", left(), " bytes left at byte ", at_, ", want ", size);
    }
    bytes = content_.substr(at_, size);
    at_ += size;
    return absl::OkStatus();
  }
  uint64_t left() const { return content_.size() - at_; }

 private:
  absl::string_view content_;
  size_t at_ = 0;
};

absl::StatusOr<NumberType> TypeOf(int32_t code) {
  static constexpr NumberType kTypes[] = {
      NumberType::kFloat32, NumberType::kFloat64, NumberType::kFloat16, NumberType::kUint8,
      NumberType::kInt32,   NumberType::kInt8,    NumberType::kInt64};
  if (code >= 0 && code <= 6) return kTypes[code];
  return InvalidArgument("type ", code, ", want 0 to 6");
}

absl::StatusOr<NpyArray> ReadArray(Cursor& cursor) {
  uint32_t magic = 0, ndim = 0;
  int32_t storage = 0, type = 0;
  int64_t device = 0;
  RETURN_IF_ERROR(cursor.Get("header", magic));
  if (magic != kArrayMagic) {
    return InvalidArgument("begins with 0x", absl::Hex(magic), ", want 0x", absl::Hex(kArrayMagic),
                           " (version 2)");
  }
  RETURN_IF_ERROR(cursor.Get("header", storage));
  if (storage != 0) {
    return InvalidArgument("storage ", storage, ", want 0 (dense)");
  }
  RETURN_IF_ERROR(cursor.Get("header", ndim));
  if (ndim == 0 || ndim > kMaxDims) {
    return InvalidArgument(ndim, " dimensions, want 1 to ", kMaxDims);
  }
  NpyArray array;
  array.dims.resize(ndim);
  for (int64_t& dim : array.dims) RETURN_IF_ERROR(cursor.Get("shape", dim));
  RETURN_IF_ERROR(cursor.Get("header", device));
  RETURN_IF_ERROR(cursor.Get("header", type));
  ASSIGN_OR_RETURN(array.type, TypeOf(type));
  ASSIGN_OR_RETURN(const int64_t size, ArrayBytes(array.dims, array.type));
  absl::string_view bytes;
  RETURN_IF_ERROR(
      cursor.Take(absl::StrCat(Name(array.type), " [", absl::StrJoin(array.dims, ", "), "]"),
                  static_cast<uint64_t>(size), bytes));
  array.bytes = std::string(bytes);
  return array;
}

std::string CutPrefix(absl::string_view name) {
  for (const absl::string_view prefix : {"var:", "aux:", "arg:"}) {
    if (absl::ConsumePrefix(&name, prefix)) break;
  }
  return std::string(name);
}

}  // namespace

bool IsNdarrayList(absl::string_view content) {
  uint64_t magic = 0;
  if (content.size() < sizeof(magic)) return false;
  std::memcpy(&magic, content.data(), sizeof(magic));
  return magic == kListMagic;
}

absl::StatusOr<NpzArrays> ParseNdarrayList(absl::string_view content) {
  Cursor cursor(content);
  uint64_t magic = 0, reserved = 0, count = 0, names = 0;
  RETURN_IF_ERROR(cursor.Get("list header", magic));
  if (magic != kListMagic) {
    return InvalidArgument("begins with ", magic, ", want ", kListMagic);
  }
  RETURN_IF_ERROR(cursor.Get("list header", reserved));
  RETURN_IF_ERROR(cursor.Get("list header", count));
  if (count > cursor.left() / kMinArrayBytes) {
    return InvalidArgument("claims ", count, " arrays in ", content.size(), " bytes");
  }
  std::vector<NpyArray> arrays;
  for (uint64_t i = 0; i < count; ++i) {
    ASSIGN_OR_RETURN(arrays.emplace_back(),
                     Annotate(ReadArray(cursor), "array ", i, " of ", count));
  }
  RETURN_IF_ERROR(cursor.Get("number of names", names));
  if (names != count) {
    return InvalidArgument(names, " names, want ", count);
  }
  NpzArrays by_name;
  for (uint64_t i = 0; i < count; ++i) {
    const std::string what = absl::StrCat("name of array ", i);
    uint64_t length = 0;
    absl::string_view bytes;
    RETURN_IF_ERROR(cursor.Get(what, length));
    RETURN_IF_ERROR(cursor.Take(what, length, bytes));
    if (!IsUtf8(bytes)) {
      return InvalidArgument(what, ": ", Quote(bytes), " is not UTF-8");
    }
    if (!by_name.emplace(CutPrefix(bytes), std::move(arrays[i])).second) {
      return InvalidArgument("array ", Quote(bytes), ": occurs twice");
    }
  }
  if (cursor.left() > 0) {
    return InvalidArgument(cursor.left(), " bytes after the last name");
  }
  return by_name;
}

}  // namespace ulfd::engine
