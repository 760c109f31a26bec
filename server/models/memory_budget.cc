// Reads cgroup limits and file sizes.  A limit that cannot be read counts as none.
// SPDX-License-Identifier: Apache-2.0
#include "server/models/memory_budget.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "engine/embedding/table_file.h"
#include "engine/runtime/model_directory.h"

namespace ulfd::server {
namespace {

namespace fs = std::filesystem;

// cgroup v1 says "no limit" by a number near 2^63.
constexpr int64_t kNoLimit = int64_t{1} << 60;

std::optional<int64_t> ReadLimit(const std::string& path) {
  std::ifstream file(path);
  std::string word;
  int64_t bytes = 0;
  if (!(file >> word) || !absl::SimpleAtoi(word, &bytes)) return std::nullopt;  // "max"
  if (bytes <= 0 || bytes >= kNoLimit) return std::nullopt;
  return bytes;
}

void KeepSmaller(std::optional<int64_t> candidate, std::optional<int64_t>& best) {
  if (candidate && (!best || *candidate < *best)) best = candidate;
}

// The tightest limit of mount + path and of every directory above it, up to the mount: inside a
// container the path may be one of the host, and the mount itself is then the cgroup.
std::optional<int64_t> Tightest(const std::string& mount, std::string path, const char* file) {
  std::optional<int64_t> best;
  while (true) {
    KeepSmaller(ReadLimit(absl::StrCat(mount, path, "/", file)), best);
    const size_t slash = path.find_last_of('/');
    if (path.empty() || slash == std::string::npos) return best;
    path.resize(slash);
  }
}

// Sparse files may claim any size.
int64_t Sum(int64_t a, int64_t b) { return std::min(a, kNoLimit) + std::min(b, kNoLimit); }

std::string Megabytes(int64_t bytes) { return absl::StrCat((bytes + (1 << 20) - 1) >> 20, " MiB"); }

}  // namespace

std::optional<int64_t> CgroupMemoryLimit(const std::string& root) {
  std::ifstream membership(root + "/proc/self/cgroup");
  std::optional<int64_t> best;
  // Lines: "0::/path" for v2, "9:memory:/path" for v1.
  for (std::string line; std::getline(membership, line);) {
    const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3) continue;
    const std::string path = parts[2] == "/" ? "" : parts[2];
    const std::vector<std::string> controllers = absl::StrSplit(parts[1], ',');
    if (parts[0] == "0" && parts[1].empty()) {
      KeepSmaller(Tightest(root + "/sys/fs/cgroup", path, "memory.max"), best);
      // Hybrid machines mount v2 beside v1.
      KeepSmaller(Tightest(root + "/sys/fs/cgroup/unified", path, "memory.max"), best);
    } else if (std::count(controllers.begin(), controllers.end(), "memory") > 0) {
      KeepSmaller(Tightest(root + "/sys/fs/cgroup/memory", path, "memory.limit_in_bytes"), best);
    }
  }
  return best;
}

int64_t DefaultMemoryBudget() {
  const int64_t machine = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  return std::min(machine, CgroupMemoryLimit("").value_or(machine)) / 5 * 4;
}

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
  return absl::ResourceExhaustedError(
      absl::StrCat("needs ", about ? "about " : "", Megabytes(needed), " beside the ",
                   Megabytes(held), " that models hold now: ", Megabytes(together),
                   " together, memory_budget_bytes allows ", Megabytes(budget)));
}

}  // namespace ulfd::server
