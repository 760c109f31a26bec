// What ThreadSanitizer cannot see: Debian's libabsl_status is not instrumented, so the atomic
// reference count of a shared absl::Status orders nothing for it, and the last owner's delete looks
// like a race with an earlier owner's read.
// SPDX-License-Identifier: Apache-2.0

extern "C" const char* __tsan_default_suppressions();

const char* __tsan_default_suppressions() { return "race:absl::*::Status::UnrefNonInlined\n"; }
