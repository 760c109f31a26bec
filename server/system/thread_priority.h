// Background threads give way to the serving ones.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_SYSTEM_THREAD_PRIORITY_H_
#define ULFD_SERVER_SYSTEM_THREAD_PRIORITY_H_

namespace ulfd::server {

// Lowers the calling thread: nice 10 (about a tenth of the share of a serving thread, so that a
// load still ends on a saturated machine) and the lowest best-effort disk priority.  Names it
// `name` (at most 15 characters) for top and gdb. Where the kernel refuses, the thread stays as it
// is.
void MakeBackgroundThread(const char* name);

}  // namespace ulfd::server

#endif  // ULFD_SERVER_SYSTEM_THREAD_PRIORITY_H_
