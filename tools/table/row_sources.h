// The files from which tables are built.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TOOLS_TABLE_ROW_SOURCES_H_
#define ULFD_TOOLS_TABLE_ROW_SOURCES_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "engine/embedding/text_table.h"

namespace ulfd::tools {

// What a file `key` holds, which does not say so: int64 unless HugeCTR was made for others.
enum class DumpKeys { kInt64, kUint32 };
std::optional<DumpKeys> DumpKeysOf(absl::string_view name);

// Gives the rows of all inputs to `sink`, one input after the other.  Each is known by its content:
//   a text table; its first line may name the columns;
//   a table file;
//   two .npy files in a row: keys [rows], integers that fit int64, and rows [rows, dim], any float;
//   an .npy file of rows, whose keys are their numbers, from 0;
//   an .npz file, which is read whole, or a safetensors file with such arrays "keys" and "rows"; of
//   another name where there is but one beside the keys, and by number where there are no keys;
//   a directory with the files key and emb_vector (float32) of HugeCTR's parameter server;
//   a directory of RocksDB that `ulf table build` made.
// Errors name the file.
absl::Status ReadRows(absl::Span<const std::string> inputs, DumpKeys keys, engine::RowSink& sink);

}  // namespace ulfd::tools

#endif  // ULFD_TOOLS_TABLE_ROW_SOURCES_H_
