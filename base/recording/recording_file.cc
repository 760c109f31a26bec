// SPDX-License-Identifier: Apache-2.0
#include "base/recording/recording_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/errors.h"

namespace ulfd::recording {
namespace {

namespace fs = std::filesystem;

constexpr char kExtension[] = ".ulfrec";

void AppendLittleEndian(uint64_t value, int bytes, std::string& to) {
  for (int i = 0; i < bytes; ++i) to.push_back(static_cast<char>(value >> (8 * i)));
}

// What the kernel said about that file.
absl::Status FileError(const std::string& path, absl::string_view action, int error) {
  const std::string text =
      absl::StrCat(path, ": cannot ", action, ": ", std::generic_category().message(error));
  if (error == EEXIST) return AlreadyExists(text);
  const bool full = error == ENOSPC || error == EDQUOT || error == EFBIG;
  return full ? ResourceExhausted(text) : Unavailable(text);
}

}  // namespace

uint64_t PayloadChecksum(absl::string_view payload) {
  return XXH3_64bits_withSeed(payload.data(), payload.size(), payload.size());
}

std::string RecordHeader(absl::string_view payload) {
  std::string header(kRecordMagic);
  AppendLittleEndian(payload.size(), 4, header);
  AppendLittleEndian(PayloadChecksum(payload), 8, header);
  return header;
}

std::string ModelFolder(absl::string_view directory, absl::string_view model) {
  std::string name;
  for (const char c : model) {
    const bool plain = absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-' ||
                       (c == '.' && !name.empty());
    if (plain) {
      name.push_back(c);
    } else {
      absl::StrAppendFormat(&name, "%%%02X", static_cast<unsigned char>(c));
    }
  }
  return absl::StrCat(directory, "/", name);
}

std::string FileName(absl::string_view folder, int64_t number) {
  return absl::StrFormat("%s/%010d%s", folder, number, kExtension);
}

absl::StatusOr<std::vector<RecordingPath>> ListFiles(const std::string& folder) {
  std::vector<RecordingPath> files;
  std::error_code error;
  fs::directory_iterator entries(folder, error);
  if (error == std::errc::no_such_file_or_directory) return files;
  for (; !error && entries != fs::directory_iterator(); entries.increment(error)) {
    const fs::path& path = entries->path();
    RecordingPath file;
    if (path.extension() != kExtension || !absl::SimpleAtoi(path.stem().string(), &file.number) ||
        file.number < 0) {
      continue;
    }
    std::error_code gone;  // Somebody may remove files while we look.
    file.bytes = static_cast<int64_t>(fs::file_size(path, gone));
    if (gone) continue;
    file.path = path.string();
    files.push_back(std::move(file));
  }
  if (error) return FileError(folder, "list", error.value());
  std::sort(files.begin(), files.end(),
            [](const RecordingPath& a, const RecordingPath& b) { return a.number < b.number; });
  return files;
}

absl::StatusOr<RecordingWriter> RecordingWriter::Create(const std::string& path) {
  const fs::path folder = fs::path(path).parent_path();
  std::error_code error;
  if (!folder.empty()) fs::create_directories(folder, error);
  if (error) return FileError(folder.string(), "create", error.value());
  // Readable by the group, so that a load generator need not be root; requests tell about users,
  // so not by everybody.
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0640);
  if (fd < 0) return FileError(path, "create", errno);
  RecordingWriter writer(path, fd);
  if (absl::Status status = writer.Write(kFileMagic); !status.ok()) {
    unlink(path.c_str());
    return status;
  }
  return writer;
}

absl::Status RecordingWriter::Append(absl::string_view payload) {
  if (static_cast<int64_t>(payload.size()) > kMaxPayloadBytes) {
    return InvalidArgument(path_, ": a record of ", payload.size(), " bytes, want at most ",
                           kMaxPayloadBytes);
  }
  // One write call, so that a reader hardly ever sees half a record.
  return Write(absl::StrCat(RecordHeader(payload), payload));
}

bool RecordingWriter::InPlace() const {
  struct stat opened = {}, named = {};
  return fstat(fd_.get(), &opened) == 0 && lstat(path_.c_str(), &named) == 0 &&
         opened.st_dev == named.st_dev && opened.st_ino == named.st_ino && named.st_size == bytes_;
}

absl::Status RecordingWriter::Write(absl::string_view data) {
  if (!WriteAll(fd_.get(), data)) {
    const int error = errno;
    if (ftruncate(fd_.get(), bytes_) == 0) lseek(fd_.get(), bytes_, SEEK_SET);
    return FileError(path_, "write", error);
  }
  bytes_ += static_cast<int64_t>(data.size());
  return absl::OkStatus();
}

}  // namespace ulfd::recording
