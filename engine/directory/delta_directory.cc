// SPDX-License-Identifier: Apache-2.0
#include "engine/directory/delta_directory.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <set>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/errors.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "engine/weights/digest.h"
#include "engine/weights/proto_file.h"

namespace ulfd::engine {
namespace {

using ulfd::model::v1::DeltaManifest;
using ulfd::model::v1::DeltaTable;

constexpr int64_t kMaxSeconds = 9'000'000'000;  // In nanoseconds, these are 64 bits.
constexpr std::chrono::hours kMostAhead(1);

absl::Status CheckManifest(const std::string& directory, int64_t epoch,
                           const DeltaManifest& manifest) {
  if (manifest.base_epoch() < 0 || manifest.base_epoch() >= epoch) {
    return InvalidArgument("base_epoch is ", manifest.base_epoch(), ", want 0 to ", epoch - 1);
  }
  if (!manifest.has_event_time()) return InvalidArgument("event_time is missing");
  const auto& time = manifest.event_time();
  if (time.seconds() < 0 || time.seconds() > kMaxSeconds || time.nanos() < 0 ||
      time.nanos() >= 1'000'000'000) {
    return InvalidArgument("event_time is ", time.seconds(), " s ", time.nanos(),
                           " ns, want seconds 0 to ", kMaxSeconds, " and nanos 0 to 999999999");
  }
  // One that is far ahead would make every right one after it "before that".  No content error: the
  // clock may be what is wrong, and put right.
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  if (std::chrono::seconds(time.seconds()) - now > kMostAhead) {
    return Unavailable("event_time is ",
                       absl::FormatTime(absl::FromUnixSeconds(time.seconds()), absl::UTCTimeZone()),
                       ", want at most an hour after now");
  }
  if (manifest.tables().empty() && manifest.weights().empty()) {
    return InvalidArgument("names neither tables nor weights");
  }
  std::set<std::string> names;
  const auto check = [&](const std::string& path, absl::string_view what) {
    return path.empty() ? absl::OkStatus() : PathWithin(directory, directory, path, what).status();
  };
  for (const DeltaTable& table : manifest.tables()) {
    const std::string what = absl::StrCat("tables ", Quote(table.name()));
    if (!names.insert(table.name()).second) {
      return InvalidArgument(what, ": given twice");
    }
    if (table.put().empty() && table.drop().empty()) {
      return InvalidArgument(what, ": neither put nor drop");
    }
    RETURN_IF_ERROR(check(table.put(), absl::StrCat(what, ": put")));
    RETURN_IF_ERROR(check(table.drop(), absl::StrCat(what, ": drop")));
  }
  return check(manifest.weights(), "weights");
}

absl::Status CheckSums(const std::string& directory, const DeltaManifest& manifest) {
  for (const ulfd::model::v1::FileSum& sum : manifest.sums()) {
    ASSIGN_OR_RETURN(const std::string path,
                     PathWithin(directory, directory, sum.path(), "sums.path"));
    ASSIGN_OR_RETURN(const std::string found, Sha256OfFile(path));
    if (found == sum.sha256()) continue;
    return DataLoss(path, ": sha256 is ", found, ", ", kDeltaFile, " says ", sum.sha256());
  }
  return absl::OkStatus();
}

}  // namespace

std::string EpochDirectory(const std::string& version_directory, int64_t epoch) {
  return absl::StrCat(version_directory, "/", kDeltasDirectory, "/", epoch);
}

absl::StatusOr<std::vector<EpochMark>> ListEpochs(const std::string& version_directory,
                                                  int64_t most, int64_t* names_left) {
  const std::string deltas = absl::StrCat(version_directory, "/", kDeltasDirectory);
  std::vector<EpochMark> epochs;
  struct stat info;
  if (stat(deltas.c_str(), &info) != 0 && errno == ENOENT) return epochs;
  ASSIGN_OR_RETURN(const std::vector<std::string> names, ListNames(deltas, most, names_left));
  for (const std::string& name : names) {
    int64_t epoch = 0;
    if (!absl::SimpleAtoi(name, &epoch) || epoch < 1 || absl::StrCat(epoch) != name) continue;
    const std::string success = absl::StrCat(deltas, "/", name, "/", kSuccessFile);
    if (stat(success.c_str(), &info) != 0) continue;
    epochs.push_back(
        {epoch, absl::StrCat(info.st_ino, " ", info.st_mtim.tv_sec, " ", info.st_mtim.tv_nsec)});
  }
  std::sort(epochs.begin(), epochs.end());
  return epochs;
}

absl::StatusOr<DeltaManifest> ReadDeltaManifest(const std::string& directory, int64_t epoch,
                                                FileSums sums) {
  const std::string path = absl::StrCat(directory, "/", kDeltaFile);
  DeltaManifest manifest;
  RETURN_IF_ERROR(ReadProtoFile(path, ProtoFormat::kText, manifest).status());
  RETURN_IF_ERROR(Annotate(CheckManifest(directory, epoch, manifest), path));
  if (sums == FileSums::kChecked) RETURN_IF_ERROR(CheckSums(directory, manifest));
  return manifest;
}

absl::StatusOr<std::vector<int64_t>> ParseIds(absl::string_view text, absl::string_view path) {
  std::vector<int64_t> ids;
  int64_t line_number = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    absl::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    ++line_number;
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    int64_t id = 0;
    if (!absl::SimpleAtoi(line, &id)) {
      return InvalidArgument(path, ":", line_number, ": ", Quote(line), " is not a 64-bit integer");
    }
    ids.push_back(id);
  }
  return ids;
}

absl::StatusOr<std::vector<int64_t>> ReadIds(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  return ParseIds(text, path);
}

}  // namespace ulfd::engine
