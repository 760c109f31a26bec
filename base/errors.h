// Statuses whose message is the arguments side by side, as absl::StrCat joins them:
//   return InvalidArgument("take_param.axis: ", axis, ", want 1 or more");
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_BASE_ERRORS_H_
#define ULFD_BASE_ERRORS_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/text.h"

namespace ulfd {

template <typename... Parts>
absl::Status AlreadyExists(const Parts&... parts) {
  return absl::AlreadyExistsError(absl::StrCat(parts...));
}
template <typename... Parts>
absl::Status DataLoss(const Parts&... parts) {
  return absl::DataLossError(absl::StrCat(parts...));
}
template <typename... Parts>
absl::Status FailedPrecondition(const Parts&... parts) {
  return absl::FailedPreconditionError(absl::StrCat(parts...));
}
template <typename... Parts>
absl::Status Internal(const Parts&... parts) {
  return absl::InternalError(absl::StrCat(parts...));
}
template <typename... Parts>
absl::Status InvalidArgument(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}
template <typename... Parts>
absl::Status NotFound(const Parts&... parts) {
  return absl::NotFoundError(absl::StrCat(parts...));
}
template <typename... Parts>
absl::Status OutOfRange(const Parts&... parts) {
  return absl::OutOfRangeError(absl::StrCat(parts...));
}
template <typename... Parts>
absl::Status ResourceExhausted(const Parts&... parts) {
  return absl::ResourceExhaustedError(absl::StrCat(parts...));
}
template <typename... Parts>
absl::Status Unavailable(const Parts&... parts) {
  return absl::UnavailableError(absl::StrCat(parts...));
}
template <typename... Parts>
absl::Status Unimplemented(const Parts&... parts) {
  return absl::UnimplementedError(absl::StrCat(parts...));
}

// The parts and ": " before the text of an error (see base/text.h).
template <typename... Parts>
absl::Status Annotate(const absl::Status& status, const absl::AlphaNum& first,
                      const absl::AlphaNum& second, const Parts&... more) {
  if (status.ok()) return status;
  return Annotate(status, absl::string_view(absl::StrCat(first, second, more...)));
}
template <typename T, typename... Parts>
absl::StatusOr<T> Annotate(absl::StatusOr<T> result, const Parts&... parts) {
  if (result.ok()) return result;
  return Annotate(result.status(), absl::string_view(absl::StrCat(parts...)));
}

}  // namespace ulfd

#endif  // ULFD_BASE_ERRORS_H_
