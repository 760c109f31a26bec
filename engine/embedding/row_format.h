// How tables hold their rows: as floats or in fewer bytes.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_EMBEDDING_ROW_FORMAT_H_
#define ULFD_ENGINE_EMBEDDING_ROW_FORMAT_H_

#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"

namespace ulfd::engine {

// Numbers are those of the table file.  kInt8: scale and offset as fp16, then a byte per value,
// which stands for byte * scale + offset.
enum class RowFormat : uint8_t { kFp32 = 0, kFp16 = 1, kBf16 = 2, kInt8 = 3 };
inline constexpr size_t kRowFormats = 4;

// "fp32", "fp16", "bf16", "int8".
absl::string_view Name(RowFormat format);
std::optional<RowFormat> RowFormatOf(absl::string_view name);

// Bytes of a row of `dim` values.
size_t RowBytes(RowFormat format, int64_t dim);

// Writes RowBytes bytes at `to`.  fp16 and bf16 round to the nearest value, ties to even; int8 errs
// by at most half a step, a step being 1/255 of the row's range and what fp16 rounds of it.
// False if a value is not finite or too large for the format (65504 for fp16 and int8).
bool EncodeRow(RowFormat format, const float* row, int64_t dim, char* to);

// The `dim` values of a row, as pooling reads them, bit for bit.
void DecodeRow(RowFormat format, const char* row, int64_t dim, float* to);

// Whether all values of a row are finite.
bool IsFinite(RowFormat format, const char* row, int64_t dim);

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_EMBEDDING_ROW_FORMAT_H_
