// Files mapped read-only, whose damage is a status rather than a signal.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_BASE_MAPPED_FILE_H_
#define ULFD_BASE_MAPPED_FILE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/file.h"

namespace ulfd {

// The pages of a file, shared by all processes that map it.  They can go away while they are read:
// a file may be cut, a disk may fail.  Linux then sends SIGBUS, and nothing but a handler of it can
// help, as neither locks nor leases nor mlock keep others from cutting a file.  Ours puts zeros in
// place of the bytes from the first bad page on, so that the reader goes on, and Check() tells from
// then on that what was read is worthless.  Any thread may read and check.
class MappedFile {
 public:
  // Maps the whole of `file` as it is now; it may be closed afterwards.  INVALID_ARGUMENT if it is
  // empty, RESOURCE_EXHAUSTED if all mapped files would take over a quarter of the address space
  // (RLIMIT_AS, or 47 bits).
  static absl::StatusOr<std::unique_ptr<const MappedFile>> Map(const InputFile& file);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const char* data() const { return data_; }
  size_t size() const { return static_cast<size_t>(file_.size()); }
  const std::string& path() const { return file_.path(); }
  // What is mapped, whatever its name leads to by now.
  const InputFile& file() const { return file_; }
  // DATA_LOSS, naming file and byte, once a page that was read could not be had, or some bytes are
  // damaged.  To be asked after reading, before what was read is used.
  absl::Status Check() const;
  // The same, but bytes that are damaged matter only if they are among these.
  absl::Status CheckRead(const char* from, size_t bytes) const;
  // Bytes [begin, end) are not what was written, as checksums told.  Those between two places that
  // are damaged count as damaged, too.  One thread at a time.
  void MarkDamaged(size_t begin, size_t end) const;

 private:
  struct Watch;
  explicit MappedFile(InputFile file) : file_(std::move(file)) {}
  // DATA_LOSS once a page could not be had.
  absl::Status CheckPages() const;
  absl::Status Damage() const;
  // Under the lock that makes one mapping at a time.
  static Watch* StartWatch(const char* data, size_t size);

  InputFile file_;
  char* data_ = nullptr;
  Watch* watch_ = nullptr;  // What the handler knows of the mapping.
  mutable std::atomic<size_t> damage_begin_{SIZE_MAX}, damage_end_{0};
};

// Whether MappedFiles together are larger than half of the memory: reading a page of them may take
// as long as the disk does.
bool MappedFilesExceedMemory();

// Has the kernel read the pages of these mapped bytes, all at a time, without waiting for them.
void StartReading(const void* from, size_t bytes);

}  // namespace ulfd

#endif  // ULFD_BASE_MAPPED_FILE_H_
