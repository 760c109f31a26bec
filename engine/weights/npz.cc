// SPDX-License-Identifier: Apache-2.0
#include "engine/weights/npz.h"

#include <zip.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "base/errors.h"
#include "base/file.h"
#include "base/load_scope.h"
#include "base/new_file.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "engine/weights/npy.h"

namespace ulfd::engine {
namespace {

struct ZipDiscard {
  void operator()(zip_t* zip) const { zip_discard(zip); }
};
struct ZipFileClose {
  void operator()(zip_file_t* file) const { zip_fclose(file); }
};
using ZipPtr = std::unique_ptr<zip_t, ZipDiscard>;
using ZipFilePtr = std::unique_ptr<zip_file_t, ZipFileClose>;

std::string ErrorText(int code) {
  zip_error_t error;
  zip_error_init_with_code(&error, code);
  std::string text = zip_error_strerror(&error);
  zip_error_fini(&error);
  return text;
}

// A file as libzip reads it.  libzip keeps seven bytes for each byte of the list of members, in
// memory that no load counts: it does not get to see a list that no archive of arrays has.
class ZipInput {
 public:
  explicit ZipInput(const InputFile& file) : file_(file) { zip_error_init(&error_); }
  ~ZipInput() { zip_error_fini(&error_); }
  ZipInput(const ZipInput&) = delete;
  ZipInput& operator=(const ZipInput&) = delete;

  // A zip_source_callback.
  static zip_int64_t Run(void* self, void* data, zip_uint64_t size, zip_source_cmd_t command) {
    const LoadScope::WithoutRefusals no_exceptions;
    return static_cast<ZipInput*>(self)->Run(data, size, command);
  }
  // The list has been read, members follow.
  void SetOpen() { left_ = INT64_MAX; }
  bool list_too_long() const { return left_ < 0; }

 private:
  zip_int64_t Run(void* data, zip_uint64_t size, zip_source_cmd_t command) {
    switch (command) {
      case ZIP_SOURCE_SUPPORTS:
        return zip_source_make_command_bitmap(ZIP_SOURCE_OPEN, ZIP_SOURCE_READ, ZIP_SOURCE_CLOSE,
                                              ZIP_SOURCE_STAT, ZIP_SOURCE_ERROR, ZIP_SOURCE_FREE,
                                              ZIP_SOURCE_SEEK, ZIP_SOURCE_TELL, -1);
      case ZIP_SOURCE_OPEN:
        offset_ = 0;
        return 0;
      case ZIP_SOURCE_READ:
        return Read(static_cast<char*>(data), size);
      case ZIP_SOURCE_SEEK: {
        const zip_int64_t to = zip_source_seek_compute_offset(
            static_cast<zip_uint64_t>(offset_), static_cast<zip_uint64_t>(file_.size()), data, size,
            &error_);
        if (to >= 0) offset_ = to;
        return to < 0 ? -1 : 0;
      }
      case ZIP_SOURCE_TELL:
        return offset_;
      case ZIP_SOURCE_STAT: {
        auto* const stat = static_cast<zip_stat_t*>(data);
        zip_stat_init(stat);
        stat->size = static_cast<zip_uint64_t>(file_.size());
        stat->valid |= ZIP_STAT_SIZE;
        return sizeof(*stat);
      }
      case ZIP_SOURCE_ERROR:
        return zip_error_to_data(&error_, data, size);
      default:
        return 0;
    }
  }

  zip_int64_t Read(char* to, zip_uint64_t size) {
    const absl::StatusOr<size_t> got = file_.ReadAt(offset_, to, size);
    if (got.ok()) left_ -= static_cast<int64_t>(*got);
    if (!got.ok() || left_ < 0 || !LoadScope::Check().ok()) {
      zip_error_set(&error_, ZIP_ER_READ, EIO);
      return -1;
    }
    offset_ += static_cast<int64_t>(*got);
    return static_cast<zip_int64_t>(*got);
  }

