// RETURN_IF_ERROR and ASSIGN_OR_RETURN: the only macros of the code base (Debian's Abseil ships
// none).
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_BASE_STATUS_MACROS_H_
#define ULFD_BASE_STATUS_MACROS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

// NOLINTBEGIN(bugprone-macro-parentheses): lhs may be a declaration.
#define RETURN_IF_ERROR(expr)                                                   \
  do {                                                                          \
    if (absl::Status status_macro_status = (expr); !status_macro_status.ok()) { \
      return status_macro_status;                                               \
    }                                                                           \
  } while (false)

#define ULFD_STATUS_CONCAT_INNER(a, b) a##b
#define ULFD_STATUS_CONCAT(a, b) ULFD_STATUS_CONCAT_INNER(a, b)
#define ULFD_ASSIGN_OR_RETURN_IMPL(statusor, lhs, expr)    \
  auto statusor = (expr);                                  \
  if (!statusor.ok()) return std::move(statusor).status(); \
  lhs = *std::move(statusor)

// ASSIGN_OR_RETURN(auto x, MakeX());  lhs may declare a variable.
#define ASSIGN_OR_RETURN(lhs, expr) \
  ULFD_ASSIGN_OR_RETURN_IMPL(ULFD_STATUS_CONCAT(status_macro_or_, __LINE__), lhs, expr)
// NOLINTEND(bugprone-macro-parentheses)

#endif  // ULFD_BASE_STATUS_MACROS_H_
