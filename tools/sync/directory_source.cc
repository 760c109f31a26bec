// A directory of this machine, such as a mounted volume.
// SPDX-License-Identifier: Apache-2.0
#include <sys/stat.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/errors.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "engine/directory/directory_tree.h"
#include "tools/sync/source.h"

namespace ulfd::tools {
namespace {

constexpr size_t kChunkBytes = 1 << 20;

class DirectorySource final : public Source {
 public:
  explicit DirectorySource(std::string root) : root_(std::move(root)) {}

  absl::StatusOr<std::vector<RemoteEntry>> List(const std::string& directory) override {
    const std::string path = absl::StrCat(root_, "/", directory);
    ASSIGN_OR_RETURN(const std::vector<std::string> names, engine::ListNames(path, kMaxListed));
    std::vector<RemoteEntry> entries;
    for (const std::string& name : names) {
      RemoteEntry entry{.name = name};
      const absl::Status looked = Look(absl::StrCat(path, "/", name), entry);
      if (absl::IsNotFound(looked)) continue;  // Gone since it was listed.
      RETURN_IF_ERROR(looked);
      entries.push_back(std::move(entry));
    }
    return entries;
  }

  absl::Status Describe(const std::string&, RemoteEntry&) override { return absl::OkStatus(); }

  absl::Status Read(const std::string& path, const RemoteEntry& file, int64_t offset,
                    ByteSink sink) override {
    const std::string full = absl::StrCat(root_, "/", path);
    ASSIGN_OR_RETURN(InputFile in, InputFile::Open(full));
    RemoteEntry now;
    RETURN_IF_ERROR(Look(full, now));
    if (now.tag != file.tag) {
      return FailedPrecondition(full, ": changed while it was copied");
    }
    std::string chunk(kChunkBytes, '\0');
    for (;;) {
      ASSIGN_OR_RETURN(const size_t got, in.ReadAt(offset, chunk.data(), chunk.size()));
      if (got == 0) return absl::OkStatus();
      RETURN_IF_ERROR(sink(absl::string_view(chunk.data(), got)));
      offset += static_cast<int64_t>(got);
    }
  }

 private:
  // Links are not followed: they may lead out of the source.
  static absl::Status Look(const std::string& path, RemoteEntry& entry) {
    struct stat info;
    if (lstat(path.c_str(), &info) != 0) return absl::ErrnoToStatus(errno, path);
    if (S_ISDIR(info.st_mode)) {
      entry.kind = RemoteEntry::Kind::kDirectory;
    } else if (S_ISREG(info.st_mode)) {
      entry.bytes = info.st_size;
      entry.tag = absl::StrCat(info.st_ino, "-", info.st_mtim.tv_sec, ".", info.st_mtim.tv_nsec);
    } else {
      entry.kind = RemoteEntry::Kind::kOther;
    }
    return absl::OkStatus();
  }

  const std::string root_;
};

}  // namespace

std::unique_ptr<Source> MakeDirectorySource(const std::string& root) {
  return std::make_unique<DirectorySource>(root);
}

}  // namespace ulfd::tools
