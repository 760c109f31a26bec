// A converted model as a version directory on disk.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TOOLS_CONVERT_MODEL_WRITER_H_
#define ULFD_TOOLS_CONVERT_MODEL_WRITER_H_

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/runtime/model.h"
#include "tools/convert/graph_builder.h"

namespace ulfd::convert {

// Writes graph_ulf.txt, weights.pb (if there are weights), model.textproto, the embedding
// configurations, the tables, conversion_report.txt and, last, _SUCCESS into `directory`, which
// must not exist or be empty; its parents are made.  Everything is written into a directory beside
// it, loaded by the engine as a check, given to `finish`, which checks what it wants and returns
// the text of the report, and renamed: what is there is complete, or nothing is. ALREADY_EXISTS if
// the directory has content; the engine's error, naming `source` and the layer, if the result does
// not load; `finish`'s own; errors of the file system name the file.
using FinishReport = std::function<absl::StatusOr<std::string>(const engine::Model& loaded)>;
absl::Status WriteModel(const ConvertedModel& model, absl::string_view source,
                        const FinishReport& finish, const std::string& directory);

}  // namespace ulfd::convert

#endif  // ULFD_TOOLS_CONVERT_MODEL_WRITER_H_
