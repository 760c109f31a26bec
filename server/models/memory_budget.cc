// SPDX-License-Identifier: Apache-2.0
#include "server/models/memory_budget.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/errors.h"
#include "base/file.h"
#include "base/memory_limit.h"
#include "base/status_macros.h"
#include "engine/directory/model_directory.h"
#include "engine/embedding/table_file.h"

namespace ulfd::server {
namespace {

namespace fs = std::filesystem;

// More than any machine has.
constexpr int64_t kNoLimit = int64_t{1} << 60;

// Sparse files may claim any size.
int64_t Sum(int64_t a, int64_t b) { return std::min(a, kNoLimit) + std::min(b, kNoLimit); }

std::string Megabytes(int64_t bytes) { return absl::StrCat((bytes + (1 << 20) - 1) >> 20, " MiB"); }

}  // namespace

int64_t DefaultMemoryBudget() { return MemoryLimit() / 5 * 4; }

namespace {

// Of a table file, whose pages the kernel reads and drops as it likes.
bool IsMapped(const std::string& path) {
  const auto file = InputFile::Open(path);
  return file.ok() && engine::IsTableFile(*file).value_or(false);
}

}  // namespace

absl::StatusOr<MemoryEstimate> EstimateMemory(const std::string& directory,
                                              const engine::DirectoryRules& rules,
                                              std::optional<double> bytes_per_file_byte) {
  MemoryEstimate estimate;
  const absl::StatusOr<engine::ModelDirectory> model = engine::OpenModelDirectory(directory);
  const std::vector<std::string> stores =
      model.ok() ? engine::StoreDirectories(*model) : std::vector<std::string>();
  const auto in_store = [&](const std::string& path) {
    return std::any_of(stores.begin(), stores.end(), [&](const std::string& store) {
      return absl::StartsWith(path, absl::StrCat(store, "/"));
    });
  };
  RETURN_IF_ERROR(engine::WalkTree(directory, rules, [&](const engine::TreeEntry& entry) {
    const std::string path = absl::StrCat(model.ok() ? model->path : directory, "/", entry.name);
    if (entry.kind != engine::TreeEntry::Kind::kFile || absl::StartsWith(entry.name, "warmup/") ||
        in_store(path) || IsMapped(path)) {
      return;
    }
    estimate.file_bytes = Sum(estimate.file_bytes, entry.info.st_size);
  }));
  if (bytes_per_file_byte.has_value()) {
    const double bytes = static_cast<double>(estimate.file_bytes) * *bytes_per_file_byte;
    estimate.bytes = bytes < static_cast<double>(kNoLimit) ? static_cast<int64_t>(bytes) : kNoLimit;
    return estimate;
  }
  RETURN_IF_ERROR(model.status());
  estimate.bytes = estimate.file_bytes;
  if (!model->weights_path.empty()) {
    std::error_code error;
    const auto weights = fs::file_size(model->weights_path, error);
    if (!error) {
      estimate.bytes =
          Sum(estimate.bytes, static_cast<int64_t>(std::min<uintmax_t>(weights, kNoLimit)));
    }
  }
  return estimate;
}

absl::Status CheckMemory(int64_t needed, bool about, int64_t held, int64_t budget) {
  const int64_t together = Sum(needed, held);
  if (together <= budget) return absl::OkStatus();
  return ResourceExhausted("needs ", about ? "about " : "", Megabytes(needed), " beside the ",
                           Megabytes(held), " that models hold now: ", Megabytes(together),
                           " together, memory_budget_bytes allows ", Megabytes(budget));
}

}  // namespace ulfd::server
