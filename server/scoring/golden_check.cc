// SPDX-License-Identifier: Apache-2.0
#include "server/scoring/golden_check.h"

#include <cstdint>
#include <functional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/bounded_parse.h"
#include "base/errors.h"
#include "base/file.h"
#include "base/recording/recording_file.h"
#include "base/recording/recording_reader.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "engine/directory/directory_tree.h"
#include "engine/directory/model_directory.h"
#include "engine/runtime/score_tolerance.h"
#include "server/scoring/recorded_run.h"

namespace ulfd::server {
namespace {

using recording::Recording;

// Paths, sorted; none without the folder.
absl::StatusOr<std::vector<std::string>> RecordingFiles(const std::string& directory) {
  const std::string folder = absl::StrCat(directory, "/warmup");
  absl::StatusOr<std::vector<std::string>> names = engine::ListNames(folder, INT64_MAX);
  if (absl::IsNotFound(names.status())) return std::vector<std::string>();
  RETURN_IF_ERROR(names.status());
  std::erase_if(*names, [](const std::string& name) {
    return !absl::EndsWith(name, ".pb") && !absl::EndsWith(name, ".ulfrec");
  });
  for (std::string& name : *names) name = absl::StrCat(folder, "/", name);
  return names;
}

absl::Status Compare(const ScorePair& pair, double tolerance) {
  if (engine::IsNear(pair.found, pair.recorded, tolerance)) return absl::OkStatus();
  return FailedPrecondition("output \"", pair.output, "\" row ", pair.row, " column ", pair.column,
                            ": found ", pair.found, ", recorded ", pair.recorded, ", tolerance ",
                            tolerance);
}

// Yesterday's recordings are often put there to warm a version that was trained since.
std::string OfOtherContent(const Recording& record, const engine::ModelInfo& info) {
  const bool other = !record.content_hash().empty() && record.content_hash() != info.content_hash;
  if (!other || record.outputs().empty()) return "";
  return absl::StrCat(", of other content, version ", record.version(),
                      " (`ulf recordings --requests=OUT` keeps requests without scores)");
}

// Calls `use` for every record until it fails or says that it has enough (false).
using UseRecord = std::function<absl::StatusOr<bool>(const Recording& record)>;
absl::Status ForEachRecord(const std::string& path, const UseRecord& use,
                           std::vector<std::string>& notices) {
  std::string magic(recording::kFileMagic.size(), '\0');
  {
    ASSIGN_OR_RETURN(InputFile file, InputFile::Open(path));
    ASSIGN_OR_RETURN(const size_t read, file.Read(magic.data(), magic.size()));
    magic.resize(read);
  }
  if (magic != recording::kFileMagic) {
    ASSIGN_OR_RETURN(const std::string content, ReadFile(path));
    Recording record;
    if (!ParseBounded(content, record) || record.api() == recording::v1::API_UNSPECIFIED) {
      return DataLoss(
          path, ": neither a file of the recorder nor a serialised ulfd.recording.v1.Recording");
    }
    return use(record).status();
  }
  ASSIGN_OR_RETURN(recording::RecordingReader reader, recording::RecordingReader::Open(path));
  Recording record;
  bool empty = true;
  for (;; empty = false) {
    ASSIGN_OR_RETURN(const bool more, reader.Next(&record));
    if (!more) break;
    ASSIGN_OR_RETURN(const bool go_on, use(record));
    if (!go_on) return absl::OkStatus();
  }
  if (reader.damage().records > 0) {
    return DataLoss(path, ": ", reader.damage().records, " damaged records");
  }
  // A copy that was cut off would check nothing.
  if (empty) return DataLoss(path, ": holds no whole record");
  if (reader.damage().tail_bytes > 0) {
    notices.push_back(absl::StrCat(path, ": the last record is incomplete and was left out"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckRecordings(const engine::Model& model, const std::string& directory,
                             const RequestLimits& limits, const engine::RunOptions& run,
                             std::vector<std::string>& notices) {
  ASSIGN_OR_RETURN(const auto manifest, engine::ReadManifest(directory));
  ASSIGN_OR_RETURN(const double tolerance, engine::ToleranceOf(manifest));
  ASSIGN_OR_RETURN(const std::vector<std::string> paths, RecordingFiles(directory));
  const RecordedRun::Visit compare = [tolerance](const ScorePair& pair) {
    return Compare(pair, tolerance);
  };
  RecordedRun recorded;
  int requests = 0;
  bool enough = false;
  for (const std::string& path : paths) {
    int number = 0;  // Within the file, from 1.
    const UseRecord use = [&](const Recording& record) -> absl::StatusOr<bool> {
      if (requests == kMaxGoldenRequests) {
        enough = true;
        notices.push_back(absl::StrCat("warmup: only the first ", kMaxGoldenRequests,
                                       " recorded requests were scored"));
        return false;
      }
      ++requests;
      ++number;
      const absl::Status found = recorded.Run(record, model, limits, run, compare);
      if (found.ok()) return true;
      return Annotate(found, "golden scores: ", path, " record ", number,
                      OfOtherContent(record, model.info()));
    };
    RETURN_IF_ERROR(ForEachRecord(path, use, notices));
    if (enough) break;
  }
  return absl::OkStatus();
}

}  // namespace ulfd::server
