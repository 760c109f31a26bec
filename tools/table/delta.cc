// SPDX-License-Identifier: Apache-2.0
#include "tools/table/delta.h"

#include <google/protobuf/text_format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <system_error>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "base/errors.h"
#include "base/file.h"
#include "base/file_descriptor.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "base/text_file.h"
#include "engine/directory/delta_directory.h"
#include "engine/directory/model_directory.h"
#include "engine/embedding/table.h"
#include "engine/embedding/table_file.h"
#include "engine/embedding/table_file_writer.h"
#include "engine/runtime/model_delta.h"
#include "engine/runtime/model_loader.h"
#include "engine/weights/digest.h"
#include "proto/delta.pb.h"
#include "tools/cli/commands.h"
#include "tools/cli/interrupt.h"
#include "tools/cli/text_table.h"
#include "tools/model/model_flags.h"
#include "tools/table/row_sources.h"

namespace ulfd::tools {
namespace {

namespace fs = std::filesystem;
using engine::EmbeddingTable;
using ulfd::model::v1::DeltaManifest;
using ulfd::model::v1::DeltaTable;

absl::Status FromError(const std::error_code& error, const std::string& what) {
  return error ? absl::ErrnoToStatus(error.value(), what) : absl::OkStatus();
}

absl::Status CopyFile(const std::string& from, const std::string& to) {
  std::error_code error;
  fs::copy_file(from, to, error);
  RETURN_IF_ERROR(FromError(error, absl::StrCat("cannot copy ", from, " to ", to)));
  return SyncToDisk(to);
}

// A directory beside those of the epochs, which the daemon does not look at.  One push at a time
// has it; the others wait.
class NewEpoch {
 public:
  explicit NewEpoch(const PushOptions& options)
      : options_(options),
        final_(engine::EpochDirectory(options.version_directory, options.epoch)),
        deltas_(fs::path(final_).parent_path()),
        path_(absl::StrCat(deltas_, "/.new")),
        lock_path_(absl::StrCat(deltas_, "/.lock")) {}
  ~NewEpoch() {
    if (lock_ < 0) return;
    std::error_code ignored;
    fs::remove_all(path_, ignored);  // Is there no more once it has its name.
    unlink(lock_path_.c_str());
    close(lock_);
  }
  NewEpoch(const NewEpoch&) = delete;
  NewEpoch& operator=(const NewEpoch&) = delete;

  absl::Status Begin();
  absl::Status Add(const std::string& part);
  absl::Status Publish();
  bool checked() const { return model_ != nullptr; }

 private:
  absl::Status Lock();
  // Null where it cannot be loaded: no model is there yet, or tables lie in Redis and nobody says
  // where.
  absl::StatusOr<std::unique_ptr<const engine::LoadedModel>> LoadedVersion() const;
  // Whether the daemon would apply it.
  absl::Status Check() const;
  DeltaTable& TableOf(absl::string_view name);
  absl::Status Put(const std::vector<std::string>& inputs, DeltaTable& table);
  absl::Status Drop(const std::string& file, DeltaTable& table);
  absl::Status Weights(const std::string& file);
  std::string At(absl::string_view name) const { return absl::StrCat(path_, "/", name); }
  // Notes the sum of a file that is there.
  absl::Status Note(const std::string& name);

