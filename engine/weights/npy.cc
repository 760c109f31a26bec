// SPDX-License-Identifier: Apache-2.0
#include "engine/weights/npy.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/errors.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "engine/tensor/tensor.h"

namespace ulfd::engine {

namespace {

constexpr absl::string_view kMagic = "\x93NUMPY";
// numpy itself refuses longer headers; a shape of 32 dimensions needs less than 1 KiB.
constexpr size_t kMaxTextBytes = 1 << 16;
constexpr size_t kMaxDims = 32;  // numpy's own limit.

// "f4", "u1", ...; "" if numpy has no such type.
std::string Descr(NumberType type) {
  if (type == NumberType::kBfloat16) return "";
  return absl::StrCat(SizeOf(type) == 1 ? "|" : "<", Name(type).substr(0, 1), SizeOf(type));
}

template <typename T>
T Load(const char* bytes, size_t i) {
  T value;
  std::memcpy(&value, bytes + i * sizeof(T), sizeof(T));
  return value;
}

// Reads the Python literals that a header is made of.
class Reader {
 public:
  explicit Reader(absl::string_view text) : rest_(text) {}

  // Skips white space; then consumes `token` if it comes next.
  bool Take(absl::string_view token) {
    rest_ = absl::StripLeadingAsciiWhitespace(rest_);
    if (!absl::StartsWith(rest_, token)) return false;
    rest_.remove_prefix(token.size());
    return true;
  }
  // A quoted string without escapes.
  bool String(absl::string_view& value) {
    for (const char quote : {'\'', '"'}) {
      if (!Take(absl::string_view(&quote, 1))) continue;
      const size_t end = rest_.find(quote);
      if (end == absl::string_view::npos) return false;
      value = rest_.substr(0, end);
      rest_.remove_prefix(end + 1);
      return true;
    }
    return false;
  }
  bool Integer(int64_t& value) {
    rest_ = absl::StripLeadingAsciiWhitespace(rest_);
    const size_t end = std::min(rest_.find_first_not_of("-+0123456789"), rest_.size());
    if (!absl::SimpleAtoi(rest_.substr(0, end), &value)) return false;
    rest_.remove_prefix(end);
    if (absl::StartsWith(rest_, "L")) rest_.remove_prefix(1);  // Written by Python 2.
    return true;
  }
  absl::string_view rest() const { return rest_; }

