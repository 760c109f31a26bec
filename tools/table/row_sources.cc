// SPDX-License-Identifier: Apache-2.0
#include "tools/table/row_sources.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <numeric>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "base/errors.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "engine/embedding/table_file.h"
#include "engine/stores/rocksdb_store.h"
#include "engine/tensor/tensor.h"
#include "engine/weights/npy.h"
#include "nlohmann/json.hpp"

namespace ulfd::tools {
namespace {

using engine::NumberType;

constexpr size_t kPieceBytes = size_t{4} << 20;

// An array in a file, from byte `begin` on.
struct ArrayFile {
  InputFile file;
  int64_t begin = 0;
  NumberType type = NumberType::kFloat32;
  std::vector<int64_t> dims;
  bool fortran_order = false;
};

template <typename... Parts>
absl::Status Bad(const std::string& path, const Parts&... what) {
  return InvalidArgument(path, ": ", what...);
}

absl::StatusOr<ArrayFile> OpenNpy(const std::string& path) {
  ASSIGN_OR_RETURN(InputFile file, InputFile::Open(path));
  std::string head(engine::kNpyPrefixBytes, '\0');
  ASSIGN_OR_RETURN(size_t got, file.ReadAt(0, head.data(), head.size()));
  head.resize(got);
  ASSIGN_OR_RETURN(const auto range, Annotate(engine::FindNpyText(head), path));
  if (static_cast<int64_t>(range.end) > file.size()) return Bad(path, "cut within its header");
  std::string text(range.end - range.begin, '\0');
  ASSIGN_OR_RETURN(got, file.ReadAt(static_cast<int64_t>(range.begin), text.data(), text.size()));
  text.resize(got);
  ASSIGN_OR_RETURN(auto header, Annotate(engine::ParseNpyText(text), path));
  ASSIGN_OR_RETURN(const int64_t bytes,
                   Annotate(engine::ArrayBytes(header.dims, header.type), path));
  const int64_t begin = static_cast<int64_t>(range.end);
  if (file.size() - begin != bytes) {
    return Bad(path, file.size() - begin, " bytes of elements, want ", bytes);
  }
  return ArrayFile{std::move(file), begin, header.type, std::move(header.dims),
                   header.fortran_order};
}

absl::StatusOr<NumberType> TypeOfSafetensor(const std::string& name) {
  constexpr std::pair<absl::string_view, NumberType> kTypes[] = {
      {"BF16", NumberType::kBfloat16}, {"F16", NumberType::kFloat16}, {"F32", NumberType::kFloat32},
      {"F64", NumberType::kFloat64},   {"I8", NumberType::kInt8},     {"U8", NumberType::kUint8},
      {"I16", NumberType::kInt16},     {"U16", NumberType::kUint16},  {"I32", NumberType::kInt32},
      {"U32", NumberType::kUint32},    {"I64", NumberType::kInt64},   {"U64", NumberType::kUint64}};
  for (const auto& [known, type] : kTypes) {
    if (name == known) return type;
  }
  return InvalidArgument("of type ", Quote(name), ", want BF16, F16, F32, F64 or integers");
}

// Not a copy, which recurs: who wrote the file chose how deep its arrays are nested.
const nlohmann::json& Member(const nlohmann::json& object, const char* key) {
  static const nlohmann::json kNone;
  const auto found = object.find(key);
  return found == object.end() ? kNone : *found;
}

// What the JSON text of a safetensors file says of a tensor.
absl::Status ReadSafetensor(const nlohmann::json& tensor, int64_t text_end, ArrayFile& array) {
  using Numbers = std::vector<int64_t>;
  if (!tensor.is_object()) return InvalidArgument("is no object");
  const nlohmann::json& type = Member(tensor, "dtype");
  const auto numbers = [&](const char* key) -> absl::StatusOr<Numbers> {
    const nlohmann::json& list = Member(tensor, key);
    if (!list.is_array()) return InvalidArgument("has no ", key);
    Numbers found;
    for (const nlohmann::json& number : list) {
      if (!number.is_number_integer()) {
        return InvalidArgument(key, ": want integers");
      }
      found.push_back(number.get<int64_t>());
    }
    return found;
  };
  if (!type.is_string()) return InvalidArgument("has no dtype");
  ASSIGN_OR_RETURN(array.type, TypeOfSafetensor(type.get<std::string>()));
  ASSIGN_OR_RETURN(array.dims, numbers("shape"));
  ASSIGN_OR_RETURN(const Numbers offsets, numbers("data_offsets"));
  ASSIGN_OR_RETURN(const int64_t bytes, engine::ArrayBytes(array.dims, array.type));
  const int64_t room = array.file.size() - text_end;
  if (offsets.size() != 2 || offsets[0] < 0 || offsets[1] < offsets[0] || offsets[1] > room ||
      offsets[1] - offsets[0] != bytes) {
    return InvalidArgument("data_offsets ", engine::ToString(offsets), ", want ", bytes, " of the ",
                           room, " bytes behind the text");
  }
  array.begin = text_end + offsets[0];
  return absl::OkStatus();
}

constexpr char kKeys[] = "keys", kRows[] = "rows";

// Which array of a file holds the rows: the one of that name, or the only one.
absl::StatusOr<std::string> NameOfRows(const std::string& path, std::vector<std::string> names) {
  if (absl::c_linear_search(names, kRows)) return kRows;
  std::erase(names, kKeys);
  if (names.size() == 1) return names[0];
  return Bad(path, "has no array \"rows\", nor a single one: ",
             Printable(absl::StrJoin(names, ", "), 200));
}

struct TableArrays {
  std::optional<ArrayFile> keys;  // Nothing: rows go by number, from 0.
  ArrayFile rows;
};

// Of a safetensors file: eight bytes have the length of a JSON text, which says of each tensor
// where it lies behind the text.
absl::StatusOr<TableArrays> OpenSafetensors(const std::string& path) {
  // Of 30 000 tensors.  Parsed, a text may take 75 times as much.
  constexpr uint64_t kMostTextBytes = uint64_t{4} << 20;
  ASSIGN_OR_RETURN(const InputFile file, InputFile::Open(path));
  uint64_t length = 0;
  ASSIGN_OR_RETURN(size_t got, file.ReadAt(0, reinterpret_cast<char*>(&length), sizeof length));
  const int64_t room = file.size() - static_cast<int64_t>(sizeof length);
  if (got < sizeof length || length > kMostTextBytes || static_cast<int64_t>(length) > room) {
    return Bad(path, "a text of ", length, " bytes is announced, want at most the ", room,
               " that follow, and ", kMostTextBytes);
  }
  std::string text(length, '\0');
  ASSIGN_OR_RETURN(got, file.ReadAt(sizeof length, text.data(), text.size()));
  text.resize(got);
  const nlohmann::json tensors = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!tensors.is_object()) return Bad(path, "the text of its safetensors is no JSON object");
  std::vector<std::string> names;
  for (const auto& [name, tensor] : tensors.items()) {
    if (name != "__metadata__") names.push_back(name);
  }
  const int64_t text_end = static_cast<int64_t>(sizeof length + length);
  const auto open = [&](const std::string& name) -> absl::StatusOr<ArrayFile> {
    ASSIGN_OR_RETURN(InputFile again, InputFile::Open(path));
    ArrayFile array{.file = std::move(again)};
    RETURN_IF_ERROR(
        Annotate(ReadSafetensor(tensors[name], text_end, array), path, ": tensor ", Quote(name)));
    return array;
  };
  ASSIGN_OR_RETURN(const std::string name, NameOfRows(path, names));
  std::optional<ArrayFile> keys;
  if (tensors.contains(kKeys)) {
    ASSIGN_OR_RETURN(keys, open(kKeys));
  }
  ASSIGN_OR_RETURN(ArrayFile rows, open(name));
  return TableArrays{std::move(keys), std::move(rows)};
}

absl::Status CheckKeys(const std::string& path, NumberType type, absl::Span<const int64_t> dims,
                       int64_t rows) {
  if (engine::IsFloat(type)) {
    return Bad(path, "keys are ", Name(type), ", want integers");
  }
  if (dims.size() != 1) {
    return Bad(path, "keys of shape ", engine::ToString(dims), ", want one dimension");
  }
  if (dims[0] == rows) return absl::OkStatus();
  return Bad(path, dims[0], " keys and ", rows, " rows");
}

absl::Status CheckRows(const std::string& path, NumberType type, absl::Span<const int64_t> dims) {
  if (!engine::IsFloat(type)) {
    return Bad(path, "rows are ", Name(type), ", want floats");
  }
  if (dims.size() != 2) {
    return Bad(path, "rows of shape ", engine::ToString(dims), ", want two dimensions");
  }
  return dims[1] < 1 ? Bad(path, "rows have no values") : absl::OkStatus();
}

// `count` numbers from `first` on.
std::vector<int64_t> Numbers(int64_t first, int64_t count) {
  std::vector<int64_t> numbers(static_cast<size_t>(count));
  std::iota(numbers.begin(), numbers.end(), first);
  return numbers;
}

// Gives `count` rows to the sink.
absl::Status AddRows(NumberType key_type, const std::vector<int64_t>& keys,
                     const std::vector<float>& rows, engine::RowSink& sink) {
  const size_t dim = rows.size() / std::max<size_t>(keys.size(), 1);
  for (size_t i = 0; i < keys.size(); ++i) {
    if (key_type == NumberType::kUint64 && keys[i] < 0) {
      return InvalidArgument("key ", static_cast<uint64_t>(keys[i]), ", want at most ", INT64_MAX);
    }
    ASSIGN_OR_RETURN(float* const to, sink.NextRow());
    std::copy_n(rows.data() + i * dim, dim, to);
    RETURN_IF_ERROR(sink.Commit(keys[i]));
  }
  return absl::OkStatus();
}

// Of `count` rows of `width` elements.
absl::StatusOr<std::string> ReadPiece(const ArrayFile& array, int64_t first, int64_t count,
                                      int64_t width) {
  const auto size = static_cast<int64_t>(engine::SizeOf(array.type));
  // In Fortran order each column is a run of its own.
  const int64_t runs = array.fortran_order ? width : 1, run_bytes = count * width * size / runs;
  std::string piece(static_cast<size_t>(runs * run_bytes), '\0');
  for (int64_t run = 0; run < runs; ++run) {
    const int64_t from = (run * array.dims[0] + first * (width / runs)) * size;
    ASSIGN_OR_RETURN(const size_t got,
                     array.file.ReadAt(array.begin + from, piece.data() + run * run_bytes,
                                       static_cast<size_t>(run_bytes)));
    if (static_cast<int64_t>(got) != run_bytes) {
      return Unavailable(array.file.path(), ": was cut while it was read");
    }
  }
  if (runs == 1) return piece;
  return engine::TransposeFortran(piece, {count, width}, static_cast<size_t>(size));
}

absl::Status ReadArrays(const TableArrays& arrays, engine::RowSink& sink) {
  const auto& [keys, rows] = arrays;
  const std::string& path = rows.file.path();
  RETURN_IF_ERROR(CheckRows(path, rows.type, rows.dims));
  if (keys.has_value()) {
    RETURN_IF_ERROR(CheckKeys(keys->file.path(), keys->type, keys->dims, rows.dims[0]));
  }
  const NumberType key_type = keys.has_value() ? keys->type : NumberType::kInt64;
  const int64_t all = rows.dims[0], dim = rows.dims[1];
  RETURN_IF_ERROR(Annotate(sink.Begin(dim, all), path));
  const int64_t most =
      std::max<int64_t>(1, static_cast<int64_t>(kPieceBytes / engine::SizeOf(rows.type)) / dim);
  for (int64_t first = 0; first < all; first += most) {
    const int64_t count = std::min(most, all - first);
    std::vector<int64_t> ids;
    if (keys.has_value()) {
      ASSIGN_OR_RETURN(const std::string piece, ReadPiece(*keys, first, count, 1));
      ids = engine::ToInt64(key_type, piece.data(), static_cast<size_t>(count));
    } else {
      ids = Numbers(first, count);
    }
    ASSIGN_OR_RETURN(const std::string values, ReadPiece(rows, first, count, dim));
    const auto floats =
        engine::ToFloat32(rows.type, values.data(), static_cast<size_t>(count * dim));
    RETURN_IF_ERROR(Annotate(AddRows(key_type, ids, floats, sink), path));
  }
  return absl::OkStatus();
}

absl::Status ReadNpzArrays(const std::string& path, engine::RowSink& sink) {
  ASSIGN_OR_RETURN(const engine::NpzArrays arrays, engine::ReadNpz(path));
  std::vector<std::string> names;
  for (const auto& [name, array] : arrays) names.push_back(name);
  ASSIGN_OR_RETURN(const std::string name, NameOfRows(path, names));
  const engine::NpyArray& rows = arrays.at(name);
  RETURN_IF_ERROR(CheckRows(path, rows.type, rows.dims));
  NumberType key_type = NumberType::kInt64;
  std::vector<int64_t> ids;
  if (const auto keys = arrays.find(kKeys); keys != arrays.end()) {
    key_type = keys->second.type;
    RETURN_IF_ERROR(CheckKeys(path, key_type, keys->second.dims, rows.dims[0]));
    ids = keys->second.ToInt64();
  } else {
    ids = Numbers(0, rows.dims[0]);
  }
  RETURN_IF_ERROR(Annotate(sink.Begin(rows.dims[1], rows.dims[0]), path));
  return Annotate(AddRows(key_type, ids, rows.ToFloat32(), sink), path);
}

// KEYS.npy ROWS.npy, or a matrix of rows alone.  Goes on to the last file that it takes.
absl::Status ReadNpyArrays(absl::Span<const std::string> inputs, size_t& i, engine::RowSink& sink) {
  ASSIGN_OR_RETURN(ArrayFile first, OpenNpy(inputs[i]));
  if (first.dims.size() == 2) return ReadArrays({std::nullopt, std::move(first)}, sink);
  if (i + 1 == inputs.size()) {
    return Bad(inputs[i], "an .npy file of keys wants one of rows after it");
  }
  ASSIGN_OR_RETURN(ArrayFile rows, OpenNpy(inputs[++i]));
  return ReadArrays({std::move(first), std::move(rows)}, sink);
}

absl::Status ReadDirectory(const std::string& path, DumpKeys keys, engine::RowSink& sink) {
  std::error_code ignored;
  if (std::filesystem::exists(path + "/CURRENT", ignored)) return engine::ReadRocksdb(path, sink);
  ASSIGN_OR_RETURN(InputFile key_file, InputFile::Open(path + "/key"));
  ASSIGN_OR_RETURN(InputFile row_file, InputFile::Open(path + "/emb_vector"));
  const NumberType type = keys == DumpKeys::kInt64 ? NumberType::kInt64 : NumberType::kUint32;
  const auto key_bytes = static_cast<int64_t>(engine::SizeOf(type));
  const int64_t count = key_file.size() / key_bytes;
  const int64_t row_bytes = count == 0 ? 0 : row_file.size() / count;
  if (count == 0 || key_file.size() % key_bytes != 0 || row_bytes % 4 != 0 ||
      row_bytes * count != row_file.size()) {
    return Bad(path, "key has ", key_file.size(), " bytes and emb_vector ", row_file.size(),
               ": no keys of ", key_bytes,
               " bytes with rows of floats; --keys says of which type they are");
  }
  return ReadArrays(
      {.keys = ArrayFile{std::move(key_file), 0, type, {count}},
       .rows = ArrayFile{std::move(row_file), 0, NumberType::kFloat32, {count, row_bytes / 4}}},
      sink);
}

absl::Status ReadTableFile(const std::string& path, engine::RowSink& sink) {
  // Or what is damaged would have good sums in the table that is built.
  RETURN_IF_ERROR(engine::VerifyTableFile(path, [](uint64_t, uint64_t) {}));
  ASSIGN_OR_RETURN(const InputFile file, InputFile::Open(path));
  ASSIGN_OR_RETURN(const auto rows, engine::OpenTableFile(file));
  RETURN_IF_ERROR(Annotate(sink.Begin(rows->dim, rows->rows), path));
  RETURN_IF_ERROR(engine::ForEachRow(*rows, [&](int64_t id, const char* row) -> absl::Status {
    ASSIGN_OR_RETURN(float* const to, sink.NextRow());
    engine::DecodeRow(rows->format, row, rows->dim, to);
    return Annotate(sink.Commit(id), path);
  }));
  return rows->file->Check();
}

absl::StatusOr<std::string> Beginning(const std::string& path) {
  ASSIGN_OR_RETURN(const InputFile file, InputFile::Open(path));
  std::string head(9, '\0');
  ASSIGN_OR_RETURN(const size_t got, file.ReadAt(0, head.data(), head.size()));
  head.resize(got);
  return head;
}

}  // namespace

