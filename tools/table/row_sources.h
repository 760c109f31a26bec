// The files from which tables are built.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TOOLS_TABLE_ROW_SOURCES_H_
#define ULFD_TOOLS_TABLE_ROW_SOURCES_H_

#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "engine/embedding/text_table.h"

namespace ulfd::tools {

// Gives the rows of all inputs to `sink`, one input after the other.  Each is known by its content:
//   a text table; its first line may name the columns;
//   a table file;
//   two .npy files in a row: keys [rows], integers that fit int64, and rows [rows, dim], any float;
//   an .npz file with such arrays "keys" and "rows", which is read whole;
//   a safetensors file with such tensors "keys" and "rows";
//   a directory with the files key (int64) and emb_vector (float32) of HugeCTR's parameter server.
// Errors name the file.
absl::Status ReadRows(absl::Span<const std::string> inputs, engine::RowSink& sink);

}  // namespace ulfd::tools

#endif  // ULFD_TOOLS_TABLE_ROW_SOURCES_H_