  const InputFile& file_;
  zip_error_t error_;
  int64_t offset_ = 0;
  int64_t left_ = int64_t{16} << 20;
};

constexpr absl::string_view kSuffix = ".npy";
// What an archive may become in memory: so much, or so many times its own size.  Numbers that
// somebody means are packed ten times at most.
constexpr uint64_t kUnpackedBytes = uint64_t{256} << 20;
constexpr uint64_t kUnpackedTimes = 32;
constexpr size_t kEndRecordBytes = 22;

// libzip looks for the archive's end record anywhere in the last 64 KiB; we want it at the very
// end, so that a file with something appended, or cut within a trailing comment, is not taken for a
// whole one.
absl::Status CheckEndRecord(absl::string_view tail) {
  for (size_t at = tail.size(); at-- > 0;) {
    if (tail.size() - at < kEndRecordBytes || !absl::StartsWith(tail.substr(at), "PK\x05\x06")) {
      continue;
    }
    uint16_t comment = 0;
    std::memcpy(&comment, tail.data() + at + 20, sizeof(comment));
    if (at + kEndRecordBytes + comment == tail.size()) return absl::OkStatus();
  }
  return InvalidArgument(
      "no zip end record at the end of the file: it is truncated, or something was appended");
}

// One member of the archive while it is read.
class Member {
 public:
  Member(zip_t* zip, uint64_t index, const zip_stat_t& stat)
      : file_(zip_fopen_index(zip, index, ZIP_FL_UNCHANGED)), zip_(zip), left_(stat.size) {}

  bool ok() const { return file_ != nullptr; }
  std::string OpenError() const { return zip_strerror(zip_); }
  // Bytes that the archive says are still to come.
  uint64_t left() const { return left_; }

  // Appends exactly `size` bytes.  Memory grows with what is really there, not with what the
  // archive claims.
  absl::Status Append(uint64_t size, std::string& to) {
    constexpr uint64_t kStep = uint64_t{16} << 20;
    if (size > left_) {
      return InvalidArgument(left_, " bytes left, want ", size);
    }
    while (size > 0) {
      RETURN_IF_ERROR(LoadScope::Check());
      const uint64_t step = std::min(size, kStep);
      const size_t before = to.size();
      to.resize(before + step);
      const zip_int64_t got = zip_fread(file_.get(), &to[before], step);
      if (got <= 0) {
        return InvalidArgument("cannot be unpacked: ", got == 0 ? "ends early" : ReadError());
      }
      to.resize(before + static_cast<size_t>(got));
      size -= static_cast<uint64_t>(got);
      left_ -= static_cast<uint64_t>(got);
    }
    return absl::OkStatus();
  }

  // Nothing may follow; reading to the end makes libzip compare the checksum.
  absl::Status Finish() {
    char extra = 0;
    const zip_int64_t got = zip_fread(file_.get(), &extra, 1);
    if (got == 0) return absl::OkStatus();
    return InvalidArgument("cannot be unpacked: ",
                           got > 0 ? "longer than the archive says" : ReadError());
  }