std::optional<DumpKeys> DumpKeysOf(absl::string_view name) {
  if (name == "int64") return DumpKeys::kInt64;
  if (name == "uint32") return DumpKeys::kUint32;
  return std::nullopt;
}

absl::Status ReadRows(absl::Span<const std::string> inputs, DumpKeys keys, engine::RowSink& sink) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    const std::string& path = inputs[i];
    std::error_code ignored;
    if (std::filesystem::is_directory(path, ignored)) {
      RETURN_IF_ERROR(ReadDirectory(path, keys, sink));
      continue;
    }
    ASSIGN_OR_RETURN(const std::string head, Beginning(path));
    if (absl::StartsWith(head, "\x93NUMPY")) {
      RETURN_IF_ERROR(ReadNpyArrays(inputs, i, sink));
    } else if (absl::StartsWith(head, "ULFT")) {
      RETURN_IF_ERROR(ReadTableFile(path, sink));
    } else if (absl::StartsWith(head, "PK")) {
      RETURN_IF_ERROR(ReadNpzArrays(path, sink));
    } else if (head.size() == 9 && head[8] == '{') {
      ASSIGN_OR_RETURN(const TableArrays arrays, OpenSafetensors(path));
      RETURN_IF_ERROR(ReadArrays(arrays, sink));
    } else {
      RETURN_IF_ERROR(engine::ReadTextTable(path, {.csv = true}, sink).status());
    }
  }
  return absl::OkStatus();
}

}  // namespace ulfd::tools