 private:
  absl::string_view rest_;
};

absl::Status BadHeader(absl::string_view what, absl::string_view at) {
  return InvalidArgument("npy header: ", what, " at ", Quote(at));
}

absl::StatusOr<NumberType> ParseDescr(Reader& reader) {
  absl::string_view descr;
  const absl::string_view at = reader.rest();
  if (reader.Take("[")) {
    return InvalidArgument("structured arrays are not supported, want one number type");
  }
  if (!reader.String(descr)) return BadHeader("want a quoted type", at);
  if (absl::StrContains(descr, "O")) {
    return InvalidArgument("type ", Quote(descr), " (Python objects) is not supported");
  }
  if (absl::StartsWith(descr, ">")) {
    return InvalidArgument("type ", Quote(descr), " is big-endian, want little-endian");
  }
  for (int i = 0; i <= static_cast<int>(NumberType::kBool); ++i) {
    const auto type = static_cast<NumberType>(i);
    const std::string name = Descr(type);
    if (name.empty()) continue;
    if (descr == name || (SizeOf(type) == 1 && descr == absl::StrCat("<", name.substr(1)))) {
      return type;
    }
  }
  return InvalidArgument("type ", Quote(descr),
                         " is not supported, want <f2, <f4, <f8, |b1 or integers of 1 to 8 bytes");
}

absl::Status ParseShape(Reader& reader, std::vector<int64_t>& dims) {
  const absl::string_view at = reader.rest();
  if (!reader.Take("(")) return BadHeader("want a shape", at);
  while (!reader.Take(")")) {
    int64_t dim = 0;
    if (!reader.Integer(dim)) return BadHeader("want a dimension", reader.rest());
    dims.push_back(dim);
    if (dims.size() > kMaxDims) return BadHeader("more than 32 dimensions", at);
    if (!reader.Take(",")) {
      if (!reader.Take(")")) return BadHeader("want , or )", reader.rest());
      break;
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<int64_t> ArrayBytes(absl::Span<const int64_t> dims, NumberType type) {
  // Loops over an empty array may still run over its other dimensions.
  constexpr int64_t kMaxEmpty = int64_t{1} << 31;
  RETURN_IF_ERROR(CheckDims(dims));
  const int64_t bytes = Volume(dims) * static_cast<int64_t>(SizeOf(type));
  if (std::find(dims.begin(), dims.end(), 0) == dims.end()) return bytes;
  if (bytes <= kMaxEmpty) return 0;
  return InvalidArgument("shape ", ToString(dims), " is too large for an empty array");
}

int64_t NpyArray::elements() const {
  int64_t n = 1;
  for (const int64_t dim : dims) n *= dim;
  return n;
}

std::vector<float> NpyArray::ToFloat32() const {
  return engine::ToFloat32(type, bytes.data(), bytes.size() / SizeOf(type));
}

std::vector<int64_t> NpyArray::ToInt64() const {
  return engine::ToInt64(type, bytes.data(), bytes.size() / SizeOf(type));
}

namespace {

template <typename T>
NpyArray MakeArray(NumberType type, std::vector<int64_t> dims, const T* data) {
  NpyArray array;
  array.type = type;
  array.dims = std::move(dims);
  array.bytes.assign(reinterpret_cast<const char*>(data),
                     static_cast<size_t>(array.elements()) * sizeof(T));
  return array;
}

}  // namespace

NpyArray NpyArray::FromFloat32(std::vector<int64_t> dims, const float* data) {
  return MakeArray(NumberType::kFloat32, std::move(dims), data);
}
NpyArray NpyArray::FromInt32(std::vector<int64_t> dims, const int32_t* data) {
  return MakeArray(NumberType::kInt32, std::move(dims), data);
}
NpyArray NpyArray::FromInt64(std::vector<int64_t> dims, const int64_t* data) {
  return MakeArray(NumberType::kInt64, std::move(dims), data);
}

absl::StatusOr<NpyTextRange> FindNpyText(absl::string_view prefix) {
  if (prefix.size() < kNpyPrefixBytes || !absl::StartsWith(prefix, kMagic)) {
    return InvalidArgument("not a .npy array (no magic string)");
  }
  const int major = static_cast<unsigned char>(prefix[6]);
  const int minor = static_cast<unsigned char>(prefix[7]);
  if (major < 1 || major > 3 || minor != 0) {
    return InvalidArgument("npy version ", major, ".", minor, ", want 1.0, 2.0 or 3.0");
  }
  const size_t begin = major == 1 ? 10 : 12;
  const size_t length =
      major == 1 ? Load<uint16_t>(prefix.data() + 8, 0) : Load<uint32_t>(prefix.data() + 8, 0);
  if (length > kMaxTextBytes) {
    return InvalidArgument("npy header of ", length, " bytes, want at most ", kMaxTextBytes);
  }
  if (begin + length < kNpyPrefixBytes) {
    return InvalidArgument("npy header of ", length, " bytes");
  }
  return NpyTextRange{begin, begin + length};
}

absl::StatusOr<NpyHeader> ParseNpyText(absl::string_view text) {
  NpyHeader header;
  Reader reader(text);
  bool has_descr = false, has_order = false, has_shape = false;
  if (!reader.Take("{")) return BadHeader("want {", reader.rest());
  while (!reader.Take("}")) {
    absl::string_view key;
    const absl::string_view at = reader.rest();
    if (!reader.String(key) || !reader.Take(":")) return BadHeader("want a key", at);
    if (key == "descr" && !std::exchange(has_descr, true)) {
      ASSIGN_OR_RETURN(header.type, ParseDescr(reader));
    } else if (key == "fortran_order" && !std::exchange(has_order, true)) {
      header.fortran_order = reader.Take("True");
      if (!header.fortran_order && !reader.Take("False")) {
        return BadHeader("want True or False", reader.rest());
      }
    } else if (key == "shape" && !std::exchange(has_shape, true)) {
      RETURN_IF_ERROR(ParseShape(reader, header.dims));
    } else {
      return BadHeader("unknown or repeated key", at);
    }
    if (!reader.Take(",")) {
      if (!reader.Take("}")) return BadHeader("want , or }", reader.rest());
      break;
    }
  }
  if (!absl::StripAsciiWhitespace(reader.rest()).empty()) {
    return BadHeader("text after the header", reader.rest());
  }
  if (!has_descr || !has_order || !has_shape) {
    return BadHeader("descr, fortran_order or shape is missing", text);
  }
  return header;
}

std::string MakeNpyHeader(NumberType type, absl::Span<const int64_t> dims) {
  std::string text =
      absl::StrCat("{'descr': '", Descr(type), "', 'fortran_order': False, 'shape': (",
                   absl::StrJoin(dims, ", "), dims.size() == 1 ? ",), }" : "), }");
  const size_t unpadded = 10 + text.size() + 1;
  text.append((64 - unpadded % 64) % 64, ' ');
  text.push_back('\n');
  const auto length = static_cast<uint16_t>(text.size());
  std::string header = absl::StrCat(kMagic, absl::string_view("\x01\x00", 2));
  header.append(reinterpret_cast<const char*>(&length), sizeof(length));
  return header + text;
}

std::string TransposeFortran(const std::string& bytes, absl::Span<const int64_t> dims,
                             size_t size) {
  const size_t count = bytes.size() / size;
  std::string to(bytes.size(), '\0');
  std::vector<int64_t> index(dims.size(),
                             0);  // Counts in Fortran order: the first dimension fastest.
  std::vector<size_t> strides(dims.size(), 1);
  for (size_t d = dims.size(); d > 1; --d) {
    strides[d - 2] = strides[d - 1] * static_cast<size_t>(dims[d - 1]);
  }
  size_t at = 0;
  for (size_t i = 0; i < count; ++i) {
    std::memcpy(&to[at * size], &bytes[i * size], size);
    for (size_t d = 0; d < dims.size(); ++d) {
      at += strides[d];
      if (++index[d] < dims[d]) break;
      at -= strides[d] * static_cast<size_t>(dims[d]);
      index[d] = 0;
    }
  }
  return to;
}

}  // namespace ulfd::engine
