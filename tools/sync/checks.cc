// SPDX-License-Identifier: Apache-2.0
#include "tools/sync/checks.h"

#include <xxhash.h>

#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/errors.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "engine/directory/delta_directory.h"
#include "engine/directory/model_directory.h"
#include "engine/directory/onnx_directory.h"
#include "engine/embedding/table_file.h"
#include "engine/weights/digest.h"

namespace ulfd::tools {
namespace {

absl::Status CheckTables(const std::string& directory) {
  std::error_code error;
  std::filesystem::recursive_directory_iterator it(directory, error);
  for (; !error && it != std::filesystem::recursive_directory_iterator(); it.increment(error)) {
    std::error_code gone;
    if (!it->is_regular_file(gone)) continue;
    const std::string path = it->path().string();
    ASSIGN_OR_RETURN(const InputFile file, InputFile::Open(path));
    ASSIGN_OR_RETURN(const bool is_table, engine::IsTableFile(file));
    if (is_table) RETURN_IF_ERROR(engine::VerifyTableFile(path, [](uint64_t, uint64_t) {}));
  }
  if (!error) return absl::OkStatus();
  return Unavailable("cannot list ", directory, ": ", error.message());
}

}  // namespace

absl::Status CheckVersion(const std::string& directory) {
  if (engine::IsOnnxDirectory(directory)) return absl::OkStatus();  // The daemon converts it.
  ASSIGN_OR_RETURN(const engine::ModelDirectory found, engine::OpenModelDirectory(directory));
  for (const model::v1::FileSum& sum : found.manifest.sums()) {
    const std::string path = absl::StrCat(directory, "/", sum.path());
    ASSIGN_OR_RETURN(const std::string digest, engine::Sha256OfFile(path));
    if (digest == sum.sha256()) continue;
    return DataLoss(Quote(sum.path()), ": sha256 is ", digest, ", ", engine::kManifestFile,
                    " says ", sum.sha256());
  }
  return CheckTables(directory);
}

absl::Status CheckDelta(const std::string& directory, int64_t epoch) {
  RETURN_IF_ERROR(engine::ReadDeltaManifest(directory, epoch).status());
  return CheckTables(directory);
}

std::string ListingDigest(const std::vector<SyncFile>& files) {
  std::string text;
  for (const SyncFile& file : files) {
    absl::StrAppend(&text, file.path, "\n", file.entry.bytes, "\n", file.entry.tag, "\n");
  }
  return absl::StrFormat("%016x", XXH3_64bits(text.data(), text.size()));
}

}  // namespace ulfd::tools
