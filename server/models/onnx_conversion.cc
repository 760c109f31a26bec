// SPDX-License-Identifier: Apache-2.0
#include "server/models/onnx_conversion.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <system_error>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "base/errors.h"
#include "base/file_descriptor.h"
#include "base/load_scope.h"
#include "base/status_macros.h"
#include "base/text_file.h"
#include "engine/directory/onnx_directory.h"
#include "engine/weights/digest.h"
#include "server/models/quarantine.h"
#include "server/system/child_process.h"

namespace ulfd::server {
namespace {

namespace fs = std::filesystem;

constexpr char kSchemaFile[] = "schema.csv";
// Under the directory: what is being made.
constexpr char kUnfinished[] = "unfinished";
// In a version directory that was made: of which it was.
constexpr char kSourceFile[] = "converted_from";
// What a program takes of addresses before it does anything.
constexpr int64_t kProgramBytes = int64_t{1} << 30;
// A table is a text there, which takes more than its rows in memory.
constexpr int64_t kDiskPerMemory = 4;
// How it ends if the model is to blame, and for want of memory; otherwise (tools/convert/main.cc)
// the system failed.
constexpr int kModelFailed = 1, kNoMemory = 4;

// Nothing if it cannot be read.
std::string ReadLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

absl::Status CheckUsable(const std::string& directory, absl::StatusCode code) {
  if (access(directory.c_str(), R_OK | W_OK | X_OK) == 0) return absl::OkStatus();
  return absl::Status(code,
                      absl::StrCat("converted_directory: ", directory, ": ", strerror(errno)));
}

// Locked while it is open, where the file system locks directories: a second daemon, or
// --check_config beside one, must not take away what is being made.
absl::StatusOr<FileDescriptor> Lock(const std::string& directory) {
  FileDescriptor lock(open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (flock(lock.get(), LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return lock;
  return Unavailable("converted_directory: ", directory, ": another process converts there");
}

int64_t BytesBelow(const fs::path& path) {
  const LoadScope::WithoutRefusals for_the_names;
  int64_t bytes = 0;
  std::error_code error, gone;  // Files come and go meanwhile.
  for (fs::recursive_directory_iterator it(path, error), end; !error && it != end;
       it.increment(error)) {
    if (it->is_regular_file(gone)) bytes += static_cast<int64_t>(it->file_size(gone));
  }
  return std::max<int64_t>(bytes, 0);
}

// Also where the load may take no more memory or time.
void Remove(const fs::path& path) {
  const LoadScope::WithoutRefusals for_the_names;  // An exception there would end the daemon.
  std::error_code ignored;  // What cannot be removed now may be at the next conversion.
  fs::remove_all(path, ignored);
}

}  // namespace

absl::StatusOr<std::unique_ptr<OnnxConversion>> OnnxConversion::Create(std::string directory) {
#ifdef ULFD_ONNX
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  const std::string program = (self.parent_path() / "ulf-convert").string();
  if (access(program.c_str(), X_OK) != 0) {
    return FailedPrecondition("converted_directory: ", program, ": ", strerror(errno));
  }
  RETURN_IF_ERROR(CheckUsable(directory, absl::StatusCode::kFailedPrecondition));
  std::unique_ptr<OnnxConversion> conversion(new OnnxConversion(std::move(directory), program));
  if (const auto lock = Lock(conversion->directory_); lock.ok()) {
    conversion->RemoveLeftovers("", "");
  }
  return conversion;
#else
  return Unimplemented("converted_directory: \"", directory,
                       "\": this build does not convert model.onnx (ULFD_ONNX)");
#endif
}

absl::Status OnnxConversion::Run(const std::string& source, const std::string& out,
                                 const engine::DirectoryRules& rules) const {
  // Who made a folder chose its name, which may hold what stands between the roots.
  const auto escape = [](std::string* text, const std::string& root) {
    absl::StrAppend(text, absl::CEscape(root));
  };
  std::vector<std::string> argv = {
      program_, "onnx", absl::StrCat(source, "/", engine::kOnnxFile), out,
      absl::StrCat("--roots=", absl::StrJoin(rules.roots, "\n", escape))};
  std::error_code error;
  const std::string schema = absl::StrCat(source, "/", kSchemaFile);
  if (fs::exists(schema, error)) argv.push_back(absl::StrCat("--schema=", schema));
  const LoadScope* const load = LoadScope::Current();
  // A few bytes can make files that fill a disk: they count as memory of the load.
  int64_t charged = 0;
  const absl::Cleanup give_back = [&charged] { LoadScope::Charge(-charged).IgnoreError(); };
  ChildBounds bounds{.stop = [&] {
    const int64_t bytes = BytesBelow(fs::path(directory_) / kUnfinished) / kDiskPerMemory;
    if (LoadScope::Charge(bytes - charged).ok()) charged = bytes;
    return !LoadScope::Check().ok();
  }};
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max() - kProgramBytes;
  if (load != nullptr && load->limits().max_memory_bytes <= kMost) {
    bounds.max_memory_bytes = load->limits().max_memory_bytes + kProgramBytes;
  }
  ASSIGN_OR_RETURN(const ChildResult result, RunChild(std::move(argv), bounds));
  if (result.signal == SIGKILL) {
    return Unavailable(program_, ": was killed");
  }
  if (result.signal != 0) {
    return InvalidArgument(source, "/", engine::kOnnxFile, ": ", program_, " ended by signal ",
                           result.signal);
  }
  if (result.exit_code == 0) return absl::OkStatus();
  if (result.exit_code == kNoMemory && load != nullptr) {
    // The limit is that of the load, which ends for it like any other.
    RETURN_IF_ERROR(LoadScope::Charge(load->limits().max_memory_bytes));
  }
  absl::string_view why = result.errors;
  absl::ConsumePrefix(&why, "ulf convert: ");
  while (absl::ConsumeSuffix(&why, "\n")) continue;
  const std::string line = absl::StrReplaceAll(why, {{"\n  ", "; "}, {"\n", "; "}});
  return result.exit_code == kModelFailed ? InvalidArgument(line) : Unavailable(line);
}

void OnnxConversion::RemoveLeftovers(const std::string& source, const std::string& kept) const {
  const LoadScope::WithoutRefusals for_the_names;
  Remove(fs::path(directory_) / kUnfinished);
  std::error_code error;
  // What cannot be listed now may be at the next conversion.
  fs::directory_iterator entries(directory_, error);
  for (; !error && entries != fs::directory_iterator(); entries.increment(error)) {
    const fs::path& path = entries->path();
    const std::string from = ReadLine((path / kSourceFile).string());
    // Nothing else that lies there is ours.
    if (from.empty() || path == kept) continue;
    std::error_code gone;
    if (from == source || !fs::exists(from, gone)) Remove(path);
  }
}

absl::StatusOr<std::string> OnnxConversion::Convert(const std::string& source,
                                                    const engine::DirectoryRules& rules) const {
  // Else its absence would be taken for a fault of the model.
  RETURN_IF_ERROR(CheckUsable(directory_, absl::StatusCode::kUnavailable));
  ASSIGN_OR_RETURN(const FileDescriptor lock, Lock(directory_));
  std::error_code error;
  if (fs::exists(absl::StrCat(source, "/", engine::kManifestFile), error)) {
    return InvalidArgument(source, "/", engine::kManifestFile, ": is not read beside ",
                           engine::kOnnxFile, ", want only what the converter writes");
  }
  ASSIGN_OR_RETURN(const std::string content, HashVersionDirectory(source, rules));
  // Files that change while they are read are converted under the hash of others: what one owner
  // can write is not taken for another's.
  engine::ContentHasher hasher;
  hasher.Add(LoadScope::Current() == nullptr ? "" : LoadScope::Current()->limits().owner);
  hasher.Add(content);
  const std::string made = absl::StrCat(directory_, "/", hasher.Hex(), "-", ULFD_VERSION);
  RemoveLeftovers(source, made);
  const std::string line = absl::StrCat(source, "\n");
  if (!fs::exists(made, error)) {
    const fs::path unfinished = fs::path(directory_) / kUnfinished;
    // Also where the limits of the load end it by an exception.
    const absl::Cleanup remove = [&unfinished] { Remove(unfinished); };
    const std::string out = (unfinished / "model").string();
    RETURN_IF_ERROR(Run(source, out, rules));
    RETURN_IF_ERROR(WriteTextFile(absl::StrCat(out, "/", kSourceFile), line));
    fs::rename(out, made, error);
    if (error) return Unavailable(made, ": ", error.message());
  } else {
    RETURN_IF_ERROR(WriteTextFile(absl::StrCat(made, "/", kSourceFile), line));
  }
  return made;
}

}  // namespace ulfd::server
