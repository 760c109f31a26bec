// A small file as a whole.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_BASE_TEXT_FILE_H_
#define ULFD_BASE_TEXT_FILE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ulfd {

// NOT_FOUND if it cannot be read or is no regular file (says why), INVALID_ARGUMENT if it is larger
// than `max_bytes`.
absl::StatusOr<std::string> ReadTextFile(const std::string& path, int64_t max_bytes = 1 << 20);

// The content, also of a pipe, which is waited for.  For commands; errors name the file.  At most
// as much as a message can have.
absl::StatusOr<std::string> ReadFileOrPipe(const std::string& path,
                                           size_t max_bytes = size_t{1} << 31);

// Puts `text` in the place of the file as a NewFile, whose errors it has.
absl::Status WriteTextFile(const std::string& path, absl::string_view text);

}  // namespace ulfd

#endif  // ULFD_BASE_TEXT_FILE_H_
