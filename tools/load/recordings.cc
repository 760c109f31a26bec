// SPDX-License-Identifier: Apache-2.0
#include "tools/load/recordings.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "base/errors.h"
#include "base/status_macros.h"

namespace ulfd::tools {

namespace fs = std::filesystem;

absl::StatusOr<std::vector<std::string>> FilesIn(const std::string& path,
                                                 std::initializer_list<absl::string_view> endings) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return std::vector<std::string>{path};
  std::vector<std::string> files;
  fs::recursive_directory_iterator entries(path, error);
  for (; !error && entries != fs::recursive_directory_iterator(); entries.increment(error)) {
    const std::string extension = entries->path().extension();
    if (absl::c_linear_search(endings, extension)) files.push_back(entries->path().string());
  }
  if (error) {
    return Unavailable(path, ": cannot list: ", error.message());
  }
  std::sort(files.begin(), files.end());
  return files;
}

absl::StatusOr<std::vector<std::string>> RecordingFiles(const std::string& path) {
  ASSIGN_OR_RETURN(std::vector<std::string> files, FilesIn(path, {".ulfrec"}));
  if (files.empty()) return NotFound(path, ": holds no *.ulfrec file");
  return files;
}

absl::Status ForEachRecording(const std::vector<std::string>& files,
                              const std::function<absl::Status(recording::Recording&)>& visit,
                              recording::Damage* damage) {
  for (const std::string& file : files) {
    ASSIGN_OR_RETURN(auto reader, recording::RecordingReader::Open(file));
    recording::Recording record;
    while (true) {
      ASSIGN_OR_RETURN(const bool more, reader.Next(&record));
      if (!more) break;
      RETURN_IF_ERROR(visit(record));
    }
    damage->records += reader.damage().records;
    damage->tail_bytes += reader.damage().tail_bytes;
  }
  return absl::OkStatus();
}

std::string DescribeDamage(const recording::Damage& damage) {
  std::string text;
  if (damage.records > 0) absl::StrAppend(&text, damage.records, " damaged records");
  if (damage.tail_bytes > 0) {
    absl::StrAppend(&text, text.empty() ? "" : " and ", damage.tail_bytes,
                    " bytes at the end of a file");
  }
  return text.empty() ? text : text + " were passed over";
}

}  // namespace ulfd::tools
