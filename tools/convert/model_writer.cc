// SPDX-License-Identifier: Apache-2.0
#include "tools/convert/model_writer.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/errors.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "base/text_file.h"
#include "engine/directory/model_directory.h"
#include "engine/embedding/table_file_writer.h"
#include "engine/runtime/model.h"
#include "google/protobuf/text_format.h"

namespace ulfd::convert {
namespace {

absl::Status SystemError(absl::string_view what) {
  return Unavailable(what, ": ", strerror(errno));
}

absl::Status WriteProtoText(const std::string& path, absl::string_view heading,
                            const google::protobuf::Message& message) {
  google::protobuf::TextFormat::Printer printer;
  printer.SetUseShortRepeatedPrimitives(true);
  std::string text;
  if (!printer.PrintToString(message, &text)) {
    return Internal(path, ": cannot be printed");
  }
  return WriteTextFile(path, absl::StrCat("# ", heading, "\n", text));
}

absl::Status WriteTable(const std::string& path, const TableSource& table) {
  engine::TableFileWriter file(path, {});
  RETURN_IF_ERROR(file.Begin(table.dim, table.rows));
  for (int64_t id = table.first; id < table.first + table.rows; ++id) {
    ASSIGN_OR_RETURN(float* const row, file.NextRow());
    table.read(id, row);
    RETURN_IF_ERROR(file.Commit(id));
  }
  return file.Finish().status();
}

absl::Status WriteFiles(const ConvertedModel& model, const std::string& base) {
  for (const auto& [name, table] : model.tables) {
    RETURN_IF_ERROR(Annotate(WriteTable(absl::StrCat(base, "/", name), table),
                             absl::StrCat("table ", Quote(name))));
  }
  for (const auto& [name, conf] : model.embedding_confs) {
    RETURN_IF_ERROR(WriteProtoText(absl::StrCat(base, "/", name),
                                   "Which table each feature reads; written by `ulf convert`.",
                                   conf));
  }
  RETURN_IF_ERROR(WriteProtoText(absl::StrCat(base, "/graph_ulf.txt"),
                                 "Written by `ulf convert`; conversion_report.txt says from what.",
                                 model.net));
  RETURN_IF_ERROR(WriteProtoText(absl::StrCat(base, "/", engine::kManifestFile),
                                 "Written by `ulf convert`.", model.manifest));
  if (model.weights.layer_weights_params_size() > 0) {
    std::string bytes;
    if (!model.weights.SerializeToString(&bytes)) {
      return ResourceExhausted(
          "the weights are more than 2 GiB, the most that weights.pb can hold");
    }
    RETURN_IF_ERROR(WriteTextFile(absl::StrCat(base, "/weights.pb"), bytes));
  }
  return absl::OkStatus();
}

// A directory that is removed with everything in it unless it was given away.
class ScratchDirectory {
 public:
  explicit ScratchDirectory(std::string path) : path_(std::move(path)) {}
  ~ScratchDirectory() {
    std::error_code ignored;  // Nothing can be done about what cannot be removed.
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  ScratchDirectory(const ScratchDirectory&) = delete;
  ScratchDirectory& operator=(const ScratchDirectory&) = delete;
  const std::string& path() const { return path_; }
  void Release() { path_.clear(); }

 private:
  std::string path_;
};

// Directories that are made for a model, and go again, if nothing is in them, unless it was
// written.
class NewParents {
 public:
  NewParents() = default;
  ~NewParents() {
    std::error_code error;
    for (const std::filesystem::path& path : made_) {
      if (!std::filesystem::remove(path, error)) break;
    }
  }
  NewParents(const NewParents&) = delete;
  NewParents& operator=(const NewParents&) = delete;
  absl::Status Make(const std::filesystem::path& parent) {
    std::error_code error;
    for (std::filesystem::path path = parent;
         !path.empty() && !std::filesystem::exists(path, error); path = path.parent_path()) {
      made_.push_back(path);
    }
    std::filesystem::create_directories(parent, error);
    return error ? Unavailable(parent.string(), ": ", error.message()) : absl::OkStatus();
  }
  void Release() { made_.clear(); }

 private:
  std::vector<std::filesystem::path> made_;  // The deepest first.
};

absl::Status NotEmpty(const std::string& target) {
  return AlreadyExists(target, ": exists and is not empty; name a new version directory");
}

// The directory without slashes at its end; its parents exist afterwards.
absl::StatusOr<std::string> PrepareTarget(const std::string& directory, NewParents& parents) {
  std::string target = directory;
  while (target.size() > 1 && target.back() == '/') target.pop_back();
  if (target.empty()) return InvalidArgument("the output directory has no name");
  std::error_code error;
  const std::filesystem::path path(target);
  if (std::filesystem::exists(path, error)) {
    if (!std::filesystem::is_directory(path, error)) {
      return AlreadyExists(target, ": exists and is no directory");
    }
    if (!std::filesystem::is_empty(path, error)) return NotEmpty(target);
  }
  if (path.has_parent_path()) RETURN_IF_ERROR(parents.Make(path.parent_path()));
  return target;
}

}  // namespace

absl::Status WriteModel(const ConvertedModel& model, absl::string_view source,
                        const FinishReport& finish, const std::string& directory) {
  NewParents parents;
  ASSIGN_OR_RETURN(const std::string target, PrepareTarget(directory, parents));
  std::string pattern = absl::StrCat(target, ".XXXXXX");
  if (mkdtemp(pattern.data()) == nullptr) return SystemError(pattern);
  ScratchDirectory scratch(pattern);
  constexpr mode_t kReadable = 0755;  // mkdtemp's 0700 would hide the model from the daemon's user.
  if (chmod(scratch.path().c_str(), kReadable) != 0) return SystemError(scratch.path());
  RETURN_IF_ERROR(WriteFiles(model, scratch.path()));
  ASSIGN_OR_RETURN(const auto loaded,
                   Annotate(engine::Model::Load({.directory = scratch.path(), .name = target}),
                            source, ": the converted model does not load"));
  ASSIGN_OR_RETURN(const std::string report, finish(*loaded));
  RETURN_IF_ERROR(WriteTextFile(absl::StrCat(scratch.path(), "/conversion_report.txt"), report));
  RETURN_IF_ERROR(WriteTextFile(absl::StrCat(scratch.path(), "/", engine::kSuccessFile), ""));
  if (rename(scratch.path().c_str(), target.c_str()) != 0) {
    const bool by_now = errno == ENOTEMPTY || errno == EEXIST;
    return by_now ? NotEmpty(target) : SystemError(target);
  }
  scratch.Release();
  parents.Release();
  return absl::OkStatus();
}

}  // namespace ulfd::convert
