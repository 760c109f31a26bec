// What ThreadSanitizer cannot see, because Debian's libraries are not instrumented.
//
// absl::Status: the atomic reference count of a shared one orders nothing for it, and the last
// owner's delete looks like a race with an earlier owner's read.
//
// oneDNN: a thread that asks its primitive cache for what another is just making waits for a
// std::future, made within the library, and then compares keys that lie in what the other
// allocated, or is given a primitive descriptor that the other has made.  Of the library's own
// accesses only those through memcmp, memcpy and the like are seen at all, and what dnnl.hpp copies
// in our own code.
// SPDX-License-Identifier: Apache-2.0

extern "C" const char* __tsan_default_suppressions();

const char* __tsan_default_suppressions() {
  return "race:absl::*::Status::UnrefNonInlined\n"
         "race:libdnnl.so\n"
         "race:dnnl::primitive_desc_base::query_md\n";
}