  const PushOptions& options_;
  const std::string final_, deltas_, path_, lock_path_;
  int lock_ = -1;
  std::unique_ptr<const engine::LoadedModel> model_;
  std::vector<engine::DeltaSource> before_;
  DeltaManifest manifest_;
};

// False: another file.  DATA_LOSS where it is damaged, or what is written of it would have good
// sums.
absl::StatusOr<bool> IsSoundTableFile(const std::string& path) {
  ASSIGN_OR_RETURN(const InputFile file, InputFile::Open(path));
  ASSIGN_OR_RETURN(const bool is_table_file, engine::IsTableFile(file));
  if (!is_table_file) return false;
  RETURN_IF_ERROR(engine::VerifyTableFile(path, [](uint64_t, uint64_t) {}));
  return true;
}

absl::StatusOr<std::unique_ptr<const engine::LoadedModel>> NewEpoch::LoadedVersion() const {
  const auto directory = engine::OpenModelDirectory(options_.version_directory);
  if (absl::IsNotFound(directory.status())) return nullptr;
  RETURN_IF_ERROR(directory.status());
  ASSIGN_OR_RETURN(const engine::RedisClusters* const redis,
                   options_.model_flags->RedisOf(options_.version_directory));
  for (const auto& table : directory->manifest.tables()) {
    if (table.store().has_redis() && redis == nullptr) return nullptr;
  }
  return engine::LoadModel({.directory = options_.version_directory,
                            .layer_types = options_.model_flags->types(),
                            .redis = redis});
}

absl::Status NewEpoch::Lock() {
  std::error_code error;
  fs::create_directories(deltas_, error);
  RETURN_IF_ERROR(FromError(error, absl::StrCat("cannot create ", deltas_)));
  while (true) {
    const int fd = open(lock_path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0 || flock(fd, LOCK_EX) != 0) {
      absl::Status status = absl::ErrnoToStatus(errno, "cannot lock " + lock_path_);
      if (fd >= 0) close(fd);
      return status;
    }
    struct stat held, named;
    const bool there = fstat(fd, &held) == 0 && stat(lock_path_.c_str(), &named) == 0;
    if (there && held.st_ino == named.st_ino) {
      lock_ = fd;
      return absl::OkStatus();
    }
    close(fd);  // Whoever had it took it away with the lock.
  }
}

absl::Status NewEpoch::Begin() {
  const std::string& version = options_.version_directory;
  std::error_code ignored;
  if (!fs::is_directory(version, ignored)) {
    return NotFound(version, " is no directory, want a version directory");
  }
  ASSIGN_OR_RETURN(model_, LoadedVersion());
  RETURN_IF_ERROR(Lock());
  if (fs::exists(final_, ignored)) return AlreadyExists(final_, " exists");
  ASSIGN_OR_RETURN(const std::vector<engine::EpochMark> epochs,
                   engine::ListEpochs(version, INT64_MAX));
  for (const engine::EpochMark& mark : epochs) {
    before_.push_back({mark.epoch, engine::EpochDirectory(version, mark.epoch)});
  }
  const int64_t last = epochs.empty() ? 0 : epochs.back().epoch;
  if (last > options_.epoch) {
    return FailedPrecondition("epoch ", last, " is there, want a higher one");
  }
  manifest_.set_base_epoch(options_.base_epoch.value_or(last));
  // Not before that of a push that had the lock in between.
  const timespec time = absl::ToTimespec(options_.event_time.value_or(absl::Now()));
  manifest_.mutable_event_time()->set_seconds(time.tv_sec);
  manifest_.mutable_event_time()->set_nanos(static_cast<int32_t>(time.tv_nsec));
  std::error_code error;
  fs::remove_all(path_, error);  // Of a push that was killed.
  if (!error) fs::create_directory(path_, error);
  return FromError(error, absl::StrCat("cannot create ", path_));
}

absl::Status NewEpoch::Check() const {
  if (model_ == nullptr) return engine::ReadDeltaManifest(path_, options_.epoch).status();
  const absl::Status status = engine::CheckDelta(*model_, before_, {options_.epoch, path_});
  // Whoever reads it knows the directory by its name.
  return absl::Status(status.code(), absl::StrReplaceAll(status.message(), {{path_, final_}}));
}

DeltaTable& NewEpoch::TableOf(absl::string_view name) {
  for (DeltaTable& table : *manifest_.mutable_tables()) {
    if (table.name() == name) return table;
  }
  DeltaTable& table = *manifest_.add_tables();
  table.set_name(std::string(name));
  return table;
}

absl::Status NewEpoch::Note(const std::string& name) {
  ASSIGN_OR_RETURN(const std::string sum, engine::Sha256OfFile(At(name)));
  ulfd::model::v1::FileSum& noted = *manifest_.add_sums();
  noted.set_path(name);
  noted.set_sha256(sum);
  return absl::OkStatus();
}

absl::Status NewEpoch::Put(const std::vector<std::string>& inputs, DeltaTable& table) {
  if (!table.put().empty()) return InvalidArgument("is put twice");
  table.set_put(absl::StrCat("put", manifest_.tables_size(), ".ulft"));
  const std::string out = At(table.put());
  bool is_table_file = false;
  std::error_code ignored;
  if (inputs.size() == 1 && !fs::is_directory(inputs[0], ignored)) {
    ASSIGN_OR_RETURN(is_table_file, IsSoundTableFile(inputs[0]));
  }
  if (is_table_file) {
    RETURN_IF_ERROR(CopyFile(inputs[0], out));
  } else {
    engine::TableFileWriter writer(
        out, {.format = options_.format,
              .memory_bytes = options_.memory_bytes,
              .progress = [](int64_t, int64_t) { return CheckInterrupted(); }});
    RETURN_IF_ERROR(ReadRows(inputs, options_.keys, writer));
    RETURN_IF_ERROR(Annotate(writer.Finish().status(), inputs[0]));
  }
  return Note(table.put());
}

absl::Status NewEpoch::Drop(const std::string& file, DeltaTable& table) {
  if (!table.drop().empty()) return InvalidArgument("is dropped from twice");
  RETURN_IF_ERROR(engine::ReadIds(file).status());
  table.set_drop(absl::StrCat("drop", manifest_.tables_size(), ".ids"));
  RETURN_IF_ERROR(CopyFile(file, At(table.drop())));
  return Note(table.drop());
}

absl::Status NewEpoch::Weights(const std::string& file) {
  if (!manifest_.weights().empty()) return InvalidArgument("weights are given twice");
  manifest_.set_weights(fs::path(file).filename().string());
  RETURN_IF_ERROR(CopyFile(file, At(manifest_.weights())));
  return Note(manifest_.weights());
}

absl::Status NewEpoch::Add(const std::string& part) {
  absl::string_view rest = part;
  if (absl::ConsumePrefix(&rest, "weights:")) return Weights(std::string(rest));
  const bool put = absl::ConsumePrefix(&rest, "put:");
  if ((!put && !absl::ConsumePrefix(&rest, "drop:")) || !absl::StrContains(rest, '=')) {
    return UsageError(Quote(part),
                      ": want put:TABLE=INPUT, drop:TABLE=FILE or "
                      "weights:FILE");
  }
  const auto [name, files] = std::pair<absl::string_view, absl::string_view>(
      absl::StrSplit(rest, absl::MaxSplits('=', 1)));
  const std::string what = absl::StrCat("table \"", name, "\"");
  DeltaTable& table = TableOf(name);
  const absl::Status done =
      put ? Put(absl::StrSplit(files, ','), table) : Drop(std::string(files), table);
  return Annotate(done, what);
}

absl::Status NewEpoch::Publish() {
  std::string text;
  if (!google::protobuf::TextFormat::PrintToString(manifest_, &text)) {
    return Internal("the manifest cannot be printed");
  }
  RETURN_IF_ERROR(WriteTextFile(At(engine::kDeltaFile), text));
  RETURN_IF_ERROR(Check());
  RETURN_IF_ERROR(CheckInterrupted());
  RETURN_IF_ERROR(WriteTextFile(At(engine::kSuccessFile), ""));
  RETURN_IF_ERROR(SyncToDisk(path_));
  if (std::rename(path_.c_str(), final_.c_str()) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat(final_, ": cannot be renamed to"));
  }
  return SyncToDisk(fs::path(final_).parent_path().string());
}

// The ids and rows that differ, given one by one.
template <typename Row, typename Id>
absl::Status Compare(const EmbeddingTable& from, const EmbeddingTable& to, Row put, Id drop) {
  const size_t bytes = engine::RowBytes(to.format(), to.dim());
  std::vector<float> a(static_cast<size_t>(to.dim())), b(a.size());
  RETURN_IF_ERROR(engine::ForEachRow(*to.base(), [&](int64_t id, const char* row) {
    const auto* const before = static_cast<const char*>(from.Find(id));
    if (before == nullptr) return put(id, row, /*is_new=*/true);
    bool same = from.format() == to.format() && std::memcmp(before, row, bytes) == 0;
    if (from.format() != to.format()) {
      engine::DecodeRow(from.format(), before, from.dim(), a.data());
      engine::DecodeRow(to.format(), row, to.dim(), b.data());
      same = a == b;
    }
    return same ? absl::OkStatus() : put(id, row, /*is_new=*/false);
  }));
  RETURN_IF_ERROR(engine::ForEachRow(*from.base(), [&](int64_t id, const char*) {
    return to.Find(id) == nullptr ? drop(id) : absl::OkStatus();
  }));
  RETURN_IF_ERROR(from.Check());
  return to.Check();
}

absl::Status Begin(const std::string& path, const EmbeddingTable& table,
                   std::optional<engine::TableFileWriter>& writer) {
  writer.emplace(path, engine::TableFileOptions{.format = table.format()});
  return writer->Begin(table.dim(), table.rows());
}

}  // namespace

