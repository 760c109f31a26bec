// SPDX-License-Identifier: Apache-2.0
#include "tools/sync/syncer.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "base/errors.h"
#include "base/model_version.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "engine/directory/model_directory.h"
#include "tools/cli/text_table.h"
#include "tools/sync/checks.h"
#include "tools/sync/listing.h"

namespace ulfd::tools {
namespace {

namespace fs = std::filesystem;

constexpr char kStaging[] = ".sync";
constexpr char kLock[] = ".lock";
// As the daemon's rules of a version directory: what breaks them would not serve.
constexpr int kMaxDepth = 16;
constexpr int64_t kMaxFiles = 10000;

bool Exists(const std::string& path) {
  struct stat info;
  return lstat(path.c_str(), &info) == 0;
}

absl::Status Errno(absl::string_view what, const std::string& path) {
  return absl::ErrnoToStatus(errno, absl::StrCat(what, " ", path));
}

absl::Status MakeDirectories(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (!error) return absl::OkStatus();
  return FailedPrecondition("cannot make directory ", path, ": ", error.message());
}

void RemoveAll(const std::string& path) {
  std::error_code ignored;  // What stays is tried again by the next pass.
  fs::remove_all(path, ignored);
}

int64_t TotalBytes(const std::vector<SyncFile>& files) {
  int64_t sum = 0;
  for (const SyncFile& file : files) {
    if (__builtin_add_overflow(sum, file.entry.bytes, &sum)) return INT64_MAX;
  }
  return sum;
}

// What is there already counts as free: it is part of the total.
absl::Status WantSpace(const std::string& path, int64_t bytes) {
  struct statvfs info;
  if (statvfs(path.c_str(), &info) != 0) return Errno("cannot look at", path);
  const auto free = static_cast<int64_t>(info.f_bavail) * static_cast<int64_t>(info.f_frsize);
  std::error_code error;
  int64_t there = 0;
  fs::recursive_directory_iterator it(path, error);
  for (; !error && it != fs::recursive_directory_iterator(); it.increment(error)) {
    std::error_code gone;
    if (it->is_regular_file(gone)) there += static_cast<int64_t>(it->file_size(gone));
  }
  if (bytes - there <= free) return absl::OkStatus();
  return ResourceExhausted("needs ", bytes, " bytes, ", path, " has room for ", free + there);
}

}  // namespace

Syncer::Syncer(Source& source, SyncOptions options)
    : source_(source),
      options_(std::move(options)),
      staging_(absl::StrCat(options_.to, "/", kStaging)) {}

std::string Syncer::Place(absl::string_view unit) const {
  return absl::StrCat(options_.to, "/", unit);
}

absl::Status Syncer::Lock() {
  if (lock_.get() >= 0) return absl::OkStatus();
  RETURN_IF_ERROR(MakeDirectories(staging_));
  const std::string path = absl::StrCat(staging_, "/", kLock);
  FileDescriptor fd(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (fd.get() < 0) return Errno("cannot open", path);
  if (flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    return FailedPrecondition("another ulf sync writes to ", options_.to);
  }
  lock_ = std::move(fd);
  return absl::OkStatus();
}

absl::Status Syncer::Try(int tries, absl::FunctionRef<absl::Status()> once) const {
  absl::Status status;
  for (int attempt = 0; attempt < tries; ++attempt) {
    if (Stopped()) return absl::CancelledError("stopped");
    if (attempt > 0) std::this_thread::sleep_for(std::chrono::milliseconds(100 << attempt));
    status = once();
    if (!absl::IsUnavailable(status)) break;
  }
  return status;
}

absl::StatusOr<std::vector<RemoteEntry>> Syncer::List(const std::string& directory) {
  absl::StatusOr<std::vector<RemoteEntry>> entries;
  RETURN_IF_ERROR(
      Try(options_.list_tries, [&] { return (entries = source_.List(directory)).status(); }));
  return entries;
}

std::vector<absl::Status> Syncer::Pass() {
  errors_.clear();
  staged_.clear();
  complete_ = 0;
  if (absl::Status status = Lock(); !status.ok()) return {status};
  const absl::StatusOr<std::vector<RemoteEntry>> models = List("");
  if (!models.ok()) return {models.status()};
  for (const RemoteEntry& model : *models) {
    if (Stopped()) break;
    if (model.kind != RemoteEntry::Kind::kDirectory || absl::StartsWith(model.name, ".")) continue;
    if (absl::Status status = CheckName(model.name); !status.ok()) {
      errors_.push_back(std::move(status));
    } else {
      SyncModel(model.name);
    }
  }
  if (errors_.empty() && complete_ == 0 && !Stopped()) {
    // Most likely another path or bucket is meant.
    return {NotFound(
        "nothing to copy: the source has no MODEL/VERSION/ with _SUCCESS, or none that its index "
        "pages link to by relative names")};
  }
  if (errors_.empty() && !Stopped()) DeleteStaged();
  return std::exchange(errors_, {});
}

void Syncer::SyncModel(const std::string& model) {
  const absl::StatusOr<std::vector<RemoteEntry>> entries = List(model);
  if (!entries.ok()) {
    errors_.push_back(Annotate(entries.status(), model));
    return;
  }
  std::vector<int64_t> versions;
  for (const RemoteEntry& entry : *entries) {
    const std::optional<int64_t> version = ParseVersion(entry.name);
    if (version.has_value() && entry.kind == RemoteEntry::Kind::kDirectory) {
      versions.push_back(*version);
    }
  }
  // The highest first, which serves; the others are for going back.
  std::sort(versions.rbegin(), versions.rend());
  std::vector<int64_t> kept;
  for (const int64_t version : versions) {
    if (Stopped() || (options_.keep > 0 && static_cast<int>(kept.size()) == options_.keep)) break;
    const absl::StatusOr<bool> there = SyncVersion(model, absl::StrCat(version));
    if (!there.ok()) errors_.push_back(Annotate(there.status(), model, "/", version));
    if (there.ok() && *there) {
      kept.push_back(version);
      ++complete_;
    }
  }
  if (options_.keep == 0 || static_cast<int>(kept.size()) < options_.keep) return;
  if (absl::Status status = DeleteOld(model, kept); !status.ok()) errors_.push_back(status);
}

absl::StatusOr<bool> Syncer::SyncVersion(const std::string& model, const std::string& version) {
  const std::string unit = absl::StrCat(model, "/", version);
  if (!Exists(Place(unit))) {
    absl::StatusOr<std::vector<SyncFile>> files = Collect(unit);
    if (absl::IsNotFound(files.status())) return false;  // Not complete.
    RETURN_IF_ERROR(files.status());
    RETURN_IF_ERROR(Copy(unit, *std::move(files), CheckVersion));
  }
  RETURN_IF_ERROR(SyncDeltas(unit));
  return true;
}

absl::Status Syncer::SyncDeltas(const std::string& version) {
  const std::string deltas = absl::StrCat(version, "/", engine::kDeltasDirectory);
  const absl::StatusOr<std::vector<RemoteEntry>> entries = List(deltas);
  if (absl::IsNotFound(entries.status())) return absl::OkStatus();
  RETURN_IF_ERROR(entries.status());
  std::vector<int64_t> epochs;
  for (const RemoteEntry& entry : *entries) {
    const std::optional<int64_t> epoch = ParseVersion(entry.name);
    if (epoch.has_value() && entry.kind == RemoteEntry::Kind::kDirectory) epochs.push_back(*epoch);
  }
  std::sort(epochs.begin(), epochs.end());  // The daemon applies them in order.
  for (const int64_t epoch : epochs) {
    const std::string unit = absl::StrCat(deltas, "/", epoch);
    if (Exists(Place(unit))) continue;
    absl::StatusOr<std::vector<SyncFile>> files = Collect(unit);
    if (absl::IsNotFound(files.status())) return absl::OkStatus();
    RETURN_IF_ERROR(files.status());
    const absl::Status copied = Copy(unit, *std::move(files), [&](const std::string& staged) {
      return CheckDelta(staged, epoch);
    });
    if (!copied.ok()) return Annotate(copied, "epoch ", epoch);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<SyncFile>> Syncer::Collect(const std::string& unit) {
  std::vector<SyncFile> files;
  listed_ = 0;
  RETURN_IF_ERROR(CollectFrom(unit, "", 0, files));
  std::sort(files.begin(), files.end(),
            [](const SyncFile& a, const SyncFile& b) { return a.path < b.path; });
  for (size_t i = 1; i < files.size(); ++i) {
    if (files[i].path != files[i - 1].path) continue;
    return InvalidArgument("lists ", Quote(files[i].path), " twice");
  }
  return files;
}

absl::Status Syncer::CollectFrom(const std::string& unit, const std::string& directory, int depth,
                                 std::vector<SyncFile>& files) {
  if (depth > kMaxDepth) {
    return OutOfRange(Quote(directory), ": more than ", kMaxDepth, " directories deep");
  }
  ASSIGN_OR_RETURN(std::vector<RemoteEntry> entries,
                   List(absl::StrCat(unit, directory.empty() ? "" : "/", directory)));
  bool complete = depth > 0;
  std::vector<std::string> below;
  for (RemoteEntry& entry : entries) {
    RETURN_IF_ERROR(CheckName(entry.name));
    const std::string path = absl::StrCat(directory, directory.empty() ? "" : "/", entry.name);
    if (entry.kind == RemoteEntry::Kind::kOther) {
      return InvalidArgument(Quote(path),
                             " is neither file nor directory (links are not followed)");
    }
    if (path == engine::kSuccessFile) {
      complete = true;
    } else if (entry.kind == RemoteEntry::Kind::kDirectory) {
      if (path != engine::kDeltasDirectory) below.push_back(path);
    } else {
      files.push_back({path, std::move(entry)});
    }
    if (++listed_ > kMaxFiles) {
      return OutOfRange("more than ", kMaxFiles, " files");
    }
  }
  if (!complete) return NotFound(engine::kSuccessFile);
  for (const std::string& path : below) {
    const absl::Status status = CollectFrom(unit, path, depth + 1, files);
    // Not to be taken for a version without _SUCCESS.
    if (absl::IsNotFound(status)) return FailedPrecondition(status.message());
    RETURN_IF_ERROR(status);
  }
  return absl::OkStatus();
}

absl::Status Syncer::Copy(const std::string& unit, std::vector<SyncFile> files,
                          const std::function<absl::Status(const std::string&)>& check) {
  const auto begin = std::chrono::steady_clock::now();
  bool known = true;  // Whether another content would have another listing.
  for (SyncFile& file : files) {
    if (file.entry.bytes < 0) {
      RETURN_IF_ERROR(Try(options_.list_tries, [&] {
        return source_.Describe(absl::StrCat(unit, "/", file.path), file.entry);
      }));
    }
    known = known && !file.entry.tag.empty();
  }
  const std::string name =
      absl::StrCat(absl::StrReplaceAll(unit, {{"/", "@"}}), ".", ListingDigest(files));
  const std::string staged = absl::StrCat(staging_, "/", name);
  staged_.insert(name);
  if (!known) RemoveAll(staged);
  RETURN_IF_ERROR(MakeDirectories(staged));
  RETURN_IF_ERROR(WantSpace(staged, TotalBytes(files)));
  for (const SyncFile& file : files) RETURN_IF_ERROR(CopyFile(unit, file, staged));
  if (absl::Status status = check(staged); !status.ok()) {
    RemoveAll(staged);  // Copied anew by the next pass: the fault may be in what arrived.
    return status;
  }
  const std::string success = absl::StrCat(staged, "/", engine::kSuccessFile);
  if (FileDescriptor(open(success.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644)).get() < 0) {
    return Errno("cannot write", success);
  }
  RETURN_IF_ERROR(SyncToDisk(staged));  // So that a rename is not on the disk before its content.
  const std::string place = Place(unit), above = place.substr(0, place.rfind('/'));
  RETURN_IF_ERROR(MakeDirectories(above));
  if (rename(staged.c_str(), place.c_str()) != 0) return Errno("cannot rename to", place);
  RETURN_IF_ERROR(SyncToDisk(above));
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  if (options_.report) {
    options_.report(absl::StrFormat("%s: %d files, %sB in %.1f s", unit, files.size(),
                                    HumanNumber(static_cast<double>(TotalBytes(files))),
                                    took.count()));
  }
  return absl::OkStatus();
}

absl::Status Syncer::CopyFile(const std::string& unit, const SyncFile& file,
                              const std::string& staged) {
  const std::string to = absl::StrCat(staged, "/", file.path);
  RETURN_IF_ERROR(MakeDirectories(to.substr(0, to.rfind('/'))));
  return Try(options_.tries, [&] { return CopyRest(unit, file, to); });
}

absl::Status Syncer::CopyRest(const std::string& unit, const SyncFile& file,
                              const std::string& to) {
  const FileDescriptor fd(
      open(to.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0644));
  if (fd.get() < 0) return Errno("cannot write", to);
  struct stat info;
  if (fstat(fd.get(), &info) != 0) return Errno("cannot look at", to);
  const int64_t wanted = file.entry.bytes;
  int64_t have = info.st_size;
  if (have < wanted) {
    const absl::Status read = source_.Read(
        absl::StrCat(unit, "/", file.path), file.entry, have, [&](absl::string_view bytes) {
          if (Stopped()) return absl::CancelledError("stopped");
          have += static_cast<int64_t>(bytes.size());
          if (have > wanted) {
            return OutOfRange("has more than the ", wanted, " bytes of its listing");
          }
          return WriteAll(fd.get(), bytes) ? absl::OkStatus() : Errno("cannot write", to);
        });
    if (absl::IsOutOfRange(read)) RemoveAll(to);  // What is there is none of the file.
    RETURN_IF_ERROR(read);
  }
  if (have != wanted) {
    return Unavailable(Quote(file.path), ": ended after ", have, " of ", wanted, " bytes");
  }
  return fsync(fd.get()) == 0 ? absl::OkStatus() : Errno("cannot write", to);
}

absl::Status Syncer::DeleteOld(const std::string& model, const std::vector<int64_t>& kept) {
  const int64_t oldest = *std::min_element(kept.begin(), kept.end());
  std::error_code error;
  fs::directory_iterator it(Place(model), error);
  for (; !error && it != fs::directory_iterator(); it.increment(error)) {
    const std::optional<int64_t> version = ParseVersion(it->path().filename().string());
    if (!version.has_value() || *version >= oldest) continue;
    const std::string unit = absl::StrCat(model, "/", *version);
    // Renamed first: nobody sees half of it.
    const std::string away = absl::StrCat(staging_, "/", model, "@", *version, ".old");
    if (rename(Place(unit).c_str(), away.c_str()) != 0) return Errno("cannot rename", Place(unit));
    RemoveAll(away);
    if (options_.report) options_.report(absl::StrCat(unit, ": deleted"));
  }
  if (!error) return absl::OkStatus();
  return Unavailable("cannot list ", Place(model), ": ", error.message());
}

void Syncer::DeleteStaged() {
  std::error_code error;
  fs::directory_iterator it(staging_, error);
  for (; !error && it != fs::directory_iterator(); it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (name != kLock && staged_.count(name) == 0) RemoveAll(it->path().string());
  }
}

}  // namespace ulfd::tools