 private:
  std::string ReadError() { return zip_file_strerror(file_.get()); }
  ZipFilePtr file_;
  zip_t* zip_;
  uint64_t left_;
};

absl::Status CheckStat(const zip_stat_t& stat, int64_t file_bytes) {
  constexpr uint64_t kNeeded =
      ZIP_STAT_SIZE | ZIP_STAT_COMP_SIZE | ZIP_STAT_COMP_METHOD | ZIP_STAT_ENCRYPTION_METHOD;
  if ((stat.valid & kNeeded) != kNeeded) return InvalidArgument("no size recorded");
  if (stat.encryption_method != ZIP_EM_NONE) return InvalidArgument("is encrypted");
  if (stat.comp_method != ZIP_CM_STORE && stat.comp_method != ZIP_CM_DEFLATE) {
    return InvalidArgument("compression method ", stat.comp_method,
                           ", want 0 (stored) or 8 (deflated)");
  }
  if (stat.comp_size > static_cast<uint64_t>(file_bytes)) {
    return InvalidArgument("claims ", stat.comp_size, " packed bytes in a file of ", file_bytes);
  }
  // deflate cannot do better than 1032:1.
  const uint64_t most =
      stat.comp_method == ZIP_CM_STORE ? stat.comp_size : stat.comp_size * 1032 + 1032;
  if (stat.size > most) {
    return InvalidArgument("claims ", stat.size, " bytes packed into ", stat.comp_size);
  }
  return absl::OkStatus();
}

absl::StatusOr<NpyArray> ReadMember(zip_t* zip, uint64_t index, const zip_stat_t& stat) {
  Member member(zip, index, stat);
  if (!member.ok()) {
    return InvalidArgument("cannot be unpacked: ", member.OpenError());
  }
  std::string head;
  RETURN_IF_ERROR(Annotate(member.Append(kNpyPrefixBytes, head), "npy header"));
  ASSIGN_OR_RETURN(const NpyTextRange range, FindNpyText(head));
  RETURN_IF_ERROR(Annotate(member.Append(range.end - kNpyPrefixBytes, head), "npy header"));
  ASSIGN_OR_RETURN(NpyHeader header, ParseNpyText(absl::string_view(head).substr(
                                         range.begin, range.end - range.begin)));
  ASSIGN_OR_RETURN(const int64_t bytes, ArrayBytes(header.dims, header.type));
  if (static_cast<uint64_t>(bytes) != member.left()) {
    return InvalidArgument(member.left(), " bytes of data, want ", bytes, " for ",
                           Name(header.type), " [", absl::StrJoin(header.dims, ", "), "]");
  }
  NpyArray array;
  array.type = header.type;
  array.dims = std::move(header.dims);
  if (stat.comp_method == ZIP_CM_STORE) array.bytes.reserve(static_cast<size_t>(bytes));
  RETURN_IF_ERROR(member.Append(static_cast<uint64_t>(bytes), array.bytes));
  RETURN_IF_ERROR(member.Finish());
  if (header.fortran_order && array.dims.size() > 1) {
    array.bytes = TransposeFortran(array.bytes, array.dims, SizeOf(array.type));
  }
  return array;
}

absl::StatusOr<ZipPtr> OpenArchive(ZipInput& input) {
  zip_error_t error;
  zip_error_init(&error);
  const absl::Cleanup free_error = [&error] { zip_error_fini(&error); };
  zip_source_t* const source = zip_source_function_create(&ZipInput::Run, &input, &error);
  ZipPtr zip(source == nullptr ? nullptr : zip_open_from_source(source, ZIP_RDONLY, &error));
  if (zip != nullptr) {
    input.SetOpen();
    return zip;
  }
  if (source != nullptr) zip_source_free(source);
  RETURN_IF_ERROR(LoadScope::Check());
  if (input.list_too_long()) {
    return InvalidArgument("lists more members than an archive of arrays has");
  }
  return InvalidArgument("not a zip archive: ", zip_error_strerror(&error));
}

// Before anything is unpacked.
absl::Status CheckUnpackedSize(zip_t* zip, int64_t file_bytes) {
  const uint64_t most =
      std::max(kUnpackedBytes, kUnpackedTimes * static_cast<uint64_t>(file_bytes));
  uint64_t left = most;
  const zip_int64_t count = zip_get_num_entries(zip, ZIP_FL_UNCHANGED);
  for (zip_int64_t i = 0; i < count; ++i) {
    zip_stat_t stat;
    if (zip_stat_index(zip, static_cast<uint64_t>(i), ZIP_FL_UNCHANGED, &stat) != 0) continue;
    if ((stat.valid & ZIP_STAT_SIZE) == 0) continue;
    if (stat.size > left) {
      return InvalidArgument("more than ", most, " bytes are packed into ", file_bytes,
                             ", want at most 256 MiB or ", kUnpackedTimes,
                             " times the file (np.savez does not pack)");
    }
    left -= stat.size;
  }
  return absl::OkStatus();
}

absl::StatusOr<NpzArrays> ReadArchive(zip_t* zip, int64_t file_bytes) {
  NpzArrays arrays;
  const zip_int64_t count = zip_get_num_entries(zip, ZIP_FL_UNCHANGED);
  for (zip_int64_t i = 0; i < count; ++i) {
    zip_stat_t stat;
    zip_stat_init(&stat);
    const auto index = static_cast<uint64_t>(i);
    if (zip_stat_index(zip, index, ZIP_FL_UNCHANGED, &stat) != 0 || stat.name == nullptr) {
      return InvalidArgument("member ", i, ": ", zip_strerror(zip));
    }
    const absl::string_view member = stat.name;
    if (!IsUtf8(member)) {
      return InvalidArgument("member ", Quote(member), ": want a name in UTF-8");
    }
    if (!absl::EndsWith(member, kSuffix)) {
      return InvalidArgument("member ", Quote(member), ": want a name that ends in .npy");
    }
    std::string name =
        absl::StrReplaceAll(member.substr(0, member.size() - kSuffix.size()), {{"%2F", "/"}});
    const std::string prefix = absl::StrCat("array \"", name, "\"");
    RETURN_IF_ERROR(Annotate(CheckStat(stat, file_bytes), prefix));
    if (arrays.contains(name)) {
      return InvalidArgument(prefix, ": occurs twice");
    }
    ASSIGN_OR_RETURN(NpyArray array, Annotate(ReadMember(zip, index, stat), prefix));
    arrays.emplace(std::move(name), std::move(array));
  }
  return arrays;
}

absl::Status AddMembers(zip_t* zip, const NpzArrays& arrays, std::vector<std::string>& contents) {
  for (const auto& [name, array] : arrays) {
    ASSIGN_OR_RETURN(const int64_t want, ArrayBytes(array.dims, array.type));
    if (static_cast<size_t>(want) != array.bytes.size()) {
      return InvalidArgument("array \"", name, "\": ", array.bytes.size(), " bytes, want ", want);
    }
    contents.push_back(absl::StrCat(MakeNpyHeader(array.type, array.dims), array.bytes));
    zip_source_t* source =
        zip_source_buffer(zip, contents.back().data(), contents.back().size(), 0);
    const std::string member = absl::StrCat(absl::StrReplaceAll(name, {{"/", "%2F"}}), kSuffix);
    const zip_int64_t index =
        source == nullptr ? -1 : zip_file_add(zip, member.c_str(), source, ZIP_FL_ENC_UTF_8);
    if (index < 0) {
      if (source != nullptr) zip_source_free(source);
      return Internal("array \"", name, "\": ", zip_strerror(zip));
    }
    // Stored, and dated 1980 as numpy does: equal arrays make equal files.
    const auto at = static_cast<uint64_t>(index);
    if (zip_set_file_compression(zip, at, ZIP_CM_STORE, 0) != 0 ||
        zip_file_set_dostime(zip, at, 0, 0x21, 0) != 0) {
      return Internal("array \"", name, "\": ", zip_strerror(zip));
    }
  }
  return absl::OkStatus();
}

// Writes what an archive holds.
absl::Status Save(zip_source_t* archive, const std::string& path) {
  ASSIGN_OR_RETURN(NewFile file, NewFile::Create(path));
  std::string piece(size_t{1} << 20, '\0');
  zip_int64_t got = zip_source_open(archive);
  while (got >= 0 && (got = zip_source_read(archive, piece.data(), piece.size())) > 0) {
    RETURN_IF_ERROR(file.Write(absl::string_view(piece.data(), static_cast<size_t>(got))));
  }
  if (got == 0) return file.Commit();
  return Internal(path, ": ", ErrorText(zip_error_code_zip(zip_source_error(archive))));
}

}  // namespace

absl::StatusOr<NpzArrays> ReadNpz(const std::string& path) {
  ASSIGN_OR_RETURN(const InputFile file, InputFile::Open(path));
  std::string tail;
  tail.resize(kEndRecordBytes + 0xffff);
  ASSIGN_OR_RETURN(const size_t got, file.ReadTail(tail.data(), tail.size()));
  RETURN_IF_ERROR(Annotate(CheckEndRecord(absl::string_view(tail.data(), got)), path));
  ZipInput input(file);
  ASSIGN_OR_RETURN(const ZipPtr zip, Annotate(OpenArchive(input), path));
  RETURN_IF_ERROR(Annotate(CheckUnpackedSize(zip.get(), file.size()), path));
  return Annotate(ReadArchive(zip.get(), file.size()), path);
}

absl::Status WriteNpz(const std::string& path, const NpzArrays& arrays) {
  if (arrays.empty()) {
    return InvalidArgument(path, ": no arrays to write");
  }
  // In memory, because libzip seeks, and `path` may be a pipe.
  zip_source_t* const archive = zip_source_buffer_create(nullptr, 0, 0, nullptr);
  const absl::Cleanup free_archive = [archive] { zip_source_free(archive); };
  ZipPtr zip(archive == nullptr ? nullptr : zip_open_from_source(archive, ZIP_TRUNCATE, nullptr));
  if (zip == nullptr) return ResourceExhausted(path, ": no memory");
  zip_source_keep(archive);           // One reference is the zip's.
  std::vector<std::string> contents;  // Read by zip_close.
  contents.reserve(arrays.size());
  RETURN_IF_ERROR(Annotate(AddMembers(zip.get(), arrays, contents), path));
  if (zip_close(zip.get()) != 0) {
    return absl::UnknownError(absl::StrCat(path, ": ", zip_strerror(zip.get())));
  }
  static_cast<void>(zip.release());  // Freed by zip_close.
  return Save(archive, path);
}

}  // namespace ulfd::engine
