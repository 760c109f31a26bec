// Files mapped read-only, whose damage is a status rather than a signal.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_BASE_MAPPED_FILE_H_
#define ULFD_BASE_MAPPED_FILE_H_

#include <cstddef>
#include <memory>
#include <string>

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
  size_t size() const { return size_; }
  const std::string& path() const { return path_; }
  // DATA_LOSS, naming file and byte, once a page that was read could not be had.  To be asked after
  // reading, before what was read is used.
  absl::Status Check() const;

 private:
  struct Watch;
  MappedFile() = default;
  // Under the lock that makes one mapping at a time.
  static Watch* StartWatch(const char* data, size_t size);

  std::string path_;
  char* data_ = nullptr;
  size_t size_ = 0;
  Watch* watch_ = nullptr;  // What the handler knows of the mapping.
};

}  // namespace ulfd

#endif  // ULFD_BASE_MAPPED_FILE_H_