absl::Status PushDelta(const PushOptions& options, absl::Span<const std::string> parts) {
  NewEpoch epoch(options);
  RETURN_IF_ERROR(epoch.Begin());
  for (const std::string& part : parts) {
    RETURN_IF_ERROR(CheckInterrupted());
    RETURN_IF_ERROR(epoch.Add(part));
  }
  RETURN_IF_ERROR(epoch.Publish());
  absl::PrintF("%s\n", engine::EpochDirectory(options.version_directory, options.epoch));
  if (!epoch.checked())
    absl::PrintF("not checked: no model is there, or tables lie in Redis (--redis)\n");
  return absl::OkStatus();
}

absl::Status DiffTables(const std::string& from, const std::string& to, const std::string& prefix) {
  for (const std::string& input : {from, to}) {
    RETURN_IF_ERROR(IsSoundTableFile(input).status());
  }
  ASSIGN_OR_RETURN(const auto before, EmbeddingTable::Load(from, from, {}));
  ASSIGN_OR_RETURN(const auto after, EmbeddingTable::Load(to, to, {}));
  if (before->dim() != after->dim()) {
    return InvalidArgument(from, " has rows of ", before->dim(), " values, ", to, " of ",
                           after->dim());
  }
  const std::string put_path = absl::StrCat(prefix, ".ulft"),
                    drop_path = absl::StrCat(prefix, ".ids");
  for (const std::string& input : {from, to}) {
    if (!prefix.empty() && (input == put_path || input == drop_path)) {
      return UsageError(input, " would be written, want another PREFIX");
    }
  }
  std::optional<engine::TableFileWriter> writer;
  std::string ids;
  int64_t added = 0, changed = 0, dropped = 0;
  RETURN_IF_ERROR(Compare(
      *before, *after,
      [&](int64_t id, const char* row, bool is_new) {
        ++(is_new ? added : changed);
        if (prefix.empty()) return absl::OkStatus();
        if (!writer.has_value()) RETURN_IF_ERROR(Begin(put_path, *after, writer));
        return writer->CommitEncoded(id, row);
      },
      [&](int64_t id) {
        ++dropped;
        if (!prefix.empty()) absl::StrAppend(&ids, id, "\n");
        return absl::OkStatus();
      }));
  // Nothing of an earlier difference stays.
  std::string written;
  if (writer.has_value()) {
    RETURN_IF_ERROR(writer->Finish().status());
    absl::StrAppend(&written, " ", put_path);
  } else if (!prefix.empty()) {
    std::remove(put_path.c_str());
  }
  if (!ids.empty()) {
    RETURN_IF_ERROR(WriteTextFile(drop_path, ids));
    absl::StrAppend(&written, " ", drop_path);
  } else if (!prefix.empty()) {
    std::remove(drop_path.c_str());
  }
  absl::PrintF("%s rows are new, %s have other values, %s are gone\n", WithCommas(added),
               WithCommas(changed), WithCommas(dropped));
  if (!written.empty()) absl::PrintF("written:%s\n", written);
  return absl::OkStatus();
}

}  // namespace ulfd::tools
